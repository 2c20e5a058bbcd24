//! inference.eh-ops.io: models that compete for the memory of a node pool.

pub mod inference_model;
