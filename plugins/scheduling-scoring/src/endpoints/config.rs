//! Which scorers there are, and how each is configured.

use schemars::JsonSchema;
use serde::Deserialize;

/// Which endpoint answers a request: the one with the highest weighted mean of what these scorers give it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointPick {
    /// The scorers, each of which gives an endpoint 0 to 1. Without any, all endpoints suit equally well.
    pub(super) scorers: Vec<Scorer>,
}

impl Default for EndpointPick {
    /// What llm-d's endpoint picker does unless it is configured.
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

/// A scorer and how much it counts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(try_from = "ScorerFields")]
#[schemars(with = "ScorerFields")]
pub(super) struct Scorer {
    pub(super) kind: ScorerKind,
    pub(super) weight: f64,
}

/// How a scorer scores, with what it needs for that.
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

/// Without comments on its variants, so that the schema is one list of names: of a list the host says what it contains, of alternatives only
/// the first ones.
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
// One object rather than an alternative for each type: of alternatives the host can't say which one was meant. The ranges are checked by the
// host, because they are in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScorerFields {
    /// Which endpoints score higher.
    ///
    /// - `queue-scorer`: those with fewer waiting requests. The shortest queue scores 1, the longest 0.
    /// - `running-requests-size-scorer`: those with fewer running requests, likewise.
    /// - `kv-cache-utilization-scorer`: those with more of their KV cache free.
    /// - `prefix-cache-scorer`: those that have more of the prompt cached.
    /// - `lora-affinity-scorer`: those that have the request's adapter loaded (1), can load it (0.8), or have it waiting (0.6).
    /// - `token-load-scorer`: those with fewer tokens in flight.
    /// - `active-request-scorer`: those with fewer requests in flight.
    /// - `load-aware-scorer`: those with fewer waiting requests, from 0.5 for none to 0.
    /// - `session-affinity-scorer`: the one that has served the request's session.
    /// - `no-hit-lru-scorer`: for a request that no endpoint has cached anything of, those that got such a request longest ago.
    /// - `context-length-aware`: those whose range of context lengths fits the prompt best.
    /// - `latency-scorer`: those whose first token is expected earlier.
    #[serde(rename = "type")]
    kind: ScorerType,
    /// How much the scorer counts beside the others; 0 leaves it out.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 0, max = 1e12))]
    weight: f64,
    /// Of `prefix-cache-scorer`: how much the length of the cached part counts, from 0 to 1; the rest is its share of the prompt. By default 0.
    #[schemars(range(min = 0, max = 1))]
    match_length_weight: Option<f64>,
    /// Of `prefix-cache-scorer`: how many cached tokens count as 1. By default 8192.
    #[schemars(range(min = 1))]
    match_length_scale: Option<f64>,
    /// Of `token-load-scorer`: how many tokens score 0, by default 4194304. Of `load-aware-scorer`: how many waiting requests score 0, by
    /// default 128.
    #[schemars(range(min = 1))]
    threshold: Option<f64>,
    /// Of `active-request-scorer`: up to how many requests an endpoint scores 1. By default 0.
    #[schemars(range(min = 0))]
    idle_threshold: Option<f64>,
    /// Of `active-request-scorer`: the most that an endpoint with more requests scores, from 0 to 1. By default 1.
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
        // What hasn't been taken belongs to another type.
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
    /// The type by which it is configured.
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
