//! Parses and checks a training job's spec.

use super::{PlanError, Replica, keys::JobAnnotations, launch, processes::Processes};
use crate::{
    kinds::{job_run, questions::Questions},
    objects::strings,
    subject_kind::TRAINER_CONTAINER,
};
use pointsman_crds::ome::{
    storage::StorageSpec,
    training_job::{ElasticPolicy, RestartPolicy, TrainingFramework, TrainingJobSpec},
};
use pointsman_sandbox::{digest::Digested, point, words};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The maximum length of a job's name: with the suffix `-worker-1023`, a host name has at most 63 characters.
const MAX_NAME_LENGTH: usize = 51;

/// The default number of times that an elastic worker is replaced.
const DEFAULT_MAX_RESTARTS: i32 = 3;

/// The fields of the spec that may change during a run.
const CHANGEABLE: &[&str] =
    &["activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "fineTunedWeight", "managedBy", "suspend", "ttlSecondsAfterFinished"];

/// The pod fields that Kubernetes or the job sets, with a message for each.
const JOB_FIELDS: [(&str, &str); 2] =
    [("hostname", "the pods' names come from the job: remove it"), ("subdomain", "the pods' names come from the job: remove it")];

/// A training job.
#[derive(Debug)]
pub(super) struct Training {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) spec: TrainingJobSpec,
    /// The templates as specified.
    templates: BTreeMap<Replica, Value>,
    pub(super) keys: JobAnnotations,
    /// The subject for policies.
    pub(super) subject: Digested<point::Subject>,
    /// The hash of the part of the spec that a run depends on.
    pub(super) hash: String,
    pub(super) processes: Processes,
}

/// The limits of an elastic run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elastic {
    pub(super) min: i32,
    pub(super) max: i32,
    pub(super) max_restarts: i32,
}

impl Training {
    /// Reads the job.
    pub(super) fn read(asking: &Questions<'_>) -> Result<Self, Box<PlanError>> {
        let subject = &asking.snapshot.subject;
        let content = subject.content();
        let raw = &content["spec"];
        let spec = serde_path_to_error::deserialize::<_, TrainingJobSpec>(raw)
            .map_err(|error| PlanError::refused("Unreadable", format!("spec.{} can't be read: {}.", error.path(), error.inner())))?;
        let templates: BTreeMap<_, _> =
            Replica::ALL.into_iter().filter_map(|replica| Some((replica, raw.get(replica.name())?.get("template")?.clone()))).collect();
        let labels = strings(&content["metadata"]["labels"]);
        let annotations = strings(&content["metadata"]["annotations"]);
        let keys = JobAnnotations::read(&annotations)?;
        let worker = templates.get(&Replica::Worker).cloned().unwrap_or_default();
        let processes = Processes::new(spec.proc_per_node.as_ref(), &worker["spec"]);
        Ok(Self {
            name: subject.key.name.clone(),
            namespace: subject.key.namespace.clone(),
            uid: subject.uid.clone(),
            subject: asking.subject(&labels, &annotations),
            hash: hash(raw, &keys, spec.elastic_policy.is_some()),
            labels,
            annotations,
            spec,
            templates,
            keys,
            processes,
        })
    }

    /// Checks whether the spec can be carried out.
    pub(super) fn check(&self) -> Result<(), Box<PlanError>> {
        let name = &self.name;
        if name.len() > MAX_NAME_LENGTH || !words::service_name(name) {
            return Err(PlanError::refused(
                "InvalidName",
                format!(
                    "metadata.name is {name:?}: a Service of this name selects the pods, so it must start with a lower-case letter, and \
                     consist of at most {MAX_NAME_LENGTH} lower-case letters, digits and -. Recreate the job under another name."
                ),
            ));
        }
        for (replica, template) in &self.templates {
            check_template(*replica, &template["spec"])?;
        }
        launch::check(self)?;
        self.check_weight()
    }

    /// Checks whether the job may create the FineTunedWeight that it requests.
    pub(super) fn check_weight(&self) -> Result<(), Box<PlanError>> {
        let Some(weight) = &self.spec.fine_tuned_weight else { return Ok(()) };
        let base = weight.base_model_ref.namespace.as_deref();
        if let Some(other) = base.filter(|namespace| *namespace != self.namespace) {
            let message = format!(
                "spec.fineTunedWeight.baseModelRef.namespace is {other:?}: a run can only use models of its own namespace or \
                 cluster-scoped ones. Remove the namespace, or have an administrator create the FineTunedWeight."
            );
            return Err(PlanError::refused("NotSupported", message));
        }
        let prefix = format!("{}.", self.namespace);
        // Users who may create jobs in a namespace must not take the names of others' weights.
        if weight.name.strip_prefix(&prefix).is_some_and(|rest| !rest.is_empty()) {
            return self.check_storage(&weight.storage);
        }
        let message = format!(
            "spec.fineTunedWeight.name is {:?}: FineTunedWeights are cluster-scoped, so its name must start with the job's namespace: set \
             it to {prefix}{}.",
            weight.name, self.name
        );
        Err(PlanError::refused("InvalidName", message))
    }

    /// FineTunedWeights count as administrators' objects: users who may create jobs must not specify nodes and Secrets in them.
    fn check_storage(&self, storage: &StorageSpec) -> Result<(), Box<PlanError>> {
        let uri = &storage.storage_uri;
        let claim = uri.strip_prefix("pvc://").and_then(|claim| claim.split('/').next()?.split_once(':'));
        let (field, problem) = if uri.starts_with("local://") {
            ("storageUri", "is a path on nodes")
        } else if claim.is_some_and(|(namespace, _)| namespace != self.namespace) {
            ("storageUri", "is a claim in another namespace")
        } else if storage.path.is_some() {
            ("path", "is a path on nodes")
        } else if storage.key.is_some() || storage.parameters.contains_key("secretKey") {
            ("key", "names a Secret that doesn't belong to the job's namespace")
        } else {
            return Ok(());
        };
        let message = format!(
            "spec.fineTunedWeight.storage.{field} {problem}, which only an administrator may set: remove it here, and have an \
             administrator create the FineTunedWeight."
        );
        Err(PlanError::refused("NotSupported", message))
    }

    /// The roles of its pods, in the order in which they start.
    pub(super) fn replicas(&self) -> impl Iterator<Item = Replica> {
        self.templates.keys().copied()
    }

    pub(super) fn has_launcher(&self) -> bool {
        self.templates.contains_key(&Replica::Launcher)
    }

    pub(super) fn template(&self, replica: Replica) -> &Value {
        self.templates.get(&replica).unwrap_or(&Value::Null)
    }

    /// The container that trains or launches; policies and rules find it by the same rule.
    pub(super) fn main_container(&self, replica: Replica) -> Option<&Value> {
        main_container(&self.template(replica)["spec"])
    }

    pub(super) fn workers(&self) -> i32 {
        self.spec.worker.replicas.unwrap_or(1)
    }

    pub(super) fn restart_policy(&self) -> RestartPolicy {
        self.spec.restart_policy.unwrap_or_default()
    }

    pub(super) fn elastic(&self) -> Option<Elastic> {
        let ElasticPolicy { min_replicas, max_replicas, max_restarts } = self.spec.elastic_policy.as_ref()?;
        let (min, max) = (min_replicas.unwrap_or(1), max_replicas.unwrap_or_else(|| self.workers()));
        Some(Elastic { min, max, max_restarts: max_restarts.unwrap_or(DEFAULT_MAX_RESTARTS) })
    }

    /// The host name of one of the job's pods within the namespace.
    pub(super) fn host(&self, replica: Replica, index: i32) -> String {
        format!("{}-{index}.{}", replica.job_name(&self.name), self.name)
    }

    /// The value of the label.
    pub(super) fn framework(&self) -> &'static str {
        match self.spec.framework {
            TrainingFramework::Pytorch => "pytorch",
            TrainingFramework::Mpi => "mpi",
            TrainingFramework::Deepspeed => "deepspeed",
        }
    }
}

/// The hash of the part of the spec that pods depend on: all fields except those that may change during a run.
fn hash(spec: &Value, keys: &JobAnnotations, elastic: bool) -> String {
    let mut spec = spec.clone();
    if let Some(worker) = spec.get_mut("worker").and_then(Value::as_object_mut).filter(|_| elastic) {
        worker.remove("replicas");
    }
    let mut all: Map<String, Value> = spec.as_object().cloned().unwrap_or_default();
    all.insert("annotations".to_owned(), json!(keys.settings));
    job_run::spec_hash(&Value::Object(all), CHANGEABLE)
}

/// The container with the usual name, otherwise the first one.
pub(super) fn main_container(spec: &Value) -> Option<&Value> {
    let containers = spec["containers"].as_array()?;
    containers.iter().find(|container| container["name"] == TRAINER_CONTAINER).or_else(|| containers.first())
}

fn check_template(replica: Replica, spec: &Value) -> Result<(), Box<PlanError>> {
    let place = format!("spec.{}.template.spec", replica.name());
    for (field, why) in JOB_FIELDS {
        if spec.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
            return Err(PlanError::refused("NotSupported", format!("{place}.{field} is set, and {why}.")));
        }
    }
    match spec.get("restartPolicy").map(|policy| String::deserialize(policy).unwrap_or_default()).as_deref() {
        None | Some("" | "Never") => Ok(()),
        Some(other) => Err(PlanError::refused(
            "NotSupported",
            format!(
                "{place}.restartPolicy is {other}: a container that restarts alone is no longer part of the run. Remove it, and set \
                 spec.restartPolicy and spec.backoffLimit for the whole run."
            ),
        )),
    }
}
