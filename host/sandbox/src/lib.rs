//! The sandbox: what a plugin is, how it is run, and what it may do. Everything that touches a plugin's bytes or calls it is here, and nothing that
//! knows Kubernetes: the controller, the command line and the data planes use it alike.
//!
//! Bytes are accepted (`binary`), compiled within limits or taken from the cache (`compile`), linked and asked (`plugin`, `call`); the engines are
//! made once (`engine`), and every number stands in `limits`. What looks into foreign bytes runs in another process (`process`).

pub mod artifacts;
pub mod binary;
pub mod builtin;
pub mod cache;
pub mod call;
mod command;
pub mod compile;
mod component;
pub mod digest;
pub mod engine;
pub mod evaluator;
pub mod isolate;
pub mod limits;
pub mod plugin;
pub mod point;
mod process;
pub mod schema;
mod slots;
pub mod sync;
pub mod text;
mod wasi;
pub mod words;
