//! Parses nodes, pods and models into the inputs of an allocation.

use super::{Closed, Model, Node, amounts::Amounts};
use crate::{
    duration,
    objects::strings,
    quantity::{self, MILLI, WHOLE},
    resource::INFERENCE_MODEL,
    subject_kind::{APP_COMPONENT, APP_NAME, SUBJECT_KIND},
};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The annotation of a node that limits the memory for models: a quantity.
pub const MEMORY_BUDGET: &str = "pointsman.dev/memory-budget";

/// The annotation of a model with its priority: a number; higher is more important.
pub const PRIORITY: &str = "pointsman.dev/priority";

/// The annotation of a model with the minimum time that it stays awake: a duration.
pub const RESIDENCY: &str = "pointsman.dev/minimum-residency";

/// The default minimum time that a model stays awake, in seconds: loading it has taken minutes of GPU time.
pub const DEFAULT_RESIDENCY: u64 = 300;

/// The default time without requests after which a model goes to sleep, in seconds: the default of the CRD.
const DEFAULT_COOLDOWN: u64 = 600;

/// The label of a model's objects; its value is `true`. Upstream's controller sets it too.
pub const MANAGED: &str = "inference.eh-ops.io/managed";

/// The label with the name that clients use for a model. Upstream's controller sets it too.
pub const MODEL: &str = "inference.eh-ops.io/model";

/// The component label's value on a model's pods. Upstream's controller sets it too.
pub const SERVER: &str = "inference-server";

/// The resource name of GPUs, and the key of the taint that keeps other pods off GPU nodes.
pub const GPU: &str = "nvidia.com/gpu";

/// The prefix of the taints that Kubernetes sets for node conditions and for cordoned nodes.
const NODE_TAINTS: &str = "node.kubernetes.io/";

/// A quantity in whole units, rounded up; 0 if it is invalid.
fn rounded(value: &str, unit: i128) -> i64 {
    quantity::rounded_up(value, unit).unwrap_or_default()
}

/// Amounts by resource name.
type Resources = BTreeMap<String, Text>;

/// A quantity, which clients may also write as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Word(String),
    Number(serde_json::Number),
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Amounts {
    /// Takes each resource from the first list that has it.
    fn from_resources(lists: &[&Resources]) -> Self {
        let amount = |name: &str, unit: i128| match lists.iter().find_map(|list| list.get(name)) {
            Some(Text::Word(word)) => rounded(word, unit),
            Some(Text::Number(number)) => rounded(&number.to_string(), unit),
            None => 0,
        };
        Self { memory: amount("memory", WHOLE), cpu: amount("cpu", MILLI), gpus: amount(GPU, WHOLE), pods: amount("pods", WHOLE) }
    }
}

impl Node {
    /// Parses a node, and reports an invalid annotation. The requests of other pods are added elsewhere.
    pub fn from_object(text: &str) -> (String, Self, Option<String>) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Object {
            metadata: Metadata,
            spec: Spec,
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            unschedulable: bool,
            taints: Vec<Taint>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Taint {
            key: String,
            effect: String,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            allocatable: Resources,
            conditions: Vec<Condition>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Condition {
            r#type: String,
            status: String,
        }
        let Object { metadata, spec, status } = serde_json::from_str(text).unwrap_or_default();
        let is_ready = status.conditions.iter().any(|condition| condition.r#type == "Ready" && condition.status == "True");
        let closed = if spec.unschedulable {
            Some(Closed::Cordoned)
        } else if is_ready {
            None
        } else {
            Some(Closed::NotReady)
        };
        let (memory_budget, problem) = match metadata.annotations.get(MEMORY_BUDGET) {
            None => (None, None),
            Some(text) if quantity::parse_text(text).is_some_and(|budget| budget >= 0) => (Some(rounded(text, WHOLE)), None),
            Some(text) => (None, Some(format!("{MEMORY_BUDGET} is {text:?}, which is not a quantity of memory: write it like 64Gi"))),
        };
        let keeps_away = |taint: &Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
        let is_implied = |key: &str| closed.is_some() && key.starts_with(NODE_TAINTS);
        let taints = spec.taints.into_iter().filter(keeps_away).map(|taint| taint.key).filter(|key| !is_implied(key)).collect();
        let node = Self {
            labels: metadata.labels,
            allocatable: Amounts::from_resources(&[&status.allocatable]),
            memory_budget,
            others: Amounts::default(),
            closed,
            taints,
        };
        (metadata.name, node, problem)
    }
}

/// The fields of a pod that matter for an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// Its node; empty while it isn't scheduled.
    pub node: String,
    /// Its requests.
    pub amounts: Amounts,
    /// The namespace and label of its model, if its labels name one.
    pub model: Option<(String, String)>,
    /// The time of its creation, in seconds since 1970.
    pub created: u64,
    /// The time since when it has been ready, if it is.
    pub ready_since: Option<u64>,
    /// Whether one of its containers has restarted.
    pub restarted: bool,
}

/// Parses a Kubernetes timestamp into seconds since 1970.
pub fn seconds(time: &str) -> Option<u64> {
    time.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_second()).ok())
}

impl PodUsage {
    /// Parses a pod. None if it has ended and takes no resources.
    pub fn from_object(text: &str) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Object {
            metadata: Metadata,
            spec: Spec,
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Spec {
            node_name: String,
            containers: Vec<Container>,
            init_containers: Vec<Container>,
            overhead: Resources,
            resources: Requirements,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Container {
            resources: Requirements,
            restart_policy: String,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Requirements {
            requests: Resources,
            limits: Resources,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Status {
            phase: String,
            conditions: Vec<Condition>,
            container_statuses: Vec<ContainerStatus>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Condition {
            r#type: String,
            status: String,
            last_transition_time: Option<String>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct ContainerStatus {
            restart_count: i64,
        }
        let Object { metadata, spec, status } = serde_json::from_str(text).ok()?;
        if matches!(&*status.phase, "Succeeded" | "Failed") {
            return None;
        }
        // As in the API server, a limit is the default for the request; a planned pod hasn't passed through the API server yet.
        let requests = |container: &Container| {
            let Requirements { requests, limits } = &container.resources;
            Amounts::from_resources(&[requests, limits])
        };
        let mut running = spec.containers.iter().map(requests).fold(Amounts::default(), |sum, container| sum + container);
        // Sidecars keep running. The other init containers run one after the other, next to the sidecars that started before them.
        let (mut sidecars, mut starting) = (Amounts::default(), Amounts::default());
        for container in &spec.init_containers {
            if container.restart_policy == "Always" {
                sidecars += requests(container);
                starting = starting.max(sidecars);
            } else {
                starting = starting.max(sidecars + requests(container));
            }
        }
        running = (running + sidecars).max(starting);
        // Requests of the whole pod replace the sum of its containers' requests.
        let whole = Amounts::from_resources(&[&spec.resources.requests]);
        running.memory = if whole.memory > 0 { whole.memory } else { running.memory };
        running.cpu = if whole.cpu > 0 { whole.cpu } else { running.cpu };
        let amounts = Amounts { pods: 1, ..running + Amounts::from_resources(&[&spec.overhead]) };
        let has = |key: &str, value: &str| metadata.labels.get(key).is_some_and(|label| label == value);
        // The pods of an adopted model are as upstream's controller created them.
        let is_model = has(SUBJECT_KIND, INFERENCE_MODEL.kind) || has(MANAGED, "true") && has(APP_COMPONENT, SERVER);
        let model = metadata.labels.get(APP_NAME).filter(|_| is_model).map(|label| (metadata.namespace, label.clone()));
        let is_ready = |condition: &&Condition| condition.r#type == "Ready" && condition.status == "True";
        let ready = status.conditions.iter().find(is_ready).filter(|_| metadata.deletion_timestamp.is_none());
        let created = metadata.creation_timestamp.as_deref().and_then(seconds).unwrap_or_default();
        Some(Self {
            node: spec.node_name,
            amounts,
            model,
            created,
            ready_since: ready.map(|ready| ready.last_transition_time.as_deref().and_then(seconds).unwrap_or(created)),
            restarted: status.container_statuses.iter().any(|container| container.restart_count > 0),
        })
    }
}

impl Model {
    /// Parses a model's object, and returns its invalid fields. The model's reservation, pods and activity are added elsewhere.
    pub fn from_content(content: &Value, created: u64) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let spec = &content["spec"];
        let annotations = strings(&content["metadata"]["annotations"]);
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let request = |resource: &str| {
            let resources = &spec["resources"];
            ["requests", "limits"].into_iter().find_map(|list| resources[list][resource].as_str())
        };
        let declared = rounded(&text("memory"), WHOLE);
        let gpus = request("gpu").map_or(0, |gpus| rounded(gpus, WHOLE));
        let needs = Amounts {
            memory: request("memory").map_or(0, |memory| rounded(memory, WHOLE)).max(declared),
            cpu: request("cpu").map_or(0, |cpu| rounded(cpu, MILLI)),
            gpus,
            pods: 1,
        };
        let cooldown = spec["cooldownPeriod"].as_str().map_or(Some(DEFAULT_COOLDOWN), duration::seconds).unwrap_or_else(|| {
            let given = text("cooldownPeriod");
            problems.push(format!("spec.cooldownPeriod {given:?} is not a duration, so 10m is used: write it like 15m or 1h30m"));
            DEFAULT_COOLDOWN
        });
        let residency = annotations.get(RESIDENCY).map_or(Some(DEFAULT_RESIDENCY), |text| duration::seconds(text)).unwrap_or_else(|| {
            let given = &annotations[RESIDENCY];
            problems.push(format!("the annotation {RESIDENCY} is {given:?}, which is not a duration, so 5m is used: write it like 2m"));
            DEFAULT_RESIDENCY
        });
        let number = |text: &String| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let priority = annotations.get(PRIORITY).map_or(Some(0.0), number).unwrap_or_else(|| {
            let given = &annotations[PRIORITY];
            problems.push(format!("the annotation {PRIORITY} is {given:?}, which is not a number, so 0 is used: write it like 10 or -10"));
            0.0
        });
        let selector = spec["nodeSelector"].as_object().map(|_| strings(&spec["nodeSelector"]));
        let dependencies = spec["dependencies"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let model = Self {
            name: text("modelName"),
            selector: selector.unwrap_or_else(|| BTreeMap::from([("inference-pool".to_owned(), "default".to_owned())])),
            needs,
            tolerations: if gpus > 0 { vec![GPU.to_owned()] } else { Vec::new() },
            dependencies: dependencies.collect(),
            external: text("containerImage").is_empty(),
            off: spec["maxReplicas"].as_i64() == Some(0),
            cooldown,
            residency,
            priority,
            created,
            ..Self::default()
        };
        (model, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GIB: i64 = 1 << 30;

    #[test]
    fn a_node_is_closed_while_it_is_cordoned_or_not_ready_and_its_budget_must_be_an_amount() {
        let read = |spec: Value, ready: &str, budget: &str| {
            let node = json!({
                "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {MEMORY_BUDGET: budget}}, "spec": spec,
                "status": {
                    "allocatable": {"memory": "64Gi", "cpu": "7500m", GPU: "8", "pods": 110},
                    "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
                },
            });
            Node::from_object(&node.to_string())
        };
        let (name, node, problem) = read(json!({}), "True", "32Gi");
        let allocatable = Amounts { memory: 64 * GIB, cpu: 7500, gpus: 8, pods: 110 };
        assert_eq!(
            (name.as_str(), node.allocatable, node.memory_budget, node.closed, problem),
            ("n", allocatable, Some(32 * GIB), None, None)
        );
        assert_eq!(read(json!({}), "Unknown", "1Gi").1.closed, Some(Closed::NotReady));
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let tainted = json!({"unschedulable": true, "taints": [
            taint("node.kubernetes.io/unschedulable", "NoSchedule"), taint(GPU, "NoSchedule"), taint("soft", "PreferNoSchedule"),
        ]});
        let (_, node, problem) = read(tainted, "True", "much");
        assert_eq!((node.closed, node.taints, node.memory_budget), (Some(Closed::Cordoned), vec![GPU.to_owned()], None));
        assert!(problem.unwrap().contains("\"much\""));
    }

    #[test]
    fn a_pod_takes_what_the_scheduler_counts() {
        let requests = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
        let pod = |more: Value| {
            let mut pod = json!({
                "metadata": {"namespace": "ml", "labels": {SUBJECT_KIND: "InferenceModel", APP_NAME: "llama"}},
                "spec": {"nodeName": "n", "containers": [{"resources": requests("1", "2Gi")}, {"resources": requests("500m", "1Gi")}]},
                "status": {"phase": "Running"},
            });
            pod["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            PodUsage::from_object(&pod.to_string())
        };
        let plain = pod(json!({})).unwrap();
        assert_eq!(plain.amounts, Amounts { memory: 3 * GIB, cpu: 1500, gpus: 0, pods: 1 });
        assert_eq!(plain.model, Some(("ml".to_owned(), "llama".to_owned())));
        let init = json!({"initContainers": [
            {"resources": requests("100m", "1Gi"), "restartPolicy": "Always"}, {"resources": requests("1", "8Gi")},
        ], "overhead": {"memory": "1Gi"}});
        assert_eq!(pod(init).unwrap().amounts, Amounts { memory: 10 * GIB, cpu: 1600, gpus: 0, pods: 1 });
        let whole = json!({"resources": requests("4", "16Gi")});
        assert_eq!(pod(whole).unwrap().amounts, Amounts { memory: 16 * GIB, cpu: 4000, gpus: 0, pods: 1 });
        assert_eq!(pod(json!({"nodeName": ""})).unwrap().node, "");
        let ended = r#"{"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}}"#;
        assert_eq!(PodUsage::from_object(ended), None);
    }

    #[test]
    fn a_model_needs_the_larger_of_what_it_declares_and_requests() {
        let read =
            |spec: Value, annotations: Value| Model::from_content(&json!({"metadata": {"annotations": annotations}, "spec": spec}), 7);
        let (model, problems) = read(
            json!({
                "modelName": "llama", "memory": "80Gi", "backendUrl": "http://a:8000", "cooldownPeriod": "15m", "containerImage": "vllm",
                "dependencies": ["tokens"], "resources": {"requests": {"cpu": "8", "memory": "90Gi"}, "limits": {"gpu": "1"}},
            }),
            json!({PRIORITY: "2.5", RESIDENCY: "2m"}),
        );
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(model.needs, Amounts { memory: 90 * GIB, cpu: 8000, gpus: 1, pods: 1 });
        assert_eq!((model.cooldown, model.residency, model.external, model.off), (900, 120, false, false));
        assert_eq!((model.tolerations, model.selector["inference-pool"].as_str()), (vec![GPU.to_owned()], "default"));
        assert!((model.priority - 2.5).abs() < f64::EPSILON);
        let (model, problems) = read(json!({"memory": "1Gi", "maxReplicas": 0}), json!({PRIORITY: "NaN", RESIDENCY: "soon"}));
        assert!(model.external && model.off && model.priority == 0.0 && model.residency == DEFAULT_RESIDENCY);
        assert!(problems[0].contains("\"soon\"") && problems[1].contains("\"NaN\""), "{problems:?}");
    }
}
