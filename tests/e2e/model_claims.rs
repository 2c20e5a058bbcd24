//! Models on PersistentVolumeClaims: a Job that mounts the claim inspects them. The test acts as the kubelet of the Job's pods.

use crate::{
    model_nodes::explains,
    services::{Space, fixed},
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, PostParams},
};
use pointsman_core::resource::{BASE_MODEL, CLUSTER_BASE_MODEL, JOB, POD};
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::Behaviour;
use pointsman_tests::{TestCluster, eventually};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path};

const LABEL: &str = "pointsman.dev/model-inspection=true";

/// A claim with its volume.
async fn create_claim(space: &Space<'_>, name: &str) {
    let volume = json!({
        "metadata": {"name": format!("{}-{name}", space.0.name)},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"], "hostPath": {"path": "/models"},
            "claimRef": {"namespace": space.0.name, "name": name}, "storageClassName": "",
        },
    });
    let claim = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadOnlyMany"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}},
    });
    let volumes = Api::<PersistentVolume>::all(space.0.client.clone());
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    let claims = Api::<PersistentVolumeClaim>::namespaced(space.0.client.clone(), &space.0.name);
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
}

/// Runs the command of the next inspection's container with this folder as the claim, as a kubelet would. Returns the name of the Job.
async fn run_inspection(cluster: &TestCluster, space: &Space<'_>, claim: &Path) -> String {
    let (name, pod) = eventually("a pod of an inspection is on a node", async || {
        let mut pods = space.pods_with(LABEL).await.into_iter();
        pods.find(|(_, pod)| pod["spec"]["nodeName"].is_string() && pod["status"]["phase"] == "Pending")
    })
    .await;
    let container = &pod["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["volumeMounts"][0]["readOnly"]), (&json!("example.com/pointsman:1"), &json!(true)));
    let message = claim.join("termination-log");
    let args = container["args"].as_array().unwrap().iter().map(|arg| {
        let arg = arg.as_str().unwrap();
        match (arg.strip_prefix("/claim"), arg) {
            (Some(path), _) => format!("{}{path}", claim.display()),
            (_, "/dev/termination-log") => message.display().to_string(),
            _ => arg.to_owned(),
        }
    });
    let args: Vec<String> = args.collect();
    let ended = cluster.pointsman(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let said = if ended.code == Some(0) { fs::read_to_string(&message).unwrap() } else { ended.stderr };
    let state = json!({"terminated": {"exitCode": ended.code, "message": said, "reason": if ended.code == Some(0) { "Completed" } else { "Error" }}});
    let status = json!({
        "phase": if ended.code == Some(0) { "Succeeded" } else { "Failed" },
        "containerStatuses": [{
            "name": container["name"], "image": container["image"], "imageID": "", "ready": false, "restartCount": 0, "state": state,
        }],
    });
    space.patch_status(&POD, &name, status).await;
    pod["metadata"]["labels"]["job-name"].as_str().unwrap().to_owned()
}

/// If no flag specifies the image, it is that of the host's own pod.
pub(crate) async fn are_inspected_in_the_host_s_image(cluster: &TestCluster, space: &Space<'_>, host: &str) {
    space.create(&BASE_MODEL, "on-claim", json!({"spec": {"storage": {"storageUri": "pvc://absent/llama"}}})).await;
    explains(space, "on-claim", "ImageUnknown", "set the host's flag --model-inspect-image").await;
    // The namespace enforces the restricted Pod Security profile.
    let security = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let container = |name: &str, image: &str| json!({"name": name, "image": image, "securityContext": security});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": host, "namespace": HOST_NAMESPACE},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container("mesh", "example.com/mesh:1"), container("host", "example.com/pointsman:2")],
        },
    });
    cluster.apply(&pod).ok();
    explains(space, "on-claim", "Inspecting", "").await;
    let pod = eventually("it has a pod", async || space.pods_with(LABEL).await.into_values().next()).await;
    assert_eq!(pod["spec"]["containers"][0]["image"], "example.com/pointsman:2");
    space.delete(&BASE_MODEL, "on-claim").await;
}

/// Inspects models on claims, with a host that has the flags for it.
pub(crate) async fn are_inspected(cluster: &TestCluster, space: &Space<'_>) {
    let selector = BTreeMap::from([("pointsman.dev/model-inspection", "true")]);
    cluster.behave("claims", &space.0.name, &selector, Behaviour::Pending).unwrap();
    let folder = std::env::temp_dir().join(format!("pointsman-claim-{}", space.0.name));
    // A failed run may have left it behind.
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();

    // The model's condition names the reason why the Job's pod is pending.
    let spec = json!({"modelFormat": {"name": "checkpoint"}, "storage": {"storageUri": "pvc://models/llama"}});
    space.create(&BASE_MODEL, "claimed", json!({ "spec": spec })).await;
    let waits = explains(space, "claimed", "Inspecting", r#"persistentvolumeclaim "models" not found"#).await;
    assert_eq!(waits["status"]["state"], "In_Transit");
    space.service("from-claim", json!({"model": {"name": "claimed"}, "engine": fixed(1)})).await;
    space.says("from-claim", "ModelReady", "False", "ModelNotReady").await;

    // If the claim lacks the files, the inspection fails with the reason.
    create_claim(space, "models").await;
    let job = run_inspection(cluster, space, &folder).await;
    let failed = explains(space, "claimed", "InspectionFailed", "/llama: No such file or directory").await;
    assert_eq!(failed["status"]["state"], "Failed");
    assert_eq!(
        space.get(&JOB, &job).await["spec"]["ttlSecondsAfterFinished"],
        1800,
        "Kubernetes deletes it, and the leader creates the next one"
    );

    // If a user deletes the Job, the claim is read again.
    fs::create_dir(folder.join("llama")).unwrap();
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128_256, "max_position_embeddings": 131_072,
    });
    fs::write(folder.join("llama/config.json"), config.to_string()).unwrap();
    space.delete(&JOB, &job).await;
    assert_eq!(run_inspection(cluster, space, &folder).await, job, "the name is of the model and its storage");
    explains(space, "claimed", "ClaimInspected", "The claim models holds the model's files").await;
    let filled = space.becomes(&BASE_MODEL, "claimed", "its spec is filled in", |model| model["spec"]["maxTokens"] == 131_072).await;
    assert_eq!((&filled["spec"]["modelParameterSize"], &filled["spec"]["modelFormat"]["name"]), (&json!("8.03B"), &json!("checkpoint")));
    space.says("from-claim", "ModelReady", "True", "ModelReady").await;
    // The result stays if the Job is deleted; a new inspection must be requested. The host may have deleted the Job already, because the
    // pod seems to run until the Job controller notices its end.
    cluster.kubectl(&["delete", "job", &job, "-n", &space.0.name, "--ignore-not-found"]).ok();
    space.goes(&JOB, &job).await;
    let known = space.get(&BASE_MODEL, "claimed").await;
    space.create(&BASE_MODEL, "later", json!({"spec": {"storage": {"storageUri": "pvc://absent/llama"}}})).await;
    explains(space, "later", "Inspecting", r#"persistentvolumeclaim "absent" not found"#).await;
    space.delete(&BASE_MODEL, "later").await;
    assert_eq!(space.get(&BASE_MODEL, "claimed").await["metadata"]["resourceVersion"], known["metadata"]["resourceVersion"]);
    assert!(space.find(&JOB, &job).await.is_none());
    space.patch(&BASE_MODEL, "claimed", json!({"metadata": {"annotations": {"pointsman.dev/download-again": "1"}}})).await;
    let again = run_inspection(cluster, space, &folder).await;
    assert_ne!(again, job);
    explains(space, "claimed", "ClaimInspected", &again).await;
    assert!(space.find(&JOB, &job).await.is_none());
    let job = again;

    // Another path gets another Job, and its errors are reported.
    fs::create_dir(folder.join("empty")).unwrap();
    space.patch(&BASE_MODEL, "claimed", json!({"spec": {"storage": {"storageUri": "pvc://models/empty"}}})).await;
    space.goes(&JOB, &job).await;
    run_inspection(cluster, space, &folder).await;
    explains(space, "claimed", "InspectionFailed", "there are no files in this folder").await;
    space.patch(&BASE_MODEL, "claimed", json!({"spec": {"storage": {"storageUri": "pvc://elsewhere:models/llama"}}})).await;
    explains(space, "claimed", "ClaimOfAnotherNamespace", "create a ClusterBaseModel").await;

    // A ClusterBaseModel is inspected in the claim's namespace.
    let models = Api::<DynamicObject>::all_with(space.0.client.clone(), &CLUSTER_BASE_MODEL.api_resource());
    let shared = |uri: &str| {
        let spec = json!({"storage": {"storageUri": uri}});
        serde_json::from_value(
            json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": "shared"}, "spec": spec}),
        )
        .unwrap()
    };
    models.create(&PostParams::default(), &shared(&format!("pvc://{}:models/llama", space.0.name))).await.unwrap();
    run_inspection(cluster, space, &folder).await;
    eventually("the ClusterBaseModel is ready", async || {
        let shared = models.get("shared").await.unwrap().data;
        (shared["status"]["state"] == "Ready" && shared["spec"]["maxTokens"] == 131_072).then_some(())
    })
    .await;
    models.delete("shared", &DeleteParams::default()).await.unwrap();

    // A model that a user marks as ready is no longer inspected.
    space.create(&BASE_MODEL, "by-hand", json!({"spec": {"storage": {"storageUri": "pvc://absent/llama"}}})).await;
    explains(space, "by-hand", "Inspecting", r#"persistentvolumeclaim "absent" not found"#).await;
    let pods = space.pods_with(LABEL).await;
    let mut jobs = pods.values().filter_map(|pod| pod["metadata"]["labels"]["job-name"].as_str());
    let job = jobs.find(|name| name.contains("by-hand")).unwrap();
    space.patch_status(&BASE_MODEL, "by-hand", json!({"state": "Ready"})).await;
    space.goes(&JOB, job).await;
    let is_by_hand = |model: &Value| model["status"]["state"] == "Ready" && model["status"]["conditions"].is_null();
    space.becomes(&BASE_MODEL, "by-hand", "its state is by hand, and nothing else is said of it", is_by_hand).await;
    cluster.behave_normally("claims").unwrap();
    fs::remove_dir_all(&folder).unwrap();
}
