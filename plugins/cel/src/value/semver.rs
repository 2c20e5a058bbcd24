//! Semantic versions.

use std::cmp::Ordering;
use std::fmt;

/// A part of a pre-release. Numbers precede words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

/// A version. The build metadata is stored, but ignored in comparisons.
#[derive(Clone, Debug)]
pub(crate) struct Semver {
    /// The major version.
    pub(crate) major: u64,
    /// The minor version.
    pub(crate) minor: u64,
    /// The patch version.
    pub(crate) patch: u64,
    pre: Vec<Identifier>,
    build: String,
}

impl Semver {
    /// Parses a version with all three numbers.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let build = build.unwrap_or_default();
        if text.contains('+') && build.split('.').any(|part| part.is_empty() || !part.bytes().all(in_word)) {
            return Err(format!("Invalid build meta data {build:?}"));
        }
        Ok(Semver {
            major: number("major", major)?,
            minor: number("minor", minor)?,
            patch: number("patch", patch)?,
            pre: pre.map_or_else(|| Ok(Vec::new()), |pre| pre.split('.').map(identifier).collect())?,
            build: build.to_owned(),
        })
    }

    /// Also accepts versions such as `v1.2`: a leading `v`, missing numbers and leading zeros are corrected.
    pub(crate) fn parse_tolerantly(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }

    /// Compares two versions. A pre-release precedes its release.
    pub(crate) fn compared(&self, other: &Semver) -> Ordering {
        (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch)).then_with(|| {
            match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre.cmp(&other.pre),
            }
        })
    }
}

impl PartialEq for Semver {
    fn eq(&self, other: &Self) -> bool {
        self.compared(other) == Ordering::Equal
    }
}

impl fmt::Display for Semver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (at, part) in self.pre.iter().enumerate() {
            out.write_str(if at == 0 { "-" } else { "." })?;
            match part {
                Identifier::Number(number) => write!(out, "{number}")?,
                Identifier::Word(word) => out.write_str(word)?,
            }
        }
        if self.build.is_empty() { Ok(()) } else { write!(out, "+{}", self.build) }
    }
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {what} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{what} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| format!("{what} number {text:?} is out of range"))
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        Err("Prerelease is empty".to_owned())
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        number("prerelease", text).map(Identifier::Number)
    } else if text.bytes().all(in_word) {
        Ok(Identifier::Word(text.to_owned()))
    } else {
        Err(format!("Invalid character(s) found in prerelease {text:?}"))
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let stripped = part.trim_start_matches('0');
    if stripped.starts_with(|first: char| first.is_ascii_digit()) { stripped.to_owned() } else { format!("0{stripped}") }
}
