//! What pods may do in the API.

use super::Metadata;
use serde_json::{Value, json};

/// A ServiceAccount's body.
pub fn service_account(metadata: Metadata) -> Value {
    json!({"metadata": metadata.into_value()})
}

/// The body of a Role that lets its holder see the pods of its namespace.
pub fn sees_pods(metadata: Metadata) -> Value {
    json!({"metadata": metadata.into_value(), "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]})
}

/// The body of a RoleBinding that gives a Role to a ServiceAccount.
pub fn role_binding(metadata: Metadata, role: &str, namespace: &str, account: &str) -> Value {
    json!({
        "metadata": metadata.into_value(),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    })
}

/// The body of a Role for an endpoint picker: it sees the pods and pools of its namespace, and elects a leader among its replicas.
pub fn picks_endpoints(metadata: Metadata) -> Value {
    let sees = ["get", "list", "watch"];
    let elects = ["get", "list", "watch", "create", "update", "patch", "delete"];
    json!({
        "metadata": metadata.into_value(),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": sees},
            {
                "apiGroups": ["inference.networking.k8s.io", "inference.networking.x-k8s.io"],
                "resources": ["inferencepools", "inferenceobjectives", "inferencemodels", "inferencemodelrewrites"],
                "verbs": sees,
            },
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": sees},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": elects},
        ],
    })
}
