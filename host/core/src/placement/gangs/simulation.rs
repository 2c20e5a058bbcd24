//! Random operations on a simulated cluster with a scheduler that fails, samples nodes and has a rival: checks invariants of every state,
//! and of the final one.

use super::*;
use crate::placement::{Gang, Node};
use proptest::prelude::*;

const GPU: &str = "nvidia.com/gpu";
const TIMEOUT: u64 = 60;
const GANGS: usize = 3;
const SIZE: usize = 3;
const NODES: usize = 4;
const GPUS: i64 = 8;

/// The result of a verdict.
#[derive(Clone, Copy, Debug)]
enum Binding {
    /// The pod is bound.
    Bound,
    /// The pod is assumed, and bound later.
    Assumed,
    /// The binding fails.
    Failed,
}

#[derive(Clone, Debug)]
enum Operation {
    Create(usize, usize),
    Delete(usize, usize),
    /// The scheduler asks about a member and offers the nodes whose bits are set; the answer may be due too early.
    Ask(usize, usize, u8, Binding, bool),
    /// Assumed pods are bound.
    Bind,
    /// A pod outside of gangs takes accelerators of a node: of this scheduler or of another one.
    Other(usize, i64, bool),
    /// All of these pods end.
    OthersEnd,
    Cordon(usize, bool),
    NodeExists(usize, bool),
    /// Time passes, in seconds.
    Wait(u64),
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    let (gang, at, node) = (0..GANGS, 0..SIZE, 0..NODES);
    let binding = prop_oneof![3 => Just(Binding::Bound), 2 => Just(Binding::Assumed), 1 => Just(Binding::Failed)];
    // Usually the scheduler offers all nodes.
    let offered = prop_oneof![3 => Just(u8::MAX), 1 => any::<u8>()];
    prop_oneof![
        5 => (gang.clone(), at.clone()).prop_map(|(gang, at)| Operation::Create(gang, at)),
        1 => (gang.clone(), at.clone()).prop_map(|(gang, at)| Operation::Delete(gang, at)),
        10 => (gang, at, offered, binding, prop::bool::weighted(0.2))
            .prop_map(|(gang, at, offered, binding, is_late)| Operation::Ask(gang, at, offered, binding, is_late)),
        2 => Just(Operation::Bind),
        3 => (node.clone(), 1..=GPUS, any::<bool>()).prop_map(|(node, gpus, is_ours)| Operation::Other(node, gpus, is_ours)),
        1 => Just(Operation::OthersEnd),
        1 => (node.clone(), prop::bool::weighted(0.3)).prop_map(|(node, cordoned)| Operation::Cordon(node, cordoned)),
        1 => (node, prop::bool::weighted(0.7)).prop_map(|(node, exists)| Operation::NodeExists(node, exists)),
        4 => (1..40_u64).prop_map(Operation::Wait),
        1 => Just(Operation::Restart),
    ]
}

fn gang_name(gang: usize) -> String {
    format!("g{gang}")
}

fn member_name(gang: usize, at: usize) -> String {
    format!("g{gang}-{at}")
}

fn node_name(node: usize) -> String {
    format!("n{node}")
}

fn node(unschedulable: bool) -> Node {
    Node { allocatable: Resources::from_iter([(GPU, GPUS), ("pods", 110)]), unschedulable, ..Node::default() }
}

/// The expected state of a gang, computed independently.
#[derive(Clone, Debug, Default)]
struct Expected {
    is_asked: bool,
    /// The uids of members that have been part of the complete gang.
    whole: BTreeSet<String>,
    half_since: Option<u64>,
}

struct World {
    cluster: Cluster,
    reservations: Reservations,
    now: u64,
    /// A counter for uids and names.
    created: u64,
    expected: Vec<Expected>,
}

impl World {
    fn new() -> Self {
        let mut cluster = Cluster::default();
        for at in 0..NODES {
            cluster.put_node(&node_name(at), node(false));
        }
        Self { cluster, reservations: Reservations::default(), now: 1000, created: 0, expected: vec![Expected::default(); GANGS] }
    }

    fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Create(gang, at) => self.create(gang, at),
            Operation::Delete(gang, at) => self.cluster.remove_pod("ml", &member_name(gang, at)),
            Operation::Ask(gang, at, offered, binding, is_late) => self.ask(gang, at, offered, binding, is_late),
            Operation::Bind => self.bind_assumed(),
            Operation::Other(node, gpus, is_ours) => self.put_other(&node_name(node), gpus, is_ours),
            Operation::OthersEnd => self.end_others(),
            Operation::Cordon(at, cordoned) => {
                if self.cluster.node(&node_name(at)).is_some() {
                    self.cluster.put_node(&node_name(at), node(cordoned));
                }
            }
            Operation::NodeExists(at, true) if self.cluster.node(&node_name(at)).is_none() => {
                self.cluster.put_node(&node_name(at), node(false));
            }
            Operation::NodeExists(_, true) => {}
            Operation::NodeExists(at, false) => self.remove_node(&node_name(at)),
            Operation::Wait(seconds) => self.now += seconds,
            Operation::Restart => {
                let assumed = |pod: &&Pod| self.cluster.is_assumed("ml", &pod.name);
                let assumed: Vec<String> = self.cluster.pods().filter(assumed).map(|pod| pod.name.clone()).collect();
                for name in &assumed {
                    self.cluster.forget("ml", name);
                }
                self.reservations = Reservations::default();
                self.expected = vec![Expected::default(); GANGS];
            }
        }
        self.expire();
        self.check();
    }

    fn create(&mut self, gang: usize, at: usize) {
        let name = member_name(gang, at);
        if self.cluster.pod("ml", &name).is_some() {
            return;
        }
        self.created += 1;
        let gpus = 1 + i64::try_from((gang + at) % 3).unwrap();
        self.cluster.put_pod(Pod {
            uid: self.created.to_string(),
            namespace: "ml".to_owned(),
            name,
            requests: Resources::from_iter([(GPU, gpus), ("pods", 1)]),
            gang: Some(Gang { name: gang_name(gang), size: SIZE, leads: at == 0, native: false }),
            has_controller: true,
            ..Pod::default()
        });
    }

    fn ask(&mut self, gang: usize, at: usize, offered: u8, binding: Binding, is_late: bool) {
        let name = member_name(gang, at);
        let is_bound = |pod: &Pod| !pod.node.is_empty() && !self.cluster.is_assumed("ml", &pod.name);
        if self.cluster.pod("ml", &name).is_none_or(is_bound) {
            return;
        }
        // The assumed node of the asked pod is void.
        self.cluster.forget("ml", &name);
        let pod = self.cluster.pod("ml", &name).unwrap().clone();
        let is_offered = |node: &str| (0..NODES).any(|at| node_name(at) == node && offered & (1 << at) != 0);
        // The policies prefer the last nodes.
        let mut place = |_: &Cluster, _: &Pod, nodes: &[&str], _: &dyn Fn(&str) -> Option<Resources>| -> Vec<String> {
            nodes.iter().rev().map(|node| (*node).to_owned()).collect()
        };
        self.expected[gang].is_asked = true;
        let (cluster, now) = (&self.cluster, self.now);
        let question = Question { cluster, pod: &pod, now, timeout: TIMEOUT, offered: &is_offered, is_late: &|| is_late };
        let verdict = self.reservations.decide(question, &mut place);
        let node = match verdict {
            Verdict::Node(node) => node,
            Verdict::Wait(reason) => {
                assert!(reason.contains(&gang_name(gang)), "{reason}");
                return;
            }
            Verdict::Free => panic!("{name} is a member of a gang that isn't whole"),
        };
        let was_whole = self.bound(gang).iter().any(|pod| self.expected[gang].whole.contains(&pod.uid));
        let number = self.cluster.gang("ml", &gang_name(gang)).count();
        assert!(was_whole || number == SIZE, "{name} goes before all members exist");
        assert!(is_offered(&node), "{node} isn't offered for {name}");
        let state = self.cluster.node(&node).unwrap();
        assert!(!state.node.unschedulable, "{node} is cordoned");
        if !state.pods.contains(&pod.key()) {
            let mut free = state.free();
            free.subtract(&self.reservations.held(&self.cluster, &node, &pod).unwrap_or_default());
            assert_eq!(pod.requests.lacking(&free), None, "{name} has no room on {node}");
        }
        match binding {
            Binding::Bound => self.cluster.put_pod(Pod { node, ..pod }),
            Binding::Assumed => self.cluster.assume("ml", &name, &node),
            Binding::Failed => {}
        }
    }

    fn bind_assumed(&mut self) {
        let assumed = |pod: &&Pod| self.cluster.is_assumed("ml", &pod.name);
        let pods: Vec<Pod> = self.cluster.pods().filter(assumed).cloned().collect();
        for pod in pods {
            self.cluster.put_pod(pod);
        }
    }

    fn put_other(&mut self, node: &str, gpus: i64, is_ours: bool) {
        let Some(state) = self.cluster.node(node).filter(|state| state.free_amount(GPU) >= gpus) else { return };
        let before = state.free_amount(GPU) - self.held(node);
        self.created += 1;
        let name = format!("other-{}", self.created);
        let requests = Resources::from_iter([(GPU, gpus), ("pods", 1)]);
        let pod = Pod { uid: name.clone(), namespace: "ml".to_owned(), name, requests, ..Pod::default() };
        if is_ours && self.reservations.broken_by(&self.cluster, &pod, node).is_some() {
            assert!(gpus > before, "there was room beside what is held of {node}");
            return;
        }
        assert!(!is_ours || gpus <= before, "a pod of our own takes what is held of {node}");
        self.cluster.put_pod(Pod { node: node.to_owned(), ..pod });
    }

    fn end_others(&mut self) {
        let others: Vec<String> = self.cluster.pods().filter(|pod| pod.gang.is_none()).map(|pod| pod.name.clone()).collect();
        for name in others {
            self.cluster.remove_pod("ml", &name);
        }
    }

    /// Removes a node with its pods.
    fn remove_node(&mut self, name: &str) {
        let pods: Vec<String> = self.cluster.pods_on(name).map(|pod| pod.name.clone()).collect();
        for pod in pods {
            if self.cluster.is_assumed("ml", &pod) {
                self.cluster.forget("ml", &pod);
            } else {
                self.cluster.remove_pod("ml", &pod);
            }
        }
        self.cluster.remove_node(name);
    }

    fn held(&self, node: &str) -> i64 {
        self.reservations.held(&self.cluster, node, &Pod::default()).map_or(0, |held| held.get(GPU))
    }

    fn bound(&self, gang: usize) -> Vec<&Pod> {
        let members = self.cluster.gang("ml", &gang_name(gang));
        members.filter(|pod| !pod.node.is_empty() && !self.cluster.is_assumed("ml", &pod.name)).collect()
    }

    /// Deletes the placed members of overdue gangs.
    fn expire(&mut self) {
        for overdue in self.reservations.expire(&self.cluster, self.now, TIMEOUT, Some(&|_| false)) {
            let gang = (0..GANGS).find(|gang| gang_name(*gang) == overdue.gang).unwrap();
            let bound = self.bound(gang);
            let placed = bound.iter().map(|pod| (pod.namespace.clone(), pod.name.clone(), pod.uid.clone()));
            assert!(placed.eq(overdue.placed.iter().cloned()) && bound.len() < overdue.size, "{overdue:?}");
            assert!(bound.iter().all(|pod| !self.expected[gang].whole.contains(&pod.uid)), "{overdue:?} was whole");
            for (namespace, name, _) in &overdue.placed {
                self.cluster.remove_pod(namespace, name);
            }
        }
        assert!(self.reservations.expire(&self.cluster, self.now, TIMEOUT, Some(&|_| false)).is_empty());
        assert!(self.reservations.next_expiry().is_none_or(|at| at > self.now));
    }

    fn check(&mut self) {
        for at in 0..NODES {
            let held = self.held(&node_name(at));
            assert!(held <= GPUS, "gangs hold {held} accelerators of n{at}");
        }
        for gang in 0..GANGS {
            let bound: Vec<String> = self.bound(gang).iter().map(|pod| pod.uid.clone()).collect();
            let (number, now) = (bound.len(), self.now);
            let expected = &mut self.expected[gang];
            let was_whole = bound.iter().any(|uid| expected.whole.contains(uid));
            let waits = self.cluster.gang("ml", &gang_name(gang)).any(|pod| pod.node.is_empty());
            if number == SIZE {
                expected.whole.extend(bound);
            }
            let is_half = number > 0 && waits && !was_whole && expected.is_asked;
            expected.half_since = is_half.then(|| expected.half_since.unwrap_or(now));
            assert!(expected.half_since.is_none_or(|since| now < since + TIMEOUT), "g{gang} is bound in part for too long: {number}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 20_000 } else { 200 }))]

    #[test]
    fn gangs_are_placed_whole_whatever_happens(operations in prop::collection::vec(operation(), 1..200)) {
        let mut world = World::new();
        for operation in &operations {
            world.run(operation);
        }
        // With enough resources, every gang is placed in the end.
        world.run(&Operation::OthersEnd);
        world.run(&Operation::Bind);
        for at in 0..NODES {
            world.run(&Operation::NodeExists(at, true));
            world.run(&Operation::Cordon(at, false));
        }
        for _ in 0..60 {
            for (gang, at) in (0..GANGS).flat_map(|gang| (0..SIZE).map(move |at| (gang, at))) {
                world.run(&Operation::Create(gang, at));
                world.run(&Operation::Ask(gang, at, u8::MAX, Binding::Bound, false));
            }
            world.run(&Operation::Wait(5));
        }
        for gang in 0..GANGS {
            prop_assert_eq!(world.bound(gang).len(), SIZE, "g{} is whole in the end", gang);
        }
    }
}
