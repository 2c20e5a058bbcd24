//! The exit codes of all commands beside 0 and 1. docs/command-line.md describes them.

/// A person has to decide: something changes, waits for an approval, is refused, or gets no objects.
pub(super) const DECISION_NEEDED: u8 = 2;

/// An input can't be read, so that it isn't known whether it is right.
pub(super) const UNREADABLE: u8 = 3;

/// The command line is wrong: `EX_USAGE` of sysexits.h.
pub(super) const USAGE: u8 = 64;
