//! What an object's status says is wrong with it.

use std::fmt::Display;

/// Something that is wrong with a PolicyPlugin or a ValidationRule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One CamelCase word.
    pub reason: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Problem {
    /// An error as a sentence, under its reason.
    pub fn new(reason: &str, error: &dyn Display) -> Self {
        Self { reason: reason.to_owned(), message: format!("{error}.") }
    }
}
