//! Short ways to judge a runtime.

use crate::{
    Reason,
    bindings::exports::pointsman::policy::runtime_selection::{Eligible, Supported, Verdict, Versioned},
    reason,
};

/// A runtime that can serve the model; the higher the score, the better.
pub fn eligible(score: f64, reasons: Vec<Reason>) -> Verdict {
    Verdict::Eligible(Eligible { score, tie_break: Vec::new(), reasons })
}

/// A runtime that can't serve the model, or must not.
pub fn excluded(code: impl Into<String>, message: impl Into<String>) -> Verdict {
    Verdict::Excluded(reason(code, message))
}

impl From<Eligible> for Verdict {
    fn from(eligible: Eligible) -> Self {
        Self::Eligible(eligible)
    }
}

impl From<Reason> for Verdict {
    fn from(reason: Reason) -> Self {
        Self::Excluded(reason)
    }
}

impl From<&str> for Versioned {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), version: None }
    }
}

impl From<(&str, &str)> for Versioned {
    fn from((name, version): (&str, &str)) -> Self {
        Self { name: name.to_owned(), version: Some(version.to_owned()) }
    }
}

impl From<&str> for Supported {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

impl From<(&str, &str)> for Supported {
    fn from((name, version): (&str, &str)) -> Self {
        Self { name: name.to_owned(), version: Some(version.to_owned()), ..Self::default() }
    }
}
