//! Converts the statuses of Knative Services, RayClusters and Jobs into a Deployment's, so that the health of all workloads is determined
//! in the same way.

use super::child::{Condition, Observed};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The additional status of a Knative Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnativeStatus {
    /// Its latest revision.
    pub created: Option<String>,
    /// Its latest ready revision.
    pub ready: Option<String>,
    /// Whether the latest revision is that of the last write.
    pub configured: bool,
    /// Its external URL.
    pub url: Option<String>,
    /// Its URL within the cluster.
    pub address: Option<String>,
    /// The shares of its traffic, per revision.
    pub traffic: Vec<Traffic>,
}

/// A share of the traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Traffic {
    /// The revision that gets it.
    pub revision_name: String,
    /// Whether the revision gets it because it is the latest.
    pub latest_revision: bool,
    /// The share, in percent.
    pub percent: i64,
    /// A name for the share.
    pub tag: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct KnativeState {
    observed_generation: Option<i64>,
    conditions: Vec<Condition>,
    latest_created_revision_name: Option<String>,
    latest_ready_revision_name: Option<String>,
    url: Option<String>,
    address: Option<Address>,
    traffic: Vec<Traffic>,
}

/// A condition in the form of a Deployment's.
fn condition(type_: &str, status: bool, of: Option<&Condition>) -> Condition {
    let (reason, message) = of.map_or_else(Default::default, |of| (of.reason.clone(), of.message.clone()));
    let status = if status { "True" } else { "False" }.to_owned();
    Condition { type_: type_.to_owned(), status, reason, message, observed_generation: None }
}

/// The status of a Knative Service.
pub(super) fn knative(status: Option<&RawValue>, asked: Observed) -> Observed {
    let state: KnativeState = status.and_then(|status| serde_json::from_str(status.get()).ok()).unwrap_or_default();
    let told = |type_: &str| state.conditions.iter().find(|condition| condition.type_ == type_);
    let is = |type_: &str, status: &str| told(type_).is_some_and(|condition| condition.status == status);
    let fails = is("Ready", "False");
    // While a new revision starts or fails, the previous one continues to serve.
    let serves = is("Ready", "True") || is("RoutesReady", "True");
    let newest = is("Ready", "True") && state.latest_created_revision_name == state.latest_ready_revision_name;
    let mut conditions = vec![condition("Available", serves, told("Ready"))];
    if fails {
        conditions.push(condition("Progressing", false, told("Ready")));
    }
    Observed {
        observed_generation: state.observed_generation,
        replicas: Some(1),
        current: 1,
        updated: newest.into(),
        available: serves.into(),
        conditions,
        serving: Some(Box::new(KnativeStatus {
            created: state.latest_created_revision_name,
            ready: state.latest_ready_revision_name,
            configured: is("ConfigurationsReady", "True") || is("ConfigurationsReady", "False"),
            url: state.url,
            address: state.address.and_then(|address| address.url),
            traffic: state.traffic,
        })),
        ..asked
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RayState {
    observed_generation: Option<i64>,
    conditions: Vec<Condition>,
    state: String,
    reason: String,
    ready_worker_replicas: i64,
    desired_worker_replicas: i64,
}

/// The status of a RayCluster. `RayClusterProvisioned` stays true once it was, so the head and the workers determine the health.
pub(super) fn ray(status: Option<&RawValue>, asked: Observed) -> Observed {
    let state: RayState = status.and_then(|status| serde_json::from_str(status.get()).ok()).unwrap_or_default();
    let told = |type_: &str| state.conditions.iter().find(|condition| condition.type_ == type_);
    let head = told("HeadPodReady");
    // KubeRay before 1.3 sets no conditions.
    let head_works = head.map_or(state.state == "ready", |head| head.status == "True");
    let works = head_works && state.ready_worker_replicas >= state.desired_worker_replicas;
    let mut conditions = vec![condition("Available", works, head)];
    conditions.extend(told("ReplicaFailure").cloned());
    if state.state == "failed" {
        let failed = Condition { reason: "Failed".to_owned(), message: state.reason, ..Condition::default() };
        conditions.push(condition("Progressing", false, Some(&failed)));
    }
    Observed {
        observed_generation: state.observed_generation,
        replicas: Some(1),
        current: 1,
        updated: 1,
        available: works.into(),
        conditions,
        ..asked
    }
}

/// The additional status of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStatus {
    /// The number of pods that exist and haven't ended.
    pub active: i64,
    /// The number of active pods that are Ready.
    pub ready: i64,
    /// The number of pods that have succeeded.
    pub succeeded: i64,
    /// The number of pods that have failed.
    pub failed: i64,
    /// The time when it started or was last resumed.
    pub start_time: Option<String>,
    /// The time when it completed or failed.
    pub end_time: Option<String>,
    /// Its state.
    pub state: JobState,
}

/// The state of a Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobState {
    /// None of its pods is Ready yet.
    #[default]
    Pending,
    /// It is suspended and has no pods.
    Suspended,
    /// Some of its pods are Ready, or have ended.
    Running,
    /// It has succeeded or failed, and its last pods are ending.
    Ending,
    /// It has succeeded.
    Complete,
    /// It has failed.
    Failed,
}

impl JobState {
    /// Whether none of its pods will run again.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ReportedJob {
    active: i64,
    ready: i64,
    succeeded: i64,
    failed: i64,
    start_time: Option<String>,
    completion_time: Option<String>,
    conditions: Vec<Condition>,
}

/// A condition with the time of its last transition.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Turned {
    #[serde(rename = "type")]
    type_: String,
    last_transition_time: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TurnedConditions {
    conditions: Vec<Turned>,
}

/// The status of a Job. It has no observed generation, and there are no rollouts.
pub(super) fn job(status: Option<&RawValue>, asked: Observed) -> Observed {
    let text = status.map_or("{}", RawValue::get);
    let reported: ReportedJob = serde_json::from_str(text).unwrap_or_default();
    let turned: TurnedConditions = serde_json::from_str(text).unwrap_or_default();
    let is = |type_: &str| reported.conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True");
    let ended = reported.succeeded + reported.failed > 0;
    let state = match () {
        () if is("Complete") => JobState::Complete,
        () if is("Failed") => JobState::Failed,
        () if is("SuccessCriteriaMet") || is("FailureTarget") => JobState::Ending,
        () if is("Suspended") => JobState::Suspended,
        () if reported.ready > 0 || ended => JobState::Running,
        () => JobState::Pending,
    };
    let failed_at = || turned.conditions.into_iter().find(|condition| condition.type_ == "Failed")?.last_transition_time;
    let end_time = match state {
        JobState::Complete => reported.completion_time,
        JobState::Failed => failed_at(),
        _ => None,
    };
    Observed {
        observed_generation: asked.generation,
        replicas: Some(1),
        current: 1,
        updated: 1,
        available: (reported.ready > 0).into(),
        conditions: reported.conditions,
        job: Some(Box::new(JobStatus {
            active: reported.active,
            ready: reported.ready,
            succeeded: reported.succeeded,
            failed: reported.failed,
            start_time: reported.start_time,
            end_time,
            state,
        })),
        ..asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(status: &Value) -> JobStatus {
        let text = serde_json::value::to_raw_value(status).unwrap();
        *job(Some(&text), Observed::default()).job.unwrap()
    }

    fn condition(type_: &str) -> Value {
        json!([{"type": type_, "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:09Z"}])
    }

    #[test]
    fn each_state_of_a_job_is_recognized() {
        for (status, expected) in [
            (json!({}), JobState::Pending),
            (json!({"active": 1, "ready": 0}), JobState::Pending),
            (json!({"active": 1, "ready": 1}), JobState::Running),
            (json!({"active": 1, "failed": 1}), JobState::Running),
            (json!({"conditions": condition("Suspended")}), JobState::Suspended),
            (json!({"ready": 1, "conditions": condition("FailureTarget")}), JobState::Ending),
            (json!({"ready": 1, "conditions": condition("SuccessCriteriaMet")}), JobState::Ending),
            (json!({"succeeded": 1, "conditions": condition("Complete")}), JobState::Complete),
            (json!({"failed": 1, "conditions": condition("Failed")}), JobState::Failed),
        ] {
            assert_eq!(read(&status).state, expected, "{status}");
        }
        let resumed = json!([{"type": "Suspended", "status": "False"}]);
        assert_eq!(read(&json!({"active": 1, "ready": 1, "conditions": resumed})).state, JobState::Running);
    }

    #[test]
    fn a_job_has_an_end_only_once_it_has_ended() {
        let complete = json!({"startTime": "s", "completionTime": "2026-01-01T00:00:07Z", "conditions": condition("Complete")});
        assert_eq!(read(&complete).end_time.as_deref(), Some("2026-01-01T00:00:07Z"));
        assert_eq!(read(&json!({"conditions": condition("Failed")})).end_time.as_deref(), Some("2026-01-01T00:00:09Z"));
        assert_eq!(read(&json!({"conditions": condition("FailureTarget")})).end_time, None);
    }
}
