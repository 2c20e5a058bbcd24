//! Puts the client's name of the model back into an answer while it passes.

use super::{
    BodyError,
    answer::{Answer, Framing},
    json::{Field, Kind, Sink, Take, Value},
    text::quoted,
};
use std::{borrow::Cow, ops::Range};

/// The longest name that is held back until its end has come, in bytes with quotes and escapes. A longer one stays.
const MAX_HELD: usize = 4096;

const MODEL: Field<()> = Field { key: "model", take: Take::Place(()) };

/// Where servers name it: in the object, in events of responses, and in Anthropic's first event.
const FIELDS: &[Field<()>] =
    &[MODEL, Field { key: "response", take: Take::Fields(&[MODEL]) }, Field { key: "message", take: Take::Fields(&[MODEL]) }];

/// Renames the model of an answer: `model` of the object or of each event, and of the `response` or `message` in it. All other bytes stay as
/// they are; the length changes, so a Content-Length doesn't hold any more.
#[derive(Debug)]
pub struct ResponseModel {
    answer: Answer<()>,
    name: Vec<u8>,
    names: Names,
    /// The beginning of a name whose end hasn't come.
    held: Vec<u8>,
}

/// Where names are.
#[derive(Debug, Default)]
struct Names {
    open: Option<usize>,
    closed: Vec<Range<usize>>,
}

impl ResponseModel {
    /// Begins an answer whose model gets this name.
    pub fn new(framing: Framing, name: &str) -> Self {
        Self { answer: Answer::new(framing, FIELDS), name: quoted(name).into_bytes(), names: Names::default(), held: Vec::new() }
    }

    /// Takes the next chunk, and returns what goes on: the chunk itself if nothing of it changes.
    pub fn read<'a>(&mut self, chunk: &'a [u8]) -> Cow<'a, [u8]> {
        self.answer.read(chunk, &mut self.names);
        if self.held.is_empty() && self.names.open.is_none() && self.names.closed.is_empty() {
            return Cow::Borrowed(chunk);
        }
        let mut source = std::mem::take(&mut self.held);
        source.extend_from_slice(chunk);
        let from = self.answer.passed() - source.len();
        let mut renamed = Vec::with_capacity(source.len() + self.names.closed.len() * self.name.len());
        let mut done = 0;
        for place in self.names.closed.drain(..) {
            renamed.extend_from_slice(&source[done..place.start - from]);
            renamed.extend_from_slice(&self.name);
            done = place.end - from;
        }
        let mut open = self.names.open.map_or(source.len(), |open| open - from);
        if source.len() - open > MAX_HELD {
            self.names.open = None;
            open = source.len();
        }
        renamed.extend_from_slice(&source[done..open]);
        self.held.extend_from_slice(&source[open..]);
        Cow::Owned(renamed)
    }

    /// Takes it that the answer has ended, and returns what was held back of it.
    pub fn finish(self) -> Vec<u8> {
        self.held
    }
}

impl Sink<()> for Names {
    fn begin(&mut self, _id: (), kind: Kind, at: usize) {
        self.open = (kind == Kind::Text).then_some(at);
    }

    fn end(&mut self, _id: (), value: &Value<'_>) -> Result<(), BodyError> {
        if self.open.take().is_some() && value.place.len() <= MAX_HELD {
            self.closed.push(value.place.clone());
        }
        Ok(())
    }

    fn lost(&mut self) {
        self.open = None;
    }
}
