//! The rights of the scheduler in `deploy/scheduler` and of its extender. Both are in one pod, so they share a ServiceAccount.

use super::{MODEL_AGENT_NAMESPACE, SEES, account, named, role, rule, rules};
use pointsman_core::{
    resource::{NAMESPACE, ROLE},
    settings::HOST_NAMESPACE,
};
use serde_json::{Value, json};

/// The ServiceAccount that both run as, and the name of the scheduler's Lease and roles.
pub const SCHEDULER_ACCOUNT: &str = "pointsman-scheduler";

/// The `schedulerName` of the pods that it places.
pub const SCHEDULER_PROFILE: &str = "pointsman";

/// The container of the extender in its pods.
pub const EXTENDER_CONTAINER: &str = "extender";

/// The label that selects its pods.
pub const SCHEDULER_PODS: &str = "app.kubernetes.io/name=pointsman-scheduler";

/// The roles of the extender. If it runs next to another scheduler, they are bound to that scheduler's account.
pub const SCHEDULER_EXTENDER_ROLE: &str = "pointsman-scheduler-extender";

/// The folder below `deploy` with the scheduler and its extender.
pub const SCHEDULER: &str = "scheduler";

/// The folder below `deploy` with the extender's right to read model agents' reports.
pub const SCHEDULER_MODEL_REPORTS: &str = "components/scheduler-model-reports";

/// The role with this right.
const MODEL_REPORTS_ROLE: &str = "pointsman-scheduler-model-reports";

/// Kubernetes' own roles for schedulers.
const CLUSTER_ROLES: [&str; 2] = ["system:kube-scheduler", "system:volume-scheduler"];

/// The ServiceAccount, its roles and their bindings.
pub fn scheduler_objects() -> Vec<Value> {
    let account_name = (HOST_NAMESPACE, SCHEDULER_ACCOUNT);
    let everywhere = [
        rules(&[&NAMESPACE], SEES),
        vec![
            rule("", "nodes", SEES),
            // Members of a gang that can't be completed are deleted, and pods that the scheduler should retry are annotated.
            rule("", "pods", &["delete", "list", "patch", "watch"]),
            // To read whether it creates workers only once their leader is Ready.
            rule("leaderworkerset.x-k8s.io", "leaderworkersets", &["get"]),
            rule("events.k8s.io", "events", &["create", "patch"]),
        ],
    ]
    .concat();
    // The record of the active policies, and the revisions of plugins.
    let at_home = [rule("", "configmaps", &["get", "list", "watch"])];
    let lease = [
        rule("coordination.k8s.io", "leases", &["create"]),
        named(rule("coordination.k8s.io", "leases", &["get", "update"]), SCHEDULER_ACCOUNT),
    ];
    [
        account(SCHEDULER_ACCOUNT),
        role(SCHEDULER_EXTENDER_ROLE, account_name, "ClusterRole", None, &everywhere),
        role(SCHEDULER_EXTENDER_ROLE, account_name, "Role", Some(HOST_NAMESPACE), &at_home),
        role(SCHEDULER_ACCOUNT, account_name, "Role", Some(HOST_NAMESPACE), &lease),
        bindings(),
    ]
    .concat()
}

/// The extender's rights in the namespace of the model agents.
pub fn scheduler_model_report_objects() -> Vec<Value> {
    role(MODEL_REPORTS_ROLE, (HOST_NAMESPACE, SCHEDULER_ACCOUNT), "Role", Some(MODEL_AGENT_NAMESPACE), &[rule("", "configmaps", SEES)])
}

/// The bindings to Kubernetes' own roles.
fn bindings() -> Vec<Value> {
    let binding = |kind: &str, metadata: Value, role_kind: &str, role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
            "roleRef": {"apiGroup": ROLE.group, "kind": role_kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": SCHEDULER_ACCOUNT, "namespace": HOST_NAMESPACE}]})
    };
    let mut bindings: Vec<Value> = CLUSTER_ROLES
        .iter()
        .map(|role| {
            let name = format!("{SCHEDULER_ACCOUNT}-{}", role.trim_start_matches("system:"));
            binding("ClusterRoleBinding", json!({"name": name}), "ClusterRole", role)
        })
        .collect();
    // The scheduler needs this one to learn who may read its metrics.
    let metadata = json!({"name": SCHEDULER_ACCOUNT, "namespace": "kube-system"});
    bindings.push(binding("RoleBinding", metadata, "Role", "extension-apiserver-authentication-reader"));
    bindings
}
