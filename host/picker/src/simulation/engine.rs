//! The engine of a simulated model server. The caller supplies the time. Equal calls have equal results.

use super::{
    blocks::{Blocks, Held},
    prompt::{EnginePrompt, PromptBlocks},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// A time, in microseconds.
pub type Micros = u64;

/// The capacity and the speed of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// The maximum number of running requests.
    pub max_num_seqs: usize,
    /// The number of blocks in the KV cache.
    pub blocks: usize,
    /// The number of tokens in a block.
    pub block_size: usize,
    /// The time per uncached token of a prompt.
    pub prefill_us_per_token: Micros,
    /// The time for one token of each running request.
    pub decode_us: Micros,
    /// The additional time per running request.
    pub decode_us_per_running: Micros,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { max_num_seqs: 64, blocks: 4096, block_size: 16, prefill_us_per_token: 5, decode_us: 500, decode_us_per_running: 20 }
    }
}

/// A request to an engine. The prompt is text or blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRequest<P = Vec<u8>> {
    /// Its identifier in events.
    pub id: u64,
    /// The number of its model. Different models don't share prefixes.
    pub model: usize,
    /// Its prompt.
    pub prompt: P,
    /// The number of tokens to generate.
    pub max_tokens: usize,
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has started.
    Started {
        /// The tokens of the prompt.
        prompt_tokens: usize,
        /// The tokens of the prompt that are cached and need no prefill.
        cached_tokens: usize,
    },
    /// It has generated a token. The last one ends it.
    Token {
        /// The number of the token, starting at 0.
        number: usize,
        /// Whether it is the last.
        is_last: bool,
    },
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineEvent {
    /// Its time.
    pub at: Micros,
    /// Its request.
    pub id: u64,
    /// The progress of the request.
    pub progress: Progress,
}

/// A request that exceeds the whole cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request has {tokens} tokens, and the model's context has {limit}")]
pub struct TooLong {
    /// The tokens of its prompt and its response.
    pub tokens: usize,
    /// The capacity of the cache, in tokens.
    pub limit: usize,
}

/// The counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineCounts {
    /// Queued requests.
    pub waiting: usize,
    /// Running requests.
    pub running: usize,
    /// The used share of the KV cache.
    pub cache_usage: f64,
    /// The tokens of all prompts so far.
    pub prefix_queries: u64,
    /// The cached tokens of all prompts so far.
    pub prefix_hits: u64,
}

/// A running request.
#[derive(Debug)]
struct Sequence {
    id: u64,
    model: usize,
    hashes: Arc<[u64]>,
    held: Held,
    max_tokens: usize,
    tokens: usize,
    /// Whether the current step generates a token for it.
    in_step: bool,
}

/// An engine: a queue, one prefill at a time, and concurrent steps in which each running request gets a token.
#[derive(Debug)]
pub struct ModelEngine {
    settings: EngineSettings,
    blocks: Blocks,
    waiting: VecDeque<EngineRequest<PromptBlocks>>,
    /// The request that is in prefill, and the end of its prefill.
    prefill: Option<(Sequence, Micros)>,
    decoding: Vec<Sequence>,
    /// The end of the current step.
    step: Option<Micros>,
    events: Vec<EngineEvent>,
    counts: EngineCounts,
}

impl ModelEngine {
    /// An engine without requests.
    pub fn new(settings: EngineSettings) -> Self {
        let blocks = Blocks::new(settings.blocks, settings.block_size);
        let (waiting, decoding, events) = Default::default();
        Self { settings, blocks, waiting, prefill: None, decoding, step: None, events, counts: EngineCounts::default() }
    }

    /// Adds a request. The time must never decrease between calls.
    pub fn arrive(&mut self, now: Micros, request: EngineRequest<impl EnginePrompt>) -> Result<(), TooLong> {
        self.run_until(now);
        let EngineRequest { id, model, prompt, max_tokens } = request;
        let PromptBlocks { hashes, tokens } = prompt.into_blocks(model, self.settings.block_size);
        // An empty prompt has one token, because models need a first one.
        let prompt = PromptBlocks { hashes, tokens: tokens.max(1) };
        let tokens = prompt.tokens + max_tokens;
        if self.blocks.needed(tokens) > self.settings.blocks {
            return Err(TooLong { tokens, limit: self.settings.blocks * self.settings.block_size });
        }
        self.waiting.push_back(EngineRequest { id, model, prompt, max_tokens });
        self.schedule(now);
        Ok(())
    }

    /// Removes a request in any state.
    pub fn cancel(&mut self, now: Micros, id: u64) {
        self.run_until(now);
        self.waiting.retain(|request| request.id != id);
        if let Some((sequence, _)) = self.prefill.take_if(|(sequence, _)| sequence.id == id) {
            self.blocks.release(sequence.held);
        }
        if let Some(at) = self.decoding.iter().position(|sequence| sequence.id == id) {
            self.blocks.release(self.decoding.remove(at).held);
        }
        self.schedule(now);
    }

    /// The time of the next event, unless a request arrives earlier.
    pub fn next_event(&self) -> Option<Micros> {
        let prefill = self.prefill.as_ref().map(|(_, until)| *until);
        prefill.into_iter().chain(self.step).min()
    }

    /// The events up to now that weren't returned before, in order.
    pub fn advance(&mut self, now: Micros) -> Vec<EngineEvent> {
        self.run_until(now);
        std::mem::take(&mut self.events)
    }

    /// The counters.
    pub fn counts(&self) -> EngineCounts {
        let running = self.decoding.len() + usize::from(self.prefill.is_some());
        EngineCounts { waiting: self.waiting.len(), running, cache_usage: self.blocks.usage(), ..self.counts }
    }

    /// The number of running requests per model.
    pub fn running_models(&self) -> BTreeMap<usize, usize> {
        count(self.prefill.iter().map(|(sequence, _)| sequence).chain(&self.decoding).map(|sequence| sequence.model))
    }

    /// The number of queued requests per model.
    pub fn waiting_models(&self) -> BTreeMap<usize, usize> {
        count(self.waiting.iter().map(|request| request.model))
    }

    fn run_until(&mut self, now: Micros) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            if let Some((sequence, _)) = self.prefill.take_if(|(_, until)| *until == at) {
                self.end_prefill(at, sequence);
            }
            if self.step.take_if(|until| *until == at).is_some() {
                self.end_step(at);
            }
            self.schedule(at);
        }
    }

    /// The end of the prefill also generates the first token.
    fn end_prefill(&mut self, at: Micros, mut sequence: Sequence) {
        self.blocks.share(&mut sequence.held, &sequence.hashes);
        if let Some(sequence) = self.give_token(at, sequence) {
            self.decoding.push(sequence);
        }
    }

    fn end_step(&mut self, at: Micros) {
        for mut sequence in std::mem::take(&mut self.decoding) {
            let gets_one = std::mem::take(&mut sequence.in_step);
            let left = if gets_one { self.give_token(at, sequence) } else { Some(sequence) };
            self.decoding.extend(left);
        }
    }

    /// Returns the request unless that was its last token.
    fn give_token(&mut self, at: Micros, mut sequence: Sequence) -> Option<Sequence> {
        let number = sequence.tokens;
        sequence.tokens += 1;
        let is_last = sequence.tokens >= sequence.max_tokens;
        self.events.push(EngineEvent { at, id: sequence.id, progress: Progress::Token { number, is_last } });
        if is_last {
            self.blocks.release(sequence.held);
            return None;
        }
        Some(sequence)
    }

    /// Starts everything that can start.
    fn schedule(&mut self, now: Micros) {
        if self.prefill.is_none() && self.decoding.len() < self.settings.max_num_seqs {
            self.begin_prefill(now);
        }
        if self.step.is_none() && !self.decoding.is_empty() {
            for sequence in &mut self.decoding {
                sequence.in_step = true;
            }
            let running = self.decoding.len() as Micros;
            // A step of length 0 would never end.
            let step = self.settings.decode_us + self.settings.decode_us_per_running * running;
            self.step = Some(now + step.max(1));
        }
    }

    /// Requests start in order of arrival. One that doesn't fit blocks those after it.
    fn begin_prefill(&mut self, now: Micros) {
        let Some(request) = self.waiting.front() else { return };
        let PromptBlocks { hashes, tokens: prompt_tokens } = request.prompt.clone();
        // The last token is always computed, because the first token of the response depends on it.
        let reusable = &hashes[..hashes.len().min((prompt_tokens - 1) / self.settings.block_size)];
        let Some(held) = self.blocks.take(reusable, prompt_tokens + request.max_tokens) else { return };
        let cached_tokens = self.blocks.cached_tokens(&held);
        self.counts.prefix_queries += prompt_tokens as u64;
        self.counts.prefix_hits += cached_tokens as u64;
        let (id, model, max_tokens) = (request.id, request.model, request.max_tokens);
        self.waiting.pop_front();
        self.events.push(EngineEvent { at: now, id, progress: Progress::Started { prompt_tokens, cached_tokens } });
        let until = now + self.settings.prefill_us_per_token * (prompt_tokens - cached_tokens) as Micros;
        self.prefill = Some((Sequence { id, model, hashes, held, max_tokens, tokens: 0, in_step: false }, until));
    }
}

fn count(models: impl Iterator<Item = usize>) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for model in models {
        *counts.entry(model).or_default() += 1;
    }
    counts
}
