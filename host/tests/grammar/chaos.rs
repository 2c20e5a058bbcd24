//! Invalid input: expressions of the corpus that were cut and recombined, and random pieces.

use super::{Case, Tape, object, place};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{fs, path::Path, sync::LazyLock};

/// An expression of the corpus, and the objects of its file.
struct CorpusExpression {
    expression: String,
    objects: Vec<Value>,
}

/// The expressions whose verdicts are those of Kubernetes.
static CORPUS: LazyLock<Vec<CorpusExpression>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        objects: Map<String, Value>,
        cases: Vec<Expression>,
    }
    #[derive(Deserialize)]
    struct Expression {
        expression: String,
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/cel");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let of_file = |path| {
        let file: File = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let objects: Vec<Value> = file.objects.into_iter().map(|(_, object)| object).collect();
        file.cases.into_iter().map(move |case| CorpusExpression { expression: case.expression, objects: objects.clone() })
    };
    files.into_iter().flat_map(of_file).collect()
});

fn known(tape: &mut Tape<'_>) -> &'static CorpusExpression {
    &CORPUS[tape.below(CORPUS.len())]
}

/// Pieces of expressions, and similar text.
const PIECES: &[&str] = &[
    "object",
    "1",
    "'",
    "\"",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ".?",
    "[?",
    "?",
    ":",
    ",",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "&&",
    "||",
    " in ",
    "true",
    "null",
    "x",
    "variables",
    "variables.value",
    "request",
    "params.data",
    "cel.bind(x,",
    "has(",
    ".map(x,",
    ".all(x,",
    ".exists(i,x,",
    ".sortBy(",
    ".optMap(x,",
    ".transformMap(",
    ".orValue(",
    ".format([",
    ".matches('(",
    ".split('')",
    "dyn(",
    "type(",
    "int(",
    "optional.none()",
    "lists.range(9)",
    "Object{}",
    "google.protobuf.",
    "'''",
    "\"\"\"",
    "r'",
    "b'",
    "br\"",
    "\\",
    "\\x",
    "\\u{1}",
    "\\U0010ffff",
    "`",
    "`a-b`",
    "//",
    "\n",
    "\r",
    "\t",
    " ",
    "0x",
    "1e",
    "1e999",
    ".5",
    "0u",
    "00",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616u",
    "0xffffffffffffffffff",
    "@",
    "@has(",
    "@range1",
    "#",
    "$",
    ";",
    "=",
    "&",
    "|",
    "__",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "\u{2028}",
    "\u{a0}",
    "é",
    "e\u{301}",
    "😀",
    "if",
    "for",
    "package",
    "void",
];

/// Text between two expressions.
const JOINTS: &[&str] = &[" && ", " || ", " == ", " != ", " < ", " + ", " in ", " ? true : ", ".orValue", ".contains"];

/// An expression of the corpus with some changes.
pub(crate) fn mixed(tape: &mut Tape<'_>) -> Case {
    let (place, known) = (place(tape), known(tape));
    let object = if tape.once_in(4) { object(tape) } else { known.objects[tape.below(known.objects.len())].clone() };
    let mut words = words(&known.expression);
    for _ in 0..tape.one(&[1, 1, 2, 5]) {
        change(&mut words, tape);
    }
    let expression = words.concat();
    Case::new(if tape.once_in(5) { damaged(expression, tape) } else { expression }, place, object)
}

/// Random pieces, or bytes that are converted to text.
pub(crate) fn thrown(tape: &mut Tape<'_>) -> Case {
    let (place, object) = (place(tape), known(tape).objects[0].clone());
    let (times, is_binary) = (tape.one(&[1, 1, 1, 1, 30]), tape.once_in(4));
    let mut expression = String::new();
    if is_binary {
        let bytes: Vec<u8> = tape.0.by_ref().flat_map(|number| number.to_be_bytes()).collect();
        expression = String::from_utf8_lossy(&bytes).into_owned();
    }
    while !tape.is_at_end() {
        if tape.once_in(16) { expression.push(letter(tape)) } else { expression.push_str(tape.one(PIECES)) }
    }
    Case::new(expression.repeat(times), place, object)
}

/// A random character.
fn letter(tape: &mut Tape<'_>) -> char {
    let number = tape.below(1 << 16) * 17 + tape.below(17);
    u32::try_from(number).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Splits an expression into words, string literals and signs.
fn words(expression: &str) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let behind = &rest[first.len_utf8()..];
        let more = match first {
            '\'' | '"' => behind.find(first).map_or(0, |end| end + 1),
            first if is_of_word(first) => behind.find(|letter| !is_of_word(letter)).unwrap_or(behind.len()),
            _ => 0,
        };
        let (word, behind) = rest.split_at(first.len_utf8() + more);
        words.push(word);
        rest = behind;
    }
    words
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Removes, repeats, inserts or swaps words.
fn change(of: &mut Vec<&'static str>, tape: &mut Tape<'_>) {
    let (from, to) = part(of.len(), tape);
    match tape.below(12) {
        0 => of.drain(from..to).for_each(drop),
        1 => {
            let times = tape.one(&[1, 2, 3, 50]);
            let again = of[from..to].repeat(times);
            of.splice(to..to, again).for_each(drop);
        }
        2 if to > from => of.swap(from, to - 1),
        3 => of.insert(from, tape.one(PIECES)),
        // Words of another expression: in place of a part, or from here to the end.
        what @ 4..6 => {
            let other = words(&known(tape).expression);
            let (start, end) = part(other.len(), tape);
            let (replaced, new) = match what {
                4 => (from..to, &other[start..end]),
                _ => (from..of.len(), &other[start..]),
            };
            of.splice(replaced, new.iter().copied()).for_each(drop);
        }
        6 | 7 => {
            of.insert(0, "(");
            of.extend([")", tape.one(JOINTS), "("]);
            of.extend(words(&known(tape).expression));
            of.push(")");
        }
        // Another word, or another sign.
        _ => {
            let Some(old) = of.get_mut(from) else { return };
            let alike = |word: &&str| word.starts_with(is_of_word) == old.starts_with(is_of_word) && *word != " ";
            let others: Vec<&str> = words(&known(tape).expression).into_iter().filter(alike).collect();
            if *old != " " && !others.is_empty() {
                *old = tape.one(&others);
            }
        }
    }
}

/// The start and the end of a random part of a list with this length.
fn part(length: usize, tape: &mut Tape<'_>) -> (usize, usize) {
    let from = tape.below(length + 1);
    (from, (from + tape.one(&[1, 1, 2, 5])).min(length))
}

/// Changes, removes or inserts some bytes. Invalid UTF-8 is replaced.
fn damaged(expression: String, tape: &mut Tape<'_>) -> String {
    let mut bytes = expression.into_bytes();
    for _ in 0..=tape.below(3) {
        let at = tape.below(bytes.len() + 1);
        match tape.below(4) {
            0 if at < bytes.len() => _ = bytes.remove(at),
            1 if at < bytes.len() => bytes[at] = tape.below(256).try_into().unwrap(),
            2 => bytes.insert(at, tape.below(256).try_into().unwrap()),
            _ => bytes.splice(at..at, letter(tape).to_string().into_bytes()).for_each(drop),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
