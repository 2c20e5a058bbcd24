//! What listens.

pub mod admission;
pub mod external_metrics;
pub mod health;
