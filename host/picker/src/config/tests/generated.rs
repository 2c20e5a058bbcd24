//! Generated configurations that no user would write.

use super::*;
use proptest::{collection::vec, prelude::*, sample::select};

/// Pieces. Most combinations of them are invalid, some are valid.
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

/// The types of plugins with their parameters.
const TYPES: [(&str, &[&str]); 55] = [
    ("decode-filter", &[]),
    ("prefill-filter", &[]),
    ("encode-filter", &[]),
    ("label-selector-filter", &["matchLabels", "matchExpressions"]),
    ("by-label-selector", &["matchLabels"]),
    ("by-label", &["label", "validValues", "allowsNoLabel"]),
    (
        "prefix-cache-affinity-filter",
        &[
            "affinityThreshold",
            "explorationProbability",
            "maxTTFTPenaltyMs",
            "ttftSource",
            "peakPrefillThroughput",
            "prefixMatchInfoProducerName",
        ],
    ),
    ("queue-scorer", &[]),
    ("running-requests-size-scorer", &[]),
    ("kv-cache-utilization-scorer", &[]),
    (
        "prefix-cache-scorer",
        &[
            "prefixMatchInfoProducerName",
            "matchLengthWeight",
            "matchLengthScaleTokens",
            "hashBlockSize",
            "maxPrefixBlocksToMatch",
            "lruCapacityPerServer",
        ],
    ),
    ("precise-prefix-cache-scorer", &["x"]),
    ("lora-affinity-scorer", &[]),
    ("token-load-scorer", &["queueThresholdTokens", "inFlightLoadProducerName"]),
    ("active-request-scorer", &["requestTimeout", "idleThreshold", "maxBusyScore"]),
    ("load-aware-scorer", &["threshold"]),
    ("session-affinity-scorer", &["profileName", "encodedEndpointHeaderConfig", "sessionIdConfig", "strategy"]),
    ("no-hit-lru-scorer", &["lruSize", "prefixPluginName"]),
    ("context-length-aware", &["label", "enableFiltering"]),
    ("max-score-picker", &["maxNumOfEndpoints"]),
    ("random-picker", &["maxNumOfEndpoints"]),
    ("weighted-random-picker", &["maxNumOfEndpoints"]),
    ("single-profile-handler", &[]),
    ("data-parallel-profile-handler", &["primaryPort"]),
    ("disagg-profile-handler", &["stageOrder", "profiles", "deciders", "decodeProfile", "deciderPluginName"]),
    ("pd-profile-handler", &["decodeProfile", "prefillProfile", "deciderPluginName", "primaryPort"]),
    ("prefix-based-pd-decider", &["promptTokens", "nonCachedTokens"]),
    ("always-disagg-pd-decider", &[]),
    ("global-strict-fairness-policy", &[]),
    ("round-robin-fairness-policy", &[]),
    ("program-aware-fairness", &["x"]),
    ("fcfs-ordering-policy", &[]),
    ("edf-ordering-policy", &[]),
    ("slo-deadline-ordering-policy", &[]),
    ("static-usage-limit-policy", &["threshold"]),
    ("utilization-detector", &["queueDepthThreshold", "kvCacheUtilThreshold", "metricsStalenessThreshold", "headroom"]),
    ("concurrency-detector", &["maxConcurrency", "maxTokenConcurrency", "concurrencyMode", "headroom"]),
    ("metrics-data-source", &["scheme", "port", "interval", "clientCertPath", "clientKeyPath", "path", "insecureSkipVerify", "caCertPath"]),
    ("core-metrics-extractor", &["engineLabelKey", "engineConfigs", "defaultEngine"]),
    (
        "approx-prefix-cache-producer",
        &["autoTune", "blockSizeTokens", "blockSize", "maxPrefixBlocksToMatch", "maxPrefixTokensToMatch", "lruCapacityPerServer"],
    ),
    ("token-producer", &["x"]),
    ("inflight-load-producer", &["addEstimatedOutputTokens", "outputRatio", "maxEstimatedOutputTokens", "syncCrossReplicaState"]),
    ("session-id-producer", &["headerName", "cookieName"]),
    ("openai-parser", &[]),
    ("sglanghttp-parser", &[]),
    ("vllmgrpc-parser", &[]),
    ("passthrough-parser", &[]),
    ("topology-affinity-filter", &["x"]),
    ("latency-scorer", &["x"]),
    ("precise-prefix-cache-producer", &["x"]),
    ("disagg-headers-handler", &[]),
    ("latency-slo-admitter", &[]),
    ("file-discovery", &[]),
    ("unknown-plugin", &[]),
    ("", &[]),
];

/// Valid values of a field. Invalid ones are mixed in later.
fn values(name: &str) -> &'static [&'static str] {
    match name {
        "allowsNoLabel"
        | "enableFiltering"
        | "autoTune"
        | "insecureSkipVerify"
        | "addEstimatedOutputTokens"
        | "syncCrossReplicaState"
        | "enableEviction" => &["true", "false"],
        "requestTimeout" | "metricsStalenessThreshold" | "interval" | "defaultRequestTTL" | "noEndpointRequestTTL" => {
            &["50ms", "1m30s", "0s", "-1s", "2562047h", "''"]
        }
        "matchLabels" => &["{a: b}", "{a: 1}", "{}"],
        "matchExpressions" => &[
            "[{key: gpu, operator: In, values: [a]}, {key: b, operator: Exists}]",
            "[{key: gpu, operator: Exists, values: [a]}]",
            "[{key: a}]",
        ],
        "validValues" => &["[a, b]", "[]"],
        "ttftSource" => &["prefillThroughput", "latencyPredictor"],
        "strategy" => &["session_id", "encoded_endpoint_header"],
        "encodedEndpointHeaderConfig" => &["{header: X-A}", "{}"],
        "sessionIdConfig" => &[
            "{sources: [{header: a}, {attribute: b, producer: p1}], evictionTtlSeconds: 60}",
            "{evictionTtlSeconds: 1e9}",
            "{sources: [{}]}",
        ],
        "stageOrder" => &["prefill-first", "decode_first", "''"],
        "profiles" => &["{decode: decode}", "{prefill: default}", "{}"],
        "deciders" => &["{prefill: p0}", "{prefill: prefix-based-pd-decider}", "{encode: p1}"],
        "concurrencyMode" => &["requests", "tokens"],
        "scheme" => &["http", "https"],
        "defaultEngine" => &["vllm", "sglang", "other"],
        "maxBytes" | "maxRequests" => &["1Gi", "500M", "20E", "0", "1.5", "-1"],
        "priority" => &["0", "1", "-10", "9223372036854775807"],
        "label" | "header" | "headerName" | "cookieName" | "path" | "profileName" | "clientCertPath" | "clientKeyPath" | "caCertPath"
        | "engineLabelKey" | "prefixPluginName" => &["a/b", "'1'", "''"],
        name if name.ends_with("Name") || name.ends_with("Ref") || name.ends_with("Profile") => {
            &["p0", "p1", "decode", "default", "''", "prefix-based-pd-decider", "approx-prefix-cache-producer", "inflight-load-producer"]
        }
        "engineConfigs" | "x" => &["{}", "[[1]]", "1"],
        _ => &["0", "1", "5.0", "0.5", "64", "131073", "1e12", "9223372036854775807", "-1"],
    }
}

/// Any value. A field accepts some kinds.
fn value() -> impl Strategy<Value = String> {
    let words: &'static [&str] = &[
        "''",
        "null",
        "~",
        "true",
        "0",
        "-1",
        "1.5",
        "1e308",
        "1e400",
        "-0.0",
        ".nan",
        "4294967296",
        "-9223372036854775808",
        "18446744073709551616",
        "1 Gi",
        "a/b",
        "\"\\u0000\"",
        "[]",
        "{}",
        "[a, b]",
        "[[1]]",
        "{a: b}",
    ];
    prop_oneof![4 => select(words).prop_map(str::to_owned), 1 => reference(), 1 => any::<i64>().prop_map(|number| number.to_string())]
}

/// The name of a plugin that is declared, may be declared, or is a type that may be used without a declaration.
fn reference() -> impl Strategy<Value = String> {
    let types = select(TYPES.to_vec()).prop_map(|(name, _)| format!("'{name}'"));
    prop_oneof![24 => (0..3_u8).prop_map(|number| format!("p{number}")), 1 => (3..7_u8).prop_map(|number| format!("p{number}")), 1 => types]
}

/// An object with some of these fields.
fn object(names: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let field = select(names).prop_flat_map(|name| {
        let known = select(values(name)).prop_map(str::to_owned);
        (Just(name), prop_oneof![9 => known, 1 => value()])
    });
    vec(field, 0..=most).prop_map(|fields| {
        // Each field occurs at most once, as YAML requires.
        let fields: std::collections::BTreeMap<_, _> = fields.into_iter().collect();
        let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("{{{}}}", fields.join(", "))
    })
}

fn plugins() -> impl Strategy<Value = String> {
    let plugin = select(TYPES.to_vec()).prop_flat_map(|(kind, parameters)| {
        let all = if parameters.is_empty() { &["x"] } else { parameters };
        let weight = if parameters.is_empty() { 1 } else { 9 };
        (Just(kind), prop_oneof![9 => Just(None), weight => object(all, 3).prop_map(Some)])
    });
    prop_oneof![1 => vec(plugin.clone(), 0..3), 6 => vec(plugin, 3..7)].prop_map(|plugins| {
        let line = |(number, (kind, parameters)): (usize, (&str, Option<String>))| {
            let parameters = parameters.map_or_else(String::new, |parameters| format!("\n  parameters: {parameters}"));
            format!("- type: '{kind}'\n  name: p{number}{parameters}\n")
        };
        format!("plugins:\n{}", plugins.into_iter().enumerate().map(line).collect::<String>())
    })
}

fn profiles() -> impl Strategy<Value = String> {
    let weights = prop_oneof![4 => select(&["2", "0", "0.5", "1e12"][..]).prop_map(str::to_owned), 1 => value()];
    let weight = prop_oneof![2 => Just(String::new()), 1 => weights.prop_map(|value| format!(", weight: {value}"))];
    let plugin = (reference(), weight).prop_map(|(name, weight)| format!("{{pluginRef: {name}{weight}}}"));
    let names: &'static [&[&str]] = &[&["default"], &["decode", "prefill"], &[], &["default", "default"], &["''"], &["1", "decode"]];
    let names = prop_oneof![6 => select(&names[..3]), 1 => select(names)];
    (names, vec(vec(plugin, 0..4), 2)).prop_map(|(names, plugins)| {
        let line = |(name, plugins): (&&str, Vec<String>)| format!("- name: {name}\n  plugins: [{}]\n", plugins.join(", "));
        format!("schedulingProfiles:\n{}", names.iter().zip(plugins).map(line).collect::<String>())
    })
}

/// The other sections of the document.
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

/// Whether a position is in a text: at most after the end of its line.
fn is_within(text: &str, place: Place) -> bool {
    let mut lines = text.lines().chain([""]);
    let line = usize::try_from(place.line).ok().and_then(|line| lines.nth(line.checked_sub(1)?));
    line.is_some_and(|line| (1..=line.chars().count() as u64 + 1).contains(&place.column))
}

/// Parses a text. All errors and remarks must have a position in it, and the result must be within its limits.
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

/// Few cases by default, many with `--full`.
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
