//! Finds the requested model in a multipart form, in a stream of arbitrary chunks: audio is sent in forms. It stores only a part's headers
//! and the name.
//!
//! Forms that servers parse differently are rejected: two parts with that name, a name with capitals or escapes, folded headers, bare line
//! ends, encodings, and anything before the first part or after the last.

use super::{BodyError, MAX_MODEL, Problem};
use memchr::memmem::{Finder, find};
use std::ops::Range;

/// The maximum length of a boundary in RFC 2046.
pub(super) const MAX_BOUNDARY: usize = 70;

/// The maximum length of a part's headers, in bytes.
pub(super) const MAX_HEADERS: usize = 8192;

/// The maximum number of parts in a form.
pub(super) const MAX_PARTS: usize = 256;

/// Values that servers accept as true.
const TRUE: [&[u8]; 6] = [b"true", b"1", b"on", b"yes", b"t", b"y"];

const LINE_END: &[u8] = b"\r\n";
const HEADERS_END: &[u8] = b"\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// After a delimiter, where a part begins or the form ends.
    Delimiter,
    Headers,
    Content(Name),
    /// After the last delimiter.
    End,
}

/// The relevant names of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Model,
    Stream,
    Other,
}

/// The model's name with its position, and whether a stream is requested.
pub(super) type Found = (Option<(String, Range<usize>)>, bool);

/// A scan of one form.
#[derive(Debug)]
pub(super) struct Form {
    state: State,
    /// The delimiter between parts.
    delimiter: Finder<'static>,
    /// Bytes that have arrived but haven't been processed.
    pending: Vec<u8>,
    /// The position of the pending bytes. It includes a line end that was inserted before the body.
    judged: usize,
    parts: usize,
    text: Vec<u8>,
    found: Found,
}

impl Form {
    /// Starts a scan for a form with this Content-Type.
    pub(super) fn new(content_type: &str) -> Result<Self, BodyError> {
        let no_boundary = Problem::Boundary.at(0);
        let (media, parameters) = header_value(content_type).ok_or(no_boundary)?;
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
        let is_boundary =
            |text: &&str| !text.is_empty() && text.len() <= MAX_BOUNDARY && text.bytes().all(is_allowed) && !text.ends_with(' ');
        let boundary = only(&parameters, "boundary").map_err(|()| no_boundary)?.filter(is_boundary).ok_or(no_boundary)?;
        if !media.eq_ignore_ascii_case("multipart/form-data") {
            return Err(no_boundary);
        }
        let delimiter = Finder::new(&[LINE_END, b"--", boundary.as_bytes()].concat()).into_owned();
        Ok(Self {
            state: State::Content(Name::Other),
            delimiter,
            // No line precedes the first delimiter.
            pending: LINE_END.to_vec(),
            judged: 0,
            parts: 0,
            text: Vec::new(),
            found: (None, false),
        })
    }

    /// Processes a chunk. Don't call it again after an error.
    pub(super) fn read(&mut self, chunk: &[u8]) -> Result<(), BodyError> {
        // In pieces, so that `pending` stays small even for a large chunk.
        for piece in chunk.chunks(MAX_HEADERS) {
            self.pending.extend_from_slice(piece);
            while self.step()? {}
        }
        Ok(())
    }

    /// Ends the form, which has this length.
    pub(super) fn finish(self, length: usize) -> Result<Found, BodyError> {
        if self.state == State::End { Ok(self.found) } else { Err(Problem::FormTruncated.at(length)) }
    }

    /// The position in the body at which the pending bytes begin.
    fn at(&self) -> usize {
        self.judged.saturating_sub(LINE_END.len())
    }

    fn judge(&mut self, bytes: usize) {
        self.pending.drain(..bytes);
        self.judged += bytes;
    }

    /// Processes the pending bytes as far as possible. Returns false if more bytes are needed.
    fn step(&mut self) -> Result<bool, BodyError> {
        match self.state {
            State::Delimiter => self.after_delimiter(),
            State::Headers => self.headers(),
            State::Content(name) => self.content(name),
            // Some clients end the last line.
            State::End if self.pending.is_empty() || LINE_END.starts_with(&self.pending) => Ok(false),
            State::End => Err(Problem::Form.at(self.at())),
        }
    }

    fn after_delimiter(&mut self) -> Result<bool, BodyError> {
        let Some(next) = self.pending.first_chunk::<2>() else { return Ok(false) };
        match next {
            b"--" => {
                self.state = State::End;
                self.judge(2);
            }
            // The line end stays pending, so that headers end the same way even if a part has none.
            b"\r\n" => {
                self.state = State::Headers;
                self.parts += 1;
            }
            _ => return Err(Problem::Form.at(self.at())),
        }
        if self.parts > MAX_PARTS { Err(Problem::TooManyParts.at(self.at())) } else { Ok(true) }
    }

    fn headers(&mut self) -> Result<bool, BodyError> {
        let end = find(&self.pending, HEADERS_END);
        // Without an end, all pending bytes except a possible start of the end belong to the headers. The limit therefore doesn't depend on
        // the chunks.
        if end.unwrap_or(self.pending.len().saturating_sub(HEADERS_END.len() - 1)) > MAX_HEADERS {
            return Err(Problem::HeadersTooLong.at(self.at()));
        }
        let Some(end) = end else { return Ok(false) };
        let headers = str::from_utf8(&self.pending[..end]).map_err(|_| Problem::Form.at(self.at()))?;
        let name = name(headers.strip_prefix("\r\n").unwrap_or_default()).map_err(|problem| problem.at(self.at()))?;
        if name == Name::Model && self.found.0.is_some() {
            return Err(Problem::Twice.at(self.at()));
        }
        // The line end before a delimiter belongs to the delimiter, even in an empty part.
        self.judge(end + LINE_END.len());
        self.text.clear();
        self.state = State::Content(name);
        Ok(true)
    }

    /// Skips a part's content up to the next delimiter.
    fn content(&mut self, name: Name) -> Result<bool, BodyError> {
        let delimiter = self.delimiter.needle().len();
        let end = self.delimiter.find(&self.pending);
        // The pending bytes may end with the start of a delimiter.
        let judged = end.unwrap_or_else(|| self.pending.len().saturating_sub(delimiter - 1));
        // Nothing may precede the first part.
        if self.parts == 0 && judged > 0 {
            return Err(Problem::Form.at(self.at()));
        }
        if name != Name::Other {
            // This includes the line end before the content.
            let began = self.at() - self.text.len();
            let room = MAX_MODEL + LINE_END.len() + 1 - self.text.len();
            self.text.extend_from_slice(&self.pending[..judged.min(room)]);
            if name == Name::Model && self.text.len() > MAX_MODEL + LINE_END.len() {
                return Err(Problem::TooLong("model", MAX_MODEL).at(began + LINE_END.len()));
            }
        }
        self.judge(judged);
        if end.is_none() {
            return Ok(false);
        }
        let end = self.at();
        let text = self.text.strip_prefix(LINE_END).unwrap_or_default();
        match name {
            Name::Model => {
                let place = end - text.len()..end;
                let model = str::from_utf8(text).map_err(|error| Problem::Form.at(place.start + error.valid_up_to()))?;
                if model.is_empty() {
                    return Err(Problem::Empty.at(end));
                }
                self.found.0 = Some((model.to_owned(), place));
            }
            Name::Stream => self.found.1 = TRUE.iter().any(|word| text.eq_ignore_ascii_case(word)),
            Name::Other => {}
        }
        self.judge(delimiter);
        self.state = State::Delimiter;
        Ok(true)
    }
}

/// The name of a part, from its headers.
fn name(headers: &str) -> Result<Name, Problem> {
    let mut disposition = None;
    let mut is_plain = true;
    for line in headers.split("\r\n") {
        let (name, value) = line.split_once(':').ok_or(Problem::Form)?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        // This also rejects folded lines.
        if name.is_empty() || !name.bytes().all(is_token) || value.contains(['\r', '\n', '\0']) {
            return Err(Problem::Form);
        }
        if name.eq_ignore_ascii_case("content-disposition") {
            if disposition.replace(value).is_some() {
                return Err(Problem::Form);
            }
        } else if name.eq_ignore_ascii_case("content-type") {
            let (media, parameters) = header_value(value).ok_or(Problem::Form)?;
            let is_utf8 = |charset: &str| charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("us-ascii");
            let charset = only(&parameters, "charset").map_err(|()| Problem::Form)?;
            is_plain &= media.eq_ignore_ascii_case("text/plain") && charset.is_none_or(is_utf8);
        } else {
            // An encoding, or a header that a server may treat as one.
            is_plain = false;
        }
    }
    let (kind, parameters) = disposition.and_then(header_value).ok_or(Problem::Form)?;
    let name =
        only(&parameters, "name").map_err(|()| Problem::Form)?.filter(|_| kind.eq_ignore_ascii_case("form-data")).ok_or(Problem::Form)?;
    let is_file = only(&parameters, "filename").map_err(|()| Problem::Form)?.is_some();
    let is_text = !is_file && is_plain;
    match name {
        "model" if is_text => Ok(Name::Model),
        "model" => Err(Problem::NotAString("model")),
        "stream" if is_text => Ok(Name::Stream),
        _ if name.eq_ignore_ascii_case("model") => Err(Problem::Capitals),
        _ => Ok(Name::Other),
    }
}

/// The first word of a header's value, and its parameters. None if the value is ambiguous: with escapes, with RFC 5987's encoding, or
/// malformed.
fn header_value(value: &str) -> Option<(&str, Vec<(&str, &str)>)> {
    let (word, mut rest) = value.split_once(';').unwrap_or((value, ""));
    let mut parameters = Vec::new();
    rest = rest.trim_start_matches([' ', '\t']);
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let (text, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find([';', ' ', '\t', '"']).unwrap_or(after.len())),
        };
        // Browsers write a quote in a name as %22.
        if !is_key || text.contains('\\') || text.contains('%') && key.eq_ignore_ascii_case("name") {
            return None;
        }
        parameters.push((key, text));
        let after = after.trim_start_matches([' ', '\t']);
        rest = if after.is_empty() { "" } else { after.strip_prefix(';')?.trim_start_matches([' ', '\t']) };
    }
    Some((word.trim_matches([' ', '\t']), parameters))
}

/// A parameter that may occur at most once.
fn only<'v>(parameters: &[(&'v str, &'v str)], key: &str) -> Result<Option<&'v str>, ()> {
    let mut found = parameters.iter().filter(|(known, _)| known.eq_ignore_ascii_case(key)).map(|(_, value)| *value);
    let first = found.next();
    if found.next().is_some() { Err(()) } else { Ok(first) }
}
