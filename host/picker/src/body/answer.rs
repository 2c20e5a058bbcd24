//! The JSON objects of an answer while it passes: one, or one in each event of a stream.

use super::{
    events::{Lines, Piece},
    json::{Field, Scanner, Sink},
};
use std::fmt::Debug;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As one JSON object.
    Json,
    /// As server-sent events, each with a JSON object.
    Events,
}

impl Framing {
    /// That of a Content-Type; without one it is JSON.
    pub fn of_content_type(value: Option<&str>) -> Self {
        let media = value.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if media.eq_ignore_ascii_case("text/event-stream") { Self::Events } else { Self::Json }
    }
}

/// A scan of an answer. What isn't JSON is passed over.
#[derive(Debug)]
pub(super) struct Answer<I: 'static> {
    framing: Framing,
    lines: Lines,
    passed: usize,
    object: Object<I>,
}

/// The object that is being read.
#[derive(Debug)]
struct Object<I: 'static> {
    scanner: Scanner<I>,
    /// It isn't one.
    is_broken: bool,
    events: u64,
}

impl<I: Copy + Debug> Answer<I> {
    /// Begins a scan for these fields.
    pub(super) fn new(framing: Framing, fields: &'static [Field<I>]) -> Self {
        let object = Object { scanner: Scanner::new(fields), is_broken: false, events: 0 };
        Self { framing, lines: Lines::default(), passed: 0, object }
    }

    /// How many bytes have passed.
    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    /// How many events with an object have begun.
    pub(super) fn events(&self) -> u64 {
        self.object.events
    }

    /// Reads a chunk.
    pub(super) fn read(&mut self, chunk: &[u8], sink: &mut impl Sink<I>) {
        let from = self.passed;
        self.passed += chunk.len();
        let object = &mut self.object;
        if self.framing == Framing::Json {
            return object.read(chunk, from, sink);
        }
        self.lines.read(chunk, from, |piece| match piece {
            // Some servers leave out the empty line between two events.
            Piece::DataBegins if object.scanner.is_at_end() => object.restart(sink),
            Piece::DataBegins => {}
            Piece::Data(bytes, at) => {
                let was_before = object.scanner.is_at_start() && !object.is_broken;
                object.read(bytes, at, sink);
                object.events += u64::from(was_before && !object.scanner.is_at_start());
            }
            // No string of JSON has a line's end in it.
            Piece::DataEnds(_) if object.scanner.is_in_text() => object.break_off(sink),
            Piece::DataEnds(at) => object.read(b"\n", at, sink),
            Piece::EventEnds => object.restart(sink),
        });
    }
}

impl<I: Copy + Debug> Object<I> {
    fn read(&mut self, bytes: &[u8], at: usize, sink: &mut impl Sink<I>) {
        if !self.is_broken && self.scanner.read(bytes, at, sink).is_err() {
            self.break_off(sink);
        }
    }

    fn break_off(&mut self, sink: &mut impl Sink<I>) {
        self.is_broken = true;
        sink.lost();
    }

    fn restart(&mut self, sink: &mut impl Sink<I>) {
        self.scanner.restart();
        self.is_broken = false;
        sink.lost();
    }
}
