//! The comparison of a change of policies that would restart the pods of all services, while single services are edited: its duration, its
//! CPU, and its effect on the edits. Also the duration of an Immediate change.
//!
//! There is only an API server, so that nothing else uses the machine. There are 10,000 services, with `--quick` 1,000;
//! `POINTSMAN_SUBJECTS` sets another number.
#![allow(clippy::unwrap_used)]

use futures::{StreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use pointsman_core::resource::LLM_INFERENCE_SERVICE;
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use pointsman_sandbox::digest::Digest;
use pointsman_tests::{
    Host, PolicyCluster,
    measure::{goal, is_quick, keep, leads, metric, quantile, taken, wait},
    plugin_bytes, with_other_digest,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt::Debug,
    ops::Range,
    pin::pin,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// The number of namespaces of the services.
const NAMESPACES: usize = 4;

/// The number of services that are created at once.
const CONNECTIONS: usize = 8;

/// The number of edits without a comparison, and the minimum during comparisons.
const EDITS: u32 = 300;
const ENOUGH: usize = 100;

/// The seed of the choice of edited services: equal seeds result in equal edits.
const SEED: u64 = 8;

/// The number of Immediate changes.
const CHANGES: usize = 20;

/// The maximum ratio of an edit's time during a comparison to that without one, and the maximum time of an Immediate change.
const MAX_RATIO: f64 = 2.0;
const AT_ONCE: Duration = Duration::from_millis(500);

/// The time without a reconcile after which the host counts as settled.
const QUIET: Duration = Duration::from_secs(1);

/// The timeout of one step: it only limits a bench that fails.
const PATIENCE: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(1);

/// The plugin that propagates a label of the namespace to pods, and its PolicyPlugins: one matches every service, one matches none.
const PACKAGE: &str = "pointsman-example-rust-labels";
const LABELS: &str = "labels";
const NOBODY: &str = "nobody";

/// The label that it propagates.
const LABEL: &str = "cost-centre";

fn main() {
    // Not a flag, because cargo passes its own flags to every bench, such as --bench.
    let usual = if is_quick() { 1_000 } else { 10_000 };
    let number = std::env::var("POINTSMAN_SUBJECTS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual);
    tokio::runtime::Runtime::new().unwrap().block_on(measure(number));
}

async fn measure(number: usize) {
    let cluster = PolicyCluster::start().await;
    cluster.pointsman(&["crds", "install"]).ok();
    let client = cluster.client().await;
    let begun = Instant::now();
    make_services(&client, number).await;
    println!("\n{number} LLMInferenceServices in {NAMESPACES} namespaces, created in {:.0?}", begun.elapsed());

    let deployments = follow(&client, |deployment: Deployment| deployment.spec.and_then(|spec| spec.replicas));
    let cache = cluster.folder("cache");
    let begun = Instant::now();
    let host = Host::start(&cluster, &["--cache", &cache.to_string_lossy()]).await;
    leads(&host).await;
    wait("each service has its Deployment and its status", async || {
        let all_there = metric(&host, "workqueue_depth") < 1.0 && deployments.borrow().len() == number;
        all_there && all_told(&client).await
    })
    .await;
    println!("  all have their Deployment and their status {:.0?} after the host's start", begun.elapsed());
    rests(&host).await;

    let mut edits = Edits { client: client.clone(), deployments, replicas: vec![1; number], made: 0 };
    let sets = follow(&client, |set: PolicySet| set);
    let bench = Bench { cluster: &cluster, host, sets, plugin: plugin_bytes(PACKAGE) };
    let plain = bench.edited(&mut edits).await;
    let compared = bench.compared(&mut edits).await;
    tell(&plain, &compared, number);

    // The candidate is still waiting: each of these changes replaces it with another one, which is compared again.
    bench.bring_at_once().await;
    let (apart, beside) = bench.at_once(0..CHANGES, true).await;
    let (close, _) = bench.at_once(CHANGES..2 * CHANGES, false).await;
    tell_at_once(&apart, beside, &close);
    bench.host.stop();
}

/// The namespace of a service, and its name.
fn service_name(number: usize) -> (String, String) {
    (format!("bench-{}", number % NAMESPACES), format!("chat-{number:05}"))
}

fn services(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &LLM_INFERENCE_SERVICE.api_resource())
}

/// Creates the services, in namespaces with a cost centre.
async fn make_services(client: &Client, number: usize) {
    for namespace in 0..NAMESPACES {
        let mut made = Namespace::default();
        made.metadata.name = Some(service_name(namespace).0);
        made.metadata.labels = Some([(LABEL.to_owned(), "r-7".to_owned())].into());
        Api::all(client.clone()).create(&PostParams::default(), &made).await.unwrap();
    }
    let all = stream::iter(0..number).map(|number| make_service(client, number));
    all.buffer_unordered(CONNECTIONS).collect::<Vec<()>>().await;
}

async fn make_service(client: &Client, number: usize) {
    let (namespace, name) = service_name(number);
    let service = json!({
        "apiVersion": LLM_INFERENCE_SERVICE.api_version(), "kind": LLM_INFERENCE_SERVICE.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"uri": "hf://example/llama"}, "replicas": 1},
    });
    let service = serde_json::from_value(service).unwrap();
    services(client, &namespace).create(&PostParams::default(), &service).await.unwrap();
}

/// Whether each service has a status for its newest generation.
async fn all_told(client: &Client) -> bool {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &LLM_INFERENCE_SERVICE.api_resource());
    let told =
        |service: &DynamicObject| service.data.pointer("/status/observedGeneration").and_then(Value::as_i64) == service.metadata.generation;
    let mut params = ListParams::default().limit(500);
    loop {
        let page = api.list(&params).await.unwrap();
        if !page.items.iter().all(told) {
            return false;
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return true,
        }
    }
}

/// Waits until the host has reconciled no service for a while.
async fn rests(host: &Host<'_>) {
    let mut seen = (0.0, Instant::now());
    wait("the host has looked at all that there is to look at", async || {
        let looks = metric(host, "controller_runtime_reconcile_total");
        if looks > seen.0 {
            seen = (looks, Instant::now());
        }
        seen.1.elapsed() >= QUIET
    })
    .await;
}

/// All objects of a kind from a watch, by namespace and name.
type Followed<T> = watch::Receiver<BTreeMap<(String, String), T>>;

/// Watches all objects of a kind. It ignores deletions, which don't matter here.
fn follow<K, T>(client: &Client, told: fn(K) -> T) -> Followed<T>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Send + Sync + 'static,
{
    let (seen, followed) = watch::channel(BTreeMap::new());
    let api = Api::<K>::all(client.clone());
    tokio::spawn(async move {
        let mut objects = pin!(watcher::watcher(api, watcher::Config::default()).default_backoff().applied_objects());
        while let Some(object) = objects.next().await {
            // After an error, the watch restarts automatically.
            let Ok(object) = object else { continue };
            let key = (object.namespace().unwrap_or_default(), object.name_any());
            seen.send_modify(|all| _ = all.insert(key, told(object)));
        }
    });
    followed
}

/// Edits of services, one after the other.
struct Edits {
    client: Client,
    /// The replicas of each Deployment's spec.
    deployments: Followed<Option<i32>>,
    /// The replicas of each service's spec.
    replicas: Vec<i32>,
    made: u64,
}

impl Edits {
    /// Changes the replicas of a service. Returns the time from before that write until its Deployment has the number.
    async fn one(&mut self) -> Duration {
        self.made += 1;
        let drawn = Digest::hash(&[SEED.to_be_bytes(), self.made.to_be_bytes()].concat());
        let number = drawn.0.iter().fold(0, |rest, byte| (rest * 256 + usize::from(*byte)) % self.replicas.len());
        let replicas = 3 - self.replicas[number];
        self.replicas[number] = replicas;
        let (namespace, name) = service_name(number);
        let deployment = (namespace.clone(), format!("{name}-kserve"));
        let api = services(&self.client, &namespace);
        let change = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let begun = Instant::now();
        api.patch(&name, &PatchParams::default(), &change).await.unwrap();
        let carried_out = self.deployments.wait_for(|all| all.get(&deployment) == Some(&Some(replicas)));
        assert!(matches!(timeout(PATIENCE, carried_out).await, Ok(Ok(_))), "{deployment:?} never got {replicas} replicas in its spec");
        begun.elapsed()
    }
}

/// The times of edits, and the host's CPU during them.
struct Seen {
    edits: Vec<Duration>,
    cpu: Duration,
    /// From the first edit, or from the write of the plugin, to the end.
    took: Duration,
}

impl Seen {
    fn number(&self) -> u32 {
        u32::try_from(self.edits.len()).unwrap()
    }

    /// The host's CPU per edit, without anything else.
    fn an_edit(&self) -> Duration {
        self.cpu / self.number()
    }
}

/// The measured host, and its policy sets.
struct Bench<'a> {
    cluster: &'a PolicyCluster,
    host: Host<'a>,
    sets: Followed<PolicySet>,
    plugin: Vec<u8>,
}

impl Bench<'_> {
    fn cpu(&self) -> Duration {
        taken(self.cluster, &self.host).cpu()
    }

    /// Edits without a comparison.
    async fn edited(&self, edits: &mut Edits) -> Seen {
        let (before, begun) = (self.cpu(), Instant::now());
        let mut latencies = Vec::new();
        for _ in 0..EDITS {
            latencies.push(edits.one().await);
        }
        let took = begun.elapsed();
        // The CPU includes the work on the status of the last edit.
        rests(&self.host).await;
        Seen { edits: latencies, cpu: self.cpu().saturating_sub(before), took }
    }

    /// Comparisons of a plugin without an approval, with edits at the same time: as many comparisons as enough edits need.
    async fn compared(&self, edits: &mut Edits) -> Vec<Seen> {
        // It has no strategy, so that no update that restarts pods becomes active. Its bytes come later.
        self.cluster.plugin_of_config_map(LABELS, json!({})).await;
        self.cluster.refused(LABELS).await;
        let mut all: Vec<Seen> = Vec::new();
        while all.iter().map(|seen| seen.edits.len()).sum::<usize>() < ENOUGH {
            let bytes = with_other_digest(&self.plugin, all.len());
            all.push(self.compare(&bytes, edits).await);
        }
        all
    }

    /// One comparison, from the write of the ConfigMap until the PolicySet reports its end, with edits until then.
    async fn compare(&self, bytes: &[u8], edits: &mut Edits) -> Seen {
        let digest = Digest::hash(bytes).to_string();
        let is_over = |set: &PolicySet| {
            let of_it = set.spec.plugins.iter().any(|plugin| plugin.name == LABELS && plugin.digest == digest);
            of_it && is_candidate(set) && shadowed(set) == "True"
        };
        let (subjects, over, mut sets) = (edits.replicas.len(), Cell::new(false), self.sets.clone());
        let (before, begun) = (self.cpu(), Instant::now());
        let comparison = async {
            self.cluster.config_map(LABELS, bytes).await;
            let compared = sets.wait_for(|sets| sets.values().any(is_over));
            assert!(matches!(timeout(LONGEST, compared).await, Ok(Ok(_))), "the comparison never ended");
            let seen = (begun.elapsed(), self.cpu().saturating_sub(before));
            over.set(true);
            seen
        };
        let editing = async {
            let mut latencies = Vec::new();
            while !over.get() {
                latencies.push(edits.one().await);
            }
            latencies
        };
        let ((took, cpu), latencies) = tokio::join!(comparison, editing);
        let radius = self.sets.borrow().values().find(|set| is_over(set)).and_then(|set| set.status.clone()?.blast_radius).unwrap();
        let all = i64::try_from(subjects).unwrap();
        assert_eq!((radius.subjects, radius.restarts, radius.failed), (all, all, 0), "{radius:?}");
        Seen { edits: latencies, cpu, took }
    }

    /// Whether a candidate is being compared now.
    fn compares(&self) -> bool {
        self.sets.borrow().values().any(|set| is_candidate(set) && shadowed(set) == "False")
    }

    /// Creates a plugin with the strategy Immediate that matches no service.
    async fn bring_at_once(&self) {
        self.cluster.config_map(NOBODY, &self.plugin).await;
        let nowhere = json!({"namespaceSelector": {"matchLabels": {"bench.example.com/nobody": "here"}}});
        self.cluster.plugin_of_config_map(NOBODY, json!({"strategy": {"type": "Immediate"}, "match": nowhere})).await;
        self.cluster.active(NOBODY, &Digest::hash(&self.plugin).to_string()).await;
    }

    /// Changes its bytes. Returns each time from before that write until /metrics has another set, and the number of these changes that
    /// happened during a comparison. For each new active set, the host reconciles all services: with `apart`, it finishes this before the
    /// next change.
    async fn at_once(&self, numbers: Range<usize>, apart: bool) -> (Vec<Duration>, usize) {
        let (mut latencies, mut beside) = (Vec::new(), 0);
        for number in numbers {
            if apart {
                rests(&self.host).await;
            }
            let (bytes, before) = (with_other_digest(&self.plugin, number), in_force(&self.host).unwrap());
            beside += usize::from(self.compares());
            let begun = Instant::now();
            self.cluster.config_map(NOBODY, &bytes).await;
            // A page can only be polled.
            while in_force(&self.host).is_none_or(|now| now == before) {
                assert!(begun.elapsed() < PATIENCE, "the change never became active");
                sleep(Duration::from_millis(5)).await;
            }
            latencies.push(begun.elapsed());
        }
        (latencies, beside)
    }
}

fn is_candidate(set: &PolicySet) -> bool {
    set.status.as_ref().is_some_and(|status| status.phase == Some(PolicySetPhase::Candidate))
}

/// Whether a set was compared: True, False while it is being compared, or Unknown.
fn shadowed(set: &PolicySet) -> &str {
    let mut conditions = set.status.iter().flat_map(|status| &status.conditions);
    conditions.find(|condition| condition.type_ == "Shadowed").map_or("Unknown", |condition| condition.status.as_str())
}

/// The line of the metric with the active set.
fn in_force(host: &Host<'_>) -> Option<String> {
    let (_, metrics) = host.get("/metrics").ok()?;
    metrics.lines().find(|line| line.starts_with("pointsman_policy_set_info{")).map(str::to_owned)
}

fn tell(plain: &Seen, compared: &[Seen], subjects: usize) {
    let told = |edits: &[Duration]| format!("p50 {:.1?}, p99 {:.1?}", quantile(edits, 0.5), quantile(edits, 0.99));
    println!("  {EDITS} edits within {:.1?}: {}, {:.2?} of the host's CPU each", plain.took, told(&plain.edits), plain.an_edit());
    let alone = |seen: &Seen| seen.cpu.saturating_sub(plain.an_edit() * seen.number());
    for seen in compared {
        println!(
            "  compared within {:.1?}: {:.2?} of the host's CPU, {:.2?} without its {} edits",
            seen.took,
            seen.cpu,
            alone(seen),
            seen.edits.len()
        );
    }
    let beside: Vec<Duration> = compared.iter().flat_map(|seen| &seen.edits).copied().collect();
    println!("  {} edits during comparisons: {}", beside.len(), told(&beside));
    let times = quantile(&beside, 0.99).as_secs_f64() / quantile(&plain.edits, 0.99).as_secs_f64();
    goal("p99 of edits, during / without", &format!("{times:.2}"), &format!("<= {MAX_RATIO:.0}"), times <= MAX_RATIO);
    for (group, of) in [("the p50 of edits", 0.5), ("the p99 of edits", 0.99)] {
        keep(group, &[("native", quantile(&plain.edits, of)), ("during a comparison", quantile(&beside, of))]);
    }
    let rounds = u32::try_from(compared.len()).unwrap();
    let mean = |of: &dyn Fn(&Seen) -> Duration| compared.iter().map(of).sum::<Duration>() / rounds;
    let cpu = mean(&alone);
    keep("a comparison of many services", &[("wall time", mean(&|seen| seen.took)), ("CPU of the host", mean(&|seen| seen.cpu))]);
    keep("a service that is compared", &[("CPU without edits", cpu / u32::try_from(subjects).unwrap())]);
}

fn tell_at_once(apart: &[Duration], beside: usize, close: &[Duration]) {
    let told = |all: &[Duration]| format!("p50 {:.0?}, slowest {:.0?}", quantile(all, 0.5), quantile(all, 1.0));
    println!("  {} Immediate changes, {beside} of them during a comparison: {}", apart.len(), told(apart));
    println!("  {} without a pause between them: {}", close.len(), told(close));
    let most = quantile(apart, 1.0);
    goal("the slowest Immediate change", &format!("{most:.0?}"), &format!("<= {AT_ONCE:.0?}"), most <= AT_ONCE);
    keep("an Immediate change among many services", &[("p50", quantile(apart, 0.5)), ("slowest", most)]);
    keep("Immediate changes without a pause", &[("p50", quantile(close, 0.5)), ("slowest", quantile(close, 1.0))]);
}
