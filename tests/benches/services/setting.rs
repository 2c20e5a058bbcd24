//! A control plane with a model, runtimes, and services that wait to be served.

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use pointsman::{
    policy::NAMESPACE,
    world::resource::{CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, INFERENCE_SERVICE, POD, Resource},
};
use pointsman_harness::Options;
use pointsman_tests::TestCluster;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::task::JoinSet;

/// Where the services are.
pub(crate) const SERVICES_ARE_IN: &str = "bench";

/// The objects of each: two Services, a Deployment, a HorizontalPodAutoscaler, a PodDisruptionBudget.
pub(crate) const OBJECTS: usize = 5;

/// Room for the pods of ten thousand services, and the model on every node.
const NODES: &str = r#"nodes:
- name: large
  count: 10
  labels: {models.ome.io/clusterbasemodel.llama: Ready}
  capacity: {cpu: "20000", memory: 200Ti, nvidia.com/gpu: "4000", pods: "1200"}
"#;

/// A control plane with all its parts.
pub(crate) async fn cluster() -> TestCluster {
    let cluster = TestCluster::start(&Options { neighbours: Some(Vec::new()), ..Options::default() });
    cluster.add_nodes(NODES).unwrap();
    cluster.pointsman(&["crds", "install", "--all"]).ok();
    for name in [NAMESPACE, SERVICES_ARE_IN] {
        cluster.kubectl(&["create", "namespace", name]).ok();
    }
    cluster.apply(&model()).ok();
    (0..3).for_each(|number| _ = cluster.apply(&runtime(number)).ok());
    let models: Api<DynamicObject> = Api::all_with(cluster.client().await, &CLUSTER_BASE_MODEL.api_resource());
    let ready = Patch::Merge(json!({"status": {"state": "Ready", "nodesReady": ["large-0"]}}));
    models.patch_status("llama", &PatchParams::default(), &ready).await.unwrap();
    cluster
}

fn model() -> Value {
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": "llama"},
        "spec": {
            "modelFormat": {"name": "safetensors"}, "modelFramework": {"name": "transformers", "version": "4.43.0"},
            "modelArchitecture": "LlamaForCausalLM", "modelParameterSize": "8B", "storage": {"storageUri": "hf://meta/llama", "path": "/mnt/models/llama"},
        },
    })
}

fn runtime(number: usize) -> Value {
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime", "metadata": {"name": format!("vllm-{number}")},
        "spec": {
            "supportedModelFormats": [{
                "modelFormat": {"name": "safetensors", "weight": 2}, "modelFramework": {"name": "transformers", "version": "4.43.0"},
                "modelArchitecture": "LlamaForCausalLM", "autoSelect": true, "priority": number + 1,
            }],
            "protocolVersions": ["openAI"],
            "engineConfig": {
                "runner": {
                    "name": "ome-container", "image": "registry.example.com/vllm:0.9.1",
                    "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
                    "args": ["--model", "$(MODEL_PATH)", "--port", "8080", "--served-model-name", "llama", "--max-model-len", "32768"],
                    "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "INFO"}, {"name": "HF_HUB_OFFLINE", "value": "1"}],
                    "ports": [{"containerPort": 8080, "name": "http1", "protocol": "TCP"}],
                    "resources": {
                        "requests": {"cpu": 2, "memory": "16Gi", "nvidia.com/gpu": 1}, "limits": {"cpu": 2, "memory": "16Gi", "nvidia.com/gpu": 1},
                    },
                    "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 10},
                    "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
                },
                "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
            },
        },
    })
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": format!("chat-{number:04}"), "labels": {"team": "search"}, "annotations": {"example.com/owner": "search"}},
        "spec": {"model": {"name": "llama"}, "engine": {"minReplicas": 1}},
    })
}

pub(crate) fn api(client: Client, resource: &Resource) -> Api<DynamicObject> {
    Api::namespaced_with(client, SERVICES_ARE_IN, &resource.api_resource())
}

/// Makes so many services.
pub(crate) async fn make_services(cluster: &TestCluster, number: usize) {
    let all: Vec<_> = (0..number).map(|number| vec![(&INFERENCE_SERVICE, service(number))]).collect();
    write(cluster, "setting", all, 8).await;
}

/// Applies objects over so many connections: one batch after the other on each, and one object after the other of a batch.
pub(crate) async fn write(cluster: &TestCluster, user: &str, batches: Vec<Vec<(&'static Resource, Value)>>, connections: usize) {
    let (batches, next) = (Arc::new(batches), Arc::new(AtomicUsize::new(0)));
    let kubeconfig = cluster.kubeconfig_of_user(user, &["system:masters"]).unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (client, batches, next) = (pointsman_tests::client(&kubeconfig).await, Arc::clone(&batches), Arc::clone(&next));
        tasks.spawn(async move {
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                for (resource, object) in batch {
                    let name = object["metadata"]["name"].as_str().unwrap();
                    api(client.clone(), resource).patch(name, &PatchParams::apply("bench"), &Patch::Apply(object)).await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
}

/// All objects of a kind.
async fn all(api: Api<DynamicObject>, kind: &Resource) -> Vec<Value> {
    let mut params = ListParams::default().limit(200);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await.unwrap();
        all.extend(page.items.into_iter().map(|object| {
            let mut value = serde_json::to_value(object).unwrap();
            value["apiVersion"] = kind.api_version().into();
            value["kind"] = kind.kind.into();
            value
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return all,
        }
    }
}

pub(crate) async fn services(client: &Client) -> Vec<Value> {
    all(api(client.clone(), &INFERENCE_SERVICE), &INFERENCE_SERVICE).await
}

/// The pods, by name and uid, with how often they were started again.
pub(crate) async fn pods(client: &Client) -> Vec<String> {
    let mut pods: Vec<String> = all(api(client.clone(), &POD), &POD)
        .await
        .iter()
        .map(|pod| {
            format!("{} {} {}", pod["metadata"]["name"], pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        })
        .collect();
    pods.sort();
    pods
}

/// The model and the runtimes.
pub(crate) async fn inputs(client: &Client) -> Vec<(&'static Resource, Value)> {
    let mut inputs = Vec::new();
    for resource in [&CLUSTER_BASE_MODEL, &CLUSTER_SERVING_RUNTIME] {
        let api = Api::all_with(client.clone(), &resource.api_resource());
        inputs.extend(all(api, resource).await.into_iter().map(|object| (resource, object)));
    }
    inputs
}
