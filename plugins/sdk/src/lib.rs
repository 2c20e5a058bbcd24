//! Write Pointsman policies in Rust: a plain function and one macro call.
//!
//! A policy uses the newest records, and the plugin exports both the published interfaces and the draft of the next ones. The host calls it
//! with the newest version that it may use. With 0.1.0, fields that were added later are empty, and the parts of an answer that 0.1.0 lacks
//! are omitted or converted.
//!
//! ```
//! use pointsman_plugin::{Failure, metadata_propagation::{Answer, Request}};
//!
//! #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
//! #[serde(default, deny_unknown_fields)]
//! struct Config {
//!     /// The label that every pod gets.
//!     label: String,
//! }
//!
//! fn propagate(config: &Config, request: Request) -> Result<Answer, Failure> {
//!     let mut answer = Answer::unchanged(request);
//!     answer.put_label(&config.label, "yes", "plugin");
//!     Ok(answer)
//! }
//!
//! pointsman_plugin::export! { config: Config, metadata_propagation: propagate }
//! ```
//!
//! The functions of a policy get a `Request` and return an answer; their modules are [`runtime_selection`], [`pod_templating`],
//! [`metadata_propagation`] and [`scheduling_scoring`]. Policies at pod-templating read the current template with
//! [`pod_templating::Request::template`], and return the changes as [`pod_templating::Operation`]s.
//!
//! A crate with this code and `crate-type = ["cdylib", "rlib"]` is a plugin if it is built for `wasm32-unknown-unknown`. For every other
//! target, it is an ordinary library with the same types, so `cargo test` can test its function. If the plugin panics, the host reports the
//! panic's message in its error.

pub mod log;

#[doc(hidden)]
pub mod bindings;
mod export;
mod matrix;
mod panics;
mod policy;

pub use pointsman_interface::{
    Entry, Fact, Failure, FailureKind, IMAGE_MIRROR, Question, Reason, Role, Subject, entry, lookup, mirrored,
    plugin::{Description, FeatureSet, Point},
    reason,
};
pub use policy::{NoConfig, Policy};

/// Which runtimes can serve a model: `fn judge(&Config, Request) -> Result<Vec<Verdict>, Failure>`.
pub mod runtime_selection {
    pub use pointsman_interface::runtime_selection::{
        Accelerator, AcceleratorNeeds, Assignment, Candidate, Comparison, Current, Demand, Eligible, Model, Request, Supported,
        SupportedModel, Verdict, Versioned, eligible, excluded,
    };
}

/// How a pod is built: `fn template(&Config, Request) -> Result<Answer, Failure>`.
pub mod pod_templating {
    pub use pointsman_interface::pod_templating::{Action, Answer, Layer, Operation, Request};
}

/// Which labels and annotations are propagated to which objects: `fn propagate(&Config, Request) -> Result<Answer, Failure>`.
pub mod metadata_propagation {
    pub use pointsman_interface::metadata_propagation::{Answer, Dropped, Layer, Place, Placed, Request, Sort, Target};
}

/// How suitable each candidate is: `fn score(&Config, Question, &Matrix) -> Result<Vec<f64>, Failure>`. Optionally,
/// `fn explain(&Config, Question, &Matrix, row: usize) -> Vec<Term>` explains the score of one candidate.
pub mod scheduling_scoring {
    pub use crate::{Question, matrix::Matrix};
    pub use pointsman_interface::scheduling_scoring::{Request, Scores, Term};
}

/// For `export!` only.
#[doc(hidden)]
pub mod private {
    pub use crate::policy::schema;
    pub use std::sync::OnceLock;
    include!(concat!(env!("OUT_DIR"), "/worlds.rs"));
}
