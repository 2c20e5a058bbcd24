//! Replaces the model in a streamed response with the name that the client used.

use super::{
    BodyError,
    answer::{Answer, Framing},
    json::{Field, Kind, Sink, Take, Value},
    text::quoted,
};
use std::{borrow::Cow, ops::Range};

/// The maximum length of a buffered name, in bytes with quotes and escapes. A longer name isn't replaced.
const MAX_HELD: usize = 4096;

const MODEL: Field<()> = Field { key: "model", take: Take::Place(()) };

/// The places of the name: in the object, in events of responses, and in Anthropic's first event.
const FIELDS: &[Field<()>] =
    &[MODEL, Field { key: "response", take: Take::Fields(&[MODEL]) }, Field { key: "message", take: Take::Fields(&[MODEL]) }];

/// Renames the model of a response: `model` in the object or in each event, and in its `response` or `message`. All other bytes stay
/// unchanged. The length changes, so remove Content-Length.
#[derive(Debug)]
pub struct ResponseModel {
    answer: Answer<()>,
    name: Vec<u8>,
    names: Names,
    /// The start of a name whose end hasn't arrived.
    held: Vec<u8>,
}

/// The places of names.
#[derive(Debug, Default)]
struct Names {
    open: Option<usize>,
    closed: Vec<Range<usize>>,
}

impl ResponseModel {
    /// Starts a response whose model gets this name.
    pub fn new(framing: Framing, name: &str) -> Self {
        Self { answer: Answer::new(framing, FIELDS), name: quoted(name).into_bytes(), names: Names::default(), held: Vec::new() }
    }

    /// Processes the next chunk, and returns the output: the chunk itself if nothing in it changes.
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

    /// Ends the response, and returns the buffered rest.
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
