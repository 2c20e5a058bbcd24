//! What Kubernetes takes for the key of a label or annotation, and for the value of a label.

/// Bytes of all annotations of an object together.
pub const ANNOTATIONS_MOST: usize = 256 << 10;

/// Whether a key is one.
pub fn key(key: &str) -> Result<(), &'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        let label = |label: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        if prefix.len() > 253 || !prefix.split('.').all(label) {
            return Err("what is before the / must be a DNS name of lower case and at most 253 characters");
        }
    }
    if name.is_empty() || !word(name) {
        return Err("it has 1 to 63 letters, digits, - _ and ., and begins and ends with a letter or digit");
    }
    Ok(())
}

/// Whether a label may have this value.
pub fn label_value(value: &str) -> Result<(), &'static str> {
    if value.is_empty() || word(value) {
        Ok(())
    } else {
        Err("it has at most 63 letters, digits, - _ and ., and begins and ends with a letter or digit")
    }
}

fn word(text: &str) -> bool {
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= 63 && outer(text.chars().next()) && outer(text.chars().last()) && text.chars().all(inner)
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
}
