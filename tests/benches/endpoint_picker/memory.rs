//! The growth of the picker's memory over many requests.

use crate::{WITHOUT_TLS, start, streams::ask, tell_failures};
use pointsman_tests::{
    TestNamespace,
    measure::{goal, is_quick, number_in, taken_by_part},
};

/// The default number of requests.
const REQUESTS: u64 = 100_000;
const REQUESTS_QUICK: u64 = 40_000;
const VARIABLE: &str = "POINTSMAN_REQUESTS";

/// The minimum number of requests before the comparison: by then the picker stores its maximum number of prefixes.
const FIRST: u64 = 20_000;

/// The number of requests per set of connections: the bench stores the time of each until the set ends.
const PIECE: u64 = 10_000;

/// The number of steps for the other requests.
const STEPS: u64 = 9;

/// The maximum growth after the first step.
const GROWTH_GOAL: f64 = 0.05;

pub(crate) async fn measure(space: &TestNamespace<'_>) {
    let requests = number_in(VARIABLE).unwrap_or(if is_quick() { REQUESTS_QUICK } else { REQUESTS });
    let first = (requests / 10).max(FIRST);
    assert!(requests > first, "{VARIABLE}: {requests} requests are too few: set it to more than {FIRST}");
    let picker = start(space, &[WITHOUT_TLS]).await;
    let resident = || taken_by_part(space.cluster, &picker.part).resident;
    println!("\nresident memory of the picker: {:.1} MiB before the first request", mebibytes(resident()));
    let place = |number: u64| {
        let mut left = number;
        while left > 0 {
            let piece = left.min(PIECE);
            ask(picker.address, piece);
            left -= piece;
        }
        let seen = resident();
        println!("  {:.1} MiB after {number} more", mebibytes(seen));
        seen
    };
    let early = place(first);
    // Memory that leaks grows by the same amount in each step.
    let (step, mut late, mut left) = ((requests - first).div_ceil(STEPS), early, requests - first);
    while left > 0 {
        late = place(left.min(step));
        left = left.saturating_sub(step);
    }
    let growth = mebibytes(late) / mebibytes(early) - 1.0;
    let what = format!("growth from {first} to {requests}");
    goal(&what, &format!("{:.1} %", growth * 100.0), &format!("<= {:.0} %", GROWTH_GOAL * 100.0), growth <= GROWTH_GOAL);
    tell_failures("memory", &picker);
    picker.kill();
}

#[allow(clippy::cast_precision_loss)] // Some hundred mebibytes.
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
