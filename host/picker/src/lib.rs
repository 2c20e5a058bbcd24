//! Which endpoint a request goes to, and when: what waits, what prefixes endpoints have seen, and what model servers report. Pure data and
//! arithmetic: no Kubernetes, no async runtime, no network, no clock.

pub mod engine_metrics;
pub mod flow;
pub mod prefix;
