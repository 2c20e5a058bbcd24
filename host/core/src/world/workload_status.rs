//! What Knative and Ray tell of themselves, in the words of a Deployment: whoever asks how a workload fares asks the same of all.

use super::child::{Condition, Observed};
use serde::Deserialize;
use serde_json::value::RawValue;

/// What a Knative Service tells beside that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnativeStatus {
    /// Its newest revision.
    pub created: Option<String>,
    /// The newest that works.
    pub ready: Option<String>,
    /// Whether the newest revision is that of what was written last.
    pub configured: bool,
    /// Where it is reached from outside.
    pub url: Option<String>,
    /// Where it is reached within the cluster.
    pub address: Option<String>,
    /// Which revision gets how much of the traffic.
    pub traffic: Vec<Traffic>,
}

/// A share of the traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Traffic {
    /// Who gets it.
    pub revision_name: String,
    /// Whether that is so because it is the newest.
    pub latest_revision: bool,
    /// How much.
    pub percent: i64,
    /// A name for it.
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

/// A condition in a Deployment's words.
fn condition(type_: &str, status: bool, of: Option<&Condition>) -> Condition {
    let (reason, message) = of.map_or_else(Default::default, |of| (of.reason.clone(), of.message.clone()));
    let status = if status { "True" } else { "False" }.to_owned();
    Condition { type_: type_.to_owned(), status, reason, message, observed_generation: None }
}

/// What a Knative Service tells.
pub(super) fn knative(status: Option<&RawValue>, asked: Observed) -> Observed {
    let state: KnativeState = status.and_then(|status| serde_json::from_str(status.get()).ok()).unwrap_or_default();
    let told = |type_: &str| state.conditions.iter().find(|condition| condition.type_ == type_);
    let is = |type_: &str, status: &str| told(type_).is_some_and(|condition| condition.status == status);
    let fails = is("Ready", "False");
    // While a new revision comes up, or fails, the former one goes on serving.
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

/// What a RayCluster tells. `RayClusterProvisioned` stays true once it was, so the head and the workers count.
pub(super) fn ray(status: Option<&RawValue>, asked: Observed) -> Observed {
    let state: RayState = status.and_then(|status| serde_json::from_str(status.get()).ok()).unwrap_or_default();
    let told = |type_: &str| state.conditions.iter().find(|condition| condition.type_ == type_);
    let head = told("HeadPodReady");
    // Before KubeRay 1.3 there are no conditions.
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
