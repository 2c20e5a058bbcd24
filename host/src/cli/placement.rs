//! Predicts the nodes that a scheduler with our extender would choose for the pods of rendered subjects, on nodes that files describe.

use super::{
    exit::InputResult,
    offline::{Offline, Planned, files::Document},
};
use crate::{
    load::Loader,
    scheduler_extender::{CompiledFeatures, downloads, visible},
};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use pointsman_core::{
    decide::Standing,
    key::ObjectKey,
    model_nodes::report::CONFIG_MAP,
    objects::strings,
    placement::{
        Cluster, Node, Owner, Pod, PodKey, Settings, planned,
        simulation::{Predicted, simulate},
    },
    world::World,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::Arc,
};

/// The maximum number of pods whose nodes are predicted.
const MAX_PODS: usize = 10_000;

/// Placement of pods
#[derive(Args, Clone, Debug, Default)]
pub struct PlacementArgs {
    /// Settings of placements, as for `pointsman scheduler-extender --config`: they predict the nodes of pods
    #[arg(long, value_name = "FILE", requires = "nodes")]
    placement_config: Option<PathBuf>,
}

impl PlacementArgs {
    fn settings(&self) -> Result<Settings> {
        let Some(file) = &self.placement_config else { return Ok(Settings::default()) };
        let context = || format!("--placement-config {}", file.display());
        let text = fs::read_to_string(file).with_context(context).readable()?;
        Settings::from_yaml(&text).map_err(|error| anyhow!(error)).with_context(context)
    }
}

/// The predicted nodes of the plans' pods, one line per pod, in the order of the plans and with the members of a gang together. No lines
/// without --nodes.
pub fn predict(offline: &Offline, plans: &[Planned], args: &PlacementArgs, loader: &Loader) -> Result<Vec<String>> {
    if offline.nodes.is_empty() {
        return Ok(Vec::new());
    }
    let settings = args.settings()?;
    let features = compile_features(&settings, loader)?;
    let objects = plans.iter().filter_map(|planned| planned.plan.objects.as_ref()).flatten();
    let objects: Vec<(&ObjectKey, &Value)> = objects.map(|object| (&object.key, &object.body)).collect();
    let mut pods: Vec<Pod> = planned::pods(&objects).take(MAX_PODS + 1).collect();
    let is_cut = pods.len() > MAX_PODS;
    pods.truncate(MAX_PODS);

    let mut scene = Scene::read(&offline.nodes, &settings, features.as_ref());
    scene.prepare(&pods, &offline.world);
    let Scene { cluster, namespaces } = scene;
    let (listing, policies) = (planned::listing(&pods), offline.policies.pin(Standing::New));
    let now = Timestamp::now().as_second().unsigned_abs();
    let mut predicted = simulate(cluster, &settings, &policies, &namespaces, pods, now);
    predicted.sort_by_cached_key(|pod| listing.get(&(pod.namespace.clone(), pod.name.clone())).copied());
    let further = is_cut.then(|| format!("the nodes of further pods aren't predicted: {MAX_PODS} pods are the maximum"));
    Ok(predicted.iter().map(line).chain(further).collect())
}

/// The features that the settings define, if any.
fn compile_features(settings: &Settings, loader: &Loader) -> Result<Option<CompiledFeatures>> {
    if settings.features.is_empty() {
        return Ok(None);
    }
    let evaluator = loader.evaluator().map_err(|why| anyhow!(why))?;
    let compiled = CompiledFeatures::new(&settings.features, evaluator, Arc::default());
    compiled.map(Some).map_err(|error| anyhow!("--placement-config: {error}"))
}

/// The prediction for one pod.
fn line(Predicted { namespace, name, best, reason }: &Predicted) -> String {
    let place = match best.as_slice() {
        [] => format!("finds no node: {}", reason.as_deref().unwrap_or("no reason is known")),
        [node] => format!("on the node {node}"),
        nodes => format!("on one of the nodes {} (the scheduler decides)", nodes.join(", ")),
    };
    format!("pod {namespace}/{name}: {place}")
}

/// A cluster from files.
#[derive(Debug, Default)]
struct Scene {
    cluster: Cluster,
    /// The labels of namespaces.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Scene {
    fn read(documents: &[Document], settings: &Settings, features: Option<&CompiledFeatures>) -> Self {
        let mut scene = Self::default();
        for Document { object, .. } in documents {
            scene.put(Value::Object(object.clone()), settings, features);
        }
        scene
    }

    fn put(&mut self, object: Value, settings: &Settings, features: Option<&CompiledFeatures>) {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        match object["kind"].as_str() {
            Some("Node") => {
                let mut node = Node::from_value(&object, settings);
                if let Some(features) = features {
                    node.custom = features.values(&name, visible(object).to_string().into());
                }
                self.cluster.put_node(&name, node);
            }
            Some("Pod") => {
                if let Some(pod) = Pod::from_value(&object) {
                    self.cluster.put_pod(pod);
                }
            }
            Some("Namespace") => {
                self.namespaces.insert(name, strings(&metadata["labels"]));
            }
            Some("ConfigMap") if metadata["labels"][CONFIG_MAP] == "true" => {
                if let Ok(map) = serde_json::from_value::<ConfigMap>(object) {
                    let (node, downloads) = downloads(&name, map);
                    self.cluster.put_downloads(&node, downloads);
                }
            }
            _ => {}
        }
    }

    /// Prepares the cluster for planned pods, by removing their subjects' existing pods, which would be counted twice. Namespace labels
    /// from the subjects' files take precedence.
    fn prepare(&mut self, pods: &[Pod], world: &World) {
        let owners: BTreeSet<&Owner> = pods.iter().filter_map(|pod| pod.owner.as_ref()).collect();
        let is_planned = |pod: &&Pod| pod.owner.as_ref().is_some_and(|owner| owners.contains(owner));
        let former: Vec<PodKey> = self.cluster.pods().filter(is_planned).map(Pod::key).collect();
        for (namespace, name) in former {
            self.cluster.remove_pod(&namespace, &name);
        }
        for namespace in pods.iter().map(|pod| &pod.namespace).collect::<BTreeSet<_>>() {
            let labels = self.namespaces.entry(namespace.clone()).or_default();
            labels.extend(world.namespace_labels(namespace).iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::{model_nodes::report::NODE_NAME, subject_kind::SUBJECT_KIND};
    use serde_json::json;

    fn pod(name: &str, service: &str, node: &str) -> Value {
        let labels = json!({SUBJECT_KIND: "InferenceService", "serving.ome.io/inferenceservice": service});
        json!({"kind": "Pod", "metadata": {"namespace": "ml", "name": name, "labels": labels}, "spec": {"nodeName": node}})
    }

    fn scene(objects: &[Value]) -> Scene {
        let mut scene = Scene::default();
        for object in objects {
            scene.put(object.clone(), &Settings::default(), None);
        }
        scene
    }

    #[test]
    fn a_line_names_the_node_or_the_nodes_or_why_there_is_none() {
        let predicted = |best: &[&str], reason: Option<&str>| Predicted {
            namespace: "ml".to_owned(),
            name: "chat-0".to_owned(),
            best: best.iter().map(ToString::to_string).collect(),
            reason: reason.map(str::to_owned),
        };
        assert_eq!(line(&predicted(&["a"], None)), "pod ml/chat-0: on the node a");
        assert_eq!(line(&predicted(&["a", "b"], None)), "pod ml/chat-0: on one of the nodes a, b (the scheduler decides)");
        assert_eq!(line(&predicted(&[], Some("there are no nodes"))), "pod ml/chat-0: finds no node: there are no nodes");
    }

    #[test]
    fn files_describe_nodes_with_what_is_on_them() {
        let allocatable = json!({"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}});
        let agent = json!({"name": "m", "labels": {CONFIG_MAP: "true"}, "annotations": {NODE_NAME: "a"}});
        let data = json!({"clusterbasemodel.llama": json!({"status": "Ready"}).to_string()});
        let scene = scene(&[
            json!({"kind": "Node", "metadata": {"name": "a"}, "status": allocatable}),
            pod("chat-0", "chat", "a"),
            json!({"kind": "Namespace", "metadata": {"name": "ml", "labels": {"team": "x"}}}),
            json!({"kind": "ConfigMap", "metadata": agent, "data": data}),
            json!({"kind": "ConfigMap", "metadata": {"name": "other"}, "data": data}),
        ]);
        let nodes: Vec<&str> = scene.cluster.nodes().map(|(name, _)| name).collect();
        assert_eq!(nodes, ["a"]);
        let state = scene.cluster.node("a").unwrap();
        assert_eq!((state.free_amount("pods"), state.downloads.len()), (109, 1));
        assert_eq!(scene.namespaces["ml"]["team"], "x");
    }

    #[test]
    fn pods_that_a_rendered_subject_has_already_do_not_count() {
        let mut scene = scene(&[pod("chat-abc", "chat", "a"), pod("other-abc", "other", "a")]);
        let planned = Pod::from_value(&pod("chat-0", "chat", "")).unwrap();
        scene.prepare(&[planned], &World::default());
        let left: Vec<&str> = scene.cluster.pods().map(|pod| pod.name.as_str()).collect();
        assert_eq!(left, ["other-abc"]);
        assert!(scene.namespaces["ml"].is_empty());
    }
}
