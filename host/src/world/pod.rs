//! What is kept of a pod: what is wrong with it.

use serde_json::Value;

/// A pod of a subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u64,
    /// The subject's name as the label has it.
    pub subject: String,
    /// The component's, as the label has it.
    pub component: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What is wrong with it.
    pub failure: Option<PodFailure>,
}

/// What is wrong with a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFailure {
    /// The word of whoever noticed, such as CrashLoopBackOff.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The exit code of the container that ended.
    pub exit_code: Option<i64>,
    /// When, as Kubernetes writes it.
    pub time: Option<String>,
    /// Whether a container has failed. Else the pod waits for a node.
    pub started: bool,
}

/// The labels by which a pod's subject and component are known.
pub const SUBJECT: &str = "serving.ome.io/inferenceservice";
/// See [`SUBJECT`].
pub const COMPONENT: &str = "serving.ome.io/component";
/// LeaderWorkerSet's own label: 0 is the leader.
pub const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// What a kubelet says while a container is only on its way.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

impl Pod {
    /// Reads a live pod. What has no name is none.
    pub fn of(live: &Value) -> Option<Self> {
        let metadata = live.get("metadata")?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let label = |key: &str| text(metadata.get("labels").and_then(|labels| labels.get(key)));
        Some(Self {
            namespace: text(metadata.get("namespace")),
            name: metadata.get("name")?.as_str()?.to_owned(),
            version: text(metadata.get("resourceVersion")).parse().unwrap_or_default(),
            subject: label(SUBJECT),
            component: label(COMPONENT),
            deleting: metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()),
            failure: failure(live),
        })
    }
}

fn conditions(live: &Value) -> impl Iterator<Item = &Value> {
    live.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

fn failure(live: &Value) -> Option<PodFailure> {
    let statuses = ["initContainerStatuses", "containerStatuses"];
    let statuses = statuses.iter().filter_map(|name| live.get("status")?.get(name)?.as_array()).flatten();
    for status in statuses {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let container = text(status.get("name"));
        let waiting = status.pointer("/state/waiting");
        let ended = status.pointer("/state/terminated").or_else(|| status.pointer("/lastState/terminated"));
        let exit_code = ended.and_then(|ended| ended["exitCode"].as_i64());
        let time = ended.and_then(|ended| ended["finishedAt"].as_str()).map(str::to_owned);
        let told = |reason: String, said: String| {
            let said = if said.is_empty() { String::new() } else { format!(": {}", said.trim_end()) };
            let code = exit_code.map_or_else(String::new, |code| format!(", it last ended with exit code {code}"));
            let message = format!("The container {container} has the state {reason}{code}{said}");
            Some(PodFailure { message, reason, exit_code, time: time.clone(), started: true })
        };
        if let Some(waiting) = waiting {
            let reason = text(waiting.get("reason"));
            if !reason.is_empty() && !STARTING.contains(&reason.as_str()) {
                let last_words = ended.map(|ended| text(ended.get("message"))).filter(|words| !words.is_empty());
                return told(reason, last_words.unwrap_or_else(|| text(waiting.get("message"))));
            }
        }
        if let Some(ended) = status.pointer("/state/terminated")
            && exit_code != Some(0)
        {
            return told(text(ended.get("reason")), text(ended.get("message")));
        }
    }
    let status = live.get("status")?;
    if status["phase"] == "Failed" {
        let reason = status["reason"].as_str().unwrap_or("Failed").to_owned();
        let message = format!("The pod has failed: {}", status["message"].as_str().unwrap_or("it doesn't say why"));
        return Some(PodFailure { reason, message, started: true, ..PodFailure::default() });
    }
    let unscheduled = conditions(live).find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False")?;
    let message = format!("The pod waits for a node: {}", unscheduled["message"].as_str().unwrap_or("none suits it"));
    Some(PodFailure { reason: unscheduled["reason"].as_str().unwrap_or("Unschedulable").to_owned(), message, ..PodFailure::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_container_that_keeps_ending_is_told_with_its_exit_code() {
        let pod = Pod::of(&json!({
            "metadata": {"name": "p", "labels": {SUBJECT: "chat", COMPONENT: "engine"}},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "ome-container",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"exitCode": 137, "finishedAt": "2026-01-01T00:00:00Z", "message": "out of memory"}},
            }]},
        }))
        .unwrap();
        assert_eq!((pod.subject.as_str(), pod.component.as_str()), ("chat", "engine"));
        let failure = pod.failure.unwrap();
        assert_eq!((failure.reason.as_str(), failure.exit_code), ("CrashLoopBackOff", Some(137)));
        assert!(failure.message.contains("out of memory"), "{}", failure.message);
    }

    #[test]
    fn a_pod_that_is_starting_has_not_failed() {
        let starting =
            json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}});
        assert_eq!(Pod::of(&starting).unwrap().failure, None);
        let ready = json!({"metadata": {"name": "p"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(Pod::of(&ready).unwrap().failure, None);
    }

    #[test]
    fn a_pod_without_a_node_says_what_the_scheduler_says() {
        let pod = json!({"metadata": {"name": "p"}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"},
        ]}});
        let failure = Pod::of(&pod).unwrap().failure.unwrap();
        assert!(!failure.started && failure.message.contains("0/3"));
    }
}
