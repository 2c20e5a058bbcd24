//! A folder an API system, a file a kind: each a pure function from a snapshot and the policies to a plan. Nothing here awaits, logs or
//! calls the API.

mod ask;
mod fares;
mod gateways;
mod kept;
pub mod kserve;
pub mod ome;

pub(crate) use ask::{entries, strings};

use crate::{
    contest::{self, Contest},
    plan::{Plan, Theirs},
    policy::{
        self,
        decide::{Pinned, Policies, Standing},
    },
    rules::{self, plan::Judging},
    world::{
        ObjectKey, Snapshot,
        resource::{INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource},
        subject::Control,
    },
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

/// What is to become of a subject of a kind.
pub fn plan(kind: &dyn Kind, mut snapshot: Snapshot, policies: &Policies, settings: &Settings) -> Plan {
    snapshot.stand_ins = kind.stand_ins(&snapshot);
    let standing = if snapshot.children.is_empty() { Standing::New } else { Standing::Running };
    // Everything in a plan is decided under one set.
    let mut policies = policies.pin(standing);
    rules::plan::meet(&snapshot, &mut policies);
    let mut plan = kind.plan(&snapshot, &policies, settings);
    kept::keep(&snapshot, plan.objects.as_mut());
    let mut plan = Judging::new(&snapshot, &policies).bound(plan);
    plan.keeps = kept::stays(&snapshot);
    plan.theirs = theirs(&snapshot);
    plan.status.conditions.push(match &plan.theirs {
        Some(Theirs::Contested(contest)) => contest.condition(),
        _ => contest::nobody_else(&snapshot.subject),
    });
    plan
}

/// A subject as policies see it, for whoever wants to know which of them are asked about it.
pub fn subject(snapshot: &Snapshot) -> policy::point::Subject {
    let content = snapshot.subject.content();
    let map = |name: &str| ask::strings(&content["metadata"][name]);
    ask::subject(snapshot, &map("labels"), &map("annotations"))
}

/// Why a subject isn't ours, if it isn't.
pub fn theirs(snapshot: &Snapshot) -> Option<Theirs> {
    if snapshot.subject.control == Control::LeftAlone {
        return Some(Theirs::LeftAlone);
    }
    Contest::of(&snapshot.subject).map(Theirs::Contested)
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
