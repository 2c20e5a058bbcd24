//! The records that questions and answers are made of, as `wit/` defines them in its newest version: declared once, for the host and
//! for the SDK, with their image in JSON, which commands, golden cases and `explain` speak.
//!
//! The image is that of docs/plugin-abi.md: a record is an object with names in camelCase, an enum its name, a variant an object with
//! one field (or its name alone), an absent option is left out, the type `json` is the value itself, and NaN is null.
//!
//! WIT stays the judge of their form. wit-bindgen takes these types in the place of its own and compiles only if fields and cases
//! agree; wasmtime compares them with each component that it links.

// wasmtime's derive implements its traits, which are unsafe to implement by hand.
#![cfg_attr(feature = "host", allow(unsafe_code, unused_qualifications, clippy::missing_fields_in_debug))]

#[macro_use]
mod declare;

pub mod image;
mod images;
pub mod metadata_propagation;
pub mod plugin;
pub mod pod_templating;
pub mod runtime_selection;
pub mod scheduling_scoring;
mod types;
pub mod version;

pub use images::{IMAGE_MIRROR, mirrored};
pub use types::{Entry, Fact, Failure, FailureKind, Question, Reason, Role, Subject, entry, lookup, reason};
