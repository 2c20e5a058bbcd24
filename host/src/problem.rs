//! Problems in statuses and the log.

use pointsman_sandbox::text;
use std::{error::Error, fmt::Display};

/// An error and its causes, as a sentence. The API server's message replaces kube's text, which shows the whole response.
pub fn sentence(error: &(dyn Error + 'static)) -> String {
    let said = text::sentence(error);
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(answer @ kube::Error::Api(status)) = kube_error(error)
            && !status.message.is_empty()
        {
            return said.replace(&answer.to_string(), &status.message);
        }
        cause = error.source();
    }
    said
}

/// The error as one of kube, which other errors may box.
fn kube_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a kube::Error> {
    error.downcast_ref::<kube::Error>().or_else(|| error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref))
}

/// Whether the API server refused a request because a right is missing.
pub fn is_forbidden(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if matches!(kube_error(error), Some(kube::Error::Api(status)) if status.code == 403) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A problem with a PolicyPlugin or a ValidationRule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A CamelCase word.
    pub reason: String,
    /// The problem and the remedy.
    pub message: String,
}

impl Problem {
    /// An error as a sentence, under its reason.
    pub fn new(reason: &str, error: &dyn Display) -> Self {
        Self { reason: reason.to_owned(), message: format!("{error}.") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::RevisionError;
    use kube::{core::Status, runtime::watcher};

    #[test]
    fn a_refusal_is_found_below_what_was_tried() {
        let answer = |code| kube::Error::Api(Box::new(Status::failure("no", "Forbidden").with_code(code)));
        assert!(is_forbidden(&answer(403)) && is_forbidden(&watcher::Error::InitialListFailed(answer(403))));
        assert!(!is_forbidden(&answer(404)) && !is_forbidden(&std::io::Error::other("a file")));
    }

    #[test]
    fn of_the_api_server_s_answer_the_message_is_told_once() {
        let answer = || kube::Error::Api(Box::new(Status::failure("pods is forbidden", "Forbidden").with_code(403)));
        assert_eq!(sentence(&answer()), "pods is forbidden");
        let listing = watcher::Error::InitialListFailed(answer());
        assert_eq!(sentence(&listing), "failed to perform initial object list: pods is forbidden");
        assert_eq!(sentence(&std::io::Error::other("a file")), "a file");
        let reading = RevisionError::Cluster { doing: "reading the ConfigMap a".to_owned(), error: Box::new(answer()) };
        assert_eq!(sentence(&reading), "reading the ConfigMap a: pods is forbidden");
    }
}
