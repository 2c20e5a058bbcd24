//! The question `node-placement` at scheduling-scoring: scores the nodes for a pod.

use super::{
    Cluster, Nodes, Pod, Resources, Settings, features, rank,
    record::{Placement, RecordedRows, at_rows, values_at},
};
use crate::{
    decide::{
        AskedPlugin, FailedPlugin, Pinned, Undecided,
        scoring::{Candidates, Explained},
    },
    question::entries,
    resource::POD,
};
use pointsman_sandbox::point::{Question, Subject};
use std::collections::BTreeMap;

/// The subject of the question for policies: the pod's owner if that is a subject, with the pod's labels; otherwise the pod itself.
pub fn subject(pod: &Pod, namespace_labels: &BTreeMap<String, String>) -> Subject {
    let (group, version, kind, name) = match pod.owner.as_ref().filter(|owner| owner.is_subject()) {
        Some(owner) => (owner.group, owner.version, owner.kind, &owner.name),
        None => (POD.group, POD.version, POD.kind, &pod.name),
    };
    Subject {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        namespace: pod.namespace.clone(),
        name: name.clone(),
        labels: entries(&pod.labels),
        annotations: Vec::new(),
        namespace_labels: entries(namespace_labels),
    }
}

/// The policies' scores of the candidates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scored {
    /// The score of each candidate; none if a plugin excludes it.
    pub scores: Vec<Option<f64>>,
    /// The rank of each candidate for the scheduler.
    pub ranks: Vec<i64>,
    /// The scored rows, with the columns of [`features::names`]. Empty if no plugin was called.
    pub values: Vec<f64>,
    /// The plugins that scored, in order.
    pub plugins: Vec<AskedPlugin>,
    /// The plugins that failed, and why.
    pub failed: Vec<FailedPlugin>,
    /// The subject of the question; none if no plugin was called.
    pub subject: Option<Subject>,
}

/// Scores the candidates. For a pod that isn't in scope, all nodes are equal and no plugin is called. `reserved` returns the resources that
/// gangs reserve on a node for pods other than this one.
pub fn score(
    policies: &Pinned<'_>,
    cluster: &Cluster,
    settings: &Settings,
    pod: &Pod,
    nodes: &Nodes<'_>,
    namespace_labels: &BTreeMap<String, String>,
    reserved: &dyn Fn(&str) -> Option<Resources>,
) -> Result<Scored, Undecided> {
    let number = nodes.names().len();
    if number == 0 || !pod.is_in_scope(settings) {
        return Ok(Scored { scores: vec![Some(0.0); number], ranks: vec![0; number], ..Scored::default() });
    }
    let names = features::names(settings);
    let values = features::rows(cluster, settings, pod, nodes, reserved);
    let candidates = Candidates { features: &names, values: &values };
    let subject = subject(pod, namespace_labels);
    let decision = policies.score(&subject, Question::NodePlacement, candidates)?;
    let scores = decision.answer.0.clone();
    let ranks = rank::ranks(nodes.names(), &scores, settings.ties);
    Ok(Scored { scores, ranks, values, plugins: decision.plugins, failed: decision.failed, subject: Some(subject) })
}

/// Explains the scores of one candidate: one entry per plugin, in order. `values` are the rows of all candidates.
pub fn explain(
    policies: &Pinned<'_>,
    settings: &Settings,
    pod: &Pod,
    namespace_labels: &BTreeMap<String, String>,
    values: &[f64],
    row: usize,
) -> Vec<Explained> {
    let names = features::names(settings);
    let candidates = Candidates { features: &names, values };
    policies.explain(&subject(pod, namespace_labels), Question::NodePlacement, candidates, row)
}

impl Scored {
    /// The candidates from best to worst, without excluded ones; equal ones by name.
    pub fn order(&self, nodes: &[&str]) -> Vec<String> {
        rank::order(nodes, &self.scores).into_iter().map(str::to_owned).collect()
    }

    /// The candidates with the highest rank, by name: the scheduler's own plugins choose among them.
    pub fn best<'n>(&self, nodes: &[&'n str]) -> Vec<&'n str> {
        let scored = nodes.iter().zip(&self.scores).zip(&self.ranks).filter(|((_, score), _)| score.is_some());
        let scored: Vec<(&str, i64)> = scored.map(|((node, _), rank)| (*node, *rank)).collect();
        let highest = scored.iter().map(|(_, rank)| *rank).max();
        let mut best: Vec<&str> = scored.into_iter().filter(|(_, rank)| Some(*rank) == highest).map(|(node, _)| node).collect();
        best.sort_unstable();
        best
    }

    /// The candidates that are excluded.
    pub fn excluded<'n>(&self, nodes: &[&'n str]) -> impl Iterator<Item = &'n str> {
        nodes.iter().zip(&self.scores).filter(|(_, score)| score.is_none()).map(|(node, _)| *node)
    }

    /// The record of the placement: if there are many candidates, the best ones. All excluded nodes are in `excluded`, without individual
    /// reasons.
    pub fn into_placement(self, policies: &Pinned<'_>, settings: &Settings, pod: &Pod, nodes: &[&str], now: u64) -> Placement {
        let why = || "the policies exclude the node".to_owned();
        let features = features::names(settings);
        let RecordedRows { rows, surplus } = RecordedRows::new(nodes.iter().copied(), &self.scores, &self.ranks);
        Placement {
            at: now,
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            set: policies.set().digest().to_string(),
            excluded: self.excluded(nodes).map(|node| (node.to_owned(), why())).collect(),
            plugins: self.plugins.into_iter().map(|asked| asked.plugin).collect(),
            nodes: rows.iter().filter_map(|row| Some((*nodes.get(*row)?).to_owned())).collect(),
            nodes_left_out: surplus,
            values: values_at(&self.values, features.len(), &rows),
            scores: at_rows(&self.scores, &rows),
            ranks: at_rows(&self.ranks, &rows),
            features: features.into_iter().map(str::to_owned).collect(),
            subject: self.subject,
            ..Placement::default()
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        decide::{Policies, Standing, Unheard, member::Member, set::ActiveSet},
        placement::{Node, Owner, Ties},
    };
    use pointsman_crds::policy::{plugin::PolicyPoint, set::PolicySetPlugin};
    use pointsman_sandbox::point::{Entry, describe::Description};
    use std::sync::Arc;

    /// Policies that score all nodes equally: their only plugin wants no features.
    pub(in crate::placement) fn indifferent() -> Policies {
        let bound = PolicySetPlugin {
            name: "scheduling-scoring".to_owned(),
            points: vec![PolicyPoint::SchedulingScoring],
            weight: 1,
            ..PolicySetPlugin::default()
        };
        let member = Member::new(bound, Description::default(), None, None).unwrap();
        Policies::new(ActiveSet::new(vec![Arc::new(member)]), Arc::new(Unheard))
    }

    /// A pod of a subject.
    pub(in crate::placement) fn pod(name: &str, gpus: i64) -> Pod {
        let owner = Owner { kind: "InferenceService", group: "ome.io", version: "v1beta1", namespace: "ml".into(), name: "chat".into() };
        Pod {
            uid: format!("uid-{name}"),
            namespace: "ml".into(),
            name: name.into(),
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            requests: Resources::from_iter([("nvidia.com/gpu", gpus), ("pods", 1)]),
            owner: Some(owner),
            ..Pod::default()
        }
    }

    /// Nodes with eight GPUs each.
    pub(in crate::placement) fn nodes(names: &[&str]) -> Cluster {
        let mut cluster = Cluster::default();
        for name in names {
            let allocatable = Resources::from_iter([("nvidia.com/gpu", 8), ("pods", 110)]);
            cluster.put_node(name, Node { allocatable, ..Node::default() });
        }
        cluster
    }

    fn ask(policies: &Policies, settings: &Settings, pod: &Pod) -> Result<Scored, Undecided> {
        let cluster = nodes(&["a", "b"]);
        score(&policies.pin(Standing::New), &cluster, settings, pod, &Nodes::named(&cluster, &["b", "a"]), &BTreeMap::new(), &|_| None)
    }

    #[test]
    fn the_subject_is_the_owner_with_the_labels_of_the_pod() {
        let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
        let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
        let owned = subject(&pod("x", 1), &labels);
        assert_eq!((&*owned.group, &*owned.version, &*owned.kind), ("ome.io", "v1beta1", "InferenceService"));
        assert_eq!((&*owned.namespace, &*owned.name), ("ml", "chat"));
        assert_eq!((owned.labels, owned.namespace_labels), (vec![entry("team", "a")], vec![entry("env", "prod")]));
        let set = Owner { kind: "", group: "", version: "", namespace: "ml".into(), name: "StatefulSet/x".into() };
        for owner in [None, Some(set)] {
            let alone = subject(&Pod { owner, ..pod("x", 1) }, &labels);
            assert_eq!((&*alone.group, &*alone.version, &*alone.kind, &*alone.name), ("", "v1", "Pod", "x"));
        }
    }

    #[test]
    fn equal_scores_are_ranked_as_ties_say() {
        let policies = indifferent();
        let named = ask(&policies, &Settings::default(), &pod("x", 1)).unwrap();
        assert_eq!((&*named.ranks, named.best(&["b", "a"])), (&[9, 10][..], vec!["a"]));
        assert_eq!(named.order(&["b", "a"]), ["a", "b"]);
        assert_eq!(named.values.len(), 2 * features::FEATURES.len());
        assert_eq!(named.subject.as_ref().map(|subject| subject.name.as_str()), Some("chat"));
        let settings = Settings { ties: Ties::Scheduler, ..Settings::default() };
        let left = ask(&policies, &settings, &pod("x", 1)).unwrap();
        assert_eq!((&*left.ranks, left.best(&["b", "a"])), (&[0, 0][..], vec!["a", "b"]));
    }

    #[test]
    fn of_pods_that_are_not_in_scope_nobody_is_asked() {
        let nobody = Policies::new(ActiveSet::new(Vec::new()), Arc::new(Unheard));
        let settings = Settings::default();
        assert!(matches!(ask(&nobody, &settings, &pod("x", 1)), Err(Undecided::Nobody(_))));
        let scored = ask(&nobody, &settings, &Pod { owner: None, ..pod("x", 1) }).unwrap();
        assert_eq!((&*scored.ranks, scored.values.len(), scored.plugins.len()), (&[0, 0][..], 0, 0));
        assert_eq!(scored.subject, None);
    }

    #[test]
    fn what_is_excluded_is_recorded_and_is_never_the_best() {
        let (policies, settings) = (indifferent(), Settings::default());
        let scored = Scored {
            scores: vec![None, Some(0.5), None],
            ranks: vec![0, 0, 0],
            values: vec![0.0; 3 * features::FEATURES.len()],
            plugins: vec![AskedPlugin { plugin: "p".into(), digest: "d".into() }],
            ..Scored::default()
        };
        let nodes = ["a", "b", "c"];
        assert_eq!((scored.best(&nodes), scored.order(&nodes)), (vec!["b"], vec!["b".to_owned()]));
        let placement = scored.into_placement(&policies.pin(Standing::New), &settings, &pod("x", 1), &nodes, 7);
        assert_eq!(placement.excluded.keys().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!((placement.at, &*placement.uid, placement.plugins.len()), (7, "uid-x", 1));
        assert_eq!(placement.values.len(), placement.nodes.len() * placement.features.len());
    }
}
