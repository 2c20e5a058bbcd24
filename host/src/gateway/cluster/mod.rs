//! What the gateway learns of the cluster and what the cluster learns of it: InferenceModels and their places become the catalog, and what this
//! gateway has seen becomes its ConfigMap.

pub mod activity;
pub mod review;
pub mod view;
mod watches;

pub use watches::Watches;
