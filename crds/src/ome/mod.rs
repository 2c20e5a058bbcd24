//! ome.io/v1beta1: models, the runtimes that serve them, and the services, jobs and weights that use them.
//!
//! Our CRDs accept the objects that upstream's CRDs accept (docs/crds.md lists the exceptions): a field is required only if an object has
//! no meaning without it.

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
