use super::*;
use crate::{
    decide::scoring,
    placement::{
        cluster::Download,
        pod::{Gang, Owner},
        settings::CustomFeature,
    },
};
use pointsman_sandbox::point::Question;
use std::collections::BTreeMap;

const GPU: &str = "nvidia.com/gpu";
const GIB: i64 = 1 << 30;
const MODEL: &str = "models.ome.io/clusterbasemodel.llama";

fn node(gpus: i64, labels: &[(&str, &str)]) -> Node {
    Node {
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        allocatable: Resources::from_iter([("cpu", 8000), ("memory", 64 * GIB), ("pods", 110), (GPU, gpus)]),
        ..Node::default()
    }
}

/// A pod of an InferenceService, with one processor, one GiB and this many GPUs.
fn pod(name: &str, node: &str, role: &str, gpus: i64) -> Pod {
    let owner = Owner { kind: "InferenceService", group: "ome.io", version: "v1beta1", namespace: "ml".into(), name: "chat".into() };
    Pod {
        namespace: "ml".into(),
        name: name.into(),
        node: node.into(),
        role: role.into(),
        requests: Resources::from_iter([("cpu", 1000), ("memory", GIB), ("pods", 1), (GPU, gpus)]),
        owner: Some(owner),
        ..Pod::default()
    }
}

fn member(name: &str, node: &str, gpus: i64, size: usize) -> Pod {
    let gang = Gang { name: "g".into(), size, leads: false, native: false };
    Pod { gang: Some(gang), owner: None, ..pod(name, node, "", gpus) }
}

fn cluster(nodes: &[(&str, Node)], pods: &[Pod]) -> Cluster {
    let mut cluster = Cluster::default();
    for (name, node) in nodes {
        cluster.put_node(name, node.clone());
    }
    for pod in pods {
        cluster.put_pod(pod.clone());
    }
    cluster
}

/// One column of the rows for these nodes.
fn column(cluster: &Cluster, pod: &Pod, nodes: &[&str], name: &str) -> Vec<f64> {
    let settings = Settings::default();
    let at = names(&settings).iter().position(|known| *known == name).unwrap();
    let values = rows(cluster, &settings, pod, &Nodes::named(cluster, nodes), &|_| None);
    values.chunks_exact(FEATURES.len()).map(|row| row[at]).collect()
}

/// Compares bit by bit, so that NaN equals NaN.
fn assert_column(cluster: &Cluster, pod: &Pod, nodes: &[&str], name: &str, expected: &[f64]) {
    let found = column(cluster, pod, nodes, name);
    let bits = |values: &[f64]| values.iter().map(|value| if value.is_nan() { None } else { Some(value.to_bits()) }).collect::<Vec<_>>();
    assert_eq!(bits(&found), bits(expected), "{name} of {nodes:?} is {found:?}");
}

#[test]
fn the_names_are_those_that_plugins_may_request_and_each_is_described() {
    let names: Vec<&str> = FEATURES.iter().map(|feature| feature.name).collect();
    assert_eq!(names, scoring::features(Question::NodePlacement));
    assert!(FEATURES.iter().all(|feature| !feature.unit.is_empty() && !feature.about.is_empty()));
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), FEATURES.len());
}

#[test]
fn what_is_free_is_without_the_pod_itself_and_without_what_is_reserved() {
    let new = pod("new", "", "engine", 2);
    let pods = [pod("other", "a", "engine", 3), new.clone()];
    let mut cluster = cluster(&[("a", node(8, &[])), ("b", node(8, &[])), ("c", node(0, &[]))], &pods);
    let nodes = ["a", "b", "c", "gone"];
    let (gib, nan) = (number(GIB), f64::NAN);
    let expected: [(&str, [f64; 4]); 10] = [
        ("allocatable-cpu", [8.0, 8.0, 8.0, nan]),
        ("free-cpu", [7.0, 8.0, 8.0, nan]),
        ("allocatable-memory-bytes", [64.0 * gib, 64.0 * gib, 64.0 * gib, nan]),
        ("free-memory-bytes", [63.0 * gib, 64.0 * gib, 64.0 * gib, nan]),
        ("allocatable-accelerators", [8.0, 8.0, 0.0, nan]),
        ("free-accelerators", [5.0, 8.0, 0.0, nan]),
        ("requested-accelerators", [2.0, 2.0, 2.0, nan]),
        ("node-is-free", [0.0, 1.0, 0.0, nan]),
        ("pods", [1.0, 0.0, 0.0, nan]),
        ("pool-pressure", [3.0 / 16.0, 3.0 / 16.0, 3.0 / 16.0, nan]),
    ];
    for (name, expected) in expected {
        assert_column(&cluster, &new, &nodes, name, &expected);
    }
    // Assuming it on a node doesn't change its own question.
    cluster.assume("ml", "new", "b");
    for (name, expected) in expected {
        assert_column(&cluster, &new, &nodes, name, &expected);
    }
    let settings = Settings::default();
    let reserved = |name: &str| (name == "b").then(|| Resources::from_iter([("cpu", 500), (GPU, 1)]));
    let values = rows(&cluster, &settings, &new, &Nodes::named(&cluster, &["b"]), &reserved);
    let value = |name: &str| values[FEATURES.iter().position(|feature| feature.name == name).unwrap()];
    let found = ["free-cpu", "free-accelerators", "node-is-free", "pool-pressure"].map(value);
    assert_eq!(found.to_vec(), [7.5, 7.0, 0.0, 0.25]);
}

#[test]
fn a_pod_without_accelerators_learns_of_all_kinds_together() {
    let mut mixed = node(8, &[]);
    mixed.allocatable.set("amd.com/gpu", 4);
    let cluster = cluster(&[("a", mixed)], &[pod("other", "a", "engine", 3)]);
    assert_column(&cluster, &pod("new", "", "router", 0), &["a"], "free-accelerators", &[9.0]);
    let mut amd = pod("new", "", "engine", 0);
    amd.requests.set("amd.com/gpu", 1);
    assert_column(&cluster, &amd, &["a"], "free-accelerators", &[4.0]);
    // A node isn't entirely free if accelerators of any kind are taken.
    assert_column(&cluster, &amd, &["a"], "node-is-free", &[0.0]);
}

#[test]
fn as_many_free_accelerators_are_linked_as_must_be_however_they_lie() {
    let settings = Settings::default();
    let adjacent = |all: i64, island: &str, taken: i64| {
        let label = (settings.accelerator_island.as_str(), island);
        let cluster = cluster(&[("a", node(all, &[label]))], &[pod("other", "a", "engine", taken)]);
        column(&cluster, &pod("new", "", "engine", 1), &["a"], "adjacent-accelerators")[0]
    };
    // Two islands of four: of five free ones, at least three are on one island.
    assert_eq!([0, 1, 3, 4, 6, 7, 8].map(|taken| adjacent(8, "4", taken)).to_vec(), [4.0, 4.0, 3.0, 2.0, 1.0, 1.0, 0.0]);
    assert_eq!([0, 4].map(|taken| adjacent(8, "8", taken)).to_vec(), [8.0, 4.0]);
    // Islands of four and two: of five free ones, at most two are on the small island, which leaves three.
    assert_eq!([0, 1, 2].map(|taken| adjacent(6, "4", taken)).to_vec(), [4.0, 3.0, 2.0]);
    assert_eq!(adjacent(2, "4", 1).to_bits(), 1.0_f64.to_bits());
    assert!(adjacent(8, "all", 0).is_nan());
}

#[test]
fn models_are_known_by_labels_and_downloads_by_reports() {
    let labelled = |state: &str| node(8, &[(MODEL, state)]);
    let mut cluster = cluster(&[("ready", labelled("Ready")), ("loading", labelled("Updating")), ("c", node(8, &[]))], &[]);
    cluster.put_downloads("loading", BTreeMap::from([(MODEL.to_owned(), Download { share: 0.25, seconds: Some(90.0) })]));
    let nodes = ["ready", "loading", "c"];
    let mut new = Pod { models: vec![MODEL.into()], ..pod("new", "", "engine", 1) };
    assert_column(&cluster, &new, &nodes, "model-present", &[1.0, 0.0, 0.0]);
    assert_column(&cluster, &new, &nodes, "model-download-share", &[1.0, 0.25, 0.0]);
    assert_column(&cluster, &new, &nodes, "model-seconds-left", &[0.0, 90.0, f64::NAN]);
    // The slowest model counts, and if one is unknown, the total is unknown.
    new.models.push("models.ome.io/clusterbasemodel.phi".into());
    assert_column(&cluster, &new, &nodes, "model-present", &[0.0; 3]);
    assert_column(&cluster, &new, &nodes, "model-download-share", &[0.0; 3]);
    assert_column(&cluster, &new, &nodes, "model-seconds-left", &[f64::NAN; 3]);
    new.models.clear();
    for name in ["model-present", "model-download-share", "model-seconds-left"] {
        assert_column(&cluster, &new, &nodes, name, &[f64::NAN; 3]);
    }
}

/// Two zones, the first with a rack that contains an RDMA domain; and a node without labels.
fn topology() -> Vec<(&'static str, Node)> {
    let (zone, rack, rdma) = ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack", "pointsman.dev/rdma-domain");
    vec![
        ("a", node(8, &[(zone, "1"), (rack, "r"), (rdma, "x")])),
        ("b", node(8, &[(zone, "1"), (rack, "r"), (rdma, "x")])),
        ("c", node(8, &[(zone, "1"), (rack, "r")])),
        ("d", node(8, &[(zone, "1")])),
        ("e", node(8, &[(zone, "2")])),
        ("f", node(8, &[])),
    ]
}

#[test]
fn replicas_are_counted_by_node_and_zone_and_peers_by_distance() {
    let leaving = Pod { is_leaving: true, ..pod("leaving", "e", "decode", 1) };
    let pods = [pod("1", "a", "decode", 1), pod("2", "c", "decode", 1), pod("3", "a", "prefill", 1), pod("4", "", "prefill", 1), leaving];
    let cluster = cluster(&topology(), &pods);
    let new = pod("new", "", "decode", 1);
    let nodes = ["a", "b", "c", "d", "e", "f"];
    assert_column(&cluster, &new, &nodes, "subject-pods", &[1.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    assert_column(&cluster, &new, &nodes, "zone-spread", &[2.0, 2.0, 2.0, 2.0, 0.0, f64::NAN]);
    // Among candidates in one zone, none has more replicas than another.
    assert_column(&cluster, &new, &["b", "f"], "zone-spread", &[0.0, f64::NAN]);
    assert_column(&cluster, &new, &nodes, "peer-distance", &[0.0, 2.0, 3.0, 4.0, 5.0, 5.0]);
    assert_column(&cluster, &pod("new", "", "prefill", 1), &nodes, "peer-distance", &[0.0, 2.0, 0.0, 4.0, 5.0, 5.0]);
    let alone = Pod { owner: None, ..new };
    assert_column(&cluster, &alone, &["a"], "peer-distance", &[f64::NAN]);
    assert_column(&cluster, &alone, &["a"], "subject-pods", &[0.0]);
}

#[test]
fn a_gang_is_as_far_as_its_farthest_member() {
    let new = member("new", "", 8, 4);
    let nodes = ["a", "b", "c", "d", "e", "f"];
    let none = cluster(&topology(), &[]);
    assert_column(&none, &new, &nodes, "gang-distance", &[f64::NAN; 6]);
    let together = cluster(&topology(), &[member("1", "a", 2, 4), member("2", "a", 2, 4)]);
    assert_column(&together, &new, &nodes, "gang-distance", &[0.0, 2.0, 3.0, 4.0, 5.0, 5.0]);
    assert_column(&together, &new, &nodes, "gang-here", &[2.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_column(&together, &new, &["a"], "gang-placed", &[2.0]);
    assert_column(&together, &new, &["a"], "gang-size", &[4.0]);
    let apart = cluster(&topology(), &[member("1", "a", 2, 4), member("2", "c", 2, 4)]);
    assert_column(&apart, &new, &nodes, "gang-distance", &[3.0, 3.0, 3.0, 4.0, 5.0, 5.0]);
    // For a member on an unknown node, the distance is the maximum.
    let lost = cluster(&topology(), &[member("1", "gone", 2, 4)]);
    assert_column(&lost, &new, &["a"], "gang-distance", &[5.0]);
    let alone = pod("new", "", "engine", 8);
    for (name, expected) in [("gang-size", 0.0), ("gang-placed", 0.0), ("gang-here", 0.0), ("gang-distance", f64::NAN)] {
        assert_column(&together, &alone, &["a"], name, &[expected]);
    }
}

#[test]
fn the_domain_says_whether_the_rest_of_a_gang_fits() {
    let mut nodes = topology();
    let pods = [pod("other", "b", "engine", 2), member("1", "", 4, 4), member("2", "a", 1, 4)];
    let (new, names) = (member("new", "", 4, 4), ["a", "b", "c", "f"]);
    // The finest domain of a and b is the RDMA domain. That of c is the rack, which also contains a and b.
    let whole = cluster(&nodes, &pods);
    assert_column(&whole, &new, &names, "domain-free-nodes", &[0.0, 0.0, 0.0, f64::NAN]);
    assert_column(&whole, &new, &names, "domain-accelerators-taken-share", &[3.0 / 16.0, 3.0 / 16.0, 3.0 / 24.0, f64::NAN]);
    // The pod, one member without a node and one that doesn't exist yet need four each.
    assert_column(&whole, &new, &names, "gang-domain-free-accelerators", &[1.0, 1.0, 9.0, f64::NAN]);
    assert_column(&whole, &pod("x", "", "engine", 4), &names, "gang-domain-free-accelerators", &[f64::NAN; 4]);
    assert_column(&cluster(&nodes, &[]), &new, &names, "domain-free-nodes", &[1.0, 1.0, 2.0, f64::NAN]);
    // No pod can go to a cordoned node.
    nodes[1].1.unschedulable = true;
    assert_column(&cluster(&nodes, &pods), &new, &names, "gang-domain-free-accelerators", &[-5.0, -5.0, 3.0, f64::NAN]);
    assert_column(&cluster(&nodes, &[]), &new, &names, "domain-free-nodes", &[0.0, 1.0, 1.0, f64::NAN]);
}

#[test]
fn the_rest_is_read_of_the_node_and_added_features_come_last() {
    let labels = [("nvidia.com/gpu.memory", "81920"), ("karpenter.sh/capacity-type", "spot"), ("pointsman.dev/price", "2.5")];
    let mut first = node(8, &labels);
    first.images = BTreeMap::from([("docker.io/a/b:1".to_owned(), 5)]);
    first.custom = vec![7.0];
    let cluster = cluster(&[("a", first), ("b", node(8, &[]))], &[]);
    let new = Pod { images: vec!["docker.io/a/b:1".into(), "docker.io/a/c:1".into()], ..pod("new", "", "engine", 1) };
    for (name, expected) in [
        ("accelerator-memory-bytes", [85_899_345_920.0, f64::NAN]),
        ("spot", [1.0, 0.0]),
        ("price", [2.5, f64::NAN]),
        ("image-share", [0.5, 0.0]),
    ] {
        assert_column(&cluster, &new, &["a", "b"], name, &expected);
    }
    let feature = |name: &str| CustomFeature { name: name.into(), expression: "1".into() };
    let settings = Settings { features: vec![feature("node.speed"), feature("node.other")], ..Settings::default() };
    let (names, values) = (names(&settings), rows(&cluster, &settings, &new, &Nodes::named(&cluster, &["a", "b", "gone"]), &|_| None));
    assert_eq!(names[FEATURES.len()..], ["node.speed", "node.other"]);
    assert_eq!(values.len(), 3 * names.len());
    let added: Vec<String> = values.chunks_exact(names.len()).map(|row| format!("{:?}", &row[FEATURES.len()..])).collect();
    assert_eq!(added, ["[7.0, NaN]", "[NaN, NaN]", "[NaN, NaN]"]);
}

#[test]
fn rows_depend_on_no_order() {
    let pods = [
        pod("1", "a", "decode", 1),
        pod("2", "c", "decode", 2),
        pod("3", "b", "prefill", 1),
        member("4", "d", 2, 4),
        member("5", "a", 1, 4),
        member("6", "", 3, 4),
    ];
    let there = cluster(&topology(), &pods);
    let back = cluster(&topology().into_iter().rev().collect::<Vec<_>>(), &pods.iter().rev().cloned().collect::<Vec<_>>());
    let settings = Settings::default();
    let bits = |cluster: &Cluster, pod: &Pod, nodes: &[&str]| {
        let values = rows(cluster, &settings, pod, &Nodes::named(cluster, nodes), &|_| None);
        let rows = values.chunks_exact(FEATURES.len()).map(|row| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        nodes.iter().zip(rows).map(|(name, row)| ((*name).to_owned(), row)).collect::<BTreeMap<_, _>>()
    };
    for new in [pod("new", "", "decode", 1), member("new", "", 2, 4)] {
        assert_eq!(bits(&there, &new, &["a", "b", "c", "d", "e", "f"]), bits(&back, &new, &["f", "c", "b", "e", "d", "a"]));
    }
}
