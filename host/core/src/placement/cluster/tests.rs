use super::*;
use crate::placement::{Settings, pod::Gang, usage::Usage};
use proptest::prelude::*;

fn node(cpu: i64) -> Node {
    Node { allocatable: Resources::from_iter([("cpu", cpu), ("pods", 110)]), ..Node::default() }
}

fn owner(name: &str) -> Owner {
    Owner { kind: "InferenceService", group: "ome.io", version: "v1beta1", namespace: "ml".to_owned(), name: name.to_owned() }
}

fn pod(name: &str, node: &str, cpu: i64) -> Pod {
    Pod {
        uid: format!("{name}-1"),
        namespace: "ml".to_owned(),
        name: name.to_owned(),
        node: node.to_owned(),
        requests: Resources::from_iter([("cpu", cpu), ("pods", 1)]),
        gang: Some(Gang { name: "g".to_owned(), size: 2, leads: false, native: false }),
        owner: Some(owner("chat")),
        ..Pod::default()
    }
}

fn names<'p>(pods: impl Iterator<Item = &'p Pod>) -> Vec<&'p str> {
    pods.map(|pod| pod.name.as_str()).collect()
}

#[test]
fn what_pods_take_of_a_node_counts_whichever_is_known_first() {
    let mut cluster = Cluster::default();
    cluster.put_pod(pod("a", "n", 1000));
    cluster.put_downloads("n", BTreeMap::from([("model".to_owned(), Download { share: 0.5, seconds: None })]));
    assert!(cluster.node("n").is_none() && cluster.nodes().count() == 0);
    assert_eq!(names(cluster.pods_on("n")), ["a"]);
    cluster.put_node("n", node(4000));
    cluster.put_pod(pod("b", "n", 500));
    let state = cluster.node("n").unwrap();
    assert_eq!(state.free(), Resources::from_iter([("cpu", 2500), ("pods", 108)]));
    assert_eq!((state.free_amount("cpu"), state.free_amount("memory"), state.downloads.len()), (2500, 0, 1));
    cluster.remove_node("n");
    assert!(cluster.node("n").is_none());
    cluster.put_node("n", node(2000));
    assert_eq!(cluster.node("n").unwrap().free_amount("cpu"), 500);
    cluster.remove_pod("ml", "a");
    assert_eq!(cluster.node("n").unwrap().free_amount("cpu"), 1500);
    cluster.remove_pod("ml", "unknown");
    cluster.remove_pod("ml", "b");
    cluster.remove_downloads("n");
    cluster.remove_node("n");
    assert!(cluster.names().is_empty() && cluster.pods.is_empty() && cluster.gangs.is_empty() && cluster.owners.is_empty());
}

#[test]
fn an_assumed_pod_counts_until_its_object_has_a_node() {
    let mut cluster = Cluster::default();
    for name in ["m", "n"] {
        cluster.put_node(name, node(4000));
    }
    cluster.assume("ml", "a", "n");
    assert!(!cluster.is_assumed("ml", "a"), "it is unknown");
    cluster.put_pod(pod("a", "", 1000));
    cluster.assume("ml", "a", "n");
    assert_eq!((cluster.pod("ml", "a").unwrap().node.as_str(), cluster.node("n").unwrap().free_amount("cpu")), ("n", 3000));
    // An update of its object without a node doesn't end the assumption.
    cluster.put_pod(Pod { priority: 3, ..pod("a", "", 1000) });
    assert!(cluster.is_assumed("ml", "a"));
    assert_eq!((cluster.pod("ml", "a").unwrap().priority, names(cluster.pods_on("n"))), (3, vec!["a"]));
    cluster.assume("ml", "a", "m");
    assert_eq!((names(cluster.pods_on("m")), cluster.node("n").unwrap().free_amount("cpu")), (vec!["a"], 4000));
    cluster.forget("ml", "a");
    assert_eq!((cluster.pod("ml", "a").unwrap().node.as_str(), cluster.pods_on("m").count()), ("", 0));
    cluster.assume("ml", "a", "m");
    cluster.put_pod(pod("a", "n", 1000));
    cluster.forget("ml", "a");
    cluster.assume("ml", "a", "m");
    assert!(!cluster.is_assumed("ml", "a"));
    assert_eq!((names(cluster.pods_on("n")), cluster.pods_on("m").count()), (vec!["a"], 0));
}

#[test]
fn a_pod_with_the_name_of_an_assumed_one_is_another() {
    let mut cluster = Cluster::default();
    cluster.put_pod(pod("a", "", 1000));
    cluster.assume("ml", "a", "n");
    cluster.put_pod(Pod { uid: "other".to_owned(), ..pod("a", "", 1000) });
    assert!(!cluster.is_assumed("ml", "a") && cluster.pods_on("n").count() == 0);
}

#[test]
fn a_trial_changes_nothing_of_the_cluster() {
    let mut cluster = Cluster::default();
    cluster.put_node("n", node(4000));
    cluster.put_pod(pod("b", "", 1000));
    cluster.put_pod(pod("a", "", 1000));
    let mut trial = cluster.clone();
    trial.assume("ml", "a", "n");
    trial.put_pod(Pod { gang: None, owner: None, ..pod("b", "n", 500) });
    assert_eq!((trial.node("n").unwrap().free_amount("cpu"), cluster.node("n").unwrap().free_amount("cpu")), (2500, 4000));
    assert_eq!((names(trial.gang("ml", "g")), names(cluster.gang("ml", "g"))), (vec!["a"], vec!["a", "b"]));
    assert_eq!((trial.of_owner(&owner("chat")).count(), cluster.of_owner(&owner("chat")).count()), (1, 2));
    assert_eq!((cluster.gangs().collect::<Vec<_>>(), cluster.pods().count()), (vec![("ml", "g")], 2));
    assert_eq!((cluster.gang("other", "g").count(), cluster.of_owner(&owner("other")).count()), (0, 0));
}

#[test]
fn what_is_put_again_as_it_was_is_no_change() {
    let mut cluster = Cluster::default();
    let unknown = Node { custom: vec![f64::NAN], ..node(4000) };
    let downloads = BTreeMap::from([("model".to_owned(), Download { share: 0.5, seconds: None })]);
    let put = |cluster: &mut Cluster| {
        cluster.put_node("n", unknown.clone());
        cluster.put_pod(pod("a", "", 1000));
        cluster.put_downloads("n", downloads.clone());
        cluster.assume("ml", "a", "n");
        cluster.version()
    };
    let version = put(&mut cluster);
    assert_eq!(put(&mut cluster), version);
    cluster.remove_node("m");
    cluster.remove_pod("ml", "b");
    cluster.remove_downloads("m");
    cluster.forget("ml", "b");
    assert_eq!(cluster.version(), version);
    // Its object now confirms the node.
    cluster.put_pod(pod("a", "n", 1000));
    assert!(cluster.version() > version);
}

#[derive(Clone, Debug)]
enum Operation {
    PutNode(u8, i64),
    RemoveNode(u8),
    PutPod(Arc<Pod>),
    RemovePod(u8),
    Assume(u8, u8),
    Forget(u8),
    Downloads(u8, Option<u8>),
}

/// The current objects, and the assumed nodes of pods.
#[derive(Default)]
struct Objects {
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    assumed: BTreeMap<String, String>,
    downloads: BTreeMap<String, BTreeMap<String, Download>>,
}

fn node_name(at: u8) -> String {
    format!("node-{at}")
}

fn pod_name(at: u8) -> String {
    format!("pod-{at}")
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let cpu = prop_oneof![4 => 0..4_000_i64, 1 => Just(i64::MAX)];
    (0..8_u8, 0..2_u8, prop::option::of(0..4_u8), cpu, prop::option::of(0..2_u8), prop::option::of(0..2_u8)).prop_map(
        |(at, uid, node, cpu, gang, chat)| Pod {
            uid: uid.to_string(),
            gang: gang.map(|gang| Gang { name: format!("gang-{gang}"), size: 4, leads: false, native: false }),
            owner: chat.map(|chat| owner(&format!("chat-{chat}"))),
            ..pod(&pod_name(at), &node.map(node_name).unwrap_or_default(), cpu)
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => (0..4_u8, 0..9_000_i64).prop_map(|(node, cpu)| Operation::PutNode(node, cpu)),
        1 => (0..4_u8).prop_map(Operation::RemoveNode),
        6 => any_pod().prop_map(|pod| Operation::PutPod(Arc::new(pod))),
        2 => (0..8_u8).prop_map(Operation::RemovePod),
        4 => (0..8_u8, 0..4_u8).prop_map(|(pod, node)| Operation::Assume(pod, node)),
        1 => (0..8_u8).prop_map(Operation::Forget),
        1 => (0..4_u8, prop::option::of(0..3_u8)).prop_map(|(node, models)| Operation::Downloads(node, models)),
    ]
}

fn downloads(models: u8) -> BTreeMap<String, Download> {
    (0..models).map(|model| (format!("model-{model}"), Download { share: 0.5, seconds: Some(1.0) })).collect()
}

impl Objects {
    /// Applies the operation to a cluster and to the objects.
    fn run(&mut self, operation: &Operation, cluster: &mut Cluster) {
        match operation {
            Operation::PutNode(at, cpu) => {
                self.nodes.insert(node_name(*at), node(*cpu));
                cluster.put_node(&node_name(*at), node(*cpu));
            }
            Operation::RemoveNode(at) => {
                self.nodes.remove(&node_name(*at));
                cluster.remove_node(&node_name(*at));
            }
            Operation::PutPod(pod) => {
                let known = self.pods.insert(pod.name.clone(), Pod::clone(pod));
                if !pod.node.is_empty() || known.is_none_or(|known| known.uid != pod.uid) {
                    self.assumed.remove(&pod.name);
                }
                cluster.put_pod(Arc::clone(pod));
            }
            Operation::RemovePod(at) => {
                self.pods.remove(&pod_name(*at));
                self.assumed.remove(&pod_name(*at));
                cluster.remove_pod("ml", &pod_name(*at));
            }
            Operation::Assume(at, node) => {
                if self.pods.get(&pod_name(*at)).is_some_and(|pod| pod.node.is_empty()) {
                    self.assumed.insert(pod_name(*at), node_name(*node));
                }
                cluster.assume("ml", &pod_name(*at), &node_name(*node));
            }
            Operation::Forget(at) => {
                self.assumed.remove(&pod_name(*at));
                cluster.forget("ml", &pod_name(*at));
            }
            Operation::Downloads(at, None) => {
                self.downloads.remove(&node_name(*at));
                cluster.remove_downloads(&node_name(*at));
            }
            Operation::Downloads(at, Some(models)) => {
                self.downloads.insert(node_name(*at), downloads(*models));
                cluster.put_downloads(&node_name(*at), downloads(*models));
            }
        }
    }

    /// A cluster that was built from the current objects only.
    fn fresh(&self) -> Cluster {
        let mut cluster = Cluster::default();
        for pod in self.pods.values() {
            cluster.put_pod(pod.clone());
        }
        for (name, node) in &self.nodes {
            cluster.put_node(name, node.clone());
        }
        for (pod, node) in &self.assumed {
            cluster.assume("ml", pod, node);
        }
        for (node, downloads) in &self.downloads {
            cluster.put_downloads(node, downloads.clone());
        }
        cluster
    }
}

type Contents<'c> =
    (&'c Slots, &'c HashTrieMapSync<PodKey, Arc<Pod>>, &'c RedBlackTreeSetSync<PodKey>, &'c Index<PodKey>, &'c Index<Owner>);

/// The contents of a cluster.
fn contents(cluster: &Cluster) -> Contents<'_> {
    (&cluster.slots, &cluster.pods, &cluster.assumed, &cluster.gangs, &cluster.owners)
}

/// The cached values of each node.
fn usages(cluster: &Cluster) -> Vec<(String, String)> {
    let settings = Settings::default();
    // As text, because NaN doesn't equal NaN.
    let usage = |(name, state): (&str, &NodeState)| (name.to_owned(), format!("{:?}", Usage::for_state(state, &settings)));
    cluster.nodes().map(usage).collect()
}

/// Whether every name is found at its index, and nodes by their indices.
fn is_in_place(cluster: &Cluster) -> bool {
    let names = cluster.names();
    let is_found = |at: usize| names.get(at).is_some_and(|name| names.find(name) == Some(at) && cluster.node(name) == cluster.node_at(at));
    (0..names.len()).all(is_found) && cluster.nodes().map(|(name, _)| name).is_sorted()
}

proptest! {
    /// After any changes, including those of copies, the indexes match the current objects.
    #[test]
    fn a_cluster_kept_equals_one_from_scratch(operations in prop::collection::vec(operation(), 1..60)) {
        let (mut kept, mut objects) = (Cluster::default(), Objects::default());
        let mut copies = Vec::new();
        for (at, operation) in operations.iter().enumerate() {
            let before = kept.clone();
            objects.run(operation, &mut kept);
            // Fills the caches, so that later changes must invalidate them.
            usages(&kept);
            prop_assert_eq!(contents(&kept) == contents(&before), kept.version() == before.version(), "{:?}", operation);
            if at % 8 == 0 {
                copies.push((kept.clone(), objects.fresh()));
            }
        }
        copies.push((kept, objects.fresh()));
        for (kept, fresh) in &copies {
            prop_assert_eq!(contents(kept), contents(fresh));
            prop_assert_eq!(usages(kept), usages(fresh));
            prop_assert!(is_in_place(kept));
        }
    }
}
