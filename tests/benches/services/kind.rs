//! The measured kinds of services: their specs, the objects that they refer to, and their own objects.

use pointsman_core::resource::{
    CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, INFERENCE_POOL, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource,
};
use serde_json::{Value, json};

/// A kind of service.
#[derive(Debug)]
pub(crate) struct OwnKind {
    pub(crate) resource: &'static Resource,
    /// The number of objects of each service.
    pub(crate) objects: usize,
    /// The projects whose kinds are among these objects: the control plane's name of the CRDs, and the kind.
    pub(crate) neighbours: &'static [(&'static str, &'static Resource)],
    /// The cluster-scoped objects that all services refer to.
    pub(crate) inputs: fn() -> Vec<(&'static Resource, Value)>,
    /// The spec of each service.
    pub(crate) spec: fn() -> Value,
}

/// All measured kinds.
pub(crate) static KINDS: [OwnKind; 2] = [
    // Two Services, a Deployment, a HorizontalPodAutoscaler, a PodDisruptionBudget.
    OwnKind {
        resource: &INFERENCE_SERVICE,
        objects: 5,
        neighbours: &[],
        inputs: || {
            let runtimes = (0..3).map(|number| (&CLUSTER_SERVING_RUNTIME, runtime(number)));
            [(&CLUSTER_BASE_MODEL, model())].into_iter().chain(runtimes).collect()
        },
        spec: || json!({"model": {"name": "llama"}, "engine": {"minReplicas": 1}}),
    },
    // A Deployment and its Service; the scheduler's Deployment and Service, an InferencePool, a ServiceAccount, a Role, a RoleBinding.
    OwnKind {
        resource: &LLM_INFERENCE_SERVICE,
        objects: 8,
        neighbours: &[("inference-pool", &INFERENCE_POOL)],
        inputs: Vec::new,
        // Everything else is in presets. Without a route, no Gateway is needed.
        spec: || json!({"model": {"uri": "hf://meta/llama", "name": "llama"}, "router": {"scheduler": {}}}),
    },
];

impl OwnKind {
    /// The selected kinds; all, if none is named.
    pub(crate) fn asked_for(name: Option<&str>) -> Vec<&'static Self> {
        let asked: Vec<_> = KINDS.iter().filter(|kind| name.is_none_or(|name| name == kind.resource.kind)).collect();
        assert!(!asked.is_empty(), "POINTSMAN_KIND must be one of {:?}", KINDS.each_ref().map(|kind| kind.resource.kind));
        asked
    }

    /// One service.
    pub(crate) fn service(&self, number: usize) -> Value {
        json!({
            "apiVersion": self.resource.api_version(), "kind": self.resource.kind,
            "metadata": {"name": format!("chat-{number:04}"), "labels": {"team": "search"}, "annotations": {"example.com/owner": "search"}},
            "spec": (self.spec)(),
        })
    }
}

fn model() -> Value {
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": "llama"},
        "spec": {
            "modelFormat": {"name": "safetensors"}, "modelFramework": {"name": "transformers", "version": "4.43.0"},
            "modelArchitecture": "LlamaForCausalLM", "modelParameterSize": "8B", "storage": {"storageUri": "hf://meta/llama", "path": "/mnt/models/llama"},
        },
        "status": {"state": "Ready", "nodesReady": ["large-0"]},
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
