//! ome.io/v1beta1: models, the runtimes that serve them, and the services, jobs and weights made from them.
//!
//! Where upstream's API server takes an object, so does ours: only those fields are required without which an object
//! means nothing.

pub mod base_model;
pub mod benchmark_job;
pub mod component;
pub mod fine_tuned_weight;
pub mod inference_service;
pub mod model;
pub mod predictor;
pub mod service_status;
pub mod serving_runtime;
pub mod storage;
pub mod training_job;
