//! The types of upstream's plugins.

/// The counterpart of a type of plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PluginType {
    /// The function of this name, in `parameters` or next to it, reads its parameters.
    RoleFilter(super::Role),
    LabelSelectorFilter,
    ByLabelFilter,
    PrefixAffinityFilter,
    QueueScorer,
    RunningRequestsScorer,
    KvCacheScorer,
    PrefixScorer,
    PrecisePrefixScorer,
    LoraScorer,
    TokenLoadScorer,
    ActiveRequestScorer,
    LoadAwareScorer,
    SessionScorer,
    NoHitLruScorer,
    ContextLength,
    Picker(super::PickerKind),
    SingleHandler,
    DataParallelHandler,
    DisaggregatedHandler,
    PrefillDecodeHandler,
    PrefixDecider,
    AlwaysDecider,
    Parser(super::Parser),
    Fairness(crate::flow::Fairness),
    ProgramFairness,
    FirstCome,
    ExpiryOrder,
    SloOrder,
    UsageLimit,
    UtilizationDetector,
    ConcurrencyDetector,
    MetricsSource,
    MetricsExtractor,
    PrefixProducer,
    TokenProducer,
    LoadProducer,
    SessionProducer,
    /// It has no counterpart.
    Without(Without),
}

/// The purpose upstream of a plugin without a counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// It restricts the allowed endpoints in the profiles that use it.
    Filter,
    /// It always restricts the allowed endpoints.
    Screener,
    /// It decides which profiles run.
    Handler,
    /// It orders the allowed endpoints.
    Scorer,
    /// It neither restricts nor orders endpoints itself.
    Other,
    /// Upstream doesn't have this type.
    Unknown,
}

impl PluginType {
    /// The type with this name, which may be an old one.
    pub(super) fn parse(name: &str) -> Self {
        use super::{PickerKind, Role};
        use crate::flow::Fairness;
        if let Some(parser) = super::Parser::parse(name) {
            return Self::Parser(parser);
        }
        match name {
            "decode-filter" => Self::RoleFilter(Role::Decode),
            "prefill-filter" => Self::RoleFilter(Role::Prefill),
            "encode-filter" => Self::RoleFilter(Role::Encode),
            "label-selector-filter" | "by-label-selector" => Self::LabelSelectorFilter,
            "by-label" => Self::ByLabelFilter,
            "prefix-cache-affinity-filter" => Self::PrefixAffinityFilter,
            "queue-scorer" => Self::QueueScorer,
            "running-requests-size-scorer" => Self::RunningRequestsScorer,
            "kv-cache-utilization-scorer" => Self::KvCacheScorer,
            "prefix-cache-scorer" => Self::PrefixScorer,
            "precise-prefix-cache-scorer" => Self::PrecisePrefixScorer,
            "lora-affinity-scorer" => Self::LoraScorer,
            "token-load-scorer" => Self::TokenLoadScorer,
            "active-request-scorer" => Self::ActiveRequestScorer,
            "load-aware-scorer" => Self::LoadAwareScorer,
            "session-affinity-scorer" => Self::SessionScorer,
            "no-hit-lru-scorer" => Self::NoHitLruScorer,
            "context-length-aware" => Self::ContextLength,
            "max-score-picker" => Self::Picker(PickerKind::MaxScore),
            "random-picker" => Self::Picker(PickerKind::Random),
            "weighted-random-picker" => Self::Picker(PickerKind::WeightedRandom),
            "single-profile-handler" => Self::SingleHandler,
            "data-parallel-profile-handler" => Self::DataParallelHandler,
            "disagg-profile-handler" => Self::DisaggregatedHandler,
            "pd-profile-handler" => Self::PrefillDecodeHandler,
            "prefix-based-pd-decider" => Self::PrefixDecider,
            "always-disagg-pd-decider" => Self::AlwaysDecider,
            "global-strict-fairness-policy" => Self::Fairness(Fairness::None),
            "round-robin-fairness-policy" => Self::Fairness(Fairness::Requests),
            "program-aware-fairness" => Self::ProgramFairness,
            "fcfs-ordering-policy" => Self::FirstCome,
            "edf-ordering-policy" => Self::ExpiryOrder,
            "slo-deadline-ordering-policy" => Self::SloOrder,
            "static-usage-limit-policy" => Self::UsageLimit,
            "utilization-detector" => Self::UtilizationDetector,
            "concurrency-detector" => Self::ConcurrencyDetector,
            "metrics-data-source" => Self::MetricsSource,
            "core-metrics-extractor" | "model-server-protocol-metrics" => Self::MetricsExtractor,
            "approx-prefix-cache-producer" => Self::PrefixProducer,
            "token-producer" | "tokenizer" => Self::TokenProducer,
            "inflight-load-producer" => Self::LoadProducer,
            "session-id-producer" => Self::SessionProducer,
            _ => Self::Without(Without::parse(name)),
        }
    }
}

impl Without {
    fn parse(name: &str) -> Self {
        match name {
            "slo-headroom-tier-filter"
            | "session-affinity-filter"
            | "endpoint-attribute-filter"
            | "topology-affinity-filter"
            | "utilization-filter"
            | "multicluster-session-affinity-filter"
            | "header-based-testing-filter" => Self::Filter,
            "disaggregatedset-rollout-screener" => Self::Screener,
            "header-profile-handler" | "slo-aware-profile-handler" => Self::Handler,
            "latency-scorer"
            | "mm-embeddings-cache-scorer"
            | "header-label-affinity-scorer"
            | "endpoint-attribute-scorer"
            | "topology-affinity-scorer"
            | "multicluster-kv-cache-utilization-scorer"
            | "multicluster-prefix-cache-scorer"
            | "multicluster-queue-scorer"
            | "predicted-latency-scorer"
            | "slo-aware-routing" => Self::Scorer,
            "always-disagg-multimodal-decider"
            | "disagg-headers-handler"
            | "prefill-header-handler"
            | "precise-prefix-cache-producer"
            | "burst-prefix-cache-producer"
            | "predicted-latency-producer"
            | "mm-embeddings-cache-producer"
            | "p2p-source-producer"
            | "multicluster-approx-prefix-cache-producer"
            | "latency-slo-admitter"
            | "probabilistic-admitter"
            | "agent-identity"
            | "priority-holdback-policy"
            | "soft-reflective-ceiling-policy"
            | "sheddable-eviction-filter"
            | "priority-then-time-eviction-order-policy"
            | "models-data-source"
            | "models-data-extractor"
            | "topology-extractor"
            | "dcgm-data-source"
            | "dcgm-extractor"
            | "multicluster-metrics-data-source"
            | "multicluster-metrics-extractor"
            | "k8s-notification-source"
            | "endpoint-notification-source"
            | "file-discovery"
            | "multicluster-file-discovery"
            | "request-attribute-reporter"
            | "destination-endpoint-served-verifier"
            | "local-syncer" => Self::Other,
            _ => Self::Unknown,
        }
    }
}
