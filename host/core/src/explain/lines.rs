//! Layout of text: columns, truncated and wrapped lines.

use super::number;
use pointsman_sandbox::point::Role;
use serde::Serialize;
use std::fmt::Write;

/// The width at which sentences are wrapped.
const WIDTH: usize = 100;

/// The maximum length of a value in a line.
const VALUE: usize = 100;

pub(super) fn line(text: &mut String, depth: usize, words: &str) {
    // Writing to a String can't fail.
    writeln!(text, "{:depth$}{words}", "", depth = depth * 2).ok();
}

/// Columns, each as wide as its widest cell, except the last.
pub(super) fn table<const N: usize>(text: &mut String, rows: &[[String; N]]) {
    for row in columns(rows) {
        line(text, 1, &row);
    }
}

/// A table whose lines are truncated at this width, if there is one.
pub(super) fn cut_table<const N: usize>(text: &mut String, rows: &[[String; N]], width: Option<usize>) {
    for row in columns(rows) {
        cut_line(text, 1, &row, width);
    }
}

fn columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let row = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("   ").trim_end().to_owned()
    };
    rows.iter().map(row).collect()
}

/// Text that is wrapped at [`WIDTH`], or at a longer word.
pub(super) fn wrapped(text: &mut String, depth: usize, words: &str) {
    let mut row = String::new();
    for word in words.split_whitespace() {
        let length = depth * 2 + row.chars().count() + 1 + word.chars().count();
        if !row.is_empty() && length > WIDTH {
            line(text, depth, &row);
            row.clear();
        }
        if !row.is_empty() {
            row.push(' ');
        }
        row.push_str(word);
    }
    line(text, depth, &row);
}

/// Text in one line, truncated at this width, if there is one.
pub(super) fn cut_line(text: &mut String, depth: usize, words: &str, width: Option<usize>) {
    line(text, depth, &shortened(words, width.map_or(usize::MAX, |width| width.saturating_sub(depth * 2))));
}

/// A value in one line, truncated.
pub(super) fn cut(value: &str) -> String {
    shortened(value, VALUE)
}

fn shortened(text: &str, width: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() <= width {
        return text;
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}\u{2026}", kept.trim_end())
}

/// A unit variant as its JSON text.
pub(super) fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(super) fn role(role: Option<Role>, group: Option<Role>) -> String {
    match (role, group) {
        (Some(role), Some(group)) => format!("{} of the {}", word(&role), word(&group)),
        (Some(role), None) => word(&role),
        _ => String::new(),
    }
}

/// A score rounded to three decimals, enough to tell apart scores that are meant to differ.
pub(super) fn score(score: f64) -> String {
    number((score * 1000.0).round() / 1000.0).to_string()
}

/// A number with a noun in the singular or plural.
pub(super) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_padded_and_values_cut() {
        let mut text = String::new();
        table(&mut text, &[["a".to_owned(), "b".to_owned()], ["ccc".to_owned(), String::new()]]);
        assert_eq!(text, "  a     b\n  ccc\n");
        assert_eq!(cut(&"x".repeat(200)).chars().count(), VALUE);
        assert_eq!(cut("a\nb"), "a b");
        let wide = |width| {
            let mut text = String::new();
            cut_table(&mut text, &[["a".to_owned(), "b".repeat(200)]], width);
            text.trim_end().to_owned()
        };
        assert_eq!(wide(Some(80)).chars().count(), 80, "{}", wide(Some(80)));
        assert_eq!(wide(None), format!("  a   {}", "b".repeat(200)));
    }

    #[test]
    fn words_are_wrapped_and_none_is_lost() {
        let mut text = String::new();
        let words = format!("{} end", "word ".repeat(60));
        wrapped(&mut text, 2, &words);
        assert!(text.lines().all(|line| line.starts_with("    word") && line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.split_whitespace().count(), 61);
        text.clear();
        wrapped(&mut text, 0, &"x".repeat(150));
        assert_eq!(text.len(), 151, "a word is never cut");
    }

    #[test]
    fn scores_are_rounded_and_things_counted() {
        assert_eq!((score(10.0), score(1.0 / 3.0)), ("10".to_owned(), "0.333".to_owned()));
        assert_eq!((count(1, "field"), count(2, "field")), ("1 field".to_owned(), "2 fields".to_owned()));
    }
}
