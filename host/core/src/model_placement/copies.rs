//! Chooses the nodes for the copies of a model that agents download.

use super::ClusterView;
use crate::{
    decide::{Pinned, Undecided},
    model_nodes::{
        assignment::ModelObject,
        copies::{Copies, Kept},
        names::node_label,
    },
    placement::{Cluster, Nodes, Owner, Pod, pod::MODEL_COPY, question},
    resource::{BASE_MODEL, CLUSTER_BASE_MODEL},
};
use std::collections::{BTreeMap, BTreeSet};

/// The chosen nodes.
#[derive(Debug, Default)]
pub struct ChosenNodes {
    /// Their names.
    pub nodes: BTreeSet<String>,
    /// Why the policies couldn't choose more.
    pub failed: Option<Undecided>,
}

/// Chooses nodes for the missing copies one by one: each choice considers the previous ones. Ends early once `is_late`.
pub fn choose(
    policies: &Pinned<'_>,
    view: &ClusterView,
    model: &ModelObject,
    namespace_labels: &BTreeMap<String, String>,
    kept: &Kept,
    is_late: &dyn Fn() -> bool,
) -> ChosenNodes {
    let mut chosen = ChosenNodes::default();
    let Some(copies) = &model.copies else { return chosen };
    let mut cluster = view.cluster.clone();
    for node in &kept.nodes {
        cluster.put_pod(copy(model, copies, node));
    }
    let can_hold = |node: &&str| cluster.node(node).is_some_and(|state| !state.node.unschedulable);
    let mut candidates: Vec<&str> = kept.candidates.iter().map(String::as_str).filter(can_hold).collect();
    while chosen.nodes.len() < kept.missing && !is_late() {
        match best(policies, view, &cluster, &copy(model, copies, ""), namespace_labels, &candidates) {
            Err(undecided) => {
                chosen.failed = Some(undecided);
                break;
            }
            Ok(None) => break,
            Ok(Some(node)) => {
                candidates.retain(|candidate| *candidate != node);
                cluster.put_pod(copy(model, copies, &node));
                chosen.nodes.insert(node);
            }
        }
    }
    chosen
}

/// The best candidate; none if there is none or the policies exclude all.
fn best(
    policies: &Pinned<'_>,
    view: &ClusterView,
    cluster: &Cluster,
    copy: &Pod,
    namespace_labels: &BTreeMap<String, String>,
    candidates: &[&str],
) -> Result<Option<String>, Undecided> {
    let nodes = Nodes::named(cluster, candidates);
    match question::score(policies, cluster, &view.settings, copy, &nodes, namespace_labels, &|_| None) {
        Ok(scored) => Ok(scored.order(candidates).into_iter().next()),
        // Without a policy, all are equal.
        Err(Undecided::Nobody(_)) => Ok(candidates.first().map(|node| (*node).to_owned())),
        Err(undecided) => Err(undecided),
    }
}

/// A copy as a pod without requests: on a node, or, for the copy in question, on none.
fn copy(model: &ModelObject, copies: &Copies, node: &str) -> Pod {
    let resource = if model.namespace.is_empty() { &CLUSTER_BASE_MODEL } else { &BASE_MODEL };
    let owner = Owner {
        kind: resource.kind,
        group: resource.group,
        version: resource.version,
        namespace: model.namespace.clone(),
        name: model.name.clone(),
    };
    Pod {
        namespace: model.namespace.clone(),
        // No real pod has such a name.
        name: if node.is_empty() { String::new() } else { format!("{} copy on {node}", model.display_name()) },
        labels: copies.labels.clone(),
        node: node.to_owned(),
        owner: Some(owner),
        role: MODEL_COPY.to_owned(),
        models: vec![node_label(&model.namespace, &model.name)],
        ..Pod::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decide::Standing,
        model_nodes::copies::{COPIES, COPY_NODES},
        model_placement::tests::{indifferent, policies},
        placement::features::FEATURES,
    };
    use serde_json::{Value, json};

    fn model(chosen: &str) -> ModelObject {
        let object = json!({
            "metadata": {"name": "m", "namespace": "ml", "annotations": {COPIES: "2", COPY_NODES: chosen}, "labels": {"team": "a"}},
            "spec": {"storage": {"storageUri": "hf://a/b"}},
        });
        ModelObject::from_object(&object).unwrap()
    }

    fn view() -> ClusterView {
        let mut view = ClusterView::default();
        let node = |zone: &str, more: Value| {
            let mut object = json!({
                "metadata": {"labels": {"topology.kubernetes.io/zone": zone}},
                "status": {"allocatable": {"nvidia.com/gpu": "8"}},
            });
            object["spec"] = more;
            object.to_string()
        };
        for (name, zone, spec) in
            [("a", "z1", json!({})), ("b", "z1", json!({})), ("c", "z2", json!({})), ("closed", "z3", json!({"unschedulable": true}))]
        {
            view.put_node(name, &node(zone, spec));
        }
        view
    }

    fn names(chosen: &ChosenNodes) -> Vec<&str> {
        chosen.nodes.iter().map(String::as_str).collect()
    }

    #[test]
    fn nodes_are_chosen_one_after_another_and_cordoned_ones_never() {
        let (policies, view) = (indifferent(), view());
        let pinned = policies.pin(Standing::New);
        let choose = |kept: &Kept, is_late: bool| choose(&pinned, &view, &model(""), &BTreeMap::new(), kept, &|| is_late);
        let kept = |missing: usize| Kept {
            nodes: BTreeSet::new(),
            candidates: ["closed", "unknown", "c", "b", "a"].map(str::to_owned).to_vec(),
            missing,
        };
        assert_eq!(names(&choose(&kept(2), false)), ["a", "b"]);
        assert_eq!(names(&choose(&kept(9), false)), ["a", "b", "c"]);
        assert!(choose(&kept(2), true).nodes.is_empty());
    }

    #[test]
    fn without_a_policy_the_first_candidates_are_chosen() {
        let (nobody, view) = (policies(Vec::new()), view());
        let pinned = nobody.pin(Standing::New);
        let kept = Kept { nodes: BTreeSet::new(), candidates: ["c", "a"].map(str::to_owned).to_vec(), missing: 1 };
        let chosen = choose(&pinned, &view, &model(""), &BTreeMap::new(), &kept, &|| false);
        assert!(chosen.failed.is_none());
        assert_eq!(names(&chosen), ["c"]);
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "whole numbers")]
    fn the_question_has_the_copies_that_there_are_and_no_request() {
        let (policies, view, model) = (indifferent(), view(), model("a"));
        let copies = model.copies.as_ref().unwrap();
        let mut cluster = view.cluster.clone();
        cluster.put_pod(copy(&model, copies, "a"));
        let pod = copy(&model, copies, "");
        let pinned = policies.pin(Standing::New);
        let scored =
            question::score(&pinned, &cluster, &view.settings, &pod, &Nodes::named(&cluster, &["a", "b", "c"]), &BTreeMap::new(), &|_| {
                None
            })
            .unwrap();
        let values = |feature: &str| {
            let column = FEATURES.iter().position(|known| known.name == feature).unwrap();
            [0, 1, 2].map(|row| scored.values[row * FEATURES.len() + column])
        };
        assert_eq!(values("subject-pods"), [1.0, 0.0, 0.0]);
        assert_eq!(values("zone-spread"), [1.0, 1.0, 0.0]);
        assert_eq!(values("free-accelerators"), [8.0; 3]);
        assert_eq!(values("model-present"), [0.0; 3]);
        assert!(values("requested-accelerators").iter().all(|value| value.is_nan()));
        let subject = scored.subject.unwrap();
        assert_eq!((&*subject.kind, &*subject.namespace, &*subject.name), ("BaseModel", "ml", "m"));
    }
}
