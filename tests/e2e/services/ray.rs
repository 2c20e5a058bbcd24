//! Services on KubeRay.

use super::{INFERENCE_SERVICE, SERVICE, Space, played::condition_status, set, with_model};
use pointsman_core::resource::RAY_CLUSTER;
use pointsman_tests::eventually;
use serde_json::{Value, json};

/// A spec whose engine is a head with two workers, with a version in its image.
fn ray(version: u32) -> Value {
    let runner = json!({"name": "ome-container", "image": format!("vllm/vllm-openai:{version}"), "command": ["vllm", "serve"]});
    with_model(json!({"engine": {"worker": {"size": 2}, "runner": runner}}))
}

/// The RayClusters of a service, by name.
fn clusters(space: &Space<'_>) -> Vec<String> {
    let named = space.kubectl(&["get", "rayclusters", "-o", "name"]).ok();
    named.lines().map(|name| name.rsplit('/').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_head_and_its_workers_are_a_ray_cluster_whose_state_is_told() {
    let space = Space::shared("ray").await;
    space.annotated("chat", json!({"ome.io/deploymentMode": "MultiNodeRayVLLM"}), ray(1)).await;
    let cluster = space.becomes(&RAY_CLUSTER, "chat-engine-00001", "it is there", |_| true).await;
    let workers = &cluster["spec"]["workerGroupSpecs"][0];
    assert_eq!((&workers["replicas"], &workers["minReplicas"], &workers["maxReplicas"]), (&json!(2), &json!(2), &json!(2)));
    let head = &cluster["spec"]["headGroupSpec"]["template"];
    assert_eq!(head["metadata"]["annotations"]["ray.io/overwrite-container-cmd"], "true", "the head runs Ray and the engine");
    assert_eq!(
        space.made().await,
        set(["PodDisruptionBudget chat-engine", "RayCluster chat-engine-00001", "Service chat", "Service chat-engine"])
    );
    for name in ["chat", "chat-engine"] {
        assert_eq!(space.get(&SERVICE, name).await["spec"]["selector"]["ray.io/node-type"], "head");
    }
    space.says("chat", "EngineReady", "Unknown", "Progressing").await;

    // A ready head isn't enough.
    let status = |ready: u32| {
        json!({
            "observedGeneration": 1, "desiredWorkerReplicas": 2, "readyWorkerReplicas": ready,
            "conditions": [condition_status("HeadPodReady", "True"), condition_status("RayClusterProvisioned", "True")],
        })
    };
    space.patch_status(&RAY_CLUSTER, "chat-engine-00001", status(1)).await;
    space.says("chat", "EngineReady", "Unknown", "Progressing").await;
    space.patch_status(&RAY_CLUSTER, "chat-engine-00001", status(2)).await;
    let service = space.ready("chat").await;
    assert_eq!(service["status"]["modelStatus"]["modelCopies"]["totalCopies"], 1);
    assert_eq!(service["status"]["components"]["engine"]["latestReadyRevision"], "chat-engine-00001");

    // A cluster that was provisioned once can still fail later.
    space.patch_status(&RAY_CLUSTER, "chat-engine-00001", status(0)).await;
    space.says("chat", "EngineReady", "Unknown", "Progressing").await;
    let failing = json!({"conditions": [{
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreateWorkerPod", "message": "exceeded quota",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    space.patch_status(&RAY_CLUSTER, "chat-engine-00001", failing).await;
    let why = space.says("chat", "EngineReady", "False", "PodsRefused").await;
    assert!(why.contains("exceeded quota"), "{why}");
}

#[tokio::test]
async fn another_template_is_another_cluster_and_the_former_one_goes() {
    let space = Space::shared("ray-revisions").await;
    let _play = space.play();
    space.annotated("chat", json!({"ome.io/deploymentMode": "MultiNodeRayVLLM"}), ray(1)).await;
    space.ready("chat").await;
    space.change("chat", ray(2)).await;
    space.goes(&RAY_CLUSTER, "chat-engine-00001").await;
    let service = space.ready("chat").await;
    assert_eq!(clusters(&space), ["chat-engine-00002"]);
    assert_eq!(service["status"]["components"]["engine"]["previousRolledoutRevision"], "chat-engine-00001");

    // A setting that doesn't affect pods creates no new cluster, and neither does a lost annotation.
    space.change("chat", json!({"engine": {"timeoutSeconds": 9}})).await;
    space.says("chat", "Accepted", "True", "NotHonoured").await;
    space.patch(&RAY_CLUSTER, "chat-engine-00002", json!({"metadata": {"annotations": {"pointsman.dev/revision": null}}})).await;
    let healed = |now: &Value| now["metadata"]["annotations"]["pointsman.dev/revision"].is_string();
    space.becomes(&RAY_CLUSTER, "chat-engine-00002", "the annotation is back", healed).await;
    assert_eq!(clusters(&space), ["chat-engine-00002"]);

    // In another mode, the RayCluster is deleted.
    space.annotate("chat", json!({"ome.io/deploymentMode": "RawDeployment"})).await;
    eventually("the cluster goes", async || clusters(&space).is_empty().then_some(())).await;
    // An annotation doesn't change the generation, so conditions may still be from before.
    let third = |now: &Value| now["status"]["components"]["engine"]["latestReadyRevision"] == "chat-engine-00003";
    space.becomes(&INFERENCE_SERVICE, "chat", "its third revision is ready", third).await;
    space.ready("chat").await;
}
