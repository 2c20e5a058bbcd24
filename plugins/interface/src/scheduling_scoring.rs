//! How suitable each candidate is.

use crate::{Fact, Question, Reason, image};
use serde::{Deserialize, Serialize};
#[cfg(feature = "host")]
use wasmtime::component::{ComponentType, Lift, Lower};

request! {
    /// The question.
    [] {
        /// What is to be scored.
        question: Question as Question,
        /// The length of a row.
        columns: u32 as u32,
        /// The rows, one per candidate, concatenated. Each row has one column per feature that the plugin requested, in that order.
        #[serde(with = "image::numbers")]
        matrix: Vec<f64> as &'a [f64],
        /// Additional facts, by name. Ignore unknown ones.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        facts: Vec<Fact> as &'a [Fact],
    }
}

impl RequestRef<'_> {
    /// The number of candidates.
    pub fn rows(&self) -> usize {
        self.matrix.len().checked_div(self.columns as usize).unwrap_or_default()
    }
}

/// The answer: one score per row. In JSON, NaN is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scores(#[serde(with = "image::numbers")] pub Vec<f64>);

/// One term of a score, with its explanation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// One CamelCase word that a program may rely on.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// The value that it adds to the score; negative if it lowers the score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

impl Term {
    /// A term with a number.
    pub fn new(code: impl Into<String>, message: impl Into<String>, value: f64) -> Self {
        Self { code: code.into(), message: message.into(), value: Some(value) }
    }
}

impl From<Reason> for Term {
    fn from(Reason { code, message }: Reason) -> Self {
        Self { code, message, value: None }
    }
}

impl From<Term> for Reason {
    fn from(Term { code, message, .. }: Term) -> Self {
        Self { code, message }
    }
}
