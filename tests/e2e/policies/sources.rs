//! A slow source delays no other plugin.

use super::digest;
use futures::{FutureExt, future::BoxFuture};
use pointsman::{
    problem::Problem,
    source::{Source, SourceView, builtin::Builtin, config_map::ConfigMaps},
};
use pointsman_crds::policy::plugin::PluginSource;
use pointsman_tests::{Engine, PolicyCluster, compiled, condition, eventually, plugin_bytes, with_other_digest};
use serde_json::json;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::sync::Semaphore;

const LABELS: &str = "pointsman-example-rust-labels";

/// Replaces the source `file`, and returns a plugin once it has a permit.
#[derive(Debug)]
struct Slow {
    may: Semaphore,
    /// How often a read has begun.
    reads: AtomicUsize,
    deadline: Duration,
}

impl Source for Slow {
    fn field(&self) -> &'static str {
        "file"
    }

    fn title(&self, source: &PluginSource) -> Option<String> {
        source.file.as_ref().map(|file| file.path.clone())
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn read(&self, _: PluginSource, _: SourceView) -> BoxFuture<'static, Result<Option<Vec<u8>>, Problem>> {
        // The engine requires sources with a static lifetime.
        let slow: &'static Self = [&PATIENT, &DELETED, &HURRIED].into_iter().find(|slow| slow.deadline == self.deadline).unwrap();
        slow.reads.fetch_add(1, Ordering::Relaxed);
        async {
            slow.may.acquire().await.unwrap().forget();
            Ok(Some(with_other_digest(&plugin_bytes(LABELS), 7)))
        }
        .boxed()
    }
}

static PATIENT: Slow = Slow { may: Semaphore::const_new(0), reads: AtomicUsize::new(0), deadline: Duration::from_mins(10) };
static DELETED: Slow = Slow { may: Semaphore::const_new(0), reads: AtomicUsize::new(0), deadline: Duration::from_mins(11) };
static HURRIED: Slow = Slow { may: Semaphore::const_new(0), reads: AtomicUsize::new(0), deadline: Duration::from_millis(50) };

/// The sources with one of these instead of files.
static WITH_PATIENT: [&dyn Source; 3] = [&Builtin, &PATIENT, &ConfigMaps];
static WITH_DELETED: [&dyn Source; 3] = [&Builtin, &DELETED, &ConfigMaps];
static WITH_HURRIED: [&dyn Source; 3] = [&Builtin, &HURRIED, &ConfigMaps];

#[tokio::test]
async fn while_a_source_is_being_read_other_plugins_are_updated() {
    let cluster = PolicyCluster::start().await;
    let engine = Engine::start_with_sources(&cluster, "one", &compiled(), &WITH_PATIENT).await;
    let points = json!(["metadata-propagation"]);
    let slow = |label: &str| json!({"points": points, "source": {"file": {"path": "slow"}}, "config": {"label": label}});
    cluster.plugin("slow", slow("first")).await;

    let mut bytes = plugin_bytes(LABELS);
    for number in 0..3 {
        cluster.config_map("labels", &bytes).await;
        cluster.plugin_of_config_map("labels", json!({"points": points})).await;
        cluster.active("labels", &digest(&bytes)).await;
        bytes = with_other_digest(&bytes, number);
        // A change of the slow plugin doesn't delay the others either.
        cluster.plugin("slow", slow("second")).await;
    }
    assert!(engine.policies.active().member("slow").is_none());

    // After the read for the first state, the source is read again for the newest one.
    PATIENT.may.add_permits(2);
    cluster.active("slow", &digest(&with_other_digest(&plugin_bytes(LABELS), 7))).await;
    let config = || engine.policies.active().member("slow").and_then(|member| member.bound.config.clone());
    eventually("its newest state is active", async || (config().as_deref() == Some(r#"{"label":"second"}"#)).then_some(())).await;
    engine.stop().await;
}

#[tokio::test]
async fn what_was_read_for_a_deleted_plugin_is_not_taken_for_another_of_its_name() {
    let cluster = PolicyCluster::start().await;
    let engine = Engine::start_with_sources(&cluster, "one", &compiled(), &WITH_DELETED).await;
    let spec = |label: &str| json!({"points": ["metadata-propagation"], "source": {"file": {"path": "slow"}}, "config": {"label": label}});
    let is_read_for =
        async |times: usize| eventually("it is being read", async || (DELETED.reads.load(Ordering::Relaxed) == times).then_some(())).await;
    cluster.plugin("slow", spec("former")).await;
    is_read_for(1).await;
    cluster.delete_plugin("slow").await;
    cluster.plugin("slow", spec("newer")).await;
    is_read_for(2).await;

    // The first read ends first. The update of another plugin shows that the keeper has processed it.
    DELETED.may.add_permits(1);
    let bytes = plugin_bytes(LABELS);
    cluster.config_map("labels", &bytes).await;
    cluster.plugin_of_config_map("labels", json!({"points": ["metadata-propagation"]})).await;
    cluster.active("labels", &digest(&bytes)).await;
    assert!(engine.policies.active().member("slow").is_none());

    DELETED.may.add_permits(1);
    cluster.active("slow", &digest(&with_other_digest(&bytes, 7))).await;
    let config = engine.policies.active().member("slow").unwrap().bound.config.clone();
    assert_eq!(config.as_deref(), Some(r#"{"label":"newer"}"#));
    engine.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_source_that_gives_nothing_within_its_deadline_is_told_and_tried_again() {
    let cluster = PolicyCluster::start().await;
    let engine = Engine::start_with_sources(&cluster, "one", &compiled(), &WITH_HURRIED).await;
    cluster.plugin("slow", json!({"points": ["metadata-propagation"], "source": {"file": {"path": "slow"}}})).await;
    let (reason, message) = cluster.refused("slow").await;
    assert_eq!(reason, "SourceTimeout");
    assert!(message.contains("source.file: no bytes arrived within 50ms; trying again."), "{message}");

    HURRIED.may.add_permits(1);
    let status = cluster.active("slow", &digest(&with_other_digest(&plugin_bytes(LABELS), 7))).await;
    assert!(condition(&status, "Loaded").is_some_and(|(state, ..)| state == "True"));
    engine.stop().await;
}
