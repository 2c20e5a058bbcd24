//! A request's body: its model, its prompt, and what else decides where it goes.

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

/// The estimate of how many bytes of a prompt are a token: that of the prefixes.
const BYTES_PER_TOKEN: usize = BlockSize::exactly(1).bytes();

/// Reads a body in chunks, as they come or later.
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

/// What a request's body says. It holds places in the body rather than copies: the methods that need the body take it again, in the same or
/// other pieces.
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
    /// How many token ids it is.
    tokens: Option<u64>,
}

impl RequestReader {
    /// Begins a body with this Content-Type.
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

    /// Takes bodies of at most so many bytes.
    #[must_use]
    pub fn limit(self, bytes: usize) -> Self {
        Self { most: bytes, ..self }
    }

    /// Reads the next chunk. After an error nothing more is to be read.
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

    /// Takes it that the body has ended.
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
    /// Reads a body that is there, in pieces.
    pub fn read(api: Api, content_type: Option<&str>, body: &[impl AsRef<[u8]>]) -> Result<Self, BodyError> {
        let mut reader = RequestReader::new(api, content_type)?;
        for piece in body {
            reader.read(piece.as_ref())?;
        }
        reader.finish()
    }

    /// The API that it is for.
    pub fn api(&self) -> Api {
        self.api
    }

    /// Its bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The model's name. It is there unless the API does without.
    pub fn model(&self) -> Option<&str> {
        self.model.as_ref().map(|(name, _)| name.as_str())
    }

    /// Whether it asks for a stream of events.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// How many tokens the answer may have, by the most specific of the names that the API has for it.
    pub fn max_tokens(&self) -> Option<u64> {
        self.limits.iter().copied().find_map(|limit| limit)
    }

    /// How many answers it asks for, if it says so.
    pub fn count(&self) -> Option<u64> {
        self.count
    }

    /// The salt that separates its prompt in caches.
    pub fn cache_salt(&self) -> Option<&str> {
        self.salt.as_deref()
    }

    /// Where its tools are.
    pub fn tools(&self) -> Option<Range<usize>> {
        self.parts[TOOLS].as_ref().map(|part| part.place.clone())
    }

    /// The prompt's tokens: exact where it is token ids, otherwise estimated by the bytes of its JSON, tools and system prompt included.
    pub fn estimated_tokens(&self) -> u64 {
        let parts = || self.parts.iter().flatten();
        let bytes: usize = parts().filter(|part| part.tokens.is_none()).map(|part| part.place.len()).sum();
        let exact = parts().filter_map(|part| part.tokens).fold(0, u64::saturating_add);
        exact.saturating_add(bytes.div_ceil(BYTES_PER_TOKEN) as u64)
    }

    /// Hands on the bytes that stand for the prompt, in pieces: a digest of the tools, the tools, the system prompt, and what is asked, each as
    /// it is in the body, those behind the tools without their closing brackets or quotes. Prompts with the same tools that begin alike have
    /// the same first bytes, however they go on; prompts with other tools have none.
    ///
    /// Raw bytes are enough because clients send what was said before as they sent it the last time, and a chat template renders a prefix of the
    /// messages as a prefix of the prompt. They understate what prompts share if one is written with other spaces, escapes or order of keys, or
    /// if tools differ at their end alone. They overstate it if a template puts something that differs in front (the date, or a system prompt
    /// before the tools), drops what was said before (reasoning), or if the server reads other fields too (`chat_template_kwargs`, adapters).
    /// Images in base64 count by their bytes, and token ids by their digits, not as so many tokens.
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

    /// The hashes of the prompt's blocks for the model that serves it, with the cache salt.
    pub fn prefix_hashes(&self, body: &[impl AsRef<[u8]>], model: &str, size: BlockSize) -> Vec<u64> {
        let mut hasher = PrefixHasher::new(model, self.cache_salt().unwrap_or_default(), size);
        self.write_prompt(body, |piece| hasher.write(piece));
        hasher.finish()
    }

    /// What makes it a body with another model. All other bytes stay as they are.
    pub fn with_model(&self, model: &str) -> Result<ModelEdit, BodyError> {
        let Some((_, place)) = &self.model else { return Err(Problem::Missing("`model` to replace").at(self.length)) };
        // A part ends with a line that begins with two hyphens.
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

/// Hands on the bytes of a range of the body.
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
            // Of other fields that are there twice servers take the last.
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
                // The closing bracket or quote stands elsewhere once the prompt has grown.
                let is_open = place != TOOLS && value.kind != Kind::Scalar;
                let end = value.place.end - usize::from(is_open);
                self.parts[place] = Some(Part { place: value.place.start..end, tokens: value.numbers });
            }
        }
        Ok(())
    }
}
