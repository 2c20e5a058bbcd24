//! Random operations on a simulated cluster that carries out the ledger's steps with delays: checks invariants of every state, and of the
//! final one.

use super::*;
use crate::resource::INFERENCE_MODEL;
use proptest::prelude::*;

const GIB: i64 = 1 << 30;
const MODELS: usize = 24;
const NODES: usize = 5;
const COOLDOWN: u64 = 600;
const RESIDENCY: u64 = 120;

/// An event in the cluster.
#[derive(Clone, Debug)]
enum Operation {
    /// A request arrives and takes this many seconds once it is served.
    Request(usize, u64),
    Priority(usize, i8),
    /// The model's needs change, in GiB.
    Resize(usize, i64),
    Off(usize, bool),
    /// The model is deleted, or created again.
    Exists(usize, bool),
    /// Pods of others take this many GiB.
    Others(usize, i64),
    Cordon(usize, bool),
    Budget(usize, Option<i64>),
    /// The node disappears, or reappears.
    NodeExists(usize, bool),
    /// The reservation of a model is lost.
    Forget(usize),
    /// Time passes, in seconds.
    Wait(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let (model, node) = (0..MODELS, 0..NODES);
    prop_oneof![
        8 => (model.clone(), 1..200_u64).prop_map(|(model, seconds)| Operation::Request(model, seconds)),
        1 => (model.clone(), any::<i8>()).prop_map(|(model, priority)| Operation::Priority(model, priority)),
        1 => (model.clone(), 1..60_i64).prop_map(|(model, gib)| Operation::Resize(model, gib)),
        1 => (model.clone(), any::<bool>()).prop_map(|(model, off)| Operation::Off(model, off)),
        1 => (model.clone(), prop::bool::weighted(0.7)).prop_map(|(model, exists)| Operation::Exists(model, exists)),
        1 => (node.clone(), 0..50_i64).prop_map(|(node, gib)| Operation::Others(node, gib)),
        1 => (node.clone(), prop::bool::weighted(0.3)).prop_map(|(node, cordoned)| Operation::Cordon(node, cordoned)),
        1 => (node.clone(), prop::option::of(20..100_i64)).prop_map(|(node, budget)| Operation::Budget(node, budget)),
        1 => (node, prop::bool::weighted(0.7)).prop_map(|(node, exists)| Operation::NodeExists(node, exists)),
        1 => model.prop_map(Operation::Forget),
        6 => (1..400_u64).prop_map(Operation::Wait),
    ]
}

/// A model and its state in the simulated cluster.
#[derive(Clone, Debug)]
struct Simulated {
    model: Model,
    exists: bool,
    /// The time when its pod becomes or became ready.
    ready_at: Option<u64>,
    /// The end times of the requests in flight.
    answers: Vec<u64>,
    /// The durations of the waiting requests.
    waiting: Vec<u64>,
}

struct Cluster {
    now: u64,
    nodes: BTreeMap<String, (Node, bool)>,
    models: BTreeMap<ObjectKey, Simulated>,
}

fn key(at: usize) -> ObjectKey {
    ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: format!("m{at}") }
}

fn needs(gib: i64) -> Amounts {
    Amounts { memory: gib * GIB, cpu: 1000, gpus: 0, pods: 1 }
}

impl Cluster {
    fn new() -> Self {
        let pool = |name: &str, at: usize| {
            let label = |key: &str, value: String| (key.to_owned(), value);
            BTreeMap::from([label("inference-pool", name.to_owned()), label("half", (at % 2).to_string())])
        };
        let node = |at: usize| {
            let allocatable = Amounts { memory: 100 * GIB, cpu: 64_000, gpus: 8, pods: 110 };
            (format!("n{at}"), (Node { labels: pool("default", at), allocatable, ..Node::default() }, true))
        };
        let model = |at: usize| {
            // Pools overlap: some models may run on only half of the nodes.
            let mut selector = pool("default", at);
            if !at.is_multiple_of(3) {
                selector.remove("half");
            }
            // Chains and a diamond, but no cycle.
            let dependencies = match at {
                3 => vec!["m2".to_owned()],
                4 => vec!["m3".to_owned(), "m1".to_owned()],
                9 => vec!["m8".to_owned(), "m7".to_owned()],
                7 | 8 => vec!["m6".to_owned()],
                _ => Vec::new(),
            };
            let model = Model {
                name: format!("m{at}"),
                selector,
                needs: needs(5 + 2 * i64::try_from(at).unwrap()),
                dependencies,
                cooldown: COOLDOWN,
                residency: RESIDENCY,
                created: 1000 + at as u64,
                ..Model::default()
            };
            (key(at), Simulated { model, exists: true, ready_at: None, answers: Vec::new(), waiting: Vec::new() })
        };
        Self { now: 100_000, nodes: (0..NODES).map(node).collect(), models: (0..MODELS).map(model).collect() }
    }

    fn run(&mut self, operation: &Operation) {
        let now = self.now;
        let node = |at: usize| format!("n{at}");
        match *operation {
            Operation::Request(at, seconds) => {
                let simulated = self.models.get_mut(&key(at)).unwrap();
                if simulated.exists && !simulated.model.off {
                    simulated.model.activity.last_request = Some(now);
                    simulated.waiting.push(seconds);
                }
            }
            Operation::Priority(at, priority) => self.models.get_mut(&key(at)).unwrap().model.priority = f64::from(priority),
            Operation::Resize(at, gib) => self.models.get_mut(&key(at)).unwrap().model.needs = needs(gib),
            Operation::Off(at, off) => {
                let simulated = self.models.get_mut(&key(at)).unwrap();
                simulated.model.off = off;
                simulated.waiting.clear();
            }
            Operation::Exists(at, exists) => {
                let simulated = self.models.get_mut(&key(at)).unwrap();
                simulated.exists = exists;
                simulated.waiting.clear();
                if !exists {
                    // Its Deployment disappears with it, at once.
                    simulated.answers.clear();
                    simulated.ready_at = None;
                    simulated.model.pods.clear();
                    simulated.model.held = None;
                    simulated.model.activity = Activity::default();
                }
            }
            Operation::Others(at, gib) => self.nodes.get_mut(&node(at)).unwrap().0.others.memory = gib * GIB,
            Operation::Cordon(at, cordoned) => {
                self.nodes.get_mut(&node(at)).unwrap().0.closed = cordoned.then_some(Closed::Cordoned);
            }
            Operation::Budget(at, budget) => self.nodes.get_mut(&node(at)).unwrap().0.memory_budget = budget.map(|gib| gib * GIB),
            Operation::NodeExists(at, exists) => {
                self.nodes.get_mut(&node(at)).unwrap().1 = exists;
                if !exists {
                    for simulated in self.models.values_mut() {
                        if simulated.model.pods.iter().any(|(on, _)| *on == node(at)) {
                            simulated.model.pods.clear();
                            simulated.answers.clear();
                            simulated.ready_at = None;
                            simulated.model.activity.ready_since = None;
                        }
                    }
                }
            }
            Operation::Forget(at) => self.models.get_mut(&key(at)).unwrap().model.held = None,
            Operation::Wait(seconds) => self.now += seconds,
        }
        self.settle_pods();
    }

    /// Does what kubelets and gateways do.
    fn settle_pods(&mut self) {
        let now = self.now;
        let ready: BTreeMap<String, bool> =
            self.models.values().map(|simulated| (simulated.model.name.clone(), simulated.ready_at.is_some_and(|at| at <= now))).collect();
        for simulated in self.models.values_mut() {
            let Simulated { model, ready_at, answers, waiting, .. } = simulated;
            answers.retain(|ends| *ends > now);
            match model.held.clone() {
                Some(Held { node, amounts, phase: Phase::Admitted | Phase::Draining(_), .. }) if self.nodes[&node].1 => {
                    let may_start = model.dependencies.iter().all(|name| ready[name]);
                    if model.pods.is_empty() && may_start {
                        *ready_at = Some(now + 30);
                        model.pods = vec![(node, amounts)];
                        model.activity.scaled_to_zero = false;
                    }
                }
                Some(Held { phase: Phase::Stopping, .. }) => {
                    assert!(answers.is_empty(), "{} is stopped with requests in flight", model.name);
                    model.pods.clear();
                    *ready_at = None;
                    model.activity.scaled_to_zero = true;
                }
                _ => {}
            }
            let is_ready = ready_at.is_some_and(|at| at <= now);
            if is_ready {
                model.activity.ran = true;
                model.activity.start_seconds = Some(30.0);
            }
            model.activity.ready_since = ready_at.filter(|_| is_ready);
            let is_routed = is_ready && model.held.as_ref().is_some_and(|held| held.phase == Phase::Admitted);
            if is_routed {
                answers.extend(waiting.drain(..).map(|seconds| now + seconds));
                if !answers.is_empty() {
                    model.activity.last_request = Some(now);
                }
            }
            model.activity.in_flight = answers.len() as u64;
            model.activity.waiting = waiting.len() as u64;
            let is_draining = model.held.as_ref().is_some_and(|held| matches!(held.phase, Phase::Draining(_)));
            model.activity.drained = is_draining && answers.is_empty();
        }
    }

    fn ledger(&self) -> Ledger {
        let nodes = self.nodes.iter().filter(|(_, (_, exists))| *exists).map(|(name, (node, _))| (name.clone(), node.clone())).collect();
        let models =
            self.models.iter().filter(|(_, simulated)| simulated.exists).map(|(key, simulated)| (key.clone(), simulated.model.clone()));
        let score = |(_, row): &(&ObjectKey, Features)| {
            let idle = if row.idle_seconds.is_nan() { 0.0 } else { row.idle_seconds };
            Some((0.5 + row.priority / 300.0 + row.waiting_requests / 100.0 - idle / 10_000.0).clamp(0.0, 1.0))
        };
        allocate(&nodes, &models.collect(), self.now, &mut |rows| rows.iter().map(score).collect(), &mut |choice| {
            // Some nodes are better regardless of how well they fit; for some models no plugin scores nodes.
            let suits = |node: &&str| Some(if *node < "n2" { 0.2 } else { 0.7 });
            if choice.model.name.ends_with('5') {
                return NodeAnswer::Equal;
            }
            NodeAnswer::Scores(choice.nodes.iter().map(suits).collect())
        })
    }

    /// Writes the steps of the ledger, and checks each against the current cluster.
    fn write(&mut self, ledger: &Ledger) {
        for step in &ledger.steps {
            let simulated = &self.models[&step.model];
            let before = simulated.model.held.clone();
            match (&before, &step.held) {
                (Some(before), Some(after)) if before.phase == Phase::Admitted && matches!(after.phase, Phase::Draining(_)) => {
                    let activity = &simulated.model.activity;
                    if let Phase::Draining(SleepReason::Evicted(_) | SleepReason::Idle | SleepReason::Overcommitted) = &after.phase {
                        assert_eq!((activity.in_flight, activity.waiting), (0, 0), "{} is busy", step.model.name);
                        let ready = activity.ready_since.expect("it starts, and is put to sleep");
                        assert!(self.now - ready >= RESIDENCY, "{} has just come", step.model.name);
                    }
                }
                (Some(before), Some(after)) if before.phase == Phase::Admitted && after.phase == Phase::Stopping => {
                    assert!(!self.nodes[&before.node].1, "{} isn't asked to drain first", step.model.name);
                }
                (_, None) => assert!(simulated.model.pods.is_empty(), "{} is released while its pod is there", step.model.name),
                (None, Some(after)) if simulated.model.pods.is_empty() => {
                    let left = self.left(&after.node);
                    assert!(after.amounts.fit(left), "{} has no room on {}: {left:?}", step.model.name, after.node);
                    let node = &self.nodes[&after.node];
                    assert!(node.1 && node.0.closed.is_none(), "{} takes no new models", after.node);
                }
                _ => {}
            }
            self.models.get_mut(&step.model).unwrap().model.held.clone_from(&step.held);
        }
    }

    /// A node's capacity for models, less pods and reservations.
    fn left(&self, name: &str) -> Amounts {
        let node = &self.nodes[name].0;
        let memory = node.memory_budget.map_or(i64::MAX, |budget| budget).min(node.allocatable.memory - node.others.memory);
        let mut left = Amounts { memory, ..node.allocatable };
        for simulated in self.models.values().filter(|simulated| simulated.exists) {
            let pods = simulated.model.pods.iter().filter(|(on, _)| on == name).fold(Amounts::default(), |sum, (_, pod)| sum + *pod);
            let held = simulated.model.held.as_ref().filter(|held| held.node == name);
            left -= held.map_or(pods, |held| held.amounts.max(pods));
        }
        left
    }

    /// Lets time pass until nothing changes.
    fn settle(&mut self) -> Ledger {
        for _ in 0..200 {
            let ledger = self.ledger();
            self.write(&ledger);
            self.now += 30;
            self.settle_pods();
            let busy = self.models.values().any(|simulated| !simulated.answers.is_empty() || !simulated.waiting.is_empty());
            let starting = self.models.values().any(|simulated| simulated.ready_at.is_some_and(|at| at > self.now));
            if ledger.steps.is_empty() && !busy && !starting && ledger.next.is_none() {
                return ledger;
            }
        }
        self.ledger()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 5_000 } else { 60 }))]

    #[test]
    fn no_node_is_overcommitted_and_nobody_busy_goes_whatever_happens(operations in prop::collection::vec(operation(), 1..250)) {
        let mut cluster = Cluster::new();
        for operation in &operations {
            cluster.run(operation);
            let ledger = cluster.ledger();
            prop_assert_eq!(&ledger, &cluster.ledger(), "the same world gives the same ledger");
            cluster.write(&ledger);
            cluster.settle_pods();
        }
        let ledger = cluster.settle();
        for (key, entry) in &ledger.entries {
            let simulated = &cluster.models[key];
            match entry {
                Entry::Placed { held, .. } if held.phase == Phase::Admitted => {
                    let may_start = simulated.model.dependencies.iter().all(|name| {
                        cluster.models.values().any(|other| other.model.name == *name && other.model.activity.ready_since.is_some())
                    });
                    prop_assert!(simulated.model.activity.ready_since.is_some() || !may_start, "{key:?} has a place and isn't ready");
                }
                Entry::Waiting(waiting) if waiting.dependency.is_none() && waiting.wanted_by.is_none() => {
                    // No open node has as much free capacity as the model needs.
                    let open = cluster.nodes.iter().filter(|(_, (node, exists))| {
                        let model = &simulated.model;
                        *exists && node.closed.is_none() && model.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
                    });
                    let room: Vec<_> = open.filter(|(name, _)| simulated.model.needs.fit(cluster.left(name))).collect();
                    let alone = simulated.model.dependencies.is_empty();
                    prop_assert!(room.is_empty() || !alone || waiting.is_coming, "{key:?} waits, and {room:?} have room: {waiting:?}");
                }
                _ => {}
            }
        }
    }
}
