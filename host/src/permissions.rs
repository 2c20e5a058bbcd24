//! The rights of a host in a cluster, per feature. `cargo xtask generate` writes `deploy/roles` from this list: rights that aren't here
//! aren't granted.
//!
//! A host that serves only some namespaces (`--namespaces`) has the same rights in these namespaces, by a Role in each, and cluster-wide
//! only those to cluster-scoped resources.

mod model_agent;
mod scheduler;

pub use model_agent::{
    MODEL_AGENT, MODEL_AGENT_ACCOUNT, MODEL_AGENT_NAMESPACE, MODEL_REPORTS, MODEL_SECRETS_ROLE, model_agent_objects, model_report_objects,
};
pub use scheduler::{
    EXTENDER_CONTAINER, SCHEDULER, SCHEDULER_ACCOUNT, SCHEDULER_EXTENDER_ROLE, SCHEDULER_MODEL_REPORTS, SCHEDULER_PODS, SCHEDULER_PROFILE,
    scheduler_model_report_objects, scheduler_objects,
};

use pointsman_core::{
    allocation::records::GATEWAY_PREFIX,
    objects::{Metadata, access},
    resource::{
        BASE_MODEL, BENCHMARK_JOB, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, DEPLOYMENT, FINE_TUNED_WEIGHT, GATEWAY,
        HORIZONTAL_POD_AUTOSCALER, HTTP_ROUTE, INFERENCE_MODEL, INFERENCE_MODEL_REWRITE, INFERENCE_OBJECTIVE, INFERENCE_POOL,
        INFERENCE_SERVICE, JOB, KNATIVE_SERVICE, LEADER_WORKER_SET, LLM_CONFIG, LLM_D_INFERENCE_MODEL_REWRITE, LLM_D_INFERENCE_OBJECTIVE,
        LLM_INFERENCE_SERVICE, NAMESPACE, NETWORK_POLICY, OF_PLANS, PERSISTENT_VOLUME_CLAIM, PICKER_KINDS, POD, POD_DISRUPTION_BUDGET,
        POLICY_PLUGIN, POLICY_SET, POOL_USERS, RAY_CLUSTER, REFERENCE_GRANT, ROLE, ROLE_BINDING, Resource, SCALED_OBJECT, SERVED, SERVICE,
        SERVICE_ACCOUNT, SERVING_RUNTIME, TRAINING_JOB, VALIDATION_RULE, X_INFERENCE_POOL,
    },
    settings::HOST_NAMESPACE,
    world::MissingRole,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The ServiceAccount that hosts run as.
pub const ACCOUNT: &str = "pointsman";

/// The ServiceAccount that gateways run as. Untrusted clients reach gateways, so they have none of a host's rights.
pub const GATEWAY_ACCOUNT: &str = "pointsman-gateway";

/// The gateways' roles. `pointsman-gateway` is the host's role for the Gateway API.
const GATEWAY_ROLE: &str = "pointsman-model-gateway";

/// The maximum number of gateways: RBAC limits each one's writes by its name.
const MAX_GATEWAYS: usize = 10;

/// The Secret with the certificates that the host creates for its webhook.
pub const WEBHOOK_SECRET: &str = "pointsman-webhook";

/// The Secret with the certificates for the external metrics API. The API's Service has the same name.
pub const EXTERNAL_METRICS_SECRET: &str = "pointsman-external-metrics";

/// The feature that every host has.
pub const BASE: &str = "base";

/// The feature of the admission webhook.
pub const WEBHOOK: &str = "webhook";

/// The feature of the external metrics API.
pub const EXTERNAL_METRICS: &str = "external-metrics";

/// The features that a host uses only with a flag. The kustomization with all rights doesn't include their folders.
const BY_FLAG: [&str; 2] = [WEBHOOK, EXTERNAL_METRICS];

/// The APIService of the external metrics API.
const EXTERNAL_METRICS_API: &str = "v1beta1.external.metrics.k8s.io";

/// The feature of InferenceModels.
pub const EH_OPS: &str = "eh-ops";

/// The folder in `deploy/roles` with the rights in each served namespace of a host that serves only some.
pub const IN_NAMESPACE: &str = "namespaced/tenant";

/// The folder in `deploy/roles` with such a host's other rights.
pub const BESIDE_NAMESPACES: &str = "namespaced/host";

/// Cluster-scoped resources in addition to the kinds of plans and users. Events about such objects are in the namespace `default`.
const OF_CLUSTER: [&str; 6] =
    ["apiservices", "customresourcedefinitions", "events", "mutatingwebhookconfigurations", "nodes", "validatingwebhookconfigurations"];

/// The verbs for kinds that are only read.
const SEES: &[&str] = &["list", "watch"];
/// The verbs for objects that are created for a subject. An apply is a patch; if it creates, the API server requires both verbs.
const OWNS: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];

/// A feature that a cluster may use, with the rights that it needs.
#[derive(Debug)]
pub struct Feature {
    /// The name of its folder, and of its roles after `pointsman-`.
    pub name: &'static str,
    /// The kinds or hosts that require the feature, for the comment of its files.
    pub purpose: &'static str,
    /// Rules for all namespaces.
    pub everywhere: Vec<Value>,
    /// Rules for the host's own namespace.
    pub at_home: Vec<Value>,
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// The same rule, limited to the objects of one name.
fn named(mut rule: Value, name: &str) -> Value {
    rule["resourceNames"] = json!([name]);
    rule
}

fn rules(resources: &[&Resource], verbs: &[&str]) -> Vec<Value> {
    resources.iter().map(|resource| rule(resource.group, resource.plural, verbs)).collect()
}

/// A kind of subject: the host reads it, writes its status, and names it as the owner of objects, which some clusters require a right for.
fn subject(resource: &Resource) -> Vec<Value> {
    let part = |part: &str, verb: &str| rule(resource.group, &format!("{}/{part}", resource.plural), &[verb]);
    [rules(&[resource], SEES), vec![part("status", "patch"), part("finalizers", "update")]].concat()
}

/// The rules of a Role that is created for a subject: the API server lets nobody grant rights that they lack.
fn granted(role: &Value) -> Vec<Value> {
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    rules
        .into_iter()
        .map(|mut rule| {
            // The names are those of the subjects' objects.
            rule.as_object_mut().map(|rule| rule.remove("resourceNames"));
            rule
        })
        .collect()
}

/// The rights that every host needs.
fn base() -> Feature {
    let policy = POLICY_PLUGIN.group;
    let status = [&POLICY_PLUGIN, &POLICY_SET, &VALIDATION_RULE].map(|kind| format!("{}/status", kind.plural));
    Feature {
        name: BASE,
        purpose: "Required by every host.",
        everywhere: vec![
            rule("apiextensions.k8s.io", "customresourcedefinitions", &["get", "list", "watch"]),
            rule(NAMESPACE.group, NAMESPACE.plural, SEES),
            rule(POD.group, POD.plural, SEES),
            rule("events.k8s.io", "events", &["create", "patch"]),
            rule(policy, POLICY_PLUGIN.plural, &["create", "list", "watch"]),
            rule(policy, POLICY_SET.plural, &["create", "delete", "get", "list", "patch", "watch"]),
            rule(policy, VALIDATION_RULE.plural, &["create", "list", "patch", "watch"]),
            json!({"apiGroups": [policy], "resources": status, "verbs": ["patch"]}),
        ],
        at_home: vec![
            // Only the host's own: for RBAC, a Namespace object is inside itself.
            rule(NAMESPACE.group, NAMESPACE.plural, &["get"]),
            rule("", "configmaps", &["create", "delete", "get", "list", "patch", "update", "watch"]),
            rule("coordination.k8s.io", "leases", &["create"]),
            named(rule("coordination.k8s.io", "leases", &["get", "update"]), ACCOUNT),
        ],
    }
}

/// The rights for the certificates that a host creates for itself.
fn own_certificates(secret: &str) -> Vec<Value> {
    // The API server can't limit a creation by name.
    vec![rule("", "secrets", &["create"]), named(rule("", "secrets", &["list", "update", "watch"]), secret)]
}

/// The rights for the external metrics API.
fn external_metrics() -> Feature {
    Feature {
        name: EXTERNAL_METRICS,
        purpose: "Required for the external metrics API.",
        // Pools, and the objects between them and their pickers, are read for each query.
        everywhere: [
            vec![named(rule("apiregistration.k8s.io", "apiservices", &["list", "patch", "watch"]), EXTERNAL_METRICS_API)],
            rules(&[&INFERENCE_POOL, &X_INFERENCE_POOL, &SERVICE], &["get"]),
            rules(&[&POD], &["list"]),
        ]
        .concat(),
        at_home: own_certificates(EXTERNAL_METRICS_SECRET),
    }
}

/// The kinds of object that both kinds of service need.
const SERVED_BY: [&Resource; 6] = [&DEPLOYMENT, &SERVICE, &SERVICE_ACCOUNT, &ROLE, &ROLE_BINDING, &HORIZONTAL_POD_AUTOSCALER];

fn kserve() -> Feature {
    Feature {
        name: "kserve",
        purpose: "Required for LLMInferenceServices.",
        everywhere: [
            subject(&LLM_INFERENCE_SERVICE),
            rules(&[&LLM_CONFIG], SEES),
            rules(&SERVED_BY, OWNS),
            // The objects by which a service's scheduler learns its criticality.
            rules(&[&INFERENCE_OBJECTIVE, &LLM_D_INFERENCE_OBJECTIVE], OWNS),
            // The Role for this project's picker has no other rights.
            granted(&access::picks_endpoints_by_leader(Metadata::default(), "", "")),
        ]
        .concat(),
        // For the image of the host's own pod, which runs their schedulers.
        at_home: vec![rule("", "pods", &["get"])],
    }
}

/// All features, in the order of the docs.
pub fn features() -> Vec<Feature> {
    let neighbour = |name, purpose, kinds: &[&Resource]| Feature { name, purpose, everywhere: rules(kinds, OWNS), at_home: Vec::new() };
    vec![
        base(),
        Feature {
            name: "ome",
            purpose: "Required for InferenceServices, BenchmarkJobs and TrainingJobs.",
            everywhere: [
                subject(&INFERENCE_SERVICE),
                // The labels for `kubectl get --selector` are in the object's metadata.
                rules(&[&INFERENCE_SERVICE, &BENCHMARK_JOB, &TRAINING_JOB], &["patch"]),
                subject(&BENCHMARK_JOB),
                subject(&TRAINING_JOB),
                // An expired TrainingJob is deleted, and the FineTunedWeight of a successful one is created.
                rules(&[&TRAINING_JOB], &["delete"]),
                rules(&[&FINE_TUNED_WEIGHT], &["create"]),
                rules(&[&BASE_MODEL, &CLUSTER_BASE_MODEL, &SERVING_RUNTIME, &CLUSTER_SERVING_RUNTIME, &FINE_TUNED_WEIGHT], SEES),
                rules(&SERVED_BY, OWNS),
                rules(&[&POD_DISRUPTION_BUDGET, &NETWORK_POLICY, &PERSISTENT_VOLUME_CLAIM, &JOB], OWNS),
                granted(&access::sees_pods(Metadata::default())),
                // The nodes' copies of a model go into its status, and the facts from its files into its spec.
                vec![rule("", "nodes", SEES)],
                // The state of weights, and the users of a runtime.
                [&SERVING_RUNTIME, &CLUSTER_SERVING_RUNTIME, &FINE_TUNED_WEIGHT]
                    .map(|kind| rule(kind.group, &format!("{}/status", kind.plural), &["patch"]))
                    .to_vec(),
                [&BASE_MODEL, &CLUSTER_BASE_MODEL]
                    .into_iter()
                    .flat_map(|model| {
                        [model.plural.to_owned(), format!("{}/status", model.plural)].map(|part| rule(model.group, &part, &["patch"]))
                    })
                    .collect(),
            ]
            .concat(),
            // For the image of the host's own pod, in which models on PersistentVolumeClaims are inspected.
            at_home: vec![rule("", "pods", &["get"])],
        },
        kserve(),
        Feature {
            name: EH_OPS,
            purpose: "Required for InferenceModels.",
            // The finalizer is in the object's metadata. The allocation of memory depends on all pods of a node.
            everywhere: [
                subject(&INFERENCE_MODEL),
                rules(&[&INFERENCE_MODEL], &["patch"]),
                rules(&[&DEPLOYMENT, &SERVICE], OWNS),
                vec![rule("", "nodes", SEES), rule("metrics.k8s.io", "pods", &["list"])],
            ]
            .concat(),
            at_home: Vec::new(),
        },
        neighbour("leaderworkerset", "Required for services on groups of nodes.", &[&LEADER_WORKER_SET]),
        neighbour("knative", "Required for InferenceServices that scale to zero with Knative.", &[&KNATIVE_SERVICE]),
        neighbour("ray", "Required for InferenceServices on Ray.", &[&RAY_CLUSTER]),
        neighbour("keda", "Required for services that scale with KEDA.", &[&SCALED_OBJECT]),
        Feature {
            name: "gateway",
            purpose: "Required for services with routes of the Gateway API.",
            everywhere: [rules(&[&HTTP_ROUTE], OWNS), rules(&[&GATEWAY, &REFERENCE_GRANT], SEES)].concat(),
            at_home: Vec::new(),
        },
        Feature {
            name: "inference-pool",
            purpose: "Required for LLMInferenceServices with a scheduler, and for InferenceObjectives and InferenceModelRewrites.",
            everywhere: [
                rules(&[&INFERENCE_POOL], OWNS),
                rules(
                    &[
                        &X_INFERENCE_POOL,
                        &INFERENCE_OBJECTIVE,
                        &LLM_D_INFERENCE_OBJECTIVE,
                        &INFERENCE_MODEL_REWRITE,
                        &LLM_D_INFERENCE_MODEL_REWRITE,
                    ],
                    SEES,
                ),
                POOL_USERS.map(|kind| rule(kind.group, &format!("{}/status", kind.plural), &["patch"])).to_vec(),
            ]
            .concat(),
            at_home: Vec::new(),
        },
        Feature {
            name: WEBHOOK,
            purpose: "Required for the admission webhook.",
            everywhere: ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
                .map(|resource| named(rule("admissionregistration.k8s.io", resource, &["list", "patch", "watch"]), ACCOUNT))
                .to_vec(),
            at_home: own_certificates(WEBHOOK_SECRET),
        },
        external_metrics(),
    ]
}

/// The ServiceAccount of gateways, its roles and their bindings.
pub fn gateway_objects() -> Vec<Value> {
    // The API server can't limit a creation by name. An existing object, such as the record of the active policies, can't be changed by it.
    let mut own = rule("", "configmaps", &["delete", "get", "patch"]);
    own["resourceNames"] = (0..MAX_GATEWAYS).map(|number| format!("{GATEWAY_PREFIX}{number}")).collect();
    let everywhere =
        [rules(&[&INFERENCE_MODEL, &NAMESPACE], SEES), vec![rule("authentication.k8s.io", "tokenreviews", &["create"])]].concat();
    let at_home = [rule("", "configmaps", &["create", "list", "watch"]), own];
    [
        account(GATEWAY_ACCOUNT),
        role(GATEWAY_ROLE, (HOST_NAMESPACE, GATEWAY_ACCOUNT), "ClusterRole", None, &everywhere),
        role(GATEWAY_ROLE, (HOST_NAMESPACE, GATEWAY_ACCOUNT), "Role", Some(HOST_NAMESPACE), &at_home),
    ]
    .concat()
}

fn account(name: &str) -> Vec<Value> {
    vec![json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": HOST_NAMESPACE}})]
}

/// A role with its binding to a ServiceAccount, if there are any rules.
fn role(name: &str, (home, account): (&str, &str), kind: &str, namespace: Option<&str>, rules: &[Value]) -> Vec<Value> {
    if rules.is_empty() {
        return Vec::new();
    }
    let metadata = match namespace {
        Some(namespace) => json!({"name": name, "namespace": namespace}),
        None => json!({"name": name}),
    };
    let api_version = "rbac.authorization.k8s.io/v1";
    let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": home}]);
    vec![
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({"apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": ROLE.group, "kind": kind, "name": name}, "subjects": subjects}),
    ]
}

/// Whether a host reads a kind in all namespaces even if it serves only some: cluster-scoped kinds, and those that services name in other
/// namespaces.
pub fn is_read_everywhere(resource: &Resource) -> bool {
    !resource.namespaced || *resource == GATEWAY
}

/// Whether a rule is about cluster-scoped resources or those that are read in all namespaces.
fn is_for_everywhere(rule: &Value) -> bool {
    let first = |field: &str| rule[field][0].as_str().unwrap_or_default();
    let plural = first("resources").split('/').next().unwrap_or_default();
    let known = OF_PLANS
        .iter()
        .chain(SERVED)
        .chain(PICKER_KINDS)
        .find(|resource| resource.group == first("apiGroups") && resource.plural == plural);
    known.map_or(OF_CLUSTER.contains(&plural), |resource| is_read_everywhere(resource))
}

/// The feature whose role lets a host list a kind.
pub fn grants_list(resource: &Resource) -> Option<&'static str> {
    grants("list", (resource.group, resource.plural), None, false)
}

/// The feature whose role grants a right to a resource of a group, such as `pods/status`, for all of its objects or for the one of this
/// name. `is_at_home` includes the rights in the host's own namespace.
pub fn grants(verb: &str, (group, resource): (&str, &str), name: Option<&str>, is_at_home: bool) -> Option<&'static str> {
    let has = |list: &Value, name: &str| list.as_array().is_some_and(|list| list.iter().any(|item| item == name));
    let does = |rule: &Value| {
        let names = &rule["resourceNames"];
        has(&rule["apiGroups"], group)
            && has(&rule["resources"], resource)
            && has(&rule["verbs"], verb)
            && (names.is_null() || name.is_some_and(|name| has(names, name)))
    };
    let features = features();
    let at_home = features.iter().find(|feature| is_at_home && feature.at_home.iter().any(does));
    at_home.or_else(|| features.iter().find(|feature| feature.everywhere.iter().any(does))).map(|feature| feature.name)
}

/// The missing role of a feature, for a host that serves these namespaces or, if there are none, all: in one namespace or cluster-wide.
pub fn missing_role(feature: &str, served: &BTreeSet<String>, namespace: Option<&str>) -> MissingRole {
    let namespace = namespace.filter(|namespace| served.contains(*namespace));
    let folder = match namespace {
        _ if served.is_empty() => feature.to_owned(),
        Some(_) => format!("{IN_NAMESPACE}/{feature}"),
        None => format!("{BESIDE_NAMESPACES}/{feature}"),
    };
    MissingRole { folder, namespaces: namespace.map(str::to_owned).into_iter().collect() }
}

impl Feature {
    /// The feature's roles, and their bindings to the host's ServiceAccount.
    pub fn objects(&self) -> Vec<Value> {
        let at_home = self.role("Role", Some(HOST_NAMESPACE), &self.at_home);
        [self.account(), self.role("ClusterRole", None, &self.everywhere), at_home, self.bindings()].concat()
    }

    /// The rules of `everywhere` that a host which serves only some namespaces needs in each of them.
    pub fn in_namespace(&self) -> Vec<Value> {
        self.everywhere.iter().filter(|rule| !is_for_everywhere(rule)).cloned().collect()
    }

    /// The rules that such a host needs cluster-wide. A node's free memory depends on its pods of all namespaces.
    pub fn for_everywhere(&self) -> Vec<Value> {
        let pods = if self.name == EH_OPS { rules(&[&POD], SEES) } else { Vec::new() };
        // Such a host writes nothing about the models, weights and runtimes of the whole cluster.
        let writes_catalogue = |rule: &&Value| rule["apiGroups"][0] == BASE_MODEL.group && rule["verbs"] == json!(["patch"]);
        let rules = self.everywhere.iter().filter(|rule| is_for_everywhere(rule) && !writes_catalogue(rule));
        rules.cloned().chain(pods).collect()
    }

    /// The rules for the host's namespace if it serves only others: LLMInferenceServices build on configurations there.
    pub fn beside_namespaces(&self) -> Vec<Value> {
        let configurations = if self.name == "kserve" { rules(&[&LLM_CONFIG], SEES) } else { Vec::new() };
        [self.at_home.clone(), configurations].concat()
    }

    /// The roles of a host that serves only some namespaces, without its rights in them.
    pub fn host_objects(&self) -> Vec<Value> {
        let everywhere = self.role("ClusterRole", None, &self.for_everywhere());
        [self.account(), everywhere, self.role("Role", Some(HOST_NAMESPACE), &self.beside_namespaces()), self.bindings()].concat()
    }

    /// The role in one of these namespaces. Whoever applies it sets the namespace.
    pub fn namespace_objects(&self) -> Vec<Value> {
        self.role("Role", None, &self.in_namespace())
    }

    /// The ServiceAccount, which is part of the base feature.
    fn account(&self) -> Vec<Value> {
        if self.name == BASE { account(ACCOUNT) } else { Vec::new() }
    }

    /// The binding to a role that Kubernetes defines, with which the host reads who may call the external metrics API.
    fn bindings(&self) -> Vec<Value> {
        if self.name != EXTERNAL_METRICS {
            return Vec::new();
        }
        vec![json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("pointsman-{EXTERNAL_METRICS}"), "namespace": "kube-system"},
            "roleRef": {"apiGroup": ROLE.group, "kind": "Role", "name": "extension-apiserver-authentication-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": HOST_NAMESPACE}]})]
    }

    /// Whether a host uses the feature only with a flag, which has the feature's name.
    pub fn is_by_flag(&self) -> bool {
        BY_FLAG.contains(&self.name)
    }

    /// A role with its binding, if there are any rules.
    fn role(&self, kind: &str, namespace: Option<&str>, rules: &[Value]) -> Vec<Value> {
        role(&format!("pointsman-{}", self.name), (HOST_NAMESPACE, ACCOUNT), kind, namespace, rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, env, fs, path::Path};

    /// The variable that xtask sets (`xtask/src/build.rs`).
    const UPDATE: &str = "POINTSMAN_UPDATE_ROLES";

    fn yaml(comment: &str, objects: &[Value]) -> String {
        let documents: Vec<String> = objects.iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect();
        format!("# {comment}\n{}", documents.join("---\n"))
    }

    fn kustomization(comment: &str, resources: &[String]) -> String {
        yaml(comment, &[json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources})])
    }

    /// The files: a folder per feature, because kustomize accepts folders from elsewhere but no files. Only users of the webhook and of the
    /// external metrics API include their folders.
    fn files() -> BTreeMap<String, String> {
        let features = features();
        let common = features.iter().filter(|feature| !feature.is_by_flag()).map(|feature| feature.name.to_owned()).collect::<Vec<_>>();
        let mut files = BTreeMap::from([(
            "kustomization.yaml".to_owned(),
            kustomization(
                "The rights of a host that serves all kinds. To grant fewer, list some of these folders instead of this one.",
                &common,
            ),
        )]);
        for feature in &features {
            let mut folder = |name: String, objects: &[Value]| {
                files.insert(format!("{name}/roles.yaml"), yaml(feature.purpose, objects));
                files.insert(format!("{name}/kustomization.yaml"), kustomization(feature.purpose, &["roles.yaml".to_owned()]));
            };
            folder(feature.name.to_owned(), &feature.objects());
            // The webhook needs only cluster-scoped resources and the host's namespace.
            if feature.name != WEBHOOK {
                for (parent, objects) in [(BESIDE_NAMESPACES, feature.host_objects()), (IN_NAMESPACE, feature.namespace_objects())] {
                    if !objects.is_empty() {
                        folder(format!("{parent}/{}", feature.name), &objects);
                    }
                }
            }
        }
        let parents = [
            (BESIDE_NAMESPACES, "The rights of a host that serves only some namespaces, in addition to its rights in these namespaces."),
            (IN_NAMESPACE, "The rights of such a host in a namespace that it serves. One kustomization per namespace sets `namespace`."),
        ];
        for (parent, comment) in parents {
            let is_there = |name: &&String| files.contains_key(&format!("{parent}/{name}/roles.yaml"));
            let there: Vec<String> = common.iter().filter(is_there).cloned().collect();
            files.insert(format!("{parent}/kustomization.yaml"), kustomization(comment, &there));
        }
        files
    }

    fn found(folder: &Path) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_file() {
                found.push(name);
            } else {
                found.extend(self::found(&entry.path()).into_iter().map(|file| format!("{name}/{file}")));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn the_files_in_deploy_roles_are_those_of_the_code() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/roles");
        let expected = files();
        if env::var_os(UPDATE).is_some() {
            for (name, text) in &expected {
                let file = folder.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
        }
        for (name, text) in &expected {
            let there = fs::read_to_string(folder.join(name)).unwrap_or_default();
            assert!(there == *text, "deploy/roles/{name} differs from the code: run `cargo xtask generate`");
        }
        let others = [
            ("gateway", "The rights of the gateway.", gateway_objects()),
            (MODEL_REPORTS, "The namespace of model agents, and the host's right to read their reports.", model_report_objects()),
            (MODEL_AGENT, "The rights of model agents.", model_agent_objects()),
            (SCHEDULER, "The rights of the scheduler and its extender.", scheduler_objects()),
            (SCHEDULER_MODEL_REPORTS, "The extender's right to read model agents' reports.", scheduler_model_report_objects()),
        ];
        for (name, comment, objects) in others {
            let (file, text) = (folder.join(format!("../{name}/roles.yaml")), yaml(comment, &objects));
            if env::var_os(UPDATE).is_some() {
                fs::write(&file, &text).unwrap();
            }
            assert!(
                fs::read_to_string(&file).unwrap_or_default() == text,
                "deploy/{name}/roles.yaml differs from the code: run `cargo xtask generate`"
            );
        }
        assert_eq!(found(&folder), expected.keys().cloned().collect::<Vec<_>>(), "deploy/roles holds other files");
    }
}
