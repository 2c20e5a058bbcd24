//! The rules for OME's InferenceService, and for its BenchmarkJob.

use crate::{
    config::Config,
    internal::{internal, internal_to_ome},
    monitoring,
    offer::{Offer, Offers, Strength},
    source::Source,
    upstream,
};
use pointsman_plugin::{
    Reason,
    metadata_propagation::{Answer, Place, Request, Sort},
    reason,
};

/// The labels that describe the hardware. They apply to the whole namespace, and each of its services may override them.
const OF_NAMESPACE: &[&str] = &["infrastructure.ome.io/"];

/// Returns the labels and annotations of a service's object, or of its pods.
pub fn propagate(config: &Config, request: Request) -> Answer {
    let Request { target, layers, labels, annotations, .. } = request;
    let mut offers = Offers::of_frame(labels, annotations, target.place);

    offers.labels.push(Offer::of_policy("ome.io/managed-by", config.managed_by.as_str(), "plugin"));
    if config.upstream_keys {
        let facts = layers.iter().rfind(|layer| layer.name == "facts").map_or(&[][..], |facts| &facts.labels);
        upstream::offer(&target, facts, &mut offers);
    }
    monitoring::offer(config, &target, &layers, &mut offers);
    for layer in layers {
        let source = Source { config, target: &target, strength: strength(&layer.name), of_namespace: OF_NAMESPACE };
        source.offer(layer, &mut offers, |sort, key| bar(&source, sort, key));
    }
    offers.settle()
}

/// By name, not by position in the request, so that the policy determines the order.
fn strength(layer: &str) -> Strength {
    match layer {
        "namespace" => Strength::Namespace,
        "runtime" => Strength::Runtime,
        "subject" => Strength::Subject,
        "component" => Strength::Component,
        "facts" => Strength::Facts,
        _ => Strength::Unknown,
    }
}

/// Why the target doesn't get the key from this layer.
fn bar(source: &Source<'_>, sort: Sort, key: &str) -> Option<Reason> {
    if source.strength == Strength::Facts {
        return bar_fact(source, sort, key);
    }
    if let Some(unfit) = source.unfit(key) {
        return Some(unfit);
    }
    if let Some(internal) = internal_to_ome(sort, key).or_else(|| internal(source.config, sort, source.target.place, key)) {
        return Some(internal.reason());
    }
    let on_object = source.target.place == Place::Object;
    match source.strength {
        Strength::Runtime if on_object => Some(reason("PodsOnly", "The runtime's labels and annotations are for pods.")),
        Strength::Component if on_object && sort == Sort::Annotation => {
            Some(reason("PodsOnly", "A component's annotations are for its pods."))
        }
        _ => None,
    }
}

fn bar_fact(source: &Source<'_>, sort: Sort, key: &str) -> Option<Reason> {
    let of_pods = source.target.place == Place::PodTemplate;
    match (sort, key) {
        (Sort::Label, "ome.io/version") => of_pods.then(|| reason("ObjectsOnly", "Pods don't carry it: a new version would restart them.")),
        (Sort::Label, upstream::FINE_TUNED) if !source.config.upstream_keys => {
            Some(reason("SwitchedOff", "The configuration's upstreamKeys is false."))
        }
        (Sort::Label, upstream::FINE_TUNED) => {
            source.target.role.is_none().then(|| reason("RolesOnly", "It is for objects of a component."))
        }
        (
            Sort::Label,
            "benchmark.ome.io/job-name"
            | "benchmark.ome.io/target-service"
            | "benchmark.ome.io/task-type"
            | "ome.io/component"
            | "ome.io/part-of"
            | "serving.ome.io/inferenceservice"
            | "serving.ome.io/component"
            | "serving.ome.io/model"
            | "serving.ome.io/runtime"
            | "model.ome.io/name"
            | "model.ome.io/type"
            | "model.ome.io/vendor"
            | "model.ome.io/format"
            | "model.ome.io/size",
        ) => None,
        _ => Some(reason("UnknownFact", "This policy has no rules for this fact.")),
    }
}
