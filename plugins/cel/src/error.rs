//! Errors as sentences in Kubernetes' style.

use crate::value::number::{as_int, shortest};
use cel::common::types::{CelBool, CelDouble, CelInt, CelString, CelUInt};
use cel::common::value::Val;
use cel::{ExecutionError, Value};

/// The maximum length of a message, in bytes.
const LONGEST: usize = 512;

/// An error of a function, with its sentence.
pub(crate) fn fail(message: impl Into<String>) -> ExecutionError {
    ExecutionError::FunctionError { function: String::new(), message: message.into() }
}

/// The error for a function without an overload for these types.
pub(crate) fn no_overload() -> ExecutionError {
    fail("no such overload")
}

/// A key as a text, without quotes.
pub(crate) fn key_text(key: &dyn Val) -> String {
    if let Some(text) = key.downcast_ref::<CelString<'_>>() {
        text.inner().to_owned()
    } else if let Some(int) = key.downcast_ref::<CelInt>() {
        int.inner().to_string()
    } else if let Some(uint) = key.downcast_ref::<CelUInt>() {
        uint.inner().to_string()
    } else if let Some(bool) = key.downcast_ref::<CelBool>() {
        bool.inner().to_string()
    } else if let Some(double) = key.downcast_ref::<CelDouble>() {
        shortest(*double.inner())
    } else {
        String::new()
    }
}

/// The sentence for an evaluation error.
pub(crate) fn sentence(error: &ExecutionError) -> String {
    let message = match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::UndeclaredReference(name) => format!("{name} isn't set"),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(_, value, _) => format!("{} overflow", type_of(value)),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {}", plain(index)),
        ExecutionError::UnsupportedKeyType(_) => "unsupported key type".to_owned(),
        ExecutionError::UnexpectedType { got, want } if want == "iterable" => format!("{got} has no elements"),
        _ => "no such overload".to_owned(),
    };
    bounded(message)
}

/// The message, shortened to the maximum length.
pub(crate) fn bounded(mut message: String) -> String {
    if message.len() > LONGEST {
        message.truncate(message.floor_char_boundary(LONGEST - 3));
        message.push_str("...");
    }
    message
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::UInt(_) => "unsigned integer",
        _ => "integer",
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Int(int) => int.to_string(),
        Value::UInt(uint) => uint.to_string(),
        // An integer index is formatted as one, whatever its type.
        Value::Float(double) => as_int(*double).map_or_else(|| shortest(*double), |int| int.to_string()),
        _ => String::new(),
    }
}

/// The most similar name, if one is similar enough.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = match name.chars().count() {
        0..=2 => return None,
        3..=5 => 1,
        6..=9 => 2,
        _ => 3,
    };
    names
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= most * 4)
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance > 0 && *distance <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The number of letters to insert, delete, replace or swap to turn one name into the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, wanted) in other.iter().enumerate() {
            let at = |line: &[usize], at: usize| line.get(at).copied().unwrap_or(usize::MAX / 2);
            let changed = at(&last, column) + usize::from(letter != wanted);
            let mut best = changed.min(at(&last, column + 1) + 1).min(at(&current, column) + 1);
            let swapped = row > 0 && column > 0 && one.get(row - 1) == Some(wanted) && other.get(column - 1) == Some(letter);
            if swapped {
                best = best.min(at(&before_last, column - 1) + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_like_another_is_found() {
        assert_eq!(nearest("obejct", ["object", "oldObject"]), Some("object"));
        assert_eq!(nearest("startWith", ["startsWith", "endsWith"]), Some("startsWith"));
        assert_eq!(nearest("subject", ["object", "params"]), Some("object"));
        assert_eq!(nearest("unrelated", ["object", "params"]), None);
        assert_eq!(nearest("x", ["y"]), None);
    }

    #[test]
    fn a_long_message_is_cut_between_letters() {
        let message = bounded("ö".repeat(400));
        assert!(message.len() <= LONGEST && message.ends_with("ö..."), "{message}");
    }
}
