//! The rules for KServe's LLMInferenceService.

use crate::{
    config::{Config, any_matches},
    internal::{Internal, internal, internal_to_kserve, internal_to_pods},
    offer::{Offers, Strength},
    source::{Source, part},
};
use pointsman_plugin::{
    Reason, Role,
    metadata_propagation::{Answer, Place, Request, Sort, Target},
    reason,
};
use std::collections::BTreeSet;

/// Returns the labels and annotations of a service's object, or of its pods.
pub fn propagate(config: &Config, request: Request) -> Answer {
    let Request { target, layers, labels, annotations, .. } = request;
    // The host's own keys take precedence anyway.
    let framed: BTreeSet<String> = labels.iter().map(|label| label.key.clone()).collect();
    let mut offers = Offers::of_frame(labels, annotations, target.place);
    for layer in layers {
        // A layer that doesn't apply to a target isn't reported as dropped either.
        let Some(strength) = strength(&layer.name, &target) else { continue };
        let source = Source { config, target: &target, strength, of_namespace: &[] };
        source.offer(layer, &mut offers, |sort, key| {
            let of_host = internal_to_kserve(sort, key).filter(|_| !framed.contains(key));
            of_host.map(Internal::reason).or_else(|| bar(&source, sort, key))
        });
    }
    offers.settle()
}

/// The precedence of a layer, if it applies to the target.
fn strength(layer: &str, target: &Target) -> Option<Strength> {
    let part = part(target).filter(|_| is_workload(target));
    let of_model = matches!(part, Some(Role::Main | Role::Prefill));
    let (has_a_say, strength) = match layer {
        "namespace" => (true, Strength::Namespace),
        "subject" => (of_model, Strength::Subject),
        // For the main workload, and as the base of the prefill workload.
        "spec" => (of_model, Strength::Spec),
        "prefill" => (part == Some(Role::Prefill), Strength::Component),
        "scheduler" => (part == Some(Role::Scheduler), Strength::Component),
        _ => (true, Strength::Unknown),
    };
    has_a_say.then_some(strength)
}

/// Whether the target is pods, or a workload.
fn is_workload(target: &Target) -> bool {
    target.place == Place::PodTemplate || matches!(target.kind.as_str(), "Deployment" | "LeaderWorkerSet")
}

/// Why the target doesn't get the key from this layer.
fn bar(source: &Source<'_>, sort: Sort, key: &str) -> Option<Reason> {
    if let Some(unfit) = source.unfit(key) {
        return Some(unfit);
    }
    let Source { config, target, strength, .. } = *source;
    let of_metadata = || internal_to_metadata(config, sort, target.place, key).map(Internal::reason);
    match strength {
        Strength::Namespace => of_metadata(),
        Strength::Subject => of_metadata().or_else(|| unapproved(config, sort, key)),
        _ if target.place == Place::Object => Some(reason("PodsOnly", "The spec's labels and annotations are for pods.")),
        _ => internal_to_pods(config, sort, key).map(Internal::reason),
    }
}

fn internal_to_metadata(config: &Config, sort: Sort, place: Place, key: &str) -> Option<Internal> {
    let of_kserve = key.starts_with("internal.serving.kserve.io/").then_some(Internal::Setting);
    of_kserve.or_else(|| internal(config, sort, place, key))
}

fn unapproved(config: &Config, sort: Sort, key: &str) -> Option<Reason> {
    let service = &config.llm_inference_service;
    let (approved, message) = match sort {
        Sort::Label => (&service.approved_labels, "The configuration's approvedLabels don't name it."),
        Sort::Annotation => (&service.approved_annotations, "The configuration's approvedAnnotations don't name it."),
    };
    (!any_matches(approved, key)).then(|| reason("NotApproved", message))
}
