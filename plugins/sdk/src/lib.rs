//! Write Pointsman policies in Rust: a plain function and one macro line.
//!
//! A policy is written against the newest records, and the plugin speaks both the published interfaces and the draft of the next ones: a host
//! asks by the newest that it may. Where that is 0.1.0, the fields that came later are empty, and what 0.1.0 has no place for in an answer
//! is left out or spelled out.
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
//! The crate that has this, with `crate-type = ["cdylib", "rlib"]`, is a plugin when it is built for `wasm32-unknown-unknown`. Everywhere
//! else it is an ordinary library with the same types: its function is tested with `cargo test`. The message of a panic is a part of the
//! error that the host reports.

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

/// What a pod looks like: `fn template(&Config, Request) -> Result<Answer, Failure>`.
pub mod pod_templating {
    pub use pointsman_interface::pod_templating::{Action, Answer, Layer, Operation, Request};
}

/// Which labels and annotations are carried where: `fn propagate(&Config, Request) -> Result<Answer, Failure>`.
pub mod metadata_propagation {
    pub use pointsman_interface::metadata_propagation::{Answer, Dropped, Layer, Place, Placed, Request, Sort, Target};
}

/// How well each candidate suits: `fn score(&Config, Question, &Matrix) -> Result<Vec<f64>, Failure>`, and for the one who wants to know
/// why, `fn explain(&Config, Question, &Matrix, row: usize) -> Vec<Term>`.
pub mod scheduling_scoring {
    pub use crate::{Question, matrix::Matrix};
    pub use pointsman_interface::scheduling_scoring::{Request, Scores, Term};
}

/// What `export!` needs, and nobody else.
#[doc(hidden)]
pub mod private {
    pub use crate::policy::schema;
    pub use std::sync::OnceLock;
    include!(concat!(env!("OUT_DIR"), "/worlds.rs"));
}
