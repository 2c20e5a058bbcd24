//! The engine of a simulated model server, in a time of its own: whoever drives it says what time it is. Equal calls have equal results.

use super::{
    blocks::{Blocks, Held},
    prompt::{EnginePrompt, PromptBlocks},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// A moment, in microseconds.
pub type Micros = u64;

/// What an engine has, and how long it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// How many requests run at once.
    pub max_num_seqs: usize,
    /// How many blocks the KV cache has.
    pub blocks: usize,
    /// How many tokens a block has.
    pub block_size: usize,
    /// How long a token of a prompt takes that isn't cached.
    pub prefill_us_per_token: Micros,
    /// How long a token for all running requests takes.
    pub decode_us: Micros,
    /// How much longer for each of them.
    pub decode_us_per_running: Micros,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { max_num_seqs: 64, blocks: 4096, block_size: 16, prefill_us_per_token: 5, decode_us: 500, decode_us_per_running: 20 }
    }
}

/// A request to an engine, whose prompt is text or blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRequest<P = Vec<u8>> {
    /// Events name it by this.
    pub id: u64,
    /// The number of its model: no two share prefixes.
    pub model: usize,
    /// Its prompt.
    pub prompt: P,
    /// How many tokens it gets.
    pub max_tokens: usize,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It runs now: its prompt has so many tokens, and these of them are cached.
    Started {
        /// All of the prompt.
        prompt_tokens: usize,
        /// What needs no prefill.
        cached_tokens: usize,
    },
    /// It has a further token. The last one ends it.
    Token {
        /// From zero.
        number: usize,
        /// Whether it is the last.
        is_last: bool,
    },
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineEvent {
    /// When.
    pub at: Micros,
    /// To which request.
    pub id: u64,
    /// What.
    pub progress: Progress,
}

/// A request that no cache of the engine's size could ever hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request has {tokens} tokens, and the model's context has {limit}")]
pub struct TooLong {
    /// Its prompt and its answer.
    pub tokens: usize,
    /// What the cache holds.
    pub limit: usize,
}

/// What an engine counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineCounts {
    /// Requests without a seat.
    pub waiting: usize,
    /// Requests with one.
    pub running: usize,
    /// The part of the KV cache that they hold.
    pub cache_usage: f64,
    /// Tokens of all prompts so far.
    pub prefix_queries: u64,
    /// Those of them that were cached.
    pub prefix_hits: u64,
}

/// A request that runs.
#[derive(Debug)]
struct Sequence {
    id: u64,
    model: usize,
    hashes: Arc<[u64]>,
    held: Held,
    max_tokens: usize,
    tokens: usize,
    /// Whether it gets a token from the step that goes on.
    in_step: bool,
}

/// An engine: a queue, one prefill at a time, and beside it steps in which each running request gets a token.
#[derive(Debug)]
pub struct ModelEngine {
    settings: EngineSettings,
    blocks: Blocks,
    waiting: VecDeque<EngineRequest<PromptBlocks>>,
    /// The request whose prompt is read, and until when.
    prefill: Option<(Sequence, Micros)>,
    decoding: Vec<Sequence>,
    /// When the step ends.
    step: Option<Micros>,
    events: Vec<EngineEvent>,
    counts: EngineCounts,
}

impl ModelEngine {
    /// One without requests.
    pub fn new(settings: EngineSettings) -> Self {
        let blocks = Blocks::new(settings.blocks, settings.block_size);
        let (waiting, decoding, events) = Default::default();
        Self { settings, blocks, waiting, prefill: None, decoding, step: None, events, counts: EngineCounts::default() }
    }

    /// Takes a request. The time never goes back from one call to the next.
    pub fn arrive(&mut self, now: Micros, request: EngineRequest<impl EnginePrompt>) -> Result<(), TooLong> {
        self.run_until(now);
        let EngineRequest { id, model, prompt, max_tokens } = request;
        let PromptBlocks { hashes, tokens } = prompt.into_blocks(model, self.settings.block_size);
        // An empty prompt has a token as well, by which models begin.
        let prompt = PromptBlocks { hashes, tokens: tokens.max(1) };
        let tokens = prompt.tokens + max_tokens;
        if self.blocks.needed(tokens) > self.settings.blocks {
            return Err(TooLong { tokens, limit: self.settings.blocks * self.settings.block_size });
        }
        self.waiting.push_back(EngineRequest { id, model, prompt, max_tokens });
        self.schedule(now);
        Ok(())
    }

    /// Forgets a request, wherever it is.
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

    /// When something happens next, unless a request arrives before.
    pub fn next_event(&self) -> Option<Micros> {
        let prefill = self.prefill.as_ref().map(|(_, until)| *until);
        prefill.into_iter().chain(self.step).min()
    }

    /// What has happened until now and wasn't returned before, in order.
    pub fn advance(&mut self, now: Micros) -> Vec<EngineEvent> {
        self.run_until(now);
        std::mem::take(&mut self.events)
    }

    /// What it counts.
    pub fn counts(&self) -> EngineCounts {
        let running = self.decoding.len() + usize::from(self.prefill.is_some());
        EngineCounts { waiting: self.waiting.len(), running, cache_usage: self.blocks.usage(), ..self.counts }
    }

    /// How many requests of each model run.
    pub fn running_models(&self) -> BTreeMap<usize, usize> {
        count(self.prefill.iter().map(|(sequence, _)| sequence).chain(&self.decoding).map(|sequence| sequence.model))
    }

    /// How many requests of each model wait.
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

    /// The end of the prefill is also the first token.
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

    /// Begins what can begin.
    fn schedule(&mut self, now: Micros) {
        if self.prefill.is_none() && self.decoding.len() < self.settings.max_num_seqs {
            self.begin_prefill(now);
        }
        if self.step.is_none() && !self.decoding.is_empty() {
            for sequence in &mut self.decoding {
                sequence.in_step = true;
            }
            let running = self.decoding.len() as Micros;
            // A step without a length would have no end.
            let step = self.settings.decode_us + self.settings.decode_us_per_running * running;
            self.step = Some(now + step.max(1));
        }
    }

    /// Requests start in the order in which they came: one that finds no room holds those behind it up.
    fn begin_prefill(&mut self, now: Micros) {
        let Some(request) = self.waiting.front() else { return };
        let PromptBlocks { hashes, tokens: prompt_tokens } = request.prompt.clone();
        // The last token is always computed: the first of the answer follows from it.
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
