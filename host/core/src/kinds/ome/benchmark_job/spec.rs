//! Parses and checks a benchmark's spec.

use super::{ACCEPTED, PlanError};
use crate::{
    duration,
    kinds::{job_run, questions::Questions},
    objects::strings,
    rules::ome_keys::{ANNOTATIONS, Reader},
};
use pointsman_crds::ome::benchmark_job::BenchmarkJobSpec;
use pointsman_sandbox::{digest::Digested, point};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The fields that may change while the Job exists.
const CHANGEABLE: [&str; 3] = ["activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];

/// The annotation with the maximum duration of one measurement.
pub(super) const DURATION: &str = "benchmark.ome.io/duration";
/// The annotation with the target number of requests per second.
pub(super) const TARGET_QPS: &str = "benchmark.ome.io/target-qps";

/// The tasks of genai-bench.
const TASKS: [&str; 7] = [
    "text-to-text",
    "text-to-image",
    "text-to-embeddings",
    "text-to-rerank",
    "text-to-speech",
    "image-text-to-text",
    "image-to-embeddings",
];

/// The tasks for which genai-bench varies batch sizes and ignores concurrencies.
const BATCHED_TASKS: [&str; 2] = ["text-to-embeddings", "text-to-rerank"];

/// A benchmark.
#[derive(Debug)]
pub(super) struct Benchmark {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// Its spec, or why it is unreadable.
    spec: Result<Box<BenchmarkJobSpec>, String>,
    /// The hash of the part of the spec that a run depends on.
    pub(super) spec_hash: String,
    /// The subject for policies.
    pub(super) subject: Digested<point::Subject>,
}

/// The checked spec for a new Job.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) spec: BenchmarkJobSpec,
    /// The task in genai-bench's terms.
    pub(super) task: String,
    /// The maximum duration of one measurement, in minutes.
    pub(super) minutes: i64,
    /// The annotations for the policies at pod-templating.
    pub(super) settings: BTreeMap<&'static str, String>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

impl Benchmark {
    /// Reads the benchmark.
    pub(super) fn from_subject(asking: &Questions<'_>) -> Self {
        let subject = &asking.snapshot.subject;
        let content = subject.content();
        let labels = strings(&content["metadata"]["labels"]);
        let annotations = strings(&content["metadata"]["annotations"]);
        let mut hashed = content["spec"].clone();
        let read = [DURATION, TARGET_QPS].into_iter().chain(pod_annotations());
        let acting: BTreeMap<&str, &str> = read.filter_map(|key| Some((key, annotations.get(key)?.as_str()))).collect();
        if !acting.is_empty() && hashed.is_object() {
            hashed["annotations"] = json!(acting);
        }
        Self {
            namespace: subject.key.namespace.clone(),
            name: subject.key.name.clone(),
            subject: asking.subject(&labels, &annotations),
            labels,
            annotations,
            spec: BenchmarkJobSpec::deserialize(&content["spec"]).map(Box::new).map_err(|error| error.to_string()),
            spec_hash: job_run::spec_hash(&hashed, &CHANGEABLE),
        }
    }

    /// The fields of the spec that may change at any time.
    pub(super) fn changeable(&self) -> (i64, Option<i64>, Option<i64>) {
        let spec = self.spec.as_ref().ok();
        let number = |field: fn(&BenchmarkJobSpec) -> Option<i64>| spec.and_then(|spec| field(spec));
        (
            number(|spec| spec.backoff_limit.map(i64::from)).unwrap_or(0),
            number(|spec| spec.active_deadline_seconds),
            number(|spec| spec.ttl_seconds_after_finished.map(i64::from)),
        )
    }

    /// The measured service, if it is in the cluster.
    pub(super) fn target_service(&self) -> Option<String> {
        self.spec.as_ref().ok()?.endpoint.inference_service.as_ref().map(|service| service.name.clone())
    }

    /// The task in OME's terms.
    pub(super) fn task(&self) -> Option<String> {
        self.spec.as_ref().ok().map(|spec| spec.task.clone())
    }

    /// The spec, if it is readable.
    pub(super) fn readable(&self) -> Result<&BenchmarkJobSpec, Box<PlanError>> {
        let unreadable = |error| PlanError::new(ACCEPTED, "Unreadable", format!("The spec can't be read: {error}."));
        self.spec.as_deref().map_err(unreadable)
    }

    /// Checks the spec for a new Job.
    pub(super) fn accept(&self) -> Result<Accepted, Box<PlanError>> {
        let refused = |reason: &str, message: String| Err(PlanError::new(ACCEPTED, reason, message));
        let spec = self.readable()?.clone();
        // The Job has the same name, and its pods have it as a label.
        if self.name.len() > MAX_NAME_LENGTH {
            let message = format!(
                "The name has {} characters; the limit for a Job is {MAX_NAME_LENGTH}: recreate the benchmark under a shorter name.",
                self.name.len()
            );
            return refused("InvalidName", message);
        }
        let mut notes = Vec::new();
        let own_image = spec.pod_override.as_ref().is_some_and(|pod| pod.image.is_some());
        // OME has another name for this task.
        let task = if spec.task == "image-to-text" { "image-text-to-text".to_owned() } else { spec.task.clone() };
        if !own_image && !TASKS.contains(&task.as_str()) {
            let message = format!(
                "genai-bench has no task {task}: set spec.task to one of {}, or name an image that has it (spec.podOverride.image).",
                TASKS.join(", ")
            );
            return refused("TaskNotSupported", message);
        }
        if task.starts_with("image") && spec.dataset.is_none() {
            return refused("DatasetMissing", format!("The task {} needs pictures: name a dataset with them in spec.dataset.", spec.task));
        }
        if BATCHED_TASKS.contains(&task.as_str()) && !spec.num_concurrency.is_empty() {
            notes.push(format!("genai-bench tries batch sizes for the task {task}, and ignores spec.numConcurrency."));
        }
        let minutes = self.minutes(i64::from(spec.max_time_per_iteration))?;
        if let Some(rate) = self.target_qps()? {
            notes.push(format!(
                "genai-bench has no option for a rate of requests, so {TARGET_QPS} ({rate}) limits nothing: spec.numConcurrency sets the load. \
                 The container gets it as TARGET_QPS."
            ));
        }
        let settings = self.settings()?;
        Ok(Accepted { spec, task, minutes, settings, notes })
    }

    /// The maximum duration of one measurement: the annotation takes precedence.
    fn minutes(&self, specified: i64) -> Result<i64, Box<PlanError>> {
        let Some(text) = self.annotations.get(DURATION) else { return Ok(specified) };
        let seconds = duration::seconds(text).and_then(|seconds| i64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        let Some(seconds) = seconds else { return Err(invalid(DURATION, text, "a time such as 10m or 1h30m")) };
        Ok(seconds.div_euclid(60) + i64::from(seconds % 60 > 0))
    }

    /// The target number of requests per second.
    pub(super) fn target_qps(&self) -> Result<Option<&str>, Box<PlanError>> {
        let Some(text) = self.annotations.get(TARGET_QPS) else { return Ok(None) };
        let is_rate = text.parse::<f64>().is_ok_and(|rate| rate.is_finite() && rate > 0.0);
        if is_rate { Ok(Some(text)) } else { Err(invalid(TARGET_QPS, text, "a number above 0")) }
    }

    /// The annotations for the policies at pod-templating.
    fn settings(&self) -> Result<BTreeMap<&'static str, String>, Box<PlanError>> {
        let mut settings = BTreeMap::new();
        for annotation in ANNOTATIONS.iter().filter(|annotation| annotation.reader == Reader::PodPolicies) {
            let Some(value) = self.annotations.get(annotation.key) else { continue };
            if !annotation.accepts(value) {
                return Err(invalid(annotation.key, value, &annotation.what()));
            }
            settings.insert(annotation.key, value.clone());
        }
        Ok(settings)
    }
}

/// The maximum length of a Job's name: its pods have it as a label.
const MAX_NAME_LENGTH: usize = 63;

/// The annotations on OME's page that apply to the pods of all kinds.
fn pod_annotations() -> impl Iterator<Item = &'static str> {
    ANNOTATIONS.iter().filter(|annotation| annotation.reader == Reader::PodPolicies).map(|annotation| annotation.key)
}

fn invalid(annotation: &str, value: &str, what: &str) -> Box<PlanError> {
    let value: Value = value.into();
    PlanError::new(ACCEPTED, "InvalidValue", format!("The annotation {annotation} is {value}: set it to {what}."))
}
