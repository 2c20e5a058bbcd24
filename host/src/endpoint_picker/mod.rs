//! The endpoint picker: places requests for proxies. Its data and decisions are in `host/picker`; this module has the connections: to
//! proxies (`grpc`), the cluster (`cluster`), endpoints' metrics (`scrape`) and policies (`policy`).

pub mod cluster;
pub mod counts;
pub mod custom;
mod decide;
pub mod decisions;
pub mod grpc;
pub mod latency;
mod placed;
pub mod policy;
pub mod policy_set;
pub mod pool;
mod probes;
mod read;
mod refusal;
mod room;
pub mod scaling;
pub mod scrape;
pub mod self_signed;
mod session;
pub mod simulate;
mod spans;
pub mod threads;
mod unused;
mod waiting;

pub use decide::Policies;
pub use probes::Probes;
pub use unused::unused;

/// A time of the picker's clock.
fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
