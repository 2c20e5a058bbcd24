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

proptest! {
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
        let text = format!("{}{}", if has_head { HEAD } else { "" }, pieces.concat());
        let lines = text.lines().count() as u64 + 1;
        match PickerConfig::read(&text) {
            Ok((config, remarks)) => {
                prop_assert!(config.prefix.block_tokens >= 64 && config.prefix.max_tokens <= 131_072);
                prop_assert!(config.profiles.primary().scorers.iter().all(|scorer| scorer.weight.is_finite() && scorer.weight >= 0.0));
                prop_assert!(remarks.is_sorted_by_key(|remark| remark.place));
                prop_assert!(remarks.iter().all(|remark| (1..=lines).contains(&remark.place.line)));
            }
            Err(ConfigError::Yaml { place, .. } | ConfigError::Invalid { place, .. }) => prop_assert!((1..=lines).contains(&place.line), "{place} of {lines}"),
            Err(ConfigError::TooLarge { .. }) => prop_assert!(false),
        }
    }
}
