//! A folder an API system, a file a kind: each a pure function from a snapshot and the policies to a plan. Nothing here awaits, logs or
//! calls the API.

pub mod adoption;
pub mod eh_ops;
mod gateways;
mod job_run;
pub mod kserve;
pub mod ome;
mod questions;
mod workload_health;

use crate::{
    decide::Pinned,
    plan::Plan,
    resource::Resource,
    settings::Settings,
    world::{ObjectKey, Snapshot},
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Debug};

/// A kind of subject.
pub trait Kind: Debug + Send + Sync {
    /// What its subjects are in the API; `subject_kind` has the rest that is data.
    fn resource(&self) -> &'static Resource;

    /// What was taken over from another controller under another name than ours, by ours.
    fn adopted_names(&self, _: &Snapshot) -> BTreeMap<ObjectKey, ObjectKey> {
        BTreeMap::new()
    }

    /// Whether its user has asked for something that its generation doesn't tell.
    fn has_pending_request(&self, _: &Snapshot, _: &Value) -> bool {
        false
    }

    /// What is to become of the subject, if it is ours.
    fn plan(&self, snapshot: &Snapshot, policies: &Pinned<'_>, settings: &Settings) -> Plan;
}

/// All of them, each with its line in `subject_kind`.
static KINDS: [&dyn Kind; 5] = [
    &ome::InferenceServices,
    &kserve::LlmInferenceServices,
    &eh_ops::InferenceModels,
    &ome::benchmark_job::BenchmarkJobs,
    &ome::training_job::TrainingJobs,
];

/// The kind whose subjects are objects of this kind.
pub fn find(resource: &Resource) -> Option<&'static dyn Kind> {
    KINDS.into_iter().find(|kind| kind.resource() == resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject_kind::SUBJECT_KINDS;

    #[test]
    fn every_kind_of_subject_has_its_plan() {
        for known in &SUBJECT_KINDS {
            assert_eq!(find(known.resource).map(Kind::resource), Some(known.resource));
        }
        assert_eq!(KINDS.len(), SUBJECT_KINDS.len());
    }
}
