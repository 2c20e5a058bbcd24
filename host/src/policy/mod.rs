//! The Wasm side: what a plugin is, how it is run, and what it may do.
//!
//! Bytes are brought (`source`), trusted or not (`trust`), and kept under their digest (`revision`); their configuration is
//! checked against the schema that they tell (`schema`). What looks into strangers' bytes runs in another process (`apart`).
//!
//! Bytes are accepted (`binary`), compiled within limits or taken from the cache (`compile`), linked and asked (`plugin`, `call`);
//! the engines are made once (`engine`), and every number stands in `limits`.

mod apart;
pub mod binary;
pub mod cache;
pub mod call;
mod command;
pub mod compile;
mod component;
pub mod decide;
pub mod digest;
pub mod engine;
pub mod evaluator;
pub mod health;
pub mod keeper;
pub mod limits;
pub mod load;
pub mod matching;
pub mod member;
mod patch;
pub mod plugin;
pub mod point;
pub mod revision;
pub mod schema;
pub mod set;
mod slots;
pub mod source;
pub mod start;
pub mod trust;
mod wasi;
pub mod words;

/// The namespace of the host, unless it is told another.
pub const NAMESPACE: &str = "pointsman-system";

/// The longest text of a plugin's that we pass on.
const LONGEST: usize = 300;

/// A plugin's own words, fit for a condition, an event and a log: one line, printable, and not endless.
pub(crate) fn told(words: &str) -> String {
    let printable = |c: char| if c.is_control() || c.is_whitespace() { ' ' } else { c };
    let mut words: String = words.chars().map(printable).take(LONGEST + 1).collect();
    if words.chars().count() > LONGEST {
        words.pop();
        words.push('\u{2026}');
    }
    words
}

/// At most so many bytes of a text, whole characters only.
fn cut(text: &mut String, most: usize) {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, told};

    #[test]
    fn a_plugin_s_words_become_one_short_printable_line() {
        assert_eq!(told("a\nb\u{1b}[31mc\0"), "a b [31mc ");
        assert_eq!(told(&"é".repeat(10_000)).chars().count(), LONGEST + 1);
    }
}
