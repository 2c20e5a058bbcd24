//! Parses a request's path and body, and builds the body to send.

use super::{
    decisions::record::Record,
    refusal::{unclaimed, unreadable},
};
use hyper::body::Bytes;
use pointsman_picker::{
    body::{Api, ModelEdit, RequestBody},
    config::{Parser, PickerConfig},
    prefix::BlockSize,
    protocol::{Refusal, RequestHead},
    rewrite::ModelRewrites,
};
use std::sync::Arc;

/// A parsed request.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming {
    model: String,
    target: Option<String>,
    /// The body with another model, in pieces.
    pub(super) rewritten: Option<Vec<Bytes>>,
    /// The blocks of its prompt.
    pub(super) hashes: Arc<[u64]>,
    /// The estimated number of tokens of its prompt.
    pub(super) tokens: u64,
    /// The maximum number of tokens of its response.
    pub(super) max_tokens: Option<u64>,
    /// Whether it requests a stream.
    pub(super) streams: bool,
    /// The size of its body, in bytes.
    pub(super) bytes: usize,
}

impl Incoming {
    /// Creates a request with only these fields.
    pub(super) fn from_blocks(model: &str, hashes: Arc<[u64]>, tokens: u64, max_tokens: u64) -> Self {
        Self { model: model.to_owned(), hashes, tokens, max_tokens: Some(max_tokens), streams: true, ..Self::default() }
    }

    /// The model in the client's request; empty if none.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// The model that serves it.
    pub(super) fn target(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.model)
    }

    /// Adds its fields to the record: of its prompt, only the number of tokens.
    pub(super) fn note(&self, record: &mut Record) {
        record.model.clone_from(&self.model);
        record.target.clone_from(&self.target);
        record.prompt_tokens = self.tokens;
        record.output_limit = self.max_tokens;
    }
}

/// The parser for an API.
fn parser(api: Api) -> Parser {
    match api {
        Api::Messages => Parser::Anthropic,
        Api::VllmGenerate => Parser::VllmHttp,
        Api::SglangGenerate => Parser::SglangHttp,
        _ => Parser::OpenAi,
    }
}

/// Parses a request.
pub(super) fn read(
    head: &RequestHead,
    body: &[Bytes],
    config: &PickerConfig,
    block: BlockSize,
    rewrites: &ModelRewrites,
    random: u64,
) -> Result<Incoming, Refusal> {
    let parsers = &config.parsers;
    let bytes = body.iter().map(Bytes::len).sum();
    let api = Api::of_path(&head.path).filter(|api| parsers.contains(&parser(*api)));
    let Some(api) = api.filter(|_| bytes > 0) else {
        // A request that lists models has no body.
        return if parsers.contains(&Parser::Passthrough) || bytes == 0 {
            Ok(Incoming { bytes, ..Incoming::default() })
        } else {
            Err(unclaimed(&head.path))
        };
    };
    let found = RequestBody::read(api, head.content_type.as_deref(), body).map_err(|error| unreadable(&error))?;
    let model = found.model().unwrap_or_default();
    let wanted = head.model_rewrite.as_deref().or_else(|| rewrites.target(model, spread(random)));
    let target = wanted.filter(|target| *target != model && !model.is_empty());
    let rewritten = match target {
        None => None,
        Some(target) => {
            let edit = found.with_model(target).map_err(|error| unreadable(&error))?;
            Some(pieces(&edit, body))
        }
    };
    let mut hashes = found.prefix_hashes(body, target.unwrap_or(model), block);
    hashes.truncate((config.prefix.max_tokens / block.tokens()) as usize);
    Ok(Incoming {
        model: model.to_owned(),
        target: target.map(str::to_owned),
        rewritten,
        hashes: hashes.into(),
        tokens: found.estimated_tokens(),
        max_tokens: found.max_tokens(),
        streams: found.streams(),
        bytes,
    })
}

/// The new body in pieces, which share the old one's memory.
fn pieces(edit: &ModelEdit, body: &[Bytes]) -> Vec<Bytes> {
    let pieces = edit.pieces(body);
    let shared = |piece: &[u8]| {
        let within = body.iter().find(|chunk| chunk.as_ptr_range().contains(&piece.as_ptr()));
        within.map_or_else(|| Bytes::copy_from_slice(piece), |chunk| chunk.slice_ref(piece))
    };
    pieces.into_iter().map(shared).collect()
}

/// Spreads a counter over all numbers, evenly in any order.
fn spread(counter: u64) -> u64 {
    counter.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
