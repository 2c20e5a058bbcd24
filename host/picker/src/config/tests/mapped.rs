//! Parts that have a counterpart.

use super::*;
use crate::{
    engine_metrics::Engine,
    flow::{BandSettings, Fairness, FlowSettings, Limit, Order},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

#[test]
fn an_empty_text_is_upstream_s_default() {
    for text in ["", "  \n"] {
        assert_eq!(mapped(text), PickerConfig::default());
    }
    let explicit = with_head(
        "
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: metrics-data-source
- type: core-metrics-extractor
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: kv-cache-utilization-scorer
    weight: 2
  - pluginRef: prefix-cache-scorer
    weight: 3
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors:
    - pluginRef: core-metrics-extractor
",
    );
    assert_eq!(mapped(&explicit), PickerConfig::default());
    assert_eq!(PickerConfig::default().profiles.primary().scorers.len(), 3);
}

#[test]
fn prefixes_and_load_of_those_that_decode() {
    let config = mapped(&with_head(
        "
# Keeps chats where their prefix is, unless many requests wait there.
plugins:
- type: approx-prefix-cache-producer
  name: prefixes
  parameters:
    autoTune: false
    blockSizeTokens: 128
    maxPrefixTokensToMatch: 16384
    lruCapacityPerServer: 50000
- type: prefix-cache-scorer
  parameters: {prefixMatchInfoProducerName: prefixes, matchLengthWeight: 0.25}
- type: load-aware-scorer
  name: load
  parameters:
    threshold: 64
- type: decode-filter
- type: max-score-picker
  parameters:
    maxNumOfEndpoints: 3
- type: single-profile-handler
schedulingProfiles:
- name: chat
  plugins:
  - pluginRef: decode-filter
  - pluginRef: max-score-picker
  - pluginRef: prefix-cache-scorer
    weight: 2.5
  - pluginRef: load
",
    ));
    let prefix = ScorerKind::PrefixCache { match_length_weight: 0.25, match_length_scale: 8_192 };
    let mut expected =
        profile("chat", vec![Filter::Role(Role::Decode)], vec![scorer(prefix, 2.5), scorer(ScorerKind::LoadAware { threshold: 64 }, 1.0)]);
    expected.picker.max_endpoints = 3;
    assert_eq!(config.profiles, Profiles::Single(expected));
    assert_eq!(config.prefix, PrefixSettings { auto_tune: false, block_tokens: 128, capacity: 50_000, max_tokens: 16_384 });
}

const DISAGGREGATED: &str = "
plugins:
- type: prefix-cache-scorer
- type: queue-scorer
- type: prefill-filter
- type: decode-filter
- type: weighted-random-picker
- type: prefix-based-pd-decider
  parameters:
    promptTokens: 256
    nonCachedTokens: 64
- type: HANDLER
  parameters: PARAMETERS
schedulingProfiles:
- name: prefill
  plugins:
  - pluginRef: prefill-filter
  - pluginRef: queue-scorer
- name: decode
  plugins:
  - pluginRef: decode-filter
  - pluginRef: prefix-cache-scorer
    weight: 2
";

#[test]
fn prefill_and_decode_under_each_name_and_form_of_the_handler() {
    let picker = Picker { kind: PickerKind::WeightedRandom, max_endpoints: 1 };
    let decode = Profile { picker, ..profile("decode", vec![Filter::Role(Role::Decode)], vec![scorer(ScorerKind::PREFIX_CACHE, 2.0)]) };
    let prefill = Profile { picker, ..profile("prefill", vec![Filter::Role(Role::Prefill)], vec![scorer(ScorerKind::Queue, 1.0)]) };
    let decider = Decider::PrefixBased { prompt_tokens: 256, uncached_tokens: 64 };
    let by_prefix = Profiles::Disaggregated { decode: decode.clone(), prefill: prefill.clone(), decider };
    let always = Profiles::Disaggregated { decode, prefill, decider: Decider::Always };
    for (handler, parameters, expected) in [
        ("disagg-profile-handler", "{deciders: {prefill: prefix-based-pd-decider}}", &by_prefix),
        (
            "disagg-profile-handler",
            "{profiles: {decode: decode}, deciders: {prefill: prefix-based-pd-decider}, stageOrder: decode-first}",
            &by_prefix,
        ),
        ("disagg-profile-handler", "{prefillProfile: prefill, deciderPluginName: prefix-based-pd-decider}", &by_prefix),
        ("disagg-profile-handler", "{stageOrder: prefill_first}", &always),
        ("pd-profile-handler", "{}", &by_prefix),
        ("pd-profile-handler", "{deciderPluginName: prefix-based-pd-decider, primaryPort: 0}", &by_prefix),
    ] {
        let yaml = with_head(&DISAGGREGATED.replace("HANDLER", handler).replace("PARAMETERS", parameters));
        assert_eq!(&mapped(&yaml).profiles, expected, "{handler} {parameters}");
    }
}

#[test]
fn flow_control_with_bands_and_a_detector() {
    let config = mapped(&with_head(
        "
featureGates: [flowControl]
plugins:
- type: queue-scorer
- type: round-robin-fairness-policy
- type: edf-ordering-policy
- type: static-usage-limit-policy
  parameters: {threshold: 0.9}
- type: utilization-detector
  name: full
  parameters:
    queueDepthThreshold: 8
    kvCacheUtilThreshold: 0.95
    metricsStalenessThreshold: 1s
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
flowControl:
  maxBytes: 4Gi
  maxRequests: 10k
  defaultRequestTTL: 30s
  noEndpointRequestTTL: 0s
  defaultPriorityBand:
    fairnessPolicyRef: round-robin-fairness-policy
  priorityBands:
  - priority: 100
    maxBytes: 500M
    maxRequests: 200
    orderingPolicyRef: edf-ordering-policy
    fairnessPolicyRef: global-strict-fairness-policy
  - priority: -10
  usageLimitPolicyPluginRef: static-usage-limit-policy
  saturationDetector: {pluginRef: full}
",
    ));
    let upstream =
        BandSettings { limit: Limit { requests: 5_000, bytes: 1_000_000_000 }, fairness: Fairness::None, order: Order::FirstCome };
    let fair = BandSettings { fairness: Fairness::Requests, ..upstream.clone() };
    let urgent = BandSettings { limit: Limit { requests: 200, bytes: 500_000_000 }, order: Order::Deadline, ..upstream.clone() };
    let settings = FlowSettings {
        limit: Limit { requests: 10_000, bytes: 4 << 30 },
        default_band: fair.clone(),
        default_negative_band: fair,
        bands: BTreeMap::from([(100, urgent), (-10, upstream)]),
    };
    let expected =
        FlowControl { settings, request_ttl: Some(Duration::from_secs(30)), no_endpoint_ttl: None, slo_deadlines: false, ceiling: 0.9 };
    assert_eq!(config.flow_control, Some(expected));
    assert_eq!(config.saturation, Detector::Utilization { queue_depth: 8.0, kv_usage: 0.95 });
    assert_eq!(config.scrape.staleness, Duration::from_secs(1));
}

#[test]
fn the_feature_gate_alone_has_requests_wait_a_minute() {
    let wait = |gates: &str| mapped(&with_head(&format!("featureGates: {gates}\nplugins: [{{type: queue-scorer}}]"))).flow_control;
    let flow_control = wait("[flowControl]").unwrap();
    assert_eq!((flow_control.request_ttl, flow_control.no_endpoint_ttl), (Some(FlowControl::DEFAULT_TTL), Some(FlowControl::DEFAULT_TTL)));
    assert_eq!(flow_control.settings.limit, Limit::NONE);
    assert_eq!(wait("['flowControl=False']"), None);
    assert!(wait("['flowControl=1']").is_some());
}

#[test]
fn every_scorer_with_its_parameters() {
    let config = mapped(&with_head(
        "
plugins:
- type: running-requests-size-scorer
- type: lora-affinity-scorer
- type: token-load-scorer
  parameters: {queueThresholdTokens: 1000000, inFlightLoadProducerName: inflight-load-producer}
- type: active-request-scorer
  parameters: {idleThreshold: 2, maxBusyScore: 0.5, requestTimeout: 2m}
- type: no-hit-lru-scorer
- type: context-length-aware
  parameters: {label: example.com/range, enableFiltering: true}
- type: inflight-load-producer
  parameters: {addEstimatedOutputTokens: true, maxEstimatedOutputTokens: 4096}
- type: random-picker
",
    ));
    let label = "example.com/range".to_owned();
    let mut expected = profile("default", vec![Filter::ContextLength { label: label.clone() }], Vec::new());
    expected.scorers = [
        ScorerKind::RunningRequests,
        ScorerKind::LoraAffinity,
        ScorerKind::TokenLoad { threshold: 1_000_000 },
        ScorerKind::ActiveRequest { idle_threshold: 2, max_busy_score: 0.5 },
        ScorerKind::NoHitLru { size: 1_024 },
        ScorerKind::ContextLength { label },
    ]
    .map(|kind| scorer(kind, 1.0))
    .to_vec();
    expected.picker.kind = PickerKind::Random;
    assert_eq!(config.profiles, Profiles::Single(expected), "without profiles, all take part");
    assert_eq!(config.output_estimate, Some(OutputEstimate { ratio: 1.5, max_tokens: Some(4_096) }));
}

#[test]
fn labels_prefixes_and_detectors_filter() {
    let config = mapped(&with_head(
        "
plugins:
- type: label-selector-filter
  name: gpus
  parameters:
    matchLabels: {zone: a}
    matchExpressions:
    - {key: gpu, operator: In, values: [h100, h200]}
    - {key: spot, operator: DoesNotExist}
- type: by-label
  parameters: {label: tier, validValues: [gold], allowsNoLabel: true}
- type: prefix-cache-affinity-filter
  parameters: {affinityThreshold: 0.9, maxTTFTPenaltyMs: 0, explorationProbability: 0.05}
- type: concurrency-detector
  parameters: {maxConcurrency: 40, headroom: 0.5}
- type: active-request-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: gpus
  - pluginRef: by-label
  - pluginRef: prefix-cache-affinity-filter
  - pluginRef: concurrency-detector
  - pluginRef: active-request-scorer
saturationDetector:
  pluginRef: concurrency-detector
",
    ));
    let set = |values: &[&str]| values.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let requirement = |key: &str, rule| LabelRequirement { key: key.to_owned(), rule };
    let affinity = PrefixAffinity { threshold: 0.9, exploration: 0.05, max_penalty: None, prefill_throughput: 15_928.0 };
    assert_eq!(
        config.profiles.primary().filters,
        [
            Filter::Labels(vec![
                requirement("zone", LabelRule::In(set(&["a"]))),
                requirement("gpu", LabelRule::In(set(&["h100", "h200"]))),
                requirement("spot", LabelRule::DoesNotExist),
            ]),
            Filter::Labels(vec![requirement("tier", LabelRule::InOrAbsent(set(&["gold"])))]),
            Filter::PrefixAffinity(affinity),
            Filter::Unsaturated(Detector::Concurrency { max_in_flight: 60.0 }),
        ]
    );
    assert_eq!(config.saturation, Detector::Concurrency { max_in_flight: 40.0 });
}

#[test]
fn sessions_by_token_by_header_and_by_cookie() {
    let affinity = |parameters: &str| {
        let yaml = format!(
            "plugins:\n- type: session-id-producer\n  name: ids\n  parameters: {{cookieName: sid}}\n- type: session-affinity-scorer\n  parameters: {parameters}"
        );
        match mapped(&with_head(&yaml)).profiles.primary().scorers.as_slice() {
            [Scorer { kind: ScorerKind::SessionAffinity(affinity), .. }] => affinity.clone(),
            other => panic!("{other:?}"),
        }
    };
    let token = |header: &str| SessionBinding::Token { header: header.to_owned() };
    assert_eq!(affinity("{}"), SessionAffinity { binding: token("x-session-token"), profile: None });
    assert_eq!(
        affinity("{profileName: prefill, encodedEndpointHeaderConfig: {header: X-Sticky}}"),
        SessionAffinity { binding: token("x-sticky"), profile: Some("prefill".to_owned()) }
    );
    let sources = vec![SessionSource::Header("x-chat".to_owned()), SessionSource::Cookie("sid".to_owned())];
    assert_eq!(
        affinity("{strategy: session_id, sessionIdConfig: {evictionTtlSeconds: 60, sources: [{header: X-Chat}, {attribute: session-id, producer: ids}]}}").binding,
        SessionBinding::Identifier { sources, ttl: Duration::from_mins(1) }
    );
    let default = vec![SessionSource::Header("x-session-id".to_owned())];
    assert_eq!(affinity("{strategy: session_id}").binding, SessionBinding::Identifier { sources: default, ttl: Duration::from_mins(5) });
}

#[test]
fn metrics_over_https_from_another_port_and_engine() {
    let config = mapped(&with_head(
        "
plugins:
- type: queue-scorer
- type: metrics-data-source
  name: unused
- type: metrics-data-source
  name: secure
  parameters:
    scheme: https
    path: /internal/metrics
    port: 8443
    insecureSkipVerify: false
    caCertPath: /certs/ca.crt
    clientCertPath: /certs/tls.crt
    clientKeyPath: /certs/tls.key
    interval: 200ms
- type: core-metrics-extractor
  parameters: {engineLabelKey: example.com/engine, defaultEngine: sglang}
dataLayer:
  injectDefaults: true
  sources:
  - pluginRef: secure
    extractors: [{pluginRef: core-metrics-extractor}]
",
    ));
    let expected = ScrapeSettings {
        https: true,
        path: "/internal/metrics".to_owned(),
        port: Some(8_443),
        verify: true,
        ca_file: Some("/certs/ca.crt".to_owned()),
        client_files: Some(("/certs/tls.crt".to_owned(), "/certs/tls.key".to_owned())),
        interval: Duration::from_millis(200),
        staleness: Duration::from_millis(200),
        engine_label: Some("example.com/engine".to_owned()),
        default_engine: Engine::Sglang,
    };
    assert_eq!(config.scrape, expected);
}

#[test]
fn parsers_under_both_fields_and_undeclared() {
    let parsers = |rest: &str| mapped(&with_head(&format!("plugins: [{{type: vllmgrpc-parser, name: grpc}}]\n{rest}"))).parsers;
    assert_eq!(parsers(""), Parser::DEFAULT);
    assert_eq!(parsers("parser: {pluginRef: grpc}"), [Parser::VllmGrpc]);
    let both = "requestHandler: {parsers: [{pluginRef: vertexai-parser}, {pluginRef: sglanghttp-parser}]}\nparser: {pluginRef: grpc}";
    assert_eq!(parsers(both), [Parser::VertexAi, Parser::SglangHttp], "the new field counts");
}

#[test]
fn a_configuration_of_the_inference_extension_before_llm_d() {
    let config = mapped(
        "
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: prefix-cache-scorer
  parameters:
    blockSize: 256
    maxPrefixBlocksToMatch: 256
    lruCapacityPerServer: 31250
- type: model-server-protocol-metrics
- type: max-score-picker
- type: single-profile-handler
saturationDetector:
  queueDepthThreshold: 10
  metricsStalenessThreshold: 500ms
data:
  sources: []
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
  - pluginRef: prefix-cache-scorer
  - pluginRef: max-score-picker
",
    );
    assert_eq!(config.prefix, PrefixSettings { auto_tune: true, block_tokens: 64, capacity: 31_250, max_tokens: 16_384 });
    assert_eq!(config.saturation, Detector::Utilization { queue_depth: 10.0, kv_usage: 0.8 });
    assert_eq!(config.scrape.staleness, Duration::from_millis(500));
}

#[test]
fn prefixes_are_limited_as_upstream_limits_them() {
    let prefix = |parameters: &str| {
        mapped(&with_head(&format!("plugins: [{{type: approx-prefix-cache-producer, parameters: {parameters}}}]"))).prefix
    };
    assert_eq!(prefix("{blockSizeTokens: 16, maxPrefixBlocksToMatch: 10}"), PrefixSettings::default(), "tokens come before blocks");
    assert_eq!(prefix("{maxPrefixTokensToMatch: 0, maxPrefixBlocksToMatch: 10}").max_tokens, 640);
    assert_eq!(prefix("{maxPrefixTokensToMatch: 0}").max_tokens, 131_072);
    assert_eq!(prefix("{blockSize: 256}").block_tokens, 256);
    assert_eq!(prefix("{blockSize: 256, blockSizeTokens: 128}").block_tokens, 128);
}

#[test]
fn roles_and_rules_accept_what_upstream_s_filters_keep() {
    let accepted = |role: Role| {
        let labels = [None, Some("decode"), Some("prefill"), Some("both"), Some("encode"), Some("encode-prefill"), Some("other")];
        labels.into_iter().filter(|label| role.accepts(*label)).map(|label| label.unwrap_or("none")).collect::<Vec<_>>()
    };
    assert_eq!(accepted(Role::Decode), ["none", "decode", "both"]);
    assert_eq!(accepted(Role::Prefill), ["prefill", "both", "encode-prefill"]);
    assert_eq!(accepted(Role::Encode), ["encode", "encode-prefill"]);
    let values = BTreeSet::from(["a".to_owned()]);
    let accepts = |rule: &LabelRule| [Some("a"), Some("b"), None].map(|value| rule.accepts(value));
    assert_eq!(accepts(&LabelRule::In(values.clone())), [true, false, false]);
    assert_eq!(accepts(&LabelRule::InOrAbsent(values.clone())), [true, false, true]);
    assert_eq!(accepts(&LabelRule::NotIn(values)), [false, true, true]);
    assert_eq!(accepts(&LabelRule::Exists), [true, true, false]);
    assert_eq!(accepts(&LabelRule::DoesNotExist), [false, false, true]);
}
