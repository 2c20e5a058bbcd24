//! Plugins that fail when they are called.

use super::{
    digest,
    text::{DESCRIPTION, Module, plugin},
};
use pointsman_core::decide::{Pinned, Standing, Undecided, scoring::Candidates};
use pointsman_sandbox::{
    limits::ERROR_BUDGET,
    point::{Question, Subject},
};
use pointsman_tests::{Engine, PolicyCluster, compiled, condition, eventually};
use serde_json::json;

/// The feature that the plugin requests.
const SCORER: &str = "queue-length";

fn scored(pinned: &Pinned<'_>) -> Result<Vec<Option<f64>>, Undecided> {
    scored_in(pinned, "")
}

fn scored_in(pinned: &Pinned<'_>, namespace: &str) -> Result<Vec<Option<f64>>, Undecided> {
    let candidates = Candidates { features: &[SCORER], values: &[1.0, 2.0] };
    let subject = Subject { namespace: namespace.to_owned(), ..Subject::default() };
    pinned.score(&subject, Question::EndpointPick, candidates).map(|decision| decision.answer.0.clone())
}

// The comparison with recorded questions blocks its thread, which a single-threaded runtime doesn't allow.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_traps_is_told_once_quarantined_and_stood_in_for_where_nothing_runs_yet() {
    let cluster = PolicyCluster::start().await;
    let engine = Engine::start(&cluster, "one", &compiled()).await;
    let panics = "(call $log (i32.const 2) (i32.const 3072) (i32.const 29)) unreachable";
    let data = format!(r#"{DESCRIPTION} (data (i32.const 3072) "panicked at src/lib.rs:7: why")"#);
    let traps = plugin(&Module { score: panics, data: data.leak(), ..Module::default() });
    cluster.config_map("traps", &traps).await;
    cluster.plugin_of_config_map("traps", json!({})).await;
    cluster.active("traps", &digest(&traps)).await;

    let undecided = scored(&engine.policies.pin(Standing::New)).unwrap_err();
    let why = "the plugin traps can't answer at scheduling-scoring: it trapped: panicked at src/lib.rs:7: why";
    assert!(undecided.to_string().contains(why), "{undecided}");
    // The plugin is quarantined for one namespace, and still called for others.
    let asked = |namespace| scored_in(&engine.policies.pin(Standing::New), namespace).unwrap_err().to_string();
    assert!((0..50).any(|_| asked("a").contains("it failed too often")), "{}", asked("a"));
    let undecided = scored_in(&engine.policies.pin(Standing::New), "b").unwrap_err();
    assert!(undecided.to_string().contains("it trapped"), "{undecided}");
    // The first quarantine only takes two seconds, and later ones are longer: with repeated calls, the status shows one in the end.
    let in_namespaces = |status: &_| {
        asked("a");
        condition(status, "Quarantined").is_some_and(|(_, reason, _)| reason == "InNamespaces")
    };
    let status = cluster.status("traps", "it is quarantined in a namespace", in_namespaces).await;
    let (now, _, message) = condition(&status, "Quarantined").unwrap();
    assert!(now == "False" && message.contains("failed too often in a and is quarantined there"), "{now} {message}");
    // There is one event for all failures, and then the quarantine for all namespaces.
    let quarantined = |is: &'static str| move |status: &_| condition(status, "Quarantined").is_some_and(|(now, ..)| now == is);
    let for_all = |status: &_| {
        for _ in 0..ERROR_BUDGET {
            for namespace in ["a", "b", "c"] {
                asked(namespace);
            }
        }
        quarantined("True")(status)
    };
    let status = cluster.status("traps", "it is quarantined", for_all).await;
    let (_, reason, message) = condition(&status, "Quarantined").unwrap();
    assert_eq!(reason, "Trapped");
    assert!(message.contains("panicked at src/lib.rs:7: why"), "{message}");
    assert_eq!(status.last_error.unwrap().message, "it trapped: panicked at src/lib.rs:7: why.");
    let events = eventually("the quarantine is told", async || {
        let events = cluster.events("traps").await;
        events.iter().any(|(reason, _)| reason == "Quarantined").then_some(events)
    })
    .await;
    assert!(events.iter().filter(|(reason, _)| reason == "Trapped").count() <= 1, "{events:?}");
    // The quarantine ends by itself, and the plugin is called again.
    cluster.status("traps", "its quarantine has ended", quarantined("False")).await;
    let undecided = scored(&engine.policies.pin(Standing::New)).unwrap_err();
    assert!(undecided.to_string().contains("it trapped"), "{undecided}");

    // With Skip, the other plugins decide for new subjects, and only for these.
    cluster.plugin_of_config_map("traps", json!({"failurePolicy": "Skip"})).await;
    eventually("it is skipped", async || scored(&engine.policies.pin(Standing::New)).ok()).await;
    scored(&engine.policies.pin(Standing::Running)).unwrap_err();

    // With Default, the built-in decides.
    cluster.plugin_of_config_map("traps", json!({"mode": "Replace", "failurePolicy": "Default"})).await;
    eventually("the built-in answers", async || {
        let pinned = engine.policies.pin(Standing::New);
        let candidates = Candidates { features: &[SCORER], values: &[1.0, 2.0] };
        let decision = pinned.score(&Subject::default(), Question::EndpointPick, candidates).ok()?;
        (decision.plugins.len() == 1 && decision.plugins[0].plugin == "scheduling-scoring").then_some(())
    })
    .await;
    scored(&engine.policies.pin(Standing::Running)).unwrap_err();
    engine.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_previous_revision_stands_in_for_a_newer_one_that_fails() {
    let cluster = PolicyCluster::start().await;
    let engine = Engine::start(&cluster, "one", &compiled()).await;
    let scores = "(i32.store (i32.const 20) (i32.const 64)) (i32.store (i32.const 24) (i32.const 2)) (f64.store (i32.const 72) (f64.const 1)) (i32.const 16)";
    let good = plugin(&Module { score: scores, data: DESCRIPTION, ..Module::default() });
    let bad = plugin(&Module { score: "unreachable", data: DESCRIPTION, ..Module::default() });
    let spec = json!({"failurePolicy": "Previous"});
    for bytes in [&good, &bad] {
        cluster.config_map("scores", bytes).await;
        cluster.plugin_of_config_map("scores", spec.clone()).await;
        cluster.active("scores", &digest(bytes)).await;
    }
    // The scores of the built-in, by the queue with its weight of 2 of 7, and those of the plugin, 0 and 1, added.
    assert_eq!(scored(&engine.policies.pin(Standing::New)).unwrap(), [Some(2.0 / 7.0), Some(1.0)]);
    scored(&engine.policies.pin(Standing::Running)).unwrap_err();
    engine.stop().await;
}
