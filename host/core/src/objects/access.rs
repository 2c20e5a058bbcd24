//! The permissions of pods in the API.

use super::Metadata;
use serde_json::{Value, json};

/// A ServiceAccount's body.
pub fn service_account(metadata: Metadata) -> Value {
    json!({"metadata": metadata.into_value()})
}

/// The body of a Role to read the pods of its namespace.
pub fn sees_pods(metadata: Metadata) -> Value {
    json!({"metadata": metadata.into_value(), "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]})
}

/// The body of a RoleBinding between a Role and a ServiceAccount.
pub fn role_binding(metadata: Metadata, role: &str, namespace: &str, account: &str) -> Value {
    json!({
        "metadata": metadata.into_value(),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    })
}

/// The suffixes of endpoint pickers' Leases: of llm-d's scheduler, and of the older one of the Gateway API Inference Extension.
const PICKER_LEASES: [&str; 2] = ["llm-d.ai", "gateway-api-inference-extension.sigs.k8s.io"];

/// The body of a Role for this project's endpoint picker: it reads the pods and pools of its namespace, and writes nothing.
pub fn picks_endpoints(metadata: Metadata) -> Value {
    let sees = ["get", "list", "watch"];
    json!({
        "metadata": metadata.into_value(),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": sees},
            {
                "apiGroups": ["inference.networking.k8s.io", "inference.networking.x-k8s.io"], "resources": ["inferencepools"], "verbs": sees,
            },
            {
                "apiGroups": ["inference.networking.x-k8s.io", "llm-d.ai"],
                "resources": ["inferenceobjectives", "inferencemodelrewrites"],
                "verbs": sees,
            },
        ],
    })
}

/// The body of a Role for llm-d's endpoint picker, which also elects a leader among its replicas. It can write only its own Leases, because
/// other components in the namespace may elect their leaders with other Leases.
pub fn picks_endpoints_by_leader(metadata: Metadata, namespace: &str, pool: &str) -> Value {
    let sees = ["get", "list", "watch"];
    let leases = PICKER_LEASES.map(|suffix| format!("epp-{namespace}-{pool}.{suffix}"));
    json!({
        "metadata": metadata.into_value(),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": sees},
            {
                "apiGroups": ["inference.networking.k8s.io", "inference.networking.x-k8s.io"],
                "resources": ["inferencepools", "inferenceobjectives", "inferencemodels", "inferencemodelrewrites"],
                "verbs": sees,
            },
            {"apiGroups": ["llm-d.ai"], "resources": ["inferenceobjectives", "inferencemodelrewrites"], "verbs": sees},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": sees},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": leases, "verbs": ["get", "update", "patch"]},
            // The API server can't restrict create by name.
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        ],
    })
}
