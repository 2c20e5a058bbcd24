//! What a process has taken, as the kernel tells it.

use pointsman_tests::{Host, TestCluster};
use serde_json::json;
use std::{fs, time::Duration};

/// The kernel tells times in hundredths of a second, on every machine.
const TICK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    /// Bytes of resident memory now, and at the most.
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl Taken {
    pub(crate) fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// What a running host has taken so far.
pub(crate) fn taken(cluster: &TestCluster, host: &Host<'_>) -> Taken {
    let status = cluster.control(&json!({"do": "status"})).unwrap();
    let parts = status["parts"].as_array().unwrap();
    of(&parts.iter().find(|part| part["name"] == *host.part).unwrap()["pid"].to_string())
}

/// What this process has taken so far.
pub(crate) fn ours() -> Taken {
    of("self")
}

fn of(process: &str) -> Taken {
    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap();
    let stat = read("stat");
    // The program's name may have anything in it; behind it come numbers.
    let numbers: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |place: usize| TICK * numbers[place].parse::<u32>().unwrap();
    let status = read("status");
    let bytes = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    Taken { user: ticks(11), system: ticks(12), resident: bytes("VmRSS:"), peak: bytes("VmHWM:") }
}
