//! The keys that never travel.

use crate::config::{Config, any_matches};
use pointsman_plugin::{
    Reason,
    metadata_propagation::{Place, Sort},
    reason,
};

/// Whom a key is for, so that it doesn't travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// A tool that keeps its notes on the object that it applied.
    Tool,
    /// A controller of the cluster.
    Controller,
    /// The host, as a setting.
    Setting,
    /// The host, as what tells its objects apart.
    Belonging,
    /// Nobody who looks at pods, but it changes with each version.
    Version,
    /// Whoever wrote the configuration.
    Configured,
}

impl Internal {
    /// Why it doesn't travel.
    pub fn reason(self) -> Reason {
        let message = match self {
            Self::Tool => "A tool writes this key for this object alone.",
            Self::Controller => "The cluster's controllers set this key themselves.",
            Self::Setting => "It is a setting for the controller, so it isn't copied to objects.",
            Self::Belonging => "It records an object's owner, which only the host sets.",
            Self::Version => "Pods don't carry it: a new version would restart them.",
            Self::Configured => "The configuration's internalKeys name it.",
        };
        reason("Internal", message)
    }
}

/// Whether something that somebody wrote under this key stays where it is.
pub fn internal(config: &Config, sort: Sort, place: Place, key: &str) -> Option<Internal> {
    let built_in = match key.split_once('/') {
        None => matches!(key, "pod-template-hash" | "controller-revision-hash").then_some(Internal::Controller),
        Some((domain, name)) => of_domain(sort, place, domain, name),
    };
    built_in.or_else(|| configured(config, key))
}

/// The same for annotations that OME's documentation makes settings of an InferenceService. As labels they say what something is.
pub fn internal_to_ome(sort: Sort, key: &str) -> Option<Internal> {
    let (domain, _) = key.split_once('/')?;
    let setting = ["model.ome.io", "monitoring.ome.io", "performance.ome.io", "security.ome.io", "storage.ome.io"].contains(&domain);
    (setting && sort == Sort::Annotation).then_some(Internal::Setting)
}

/// The same for what somebody wrote for pods alone, and meant so: only what would break their workload stays where it is.
pub fn internal_to_pods(config: &Config, sort: Sort, key: &str) -> Option<Internal> {
    let selects = matches!(key, "pod-template-hash" | "controller-revision-hash") || key.starts_with("leaderworkerset.sigs.k8s.io/");
    (selects && sort == Sort::Label).then_some(Internal::Controller).or_else(|| configured(config, key))
}

/// The same for what the host alone may say of an LLMInferenceService.
pub fn internal_to_kserve(sort: Sort, key: &str) -> Option<Internal> {
    match (sort, key) {
        // A pool selects pods by these, and must not find those that take no requests.
        (Sort::Label, "kserve.io/component" | "llm-d.ai/role") => Some(Internal::Belonging),
        (Sort::Annotation, "serving.kserve.io/model-based-routing-enabled") => Some(Internal::Setting),
        _ => None,
    }
}

fn configured(config: &Config, key: &str) -> Option<Internal> {
    any_matches(&config.internal_keys, key).then_some(Internal::Configured)
}

fn of_domain(sort: Sort, place: Place, domain: &str, name: &str) -> Option<Internal> {
    let of_pods = place == Place::PodTemplate;
    match domain {
        "kubectl.kubernetes.io" | "argocd.argoproj.io" | "meta.helm.sh" | "helm.sh" | "kapp.k14s.io" | "config.kubernetes.io" => {
            Some(Internal::Tool)
        }
        "deployment.kubernetes.io" | "statefulset.kubernetes.io" => Some(Internal::Controller),
        // Its controller selects pods by these labels. As annotations they are settings, such as exclusive-topology.
        "leaderworkerset.sigs.k8s.io" => (of_pods && sort == Sort::Label).then_some(Internal::Controller),
        "pointsman.dev" => Some(Internal::Setting),
        "autoscaling.ome.io" | "autoscaling.knative.dev" => (sort == Sort::Annotation).then_some(Internal::Setting),
        "serving.ome.io" => match name {
            "inferenceservice" | "component" if sort == Sort::Label => Some(Internal::Belonging),
            "revision" if of_pods => Some(Internal::Version),
            _ => None,
        },
        "ome.io" => match name {
            "version" if of_pods => Some(Internal::Version),
            "deploymentMode"
            | "autoscalerClass"
            | "min-replicas"
            | "max-replicas"
            | "target-utilization"
            | "resource-version"
            | "last-applied-configuration"
                if sort == Sort::Annotation =>
            {
                Some(Internal::Setting)
            }
            _ => None,
        },
        domain if domain.ends_with(".toolkit.fluxcd.io") => Some(Internal::Tool),
        domain if domain.ends_with(".pointsman.dev") => Some(Internal::Setting),
        _ => None,
    }
}
