//! Shared by the benches: the resources of a process, the metrics of a host, and the output of the numbers.

use crate::{Host, TestCluster, eventually};
use serde_json::json;
use std::{
    fs,
    num::ParseIntError,
    path::PathBuf,
    str::FromStr,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// The kernel's unit of CPU time, which is a hundredth of a second on every machine.
const TICK: Duration = Duration::from_millis(10);

/// The resources that a process has used so far, by the kernel's counters, without those of its children.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Resident memory now, in bytes.
    pub resident: u64,
    /// Resident memory that isn't backed by a file, in bytes.
    pub allocated: u64,
    /// The maximum of resident memory, in bytes.
    pub peak: u64,
}

impl Taken {
    /// The total CPU time.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// The resources of a running host.
pub fn taken(cluster: &TestCluster, host: &Host<'_>) -> Taken {
    taken_by_part(cluster, &host.part)
}

/// The resources of a control plane's part.
pub fn taken_by_part(cluster: &TestCluster, part: &str) -> Taken {
    let status = cluster.control(&json!({"do": "status"})).expect("asking the control plane for its parts");
    let found = status["parts"].as_array().into_iter().flatten().find(|found| found["name"] == *part);
    usage_of_process(&found.expect("it is one of the control plane's parts")["pid"].to_string())
}

/// The resources of this process.
pub fn ours() -> Taken {
    usage_of_process("self")
}

fn usage_of_process(process: &str) -> Taken {
    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).expect("a process of ours tells what it takes");
    let stat = read("stat");
    // The program's name may contain any characters. Numbers follow it.
    let (_, numbers) = stat.rsplit_once(')').expect("a name in brackets");
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    let ticks = |place: usize| TICK * numbers[place].parse::<u32>().expect("a number of ticks");
    let status = read("status");
    let bytes = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number of KiB") << 10
    };
    Taken { user: ticks(11), system: ticks(12), resident: bytes("VmRSS:"), allocated: bytes("RssAnon:"), peak: bytes("VmHWM:") }
}

/// The sum of a metric over its labels; 0 if the host doesn't respond.
pub fn metric(host: &Host<'_>, name: &str) -> f64 {
    let Ok((200, page)) = host.get("/metrics") else { return 0.0 };
    metric_on_page(&page, name)
}

/// The sum of a metric on a metrics page.
pub fn metric_on_page(page: &str, name: &str) -> f64 {
    let lines = page.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// Waits until a host is the leader.
pub async fn leads(host: &Host<'_>) {
    host.ready().await;
    eventually("the host leads", async || (metric(host, "pointsman_leader") > 0.0).then_some(())).await;
}

/// Waits without a test's timeout, because thousands of services take long.
pub async fn wait(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !done().await {
        assert!(begun.elapsed() < Duration::from_hours(1), "it never happened: {what}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// A quantile of these times; 0 if there are none.
pub fn quantile(times: &[Duration], quantile: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let last = sorted.len().saturating_sub(1);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // An index into a short list.
    sorted.get((last as f64 * quantile).ceil() as usize).copied().unwrap_or_default()
}

/// Prints a number next to its goal.
pub fn goal(what: &str, seen: &str, wanted: &str, met: bool) {
    println!("  {what:<28} {seen:>12}   goal {wanted}: {}", if met { "met" } else { "NOT MET" });
}

/// Whether to measure for a shorter time.
pub fn is_quick() -> bool {
    std::env::var_os("POINTSMAN_QUICK").is_some()
}

/// The number in an environment variable.
pub fn number_in<N: FromStr<Err = ParseIntError>>(variable: &str) -> Option<N> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|error| panic!("{variable}: {error}: set it to a number")))
}

/// Writes the numbers in the format and the folder of criterion's benches, so that `cargo xtask bench` lists them.
pub fn keep(group: &str, measured: &[(&str, Duration)]) {
    let Some(home) = std::env::var_os("CRITERION_HOME").map(PathBuf::from) else { return };
    for (name, time) in measured {
        let folder = home.join(group).join(name).join("new");
        fs::create_dir_all(&folder).expect("making a folder for the numbers");
        let estimates = json!({"median": {"point_estimate": time.as_secs_f64() * 1e9}});
        fs::write(folder.join("estimates.json"), estimates.to_string()).expect("writing the numbers");
    }
}
