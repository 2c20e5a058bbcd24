//! The sandbox: loads plugins, runs them and restricts them. All code that handles a plugin's bytes or calls a plugin is here. It knows
//! nothing about Kubernetes: the controller, the command line and the data planes use it alike.
//!
//! Bytes are checked (`binary`), compiled within limits or loaded from the cache (`compile`), linked and called (`plugin`, `call`). The
//! engines are created once (`engine`), and all limits are in `limits`. Code that parses untrusted bytes runs in a separate process
//! (`process`).

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
