//! The inputs of placements from the cluster, with their watches: nodes, pods, namespaces, and model agents' reports.

use super::features::visible;
use crate::{
    permissions,
    watch::{
        seen::ObjectText,
        store::{LIST_PAGE_SIZE, Name, Obstacle, Store, StoreKind, Unlisted, Watched},
    },
};
use k8s_openapi::api::core::v1::{self, ConfigMap};
use kube::{Api, Client, api::ApiResource, runtime::watcher};
use pointsman_core::{
    model_nodes::{
        names::node_label,
        report::{CONFIG_MAP, DownloadProgress, ModelReport, NODE_NAME, NodeState},
    },
    placement::{Cluster, Download, Node, Pod, PodKey, Settings, record::Placements},
};
use pointsman_sandbox::{digest::Digest, sync::locked};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// How long a pod is used that is known only from a scheduler, and how long a pod counts on the node of a response. The watch confirms both
/// in a moment, or they never happen.
const UNCONFIRMED: Duration = Duration::from_secs(30);

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Nodes,
    Pods,
    Namespaces,
    Reports,
}

impl StoreKind for Kind {
    fn display_name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Namespaces => "namespaces",
            Self::Reports => "configmaps of model agents",
        }
    }

    fn has_namespace(self) -> bool {
        self == Self::Pods
    }
}

/// The objects from the watches.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) cluster: Cluster,
    namespaces: BTreeMap<String, Arc<BTreeMap<String, String>>>,
    /// The nodes of the agents' ConfigMaps.
    reports: BTreeMap<String, String>,
    settings: Arc<Settings>,
    /// The digests of nodes without the fields that expressions don't see.
    digests: BTreeMap<String, Digest>,
    /// The nodes whose custom features must be computed, without the fields that expressions don't see.
    unevaluated: BTreeMap<String, Arc<str>>,
    /// Whether all features were computed once.
    is_evaluated: bool,
    /// The pods that are known only from a scheduler, and until when they are used.
    provisional: BTreeMap<PodKey, Instant>,
    /// The pods whose node is known only from a response, and until when they count there.
    assumed: BTreeMap<PodKey, Instant>,
    placements: Arc<Mutex<Placements>>,
    unlisted: Unlisted<Kind>,
}

impl Seen {
    pub(super) fn new(settings: Arc<Settings>, placements: Arc<Mutex<Placements>>, kinds: &[Kind]) -> Self {
        Self {
            cluster: Cluster::default(),
            namespaces: BTreeMap::new(),
            reports: BTreeMap::new(),
            is_evaluated: settings.features.is_empty(),
            settings,
            digests: BTreeMap::new(),
            unevaluated: BTreeMap::new(),
            provisional: BTreeMap::new(),
            assumed: BTreeMap::new(),
            placements,
            unlisted: Unlisted::new(kinds.iter().copied()),
        }
    }

    /// The reason why calls can't be handled, if any.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        self.unlisted.obstacle().or_else(|| (!self.is_evaluated).then_some(Obstacle::Pending))
    }

    /// The labels of a namespace.
    pub(super) fn namespace_labels(&self, name: &str) -> Arc<BTreeMap<String, String>> {
        self.namespaces.get(name).cloned().unwrap_or_default()
    }

    /// The number of objects of each kind.
    pub(super) fn counts(&self) -> [(&'static str, u64); 4] {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        [
            ("nodes", number(self.cluster.nodes().count())),
            ("pods", number(self.cluster.pods().count())),
            ("namespaces", number(self.namespaces.len())),
            ("reports", number(self.reports.len())),
        ]
    }

    /// Adds a pod of a scheduler's call that the watch may not have brought yet. It is on no node now, regardless of earlier responses.
    pub(super) fn learn(&mut self, pod: &Arc<Pod>) {
        let key = pod.key();
        let is_assumed = self.cluster.is_assumed(&key.0, &key.1);
        let known = self.cluster.pod(&key.0, &key.1);
        if known.is_some_and(|known| known.uid == pod.uid) {
            self.cluster.forget(&key.0, &key.1);
        } else if known.is_some_and(|known| !known.node.is_empty() && !is_assumed) {
            // Its predecessor uses resources until the watch reports its deletion, regardless of the scheduler.
            return;
        } else {
            self.cluster.put_pod(Arc::clone(pod));
            self.provisional.insert(key.clone(), Instant::now() + UNCONFIRMED);
        }
        self.assumed.remove(&key);
    }

    /// Counts a pod on the node of a response, until the watch shows its node.
    pub(super) fn assume(&mut self, key: PodKey, node: &str) {
        self.cluster.assume(&key.0, &key.1, node);
        self.assumed.insert(key, Instant::now() + UNCONFIRMED);
    }

    /// Drops everything that the watches haven't confirmed in time.
    pub(super) fn tidy(&mut self, now: Instant) {
        let Self { cluster, provisional, assumed, .. } = self;
        provisional.retain(|(namespace, name), until| {
            let is_over = *until <= now;
            if is_over {
                cluster.remove_pod(namespace, name);
            }
            !is_over
        });
        assumed.retain(|(namespace, name), until| {
            let is_over = *until <= now;
            if is_over {
                cluster.forget(namespace, name);
            }
            !is_over
        });
    }

    /// Takes some nodes whose custom features must be computed, without the fields that expressions don't see.
    pub(super) fn take_unevaluated(&mut self, most: usize) -> Vec<(String, Arc<str>)> {
        if self.unevaluated.len() <= most {
            return mem::take(&mut self.unevaluated).into_iter().collect();
        }
        (0..most).map_while(|_| self.unevaluated.pop_first()).collect()
    }

    /// Stores computed features. Those of a node that has changed meanwhile are computed again.
    pub(super) fn put_features(&mut self, found: Vec<(String, Vec<f64>)>) {
        for (name, values) in found {
            let Some(mut node) = self.cluster.node(&name).map(|state| Node::clone(&state.node)) else { continue };
            node.custom = values;
            self.cluster.put_node(&name, node);
        }
        self.is_evaluated |= self.unevaluated.is_empty() && self.unlisted.obstacle().is_none();
    }

    fn put_node(&mut self, name: &str, text: &str) {
        let object: Value = serde_json::from_str(text).unwrap_or_default();
        let mut node = Node::from_value(&object, &self.settings);
        let known = self.cluster.node(name).map(|state| Arc::clone(&state.node));
        let features = self.settings.features.len();
        if features > 0 {
            node.custom = known.as_ref().map_or_else(|| vec![f64::NAN; features], |known| known.custom.clone());
            let seen = visible(object).to_string();
            let digest = Digest::hash(seen.as_bytes());
            if self.digests.insert(name.to_owned(), digest) != Some(digest) {
                self.unevaluated.insert(name.to_owned(), seen.into());
            }
        }
        // A node's status is written all the time, and the results for gangs stay valid until a relevant change.
        if known.is_none_or(|known| !is_same(&known, &node)) {
            self.cluster.put_node(name, node);
        }
    }

    fn put_pod(&mut self, key: &PodKey, text: &str) {
        self.provisional.remove(key);
        let object: Value = serde_json::from_str(text).unwrap_or_default();
        let Some(pod) = Pod::from_value(&object) else {
            self.assumed.remove(key);
            return self.cluster.remove_pod(&key.0, &key.1);
        };
        if !pod.node.is_empty() {
            let was_assumed = self.assumed.remove(key).is_some();
            let was_placed = self.cluster.pod(&key.0, &key.1).is_some_and(|known| known.uid == pod.uid && !known.node.is_empty());
            if was_assumed || !was_placed {
                locked(&self.placements).choose(&key.0, &key.1, &pod.node);
            }
        }
        self.cluster.put_pod(pod);
    }

    fn put_report(&mut self, name: &str, text: &str) {
        let (node, downloads) = downloads(name, serde_json::from_str(text).unwrap_or_default());
        self.cluster.put_downloads(&node, downloads);
        if let Some(former) = self.reports.insert(name.to_owned(), node.clone()).filter(|former| *former != node) {
            self.cluster.remove_downloads(&former);
        }
    }
}

/// Whether a node is unchanged except for its custom features. An unknown feature equals nothing.
fn is_same(known: &Node, node: &Node) -> bool {
    (&known.labels, &known.annotations, &known.allocatable) == (&node.labels, &node.annotations, &node.allocatable)
        && (&known.taints, known.unschedulable, &known.images) == (&node.taints, node.unschedulable, &node.images)
}

/// The node of an agent's ConfigMap of this name, and the download progress of each model there.
pub(crate) fn downloads(name: &str, map: ConfigMap) -> (String, BTreeMap<String, Download>) {
    let annotations = map.metadata.annotations.unwrap_or_default();
    let node = annotations.get(NODE_NAME).cloned().unwrap_or_else(|| name.to_owned());
    let data = map.data.unwrap_or_default();
    let downloads = data.iter().filter_map(|(key, text)| Some((label_of_key(key)?, download(&ModelReport::parse(text))?)));
    (node, downloads.collect())
}

/// The node label for the model of a key in an agent's ConfigMap.
fn label_of_key(key: &str) -> Option<String> {
    match key.strip_prefix("clusterbasemodel.") {
        Some(name) => Some(node_label("", name)),
        None => key.split_once(".basemodel.").map(|(namespace, name)| node_label(namespace, name)),
    }
}

/// The download progress of a model on a node; none if it isn't being downloaded there.
fn download(report: &ModelReport) -> Option<Download> {
    let progress = report.progress.as_ref();
    #[allow(clippy::cast_precision_loss, reason = "it is a share")]
    let share = progress
        .filter(|progress| progress.total_bytes > 0)
        .map_or(0.0, |progress| progress.completed_bytes.min(progress.total_bytes) as f64 / progress.total_bytes as f64);
    #[allow(clippy::cast_precision_loss, reason = "no download takes as many seconds")]
    let seconds = progress.and_then(DownloadProgress::seconds_left).map(|seconds| seconds as f64);
    match report.status {
        NodeState::Ready => Some(Download { share: 1.0, seconds: Some(0.0) }),
        NodeState::Updating => Some(Download { share, seconds }),
        NodeState::Failed => Some(Download { share, seconds: None }),
        NodeState::Deleted => None,
    }
}

impl Store for Seen {
    type Kind = Kind;

    fn put(&mut self, kind: Kind, name: &Name, text: &str) {
        match kind {
            Kind::Nodes => self.put_node(&name.1, text),
            Kind::Pods => self.put_pod(name, text),
            Kind::Namespaces => {
                let namespace: v1::Namespace = serde_json::from_str(text).unwrap_or_default();
                self.namespaces.insert(name.1.clone(), Arc::new(namespace.metadata.labels.unwrap_or_default()));
            }
            Kind::Reports => self.put_report(&name.1, text),
        }
    }

    fn remove(&mut self, kind: Kind, name: &Name) {
        match kind {
            Kind::Nodes => {
                self.digests.remove(&name.1);
                self.unevaluated.remove(&name.1);
                self.cluster.remove_node(&name.1);
            }
            Kind::Pods => {
                self.provisional.remove(name);
                self.assumed.remove(name);
                self.cluster.remove_pod(&name.0, &name.1);
            }
            Kind::Namespaces => _ = self.namespaces.remove(&name.1),
            Kind::Reports => {
                if let Some(node) = self.reports.remove(&name.1) {
                    self.cluster.remove_downloads(&node);
                }
            }
        }
    }

    fn names(&self, kind: Kind) -> Vec<Name> {
        let unspaced = |name: &str| (String::new(), name.to_owned());
        match kind {
            Kind::Nodes => self.cluster.nodes().map(|(name, _)| unspaced(name)).collect(),
            Kind::Pods => self.cluster.pods().map(Pod::key).collect(),
            Kind::Namespaces => self.namespaces.keys().map(|name| unspaced(name)).collect(),
            Kind::Reports => self.reports.keys().map(|name| unspaced(name)).collect(),
        }
    }

    fn unlisted(&mut self) -> &mut Unlisted<Kind> {
        &mut self.unlisted
    }
}

/// Starts the watches; `agents` is the namespace of the model agents, if there are any.
pub(super) fn start(client: &Client, settings: Arc<Settings>, agents: Option<&str>, placements: Arc<Mutex<Placements>>) -> Watched<Seen> {
    let kinds = [Kind::Nodes, Kind::Pods, Kind::Namespaces].into_iter().chain(agents.map(|_| Kind::Reports)).collect::<Vec<_>>();
    let mut watched = Watched::new(Seen::new(settings, placements, &kinds));
    for kind in kinds {
        let all = watcher::Config::default().page_size(LIST_PAGE_SIZE);
        let (api, config): (Api<ObjectText>, _) = match kind {
            Kind::Nodes => (Api::all_with(client.clone(), &ApiResource::erase::<v1::Node>(&())), all),
            Kind::Pods => (Api::all_with(client.clone(), &ApiResource::erase::<v1::Pod>(&())), all),
            Kind::Namespaces => (Api::all_with(client.clone(), &ApiResource::erase::<v1::Namespace>(&())), all),
            Kind::Reports => {
                let maps = Api::namespaced_with(client.clone(), agents.unwrap_or_default(), &ApiResource::erase::<ConfigMap>(&()));
                (maps, all.labels(&format!("{CONFIG_MAP}=true")))
            }
        };
        let remedy = match kind {
            Kind::Reports => {
                format!("apply deploy/{} to the namespace {}", permissions::SCHEDULER_MODEL_REPORTS, agents.unwrap_or_default())
            }
            Kind::Nodes | Kind::Pods | Kind::Namespaces => format!("apply deploy/{}", permissions::SCHEDULER),
        };
        watched.follow(kind, api, config, remedy);
    }
    watched
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::model_nodes::names::config_map_key;
    use serde_json::json;

    fn seen(settings: &str) -> Seen {
        Seen::new(Arc::new(Settings::from_yaml(settings).unwrap()), Arc::new(Mutex::new(Placements::new(10, 1 << 20))), &[])
    }

    fn named(name: &str) -> Name {
        (String::new(), name.to_owned())
    }

    fn node(value: &str) -> String {
        json!({"metadata": {"name": "n1", "labels": {"cost": value}}, "status": {"allocatable": {"cpu": "4"}}}).to_string()
    }

    fn pod(uid: &str, node: Option<&str>) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "chat", "uid": uid},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Pending"},
        })
    }

    fn key() -> PodKey {
        ("chat".to_owned(), "p".to_owned())
    }

    #[test]
    fn custom_features_are_found_again_only_if_something_visible_has_changed() {
        let mut seen = seen("features: [{name: node.cost, expression: 'double(node.metadata.labels.cost)'}]");
        assert_eq!(seen.obstacle(), Some(Obstacle::Pending));
        seen.put(Kind::Nodes, &named("n1"), &node("1"));
        let taken = seen.take_unevaluated(10);
        assert_eq!(taken.len(), 1);
        assert!(seen.cluster.node("n1").unwrap().node.custom[0].is_nan());
        seen.put_features(vec![("n1".to_owned(), vec![7.0]), ("gone".to_owned(), vec![1.0])]);
        assert_eq!((seen.cluster.node("n1").unwrap().node.custom.clone(), seen.obstacle()), (vec![7.0], None));
        seen.put(Kind::Nodes, &named("n1"), &node("1"));
        assert!(seen.take_unevaluated(10).is_empty());
        seen.put(Kind::Nodes, &named("n1"), &node("2"));
        assert_eq!(seen.cluster.node("n1").unwrap().node.custom, [7.0], "the former value counts until then");
        seen.put(Kind::Nodes, &named("n2"), &node("2"));
        assert_eq!((seen.take_unevaluated(1).len(), seen.take_unevaluated(1).len()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_no_watch_confirms_counts_for_a_while() {
        let mut seen = seen("");
        seen.put(Kind::Nodes, &named("n1"), &node("1"));
        let asked = Arc::new(Pod::from_value(&pod("u1", None)).unwrap());
        seen.learn(&asked);
        seen.assume(key(), "n1");
        assert_eq!(seen.cluster.pod("chat", "p").unwrap().node, "n1");
        // A scheduler that calls again hasn't placed it.
        seen.learn(&asked);
        assert_eq!(seen.cluster.pod("chat", "p").unwrap().node, "");
        seen.assume(key(), "n1");
        seen.put(Kind::Pods, &key(), &pod("u1", None).to_string());
        tokio::time::advance(UNCONFIRMED).await;
        seen.tidy(Instant::now());
        assert_eq!(seen.cluster.pod("chat", "p").unwrap().node, "", "it was never placed");
        seen.put(Kind::Pods, &key(), &pod("u1", Some("n1")).to_string());
        assert_eq!(seen.cluster.pod("chat", "p").unwrap().node, "n1");
        // Another pod of the same name that only a scheduler knows. Its predecessor uses resources until the watch reports its deletion.
        let successor = Arc::new(Pod::from_value(&pod("u2", None)).unwrap());
        seen.learn(&successor);
        assert_eq!(seen.cluster.pod("chat", "p").unwrap().node, "n1");
        seen.remove(Kind::Pods, &key());
        seen.learn(&successor);
        assert_eq!(seen.cluster.pod("chat", "p").unwrap().uid, "u2");
        tokio::time::advance(UNCONFIRMED).await;
        seen.tidy(Instant::now());
        assert!(seen.cluster.pod("chat", "p").is_none());
    }

    #[test]
    fn reports_become_downloads_by_the_labels_of_models() {
        let mut seen = seen("");
        seen.put(Kind::Nodes, &named("n1"), &node("1"));
        let report = json!({"status": "Updating", "progress": {"totalBytes": 100, "completedBytes": 25, "speedBytesPerSec": 5.0}});
        let data = json!({"clusterbasemodel.llama": report.to_string(), "chat.basemodel.own": "{\"status\": \"Ready\"}", "odd": "{}"});
        let map = json!({"metadata": {"name": "m", "annotations": {NODE_NAME: "n1"}}, "data": data});
        seen.put(Kind::Reports, &named("m"), &map.to_string());
        let downloads = seen.cluster.node("n1").unwrap().downloads.clone();
        assert_eq!(downloads["models.ome.io/clusterbasemodel.llama"], Download { share: 0.25, seconds: Some(15.0) });
        assert_eq!(downloads["models.ome.io/chat.basemodel.own"], Download { share: 1.0, seconds: Some(0.0) });
        assert_eq!(downloads.len(), 2);
        seen.remove(Kind::Reports, &named("m"));
        assert!(seen.cluster.node("n1").unwrap().downloads.is_empty());
    }

    #[test]
    fn keys_of_models_are_those_that_agents_write() {
        for (namespace, name) in [("", "llama"), ("chat", "llama"), ("a-long-namespace", &*"m".repeat(60))] {
            assert_eq!(label_of_key(&config_map_key(namespace, name)), Some(node_label(namespace, name)));
        }
    }

    #[test]
    fn what_a_list_lacks_is_removed_by_its_name() {
        let mut seen = seen("");
        seen.put(Kind::Pods, &key(), &pod("u1", None).to_string());
        seen.put(Kind::Namespaces, &named("chat"), &json!({"metadata": {"labels": {"a": "b"}}}).to_string());
        assert_eq!((seen.names(Kind::Pods), seen.names(Kind::Namespaces)), (vec![key()], vec![named("chat")]));
        assert_eq!(seen.namespace_labels("chat")["a"], "b");
        for (kind, name) in [(Kind::Pods, key()), (Kind::Namespaces, named("chat"))] {
            seen.remove(kind, &name);
            assert!(seen.names(kind).is_empty());
        }
    }
}
