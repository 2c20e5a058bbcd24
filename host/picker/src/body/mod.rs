//! Reads inference requests and responses: the model, the prompt and the tokens.
//!
//! `RequestReader` reads a request's body in one pass, in arbitrary chunks, and stores byte ranges instead of copies. `UsageReader` and
//! `ResponseModel` read a response while it is streamed. None of them builds a tree.
//!
//! The model server parses the body again, and must find the same model. Bodies that servers parse differently are therefore rejected: a
//! `model` that occurs twice or with capitals (Go ignores case), a byte order mark, UTF-16 (Python accepts both), and anything after the
//! object. Inside inner values, only strings and brackets are checked; the rest is left to the server.

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

/// The maximum length of a model's name, in bytes.
pub const MAX_MODEL: usize = 256;

/// The maximum length of a cache salt, in bytes.
pub const MAX_SALT: usize = 1024;

/// The maximum depth of nested objects and arrays below the outermost object.
pub const MAX_DEPTH: u32 = 128;

/// The default maximum size of a request's body, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
