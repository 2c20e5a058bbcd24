//! The load of a model server: a few numbers from its page of Prometheus metrics.
//!
//! A page has hundreds of lines, of which about ten are relevant, and every pod's page is read many times a second. It is therefore read
//! once from start to end, and only relevant lines are parsed completely.
//!
//! A value that is missing or invalid is unknown: `None`. Invalid are a number that isn't finite, a negative count, a used share of a KV
//! cache above 1 (by more than rounding), and a size that isn't a positive integer. If a family has several series, the unknown ones are
//! ignored.

mod families;
mod reading;
#[cfg(test)]
mod tests;
mod text;

use reading::Reading;
use std::fmt;

/// The maximum size of a page, in bytes.
pub const MAX_PAGE: usize = 4 << 20;

/// A model server that reports its load. TensorRT-LLM in Triton precedes Triton, because its page also has Triton's families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM with its own server.
    TrtllmServe,
    /// TensorRT-LLM as a backend of Triton.
    TritonTensorrtLlm,
    /// Triton with other backends. It reports only the number of queued requests.
    Triton,
}

impl Engine {
    /// All engines.
    pub const ALL: [Self; 5] = [Self::Vllm, Self::Sglang, Self::TrtllmServe, Self::TritonTensorrtLlm, Self::Triton];

    /// The engine for a value of the label `llm-d.ai/engine-type`.
    pub fn parse(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.as_str() == label)
    }

    /// The value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TrtllmServe => "trtllm-serve",
            Self::TritonTensorrtLlm => "triton-tensorrt-llm",
            Self::Triton => "triton",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The metrics of a model server. Those that it doesn't report are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineMetrics {
    /// The number of queued requests: the sum of the data-parallel ranks and models.
    pub waiting: Option<f64>,
    /// The number of running requests: the sum of the data-parallel ranks and models.
    pub running: Option<f64>,
    /// The used share of the KV cache, from 0 to 1: the maximum of the ranks and models.
    pub kv_usage: Option<f64>,
    /// The number of tokens in a block of the KV cache.
    pub block_size: Option<u32>,
    /// The number of blocks in the KV cache: the sum of the data-parallel ranks and models.
    pub blocks: Option<u32>,
    /// The LoRA adapters. vLLM reports them after its first request for one.
    pub loras: Option<Adapters>,
    /// The number of tokens that vLLM has looked up in its prefix cache since it started.
    pub prefix_queries: Option<f64>,
    /// The number of them that were cached.
    pub prefix_hits: Option<f64>,
}

/// The LoRA adapters of a model server. At most 1024 are read from each list. Names longer than 256 bytes are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapters {
    /// The adapters of running requests.
    pub running: Vec<String>,
    /// The adapters of queued requests.
    pub waiting: Vec<String>,
    /// The maximum number of adapters that run at the same time; 0 if unknown.
    pub max: u32,
}

/// Why a page has no metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    /// The page is too large.
    #[error("the page has {0} bytes, and at most {MAX_PAGE} are read: check that the port and the path are those of the metrics")]
    TooLarge(usize),
    /// The page is something else, such as JSON or HTML.
    #[error(
        "the page isn't Prometheus text, because it begins with {0:?}: check the port and the path of the metrics (trtllm-serve has \
         JSON at /metrics, and Prometheus text at /prometheus/metrics)"
    )]
    NotText(char),
    /// The page has no metrics of the engine.
    #[error("the page has none of {expected}, which {engine} reports: {}", advice(.other.as_ref()))]
    NoFamilies {
        /// The engine.
        engine: Engine,
        /// The families that its page should have.
        expected: String,
        /// The engine whose families the page has instead.
        other: Option<Engine>,
    },
}

/// The remedy for a page without the engine's families.
fn advice(other: Option<&Engine>) -> String {
    match other {
        Some(other) => format!("it has those of {other}, so set the label llm-d.ai/engine-type of the pod to {other}"),
        None => "check that the label llm-d.ai/engine-type of the pod is right, and that the server reports metrics".to_owned(),
    }
}

/// Parses a page. No input makes it panic: it skips lines that are malformed, longer than 256 KiB, or irrelevant for the engine's load.
pub fn parse(engine: Engine, page: &[u8]) -> Result<EngineMetrics, MetricsError> {
    if page.len() > MAX_PAGE {
        return Err(MetricsError::TooLarge(page.len()));
    }
    let families = families::of(engine);
    let mut reading = Reading::default();
    let mut is_known = false;
    for line in text::lines(page) {
        let Some((name, rest)) = text::family(line, families.prefix) else { continue };
        let mut said = families.all.iter().filter(|family| family.name.as_bytes() == name).peekable();
        if said.peek().is_none() {
            continue;
        }
        is_known = true;
        let Some(sample) = text::sample(rest).filter(|sample| !families.is_part(sample)) else { continue };
        let rank = families.rank(&sample);
        for family in said {
            let counts = |(label, value): (&str, &str)| sample.label(label).is_some_and(|found| *found == *value.as_bytes());
            if family.only.is_none_or(counts) {
                reading.add(family, rank, sample);
            }
        }
    }
    if is_known { Ok(reading.metrics()) } else { Err(unknown(engine, page)) }
}

/// Explains why a page has no family of the engine.
fn unknown(engine: Engine, page: &[u8]) -> MetricsError {
    let other = text::lines(page).filter_map(reporter).min();
    match page.trim_ascii_start().first() {
        Some(first @ (b'[' | b'{' | b'<')) if other.is_none() => MetricsError::NotText(char::from(*first)),
        _ => MetricsError::NoFamilies { engine, expected: families::of(engine).expected(), other },
    }
}

/// The engine that reports a line's family.
fn reporter(line: &[u8]) -> Option<Engine> {
    Engine::ALL.into_iter().find(|engine| {
        let families = families::of(*engine);
        text::family(line, families.prefix).is_some_and(|(name, _)| families.all.iter().any(|family| family.name.as_bytes() == name))
    })
}
