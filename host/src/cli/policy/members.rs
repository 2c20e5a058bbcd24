//! The plugins and rules of a set: their versions, the sets and users that introduced them, and their services.

use crate::cli::output::columns;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use pointsman_core::rules::shipped;
use pointsman_crds::policy::{
    plugin::PolicyPlugin,
    rule::ValidationRule,
    selection::Selection,
    set::{PolicySet, PolicySetOrigin},
};
use pointsman_sandbox::builtin::BUILTINS;

/// The cell of a value that isn't known.
const UNKNOWN: &str = "-";

/// The field managers of the host start like this.
const HOST_MANAGERS: &str = "pointsman/";

/// One line per member. Shipped rules and built-in policies are omitted unless the set or a user has changed them, or `all` is set.
pub(super) fn members(set: &PolicySet, sets: &[PolicySet], all: bool) -> String {
    // The first set has them without a field manager.
    let is_changed =
        |origin: &PolicySetOrigin| origin.by.as_ref().is_some_and(|by| origin.set == set.spec.number || !by.starts_with(HOST_MANAGERS));
    let row = |shipped: bool, kind: &str, [name, version, digest]: [&str; 3], services: String| {
        let origin = set.spec.origins.iter().find(|origin| origin.kind == kind && origin.name == name);
        let shown = all || !shipped || origin.is_some_and(is_changed);
        let [number, since, by] = introduction(origin, sets);
        let digest = digest.get(..19).unwrap_or(digest);
        shown.then(|| [name.to_owned(), version.to_owned(), digest.to_owned(), number, since, by, services])
    };
    let plugins = set.spec.plugins.iter().map(|plugin| {
        let services = services(plugin.selection.as_ref(), plugin.match_conditions.len());
        let shipped = BUILTINS.iter().any(|builtin| builtin.name == plugin.name);
        let version = plugin.version.as_deref().unwrap_or(UNKNOWN);
        row(shipped, &PolicyPlugin::kind(&()), [plugin.name.as_str(), version, plugin.digest.as_str()], services)
    });
    let rules = set.spec.rules.iter().filter(|rule| rule.spec.enabled).map(|rule| {
        let services = services(rule.spec.selection.as_ref().map(|selection| &selection.objects), rule.spec.match_conditions.len());
        let shipped = shipped::find(&rule.name).is_some();
        row(shipped, &ValidationRule::kind(&()), [rule.name.as_str(), "rule", rule.digest.as_str()], services)
    });
    let rows: Vec<Option<[String; 7]>> = plugins.chain(rules).collect();
    let omitted = rows.iter().filter(|row| row.is_none()).count();
    let rows: Vec<[String; 7]> = rows.into_iter().flatten().collect();
    let mut parts = Vec::new();
    if !rows.is_empty() || omitted == 0 {
        parts.push(columns(["PLUGIN", "VERSION", "DIGEST", "SET", "SINCE", "BY", "SERVICES"], &rows));
    }
    if omitted > 0 {
        parts.push(format!("unchanged built-in policies and shipped rules: {omitted}; --all lists them\n"));
    }
    parts.join("\n")
}

/// The set that introduced a member, the time at which that set first became active, and the field manager. The time is known while that
/// set is retained.
fn introduction(origin: Option<&PolicySetOrigin>, sets: &[PolicySet]) -> [String; 3] {
    let number = origin.and_then(|origin| origin.set);
    let introduced = sets.iter().find(|set| number.is_some() && set.spec.number == number);
    let deleted = if introduced.is_none() { " (deleted)" } else { "" };
    let since = introduced.and_then(|set| Some(set.status.as_ref()?.activations.first()?.at.0.to_string()));
    let cells = [number.map(|number| format!("#{number}{deleted}")), since, origin.and_then(|origin| origin.by.clone())];
    cells.map(|cell| cell.unwrap_or_else(|| UNKNOWN.to_owned()))
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
        let text = members(&set, std::slice::from_ref(&set), false);
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(1),
            "labels 0.2.0 sha256:0123456789ab #14 2026-01-01T00:00:00Z pointsman-cli InferenceService; tier=gold; namespaces with team In (a, b)"
        );
        assert_eq!(words(2), "other 0.2.0 sha256:0123456789ab #3 (deleted) - argocd all");
    }

    #[test]
    fn shipped_members_are_listed_only_if_they_were_changed() {
        let [first, second] = [&BUILTINS[0], &BUILTINS[1]].map(|builtin| builtin.name);
        let digest = format!("sha256:{}", "a".repeat(64));
        let names = [first, second, "own"];
        let lines = |mut origins: [serde_json::Value; 3], all: bool| -> Vec<String> {
            let plugins = names.map(|name| {
                json!({
                    "name": name, "digest": digest, "points": ["pod-templating"], "mode": "Extend", "order": 1, "weight": 1,
                    "failurePolicy": "Fail",
                })
            });
            for (origin, name) in origins.iter_mut().zip(names) {
                origin["kind"] = "PolicyPlugin".into();
                origin["name"] = name.into();
            }
            let set: PolicySet = serde_json::from_value(json!({
                "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicySet", "metadata": {"name": "s"},
                "spec": {
                    "digest": digest, "number": 4, "host": {"version": "0.1.0", "builtins": digest},
                    "plugins": plugins, "origins": origins,
                },
            }))
            .unwrap();
            let text = members(&set, std::slice::from_ref(&set), all);
            text.lines().map(|line| line.split_whitespace().next().unwrap_or_default().to_owned()).collect()
        };
        let host = |set: i64| json!({"set": set, "by": "pointsman/policyplugin"});
        // The first set, a user's change, and an older change of the host.
        assert_eq!(lines([json!({"set": 4}), host(3), host(3)], false), ["PLUGIN", "own", "", "unchanged"]);
        assert_eq!(lines([json!({"set": 4}), host(3), host(3)], true), ["PLUGIN", first, second, "own"]);
        let changed = [json!({"set": 1, "by": "kubectl-edit"}), host(4), json!({"set": 4, "by": "argocd"})];
        assert_eq!(lines(changed, false), ["PLUGIN", first, second, "own"]);
    }
}
