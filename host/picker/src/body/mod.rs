//! What inference requests and their answers say: the model, the prompt and the tokens.
//!
//! `RequestReader` reads a request's body in one pass, in any chunks, and keeps byte ranges of it rather than copies. `UsageReader` and
//! `ResponseModel` read an answer while it passes. None of them builds a tree.
//!
//! The server behind reads the body by itself, and must find the same model. So what servers read differently is refused: a `model` that is
//! there twice or in capitals (Go ignores case), a byte order mark and UTF-16 (Python accepts both), and anything behind the object. What is
//! between the strings and brackets of inner values is for the server to judge.

mod answer;
mod api;
mod edit;
mod error;
mod events;
mod fields;
mod form;
mod json;
mod nest;
mod rename;
mod request;
mod text;
mod usage;

#[cfg(test)]
mod tests;

pub use answer::Framing;
pub use api::Api;
pub use edit::ModelEdit;
pub use error::{BodyError, Problem};
pub use rename::ResponseModel;
pub use request::{RequestBody, RequestReader};
pub use usage::{Usage, UsageReader};

/// The longest name of a model, in bytes.
pub const MAX_MODEL: usize = 256;

/// The longest cache salt, in bytes.
pub const MAX_SALT: usize = 1024;

/// How deep objects and arrays may be nested below the first object.
pub const MAX_DEPTH: u32 = 128;

/// The bytes of a request's body, unless a reader has another limit.
pub const MAX_BYTES: usize = 64 << 20;
