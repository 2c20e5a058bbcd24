//! Names: the rules of Kubernetes for label and annotation keys, label values and DNS labels, and suggestions for misspelled names.

/// The maximum total size of an object's annotations, in bytes.
pub const MAX_ANNOTATIONS_BYTES: usize = 256 << 10;

/// Whether a text is a valid key of a label or annotation.
pub fn key(key: &str) -> Result<(), &'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_some_and(|prefix| prefix.len() > 253 || !prefix.split('.').all(dns_label)) {
        return Err("what is before the / must be a DNS name of lower case and at most 253 characters");
    }
    if name.is_empty() || !word(name) {
        return Err("it has 1 to 63 letters, digits, - _ and ., and begins and ends with a letter or digit");
    }
    Ok(())
}

/// Whether a text is a valid value of a label.
pub fn label_value(value: &str) -> Result<(), &'static str> {
    if value.is_empty() || word(value) {
        Ok(())
    } else {
        Err("it has at most 63 letters, digits, - _ and ., and begins and ends with a letter or digit")
    }
}

/// Whether a text is a lower-case DNS label, of any length.
pub fn dns_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether a text is a valid name for a Service: a DNS label of at most 63 characters that starts with a letter.
pub fn service_name(text: &str) -> bool {
    text.len() <= 63 && text.starts_with(|c: char| c.is_ascii_lowercase()) && dns_label(text)
}

fn word(text: &str) -> bool {
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= 63 && outer(text.chars().next()) && outer(text.chars().last()) && text.chars().all(inner)
}

/// The known name that is closest to `name`, at most `near` letters away. Among equally close names, the first in alphabetical order.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>, near: usize) -> Option<&'k str> {
    let letters: Vec<char> = name.chars().collect();
    let apart = |known: &'k str| {
        let known_letters: Vec<char> = known.chars().collect();
        // Names whose lengths differ too much are skipped, so that a very long name costs nothing.
        let comparable = letters.len().abs_diff(known_letters.len()) <= near;
        comparable.then(|| (distance(&letters, &known_letters), known))
    };
    known.into_iter().filter_map(apart).filter(|(distance, _)| *distance <= near).min().map(|(_, known)| known)
}

/// The number of letters to change, add or remove to get from one name to the other (Levenshtein distance).
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.iter().enumerate() {
        let mut last = line + 1;
        let mut next = vec![last];
        for ((diagonal, above), against) in row.iter().zip(row.iter().skip(1)).zip(other) {
            last = (diagonal + usize::from(letter != against)).min(above + 1).min(last + 1);
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_those_that_the_api_server_takes() {
        let long = "a".repeat(64);
        for good in ["a", "A_b.c-d", "example.com/a", "a-b.c/X", &long[1..]] {
            assert_eq!(key(good), Ok(()), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "-a", "a-", "Example.com/a", "a..b/c", "ä", "a b", &long, "a_b/c", "-a/b"] {
            assert!(key(bad).is_err(), "{bad}");
        }
        for good in ["", "a", "1.2_3-x", &long[1..]] {
            assert_eq!(label_value(good), Ok(()), "{good}");
        }
        for bad in ["a/b", ".a", "a.", " ", "é", &long] {
            assert!(label_value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_distance_between_names_is_the_number_of_changes() {
        for (one, other, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "ab", 2),
            ("abc", "abc", 0),
            ("abc", "ac", 1),
            ("abc", "acb", 2),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
        ] {
            let [first, second] = [one, other].map(|name| name.chars().collect::<Vec<_>>());
            assert_eq!((distance(&first, &second), distance(&second, &first)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn the_nearest_name_is_the_first_of_those_that_are_near_enough() {
        for (name, near, expected) in
            [("ab", 1, Some("aab")), ("abbb", 1, Some("abb")), ("ab", 0, None), ("zzz", 2, None), ("zzz", 3, Some("aab"))]
        {
            assert_eq!(nearest(name, ["abb", "aab"], near), expected, "{name} {near}");
        }
    }
}
