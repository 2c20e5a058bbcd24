//! Expressions that nobody would write, and objects to ask them about: grown by a grammar of all that the evaluator offers, cut out of the
//! corpus and put together otherwise, or thrown together.
//!
//! All of it is drawn from a tape of numbers, of which the smallest give the simplest: so a case that fails shrinks with its tape.

mod chaos;
mod table;

pub(crate) use chaos::{mixed, thrown};

use pointsman_sandbox::limits::LONGEST_EXPRESSION;
use serde_json::{Map, Value};
use std::slice;
use table::{ENDLESS, ENDS, KINDS, NAMES, forms};

/// How often an expression is without end: once in so many times.
const ENDLESS_ONCE_IN: usize = 128;

/// How often something goes around it again and again.
const REPEATED_ONCE_IN: usize = 24;

/// Where choices come from. A tape that is at its end gives 0 for ever.
pub(crate) struct Tape<'t>(slice::Iter<'t, u16>);

impl<'t> Tape<'t> {
    pub(crate) fn new(numbers: &'t [u16]) -> Self {
        Self(numbers.iter())
    }

    /// A number below another.
    fn below(&mut self, number: usize) -> usize {
        self.0.next().map_or(0, |drawn| usize::from(*drawn) % number)
    }

    /// One of these; at the end the first.
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn is_at_end(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    /// True once in so many times; at the end never.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }
}

/// Where an expression stands in a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpressionSlot {
    Validation,
    Condition,
    Variable,
    Message,
}

/// An expression, where it stands, and the object that it is asked about.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) expression: String,
    pub(crate) place: ExpressionSlot,
    pub(crate) object: Value,
}

impl Case {
    fn new(mut expression: String, place: ExpressionSlot, object: Value) -> Self {
        expression.truncate(expression.floor_char_boundary(LONGEST_EXPRESSION));
        Self { expression, place, object }
    }
}

/// Any place in a rule.
fn place(tape: &mut Tape<'_>) -> ExpressionSlot {
    tape.one(&[ExpressionSlot::Validation, ExpressionSlot::Condition, ExpressionSlot::Variable, ExpressionSlot::Message])
}

/// What the grammar gives.
pub(crate) fn grown(tape: &mut Tape<'_>) -> Case {
    let object = object(tape);
    let kind = if tape.once_in(2) { tape.one(KINDS) } else { 'b' };
    let place = match kind {
        'b' => tape.one(&[ExpressionSlot::Validation, ExpressionSlot::Condition, ExpressionSlot::Variable]),
        's' => tape.one(&[ExpressionSlot::Message, ExpressionSlot::Variable]),
        _ => ExpressionSlot::Variable,
    };
    let (is_endless, is_repeated, depth) = (tape.once_in(ENDLESS_ONCE_IN), tape.once_in(REPEATED_ONCE_IN), 1 + tape.below(6));
    let mut growing = Growing { tape, text: String::new(), known: Vec::new() };
    if is_endless {
        let form = growing.tape.one(ENDLESS);
        growing.fill(form, depth);
    } else {
        growing.grow(kind, depth);
    }
    let Growing { tape, text, .. } = growing;
    Case::new(if is_repeated { repeated(&text, tape) } else { text }, place, object)
}

/// With something around it, or behind it, again and again.
fn repeated(text: &str, tape: &mut Tape<'_>) -> String {
    let (before, after) = tape.one(ENDS);
    let most = LONGEST_EXPRESSION.saturating_sub(text.len()) / (before.len() + after.len());
    let times = tape.one(&[3, 20, 60, 70, 190, 210, 2000, LONGEST_EXPRESSION]).min(most);
    before.repeat(times) + text + &after.repeat(times)
}

/// An expression that grows.
struct Growing<'g, 't> {
    tape: &'g mut Tape<'t>,
    text: String,
    /// The kinds and names of variables.
    known: Vec<(char, &'static str)>,
}

impl Growing<'_, '_> {
    /// Puts in an expression of a kind.
    fn grow(&mut self, kind: char, depth: usize) {
        if let Some(name) = self.variable(kind) {
            self.text.push_str(name);
            return;
        }
        // Of another kind than is wanted, which shows only when it is evaluated.
        if depth > 0 && self.tape.once_in(24) {
            let other = self.tape.one(KINDS);
            self.text.push_str("dyn(");
            self.grow(other, depth - 1);
            self.text.push(')');
            return;
        }
        let forms = forms(kind);
        let (ending, growing) = forms.split_at(forms.iter().take_while(|form| !form.contains('$')).count());
        let form = if depth == 0 || self.tape.below(5) == 0 { self.tape.one(ending) } else { self.tape.one(growing) };
        self.fill(form, depth.saturating_sub(1));
    }

    /// A variable that may stand for that kind.
    fn variable(&mut self, kind: char) -> Option<&'static str> {
        let hidden = |at: usize, name: &str| self.known[at + 1..].iter().any(|(_, other)| *other == name);
        let seen = self.known.iter().enumerate().filter(|(at, (_, name))| !hidden(*at, name));
        let fitting: Vec<&'static str> = seen.filter(|(_, (own, _))| *own == kind || *own == 'd').map(|(_, (_, name))| *name).collect();
        (!fitting.is_empty() && self.tape.once_in(2)).then(|| self.tape.one(&fitting))
    }

    /// Puts in a form, with expressions where it wants some.
    fn fill(&mut self, form: &str, depth: usize) {
        let (known, mut later) = (self.known.len(), None);
        let mut letters = form.chars().peekable();
        while let Some(letter) = letters.next() {
            let Some(kind) = letters.next_if(|kind| "$@~".contains(letter) && kind.is_ascii_alphabetic()) else {
                self.text.push(letter);
                continue;
            };
            if letter == '$' {
                self.grow(kind, depth);
                self.known.extend(later.take());
                continue;
            }
            let name = NAMES[self.known.len() % NAMES.len()];
            self.text.push_str(name);
            if letter == '@' { self.known.push((kind, name)) } else { later = Some((kind, name)) }
        }
        self.known.truncate(known);
    }
}

/// What the fields of an object may be, which the grammar's forms read.
const FIELDS: &[(&str, &[&str])] = &[
    ("name", &[r#""chat""#, r#""""#, r#""äöü 😀\u0000""#, r#""1.5Gi""#, r#""10.0.0.0/8""#]),
    ("number", &["3", "0", "-9223372036854775808", "18446744073709551615", "1e300"]),
    ("share", &["0.5", "-0.0", "1e-300", "10.0"]),
    ("flag", &["true", "false"]),
    ("list", &["[2, 1, 2]", "[]", "[0.5, 1]", "[9223372036854775807, 1]"]),
    ("words", &[r#"["b", "a"]"#, r#"["", "ä"]"#, "[]"]),
    ("mixed", &[r#"[1, "a", null, [1], {"a": 1}]"#, "[]", r#"[{"name": "a"}, {}]"#]),
    ("map", &[r#"{"a": "x", "b": "y"}"#, "{}", r#"{"a": null, "": 1}"#]),
    ("nested", &[r#"{"none": null, "list": [1, 2], "a": {"b": {"c": []}}}"#, "{}"]),
    ("none", &["null"]),
];

/// An object, some of whose fields are missing, or something else than one would think.
fn object(tape: &mut Tape<'_>) -> Value {
    let mut object = Map::new();
    for (name, values) in FIELDS {
        match tape.below(16) {
            15 => {}
            14 => _ = object.insert((*name).to_owned(), anything(tape, 3)),
            _ => _ = object.insert((*name).to_owned(), serde_json::from_str(tape.one(values)).unwrap()),
        }
    }
    Value::Object(object)
}

/// Any JSON.
fn anything(tape: &mut Tape<'_>, depth: usize) -> Value {
    match tape.below(if depth == 0 { 2 } else { 4 }) {
        0 => Value::Null,
        1 => {
            let (_, values) = tape.one(FIELDS);
            serde_json::from_str(tape.one(values)).unwrap()
        }
        2 => (0..tape.below(4)).map(|_| anything(tape, depth - 1)).collect(),
        _ => (0..tape.below(4)).map(|_| (tape.one(NAMES).to_owned(), anything(tape, depth - 1))).collect(),
    }
}
