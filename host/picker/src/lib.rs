//! Decides which endpoint gets a request, and when: the exchange with a proxy, the queue, the prefixes that endpoints have seen, and the
//! metrics of model servers. Only data and arithmetic: no Kubernetes, no async runtime, no network, no clock.

pub mod body;
pub mod config;
pub mod engine_metrics;
pub mod fleet;
pub mod flow;
pub mod latency;
pub mod pick;
pub mod prefix;
pub mod protocol;
pub mod random;
pub mod rewrite;
pub mod simulation;
