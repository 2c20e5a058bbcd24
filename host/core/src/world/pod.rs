//! The stored state of a pod: its failure.

use super::{
    child::{Condition, SUBJECT_KIND},
    live::Live,
};
use crate::{
    model_nodes::names::is_node_label,
    subject_kind::{PodLabels, SUBJECT_KINDS},
};
use serde::Deserialize;
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap};

/// A pod of a subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its resource version.
    pub version: u64,
    /// The kind and name of its subject, from its labels.
    pub kind: String,
    /// See [`Pod::kind`].
    pub subject: String,
    /// The component, from its label.
    pub component: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its failure, if it fails.
    pub failure: Option<PodFailure>,
}

/// The failure of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFailure {
    /// The reason as reported, such as CrashLoopBackOff.
    pub reason: String,
    /// A message.
    pub message: String,
    /// The exit code of the failed container.
    pub exit_code: Option<i64>,
    /// The time of the failure, as a Kubernetes timestamp.
    pub time: Option<String>,
    /// The time of the pod's creation.
    pub pod_created: Option<String>,
    /// Whether a container has failed. Otherwise, the pod waits for a node.
    pub started: bool,
}

/// LeaderWorkerSet's label with the pod's index: 0 is the leader.
pub const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// The reasons that a kubelet reports for a starting container.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The scheduler's text for nodes without a label that the pod's node selector requires.
const UNSELECTED: &str = "node affinity/selector";

/// The parsed fields of a pod's spec.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_selector: BTreeMap<String, String>,
}

/// The parsed fields of a pod's status.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    reason: Option<String>,
    message: Option<String>,
    conditions: Vec<Condition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    reason: String,
    message: String,
    exit_code: Option<i64>,
    finished_at: Option<String>,
}

impl Pod {
    /// Parses a live pod.
    pub fn from_value(live: &Value) -> Self {
        Self::from_live(&Live::parse(&live.to_string()))
    }

    /// Parses a live pod.
    pub(super) fn from_live(live: &Live<'_>) -> Self {
        let text = |text: &Option<Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
        let created = live.metadata.creation_timestamp.as_deref().map(str::to_owned);
        let labels = live.labels();
        let label = |key: &str| labels.get(key).map(|value| value.clone().into_owned()).unwrap_or_default();
        let kind = label(SUBJECT_KIND);
        let known = SUBJECT_KINDS.iter().find(|known| known.resource.kind == kind);
        let PodLabels { subject, component } = known.map_or(PodLabels { subject: "", component: "" }, |known| known.pod_labels);
        let status: Status = live.status.and_then(|status| serde_json::from_str(status.get()).ok()).unwrap_or_default();
        let spec = || live.field("spec").and_then(|spec| serde_json::from_str(spec.get()).ok()).unwrap_or_default();
        Self {
            namespace: text(&live.metadata.namespace),
            name: text(&live.metadata.name),
            version: live.version(),
            subject: label(subject),
            component: label(component),
            kind,
            deleting: live.deleting(),
            failure: failure(status, spec).map(|failure| PodFailure { pod_created: created, ..failure }),
        }
    }
}

fn failure(status: Status, spec: impl FnOnce() -> Spec) -> Option<PodFailure> {
    for ContainerStatus { name, state, last_state } in status.init_container_statuses.iter().chain(&status.container_statuses) {
        let ended = state.terminated.as_ref().or(last_state.terminated.as_ref());
        let exit_code = ended.and_then(|ended| ended.exit_code);
        let told = |reason: &str, said: &str| {
            let said = if said.is_empty() { String::new() } else { format!(": {}", said.trim_end()) };
            let code = exit_code.map_or_else(String::new, |code| format!(", it last ended with exit code {code}"));
            let message = format!("The container {name} has the state {reason}{code}{said}");
            let time = ended.and_then(|ended| ended.finished_at.clone());
            Some(PodFailure { message, reason: reason.to_owned(), exit_code, time, started: true, ..PodFailure::default() })
        };
        if let Some(Waiting { reason, message }) = &state.waiting
            && !reason.is_empty()
            && !STARTING.contains(&reason.as_str())
        {
            let last_words = ended.map(|ended| &ended.message).filter(|words| !words.is_empty());
            return told(reason, last_words.unwrap_or(message));
        }
        if let Some(Terminated { reason, message, .. }) = &state.terminated
            && exit_code != Some(0)
        {
            return told(reason, message);
        }
    }
    if status.phase == "Failed" {
        let message = format!("The pod has failed: {}", status.message.as_deref().unwrap_or("it gives no reason"));
        return Some(PodFailure {
            reason: status.reason.unwrap_or_else(|| "Failed".to_owned()),
            message,
            started: true,
            ..PodFailure::default()
        });
    }
    let unscheduled = status.conditions.into_iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    let said = |text: String, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { text };
    let mut message = format!("The pod waits for a node: {}", said(unscheduled.message, "no node fits"));
    if message.contains(UNSELECTED)
        && let Some(remedy) = label_remedy(&spec())
    {
        message = format!("{}. {remedy}", message.trim_end_matches('.'));
    }
    Some(PodFailure { reason: said(unscheduled.reason, "Unschedulable"), message, ..PodFailure::default() })
}

/// The model's label that the pod's node needs, and who sets it: the scheduler's message names no label.
fn label_remedy(spec: &Spec) -> Option<String> {
    let (label, state) = spec.node_selector.iter().find(|(label, _)| is_node_label(label))?;
    Some(format!(
        "The pod requires a node with the label {label}={state}, which the model agent sets on nodes that have the model's files. If no \
         agent runs, label each node that has them: `kubectl label node NODE {label}={state}`. These nodes lack the label: \
         `kubectl get nodes --selector '{label}!={state}'`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject_kind::{COMPONENT, SUBJECT};
    use serde_json::json;

    #[test]
    fn a_container_that_keeps_ending_is_told_with_its_exit_code() {
        let pod = Pod::from_value(&json!({
            "metadata": {"name": "p", "labels": {SUBJECT_KIND: "InferenceService", SUBJECT: "chat", COMPONENT: "engine"}},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "ome-container",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"exitCode": 137, "finishedAt": "2026-01-01T00:00:00Z", "message": "out of memory"}},
            }]},
        }));
        assert_eq!((pod.subject.as_str(), pod.component.as_str()), ("chat", "engine"));
        let failure = pod.failure.unwrap();
        assert_eq!((failure.reason.as_str(), failure.exit_code), ("CrashLoopBackOff", Some(137)));
        assert!(failure.message.contains("out of memory"), "{}", failure.message);
    }

    #[test]
    fn a_pod_that_is_starting_has_not_failed() {
        let starting =
            json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}});
        assert_eq!(Pod::from_value(&starting).failure, None);
        let ready = json!({"metadata": {"name": "p"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(Pod::from_value(&ready).failure, None);
    }

    #[test]
    fn a_pod_without_a_node_says_what_the_scheduler_says() {
        let pod = json!({"metadata": {"name": "p"}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"},
        ]}});
        let failure = Pod::from_value(&pod).failure.unwrap();
        assert!(!failure.started && failure.message.contains("0/3"));
    }

    #[test]
    fn a_pod_that_no_node_takes_for_want_of_a_model_s_label_names_the_label_and_who_sets_it() {
        let message = |selector: Value, said: &str| {
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said});
            let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeSelector": selector}, "status": {"conditions": [condition]}});
            Pod::from_value(&pod).failure.unwrap().message
        };
        let unselected = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.";
        let ours = json!({"models.ome.io/chat.basemodel.llama": "Ready", "zone": "a"});
        assert_eq!(
            message(ours.clone(), unselected),
            "The pod waits for a node: 0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. The pod requires a node \
             with the label models.ome.io/chat.basemodel.llama=Ready, which the model agent sets on nodes that have the model's files. If \
             no agent runs, label each node that has them: `kubectl label node NODE models.ome.io/chat.basemodel.llama=Ready`. These nodes \
             lack the label: `kubectl get nodes --selector 'models.ome.io/chat.basemodel.llama!=Ready'`"
        );
        // Other reasons than the label keep the pod off these nodes.
        let full = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.";
        assert_eq!(message(ours, full), format!("The pod waits for a node: {full}"));
        assert_eq!(message(json!({"zone": "a"}), unselected), format!("The pod waits for a node: {unselected}"));
    }
}
