//! The plugins and rules of a set: their versions, the sets and users that introduced them, and their services.

use crate::cli::output::columns;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::LabelSelector, jiff::Timestamp};
use kube::Resource;
use pointsman_crds::policy::{
    plugin::PolicyPlugin,
    rule::ValidationRule,
    selection::Selection,
    set::{PolicySet, PolicySetOrigin},
};

/// One line per member. The time of its introduction is known while that set is retained.
pub(super) fn members(set: &PolicySet, all: &[PolicySet]) -> String {
    let row = |kind: &str, name: &str, version: String, digest: &str, services: String| {
        let origin = set.spec.origins.iter().find(|origin| origin.kind == kind && origin.name == name);
        let (number, since, by) = origin.map(|origin| told(origin, all)).unwrap_or_default();
        [name.to_owned(), version, digest.get(..19).unwrap_or(digest).to_owned(), number, since, by, services]
    };
    let plugins = set.spec.plugins.iter().map(|plugin| {
        let services = services(plugin.selection.as_ref(), plugin.match_conditions.len());
        row(&PolicyPlugin::kind(&()), &plugin.name, plugin.version.clone().unwrap_or_default(), &plugin.digest, services)
    });
    let rules = set.spec.rules.iter().filter(|rule| rule.spec.enabled).map(|rule| {
        let services = services(rule.spec.selection.as_ref().map(|selection| &selection.objects), rule.spec.match_conditions.len());
        row(&ValidationRule::kind(&()), &rule.name, "rule".to_owned(), &rule.digest, services)
    });
    columns(["PLUGIN", "VERSION", "DIGEST", "SET", "SINCE", "BY", "SERVICES"], &plugins.chain(rules).collect::<Vec<_>>())
}

/// The set that introduced a version, its time, and the user.
fn told(origin: &PolicySetOrigin, all: &[PolicySet]) -> (String, String, String) {
    let brought = all.iter().find(|set| origin.set.is_some() && set.spec.number == origin.set);
    let first: Option<Timestamp> = brought.and_then(|set| Some(set.status.as_ref()?.activations.first()?.at.0));
    let number = origin.set.map(|number| format!("#{number}")).unwrap_or_default();
    (number, first.map(|first| first.to_string()).unwrap_or_default(), origin.by.clone().unwrap_or_default())
}

/// The services that a member applies to.
fn services(selection: Option<&Selection>, conditions: usize) -> String {
    let labels = |what: &str, selector: Option<&LabelSelector>| {
        let selector = selector?;
        let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
        let expressions = selector.match_expressions.iter().flatten();
        let others = expressions.map(|each| match &each.values {
            Some(values) if !values.is_empty() => format!("{} {} ({})", each.key, each.operator, values.join(", ")),
            _ => format!("{} {}", each.key, each.operator),
        });
        let all: Vec<String> = equal.chain(others).collect();
        (!all.is_empty()).then(|| format!("{what}{}", all.join(", ")))
    };
    let kinds = selection.map(|selection| selection.kinds.iter().map(|kind| kind.kind.clone()).collect::<Vec<_>>()).unwrap_or_default();
    let parts = [
        (!kinds.is_empty()).then(|| kinds.join(", ")),
        labels("", selection.and_then(|selection| selection.object_selector.as_ref())),
        labels("namespaces with ", selection.and_then(|selection| selection.namespace_selector.as_ref())),
        (conditions > 0).then(|| format!("matchConditions: {conditions}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_member_has_its_version_when_and_by_whom_it_came_and_for_which_services() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let plugin = |name: &str, more: serde_json::Value| {
            let mut plugin = json!({
                "name": name, "digest": digest, "version": "0.2.0", "points": ["pod-templating"], "mode": "Extend", "order": 1, "weight": 1,
                "failurePolicy": "Fail",
            });
            plugin.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            plugin
        };
        let selection = json!({"match": {
            "kinds": [{"group": "ome.io", "kind": "InferenceService"}],
            "objectSelector": {"matchLabels": {"tier": "gold"}},
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
        }});
        let set: PolicySet = serde_json::from_value(json!({
            "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicySet", "metadata": {"name": "s"},
            "spec": {
                "digest": digest, "number": 14, "host": {"version": "0.1.0", "builtins": digest},
                "plugins": [plugin("labels", selection), plugin("other", json!({}))],
                "origins": [
                    {"kind": "PolicyPlugin", "name": "labels", "set": 14, "by": "pointsman-cli"},
                    {"kind": "PolicyPlugin", "name": "other", "set": 3, "by": "argocd"},
                ],
            },
            "status": {"activations": [{"at": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap();
        let text = members(&set, std::slice::from_ref(&set));
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(1),
            "labels 0.2.0 sha256:0123456789ab #14 2026-01-01T00:00:00Z pointsman-cli InferenceService; tier=gold; namespaces with team In (a, b)"
        );
        assert_eq!(words(2), "other 0.2.0 sha256:0123456789ab #3 argocd all");
    }
}
