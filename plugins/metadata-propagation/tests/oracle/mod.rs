//! What the targets of an LLMInferenceService get, by KServe's page on label and annotation propagation alone. It knows nothing of
//! policies, so that it can judge them.

use std::collections::BTreeMap;

/// Labels or annotations, by key.
pub(crate) type Pairs = BTreeMap<String, String>;

/// Both, as somebody writes them or something gets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) labels: Pairs,
    pub(crate) annotations: Pairs,
}

/// Where a service has them.
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

/// What gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The Deployment or LeaderWorkerSet of the decode workload, or of the prefill workload.
    Workload,
    /// The pods of the decode workload: a Deployment's, leaders and workers alike.
    DecodePods,
    /// Those of the prefill workload.
    PrefillPods,
    /// Those of the scheduler.
    SchedulerPods,
    /// Any other object, and the scheduler's Deployment.
    Other,
}

const APPROVED_ANNOTATIONS: [&str; 3] = ["k8s.v1.cni.cncf.io", "kueue.x-k8s.io", "prometheus.io"];

const APPROVED_LABELS: [&str; 1] = ["kueue.x-k8s.io"];

/// What the target gets of the service's.
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

/// For pods; what comes later wins.
fn merged<'a>(all: impl IntoIterator<Item = Option<&'a Metadata>>) -> Metadata {
    let mut merged = Metadata::default();
    for Metadata { labels, annotations } in all.into_iter().flatten() {
        merged.labels.extend(labels.clone());
        merged.annotations.extend(annotations.clone());
    }
    // The page has all keys propagate. These would take the pods away from the controllers that made them.
    merged.labels.retain(|key, _| {
        !["pod-template-hash", "controller-revision-hash"].contains(&key.as_str()) && !key.starts_with("leaderworkerset.sigs.k8s.io/")
    });
    merged
}
