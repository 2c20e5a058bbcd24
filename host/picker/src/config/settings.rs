//! The settings beside profiles.

use crate::{
    engine_metrics::Engine,
    flow::FlowSettings,
    prefix::{
        blocks::{MAX_PROMPT_TOKENS, MIN_BLOCK_TOKENS},
        index::DEFAULT_CAPACITY,
    },
};
use std::time::Duration;

/// Who reads requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parser {
    /// `OpenAI`'s API (`openai-parser`).
    OpenAi,
    /// Anthropic's messages (`anthropic-parser`).
    Anthropic,
    /// vLLM's own API (`vllmhttp-parser`).
    VllmHttp,
    /// `SGLang`'s own API (`sglanghttp-parser`).
    SglangHttp,
    /// vLLM's gRPC service (`vllmgrpc-parser`).
    VllmGrpc,
    /// Vertex AI's prediction service (`vertexai-parser`).
    VertexAi,
    /// Any path, without reading the body (`passthrough-parser`).
    Passthrough,
}

impl Parser {
    /// Those of a configuration that names none.
    pub const DEFAULT: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::VllmHttp, Self::Passthrough];

    /// The parser of a plugin type.
    pub fn parse(plugin_type: &str) -> Option<Self> {
        Some(match plugin_type {
            "openai-parser" => Self::OpenAi,
            "anthropic-parser" => Self::Anthropic,
            "vllmhttp-parser" => Self::VllmHttp,
            "sglanghttp-parser" => Self::SglangHttp,
            "vllmgrpc-parser" => Self::VllmGrpc,
            "vertexai-parser" => Self::VertexAi,
            "passthrough-parser" => Self::Passthrough,
            _ => return None,
        })
    }
}

/// How requests wait while the pool is saturated.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowControl {
    /// How much may wait, and who is next. Bands that name no policy are as upstream's: one flow, the oldest first.
    pub settings: FlowSettings,
    /// How long a request waits while the pool has endpoints; without it, any time.
    pub request_ttl: Option<Duration>,
    /// How long it waits while the pool has none; without it, any time.
    pub no_endpoint_ttl: Option<Duration>,
    /// Whether the header `x-llm-d-slo-ttft-ms` sets the deadline of a request in the queue, because a band orders by it
    /// (`slo-deadline-ordering-policy`). Its TTL is the deadline otherwise.
    pub slo_deadlines: bool,
    /// The saturation at which requests wait (`static-usage-limit-policy`).
    pub ceiling: f64,
}

impl FlowControl {
    /// How long a request waits unless the configuration sets it.
    pub const DEFAULT_TTL: Duration = Duration::from_mins(1);
}

/// How the metrics of endpoints are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeSettings {
    /// Whether it is https.
    pub https: bool,
    /// The path.
    pub path: String,
    /// The port; without it, the endpoint's own.
    pub port: Option<u16>,
    /// Whether the certificate of an endpoint is verified.
    pub verify: bool,
    /// A file with the CAs by which it is verified; without it, the system's.
    pub ca_file: Option<String>,
    /// Files with the certificate and the key that are presented to endpoints.
    pub client_files: Option<(String, String)>,
    /// The time between two requests to an endpoint.
    pub interval: Duration,
    /// After what time without a report an endpoint counts as full.
    pub staleness: Duration,
    /// The label of pods with their engine; without it, `llm-d.ai/engine-type` and its old name.
    pub engine_label: Option<String>,
    /// The engine of pods without the label.
    pub default_engine: Engine,
}

impl Default for ScrapeSettings {
    fn default() -> Self {
        Self {
            https: false,
            path: "/metrics".to_owned(),
            port: None,
            verify: false,
            ca_file: None,
            client_files: None,
            interval: Duration::from_millis(50),
            staleness: Duration::from_millis(200),
            engine_label: None,
            default_engine: Engine::Vllm,
        }
    }
}

/// How prefixes are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixSettings {
    /// Whether what an engine reports replaces `block_tokens` and `capacity`.
    pub auto_tune: bool,
    /// The tokens of a block, at least `MIN_BLOCK_TOKENS`.
    pub block_tokens: u32,
    /// How many blocks of an endpoint are remembered.
    pub capacity: usize,
    /// How many tokens of a prompt count, at most `MAX_PROMPT_TOKENS`.
    pub max_tokens: u32,
}

impl Default for PrefixSettings {
    fn default() -> Self {
        Self { auto_tune: true, block_tokens: MIN_BLOCK_TOKENS, capacity: DEFAULT_CAPACITY, max_tokens: MAX_PROMPT_TOKENS }
    }
}

/// How many tokens of output a request is expected to have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputEstimate {
    /// Per token of its prompt.
    pub ratio: f64,
    /// At most. What the request itself allows is a limit too.
    pub max_tokens: Option<u64>,
}
