//! The pod of a BenchmarkJob.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask};
use pointsman_plugin::Role;
use serde_json::{Value, json};

/// The host's frame with these layers.
fn benchmark<const N: usize>(layers: [(&str, Value); N]) -> TestRequest {
    let mut asked = ask(layers).role(Role::Job);
    asked.request.subject.kind = "BenchmarkJob".into();
    let container = json!({
        "name": "genai-bench", "image": "genai-bench:1", "command": ["genai-bench"], "args": ["benchmark", "--task", "{{.Name}}"],
        "env": [{"name": "MODEL_API_KEY", "value": "none"}], "resources": {"limits": {"cpu": "2"}},
    });
    asked.template(&json!({"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}))
}

#[test]
fn the_benchmark_changes_what_the_host_gives_and_nothing_else_is_added() {
    let secret = json!({"name": "MODEL_API_KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let user = json!({"pod": {"nodeSelector": {"pool": "cpu"}}, "runner": {"image": "mine:2", "env": [secret], "resources": {"limits": {"cpu": "4"}}}});
    let spec = benchmark([("user", user)]).spec();
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["nodeSelector"], json!({"pool": "cpu"}));
    let expected = json!([{
        "name": "genai-bench", "image": "mine:2", "command": ["genai-bench"], "args": ["benchmark", "--task", "{{.Name}}"],
        "env": [secret], "resources": {"limits": {"cpu": "4"}},
    }]);
    assert_eq!(spec["containers"], expected, "no probe, no placeholder");
}

#[test]
fn the_tokenizer_comes_from_nodes_that_have_the_model() {
    let model = json!({"name": "llama", "path": "/mnt/models/llama", "storageUri": "hf://a/b", "nodeLabel": "models.ome.io/clusterbasemodel.llama"});
    let asked = benchmark([("user", json!({})), ("model", model)]);
    let spec = asked.spec();
    assert_eq!(spec["nodeSelector"], json!({"models.ome.io/clusterbasemodel.llama": "Ready"}));
    assert_eq!(spec["volumes"], json!([{"name": "model", "hostPath": {"path": "/mnt/models/llama"}}]));
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([{"name": "model", "mountPath": "/mnt/models/llama", "readOnly": true}]));
    assert_eq!(asked.codes(), ["ModelFromNode", "Placement"]);
}

#[test]
fn a_dataset_is_downloaded_with_its_secret_or_mounted() {
    let dataset = |uri: &str, path: &str| json!({"name": "d.csv", "storageUri": uri, "path": path});
    let user = json!({"pod": {"initContainers": [{"name": "dataset-initializer", "envFrom": [{"secretRef": {"name": "creds"}}]}]}});
    let spec = benchmark([("user", user), ("dataset", dataset("s3://b/d.csv", "/mnt/dataset"))]).spec();
    let initializer = &spec["initContainers"][0];
    assert_eq!((&initializer["name"], &initializer["args"]), (&json!("dataset-initializer"), &json!(["s3://b/d.csv", "/mnt/dataset"])));
    assert_eq!(initializer["envFrom"], json!([{"secretRef": {"name": "creds"}}]));
    assert!(spec["containers"][0].get("envFrom").is_none());
    let spec = benchmark([("dataset", dataset("pvc://data/sets/d.csv", "/mnt/dataset/d.csv"))]).spec();
    let mount = json!({"name": "dataset", "mountPath": "/mnt/dataset/d.csv", "subPath": "sets/d.csv", "readOnly": true});
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount]));
    assert!(spec.get("initContainers").is_none());
}

#[test]
fn the_settings_of_the_page_act() {
    let settings =
        json!({"security.ome.io/secret-ref": "s", "security.ome.io/pod-security-policy": "restricted", "oci.ome.io/region": "r"});
    let container = benchmark([("settings", settings)]).container();
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "s"}}]));
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert!(container["env"].as_array().unwrap().contains(&json!({"name": "OCI_REGION", "value": "r"})));
    let privileged = json!({"runner": {"securityContext": {"privileged": true}}});
    let asked = benchmark([("user", privileged), ("settings", json!({"security.ome.io/pod-security-policy": "baseline"}))]);
    assert!(asked.failure().contains("forbids"), "{}", asked.failure());
}
