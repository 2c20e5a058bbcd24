//! What listens.

pub mod health;
