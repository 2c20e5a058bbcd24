//! CRDs that somebody else installed: compared, reported, worked with, never overwritten.

use crate::objects::{api_of, create, read};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt, api::PostParams};
use pointsman_tests::{CommandOutput, TestCluster, fixtures, pointsman};
use serde_json::json;

const KSERVE: [&str; 2] = ["llminferenceservices.serving.kserve.io", "llminferenceserviceconfigs.serving.kserve.io"];

#[tokio::test]
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
        assert!(line.contains("not ours, left as it is"), "{line}");
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
    assert!(said.stdout.contains("not ours, left as it is: can't be used: it doesn't serve the version v1beta1"), "{}", said.stdout);
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
