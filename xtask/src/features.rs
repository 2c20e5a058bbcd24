//! Keeps the features of every crate the same in builds and in tests, so that each reuses what the other compiled.
//!
//! Cargo unifies the features that the selected packages request; it includes those of their dev-dependencies only when it builds tests. A
//! feature that only tests request would compile its crate, and all dependents, a second time: half of the host's dependencies use tokio.

use crate::build;
use anyhow::{Result, bail};
use std::collections::BTreeSet;

/// Fails if a crate has different features in a build of the workspace and in its tests.
pub(crate) fn check() -> Result<()> {
    let (built, tested) = (choice("normal,build")?, choice("normal,build,dev")?);
    let other = only_built(&built, &tested);
    if !other.is_empty() {
        bail!(
            "tests compile these crates a second time, because a build selects other features; add the features that the tests need to \
             tests/Cargo.toml:\n  {}",
            other.join("\n  ")
        );
    }
    Ok(())
}

/// The crates of the workspace, each with the features that cargo selects along dependencies of these kinds.
fn choice(edges: &str) -> Result<String> {
    build::cargo_output(&["tree", "--workspace", "--edges", edges, "--prefix", "none", "--no-dedupe", "--format", "{p} {f}"])
}

fn only_built<'t>(built: &'t str, tested: &str) -> Vec<&'t str> {
    let tested: BTreeSet<&str> = tested.lines().collect();
    let built: BTreeSet<&str> = built.lines().collect();
    built.into_iter().filter(|krate| !tested.contains(krate)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_with_another_feature_in_tests_is_named() {
        let built = "serde v1 std\ntokio v1 fs,rt\nserde v1 std\n";
        assert_eq!(only_built(built, "proptest v1\nserde v1 std\ntokio v1 fs,rt,test-util\n"), ["tokio v1 fs,rt"]);
        assert!(only_built(built, "proptest v1\nserde v1 std\ntokio v1 fs,rt\n").is_empty());
    }
}
