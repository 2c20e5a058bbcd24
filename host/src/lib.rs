//! Pointsman's host: everything but the judgement, which WebAssembly policies bring.

pub mod cli;
pub mod crds;
pub mod policy;
pub mod serve;
pub mod world;
