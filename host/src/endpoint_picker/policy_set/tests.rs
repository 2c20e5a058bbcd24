use super::*;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use pointsman_sandbox::point::Entry;
use serde_json::{Value, json};

fn selection(value: Value) -> Selection {
    serde_json::from_value(value).unwrap()
}

/// A plugin that can't be loaded.
fn missing(name: &str, order: i32, change: impl FnOnce(&mut PolicySetPlugin)) -> LoadedPlugin {
    let mut active =
        PolicySetPlugin { name: name.to_owned(), order, points: vec![PolicyPoint::SchedulingScoring], weight: 1, ..Default::default() };
    change(&mut active);
    let recorded = Recorded {
        active,
        at: Time(Timestamp::UNIX_EPOCH),
        signature: None,
        strategy: None,
        previous: None,
        origin: crate::keeper::record::Origin::default(),
    };
    LoadedPlugin { recorded, policy: Err("no revision".to_owned()), previous: None }
}

fn pool() -> Subject {
    let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
    Subject {
        group: "inference.networking.k8s.io".to_owned(),
        kind: "InferencePool".to_owned(),
        namespace: "models".to_owned(),
        name: "llama".to_owned(),
        labels: vec![entry("tier", "gold")],
        namespace_labels: vec![entry(NAMESPACE_NAME, "models")],
        ..Subject::default()
    }
}

/// The plugins that score for the pool, from a set of one plugin with this selection; or why there are none.
fn outcome(selected: Value) -> Result<Vec<String>, String> {
    let set = LoadedSet::new("sha256:1", vec![missing("a", 1, |bound| bound.selection = Some(selection(selected)))]);
    set.for_pool(&pool()).map(|scorers| scorers.plugins().map(str::to_owned).collect())
}

#[test]
fn a_plugin_that_selects_the_pool_and_cannot_be_loaded_is_named_and_others_do_not_matter() {
    let fails = Err("the plugin a can't be loaded: no revision".to_owned());
    for selected in [
        json!({}),
        json!({"kinds": [{"group": "inference.networking.k8s.io", "kind": "InferencePool"}]}),
        json!({"objectSelector": {"matchLabels": {"tier": "gold"}}}),
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "models"}}}),
    ] {
        assert_eq!(outcome(selected.clone()), fails, "{selected}");
    }
    for selected in [
        json!({"kinds": [{"group": "ome.io", "kind": "*"}]}),
        json!({"objectSelector": {"matchLabels": {"tier": "lead"}}}),
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "others"}}}),
    ] {
        assert_eq!(outcome(selected.clone()), Ok(Vec::new()), "{selected}");
    }
}

#[test]
fn the_built_in_policy_is_the_profile_s_own_scorers_unless_another_replaces_it() {
    let own = |plugins: Vec<LoadedPlugin>| LoadedSet::new("sha256:1", plugins).for_pool(&pool()).map(|scorers| scorers.own);
    let builtin = || missing("scheduling-scoring", 0, |bound| bound.weight = 3);
    assert_eq!(own(vec![builtin()]), Ok(Some(3.0)));
    assert_eq!(own(Vec::new()), Ok(None));
    // A plugin that isn't called may be missing: the last one that replaces others is called.
    let replaces = |name: &str, order: i32| missing(name, order, |bound| bound.mode = PluginMode::Replace);
    let fails = own(vec![missing("a", 1, |_| ()), builtin(), replaces("b", 2)]);
    assert_eq!(fails, Err("the plugin b can't be loaded: no revision".to_owned()));
    // A plugin that uses no features of endpoints replaces none here.
    let elsewhere = LoadedPlugin { policy: Ok(None), ..replaces("b", 2) };
    assert_eq!(own(vec![builtin(), elsewhere]), Ok(Some(3.0)));
}

#[test]
fn a_request_waits_for_a_limited_number_of_plugins() {
    let plugins = |number: usize| (0..number).map(|at| missing(&format!("p{at}"), 1, |_| ())).collect();
    let says = |number: usize| LoadedSet::new("sha256:1", plugins(number)).for_pool(&pool()).map(drop).unwrap_err();
    assert!(says(MAX_PLUGINS_PER_POOL).contains("can't be loaded"));
    assert_eq!(says(MAX_PLUGINS_PER_POOL + 1), "17 plugins select the pool; the limit is 16: narrow their match");
}

#[test]
fn only_the_name_of_a_namespace_is_known() {
    for (selected, needs) in [
        (json!({}), false),
        (json!({"objectSelector": {"matchLabels": {"team": "a"}}}), false),
        (json!({"namespaceSelector": {}}), false),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a"}}}), false),
        (json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}), true),
        (json!({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}), true),
    ] {
        assert_eq!(needs_namespace(&selection(selected.clone())), needs, "{selected}");
    }
}
