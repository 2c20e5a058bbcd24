//! One directory per API group, one file per kind: each is a pure function from a snapshot and the policies to a plan. Nothing here awaits,
//! logs or calls the API.

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
    /// Its resource in the API; `subject_kind` contains the rest of its data.
    fn resource(&self) -> &'static Resource;

    /// The adopted objects whose names differ from ours, by our names.
    fn adopted_names(&self, _: &Snapshot) -> BTreeMap<ObjectKey, ObjectKey> {
        BTreeMap::new()
    }

    /// Whether the user has requested something that doesn't change the generation.
    fn has_pending_request(&self, _: &Snapshot, _: &Value) -> bool {
        false
    }

    /// The plan for a subject that is ours.
    fn plan(&self, snapshot: &Snapshot, policies: &Pinned<'_>, settings: &Settings) -> Plan;
}

/// All kinds, each with an entry in `subject_kind`.
static KINDS: [&dyn Kind; 5] = [
    &ome::InferenceServices,
    &kserve::LlmInferenceServices,
    &eh_ops::InferenceModels,
    &ome::benchmark_job::BenchmarkJobs,
    &ome::training_job::TrainingJobs,
];

/// The kind with this resource.
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
