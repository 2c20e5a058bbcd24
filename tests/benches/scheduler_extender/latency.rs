//! The time of the two calls for one pod together.

use crate::{
    calls::{Asked, Caller},
    objects::node_name,
    start, tell_failures,
};
use pointsman_tests::{
    ExtenderAddress, TestNamespace,
    load::on_a_thread,
    measure::{goal, is_quick, keep, quantile, taken_by_part},
};
use serde_json::Value;
use std::time::Duration;

/// The number of pods, and of warm-up pods before them.
const PODS: u32 = 1_000;
const PODS_QUICK: u32 = 300;
const FIRST: u32 = 50;

/// The number of different names of pods. These pods don't exist, so the extender counts each for half a minute on the node that ranks
/// first, while a scheduler binds its pods immediately. A pod replaces the previous one with its name, which limits the number of counted
/// pods.
const NAMES: u32 = 50;

/// A measurement with a number of nodes.
pub(crate) struct Case {
    pub(crate) nodes: usize,
    /// Its name in the table.
    group: &'static str,
    /// The maximum of the p50.
    goal: Duration,
}

pub(crate) const CASES: [Case; 2] = [
    Case { nodes: 1_000, group: "filter and prioritize of one pod, 1,000 nodes", goal: Duration::from_millis(2) },
    Case { nodes: 5_000, group: "filter and prioritize of one pod, 5,000 nodes", goal: Duration::from_millis(10) },
];

pub(crate) async fn measure(space: &TestNamespace<'_>, template: &Value, case: &Case) {
    let cluster = space.cluster;
    let address = ExtenderAddress::free();
    let extender = start(cluster, &address).await;
    let nodes: Vec<String> = (0..case.nodes).map(node_name).collect();
    let pods = if is_quick() { PODS_QUICK } else { PODS };
    let cpu = || taken_by_part(cluster, &extender.part).cpu();
    let (asked, taken) = on_a_thread(async {
        let mut caller = Caller::open(address.socket(), template, &nodes).await;
        for number in 0..FIRST {
            caller.ask(&name(number)).await;
        }
        let (before, mut asked) = (cpu(), Vec::new());
        for number in 0..pods {
            asked.push(caller.ask(&name(number)).await);
        }
        (asked, cpu().saturating_sub(before))
    });
    tell(case, &asked, taken / pods);
    tell_failures(&extender);
    extender.kill();
}

fn name(number: u32) -> String {
    format!("asked-{}", number % NAMES)
}

fn tell(case: &Case, asked: &[Asked], cpu: Duration) {
    let times = |part: fn(&Asked) -> Duration| asked.iter().map(part).collect::<Vec<_>>();
    let both = times(Asked::both);
    let (p50, p99) = (quantile(&both, 0.5), quantile(&both, 0.99));
    let (filter, prioritize) = (quantile(&times(|asked| asked.filter), 0.5), quantile(&times(|asked| asked.prioritize), 0.5));
    println!("\n{}: {} pods, one after the other", case.group, asked.len());
    println!("  p50 {p50:.2?}, p99 {p99:.2?}; p50 of filter {filter:.2?}, of prioritize {prioritize:.2?}; CPU of the extender {cpu:.2?}");
    goal("p50 of both", &format!("{p50:.2?}"), &format!("<= {:.0?}", case.goal), p50 <= case.goal);
    keep(case.group, &[("p50", p50), ("p99", p99)]);
}
