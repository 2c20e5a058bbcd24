//! Reloads under load: a plugin's bytes change again and again while the engine decides.

use crate::{Engine, PolicyCluster, eventually, measure, plugin_bytes, with_other_digest};
use pointsman_core::decide::{Standing, propagation};
use pointsman_sandbox::{
    digest::{Digest, Digested},
    limits::Limits,
    point::{
        Entry, Subject,
        propagation::{Place, Target},
    },
};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The results.
#[derive(Clone, Debug)]
pub struct Reloads {
    /// The size of the component.
    pub bytes: usize,
    /// From the write of the ConfigMap to the first decision by the new bytes.
    pub latencies: Vec<Duration>,
    /// The number of decisions.
    pub decisions: u64,
    /// Failed decisions.
    pub failed: u64,
    /// Decisions that took longer than the limit of a call.
    pub late: u64,
    /// Pairs of decisions in one plan that came from two sets.
    pub mixed: u64,
    /// The slowest decision.
    pub slowest: Duration,
    /// Resident memory after the first tenth of the reloads, and at the end.
    pub resident: (u64, u64),
}

impl Reloads {
    /// A quantile of the latencies.
    pub fn quantile(&self, quantile: f64) -> Duration {
        measure::quantile(&self.latencies, quantile)
    }
}

/// A question at metadata-propagation, about the subject with this number in a namespace with a cost centre.
pub fn question(number: u64) -> propagation::Inputs {
    let labels = vec![Entry { key: "cost-centre".into(), value: "r-7".into() }];
    let subject = Subject { name: format!("subject-{number}"), namespace_labels: labels, ..Subject::default() };
    let target = Target { kind: "Deployment".into(), place: Place::PodTemplate, ..Target::default() };
    let digested = "plain data has JSON";
    propagation::Inputs {
        subject: Digested::new(subject).expect(digested),
        target: Digested::new(target).expect(digested),
        ..propagation::Inputs::default()
    }
}

#[derive(Debug, Default)]
struct Counts {
    decisions: AtomicU64,
    failed: AtomicU64,
    late: AtomicU64,
    mixed: AtomicU64,
    slowest: AtomicU64,
}

/// Plans one subject after the other at a steady pace, with two decisions each.
fn load(engine: &Engine, counts: &Counts, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let pinned = engine.policies.pin(Standing::Running);
        let mut by = Vec::new();
        for _ in 0..2 {
            let number = counts.decisions.fetch_add(1, Ordering::Relaxed);
            let started = Instant::now();
            match pinned.propagate(&question(number)) {
                Ok(decision) => by.push(decision.plugins.clone()),
                Err(_) => _ = counts.failed.fetch_add(1, Ordering::Relaxed),
            }
            let took = started.elapsed();
            if took > Limits::DEFAULT.deadline {
                counts.late.fetch_add(1, Ordering::Relaxed);
            }
            counts.slowest.fetch_max(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        if matches!(&by[..], [first, second] if first != second) {
            counts.mixed.fetch_add(1, Ordering::Relaxed);
        }
        // This is the pace of the load; it waits for nothing.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reloads a plugin this many times.
pub async fn reloads(cluster: &PolicyCluster, number: usize) -> Reloads {
    let engine = Arc::new(Engine::start(cluster, "reloads", &cluster.folder("reloads-cache")).await);
    let plugin = plugin_bytes("pointsman-example-rust-labels");
    cluster.config_map("labels", &plugin).await;
    cluster.plugin_of_config_map("labels", json!({"revisionHistoryLimit": 2})).await;
    cluster.active("labels", &Digest::hash(&plugin).to_string()).await;

    let (counts, stop) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
    let loading = {
        let (engine, counts, stop) = (Arc::clone(&engine), Arc::clone(&counts), Arc::clone(&stop));
        thread::spawn(move || load(&engine, &counts, &stop))
    };
    let mut latencies = Vec::new();
    let mut resident = (0, 0);
    for round in 0..number {
        let bytes = with_other_digest(&plugin, round);
        let digest = Digest::hash(&bytes).to_string();
        let written = Instant::now();
        cluster.config_map("labels", &bytes).await;
        eventually("the new bytes decide", async || {
            let decision = engine.policies.pin(Standing::Running).propagate(&question(u64::MAX - round as u64)).ok()?;
            decision.plugins.iter().any(|asked| asked.digest == digest).then_some(())
        })
        .await;
        latencies.push(written.elapsed());
        // By now, everything that grows after a start has grown: caches, pools, the allocator's arenas.
        if round == number / 10 {
            resident.0 = resident_memory();
        }
    }
    resident.1 = resident_memory();
    stop.store(true, Ordering::Relaxed);
    loading.join().expect("the load doesn't panic");
    if let Ok(engine) = Arc::try_unwrap(engine) {
        engine.stop().await;
    }
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Reloads {
        bytes: plugin.len(),
        latencies,
        decisions: get(&counts.decisions),
        failed: get(&counts.failed),
        late: get(&counts.late),
        mixed: get(&counts.mixed),
        slowest: Duration::from_micros(get(&counts.slowest)),
        resident,
    }
}

/// The resident memory of this process in bytes.
fn resident_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() << 10
}
