//! Where the bytes of plugins come from.

pub mod builtin;
pub mod file;
