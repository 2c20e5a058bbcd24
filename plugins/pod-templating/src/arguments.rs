//! Arguments that are merged flag by flag, and what can be told of a command line.

use crate::node::Node;

/// Merges the stronger layer's arguments into the weaker's. A flag replaces its namesake in its place, others are appended; words
/// without a flag stay where they are, and are appended where they aren't there yet.
///
/// A flag takes along all words up to the next flag: engines have flags with several values, and half of them would be worse than
/// none. Behind `--name=value` there is no such word.
pub(crate) fn merge<'a>(weak: Vec<Node<'a>>, strong: Vec<Node<'a>>) -> Vec<Node<'a>> {
    let mut merged = groups(weak);
    let mut strong = groups(strong);
    while !strong.is_empty() {
        let key = strong[0].key.clone();
        let Some(key) = key else {
            let word = strong.remove(0);
            if !merged.iter().any(|group| group.key.is_none() && group.says(&word)) {
                merged.push(word);
            }
            continue;
        };
        let (namesakes, others): (Vec<_>, Vec<_>) = strong.into_iter().partition(|group| group.key.as_ref() == Some(&key));
        strong = others;
        let at = merged.iter().position(|group| group.key.as_ref() == Some(&key)).unwrap_or(merged.len());
        merged.retain(|group| group.key.as_ref() != Some(&key));
        merged.splice(at..at, namesakes);
    }
    merged.into_iter().flat_map(|group| group.words).collect()
}

/// A flag with its values, or one word without a flag.
struct Group<'a> {
    key: Option<String>,
    words: Vec<Node<'a>>,
}

impl Group<'_> {
    fn says(&self, other: &Self) -> bool {
        self.words.iter().map(Node::as_str).eq(other.words.iter().map(Node::as_str))
    }
}

fn groups(words: Vec<Node<'_>>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut open = false;
    let mut ended = false;
    for word in words {
        let text = word.as_str().unwrap_or_default();
        let key = flag(text).filter(|_| !ended);
        match groups.last_mut() {
            Some(group) if key.is_none() && open && text != "--" => group.words.push(word),
            _ => {
                open = key.is_some() && !text.contains('=');
                // What follows a bare `--` is no flag, whatever it looks like.
                ended = ended || text == "--";
                groups.push(Group { key, words: vec![word] });
            }
        }
    }
    groups
}

/// The name of a flag, one for `--a-b` and `--a_b`; nothing for another word, which a negative number is.
pub(crate) fn flag(word: &str) -> Option<String> {
    let name = word.split('=').next().unwrap_or_default();
    let begins = name.trim_start_matches('-').chars().next()?;
    (name.starts_with('-') && !begins.is_ascii_digit() && begins != '.').then(|| name.replace('_', "-"))
}

/// The last part of a path.
pub(crate) fn basename(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Whether the command line is a shell's: what it does stands in a script, which nobody here reads.
pub(crate) fn is_shell(line: &[&str]) -> bool {
    let shell = |word: &str| ["sh", "bash", "dash", "ash", "zsh", "ksh"].contains(&basename(word));
    let script = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.contains('c');
    line.first().is_some_and(|word| shell(word)) || line.windows(2).any(|pair| shell(pair[0]) && script(pair[1]))
}
