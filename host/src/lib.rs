//! Pointsman's host: what waits, listens and writes. What plugins are is `pointsman-sandbox`, and what becomes of a subject `pointsman-core`.

pub mod allocator;
pub mod apply;
pub mod cli;
pub mod comparison;
pub mod controller;
pub mod crds;
pub mod gateway;
pub mod keeper;
pub mod leader;
pub mod liveness;
pub mod load;
pub mod logging;
pub mod memory_usage;
pub mod metrics;
pub mod outbound;
pub mod pace;
pub mod permissions;
pub mod problem;
pub mod queue;
pub mod revision;
pub mod serve;
pub mod source;
pub mod traces;
pub mod trust;
pub mod watch;
