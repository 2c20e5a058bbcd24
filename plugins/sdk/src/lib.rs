//! Write Pointsman policies in Rust: a plain function and one macro line.
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
//!     let mut answer = Answer::of(request);
//!     answer.put_label(&config.label, "yes", "plugin");
//!     Ok(answer)
//! }
//!
//! pointsman_plugin::export! { config: Config, metadata_propagation: propagate }
//! ```
//!
//! The crate that has this, with `crate-type = ["cdylib", "rlib"]`, is a plugin when it is built for `wasm32-unknown-unknown`. Everywhere
//! else it is an ordinary library with the same types: its function is tested with `cargo test`.

pub mod log;

#[doc(hidden)]
pub mod bindings;
mod export;
mod image;
mod matrix;
mod metadata;
mod policy;
mod shared;
mod template;
mod verdict;

pub use bindings::{
    exports::pointsman::policy::plugin::{Description, FeatureSet, Point},
    pointsman::policy::types::{Entry, Failure, Question, Reason, Role, Subject},
};
pub use policy::{NoConfig, Policy};
pub use shared::{entry, lookup, reason};

/// Which runtimes can serve a model: `fn judge(&Config, Request) -> Result<Vec<Verdict>, Failure>`.
pub mod runtime_selection {
    pub use crate::bindings::exports::pointsman::policy::runtime_selection::{
        Candidate, Comparison, Eligible, Model, Request, Supported, SupportedModel, Verdict, Versioned,
    };
    pub use crate::verdict::{eligible, excluded};
}

/// What a pod looks like: `fn template(&Config, Request) -> Result<Answer, Failure>`.
pub mod pod_templating {
    pub use crate::bindings::exports::pointsman::policy::pod_templating::{Action, Answer, Layer, Operation, Request};
}

/// Which labels and annotations are carried where: `fn propagate(&Config, Request) -> Result<Answer, Failure>`.
pub mod metadata_propagation {
    pub use crate::bindings::exports::pointsman::policy::metadata_propagation::{
        Answer, Dropped, Layer, Place, Placed, Request, Sort, Target,
    };
}

/// How well each candidate suits: `fn score(&Config, Question, &Matrix) -> Result<Vec<f64>, Failure>`, and for the one who wants to know
/// why, `fn explain(&Config, Question, &Matrix, row: usize) -> Vec<Reason>`.
pub mod scheduling_scoring {
    pub use crate::Question;
    pub use crate::matrix::{Matrix, Request, Scores};
}

/// What `export!` needs, and nobody else.
#[doc(hidden)]
pub mod private {
    pub use crate::policy::schema;
    pub use std::sync::OnceLock;
    include!(concat!(env!("OUT_DIR"), "/worlds.rs"));
}
