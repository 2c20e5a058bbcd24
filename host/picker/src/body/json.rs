//! Finds fields of a JSON object in a stream of arbitrary chunks. For some fields it stores the value, for others only the position.

use super::{
    BodyError, Problem,
    nest::Nest,
    text::{Text, pass_text},
};
use std::{fmt::Debug, ops::Range};

/// Enough of a key to distinguish all known ones. A longer key is unknown.
const MAX_KEY: usize = 32;

/// The maximum length of a stored number or word. Every 64-bit number fits.
const MAX_SCALAR: usize = 24;

/// The maximum depth of nested objects with fields to find.
const MAX_LEVELS: usize = 4;

/// A field to find.
#[derive(Debug)]
pub(super) struct Field<I: 'static> {
    pub(super) key: &'static str,
    pub(super) take: Take<I>,
}

/// The data to take from a field's value.
#[derive(Debug)]
pub(super) enum Take<I: 'static> {
    /// The text, if it is a string, up to this number of bytes.
    Text(I, usize),
    /// The number or word, if it is one.
    Scalar(I),
    /// The position.
    Place(I),
    /// Fields of the value, if it is an object.
    Fields(&'static [Field<I>]),
}

/// The kind of a value, from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Scalar,
    Object,
    Array,
}

/// A value after its end.
#[derive(Debug)]
pub(super) struct Value<'a> {
    pub(super) place: Range<usize>,
    pub(super) kind: Kind,
    /// The stored part: a string without its quotes and escapes, or a number or word.
    pub(super) kept: &'a [u8],
    /// Whether the value is longer than the stored part.
    pub(super) is_longer: bool,
    /// The number of numbers in an array that contains nothing else.
    pub(super) numbers: Option<u64>,
}

impl Value<'_> {
    /// Whether the value is null.
    pub(super) fn is_null(&self) -> bool {
        self.kind == Kind::Scalar && self.kept == b"null"
    }

    /// The value as a number, if it has no sign and no fraction.
    pub(super) fn number(&self) -> Option<u64> {
        let is_whole = self.kind == Kind::Scalar && !self.is_longer && self.kept.iter().all(u8::is_ascii_digit);
        is_whole.then(|| str::from_utf8(self.kept).ok()?.parse().ok()).flatten()
    }
}

/// The receiver of found fields.
pub(super) trait Sink<I> {
    /// Called at the end of a key of the outermost object.
    fn key(&mut self, _key: &[u8], _at: usize) -> Result<(), BodyError> {
        Ok(())
    }

    /// Called at the start of a field's value.
    fn begin(&mut self, _id: I, _kind: Kind, _at: usize) {}

    /// Called after a field's value.
    fn end(&mut self, id: I, value: &Value<'_>) -> Result<(), BodyError>;

    /// Called if the started value never ends.
    fn lost(&mut self) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the object.
    Start,
    /// Before the first key, or the end of an empty object.
    FirstKey,
    /// Before another key.
    NextKey,
    Key,
    /// In a key that is longer than every known one.
    LongKey,
    Colon,
    Value,
    /// In a string that is stored.
    Kept,
    /// In another string.
    Passed,
    /// In a number or a word.
    Scalar,
    /// In an object or array that is skipped.
    Nested,
    AfterValue,
    /// After the object.
    End,
}

/// A scan of one object.
#[derive(Debug)]
pub(super) struct Scanner<I: 'static> {
    state: State,
    /// The fields to find in each open object.
    levels: [&'static [Field<I>]; MAX_LEVELS],
    level: usize,
    /// The field whose value is next or current, and where the value began.
    field: Option<&'static Take<I>>,
    began: usize,
    kind: Kind,
    text: Text,
    is_escaped: bool,
    nest: Nest,
}

impl<I: Copy + Debug> Scanner<I> {
    /// Starts a scan for these fields.
    pub(super) fn new(fields: &'static [Field<I>]) -> Self {
        Self {
            state: State::Start,
            levels: [fields; MAX_LEVELS],
            level: 0,
            field: None,
            began: 0,
            kind: Kind::Scalar,
            text: Text::default(),
            is_escaped: false,
            nest: Nest::default(),
        }
    }

    /// Starts another object.
    pub(super) fn restart(&mut self) {
        self.state = State::Start;
        self.level = 0;
        self.is_escaped = false;
    }

    /// Whether nothing of the object has arrived.
    pub(super) fn is_at_start(&self) -> bool {
        self.state == State::Start
    }

    /// Whether the object is complete.
    pub(super) fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    /// Whether a string is open.
    pub(super) fn is_in_text(&self) -> bool {
        match self.state {
            State::Key | State::LongKey | State::Kept | State::Passed => true,
            State::Nested => self.nest.is_in_text(),
            _ => false,
        }
    }

    /// Processes a chunk that starts at position `from`. Don't call it again after an error.
    pub(super) fn read(&mut self, chunk: &[u8], from: usize, sink: &mut impl Sink<I>) -> Result<(), BodyError> {
        let mut at = 0;
        while let Some(byte) = chunk.get(at) {
            let (read, is_over) = match self.state {
                State::Passed | State::LongKey => pass_text(&chunk[at..], &mut self.is_escaped),
                State::Nested => self.nest.read(&chunk[at..]).map_err(|(place, problem)| problem.at(from + at + place))?,
                _ => {
                    self.step(*byte, from + at, sink)?;
                    (1, false)
                }
            };
            at += read;
            match (is_over, self.state) {
                (true, State::LongKey) => self.state = self.end_key(from + at - 1, sink)?,
                (true, _) => self.end_value(from + at, sink)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the body, which has this length.
    pub(super) fn finish(&self, length: usize) -> Result<(), BodyError> {
        match self.state {
            State::Start => Err(Problem::NotAnObject.at(length)),
            State::End => Ok(()),
            _ => Err(Problem::Truncated.at(length)),
        }
    }

    fn step(&mut self, byte: u8, at: usize, sink: &mut impl Sink<I>) -> Result<(), BodyError> {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.state = match (self.state, byte) {
            (State::Key | State::Kept, _) => match (self.text.step(byte).map_err(|_| Problem::Syntax.at(at))?, self.state) {
                (true, State::Key) => self.end_key(at, sink)?,
                (true, _) => return self.end_value(at + 1, sink),
                // The rest isn't stored, so it can be skipped faster.
                (false, state) if self.text.is_longer() => {
                    self.is_escaped = false;
                    if state == State::Key { State::LongKey } else { State::Passed }
                }
                (false, state) => state,
            },
            (State::Scalar, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') => {
                self.text.keep(byte);
                State::Scalar
            }
            (State::Scalar, _) => {
                self.end_value(at, sink)?;
                return self.step(byte, at, sink);
            }
            (state, _) if is_space => state,
            (State::AfterValue, b',') => State::NextKey,
            (State::AfterValue | State::FirstKey, b'}') => {
                self.level -= 1;
                if self.level == 0 { State::End } else { State::AfterValue }
            }
            (State::Start, b'{') => {
                self.level = 1;
                State::FirstKey
            }
            (State::Start, _) => return Err(Problem::NotAnObject.at(at)),
            (State::FirstKey | State::NextKey, b'"') => {
                self.text.begin(MAX_KEY);
                State::Key
            }
            (State::Colon, b':') => State::Value,
            (State::Value, _) => self.begin_value(byte, at, sink)?,
            _ => return Err(Problem::Syntax.at(at)),
        };
        Ok(())
    }

    fn end_key(&mut self, at: usize, sink: &mut impl Sink<I>) -> Result<State, BodyError> {
        let key = self.text.kept();
        if self.level == 1 {
            sink.key(key, at)?;
        }
        let fields = self.levels[self.level - 1];
        let field = fields.iter().find(|field| field.key.as_bytes() == key && !self.text.is_longer());
        self.field = field.map(|field| &field.take);
        Ok(State::Colon)
    }

    fn begin_value(&mut self, byte: u8, at: usize, sink: &mut impl Sink<I>) -> Result<State, BodyError> {
        self.began = at;
        self.text.begin(MAX_SCALAR);
        self.kind = match byte {
            b'"' => Kind::Text,
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'0'..=b'9' | b'-' | b'a'..=b'z' | b'A'..=b'Z' => Kind::Scalar,
            _ => return Err(Problem::Syntax.at(at)),
        };
        match (self.kind, self.field) {
            (_, Some(Take::Text(id, _) | Take::Scalar(id) | Take::Place(id))) => sink.begin(*id, self.kind, at),
            (Kind::Object, Some(Take::Fields(fields))) if self.level < MAX_LEVELS => {
                self.levels[self.level] = fields;
                self.level += 1;
                return Ok(State::FirstKey);
            }
            _ => {}
        }
        Ok(match (self.kind, self.field) {
            (Kind::Text, Some(Take::Text(_, most))) => {
                self.text.begin(*most);
                State::Kept
            }
            (Kind::Text, _) => {
                self.is_escaped = false;
                State::Passed
            }
            (Kind::Scalar, _) => {
                self.text.keep(byte);
                State::Scalar
            }
            (Kind::Object | Kind::Array, _) => {
                self.nest.begin(u32::try_from(self.level - 1).unwrap_or(u32::MAX));
                // The bracket is the first skipped byte.
                self.nest.read(&[byte]).map_err(|(_, problem)| problem.at(at))?;
                State::Nested
            }
        })
    }

    fn end_value(&mut self, end: usize, sink: &mut impl Sink<I>) -> Result<(), BodyError> {
        self.state = State::AfterValue;
        let Some(Take::Text(id, _) | Take::Scalar(id) | Take::Place(id)) = self.field else { return Ok(()) };
        let numbers = if self.kind == Kind::Array { self.nest.numbers() } else { None };
        let place = self.began..end;
        let value = Value { place, kind: self.kind, kept: self.text.kept(), is_longer: self.text.is_longer(), numbers };
        sink.end(*id, &value)
    }
}
