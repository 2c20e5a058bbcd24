//! What is read of a pod.

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

/// The fewest pods that are a gang.
pub const MIN_GANG: usize = 2;

/// The most pods that are a gang.
pub const MAX_GANG: usize = 1024;

/// The label of a pod with the name of its gang.
pub const GANG: &str = "pointsman.dev/gang";

/// The annotation or label of a pod with the number of its gang's members.
pub const GANG_SIZE: &str = "pointsman.dev/gang-size";

/// The label with the name of a pod's LeaderWorkerSet.
pub(super) const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";

/// The label with the number of a pod's group in its LeaderWorkerSet.
pub(super) const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";

/// The annotation with the number of pods of a group.
pub(super) const GROUP_SIZE: &str = "leaderworkerset.sigs.k8s.io/size";

/// The annotation of the pods of a LeaderWorkerSet whose workers are created only once their leader has a node.
pub(super) const EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

/// The label of the pods of a ReplicaSet that a Deployment made: the end of the ReplicaSet's name.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The role of a model's copy on a node, which is no pod, in a question about it. No label may have this value.
pub(crate) const MODEL_COPY: &str = "copy of a model";

/// A namespace and a name.
pub type PodKey = (String, String);

/// What a pod belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The kind of the subject; empty for what is no subject.
    pub kind: &'static str,
    /// Its group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// The subject's name, as the label has it. Of what is no subject the kind and the name of the controller, such as `Deployment/chat`.
    pub name: String,
}

/// A pod that hasn't ended, as far as it matters to a placement.
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
    /// Its node; empty while it has none.
    pub node: String,
    /// What it takes of a node, with the slot for a pod, as the scheduler sums it. Never less than nothing.
    pub requests: Resources,
    /// Its priority.
    pub priority: i32,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// The scheduler that is to place it.
    pub scheduler: String,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// When it should be gone then, in seconds since 1970.
    pub leaves_at: u64,
    /// Whether scheduling gates keep every scheduler from it.
    pub is_gated: bool,
    /// Whether it is Ready. One that is being deleted isn't.
    pub is_ready: bool,
    /// Whether a controller creates it again once it is deleted. A Job may count it as failed instead.
    pub has_controller: bool,
    /// What it belongs to.
    pub owner: Option<Owner>,
    /// The component of its owner that it is of, such as `engine`; empty if it doesn't say.
    pub role: String,
    /// The labels of nodes that hold the models which it wants there.
    pub models: Vec<String>,
    /// The images of its containers, each once, as [`image_name`] writes them.
    pub images: Vec<String>,
    /// The pods that it starts with.
    pub gang: Option<Gang>,
    /// Why it is in no gang, although it names one.
    pub gang_problem: Option<String>,
    /// Where it may run.
    pub rules: Arc<Rules>,
    /// The protocols and the ports of its node that it takes.
    pub host_ports: Vec<(String, i64)>,
}

/// Pods that are useless without one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    /// Its name, which no other gang of the namespace has.
    pub name: String,
    /// How many members it has; 0 where that is unknown.
    pub size: usize,
    /// Whether this pod leads it.
    pub leads: bool,
    /// Whether something else starts its members, so that nothing may be reserved for it: Kubernetes' own gang scheduling, or an order of its own.
    pub native: bool,
}

impl Owner {
    /// Whether it is a subject.
    pub fn is_subject(&self) -> bool {
        !self.kind.is_empty()
    }

    /// The subject that the labels name.
    fn from_labels(kind: &SubjectKind, labels: &BTreeMap<String, String>, namespace: &str) -> Option<Self> {
        let name = labels.get(kind.pod_labels.subject).filter(|name| !name.is_empty())?.clone();
        let resource = kind.resource;
        let (kind, group, version) = (resource.kind, resource.group, resource.version);
        Some(Self { kind, group, version, namespace: namespace.to_owned(), name })
    }

    /// The workload that made the pod.
    fn from_controller(metadata: &Value, labels: &BTreeMap<String, String>, namespace: &str) -> Option<Self> {
        let name = if let Some(set) = labels.get(SET_NAME) {
            format!("LeaderWorkerSet/{set}")
        } else {
            let controller = items(&metadata["ownerReferences"]).find(|owner| owner["controller"] == true)?;
            let (kind, name) = (controller["kind"].as_str()?, controller["name"].as_str()?);
            // A rollout makes another ReplicaSet.
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
    /// Reads a pod; none if it has ended, since it takes nothing any more.
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

    /// The accelerator resource that it requests; of several the one of which it requests the most.
    pub fn accelerator(&self) -> Option<(&str, i64)> {
        let accelerators = self.requests.iter().filter(|(name, _)| is_accelerator(name));
        accelerators.max_by(|one, other| one.1.cmp(&other.1).then_with(|| other.0.cmp(one.0)))
    }

    /// Its namespace and name.
    pub fn key(&self) -> PodKey {
        (self.namespace.clone(), self.name.clone())
    }

    /// Whether the policies place it: it is of a subject, or the settings select it.
    pub fn is_in_scope(&self, settings: &Settings) -> bool {
        self.owner.as_ref().is_some_and(Owner::is_subject) || settings.selects(&self.labels)
    }
}

impl Gang {
    /// The gang that a pod is in, or why it is in none although it names one.
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

/// The number of members; none if that is no gang.
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

/// Whether an init container goes on running beside the containers.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// What a pod takes of a node: the same that [`crate::allocation::inputs::PodUsage`] has, of all resources.
fn requests(spec: &Value) -> Resources {
    let mut running = Resources::default();
    for container in items(&spec["containers"]) {
        running.add(&container_requests(container));
    }
    // Sidecars go on running; the others of the init containers run one after the other, beside the sidecars that were started before.
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
    // What is requested for the whole pod replaces the sum of its containers'.
    for (name, amount) in amounts(&spec["resources"]["requests"]).iter() {
        running.set(name, amount);
    }
    running.add(&amounts(&spec["overhead"]));
    running.set(PODS, 1);
    running
}

/// The API server takes a limit for a request that isn't given; a planned pod has not been there yet.
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

/// What there is something of: nothing may give back what others have taken.
fn amounts(list: &Value) -> Resources {
    let read = Resources::from_value(list);
    read.iter().filter(|(_, amount)| *amount > 0).collect()
}

/// The labels of models that the pod's node selector or node affinity wants to be Ready.
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
