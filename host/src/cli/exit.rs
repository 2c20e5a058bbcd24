//! The exit codes of all commands, except for 0 and 1. docs/command-line.md describes them.

use super::output;
use crate::problem::sentence;
use anyhow::{Error, Result};
use std::process::ExitCode;

/// A person must decide: something changes, waits for an approval, is rejected, or gets no objects.
pub(super) const DECISION_NEEDED: u8 = 2;

/// An input can't be read, so its correctness isn't known.
pub(super) const UNREADABLE: u8 = 3;

/// The command line is invalid: `EX_USAGE` of sysexits.h.
pub(super) const USAGE: u8 = 64;

/// The command line is invalid in a way that clap doesn't find: see [`usage`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// An error in the command line that clap doesn't find.
pub(super) fn usage(message: impl Into<String>) -> Error {
    UsageError(message.into()).into()
}

/// An input can't be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct UnreadableError(Error);

/// The result of reading an input.
pub(super) trait InputResult<T> {
    /// Marks the error as one of an input that can't be read.
    fn readable(self) -> Result<T>;
}

impl<T, E: Into<Error>> InputResult<T> for Result<T, E> {
    fn readable(self) -> Result<T> {
        self.map_err(|error| UnreadableError(error.into()).into())
    }
}

/// Several errors in the inputs: a person fixes all of them before the next attempt.
#[derive(Debug, thiserror::Error)]
#[error("{}", lines(.0))]
pub(super) struct InputErrors(Vec<Error>);

impl InputErrors {
    /// Fails if there are errors.
    pub(super) fn check(mut errors: Vec<Error>) -> Result<()> {
        match errors.len() {
            0 => Ok(()),
            1 => errors.pop().map_or(Ok(()), Err),
            _ => Err(Self(errors).into()),
        }
    }
}

fn lines(errors: &[Error]) -> String {
    errors.iter().map(|error| sentence(error.as_ref())).collect::<Vec<_>>().join("\n")
}

/// Writes an error to stderr: a line for each of several.
pub fn report(error: &Error) {
    match error.downcast_ref() {
        Some(InputErrors(errors)) => errors.iter().for_each(report),
        None => output::error(sentence(error.as_ref())),
    }
}

/// The exit code for an error.
pub fn code(error: &Error) -> ExitCode {
    if let Some(InputErrors(errors)) = error.downcast_ref() {
        let is_unreadable = |error: &Error| error.chain().any(<dyn std::error::Error>::is::<UnreadableError>);
        return if errors.iter().any(is_unreadable) { ExitCode::from(UNREADABLE) } else { ExitCode::FAILURE };
    }
    for cause in error.chain() {
        if cause.is::<UsageError>() {
            return ExitCode::from(USAGE);
        }
        if cause.is::<UnreadableError>() {
            return ExitCode::from(UNREADABLE);
        }
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};
    use std::io;

    #[test]
    fn the_code_follows_from_the_error_regardless_of_its_context() {
        let absent = || Err::<(), _>(io::Error::other("no such file"));
        let unread = absent().context("reading a.yaml").readable().unwrap_err();
        assert_eq!(sentence(unread.as_ref()), "reading a.yaml: no such file");
        let usage = usage("specify a file");
        let coded = |error: &Error| format!("{:?}", code(error));
        let expected = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(coded(&unread), expected(UNREADABLE));
        assert_eq!(coded(&unread.context("comparing")), expected(UNREADABLE));
        assert_eq!((coded(&usage), coded(&usage.context("of this command"))), (expected(USAGE), expected(USAGE)));
        assert_eq!(coded(&anyhow!("no answer")), expected(1));

        let wrong = || anyhow!("a.yaml:1: it is wrong");
        assert!(InputErrors::check(Vec::new()).is_ok());
        assert_eq!(InputErrors::check(vec![wrong()]).unwrap_err().to_string(), "a.yaml:1: it is wrong");
        let both = InputErrors::check(vec![wrong(), absent().context("reading b.yaml").readable().unwrap_err()]).unwrap_err();
        assert_eq!(sentence(both.as_ref()), "a.yaml:1: it is wrong\nreading b.yaml: no such file");
        let wrong = InputErrors::check(vec![wrong(), wrong()]).unwrap_err();
        assert_eq!((coded(&both), coded(&wrong)), (expected(UNREADABLE), expected(1)));
    }
}
