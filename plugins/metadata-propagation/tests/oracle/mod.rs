//! The expected labels and annotations of an LLMInferenceService's targets, derived only from KServe's page on label and annotation
//! propagation. It is independent of the policies, so that it can verify them.

use std::collections::BTreeMap;

/// Labels or annotations, by key.
pub(crate) type Pairs = BTreeMap<String, String>;

/// Labels and annotations, in a source or in a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) labels: Pairs,
    pub(crate) annotations: Pairs,
}

/// The metadata in a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Service {
    /// `metadata`
    pub(crate) metadata: Metadata,
    /// `spec`
    pub(crate) spec: Metadata,
    /// `spec.prefill`
    pub(crate) prefill: Option<Metadata>,
    /// `spec.router.scheduler`
    pub(crate) scheduler: Option<Metadata>,
}

/// The target of a propagation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The Deployment or LeaderWorkerSet of the decode workload, or of the prefill workload.
    Workload,
    /// The pods of the decode workload, of a Deployment or of a LeaderWorkerSet.
    DecodePods,
    /// The pods of the prefill workload.
    PrefillPods,
    /// The pods of the scheduler.
    SchedulerPods,
    /// Any other object, and the scheduler's Deployment.
    Other,
}

const APPROVED_ANNOTATIONS: [&str; 3] = ["k8s.v1.cni.cncf.io", "kueue.x-k8s.io", "prometheus.io"];

const APPROVED_LABELS: [&str; 1] = ["kueue.x-k8s.io"];

/// The metadata of the service that the target gets.
pub(crate) fn received(service: &Service, target: Target) -> Metadata {
    let top_level = Metadata {
        labels: approved(&service.metadata.labels, &APPROVED_LABELS),
        annotations: approved(&service.metadata.annotations, &APPROVED_ANNOTATIONS),
    };
    match target {
        Target::Workload => top_level,
        Target::DecodePods => merged([Some(&top_level), Some(&service.spec)]),
        Target::PrefillPods => merged([Some(&top_level), Some(&service.spec), service.prefill.as_ref()]),
        Target::SchedulerPods => merged([service.scheduler.as_ref()]),
        Target::Other => Metadata::default(),
    }
}

fn approved(written: &Pairs, prefixes: &[&str]) -> Pairs {
    let is_approved = |key: &str| key.split_once('/').is_some_and(|(prefix, _)| prefixes.contains(&prefix));
    written.iter().filter(|(key, _)| is_approved(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The merged metadata for pods. Later entries take precedence.
fn merged<'a>(all: impl IntoIterator<Item = Option<&'a Metadata>>) -> Metadata {
    let mut merged = Metadata::default();
    for Metadata { labels, annotations } in all.into_iter().flatten() {
        merged.labels.extend(labels.clone());
        merged.annotations.extend(annotations.clone());
    }
    // According to the page, all keys are propagated. These would detach the pods from their controllers.
    merged.labels.retain(|key, _| {
        !["pod-template-hash", "controller-revision-hash"].contains(&key.as_str()) && !key.starts_with("leaderworkerset.sigs.k8s.io/")
    });
    merged
}
