//! A model on a PersistentVolumeClaim: no agent sees it, so a Job reads its files where the claim can be mounted. The Job is the record of
//! that, as long as the model is what it was.

use super::{assignment::ModelObject, summary::Summary};
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

/// The annotation of a Job with what the files say: fields of a model's spec.
pub const FACTS: &str = "pointsman.dev/model-facts";

/// How much a container may say when it ends: what a kubelet keeps.
pub const MAX_FACTS: usize = 4096;

/// After how many seconds what has failed is tried again: its Job is deleted then.
const AGAIN_AFTER: i64 = 1800;

/// How often a pod is replaced that ends without a report.
const BACKOFF_LIMIT: i64 = 2;

/// How long the part of a Job's name may be that comes from the model.
const MAX_NAME: usize = 45;

/// The container of its pods.
const CONTAINER: &str = "inspect";

/// Where the claim is mounted.
const MOUNT: &str = "/claim";

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
    progress: Progress,
    is_deleting: bool,
    is_temporary: bool,
    facts: Option<Arc<str>>,
}

/// A pod of such a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectionPod {
    /// The uid of its Job.
    owner: String,
    created: String,
    facts: Option<Arc<str>>,
    failure: Option<String>,
    waits_for: Option<String>,
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
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            owner: owner(metadata, &["BaseModel", "ClusterBaseModel"])?,
            progress,
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_temporary: job.spec.as_ref().is_some_and(|spec| spec.ttl_seconds_after_finished.is_some()),
            facts: metadata.annotations.as_ref().and_then(|annotations| facts(annotations.get(FACTS)?)),
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
        let status = pod.status.as_ref();
        let container = status.and_then(|status| status.container_statuses.as_ref()?.first());
        let state = container.and_then(|container| container.state.as_ref());
        let ended = state.and_then(|state| state.terminated.as_ref());
        let said = ended.and_then(|ended| ended.message.as_deref()).filter(|text| !text.trim().is_empty());
        let failure = ended.filter(|ended| ended.exit_code != 0).map(|ended| {
            let reason = ended.reason.as_deref().unwrap_or("Error");
            said.map_or_else(|| format!("Its container ended with exit code {} ({reason}).", ended.exit_code), line)
        });
        let waiting = state.and_then(|state| state.waiting.as_ref()).and_then(|waiting| {
            let reason = waiting.reason.as_deref().filter(|reason| *reason != "ContainerCreating" && *reason != "PodInitializing")?;
            Some(line(&waiting.message.as_ref().map_or_else(|| reason.to_owned(), |message| format!("{reason}: {message}"))))
        });
        let unscheduled = || {
            let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
            let unscheduled = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
            unscheduled.message.as_deref().map(line)
        };
        Some(Self {
            owner: owner(&pod.metadata, &["Job"])?,
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
            facts: ended.filter(|ended| ended.exit_code == 0).and(said).and_then(facts),
            failure,
            waits_for: waiting.or_else(unscheduled),
        })
    }
}

/// What a pod has said, if that is an object.
fn facts(text: &str) -> Option<Arc<str>> {
    let is_object = text.len() <= MAX_FACTS && serde_json::from_str::<Value>(text).is_ok_and(|facts| facts.is_object());
    is_object.then(|| text.trim().into())
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create this Job.
    Create(Value),
    /// Delete this Job: it is about what the model was, or its result is lost.
    Delete(InspectionJob),
    /// Write into this Job what its pod has said, which stays when the pod goes.
    Record(InspectionJob, Arc<str>),
    /// Have this Job deleted after a time, so that what has failed is tried again.
    Expire(InspectionJob, i64),
}

/// What is known of a model on a claim.
#[derive(Clone, Debug)]
pub struct Inspection<'a> {
    /// The model.
    pub model: &'a ModelObject,
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

impl Inspection<'_> {
    /// What its status is to be, and what to do.
    pub fn outcome(&self) -> (Summary, Vec<Step>) {
        let place = match self.place() {
            Ok(place) => place,
            Err((reason, message)) => return (failed(reason, message), self.without(None)),
        };
        let ClaimPath { namespace, claim, .. } = &place;
        let namespace = namespace.as_deref().unwrap_or_default();
        let name = self.job_name();
        let own = |job: &&&InspectionJob| job.owner == self.model.uid && job.namespace == namespace && job.name == name;
        let mut steps = self.without(Some((namespace, &name)));
        let at = format!("{namespace}/{name}");
        let Some(job) = self.jobs.iter().find(own) else {
            let waits = |reason, message| unready(LifeCycleState::InTransit, reason, message);
            let summary = match (self.image, self.refusal) {
                (Err(why), _) => {
                    waits("ImageUnknown", format!("The image of the Job that is to read the claim isn't known: {}", line(why)))
                }
                (_, Some(why)) => waits("JobRefused", format!("The Job {at} that is to read the claim can't be created: {}", line(why))),
                _ => waits("Inspecting", format!("The Job {at} is being created to read the claim {claim}.")),
            };
            steps.extend(self.image.ok().map(|image| Step::Create(self.job(&place, namespace, &name, image))));
            return (summary, steps);
        };
        let pods = self.pods.iter().filter(|pod| pod.owner == job.uid);
        let newest = pods.clone().max_by_key(|pod| &pod.created);
        let summary = match &job.progress {
            _ if job.is_deleting => unready(LifeCycleState::InTransit, "Inspecting", format!("The Job {at} is being replaced.")),
            Progress::Complete => {
                let said = pods.clone().find_map(|pod| pod.facts.clone());
                match (&job.facts, &said) {
                    (Some(_), _) => {}
                    (None, Some(said)) => steps.push(Step::Record((*job).clone(), Arc::clone(said))),
                    (None, None) => steps.push(Step::Delete((*job).clone())),
                }
                match job.facts.clone().or(said) {
                    Some(facts) => Summary { facts: Some(facts), ..holds(claim, &at) },
                    None => unready(LifeCycleState::InTransit, "Inspecting", format!("The Job {at} is repeated: its result is lost.")),
                }
            }
            Progress::Failed(why) => {
                if !job.is_temporary {
                    steps.push(Step::Expire((*job).clone(), AGAIN_AFTER));
                }
                let why = newest.and_then(|pod| pod.failure.as_ref()).unwrap_or(why);
                let minutes = AGAIN_AFTER / 60;
                let message = format!(
                    "The Job {at} can't read the model on the claim {claim}: {why} It is tried again after {minutes} minutes, or as soon as you \
                     delete the Job."
                );
                failed("InspectionFailed", message)
            }
            Progress::Suspended => unready(
                LifeCycleState::InTransit,
                "JobSuspended",
                format!("The Job {at} is suspended: it reads the claim once whoever suspended it resumes it."),
            ),
            Progress::Pending => {
                let message = match newest.map(|pod| (&pod.failure, &pod.waits_for)) {
                    Some((Some(why), _)) => format!("The Job {at} tries again to read the claim {claim}: {why}"),
                    Some((_, Some(what))) => format!("The pod of the Job {at} waits: {what}"),
                    _ => format!("The Job {at} reads the claim {claim}."),
                };
                unready(LifeCycleState::InTransit, "Inspecting", message)
            }
        };
        (summary, steps)
    }

    /// The place with its namespace. A model of a namespace tells nothing of claims of others.
    fn place(&self) -> Result<ClaimPath, (&'static str, String)> {
        let place = self.place.clone().map_err(|why| ("InvalidStorage", line(&format!("spec.storage.storageUri: {why}"))))?;
        let own = Some(self.model.namespace.clone()).filter(|namespace| !namespace.is_empty());
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

    /// Deletes the Jobs about the model, but for one.
    fn without(&self, kept: Option<(&str, &str)>) -> Vec<Step> {
        let is_old = |job: &&&InspectionJob| job.is_left_by(self.model) && kept.is_none_or(|kept| kept != (&job.namespace, &job.name));
        self.jobs.iter().filter(is_old).map(|job| Step::Delete((*job).clone())).collect()
    }

    /// A name for each state of what is inspected.
    fn job_name(&self) -> String {
        let ModelObject { uid, storage, refresh, .. } = self.model;
        let inspected = json!([uid, storage.storage_uri, storage.node_selector, storage.node_affinity, refresh]).to_string();
        let name = self.model.name.replace('.', "-");
        let name = name.get(..MAX_NAME).unwrap_or(&name).trim_end_matches('-');
        format!("inspect-{name}-{}", &Digest::hash(inspected.as_bytes()).hex()[..8])
    }

    fn job(&self, place: &ClaimPath, namespace: &str, name: &str, image: &str) -> Value {
        let model = self.model;
        let kind = if model.namespace.is_empty() { "ClusterBaseModel" } else { "BaseModel" };
        let (labels, annotations) = (json!({INSPECTION: "true"}), json!({MODEL: self.key}));
        let required =
            model.storage.node_affinity.as_ref().and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
        let affinity = required.map(|required| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}));
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
        if let Some(affinity) = affinity {
            pod["affinity"] = affinity;
        }
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [
                    {"apiVersion": "ome.io/v1beta1", "kind": kind, "name": model.name, "uid": model.uid, "controller": true},
                ],
            },
            "spec": {
                "backoffLimit": BACKOFF_LIMIT,
                // A drained node is no failure of the claim, and what the command reports is the same when it runs again.
                "podFailurePolicy": {"rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [1]}},
                ]},
                "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
            },
        })
    }
}

/// What is said of a model on a claim that can't be inspected because Jobs and pods can't be watched.
pub fn unwatched(why: &str) -> Summary {
    unready(LifeCycleState::InTransit, "JobsUnknown", format!("The Job that reads the claim isn't known: {}", line(why)))
}

fn holds(claim: &str, job: &str) -> Summary {
    let message = format!("The claim {claim} holds the model's files, as the Job {job} has found.");
    let condition = Condition::satisfied(READY, "ClaimInspected", message);
    Summary { state: LifeCycleState::Ready, nodes_ready: Vec::new(), nodes_failed: Vec::new(), condition, facts: None }
}

fn unready(state: LifeCycleState, reason: &str, message: String) -> Summary {
    Summary { state, nodes_ready: Vec::new(), nodes_failed: Vec::new(), condition: Condition::no(READY, reason, message), facts: None }
}

fn failed(reason: &str, message: String) -> Summary {
    unready(LifeCycleState::Failed, reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
    fn model(more: Value) -> ModelObject {
        let mut object = json!({
            "metadata": {"name": "llama-3.1", "namespace": "ml", "uid": "m"},
            "spec": {"storage": {"storageUri": "pvc://claim/llama"}},
        });
        for (part, fields) in more.as_object().unwrap() {
            object.pointer_mut(part).unwrap().as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        ModelObject::from_object(&object).unwrap()
    }

    fn place(namespace: Option<&str>) -> ClaimPath {
        ClaimPath { namespace: namespace.map(str::to_owned), claim: "claim".to_owned(), path: "llama".to_owned() }
    }

    fn inspection(model: &ModelObject) -> Inspection<'_> {
        Inspection { model, key: "k", place: Ok(place(None)), image: Ok("host:1"), refusal: None, jobs: Vec::new(), pods: Vec::new() }
    }

    /// The Job that is created for a model, with what the API server adds, and this status.
    fn created(model: &ModelObject, status: Value) -> Job {
        let (_, steps) = inspection(model).outcome();
        let [Step::Create(job)] = &steps[..] else { panic!("{steps:?}") };
        let mut job = job.clone();
        job["metadata"]["uid"] = json!("j");
        job["status"] = status;
        serde_json::from_value(job).unwrap()
    }

    #[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
    fn pod(status: Value) -> InspectionPod {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "j", "controller": true});
        let pod = json!({"metadata": {"name": "p", "ownerReferences": [owner]}, "status": status});
        InspectionPod::from_pod(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn ended(exit_code: i32, message: &str) -> InspectionPod {
        pod(json!({"containerStatuses": [{
            "name": "inspect", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": exit_code, "message": message, "reason": "Error"}},
        }]}))
    }

    const COMPLETE: &str = r#"{"conditions": [{"type": "Complete", "status": "True"}]}"#;

    fn status(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn told(outcome: &(Summary, Vec<Step>)) -> (LifeCycleState, &str, &str) {
        (outcome.0.state, &outcome.0.condition.reason, &outcome.0.condition.message)
    }

    #[test]
    fn a_job_reads_the_claim_where_it_can_be_mounted() {
        let nodes = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}});
        let model = model(json!({"/spec/storage": {"nodeSelector": {"zone": "a"}, "nodeAffinity": nodes}}));
        let outcome = inspection(&model).outcome();
        assert_eq!((told(&outcome).0, told(&outcome).1), (LifeCycleState::InTransit, "Inspecting"));
        let job = created(&model, json!({}));
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
    fn what_its_pod_says_is_recorded_and_stays_when_the_pod_goes() {
        let model = model(json!({}));
        let job = created(&model, status(COMPLETE));
        let known = InspectionJob::from_job(&job).unwrap();
        let said = ended(0, r#"{"modelType": "llama"}"#);
        let with_pod = Inspection { jobs: vec![&known], pods: vec![&said], ..inspection(&model) }.outcome();
        assert_eq!((told(&with_pod).0, told(&with_pod).1), (LifeCycleState::Ready, "ClaimInspected"));
        let facts: Arc<str> = r#"{"modelType": "llama"}"#.into();
        assert_eq!((with_pod.0.facts.as_ref(), &with_pod.1[..]), (Some(&facts), &[Step::Record(known.clone(), Arc::clone(&facts))][..]));
        let mut recorded = job;
        recorded.metadata.annotations.as_mut().unwrap().insert(FACTS.to_owned(), facts.to_string());
        let recorded = InspectionJob::from_job(&recorded).unwrap();
        let alone = Inspection { jobs: vec![&recorded], ..inspection(&model) }.outcome();
        assert_eq!((alone.0.state, alone.0.facts.as_ref(), alone.1.len()), (LifeCycleState::Ready, Some(&facts), 0));
        // Lost before it was recorded, it is read again.
        let lost = Inspection { jobs: vec![&known], ..inspection(&model) }.outcome();
        assert_eq!((lost.0.state, &lost.1[..]), (LifeCycleState::InTransit, &[Step::Delete(known)][..]));
    }

    #[test]
    fn a_failure_has_its_reason_and_is_tried_again() {
        let model = model(json!({}));
        let failed = r#"{"conditions": [{"type": "Failed", "status": "True", "message": "Job has reached the specified backoff limit"}]}"#;
        let mut job = created(&model, status(failed));
        let known = InspectionJob::from_job(&job).unwrap();
        let pod = ended(1, "error: /claim/llama: No such file or directory\n");
        let outcome = Inspection { jobs: vec![&known], pods: vec![&pod], ..inspection(&model) }.outcome();
        let (state, reason, message) = told(&outcome);
        assert_eq!((state, reason), (LifeCycleState::Failed, "InspectionFailed"));
        assert!(message.contains("claim: error: /claim/llama: No such file or directory. It is tried again"), "{message}");
        assert_eq!(outcome.1, [Step::Expire(known, AGAIN_AFTER)]);
        job.spec.as_mut().unwrap().ttl_seconds_after_finished = Some(5);
        let known = InspectionJob::from_job(&job).unwrap();
        let outcome = Inspection { jobs: vec![&known], ..inspection(&model) }.outcome();
        assert!(told(&outcome).2.contains("backoff limit. It is tried again"), "{}", told(&outcome).2);
        assert_eq!(outcome.1, []);
    }

    #[test]
    fn what_it_waits_for_is_said() {
        let model = model(json!({}));
        let known = InspectionJob::from_job(&created(&model, json!({}))).unwrap();
        let waiting = |status| {
            let pod = pod(status);
            let outcome = Inspection { jobs: vec![&known], pods: vec![&pod], ..inspection(&model) }.outcome();
            assert_eq!((told(&outcome).0, told(&outcome).1, outcome.1.len()), (LifeCycleState::InTransit, "Inspecting", 0));
            outcome.0.condition.message
        };
        let unscheduled =
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "persistentvolumeclaim \"claim\" not found"}]});
        assert!(waiting(unscheduled).ends_with(r#"waits: persistentvolumeclaim "claim" not found."#));
        let image = json!({"containerStatuses": [{
            "name": "inspect", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
        }]});
        assert!(waiting(image).ends_with("waits: ImagePullBackOff: no such image."));
        let refused = Inspection { refusal: Some("exceeded quota"), ..inspection(&model) }.outcome();
        assert_eq!(told(&refused).1, "JobRefused");
        assert!(matches!(&refused.1[..], [Step::Create(_)]), "it is tried again");
        let unknown = Inspection { image: Err("set a flag"), ..inspection(&model) }.outcome();
        assert_eq!((told(&unknown).1, unknown.1.len()), ("ImageUnknown", 0));
        let suspended = created(&model, status(r#"{"conditions": [{"type": "Suspended", "status": "True"}]}"#));
        let suspended = InspectionJob::from_job(&suspended).unwrap();
        assert_eq!(told(&Inspection { jobs: vec![&suspended], ..inspection(&model) }.outcome()).1, "JobSuspended");
    }

    #[test]
    fn a_change_of_the_storage_is_inspected_anew() {
        let before = model(json!({}));
        let old = InspectionJob::from_job(&created(&before, status(COMPLETE))).unwrap();
        for change in [
            json!({"/spec/storage": {"storageUri": "pvc://claim/other"}}),
            json!({"/spec/storage": {"nodeSelector": {"a": "b"}}}),
            json!({"/metadata": {"annotations": {"pointsman.dev/download-again": "2"}}}),
        ] {
            let after = model(change.clone());
            let outcome = Inspection { jobs: vec![&old], ..inspection(&after) }.outcome();
            assert!(matches!(&outcome.1[..], [Step::Delete(job), Step::Create(_)] if *job == old), "{change}: {:?}", outcome.1);
        }
        // One that belongs to another model of the name is none of ours.
        let another = model(json!({"/metadata": {"uid": "n"}}));
        let outcome = Inspection { jobs: vec![&old], ..inspection(&another) }.outcome();
        assert!(matches!(&outcome.1[..], [Step::Create(_)]), "{:?}", outcome.1);
    }

    #[test]
    fn claims_of_other_namespaces_are_refused() {
        let own = model(json!({}));
        let of = |model, namespace| {
            let outcome = Inspection { place: Ok(place(namespace)), ..inspection(model) }.outcome();
            (outcome.0.state, outcome.0.condition.reason, outcome.1.len())
        };
        assert_eq!(of(&own, Some("other")), (LifeCycleState::Failed, "ClaimOfAnotherNamespace".to_owned(), 0));
        assert_eq!(of(&own, Some("ml")), (LifeCycleState::InTransit, "Inspecting".to_owned(), 1));
        let cluster = model(json!({"/metadata": {"namespace": ""}}));
        assert_eq!(of(&cluster, None), (LifeCycleState::Failed, "ClaimWithoutNamespace".to_owned(), 0));
        assert_eq!(of(&cluster, Some("other")), (LifeCycleState::InTransit, "Inspecting".to_owned(), 1));
        let wrong = Inspection { place: Err("it has no path".to_owned()), ..inspection(&own) }.outcome();
        assert_eq!(told(&wrong), (LifeCycleState::Failed, "InvalidStorage", "spec.storage.storageUri: it has no path."));
    }

    #[test]
    fn only_pods_of_its_job_are_believed_and_only_objects() {
        let model = model(json!({}));
        let known = InspectionJob::from_job(&created(&model, status(COMPLETE))).unwrap();
        let foreign = InspectionPod { owner: "another".to_owned(), ..ended(0, "{}") };
        let outcome = Inspection { jobs: vec![&known], pods: vec![&foreign], ..inspection(&model) }.outcome();
        assert!(outcome.0.facts.is_none());
        for text in ["[]", "no JSON", "", &format!(r#"{{"a": "{}"}}"#, "x".repeat(MAX_FACTS))] {
            assert_eq!(ended(0, text).facts, None, "{text}");
        }
    }
}
