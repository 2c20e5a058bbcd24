//! Calls with simulated policies.

use super::{
    super::wire::{MAX_PRIORITY, MetaPod, MetaVictims},
    *,
};
use pointsman_core::{
    decide::AskedPlugin,
    placement::{Node, rank::Ties},
};
use pointsman_crds::policy::plugin::PolicyPoint;
use serde_json::json;
use std::collections::BTreeSet;

const NOW: u64 = 1_000;

fn pod(name: &str, node: &str, gpus: u32, gang: Option<&str>) -> Pod {
    let gang = gang.map(|gang| json!({"pointsman.dev/gang": gang, "pointsman.dev/gang-size": "2"})).unwrap_or_default();
    let mut labels = json!({"pointsman.dev/subject-kind": "InferenceService", "serving.ome.io/inferenceservice": "chat"});
    for (key, value) in gang.as_object().into_iter().flatten() {
        labels[key] = value.clone();
    }
    let resources = json!({"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}});
    let pod = json!({
        "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{name}"), "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
    });
    Pod::from_value(&pod).unwrap()
}

fn cluster(nodes: &[&str], pods: Vec<Pod>) -> Cluster {
    let mut cluster = Cluster::default();
    for name in nodes {
        let allocatable = Resources::from_iter([("nvidia.com/gpu", 8), ("pods", 110)]);
        cluster.put_node(name, Node { allocatable, ..Node::default() });
    }
    for pod in pods {
        cluster.put_pod(pod);
    }
    cluster
}

/// The later the name, the higher the score; `x` is excluded.
#[allow(clippy::unnecessary_wraps, reason = "policies may fail")]
fn by_name(_: &Cluster, _: &Pod, nodes: &Nodes<'_>, _: &Reserved<'_>) -> Result<Scored, Undecided> {
    let score = |node: &&str| Some(f64::from(node.as_bytes()[0])).filter(|_| *node != "x");
    let scores: Vec<Option<f64>> = nodes.names().iter().map(score).collect();
    let plugins = vec![AskedPlugin { plugin: "by-name".to_owned(), digest: String::new() }];
    Ok(Scored { ranks: rank::ranks(nodes.names(), &scores, Ties::Name), scores, plugins, ..Scored::default() })
}

fn nobody(_: &Cluster, _: &Pod, _: &Nodes<'_>, _: &Reserved<'_>) -> Result<Scored, Undecided> {
    Err(Undecided::Nobody(PolicyPoint::SchedulingScoring))
}

fn ask<T>(cluster: &Cluster, pod: &Pod, score: &Score<'_>, ask: impl FnOnce(&Question<'_>) -> T) -> T {
    let settings = Settings::default();
    ask(&Question { cluster, settings: &settings, pod, is_in_scope: pod.is_in_scope(&settings), now: NOW, is_late: &|| false, score })
}

fn filtered(cluster: &Cluster, pod: &Pod, reservations: &mut Reservations, names: &[&'static str]) -> Filtered<'static> {
    let names = names.iter().map(|name| NodeName::from(*name)).collect();
    ask(cluster, pod, &by_name, |question| {
        if question.is_of_gang() {
            filter::filter_member(question, reservations, names)
        } else {
            filter::filter(question, reservations, names)
        }
    })
}

fn passing<'f>(filtered: &'f Filtered<'_>) -> Vec<&'f str> {
    filtered.result.node_names.iter().flatten().map(|name| &**name).collect()
}

#[test]
fn what_a_policy_excludes_fails_with_its_name_and_a_node_that_is_not_known_yet_passes() {
    let (cluster, pod) = (cluster(&["a", "b", "x"], Vec::new()), pod("p", "", 1, None));
    let filtered = filtered(&cluster, &pod, &mut Reservations::default(), &["a", "b", "new", "x"]);
    assert_eq!(passing(&filtered), ["a", "b", "new"]);
    assert_eq!(filtered.result.failed_and_unresolvable_nodes["x"], "the policy by-name excludes the node");
    assert!(filtered.result.failed_nodes.is_empty() && filtered.verdict.is_none());
    let kept = filtered.scored.unwrap().keep("uid".to_owned());
    let scores: Vec<_> = kept.scores(&["b", "a", "x", "new"]).collect();
    assert_eq!(scores[..3], [Some(98.0), Some(97.0), None]);
    assert!(scores[3].is_some_and(f64::is_nan));
}

#[test]
fn where_nobody_decides_every_node_passes() {
    let (cluster, pod) = (cluster(&["a", "x"], Vec::new()), pod("p", "", 1, None));
    let names = ["a", "x"].map(NodeName::from).to_vec();
    let filtered = ask(&cluster, &pod, &nobody, |question| filter::filter(question, &Reservations::default(), names));
    assert_eq!(passing(&filtered), ["a", "x"]);
    assert!(filtered.undecided.is_some() && filtered.scored.is_none());
}

#[test]
fn of_a_pod_out_of_scope_nobody_is_asked() {
    let other = Pod { owner: None, ..pod("p", "", 1, Some("g")) };
    let filtered = filtered(&cluster(&["a", "x"], Vec::new()), &other, &mut Reservations::default(), &["a", "x"]);
    assert_eq!(passing(&filtered), ["a", "x"]);
    assert!(filtered.scored.is_none() && filtered.verdict.is_none());
}

#[test]
fn a_gang_waits_for_its_members_then_each_gets_its_node_and_others_keep_off() {
    let members = [pod("m1", "", 8, Some("g")), pod("m2", "", 8, Some("g"))];
    let mut reservations = Reservations::default();
    let alone = cluster(&["a", "b"], vec![members[0].clone()]);
    let waits = filtered(&alone, &members[0], &mut reservations, &["a", "b"]);
    assert!(passing(&waits).is_empty() && matches!(waits.verdict, Some(Verdict::Wait(_))));
    assert_eq!(waits.result.failed_and_unresolvable_nodes.len(), 2, "nobody is preempted for it");

    let whole = cluster(&["a", "b"], members.to_vec());
    let one = filtered(&whole, &members[0], &mut reservations, &["a", "b"]);
    let other = filtered(&whole, &members[1], &mut reservations, &["a", "b"]);
    let nodes = [passing(&one), passing(&other)].concat();
    assert!(nodes.len() == 2 && nodes[0] != nodes[1], "{nodes:?}");
    assert_eq!(one.scored.unwrap().scored.ranks.iter().sum::<i64>(), MAX_PRIORITY, "it can be explained");

    let stranger = Pod { owner: None, ..pod("s", "", 8, None) };
    let kept_off = filtered(&whole, &stranger, &mut reservations, &["a", "b"]);
    assert!(passing(&kept_off).is_empty());
    assert!(kept_off.result.failed_and_unresolvable_nodes["a"].ends_with("reserved for the gang g"));
    let foreign = Pod { namespace: "other".to_owned(), ..stranger };
    let kept_off = filtered(&whole, &foreign, &mut reservations, &["a", "b"]);
    assert!(kept_off.result.failed_and_unresolvable_nodes["a"].ends_with("reserved for a gang of another namespace"));
}

fn victims(nodes: &[(&str, &str)]) -> BTreeMap<String, MetaVictims> {
    let meta = |uid: &str| MetaVictims { pods: Some(vec![MetaPod { uid: uid.to_owned() }]), num_pdb_violations: 0 };
    nodes.iter().map(|(node, pod)| ((*node).to_owned(), meta(&format!("uid-{pod}")))).collect()
}

fn left(cluster: &Cluster, pod: &Pod, nodes: &[(&str, &str)]) -> Vec<String> {
    let (left, _) =
        ask(cluster, pod, &by_name, |question| preempt::preempt(question, &Reservations::default(), &BTreeSet::new(), victims(nodes)));
    left.into_keys().collect()
}

#[test]
fn nobody_gives_way_on_a_node_that_is_excluded_nor_in_a_whole_gang_if_there_is_another() {
    let gang = [pod("g1", "a", 8, Some("g")), pod("g2", "b", 8, Some("g"))];
    let others = [pod("c1", "c", 8, None), pod("x1", "x", 8, None)];
    let cluster = cluster(&["a", "b", "c", "x"], gang.into_iter().chain(others).collect());
    let pod = pod("p", "", 8, None);
    assert_eq!(left(&cluster, &pod, &[("a", "g1"), ("c", "c1"), ("x", "x1")]), ["c"]);
    assert_eq!(left(&cluster, &pod, &[("a", "g1"), ("x", "x1")]), ["a"], "there is no other");
    assert!(left(&cluster, &pod, &[("x", "x1")]).is_empty());
}

#[test]
fn for_a_gang_others_give_way_only_if_all_of_it_fits_then() {
    let members = [pod("m1", "", 8, Some("g")), pod("m2", "", 8, Some("g"))];
    let full = [pod("a1", "a", 8, None), pod("b1", "b", 8, None)];
    let cluster = cluster(&["a", "b"], members.iter().cloned().chain(full).collect());
    assert!(left(&cluster, &members[0], &[("a", "a1")]).is_empty());
    assert_eq!(left(&cluster, &members[0], &[("a", "a1"), ("b", "b1")]).len(), 1);
}

#[test]
fn nobody_gives_way_for_a_gang_that_fits_once_those_are_gone_that_are_leaving() {
    let members = [pod("m1", "", 8, Some("g")), pod("m2", "", 8, Some("g"))];
    let leaving = |name: &str, node: &str| Pod { is_leaving: true, leaves_at: NOW, ..pod(name, node, 8, None) };
    let staying = [pod("b1", "b", 8, None), pod("c1", "c", 8, None)];
    let pods = |leaving: Vec<Pod>| members.iter().cloned().chain(leaving).chain(staying.clone()).collect();
    let one = cluster(&["a", "b", "c"], pods(vec![leaving("a1", "a")]));
    assert_eq!(left(&one, &members[1], &[("b", "b1"), ("c", "c1")]).len(), 1, "one more is needed");
    let two = cluster(&["a", "b", "c", "d"], pods(vec![leaving("a1", "a"), leaving("d1", "d")]));
    assert!(left(&two, &members[1], &[("b", "b1"), ("c", "c1")]).is_empty());
    // A pod that should have terminated long ago frees no resources.
    let stuck = Pod { leaves_at: NOW - 1_000, ..leaving("d1", "d") };
    let stuck = cluster(&["a", "b", "c", "d"], pods(vec![leaving("a1", "a"), stuck]));
    assert_eq!(left(&stuck, &members[1], &[("b", "b1"), ("c", "c1")]).len(), 1);
}

#[test]
fn a_pod_counts_on_a_node_only_if_one_is_the_best() {
    let names = ["a", "b", "c"];
    assert_eq!(best(&names, &[9, 10, 0]), Some("b"));
    assert_eq!((best(&names, &[10, 10, 0]), best(&names, &[0, 0, 0]), best(&names, &[])), (None, None, None));
}
