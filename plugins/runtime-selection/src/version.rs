//! Versions of formats and frameworks.

use pointsman_plugin::runtime_selection::Comparison;
use std::cmp::Ordering;

/// A version: `[v]MAJOR[.MINOR[.PATCH]][.dev][-pre][+build]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    prefixed: bool,
    parts: usize,
    numbers: [u64; 3],
    dev: Option<&'a str>,
    pre: Option<&'a str>,
    build: Option<&'a str>,
}

/// Why two versions are incompatible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incompatible {
    /// The runtime's version is unreadable.
    RuntimeUnreadable,
    /// The model's version is unreadable.
    ModelUnreadable,
    /// One of them is a pre-release, a build or a dev version, and they aren't equal.
    Unofficial,
    /// Their order is needed, but they have different numbers of parts, or only one has a `v`.
    Form,
    /// They can be compared, but don't satisfy the comparison.
    Value,
}

impl<'a> Version<'a> {
    /// Parses a version; none if its form is invalid.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (rest, build) = suffix(text, '+')?;
        let (rest, pre) = suffix(rest, '-')?;
        let (prefixed, mut rest) = rest.strip_prefix('v').map_or((false, rest), |rest| (true, rest));
        let mut version = Self { prefixed, parts: 0, numbers: [0; 3], dev: None, pre, build };
        loop {
            let (part, following) = rest.split_once('.').map_or((rest, None), |(part, following)| (part, Some(following)));
            version.numbers[version.parts] = number(part)?;
            version.parts += 1;
            let Some(following) = following else { return Some(version) };
            if version.parts == version.numbers.len() || following.starts_with("dev") {
                version.dev = Some(complete(following)?);
                return Some(version);
            }
            rest = following;
        }
    }

    fn unofficial(&self) -> bool {
        self.dev.is_some() || self.pre.is_some() || self.build.is_some()
    }

    /// Whether both are the same release, regardless of their form.
    fn same(&self, other: &Self) -> bool {
        self.numbers == other.numbers && self.dev == other.dev && self.pre == other.pre && self.build == other.build
    }
}

/// Splits off the text after the mark.
fn suffix(text: &str, mark: char) -> Option<(&str, Option<&str>)> {
    match text.split_once(mark) {
        None => Some((text, None)),
        Some((rest, suffix)) => Some((rest, Some(complete(suffix)?))),
    }
}

/// Dotted words, none of them empty.
fn complete(words: &str) -> Option<&str> {
    words.split('.').all(|word| !word.is_empty()).then_some(words)
}

fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if digits && !leading_zero { text.parse().ok() } else { None }
}

/// Whether the version in a runtime is compatible with a model's.
pub fn compatible(runtime: &str, comparison: Comparison, model: &str) -> Result<(), Incompatible> {
    let runtime = Version::parse(runtime).ok_or(Incompatible::RuntimeUnreadable)?;
    let model = Version::parse(model).ok_or(Incompatible::ModelUnreadable)?;
    if runtime.unofficial() || model.unofficial() {
        return if runtime.same(&model) { Ok(()) } else { Err(Incompatible::Unofficial) };
    }
    // Upstream requires the same form only if the order is needed: 1 equals 1.0.0, and v4.43.0 equals 4.43.0.
    let ordered = comparison != Comparison::Equal;
    if ordered && (runtime.parts, runtime.prefixed) != (model.parts, model.prefixed) {
        return Err(Incompatible::Form);
    }
    let order = runtime.numbers.cmp(&model.numbers);
    let fits = match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::GreaterThan => order == Ordering::Greater,
        Comparison::GreaterThanOrEqual => order != Ordering::Less,
    };
    if fits { Ok(()) } else { Err(Incompatible::Value) }
}
