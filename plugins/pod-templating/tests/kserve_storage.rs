//! LLMInferenceServices: how the model and its adapters are provided in the pod.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, llm, main};
use serde_json::{Value, json};

fn model(uri: &str) -> Value {
    json!({"uri": uri, "name": "llama", "initializer": true, "adapters": []})
}

fn with(model: Value, fields: Value) -> TestRequest {
    llm([("preset", main(fields)), ("model", model)])
}

fn mount(name: &str, path: &str) -> Value {
    json!({"name": name, "mountPath": path, "readOnly": true})
}

fn initializer(suffix: &str, uri: &str, path: &str) -> Value {
    json!({
        "name": format!("storage-initializer{suffix}"),
        "image": "kserve/storage-initializer:v0.18.0",
        "args": [uri, path],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": format!("kserve-provision-location{suffix}"), "mountPath": path}],
    })
}

#[test]
fn an_init_container_downloads_the_model() {
    for uri in ["s3://bucket/llama", "gs://bucket/llama", "http://host/llama", "https://host/llama.tar.gz"] {
        let asked = with(model(uri), json!({}));
        let spec = asked.spec();
        assert_eq!(spec["initContainers"], json!([initializer("", uri, "/mnt/models")]));
        assert_eq!(spec["volumes"], json!([{"name": "kserve-provision-location", "emptyDir": {}}]));
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount("kserve-provision-location", "/mnt/models")]));
        assert_eq!(
            asked.said("ModelDownloaded"),
            format!("At /mnt/models is the model llama, which an init container downloads from {uri}.")
        );
        assert!(asked.steps().iter().any(|step| step.starts_with("model + /spec/initContainers")), "{:#?}", asked.steps());
    }
    let spec = with(model("hf://meta/llama"), json!({})).config(json!({"storageInitializer": "mirror/init:1"})).spec();
    assert_eq!(spec["initContainers"][0]["image"], "mirror/init:1");
    let names: Vec<_> = spec["initContainers"][0]["env"].as_array().unwrap().iter().map(|variable| variable["name"].clone()).collect();
    assert_eq!(names, ["HF_HUB_ENABLE_HF_TRANSFER", "HF_XET_HIGH_PERFORMANCE", "HF_XET_NUM_CONCURRENT_RANGE_GETS"]);
}

#[test]
fn what_a_layer_says_of_the_init_container_and_its_volume_counts() {
    let user = json!({"pod": {
        "initContainers": [
            {"name": "first", "image": "f"},
            {"name": "storage-initializer", "env": [{"name": "HF_TOKEN", "value": "t"}], "resources": {"limits": {"memory": "8Gi"}}},
        ],
        "volumes": [{"name": "kserve-provision-location", "emptyDir": {"sizeLimit": "1Ti"}}],
    }});
    let spec = llm([("preset", main(json!({}))), ("user", user), ("model", model("s3://b/m"))]).spec();
    let mut expected = initializer("", "s3://b/m", "/mnt/models");
    expected["env"] = json!([{"name": "HF_TOKEN", "value": "t"}]);
    expected["resources"]["limits"]["memory"] = json!("8Gi");
    assert_eq!(spec["initContainers"], json!([{"name": "first", "image": "f"}, expected]));
    assert_eq!(spec["volumes"], json!([{"name": "kserve-provision-location", "emptyDir": {"sizeLimit": "1Ti"}}]));
    let other = json!({"pod": {"initContainers": [{"name": "warm-up", "image": "w"}]}});
    let spec = llm([("preset", main(json!({}))), ("user", other), ("model", model("s3://b/m"))]).spec();
    assert_eq!(spec["initContainers"][1]["name"], "warm-up", "others may want the files");
}

#[test]
fn a_claim_is_mounted() {
    for (uri, part) in [("pvc://claim/a/b/", Some("a/b")), ("pvc://prod:claim/a", Some("a")), ("pvc://claim", None), ("pvc://claim/", None)]
    {
        let spec = with(model(uri), json!({})).spec();
        assert_eq!(spec["volumes"], json!([{"name": "model", "persistentVolumeClaim": {"claimName": "claim", "readOnly": true}}]));
        let mut expected = mount("model", "/mnt/models");
        if let Some(part) = part {
            expected["subPath"] = json!(part);
        }
        assert_eq!((&spec["containers"][0]["volumeMounts"], spec.get("initContainers")), (&json!([expected]), None), "{uri}");
    }
}

#[test]
fn a_claim_that_cannot_be_mounted_is_refused() {
    assert_eq!(
        with(model("pvc://shared:claim/a"), json!({})).failure(),
        "the model llama is in the claim claim of the namespace shared, but a pod can only mount claims of its own namespace, prod: serve \
         it in shared, or create a claim in prod and use that"
    );
    for uri in ["pvc://", "pvc:///a", "pvc://prod:/a"] {
        assert_eq!(with(model(uri), json!({})).failure(), format!("the URI {uri} of the model llama has no claim: write pvc://CLAIM/PATH"));
    }
}

#[test]
fn an_image_is_mounted_as_a_volume() {
    let asked = with(model("oci://registry/llama:1"), json!({}));
    let spec = asked.spec();
    assert_eq!(spec["volumes"], json!([{"name": "model", "image": {"reference": "registry/llama:1", "pullPolicy": "IfNotPresent"}}]));
    let mut expected = mount("model", "/mnt/models");
    expected["subPath"] = json!("models");
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([expected]));
    assert!(asked.said("ModelFromImage").ends_with("for that the cluster needs Kubernetes' image volumes."));
    assert_eq!(spec.get("shareProcessNamespace"), None);
}

#[test]
fn what_is_mounted_there_already_stays() {
    let fields = json!({"volumeMounts": [{"name": "mine", "mountPath": "/mnt/models/"}]});
    for uri in ["hf://meta/llama", "pvc://claim", "oci://image"] {
        let asked = with(model(uri), fields.clone());
        let spec = asked.spec();
        assert_eq!((&spec["containers"][0]["volumeMounts"], spec.get("volumes")), (&fields["volumeMounts"], None));
        assert_eq!(spec.get("initContainers"), None);
        assert_eq!(asked.said("ModelMountKept"), "Something is mounted at /mnt/models already, so the model llama isn't.");
    }
}

#[test]
fn without_the_initializer_nothing_is_added() {
    let adapters = json!([{"uri": "hf://a/b", "name": "a"}]);
    let left = json!({"uri": "ftp://host/llama", "name": "llama", "initializer": false, "adapters": adapters});
    let asked = with(left, json!({}));
    assert_eq!(asked.spec().as_object().unwrap().len(), 1);
    assert_eq!(asked.codes(), ["ModelLeft", "ReadinessProbe"]);
    assert_eq!(llm([("preset", main(json!({}))), ("model", Value::Null)]).codes(), ["ReadinessProbe"]);
}

#[test]
fn a_uri_that_cannot_be_fetched_is_refused() {
    for uri in ["ftp://host/llama", "meta/llama", "", "hf://", "oci://"] {
        let said = with(model(uri), json!({})).failure();
        assert!(said.starts_with(&format!("the URI {uri:?} of the model llama can't be downloaded: start it with hf://, s3://")), "{said}");
        assert!(said.contains("pvc:// or oci://") && said.contains("spec.storageInitializer.enabled: false"), "{said}");
    }
    assert!(with(json!({"name": "llama"}), json!({})).failure().starts_with("the URI \"\" of the model llama"));
}

fn adapted(adapters: Value, fields: Value) -> TestRequest {
    with(json!({"uri": "pvc://claim", "name": "llama", "adapters": adapters}), fields)
}

#[test]
fn adapters_are_brought_as_models_are() {
    let adapters = json!([
        {"uri": "s3://b/sql", "name": "sql"}, {"uri": "pvc://claim/chat", "name": "org/chat"}, {"uri": "oci://image", "name": "law"},
    ]);
    let asked = adapted(adapters, json!({"command": ["vllm", "serve", "/mnt/models"], "args": ["--served-model-name=a"]}));
    let spec = asked.spec();
    assert_eq!(spec["initContainers"], json!([initializer("-lora-1", "s3://b/sql", "/mnt/lora/sql")]));
    let names: Vec<_> = spec["volumes"].as_array().unwrap().iter().map(|volume| volume["name"].clone()).collect();
    assert_eq!(names, ["model", "kserve-provision-location-lora-1", "model-lora-2", "model-lora-3"]);
    let mut expected = [
        mount("model", "/mnt/models"),
        mount("kserve-provision-location-lora-1", "/mnt/lora/sql"),
        mount("model-lora-2", "/mnt/lora/org/chat"),
        mount("model-lora-3", "/mnt/lora/law"),
    ];
    expected[2]["subPath"] = json!("chat");
    expected[3]["subPath"] = json!("models");
    assert_eq!(spec["containers"][0]["volumeMounts"], json!(expected));
    let modules = ["sql=/mnt/lora/sql", "org/chat=/mnt/lora/org/chat", "law=/mnt/lora/law"];
    let args = [&["--served-model-name=a", "--enable-lora", "--lora-modules"][..], &modules].concat();
    assert_eq!(spec["containers"][0]["args"], json!(args));
    assert_eq!(asked.codes(), ["ModelFromClaim", "ModelDownloaded", "ModelFromClaim", "ModelFromImage", "ReadinessProbe"]);
}

#[test]
fn who_tells_of_the_adapters_is_believed() {
    let args = |command: Value, given: &[&str]| {
        let given: Vec<_> = ["--served-model-name=a"].iter().chain(given).collect();
        let asked = adapted(json!([{"uri": "pvc://a", "name": "a"}]), json!({"command": command, "args": given}));
        (asked.container()["args"].take(), asked.codes().contains(&"AdaptersUntold".to_owned()))
    };
    let vllm = || json!(["vllm", "serve"]);
    assert_eq!(args(vllm(), &["--lora-modules", "x=/y"]), (json!(["--served-model-name=a", "--lora-modules", "x=/y"]), false));
    assert_eq!(
        args(vllm(), &["--enable-lora"]),
        (json!(["--served-model-name=a", "--enable-lora", "--lora-modules", "a=/mnt/lora/a"]), false)
    );
    assert!(args(json!(["sh", "-c"]), &["vllm serve"]).1);
}

#[test]
fn vllm_is_told_what_the_model_is_called_unless_it_is_told_already_or_is_not_what_runs() {
    let args = |fields: Value| with(json!({"uri": "pvc://claim", "name": "llama"}), fields).container()["args"].take();
    let told = |given: &[&str]| json!([given, &["--served-model-name", "llama"]].concat());
    assert_eq!(args(json!({"command": ["vllm", "serve", "/mnt/models"], "args": ["--a"]})), told(&["--a"]));
    assert_eq!(args(json!({"command": ["vllm", "serve"]})), told(&[]));
    assert_eq!(args(json!({"image": "vllm/vllm-openai:1", "args": ["--model", "/mnt/models"]})), told(&["--model", "/mnt/models"]));
    let named = json!(["--served-model-name=other"]);
    assert_eq!(args(json!({"command": ["vllm", "serve"], "args": named})), named);
    let script = json!(["vllm serve /mnt/models"]);
    assert_eq!(args(json!({"command": ["/bin/sh", "-c"], "args": script})), script);
    let other = json!(["--model", "/mnt/models"]);
    assert_eq!(args(json!({"image": "vllm/vllm-openai:1", "command": ["python3", "/app/server.py"], "args": other})), other);
}

#[test]
fn an_adapter_needs_a_name_of_its_own_that_can_be_a_folder() {
    for name in [Value::Null, json!(""), json!("../a"), json!("a b"), json!("a=b"), json!("a//b"), json!("/a")] {
        let said = adapted(json!([{"uri": "pvc://a", "name": name}]), json!({})).failure();
        assert!(said.starts_with("adapter 1 of the model llama is called "), "{said}");
    }
    let twice = json!([{"uri": "pvc://a", "name": "a"}, {"uri": "pvc://b", "name": "a"}]);
    assert!(
        adapted(twice, json!({})).failure().starts_with("adapter 2 of the model llama is called \"a\": give each adapter its own name")
    );
    let said = adapted(json!([{"uri": "ftp://a", "name": "a"}]), json!({})).failure();
    assert!(said.starts_with("the URI \"ftp://a\" of the adapter a can't be downloaded"), "{said}");
}
