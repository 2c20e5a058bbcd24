//! serving.kserve.io: KServe's LLMInferenceService.

pub mod llm_inference_service;
pub mod llm_inference_service_config;
pub mod router;
pub mod scaling;
pub mod spec;
