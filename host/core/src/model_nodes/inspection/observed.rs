//! The Jobs that inspect models, and their pods, as observed in the cluster.

use super::{CONTAINER, IMAGE, MAX_FACTS, MODEL, Step};
use crate::model_nodes::assignment::ModelObject;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use pointsman_sandbox::text::printable_line;
use serde_json::Value;
use std::sync::Arc;

/// The progress of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Pending,
    Suspended,
    Complete,
    Failed(String),
}

/// A Job that inspects a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectionJob {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, which distinguishes it from later Jobs with the same name.
    pub uid: String,
    /// The uid of the model that owns it.
    pub(super) owner: String,
    pub(super) image: String,
    pub(super) progress: Progress,
    pub(super) is_deleting: bool,
}

/// The progress of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodProgress {
    /// It has no node, or its container can't start: a message, if there is one.
    Waiting(Option<String>),
    Running,
    /// It has ended, and reported fields for the model's spec.
    Reported(Arc<str>),
    /// It has ended without a report: a message.
    Failed(String),
}

/// A pod of such a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectionPod {
    pub(super) namespace: String,
    /// The uid of its Job.
    pub(super) owner: String,
    pub(super) created: String,
    pub(super) progress: PodProgress,
}

/// The key of the model of a Job or a pod.
pub fn model_key(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(MODEL).map(String::as_str)
}

fn owner(metadata: &ObjectMeta, kinds: &[&str]) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && kinds.contains(&&*owner.kind)).map(|owner| owner.uid.clone())
}

/// A foreign text as one short line with final punctuation.
pub(super) fn line(text: &str) -> String {
    let text = printable_line(text.trim());
    if text.ends_with(['.', '!', '?']) { text } else { format!("{text}.") }
}

impl InspectionJob {
    /// Parses a Job; none if no model owns it.
    pub fn from_job(job: &Job) -> Option<Self> {
        let metadata = &job.metadata;
        let status = job.status.as_ref();
        let condition = |type_: &str| {
            let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
            conditions.find(|condition| condition.type_ == type_ && condition.status == "True")
        };
        let progress = if condition("Complete").is_some() {
            Progress::Complete
        } else if let Some(failed) = condition("Failed") {
            Progress::Failed(line(failed.message.as_deref().unwrap_or("It has failed")))
        } else if condition("Suspended").is_some() {
            Progress::Suspended
        } else {
            Progress::Pending
        };
        let image = metadata.annotations.as_ref().and_then(|annotations| annotations.get(IMAGE));
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            owner: owner(metadata, &["BaseModel", "ClusterBaseModel"])?,
            image: image.cloned().unwrap_or_default(),
            progress,
            is_deleting: metadata.deletion_timestamp.is_some(),
        })
    }
}

/// Deletes those of these Jobs that the model owns and that aren't being deleted.
pub fn deletions<'a>(model: &ModelObject, jobs: impl IntoIterator<Item = &'a InspectionJob>) -> Vec<Step> {
    let jobs = jobs.into_iter().filter(|job| job.owner == model.uid && !job.is_deleting);
    jobs.map(|job| Step::Delete(job.clone())).collect()
}

impl InspectionPod {
    /// Parses a pod; none if no Job owns it.
    pub fn from_pod(pod: &Pod) -> Option<Self> {
        Some(Self {
            namespace: pod.metadata.namespace.clone()?,
            owner: owner(&pod.metadata, &["Job"])?,
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
            progress: PodProgress::read(pod),
        })
    }
}

impl PodProgress {
    fn read(pod: &Pod) -> Self {
        let Some(status) = &pod.status else { return Self::Waiting(None) };
        // Others may have added containers.
        let mut containers = status.container_statuses.iter().flatten();
        let container = containers.find(|container| container.name == CONTAINER);
        let state = container.and_then(|container| container.state.as_ref());
        if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
            let message = ended.message.as_deref().filter(|message| !message.trim().is_empty());
            let facts = message.filter(|_| ended.exit_code == 0).and_then(facts);
            let reason = ended.reason.as_deref().unwrap_or("Error");
            return facts.map_or_else(
                || match message.filter(|_| ended.exit_code != 0) {
                    Some(message) => Self::Failed(line(message)),
                    None => Self::Failed(format!("Its container reported nothing (exit code {}, {reason}).", ended.exit_code)),
                },
                Self::Reported,
            );
        }
        if state.is_some_and(|state| state.running.is_some()) {
            return Self::Running;
        }
        let waiting = state.and_then(|state| state.waiting.as_ref()).and_then(|waiting| match waiting.reason.as_deref()? {
            "ContainerCreating" | "PodInitializing" => None,
            // Kubelets alternate between these two.
            "ErrImagePull" | "ImagePullBackOff" => {
                let image = container.map(|container| container.image.as_str()).unwrap_or_default();
                Some(format!("The image {image} can't be pulled."))
            }
            reason => Some(line(&waiting.message.as_ref().map_or_else(|| reason.to_owned(), |message| format!("{reason}: {message}")))),
        });
        let unscheduled = || {
            let mut conditions = status.conditions.iter().flatten();
            let unscheduled = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
            unscheduled.message.as_deref().map(line)
        };
        Self::Waiting(waiting.or_else(unscheduled))
    }
}

/// A pod's report, if it is a JSON object.
fn facts(text: &str) -> Option<Arc<str>> {
    let is_object = text.len() <= MAX_FACTS && serde_json::from_str::<Value>(text).is_ok_and(|facts| facts.is_object());
    is_object.then(|| text.trim().into())
}
