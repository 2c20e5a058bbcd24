//! Texts for people: makes plugins' texts printable, and turns errors into sentences.

/// The maximum length of a plugin's text, in characters.
const MAX_LINE_LENGTH: usize = 300;

/// A plugin's text for a condition, an event or a log: one printable line of limited length.
pub fn printable_line(words: &str) -> String {
    let printable = |c: char| if c.is_control() || c.is_whitespace() { ' ' } else { c };
    let mut words: String = words.chars().map(printable).take(MAX_LINE_LENGTH + 1).collect();
    if words.chars().count() > MAX_LINE_LENGTH {
        words.pop();
        words.push('\u{2026}');
    }
    words
}

/// Shortens a text to at most `most` bytes, at a character boundary.
pub fn cut(text: &mut String, most: usize) {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
}

/// An error and its causes, without those that an earlier one already contains.
pub fn sentence(error: &(dyn std::error::Error + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let cause = error.to_string();
        if told.last().is_none_or(|before| !before.contains(&cause)) {
            told.push(cause);
        }
        next = error.source();
    }
    told.join(": ")
}

#[cfg(test)]
mod tests {
    use super::MAX_LINE_LENGTH;
    use super::printable_line;

    #[test]
    fn a_plugin_s_words_become_one_short_printable_line() {
        assert_eq!(printable_line("a\nb\u{1b}[31mc\0"), "a b [31mc ");
        assert_eq!(printable_line(&"é".repeat(10_000)).chars().count(), MAX_LINE_LENGTH + 1);
    }
}
