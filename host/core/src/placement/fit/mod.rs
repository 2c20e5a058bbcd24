//! Whether a pod fits on a node by Kubernetes' rules: for gang reservations, preemption, and predictions. The scheduler itself checks the
//! rules again.

mod around;
mod rules;

pub use around::Fit;
pub use rules::Rules;

use super::{Cluster, Node, NodeState, Pod, Resources};
use std::collections::BTreeMap;

/// The maximum number of reasons in a summary.
const MAX_REASONS: usize = 3;

/// Why a pod can't run on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    /// The node is cordoned.
    Unschedulable,
    /// The pod specifies another node.
    NodeName,
    /// `spec.nodeSelector` selects other nodes.
    Selector,
    /// The required node affinity matches other nodes.
    Affinity,
    /// The pod doesn't tolerate the taint with this key.
    Taint(String),
    /// The node has too little of this resource.
    Resource(String),
    /// No pod is near that the pod's affinity requires.
    PodAffinity,
    /// A pod is near that the pod's anti-affinity excludes, or whose anti-affinity excludes the pod.
    PodAntiAffinity,
    /// The pods would exceed the maximum skew for this topology key.
    Spread(String),
    /// Another pod uses one of the pod's host ports.
    Ports,
}

impl Misfit {
    /// The reason, without a full stop.
    pub fn sentence(&self) -> String {
        match self {
            Self::Unschedulable => "the node is cordoned".to_owned(),
            Self::NodeName => "the pod has another node".to_owned(),
            Self::Selector => "the node lacks a label of spec.nodeSelector".to_owned(),
            Self::Affinity => "the node doesn't match the required node affinity".to_owned(),
            Self::Taint(key) => format!("the pod doesn't tolerate the taint {key}"),
            Self::Resource(name) => format!("the node doesn't have enough free {name}"),
            Self::PodAffinity => "the node is near no pod that the required pod affinity selects".to_owned(),
            Self::PodAntiAffinity => "the node is near a pod that a required pod anti-affinity selects".to_owned(),
            Self::Spread(key) => format!("the pods would be spread too unevenly over {key}"),
            Self::Ports => "another pod has a host port of the pod".to_owned(),
        }
    }
}

/// The most frequent reasons, each with its number of nodes.
pub fn summary(misfits: &BTreeMap<Misfit, usize>) -> String {
    if misfits.is_empty() {
        return "there are no nodes".to_owned();
    }
    let mut reasons: Vec<(&Misfit, usize)> = misfits.iter().map(|(misfit, nodes)| (misfit, *nodes)).collect();
    // The sort is stable, so equal numbers stay in the order of the reasons.
    reasons.sort_by_key(|(_, nodes)| std::cmp::Reverse(*nodes));
    let text = |(misfit, nodes): &(&Misfit, usize)| {
        let noun = if *nodes == 1 { "node" } else { "nodes" };
        format!("{} ({nodes} {noun})", misfit.sentence())
    };
    let mut texts: Vec<String> = reasons.iter().take(MAX_REASONS).map(text).collect();
    if reasons.len() > MAX_REASONS {
        texts.push("...".to_owned());
    }
    texts.join(", ")
}

/// Why a pod can't run on a node: `free` are the node's resources that are free for it. For many nodes and one pod, use a [`Fit`].
pub fn misfit(cluster: &Cluster, pod: &Pod, name: &str, state: &NodeState, free: &Resources) -> Option<Misfit> {
    Fit::new(cluster, pod).misfit(name, state, free)
}

/// Like [`misfit`], but without the rules that involve other pods, except for the resources that they take.
pub fn misfit_alone(pod: &Pod, name: &str, node: &Node, free: &Resources) -> Option<Misfit> {
    misfit_by_rules(pod, name, node).or_else(|| pod.requests.lacking(free).map(|lacking| Misfit::Resource(lacking.to_owned())))
}

/// Like [`misfit`], but checks only the pod's and the node's own rules.
pub(super) fn misfit_by_rules(pod: &Pod, name: &str, node: &Node) -> Option<Misfit> {
    let rules = &pod.rules;
    if node.unschedulable && !rules.tolerates_cordon() {
        return Some(Misfit::Unschedulable);
    }
    if !pod.node.is_empty() && pod.node != name {
        return Some(Misfit::NodeName);
    }
    if let Some(taint) = rules.untolerated(node) {
        return Some(Misfit::Taint(taint.key.clone()));
    }
    if !rules.selects(node) {
        return Some(Misfit::Selector);
    }
    (!rules.is_affine(name, node)).then_some(Misfit::Affinity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Taint;
    use serde_json::json;
    use std::sync::Arc;

    fn pod(spec: &serde_json::Value, gpus: i64) -> Pod {
        let requests = Resources::from_iter([("nvidia.com/gpu", gpus), ("pods", 1)]);
        Pod { namespace: "a".to_owned(), name: "p".to_owned(), requests, rules: Arc::new(Rules::from_spec(spec)), ..Pod::default() }
    }

    #[test]
    fn a_node_is_checked_by_its_own_state_and_by_what_is_free() {
        let free = Resources::from_iter([("nvidia.com/gpu", 4), ("pods", 10)]);
        let node = Node { labels: [("pool".to_owned(), "gpu".to_owned())].into(), ..Node::default() };
        let found = |spec: serde_json::Value, gpus: i64, node: &Node| misfit_alone(&pod(&spec, gpus), "n0", node, &free);
        assert_eq!(found(json!({}), 4, &node), None);
        assert_eq!(found(json!({}), 5, &node), Some(Misfit::Resource("nvidia.com/gpu".to_owned())));
        assert_eq!(found(json!({"nodeSelector": {"pool": "cpu"}}), 1, &node), Some(Misfit::Selector));
        let cordoned = Node { unschedulable: true, ..node.clone() };
        assert_eq!(found(json!({}), 1, &cordoned), Some(Misfit::Unschedulable));
        let toleration = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"});
        assert_eq!(found(json!({"tolerations": [toleration]}), 1, &cordoned), None);
        let taint = Taint { key: "nvidia.com/gpu".to_owned(), value: "present".to_owned(), effect: "NoSchedule".to_owned() };
        let tainted = Node { taints: vec![taint], ..node };
        assert_eq!(found(json!({}), 1, &tainted), Some(Misfit::Taint("nvidia.com/gpu".to_owned())));
        assert_eq!(found(json!({"tolerations": [{"operator": "Exists"}]}), 1, &tainted), None);
        let placed = Pod { node: "n1".to_owned(), ..pod(&json!({}), 1) };
        assert_eq!(misfit_alone(&placed, "n0", &tainted, &free), Some(Misfit::NodeName));
    }

    #[test]
    fn a_summary_lists_the_most_frequent_reasons() {
        assert_eq!(summary(&BTreeMap::new()), "there are no nodes");
        let mut misfits = BTreeMap::from([(Misfit::Unschedulable, 1), (Misfit::Resource("nvidia.com/gpu".to_owned()), 3)]);
        assert_eq!(summary(&misfits), "the node doesn't have enough free nvidia.com/gpu (3 nodes), the node is cordoned (1 node)");
        misfits.extend([(Misfit::Selector, 2), (Misfit::Ports, 5)]);
        let text = summary(&misfits);
        assert!(text.starts_with("another pod has a host port of the pod (5 nodes), "), "{text}");
        assert!(text.ends_with("spec.nodeSelector (2 nodes), ..."), "{text}");
    }
}
