//! Policies that fail while services are running.

use super::{INFERENCE_SERVICE, Space, condition, fixed, own_cluster, with_model};
use crate::sets::approve_waiting;
use pointsman_tests::{Host, TestCluster};
use serde_json::{Value, json};

/// Its response to `describe` and to any configuration.
const SAYS: &str = r#"{"ok": {"name": "traps", "points": ["pod-templating", "runtime-selection"]}}"#;

/// A command that traps if it is asked for a decision: it checks the first letter after `{"call":"`.
pub(crate) fn traps() -> Vec<u8> {
    command(None)
}

/// A command that requests a restart policy that no Deployment accepts.
pub(crate) fn spoils_pods() -> Vec<u8> {
    command(Some(r#"{"ok": {"operations": [{"action": "add", "path": "/spec/restartPolicy", "value": "Never", "layer": "plugin"}]}}"#))
}

/// A command with this answer to each question; without one, it traps.
fn command(answer: Option<&str>) -> Vec<u8> {
    let text = |text: &str| text.replace('"', "\\22");
    let (data, length) = (text(SAYS), SAYS.len());
    let answered = answer.map(|answer| {
        format!("(i32.store (i32.const 0) (i32.const 2048)) (i32.store (i32.const 4) (i32.const {}))", answer.len())
            + "(drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))) return"
    });
    let (on_question, answer) = (answered.unwrap_or_else(|| "unreachable".to_owned()), text(answer.unwrap_or_default()));
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 100) "{data}")
            (data (i32.const 2048) "{answer}")
            (func (export "_start")
                (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 10))
                (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
                (if (i32.gt_u (i32.load8_u (i32.const 1033)) (i32.const 100)) (then {on_question}))
                (i32.store (i32.const 0) (i32.const 100)) (i32.store (i32.const 4) (i32.const {length}))
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#
    );
    wat::parse_str(text).unwrap()
}

/// Makes a plugin that traps the only one at a policy point.
fn bind(cluster: &TestCluster, point: &str) {
    let plugin = json!({
        "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicyPlugin", "metadata": {"name": "traps"},
        "spec": {"points": [point], "mode": "Replace", "source": {"configMap": {"name": "traps"}}, "strategy": {"type": "Immediate"}},
    });
    cluster.apply(&plugin).ok();
}

#[tokio::test]
async fn while_a_plugin_fails_nothing_is_made_or_changed_and_without_it_all_goes_on() {
    let cluster = own_cluster(Some(&[]));
    let host = Host::start(&cluster, &[]).await;
    let space = Space::on(&cluster, "plugin").await;
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    let (pods, made) = (space.pod_uids("chat").await, space.made().await);

    let file = cluster.dir.join("plugin.wasm");
    std::fs::write(&file, traps()).unwrap();
    let from = format!("--from-file={}", file.display());
    cluster.kubectl(&["create", "configmap", "traps", "-n", pointsman_core::settings::HOST_NAMESPACE, &from]).ok();
    for (number, (point, step)) in [("pod-templating", "Decided"), ("runtime-selection", "RuntimeSelected")].into_iter().enumerate() {
        bind(&cluster, point);
        // The plan of a running service fails, which needs an approval; later, there are no plans left to lose.
        if number == 0 {
            approve_waiting(&cluster).await;
        }
        let said = space.says("chat", step, "False", "PolicyFailed").await;
        assert!(said.contains("Existing objects stay unchanged") && said.contains("the plugin traps can't answer"), "{said}");
        assert!(space.warned("chat", "PolicyFailed").await.contains("Existing objects stay unchanged"));
        let service = space.get(&INFERENCE_SERVICE, "chat").await;
        assert_eq!(
            (&condition(&service, "Ready")["status"], &condition(&service, "Applied")["status"]),
            (&json!("True"), &json!("Unknown")),
            "{:#}",
            service["status"]["conditions"]
        );
        assert_eq!(condition(&service, "EngineReady")["status"], "True", "it serves on");
        let later = format!("later-{number}");
        space.service(&later, with_model(json!({"engine": fixed(1)}))).await;
        let said = space.says(&later, step, "False", "PolicyFailed").await;
        assert!(said.contains("No object is created"), "{said}");
    }
    // A change of the service is held too.
    space.change("chat", json!({"engine": fixed(3)})).await;
    space.says("chat", "RuntimeSelected", "False", "PolicyFailed").await;
    assert_eq!((space.pod_uids("chat").await, space.made().await), (pods.clone(), made));

    cluster.kubectl(&["delete", "policyplugin", "traps"]).ok();
    for service in ["chat", "later-0", "later-1"] {
        space.ready(service).await;
    }
    let now = space.pod_uids("chat").await;
    assert_eq!((now.len(), now.is_superset(&pods)), (3, true));
    let service: Value = space.get(&INFERENCE_SERVICE, "chat").await;
    assert_eq!(condition(&service, "Decided")["status"], "True");
    host.stop();
}
