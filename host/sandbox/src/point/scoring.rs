//! scheduling-scoring: how well each candidate suits.

use super::{Question, image};
use serde::{Deserialize, Serialize};

/// The question: its matrix has a row a candidate, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Request<'a> {
    /// What is asked for.
    pub question: Question,
    /// The length of a row.
    pub columns: u32,
    /// The rows.
    #[serde(serialize_with = "image::numbers::serialize")]
    pub matrix: &'a [f64],
    /// The row that is to be explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
}

impl Request<'_> {
    /// The number of candidates.
    pub fn rows(&self) -> usize {
        self.matrix.len().checked_div(self.columns as usize).unwrap_or_default()
    }
}

/// The answer: a score a row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scores(#[serde(with = "image::numbers")] pub Vec<f64>);
