//! The gateway's connection to the cluster: InferenceModels and their reservations become the catalog, and this gateway's activity becomes
//! its ConfigMap.

pub mod activity;
pub mod review;
pub mod view;
mod watches;

pub use watches::Watches;
