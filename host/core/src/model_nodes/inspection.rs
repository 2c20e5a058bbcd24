//! A model on a PersistentVolumeClaim: no agent sees it, so a Job reads its files where the claim can be mounted. Once that has succeeded, the
//! model's status is the record of it, until its storage is another.

use super::{assignment::ModelObject, live::LiveModel, summary::Summary};
use crate::condition::{Condition, READY};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use pointsman_crds::ome::model::LifeCycleState;
use pointsman_sandbox::{digest::Digest, text::printable_line};
use serde_json::{Value, json};
use std::sync::Arc;

/// The label of these Jobs and their pods; its value is `true`.
pub const INSPECTION: &str = "pointsman.dev/model-inspection";

/// The annotation of these Jobs and their pods with the model, by its key in agents' ConfigMaps.
pub const MODEL: &str = "pointsman.dev/model";

/// The annotation of a Job with the image that it was created with: policies of a cluster may replace the one of its pods.
const IMAGE: &str = "pointsman.dev/model-inspect-image";

/// How much a container may report when it ends: what a kubelet keeps.
pub const MAX_FACTS: usize = 4096;

/// How many seconds a Job stays that has ended. One that has failed is followed by the next.
const SECONDS_AFTER_END: i64 = 1800;

/// How often a pod is replaced that ends without a report.
const BACKOFF_LIMIT: i64 = 2;

/// How long the part of a Job's name may be that comes from the model.
const MAX_NAME: usize = 45;

/// The container of its pods.
const CONTAINER: &str = "inspect";

/// Where the claim is mounted.
const MOUNT: &str = "/claim";

/// The reason of a model whose claim has been read.
const INSPECTED: &str = "ClaimInspected";

/// The reason of a model whose claim is being read.
const INSPECTING: &str = "Inspecting";

/// A place on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPath {
    /// The claim's namespace, if the URI specifies it.
    pub namespace: Option<String>,
    /// The claim's name.
    pub claim: String,
    /// The folder on it.
    pub path: String,
}

/// How far a Job is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
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
    /// It, and no later one of the same name.
    pub uid: String,
    /// The uid of the model that owns it.
    owner: String,
    image: String,
    progress: Progress,
    is_deleting: bool,
}

/// What a pod does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PodProgress {
    /// It has no node, or its container can't start: a sentence, if there is one.
    Waiting(Option<String>),
    Running,
    /// It has ended with the fields of a spec.
    Reported(Arc<str>),
    /// It has ended otherwise: a sentence.
    Failed(String),
}

/// A pod of such a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectionPod {
    namespace: String,
    /// The uid of its Job.
    owner: String,
    created: String,
    progress: PodProgress,
}

/// The key of the model that a Job or pod is about.
pub fn model_key(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(MODEL).map(String::as_str)
}

fn owner(metadata: &ObjectMeta, kinds: &[&str]) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && kinds.contains(&&*owner.kind)).map(|owner| owner.uid.clone())
}

/// What somebody else has written, as a line that isn't long and ends as a sentence does.
fn line(text: &str) -> String {
    let text = printable_line(text.trim());
    if text.ends_with(['.', '!', '?']) { text } else { format!("{text}.") }
}

impl InspectionJob {
    /// Reads one; none if no model owns it.
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

    /// Whether it is this model's and isn't about to go.
    pub fn is_left_by(&self, model: &ModelObject) -> bool {
        self.owner == model.uid && !self.is_deleting
    }
}

impl InspectionPod {
    /// Reads one; none if no Job owns it.
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
        // Others may have put containers beside it.
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
            // Kubelets alternate between these.
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

/// What a pod has reported, if that is an object.
fn facts(text: &str) -> Option<Arc<str>> {
    let is_object = text.len() <= MAX_FACTS && serde_json::from_str::<Value>(text).is_ok_and(|facts| facts.is_object());
    is_object.then(|| text.trim().into())
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create this Job.
    Create(Value),
    /// Delete this Job: it inspects what the model was, or in an image that isn't the one.
    Delete(InspectionJob),
}

/// What is known of a model on a claim.
#[derive(Clone, Debug)]
pub struct Inspection<'a> {
    /// The model.
    pub live: &'a LiveModel,
    /// Its key in agents' ConfigMaps.
    pub key: &'a str,
    /// Its place, or what is wrong with its URI.
    pub place: Result<ClaimPath, String>,
    /// The image that inspects it, or why that isn't known.
    pub image: Result<&'a str, &'a str>,
    /// Why its Job could not be created last.
    pub refusal: Option<&'a str>,
    /// The Jobs about it.
    pub jobs: Vec<&'a InspectionJob>,
    /// Their pods.
    pub pods: Vec<&'a InspectionPod>,
}

/// What follows for a model on a claim.
#[derive(Debug)]
pub struct Outcome {
    /// What its status is to be.
    pub summary: Summary,
    /// What to do.
    pub steps: Vec<Step>,
    /// Whether a Job would be created if the image were known.
    pub needs_image: bool,
}

impl Inspection<'_> {
    /// What its status is to be, and what to do.
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
        // Whatever becomes of the Job, what it has found stays.
        let is_recorded = self.is_recorded(&at);
        if is_recorded || facts.is_some() {
            // A container that others have put beside it keeps its pod from ending.
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

    /// The place with its namespace. A model of a namespace has no access to claims of others.
    fn place(&self) -> Result<ClaimPath, (&'static str, String)> {
        let place = self.place.clone().map_err(|why| ("InvalidStorage", line(&format!("spec.storage.storageUri: {why}"))))?;
        let own = Some(self.live.object.namespace.clone()).filter(|namespace| !namespace.is_empty());
        match (&place.namespace, &own) {
            (None, None) => Err((
                "ClaimWithoutNamespace",
                "A ClusterBaseModel is in no namespace: write spec.storage.storageUri as pvc://NAMESPACE:NAME/PATH.".to_owned(),
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

    /// Deletes those of the model's Jobs.
    fn deletions(&self, which: impl Fn(&InspectionJob) -> bool) -> Vec<Step> {
        let jobs = self.jobs.iter().filter(|job| job.is_left_by(&self.live.object) && which(job));
        jobs.map(|job| Step::Delete((*job).clone())).collect()
    }

    /// A name for each state of what is inspected.
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
        // A volume may be one of a node with accelerators, whose taints pods without any can't tolerate otherwise.
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
                // A drained node is no failure of the claim, and what the command reports is the same when it runs again.
                "podFailurePolicy": {"rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [1]}},
                ]},
                "template": {"metadata": {"labels": pod_labels, "annotations": pod_annotations}, "spec": pod},
            },
        })
    }
}

/// What is known of a model by a Job that hasn't succeeded, and by its newest pod.
fn progress(job: &InspectionJob, pod: Option<&PodProgress>, claim: &str, at: &str) -> Summary {
    let minutes = SECONDS_AFTER_END / 60;
    let again = format!("Pointsman tries again after {minutes} minutes, or as soon as you delete the Job.");
    let failure = |why: &str| failed("InspectionFailed", format!("The Job {at} can't read the model on the claim {claim}: {why} {again}"));
    match (&job.progress, pod) {
        _ if job.is_deleting => unready(INSPECTING, format!("The Job {at} is being replaced.")),
        (Progress::Failed(_) | Progress::Complete, Some(PodProgress::Failed(why))) | (Progress::Failed(why), _) => failure(why),
        // Its pods are brought by another watch, or somebody has deleted them.
        (Progress::Complete, _) => unready(INSPECTING, format!("The Job {at} has ended, and the result of its pod is unknown. {again}")),
        (Progress::Suspended, _) => {
            unready("JobSuspended", format!("The Job {at} is suspended: it reads the claim once whoever suspended it resumes it."))
        }
        (Progress::Pending, None) => {
            unready(INSPECTING, format!("The Job {at} has no pod yet: `kubectl describe job {} -n {}` shows why.", job.name, job.namespace))
        }
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

/// What is said of a model on a claim while Jobs and pods can't be listed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
    fn model(more: Value) -> LiveModel {
        let mut object = json!({
            "metadata": {"name": "llama-3.1", "namespace": "ml", "uid": "m"},
            "spec": {"storage": {"storageUri": "pvc://claim/llama"}},
            "status": {},
        });
        for (part, fields) in more.as_object().unwrap() {
            object.pointer_mut(part).unwrap().as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        LiveModel::from_object(&object).unwrap()
    }

    fn place(namespace: Option<&str>) -> ClaimPath {
        ClaimPath { namespace: namespace.map(str::to_owned), claim: "claim".to_owned(), path: "llama".to_owned() }
    }

    fn inspection(live: &LiveModel) -> Inspection<'_> {
        Inspection { live, key: "k", place: Ok(place(None)), image: Ok("host:1"), refusal: None, jobs: Vec::new(), pods: Vec::new() }
    }

    /// The Job that is created for a model, with what the API server adds, and this status.
    fn created(live: &LiveModel, status: Value) -> InspectionJob {
        let Outcome { steps, .. } = inspection(live).outcome();
        let [Step::Create(job)] = &steps[..] else { panic!("{steps:?}") };
        let mut job = job.clone();
        job["metadata"]["uid"] = json!("j");
        job["status"] = status;
        InspectionJob::from_job(&serde_json::from_value(job).unwrap()).unwrap()
    }

    #[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
    fn pod(status: Value) -> InspectionPod {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "j", "controller": true});
        let pod = json!({"metadata": {"name": "p", "namespace": "ml", "ownerReferences": [owner]}, "status": status});
        InspectionPod::from_pod(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    /// A pod beside whose container a mesh has put another one.
    #[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
    fn in_state(state: Value) -> InspectionPod {
        let container = |name: &str, state: &Value| json!({"name": name, "image": "host:1", "imageID": "i", "ready": false, "restartCount": 0, "state": state});
        pod(json!({"containerStatuses": [container("audit", &json!({"terminated": {"exitCode": 0}})), container("inspect", &state)]}))
    }

    fn ended(exit_code: i32, message: &str) -> InspectionPod {
        in_state(json!({"terminated": {"exitCode": exit_code, "message": message, "reason": "Error"}}))
    }

    fn with_condition(type_: &str) -> Value {
        json!({"conditions": [{"type": type_, "status": "True", "message": "Job has reached the specified backoff limit"}]})
    }

    fn said(outcome: &Outcome) -> (LifeCycleState, &str, &str) {
        (outcome.summary.state, &outcome.summary.condition.reason, &outcome.summary.condition.message)
    }

    #[test]
    fn a_job_reads_the_claim_where_it_can_be_mounted() {
        let nodes = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}});
        let live = model(json!({"/spec/storage": {"nodeSelector": {"zone": "a"}, "nodeAffinity": nodes}}));
        let outcome = inspection(&live).outcome();
        assert_eq!((said(&outcome).0, said(&outcome).1), (LifeCycleState::InTransit, INSPECTING));
        let [Step::Create(job)] = &outcome.steps[..] else { panic!("{outcome:?}") };
        let job: Job = serde_json::from_value(job.clone()).unwrap();
        let metadata = &job.metadata;
        assert!(metadata.name.as_deref().unwrap().starts_with("inspect-llama-3-1-"), "{metadata:?}");
        assert_eq!((metadata.namespace.as_deref(), model_key(metadata)), (Some("ml"), Some("k")));
        let pod = job.spec.unwrap().template.spec.unwrap();
        assert_eq!(pod.node_selector.unwrap()["zone"], "a");
        assert!(pod.affinity.unwrap().node_affinity.is_some());
        let claim = pod.volumes.unwrap()[0].persistent_volume_claim.clone().unwrap();
        assert_eq!((&*claim.claim_name, claim.read_only), ("claim", Some(true)));
        assert!(pod.containers[0].args.as_ref().unwrap().contains(&"/claim/llama".to_owned()));
    }

    #[test]
    fn what_its_pod_reports_stays_in_the_status_when_the_job_goes() {
        let live = model(json!({}));
        let job = created(&live, with_condition("Complete"));
        let pod = ended(0, r#"{"modelType": "llama"}"#);
        let outcome = Inspection { jobs: vec![&job], pods: vec![&pod], ..inspection(&live) }.outcome();
        assert_eq!((said(&outcome).0, said(&outcome).1), (LifeCycleState::Ready, INSPECTED));
        assert_eq!((outcome.summary.facts.as_deref(), outcome.steps.len()), (Some(r#"{"modelType": "llama"}"#), 0));
        // A sidecar keeps the pod, and so the Job, from ending.
        let kept = created(&live, json!({}));
        let beside = Inspection { jobs: vec![&kept], pods: vec![&pod], ..inspection(&live) }.outcome();
        assert_eq!((said(&beside), beside.steps.len()), (said(&outcome), 0));
        let condition = json!({
            "type": "Ready", "status": "True", "reason": INSPECTED, "message": outcome.summary.condition.message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let recorded = |more: Value| {
            let mut parts = json!({"/status": {"state": "Ready", "conditions": [condition]}});
            parts.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            model(parts)
        };
        let same = recorded(json!({}));
        let alone = inspection(&same).outcome();
        assert_eq!((said(&alone), alone.steps.len(), alone.needs_image), (said(&outcome), 0, false));
        assert!(alone.summary.facts.is_none(), "what is filled in stays");
        let recorded_beside = Inspection { jobs: vec![&kept], pods: vec![&pod], ..inspection(&same) }.outcome();
        assert_eq!((said(&recorded_beside), &recorded_beside.steps[..]), (said(&outcome), &[Step::Delete(kept)][..]));
        // Another state that somebody has written is none of the record.
        let overwritten = recorded(json!({"/status": {"state": "Failed", "conditions": [condition]}}));
        assert_eq!(said(&inspection(&overwritten).outcome()).0, LifeCycleState::Ready);
        // Another place is read, whatever the status says of the last one.
        let other = recorded(json!({"/spec/storage": {"storageUri": "pvc://claim/other"}}));
        let outcome = Inspection { jobs: vec![&job], ..inspection(&other) }.outcome();
        assert_eq!(said(&outcome).0, LifeCycleState::InTransit);
        assert!(matches!(&outcome.steps[..], [Step::Delete(_), Step::Create(_)]), "{:?}", outcome.steps);
    }

    #[test]
    fn a_result_that_is_lost_is_waited_for_and_repeated_with_the_next_job() {
        let live = model(json!({}));
        let job = created(&live, with_condition("Complete"));
        let outcome = Inspection { jobs: vec![&job], ..inspection(&live) }.outcome();
        assert_eq!((said(&outcome).0, outcome.steps.len()), (LifeCycleState::InTransit, 0));
        assert!(said(&outcome).2.contains("the result of its pod is unknown. Pointsman tries again"), "{}", said(&outcome).2);
        let silent = in_state(json!({"terminated": {"exitCode": 0, "reason": "Completed"}}));
        let outcome = Inspection { jobs: vec![&job], pods: vec![&silent], ..inspection(&live) }.outcome();
        assert_eq!((said(&outcome).0, outcome.steps.len()), (LifeCycleState::Failed, 0));
        assert!(said(&outcome).2.contains("reported nothing (exit code 0, Completed). Pointsman tries"), "{}", said(&outcome).2);
    }

    #[test]
    fn a_failure_has_its_reason() {
        let live = model(json!({}));
        let job = created(&live, with_condition("Failed"));
        let pod = ended(1, "error: /claim/llama: No such file or directory\n");
        let outcome = Inspection { jobs: vec![&job], pods: vec![&pod], ..inspection(&live) }.outcome();
        let (state, reason, message) = said(&outcome);
        assert_eq!((state, reason, outcome.steps.len()), (LifeCycleState::Failed, "InspectionFailed", 0));
        assert!(message.contains("claim: error: /claim/llama: No such file or directory. Pointsman tries again"), "{message}");
        let outcome = Inspection { jobs: vec![&job], ..inspection(&live) }.outcome();
        assert!(said(&outcome).2.contains("backoff limit. Pointsman tries again"), "{}", said(&outcome).2);
    }

    #[test]
    fn what_it_waits_for_is_said() {
        let live = model(json!({}));
        let job = created(&live, json!({}));
        let waiting = |pods: Vec<&InspectionPod>| {
            let outcome = Inspection { jobs: vec![&job], pods, ..inspection(&live) }.outcome();
            assert_eq!((said(&outcome).0, said(&outcome).1, outcome.steps.len()), (LifeCycleState::InTransit, INSPECTING, 0));
            outcome.summary.condition.message
        };
        let message = r#"persistentvolumeclaim "claim" not found"#;
        let unscheduled = pod(json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}));
        assert!(waiting(vec![&unscheduled]).ends_with(r#"waits: persistentvolumeclaim "claim" not found."#));
        for reason in ["ErrImagePull", "ImagePullBackOff"] {
            let image = in_state(json!({"waiting": {"reason": reason, "message": "no such image"}}));
            assert!(waiting(vec![&image]).ends_with("waits: The image host:1 can't be pulled."));
        }
        let starting = in_state(json!({"waiting": {"reason": "ContainerCreating"}}));
        assert!(waiting(vec![&starting]).ends_with("is starting."));
        assert!(waiting(vec![&in_state(json!({"running": {}}))]).ends_with("is reading the claim claim."));
        assert!(waiting(vec![]).contains("`kubectl describe job inspect-llama-3-1-"));

        let suspended = created(&live, with_condition("Suspended"));
        assert_eq!(said(&Inspection { jobs: vec![&suspended], ..inspection(&live) }.outcome()).1, "JobSuspended");
        let refused = Inspection { refusal: Some("exceeded quota"), ..inspection(&live) }.outcome();
        assert_eq!(said(&refused).1, "JobRejected");
        assert!(matches!(&refused.steps[..], [Step::Create(_)]), "it is tried again");
        let unknown = Inspection { image: Err("set a flag"), ..inspection(&live) }.outcome();
        assert_eq!((said(&unknown).1, unknown.steps.len(), unknown.needs_image), ("ImageUnknown", 0, true));
    }

    #[test]
    fn a_job_that_waits_gets_an_image_that_was_corrected() {
        let live = model(json!({}));
        let job = created(&live, json!({}));
        assert_eq!(Inspection { jobs: vec![&job], ..inspection(&live) }.outcome().steps, []);
        let corrected = |pods| Inspection { image: Ok("host:2"), jobs: vec![&job], pods, ..inspection(&live) }.outcome().steps;
        assert_eq!(corrected(vec![]), [Step::Delete(job.clone())]);
        assert_eq!(corrected(vec![&in_state(json!({"running": {}}))]), []);
    }

    #[test]
    fn another_storage_is_another_job() {
        let before = model(json!({}));
        let old = created(&before, with_condition("Complete"));
        for change in [
            json!({"/spec/storage": {"storageUri": "pvc://claim/other"}}),
            json!({"/spec/storage": {"nodeSelector": {"a": "b"}}}),
            json!({"/metadata": {"annotations": {"pointsman.dev/download-again": "2"}}}),
        ] {
            let after = model(change.clone());
            let steps = Inspection { jobs: vec![&old], ..inspection(&after) }.outcome().steps;
            assert!(matches!(&steps[..], [Step::Delete(job), Step::Create(_)] if *job == old), "{change}: {steps:?}");
        }
        let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": []});
        let same = model(json!({"/spec/storage": {"nodeAffinity": preferred}}));
        assert_eq!(inspection(&same).job_name(), old.name);
        // One that belongs to another model of the name isn't ours.
        let another = model(json!({"/metadata": {"uid": "n"}}));
        let steps = Inspection { jobs: vec![&old], ..inspection(&another) }.outcome().steps;
        assert!(matches!(&steps[..], [Step::Create(_)]), "{steps:?}");
    }

    #[test]
    fn claims_of_other_namespaces_are_refused() {
        let own = model(json!({}));
        let at = |live, namespace| {
            let outcome = Inspection { place: Ok(place(namespace)), ..inspection(live) }.outcome();
            (outcome.summary.state, outcome.summary.condition.reason, outcome.steps.len())
        };
        assert_eq!(at(&own, Some("other")), (LifeCycleState::Failed, "ClaimOfAnotherNamespace".to_owned(), 0));
        assert_eq!(at(&own, Some("ml")), (LifeCycleState::InTransit, INSPECTING.to_owned(), 1));
        let cluster = model(json!({"/metadata": {"namespace": ""}}));
        assert_eq!(at(&cluster, None), (LifeCycleState::Failed, "ClaimWithoutNamespace".to_owned(), 0));
        assert_eq!(at(&cluster, Some("other")), (LifeCycleState::InTransit, INSPECTING.to_owned(), 1));
        let wrong = Inspection { place: Err("it has no path".to_owned()), ..inspection(&own) }.outcome();
        assert_eq!(said(&wrong), (LifeCycleState::Failed, "InvalidStorage", "spec.storage.storageUri: it has no path."));
    }

    #[test]
    fn only_pods_of_its_job_are_believed_and_only_objects() {
        let live = model(json!({}));
        let job = created(&live, with_condition("Complete"));
        for foreign in [
            InspectionPod { owner: "another".to_owned(), ..ended(0, "{}") },
            InspectionPod { namespace: "another".to_owned(), ..ended(0, "{}") },
        ] {
            let outcome = Inspection { jobs: vec![&job], pods: vec![&foreign], ..inspection(&live) }.outcome();
            assert_eq!((said(&outcome).0, outcome.summary.facts.is_none()), (LifeCycleState::InTransit, true));
        }
        for text in ["[]", "no JSON", "", &format!(r#"{{"a": "{}"}}"#, "x".repeat(MAX_FACTS))] {
            assert!(matches!(ended(0, text).progress, PodProgress::Failed(_)), "{text}");
        }
    }
}
