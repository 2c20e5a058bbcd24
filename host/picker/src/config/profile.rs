//! The profiles that pick endpoints: filters, scorers and pickers.

use crate::flow::saturation::Detector;
use std::{collections::BTreeSet, time::Duration};

/// The profiles that pick the endpoints of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Profiles {
    /// One endpoint serves the whole request.
    Single(Profile),
    /// One endpoint decodes. If the decider agrees, another one prefills.
    Disaggregated {
        /// Picks the endpoint that gets the request. It runs first.
        decode: Profile,
        /// Picks the endpoint that prefills.
        prefill: Profile,
        /// Decides whether another endpoint prefills.
        decider: Decider,
    },
}

impl Profiles {
    /// The profile that picks the endpoint that gets the request.
    pub fn primary(&self) -> &Profile {
        match self {
            Self::Single(profile) | Self::Disaggregated { decode: profile, .. } => profile,
        }
    }

    /// The profile that picks the prefill endpoint, if there is one.
    pub fn prefill(&self) -> Option<&Profile> {
        match self {
            Self::Single(_) => None,
            Self::Disaggregated { prefill, .. } => Some(prefill),
        }
    }
}

/// Decides whether an endpoint other than the decoding one prefills a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    /// Always.
    Always,
    /// If enough of the prompt isn't cached at the decoding endpoint.
    PrefixBased {
        /// The minimum length of the prompt, in tokens.
        prompt_tokens: u64,
        /// The minimum number of uncached tokens. 0 means never.
        uncached_tokens: u64,
    },
}

/// How an endpoint is picked: the filters in their order, then the sum of the weighted scores, then the picker.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name in the configuration.
    pub name: String,
    /// The requirements for endpoints.
    pub filters: Vec<Filter>,
    /// The scores of endpoints.
    pub scorers: Vec<Scorer>,
    /// The choice by score.
    pub picker: Picker,
}

/// A filter of endpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Endpoints with a role (`decode-filter`, `prefill-filter`, `encode-filter`).
    Role(Role),
    /// Endpoints whose labels meet all requirements (`label-selector-filter`).
    Labels(Vec<LabelRequirement>),
    /// The endpoints that have most of the prompt cached, if there are any (`prefix-cache-affinity-filter`).
    PrefixAffinity(PrefixAffinity),
    /// Endpoints whose range of context lengths includes the prompt's, and those without a range (`context-length-aware`).
    ContextLength {
        /// The label with the range.
        label: String,
    },
    /// Endpoints whose own saturation is below 1, or all if there are none (a saturation detector in a profile).
    Unsaturated(Detector),
}

impl Filter {
    /// The type of the plugin in a configuration.
    pub fn plugin_type(&self) -> &'static str {
        match self {
            Self::Role(role) => role.plugin_type(),
            Self::Labels(_) => "label-selector-filter",
            Self::PrefixAffinity(_) => "prefix-cache-affinity-filter",
            Self::ContextLength { .. } => "context-length-aware",
            Self::Unsaturated(Detector::Utilization { .. }) => "utilization-detector",
            Self::Unsaturated(Detector::Concurrency { .. }) => "concurrency-detector",
        }
    }
}

/// The role of an endpoint, from its label `llm-d.ai/role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It decodes. Endpoints without the label also have this role.
    Decode,
    /// It prefills.
    Prefill,
    /// It encodes.
    Encode,
}

impl Role {
    /// The type of the filter for this role.
    pub fn plugin_type(self) -> &'static str {
        match self {
            Self::Decode => "decode-filter",
            Self::Prefill => "prefill-filter",
            Self::Encode => "encode-filter",
        }
    }

    /// Whether an endpoint with this value of the label has the role.
    pub fn accepts(self, label: Option<&str>) -> bool {
        let accepted: &[&str] = match self {
            Self::Decode => &["decode", "prefill-decode", "both", "encode-prefill-decode"],
            Self::Prefill => &["prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"],
            Self::Encode => &["encode", "encode-prefill", "encode-prefill-decode"],
        };
        label.map_or(self == Self::Decode, |label| accepted.contains(&label))
    }
}

/// A requirement for a label of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The name of the label.
    pub key: String,
    /// The rule for its value.
    pub rule: LabelRule,
}

/// A rule for the value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelRule {
    /// It is one of these.
    In(BTreeSet<String>),
    /// It is one of these, or the label is absent.
    InOrAbsent(BTreeSet<String>),
    /// It is none of these, or the label is absent.
    NotIn(BTreeSet<String>),
    /// The label exists.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelRule {
    /// Whether a label with this value, or an absent label, meets the rule.
    pub fn accepts(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::InOrAbsent(values) => value.is_none_or(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
        }
    }
}

/// When requests stay with the endpoints that have cached their prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixAffinity {
    /// The minimum share of the prompt that such an endpoint has cached.
    pub threshold: f64,
    /// The probability that a request isn't filtered.
    pub exploration: f64,
    /// The maximum additional time to the first token compared with the best other endpoint; without it, there is no limit.
    pub max_penalty: Option<Duration>,
    /// The estimated number of tokens that an endpoint prefills per second.
    pub prefill_throughput: f64,
}

impl Default for PrefixAffinity {
    fn default() -> Self {
        Self { threshold: 0.8, exploration: 0.0, max_penalty: Some(Duration::from_secs(18)), prefill_throughput: 15_928.0 }
    }
}

/// A scorer and its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Scorer {
    /// The scorer, with scores from 0 to 1.
    pub kind: ScorerKind,
    /// The factor for its score, at least 0.
    pub weight: f64,
}

/// The endpoints that a scorer prefers.
#[derive(Clone, Debug, PartialEq)]
pub enum ScorerKind {
    /// Endpoints with fewer queued requests, relative to the shortest and the longest queue (`queue-scorer`).
    Queue,
    /// Endpoints with fewer running requests, relative to the fewest and the most (`running-requests-size-scorer`).
    RunningRequests,
    /// Endpoints with more free KV cache (`kv-cache-utilization-scorer`).
    KvCacheUtilization,
    /// Endpoints that have more of the prompt cached (`prefix-cache-scorer`).
    PrefixCache {
        /// The weight of the match's length, from 0 to 1. The rest is the weight of its share of the prompt.
        match_length_weight: f64,
        /// The length that scores 1, in tokens.
        match_length_scale: u64,
    },
    /// Endpoints that have loaded the request's adapter, or have room for it (`lora-affinity-scorer`).
    LoraAffinity,
    /// Endpoints with fewer tokens in flight (`token-load-scorer`).
    TokenLoad {
        /// The number of tokens that scores 0.
        threshold: u64,
    },
    /// Endpoints with fewer requests in flight (`active-request-scorer`).
    ActiveRequest {
        /// The maximum number of requests with which an endpoint scores 1.
        idle_threshold: u64,
        /// The maximum score of other endpoints, from 0 to 1.
        max_busy_score: f64,
    },
    /// Endpoints with fewer queued requests, from 0.5 for none (`load-aware-scorer`).
    LoadAware {
        /// The number of queued requests that scores 0.
        threshold: u64,
    },
    /// The endpoint that served the session before (`session-affinity-scorer`).
    SessionAffinity(SessionAffinity),
    /// For a request without a cached prefix, the endpoints that got such a request longest ago (`no-hit-lru-scorer`).
    NoHitLru {
        /// The number of endpoints to remember.
        size: u64,
    },
    /// Endpoints with the tightest range of context lengths that includes the prompt's (`context-length-aware`).
    ContextLength {
        /// The label with the range.
        label: String,
    },
}

impl ScorerKind {
    /// The prefix scorer with its defaults: only the share of the prompt matters.
    pub const PREFIX_CACHE: Self = Self::PrefixCache { match_length_weight: 0.0, match_length_scale: 8_192 };
}

/// How a session stays with an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAffinity {
    /// How a request identifies its session.
    pub binding: SessionBinding,
    /// The profile whose endpoint is remembered; by default, the primary one.
    pub profile: Option<String>,
}

/// How a request identifies its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionBinding {
    /// A header contains the endpoint, as namespace/name in base64. The response sets it, and the client sends it back.
    Token {
        /// The header, in lower case.
        header: String,
    },
    /// The client chooses an identifier, and the picker remembers its endpoint.
    Identifier {
        /// The sources of the identifier. The first one that has a value is used.
        sources: Vec<SessionSource>,
        /// How long an endpoint is remembered after the session's last request.
        ttl: Duration,
    },
}

/// A source of a session's identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSource {
    /// A header, in lower case.
    Header(String),
    /// A cookie.
    Cookie(String),
}

/// The choice of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picker {
    /// The method.
    pub kind: PickerKind,
    /// The maximum number of endpoints. The proxy tries the next one if one doesn't respond.
    pub max_endpoints: usize,
}

impl Default for Picker {
    fn default() -> Self {
        Self { kind: PickerKind::MaxScore, max_endpoints: 1 }
    }
}

/// The method to choose endpoints by score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerKind {
    /// The highest score; a random one of equal scores (`max-score-picker`).
    MaxScore,
    /// A random endpoint (`random-picker`).
    Random,
    /// A random endpoint, with probabilities proportional to the scores (`weighted-random-picker`).
    WeightedRandom,
}

impl PickerKind {
    /// The type of the plugin in a configuration.
    pub fn plugin_type(self) -> &'static str {
        match self {
            Self::MaxScore => "max-score-picker",
            Self::Random => "random-picker",
            Self::WeightedRandom => "weighted-random-picker",
        }
    }
}
