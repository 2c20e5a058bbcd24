//! The exit codes of all commands, except for 0 and 1. docs/command-line.md describes them.

use anyhow::{Error, Result};
use std::process::ExitCode;

/// A person must decide: something changes, waits for an approval, is rejected, or gets no objects.
pub(super) const DECISION_NEEDED: u8 = 2;

/// An input can't be read, so its correctness isn't known.
pub(super) const UNREADABLE: u8 = 3;

/// The command line is invalid: `EX_USAGE` of sysexits.h.
pub(super) const USAGE: u8 = 64;

/// The command line is invalid in a way that clap doesn't find.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(pub(super) String);

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

/// The exit code for an error.
pub fn code(error: &Error) -> ExitCode {
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
    use pointsman_sandbox::text::sentence;
    use std::io;

    #[test]
    fn the_code_follows_from_the_error_regardless_of_its_context() {
        let absent = || Err::<(), _>(io::Error::other("no such file"));
        let unread = absent().context("reading a.yaml").readable().unwrap_err();
        assert_eq!(sentence(unread.as_ref()), "reading a.yaml: no such file");
        let usage = Error::from(UsageError("specify a file".to_owned()));
        let coded = |error: &Error| format!("{:?}", code(error));
        let expected = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(coded(&unread), expected(UNREADABLE));
        assert_eq!(coded(&unread.context("comparing")), expected(UNREADABLE));
        assert_eq!((coded(&usage), coded(&usage.context("of this command"))), (expected(USAGE), expected(USAGE)));
        assert_eq!(coded(&anyhow!("no answer")), expected(1));
    }
}
