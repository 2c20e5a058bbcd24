//! Texts. Positions are counted in characters.

use super::args::{Answer, Args, give_bool, give_count, give_int, give_text, give_texts, int, list, place, text};
use super::{Function, P, member};
use crate::error::{fail, no_overload};
use cel::ExecutionError;
use cel::common::types::CelString;

const S: P = P::String;

pub(crate) const COMPARISONS: &[Function] = &[
    member("contains", &[(&[S, S], P::Bool)], |args| give_bool(text(&args, 0)?.contains(text(&args, 1)?))),
    member("endsWith", &[(&[S, S], P::Bool)], |args| give_bool(text(&args, 0)?.ends_with(text(&args, 1)?))),
    member("startsWith", &[(&[S, S], P::Bool)], |args| give_bool(text(&args, 0)?.starts_with(text(&args, 1)?))),
];

pub(crate) const FUNCTIONS: &[Function] = &[
    member("charAt", &[(&[S, P::Int], S)], |args| {
        let (of, at) = (text(&args, 0)?, int(&args, 1)?);
        let index = within(at, of.chars().count())?;
        give_text(of.chars().nth(index).map(String::from).unwrap_or_default())
    }),
    member("indexOf", &[(&[S, S], P::Int), (&[S, S, P::Int], P::Int)], index_of),
    member("lastIndexOf", &[(&[S, S], P::Int), (&[S, S, P::Int], P::Int)], last_index_of),
    member("join", &[(&[P::List(&S)], S), (&[P::List(&S), S], S)], |args| {
        let separator = if args.len() > 1 { text(&args, 1)? } else { "" };
        let mut joined = String::new();
        for (at, element) in list(&args, 0)?.iter().enumerate() {
            if at > 0 {
                joined.push_str(separator);
            }
            joined.push_str(element.downcast_ref::<CelString<'_>>().ok_or_else(no_overload)?.inner());
        }
        give_text(joined)
    }),
    member("lowerAscii", &[(&[S], S)], |args| give_text(text(&args, 0)?.to_ascii_lowercase())),
    member("upperAscii", &[(&[S], S)], |args| give_text(text(&args, 0)?.to_ascii_uppercase())),
    member("trim", &[(&[S], S)], |args| give_text(text(&args, 0)?.trim())),
    member("replace", &[(&[S, S, S], S), (&[S, S, S, P::Int], S)], |args| {
        let (of, old, new) = (text(&args, 0)?, text(&args, 1)?, text(&args, 2)?);
        match usize::try_from(if args.len() > 3 { int(&args, 3)? } else { -1 }) {
            Ok(most) => give_text(of.replacen(old, new, most)),
            Err(_) => give_text(of.replace(old, new)),
        }
    }),
    member("split", &[(&[S, S], P::List(&S)), (&[S, S, P::Int], P::List(&S))], |args| {
        let (of, separator) = (text(&args, 0)?, text(&args, 1)?);
        let most = usize::try_from(if args.len() > 2 { int(&args, 2)? } else { -1 }).unwrap_or(usize::MAX);
        if separator.is_empty() { give_texts(letters(of, most)) } else { give_texts(of.splitn(most, separator)) }
    }),
    member("substring", &[(&[S, P::Int], S), (&[S, P::Int, P::Int], S)], |args| {
        let (of, start) = (text(&args, 0)?, int(&args, 1)?);
        let end = if args.len() > 2 { Some(int(&args, 2)?) } else { None };
        if let Some(end) = end.filter(|end| start > *end) {
            return Err(fail(format!("invalid substring range. start: {start}, end: {end}")));
        }
        let length = of.chars().count();
        let from = within(start, length)?;
        let to = end.map_or(Ok(length), |end| within(end, length))?;
        give_text(of.chars().skip(from).take(to - from).collect::<String>())
    }),
    super::global("strings.quote", &[(&[S], S)], |args| give_text(quote(text(&args, 0)?))),
];

fn within(at: i64, length: usize) -> Result<usize, ExecutionError> {
    place(at, length).ok_or_else(|| out_of_range(at))
}

fn out_of_range(at: i64) -> ExecutionError {
    fail(format!("index out of range: {at}"))
}

/// The letters. If the maximum is reached, the last entry contains the rest.
fn letters(text: &str, most: usize) -> Vec<&str> {
    let mut letters = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if letters.len() + 1 >= most {
            letters.extend((most > 0).then_some(rest));
            break;
        }
        let (one, behind) = rest.split_at(letter.len_utf8());
        letters.push(one);
        rest = behind;
    }
    letters
}

fn index_of<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (of, part, offset) = (text(&args, 0)?, text(&args, 1)?, if args.len() > 2 { int(&args, 2)? } else { 0 });
    if part.is_empty() {
        return give_int(offset);
    }
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    let begin = place(offset, of.len()).and_then(|skipped| of.char_indices().nth(skipped).map(|(start, _)| (skipped, start)));
    let Some((skipped, start)) = begin else {
        return give_int(-1);
    };
    let rest = of.get(start..).unwrap_or_default();
    match rest.find(part) {
        Some(at) => give_count(skipped + rest.get(..at).unwrap_or_default().chars().count()),
        None => give_int(-1),
    }
}

fn last_index_of<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (of, part) = (text(&args, 0)?, text(&args, 1)?);
    let length = of.chars().count();
    if args.len() == 2 {
        if part.is_empty() {
            return give_count(length);
        }
        return of.rfind(part).map_or_else(|| give_int(-1), |at| give_count(of.get(..at).unwrap_or_default().chars().count()));
    }
    let offset = int(&args, 2)?;
    if part.is_empty() {
        return give_int(offset);
    }
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    let Some(most) = place(offset, length).filter(|most| *most < length) else {
        return give_int(-1);
    };
    // A match that begins at the offset ends after it by its own length.
    let end = of.char_indices().nth(most + part.chars().count()).map_or(of.len(), |(end, _)| end);
    let head = of.get(..end).unwrap_or(of);
    head.rfind(part).map_or_else(|| give_int(-1), |at| give_count(head.get(..at).unwrap_or_default().chars().count()))
}

/// A text as a literal.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
