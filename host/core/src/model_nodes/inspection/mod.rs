//! Models on PersistentVolumeClaims: agents can't see them, so a Job reads their files from the mounted claim. After it succeeds, the
//! model's status is the record of that, until the storage changes.

mod observed;
#[cfg(test)]
mod tests;

pub use observed::{InspectionJob, InspectionPod, deletions, model_key};

use super::{assignment::ModelObject, live::LiveModel, summary::Summary};
use crate::condition::{Condition, READY};
use observed::{PodProgress, Progress, line};
use pointsman_crds::ome::model::LifeCycleState;
use pointsman_sandbox::digest::Digest;
use serde_json::{Value, json};
use std::sync::Arc;

/// The label of these Jobs and their pods; its value is `true`.
pub const INSPECTION: &str = "pointsman.dev/model-inspection";

/// The annotation of these Jobs and their pods with the model, by its key in the agents' ConfigMaps.
pub const MODEL: &str = "pointsman.dev/model";

/// The annotation of a Job with the image that it was created with: a cluster's policies may replace the image of its pods.
const IMAGE: &str = "pointsman.dev/model-inspect-image";

/// The maximum length of a container's termination message, which the kubelet limits.
pub const MAX_FACTS: usize = 4096;

/// How many seconds a Job is retained after its end. After a failure, the next Job follows.
const SECONDS_AFTER_END: i64 = 1800;

/// How many times a pod that ends without a report is replaced.
const BACKOFF_LIMIT: i64 = 2;

/// The maximum length of the model's part of a Job's name.
const MAX_NAME: usize = 45;

/// The container of its pods.
const CONTAINER: &str = "inspect";

/// The mount path of the claim.
const MOUNT: &str = "/claim";

/// The reason of a model whose claim has been read.
const INSPECTED: &str = "ClaimInspected";

/// The reason of a model whose claim is being read.
const INSPECTING: &str = "Inspecting";

/// A path on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPath {
    /// The claim's namespace, if the URI specifies it.
    pub namespace: Option<String>,
    /// The claim's name.
    pub claim: String,
    /// The directory on it.
    pub path: String,
}

/// A step to take.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create this Job.
    Create(Value),
    /// Delete this Job: the model or the image has changed, or its pod still runs after its report was recorded.
    Delete(InspectionJob),
}

/// The known state of a model on a claim.
#[derive(Clone, Debug)]
pub struct Inspection<'a> {
    /// The model.
    pub live: &'a LiveModel,
    /// Its key in the agents' ConfigMaps.
    pub key: &'a str,
    /// Its path, or why its URI is invalid.
    pub place: Result<ClaimPath, String>,
    /// The image of its Jobs, or why that is unknown.
    pub image: Result<&'a str, &'a str>,
    /// Why the last creation of its Job was rejected.
    pub refusal: Option<&'a str>,
    /// Its Jobs.
    pub jobs: Vec<&'a InspectionJob>,
    /// Their pods.
    pub pods: Vec<&'a InspectionPod>,
}

/// The outcome for a model on a claim.
#[derive(Debug)]
pub struct Outcome {
    /// The status to report.
    pub summary: Summary,
    /// The steps to take.
    pub steps: Vec<Step>,
    /// Whether a Job would be created if the image were known.
    pub needs_image: bool,
}

impl Inspection<'_> {
    /// Determines the status to report and the steps to take.
    pub fn outcome(&self) -> Outcome {
        let outcome = |summary, steps| Outcome { summary, steps, needs_image: false };
        let place = match self.place() {
            Ok(place) => place,
            Err((reason, message)) => return outcome(failed(reason, message), self.deletions(|_| true)),
        };
        let namespace = place.namespace.as_deref().unwrap_or_default();
        let name = self.job_name();
        let is_current = |job: &InspectionJob| job.namespace == namespace && job.name == name;
        let mut steps = self.deletions(|job| !is_current(job));
        let job = self.jobs.iter().find(|job| job.owner == self.live.object.uid && is_current(job));
        let pods = self.pods.iter().filter(|pod| job.is_some_and(|job| pod.owner == job.uid && pod.namespace == job.namespace));
        let newest = pods.clone().max_by_key(|pod| &pod.created).map(|pod| &pod.progress);
        let facts =
            pods.clone().find_map(|pod| if let PodProgress::Reported(facts) = &pod.progress { Some(Arc::clone(facts)) } else { None });
        let at = format!("{namespace}/{name}");
        // The result of the Job is retained, regardless of what happens to the Job.
        let is_recorded = self.is_recorded(&at);
        if is_recorded || facts.is_some() {
            // A container that others added keeps its pod from ending.
            let goes_on = job.filter(|job| is_recorded && facts.is_some() && job.progress == Progress::Pending && !job.is_deleting);
            steps.extend(goes_on.map(|job| Step::Delete((*job).clone())));
            return outcome(Summary { facts, ..holds(&place.claim, &at) }, steps);
        }
        if let Some(job) = job {
            let is_stuck = job.progress == Progress::Pending && !matches!(newest, Some(PodProgress::Running));
            if is_stuck && !job.is_deleting && self.image.is_ok_and(|image| image != job.image) {
                steps.push(Step::Delete((*job).clone()));
            }
            return outcome(progress(job, newest, &place.claim, &at), steps);
        }
        let summary = match (self.image, self.refusal) {
            (Err(why), _) => unready("ImageUnknown", format!("The image of the Job that is to read the claim is unknown: {}", line(why))),
            (_, Some(why)) => unready("JobRejected", format!("The Job {at}, which is to read the claim, can't be created: {}", line(why))),
            _ => unready(INSPECTING, format!("The Job {at} is being created to read the claim {}.", place.claim)),
        };
        steps.extend(self.image.ok().map(|image| Step::Create(self.job(&place, namespace, &name, image))));
        Outcome { summary, steps, needs_image: self.image.is_err() }
    }

    /// Whether the status records that this Job has read the claim.
    fn is_recorded(&self, job: &str) -> bool {
        let recorded = self.live.status.conditions.iter().filter(|known| known.type_ == READY && known.reason == INSPECTED);
        recorded.filter(|known| known.status == "True").any(|known| known.message.contains(job))
    }

    /// The path with its namespace. A namespaced model has no access to claims of other namespaces.
    fn place(&self) -> Result<ClaimPath, (&'static str, String)> {
        let place = self.place.clone().map_err(|why| ("InvalidStorage", line(&format!("spec.storage.storageUri: {why}"))))?;
        let own = Some(self.live.object.namespace.clone()).filter(|namespace| !namespace.is_empty());
        match (&place.namespace, &own) {
            (None, None) => Err((
                "ClaimWithoutNamespace",
                "A ClusterBaseModel has no namespace: write spec.storage.storageUri as pvc://NAMESPACE:NAME/PATH.".to_owned(),
            )),
            (Some(namespace), Some(own)) if namespace != own => Err((
                "ClaimOfAnotherNamespace",
                format!(
                    "The claim is one of the namespace {namespace}: use a claim of {own}, create the model in {namespace}, or create a \
                     ClusterBaseModel."
                ),
            )),
            _ => Ok(ClaimPath { namespace: place.namespace.clone().or(own), ..place }),
        }
    }

    fn deletions(&self, which: impl Fn(&InspectionJob) -> bool) -> Vec<Step> {
        deletions(&self.live.object, self.jobs.iter().copied().filter(|job| which(job)))
    }

    /// A name that is unique for each state of the inspected model.
    fn job_name(&self) -> String {
        let ModelObject { uid, storage, refresh, .. } = &self.live.object;
        let inspected = json!([uid, storage.storage_uri, storage.node_selector, self.required_nodes(), refresh]).to_string();
        let name = self.live.object.name.replace('.', "-");
        let name = name.get(..MAX_NAME).unwrap_or(&name).trim_end_matches('-');
        format!("inspect-{name}-{}", &Digest::hash(inspected.as_bytes()).hex()[..8])
    }

    fn required_nodes(&self) -> Option<Value> {
        let affinity = self.live.object.storage.node_affinity.as_ref()?;
        affinity.required_during_scheduling_ignored_during_execution.as_ref().map(|required| json!(required))
    }

    fn job(&self, place: &ClaimPath, namespace: &str, name: &str, image: &str) -> Value {
        let model = &self.live.object;
        let kind = if model.namespace.is_empty() { "ClusterBaseModel" } else { "BaseModel" };
        let labels = json!({INSPECTION: "true"});
        // A mesh's proxy would keep the pod from ending.
        let pod_labels = json!({INSPECTION: "true", "sidecar.istio.io/inject": "false"});
        let pod_annotations = json!({MODEL: self.key, "linkerd.io/inject": "disabled"});
        // The volume may be bound to a node with accelerators, whose taints a pod without them wouldn't tolerate.
        let tolerations = ["nvidia.com/gpu", "amd.com/gpu"].map(|key| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}));
        let container = json!({
            "name": CONTAINER,
            "image": image,
            "args": ["model", "inspect", format!("{MOUNT}/{}", place.path), "--termination-message", "/dev/termination-log"],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
            "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "claim", "mountPath": MOUNT, "readOnly": true}],
        });
        let mut pod = json!({
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "tolerations": tolerations,
            "containers": [container],
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": place.claim, "readOnly": true}}],
        });
        if !model.storage.node_selector.is_empty() {
            pod["nodeSelector"] = json!(model.storage.node_selector);
        }
        if let Some(required) = self.required_nodes() {
            pod["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        }
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels,
                "annotations": {MODEL: self.key, IMAGE: image},
                "ownerReferences": [
                    {"apiVersion": "ome.io/v1beta1", "kind": kind, "name": model.name, "uid": model.uid, "controller": true},
                ],
            },
            "spec": {
                "backoffLimit": BACKOFF_LIMIT,
                "ttlSecondsAfterFinished": SECONDS_AFTER_END,
                // Draining a node isn't a failure of the claim, and a second run reports the same.
                "podFailurePolicy": {"rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [1]}},
                ]},
                "template": {"metadata": {"labels": pod_labels, "annotations": pod_annotations}, "spec": pod},
            },
        })
    }
}

/// The status of a model whose Job hasn't succeeded, from the Job and its newest pod.
fn progress(job: &InspectionJob, pod: Option<&PodProgress>, claim: &str, at: &str) -> Summary {
    let minutes = SECONDS_AFTER_END / 60;
    let again = format!("Pointsman tries again after {minutes} minutes, or once you delete the Job.");
    let failure = |why: &str| failed("InspectionFailed", format!("The Job {at} can't read the model on the claim {claim}: {why} {again}"));
    match (&job.progress, pod) {
        _ if job.is_deleting => unready(INSPECTING, format!("The Job {at} is being replaced.")),
        (Progress::Failed(_) | Progress::Complete, Some(PodProgress::Failed(why))) | (Progress::Failed(why), _) => failure(why),
        // The watch of its pods may be late, or they were deleted.
        (Progress::Complete, _) => unready(INSPECTING, format!("The Job {at} has ended, and the result of its pod is unknown. {again}")),
        (Progress::Suspended, _) => {
            unready("JobSuspended", format!("The Job {at} is suspended: it reads the claim once whoever suspended it resumes it."))
        }
        (Progress::Pending, None) => unready(
            INSPECTING,
            format!("The Job {at} has no pod yet: run `kubectl describe job {} -n {}` for the reason.", job.name, job.namespace),
        ),
        (Progress::Pending, Some(pod)) => {
            let message = match pod {
                PodProgress::Failed(why) => format!("The Job {at} tries again to read the claim {claim}: {why}"),
                PodProgress::Waiting(Some(what)) => format!("The pod of the Job {at} waits: {what}"),
                PodProgress::Waiting(None) => format!("The pod of the Job {at} is starting."),
                PodProgress::Running | PodProgress::Reported(_) => format!("The Job {at} is reading the claim {claim}."),
            };
            unready(INSPECTING, message)
        }
    }
}

/// The status of a model on a claim if Jobs and pods can't be listed.
pub fn unlisted(why: &str) -> Summary {
    unready("JobsUnknown", format!("Jobs and their pods can't be listed: {}", line(why)))
}

fn holds(claim: &str, job: &str) -> Summary {
    let message = format!("The claim {claim} holds the model's files, as the Job {job} has found.");
    summary(LifeCycleState::Ready, Condition::satisfied(READY, INSPECTED, message))
}

fn unready(reason: &str, message: String) -> Summary {
    summary(LifeCycleState::InTransit, Condition::no(READY, reason, message))
}

fn failed(reason: &str, message: String) -> Summary {
    summary(LifeCycleState::Failed, Condition::no(READY, reason, message))
}

fn summary(state: LifeCycleState, condition: Condition) -> Summary {
    Summary { state, nodes_ready: Vec::new(), nodes_failed: Vec::new(), condition, facts: None }
}
