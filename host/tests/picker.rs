//! The endpoint picker without a cluster and a proxy: which endpoint a request goes to, by which policy, and when.

use crate::{
    policies::{compilers, module},
    text::{DESCRIPTION, Module, plugin},
};
use hyper::body::Bytes;
use pointsman::{
    endpoint_picker::{
        Policies,
        cluster::{PoolGroup, PoolName, PoolView},
        counts::PickerCounts,
        grpc::Picks,
        latency::Latency,
        policy::{ScoringPolicy, Terms},
        pool::Pool,
    },
    load::Loader,
};
use pointsman_core::decide::scoring;
use pointsman_picker::{
    config::PickerConfig,
    engine_metrics::EngineMetrics,
    fleet::{EndpointSpec, Report},
    pick::{Feature, ROLE},
    protocol::{Placement, Refusal, RequestHead},
};
use pointsman_sandbox::{engine::Engines, point::Question};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};
use tokio::time::Instant;

/// Far more than a call takes: a machine that tests keep busy isn't what is tested.
const DEADLINE: Duration = Duration::from_millis(100);

static LOADER: LazyLock<Loader> = LazyLock::new(|| {
    let engines = Engines::with_clock(8, Duration::from_micros(100)).unwrap();
    Loader::new(Arc::new(engines), compilers()).with_hot_deadline(DEADLINE)
});

fn terms() -> Terms {
    Terms { namespace: "prod".to_owned(), deadline: DEADLINE }
}

/// A pool whose pods are there.
struct Scene {
    pool: Arc<Pool>,
    registry: Registry,
}

impl Scene {
    /// Pods with these roles; an empty one is none.
    fn new(config: &str, custom: Option<ScoringPolicy>, roles: &[&str]) -> Self {
        let (config, remarks) = PickerConfig::read(config).unwrap();
        assert!(remarks.is_empty(), "{remarks:?}");
        let of_profile = |profile| Arc::new(ScoringPolicy::of_profile(&LOADER, profile, &terms()).unwrap());
        let policies = Policies {
            custom: custom.map(Arc::new),
            primary: of_profile(config.profiles.primary()),
            prefill: config.profiles.prefill().map(of_profile),
        };
        let name = PoolName { group: PoolGroup::Any, namespace: "prod".to_owned(), name: "llama".to_owned() };
        let view = Arc::new(PoolView::new(&name));
        let (latency, learning) = Latency::new();
        tokio::spawn(learning);
        let counts = Arc::<PickerCounts>::default();
        let mut registry = Registry::default();
        counts.register(&mut registry);
        let pool = Arc::new(Pool::new("prod/llama".to_owned(), view, config, policies, latency, counts, Instant::now()));
        let spec = |(at, role): (usize, &&str)| EndpointSpec {
            uid: format!("uid-{at}").into(),
            pod: format!("pod-{at}").into(),
            address: ([10, 0, 0, u8::try_from(at).unwrap()], 8000).into(),
            labels: Arc::new((!role.is_empty()).then(|| (ROLE.to_owned(), (*role).to_owned())).into_iter().collect::<BTreeMap<_, _>>()),
        };
        pool.fleet().replace(roles.iter().enumerate().map(spec).collect());
        let kept = Arc::clone(&pool);
        tokio::spawn(async move { kept.keep().await });
        Self { pool, registry }
    }

    fn report(&self, at: usize, waiting: f64, kv_usage: f64) {
        let metrics = EngineMetrics { waiting: Some(waiting), running: Some(0.0), kv_usage: Some(kv_usage), ..EngineMetrics::default() };
        // As if it was made in an hour: it doesn't get stale meanwhile.
        self.pool.fleet().endpoints()[at].state.set_report(Report { at: 3_600_000_000, metrics });
    }

    async fn ask(&self, head: RequestHead, body: &Value) -> Result<(Placement, <Pool as Picks>::Placed), Refusal> {
        let head = RequestHead { path: "/v1/chat/completions".to_owned(), ..head };
        Arc::clone(&self.pool).pick(head, vec![Bytes::from(body.to_string())]).await
    }

    async fn endpoint(&self, prompt: &str) -> String {
        self.ask(RequestHead::default(), &chat(prompt)).await.unwrap().0.endpoints.concat()
    }

    fn page(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).unwrap();
        page
    }
}

fn chat(prompt: &str) -> Value {
    json!({"model": "llama", "messages": [{"role": "user", "content": prompt}]})
}

fn subset(endpoints: &[&str]) -> RequestHead {
    RequestHead { subset: Some(endpoints.iter().map(ToString::to_string).collect()), ..RequestHead::default() }
}

fn reason(refused: Result<(Placement, <Pool as Picks>::Placed), Refusal>) -> (u16, String) {
    let Err(refusal) = refused else { panic!("it was placed") };
    let reason = refusal.headers.into_iter().find(|(name, _)| name == "x-llm-d-request-dropped-reason");
    (refusal.status, reason.map(|(_, reason)| reason).unwrap_or_default())
}

#[test]
fn plugins_may_ask_for_every_feature_and_for_no_other() {
    let known: Vec<&str> = Feature::ALL.iter().map(|feature| feature.name()).collect();
    assert_eq!(scoring::features(Question::EndpointPick), known);
}

#[tokio::test]
async fn by_default_queues_caches_and_prefixes_decide() {
    let scene = Scene::new("", None, &["", "", ""]);
    scene.report(0, 4.0, 0.9);
    scene.report(1, 0.0, 0.1);
    scene.report(2, 4.0, 0.9);
    assert_eq!(scene.endpoint("idle and empty").await, "10.0.0.1:8000");
    let known = "the same words ".repeat(200);
    let (placed, _in_flight) = scene.ask(subset(&["10.0.0.2"]), &chat(&known)).await.unwrap();
    assert_eq!(placed.endpoints, ["10.0.0.2:8000"], "the proxy allows no other");
    scene.report(1, 1.0, 0.1);
    scene.report(2, 2.0, 0.3);
    assert_eq!(scene.endpoint(&known).await, "10.0.0.2:8000", "its prefix is there");
    assert_eq!(scene.endpoint(&"another prompt ".repeat(200)).await, "10.0.0.1:8000");
    // One that can't be reached is left out, and serves if there is no other.
    scene.pool.fleet().endpoints()[1].state.note_unreachable(u64::MAX);
    assert_ne!(scene.endpoint("elsewhere").await, "10.0.0.1:8000");
    assert_eq!(scene.ask(subset(&["10.0.0.1:8000"]), &chat("only there")).await.unwrap().0.endpoints, ["10.0.0.1:8000"]);

    assert_eq!(reason(scene.ask(subset(&[]), &chat("nowhere")).await), (503, "rejected-no-endpoints".to_owned()));
    assert_eq!(reason(scene.ask(subset(&["10.9.9.9:8000"]), &chat("nowhere")).await), (503, "rejected-no-endpoints".to_owned()));
    let if_available = RequestHead { if_available: true, ..RequestHead::default() };
    assert_eq!(reason(scene.ask(if_available, &chat(&"never seen ".repeat(200))).await), (412, "rejected-no-prefix".to_owned()));
    scene.pool.end();
    assert_eq!(reason(scene.ask(RequestHead::default(), &chat("late")).await), (503, "rejected-shutting-down".to_owned()));
}

#[tokio::test]
async fn a_policy_that_fails_is_passed_over_and_then_not_asked_for_a_while() {
    let traps = plugin(&Module { score: "unreachable", data: DESCRIPTION, ..Module::default() });
    let custom = ScoringPolicy::load(&LOADER, "traps", &traps, &json!({}), &terms()).unwrap();
    let scene = Scene::new("", Some(custom), &["", ""]);
    scene.report(0, 4.0, 0.9);
    scene.report(1, 0.0, 0.1);
    for _ in 0..8 {
        assert_eq!(scene.endpoint("the default policy decides").await, "10.0.0.1:8000");
    }
    let page = scene.page();
    let failed = |reason: &str| format!("pointsman_picker_policy_failures_total{{policy=\"traps\",reason=\"{reason}\"}}");
    assert!(page.contains(&format!("{} 5", failed("Trapped"))) && page.contains(&format!("{} 3", failed("Quarantined"))), "{page}");

    // Another one takes its place, between two requests.
    let weights = json!({"weights": {"queue-length": 1.0, "kv-cache-utilization": 0.0}});
    let busiest = ScoringPolicy::load(&LOADER, "busiest", &module("pointsman-example-rust-balance"), &weights, &terms()).unwrap();
    scene.pool.set_policies(Policies { custom: Some(Arc::new(busiest)), ..(*scene.pool.policies()).clone() });
    assert_eq!(scene.endpoint("the longest queue wins").await, "10.0.0.0:8000");
}

#[tokio::test]
async fn who_decodes_and_who_prefills_are_a_pair_unless_the_prompt_is_known_there() {
    const CONFIG: &str = "\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: decode-filter
- type: prefill-filter
- type: queue-scorer
- type: prefix-cache-scorer
- type: prefix-based-pd-decider
  parameters: {promptTokens: 100, nonCachedTokens: 50}
- type: disagg-profile-handler
  parameters:
    deciders: {prefill: prefix-based-pd-decider}
schedulingProfiles:
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}, {pluginRef: prefix-cache-scorer}]
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]
";
    let scene = Scene::new(CONFIG, None, &["decode", "prefill", "prefill"]);
    scene.report(1, 3.0, 0.0);
    scene.report(2, 1.0, 0.0);
    let prompt = "a prompt that is long enough ".repeat(40);
    let pair = |(placement, _): &(Placement, _)| (placement.endpoints.concat(), placement.headers.first().cloned());
    let first = scene.ask(RequestHead::default(), &chat(&prompt)).await.unwrap();
    let prefiller = Some(("x-prefiller-host-port".to_owned(), "10.0.0.2:8000".to_owned()));
    assert_eq!(pair(&first), ("10.0.0.0:8000".to_owned(), prefiller));
    assert_eq!(scene.pool.fleet().endpoints()[2].state.in_flight_requests(), 1);
    drop(first);
    assert_eq!(scene.pool.fleet().endpoints()[2].state.in_flight_requests(), 0);
    let again = scene.ask(RequestHead::default(), &chat(&prompt)).await.unwrap();
    assert_eq!(pair(&again), ("10.0.0.0:8000".to_owned(), None), "it is cached where it is decoded");
    let short = scene.ask(RequestHead::default(), &chat("short")).await.unwrap();
    assert_eq!(pair(&short).1, None);
}

#[tokio::test(start_paused = true)]
async fn in_a_full_pool_requests_wait_go_on_in_turn_and_leave_with_their_clients() {
    const CONFIG: &str = "\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: concurrency-detector
  parameters: {maxConcurrency: 1}
flowControl:
  maxRequests: 2
  defaultRequestTTL: 30s
  saturationDetector: {pluginRef: concurrency-detector}
";
    let scene = Scene::new(CONFIG, None, &[""]);
    let (_, first) = scene.ask(RequestHead::default(), &chat("first")).await.unwrap();
    let begin = |prompt: &'static str| {
        let pool = Arc::clone(&scene.pool);
        let head = RequestHead { path: "/v1/chat/completions".to_owned(), ..RequestHead::default() };
        tokio::spawn(pool.pick(head, vec![Bytes::from(chat(prompt).to_string())]))
    };
    let waits = async |number: usize| {
        while scene.pool.state().waiting != number {
            tokio::task::yield_now().await;
        }
    };
    let second = begin("second");
    waits(1).await;
    let third = begin("third");
    waits(2).await;
    assert_eq!(reason(scene.ask(RequestHead::default(), &chat("fourth")).await), (429, "rejected-saturated".to_owned()));
    second.abort();
    waits(1).await;
    drop(first);
    let (_, third) = third.await.unwrap().unwrap();
    assert_eq!(scene.pool.state().waiting, 0);
    let late = begin("late");
    let refused = reason(late.await.unwrap());
    assert_eq!(refused, (429, "rejected-ttl-expired".to_owned()), "after 30 s, which pass at once here");
    // Many let go at once don't overtake what each of them adds.
    let both = [begin("one"), begin("other")];
    waits(2).await;
    drop(third);
    waits(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.pool.fleet().endpoints()[0].state.in_flight_requests(), 1);
    scene.pool.end();
    drop(both);
}
