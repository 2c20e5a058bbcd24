//! How long it takes from the write of a ConfigMap to the first decision by its bytes, under a steady load of decisions.
#![allow(clippy::unwrap_used)]

use pointsman_tests::{PolicyCluster, reload::reloads};
use std::{fs, path::PathBuf, time::Duration};

fn main() {
    // Cargo hands every bench its own flags, such as --bench.
    let number = std::env::var("POINTSMAN_RELOADS").ok().and_then(|number| number.parse().ok()).unwrap_or(50);
    let seen = tokio::runtime::Runtime::new().unwrap().block_on(async { reloads(&PolicyCluster::start().await, number).await });
    tell(&[("p50", seen.quantile(0.5)), ("p99", seen.quantile(0.99))]);
    let (before, after) = seen.resident;
    println!(
        "{number} reloads of a component of {} KiB, p50 {:.0?}, p99 {:.0?}",
        seen.bytes >> 10,
        seen.quantile(0.5),
        seen.quantile(0.99)
    );
    println!(
        "{} decisions meanwhile: {} failed, {} late, {} of two sets; the slowest took {:.0?}",
        seen.decisions, seen.failed, seen.late, seen.mixed, seen.slowest
    );
    println!("resident memory {} MiB after the first tenth, {} MiB at the end", before >> 20, after >> 20);
}

/// Writes the numbers where criterion's benches write theirs, so that `cargo xtask bench` has them in its table.
fn tell(measured: &[(&str, Duration)]) {
    let Some(home) = std::env::var_os("CRITERION_HOME").map(PathBuf::from) else { return };
    for (name, time) in measured {
        let folder = home.join("a reload under load").join(name).join("new");
        fs::create_dir_all(&folder).unwrap();
        let estimates = serde_json::json!({"median": {"point_estimate": time.as_secs_f64() * 1e9}});
        fs::write(folder.join("estimates.json"), estimates.to_string()).unwrap();
    }
}
