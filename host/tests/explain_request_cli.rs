//! `pointsman explain request`, run as users and programs run it, with a picker's records from a file or an address.

use crate::program::{empty_folder, ended};
use pointsman_sandbox::{builtin, digest::Digest};
use serde_json::{Value, json};
use std::{fs, path::PathBuf};

/// A decision of this build's built-in policy between two endpoints.
fn record(request: &str) -> Value {
    let config = json!({"endpointPick": {"scorers": [{"type": "queue-scorer", "weight": 1.0}, {"type": "kv-cache-utilization-scorer", "weight": 1.0}]}});
    let builtin = builtin::find("scheduling-scoring").unwrap();
    let features = |queue: u64, usage: f64| json!({"queue-length": queue, "kv-cache-utilization": usage, "prefix-match": null});
    json!({
        "number": 5, "request": request, "time": "2026-11-26T15:00:00.5Z", "pool": "models/llama", "model": "llama", "flow": "default-flow",
        "priority": 0, "promptTokens": 40, "poolEndpoints": 2, "sent": ["10.0.0.2:8000"],
        "profiles": [{
            "name": "default", "picker": "max-score-picker", "seed": 7,
            "policy": {
                "name": "scheduling-scoring",
                "digest": Digest::hash(builtin.bytes).to_string(),
                "features": ["queue-length", "kv-cache-utilization", "prefix-match"],
                "config": config,
                "configDigest": Digest::hash(config.to_string().as_bytes()).to_string(),
            },
            "endpoints": [
                {"pod": "llama-1", "address": "10.0.0.2:8000", "chosen": true, "score": 0.9, "features": features(0, 0.2)},
                {"pod": "llama-0", "address": "10.0.0.1:8000", "score": 0.45, "features": features(6, 0.1)},
            ],
        }],
    })
}

/// A folder with the response of a picker, newest decision first.
fn folder(name: &str, records: &[Value]) -> PathBuf {
    let folder = empty_folder(name);
    fs::write(folder.join("decisions.jsonl"), records.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")).unwrap();
    folder
}

#[test]
fn the_built_in_policy_is_asked_again_and_its_parts_are_compared() {
    let folder = folder("explain-request-cli/builtin", &[record("newest"), record("older")]);
    let (text, said) = ended(0, &folder, &["explain", "request", "-f", "decisions.jsonl"], "");
    assert!(text.starts_with("request    newest\n") && said.is_empty(), "{text}{said}");
    assert!(
        text.contains("\nQueue     0.5000          0.0000          +0.5000\nKvCache   0.4000          0.4500          -0.0500\n"),
        "{text}"
    );
    let verdict =
        "Queue made the difference between 10.0.0.2:8000 and 10.0.0.1:8000: +0.5000 of +0.4500; KvCache (-0.0500) counted against it.";
    assert_eq!(text.trim_end().lines().last(), Some(verdict), "{text}");

    let lines = fs::read_to_string(folder.join("decisions.jsonl")).unwrap();
    let (printed, _) = ended(0, &folder, &["explain", "request", "older", "-f", "-", "-o", "json"], &lines);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let explanation = &printed["explanations"][0];
    assert_eq!((&printed["record"]["request"], &explanation["verdict"]), (&json!("older"), &json!(verdict)));
    assert_eq!((&explanation["chosen"], &explanation["runnerUp"]), (&json!("10.0.0.2:8000"), &json!("10.0.0.1:8000")));
    assert_eq!((&explanation["parts"][0]["code"], &explanation["parts"][0]["chosen"]["value"]), (&json!("Queue"), &json!(0.5)));
    assert!(printed["record"]["profiles"][0]["endpoints"][0]["features"]["prefix-match"].is_null());
}

#[test]
fn scores_alone_are_shown_where_another_policy_has_scored() {
    let mut other = record("other");
    other["profiles"][0]["policy"]["digest"] = json!(Digest::hash(b"another version").to_string());
    let folder = folder("explain-request-cli/other", &[other]);
    let (text, _) = ended(0, &folder, &["explain", "request", "other", "-f", "decisions.jsonl"], "");
    assert!(
        text.contains("another version's built-in policy scored: use that version, or set --policy to the plugin sha256:")
            && !text.contains("DIFFERENCE"),
        "{text}"
    );
    fs::write(folder.join("wrong.wasm"), b"wrong").unwrap();
    let (text, _) = ended(0, &folder, &["explain", "request", "-f", "decisions.jsonl", "--policy", "wrong.wasm"], "");
    assert!(text.contains("--policy has the digest sha256:") && text.contains("has the better score, by 0.4500"), "{text}");
}

#[test]
fn what_is_missing_or_no_record_is_an_error_and_services_are_explained_as_before() {
    let folder = folder("explain-request-cli/wrong", &[record("there")]);
    fs::write(folder.join("broken.jsonl"), "{\"number\": 1}\nnonsense\n").unwrap();
    let cases: [(i32, &[&str], &str); 4] = [
        (1, &["absent", "-f", "decisions.jsonl"], "has no decision about the request \"absent\""),
        (1, &["absent", "-f", "broken.jsonl"], "line 2: it is not a decision of a picker"),
        (3, &["-f", "nowhere.jsonl"], "nowhere.jsonl"),
        (64, &["--picker", "localhost"], "expected ADDRESS:PORT"),
    ];
    for (code, words, says) in cases {
        let (printed, said) = ended(code, &folder, &[&["explain", "request"], words].concat(), "");
        assert!(printed.is_empty() && said.starts_with("error: ") && said.contains(says), "{said}");
    }
    ended(64, &folder, &["explain", "request"], "");
    ended(64, &folder, &["explain", "-f", "decisions.jsonl", "request"], "");
    let (_, said) = ended(64, &folder, &["explain"], "");
    assert!(said.contains("nothing to explain: specify KIND/NAME"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picker_that_runs_is_asked_at_its_port() {
    use pointsman::endpoint_picker::decisions::{Decisions, route::routes};
    use std::sync::Arc;

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, routes(Arc::new(Decisions::new(0)))).await });
    let folder = empty_folder("explain-request-cli/port");
    let (_, said) = tokio::task::spawn_blocking(move || ended(1, &folder, &["explain", "request", "--picker", &port], "")).await.unwrap();
    assert!(said.contains("with status 404: no decisions are recorded: set the picker's flag --record-decisions"), "{said}");
}
