//! Texts that nobody would write.

use super::*;
use proptest::{collection::vec, prelude::*, sample::select};

/// Pieces of which most combinations are wrong, and some are right.
const PIECES: [&str; 62] = [
    "apiVersion: llm-d.ai/v1alpha1\n",
    "kind: EndpointPickerConfig\n",
    "plugins:\n",
    "schedulingProfiles:\n",
    "flowControl:\n",
    "featureGates: [flowControl]\n",
    "dataLayer:\n",
    "requestHandler:\n",
    "saturationDetector:\n",
    "- type: queue-scorer\n",
    "- type: prefix-cache-scorer\n",
    "- type: disagg-profile-handler\n",
    "- type: session-affinity-scorer\n",
    "- type: session-id-producer\n",
    "- type: label-selector-filter\n",
    "- type: topology-affinity-filter\n",
    "- type: approx-prefix-cache-producer\n",
    "- type: utilization-detector\n",
    "- type: concurrency-detector\n",
    "- type: metrics-data-source\n",
    "- type: core-metrics-extractor\n",
    "- type: prefix-cache-affinity-filter\n",
    "- type: inflight-load-producer\n",
    "- name: decode\n",
    "- name: prefill\n",
    "- name: default\n",
    "  parameters:\n",
    "  parameters: {}\n",
    "  parameters: {threshold: 1e400}\n",
    "  parameters: {strategy: session_id, sessionIdConfig: {evictionTtlSeconds: 1e9}}\n",
    "  parameters: {headerName: a}\n",
    "  parameters: {maxTTFTPenaltyMs: 1e12}\n",
    "  parameters: {lruCapacityPerServer: 9223372036854775807, maxPrefixTokensToMatch: 0}\n",
    "  parameters: {blockSizeTokens: 9223372036854775807, maxPrefixBlocksToMatch: 9223372036854775807}\n",
    "  parameters: {headroom: 1e308, maxConcurrency: 9223372036854775807}\n",
    "  parameters: {interval: 2562047h}\n",
    "  parameters: {deciders: {prefill: queue-scorer}}\n",
    "  parameters: {stageOrder: prefill-first}\n",
    "  plugins:\n",
    "  - pluginRef: queue-scorer\n",
    "  - pluginRef: prefix-cache-scorer\n",
    "    weight: 2\n",
    "    weight: -0.0\n",
    "    weight: .inf\n",
    "  name: x\n",
    "  maxBytes: 20E\n",
    "  maxRequests: 99999999999999999999999999999999999999999999\n",
    "  defaultRequestTTL: 999999h\n",
    "  priorityBands:\n",
    "  - priority: -9223372036854775808\n",
    "  - priority: 18446744073709551615\n",
    "  defaultPriorityBand: {fairnessPolicyRef: x}\n",
    "  sources: [{pluginRef: x}]\n",
    "  parsers: [{pluginRef: openai-parser}]\n",
    "  pluginRef: utilization-detector\n",
    "a: &a [*a]\n",
    "<<: *a\n",
    "? [x]\n: y\n",
    "\u{0}",
    "---\n",
    "  \t",
    "\u{fe0f}\u{202e}",
];

/// What a configuration is made of.
const TYPES: [&str; 58] = [
    "decode-filter",
    "prefill-filter",
    "encode-filter",
    "label-selector-filter",
    "by-label-selector",
    "by-label",
    "prefix-cache-affinity-filter",
    "queue-scorer",
    "running-requests-size-scorer",
    "kv-cache-utilization-scorer",
    "prefix-cache-scorer",
    "precise-prefix-cache-scorer",
    "lora-affinity-scorer",
    "token-load-scorer",
    "active-request-scorer",
    "load-aware-scorer",
    "session-affinity-scorer",
    "no-hit-lru-scorer",
    "context-length-aware",
    "max-score-picker",
    "random-picker",
    "weighted-random-picker",
    "single-profile-handler",
    "data-parallel-profile-handler",
    "disagg-profile-handler",
    "pd-profile-handler",
    "prefix-based-pd-decider",
    "always-disagg-pd-decider",
    "global-strict-fairness-policy",
    "round-robin-fairness-policy",
    "program-aware-fairness",
    "fcfs-ordering-policy",
    "edf-ordering-policy",
    "slo-deadline-ordering-policy",
    "static-usage-limit-policy",
    "utilization-detector",
    "concurrency-detector",
    "metrics-data-source",
    "core-metrics-extractor",
    "approx-prefix-cache-producer",
    "token-producer",
    "inflight-load-producer",
    "session-id-producer",
    "openai-parser",
    "anthropic-parser",
    "vllmhttp-parser",
    "sglanghttp-parser",
    "vllmgrpc-parser",
    "vertexai-parser",
    "passthrough-parser",
    "topology-affinity-filter",
    "latency-scorer",
    "precise-prefix-cache-producer",
    "disagg-headers-handler",
    "latency-slo-admitter",
    "file-discovery",
    "unknown-plugin",
    "",
];

/// The parameters of all types.
const PARAMETERS: [&str; 70] = [
    "matchLabels",
    "matchExpressions",
    "label",
    "validValues",
    "allowsNoLabel",
    "affinityThreshold",
    "explorationProbability",
    "maxTTFTPenaltyMs",
    "ttftSource",
    "peakPrefillThroughput",
    "prefixMatchInfoProducerName",
    "inFlightLoadProducerName",
    "latencyPredictionInfoProducerName",
    "matchLengthWeight",
    "matchLengthScaleTokens",
    "autoTune",
    "blockSizeTokens",
    "blockSize",
    "hashBlockSize",
    "maxPrefixBlocksToMatch",
    "maxPrefixTokensToMatch",
    "lruCapacityPerServer",
    "queueThresholdTokens",
    "requestTimeout",
    "idleThreshold",
    "maxBusyScore",
    "prefixPluginType",
    "prefixPluginName",
    "lruSize",
    "enableFiltering",
    "maxNumOfEndpoints",
    "promptTokens",
    "nonCachedTokens",
    "syncCrossReplicaState",
    "addEstimatedOutputTokens",
    "outputRatio",
    "maxEstimatedOutputTokens",
    "threshold",
    "queueDepthThreshold",
    "kvCacheUtilThreshold",
    "metricsStalenessThreshold",
    "headroom",
    "maxConcurrency",
    "maxTokenConcurrency",
    "concurrencyMode",
    "scheme",
    "port",
    "interval",
    "clientCertPath",
    "clientKeyPath",
    "path",
    "insecureSkipVerify",
    "caCertPath",
    "engineLabelKey",
    "engineConfigs",
    "defaultEngine",
    "primaryPort",
    "decodeProfile",
    "prefillProfile",
    "deciderPluginName",
    "stageOrder",
    "profiles",
    "deciders",
    "profileName",
    "encodedEndpointHeaderConfig",
    "sessionIdConfig",
    "strategy",
    "headerName",
    "cookieName",
    "header",
];

/// A value, of which a field takes some kinds.
fn value() -> impl Strategy<Value = String> {
    let words: &'static [&str] = &[
        "''",
        "null",
        "~",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "0.5",
        "1.5",
        "5.0",
        "1e3",
        "1e12",
        "1e308",
        "1e400",
        "-0.0",
        ".nan",
        "64",
        "131073",
        "65536",
        "4294967296",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551616",
        "50ms",
        "1m30s",
        "0s",
        "-1s",
        "2562048h",
        "1Gi",
        "500M",
        "20E",
        "1 Gi",
        "https",
        "vllm",
        "sglang",
        "tokens",
        "session_id",
        "encoded_endpoint_header",
        "prefillThroughput",
        "latencyPredictor",
        "prefill-first",
        "decode_first",
        "decode",
        "prefill",
        "default",
        "a/b",
        "\"\\u0000\"",
        "[]",
        "{}",
        "[a, b]",
        "[[1]]",
        "{a: b}",
        "{a: 1}",
        "{prefill: p0}",
        "{prefill: prefix-based-pd-decider}",
        "{decode: decode}",
        "{header: X-A}",
        "{sources: [{header: a}, {attribute: b, producer: p1}], evictionTtlSeconds: 60}",
        "{evictionTtlSeconds: 1e9}",
        "[{key: gpu, operator: In, values: [a]}, {key: b, operator: Exists}]",
        "[{key: gpu, operator: Exists, values: [a]}]",
        "[{key: a}]",
    ];
    prop_oneof![8 => select(words).prop_map(str::to_owned), 1 => reference(), 1 => any::<i64>().prop_map(|number| number.to_string())]
}

/// The name of a plugin that is there, may be there, or is one by its type.
fn reference() -> impl Strategy<Value = String> {
    prop_oneof![4 => (0..6_u8).prop_map(|number| format!("p{number}")), 1 => select(TYPES.to_vec()).prop_map(|name| format!("'{name}'"))]
}

/// An object of some of these fields.
fn object(names: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let field = (select(names), value());
    vec(field, 0..=most).prop_map(|fields| {
        // Most have each field once, as YAML wants it.
        let fields: std::collections::BTreeMap<_, _> = fields.into_iter().collect();
        let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("{{{}}}", fields.join(", "))
    })
}

/// The plugins, most of them with few parameters, since each of another type is an error.
fn plugins() -> impl Strategy<Value = String> {
    let parameters = prop_oneof![3 => Just(None), 2 => object(&PARAMETERS, 1).prop_map(Some), 1 => object(&PARAMETERS, 4).prop_map(Some)];
    vec((select(TYPES.to_vec()), parameters), 0..6).prop_map(|plugins| {
        let line = |(number, (kind, parameters)): (usize, (&str, Option<String>))| {
            let parameters = parameters.map_or_else(String::new, |parameters| format!("\n  parameters: {parameters}"));
            format!("- type: '{kind}'\n  name: p{number}{parameters}\n")
        };
        format!("plugins:\n{}", plugins.into_iter().enumerate().map(line).collect::<String>())
    })
}

fn profiles() -> impl Strategy<Value = String> {
    let weight = prop_oneof![3 => Just(String::new()), 1 => value().prop_map(|value| format!(", weight: {value}"))];
    let plugin = (reference(), weight).prop_map(|(name, weight)| format!("{{pluginRef: {name}{weight}}}"));
    let profile = (select(&["default", "decode", "prefill", "''", "1"][..]), vec(plugin, 0..4));
    vec(profile, 0..3).prop_map(|profiles| {
        let line = |(name, plugins): (&str, Vec<String>)| format!("- name: {name}\n  plugins: [{}]\n", plugins.join(", "));
        format!("schedulingProfiles:\n{}", profiles.into_iter().map(line).collect::<String>())
    })
}

/// The sections beside these.
fn section() -> impl Strategy<Value = String> {
    const BAND: [&str; 6] = ["priority", "maxBytes", "maxRequests", "fairnessPolicyRef", "orderingPolicyRef", "x"];
    const FLOW: [&str; 8] = [
        "maxBytes",
        "maxRequests",
        "defaultRequestTTL",
        "noEndpointRequestTTL",
        "usageLimitPolicyPluginRef",
        "enableEviction",
        "saturationDetector",
        "x",
    ];
    let band = || object(&BAND, 3);
    let flow = (object(&FLOW, 2), vec(band(), 0..3), band()).prop_map(|(fields, bands, default)| {
        let fields = fields.trim_start_matches('{').trim_end_matches('}').to_owned();
        let bands = format!("priorityBands: [{}], defaultPriorityBand: {default}", bands.join(", "));
        format!("flowControl: {{{bands}{}{fields}}}\n", if fields.is_empty() { "" } else { ", " })
    });
    let gates = select(&["[flowControl]", "['flowControl=false', x]", "['flowControl=2']", "[1]", "{}"][..]);
    prop_oneof![
        2 => flow,
        1 => gates.prop_map(|gates| format!("featureGates: {gates}\n")),
        1 => reference().prop_map(|name| format!("saturationDetector: {{pluginRef: {name}}}\n")),
        1 => (reference(), reference())
            .prop_map(|(source, extractor)| format!("dataLayer: {{sources: [{{pluginRef: {source}, extractors: [{{pluginRef: {extractor}}}]}}]}}\n")),
        1 => reference().prop_map(|name| format!("requestHandler: {{parsers: [{{pluginRef: {name}}}]}}\n")),
        1 => (select(&["dataLayer", "data", "parser", "flowControl", "plugins", "x"][..]), value()).prop_map(|(name, value)| format!("{name}: {value}\n")),
    ]
}

/// Whether a place is in a text: at most behind the end of its line.
fn is_within(text: &str, place: Place) -> bool {
    let mut lines = text.lines().chain([""]);
    let line = usize::try_from(place.line).ok().and_then(|line| lines.nth(line.checked_sub(1)?));
    line.is_some_and(|line| (1..=line.chars().count() as u64 + 1).contains(&place.column))
}

/// Reads a text, of which all errors and remarks must have a place in it, and what is read be within its limits.
fn check(text: &str) -> Result<bool, TestCaseError> {
    match PickerConfig::read(text) {
        Ok((config, remarks)) => {
            prop_assert!(config.prefix.block_tokens >= 64 && config.prefix.max_tokens <= 131_072);
            let profiles = [Some(config.profiles.primary()), config.profiles.prefill()];
            let mut scorers = profiles.into_iter().flatten().flat_map(|profile| &profile.scorers);
            prop_assert!(scorers.all(|scorer| scorer.weight.is_finite() && scorer.weight >= 0.0));
            prop_assert!(!config.scrape.interval.is_zero() && !config.parsers.is_empty());
            prop_assert!(config.flow_control.is_none_or(|flow_control| flow_control.ceiling.is_finite() && flow_control.ceiling >= 0.0));
            prop_assert!(remarks.is_sorted_by_key(|remark| remark.place));
            for remark in remarks {
                prop_assert!(is_within(text, remark.place) && !remark.message.is_empty(), "{remark}");
            }
            Ok(true)
        }
        Err(ConfigError::Yaml { place, message } | ConfigError::Invalid { place, message }) => {
            prop_assert!(is_within(text, place) && !message.is_empty(), "{place}: {message}");
            Ok(false)
        }
        Err(ConfigError::TooLarge { .. }) => Err(TestCaseError::fail("it isn't large")),
    }
}

/// A few of them by default, and many with `--full`.
fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 100_000 } else { 300 })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_text_panics(text in ".{0,400}") {
        _ = PickerConfig::read(&text);
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..400)) {
        _ = PickerConfig::read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_mixture_of_known_fields_panics_and_places_are_in_the_text(pieces in vec(select(PIECES.to_vec()), 0..40), has_head in any::<bool>()) {
        check(&format!("{}{}", if has_head { HEAD } else { "" }, pieces.concat()))?;
    }

    #[test]
    fn a_configuration_of_known_plugins_is_read_or_refused_with_a_place(plugins in plugins(), profiles in profiles(), sections in vec(section(), 0..3)) {
        let mut sections = [vec![plugins, profiles], sections].concat();
        sections.dedup_by_key(|section| section.split(':').next().map(str::to_owned));
        check(&format!("{HEAD}{}", sections.concat()))?;
    }
}
