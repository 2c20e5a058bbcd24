//! The servers of the host.

pub mod admission;
pub mod external_metrics;
pub mod health;
