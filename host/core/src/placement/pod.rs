//! Parses pods.

use super::{
    fit::Rules,
    node::image_name,
    resources::{PODS, Resources, is_accelerator},
    settings::Settings,
};
use crate::{
    allocation::inputs::seconds,
    model_nodes::{names::is_node_label, report::NodeState},
    objects::strings,
    subject_kind::{APP_COMPONENT, SUBJECT_KIND, SUBJECT_KINDS, SubjectKind},
    world::pod::WORKER_INDEX,
};
use pointsman_sandbox::text::printable_line;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The minimum number of members of a gang.
pub const MIN_GANG: usize = 2;

/// The maximum number of members of a gang.
pub const MAX_GANG: usize = 1024;

/// The label of a pod with the name of its gang.
pub const GANG: &str = "pointsman.dev/gang";

/// The annotation or label of a pod with the size of its gang.
pub const GANG_SIZE: &str = "pointsman.dev/gang-size";

/// The label with the name of a pod's LeaderWorkerSet.
pub(super) const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";

/// The label with the index of a pod's group in its LeaderWorkerSet.
pub(super) const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";

/// The annotation with the size of a group.
pub(super) const GROUP_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";

/// The annotation of the pods of a LeaderWorkerSet whose workers are created only after their leader has a node.
pub(super) const EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

/// The label of the pods of a Deployment's ReplicaSet: the suffix of the ReplicaSet's name.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The role of a model's copy on a node in a question; a copy isn't a pod. It isn't a valid label value, so no pod has this role.
pub(crate) const MODEL_COPY: &str = "copy of a model";

/// A namespace and a name.
pub type PodKey = (String, String);

/// The owner of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The kind of the subject; empty if the owner isn't a subject.
    pub kind: &'static str,
    /// Its group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// The subject's name from the label. For other owners, the kind and name of the controller, such as `Deployment/chat`.
    pub name: String,
}

/// The fields of a running or pending pod that matter for a placement.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "they are facts about it, of which any may be so")]
pub struct Pod {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its node; empty if it has none.
    pub node: String,
    /// The resources that it takes of a node, including the pod slot, as the scheduler computes them. Never negative.
    pub requests: Resources,
    /// Its priority.
    pub priority: i32,
    /// The time of its creation, in seconds since 1970.
    pub created: u64,
    /// The scheduler that places it.
    pub scheduler: String,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// The time by which it should be gone if it is being deleted, in seconds since 1970.
    pub leaves_at: u64,
    /// Whether scheduling gates block it.
    pub is_gated: bool,
    /// Whether it is Ready. False if it is being deleted.
    pub is_ready: bool,
    /// Whether a controller recreates it after its deletion. A Job may count it as failed instead.
    pub has_controller: bool,
    /// Its owner.
    pub owner: Option<Owner>,
    /// Its component of the owner, such as `engine`; empty if unknown.
    pub role: String,
    /// The node labels of the models that it requires on its node.
    pub models: Vec<String>,
    /// The images of its containers, each once, in the form of [`image_name`].
    pub images: Vec<String>,
    /// Its gang.
    pub gang: Option<Gang>,
    /// Why it belongs to no gang although it names one.
    pub gang_problem: Option<String>,
    /// Its placement rules.
    pub rules: Arc<Rules>,
    /// The host ports that it uses, with their protocols.
    pub host_ports: Vec<(String, i64)>,
}

/// Pods that are only useful together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    /// Its name, unique in the namespace.
    pub name: String,
    /// Its number of members; 0 if unknown.
    pub size: usize,
    /// Whether this pod is the leader.
    pub leads: bool,
    /// Whether another mechanism starts its members, so that nothing may be reserved for it: Kubernetes' own gang scheduling, or a fixed
    /// start order.
    pub native: bool,
}

impl Owner {
    /// Whether it is a subject.
    pub fn is_subject(&self) -> bool {
        !self.kind.is_empty()
    }

    /// The subject in the labels.
    fn from_labels(kind: &SubjectKind, labels: &BTreeMap<String, String>, namespace: &str) -> Option<Self> {
        let name = labels.get(kind.pod_labels.subject).filter(|name| !name.is_empty())?.clone();
        let resource = kind.resource;
        let (kind, group, version) = (resource.kind, resource.group, resource.version);
        Some(Self { kind, group, version, namespace: namespace.to_owned(), name })
    }

    /// The workload that controls the pod.
    fn from_controller(metadata: &Value, labels: &BTreeMap<String, String>, namespace: &str) -> Option<Self> {
        let name = if let Some(set) = labels.get(SET_NAME) {
            format!("LeaderWorkerSet/{set}")
        } else {
            let controller = items(&metadata["ownerReferences"]).find(|owner| owner["controller"] == true)?;
            let (kind, name) = (controller["kind"].as_str()?, controller["name"].as_str()?);
            // Each rollout creates another ReplicaSet.
            let hash = labels.get(TEMPLATE_HASH).filter(|_| kind == "ReplicaSet");
            match hash.and_then(|hash| name.strip_suffix(hash.as_str())?.strip_suffix('-')) {
                Some(deployment) => format!("Deployment/{deployment}"),
                None => format!("{kind}/{name}"),
            }
        };
        Some(Self { kind: "", group: "", version: "", namespace: namespace.to_owned(), name })
    }
}

impl Pod {
    /// Parses a pod; none if it has ended and takes no resources.
    pub fn from_value(object: &Value) -> Option<Self> {
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        if matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = text(&metadata["namespace"]);
        let labels = strings(&metadata["labels"]);
        let kind = labels.get(SUBJECT_KIND).and_then(|word| SUBJECT_KINDS.iter().find(|kind| kind.resource.kind == word));
        let subject = kind.and_then(|kind| Owner::from_labels(kind, &labels, &namespace));
        let component = kind.filter(|_| subject.is_some()).map_or(APP_COMPONENT, |kind| kind.pod_labels.component);
        let owner = subject.or_else(|| Owner::from_controller(metadata, &labels, &namespace));
        let (gang, gang_problem) = match Gang::from_object(metadata, spec, &labels) {
            Ok(gang) => (gang, None),
            Err(problem) => (None, Some(problem)),
        };
        let is_leaving = metadata["deletionTimestamp"].is_string();
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        Some(Self {
            uid: text(&metadata["uid"]),
            name: text(&metadata["name"]),
            node: text(&spec["nodeName"]),
            requests: requests(spec),
            priority: spec["priority"].as_i64().and_then(|priority| i32::try_from(priority).ok()).unwrap_or_default(),
            created: metadata["creationTimestamp"].as_str().and_then(seconds).unwrap_or_default(),
            scheduler: text(&spec["schedulerName"]),
            is_leaving,
            leaves_at: metadata["deletionTimestamp"].as_str().and_then(seconds).unwrap_or_default(),
            is_gated: items(&spec["schedulingGates"]).next().is_some(),
            is_ready: !is_leaving && items(&status["conditions"]).any(is_ready),
            has_controller: items(&metadata["ownerReferences"]).any(|owner| owner["controller"] == true && owner["kind"] != "Job"),
            owner,
            role: labels.get(component).cloned().unwrap_or_default(),
            models: models(spec),
            images: images(spec),
            gang,
            gang_problem,
            rules: Arc::new(Rules::from_spec(spec)),
            host_ports: host_ports(spec),
            namespace,
            labels,
        })
    }

    /// The accelerator resource that it requests; if there are several, the one with the largest request.
    pub fn accelerator(&self) -> Option<(&str, i64)> {
        let accelerators = self.requests.iter().filter(|(name, _)| is_accelerator(name));
        accelerators.max_by(|one, other| one.1.cmp(&other.1).then_with(|| other.0.cmp(one.0)))
    }

    /// Its namespace and name.
    pub fn key(&self) -> PodKey {
        (self.namespace.clone(), self.name.clone())
    }

    /// Whether the policies place it: its owner is a subject, or the settings select it.
    pub fn is_in_scope(&self, settings: &Settings) -> bool {
        self.owner.as_ref().is_some_and(Owner::is_subject) || settings.selects(&self.labels)
    }
}

impl Gang {
    /// The gang of a pod, or why it belongs to none although it names one.
    fn from_object(metadata: &Value, spec: &Value, labels: &BTreeMap<String, String>) -> Result<Option<Self>, String> {
        let annotation = |key: &str| metadata["annotations"][key].as_str();
        let label = |key: &str| labels.get(key).map(String::as_str);
        if let Some(group) = spec["schedulingGroup"]["podGroupName"].as_str().filter(|name| !name.is_empty()) {
            return Ok(Some(Self { name: format!("podgroup/{group}"), size: 0, leads: false, native: true }));
        }
        if let (Some(set), Some(index)) = (label(SET_NAME), label(GROUP_INDEX)) {
            let (leads, native) = (label(WORKER_INDEX) == Some("0"), annotation(EXCLUSIVE_TOPOLOGY).is_some());
            let size = gang_size(GROUP_SIZE, annotation(GROUP_SIZE))?;
            return Ok(size.map(|size| Self { name: format!("lws/{set}/{index}"), size, leads, native }));
        }
        let Some(name) = label(GANG).filter(|name| !name.is_empty()) else { return Ok(None) };
        let size = gang_size(GANG_SIZE, annotation(GANG_SIZE).or_else(|| label(GANG_SIZE)))?;
        Ok(size.map(|size| Self { name: name.to_owned(), size, leads: false, native: false }))
    }
}

/// The size of a gang; none if it is too small for one.
fn gang_size(key: &str, written: Option<&str>) -> Result<Option<usize>, String> {
    let Some(written) = written else {
        return Err(format!("{key} is missing, so the pod is in no gang: set it to the number of members"));
    };
    match written.parse::<usize>() {
        Ok(size) if size < MIN_GANG => Ok(None),
        Ok(size) if size <= MAX_GANG => Ok(Some(size)),
        _ => {
            let written = printable_line(written);
            Err(format!("{key} is {written:?}, so the pod is in no gang: set it to a number from {MIN_GANG} to {MAX_GANG}"))
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Whether an init container keeps running next to the containers.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// The resources that a pod takes of a node: the same as in [`crate::allocation::inputs::PodUsage`], for all resources.
fn requests(spec: &Value) -> Resources {
    let mut running = Resources::default();
    for container in items(&spec["containers"]) {
        running.add(&container_requests(container));
    }
    // Sidecars keep running. The other init containers run one after the other, next to the sidecars that started before them.
    let (mut sidecars, mut starting) = (Resources::default(), Resources::default());
    for container in items(&spec["initContainers"]) {
        let mut needs = container_requests(container);
        if is_sidecar(container) {
            sidecars.add(&needs);
            starting.max(&sidecars);
        } else {
            needs.add(&sidecars);
            starting.max(&needs);
        }
    }
    running.add(&sidecars);
    running.max(&starting);
    // Requests of the whole pod replace the sum of its containers' requests.
    for (name, amount) in amounts(&spec["resources"]["requests"]).iter() {
        running.set(name, amount);
    }
    running.add(&amounts(&spec["overhead"]));
    running.set(PODS, 1);
    running
}

/// As in the API server, a limit is the default for the request; a planned pod hasn't passed through the API server yet.
fn container_requests(container: &Value) -> Resources {
    let resources = &container["resources"];
    let mut requests = amounts(&resources["requests"]);
    for (name, amount) in amounts(&resources["limits"]).iter() {
        if resources["requests"].get(name).is_none() {
            requests.set(name, amount);
        }
    }
    requests
}

/// The positive amounts: a negative one must not release what others take.
fn amounts(list: &Value) -> Resources {
    let read = Resources::from_value(list);
    read.iter().filter(|(_, amount)| *amount > 0).collect()
}

/// The labels of the models that the pod's node selector or node affinity requires to be Ready.
fn models(spec: &Value) -> Vec<String> {
    let ready = NodeState::Ready.word();
    let mut models = BTreeSet::new();
    for (label, value) in spec["nodeSelector"].as_object().into_iter().flatten() {
        if is_node_label(label) && *value == ready {
            models.insert(label.clone());
        }
    }
    let affinity = &spec["affinity"]["nodeAffinity"];
    let required = items(&affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]);
    let preferred = items(&affinity["preferredDuringSchedulingIgnoredDuringExecution"]).map(|term| &term["preference"]);
    for expression in required.chain(preferred).flat_map(|term| items(&term["matchExpressions"])) {
        let label = expression["key"].as_str().unwrap_or_default();
        let wants = expression["operator"] == "In" && items(&expression["values"]).any(|value| *value == ready);
        if wants && is_node_label(label) {
            models.insert(label.to_owned());
        }
    }
    models.into_iter().collect()
}

fn images(spec: &Value) -> Vec<String> {
    let containers = items(&spec["containers"]).chain(items(&spec["initContainers"]));
    let names = containers.filter_map(|container| container["image"].as_str()).filter(|image| !image.is_empty());
    names.map(image_name).collect::<BTreeSet<_>>().into_iter().collect()
}

fn host_ports(spec: &Value) -> Vec<(String, i64)> {
    let sidecars = items(&spec["initContainers"]).filter(|container| is_sidecar(container));
    let ports = items(&spec["containers"]).chain(sidecars).flat_map(|container| items(&container["ports"]));
    let host_port = |port: &Value| {
        let number = port["hostPort"].as_i64().filter(|number| *number > 0)?;
        Some((port["protocol"].as_str().unwrap_or("TCP").to_owned(), number))
    };
    ports.filter_map(host_port).collect()
}

#[cfg(test)]
mod tests;
