//! The exit codes of all commands, except for 0 and 1. docs/command-line.md describes them.

/// A person must decide: something changes, waits for an approval, is rejected, or gets no objects.
pub(super) const DECISION_NEEDED: u8 = 2;

/// An input can't be read, so its correctness isn't known.
pub(super) const UNREADABLE: u8 = 3;

/// The command line is invalid: `EX_USAGE` of sysexits.h.
pub(super) const USAGE: u8 = 64;
