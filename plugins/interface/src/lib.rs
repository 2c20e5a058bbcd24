//! The records of questions and answers, as `wit/` defines them in its newest version. They are declared once, for the host and the SDK,
//! with the JSON form that commands, golden cases and `explain` use.
//!
//! docs/plugin-abi.md describes the JSON form: a record is an object with names in camelCase, an enum is its name, a variant is an object
//! with one field (or only its name), an absent option is omitted, the type `json` is the value itself, and NaN is null.
//!
//! WIT remains the authority. wit-bindgen uses these types instead of its own, and compiles only if fields and cases agree. wasmtime
//! compares them with each component that it links.

// wasmtime's derives generate unsafe implementations of its traits.
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
