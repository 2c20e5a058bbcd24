//! Configurations that are rejected.

use super::*;

#[test]
fn a_filter_that_a_profile_uses_must_have_a_counterpart() {
    let with = |plugin: &str, profiles: &str| refusal(&with_head(&format!("plugins:\n- {{{plugin}}}\n{profiles}")));
    let used = "schedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: it\n";
    for filter in [
        "topology-affinity-filter",
        "session-affinity-filter",
        "endpoint-attribute-filter",
        "utilization-filter",
        "slo-headroom-tier-filter",
    ] {
        assert_eq!(
            with(&format!("type: {filter}, name: it"), used),
            "line 8, column 5: `schedulingProfiles[0].plugins[0]` it is a filter without counterpart: remove it if requests may go to the \
             endpoints that it excludes"
        );
    }
    assert_eq!(
        with("type: topology-affinity-filter", ""),
        "line 4, column 3: `plugins[0]` topology-affinity-filter is a filter without counterpart: remove it if requests may go to the endpoints \
         that it excludes",
        "without profiles, all plugins take part"
    );
    assert_eq!(
        with("type: company-filter, name: it", used),
        "line 8, column 5: `schedulingProfiles[0].plugins[0]` it is of an unknown type and may be a filter: remove it if requests may go to the \
         endpoints that it excludes"
    );
    assert_eq!(
        with("type: prefix-cache-affinity-filter, name: it, parameters: {ttftSource: latencyPredictor}", used),
        "line 8, column 5: `schedulingProfiles[0].plugins[0]` it is a filter without counterpart: remove it if requests may go to the endpoints \
         that it excludes"
    );
}

#[test]
fn so_must_whatever_else_decides_where_requests_go() {
    let with = |rest: &str| refusal(&with_head(rest));
    assert_eq!(
        with("plugins:\n- type: disaggregatedset-rollout-screener"),
        "line 4, column 3: `plugins[0]` is `disaggregatedset-rollout-screener`, which has no counterpart: remove it if requests may go to the \
         endpoints that it excludes"
    );
    assert_eq!(
        with("plugins:\n- type: header-profile-handler"),
        "line 4, column 3: `plugins[0]` is `header-profile-handler`, which has no counterpart: use `single-profile-handler` or \
         `disagg-profile-handler`"
    );
    assert_eq!(
        with("plugins: [{type: file-discovery}]\ndataLayer:\n  discovery: {pluginRef: file-discovery}"),
        "line 5, column 14: `dataLayer.discovery` has no counterpart: remove it if requests may go to the endpoints of the InferencePool"
    );
}

#[test]
fn each_mistake_is_reported_at_its_place() {
    for (rest, message) in [
        ("plugin: []", "line 3, column 1: `plugin` is an unknown field: remove it"),
        ("Plugins: []", "line 3, column 1: `Plugins` is an unknown field: write `plugins`"),
        ("plugins: {}", "line 3, column 10: `plugins` is an object: write a list"),
        ("plugins:\n- name: x", "line 4, column 3: `plugins[0].type` is missing: set it"),
        ("plugins:\n- type: ''", "line 4, column 9: `plugins[0].type` is empty: set it"),
        (
            "plugins:\n- type: queue-scorer\n- type: load-aware-scorer\n  name: queue-scorer",
            "line 5, column 9: `plugins[1]` has the name `queue-scorer`, which another plugin has: set another `name`",
        ),
        (
            "plugins:\n- type: load-aware-scorer\n  parameters:\n    treshold: 3",
            "line 6, column 5: `plugins[0].parameters.treshold` is an unknown field: remove it",
        ),
        (
            "plugins:\n- type: load-aware-scorer\n  parameters: {threshold: '3'}",
            "line 5, column 27: `plugins[0].parameters.threshold` is a string: write an integer",
        ),
        (
            "plugins:\n- {type: active-request-scorer, parameters: {maxBusyScore: 1.5}}",
            "line 4, column 60: `plugins[0].parameters.maxBusyScore` is 1.5: set a number from 0 to 1",
        ),
        (
            "plugins:\n- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: -1}}",
            "line 4, column 65: `plugins[0].parameters.nonCachedTokens` is -1: set an integer that is at least 0",
        ),
        (
            "plugins:\n- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: nobody}}",
            "line 4, column 73: `plugins[0].parameters.prefixMatchInfoProducerName` names `nobody`, which `plugins` doesn't have: add it there, or \
             remove the reference",
        ),
        (
            "plugins:\n- {type: label-selector-filter, parameters: {matchExpressions: [{key: gpu, operator: Has}]}}",
            "line 4, column 86: `plugins[0].parameters.matchExpressions[0].operator` is `Has`: set `In`, `NotIn`, `Exists` or `DoesNotExist`",
        ),
        (
            "plugins:\n- {type: label-selector-filter, parameters: {matchLabels: {spot: true}}}",
            "line 4, column 66: `plugins[0].parameters.matchLabels.spot` is a boolean: write a string, in quotes if it looks otherwise",
        ),
        (
            "plugins:\n- {type: metrics-data-source, parameters: {port: 70000}}",
            "line 4, column 50: `plugins[0].parameters.port` is 70000: set a port from 1 to 65535",
        ),
        (
            "plugins:\n- {type: metrics-data-source, parameters: {interval: 50}}",
            "line 4, column 54: `plugins[0].parameters.interval` is an integer: write a string, in quotes if it looks otherwise",
        ),
        (
            "plugins:\n- type: single-profile-handler\n- type: disagg-profile-handler",
            "line 5, column 3: `plugins[1] disagg-profile-handler` is a second profile handler: remove one",
        ),
        (
            "plugins:\n- {type: disagg-profile-handler, parameters: {deciders: {prefill: nobody}}}\nschedulingProfiles: [{name: decode}]",
            "line 4, column 67: `plugins[0].parameters.deciders.prefill` names `nobody`, which `plugins` doesn't have: add it there, or name \
             another decider",
        ),
        (
            "plugins:\n- {type: disagg-profile-handler, parameters: {deciderPluginName: x, profiles: {decode: d}}}",
            "line 4, column 69: `plugins[0].parameters.profiles` is an unknown field: remove it",
        ),
        (
            "featureGates: [flowControl=maybe]",
            "line 3, column 16: `featureGates[0]` is `flowControl=maybe`: set `flowControl=true` or `flowControl=false`",
        ),
        (
            "flowControl: {defaultRequestTTL: -1s}",
            "line 3, column 34: `flowControl.defaultRequestTTL` is `-1s`: set a duration that isn't negative, such as `500ms` or `1m30s`",
        ),
        (
            "flowControl: {maxBytes: 1 Gi}",
            "line 3, column 25: `flowControl.maxBytes` is `1 Gi`: set a quantity that isn't negative, such as `1Gi` or `500`",
        ),
        (
            "flowControl: {priorityBands: [{priority: 1}, {priority: 1}]}",
            "line 3, column 46: `flowControl.priorityBands[1]` has the priority 1 of another band: set another `priority`",
        ),
        (
            "flowControl: {defaultPriorityBand: {fairnessPolicyRef: round-robin-fairness-policy}}",
            "line 3, column 56: `flowControl.defaultPriorityBand.fairnessPolicyRef` names `round-robin-fairness-policy`, which `plugins` doesn't \
             have: add it there, or remove the reference",
        ),
        (
            "plugins: [{type: queue-scorer}]\nflowControl: {saturationDetector: {pluginRef: queue-scorer}}",
            "line 4, column 47: `flowControl.saturationDetector.pluginRef` names `queue-scorer`, which isn't a saturation detector: name one, such \
             as `utilization-detector`",
        ),
        (
            "requestHandler: {parsers: [{pluginRef: my-parser}]}",
            "line 3, column 40: `requestHandler.parsers[0].pluginRef` names `my-parser`, which `plugins` doesn't have: add it there, or remove the reference",
        ),
    ] {
        assert_eq!(refusal(&with_head(rest)), message);
    }
}

#[test]
fn mistakes_in_profiles_are_reported_at_their_place() {
    let plugins = "plugins: [{type: queue-scorer}, {type: max-score-picker}, {type: random-picker}]\nschedulingProfiles:\n";
    for (profiles, message) in [
        ("- plugins: []", "line 5, column 3: `schedulingProfiles[0].name` is missing: set it"),
        ("- name: a\n- name: a", "line 6, column 9: `schedulingProfiles[1].name` is `a`, as of another profile: set another name"),
        (
            "- name: a\n- name: b",
            "line 6, column 3: `schedulingProfiles[1]` is a second profile, and only one runs: add `disagg-profile-handler`, or remove a profile",
        ),
        (
            "- name: a\n  plugins:\n  - pluginRef: queue-score",
            "line 7, column 16: `schedulingProfiles[0].plugins[0].pluginRef` names `queue-score`, which `plugins` doesn't have: add it there, or \
             remove the reference",
        ),
        (
            "- {name: a, plugins: [{pluginRef: queue-scorer, weight: -1}]}",
            "line 5, column 57: `schedulingProfiles[0].plugins[0].weight` is -1: set a number from 0 to 1000000000000",
        ),
        (
            "- {name: a, plugins: [{pluginRef: queue-scorer, weight: .nan}]}",
            "line 5, column 57: the YAML can't be read: value `.nan` is not a finite number",
        ),
        (
            "- {name: a, plugins: [{pluginRef: max-score-picker}, {pluginRef: random-picker}]}",
            "line 5, column 54: `schedulingProfiles[0].plugins[1]` is a second picker of its profile: remove one",
        ),
    ] {
        assert_eq!(refusal(&with_head(&format!("{plugins}{profiles}"))), message);
    }
    assert_eq!(
        refusal(&with_head("plugins: [{type: disagg-profile-handler}]\nschedulingProfiles:\n- {name: default, plugins: []}")),
        "line 5, column 3: `schedulingProfiles` has no `decode`, which the profile handler runs: add it"
    );
}

#[test]
fn what_is_no_configuration_is_refused() {
    assert_eq!(refusal("[]"), "line 1, column 1: this is a list: write an `EndpointPickerConfig`");
    assert_eq!(refusal("kind: EndpointPickerConfig"), "line 1, column 1: `apiVersion` is missing: set it");
    assert_eq!(
        refusal("apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig"),
        "line 1, column 13: `apiVersion` is `llm-d.ai/v1`: set `llm-d.ai/v1alpha1`"
    );
    assert_eq!(refusal("apiVersion: llm-d.ai/v1alpha1\nkind: Pod"), "line 2, column 7: `kind` is `Pod`: set `EndpointPickerConfig`");
    assert!(refusal("plugins: [").starts_with("line 1, column 10: the YAML can't be read: unclosed bracket"), "{}", refusal("plugins: ["));
    let twice = refusal(&with_head("plugins: []\nplugins: []"));
    assert!(twice.starts_with("line 4, column 1: the YAML can't be read: duplicate"), "{twice}");
    let two = refusal("a: 1\n---\nb: 2\n");
    assert!(two.starts_with("line 3, column 1: the YAML can't be read: only single YAML document"), "{two}");
}

#[test]
fn what_is_too_large_is_refused() {
    let text = "#".repeat(MAX_TEXT + 1);
    assert_eq!(refusal(&text), "the configuration has 262145 bytes; the limit is 262144: shorten it");
    let entries = |count: usize, entry: &dyn Fn(usize) -> String| (0..count).map(entry).collect::<Vec<_>>().concat();
    let plugins = entries(MAX_PLUGINS + 1, &|number| format!("- {{type: queue-scorer, name: q{number}}}\n"));
    let too_many = refusal(&with_head(&format!("plugins:\n{plugins}")));
    assert_eq!(too_many, "line 4, column 3: `plugins` has 257 entries; the limit is 256: remove some");
    let profiles = entries(MAX_PROFILES + 1, &|number| format!("- name: p{number}\n"));
    let too_many = refusal(&with_head(&format!("schedulingProfiles:\n{profiles}")));
    assert_eq!(too_many, "line 4, column 3: `schedulingProfiles` has 17 entries; the limit is 16: remove some");
    let bands = entries(MAX_BANDS + 1, &|number| format!("  - priority: {number}\n"));
    let too_many = refusal(&with_head(&format!("flowControl:\n  priorityBands:\n{bands}")));
    assert_eq!(too_many, "line 5, column 5: `flowControl.priorityBands` has 65 entries; the limit is 64: remove some");
    assert!(refusal(&"[".repeat(10_000)).contains("the YAML can't be read"));
    // Ten levels with ten aliases each.
    let aliases = entries(9, &|level| format!("a{}: &a{0} [{}]\n", level + 1, vec![format!("*a{level}"); 10].join(", ")));
    assert!(refusal(&format!("a0: &a0 [x]\n{aliases}")).contains("the YAML can't be read"));
}
