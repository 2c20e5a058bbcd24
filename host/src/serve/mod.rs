//! What listens.

pub mod health;
pub mod metrics;
