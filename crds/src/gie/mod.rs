//! inference.networking.x-k8s.io: the Gateway API Inference Extension.

pub mod inference_objective;
