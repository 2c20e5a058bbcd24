//! A folder an API system, a file a kind: each a pure function from a snapshot and the policies to a plan. Nothing here awaits, logs or
//! calls the API.

mod ask;
mod fares;
mod gateways;
pub mod kept;
pub mod kserve;
pub mod ome;

use crate::{
    decide::Pinned,
    plan::Plan,
    resource::{INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource},
    settings::Settings,
    world::{ObjectKey, Snapshot},
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Debug};

/// A kind of subject.
pub trait Kind: Debug + Send + Sync {
    /// The kinds that must have been listed before anything can be planned.
    fn needs(&self) -> &'static [&'static Resource];

    /// What was taken over from another controller under another name than ours, by ours.
    fn stand_ins(&self, _: &Snapshot) -> BTreeMap<ObjectKey, ObjectKey> {
        BTreeMap::new()
    }

    /// Whether its user has asked for something that its generation doesn't tell.
    fn asks(&self, _: &Snapshot, _: &Value) -> bool {
        false
    }

    /// What is to become of the subject, if it is ours.
    fn plan(&self, snapshot: &Snapshot, policies: &Pinned<'_>, settings: &Settings) -> Plan;
}

/// The kind of a resource, if we serve it.
pub fn of(resource: &Resource) -> Option<&'static dyn Kind> {
    if *resource == INFERENCE_SERVICE {
        Some(&ome::InferenceServices)
    } else if *resource == LLM_INFERENCE_SERVICE {
        Some(&kserve::LlmInferenceServices)
    } else {
        None
    }
}
