//! Parts that have no counterpart and are ignored.

use super::*;
use crate::flow::{Fairness, Order};

#[test]
fn precise_prefixes_are_scored_by_what_was_sent() {
    let (config, remarks) = read(&with_head(
        "\
plugins:
- type: token-producer
  parameters:
    modelName: Qwen/Qwen3-32B
    vllm: {url: 'http://localhost:8000'}
- type: endpoint-notification-source
- type: precise-prefix-cache-producer
  parameters:
    tokenProcessorConfig: {blockSize: 64}
- type: prefix-cache-scorer
  parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}
- type: queue-scorer
dataLayer:
  sources:
  - pluginRef: endpoint-notification-source
    extractors:
    - pluginRef: precise-prefix-cache-producer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: prefix-cache-scorer
    weight: 2
  - pluginRef: queue-scorer
",
    ));
    assert_eq!(
        remarks,
        [
            "line 4, column 3: plugins[0] token-producer: Pointsman estimates four bytes of a prompt as a token, and asks no tokenizer: remove \
             `parameters`",
            "line 8, column 3: plugins[1] endpoint-notification-source: Pointsman has no counterpart, and picks without it: remove it",
            "line 9, column 3: plugins[2] precise-prefix-cache-producer: Pointsman has no counterpart, and scores by the prefixes that it has \
             sent: remove it",
        ]
    );
    let scorers = vec![scorer(ScorerKind::PREFIX_CACHE, 2.0), scorer(ScorerKind::Queue, 1.0)];
    assert_eq!(config.profiles, Profiles::Single(profile("default", Vec::new(), scorers)));
}

#[test]
fn a_scorer_without_counterpart_is_left_out_and_an_old_one_replaced() {
    let (config, remarks) = read(&with_head(
        "\
plugins:
- type: latency-scorer
  parameters: {strategy: least}
- type: precise-prefix-cache-scorer
  parameters: {kvEventsConfig: {zmqEndpoint: 'tcp://0.0.0.0:5557'}}
- type: queue-scorer
  parameters: {weight: 2}
- type: decode-filter
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: latency-scorer
    weight: 4
  - pluginRef: precise-prefix-cache-scorer
  - pluginRef: queue-scorer
  - pluginRef: decode-filter
    weight: 1
",
    ));
    assert_eq!(
        remarks,
        [
            "line 4, column 3: plugins[0] latency-scorer: Pointsman has no counterpart, and picks without it: remove it",
            "line 6, column 3: plugins[1] precise-prefix-cache-scorer: Pointsman scores by the prefixes that it has sent, and reads no KV \
             events: use `prefix-cache-scorer`",
            "line 8, column 3: plugins[2] queue-scorer: it takes no parameters: remove `parameters`",
            "line 18, column 5: schedulingProfiles[0].plugins[3] decode-filter: only scorers have a weight: remove `weight`",
        ]
    );
    let scorers = vec![scorer(ScorerKind::PREFIX_CACHE, 1.0), scorer(ScorerKind::Queue, 1.0)];
    assert_eq!(config.profiles, Profiles::Single(profile("default", vec![Filter::Role(Role::Decode)], scorers)));
}

#[test]
fn the_encode_stage_doesn_t_run_and_its_filters_exclude_nothing() {
    let (config, remarks) = read(&with_head(
        "\
plugins:
- type: encode-filter
- type: topology-affinity-filter
- type: prefill-filter
- type: decode-filter
- type: always-disagg-multimodal-decider
- type: always-disagg-pd-decider
- type: disagg-profile-handler
  parameters:
    deciders:
      encode: always-disagg-multimodal-decider
      prefill: always-disagg-pd-decider
schedulingProfiles:
- name: encode
  plugins: [{pluginRef: encode-filter}, {pluginRef: topology-affinity-filter}]
- name: prefill
  plugins: [{pluginRef: prefill-filter}]
- name: decode
  plugins: [{pluginRef: decode-filter}]
",
    ));
    assert_eq!(
        remarks,
        [
            "line 5, column 3: plugins[1] topology-affinity-filter: Pointsman has no counterpart, and no profile that runs uses it: remove it",
            "line 8, column 3: plugins[4] always-disagg-multimodal-decider: Pointsman has no counterpart, and picks without it: remove it",
            "line 13, column 15: plugins[6].parameters.deciders.encode: Pointsman has no encode stage, and lets other endpoints encode: remove it",
            "line 16, column 3: schedulingProfiles[0] encode: it doesn't run, because Pointsman runs only those that decode and prefill: remove \
             it",
        ]
    );
    let of_role = |name, role| profile(name, vec![Filter::Role(role)], Vec::new());
    let (decode, prefill) = (of_role("decode", Role::Decode), of_role("prefill", Role::Prefill));
    assert_eq!(config.profiles, Profiles::Disaggregated { decode, prefill, decider: Decider::Always });
}

#[test]
fn a_prefill_profile_without_a_decider_and_a_decider_without_a_profile() {
    let (config, remarks) = read(&with_head(
        "\
plugins: [{type: queue-scorer}, {type: disagg-profile-handler}]
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: queue-scorer}]}
- {name: prefill, plugins: [{pluginRef: queue-scorer}]}
",
    ));
    let expected = Profiles::Single(profile("decode", Vec::new(), vec![scorer(ScorerKind::Queue, 1.0)]));
    assert_eq!(config.profiles, expected);
    assert_eq!(
        remarks,
        ["line 6, column 3: schedulingProfiles[1] prefill: it doesn't run, because the profile handler has no decider: set \
             `deciders.prefill`, or remove it"]
    );
    let (config, remarks) = read(&with_head(
        "\
plugins:
- type: queue-scorer
- type: prefix-based-pd-decider
- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: queue-scorer}]}
",
    ));
    assert_eq!(config.profiles, expected);
    assert_eq!(
        remarks,
        ["line 8, column 3: schedulingProfiles: no endpoint prefills for another, because there is no profile `prefill`: add it"]
    );
}

#[test]
fn flow_control_s_experiments_and_a_gate_that_is_off() {
    let yaml = with_head(
        "\
plugins:
- type: program-aware-fairness
  parameters: {strategy: las}
- type: slo-deadline-ordering-policy
- type: soft-reflective-ceiling-policy
- type: concurrency-detector
  parameters: {concurrencyMode: tokens, maxTokenConcurrency: 500000}
flowControl:
  defaultPriorityBand:
    fairnessPolicyRef: program-aware-fairness
    orderingPolicyRef: slo-deadline-ordering-policy
  usageLimitPolicyPluginRef: soft-reflective-ceiling-policy
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
featureGates: [flowControl, haPopulateNonLeaderDatastore=false]
schedulingProfiles: [{name: all, plugins: []}]
",
    );
    let (config, remarks) = read(&yaml);
    let expected = [
        "line 4, column 3: plugins[0] program-aware-fairness: Pointsman has no such strategies, and gives each flow the same share of tokens: \
         use `round-robin-fairness-policy`",
        "line 7, column 3: plugins[2] soft-reflective-ceiling-policy: Pointsman has no counterpart, and lets all priorities wait at the same \
         saturation: use `static-usage-limit-policy`",
        "line 8, column 3: plugins[3] concurrency-detector: Pointsman counts requests and not tokens, of which 100 fill an endpoint: set \
         `maxConcurrency`",
        "line 13, column 24: flowControl.defaultPriorityBand.orderingPolicyRef: Pointsman drops a request whose time to first token has passed \
         while it waits: use `edf-ordering-policy` if it mustn't",
        "line 16, column 19: flowControl.enableEviction: Pointsman ends no request that an endpoint has: remove it",
        "line 17, column 29: featureGates[1] haPopulateNonLeaderDatastore: Pointsman has no such feature gate: remove it",
    ];
    assert_eq!(remarks, expected);
    let flow_control = config.flow_control.unwrap();
    let band = &flow_control.settings.default_band;
    assert_eq!((band.fairness, band.order, flow_control.slo_deadlines, flow_control.ceiling), (Fairness::Work, Order::Deadline, true, 1.0));
    let (config, remarks) = read(&yaml.replace("[flowControl, ", "["));
    assert_eq!(config.flow_control, None);
    assert_eq!(config.saturation, Detector::Concurrency { max_in_flight: 100.0 });
    let off = "line 11, column 3: flowControl: it has no effect except for `saturationDetector`, because the feature gate is off: add `flowControl` \
               to `featureGates`";
    assert!(remarks.iter().any(|remark| remark == off), "{remarks:#?}");
}

#[test]
fn the_data_layer_s_parts_that_only_upstream_has() {
    let (config, remarks) = read(&with_head(
        "\
plugins:
- type: metrics-data-source
- {type: metrics-data-source, name: second, parameters: {port: 9000}}
- type: core-metrics-extractor
  parameters:
    defaultEngine: mine
    engineConfigs: [{name: mine, queuedRequestsSpec: my_waiting}]
- type: unheard-of-admitter
dataLayer:
  injectDefaults: false
  sources:
  - {pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}
  - {pluginRef: second}
  peerDiscovery: {pluginRef: peers}
  crossReplicaSyncInterval: 1s
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: core-metrics-extractor
",
    ));
    assert_eq!(config.scrape, ScrapeSettings::default());
    assert_eq!(
        remarks,
        [
            "line 6, column 3: plugins[2] core-metrics-extractor: Pointsman reads the metrics that engines have by default (vllm, sglang, \
             trtllm-serve, triton-tensorrt-llm, triton), under no other names: remove them",
            "line 10, column 3: plugins[3] unheard-of-admitter: the type is unknown, and Pointsman picks without it: remove it, or fix the type",
            "line 15, column 17: dataLayer.sources[1].pluginRef: Pointsman reads metrics from one source, the first: remove the others",
            "line 16, column 18: dataLayer.peerDiscovery: Pointsman shares no state between its replicas: remove it",
            "line 17, column 29: dataLayer.crossReplicaSyncInterval: Pointsman shares no state between its replicas: remove it",
            "line 21, column 5: schedulingProfiles[0].plugins[0] core-metrics-extractor: it has no effect in a profile: remove it there",
        ]
    );
}

#[test]
fn settings_beyond_pointsman_s_limits_and_second_ones() {
    let (config, remarks) = read(&with_head(
        "\
plugins:
- {type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 100000000, maxPrefixTokensToMatch: 1000000}}
- {type: approx-prefix-cache-producer, name: used, parameters: {blockSizeTokens: 256}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: used}}
- {type: session-affinity-scorer, parameters: {strategy: session_id, sessionIdConfig: {sources: [{attribute: agent-identity}]}}}
- {type: inflight-load-producer, parameters: {syncCrossReplicaState: true}}
- {type: inflight-load-producer, name: other, parameters: {addEstimatedOutputTokens: true}}
- {type: random-picker}
- {type: max-score-picker}
- {type: data-parallel-profile-handler, parameters: {primaryPort: 8000}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: prefix-cache-scorer}, {pluginRef: session-affinity-scorer}]}
",
    ));
    assert_eq!(
        remarks,
        [
            "line 4, column 3: plugins[0] approx-prefix-cache-producer: Pointsman matches the first 131072 tokens of a prompt: set \
             `maxPrefixTokensToMatch` to at most that",
            "line 4, column 3: plugins[0] approx-prefix-cache-producer: Pointsman remembers 1048576 blocks of an endpoint: set \
             `lruCapacityPerServer` to at most that",
            "line 4, column 3: plugins[0] approx-prefix-cache-producer: Pointsman remembers prefixes once, by the settings of `used`: remove these",
            "line 7, column 3: plugins[3] session-affinity-scorer: Pointsman has no counterpart of its sources, and picks without it: set a \
             `header`, or remove it",
            "line 7, column 98: plugins[3].parameters.sessionIdConfig.sources[0]: Pointsman has no attribute `agent-identity`: set a `header`",
            "line 8, column 3: plugins[4] inflight-load-producer: Pointsman doesn't share load between its replicas: remove \
             `syncCrossReplicaState`",
            "line 9, column 3: plugins[5] inflight-load-producer: Pointsman counts load once, by the settings of `inflight-load-producer`: remove \
             these",
            "line 12, column 3: plugins[8] data-parallel-profile-handler: Pointsman sends requests to the port of the rank, without \
             `x-data-parallel-host-port`: use `single-profile-handler`",
            "line 14, column 3: schedulingProfiles[0] default: it names no picker, and gets `random-picker`: add the one that you want",
        ]
    );
    assert_eq!(config.prefix.block_tokens, 256);
    assert_eq!(config.profiles.primary().scorers, [scorer(ScorerKind::PREFIX_CACHE, 1.0)]);
    assert_eq!(config.profiles.primary().picker.kind, PickerKind::Random);
}
