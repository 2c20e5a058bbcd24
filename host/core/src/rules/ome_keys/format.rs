//! The format of a value: as a function, with which the host parses it, and in CEL, with which the practices check it.

use crate::quantity;
use serde_json::Value;

/// The format of an annotation's values.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name of the practice's variable that contains the rejected values.
    pub(super) name: &'static str,
    check: Check,
    /// A description of the valid values, for messages.
    what: &'static str,
    /// Examples of values, for the practice's warning.
    such_as: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Check {
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// The values that the function accepts. The CEL expression is true of a value `s.value` that the function rejects.
    Read { accepts: fn(&str) -> bool, refused: &'static str },
}

pub(super) const fn one_of(name: &'static str, words: &'static [&'static str]) -> Format {
    Format { name, check: Check::OneOf(words), what: "", such_as: "" }
}

const fn read(name: &'static str, what: &'static str, such_as: &'static str, accepts: fn(&str) -> bool, refused: &'static str) -> Format {
    Format { name, check: Check::Read { accepts, refused }, what, such_as }
}

impl Format {
    pub(super) fn what(&self) -> String {
        match self.check {
            Check::OneOf([words @ .., last]) if !words.is_empty() => format!("{} or {last}", words.join(", ")),
            Check::OneOf(words) => words.concat(),
            Check::Read { .. } => self.what.to_owned(),
        }
    }

    /// The end of the practice's warning.
    pub(super) fn must(&self) -> String {
        if self.name == NOT_BLANK.name {
            return "must not be blank".to_owned();
        }
        let such_as = if self.such_as.is_empty() { String::new() } else { format!(", such as {}", self.such_as) };
        format!("must be {}{such_as}", self.what())
    }

    pub(super) fn accepts(&self, value: &str) -> bool {
        match self.check {
            Check::OneOf(words) => words.contains(&value),
            Check::Read { accepts, .. } => accepts(value),
        }
    }

    pub(super) fn word(&self, value: &str) -> Option<&'static str> {
        match self.check {
            Check::OneOf(words) => words.iter().find(|word| **word == value).copied(),
            Check::Read { .. } => None,
        }
    }

    /// The CEL expression that is true of a rejected value.
    pub(super) fn refused(&self) -> String {
        match self.check {
            Check::OneOf([word]) => format!("s.value != '{word}'"),
            Check::OneOf(words) => format!("!(s.value in ['{}'])", words.join("', '")),
            Check::Read { refused, .. } => refused.to_owned(),
        }
    }
}

pub(super) const REPLICAS: Format = read(
    "replicas",
    "a whole number of at least 0",
    "1 or 10",
    |text| replicas(text).is_some(),
    "!(s.value.trim().matches('^([+]?0*[0-9]{1,10}|-0+)$') && int(s.value.trim()) <= 2147483647)",
);

pub(super) const PERCENT: Format =
    read("targets", "a whole number above 0", "80", |text| percent(text).is_some(), "!s.value.trim().matches('^[+]?0*[1-9][0-9]{0,18}$')");

pub(super) const DECIMAL_FROM_CENT: Format = read(
    "knative",
    "a number of at least 0.01",
    "10",
    |text| text.parse::<f64>().is_ok_and(|number| number >= 0.01),
    "!(s.value.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$') && double(s.value) >= 0.01)",
);

pub(super) const STORAGE_LOCATION: Format = read(
    "uris",
    "a storage URI such as oci://n/NAMESPACE/b/BUCKET/o/PATH or hf://ORG/MODEL",
    "",
    is_storage_uri,
    "!s.value.matches('^(oci|pvc|hf|s3|gs|az|http|https|github|vendor|local)://(?s:.)')",
);

pub(super) const WORD: Format = read("words", "a word such as fp16, int8 or int4", "", is_word, "!s.value.matches('^[A-Za-z0-9._-]+$')");

pub(super) const WHOLE: Format = read(
    "numbers",
    "a whole number above 0",
    "8 or 4096",
    |text| text.parse::<u32>().is_ok_and(|number| number > 0),
    "!(s.value.matches('^[+]?0*[1-9][0-9]{0,9}$') && int(s.value) <= 4294967295)",
);

pub(super) const FRACTION: Format = read(
    "fractions",
    "a number above 0 and at most 1",
    "0.8",
    |text| text.parse::<f64>().is_ok_and(|fraction| fraction > 0.0 && fraction <= 1.0),
    "!(s.value.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$') && double(s.value) > 0.0 && double(s.value) <= 1.0)",
);

pub(super) const DELAY: Format =
    read("delays", "a time such as 10ms or 1s", "", is_delay, "!s.value.matches('^[+]?0*[0-9]{1,10}(us|ms|s)$')");

pub(super) const NAME: Format = read(
    "names",
    "the name of an object",
    "fast-ssd",
    is_name,
    "!(s.value.size() <= 253 && s.value.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$'))",
);

pub(super) const SIZE: Format = read(
    "sizes",
    "a quantity above 0",
    "100Gi or 1Ti",
    |text| quantity::parse(&Value::from(text)).is_some_and(|size| size > 0),
    "!(isQuantity(s.value) && sign(quantity(s.value)) > 0)",
);

pub(super) const PORT: Format = read(
    "ports",
    "a port from 1 to 65535",
    "9090",
    |text| text.parse::<u16>().is_ok_and(|port| port > 0),
    "!(s.value.matches('^[+]?0*[1-9][0-9]{0,4}$') && int(s.value) <= 65535)",
);

pub(super) const PATH: Format =
    read("paths", "a path that begins with /", "/metrics", |text| text.starts_with('/'), "!s.value.startsWith('/')");

pub(super) const NOT_BLANK: Format = read("blanks", "text that isn't blank", "", |text| !text.trim().is_empty(), "s.value.trim() == ''");

/// Parses a number of replicas.
pub fn replicas(text: &str) -> Option<i64> {
    text.trim().parse().ok().filter(|number| (0..=i64::from(i32::MAX)).contains(number))
}

/// Parses a whole number above 0.
pub fn percent(text: &str) -> Option<i64> {
    text.trim().parse().ok().filter(|percent| *percent > 0)
}

fn is_storage_uri(text: &str) -> bool {
    const SCHEMES: [&str; 11] = ["oci", "pvc", "hf", "s3", "gs", "az", "http", "https", "github", "vendor", "local"];
    text.split_once("://").is_some_and(|(scheme, place)| SCHEMES.contains(&scheme) && !place.is_empty())
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn is_delay(text: &str) -> bool {
    let count = |unit: &str| text.strip_suffix(unit).is_some_and(|count| count.parse::<u32>().is_ok());
    ["us", "ms", "s"].into_iter().any(count)
}

/// Whether Kubernetes accepts this as the name of an object.
fn is_name(text: &str) -> bool {
    let outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253 && text.starts_with(outer) && text.ends_with(outer) && text.chars().all(|c| outer(c) || matches!(c, '-' | '.'))
}
