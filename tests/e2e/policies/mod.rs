//! Policies end to end: delivered, activated, kept, and refused, on a real API server.

mod commands;
mod delivery;
mod failure;
mod hosts;
mod refused;

#[path = "../../../host/tests/text/mod.rs"]
mod text;

use pointsman::policy::{
    decide::{Decision, Pinned, Standing, propagation},
    digest::{Digest, Digested},
    point::{Entry, Subject, propagation::Target},
};
use pointsman_tests::Engine;
use std::sync::Arc;

/// The digest of bytes as objects tell it.
fn digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

/// A question at metadata-propagation that was never put before.
fn question(number: usize) -> propagation::Inputs {
    let labels = vec![Entry { key: "cost-centre".into(), value: "r-7".into() }];
    let subject = Subject { name: format!("subject-{number}"), namespace_labels: labels, ..Subject::default() };
    let target =
        Target { kind: "Deployment".into(), place: pointsman::policy::point::propagation::Place::PodTemplate, ..Target::default() };
    propagation::Inputs {
        subject: Digested::new(subject).unwrap(),
        target: Digested::new(target).unwrap(),
        layers: Digested::default(),
        labels: Digested::default(),
        annotations: Digested::default(),
        now: None,
    }
}

fn propagated(pinned: &Pinned<'_>, number: usize) -> Arc<Decision<propagation::Propagated>> {
    pinned.propagate(&question(number)).unwrap()
}

/// Which bytes of a plugin a decision comes from, or none if it wasn't asked.
fn decided_by(engine: &Engine, plugin: &str, number: usize) -> Option<String> {
    let decision = propagated(&engine.policies.pin(Standing::New), number);
    decision.plugins.iter().find(|asked| asked.plugin == plugin).map(|asked| asked.digest.clone())
}

/// The same routine prints how long it takes as a bench; here only what must be so at any speed counts.
#[tokio::test]
async fn while_a_plugin_is_reloaded_no_decision_fails_is_late_or_mixes_two_sets() {
    let full = std::env::var_os("POINTSMAN_TEST_FULL").is_some();
    let number = if full { 1000 } else { 50 };
    let seen = pointsman_tests::reload::reloads(&pointsman_tests::PolicyCluster::start().await, number).await;
    assert_eq!((seen.failed, seen.late, seen.mixed), (0, 0, 0), "{seen:?}");
    assert!(seen.decisions > 2 * number as u64, "{seen:?}");
    if full {
        let (before, after) = seen.resident;
        assert!(after < before + before / 10, "it has grown from {before} to {after} bytes");
    }
}
