//! The rules that involve other pods.

use super::{Misfit, misfit_alone, rules::Spread};
use crate::placement::{Cluster, Node, NodeState, Pod, Resources};
use std::collections::{BTreeMap, BTreeSet};

/// The nodes on which one pod fits. The data about other pods is collected once, so that each node costs only a few look-ups.
#[derive(Debug)]
pub struct Fit<'a> {
    cluster: &'a Cluster,
    pod: &'a Pod,
    /// For each term, the topology key and the values at which pods run that it must be near to.
    near: Vec<(&'a str, BTreeSet<&'a str>)>,
    /// Whether it is the first of the pods that must be near to each other: it may run anywhere.
    is_first: bool,
    /// The values of node labels, by key, at which it must not run.
    apart: BTreeMap<&'a str, BTreeSet<&'a str>>,
    spread: Vec<Domains<'a>>,
}

/// The distribution of pods for a constraint.
#[derive(Debug)]
struct Domains<'a> {
    constraint: &'a Spread,
    pods: BTreeMap<&'a str, i64>,
    fewest: i64,
    /// 1 if the constraint's selector matches the pod itself.
    own: i64,
}

impl<'a> Fit<'a> {
    /// Collects the data for a pod.
    pub fn new(cluster: &'a Cluster, pod: &'a Pod) -> Self {
        Self::beside(cluster, pod, cluster.pods().filter(|other| other.rules.repels()))
    }

    /// Like `new`, if the pods that repel others are already known.
    pub(in crate::placement) fn beside(cluster: &'a Cluster, pod: &'a Pod, repelling: impl Iterator<Item = &'a Pod>) -> Self {
        let (near, is_first) = near(cluster, pod);
        let spread = pod.rules.spread.iter().map(|constraint| Domains::new(cluster, pod, constraint)).collect();
        Self { cluster, pod, near, is_first, apart: apart(cluster, pod, repelling), spread }
    }

    /// Why the pod can't run on a node: `free` are the node's resources that are free for it.
    pub fn misfit(&self, name: &str, state: &NodeState, free: &Resources) -> Option<Misfit> {
        misfit_alone(self.pod, name, &state.node, free).or_else(|| self.misfit_around(name, &state.node))
    }

    /// Like `misfit`, but checks only the rules that involve other pods, not the resources.
    pub(in crate::placement) fn misfit_around(&self, name: &str, node: &Node) -> Option<Misfit> {
        let label = |key: &str| node.labels.get(key).map(String::as_str);
        let ports = &self.pod.host_ports;
        let takes_port = |other: &Pod| !is_same(self.pod, other) && other.host_ports.iter().any(|port| ports.contains(port));
        if !ports.is_empty() && self.cluster.pods_on(name).any(takes_port) {
            return Some(Misfit::Ports);
        }
        if let Some(domains) = self.spread.iter().find(|domains| domains.is_uneven(label(&domains.constraint.key))) {
            return Some(Misfit::Spread(domains.constraint.key.clone()));
        }
        let is_near = |(key, values): &(&str, BTreeSet<&str>)| label(key).is_some_and(|value| self.is_first || values.contains(value));
        if !self.near.iter().all(is_near) {
            return Some(Misfit::PodAffinity);
        }
        let repelled = self.apart.iter().any(|(key, values)| label(key).is_some_and(|value| values.contains(value)));
        repelled.then_some(Misfit::PodAntiAffinity)
    }
}

fn is_same(pod: &Pod, other: &Pod) -> bool {
    pod.name == other.name && pod.namespace == other.namespace
}

/// The pods with a node, except one.
fn placed<'a>(cluster: &'a Cluster, but: &Pod) -> impl Iterator<Item = (&'a Pod, &'a NodeState)> {
    let others = cluster.pods().filter(move |other| !other.node.is_empty() && !is_same(but, other));
    others.filter_map(move |other| Some((other, cluster.node(&other.node)?)))
}

/// The places of the pods that the pod must be near to, and whether it would be the first of them.
fn near<'a>(cluster: &'a Cluster, pod: &'a Pod) -> (Vec<(&'a str, BTreeSet<&'a str>)>, bool) {
    let terms = &pod.rules.near;
    let mut found: Vec<(&str, BTreeSet<&str>)> = terms.iter().map(|term| (term.key.as_str(), BTreeSet::new())).collect();
    if terms.is_empty() {
        return (found, false);
    }
    // As in Kubernetes, a pod counts only if all terms select it.
    let selected = |other: &Pod| terms.iter().all(|term| term.selects(&pod.namespace, other, true));
    for (_, state) in placed(cluster, pod).filter(|(other, _)| selected(other)) {
        for (key, values) in &mut found {
            values.extend(state.node.labels.get(*key).map(String::as_str));
        }
    }
    let is_first = found.iter().all(|(_, values)| values.is_empty()) && selected(pod);
    (found, is_first)
}

/// The places where the pod must not run, by its own terms and by those of other pods.
fn apart<'a>(cluster: &'a Cluster, pod: &'a Pod, repelling: impl Iterator<Item = &'a Pod>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut add = |key: &'a str, state: &'a NodeState| {
        if let Some(value) = state.node.labels.get(key) {
            found.entry(key).or_default().insert(value);
        }
    };
    let others = repelling.filter(|other| !other.node.is_empty() && !is_same(pod, other));
    for (other, state) in others.filter_map(|other| Some((other, cluster.node(&other.node)?))) {
        for term in other.rules.apart.iter().filter(|term| term.selects(&other.namespace, pod, false)) {
            add(&term.key, state);
        }
    }
    if !pod.rules.apart.is_empty() {
        for (other, state) in placed(cluster, pod) {
            for term in pod.rules.apart.iter().filter(|term| term.selects(&pod.namespace, other, false)) {
                add(&term.key, state);
            }
        }
    }
    found
}

impl<'a> Domains<'a> {
    fn new(cluster: &'a Cluster, pod: &'a Pod, constraint: &'a Spread) -> Self {
        let rules = &pod.rules;
        // A node that lacks one of the keys belongs to no domain of any constraint.
        let domain = |name: &str, node: &'a Node| {
            let counts = rules.spread.iter().all(|other| node.labels.contains_key(&other.key)) && constraint.covers(rules, name, node);
            node.labels.get(&constraint.key).map(String::as_str).filter(|_| counts)
        };
        let values = cluster.nodes().filter_map(|(name, state)| domain(name, &state.node));
        let mut pods: BTreeMap<&str, i64> = values.map(|value| (value, 0)).collect();
        let counts = |other: &Pod| other.namespace == pod.namespace && !other.is_leaving && constraint.counts(other);
        for (other, state) in placed(cluster, pod).filter(|(other, _)| counts(other)) {
            if let Some(count) = domain(&other.node, &state.node).and_then(|value| pods.get_mut(value)) {
                *count += 1;
            }
        }
        let fewest = if pods.len() < constraint.min_domains { 0 } else { pods.values().copied().min().unwrap_or_default() };
        Self { constraint, pods, fewest, own: i64::from(constraint.selects(pod)) }
    }

    /// Whether the pod would exceed the maximum skew there.
    fn is_uneven(&self, domain: Option<&str>) -> bool {
        let Some(domain) = domain else { return true };
        let pods = self.pods.get(domain).copied().unwrap_or_default();
        pods + self.own - self.fewest > self.constraint.max_skew
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::fit::{Rules, misfit};
    use serde_json::{Value, json};
    use std::sync::Arc;

    const ZONE: &str = "topology.kubernetes.io/zone";

    /// The nodes n0 and n1 in zone a, n2 in zone b, n3 in none.
    fn cluster(pods: &[Pod]) -> Cluster {
        let mut cluster = Cluster::default();
        for (name, zone) in [("n0", Some("a")), ("n1", Some("a")), ("n2", Some("b")), ("n3", None)] {
            let labels = zone.map(|zone: &str| (ZONE.to_owned(), zone.to_owned()));
            cluster.put_node(name, Node { labels: labels.into_iter().collect(), ..Node::default() });
        }
        for pod in pods {
            cluster.put_pod(pod.clone());
        }
        cluster
    }

    fn pod(name: &str, node: &str, app: &str, spec: &Value) -> Pod {
        Pod {
            uid: name.to_owned(),
            namespace: "a".to_owned(),
            name: name.to_owned(),
            node: node.to_owned(),
            labels: [("app".to_owned(), app.to_owned())].into(),
            rules: Arc::new(Rules::from_spec(spec)),
            ..Pod::default()
        }
    }

    fn plain(name: &str, node: &str, app: &str) -> Pod {
        pod(name, node, app, &json!({}))
    }

    /// The misfit of a pod on each of the nodes.
    fn found(cluster: &Cluster, pod: &Pod) -> Vec<Option<Misfit>> {
        let fit = Fit::new(cluster, pod);
        let each: Vec<_> = cluster.nodes().map(|(name, state)| fit.misfit(name, state, &state.free())).collect();
        let alone: Vec<_> = cluster.nodes().map(|(name, state)| misfit(cluster, pod, name, state, &state.free())).collect();
        assert_eq!(each, alone);
        each
    }

    fn terms(kind: &str, app: &str) -> Value {
        let term = json!({"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}});
        json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    }

    #[test]
    fn a_pod_goes_near_to_those_that_it_must_be_near_to() {
        let follower = pod("p", "", "x", &terms("podAffinity", "y"));
        let far = Some(Misfit::PodAffinity);
        assert_eq!(found(&cluster(&[plain("q", "n0", "y")]), &follower), [None, None, far.clone(), far.clone()]);
        assert_eq!(found(&cluster(&[plain("q", "", "y")]), &follower), [far.clone(), far.clone(), far.clone(), far.clone()]);
        // The first of the pods that must be near to each other may run in any zone; the next one must run there too.
        let same = pod("p", "", "x", &terms("podAffinity", "x"));
        assert_eq!(found(&cluster(&[]), &same), [None, None, None, far.clone()]);
        assert_eq!(found(&cluster(&[plain("q", "n2", "x")]), &same), [far.clone(), far.clone(), None, far]);
    }

    #[test]
    fn a_pod_stays_away_from_those_that_either_of_them_keeps_away() {
        let near = Some(Misfit::PodAntiAffinity);
        let loner = pod("p", "", "x", &terms("podAntiAffinity", "y"));
        assert_eq!(found(&cluster(&[plain("q", "n0", "y")]), &loner), [near.clone(), near.clone(), None, None]);
        let other = pod("q", "n0", "y", &terms("podAntiAffinity", "x"));
        assert_eq!(found(&cluster(std::slice::from_ref(&other)), &plain("p", "", "x")), [near.clone(), near, None, None]);
        let elsewhere = Pod { namespace: "b".to_owned(), ..other };
        assert_eq!(found(&cluster(&[elsewhere]), &plain("p", "", "x")), [None, None, None, None]);
    }

    #[test]
    fn pods_are_spread_as_evenly_as_they_insist() {
        let spec = |more: Value| {
            let selector = json!({"matchLabels": {"app": "x"}});
            let mut constraint =
                json!({"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector});
            constraint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"topologySpreadConstraints": [constraint]})
        };
        let uneven = Some(Misfit::Spread(ZONE.to_owned()));
        let beside = |pods: &[Pod], more: Value| found(&cluster(pods), &pod("p", "", "x", &spec(more)));
        let one = [plain("q", "n0", "x")];
        assert_eq!(beside(&[], json!({})), [None, None, None, uneven.clone()]);
        assert_eq!(beside(&one, json!({})), [uneven.clone(), uneven.clone(), None, uneven.clone()]);
        assert_eq!(beside(&one, json!({"maxSkew": 2})), [None, None, None, uneven.clone()]);
        assert_eq!(beside(&one, json!({"whenUnsatisfiable": "ScheduleAnyway"})), [None, None, None, None]);
        assert_eq!(beside(&one, json!({"labelSelector": {}})), [None, None, None, uneven.clone()], "none is counted");
        assert_eq!(beside(&[Pod { is_leaving: true, ..one[0].clone() }], json!({})), [None, None, None, uneven.clone()]);
        let both = [plain("q", "n0", "x"), plain("r", "n2", "x")];
        assert_eq!(beside(&both, json!({})), [None, None, None, uneven.clone()]);
        let nowhere = [uneven.clone(), uneven.clone(), uneven.clone(), uneven];
        assert_eq!(beside(&both, json!({"minDomains": 3})), nowhere, "too few zones count as if one were empty");
    }

    #[test]
    fn nodes_that_the_pod_may_not_run_on_count_only_if_it_says_so() {
        let spec = |policy: &str| {
            json!({
                "nodeSelector": {ZONE: "a"},
                "topologySpreadConstraints": [{
                    "topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}},
                    "nodeAffinityPolicy": policy,
                }],
            })
        };
        let cluster = cluster(&[plain("q", "n0", "x")]);
        let on_n0 = |policy: &str| found(&cluster, &pod("p", "", "x", &spec(policy))).remove(0);
        assert_eq!(on_n0("Honor"), None, "there is one zone");
        assert_eq!(on_n0("Ignore"), Some(Misfit::Spread(ZONE.to_owned())), "zone b has none");
    }

    #[test]
    fn a_host_port_is_taken_once() {
        let with_port = |name: &str, node: &str, port: i64| Pod { host_ports: vec![("TCP".to_owned(), port)], ..plain(name, node, "x") };
        let cluster = cluster(&[with_port("q", "n0", 8080), with_port("p", "n1", 8080)]);
        assert_eq!(found(&cluster, &with_port("r", "", 8080)), [Some(Misfit::Ports), Some(Misfit::Ports), None, None]);
        assert_eq!(found(&cluster, &with_port("r", "", 8081)), [None, None, None, None]);
        let itself = cluster.pod("a", "p").unwrap();
        assert_eq!(Fit::new(&cluster, itself).misfit_around("n1", &cluster.node("n1").unwrap().node), None);
    }
}
