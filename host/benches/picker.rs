//! The cost of picking an endpoint for a request, and of the parts of a pick. `cargo xtask bench` runs this and compares it with the goals;
//! docs/benchmarks.md explains the numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "only the compilers are of use here")]
#[path = "../tests/policies/mod.rs"]
mod policies;

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use futures::FutureExt;
use hyper::body::Bytes;
use pointsman::{
    endpoint_picker::{
        Policies,
        cluster::{PoolGroup, PoolName, PoolView},
        counts::PickerCounts,
        grpc::Picks,
        latency::Latency,
        policy::ScoringPolicy,
        pool::Pool,
    },
    load::Loader,
};
use pointsman_picker::{
    body::{Api, RequestBody},
    config::PickerConfig,
    engine_metrics::{Engine, EngineMetrics, parse},
    fleet::{EndpointSpec, Report},
    latency::{LatencyEstimate, Sent},
    pick::{self, Knowledge, RequestTraits},
    prefix::{BlockSize, EndpointId, Matches, PrefixIndex},
    protocol::{RequestHead, ResponseHead, messages::HttpBody},
};
use pointsman_sandbox::engine::Engines;
use policies::compilers;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;
use std::{
    fmt::Write,
    fs,
    hint::black_box,
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

/// Much more than the picker allows a policy, so that the fallback policy isn't measured instead if the machine is busy.
const DEADLINE: Duration = Duration::from_millis(100);

/// A loader with the picker's settings, except the deadline.
static LOADER: LazyLock<Loader> = LazyLock::new(|| {
    let engines = Engines::with_clock(32, Duration::from_micros(100)).unwrap();
    Loader::new(Arc::new(engines), compilers()).with_hot_deadline(DEADLINE)
});

/// The number of different prompts.
const PROMPTS: usize = 1_000;

/// A chat with a body of this many bytes. All begin with the same system prompt of about two blocks.
fn chat(number: usize, bytes: usize) -> Bytes {
    let system = "You answer questions about trains. ".repeat(16);
    let body = |text: &str| {
        let messages = json!([{"role": "system", "content": system}, {"role": "user", "content": text}]);
        json!({"model": "llama", "messages": messages, "stream": true, "max_tokens": 256}).to_string()
    };
    let question = format!("Question {number}: when does train {} leave? ", number * 7919 % 10_007);
    let room = bytes - body("").len();
    let text: String = question.chars().cycle().take(room).collect();
    Bytes::from(body(&text))
}

fn head() -> RequestHead {
    RequestHead { path: "/v1/chat/completions".to_owned(), content_type: Some("application/json".to_owned()), ..RequestHead::default() }
}

/// A pool whose endpoints have current reports and got all prompts.
struct Scene {
    pool: Arc<Pool>,
    registry: Registry,
    prompts: Vec<Bytes>,
}

impl Scene {
    fn new(endpoints: u32) -> Self {
        let config = PickerConfig::default();
        let primary = Arc::new(ScoringPolicy::of_profile(&LOADER, config.profiles.primary()).unwrap());
        let policies = Policies { custom: None, set: None, primary, prefill: None };
        let name = PoolName { group: PoolGroup::Any, namespace: "prod".to_owned(), name: "llama".to_owned() };
        let view = Arc::new(PoolView::new(&name));
        let (latency, learning) = Latency::new();
        let counts = Arc::<PickerCounts>::default();
        let mut registry = Registry::default();
        counts.register(&mut registry);
        let pool = Arc::new(Pool::new("prod/llama".to_owned(), view, config, policies, latency, counts, tokio::time::Instant::now()));
        pool.fleet().replace((0..endpoints).map(spec).collect());
        for (at, endpoint) in (0_u32..).zip(pool.fleet().endpoints().iter()) {
            let metrics = EngineMetrics {
                waiting: Some(f64::from(at * 31 % 7)),
                running: Some(f64::from(at * 17 % 40)),
                kv_usage: Some(f64::from(at * 7919 % 100) / 100.0),
                block_size: Some(16),
                blocks: Some(40_000),
                ..EngineMetrics::default()
            };
            // An hour in the future, so that the report doesn't become stale during the bench.
            endpoint.state.set_report(Report { at: 3_600_000_000, metrics });
        }
        let scene = Self { pool, registry, prompts: (0..PROMPTS).map(|number| chat(number, 2_048)).collect() };
        // The picker learns the duration of responses from those that end, so that each pick computes its estimates.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let learning = runtime.spawn(learning);
        for prompt in &scene.prompts {
            let mut placed = scene.pick(prompt);
            let head = ResponseHead { status: Some(200), content_type: Some("text/event-stream".to_owned()), served: None };
            scene.pool.response(&mut placed, &head);
            for end_of_stream in [false, false, true] {
                scene.pool.chunk(&mut placed, HttpBody { body: Bytes::from_static(b"data: {}\n\n"), end_of_stream });
            }
            drop(placed);
            runtime.block_on(tokio::task::yield_now());
        }
        learning.abort();
        scene.pool.tune();
        scene
    }

    /// Places a request. No part of it waits, so it is placed at once.
    fn pick(&self, prompt: &Bytes) -> <Pool as Picks>::Placed {
        let pick = Arc::clone(&self.pool).pick(head(), vec![prompt.clone()]);
        pick.now_or_never().expect("without flow control no request waits").unwrap().1
    }

    /// Whether the policy answered every time.
    fn has_no_failures(&self) -> bool {
        let mut page = String::new();
        encode(&mut page, &self.registry).unwrap();
        !page.contains("pointsman_picker_policy_failures_total{")
    }
}

fn spec(at: u32) -> EndpointSpec {
    let [_, _, high, low] = at.to_be_bytes();
    EndpointSpec {
        uid: format!("uid-{at}").into(),
        pod: format!("pod-{at:04}").into(),
        address: ([10, 0, high, low], 8000).into(),
        labels: Arc::default(),
    }
}

fn picks(criterion: &mut Criterion) {
    for endpoints in [100, 500] {
        let scene = Scene::new(endpoints);
        let name = format!("a pick among {endpoints} endpoints");
        let mut group = criterion.benchmark_group(&name);
        let mut times = Vec::new();
        group.bench_function("default policy", |bencher| {
            let mut prompts = scene.prompts.iter().cycle();
            bencher.iter_custom(|picks| {
                let mut total = Duration::ZERO;
                for prompt in prompts.by_ref().take(usize::try_from(picks).unwrap()) {
                    let started = Instant::now();
                    let placed = scene.pick(prompt);
                    let took = started.elapsed();
                    // The end of the response isn't part of the pick.
                    drop(placed);
                    total += took;
                    times.push(took);
                }
                total
            });
        });
        assert!(scene.has_no_failures());
        features(&mut group, &scene);
        group.finish();
        times.sort_unstable();
        let quantile = |share: usize| times.get(times.len() * share / 100).copied();
        if let (Some(p50), Some(p99), Some(slowest)) = (quantile(50), quantile(99), times.last()) {
            println!("{name}: {} picks, p50 {p50:.1?}, p99 {p99:.1?}, slowest {slowest:.1?}", times.len());
            keep(&name, &[("p50", p50), ("p99", p99)]);
        }
    }
}

/// The part of a pick before the call of the policy.
fn features(group: &mut BenchmarkGroup<'_, WallTime>, scene: &Scene) {
    let hashes = |prompt: &Bytes| {
        let body = [prompt];
        let found = RequestBody::read(Api::ChatCompletions, None, &body).unwrap();
        (found.estimated_tokens(), found.prefix_hashes(&body, "llama", BlockSize::of_engine(16)))
    };
    let requests: Vec<(u64, Vec<u64>)> = scene.prompts.iter().map(hashes).collect();
    let mut estimate = LatencyEstimate::default();
    for number in 0..100_u32 {
        let sent = Sent { uncached_tokens: f64::from(number), queue_length: f64::from(number % 7), ..Sent::default() };
        estimate.learn(&sent, 0.01 + f64::from(number) / 1e4);
    }
    let endpoints = scene.pool.fleet().endpoints();
    let (mut matches, mut features) = (Matches::default(), Vec::new());
    let mut next = requests.iter().cycle();
    group.bench_function("features and matches", |bencher| {
        bencher.iter(|| {
            let (tokens, hashes) = next.next().unwrap();
            scene.pool.fleet().prefixes.matches(hashes, &mut matches);
            let traits = RequestTraits { model: "llama", tokens: *tokens, blocks: hashes.len(), session: None };
            let knowledge = Knowledge {
                now: 1_000_000,
                matches: &matches,
                first_token: &estimate,
                further_tokens: &estimate,
                wants_cold_turn: false,
                context_length: None,
            };
            pick::features(&endpoints, &traits, &knowledge, &mut features);
            black_box(features.len())
        });
    });
}

fn bodies(criterion: &mut Criterion) {
    let body = [chat(1, 220 << 10)];
    let read = || RequestBody::read(Api::ChatCompletions, None, black_box(&body)).unwrap();
    let mut group = criterion.benchmark_group("a request body of 220 KiB");
    group.bench_function("read", |bencher| bencher.iter(read));
    group.bench_function("read and hash", |bencher| bencher.iter(|| read().prefix_hashes(&body, "llama", BlockSize::default())));
    group.finish();
}

/// A page of metrics like vLLM's: a few gauges, and histograms for the rest of its lines.
fn page(lines: usize) -> String {
    let mut page = String::new();
    for (name, value) in [
        ("num_requests_waiting", "3.0"),
        ("num_requests_running", "17.0"),
        ("kv_cache_usage_perc", "0.4375"),
        ("prefix_cache_queries_total", "1.834992e+06"),
        ("prefix_cache_hits_total", "1.102304e+06"),
    ] {
        let labels = "{engine=\"0\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"}";
        writeln!(page, "# HELP vllm:{name} A number of the server.\n# TYPE vllm:{name} gauge\nvllm:{name}{labels} {value}").unwrap();
    }
    writeln!(page, "vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"55296\"}} 1.0").unwrap();
    for at in page.lines().count()..lines {
        let (family, bucket) = (at / 24, at % 24);
        let labels = format!("{{engine=\"0\",le=\"{bucket}.0\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"}}");
        writeln!(page, "vllm:request_histogram_{family}_seconds_bucket{labels} {}.0", at * 31).unwrap();
    }
    page
}

fn pages(criterion: &mut Criterion) {
    let page = page(400);
    assert_eq!(page.lines().count(), 400);
    assert_eq!(parse(Engine::Vllm, page.as_bytes()).unwrap().waiting, Some(3.0));
    criterion.benchmark_group("a page of metrics").bench_function("400 lines of vLLM", |bencher| {
        bencher.iter(|| parse(Engine::Vllm, black_box(page.as_bytes())).unwrap());
    });
}

fn blocks(criterion: &mut Criterion) {
    let index = PrefixIndex::new();
    let hash = |of: u64| of.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let prompt: Vec<u64> = (0..32).map(hash).collect();
    for endpoint in 0..100_u32 {
        // Also other prompts, so that the index isn't small.
        for other in 0..100_u64 {
            let begin = (u64::from(endpoint) * 100 + other + 1) * 1_000;
            index.record(EndpointId(endpoint), &(begin..begin + 32).map(hash).collect::<Vec<_>>());
        }
        // A third of the endpoints have the whole prompt, the others fewer blocks of it.
        index.record(EndpointId(endpoint), &prompt[..(endpoint as usize % 48 + 1).min(32)]);
    }
    let mut matches = Matches::default();
    criterion.benchmark_group("32 blocks on 100 endpoints").bench_function("matches", |bencher| {
        bencher.iter(|| {
            index.matches(black_box(&prompt), &mut matches);
            matches.longest()
        });
    });
}

/// Writes numbers to the place where criterion writes its own, so that `cargo xtask bench` finds them.
fn keep(group: &str, measured: &[(&str, Duration)]) {
    let Some(home) = std::env::var_os("CRITERION_HOME").map(PathBuf::from) else { return };
    for (name, time) in measured {
        let folder = home.join(group).join(name).join("new");
        fs::create_dir_all(&folder).unwrap();
        let estimates = json!({"median": {"point_estimate": time.as_secs_f64() * 1e9}});
        fs::write(folder.join("estimates.json"), estimates.to_string()).unwrap();
    }
}

criterion_group!(benches, picks, bodies, pages, blocks);
criterion_main!(benches);
