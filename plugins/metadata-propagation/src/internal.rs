//! Keys that are never propagated.

use crate::config::{Config, any_matches};
use pointsman_plugin::{
    Reason,
    metadata_propagation::{Place, Sort},
    reason,
};

/// The consumer of a key that isn't propagated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// A tool that stores data on the objects that it applies.
    Tool,
    /// A controller of the cluster.
    Controller,
    /// The host, as a setting.
    Setting,
    /// The host, as an identity of its objects.
    Belonging,
    /// Irrelevant for pods, and different in each version.
    Version,
    /// The author of the configuration.
    Configured,
}

impl Internal {
    /// Why the key isn't propagated.
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

/// Whether a key isn't propagated from the object on which it was written.
pub fn internal(config: &Config, sort: Sort, place: Place, key: &str) -> Option<Internal> {
    let built_in = match key.split_once('/') {
        None => matches!(key, "pod-template-hash" | "controller-revision-hash").then_some(Internal::Controller),
        Some((domain, name)) => of_domain(sort, place, domain, name),
    };
    built_in.or_else(|| configured(config, key))
}

/// The same for annotations that are settings of an InferenceService in OME's documentation. As labels, they describe the object.
pub fn internal_to_ome(sort: Sort, key: &str) -> Option<Internal> {
    let (domain, _) = key.split_once('/')?;
    let setting = ["model.ome.io", "monitoring.ome.io", "performance.ome.io", "security.ome.io", "storage.ome.io"].contains(&domain);
    (setting && sort == Sort::Annotation).then_some(Internal::Setting)
}

/// The same for keys that were written explicitly for pods. Only keys that would break the workload, and configured ones, aren't
/// propagated.
pub fn internal_to_pods(config: &Config, sort: Sort, key: &str) -> Option<Internal> {
    let selects = matches!(key, "pod-template-hash" | "controller-revision-hash") || key.starts_with("leaderworkerset.sigs.k8s.io/");
    (selects && sort == Sort::Label).then_some(Internal::Controller).or_else(|| configured(config, key))
}

/// The same for keys of an LLMInferenceService that only the host may set.
pub fn internal_to_kserve(sort: Sort, key: &str) -> Option<Internal> {
    match (sort, key) {
        // A pool selects pods by these labels, and must not select pods that serve no requests.
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
        // Its controller selects pods by these labels. As annotations, they are settings, such as exclusive-topology.
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
