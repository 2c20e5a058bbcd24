//! Older and rarer specs: a predictor, a runtime's own containers, a fine-tuned weight.

use super::{DEPLOYMENT, INFERENCE_SERVICE, LEADER_WORKER_SET, POD, SERVING_RUNTIME, Space, condition, is_ready};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, PostParams},
};
use pointsman_core::resource::FINE_TUNED_WEIGHT;
use pointsman_tests::eventually;
use serde_json::{Value, json};

#[tokio::test]
async fn a_predictor_is_served_as_the_engine_that_it_stands_for() {
    let space = Space::shared("predictor").await;
    let model = json!({
        "baseModel": "model", "runtime": "runtime", "runtimeVersion": "7", "env": [{"name": "GREETING", "value": "hello"}],
    });
    let service = space.serves("chat", json!({"predictor": {"minReplicas": 1, "maxReplicas": 1, "model": model}})).await;
    assert_eq!(condition(&service, "RuntimeSelected")["reason"], "Named");
    let container = &space.get(&DEPLOYMENT, "chat-engine").await["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "example.com/engine:7");
    let env = container["env"].as_array().unwrap();
    assert!(env.iter().any(|variable| variable["name"] == "GREETING") && env.iter().any(|variable| variable["name"] == "MODEL_PATH"));

    // The same service with today's fields restarts no pod.
    let pods = space.pod_uids("chat").await;
    let today = json!({
        "predictor": null, "model": {"name": "model", "kind": "BaseModel"}, "runtime": {"name": "runtime", "kind": "ServingRuntime"},
        "engine": {
            "minReplicas": 1, "maxReplicas": 1,
            "runner": {"name": "ome-container", "image": "example.com/engine:7", "env": [{"name": "GREETING", "value": "hello"}]},
        },
    });
    space.change("chat", today).await;
    space.ready("chat").await;
    assert_eq!(space.pod_uids("chat").await, pods);
}

#[tokio::test]
async fn a_predictor_of_containers_needs_neither_model_nor_runtime() {
    let space = Space::shared_bare("predictor-pod").await;
    let containers = json!([{"name": "engine", "image": "example.com/engine:1", "ports": [{"containerPort": 9000}]}]);
    let service = space.serves("chat", json!({"predictor": {"containers": containers}})).await;
    for (type_, reason) in [("ModelReady", "NoModel"), ("RuntimeSelected", "NoRuntime")] {
        assert_eq!(condition(&service, type_)["reason"], reason);
    }
    assert!(space.pods("chat").await.values().all(is_ready));
}

#[tokio::test]
async fn a_predictors_model_may_come_from_anywhere() {
    let space = Space::shared("predictor-uri").await;
    let service = space.serves("chat", json!({"predictor": {"model": {"runtime": "runtime", "storageUri": "hf://some/model@main"}}})).await;
    assert_eq!(condition(&service, "ModelReady")["reason"], "StorageUri");
    let spec = &space.get(&DEPLOYMENT, "chat-engine").await["spec"]["template"]["spec"];
    let init = &spec["initContainers"][0];
    assert_eq!((&init["name"], &init["args"]), (&json!("model-initializer"), &json!(["hf://some/model@main", "/mnt/models/chat"])));
    assert!(spec["nodeSelector"].is_null(), "no node has it: {spec:#}");
}

#[tokio::test]
async fn a_runtimes_own_containers_are_its_engine_and_its_workers_make_a_group() {
    let space = Space::shared_bare("top-level").await;
    space.model("model").await;
    let container = |command: &str| json!([{"name": "ome-container", "image": "example.com/engine:1", "command": [command]}]);
    let runtime = json!({
        "supportedModelFormats": [{"modelFormat": {"name": "checkpoint"}, "autoSelect": true}],
        "labels": {"team": "gpu"}, "containers": container("lead"),
    });
    space.create(&SERVING_RUNTIME, "old", json!({"spec": runtime})).await;
    space.serves("chat", super::with_model(json!({}))).await;
    let template = space.get(&DEPLOYMENT, "chat-engine").await["spec"]["template"].clone();
    assert_eq!(
        (&template["spec"]["containers"][0]["command"][0], &template["metadata"]["labels"]["team"]),
        (&json!("lead"), &json!("gpu"))
    );

    space.patch(&SERVING_RUNTIME, "old", json!({"spec": {"workers": {"size": 2, "containers": container("follow")}}})).await;
    space.goes(&DEPLOYMENT, "chat-engine").await;
    space.ready("chat").await;
    let group = space.get(&LEADER_WORKER_SET, "chat-engine-mn").await["spec"]["leaderWorkerTemplate"].clone();
    let command = |place: &str| group[place]["spec"]["containers"][0]["command"][0].clone();
    assert_eq!((command("leaderTemplate"), command("workerTemplate"), &group["size"]), (json!("lead"), json!("follow"), &json!(3)));
    eventually("the group is whole", async || (space.pods("chat").await.len() == 3).then_some(())).await;
}

/// A cluster-wide weight. The test deletes it.
async fn weight(space: &Space<'_>, name: &str, more: Value) -> Api<DynamicObject> {
    let api = Api::<DynamicObject>::all_with(space.0.client.clone(), &FINE_TUNED_WEIGHT.api_resource());
    let mut spec = json!({"baseModelRef": {"name": "model", "namespace": space.0.name}, "modelType": "LoRA", "storage": {"storageUri": "hf://org/tuned"}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object = json!({"apiVersion": "ome.io/v1beta1", "kind": "FineTunedWeight", "metadata": {"name": name}, "spec": spec});
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    api
}

#[tokio::test]
async fn fine_tuned_weights_are_fetched_before_the_engine_starts() {
    let space = Space::shared("weights").await;
    let name = format!("tuned-{}", space.0.name);
    let tuned = |names: Value| json!({"model": {"name": "model", "kind": "BaseModel", "fineTunedWeights": names}});
    space.service("chat", tuned(json!([name]))).await;
    let why = space.says("chat", "ModelReady", "False", "WeightNotFound").await;
    assert!(why.contains(&name), "{why}");
    // Once it exists, the service becomes Ready without an edit.
    let weights = weight(&space, &name, json!({})).await;
    let service = space.ready("chat").await;
    assert_eq!(condition(&service, "ModelReady")["reason"], "ModelReady");
    let deployment = space.get(&DEPLOYMENT, "chat-engine").await;
    let init = &deployment["spec"]["template"]["spec"]["initContainers"][0];
    assert_eq!(
        (&init["name"], &init["args"]),
        (&json!("adapter-initializer"), &json!(["hf://org/tuned", format!("/mnt/adapters/{name}")]))
    );
    assert_eq!(deployment["metadata"]["labels"]["fine-tuned-serving"], "true");
    let pods = space.pods("chat").await;
    assert!(pods.values().all(|pod| pod["metadata"]["labels"]["fine-tuned-serving"] == "true"));

    // The weight reports that it is usable, and the runtime reports its services and its models.
    let status = eventually("the weight's status is written", async || {
        let weight = serde_json::to_value(weights.get(&name).await.unwrap()).unwrap();
        (weight["status"]["state"] == "Ready").then(|| weight["status"].clone())
    })
    .await;
    assert_eq!(status["conditions"][0]["reason"], "Usable");
    let user = format!("{}/chat", space.0.name);
    let used = |runtime: &Value| runtime["status"]["services"] == json!([user]) && runtime["status"]["serviceCount"] == 1;
    let runtime = space.becomes(&SERVING_RUNTIME, "runtime", "its status has the service", used).await;
    let models = runtime["status"]["models"].as_array().unwrap();
    assert!(models.contains(&format!("{}/model", space.0.name).into()), "{models:?}");

    // This runtime can't load several weights, and the existing pods stay.
    let uids = space.pod_uids("chat").await;
    let other = format!("other-{}", space.0.name);
    weight(&space, &other, json!({"hyperParameters": {"strategy": "lora", "rank": 32}})).await;
    space.change("chat", tuned(json!([name, other]))).await;
    let why = space.says("chat", "Decided", "False", "PolicyFailed").await;
    assert!(why.contains("2 weights can't be served beside the model"), "{why}");
    assert_eq!(space.pod_uids("chat").await, uids);
    // vLLM can.
    super::labels::vllm(&space).await;
    let mut by_vllm = tuned(json!([name, other]));
    by_vllm["runtime"] = json!({"name": "vllm", "kind": "ServingRuntime"});
    space.serves("both", by_vllm).await;
    let deployment = space.get(&DEPLOYMENT, "both-engine").await;
    let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    let modules = format!(r#""--enable-lora","--lora-modules","{name}=/mnt/adapters/{name}","{other}=/mnt/adapters/{other}""#);
    assert!(args.ends_with(&format!(r#"{modules},"--max-loras","2","--max-lora-rank","32"]"#)), "{args}");
    space.delete(&INFERENCE_SERVICE, "both").await;
    weights.delete(&other, &DeleteParams::default()).await.unwrap();
    space.change("chat", tuned(json!([name]))).await;
    space.ready("chat").await;
    assert_eq!(space.pod_uids("chat").await, uids);
    weights.delete(&name, &DeleteParams::default()).await.unwrap();
    space.says("chat", "ModelReady", "False", "WeightNotFound").await;
    assert!(space.api(&POD).list(&kube::api::ListParams::default()).await.unwrap().items.len() == uids.len());
}
