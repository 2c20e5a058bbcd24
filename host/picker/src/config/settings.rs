//! The settings outside of profiles.

use crate::{
    engine_metrics::Engine,
    flow::FlowSettings,
    prefix::{
        blocks::{MAX_PROMPT_TOKENS, MIN_BLOCK_TOKENS},
        index::DEFAULT_CAPACITY,
    },
};
use std::time::Duration;

/// A parser of requests.
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
    /// The parsers of a configuration that specifies none.
    pub const DEFAULT: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::VllmHttp, Self::Passthrough];

    /// The parser with a plugin type.
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

/// The settings for queueing while the pool is saturated.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowControl {
    /// The limits and the order. As upstream, a band without policies has one flow, oldest request first.
    pub settings: FlowSettings,
    /// How long a request is queued while the pool has endpoints; without it, there is no limit.
    pub request_ttl: Option<Duration>,
    /// How long it is queued while the pool has no endpoints; without it, there is no limit.
    pub no_endpoint_ttl: Option<Duration>,
    /// Whether the header `x-llm-d-slo-ttft-ms` sets a request's deadline in the queue, because a band orders by it
    /// (`slo-deadline-ordering-policy`). Otherwise, its TTL is the deadline.
    pub slo_deadlines: bool,
    /// The saturation at which requests are queued (`static-usage-limit-policy`).
    pub ceiling: f64,
}

impl FlowControl {
    /// The default time that a request is queued.
    pub const DEFAULT_TTL: Duration = Duration::from_mins(1);
}

/// The settings for the metrics of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeSettings {
    /// Whether to use https.
    pub https: bool,
    /// The path.
    pub path: String,
    /// The port; without it, the endpoint's own.
    pub port: Option<u16>,
    /// Whether the certificate of an endpoint is verified.
    pub verify: bool,
    /// A file with the CAs to verify it; by default, the system's.
    pub ca_file: Option<String>,
    /// The files of the client certificate and its key.
    pub client_files: Option<(String, String)>,
    /// The time between two requests to an endpoint.
    pub interval: Duration,
    /// The time without a report after which an endpoint is full.
    pub staleness: Duration,
    /// The label with a pod's engine; by default, `llm-d.ai/engine-type` and its old name.
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

/// The settings for remembered prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixSettings {
    /// Whether values that an engine reports replace `block_tokens` and `capacity`.
    pub auto_tune: bool,
    /// The tokens of a block, at least `MIN_BLOCK_TOKENS`.
    pub block_tokens: u32,
    /// The maximum number of remembered blocks per endpoint.
    pub capacity: usize,
    /// The maximum number of a prompt's tokens that are matched, at most `MAX_PROMPT_TOKENS`.
    pub max_tokens: u32,
}

impl Default for PrefixSettings {
    fn default() -> Self {
        Self { auto_tune: true, block_tokens: MIN_BLOCK_TOKENS, capacity: DEFAULT_CAPACITY, max_tokens: MAX_PROMPT_TOKENS }
    }
}

/// The expected output of a request, in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputEstimate {
    /// The output per token of the prompt.
    pub ratio: f64,
    /// The maximum. A limit in the request itself also applies.
    pub max_tokens: Option<u64>,
}
