//! Every shape of a service, and the changes between shapes.

use super::{groups, pods, serves, with_model};
use crate::services::{Space, condition, set};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_POOL, LEADER_WORKER_SET, LLM_INFERENCE_SERVICE, SERVICE};
use serde_json::{Value, json};

#[tokio::test]
async fn a_service_on_one_node_is_a_deployment_and_a_service() {
    let space = Space::shared_bare("llm-single").await;
    let service = serves(&space, "llama", with_model(json!({"replicas": 2}))).await;
    assert_eq!(space.made().await, set(["Deployment llama-kserve", "Service llama-kserve-workload-svc"]));
    let all = pods(&space, "llama").await;
    assert_eq!(all.keys().collect::<Vec<_>>(), ["workload"]);
    assert_eq!(all["workload"].len(), 2);
    let pod = &all["workload"][0];
    assert_eq!(
        (&pod["metadata"]["labels"]["kserve.io/component"], &pod["metadata"]["labels"]["llm-d.ai/role"]),
        (&json!("workload"), &json!("both"))
    );
    let containers = pod["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.iter().map(|container| container["name"].as_str().unwrap()).collect::<Vec<_>>(), ["main"]);
    let args = containers[0]["args"].to_string();
    assert!(args.contains("llama"), "the model's name is filled in: {args}");
    assert_eq!(pod["spec"]["initContainers"][0]["args"], json!(["hf://example/llama", "/mnt/models"]));
    let url = format!("http://llama-kserve-workload-svc.{}.svc.cluster.local:8000", space.0.name);
    assert_eq!((&service["status"]["url"], &service["status"]["address"]["url"]), (&json!(url), &json!(url)));
    for type_ in ["PresetsCombined", "MainWorkloadReady", "WorkloadsReady", "Applied", "Ready"] {
        assert_eq!(condition(&service, type_)["status"], "True", "{type_}");
    }
    assert_eq!(condition(&service, "RouterReady"), Value::Null, "nobody asked for a router");
    let said = space.kubectl(&["get", "llmisvc", "llama"]).ok();
    assert!(said.contains(&url) && said.contains("True"), "{said}");

    space.delete(&LLM_INFERENCE_SERVICE, "llama").await;
    space.goes(&DEPLOYMENT, "llama-kserve").await;
    space.goes(&SERVICE, "llama-kserve-workload-svc").await;
}

#[tokio::test]
async fn a_service_on_several_nodes_is_a_leader_worker_set_and_its_leaders_are_reached() {
    let space = Space::shared_bare("llm-groups").await;
    let service = serves(&space, "llama", with_model(groups())).await;
    assert_eq!(space.made().await, set(["LeaderWorkerSet llama-kserve-mn", "Service llama-kserve-workload-svc"]));
    assert_eq!(condition(&service, "WorkerWorkloadReady")["status"], "True");
    let all = pods(&space, "llama").await;
    assert_eq!(all.keys().collect::<Vec<_>>(), ["workload-leader", "workload-worker"]);
    let label = |component: &str| all[component][0]["metadata"]["labels"]["kserve.io/component"].clone();
    assert_eq!((label("workload-leader"), label("workload-worker")), (json!("workload"), Value::Null));
    assert_eq!(space.get(&LEADER_WORKER_SET, "llama-kserve-mn").await["spec"]["leaderWorkerTemplate"]["size"], 2);
}

#[tokio::test]
async fn prefill_and_decode_come_apart_each_on_one_node_or_several_with_a_scheduler() {
    let space = Space::shared_bare("llm-apart").await;
    let mut prefill = groups();
    prefill["replicas"] = 1.into();
    let service = serves(&space, "llama", with_model(json!({"prefill": prefill, "router": {"scheduler": {}}}))).await;
    let expected = [
        "Deployment llama-kserve",
        "Deployment llama-kserve-router-scheduler",
        "InferencePool llama-inference-pool",
        "LeaderWorkerSet llama-kserve-mn-prefill",
        "Role llama-epp-role",
        "RoleBinding llama-epp-rb",
        "Service llama-epp-service",
        "Service llama-kserve-workload-svc",
        "ServiceAccount llama-epp-sa",
    ];
    assert_eq!(space.made().await, set(expected));
    for type_ in ["PrefillWorkloadReady", "PrefillWorkerWorkloadReady", "SchedulerWorkloadReady", "InferencePoolReady", "RouterReady"] {
        assert_eq!(condition(&service, type_)["status"], "True", "{type_}");
    }
    let all = pods(&space, "llama").await;
    let components: Vec<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(components, ["router-scheduler", "workload", "workload-leader-prefill", "workload-worker-prefill"]);
    let role = |component: &str| all[component][0]["metadata"]["labels"]["llm-d.ai/role"].clone();
    assert_eq!((role("workload"), role("workload-leader-prefill")), (json!("decode"), json!("prefill")));
    let pool = space.get(&INFERENCE_POOL, "llama-inference-pool").await;
    assert_eq!(pool["spec"]["endpointPickerRef"]["name"], "llama-epp-service");
    assert_eq!(pool["spec"]["targetPorts"], json!([{"number": 8000}]));
    // Without a scheduler, the decode pods serve the requests.
    let reached = space.get(&SERVICE, "llama-kserve-workload-svc").await;
    assert_eq!(reached["spec"]["selector"]["app.kubernetes.io/component"], "llminferenceservice-workload");
    let scheduler = &all["router-scheduler"][0];
    assert_eq!(scheduler["spec"]["serviceAccountName"], "llama-epp-sa");
    let args = scheduler["spec"]["containers"][0]["args"].to_string();
    assert!(args.contains("llama-inference-pool") && args.contains(&space.0.name), "{args}");
    // The host deletes what the scheduler no longer needs.
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"router": null, "prefill": null}})).await;
    space.goes(&INFERENCE_POOL, "llama-inference-pool").await;
}
