//! A folder an API system, a file a kind: each a pure function from a snapshot and the policies to a plan. Nothing here awaits, logs or
//! calls the API.

mod ask;
mod fares;
mod gateways;
pub mod kserve;
pub mod ome;

use crate::{
    plan::Plan,
    policy::{self, decide::Policies},
    world::{
        Snapshot,
        resource::{INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource},
    },
};
use std::fmt::Debug;

/// A kind of subject.
pub trait Kind: Debug + Send + Sync {
    /// The kinds that must have been listed before anything can be planned.
    fn needs(&self) -> &'static [&'static Resource];

    /// What is to become of the subject.
    fn plan(&self, snapshot: &Snapshot, policies: &Policies, settings: &Settings) -> Plan;
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

/// What an administrator has set, for all subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The Gateway that services are reached through.
    pub gateway: Option<Gateway>,
    /// The cluster's own domain.
    pub cluster_domain: String,
    /// The namespace of the `LLMInferenceServiceConfigs` for all.
    pub config_namespace: String,
    /// The URL of the Prometheus that KEDA asks what the workload variant autoscaler wants.
    pub prometheus: Option<String>,
    /// The version of this host.
    pub version: String,
}

/// A Gateway, and the names below which services are reached there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The domain: a service is NAME.NAMESPACE.DOMAIN.
    pub domain: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gateway: None,
            cluster_domain: "cluster.local".to_owned(),
            config_namespace: policy::NAMESPACE.to_owned(),
            prometheus: None,
            version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}
