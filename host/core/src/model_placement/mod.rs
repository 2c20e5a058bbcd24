//! The policies that choose a node for a model: the question node-placement at scheduling-scoring, as for pods that a scheduler places.

pub mod copies;

use crate::{
    allocation::{
        Choice, NodeAnswer,
        amounts::Amounts,
        cluster::ModelObject,
        inputs::{GPU, MANAGED, MODEL, SERVER},
    },
    decide::{Pinned, Undecided},
    key::ObjectKey,
    objects::label_value,
    placement::{
        Cluster, Node, Nodes, Owner, Pod, PodKey, Resources, Settings,
        node::image_name,
        question::{self, Scored},
        resources::{CPU, MEMORY, PODS},
    },
    resource::INFERENCE_MODEL,
    subject_kind::{APP_COMPONENT, APP_NAME, SUBJECT_KIND},
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The time limit for questions in one allocation. The remaining models are scored in the next one, so that many models of one tenant don't
/// block others.
pub const QUESTION_TIME: Duration = Duration::from_millis(500);

/// The nodes and pods as policies see them when a model gets its node. A copy shares the unchanged parts.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    cluster: Cluster,
    settings: Arc<Settings>,
    /// An empty pod, whose unused fields all stored pods share.
    blank: Pod,
}

impl ClusterView {
    /// Adds or replaces a node.
    pub fn put_node(&mut self, name: &str, text: &str) {
        let object: Value = serde_json::from_str(text).unwrap_or_default();
        self.cluster.put_node(name, Node::from_value(&object, &self.settings));
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) {
        self.cluster.remove_node(name);
    }

    /// Adds or replaces a pod; `model` is the namespace and label of its model, if it has one.
    pub fn put_pod(&mut self, (namespace, name): &PodKey, text: &str, model: Option<&(String, String)>) {
        let object: Value = serde_json::from_str(text).unwrap_or_default();
        let Some(Pod { node, requests, is_leaving, .. }) = Pod::from_value(&object).filter(|pod| !pod.node.is_empty()) else {
            return self.cluster.remove_pod(namespace, name);
        };
        self.cluster.put_pod(Pod {
            namespace: namespace.clone(),
            name: name.clone(),
            node,
            requests,
            is_leaving,
            owner: model.map(|(namespace, label)| owner(namespace, label)),
            role: model.map(|_| SERVER.to_owned()).unwrap_or_default(),
            ..self.blank.clone()
        });
    }

    /// The names of the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.cluster.nodes().map(|(name, _)| name)
    }

    /// The namespaces and names of the pods that have a node.
    pub fn pods(&self) -> impl Iterator<Item = PodKey> {
        self.cluster.pods().map(Pod::key)
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, (namespace, name): &PodKey) {
        self.cluster.remove_pod(namespace, name);
    }

    /// The resources that models' pods take on each node.
    fn pods_of_models<'k>(&self, models: impl Iterator<Item = &'k ObjectKey>) -> BTreeMap<String, Amounts> {
        let mut taken: BTreeMap<String, Amounts> = BTreeMap::new();
        for key in models {
            for pod in self.cluster.of_owner(&owner(&key.namespace, &label_value(&key.name))) {
                *taken.entry(pod.node.clone()).or_default() += amounts(&pod.requests);
            }
        }
        taken
    }
}

/// Scores nodes for the models of one allocation.
#[allow(missing_debug_implementations, reason = "a closure has none")]
pub struct NodePolicies<'p> {
    policies: &'p Pinned<'p>,
    view: &'p ClusterView,
    models: &'p BTreeMap<ObjectKey, ModelObject>,
    /// The resources that models' pods take on each node, computed on first use.
    pods: Option<BTreeMap<String, Amounts>>,
    /// Whether the time limit has passed: the remaining models are scored in the next allocation.
    is_late: &'p dyn Fn() -> bool,
    /// Why the policies failed. They aren't called again in this allocation, because each call could take up to a plugin's timeout.
    pub failed: Option<Undecided>,
}

impl<'p> NodePolicies<'p> {
    /// Combines the policies with their view of the cluster and the models.
    pub fn new(
        policies: &'p Pinned<'p>,
        view: &'p ClusterView,
        models: &'p BTreeMap<ObjectKey, ModelObject>,
        is_late: &'p dyn Fn() -> bool,
    ) -> Self {
        Self { policies, view, models, pods: None, is_late, failed: None }
    }

    /// Scores the candidate nodes for a model.
    pub fn score(&mut self, choice: &Choice<'_>) -> NodeAnswer {
        if self.failed.is_some() || (self.is_late)() {
            return NodeAnswer::Later;
        }
        match self.scored(choice) {
            None | Some(Err(Undecided::Nobody(_))) => NodeAnswer::Equal,
            Some(Ok(scored)) => NodeAnswer::Scores(scored.scores),
            Some(Err(undecided)) => {
                self.failed = Some(undecided);
                NodeAnswer::Later
            }
        }
    }

    fn scored(&mut self, choice: &Choice<'_>) -> Option<Result<Scored, Undecided>> {
        let (view, models) = (self.view, self.models);
        let object = models.get(choice.model)?;
        let pods = &*self.pods.get_or_insert_with(|| view.pods_of_models(models.keys()));
        // The view already counts pods, so only the reservations beyond them are passed: those of models that are about to start.
        let reserved = |node: &str| Some(resources((choice.taken)(node) - pods.get(node).copied().unwrap_or_default()));
        let pod = planned_pod(choice.model, object);
        let nodes = Nodes::named(&view.cluster, choice.nodes);
        Some(question::score(self.policies, &view.cluster, &view.settings, &pod, &nodes, &object.namespace_labels, &reserved))
    }
}

/// The planned pod of a model. It has no name, so it can't be confused with an existing one.
fn planned_pod(key: &ObjectKey, object: &ModelObject) -> Pod {
    let (label, model) = (label_value(&key.name), label_value(&object.model.name));
    let ours = [(SUBJECT_KIND, INFERENCE_MODEL.kind), (APP_NAME, &*label), (APP_COMPONENT, SERVER), (MODEL, &*model), (MANAGED, "true")];
    let mut labels = object.labels.clone();
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    Pod {
        namespace: key.namespace.clone(),
        labels,
        requests: resources(object.model.needs),
        owner: Some(owner(&key.namespace, &label)),
        role: SERVER.to_owned(),
        images: vec![image_name(&object.image)],
        ..Pod::default()
    }
}

/// The model in a namespace whose pods have this label.
fn owner(namespace: &str, label: &str) -> Owner {
    Owner {
        kind: INFERENCE_MODEL.kind,
        group: INFERENCE_MODEL.group,
        version: INFERENCE_MODEL.version,
        namespace: namespace.to_owned(),
        name: label.to_owned(),
    }
}

fn resources(amounts: Amounts) -> Resources {
    let Amounts { memory, cpu, gpus, pods } = amounts;
    [(MEMORY, memory), (CPU, cpu), (GPU, gpus), (PODS, pods)].into_iter().collect()
}

fn amounts(resources: &Resources) -> Amounts {
    Amounts { memory: resources.get(MEMORY), cpu: resources.get(CPU), gpus: resources.get(GPU), pods: resources.get(PODS) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        allocation::{Model, inputs::PodUsage},
        decide::{Policies, Standing, Unheard, member::Member, set::ActiveSet},
        placement::features::FEATURES,
    };
    use pointsman_crds::policy::{plugin::PolicyPoint, set::PolicySetPlugin};
    use pointsman_sandbox::point::describe::Description;
    use serde_json::json;

    pub(super) fn policies(members: Vec<Arc<Member>>) -> Policies {
        Policies::new(ActiveSet::new(members), Arc::new(Unheard))
    }

    /// Policies that score all nodes equally: their only plugin wants no features.
    pub(super) fn indifferent() -> Policies {
        let bound = PolicySetPlugin {
            name: "scheduling-scoring".to_owned(),
            points: vec![PolicyPoint::SchedulingScoring],
            weight: 1,
            ..PolicySetPlugin::default()
        };
        policies(vec![Arc::new(Member::new(bound, Description::default(), None, None).unwrap())])
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: name.to_owned() }
    }

    fn models() -> BTreeMap<ObjectKey, ModelObject> {
        let object = |name: &str| {
            let needs = Amounts { memory: 20, cpu: 0, gpus: 1, pods: 1 };
            let model = Model { name: name.to_owned(), needs, ..Model::default() };
            let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
            (key(name), ModelObject { model, labels, image: "vllm:1".to_owned(), ..ModelObject::default() })
        };
        ["runs", "new"].map(object).into()
    }

    /// One node with another party's pod and a pod of the model `runs`, and one without pods.
    fn view() -> ClusterView {
        let mut view = ClusterView::default();
        for (name, images) in [("a", json!([])), ("b", json!([{"names": ["docker.io/library/vllm:1"]}]))] {
            let allocatable = json!({"memory": "100", "cpu": "8", GPU: "8", "amd.com/gpu": "4"});
            view.put_node(name, &json!({"status": {"allocatable": allocatable, "images": images}}).to_string());
        }
        let requests = |memory: &str| json!({"requests": {"memory": memory, GPU: "1"}});
        let labels = json!({SUBJECT_KIND: "InferenceModel", APP_NAME: "runs"});
        for (name, labels, memory) in [("runs-x", labels, "30"), ("other", json!({}), "10")] {
            let pod = json!({
                "metadata": {"namespace": "ml", "name": name, "labels": labels},
                "spec": {"nodeName": "a", "containers": [{"name": "c", "resources": requests(memory)}]},
            });
            let text = pod.to_string();
            let model = PodUsage::from_object(&text).unwrap().model;
            view.put_pod(&("ml".to_owned(), name.to_owned()), &text, model.as_ref());
        }
        view
    }

    /// The values of a feature on both nodes, if models take this much of the first one.
    fn values(view: &ClusterView, taken: Amounts, feature: &str) -> [f64; 2] {
        let (policies, models) = (indifferent(), models());
        let pinned = policies.pin(Standing::New);
        let taken = |node: &str| if node == "a" { taken } else { Amounts::default() };
        let choice = Choice { model: &key("new"), nodes: &["a", "b"], taken: &taken };
        let scored = NodePolicies::new(&pinned, view, &models, &|| false).scored(&choice).unwrap().unwrap();
        let column = FEATURES.iter().position(|known| known.name == feature).unwrap();
        [column, FEATURES.len() + column].map(|at| scored.values[at])
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "whole numbers")]
    fn pods_count_once_and_places_without_pods_beside_them() {
        let taken = |memory: i64, gpus: i64| Amounts { memory, cpu: 0, gpus, pods: 1 };
        let view = view();
        assert_eq!(values(&view, taken(30, 1), "free-memory-bytes"), [60.0, 100.0], "only what runs has a place");
        assert_eq!(values(&view, taken(50, 2), "free-memory-bytes"), [40.0, 100.0], "another one is about to start");
        assert_eq!(values(&view, taken(50, 2), "free-accelerators"), [5.0, 8.0]);
        assert_eq!(values(&view, taken(0, 0), "free-memory-bytes"), [90.0, 100.0], "what runs is about to go");
        assert_eq!(values(&view, taken(0, 0), "requested-accelerators"), [1.0, 1.0]);
        assert_eq!(values(&view, taken(0, 0), "image-share"), [0.0, 1.0]);
        assert_eq!(values(&view, taken(30, 1), "pods"), [2.0, 0.0]);
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "whole numbers")]
    fn what_is_gone_counts_no_more() {
        let mut view = view();
        view.remove_pod(&("ml".to_owned(), "other".to_owned()));
        let ended = json!({"spec": {"nodeName": "a"}, "status": {"phase": "Succeeded"}});
        view.put_pod(&("ml".to_owned(), "runs-x".to_owned()), &ended.to_string(), None);
        assert_eq!(values(&view, Amounts::default(), "free-memory-bytes"), [100.0, 100.0]);
        view.remove_node("a");
        assert!(values(&view, Amounts::default(), "free-memory-bytes")[0].is_nan());
    }

    #[test]
    fn the_question_is_about_the_model_and_has_the_labels_of_its_pod() {
        let models = models();
        let asked = question::subject(&planned_pod(&key("new"), &models[&key("new")]), &BTreeMap::new());
        assert_eq!((&*asked.kind, &*asked.namespace, &*asked.name), ("InferenceModel", "ml", "new"));
        let label = |key: &str| asked.labels.iter().find(|label| label.key == key).map(|label| label.value.clone());
        assert_eq!([label("team"), label(APP_NAME), label(MODEL)], ["a", "new", "new"].map(|value| Some(value.to_owned())));
    }

    #[test]
    fn without_a_policy_all_nodes_are_as_good_and_policies_that_are_late_are_waited_for() {
        let (nobody, some, view, models) = (policies(Vec::new()), indifferent(), view(), models());
        let (nobody, some) = (nobody.pin(Standing::New), some.pin(Standing::New));
        let choice = Choice { model: &key("new"), nodes: &["a", "b"], taken: &|_| Amounts::default() };
        let answer = |pinned: &Pinned<'_>, is_late: bool| NodePolicies::new(pinned, &view, &models, &|| is_late).score(&choice);
        assert_eq!((answer(&nobody, false), answer(&some, true)), (NodeAnswer::Equal, NodeAnswer::Later));
        assert!(matches!(answer(&some, false), NodeAnswer::Scores(scores) if scores.len() == 2));
        let mut failed = NodePolicies::new(&some, &view, &models, &|| false);
        failed.failed = Some(Undecided::Question("it is too large".to_owned()));
        assert_eq!(failed.score(&choice), NodeAnswer::Later);
    }
}
