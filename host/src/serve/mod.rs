//! What listens.

pub mod admission;
pub mod health;
