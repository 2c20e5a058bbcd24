//! The endpoint picker without a cluster and a proxy: the endpoint of a request, the policy that picks it, and the time.

use crate::{
    policies::{compilers, module},
    program::{empty_folder, ended},
    text::{DESCRIPTION, Module, plugin},
};
use hyper::body::Bytes;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use opentelemetry_sdk::trace::SdkTracer;
use pointsman::{
    endpoint_picker::{
        Policies, Probes,
        cluster::{PoolGroup, PoolName, PoolView},
        counts::PickerCounts,
        decisions::{Decisions, record::Record, route::Wanted},
        grpc::{Health, Picks},
        latency::Latency,
        policy::ScoringPolicy,
        policy_set::{LoadedPlugin, LoadedSet},
        pool::Pool,
    },
    keeper::record::{Origin, Recorded},
    load::Loader,
};
use pointsman_core::decide::scoring;
use pointsman_crds::policy::{
    plugin::{PluginFailurePolicy, PluginMode, PolicyPoint},
    set::PolicySetPlugin,
};
use pointsman_picker::{
    config::PickerConfig,
    engine_metrics::EngineMetrics,
    fleet::{EndpointSpec, Report},
    pick::{Feature, ROLE},
    protocol::{Placement, Refusal, RequestHead},
};
use pointsman_sandbox::{
    engine::Engines,
    point::{Question, Subject},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};
use tokio::time::Instant;

/// Far longer than a call takes, because these tests aren't about busy machines.
const DEADLINE: Duration = Duration::from_millis(100);

static LOADER: LazyLock<Loader> = LazyLock::new(|| {
    let engines = Engines::with_clock(8, Duration::from_micros(100)).unwrap();
    Loader::new(Arc::new(engines), compilers()).with_hot_deadline(DEADLINE)
});

/// A pool with its pods.
pub(crate) struct Scene {
    pub(crate) pool: Arc<Pool>,
    registry: Registry,
}

impl Scene {
    /// Creates pods with these roles; an empty string means none.
    fn new(config: &str, custom: Option<ScoringPolicy>, roles: &[&str]) -> Self {
        Self::traced(config, custom, roles, None)
    }

    /// The same, with traces.
    pub(crate) fn traced(config: &str, custom: Option<ScoringPolicy>, roles: &[&str], tracer: Option<SdkTracer>) -> Self {
        let (config, remarks) = PickerConfig::read(config).unwrap();
        assert!(remarks.is_empty(), "{remarks:?}");
        let of_profile = |profile| Arc::new(ScoringPolicy::of_profile(&LOADER, profile).unwrap());
        let policies = Policies {
            custom: custom.map(Arc::new),
            set: None,
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
        let pool = Arc::new(
            Pool::new("prod/llama".to_owned(), view, config, policies, latency, counts, Instant::now())
                .recording(Arc::new(Decisions::new(100)))
                .tracing(tracer),
        );
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

    pub(crate) fn report(&self, at: usize, waiting: f64, kv_usage: f64) {
        let metrics = EngineMetrics { waiting: Some(waiting), running: Some(0.0), kv_usage: Some(kv_usage), ..EngineMetrics::default() };
        // A time in the future, so that the report doesn't become stale during the test.
        self.pool.fleet().endpoints()[at].state.set_report(Report { at: 3_600_000_000, metrics });
    }

    pub(crate) async fn ask(&self, head: RequestHead, body: &Value) -> Result<(Placement, <Pool as Picks>::Placed), Refusal> {
        let head = RequestHead { path: "/v1/chat/completions".to_owned(), ..head };
        Arc::clone(&self.pool).pick(head, vec![Bytes::from(body.to_string())]).await
    }

    async fn endpoint(&self, prompt: &str) -> String {
        self.ask(RequestHead::default(), &chat(prompt)).await.unwrap().0.endpoints.concat()
    }

    /// The last decisions in the format of the picker's page, and parsed.
    fn recorded(&self) -> (String, Vec<Record>) {
        let lines = String::from_utf8(Wanted::default().lines(self.pool.decisions())).unwrap();
        let records = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines, records)
    }

    fn page(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).unwrap();
        page
    }
}

pub(crate) fn chat(prompt: &str) -> Value {
    json!({"model": "llama", "messages": [{"role": "user", "content": prompt}]})
}

pub(crate) fn subset(endpoints: &[&str]) -> RequestHead {
    RequestHead { subset: Some(endpoints.iter().map(ToString::to_string).collect()), ..RequestHead::default() }
}

pub(crate) fn reason(refused: Result<(Placement, <Pool as Picks>::Placed), Refusal>) -> (u16, String) {
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
async fn several_pools_are_ready_together_once_all_are_listed_and_each_has_its_own_name() {
    let pools: Vec<Arc<Pool>> = [Scene::new("", None, &[""]), Scene::new("", None, &[""])].map(|scene| scene.pool).into();
    let [one, several] = [Probes::One(Arc::clone(&pools[0])), Probes::Several(pools)];
    for (probes, says) in
        [(one, "the endpoint picker hasn't listed yet: "), (several, "; prod/llama: the endpoint picker hasn't listed yet: ")]
    {
        assert!(probes.obstacle().is_some_and(|obstacle| obstacle.contains(says)), "{probes:?}");
        for (service, expected) in
            [("", Some(false)), ("readiness", Some(false)), ("prod/llama", Some(false)), ("liveness", Some(true)), ("llama", None)]
        {
            assert_eq!(probes.health(service), expected, "{service}");
        }
    }
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
    // An unreachable endpoint is only used if there is no other.
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

/// A head with a request identifier.
fn called(id: &str, head: RequestHead) -> RequestHead {
    RequestHead { request_id: Some(id.to_owned()), ..head }
}

#[tokio::test]
async fn what_was_placed_and_what_was_refused_is_recorded_without_the_prompt_and_explained() {
    let scene = Scene::new("", None, &["", "", "prefill"]);
    scene.report(0, 0.0, 0.4);
    scene.report(1, 4.0, 0.4);
    let prompt = "xyzzy and plugh ".repeat(200);
    let body = json!({"model": "llama", "max_tokens": 64, "messages": [{"role": "user", "content": prompt}]});
    let (placed, _in_flight) = scene.ask(called("first", subset(&["10.0.0.1"])), &body).await.unwrap();
    assert_eq!(placed.endpoints, ["10.0.0.1:8000"]);
    let (placed, _in_flight) = scene.ask(called("second", RequestHead::default()), &body).await.unwrap();
    assert_eq!(placed.endpoints, ["10.0.0.1:8000"], "its prefix is there");
    reason(scene.ask(called("refused", subset(&["10.0.0.2"])), &chat("xyzzy")).await);
    let unread = scene.ask(called("unread", RequestHead::default()), &json!({"messages": [{"content": "xyzzy"}]})).await;
    assert_eq!(reason(unread).0, 400);

    let (lines, records) = scene.recorded();
    assert!(!lines.contains("xyzzy") && !lines.contains("plugh"), "{lines}");
    let hashed = ["hash", "prompt\"", "messages"];
    assert!(hashed.iter().all(|field| !lines.contains(field)), "{lines}");
    let ids: Vec<&str> = records.iter().map(|record| record.request.as_str()).collect();
    assert_eq!(ids, ["unread", "refused", "second", "first"]);
    let [unread, refused, second, first] = &records[..] else { panic!("{ids:?}") };
    let why = |record: &Record| record.refused.as_ref().map(|refused| (refused.status, refused.reason.clone()));
    assert_eq!(why(unread), Some((400, "invalid_body".to_owned())));
    assert_eq!(why(refused), Some((429, "rejected-no-endpoints".to_owned())));
    assert_eq!((why(second), &*second.sent[0], second.output_limit), (None, "10.0.0.1:8000", Some(64)));
    assert!(second.prompt_tokens > 700, "{}", second.prompt_tokens);
    let removed = |record: &Record| -> Vec<(String, String)> {
        let rows = record.profiles[0].endpoints.iter();
        rows.filter_map(|row| Some((row.pod.to_string(), row.removed_by.clone()?.into_owned()))).collect()
    };
    let pair = |pod: &str, step: &str| (pod.to_owned(), step.to_owned());
    assert_eq!(removed(first), [pair("pod-0", "subset"), pair("pod-2", "subset")]);
    assert_eq!(removed(second), [pair("pod-2", "decode-filter")]);
    assert_eq!(removed(refused), [pair("pod-0", "subset"), pair("pod-1", "subset"), pair("pod-2", "decode-filter")]);
    let policy = second.profiles[0].policy.as_ref().unwrap();
    assert!(policy.name == "scheduling-scoring" && policy.config.is_some(), "{policy:?}");

    let folder = empty_folder("explain-request");
    std::fs::write(folder.join("decisions.jsonl"), &lines).unwrap();
    let explain = |id: &str| ended(0, &folder, &["explain", "request", id, "-f", "decisions.jsonl"], "").0;
    let text = explain("second");
    assert!(text.contains("PrefixCache made the difference between 10.0.0.1:8000 and 10.0.0.0:8000: +0.42"), "{text}");
    assert!(text.contains("Queue (-0.2857) counted against it.") && !text.contains("add up to"), "{text}");
    assert!(explain("first").contains("10.0.0.1:8000 was the only endpoint left to choose."));
    assert!(explain("refused").contains("refused    429 rejected-no-endpoints: No endpoint of the pool passes the filters"));
    assert!(explain("unread").contains("refused    400 invalid_body: "));
}

#[tokio::test]
async fn a_policy_that_fails_is_passed_over_and_then_not_asked_for_a_while() {
    let traps = plugin(&Module { score: "unreachable", data: DESCRIPTION, ..Module::default() });
    let custom = ScoringPolicy::load(&LOADER, "traps", &traps, &json!({})).unwrap();
    let scene = Scene::new("", Some(custom), &["", ""]);
    scene.report(0, 4.0, 0.9);
    scene.report(1, 0.0, 0.1);
    for _ in 0..8 {
        assert_eq!(scene.endpoint("the default policy decides").await, "10.0.0.1:8000");
    }
    let page = scene.page();
    let failed = |reason: &str| format!("pointsman_picker_policy_failures_total{{policy=\"traps\",reason=\"{reason}\"}}");
    assert!(page.contains(&format!("{} 5", failed("Trapped"))) && page.contains(&format!("{} 3", failed("Quarantined"))), "{page}");
    let (_, records) = scene.recorded();
    let unanswered = |at: usize| {
        let profile = &records[at].profiles[0];
        (profile.unanswered[0].policy.clone(), profile.unanswered[0].reason.clone().into_owned(), profile.policy.is_some())
    };
    assert_eq!(unanswered(0), ("traps".to_owned(), "Quarantined".to_owned(), true));
    assert_eq!(unanswered(7), ("traps".to_owned(), "Trapped".to_owned(), true));

    // Another policy replaces it between two requests.
    let weights = json!({"weights": {"queue-length": 1.0, "kv-cache-utilization": 0.0}});
    let busiest = ScoringPolicy::load(&LOADER, "busiest", &module("pointsman-example-rust-balance"), &weights).unwrap();
    let busiest = Arc::new(busiest);
    scene.pool.update_policies(|policies| policies.custom = Some(Arc::clone(&busiest)));
    assert_eq!(scene.endpoint("the longest queue wins").await, "10.0.0.0:8000");

    // Only the same file with the same configuration can explain it, and the record doesn't contain the configuration.
    let (lines, records) = scene.recorded();
    let policy = records[0].profiles[0].policy.as_ref().unwrap();
    assert_eq!((&*policy.name, &policy.config), ("busiest", &None));
    let folder = empty_folder("explain-request-custom");
    std::fs::write(folder.join("scorer.wasm"), module("pointsman-example-rust-balance")).unwrap();
    std::fs::write(folder.join("weights.json"), weights.to_string()).unwrap();
    let explain = |words: &[&str]| ended(0, &folder, &[&["explain", "request", "-f", "-"], words].concat(), &lines).0;
    assert!(explain(&[]).contains(&format!("a plugin scored: set --policy to the file with the digest {}", policy.digest)));
    let unconfigured = explain(&["--policy", "scorer.wasm"]);
    assert!(unconfigured.contains("the policy had another configuration: specify it with --policy-config"), "{unconfigured}");
    let whole = explain(&["--policy", "scorer.wasm", "--policy-config", "weights.json"]);
    assert!(whole.contains("the difference between 10.0.0.0:8000 and 10.0.0.1:8000: "), "{whole}");
}

/// The record of a plugin in a policy set.
fn recorded(name: &str, order: i32, weight: i32, (mode, failure_policy): (PluginMode, PluginFailurePolicy)) -> Recorded {
    let points = vec![PolicyPoint::SchedulingScoring];
    let active = PolicySetPlugin { name: name.to_owned(), order, weight, mode, failure_policy, points, ..PolicySetPlugin::default() };
    Recorded { active, at: Time(Timestamp::UNIX_EPOCH), signature: None, strategy: None, previous: None, origin: Origin::default() }
}

#[tokio::test]
async fn plugins_of_the_policy_set_score_with_the_profile_s_scorers_or_in_their_place_and_failure_policies_say_who_stands_in() {
    use PluginFailurePolicy::{Default as Standard, Fail, Previous, Skip};
    use PluginMode::{Extend, Replace};
    const OWN: &str = "10.0.0.1:8000";
    const BUSIEST: &str = "10.0.0.0:8000";
    let traps = plugin(&Module { score: "unreachable", data: DESCRIPTION, ..Module::default() });
    let weights = json!({"weights": {"queue-length": 1.0, "kv-cache-utilization": 0.0}});
    let busiest = Arc::new(ScoringPolicy::load(&LOADER, "busiest", &module("pointsman-example-rust-balance"), &weights).unwrap());
    let scene = Scene::new("", None, &["", ""]);
    scene.report(0, 4.0, 0.9);
    scene.report(1, 0.0, 0.1);
    let builtin = |weight: i32| LoadedPlugin {
        recorded: recorded("scheduling-scoring", 0, weight, (Extend, Standard)),
        policy: Ok(None),
        previous: None,
    };
    let scores = |order: i32, weight: i32, mode: PluginMode| LoadedPlugin {
        recorded: recorded("busiest", order, weight, (mode, Standard)),
        policy: Ok(Some(Arc::clone(&busiest))),
        previous: None,
    };
    // Loaded again for each case, so that no earlier failure counts.
    let fails = |mode: PluginMode, failure_policy: PluginFailurePolicy| LoadedPlugin {
        recorded: recorded("traps", 5, 1, (mode, failure_policy)),
        policy: Ok(Some(Arc::new(ScoringPolicy::load(&LOADER, "traps", &traps, &json!({})).unwrap()))),
        previous: (failure_policy == Previous).then(|| Arc::clone(&busiest)),
    };
    for (plugins, endpoint, expected) in [
        (vec![builtin(1)], OWN, "scheduling-scoring"),
        (vec![builtin(1), scores(7, 1, Replace)], BUSIEST, "busiest"),
        (vec![builtin(1), scores(7, 10, Extend)], BUSIEST, "busiest scheduling-scoring"),
        (vec![builtin(100), scores(7, 1, Extend)], OWN, "busiest scheduling-scoring"),
        (vec![scores(7, 1, Extend)], BUSIEST, "busiest"),
        (vec![fails(Replace, Skip), scores(7, 1, Extend)], BUSIEST, "busiest"),
        (vec![builtin(100), fails(Replace, Standard), scores(7, 1, Extend)], OWN, "busiest scheduling-scoring"),
        (vec![builtin(1), fails(Replace, Previous)], BUSIEST, "busiest"),
        (vec![fails(Extend, Fail), scores(7, 1, Extend)], OWN, "scheduling-scoring"),
        (vec![fails(Extend, Skip)], OWN, "scheduling-scoring"),
    ] {
        let scorers = Arc::new(LoadedSet::new("sha256:a-set", plugins).for_pool(&Subject::default()).unwrap());
        scene.pool.update_policies(|policies| policies.set = Some(Arc::clone(&scorers)));
        assert_eq!(scene.endpoint("short").await, endpoint, "{scorers:?}");
        let profile = scene.recorded().1.remove(0).profiles.remove(0);
        let names = match &profile.together[..] {
            [] => profile.policy.as_ref().unwrap().name.clone(),
            several => several.iter().map(|weighted| &*weighted.policy.name).collect::<Vec<_>>().join(" "),
        };
        assert_eq!(names, expected, "{scorers:?}");
        assert_eq!(profile.policy_set.as_deref(), expected.contains("busiest").then_some("sha256:a-set"), "{scorers:?}");
    }

    // The parts of a weighted mean are those of all policies, and a plugin from a file takes precedence over a set.
    let scorers = Arc::new(LoadedSet::new("sha256:a-set", vec![builtin(1), scores(7, 3, Extend)]).for_pool(&Subject::default()).unwrap());
    scene.pool.update_policies(|policies| policies.set = Some(Arc::clone(&scorers)));
    scene.ask(called("both", RequestHead::default()), &chat("short")).await.unwrap();
    let folder = empty_folder("explain-request-set");
    std::fs::write(folder.join("scorer.wasm"), module("pointsman-example-rust-balance")).unwrap();
    std::fs::write(folder.join("weights.json"), weights.to_string()).unwrap();
    let words = ["explain", "request", "both", "-f", "-", "--policy", "scorer.wasm", "--policy-config", "weights.json"];
    let text = ended(0, &folder, &words, &scene.recorded().0).0;
    assert!(text.contains("(weight 3) and scheduling-scoring ") && text.contains(" of the policy set sha256:a-set, chosen by"), "{text}");
    assert!(text.contains("scheduling-scoring Queue") && !text.contains("add up to"), "{text}");
    let least = json!({"weights": {"queue-length": -1.0, "kv-cache-utilization": 0.0}});
    let idlest = Arc::new(ScoringPolicy::load(&LOADER, "idlest", &module("pointsman-example-rust-balance"), &least).unwrap());
    let replaces = Arc::new(LoadedSet::new("sha256:a-set", vec![scores(7, 1, Replace)]).for_pool(&Subject::default()).unwrap());
    scene.pool.update_policies(|policies| {
        policies.set = Some(Arc::clone(&replaces));
        policies.custom = Some(Arc::clone(&idlest));
    });
    assert_eq!(scene.endpoint("short").await, OWN);
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
    let record = scene.recorded().1.remove(0);
    let chosen =
        |at: usize| record.profiles[at].endpoints.iter().filter(|row| row.chosen).map(|row| row.pod.to_string()).collect::<Vec<_>>();
    assert_eq!((record.profiles.len(), chosen(0), chosen(1)), (2, vec!["pod-0".to_owned()], vec!["pod-2".to_owned()]));
    assert_eq!(record.prefill.as_deref(), Some("10.0.0.2:8000"));
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
    let record = scene.recorded().1.remove(0);
    assert_eq!((record.refused.unwrap().reason.as_str(), record.saturation), ("rejected-ttl-expired", Some(1.0)));
    assert!(record.waited_seconds.is_some() && record.profiles.is_empty());
    // If several requests are released at once, the load of the first one counts before the next one is released.
    let both = [begin("one"), begin("other")];
    waits(2).await;
    drop(third);
    waits(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.pool.fleet().endpoints()[0].state.in_flight_requests(), 1);
    scene.pool.end();
    drop(both);
}
