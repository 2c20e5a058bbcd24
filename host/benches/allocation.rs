//! The cost of an allocation in a pool of 5,000 models on 500 nodes. `cargo xtask bench` runs this; docs/benchmarks.md explains the
//! numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use criterion::{Criterion, criterion_group, criterion_main};
use pointsman_core::{
    allocation::{Activity, Features, Held, Ledger, Model, Node, NodeAnswer, Phase, allocate, amounts::Amounts},
    resource::INFERENCE_MODEL,
    world::ObjectKey,
};
use std::{collections::BTreeMap, hint::black_box};

const MODELS: usize = 5_000;
const NODES: usize = 500;
const NOW: u64 = 1_800_000_000;
const GIB: i64 = 1 << 30;

struct Pool {
    nodes: BTreeMap<String, Node>,
    models: BTreeMap<ObjectKey, Model>,
}

fn key(at: usize) -> ObjectKey {
    ObjectKey { resource: &INFERENCE_MODEL, namespace: format!("team-{}", at % 50), name: format!("model-{at}") }
}

fn needs(at: usize) -> Amounts {
    Amounts { memory: [8, 16, 24, 40, 80][at % 5] * GIB, cpu: 4000, gpus: 1, pods: 1 }
}

impl Pool {
    /// A pool in which every node is full and all other models sleep. The models on nodes are idle.
    fn full() -> Self {
        let labels = BTreeMap::from([("inference-pool".to_owned(), "default".to_owned())]);
        let allocatable = Amounts { memory: 256 * GIB, cpu: 128_000, gpus: 8, pods: 110 };
        let node = |at: usize| (format!("node-{at}"), Node { labels: labels.clone(), allocatable, ..Node::default() });
        let model = |at: usize| {
            let activity = Activity { ran: true, scaled_to_zero: true, ..Activity::default() };
            let (name, selector) = (format!("model-{at}"), labels.clone());
            let model = Model {
                name,
                selector,
                needs: needs(at),
                cooldown: 3600,
                residency: 300,
                created: NOW - 90_000,
                activity,
                ..Model::default()
            };
            (key(at), model)
        };
        let mut pool = Self { nodes: (0..NODES).map(node).collect(), models: (0..MODELS).map(model).collect() };
        // Wake every model once, then set those that got memory to have been ready for more than an hour.
        pool.models.values_mut().for_each(|model| model.activity.waiting = 1);
        let ledger = pool.allocate();
        for step in ledger.steps {
            let model = pool.models.get_mut(&step.model).unwrap();
            let held = step.held.unwrap();
            model.pods = vec![(held.node.clone(), held.amounts)];
            model.held = Some(Held { phase: Phase::Admitted, ..held });
            let idle = model.created % 2 + u64::try_from(model.name.len()).unwrap();
            let activity =
                Activity { ready_since: Some(NOW - 4000), last_request: Some(NOW - 600 - idle), ran: true, ..Activity::default() };
            model.activity = activity;
        }
        for model in pool.models.values_mut().filter(|model| model.held.is_none()) {
            model.activity.waiting = 0;
        }
        pool
    }

    fn allocate(&self) -> Ledger {
        // Another bench measures policies.
        let score = |(_, row): &(&ObjectKey, Features)| {
            Some(if row.resident > 0.5 { 1.0 / (1.0 + row.idle_seconds / 120.0) } else { 0.5 + row.waiting_requests.min(10.0) / 20.0 })
        };
        allocate(&self.nodes, &self.models, NOW, &mut |rows| rows.iter().map(score).collect(), &mut |_| NodeAnswer::Equal)
    }
}

fn allocations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("an allocation of 5,000 models on 500 nodes");
    group.sample_size(20);
    let mut pool = Pool::full();
    assert!(pool.allocate().steps.is_empty());
    println!("{} of {MODELS} models are awake", pool.models.values().filter(|model| model.held.is_some()).count());
    group.bench_function("nothing changed", |bencher| bencher.iter(|| black_box(pool.allocate())));
    let sleeping = pool.models.iter().find(|(_, model)| model.held.is_none()).unwrap().0.clone();
    pool.models.get_mut(&sleeping).unwrap().activity.waiting = 1;
    assert!(!pool.allocate().steps.is_empty());
    group.bench_function("a request", |bencher| bencher.iter(|| black_box(pool.allocate())));
    pool.models.values_mut().filter(|model| model.held.is_none()).for_each(|model| model.activity.waiting = 1);
    group.bench_function("requests to all sleeping models", |bencher| bencher.iter(|| black_box(pool.allocate())));
    pool.models.values_mut().for_each(|model| {
        (model.held, model.pods) = (None, Vec::new());
        model.activity = Activity { waiting: 1, ..Activity::default() };
    });
    group.bench_function("from scratch", |bencher| bencher.iter(|| black_box(pool.allocate())));
    group.finish();
}

criterion_group!(benches, allocations);
criterion_main!(benches);
