//! The named formats of Kubernetes.

use super::args::{give, give_optional, give_special, give_texts, special, text};
use super::{Function, P, global, member};
use crate::value::special::Special;
use crate::value::time::days_of;
use crate::value::url::Url;
use cel::common::types::CelOptional;

const FORMAT: P = P::Special("kubernetes.NamedFormat");
const NOTHING: &[(&[P], P)] = &[(&[], FORMAT)];
/// The maximum length of a DNS label and of a subdomain.
const LABEL: usize = 63;
const SUBDOMAIN: usize = 253;

/// A format, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedFormat {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    Datetime,
}

use NamedFormat as F;

const NAMES: [(&str, NamedFormat); 13] = [
    ("dns1123Label", F::Dns1123Label),
    ("dns1123Subdomain", F::Dns1123Subdomain),
    ("dns1035Label", F::Dns1035Label),
    ("qualifiedName", F::QualifiedName),
    ("dns1123LabelPrefix", F::Dns1123LabelPrefix),
    ("dns1123SubdomainPrefix", F::Dns1123SubdomainPrefix),
    ("dns1035LabelPrefix", F::Dns1035LabelPrefix),
    ("labelValue", F::LabelValue),
    ("uri", F::Uri),
    ("uuid", F::Uuid),
    ("byte", F::Byte),
    ("date", F::Date),
    ("datetime", F::Datetime),
];

pub(crate) const FUNCTIONS: &[Function] = &[
    global("format.dns1123Label", NOTHING, |_| give_special(F::Dns1123Label)),
    global("format.dns1123Subdomain", NOTHING, |_| give_special(F::Dns1123Subdomain)),
    global("format.dns1035Label", NOTHING, |_| give_special(F::Dns1035Label)),
    global("format.qualifiedName", NOTHING, |_| give_special(F::QualifiedName)),
    global("format.dns1123LabelPrefix", NOTHING, |_| give_special(F::Dns1123LabelPrefix)),
    global("format.dns1123SubdomainPrefix", NOTHING, |_| give_special(F::Dns1123SubdomainPrefix)),
    global("format.dns1035LabelPrefix", NOTHING, |_| give_special(F::Dns1035LabelPrefix)),
    global("format.labelValue", NOTHING, |_| give_special(F::LabelValue)),
    global("format.uri", NOTHING, |_| give_special(F::Uri)),
    global("format.uuid", NOTHING, |_| give_special(F::Uuid)),
    global("format.byte", NOTHING, |_| give_special(F::Byte)),
    global("format.date", NOTHING, |_| give_special(F::Date)),
    global("format.datetime", NOTHING, |_| give_special(F::Datetime)),
    global("format.named", &[(&[P::String], P::Optional(&FORMAT))], |args| {
        let wanted = text(&args, 0)?;
        let found = NAMES.iter().find(|(name, _)| *name == wanted);
        give_optional(found.map(|(_, format)| Box::new(Special(*format)) as crate::value::Owned))
    }),
    member("validate", &[(&[FORMAT, P::String], P::Optional(&P::List(&P::String)))], |args| {
        let wrong = special::<NamedFormat>(&args, 0)?.validate(text(&args, 1)?);
        if wrong.is_empty() { give(CelOptional::none()) } else { give(CelOptional::of(give_texts(wrong)?.into_owned())) }
    }),
];

impl NamedFormat {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }

    /// The problems of a text.
    fn validate(self, text: &str) -> Vec<String> {
        match self {
            F::Dns1123Label => dns_1123_label(text),
            F::Dns1123Subdomain => dns_1123_subdomain(text),
            F::Dns1035Label => dns_1035_label(text),
            F::Dns1123LabelPrefix => dns_1123_label(&without_dash(text)),
            F::Dns1123SubdomainPrefix => dns_1123_subdomain(&without_dash(text)),
            F::Dns1035LabelPrefix => dns_1035_label(&without_dash(text)),
            F::QualifiedName => qualified_name(text),
            F::LabelValue => label_value(text),
            F::Uri => Url::is_valid(text).err().into_iter().collect(),
            F::Uuid => unless(is_uuid(text), "does not match the UUID format"),
            F::Byte => unless(is_base64(text), "invalid base64"),
            F::Date => unless(is_date(text), "invalid date"),
            F::Datetime => unless(is_datetime(text), "invalid datetime"),
        }
    }
}

fn unless(valid: bool, otherwise: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![otherwise.to_owned()] }
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

/// Whether a text starts with an allowed byte, ends with an allowed byte, and contains only allowed bytes.
fn made_of(text: &str, first: fn(u8) -> bool, middle: fn(u8) -> bool, last: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| first(*byte)) && bytes.last().is_some_and(|byte| last(*byte)) && bytes.iter().all(|byte| middle(*byte))
}

fn small(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn small_or_dash(byte: u8) -> bool {
    small(byte) || byte == b'-'
}

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

fn first_in_1035(byte: u8) -> bool {
    byte.is_ascii_lowercase()
}

fn is_1123_label(text: &str) -> bool {
    made_of(text, small, small_or_dash, small)
}

fn is_1123_subdomain(text: &str) -> bool {
    text.split('.').all(is_1123_label)
}

fn dns_1123_label(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, LABEL).into_iter().collect();
    if !is_1123_label(text) {
        wrong.push(if is_1123_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
             alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned()
        });
    }
    wrong
}

fn dns_1123_subdomain(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, SUBDOMAIN).into_iter().collect();
    if !is_1123_subdomain(text) {
        wrong.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
             alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    wrong
}

fn dns_1035_label(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, LABEL).into_iter().collect();
    if !made_of(text, first_in_1035, small_or_dash, small) {
        wrong.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with \
             an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    wrong
}

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
    (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn qualified_name(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return vec![format!("a qualified name {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")];
        }
    };
    let mut wrong = Vec::new();
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => wrong.extend(dns_1123_subdomain(prefix).into_iter().map(|why| format!("prefix part {why}"))),
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else {
        wrong.extend(too_long(name, LABEL).map(|why| format!("name part {why}")));
    }
    if !made_of(name, alphanumeric, in_name, alphanumeric) {
        wrong.push(format!("name part {NAME_RULE}"));
    }
    wrong
}

fn label_value(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, LABEL).into_iter().collect();
    if !text.is_empty() && !made_of(text, alphanumeric, in_name, alphanumeric) {
        wrong.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    wrong
}

/// The prefix of a generated name may end with a dash, because something follows.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut masked = rest.to_owned();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => text.to_owned(),
    }
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for (at, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0
            && let Some(behind) = rest.strip_prefix(b"-")
        {
            rest = behind;
        }
        match rest.split_at_checked(length) {
            Some((group, behind)) if group.iter().all(u8::is_ascii_hexdigit) => rest = behind,
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

fn is_date(text: &str) -> bool {
    let number = |from: usize, to: usize| {
        text.get(from..to).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit())).and_then(|part| part.parse().ok())
    };
    let shape = text.len() == 10 && text.get(4..5) == Some("-") && text.get(7..8) == Some("-");
    match (number(0, 4), number(5, 7), number(8, 10)) {
        (Some(year), Some(month), Some(day)) => shape && (1..=12).contains(&month) && day >= 1 && day <= days_of(year, month),
        _ => false,
    }
}

fn is_datetime(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let two = |from: usize, most: u32| {
        let digits = text.get(from..from + 2).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse::<u32>().ok()).is_some_and(|value| value <= most)
    };
    if !(two(0, 23) && two(3, 59) && two(6, 59) && text.get(2..3) == Some(":") && text.get(5..6) == Some(":")) {
        return false;
    }
    let rest = text.get(8..).unwrap_or_default();
    let zone = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let fraction = rest.get(..rest.len() - zone.len()).unwrap_or_default();
    let fraction_fits = fraction.is_empty() || fraction.strip_prefix('.').is_some_and(|digits| !digits.is_empty() && !digits.contains('.'));
    let zone_fits = zone == "z"
        || zone.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':')).is_some_and(|(hours, minutes)| {
            [hours, minutes].iter().all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()))
        });
    fraction_fits && zone_fits
}
