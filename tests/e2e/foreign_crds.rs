//! CRDs that another installer or another version installed: they are compared, reported and used, and never overwritten.

use crate::{
    objects::{api_of, create, read},
    services::{Space, fixed, hosts_rest, own_cluster, with_model},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt, api::PostParams};
use pointsman_core::resource::{INFERENCE_SERVICE, LLM_INFERENCE_SERVICE};
use pointsman_tests::{CommandOutput, Host, TestCluster, eventually, fixtures, pointsman};
use serde_json::{Value, json};

const KSERVE: [&str; 2] = ["llminferenceservices.serving.kserve.io", "llminferenceserviceconfigs.serving.kserve.io"];

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn kserve_s_own_crds_are_reported_left_alone_and_worked_with() {
    let cluster = TestCluster::bare(&["kserve"]);
    let client = cluster.client().await;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let versions = async || {
        let mut versions = Vec::new();
        for name in KSERVE {
            versions.push(crds.get(name).await.unwrap().resource_version());
        }
        versions
    };
    let before = versions().await;

    let said = cluster.pointsman(&["crds", "install"]).ok();
    assert_eq!(versions().await, before, "KServe's CRDs were touched");
    for name in KSERVE {
        let line = said.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.contains("not managed, stays unchanged"), "{line}");
        assert!(line.contains("its storage version v1alpha2 has no field") && line.contains("spec.model.criticality"), "{line}");
    }
    assert!(said.lines().any(|line| line.starts_with("inferenceservices.ome.io") && line.ends_with("installed")), "{said}");

    let namespace = cluster.namespace("kserve").await;
    let mut service = fixtures::base("LLMInferenceService");
    service["spec"]["model"]["criticality"] = "Critical".into();
    service["spec"]["labels"] = json!({ "team": "a" });
    let stored = create(&api_of(&client, "LLMInferenceService", &namespace.name), &service).await.unwrap();
    let kept = read(&stored).unwrap();
    assert_eq!(kept["spec"]["labels"], json!({ "team": "a" }));
    assert_eq!(kept["spec"]["model"]["uri"], service["spec"]["model"]["uri"]);
    assert_eq!(kept["spec"]["model"].get("criticality"), None, "the report said that it is left out");
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_crd_without_our_version_is_reported_as_unusable() {
    let cluster = TestCluster::bare(&[]);
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    let theirs = serde_json::from_value(json!({
        "metadata": { "name": "basemodels.ome.io" },
        "spec": {
            "group": "ome.io", "scope": "Namespaced",
            "names": { "kind": "BaseModel", "plural": "basemodels", "singular": "basemodel" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    }));
    crds.create(&PostParams::default(), &theirs.unwrap()).await.unwrap();
    let said = cluster.pointsman(&["crds", "install", "BaseModel"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stdout.contains("not managed, stays unchanged: can't be used: it doesn't serve the version v1beta1"), "{}", said.stdout);
}

/// Adds or removes fields of our CRDs, as another version of `crds install` would.
fn change_fields(cluster: &TestCluster, fields: &[(&str, &str, bool)]) {
    for (crd, field, is_newer) in fields {
        let path = format!("/spec/versions/0/schema/openAPIV3Schema/properties/{}", field.replace('.', "/properties/"));
        let change = if *is_newer {
            json!([{"op": "add", "path": path, "value": {"type": "string"}}])
        } else {
            json!([{"op": "remove", "path": path}])
        };
        cluster.kubectl(&["patch", "crd", crd, "--type", "json", "-p", &change.to_string(), "--field-manager", "pointsman/crds"]).ok();
    }
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn what_only_newer_crds_have_survives_a_host_and_older_ones_are_reported_and_worked_with() {
    const SERVICES: [&str; 2] = ["inferenceservices.ome.io", "llminferenceservices.serving.kserve.io"];
    let (cluster, model) = (own_cluster(Some(&[])), json!({"uri": "hf://example/llama"}));
    change_fields(&cluster, &SERVICES.map(|crd| (crd, "spec.newer", true)));
    change_fields(&cluster, &[("validationrules.policy.pointsman.dev", "spec.newer", true)]);
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    assert_eq!(host.get("/readyz").unwrap().1, "ok\n", "nothing is missing");
    let space = Space::on(&cluster, "skew").await;
    space.service("chat", with_model(json!({"engine": fixed(1), "newer": "x"}))).await;
    let spec = json!({"model": model, "newer": "x"});
    space.create(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": spec})).await;
    space.ready("chat").await;
    space.change("chat", json!({"engine": fixed(2)})).await;
    space.ready("chat").await;
    space.says_of(&LLM_INFERENCE_SERVICE, "llama", "Ready", "True", "Ready").await;
    for (resource, name) in [(&INFERENCE_SERVICE, "chat"), (&LLM_INFERENCE_SERVICE, "llama")] {
        assert_eq!(space.get(resource, name).await["spec"]["newer"], "x", "{name}");
    }

    // A spec that the host itself writes.
    let found = || serde_json::from_str::<Value>(&cluster.kubectl(&["get", "validationrule", "hardened-pods", "-o", "json"]).stdout).ok();
    let rule = || found().unwrap();
    eventually("the rule is there", async || found()).await;
    cluster.kubectl(&["patch", "validationrule", "hardened-pods", "--type", "merge", "-p", r#"{"spec":{"newer":"x"}}"#]).ok();
    assert_eq!((&rule()["spec"]["newer"], &rule()["spec"]["enabled"]), (&json!("x"), &json!(false)));
    host.stop();
    let host = Host::start(&cluster, &["--enable-rule", "hardened-pods"]).await;
    eventually("it is enabled", async || (rule()["spec"]["enabled"] == true).then_some(())).await;
    assert_eq!(rule()["spec"]["newer"], "x");

    change_fields(&cluster, &[(SERVICES[0], "status.runtime", false), (SERVICES[0], "spec.router", false)]);
    change_fields(&cluster, &[(SERVICES[1], "status.observedGeneration", false)]);
    for (crd, lacks) in SERVICES.into_iter().zip(["spec.router, status.runtime", "status.observedGeneration"]) {
        let line = format!("the CRD {crd} is older than this host, and has no field {lacks}: run `pointsman crds install`");
        let is_told = || host.get("/readyz").is_ok_and(|(code, said)| code == 200 && said.lines().any(|told| told == line));
        eventually(&line, async || is_told().then_some(())).await;
    }
    space.service("later", with_model(json!({"engine": fixed(1)}))).await;
    space.create(&LLM_INFERENCE_SERVICE, "late", json!({"spec": {"model": model}})).await;
    space.says("later", "Ready", "True", "Ready").await;
    space.says_of(&LLM_INFERENCE_SERVICE, "late", "Ready", "True", "Ready").await;
    hosts_rest(&cluster).await;
    host.stop();
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_named() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = std::env::temp_dir().join(format!("pointsman-dead-{}.kubeconfig", std::process::id()));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": format!("https://127.0.0.1:{port}") } }],
        "users": [{ "name": "a", "user": {} }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
    });
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let said = CommandOutput::by(std::process::Command::new(pointsman()).args(["crds", "check", "--kubeconfig"]).arg(&file)).refused();
    assert!(said.starts_with(&format!("error: the cluster at https://127.0.0.1:{port}/ doesn't answer: ")), "{said}");
    assert!(said.contains("Connection refused") && said.lines().count() == 1, "{said}");
    std::fs::remove_file(file).unwrap();
}
