//! Policies end to end: delivered, activated, stored and rejected, on a real API server.

mod commands;
mod conditions;
mod delivery;
mod failure;
mod hosts;
mod interfaces;
mod keeping;
mod refused;
mod sources;
mod subjects;

#[path = "../../../host/tests/text/mod.rs"]
mod text;

use pointsman_core::decide::{Decision, Pinned, Standing, propagation};
use pointsman_sandbox::digest::Digest;
use pointsman_tests::{Engine, reload::question};
use std::sync::Arc;

/// The digest of bytes, in the format of objects.
fn digest(bytes: &[u8]) -> String {
    Digest::hash(bytes).to_string()
}

fn propagated(pinned: &Pinned<'_>, number: u64) -> Arc<Decision<propagation::Propagated>> {
    pinned.propagate(&question(number)).unwrap()
}

/// The digest of the plugin that made a decision, or `None` if the plugin wasn't called.
fn decided_by(engine: &Engine, plugin: &str, number: u64) -> Option<String> {
    let decision = propagated(&engine.policies.pin(Standing::New), number);
    decision.plugins.iter().find(|asked| asked.plugin == plugin).map(|asked| asked.digest.clone())
}

/// A bench measures how long the same routine takes; this test only checks what must hold at any speed.
#[tokio::test]
async fn while_a_plugin_is_reloaded_no_decision_fails_is_late_or_mixes_two_sets() {
    let full = pointsman_tests::is_full();
    let number = if full { 1000 } else { 15 };
    let seen = pointsman_tests::reload::reloads(&pointsman_tests::PolicyCluster::start().await, number).await;
    assert_eq!((seen.failed, seen.late, seen.mixed), (0, 0, 0), "{seen:?}");
    assert!(seen.decisions > 2 * number as u64, "{seen:?}");
    if full {
        let (before, after) = seen.resident;
        assert!(after < before + before / 10, "it has grown from {before} to {after} bytes");
    }
}
