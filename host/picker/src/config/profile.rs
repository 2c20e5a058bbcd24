//! Who picks endpoints: filters, scorers, pickers, and the profiles that they make up.

use crate::flow::saturation::Detector;
use std::{collections::BTreeSet, time::Duration};

/// The profiles that pick the endpoints of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Profiles {
    /// One endpoint does all of a request.
    Single(Profile),
    /// An endpoint decodes, and another one prefills if the decider agrees.
    Disaggregated {
        /// Picks the endpoint that requests are sent to. It runs first.
        decode: Profile,
        /// Picks the endpoint that prefills.
        prefill: Profile,
        /// Whether another endpoint prefills.
        decider: Decider,
    },
}

impl Profiles {
    /// The profile whose endpoint requests are sent to.
    pub fn primary(&self) -> &Profile {
        match self {
            Self::Single(profile) | Self::Disaggregated { decode: profile, .. } => profile,
        }
    }

    /// The profile that picks who prefills, if there is one.
    pub fn prefill(&self) -> Option<&Profile> {
        match self {
            Self::Single(_) => None,
            Self::Disaggregated { prefill, .. } => Some(prefill),
        }
    }
}

/// Whether another endpoint than the one that decodes prefills a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    /// Always.
    Always,
    /// If enough of the prompt isn't cached where it is decoded.
    PrefixBased {
        /// How many tokens the prompt must have.
        prompt_tokens: u64,
        /// How many of them must not be cached. 0 means never.
        uncached_tokens: u64,
    },
}

/// How an endpoint is picked: filters in their order, then the sum of the weighted scores, then the picker.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name that the configuration gives it.
    pub name: String,
    /// What endpoints must fulfil.
    pub filters: Vec<Filter>,
    /// Which endpoints are better.
    pub scorers: Vec<Scorer>,
    /// Which of them are taken.
    pub picker: Picker,
}

/// Which endpoints are kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Those with a role (`decode-filter`, `prefill-filter`, `encode-filter`).
    Role(Role),
    /// Those whose labels fulfil all requirements (`label-selector-filter`).
    Labels(Vec<LabelRequirement>),
    /// Those that have most of the prompt cached, if any has (`prefix-cache-affinity-filter`).
    PrefixAffinity(PrefixAffinity),
    /// Those whose range of context lengths includes the prompt's, and those without a range (`context-length-aware`).
    ContextLength {
        /// The label with the range.
        label: String,
    },
    /// Those whose own saturation is below 1, or all if there are none (a saturation detector in a profile).
    Unsaturated(Detector),
}

impl Filter {
    /// The type of the plugin that a configuration gets it by.
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

/// What an endpoint does, by its label `llm-d.ai/role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It decodes. Those without the label do, too.
    Decode,
    /// It prefills.
    Prefill,
    /// It encodes.
    Encode,
}

impl Role {
    /// The type of the filter that keeps the endpoints with it.
    pub fn plugin_type(self) -> &'static str {
        match self {
            Self::Decode => "decode-filter",
            Self::Prefill => "prefill-filter",
            Self::Encode => "encode-filter",
        }
    }

    /// Whether an endpoint whose label has this value has the role.
    pub fn accepts(self, label: Option<&str>) -> bool {
        let accepted: &[&str] = match self {
            Self::Decode => &["decode", "prefill-decode", "both", "encode-prefill-decode"],
            Self::Prefill => &["prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"],
            Self::Encode => &["encode", "encode-prefill", "encode-prefill-decode"],
        };
        label.map_or(self == Self::Decode, |label| accepted.contains(&label))
    }
}

/// What a label of an endpoint must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The name of the label.
    pub key: String,
    /// What its value must be.
    pub rule: LabelRule,
}

/// What the value of a label must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelRule {
    /// One of these.
    In(BTreeSet<String>),
    /// One of these, or the label is absent.
    InOrAbsent(BTreeSet<String>),
    /// None of these, or the label is absent.
    NotIn(BTreeSet<String>),
    /// Any.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelRule {
    /// Whether a label with this value fulfils the rule.
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

/// When requests stay with endpoints that have their prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixAffinity {
    /// The share of the prompt that such an endpoint has cached.
    pub threshold: f64,
    /// With this probability a request isn't filtered.
    pub exploration: f64,
    /// How much longer than at the best other endpoint the first token may take; without it, any time.
    pub max_penalty: Option<Duration>,
    /// How many tokens an endpoint prefills in a second, by which the time to the first token is estimated.
    pub prefill_throughput: f64,
}

impl Default for PrefixAffinity {
    fn default() -> Self {
        Self { threshold: 0.8, exploration: 0.0, max_penalty: Some(Duration::from_secs(18)), prefill_throughput: 15_928.0 }
    }
}

/// A scorer and how much it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Scorer {
    /// How it scores, from 0 to 1.
    pub kind: ScorerKind,
    /// By what its score is multiplied. It is at least 0.
    pub weight: f64,
}

/// Which endpoints are better.
#[derive(Clone, Debug, PartialEq)]
pub enum ScorerKind {
    /// Those with fewer waiting requests, relative to the shortest and the longest queue (`queue-scorer`).
    Queue,
    /// Those with fewer running requests, likewise (`running-requests-size-scorer`).
    RunningRequests,
    /// Those with more of their KV cache free (`kv-cache-utilization-scorer`).
    KvCacheUtilization,
    /// Those that have more of the prompt cached (`prefix-cache-scorer`).
    PrefixCache {
        /// How much the length of the match counts, from 0 to 1; the rest is its share of the prompt.
        match_length_weight: f64,
        /// The length that counts as 1, in tokens.
        match_length_scale: u64,
    },
    /// Those that have the request's adapter loaded, or room for it (`lora-affinity-scorer`).
    LoraAffinity,
    /// Those with fewer tokens in flight (`token-load-scorer`).
    TokenLoad {
        /// How many tokens score 0.
        threshold: u64,
    },
    /// Those with fewer requests in flight (`active-request-scorer`).
    ActiveRequest {
        /// Up to how many requests an endpoint scores 1.
        idle_threshold: u64,
        /// The most that others score, from 0 to 1.
        max_busy_score: f64,
    },
    /// Those with fewer waiting requests, from 0.5 for none (`load-aware-scorer`).
    LoadAware {
        /// How many waiting requests score 0.
        threshold: u64,
    },
    /// The one that served the session before (`session-affinity-scorer`).
    SessionAffinity(SessionAffinity),
    /// For a request with no prefix anywhere, those that got such a request longest ago (`no-hit-lru-scorer`).
    NoHitLru {
        /// How many endpoints are remembered.
        size: u64,
    },
    /// Those with the tightest range of context lengths that includes the prompt's (`context-length-aware`).
    ContextLength {
        /// The label with the range.
        label: String,
    },
}

impl ScorerKind {
    /// The prefix scorer, which by default scores only by the share of the prompt.
    pub const PREFIX_CACHE: Self = Self::PrefixCache { match_length_weight: 0.0, match_length_scale: 8_192 };
}

/// How a session stays with an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAffinity {
    /// How a request names its session.
    pub binding: SessionBinding,
    /// The profile whose endpoint is remembered; without it, the primary one.
    pub profile: Option<String>,
}

/// How a request names its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionBinding {
    /// A header holds the endpoint, in base64 as namespace/name. Responses set it, and clients send it back.
    Token {
        /// The header, in lower case.
        header: String,
    },
    /// The client chooses an identifier, and the picker remembers its endpoint.
    Identifier {
        /// Where it is read from; the first that has one counts.
        sources: Vec<SessionSource>,
        /// How long an endpoint is remembered after the session's last request.
        ttl: Duration,
    },
}

/// Where the identifier of a session is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSource {
    /// A header, in lower case.
    Header(String),
    /// A cookie.
    Cookie(String),
}

/// Which endpoints are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picker {
    /// How they are chosen.
    pub kind: PickerKind,
    /// How many, at most; the proxy tries the others if the first doesn't answer.
    pub max_endpoints: usize,
}

impl Default for Picker {
    fn default() -> Self {
        Self { kind: PickerKind::MaxScore, max_endpoints: 1 }
    }
}

/// How endpoints are chosen by their scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerKind {
    /// The best; of equal ones any (`max-score-picker`).
    MaxScore,
    /// Any (`random-picker`).
    Random,
    /// Any, with probabilities proportional to the scores (`weighted-random-picker`).
    WeightedRandom,
}

impl PickerKind {
    /// The type of the plugin that a configuration gets it by.
    pub fn plugin_type(self) -> &'static str {
        match self {
            Self::MaxScore => "max-score-picker",
            Self::Random => "random-picker",
            Self::WeightedRandom => "weighted-random-picker",
        }
    }
}
