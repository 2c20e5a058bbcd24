//! The rules for OME's TrainingJob.

use crate::{
    config::Config,
    internal::{Internal, internal, internal_to_ome},
    monitoring,
    offer::{Offer, Offers, Strength},
    source::Source,
};
use pointsman_plugin::{
    Reason,
    metadata_propagation::{Answer, Place, Request, Sort},
    reason,
};

/// The labels that describe the hardware, as for services.
const OF_NAMESPACE: &[&str] = &["infrastructure.ome.io/"];

/// Kueue reads it on a Job. On pods, it would queue each of them separately.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Returns the labels and annotations of a job's object, or of its pods.
pub fn propagate(config: &Config, request: Request) -> Answer {
    let Request { target, layers, labels, annotations, .. } = request;
    let mut offers = Offers::of_frame(labels, annotations, target.place);
    offers.labels.push(Offer::of_policy("ome.io/managed-by", config.managed_by.as_str(), "plugin"));
    if config.upstream_keys && target.role.is_some() {
        offers.labels.push(Offer::of_policy("component", "trainer", "plugin"));
    }
    monitoring::offer(config, &target, &layers, &mut offers);
    for layer in layers {
        let source = Source { config, target: &target, strength: strength(&layer.name), of_namespace: OF_NAMESPACE };
        source.offer(layer, &mut offers, |sort, key| bar(&source, sort, key));
    }
    offers.settle()
}

fn strength(layer: &str) -> Strength {
    match layer {
        "namespace" => Strength::Namespace,
        "subject" => Strength::Subject,
        "component" => Strength::Component,
        "facts" => Strength::Facts,
        _ => Strength::Unknown,
    }
}

/// Why the target doesn't get the key from this layer.
fn bar(source: &Source<'_>, sort: Sort, key: &str) -> Option<Reason> {
    let of_pods = source.target.place == Place::PodTemplate;
    if source.strength == Strength::Facts {
        return match (sort, key) {
            (Sort::Label, "ome.io/version") => {
                of_pods.then(|| reason("ObjectsOnly", "Pods don't carry it: it says which version created an object."))
            }
            (
                Sort::Label,
                "ome.io/component"
                | "ome.io/part-of"
                | "training.ome.io/framework"
                | "training.ome.io/job-name"
                | "training.ome.io/job-uid"
                | "training.ome.io/replica-index"
                | "training.ome.io/replica-type",
            ) => None,
            _ => Some(reason("UnknownFact", "This policy has no rules for this fact.")),
        };
    }
    if let Some(unfit) = source.unfit(key) {
        return Some(unfit);
    }
    if let Some(internal) = internal_to_ome(sort, key).or_else(|| internal(source.config, sort, source.target.place, key)) {
        return Some(internal.reason());
    }
    match (sort, key) {
        (Sort::Label, QUEUE) if of_pods => Some(Internal::Controller.reason()),
        _ if source.strength == Strength::Component && !of_pods => {
            Some(reason("PodsOnly", "The labels and annotations of a template are for its pods."))
        }
        _ => None,
    }
}
