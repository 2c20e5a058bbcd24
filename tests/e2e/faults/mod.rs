//! Two hosts behind proxies that inject faults, while users edit services of all kinds: only the leader writes, no host terminates by
//! itself, and the final objects are those of a run without faults.

mod edits;
mod planted;
mod state;

use crate::{
    services::{LastSeen, Space, home},
    sets::leaders::leads,
};
use edits::{Edit, edit, furniture};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use pointsman_core::{resource::BASE_MODEL, settings::HOST_NAMESPACE};
use pointsman_harness::Options;
use pointsman_tests::{
    Host, PolicyCluster, TestCluster, client, eventually,
    faults::{Fault, Faults, Proxy, Reach},
    is_full, plugin_bytes, with_other_digest,
};
use serde_json::{Value, json};
use state::{end_state, unapplied};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;

/// The number of faults per fault of a whole host, which is included; and the same with `--full`.
const FOR_EACH_OF_A_HOST: usize = 20;
const FOR_EACH_OF_A_HOST_IF_FULL: usize = 50;

/// The number of edits before the test waits for the hosts' requests.
const EDITS_AT_ONCE: usize = 6;

/// The number of rounds of edits after the last fault.
const ROUNDS_AFTERWARDS: usize = 8;

/// The plugin that gets new versions during the run.
const LABELS: &str = "pointsman-example-rust-labels";

/// The identity that takes the lease from the leader, and for how long.
const THIEF: &str = "somebody-else";
const THEFT_SECONDS: i32 = 3;

/// The seed of the edits. Set `POINTSMAN_TEST_SEED` for another run.
const SEED: u64 = 20_261_123;

/// A host behind its proxy.
struct Seat<'a> {
    proxy: Proxy,
    host: Option<Host<'a>>,
}

struct Run<'a> {
    cluster: &'a PolicyCluster,
    space: Space<'a>,
    faults: Arc<Faults>,
    seats: Vec<Seat<'a>>,
    /// All edits so far.
    edits: Vec<Edit>,
    /// The state of the generator of the edits.
    random: u64,
    versions: usize,
}

impl<'a> Run<'a> {
    async fn start(cluster: &'a PolicyCluster, seed: u64) -> Self {
        home(cluster).await;
        let faults = Arc::new(Faults::new(seed));
        let space = prepared(cluster, "faulty").await;
        let mut run = Self { cluster, space, faults, seats: Vec::new(), edits: Vec::new(), random: seed, versions: 0 };
        for number in 0..2 {
            let proxy = Proxy::start(number, client(&cluster.host_kubeconfig()).await, &cluster.dir, &run.faults).await;
            let host = Some(start_host(cluster, &proxy).await);
            run.seats.push(Seat { proxy, host });
        }
        run.leader().await;
        for edit in furniture() {
            run.apply(edit).await;
        }
        run
    }

    async fn apply(&mut self, edit: Edit) {
        edit.apply(&self.space.0.client, &self.space.0.name).await;
        self.edits.push(edit);
    }

    /// The next number of the seed's sequence.
    fn random(&mut self) -> u64 {
        // The generator of POSIX's `drand48`, whose upper bits are good enough for a choice.
        self.random = self.random.wrapping_mul(0x5_deec_e66d).wrapping_add(11);
        self.random >> 16
    }

    /// Applies some edits, then waits for requests of the hosts.
    async fn edit(&mut self) {
        for _ in 0..EDITS_AT_ONCE {
            let random = self.random();
            self.apply(edit(random)).await;
        }
        // The edits may cause no requests, for example while no host is the leader.
        let answered = self.faults.ledger.further_requests(10 * EDITS_AT_ONCE);
        timeout(Duration::from_secs(1), answered).await.ok();
    }

    /// Pushes a new version of the plugin with the same behaviour as the previous one.
    async fn update_policies(&mut self) {
        self.versions += 1;
        self.cluster.config_map("labels", &with_other_digest(&plugin_bytes(LABELS), self.versions)).await;
        if self.versions == 1 {
            self.cluster.plugin_of_config_map("labels", json!({"strategy": {"type": "Immediate"}})).await;
        }
    }

    /// Waits for a leader and returns its index.
    async fn leader(&self) -> usize {
        eventually("one leads", async || self.seats.iter().position(|seat| seat.host.as_ref().is_some_and(leads))).await
    }

    /// Waits until the other host is the leader, while users continue to edit.
    async fn next_leader(&mut self, former: usize) {
        let mut tries = 0;
        while !self.seats.iter().enumerate().any(|(seat, host)| seat != former && host.host.as_ref().is_some_and(leads)) {
            self.edit().await;
            tries += 1;
            assert!(tries < 600, "no other host leads");
        }
    }

    /// Injects a fault of a whole host.
    async fn befall(&mut self, fault: Fault) {
        let leader = self.leader().await;
        self.faults.note(fault);
        println!("{fault:?}");
        match fault {
            Fault::LeaseHung | Fault::Partition => {
                let reach = if fault == Fault::Partition { Reach::Nothing } else { Reach::NotTheLease };
                self.seats[leader].proxy.reaches(reach);
                self.next_leader(leader).await;
                self.seats[leader].proxy.reaches(Reach::All);
            }
            Fault::Killed | Fault::Terminated => {
                if let Some(host) = self.seats[leader].host.take() {
                    if fault == Fault::Killed { self.cluster.kill_part(&host.part).unwrap() } else { host.stop() }
                }
                self.next_leader(leader).await;
                self.seats[leader].host = Some(start_host(self.cluster, &self.seats[leader].proxy).await);
            }
            Fault::LeaseTaken => {
                let now = serde_json::to_value(MicroTime(Timestamp::now())).unwrap();
                let taken = json!({"spec": {
                    "holderIdentity": THIEF, "leaseDurationSeconds": THEFT_SECONDS, "renewTime": now, "acquireTime": now,
                }});
                self.faults.ledger.taken();
                self.leases().patch("pointsman", &PatchParams::default(), &Patch::Merge(&taken)).await.unwrap();
            }
            Fault::LeaseDeleted => {
                self.faults.ledger.taken();
                self.leases().delete("pointsman", &DeleteParams::default()).await.unwrap();
            }
            _ => panic!("{fault:?} comes by chance"),
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.space.0.client.clone(), HOST_NAMESPACE)
    }

    /// The state of each host process that has terminated by itself.
    fn ended(&self) -> Vec<Value> {
        let status = self.cluster.control(&json!({"do": "status"})).unwrap();
        let parts = status["parts"].as_array().into_iter().flatten();
        parts
            .filter(|part| part["name"].as_str().is_some_and(|name| name.starts_with("host-")) && part["state"] == "exited")
            .cloned()
            .collect()
    }

    /// Waits until everything is applied and nothing is written any more.
    async fn rests(&self, space: &Space<'_>) {
        let mut last = self.faults.ledger.writes().len();
        let mut quiet = 0;
        let seen = LastSeen::default();
        eventually("all is applied, and nothing is written any more", async || {
            let writes = self.faults.ledger.writes();
            let unapplied = unapplied(space).await;
            seen.note(format!("{unapplied:#?}\n{:#?}", &writes[writes.len().saturating_sub(10)..]));
            quiet = if unapplied.is_empty() && writes.len() == last { quiet + 1 } else { 0 };
            last = writes.len();
            // Five seconds are longer than the delay of reports and than an interval between renewals of the lease.
            (quiet == 100).then_some(())
        })
        .await;
    }
}

/// A namespace with the objects that the edits need and don't create.
async fn prepared<'a>(cluster: &'a TestCluster, what: &str) -> Space<'a> {
    let space = Space::bare(cluster, what).await;
    crate::sets::label(&space, json!({"cost-centre": "4711"})).await;
    let model = json!({"modelFormat": {"name": "checkpoint"}, "modelParameterSize": "7B", "storage": {"storageUri": "hf://some/model"}});
    space.create(&BASE_MODEL, "model", json!({"spec": model})).await;
    space.patch_status(&BASE_MODEL, "model", json!({"state": "Ready"})).await;
    space
}

async fn start_host<'a>(cluster: &'a TestCluster, proxy: &Proxy) -> Host<'a> {
    // Nothing runs the pods, so no host may wait for a restart.
    Host::start_as(cluster, &proxy.kubeconfig, &["--pace", "0"]).await
}

/// An API server with all kinds, and a controller manager that collects garbage.
fn cluster() -> PolicyCluster {
    let parts = ["etcd", "apiserver", "controller-manager"].map(str::to_owned).to_vec();
    PolicyCluster::from_cluster(TestCluster::with_our_crds(Options {
        parts: Some(parts),
        nodes: Some("none".into()),
        ..Options::default()
    }))
}

/// Injects this many faults; some affect whole hosts.
async fn survive(number: usize) {
    let seed = std::env::var("POINTSMAN_TEST_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    println!("POINTSMAN_TEST_SEED={seed}");
    let cluster = cluster();
    let mut run = Run::start(&cluster, seed).await;
    let mut of_hosts = Fault::BY_HOST.into_iter().cycle();
    let mut left = number;
    while left > 0 {
        run.update_policies().await;
        let by_chance = if is_full() { FOR_EACH_OF_A_HOST_IF_FULL } else { FOR_EACH_OF_A_HOST }.min(left) - 1;
        run.faults.allow(by_chance);
        run.befall(of_hosts.next().unwrap()).await;
        while run.faults.left() > 0 {
            run.edit().await;
            assert_eq!(run.ended(), [Value::Null; 0], "a host has ended by itself");
        }
        left -= by_chance + 1;
    }
    // While watches end again and again, everything is listed again too. Only now does an event that a watch lost show.
    for _ in 0..ROUNDS_AFTERWARDS {
        run.edit().await;
    }
    let injected = run.faults.injected();
    println!("{injected:#?}");
    assert_eq!(injected.values().sum::<usize>(), number);
    for fault in Fault::BY_CHANCE.into_iter().chain(Fault::BY_HOST) {
        assert!(injected.contains_key(&fault), "{fault:?} never came");
    }

    let leader = run.leader().await;
    run.rests(&run.space).await;
    println!("{} writes by {} edits", run.faults.ledger.writes().len(), run.edits.len());
    assert_eq!(run.faults.ledger.wrong(), [""; 0]);
    let newest = pointsman_sandbox::digest::Digest::hash(&with_other_digest(&plugin_bytes(LABELS), run.versions)).to_string();
    cluster.active("labels", &newest).await;
    run.rests(&run.space).await;
    let faulty = end_state(&run.space).await;
    assert!(!faulty.is_empty());

    // A new process without any state finds nothing to write.
    let before = run.faults.ledger.writes().len();
    for seat in [1 - leader, leader] {
        if let Some(host) = run.seats[seat].host.take() {
            host.stop();
        }
    }
    run.seats[0].host = Some(start_host(&cluster, &run.seats[0].proxy).await);
    run.leader().await;
    run.rests(&run.space).await;
    let written = run.faults.ledger.writes().split_off(before);
    let written: Vec<_> = written.iter().filter(|(_, write)| write.contains(&run.space.0.name)).collect();
    assert!(written.is_empty(), "a host that starts afterwards finds something to write: {written:#?}");

    // The final state of the users' objects, created without faults and without earlier states: the faulty run may have left nothing else.
    let calm = prepared(&cluster, "calmly").await;
    for edit in newest_edits(&run.edits) {
        edit.apply(&calm.0.client, &calm.0.name).await;
    }
    run.rests(&calm).await;
    let expected = end_state(&calm).await;
    assert_eq!(run.faults.ledger.wrong(), [""; 0]);
    differ(&faulty, &expected);
}

/// The last edit of each object.
fn newest_edits(edits: &[Edit]) -> Vec<&Edit> {
    let mut seen = BTreeSet::new();
    let mut newest: Vec<&Edit> = edits.iter().rev().filter(|edit| seen.insert((edit.resource.kind, &*edit.name))).collect();
    newest.reverse();
    newest
}

/// Fails if two states differ, and prints only the differences.
fn differ(faulty: &BTreeMap<String, Value>, calm: &BTreeMap<String, Value>) {
    let text = |state: &BTreeMap<String, Value>, name: &str| state.get(name).map(|object| format!("{object:#}")).unwrap_or_default();
    let names: BTreeSet<&String> = faulty.keys().chain(calm.keys()).collect();
    let differ: Vec<&String> = names.into_iter().filter(|name| faulty.get(*name) != calm.get(*name)).collect();
    for name in &differ {
        println!("{name}\nwith faults: {}\nwithout: {}", text(faulty, name), text(calm, name));
    }
    assert!(differ.is_empty(), "these aren't what they are without faults: {differ:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_between_hosts_and_the_api_server_the_end_is_that_of_a_run_without_faults() {
    survive(if is_full() { 10_000 } else { 120 }).await;
}
