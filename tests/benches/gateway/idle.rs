//! What answers take of memory that have begun and of which nothing more comes.

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

/// How many are open at once. The gateway has room for 4,096 connections by default.
const STREAMS: usize = 4_000;

/// The open files of a proxy or of this process that aren't those of a stream.
const OTHER_FILES: u64 = 500;

/// What one may take, in bytes.
const GOAL: u64 = 64 << 10;

/// Raises the number of open files for this process and those that it starts, and tells how many streams there can be.
pub(crate) fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum.or(current), maximum }).unwrap();
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // Each stream is a connection of a client and one of the backend, both in this process, and both in the proxy.
    let possible = usize::try_from(files.saturating_sub(OTHER_FILES) / 2).unwrap_or(usize::MAX);
    if possible < STREAMS {
        println!("{STREAMS} idle streams need {} open files a process, and {files} are allowed", STREAMS * 2);
    }
    possible.min(STREAMS)
}

/// How often they are opened and closed: what each time leaves behind is there for the next, and must not add up. The allocator keeps less of
/// each time than of the one before.
const TIMES: usize = 10;

/// By how much memory may still grow over the last of these times, and how many those are.
const GROWTH_GOAL: f64 = 0.02;
const LAST: usize = 3;

/// Opens streams through each proxy.
pub(crate) fn measure(cluster: &TestCluster, backend: &Backend, asked: &[Asked], streams: usize) {
    println!("\n{streams} streams that have begun, resident memory");
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
            "  {name:<24} {} MiB before, {during:?} MiB during, {} MiB after: {:.1} KiB a stream at the most",
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

/// By how much the last times have raised what was taken, as a part of it.
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
