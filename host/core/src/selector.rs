//! Selects the subjects that a plugin applies to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use pointsman_crds::policy::selection::{KindReference, Selection};
use pointsman_sandbox::point::{Entry, Subject};

/// The label with each namespace's name. The API server sets it on every namespace, regardless of its manifest.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Whether the subject meets all parts of the selection.
pub fn fits(selection: &Selection, subject: &Subject) -> bool {
    let kind = is_of(&selection.kinds, &subject.group, &subject.kind);
    // A cluster-scoped object has no namespace that could be selected.
    let namespace = selection
        .namespace_selector
        .as_ref()
        .is_none_or(|selector| !subject.namespace.is_empty() && selects(selector, label(&subject.namespace_labels)));
    let object = selection.object_selector.as_ref().is_none_or(|selector| selects(selector, label(&subject.labels)));
    kind && namespace && object
}

/// Whether a kind is in the list, or the list is empty.
pub fn is_of(kinds: &[KindReference], group: &str, kind: &str) -> bool {
    kinds.is_empty() || kinds.iter().any(|meant| meant.group == group && (meant.kind == "*" || meant.kind == kind))
}

fn label<'l>(labels: &'l [Entry]) -> impl Fn(&str) -> Option<&'l str> {
    |key| labels.iter().find(|label| label.key == key).map(|label| label.value.as_str())
}

/// Whether a selector matches labels, with the semantics of Kubernetes.
pub fn selects<'l>(selector: &LabelSelector, value: impl Fn(&str) -> Option<&'l str>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted));
    equal
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let value = value(&requirement.key);
            let listed = || value.is_some_and(|value| requirement.values.iter().flatten().any(|wanted| wanted == value));
            match requirement.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                // `flaw` rejects other operators.
                _ => false,
            }
        })
}

/// Why a selection is invalid although the CRD's schema accepts it: the field, and a message.
pub fn flaw(selection: &Selection) -> Option<(String, String)> {
    let selectors = [("namespaceSelector", &selection.namespace_selector), ("objectSelector", &selection.object_selector)];
    for (name, selector) in selectors {
        for requirement in selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten()) {
            let values = requirement.values.as_ref().map_or(0, Vec::len);
            let (key, operator) = (&requirement.key, &requirement.operator);
            let message = match (operator.as_str(), values) {
                ("In" | "NotIn", 0) => format!("{operator} of the label {key} needs values"),
                ("In" | "NotIn", _) | ("Exists" | "DoesNotExist", 0) => continue,
                ("Exists" | "DoesNotExist", _) => format!("{operator} of the label {key} takes no values"),
                _ => format!("{operator:?} is not an operator: use In, NotIn, Exists or DoesNotExist"),
            };
            return Some((format!("spec.match.{name}"), message));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn selection(value: Value) -> Selection {
        serde_json::from_value(value).unwrap()
    }

    fn subject() -> Subject {
        let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
        Subject {
            group: "ome.io".into(),
            kind: "InferenceService".into(),
            namespace: "chat".into(),
            labels: vec![entry("tier", "gold")],
            namespace_labels: vec![entry("team", "a")],
            ..Subject::default()
        }
    }

    #[test]
    fn every_given_part_must_fit() {
        let cases = [
            (json!({}), true),
            (json!({"kinds": [{"group": "ome.io", "kind": "InferenceService"}]}), true),
            (json!({"kinds": [{"group": "ome.io", "kind": "*"}]}), true),
            (json!({"kinds": [{"group": "serving.kserve.io", "kind": "*"}]}), false),
            (json!({"kinds": [{"group": "ome.io", "kind": "BaseModel"}]}), false),
            (json!({"objectSelector": {"matchLabels": {"tier": "gold"}}}), true),
            (json!({"objectSelector": {"matchLabels": {"tier": "lead"}}}), false),
            (json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "objectSelector": {"matchLabels": {"team": "a"}}}), false),
            (json!({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}}), true),
            (json!({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}}), false),
            (json!({"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["a"]}]}}), true),
            (json!({"objectSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}), true),
            (json!({"objectSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}}), false),
        ];
        for (value, expected) in cases {
            assert_eq!(fits(&selection(value.clone()), &subject()), expected, "{value}");
        }
    }

    #[test]
    fn a_subject_without_a_namespace_fits_no_namespace_selector() {
        let anywhere = selection(json!({"namespaceSelector": {}}));
        assert!(fits(&anywhere, &subject()));
        assert!(!fits(&anywhere, &Subject { namespace: String::new(), ..subject() }));
    }

    #[test]
    fn a_selector_that_kubernetes_would_refuse_is_named() {
        let cases = [
            (json!([{"key": "a", "operator": "In"}]), "In of the label a needs values"),
            (json!([{"key": "a", "operator": "Exists", "values": ["b"]}]), "takes no values"),
            (json!([{"key": "a", "operator": "Near", "values": ["b"]}]), "\"Near\" is not an operator"),
        ];
        for (expressions, says) in cases {
            let (field, said) = flaw(&selection(json!({"objectSelector": {"matchExpressions": expressions}}))).unwrap();
            assert!(field == "spec.match.objectSelector" && said.contains(says), "{field}: {said}");
        }
        assert_eq!(flaw(&selection(json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}))), None);
    }
}
