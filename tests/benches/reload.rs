//! The time from the write of a ConfigMap to the first decision by its bytes, under a steady load of decisions.
#![allow(clippy::unwrap_used)]

use pointsman_tests::{PolicyCluster, measure::keep, reload::reloads};

fn main() {
    // Not a flag, because cargo passes its own flags to every bench, such as --bench.
    let number = std::env::var("POINTSMAN_RELOADS").ok().and_then(|number| number.parse().ok()).unwrap_or(50);
    let seen = tokio::runtime::Runtime::new().unwrap().block_on(async { reloads(&PolicyCluster::start().await, number).await });
    keep("a reload under load", &[("p50", seen.quantile(0.5)), ("p99", seen.quantile(0.99))]);
    let (before, after) = seen.resident;
    println!(
        "{number} reloads of a component of {} KiB, p50 {:.0?}, p99 {:.0?}",
        seen.bytes >> 10,
        seen.quantile(0.5),
        seen.quantile(0.99)
    );
    println!(
        "{} decisions meanwhile: {} failed, {} late, {} from two sets; the slowest took {:.0?}",
        seen.decisions, seen.failed, seen.late, seen.mixed, seen.slowest
    );
    println!("resident memory {} MiB after the first tenth, {} MiB at the end", before >> 20, after >> 20);
}
