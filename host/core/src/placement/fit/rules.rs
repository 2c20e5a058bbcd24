//! A pod's own placement rules, parsed once from its spec.

use crate::{
    objects::strings,
    placement::{Node, Pod, Taint},
    selector,
};
use k8s_openapi::{
    api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, Toleration, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The taint of a cordoned node. A pod that tolerates it also tolerates `spec.unschedulable`, even if the node doesn't have the taint yet.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// A pod's own placement rules: its selector, its required affinities, its tolerations, and its required topology spread.
///
/// Not supported are volumes, dynamic resource allocation, scheduling gates, features that nodes declare, settings that a profile adds to
/// all pods (`addedAffinity`, `defaultConstraints`), and tolerations with numeric comparisons. `matchLabelKeys` and `mismatchLabelKeys` are
/// ignored because the API server adds them to the selector of each created pod. A `namespaceSelector` is only read if it is empty; any
/// other one never makes a pod unfit. Host ports are compared without their addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    selector: BTreeMap<String, String>,
    /// At least one must match. None: every node matches.
    terms: Option<Vec<NodeSelectorTerm>>,
    tolerations: Vec<Toleration>,
    /// The pods that it must be near to.
    pub(super) near: Vec<PodTerm>,
    /// The pods that it must not be near to.
    pub(super) apart: Vec<PodTerm>,
    pub(super) spread: Vec<Spread>,
}

impl Rules {
    /// Parses a pod's spec. Malformed rules are ignored, because the API server never accepts them.
    pub fn from_spec(spec: &Value) -> Self {
        let affinity = Affinity::deserialize(&spec["affinity"]).unwrap_or_default();
        let terms = affinity.node_affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
        let near = affinity.pod_affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
        let apart = affinity.pod_anti_affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
        let spread = Vec::<TopologySpreadConstraint>::deserialize(&spec["topologySpreadConstraints"]).unwrap_or_default();
        Self {
            selector: strings(&spec["nodeSelector"]),
            terms: terms.map(|required| required.node_selector_terms),
            tolerations: Vec::deserialize(&spec["tolerations"]).unwrap_or_default(),
            near: near.into_iter().flatten().map(PodTerm::new).collect(),
            apart: apart.into_iter().flatten().map(PodTerm::new).collect(),
            spread: spread.into_iter().filter_map(Spread::new).collect(),
        }
    }

    /// Whether the pod's anti-affinity may exclude other pods.
    pub(in crate::placement) fn repels(&self) -> bool {
        !self.apart.is_empty()
    }

    /// Whether the node has the labels of `spec.nodeSelector`.
    pub(super) fn selects(&self, node: &Node) -> bool {
        self.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
    }

    /// Whether the required node affinity matches the node.
    pub(super) fn is_affine(&self, name: &str, node: &Node) -> bool {
        self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| matches(term, name, node)))
    }

    /// The first taint that the pod doesn't tolerate.
    pub(super) fn untolerated<'n>(&self, node: &'n Node) -> Option<&'n Taint> {
        let keeps_away = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
        node.taints.iter().filter(keeps_away).find(|taint| !self.tolerates(&taint.key, &taint.value, &taint.effect))
    }

    /// Whether the pod may run on a cordoned node.
    pub(super) fn tolerates_cordon(&self) -> bool {
        self.tolerates(CORDONED, "", "NoSchedule")
    }

    fn tolerates(&self, key: &str, value: &str, effect: &str) -> bool {
        self.tolerations.iter().any(|toleration| {
            let Toleration { effect: effects, key: keys, operator, value: values, .. } = toleration;
            // Without a key or an effect, it applies to all of them.
            let is_about = |given: Option<&str>, what: &str| given.is_none_or(|given| given.is_empty() || given == what);
            let fits = match operator.as_deref().unwrap_or_default() {
                "" | "Equal" => values.as_deref().unwrap_or_default() == value,
                "Exists" => true,
                _ => false,
            };
            fits && is_about(keys.as_deref(), key) && is_about(effects.as_deref(), effect)
        })
    }
}

/// Whether a node meets all requirements of a term. A term without requirements matches nothing.
fn matches(term: &NodeSelectorTerm, name: &str, node: &Node) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let field = |requirement: &NodeSelectorRequirement| {
        let takes = matches!(&*requirement.operator, "In" | "NotIn") && requirement.values.as_ref().is_some_and(|values| values.len() == 1);
        takes && holds(requirement, Some(if requirement.key == "metadata.name" { name } else { "" }))
    };
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|requirement| holds(requirement, node.labels.get(&requirement.key).map(String::as_str)))
        && fields.iter().all(field)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let wanted = requirement.values.as_deref().unwrap_or_default();
    let listed = || value.is_some_and(|value| wanted.iter().any(|wanted| wanted == value));
    // A label that isn't an integer is neither greater nor less.
    let compared = || match wanted {
        [wanted] => Some(value?.parse::<i64>().ok()?.cmp(&wanted.parse::<i64>().ok()?)),
        _ => None,
    };
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

/// A required term of the pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodTerm {
    /// The key of the node label whose value two nodes must share to be near.
    pub(super) key: String,
    /// None selects no pods.
    selector: Option<LabelSelector>,
    namespaces: Namespaces,
}

#[derive(Clone, Debug, PartialEq)]
enum Namespaces {
    /// The pod's own namespace.
    Own,
    Listed(Vec<String>),
    All,
    /// A selector of namespaces, whose labels are unknown here.
    Unknown,
}

impl PodTerm {
    fn new(term: PodAffinityTerm) -> Self {
        let listed = term.namespaces.unwrap_or_default();
        let namespaces = match &term.namespace_selector {
            Some(selector) if is_empty(selector) => Namespaces::All,
            Some(_) => Namespaces::Unknown,
            None if listed.is_empty() => Namespaces::Own,
            None => Namespaces::Listed(listed),
        };
        Self { key: term.topology_key, selector: term.label_selector, namespaces }
    }

    /// Whether a term of a pod in the namespace `own` selects another pod. `unknown` is the result if the namespaces are unknown.
    pub(super) fn selects(&self, own: &str, pod: &Pod, unknown: bool) -> bool {
        let in_namespace = match &self.namespaces {
            Namespaces::Own => pod.namespace == own,
            Namespaces::Listed(namespaces) => namespaces.contains(&pod.namespace),
            Namespaces::All => true,
            Namespaces::Unknown => unknown,
        };
        in_namespace && selects(self.selector.as_ref(), pod)
    }
}

/// A required topology spread constraint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) key: String,
    pub(super) max_skew: i64,
    pub(super) min_domains: usize,
    selector: Option<LabelSelector>,
    honors_affinity: bool,
    honors_taints: bool,
}

impl Spread {
    /// None if the constraint is only preferred.
    fn new(constraint: TopologySpreadConstraint) -> Option<Self> {
        if constraint.when_unsatisfiable != "DoNotSchedule" {
            return None;
        }
        Some(Self {
            key: constraint.topology_key,
            max_skew: constraint.max_skew.into(),
            min_domains: constraint.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1),
            selector: constraint.label_selector,
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        })
    }

    /// Whether a pod is counted. Kubernetes counts no pods for a selector that selects all.
    pub(super) fn counts(&self, pod: &Pod) -> bool {
        self.selector.as_ref().is_some_and(|selector| !is_empty(selector)) && self.selects(pod)
    }

    /// Whether the selector selects a pod.
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        selects(self.selector.as_ref(), pod)
    }

    /// Whether pods on a node are counted.
    pub(super) fn covers(&self, rules: &Rules, name: &str, node: &Node) -> bool {
        let matches = !self.honors_affinity || rules.selects(node) && rules.is_affine(name, node);
        matches && (!self.honors_taints || rules.untolerated(node).is_none())
    }
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty) && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

fn selects(selector: Option<&LabelSelector>, pod: &Pod) -> bool {
    selector.is_some_and(|selector| selector::selects(selector, |key| pod.labels.get(key).map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(labels: &[(&str, &str)]) -> Node {
        Node { labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(), ..Node::default() }
    }

    fn affine(terms: &Value, name: &str, node: &Node) -> bool {
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        Rules::from_spec(&json!({"affinity": {"nodeAffinity": required}})).is_affine(name, node)
    }

    #[test]
    fn node_affinity_knows_all_operators() {
        let node = node(&[("memory", "80"), ("zone", "a")]);
        for (key, operator, values, expected) in [
            ("zone", "In", json!(["a", "b"]), true),
            ("zone", "In", json!(["b"]), false),
            ("zone", "NotIn", json!(["b"]), true),
            ("rack", "NotIn", json!(["b"]), true),
            ("zone", "Exists", json!(null), true),
            ("zone", "DoesNotExist", json!(null), false),
            ("memory", "Gt", json!(["79"]), true),
            ("memory", "Gt", json!(["80"]), false),
            ("memory", "Lt", json!(["81"]), true),
            ("memory", "Lt", json!(["many"]), false),
            ("zone", "Gt", json!(["0"]), false),
            ("rack", "Lt", json!(["1"]), false),
            ("memory", "Gt", json!(["1", "2"]), false),
            ("memory", "Near", json!(["80"]), false),
        ] {
            let expression = json!({"key": key, "operator": operator, "values": values});
            assert_eq!(affine(&json!([{"matchExpressions": [expression]}]), "n0", &node), expected, "{key} {operator} {values}");
        }
    }

    #[test]
    fn one_term_must_match_whole_and_an_empty_one_matches_nothing() {
        let node = node(&[("zone", "a")]);
        let name = |operator: &str, names: Value| {
            let field = json!({"key": "metadata.name", "operator": operator, "values": names});
            json!([{"matchFields": [field]}])
        };
        assert!(affine(&name("In", json!(["n0"])), "n0", &node));
        assert!(!affine(&name("In", json!(["n0"])), "n1", &node));
        assert!(affine(&name("NotIn", json!(["n0"])), "n1", &node));
        assert!(!affine(&name("In", json!(["n0", "n1"])), "n0", &node), "Kubernetes takes one name");
        assert!(!affine(&json!([]), "n0", &node));
        assert!(!affine(&json!([{}]), "n0", &node));
        let zone = |zone: &str| json!({"key": "zone", "operator": "In", "values": [zone]});
        assert!(affine(&json!([{}, {"matchExpressions": [zone("b")]}, {"matchExpressions": [zone("a")]}]), "n0", &node));
        assert!(!affine(&json!([{"matchExpressions": [zone("a"), zone("b")]}]), "n0", &node));
        assert!(Rules::from_spec(&json!({"affinity": null})).is_affine("n0", &node), "there is none");
    }

    #[test]
    fn tolerations_are_about_keys_values_and_effects() {
        let tainted = |effect: &str| {
            let taint = Taint { key: "gpu".to_owned(), value: "a100".to_owned(), effect: effect.to_owned() };
            Node { taints: vec![taint], ..Node::default() }
        };
        for (toleration, expected) in [
            (json!({"key": "gpu", "operator": "Exists"}), true),
            (json!({"key": "gpu", "value": "a100"}), true),
            (json!({"key": "gpu", "operator": "Equal", "value": "h100"}), false),
            (json!({"key": "gpu"}), false),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "cpu", "operator": "Exists"}), false),
            (json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}), true),
            (json!({"key": "gpu", "operator": "Gt", "value": "1"}), false),
        ] {
            let rules = Rules::from_spec(&json!({"tolerations": [toleration]}));
            assert_eq!(rules.untolerated(&tainted("NoSchedule")).is_none(), expected, "{toleration}");
        }
        assert!(Rules::default().untolerated(&tainted("PreferNoSchedule")).is_none());
        assert!(Rules::default().untolerated(&tainted("NoExecute")).is_some());
        assert!(!Rules::default().tolerates_cordon());
    }

    #[test]
    fn namespaces_of_a_term_are_listed_or_the_own_one() {
        let labels = BTreeMap::from([("app".to_owned(), "x".to_owned())]);
        let pod = |namespace: &str| Pod { namespace: namespace.to_owned(), labels: labels.clone(), ..Pod::default() };
        let term = |more: Value| {
            let mut term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}});
            term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let spec = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
            Rules::from_spec(&spec).apart.remove(0)
        };
        assert!(term(json!({})).selects("a", &pod("a"), false));
        assert!(!term(json!({})).selects("a", &pod("b"), false));
        assert!(!term(json!({"namespaces": ["b"]})).selects("a", &pod("a"), false));
        assert!(term(json!({"namespaces": ["b"]})).selects("a", &pod("b"), false));
        assert!(term(json!({"namespaceSelector": {}})).selects("a", &pod("c"), false));
        let unknown = term(json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}));
        assert!(unknown.selects("a", &pod("a"), true) && !unknown.selects("a", &pod("a"), false));
        assert!(!term(json!({"labelSelector": null})).selects("a", &pod("a"), false), "no selector selects nothing");
    }
}
