//! The requests of a simulation, and the parser of traces: JSON lines, one request per line.

use pointsman_picker::{
    prefix::{BlockSize, hash_pieces},
    simulation::{EngineSettings, Micros, PromptBlocks},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use std::{
    collections::HashMap,
    fmt,
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::Arc,
};

/// The maximum size of a line, in bytes.
const MAX_LINE: usize = 1 << 20;

/// The maximum number of requests in a simulation.
pub const MAX_REQUESTS: usize = 10_000_000;

/// The maximum number of blocks in a prompt, and in all prompts.
const MAX_PROMPT_BLOCKS: usize = LINK.max_blocks();
const MAX_BLOCKS: usize = 200_000_000;

/// The maximum number of adapters.
const MAX_ADAPTERS: usize = 1_000;

/// The maximum size of a name in a trace, in bytes.
const MAX_NAME: usize = 256;

/// The maximum arrival time, in seconds.
const MAX_SECONDS: f64 = 1e10;

/// The maximum number of tokens of a request.
const MAX_TOKENS: u64 = 100_000_000;

/// An example of a line.
const EXAMPLE: &str = r#"{"at": 0.5, "blocks": [17, 23], "tokens": 140, "output": 100}"#;

/// A block for the hasher that has the hash of a block in a trace: 8 bytes.
const LINK: BlockSize = BlockSize::exactly(2);
const _: () = assert!(LINK.bytes() == size_of::<u64>());

/// Why a trace can't be simulated.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file can't be read.
    #[error("{file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        error: io::Error,
    },
    /// A line is invalid.
    #[error("{file}: line {line}: {message}")]
    Line {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// The problem and the remedy.
        message: String,
    },
    /// No line has a request.
    #[error("{0}: the trace has no requests: write them as {EXAMPLE}, one a line")]
    Empty(String),
}

/// A request in a line of a trace.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceLine {
    /// The arrival time, in seconds.
    pub(super) at: f64,
    #[serde(default)]
    pub(super) blocks: Vec<BlockHash>,
    pub(super) tokens: Option<u64>,
    pub(super) output: u64,
    pub(super) model: Option<String>,
    pub(super) flow: Option<String>,
    #[serde(default)]
    pub(super) priority: i64,
    pub(super) session: Option<String>,
}

/// The hash of a block's content.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockHash(pub(super) u64);

impl<'de> Deserialize<'de> for BlockHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hashes;
        impl Visitor<'_> for Hashes {
            type Value = BlockHash;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the hash of a block, which is a number from 0 to 18446744073709551615 or a string")
            }

            fn visit_u64<E: Error>(self, hash: u64) -> Result<BlockHash, E> {
                Ok(BlockHash(hash))
            }

            fn visit_str<E: Error>(self, hash: &str) -> Result<BlockHash, E> {
                // The hasher's keys are constant.
                let mut hasher = DefaultHasher::new();
                hash.hash(&mut hasher);
                Ok(BlockHash(hasher.finish()))
            }
        }
        deserializer.deserialize_any(Hashes)
    }
}

/// A request.
#[derive(Debug)]
pub(super) struct TraceRequest {
    /// The arrival time, from the first request on.
    pub(super) at: Micros,
    pub(super) prompt: PromptBlocks,
    pub(super) output: usize,
    /// The number of its model.
    pub(super) model: usize,
    pub(super) flow: Option<Arc<str>>,
    pub(super) priority: i64,
    pub(super) session: Option<Arc<str>>,
}

/// Requests in the order of their arrival.
#[derive(Debug)]
pub struct Trace {
    pub(super) requests: Vec<TraceRequest>,
    /// The base model, whose name is empty, and adapters.
    pub(super) models: Vec<String>,
}

impl Trace {
    /// Reads a file for endpoints with these engines.
    pub fn read(file: &Path, engine: &EngineSettings) -> Result<Self, TraceError> {
        let name = file.display().to_string();
        let opened = File::open(file).map_err(|error| TraceError::Read { file: name.clone(), error })?;
        Self::parse(&name, BufReader::new(opened), engine)
    }

    fn parse(file: &str, mut lines: impl BufRead, engine: &EngineSettings) -> Result<Self, TraceError> {
        let mut builder = TraceBuilder::new(engine);
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            let read = lines.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut bytes);
            if read.map_err(|error| TraceError::Read { file: file.to_owned(), error })? == 0 {
                break;
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let taken = if bytes.len() > MAX_LINE {
                Err(format!("it has more than {MAX_LINE} bytes: leave out blocks, or take larger ones with --block-tokens"))
            } else {
                serde_json::from_slice(&bytes).map_err(|error| wrong_json(&error)).and_then(|request| builder.add(request))
            };
            taken.map_err(|message| TraceError::Line { file: file.to_owned(), line, message })?;
        }
        if builder.is_empty() { Err(TraceError::Empty(file.to_owned())) } else { Ok(builder.finish()) }
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The time from the first request to the last, in seconds.
    pub fn seconds(&self) -> f64 {
        self.requests.last().map_or(0.0, |last| super::seconds(last.at))
    }
}

fn wrong_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // There is only one line.
    let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
    format!("column {}: {what}: write a request as {EXAMPLE}", error.column())
}

/// A trace under construction.
#[derive(Debug)]
pub(super) struct TraceBuilder {
    requests: Vec<TraceRequest>,
    models: Vec<String>,
    numbers: HashMap<String, usize>,
    first: f64,
    last: f64,
    blocks: usize,
    engine_blocks: u64,
    block_tokens: u64,
}

impl TraceBuilder {
    pub(super) fn new(engine: &EngineSettings) -> Self {
        Self {
            requests: Vec::new(),
            models: vec![String::new()],
            numbers: HashMap::from([(String::new(), 0)]),
            first: 0.0,
            last: 0.0,
            blocks: 0,
            engine_blocks: engine.blocks as u64,
            block_tokens: engine.block_size.max(1) as u64,
        }
    }

    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn finish(self) -> Trace {
        Trace { requests: self.requests, models: self.models }
    }

    /// Adds a request, or returns why it is invalid and the remedy.
    pub(super) fn add(&mut self, line: TraceLine) -> Result<(), String> {
        if self.requests.len() >= MAX_REQUESTS {
            return Err(format!("it is more than the {MAX_REQUESTS} requests that a simulation may have: split the trace"));
        }
        let at = self.arrival(line.at)?;
        let prompt_tokens = self.tokens(&line)?;
        let model = self.model(line.model)?;
        let whole = usize::try_from(prompt_tokens / self.block_tokens).unwrap_or(usize::MAX);
        let links: Vec<[u8; 8]> = line.blocks.iter().take(whole).map(|BlockHash(hash)| hash.to_le_bytes()).collect();
        self.blocks += links.len();
        if self.blocks > MAX_BLOCKS {
            return Err(format!("its trace has more than {MAX_BLOCKS} blocks: split it, or take larger blocks with --block-tokens"));
        }
        // Each hash covers the preceding blocks and the model, as in the picker: a trace may have hashes of only the contents.
        let hashes = hash_pieces(&self.models[model], "", LINK, links.iter().map(|link| &link[..]));
        let shared = |name: &str, text: Option<String>| match text {
            Some(text) if text.len() > MAX_NAME => Err(format!("`{name}` has more than {MAX_NAME} bytes: shorten it")),
            text => Ok(text.map(Arc::from)),
        };
        self.requests.push(TraceRequest {
            at,
            prompt: PromptBlocks { hashes: hashes.into(), tokens: usize::try_from(prompt_tokens).unwrap_or(usize::MAX) },
            output: usize::try_from(line.output).unwrap_or(usize::MAX),
            model,
            flow: shared("flow", line.flow)?,
            priority: line.priority,
            session: shared("session", line.session)?,
        });
        Ok(())
    }

    fn arrival(&mut self, at: f64) -> Result<Micros, String> {
        if !(0.0..=MAX_SECONDS).contains(&at) {
            return Err(format!("`at` is {at}: set seconds from 0 to {MAX_SECONDS}"));
        }
        if self.is_empty() {
            self.first = at;
        } else if at < self.last {
            return Err(format!("`at` is {at}, and that of the request before it is {}: sort the lines by `at`", self.last));
        }
        self.last = at;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // It is in between.
        let micros = ((at - self.first) * 1e6).round() as Micros;
        Ok(micros)
    }

    /// The tokens of its prompt.
    fn tokens(&self, line: &TraceLine) -> Result<u64, String> {
        let blocks = line.blocks.len();
        if blocks > MAX_PROMPT_BLOCKS {
            return Err(format!("its prompt has {blocks} blocks, and may have {MAX_PROMPT_BLOCKS}: take larger ones with --block-tokens"));
        }
        let of_blocks = (blocks as u64).saturating_mul(self.block_tokens);
        let tokens = line.tokens.unwrap_or(of_blocks);
        if tokens == 0 {
            return Err("it has no prompt: set `blocks`, `tokens` or both".to_owned());
        }
        if blocks as u64 > tokens.div_ceil(self.block_tokens) {
            return Err(format!(
                "its {tokens} tokens are fewer than its {blocks} blocks of {} have: set --block-tokens to the size of the trace's blocks",
                self.block_tokens
            ));
        }
        if !(1..=MAX_TOKENS).contains(&line.output) || tokens > MAX_TOKENS {
            return Err(format!("it has {tokens} tokens and {} of `output`: set both from 1 to {MAX_TOKENS}", line.output));
        }
        let all = tokens + line.output;
        if all.div_ceil(self.block_tokens) > self.engine_blocks {
            return Err(format!(
                "its prompt and its output have {all} tokens, and the cache of an endpoint has {}: raise --kv-blocks",
                self.engine_blocks.saturating_mul(self.block_tokens)
            ));
        }
        Ok(tokens)
    }

    fn model(&mut self, model: Option<String>) -> Result<usize, String> {
        let name = model.unwrap_or_default();
        if let Some(number) = self.numbers.get(&name) {
            return Ok(*number);
        }
        if name.len() > MAX_NAME || self.models.len() > MAX_ADAPTERS {
            return Err(format!("`model` may have {MAX_NAME} bytes, and a trace {MAX_ADAPTERS} of them: name fewer"));
        }
        let number = self.models.len();
        self.models.push(name.clone());
        self.numbers.insert(name, number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> EngineSettings {
        EngineSettings { blocks: 64, block_size: 16, ..EngineSettings::default() }
    }

    fn parse(text: &str) -> Result<Trace, String> {
        Trace::parse("t.jsonl", text.as_bytes(), &engine()).map_err(|error| error.to_string())
    }

    fn hashes(trace: &Trace, at: usize) -> &[u64] {
        &trace.requests[at].prompt.hashes
    }

    #[test]
    fn requests_are_read_and_share_the_blocks_that_begin_alike_for_the_same_model() {
        let trace = parse(
            r#"{"at": 100.5, "blocks": [1, 2, 3], "output": 4}

            {"at": 101, "blocks": [1, 2, "x"], "tokens": 40, "output": 1, "flow": "a", "priority": -1, "session": "s"}
            {"at": 101, "blocks": [1, 2, "x"], "output": 1, "model": "adapter"}
            {"at": 102, "blocks": [9, 2], "output": 1}
            {"at": 102, "tokens": 7, "output": 1}"#,
        );
        let trace = trace.unwrap();
        assert_eq!((trace.len(), trace.seconds(), &trace.models[..]), (5, 1.5, &[String::new(), "adapter".to_owned()][..]));
        let tokens: Vec<usize> = trace.requests.iter().map(|request| request.prompt.tokens).collect();
        assert_eq!(tokens, [48, 40, 48, 32, 7]);
        assert_eq!(hashes(&trace, 1), &hashes(&trace, 0)[..2], "the third isn't full");
        assert!(hashes(&trace, 2).iter().all(|hash| !hashes(&trace, 0).contains(hash)), "another model");
        assert_ne!(hashes(&trace, 3)[1], hashes(&trace, 0)[1], "what is before a block counts");
        let second = &trace.requests[1];
        assert_eq!((second.at, second.flow.as_deref(), second.priority, second.session.as_deref()), (500_000, Some("a"), -1, Some("s")));
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line_and_a_remedy() {
        let first = "{\"at\": 1, \"blocks\": [1], \"output\": 1}\n";
        for (line, expected) in [
            (r#"{"at": 0.5, "blocks": [1], "output": 1}"#, "`at` is 0.5, and that of the request before it is 1: sort the lines by `at`"),
            (r#"{"at": 2, "blocks": [1]}"#, "missing field `output`: write a request as {\"at\": 0.5,"),
            (r#"{"at": 2, "blocks": [-1], "output": 1}"#, "column 23: invalid type: integer `-1`, expected the hash of a block"),
            (r#"{"at": 2, "bloks": [1], "output": 1}"#, "unknown field `bloks`"),
            (r#"{"at": 2, "output": 1}"#, "it has no prompt: set `blocks`, `tokens` or both"),
            (r#"{"at": 2, "blocks": [1], "output": 0}"#, "0 of `output`: set both from 1 to 100000000"),
            (r#"{"at": -2, "blocks": [1], "output": 1}"#, "`at` is -2: set seconds from 0"),
            (r#"{"at": 2, "blocks": [1, 2, 3], "tokens": 32, "output": 1}"#, "set --block-tokens to the size of the trace's blocks"),
            (r#"{"at": 2, "blocks": [1], "output": 1009}"#, "1025 tokens, and the cache of an endpoint has 1024: raise --kv-blocks"),
            ("no", "expected ident"),
        ] {
            let error = parse(&format!("{first}\n{line}")).unwrap_err();
            assert!(error.starts_with("t.jsonl: line 3: ") && error.contains(expected), "{error}");
        }
        let long = parse(&format!("{{\"at\": 1{}}}", " ".repeat(MAX_LINE))).unwrap_err();
        assert!(long.starts_with("t.jsonl: line 1: it has more than 1048576 bytes"), "{long}");
        assert!(parse("\n").unwrap_err().starts_with("t.jsonl: the trace has no requests: write them as "));
        let absent = Trace::read(Path::new("/nowhere/t.jsonl"), &engine()).unwrap_err().to_string();
        assert!(absent.starts_with("/nowhere/t.jsonl: "), "{absent}");
    }
}
