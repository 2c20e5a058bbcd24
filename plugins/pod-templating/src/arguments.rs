//! Merges arguments flag by flag, and analyses command lines.

use crate::node::Node;
use std::collections::{BTreeMap, BTreeSet};

/// Merges the stronger layer's arguments into the weaker's. A flag replaces the flag with the same name in its position; other flags are
/// appended. Each word without a flag is also appended, unless the weaker layer has it: a repeated word occurs as often as in the layer
/// that has it most often.
///
/// A flag includes all words up to the next flag: some flags have several values, and half of them would be worse than none. After
/// `--name=value`, there are no such words.
///
/// A bare `--` and the words after it are for another program. Those of the stronger layer replace the weaker's and stay unchanged.
pub(crate) fn merge<'a>(weak: Vec<Node<'a>>, strong: Vec<Node<'a>>) -> Vec<Node<'a>> {
    let (weak, weak_rest) = split(weak);
    let (strong, strong_rest) = split(strong);
    let weak = groups(weak);
    let mut words: BTreeMap<String, usize> = BTreeMap::new();
    for word in weak.iter().filter_map(Group::word) {
        *words.entry(word.to_owned()).or_default() += 1;
    }
    let mut flags: BTreeMap<String, Vec<Group<'_>>> = BTreeMap::new();
    let mut appended = Vec::new();
    for group in groups(strong) {
        if let Some(key) = group.key.clone() {
            let namesakes = flags.entry(key.clone()).or_default();
            if namesakes.is_empty() {
                appended.push(Appended::Flags(key));
            }
            namesakes.push(group);
        } else {
            match group.word().and_then(|word| words.get_mut(word)) {
                Some(left) if *left > 0 => *left -= 1,
                _ => appended.push(Appended::Word(group)),
            }
        }
    }
    let mut merged = Vec::new();
    let mut replaced = BTreeSet::new();
    for group in weak {
        match group.key.as_ref() {
            Some(key) if replaced.contains(key) => {}
            Some(key) if flags.contains_key(key) => {
                merged.extend(flags.remove(key).into_iter().flatten());
                replaced.insert(key.clone());
            }
            _ => merged.push(group),
        }
    }
    for appended in appended {
        match appended {
            Appended::Word(group) => merged.push(group),
            Appended::Flags(key) => merged.extend(flags.remove(&key).into_iter().flatten()),
        }
    }
    let rest = if strong_rest.is_empty() { weak_rest } else { strong_rest };
    merged.into_iter().flat_map(|group| group.words).chain(rest).collect()
}

/// An addition of the stronger layer: a word, or all flags with a name that the weaker one lacks.
enum Appended<'a> {
    Word(Group<'a>),
    Flags(String),
}

/// A flag with its values, or one word without a flag.
struct Group<'a> {
    key: Option<String>,
    words: Vec<Node<'a>>,
}

impl Group<'_> {
    /// The word, if it has no flag.
    fn word(&self) -> Option<&str> {
        if self.key.is_some() { None } else { self.words.first()?.as_str() }
    }
}

/// Splits off a bare `--` and the words after it.
fn split(mut words: Vec<Node<'_>>) -> (Vec<Node<'_>>, Vec<Node<'_>>) {
    let at = words.iter().position(|word| word.as_str() == Some("--")).unwrap_or(words.len());
    let rest = words.split_off(at);
    (words, rest)
}

fn groups(words: Vec<Node<'_>>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut open = false;
    for word in words {
        let text = word.as_str().unwrap_or_default();
        let key = flag(text);
        match groups.last_mut() {
            Some(group) if key.is_none() && open => group.words.push(word),
            _ => {
                open = key.is_some() && !text.contains('=');
                groups.push(Group { key, words: vec![word] });
            }
        }
    }
    groups
}

/// The normalised name of a flag, which is the same for `--a-b` and `--a_b`. None for other words, including negative numbers.
pub(crate) fn flag(word: &str) -> Option<String> {
    let name = word.split('=').next().unwrap_or_default();
    let begins = name.trim_start_matches('-').chars().next()?;
    (name.starts_with('-') && !begins.is_ascii_digit() && begins != '.').then(|| name.replace('_', "-"))
}

/// The last part of a path.
pub(crate) fn basename(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Whether the command line starts a shell. Its script isn't analysed.
pub(crate) fn is_shell(line: &[&str]) -> bool {
    let shell = |word: &str| ["sh", "bash", "dash", "ash", "zsh", "ksh"].contains(&basename(word));
    let script = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.contains('c');
    line.first().is_some_and(|word| shell(word)) || line.windows(2).any(|pair| shell(pair[0]) && script(pair[1]))
}
