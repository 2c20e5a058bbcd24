//! Many services on the embedded control plane: the time until their objects exist, compared with a bare client that writes the same
//! objects; the host's requests, CPU and memory; and its activity without changes.
//!
//! Both kinds are measured, one after the other; `POINTSMAN_KIND=LLMInferenceService` selects one. `POINTSMAN_SERVICES=5000` creates more
//! services. `POINTSMAN_ROUNDS=0` omits the bare client; another number sets the number of rounds. In each round, both have their own
//! control planes and the order changes, so that neither affects the other.
#![allow(clippy::unwrap_used)]

mod audit;
mod kind;
mod setting;

use audit::{Audit, Request};
use kind::OwnKind;
use pointsman_core::{
    kinds, planning,
    resource::{NAMESPACE, Resource},
    settings::Settings,
    world::World,
};
use pointsman_tests::{
    Engine, Host, TestCluster,
    measure::{Taken, goal, keep, leads, metric, ours, taken, wait},
};
use serde_json::{Value, json};
use setting::SERVICES_ARE_IN;
use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// The number of the host's workers, and of the bare client's connections.
const CONNECTIONS: usize = 8;

/// The time without a request after which the work counts as finished.
const QUIET: Duration = Duration::from_secs(5);

/// The duration of the measurement without changes: several renewals of the host's Lease.
const IDLE: Duration = Duration::from_secs(35);

const HOST: &str = "bench-host";
const BARE: &str = "bench-bare";

/// The maximum CPU per object of a service, including its share of the service's own CPU.
const CPU_AN_OBJECT: Duration = Duration::from_micros(600);

/// A number of services of one kind.
#[derive(Clone, Copy)]
struct Services {
    kind: &'static OwnKind,
    number: usize,
}

impl Services {
    /// The number of objects of all services.
    fn objects(self) -> usize {
        self.number * self.kind.objects
    }

    /// The share of each service.
    fn each(self, all: Duration) -> Duration {
        all / u32::try_from(self.number).unwrap()
    }

    /// The share of each object.
    fn each_object(self, all: Duration) -> Duration {
        all / u32::try_from(self.objects()).unwrap()
    }
}

/// The results of a host.
struct Seen {
    /// From its first write to the last object, and to the last status.
    objects: Duration,
    ready: Duration,
    /// From its start until it was ready, with all services in the cluster.
    started: Duration,
    /// All requests until the work was finished, except those for the Lease.
    requests: Vec<Request>,
    looks: f64,
    empty: Taken,
    full: Taken,
    /// Its requests without changes, and at a restart, except watches and the Lease.
    idle: Vec<Request>,
    restart: Vec<Request>,
    restarted: Taken,
    /// The pods that changed during the restart.
    pods_changed: usize,
}

fn main() {
    // Not a flag, because cargo passes its own flags to every bench, such as --bench.
    let (number, rounds) = (of_environment("POINTSMAN_SERVICES", 500), of_environment("POINTSMAN_ROUNDS", 2_u32));
    let kinds = OwnKind::asked_for(std::env::var("POINTSMAN_KIND").ok().as_deref());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for kind in kinds {
            measure(Services { kind, number }, rounds).await;
        }
    });
}

async fn measure(services: Services, rounds: u32) {
    let kind = services.kind.resource.kind;
    let (mut hosts, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        if round % 2 == 1 {
            bare.push(bare_client(services).await);
        }
        let seen = host(services).await;
        tell(&seen, services);
        hosts.push(seen);
        if round % 2 == 0 && rounds > 0 {
            bare.push(bare_client(services).await);
        }
    }
    let sum = |times: &mut dyn Iterator<Item = Duration>| times.sum::<Duration>().as_secs_f64();
    let (host, plain) = (sum(&mut hosts.iter().map(|seen| seen.objects)), sum(&mut bare.iter().map(|bare| bare.objects)));
    if rounds > 0 {
        println!(
            "bare client, the same objects of {kind}s: {:.1?}; the host's {:.1?}",
            bare.iter().map(|bare| bare.objects).collect::<Vec<_>>(),
            hosts.iter().map(|seen| seen.objects).collect::<Vec<_>>()
        );
        let cpu = |of: fn(Services, Duration) -> Duration| bare.iter().map(|bare| of(services, bare.cpu)).collect::<Vec<_>>();
        let (service, object) = (cpu(Services::each), cpu(Services::each_object));
        println!("  the CPU of its {} writes: {service:.2?} per service, {object:.2?} per object", services.kind.objects);
        goal("host / bare client", &format!("{:.2}", host / plain), "<= 1.25", host <= 1.25 * plain);
        let mean = |all: f64| Duration::from_secs_f64(all / f64::from(rounds));
        keep(&format!("the objects of many {kind}s"), &[("native", mean(plain)), ("host", mean(host))]);
    }
    if let Some(seen) = hosts.last() {
        let (service, object) = (services.each(cpu(seen)), services.each_object(cpu(seen)));
        keep(&format!("an {kind} among many"), &[("CPU", service), ("CPU per object", object)]);
    }
}

fn of_environment<N: FromStr>(name: &str, otherwise: N) -> N {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

/// Starts a host after the services are created.
async fn host(services: Services) -> Seen {
    let cluster = setting::cluster(services.kind).await;
    let kubeconfig = cluster.kubeconfig_of_user(HOST, &["system:masters"]).unwrap();
    let client = cluster.client().await;
    let mut audit = Audit::open(&cluster.audit_log, HOST);
    let (workers, cache) = (CONNECTIONS.to_string(), cluster.dir.join("bench-cache"));
    let flags = ["--workers", &workers, "--cache", &cache.to_string_lossy()];

    // An empty host, with its plugins compiled.
    for again in [false, true] {
        let host = Host::start_as(&cluster, &kubeconfig, &flags).await;
        leads(&host).await;
        quiet(&mut audit).await;
        if again {
            let empty = taken(&cluster, &host);
            host.stop();
            setting::make_services(&cluster, services.kind, services.number).await;
            audit.take();
            return with_services(&cluster, &client, (audit, &flags), services, empty).await;
        }
        host.stop();
    }
    unreachable!("the second turn returns")
}

async fn with_services(
    cluster: &TestCluster,
    client: &kube::Client,
    (mut audit, flags): (Audit, &[&str]),
    services: Services,
    empty: Taken,
) -> Seen {
    let kubeconfig = cluster.kubeconfig_of_user(HOST, &["system:masters"]).unwrap();
    let begun = Instant::now();
    let host = Host::start_as(cluster, &kubeconfig, flags).await;
    host.ready().await;
    let started = begun.elapsed();
    let mut requests = Vec::new();
    wait("all objects are there", async || {
        requests.extend(audit.take());
        requests.iter().filter(|request| request.makes()).count() >= services.objects()
    })
    .await;
    wait("all services are ready", async || {
        sleep(Duration::from_secs(1)).await;
        setting::services(client, services.kind).await.iter().all(is_ready)
    })
    .await;
    requests.extend(quiet(&mut audit).await);
    requests.retain(|request| !request.elects());
    let full = taken(cluster, &host);
    let looks = metric(&host, "controller_runtime_reconcile_total");
    sleep(IDLE).await;
    let idle = audit.take();

    let pods = setting::pods(client).await;
    host.stop();
    audit.take();
    let host = Host::start_as(cluster, &kubeconfig, flags).await;
    #[allow(clippy::cast_precision_loss)]
    wait("each service was looked at again", async || metric(&host, "controller_runtime_reconcile_total") >= services.number as f64).await;
    let restart = quiet(&mut audit).await;
    let restarted = taken(cluster, &host);
    let after: BTreeSet<String> = setting::pods(client).await.into_iter().collect();
    let pods_changed = pods.iter().filter(|pod| !after.contains(*pod)).count();
    host.stop();

    let first = requests.iter().filter(|request| request.writes()).map(|request| request.received).min().unwrap();
    let until = |of: fn(&Request) -> bool| {
        let last = requests.iter().filter(|request| of(request)).map(|request| request.answered).max().unwrap();
        last.duration_since(first).unsigned_abs()
    };
    let nothing_else =
        |requests: Vec<Request>| requests.into_iter().filter(|request| !request.elects() && request.verb != "watch").collect();
    Seen {
        objects: until(Request::makes),
        ready: until(Request::writes),
        started,
        looks,
        empty,
        full,
        idle: nothing_else(idle),
        restart: nothing_else(restart),
        restarted,
        pods_changed,
        requests,
    }
}

/// The results of the bare client: its time and its CPU.
struct Bare {
    objects: Duration,
    cpu: Duration,
}

/// Writes the same objects with a bare client.
async fn bare_client(services: Services) -> Bare {
    let Services { kind, number } = services;
    let cluster = setting::cluster(kind).await;
    setting::make_services(&cluster, kind, number).await;
    let client = cluster.client().await;
    let mut world = World::default();
    world.set_available(kind.neighbours.iter().map(|(_, resource)| *resource).collect());
    let labels = json!({"kubernetes.io/metadata.name": SERVICES_ARE_IN});
    world.put(&NAMESPACE, &json!({"metadata": {"name": SERVICES_ARE_IN, "labels": labels}}));
    for (resource, object) in setting::inputs(&client, kind).await {
        world.put(resource, &object);
    }
    for service in setting::services(&client, kind).await {
        world.put(kind.resource, &service);
    }
    let engine = Engine::start(&cluster, BARE, &cluster.dir.join("bench-cache")).await;
    let plan = |key| {
        let plan =
            planning::plan(kinds::find(kind.resource).unwrap(), world.snapshot(key, 0).unwrap(), &engine.policies, &Settings::default());
        let objects: Vec<_> = plan.objects.unwrap().iter().map(|object| (object.key.resource, object.manifest())).collect();
        assert_eq!(objects.len(), kind.objects, "{key}: {objects:?}");
        objects
    };
    let batches: Vec<Vec<(&'static Resource, Value)>> = world.subjects().map(|subject| plan(&subject.key)).collect();
    engine.stop().await;
    let mut audit = Audit::open(&cluster.audit_log, BARE);
    audit.take();
    let before = ours().cpu();
    setting::write(&cluster, BARE, batches, CONNECTIONS).await;
    let cpu = ours().cpu().saturating_sub(before);
    let made: Vec<Request> = audit.take().into_iter().filter(Request::makes).collect();
    assert_eq!(made.len(), services.objects());
    let (first, last) = (made.iter().map(|request| request.received).min(), made.iter().map(|request| request.answered).max());
    Bare { objects: last.unwrap().duration_since(first.unwrap()).unsigned_abs(), cpu }
}

fn is_ready(service: &Value) -> bool {
    let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Waits until no more requests come, and returns them.
async fn quiet(audit: &mut Audit) -> Vec<Request> {
    let (mut all, mut since) = (audit.take(), Instant::now());
    while since.elapsed() < QUIET {
        sleep(Duration::from_millis(200)).await;
        let new = audit.take();
        if new.iter().any(|request| !request.elects() && request.verb != "watch") {
            since = Instant::now();
        }
        all.extend(new);
    }
    all
}

/// The CPU of all services together.
fn cpu(seen: &Seen) -> Duration {
    seen.full.cpu().saturating_sub(seen.empty.cpu())
}

#[allow(clippy::cast_precision_loss)] // Counts, and megabytes.
fn tell(seen: &Seen, services: Services) {
    let Services { kind, number } = services;
    let each = |all: f64| all / number as f64;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("\n{number} {}s, {CONNECTIONS} workers", kind.resource.kind);
    println!(
        "  ready {:.1?} after its start; all objects {:.1?} after the first write, all statuses after {:.1?}",
        seen.started, seen.objects, seen.ready
    );
    println!("  {:.2} plans per service", each(seen.looks));
    for (what, number) in counted(seen.requests.iter().filter(|request| request.writes())) {
        println!("  {:>8.2} per service  {what}", each(number as f64));
    }
    let reads = seen.requests.iter().filter(|request| !request.writes());
    println!("  {:>8.2} per service  reads and watches", each(reads.count() as f64));
    let writes = seen.requests.iter().filter(|request| request.writes()).count();
    let most = kind.objects + 2;
    goal("writes per service", &format!("{:.2}", each(writes as f64)), &format!("<= {most}"), writes <= most * number);
    let Taken { user, system, .. } = seen.full;
    println!("  CPU {user:.2?} in user mode and {system:.2?} in the kernel, of which {:.2?} without a service", seen.empty.cpu());
    let (service, object) = (services.each(cpu(seen)), services.each_object(cpu(seen)));
    let most = CPU_AN_OBJECT * u32::try_from(kind.objects).unwrap();
    goal("CPU per service", &format!("{service:.2?}"), &format!("<= {most:.1?}"), service <= most);
    goal("CPU per object", &format!("{object:.2?}"), &format!("<= {CPU_AN_OBJECT:.0?}"), object <= CPU_AN_OBJECT);
    let above = |taken: &Taken| mebibytes(taken.resident) - mebibytes(seen.empty.resident);
    println!(
        "  resident memory {:.1} MiB without a service, {:.1} MiB with all (peak {:.1} MiB), {:.1} MiB after a restart",
        mebibytes(seen.empty.resident),
        mebibytes(seen.full.resident),
        mebibytes(seen.full.peak),
        mebibytes(seen.restarted.resident)
    );
    let growth = above(&seen.full).max(above(&seen.restarted));
    goal("memory above an empty host", &format!("{growth:.1} MiB"), "<= 80 MiB with 5,000 services", growth <= 80.0);
    goal("requests while idle", &format!("{:?}", counted(&seen.idle)), "watches and the Lease", seen.idle.is_empty());
    let written: Vec<&Request> = seen.restart.iter().filter(|request| request.writes()).collect();
    for request in written.iter().take(5) {
        println!("  a restart wrote: {} {} {} ({})", request.verb, request.resource, request.name, request.code);
    }
    println!("  a restart: {} reads, {:.2?} of CPU", seen.restart.len() - written.len(), seen.restarted.cpu());
    goal("writes of a restart", &written.len().to_string(), "0", written.is_empty());
    goal("pods changed by a restart", &seen.pods_changed.to_string(), "0", seen.pods_changed == 0);
}

fn counted<'a>(requests: impl IntoIterator<Item = &'a Request>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for Request { verb, resource, code, .. } in requests {
        let failed = if *code >= 400 { format!(" ({code})") } else { String::new() };
        *counts.entry(format!("{verb} {resource}{failed}")).or_default() += 1;
    }
    counts
}
