//! The real gateway, compared with Envoy as a plain proxy and with direct requests to the backend, alternating in short rounds, so that
//! other load on the machine affects all equally. Numbers are medians of rounds.
//!
//! Clients and backend are in this process, on one thread each; their CPU is printed. `POINTSMAN_ROUNDS=60` measures longer.
#![allow(clippy::unwrap_used)]

mod backend;
mod idle;
mod proxies;

use backend::{Backend, CHAT, EMBEDDINGS, EVENT_COUNT, EVENTS};
use pointsman_harness::Options;
use pointsman_tests::{
    TestCluster,
    load::{Question, Round, Scenario},
    measure::{goal, is_quick, keep, ours, quantile, taken_by_part},
};
use proxies::{Asked, MODEL};
use serde_json::json;
use std::time::Duration;

/// The number of rounds per scenario.
const ROUNDS: usize = 24;
const ROUNDS_QUICK: usize = 5;

/// The duration of a round.
const LASTS: Duration = Duration::from_millis(500);

/// The number of connections for measurements in which a request waits only for the proxy.
const FEW: usize = 2;

/// The number of connections that saturate the machine.
const MANY: usize = 64;

/// The length of the text in a large request, in bytes.
const LARGE: usize = 256 << 10;

/// The goals, as ratios to Envoy.
const ADDED_GOAL: f64 = 1.2;
const THROUGHPUT_GOAL: f64 = 0.9;

/// A value of a round.
type Value = fn(&Round) -> Duration;

/// The results of one variant.
struct Seen<'a> {
    asked: &'a Asked,
    rounds: Vec<Round>,
    /// The proxy's CPU in all rounds, and that of clients and backend.
    cpu: Duration,
    bench_cpu: Duration,
}

impl Seen<'_> {
    fn median(&self, value: Value) -> Duration {
        quantile(&self.rounds.iter().map(value).collect::<Vec<_>>(), 0.5)
    }

    /// The time per response, over all connections together.
    fn pace(&self) -> Duration {
        self.median(|round| round.lasted / round.answers)
    }

    fn each(&self, of_all: Duration) -> Duration {
        of_all / self.rounds.iter().map(|round| round.answers).sum::<u32>()
    }
}

fn main() {
    // Before the start of the processes, which inherit the limit.
    let streams = idle::raise_limit();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let parts = Some(vec!["etcd".to_owned(), "apiserver".to_owned()]);
        let cluster = TestCluster::start(&Options { parts, neighbours: Some(Vec::new()), ..Options::default() });
        let backend = Backend::start();
        let asked = proxies::start(&cluster, backend.address).await;
        measure(&cluster, &backend, &asked, streams);
    });
}

fn measure(cluster: &TestCluster, backend: &Backend, asked: &[Asked], streams: usize) {
    let message = |text: &str| json!([{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": text}]);
    let chat = Question::new(CHAT, &json!({"model": MODEL, "messages": message(&"a few words ".repeat(20)), "temperature": 0.5}));
    let scenario =
        |question: &Question, connections| Scenario { questions: [question.clone()].into(), answer: ("\"usage\"", 1), connections };

    let few = rounds("a chat completion", &scenario(&chat, FEW), cluster, asked);
    added(&few);
    let many = rounds("a chat completion at saturation", &scenario(&chat, MANY), cluster, asked);
    saturated(&many);
    let events = Question::new(EVENTS, &json!({"model": MODEL, "prompt": "Hello", "stream": true}));
    let events = |connections| Scenario { questions: [events.clone()].into(), answer: ("data:", EVENT_COUNT), connections };
    tell_pace("an answer of 50 events", &rounds("an answer of 50 events", &events(FEW), cluster, asked));
    tell_pace("events at saturation", &rounds("an answer of 50 events at saturation", &events(MANY), cluster, asked));
    let large = Question::new(EMBEDDINGS, &json!({"model": MODEL, "input": "some words of a long text ".repeat(LARGE / 26)}));
    tell_pace("a request of 256 KiB", &rounds("a request of 256 KiB", &scenario(&large, FEW), cluster, asked));
    idle::measure(cluster, backend, asked, streams);
}

/// Measures each in turn, and returns the results.
fn rounds<'a>(what: &str, scenario: &Scenario, cluster: &TestCluster, asked: &'a [Asked]) -> Vec<Seen<'a>> {
    let fewer = if is_quick() { ROUNDS_QUICK } else { ROUNDS };
    let rounds = std::env::var("POINTSMAN_ROUNDS").ok().and_then(|number| number.parse().ok()).unwrap_or(fewer);
    let seen = |asked| Seen { asked, rounds: Vec::new(), cpu: Duration::ZERO, bench_cpu: Duration::ZERO };
    let mut all: Vec<Seen<'_>> = asked.iter().map(seen).collect();
    for number in 0..rounds {
        // Each runs first equally often.
        for at in 0..all.len() {
            let place = (number + at) % all.len();
            let seen = &mut all[place];
            let own = || seen.asked.part.as_ref().map_or(Duration::ZERO, |part| taken_by_part(cluster, part).cpu());
            let (own_before, bench_before) = (own(), ours().cpu());
            let round = scenario.round(seen.asked.address, LASTS);
            seen.cpu += own().saturating_sub(own_before);
            seen.bench_cpu += ours().cpu().saturating_sub(bench_before);
            seen.rounds.push(round);
        }
    }
    println!("\n{what}: {} connections, {rounds} rounds of {LASTS:?} each", scenario.connections);
    for seen in &all {
        println!(
            "  {:<24} p50 {:>9.1?}, p99 {:>9.1?}, {:>6.0} per second; CPU per response: {:>7.1?}, and {:.1?} of clients and backend",
            seen.asked.name,
            seen.median(|round| round.p50),
            seen.median(|round| round.p99),
            1.0 / seen.pace().as_secs_f64(),
            seen.each(seen.cpu),
            seen.each(seen.bench_cpu)
        );
    }
    all
}

/// Compares the latency that the proxies add to a request.
fn added(seen: &[Seen<'_>]) {
    let [direct, envoy, gateways @ ..] = seen else { unreachable!("four are asked") };
    let values: [(&str, Value); 2] = [("p50", |round| round.p50), ("p99", |round| round.p99)];
    for (what, value) in values {
        let adds = |seen: &Seen<'_>| seen.median(value).saturating_sub(direct.median(value));
        let envoys = adds(envoy);
        println!("  {what} added by Envoy: {envoys:.1?}");
        if envoys.is_zero() {
            println!("  {what}: the backend itself varies more than that, so the proxies can't be compared");
            continue;
        }
        for gateway in gateways {
            let ratio = adds(gateway).as_secs_f64() / envoys.as_secs_f64();
            let shown = format!("{:.1?}, {ratio:.2}", adds(gateway));
            if what == "p50" {
                goal(
                    &format!("{what} added by the {}", gateway.asked.name),
                    &shown,
                    &format!("<= {ADDED_GOAL} x Envoy's"),
                    ratio <= ADDED_GOAL,
                );
            } else {
                println!("  {what} added by the {}: {shown} x Envoy's", gateway.asked.name);
            }
        }
        let [gateway, quiet] = gateways else { unreachable!("there are two gateways") };
        let kept = [("native", envoys), ("gateway", adds(gateway)), ("no access log", adds(quiet))];
        keep(&format!("{what} that a proxy adds to a chat completion"), &kept);
    }
}

/// Compares the throughput of the proxies.
fn saturated(seen: &[Seen<'_>]) {
    let [_, envoy, gateways @ ..] = seen else { unreachable!("four are asked") };
    for gateway in gateways {
        let ratio = envoy.pace().as_secs_f64() / gateway.pace().as_secs_f64();
        let what = format!("throughput of the {}", gateway.asked.name);
        goal(&what, &format!("{ratio:.2}"), &format!(">= {THROUGHPUT_GOAL} x Envoy's"), ratio >= THROUGHPUT_GOAL);
    }
    tell_pace("a chat completion at saturation", seen);
}

/// Adds the time per response to the table.
fn tell_pace(what: &str, seen: &[Seen<'_>]) {
    let [direct, envoy, gateway, quiet] = seen else { unreachable!("four are asked") };
    let kept = [("direct", direct.pace()), ("native", envoy.pace()), ("gateway", gateway.pace()), ("no access log", quiet.pace())];
    keep(what, &kept);
}
