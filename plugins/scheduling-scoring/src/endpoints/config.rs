//! The scorers and their configuration.

use schemars::JsonSchema;
use serde::Deserialize;

/// How the endpoint of a request is picked: by the highest weighted mean of these scorers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointPick {
    /// The scorers, each of which gives an endpoint a score from 0 to 1. Without any, all endpoints are equally suitable.
    pub(super) scorers: Vec<Scorer>,
}

impl Default for EndpointPick {
    /// The default of llm-d's endpoint picker.
    fn default() -> Self {
        let scorer = |kind, weight| Scorer { kind, weight };
        let prefix_cache = ScorerKind::PrefixCache { match_length_weight: 0.0, match_length_scale: MATCH_LENGTH_SCALE };
        Self { scorers: vec![scorer(ScorerKind::Queue, 2.0), scorer(ScorerKind::KvCacheUtilization, 2.0), scorer(prefix_cache, 3.0)] }
    }
}

// Upstream's defaults.
const MATCH_LENGTH_SCALE: f64 = 8_192.0;
const MAX_TOKENS: f64 = 4_194_304.0;
const MAX_QUEUE: f64 = 128.0;

/// A scorer and its weight.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "ScorerFields")]
#[schemars(with = "ScorerFields")]
pub(super) struct Scorer {
    pub(super) kind: ScorerKind,
    pub(super) weight: f64,
}

/// A kind of scorer with its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScorerKind {
    Queue,
    RunningRequests,
    KvCacheUtilization,
    PrefixCache { match_length_weight: f64, match_length_scale: f64 },
    LoraAffinity,
    TokenLoad { threshold: f64 },
    ActiveRequest { idle_threshold: f64, max_busy_score: f64 },
    LoadAware { threshold: f64 },
    SessionAffinity,
    NoHitLru,
    ContextLength,
    Latency,
}

/// The variants have no doc comments, so that the schema is a single list of names. In an error, the host shows the whole list, but only
/// the first of several alternatives.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ScorerType {
    QueueScorer,
    RunningRequestsSizeScorer,
    KvCacheUtilizationScorer,
    PrefixCacheScorer,
    LoraAffinityScorer,
    TokenLoadScorer,
    ActiveRequestScorer,
    LoadAwareScorer,
    SessionAffinityScorer,
    NoHitLruScorer,
    ContextLengthAware,
    LatencyScorer,
}

/// A scorer, its weight and its parameters.
// One object instead of an alternative per type: in an error, the host can't know which alternative was meant. The host checks the ranges,
// because they are in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScorerFields {
    /// Which endpoints score higher.
    ///
    /// - `queue-scorer`: those with fewer waiting requests. The shortest queue scores 1, the longest 0.
    /// - `running-requests-size-scorer`: those with fewer running requests. The fewest score 1, the most 0.
    /// - `kv-cache-utilization-scorer`: those with more free KV cache.
    /// - `prefix-cache-scorer`: those that have more of the prompt cached.
    /// - `lora-affinity-scorer`: those that have loaded the request's adapter (1), can load it (0.8), or are waiting to load it (0.6).
    /// - `token-load-scorer`: those with fewer tokens in flight.
    /// - `active-request-scorer`: those with fewer requests in flight.
    /// - `load-aware-scorer`: those with fewer waiting requests, from 0.5 for none to 0.
    /// - `session-affinity-scorer`: the one that has served the request's session.
    /// - `no-hit-lru-scorer`: for a request that no endpoint has cached any part of, those that got such a request longest ago.
    /// - `context-length-aware`: those whose range of context lengths fits the prompt best.
    /// - `latency-scorer`: those with a shorter expected time to the first token.
    #[serde(rename = "type")]
    kind: ScorerType,
    /// The relative weight of the scorer; 0 disables it.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 0, max = 1e12))]
    weight: f64,
    /// Of `prefix-cache-scorer`: the weight of the cached part's length, from 0 to 1. The rest is the weight of its share of the prompt. By
    /// default 0.
    #[schemars(range(min = 0, max = 1))]
    match_length_weight: Option<f64>,
    /// Of `prefix-cache-scorer`: the number of cached tokens that counts as 1. By default 8192.
    #[schemars(range(min = 1))]
    match_length_scale: Option<f64>,
    /// Of `token-load-scorer`: the number of tokens that scores 0, by default 4194304. Of `load-aware-scorer`: the number of waiting
    /// requests that scores 0, by default 128.
    #[schemars(range(min = 1))]
    threshold: Option<f64>,
    /// Of `active-request-scorer`: the maximum number of requests with which an endpoint scores 1. By default 0.
    #[schemars(range(min = 0))]
    idle_threshold: Option<f64>,
    /// Of `active-request-scorer`: the maximum score of an endpoint with more requests, from 0 to 1. By default 1.
    #[schemars(range(min = 0, max = 1))]
    max_busy_score: Option<f64>,
}

fn default_weight() -> f64 {
    1.0
}

impl TryFrom<ScorerFields> for Scorer {
    type Error = String;

    fn try_from(mut fields: ScorerFields) -> Result<Self, String> {
        let kind = match fields.kind {
            ScorerType::QueueScorer => ScorerKind::Queue,
            ScorerType::RunningRequestsSizeScorer => ScorerKind::RunningRequests,
            ScorerType::KvCacheUtilizationScorer => ScorerKind::KvCacheUtilization,
            ScorerType::PrefixCacheScorer => ScorerKind::PrefixCache {
                match_length_weight: fields.match_length_weight.take().unwrap_or(0.0),
                match_length_scale: fields.match_length_scale.take().unwrap_or(MATCH_LENGTH_SCALE),
            },
            ScorerType::LoraAffinityScorer => ScorerKind::LoraAffinity,
            ScorerType::TokenLoadScorer => ScorerKind::TokenLoad { threshold: fields.threshold.take().unwrap_or(MAX_TOKENS) },
            ScorerType::ActiveRequestScorer => ScorerKind::ActiveRequest {
                idle_threshold: fields.idle_threshold.take().unwrap_or(0.0),
                max_busy_score: fields.max_busy_score.take().unwrap_or(1.0),
            },
            ScorerType::LoadAwareScorer => ScorerKind::LoadAware { threshold: fields.threshold.take().unwrap_or(MAX_QUEUE) },
            ScorerType::SessionAffinityScorer => ScorerKind::SessionAffinity,
            ScorerType::NoHitLruScorer => ScorerKind::NoHitLru,
            ScorerType::ContextLengthAware => ScorerKind::ContextLength,
            ScorerType::LatencyScorer => ScorerKind::Latency,
        };
        // Parameters that remain belong to another type.
        let others = [
            ("matchLengthWeight", fields.match_length_weight),
            ("matchLengthScale", fields.match_length_scale),
            ("threshold", fields.threshold),
            ("idleThreshold", fields.idle_threshold),
            ("maxBusyScore", fields.max_busy_score),
        ];
        match others.into_iter().find(|(_, value)| value.is_some()) {
            Some((name, _)) => Err(format!("`{name}` is no parameter of `{}`: remove it", kind.name())),
            None => Ok(Self { kind, weight: fields.weight }),
        }
    }
}

impl ScorerKind {
    /// Its type in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue-scorer",
            Self::RunningRequests => "running-requests-size-scorer",
            Self::KvCacheUtilization => "kv-cache-utilization-scorer",
            Self::PrefixCache { .. } => "prefix-cache-scorer",
            Self::LoraAffinity => "lora-affinity-scorer",
            Self::TokenLoad { .. } => "token-load-scorer",
            Self::ActiveRequest { .. } => "active-request-scorer",
            Self::LoadAware { .. } => "load-aware-scorer",
            Self::SessionAffinity => "session-affinity-scorer",
            Self::NoHitLru => "no-hit-lru-scorer",
            Self::ContextLength => "context-length-aware",
            Self::Latency => "latency-scorer",
        }
    }
}
