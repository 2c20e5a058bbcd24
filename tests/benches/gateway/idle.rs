//! The memory of idle streams: responses that have begun and get no further data.

use crate::{
    backend::{Backend, IDLE},
    proxies::{Asked, MODEL},
};
use pointsman_tests::{
    TestCluster,
    load::{Connection, Question, on_a_thread},
    measure::{goal, taken_by_part},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

/// The number of concurrent streams. The gateway accepts 4,096 connections by default.
const STREAMS: usize = 4_000;

/// The maximum number of open files of a proxy or of this process, without those of the streams.
const OTHER_FILES: u64 = 500;

/// The maximum memory per stream, in bytes.
const GOAL: u64 = 64 << 10;

/// Raises the limit of open files for this process and its children, and returns the possible number of streams.
pub(crate) fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum.or(current), maximum }).unwrap();
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // Each stream has a client's connection and one to the backend. This process has one end of both, the proxy the other.
    let possible = usize::try_from(files.saturating_sub(OTHER_FILES) / 2).unwrap_or(usize::MAX);
    if possible < STREAMS {
        println!("{STREAMS} idle streams need {} open files per process, and {files} are allowed", STREAMS * 2);
    }
    possible.min(STREAMS)
}

/// How often they are opened and closed: memory that remains is used the next time, and must not accumulate. The allocator retains less
/// each time.
const TIMES: usize = 10;

/// The maximum growth of memory over the last of these times, and their number.
const GROWTH_GOAL: f64 = 0.02;
const LAST: usize = 3;

/// Opens streams through each proxy.
pub(crate) fn measure(cluster: &TestCluster, backend: &Backend, asked: &[Asked], streams: usize) {
    println!("\n{streams} idle streams, resident memory");
    for Asked { name, address, part } in asked {
        let Some(part) = part else { continue };
        let resident = || taken_by_part(cluster, part).resident;
        let question = Question::new(IDLE, &json!({"model": MODEL, "stream": true, "input": "Hello"}));
        let before = resident();
        let mut during = Vec::new();
        for _ in 0..TIMES {
            let mut idle = backend.idle.clone();
            let hold = async {
                let mut open = Vec::new();
                for _ in 0..streams {
                    let mut connection = Connection::open(*address).await.unwrap();
                    connection.begin(&question).await.unwrap();
                    open.push(connection);
                }
                idle.wait_for(|idle| *idle == streams).await.unwrap();
                during.push(resident());
                drop(open);
                idle.wait_for(|idle| *idle == 0).await.unwrap();
            };
            on_a_thread(hold);
        }
        let (after, most) = (resident(), during.iter().max().copied().unwrap_or_default());
        let each = most.saturating_sub(before) / streams as u64;
        let growth = growth(&during);
        let during: Vec<u64> = during.iter().map(|bytes| bytes >> 20).collect();
        println!(
            "  {name:<24} {} MiB before, {during:?} MiB during, {} MiB after: at most {:.1} KiB per stream",
            before >> 20,
            after >> 20,
            kibibytes(each)
        );
        if name.starts_with("gateway") {
            goal("memory of an idle stream", &format!("{:.1} KiB", kibibytes(each)), "<= 64 KiB", each <= GOAL);
            let what = format!("growth over the last {LAST} times");
            goal(&what, &format!("{:.1} %", growth * 100.0), &format!("<= {:.0} %", GROWTH_GOAL * 100.0), growth <= GROWTH_GOAL);
        }
    }
}

/// The relative growth of memory over the last times.
#[allow(clippy::cast_precision_loss)] // Some hundred mebibytes.
fn growth(during: &[u64]) -> f64 {
    let (earlier, last) = during.split_at(during.len().saturating_sub(LAST));
    let most = |bytes: &[u64]| bytes.iter().max().copied().unwrap_or_default() as f64;
    (most(last) - most(earlier)).max(0.0) / most(earlier).max(1.0)
}

#[allow(clippy::cast_precision_loss)] // Some kibibytes.
fn kibibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}
