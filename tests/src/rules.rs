//! Realistic rules, and a service to evaluate them on, for the benches.

use serde_json::{Value, json};

/// The number of rules.
pub const RULES: usize = 50;

/// A service of 10 KiB that sets everything itself instead of using its runtime's defaults.
pub fn object() -> Value {
    let map = |what: &str, number: usize| -> Value {
        (0..number).map(|at| (format!("{what}.example.com/key-{at}"), Value::String(format!("value-{at}")))).collect()
    };
    let env = |number: usize| -> Value {
        (0..number).map(|at| json!({"name": format!("SETTING_{at}"), "value": format!("value of {at}")})).collect()
    };
    let container = |name: &str, number: usize| {
        json!({
            "name": name, "image": format!("registry.example.com/serving/{name}:v1.{number}"), "env": env(number),
            "args": ["--model", "$(MODEL_PATH)", "--port", "8080", "--max-model-len", "32768"],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": 4, "memory": "96Gi"}},
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 10, "failureThreshold": 60},
            "volumeMounts": [{"name": "cache", "mountPath": "/cache"}, {"name": "shm", "mountPath": "/dev/shm"}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        })
    };
    let component = |name: &str, number: usize| {
        json!({
            "minReplicas": 1, "maxReplicas": 4, "runner": container(name, number), "containers": [container("sidecar", number / 2)],
            "volumes": [{"name": "cache", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}],
            "nodeSelector": {"example.com/pool": "gpu"}, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        })
    };
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "team", "labels": map("label", 12), "annotations": map("annotation", 16)},
        "spec": {"model": {"name": "llama", "kind": "ClusterBaseModel"}, "engine": component("engine", 48), "decoder": component("decoder", 48)},
    })
}

/// The expression of the rule with this number, which is true: ten kinds with different numbers.
pub fn expression(number: usize) -> String {
    let at = number / 10;
    match number % 10 {
        0 => format!("object.spec.engine.minReplicas <= {}", at + 5),
        1 => format!("!has(object.spec.decoder) || object.spec.decoder.maxReplicas < {}", at + 10),
        2 => format!("object.spec.engine.containers.all(c, c.image.startsWith('registry.example.com/') && c.image.size() > {at})"),
        3 => format!("object.metadata.labels['label.example.com/key-{at}'] == 'value-{at}'"),
        4 => format!("object.spec.engine.runner.env.exists(e, e.name == 'SETTING_{at}')"),
        5 => format!("object.spec.engine.runner.resources.limits['nvidia.com/gpu'] <= {}", at + 8),
        6 => format!("quantity(object.spec.decoder.runner.resources.requests.memory).isGreaterThan(quantity('{at}Gi'))"),
        7 => format!("object.metadata.name.matches('^[a-z]([-a-z0-9]{{0,{}}})$')", at + 50),
        8 => format!("object.spec.?engine.?runner.?securityContext.?privileged.orValue(false) == false && {at} < 9"),
        _ => format!("object.spec.engine.volumes.map(v, v.name).size() < {} && !('evil-{at}' in object.metadata.annotations)", at + 10),
    }
}
