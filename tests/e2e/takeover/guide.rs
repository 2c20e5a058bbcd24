//! The guide is correct: its commands are run as written, and print the output that it shows.

use super::{adopt, engine_alone, home, run, unmarked};
use crate::services::{Space, own_cluster};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::PostParams};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE};
use pointsman_harness::workspace;
use pointsman_tests::{
    CommandOutput, Host, TestCluster, TestNamespace, eventually,
    guide::{Step, printed, shell, steps},
};
use serde_json::{Value, json};
use std::fs;

/// The cluster at the start of the guide.
async fn prepare(cluster: &TestCluster) -> Space<'_> {
    let client = cluster.client().await;
    for name in ["chat", "ome"] {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    }
    cluster.kubectl(&["-n", "ome", "create", "deployment", "ome-controller-manager", "--image=example.com/ome:1"]).ok();
    cluster.kubectl(&["-n", "ome", "create", "service", "clusterip", "ome-webhook-server-service", "--tcp=443:9443"]).ok();
    let space = Space(TestNamespace { cluster, client, name: "chat".to_owned() });
    space.furnish().await;
    engine_alone(&space, "llama-chat", json!({})).await;
    assert_eq!(space.get(&INFERENCE_SERVICE, "llama-chat").await["metadata"]["finalizers"], Value::Null);
    run(&space, 2).await;
    add_webhooks(cluster);
    space
}

/// Configures the API server to call the other controller's webhooks, which don't run here.
fn add_webhooks(cluster: &TestCluster) {
    let webhook = |does: &str, group: &str, resource: &str, operations: Value| {
        let service = json!({"name": "ome-webhook-server-service", "namespace": "ome", "path": format!("/{does}")});
        json!({
            "name": format!("inferenceservice.ome-webhook-server.{does}"), "clientConfig": {"service": service}, "failurePolicy": "Fail",
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": operations}],
        })
    };
    let mut of_pods = webhook("pod-mutator", "", "pods", json!(["CREATE"]));
    of_pods["objectSelector"] = json!({"matchExpressions": [{"key": "ome.io/inferenceservice", "operator": "Exists"}]});
    let of_services = |does: &str| webhook(does, "ome.io", "inferenceservices", json!(["CREATE", "UPDATE"]));
    for (kind, webhooks) in [
        ("MutatingWebhookConfiguration", json!([of_services("defaulter"), of_pods])),
        ("ValidatingWebhookConfiguration", json!([of_services("validator")])),
    ] {
        let metadata = json!({"name": "inferenceservice.ome.io"});
        let configuration =
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "webhooks": webhooks});
        cluster.apply(&configuration).ok();
    }
}

/// The configured webhooks.
fn webhooks(cluster: &TestCluster) -> Vec<Value> {
    let kinds = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];
    let read =
        |kind| -> Value { serde_json::from_str(&cluster.kubectl(&["get", kind, "inferenceservice.ome.io", "-o", "json"]).ok()).unwrap() };
    kinds.map(|kind| read(kind)["webhooks"].clone()).into()
}

/// Waits until a service can be written, or can't. The API server takes a moment to apply webhook configurations.
async fn writable(space: &Space<'_>, can_be: bool) -> CommandOutput {
    eventually("the API server knows its webhooks", async || {
        let said = space.kubectl(&["annotate", "isvc/llama-chat", "example.com/x=y", "--dry-run=server"]);
        (said.success == can_be).then_some(said)
    })
    .await
}

/// The webhooks don't respond any more: this is reported, and nothing is done.
async fn unanswered(space: &Space<'_>) {
    let said = writable(space, false).await;
    assert!(said.stderr.contains("failed calling webhook"), "{}", said.stderr);
    for args in [&["--force"][..], &["--force", "--yes"]] {
        let refused = adopt(space, &[&["isvc/llama-chat"], args].concat());
        assert_eq!(refused.code, Some(2), "{}{}", refused.stdout, refused.stderr);
        for words in [
            "refused: The API server rejects the InferenceService chat/llama-chat",
            "failed calling webhook \"inferenceservice.ome-webhook-server.defaulter\"",
            "Start the server of that webhook, or delete its",
        ] {
            assert!(refused.stdout.contains(words), "{words}: {}", refused.stdout);
        }
    }
    assert!(unmarked(&space.get(&DEPLOYMENT, "llama-chat-engine").await));
}

#[test]
fn what_is_printed_is_compared_line_by_line_with_gaps() {
    assert!(printed("a\nb \n\nc", "a\nb\nc") && printed("a\nb\nc", "...\nc") && printed("a b\nc", "a ...\n..."));
    assert!(!printed("a\nb", "a") && !printed("a", "a\nb") && !printed("b\na", "a\n...") && !printed("a\nc", "...\nb\n..."));
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_guide_leads_from_the_other_controller_to_us_and_back() {
    let guide = fs::read_to_string(workspace().join("docs/migration.md")).unwrap();
    let cluster = own_cluster(Some(&[]));
    home(&cluster).await;
    let space = prepare(&cluster).await;
    let host = Host::start(&cluster, &["--control", "InferenceService:chat"]).await;
    host.ready().await;
    let (asked, folder) = (webhooks(&cluster), cluster.dir.join("guide"));
    fs::create_dir(&folder).unwrap();
    let steps = steps(&guide);
    assert!(steps.len() > 6, "the guide has steps");
    let mut freed = 0;
    for Step { commands, output } in steps {
        let frees = commands.contains("delete -f webhooks.yaml");
        if frees {
            unanswered(&space).await;
        }
        let said = shell(&cluster, &folder, &commands).ok();
        if let Some(output) = output {
            assert!(printed(&said, &output), "{commands}\nprinted\n{said}\nand is said to print\n{output}");
        }
        if frees {
            writable(&space, true).await;
            freed += 1;
        }
    }
    assert_eq!((freed, webhooks(&cluster)), (1, asked), "what was deleted once has come back");
    host.stop();
}
