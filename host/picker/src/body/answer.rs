//! Scans the JSON objects of a streamed response: a single one, or one in each event.

use super::{
    events::{Lines, Piece},
    json::{Field, Scanner, Sink},
};
use std::fmt::Debug;

/// The format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON object.
    Json,
    /// Server-sent events, each with a JSON object.
    Events,
}

impl Framing {
    /// The format of a Content-Type; by default, JSON.
    pub fn of_content_type(value: Option<&str>) -> Self {
        let media = value.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if media.eq_ignore_ascii_case("text/event-stream") { Self::Events } else { Self::Json }
    }
}

/// A scan of a response. Anything that isn't JSON is skipped.
#[derive(Debug)]
pub(super) struct Answer<I: 'static> {
    framing: Framing,
    lines: Lines,
    passed: usize,
    object: Object<I>,
}

/// The current object.
#[derive(Debug)]
struct Object<I: 'static> {
    scanner: Scanner<I>,
    /// Whether it is invalid.
    is_broken: bool,
    events: u64,
}

impl<I: Copy + Debug> Answer<I> {
    /// Starts a scan for these fields.
    pub(super) fn new(framing: Framing, fields: &'static [Field<I>]) -> Self {
        let object = Object { scanner: Scanner::new(fields), is_broken: false, events: 0 };
        Self { framing, lines: Lines::default(), passed: 0, object }
    }

    /// The number of processed bytes.
    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    /// The number of events that have begun with an object.
    pub(super) fn events(&self) -> u64 {
        self.object.events
    }

    /// Processes a chunk.
    pub(super) fn read(&mut self, chunk: &[u8], sink: &mut impl Sink<I>) {
        let from = self.passed;
        self.passed += chunk.len();
        let object = &mut self.object;
        if self.framing == Framing::Json {
            return object.read(chunk, from, sink);
        }
        self.lines.read(chunk, from, |piece| match piece {
            // Some servers omit the empty line between two events.
            Piece::DataBegins if object.scanner.is_at_end() => object.restart(sink),
            Piece::DataBegins => {}
            Piece::Data(bytes, at) => {
                let was_before = object.scanner.is_at_start() && !object.is_broken;
                object.read(bytes, at, sink);
                object.events += u64::from(was_before && !object.scanner.is_at_start());
            }
            // JSON strings contain no line ends.
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
