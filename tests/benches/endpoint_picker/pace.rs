//! The picker's throughput without Envoy: by default, without its record of decisions, and with flow control, alternating in short rounds.
//! Only the measured picker runs; the others are paused, because each reads the metrics of all endpoints.

use crate::{
    WITHOUT_TLS, other, rounds, start,
    streams::{STREAMS, ask},
    tell_failures, wait_for_reports,
};
use pointsman_tests::{
    PickerProcess, TestNamespace,
    load::Round,
    measure::{keep, ours, quantile, taken_by_part},
};
use std::{net::SocketAddr, time::Duration};
use tokio::time::sleep;

/// The number of rounds, of requests per round, and of warm-up requests before them.
const ROUNDS: usize = 12;
const ROUNDS_QUICK: usize = 3;
const REQUESTS: u64 = 5_000;
const FIRST: u64 = 500;

/// The duration of the measurement without requests.
const IDLE: Duration = Duration::from_secs(5);

const UNRECORDED: [&str; 2] = ["--record-decisions", "0"];

/// The default scorers, and flow control. The endpoints have free capacity, so no request waits: the bench measures the cost of the check.
const FLOW_CONTROL: &str = "\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
";

/// One of the measured pickers.
struct Asked<'a> {
    name: &'static str,
    address: SocketAddr,
    /// Its name among the cluster's parts.
    part: String,
    /// None for another project's picker.
    picker: Option<PickerProcess<'a>>,
    rounds: Vec<Round>,
    /// The picker's CPU in all rounds, and that of clients and model servers.
    cpu: Duration,
    bench_cpu: Duration,
}

pub(crate) async fn measure(space: &TestNamespace<'_>) {
    let flow_control = ["--config-text", FLOW_CONTROL];
    let flow_control_unrecorded = [flow_control, UNRECORDED].concat();
    let variants: [(&'static str, &[&str]); 4] =
        [("native", &UNRECORDED), ("recorded", &[]), ("flow control", &flow_control_unrecorded), ("flow control, recorded", &flow_control)];
    let mut asked = Vec::new();
    for (name, flags) in variants {
        let picker = start(space, &[&[WITHOUT_TLS], flags].concat()).await;
        let one = Asked::new(name, picker.address, picker.part.clone(), Some(picker));
        one.pause(space);
        asked.push(one);
    }
    if let Some(address) = other::start(space, false).await {
        let asked_other = Asked::new("other picker", address, other::PART.to_owned(), None);
        asked_other.pause(space);
        asked.push(asked_other);
    }
    tell_idle(space, &asked[0]).await;
    for number in 0..rounds(ROUNDS, ROUNDS_QUICK) {
        for at in 0..asked.len() {
            let place = (number + at) % asked.len();
            asked[place].round(space).await;
        }
    }
    tell(&asked);
    for asked in &asked {
        asked.resume(space).await;
        if let Some(picker) = &asked.picker {
            tell_failures(asked.name, picker);
        }
        space.cluster.kill_part(&asked.part).unwrap();
    }
}

impl<'a> Asked<'a> {
    fn new(name: &'static str, address: SocketAddr, part: String, picker: Option<PickerProcess<'a>>) -> Self {
        Self { name, address, part, picker, rounds: Vec::new(), cpu: Duration::ZERO, bench_cpu: Duration::ZERO }
    }

    fn pause(&self, space: &TestNamespace<'_>) {
        space.cluster.pause_part(&self.part).unwrap();
    }

    /// Resumes the picker, and waits until it has recent reports again.
    async fn resume(&self, space: &TestNamespace<'_>) {
        space.cluster.resume_part(&self.part).unwrap();
        if let Some(picker) = &self.picker {
            wait_for_reports(picker).await;
        }
    }

    async fn round(&mut self, space: &TestNamespace<'_>) {
        self.resume(space).await;
        ask(self.address, FIRST);
        let cpu = || (taken_by_part(space.cluster, &self.part).cpu(), ours().cpu());
        let before = cpu();
        let round = ask(self.address, REQUESTS);
        let after = cpu();
        self.pause(space);
        self.cpu += after.0.saturating_sub(before.0);
        self.bench_cpu += after.1.saturating_sub(before.1);
        self.rounds.push(round);
    }

    fn median(&self, value: fn(&Round) -> Duration) -> Duration {
        quantile(&self.rounds.iter().map(value).collect::<Vec<_>>(), 0.5)
    }

    /// The time per request, with all streams open.
    fn pace(&self) -> Duration {
        self.median(|round| round.lasted / round.answers)
    }

    fn each(&self, of_all: Duration) -> Duration {
        of_all / self.rounds.iter().map(|round| round.answers).sum::<u32>()
    }
}

/// Prints the CPU of a picker without requests.
async fn tell_idle(space: &TestNamespace<'_>, asked: &Asked<'_>) {
    asked.resume(space).await;
    let cpu = || taken_by_part(space.cluster, &asked.part).cpu();
    let before = cpu();
    sleep(IDLE).await;
    let took = cpu().saturating_sub(before).div_f64(IDLE.as_secs_f64());
    asked.pause(space);
    println!("\nwithout requests, the picker uses {took:.1?} of CPU per second: it reads the metrics of all endpoints every 50 ms");
}

fn tell(asked: &[Asked<'_>]) {
    println!("\nwithout Envoy, {STREAMS} concurrent streams, {} rounds of {REQUESTS} requests each", asked[0].rounds.len());
    for one in asked {
        println!(
            "  {:<24} p50 {:>9.1?}, p99 {:>9.1?}, {:>6.0} per second; CPU for 1,000: {:>7.1?}, and {:.1?} of clients and model servers",
            one.name,
            one.median(|round| round.p50),
            one.median(|round| round.p99),
            1.0 / one.pace().as_secs_f64(),
            one.each(one.cpu * 1_000),
            one.each(one.bench_cpu * 1_000)
        );
    }
    let each: Vec<_> = asked.iter().map(|one| (one.name, one.pace(), one.each(one.cpu))).collect();
    let [(_, native_pace, native_cpu), others @ ..] = &each[..] else { return };
    for (name, pace, cpu) in others {
        let (pace, cpu) = (pace.div_duration_f64(*native_pace), cpu.div_duration_f64(*native_cpu));
        println!("  {name:<24} {pace:.2} x the time and {cpu:.2} x the CPU of a request");
    }
    let (paces, cpus): (Vec<_>, Vec<_>) = each.iter().map(|(name, pace, cpu)| ((*name, *pace), (*name, *cpu))).unzip();
    keep("a request to the endpoint picker", &paces);
    keep("CPU of the endpoint picker for a request", &cpus);
}
