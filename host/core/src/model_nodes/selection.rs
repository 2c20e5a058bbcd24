//! The nodes that a model's storage selects: by `nodeSelector` and the required `nodeAffinity`, with the semantics that Kubernetes defines
//! for pods.

use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm};
use pointsman_crds::ome::storage::StorageSpec;
use std::collections::BTreeMap;

/// Whether a node is selected.
pub fn selects(storage: &StorageSpec, name: &str, labels: &BTreeMap<String, String>) -> bool {
    storage.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        && storage.node_affinity.as_ref().is_none_or(|affinity| requires(affinity, name, labels))
}

fn requires(affinity: &NodeAffinity, name: &str, labels: &BTreeMap<String, String>) -> bool {
    // Preferences have no meaning here: a node either gets the files or it doesn't.
    let Some(required) = &affinity.required_during_scheduling_ignored_during_execution else { return true };
    required.node_selector_terms.iter().any(|term| fits(term, name, labels))
}

/// A term without requirements selects nothing.
fn fits(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|requirement| holds(requirement, labels.get(&requirement.key).map(String::as_str)))
        && fields.iter().all(|requirement| requirement.key == "metadata.name" && holds(requirement, Some(name)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = |fits: fn(i64, i64) -> bool| match (value.and_then(number), values) {
        (Some(value), [limit]) => number(limit).is_some_and(|limit| fits(value, limit)),
        _ => false,
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
        "NotIn" => value.is_none_or(|value| values.iter().all(|unwanted| unwanted != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(|value, limit| value > limit),
        "Lt" => compared(|value, limit| value < limit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn selected(storage: Value) -> Vec<&'static str> {
        let mut storage = storage;
        storage["storageUri"] = "hf://a/b".into();
        let storage: StorageSpec = serde_json::from_value(storage).unwrap();
        let nodes =
            [("l4", json!({"gpu": "l4", "count": "4"})), ("h100", json!({"gpu": "h100", "count": "8"})), ("cpu", json!({"zone": "a"}))];
        let labels = |labels: Value| serde_json::from_value(labels).unwrap();
        nodes.into_iter().filter(|(name, known)| selects(&storage, name, &labels(known.clone()))).map(|(name, _)| name).collect()
    }

    fn required(terms: Value) -> Value {
        let mut affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}});
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = terms;
        affinity
    }

    #[test]
    fn without_a_selection_every_node_is_selected() {
        assert_eq!(selected(json!({})), ["l4", "h100", "cpu"]);
        let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}]);
        assert_eq!(
            selected(json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})),
            ["l4", "h100", "cpu"]
        );
    }

    #[test]
    fn a_selector_and_the_affinity_both_count() {
        assert_eq!(selected(json!({"nodeSelector": {"gpu": "l4"}})), ["l4"]);
        assert_eq!(selected(json!({"nodeSelector": {"gpu": "l4", "zone": "a"}})), [""; 0]);
        let mut both = required(json!([{"matchExpressions": [{"key": "count", "operator": "Gt", "values": ["3"]}]}]));
        both["nodeSelector"] = json!({"gpu": "h100"});
        assert_eq!(selected(both), ["h100"]);
    }

    #[test]
    fn each_operator_selects_as_for_pods() {
        let by = |operator: &str, values: &[&str]| {
            let values = (!values.is_empty()).then_some(values);
            selected(required(json!([{"matchExpressions": [{"key": "gpu", "operator": operator, "values": values}]}])))
        };
        assert_eq!(by("In", &["l4", "t4"]), ["l4"]);
        // A node without the label has none of these values.
        assert_eq!(by("NotIn", &["l4"]), ["h100", "cpu"]);
        assert_eq!(by("Exists", &[]), ["l4", "h100"]);
        assert_eq!(by("DoesNotExist", &[]), ["cpu"]);
        assert_eq!(by("Like", &["l4"]), [""; 0]);
        let count = |operator: &str, limit: &str| {
            selected(required(json!([{"matchExpressions": [{"key": "count", "operator": operator, "values": [limit]}]}])))
        };
        assert_eq!(count("Gt", "4"), ["h100"]);
        assert_eq!(count("Lt", "5"), ["l4"]);
        assert_eq!(count("Lt", "five"), [""; 0]);
    }

    #[test]
    fn one_of_several_terms_is_enough_and_an_empty_one_selects_nothing() {
        let name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cpu"]}]});
        let gpu = json!({"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["l4"]}]});
        assert_eq!(selected(required(json!([name, gpu]))), ["l4", "cpu"]);
        assert_eq!(selected(required(json!([{}]))), [""; 0]);
        assert_eq!(selected(required(json!([]))), [""; 0]);
    }
}
