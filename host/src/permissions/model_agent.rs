//! The rights of model agents, and the rights of a host to their reports.
//!
//! An agent's token is that of a DaemonSet, and RBAC can't confine it to the node of its pod. A ValidatingAdmissionPolicy does: whoever
//! compromises a node can change that node's model labels and report, and no other's.

use super::{ACCOUNT, SEES, role, rule, rules};
use pointsman_core::{
    resource::{BASE_MODEL, CLUSTER_BASE_MODEL},
    settings::HOST_NAMESPACE,
};
use serde_json::{Value, json};

/// The namespace of the model agents: they mount folders of nodes, which other namespaces should forbid.
pub const MODEL_AGENT_NAMESPACE: &str = "pointsman-model-agent";

/// The ServiceAccount that they run as, and the name of its roles and of the admission policy.
pub const MODEL_AGENT_ACCOUNT: &str = "pointsman-model-agent";

/// The role to read Secrets: a binding in a namespace lets the agents read the Secrets there.
pub const MODEL_SECRETS_ROLE: &str = "pointsman-model-secrets";

/// The role with which hosts read the agents' reports.
const MODEL_REPORTS_ROLE: &str = "pointsman-model-reports";

/// The folder below `deploy` with the agents.
pub const MODEL_AGENT: &str = "model-agent";

/// The folder below `deploy` with the namespace, and a host's rights in it.
pub const MODEL_REPORTS: &str = "model-reports";

/// The prefix of the labels that agents set on nodes.
const LABEL_PREFIX: &str = "models.ome.io/";

/// The namespace, and a host's rights in it.
pub fn model_report_objects() -> Vec<Value> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": MODEL_AGENT_NAMESPACE,
        // The agents need hostPath volumes.
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
    }});
    let reads = role(MODEL_REPORTS_ROLE, (HOST_NAMESPACE, ACCOUNT), "Role", Some(MODEL_AGENT_NAMESPACE), &[rule("", "configmaps", SEES)]);
    [vec![namespace], reads].concat()
}

/// The agents' ServiceAccount, its roles with their bindings, and the policy that confines its tokens.
pub fn model_agent_objects() -> Vec<Value> {
    let account = (MODEL_AGENT_NAMESPACE, MODEL_AGENT_ACCOUNT);
    let everywhere = [rules(&[&BASE_MODEL, &CLUSTER_BASE_MODEL], SEES), vec![rule("", "nodes", &["list", "patch", "watch"])]].concat();
    let at_home = [rule("", "configmaps", &["create", "list", "update", "watch"])];
    let secrets = [rule("", "secrets", &["get"])];
    let api_version = "rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": MODEL_SECRETS_ROLE, "namespace": MODEL_AGENT_NAMESPACE});
    [
        vec![json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": MODEL_AGENT_ACCOUNT, "namespace": MODEL_AGENT_NAMESPACE}})],
        role(MODEL_AGENT_ACCOUNT, account, "ClusterRole", None, &everywhere),
        role(MODEL_AGENT_ACCOUNT, account, "Role", Some(MODEL_AGENT_NAMESPACE), &at_home),
        vec![
            // For a RoleBinding in each namespace whose BaseModels need credentials. The agents' namespace has one, for ClusterBaseModels.
            json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": MODEL_SECRETS_ROLE}, "rules": secrets}),
            json!({"apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": MODEL_SECRETS_ROLE},
                "subjects": [{"kind": "ServiceAccount", "name": MODEL_AGENT_ACCOUNT, "namespace": MODEL_AGENT_NAMESPACE}]}),
        ],
        admission_policy(),
    ]
    .concat()
}

/// Lets an agent write only its own node and report, and of the node only the model labels.
fn admission_policy() -> Vec<Value> {
    let api_version = "admissionregistration.k8s.io/v1";
    let same = |field: &str| {
        format!(
            "has(object.metadata.{field}) == has(oldObject.metadata.{field}) && (!has(object.metadata.{field}) || object.metadata.{field} == oldObject.metadata.{field})"
        )
    };
    let labels = |object: &str| format!("(has({object}.metadata.labels) ? {object}.metadata.labels : {{}})");
    let kept = |a: &str, b: &str| {
        let (a, b) = (labels(a), labels(b));
        format!("{a}.all(key, key.startsWith('{LABEL_PREFIX}') || (key in {b} && {b}[key] == {a}[key]))")
    };
    let only_labels = [
        "object.spec == oldObject.spec".to_owned(),
        same("annotations"),
        same("finalizers"),
        same("ownerReferences"),
        kept("object", "oldObject"),
        kept("oldObject", "object"),
    ];
    let only_labels: Vec<String> = only_labels.iter().map(|part| format!("({part})")).collect();
    let node = "'authentication.kubernetes.io/node-name'";
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["nodes", "configmaps"]},
        ]},
        "matchConditions": [{
            "name": "by-a-model-agent",
            "expression": format!("request.userInfo.username == 'system:serviceaccount:{MODEL_AGENT_NAMESPACE}:{MODEL_AGENT_ACCOUNT}'"),
        }],
        "variables": [{
            "name": "node",
            "expression": format!(
                "has(request.userInfo.extra) && {node} in request.userInfo.extra && size(request.userInfo.extra[{node}]) == 1 ? request.userInfo.extra[{node}][0] : ''"
            ),
        }],
        "validations": [
            {
                "expression": "variables.node != ''",
                "message": "the token of this model agent names no node: it must be that of the agent's pod, and the API server's version at least 1.30",
                "reason": "Forbidden",
            },
            {
                "expression": "variables.node == '' || request.name == variables.node",
                "messageExpression": "'the model agent of the node ' + variables.node + ' writes only that node and the ConfigMap of that name, not ' + request.name",
                "reason": "Forbidden",
            },
            {
                "expression": format!("request.resource.resource != 'nodes' || request.operation == 'UPDATE' && {}", only_labels.join(" && ")),
                "message": format!("a model agent writes only labels of its node, and only those that begin with {LABEL_PREFIX}"),
                "reason": "Forbidden",
            },
        ],
    });
    vec![
        json!({"apiVersion": api_version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": MODEL_AGENT_ACCOUNT}, "spec": spec}),
        json!({"apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": MODEL_AGENT_ACCOUNT},
            "spec": {"policyName": MODEL_AGENT_ACCOUNT, "validationActions": ["Deny"]}}),
    ]
}
