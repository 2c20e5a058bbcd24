//! A request's body: its model, its prompt, and the other data for its routing.

use super::{
    Api, BodyError, MAX_BYTES, MAX_MODEL, MAX_SALT, ModelEdit, Problem,
    edit::within,
    fields::{self, Id, LIMITS, PARTS, PROMPT, TOOLS},
    form::Form,
    json::{Kind, Scanner, Sink, Value},
    text::quoted,
};
use crate::prefix::{BlockSize, PrefixHasher};
use std::ops::Range;
use xxhash_rust::xxh64::Xxh64;

/// The estimated number of a prompt's bytes per token, the same as for prefixes.
const BYTES_PER_TOKEN: usize = BlockSize::exactly(1).bytes();

/// Reads a body in chunks.
#[derive(Debug)]
pub struct RequestReader {
    source: Source,
    found: RequestBody,
    most: usize,
}

#[derive(Debug)]
enum Source {
    Json(Box<Scanner<Id>>),
    Form(Box<Form>),
}

/// The data of a request's body. It contains positions in the body instead of copies: methods that need the body take it again, in the same
/// or other pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestBody {
    api: Api,
    is_form: bool,
    length: usize,
    model: Option<(String, Range<usize>)>,
    streams: bool,
    limits: [Option<u64>; LIMITS],
    count: Option<u64>,
    salt: Option<String>,
    parts: [Option<Part>; PARTS],
}

/// A part of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    place: Range<usize>,
    /// The number of token ids, if it consists of them.
    tokens: Option<u64>,
}

impl RequestReader {
    /// Starts a body with this Content-Type.
    pub fn new(api: Api, content_type: Option<&str>) -> Result<Self, BodyError> {
        let media = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        let is_form = api == Api::Form && !media.eq_ignore_ascii_case("application/json");
        let source = if is_form {
            Source::Form(Box::new(Form::new(content_type.unwrap_or_default())?))
        } else {
            Source::Json(Box::new(Scanner::new(fields::of(api))))
        };
        let found = RequestBody {
            api,
            is_form,
            length: 0,
            model: None,
            streams: false,
            limits: [None; LIMITS],
            count: None,
            salt: None,
            parts: [const { None }; PARTS],
        };
        Ok(Self { source, found, most: MAX_BYTES })
    }

    /// Limits the size of the body, in bytes.
    #[must_use]
    pub fn limit(self, bytes: usize) -> Self {
        Self { most: bytes, ..self }
    }

    /// Processes the next chunk. Don't call it again after an error.
    pub fn read(&mut self, chunk: &[u8]) -> Result<(), BodyError> {
        let from = self.found.length;
        if chunk.len() > self.most.saturating_sub(from) {
            return Err(Problem::TooLarge(self.most).at(self.most));
        }
        self.found.length += chunk.len();
        match &mut self.source {
            Source::Json(scanner) => scanner.read(chunk, from, &mut self.found),
            Source::Form(form) => form.read(chunk),
        }
    }

    /// Ends the body.
    pub fn finish(self) -> Result<RequestBody, BodyError> {
        let mut found = self.found;
        match self.source {
            Source::Json(scanner) => scanner.finish(found.length)?,
            Source::Form(form) => (found.model, found.streams) = form.finish(found.length)?,
        }
        if found.model.is_none() && fields::requires_model(found.api) {
            return Err(Problem::Missing("`model`: set it to the name of one").at(found.length));
        }
        match fields::required_prompt(found.api) {
            Some(name) if found.parts[PROMPT..].iter().all(Option::is_none) => Err(Problem::Missing(name).at(found.length)),
            _ => Ok(found),
        }
    }
}

impl RequestBody {
    /// Reads a complete body, in pieces.
    pub fn read(api: Api, content_type: Option<&str>, body: &[impl AsRef<[u8]>]) -> Result<Self, BodyError> {
        let mut reader = RequestReader::new(api, content_type)?;
        for piece in body {
            reader.read(piece.as_ref())?;
        }
        reader.finish()
    }

    /// The API of the request.
    pub fn api(&self) -> Api {
        self.api
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The model's name. It is present unless it is optional in the API.
    pub fn model(&self) -> Option<&str> {
        self.model.as_ref().map(|(name, _)| name.as_str())
    }

    /// Whether it requests a stream of events.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// The maximum number of tokens in the response, from the most specific field of the API.
    pub fn max_tokens(&self) -> Option<u64> {
        self.limits.iter().copied().find_map(|limit| limit)
    }

    /// The requested number of responses, if specified.
    pub fn count(&self) -> Option<u64> {
        self.count
    }

    /// The salt that separates its prompt in caches.
    pub fn cache_salt(&self) -> Option<&str> {
        self.salt.as_deref()
    }

    /// The position of its tools.
    pub fn tools(&self) -> Option<Range<usize>> {
        self.parts[TOOLS].as_ref().map(|part| part.place.clone())
    }

    /// The number of the prompt's tokens: exact for token ids, otherwise estimated from the bytes of its JSON, including tools and system
    /// prompt.
    pub fn estimated_tokens(&self) -> u64 {
        let parts = || self.parts.iter().flatten();
        let bytes: usize = parts().filter(|part| part.tokens.is_none()).map(|part| part.place.len()).sum();
        let exact = parts().filter_map(|part| part.tokens).fold(0, u64::saturating_add);
        exact.saturating_add(bytes.div_ceil(BYTES_PER_TOKEN) as u64)
    }

    /// Writes the bytes that represent the prompt, in pieces: a digest of the tools, the tools, the system prompt, and the user's input.
    /// Each is as in the body, but those after the tools are without their closing brackets or quotes. Prompts with the same tools and the
    /// same start have the same first bytes, however they continue. Prompts with different tools have no common first bytes.
    ///
    /// Raw bytes are sufficient because clients resend earlier messages unchanged, and a chat template renders a prefix of the messages as
    /// a prefix of the prompt. The bytes understate the common prefix if clients change spaces, escapes or the order of keys, or if tools
    /// differ only at their end. They overstate it if a template inserts varying text at the start (the date, or a system prompt before the
    /// tools), drops earlier text (reasoning), or if the server also reads other fields (`chat_template_kwargs`, adapters). Images in
    /// base64 count by their bytes, and token ids by their digits, not by their tokens.
    pub fn write_prompt(&self, body: &[impl AsRef<[u8]>], mut write: impl FnMut(&[u8])) {
        if let Some(tools) = &self.parts[TOOLS] {
            let mut digest = Xxh64::new(0);
            pieces(body, &tools.place, |piece| digest.update(piece));
            write(&digest.digest().to_le_bytes());
        }
        for part in self.parts.iter().flatten() {
            pieces(body, &part.place, &mut write);
        }
    }

    /// The hashes of the prompt's blocks, for the model that serves it and with the cache salt.
    pub fn prefix_hashes(&self, body: &[impl AsRef<[u8]>], model: &str, size: BlockSize) -> Vec<u64> {
        let mut hasher = PrefixHasher::new(model, self.cache_salt().unwrap_or_default(), size);
        self.write_prompt(body, |piece| hasher.write(piece));
        hasher.finish()
    }

    /// The edit that sets another model. All other bytes stay unchanged.
    pub fn with_model(&self, model: &str) -> Result<ModelEdit, BodyError> {
        let Some((_, place)) = &self.model else { return Err(Problem::Missing("`model` to replace").at(self.length)) };
        // A line that begins with two hyphens would end the part.
        if self.is_form && (model.contains(['\r', '\n']) || model.starts_with("--") || model.is_empty()) {
            return Err(Problem::Unwritable.at(place.start));
        }
        let text = if self.is_form { model.to_owned() } else { quoted(model) };
        Ok(ModelEdit { place: place.clone(), text, length: self.length })
    }

    fn text(name: &'static str, most: usize, value: &Value<'_>) -> Result<String, BodyError> {
        let at = value.place.start;
        if value.kind != Kind::Text {
            return Err(Problem::NotAString(name).at(at));
        }
        if value.is_longer {
            return Err(Problem::TooLong(name, most).at(at));
        }
        // The quote is the byte before the text.
        String::from_utf8(value.kept.to_vec()).map_err(|error| Problem::Syntax.at(at + 1 + error.utf8_error().valid_up_to()))
    }
}

/// Writes the bytes of a range of the body.
fn pieces(body: &[impl AsRef<[u8]>], range: &Range<usize>, mut write: impl FnMut(&[u8])) {
    let mut start = 0;
    for piece in body.iter().map(AsRef::as_ref) {
        if start >= range.end {
            return;
        }
        let inside = within(piece, start, range);
        if !inside.is_empty() {
            write(inside);
        }
        start += piece.len();
    }
}

impl Sink<Id> for RequestBody {
    fn key(&mut self, key: &[u8], at: usize) -> Result<(), BodyError> {
        if !key.eq_ignore_ascii_case(b"model") {
            return Ok(());
        }
        if key != b"model" {
            return Err(Problem::Capitals.at(at));
        }
        if self.model.is_some() { Err(Problem::Twice.at(at)) } else { Ok(()) }
    }

    fn end(&mut self, id: Id, value: &Value<'_>) -> Result<(), BodyError> {
        match id {
            Id::Model if value.is_null() && !fields::requires_model(self.api) => {}
            Id::Model => {
                let name = Self::text("model", MAX_MODEL, value)?;
                if name.is_empty() {
                    return Err(Problem::Empty.at(value.place.start));
                }
                self.model = Some((name, value.place.clone()));
            }
            // If another field occurs twice, servers use the last one.
            Id::Stream => self.streams = value.kind == Kind::Scalar && value.kept == b"true",
            Id::Limit(place) => self.limits[place] = value.number(),
            Id::Count => self.count = value.number(),
            Id::Salt if value.is_null() => self.salt = None,
            Id::Salt => {
                let name = if self.api == Api::SglangGenerate { "extra_key" } else { "cache_salt" };
                self.salt = Some(Self::text(name, MAX_SALT, value)?);
            }
            Id::Part(place) if value.is_null() => self.parts[place] = None,
            Id::Part(place) => {
                // The closing bracket or quote moves when the prompt grows.
                let is_open = place != TOOLS && value.kind != Kind::Scalar;
                let end = value.place.end - usize::from(is_open);
                self.parts[place] = Some(Part { place: value.place.start..end, tokens: value.numbers });
            }
        }
        Ok(())
    }
}
