//! The growth of the extender's memory over many pods.

use crate::{calls::Caller, metric, objects::node_name, start, tell_failures};
use pointsman_tests::{
    ExtenderAddress, TestNamespace,
    load::on_a_thread,
    measure::{is_quick, number_in, taken_by_part, wait},
};
use serde_json::Value;

/// The number of nodes.
pub(crate) const NODES: usize = 200;

/// The default number of pods.
const PODS: u32 = 10_000;
const PODS_QUICK: u32 = 3_000;
const VARIABLE: &str = "POINTSMAN_PODS";

/// The number of steps. From the first one on, the maximum number of placements is recorded.
const STEPS: u32 = 10;
const STEPS_QUICK: u32 = 3;

/// The metric of the pods that the extender knows.
const KNOWN: &str = "pointsman_extender_objects{kind=\"pods\"}";

pub(crate) async fn measure(space: &TestNamespace<'_>, template: &Value) {
    let (usual, steps) = if is_quick() { (PODS_QUICK, STEPS_QUICK) } else { (PODS, STEPS) };
    let pods = number_in(VARIABLE).unwrap_or(usual);
    assert!(pods >= steps, "{VARIABLE}: {pods} pods are too few: set it to {steps} or more");
    let address = ExtenderAddress::free();
    let extender = start(space.cluster, &address).await;
    let nodes: Vec<String> = (0..NODES).map(node_name).collect();
    let resident = || mebibytes(taken_by_part(space.cluster, &extender.part).resident);
    let existing = metric(&extender, KNOWN);
    println!("\nmemory over {pods} pods: {:.1} MiB of resident memory before the first, at {NODES} nodes", resident());
    let (mut asked, mut seen) = (0, Vec::new());
    for step in 1..=steps {
        let end = u32::try_from(u64::from(pods) * u64::from(step) / u64::from(steps)).unwrap();
        on_a_thread(async {
            let mut caller = Caller::open(address.socket(), template, &nodes).await;
            for number in asked..end {
                caller.ask(&format!("asked-{number}")).await;
            }
        });
        asked = end;
        let at_once = resident();
        // The extender learns of a scheduler's pods by a watch. These pods don't exist, so it drops each after half a minute.
        wait("the extender drops the pods that don't exist", async || metric(&extender, KNOWN) <= existing).await;
        let dropped = resident();
        println!("  {at_once:.1} MiB after {asked} pods, {dropped:.1} MiB after the extender dropped them");
        seen.push(dropped);
    }
    if let [first, .., last] = seen[..] {
        println!("  growth since the first step: {:.1} %", (last / first - 1.0) * 100.0);
    }
    tell_failures(&extender);
    extender.kill();
}

#[allow(clippy::cast_precision_loss)] // Some hundred mebibytes.
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
