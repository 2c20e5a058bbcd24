//! Recorded placements: `pointsman explain pod/NAME` and `pointsman plugin diff`, with records from a file or from addresses.

use crate::program::{CHAT, empty_folder, ended};
use axum::{Router, routing::get};
use pointsman_harness::plugins::plugin;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tokio::{net::TcpListener, task::spawn_blocking};

/// A pod of a service with two candidate nodes: the first has its images, and the second is cheaper.
fn placement(name: &str) -> Value {
    json!({
        "at": 1_700_000_000, "namespace": "ml", "name": name, "uid": "u", "set": "sha256:ab", "plugins": ["scheduling-scoring"],
        "subject": {"group": "ome.io", "version": "v1beta1", "kind": "InferenceService", "namespace": "ml", "name": "chat"},
        "features": ["image-share", "price"], "nodes": ["gpu-1", "gpu-2"], "values": [1, 9, 0, 2],
        "scores": [0.6, 0.4], "ranks": [10, 9], "nodesLeftOut": 7,
    })
}

/// A folder with records and a service. It has no PolicyPlugins, so the built-in policies decide.
fn folder(name: &str, placements: &[Value]) -> PathBuf {
    let folder = empty_folder(name);
    fs::write(folder.join("service.yaml"), CHAT).unwrap();
    fs::write(folder.join("placements.json"), json!({"placements": placements}).to_string()).unwrap();
    folder
}

/// Compares the built-in policy with itself, with these additional flags.
fn diff(code: i32, folder: &Path, flags: &[&str]) -> (String, String) {
    let policy = plugin("pointsman-scheduling-scoring");
    let fixed = ["plugin", "diff", policy.to_str().unwrap(), "--name", "scheduling-scoring", "-f", "service.yaml"];
    ended(code, folder, &[&fixed[..], flags].concat(), "")
}

const CHEAP: [&str; 2] = ["--config", r#"{"nodePlacement": {"maxPrice": 5}}"#];

const RECORDED: [&str; 2] = ["--placements", "placements.json"];

/// An extender that responds with these placements to every request. Returns its address.
async fn extender(placements: &[Value]) -> String {
    let answer = json!({"placements": placements}).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let route = get(move || {
        let answer = answer.clone();
        async move { answer }
    });
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/placements", route)).await });
    address
}

/// An address that nothing listens on.
async fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn recorded_placements_are_scored_by_both_versions() {
    let mut unknown = placement("old");
    unknown.as_object_mut().unwrap().remove("subject");
    let folder = folder("placements-cli/file", &[placement("llama-0"), unknown]);
    let (same, _) = diff(0, &folder, &RECORDED);
    let nothing = "1 placement; another node is the best: 0, the first ten nodes change: 0, no answer any more: 0, \
        nodes become excluded: 0, nodes become allowed: 0";
    assert!(same.starts_with("not compared: 1 placement, because the subject") && same.trim_end().ends_with(nothing), "{same}");

    let cheap = [&CHEAP[..], &RECORDED].concat();
    let (other, _) = diff(2, &folder, &cheap);
    assert!(other.starts_with("ml/llama-0: gpu-1 (0.") && other.contains(" -> gpu-2 (0."), "{other}");
    let changes = "1 placement; another node is the best: 1, the first ten nodes change: 1, no answer any more: 0, \
        nodes become excluded: 1, nodes become allowed: 0";
    assert!(other.trim_end().ends_with(changes), "{other}");
    let (summary, _) = diff(2, &folder, &[&cheap[..], &["--summary"]].concat());
    assert!(!summary.contains("llama-0") && summary.trim_end().ends_with(changes), "{summary}");

    let (printed, _) = diff(2, &folder, &[&cheap[..], &["-o", "json"]].concat());
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let change = &printed["best"][0];
    assert_eq!(
        (&change["name"], &change["before"]["node"], &change["after"]["node"]),
        (&json!("llama-0"), &json!("gpu-1"), &json!("gpu-2"))
    );
    assert_eq!((&printed["compared"], &printed["incomplete"], &printed["excluded"]), (&json!(1), &json!(1), &json!(1)));

    diff(0, &folder, &[&RECORDED[..], &["--for", "ml/chat"]].concat());
    let (_, said) = diff(1, &folder, &[&RECORDED[..], &["--for", "ml/other"]].concat());
    assert!(said.contains("there is no placement to compare"), "{said}");
}

#[test]
fn what_is_no_record_or_cannot_be_asked_again_is_an_error() {
    let mut unknown = placement("old");
    unknown["values"] = json!([]);
    let folder = folder("placements-cli/wrong", &[unknown]);
    let (_, said) = diff(1, &folder, &RECORDED);
    assert!(
        said.contains("no placement can be compared: the subject or the features of the nodes aren't recorded (1 placement)"),
        "{said}"
    );
    fs::write(folder.join("placements.json"), "[]").unwrap();
    let (_, said) = diff(1, &folder, &RECORDED);
    assert!(said.contains("placements.json: it is not a response of a scheduler extender's /placements"), "{said}");
    let (_, said) = diff(64, &folder, &["--extender", "localhost"]);
    assert!(said.contains("--extender localhost: expected ADDRESS:PORT"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_that_does_not_answer_is_skipped_as_long_as_another_one_answers() {
    let (there, away) = (extender(&[placement("llama-0")]).await, closed().await);
    let asked = spawn_blocking(move || {
        let folder = folder("placements-cli/ports", &[]);
        let explain = ["explain", "pod/llama-0", "-n", "ml", "--extender", &away];
        let (text, said) = ended(0, &folder, &[&explain[..], &["--extender", &there]].concat(), "");
        assert!(text.contains("gpu-2   0.4000   9\nand 7 further nodes\n"), "{text}");
        let skipped = |said: &str| said.contains(&format!("the extender at {away} doesn't answer")) && said.contains("omitted");
        assert!(skipped(&said), "{said}");
        let (text, said) = ended(1, &folder, &explain, "");
        assert!(text.is_empty() && said.starts_with(&format!("error: the extender at {away} doesn't answer")), "{text}{said}");

        let (text, said) = diff(2, &folder, &[&CHEAP[..], &["--extender", &away, "--extender", &there]].concat());
        assert!(text.starts_with("ml/llama-0: gpu-1") && skipped(&said), "{text}{said}");
    });
    asked.await.unwrap();
}
