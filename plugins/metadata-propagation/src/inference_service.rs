//! The rules for OME's InferenceService.

use crate::{
    config::{Config, named},
    internal::internal,
    offer::{Offer, Strength, settle},
    upstream,
    words::is_key,
};
use pointsman_plugin::{
    Entry, Reason,
    metadata_propagation::{Answer, Layer, Place, Request, Sort, Target},
    reason,
};

/// Says what an object of the service, or its pods, get.
pub fn propagate(config: &Config, request: Request) -> Answer {
    let Request { target, layers, labels, annotations, .. } = request;
    let mut labels: Vec<Offer> = labels.into_iter().map(Offer::of_frame).collect();
    let mut annotations: Vec<Offer> = annotations.into_iter().map(Offer::of_frame).collect();

    labels.push(Offer::of_policy("ome.io/managed-by", config.managed_by.as_str(), "plugin"));
    if target.place == Place::Object {
        let fallback = Offer::of_policy("app.kubernetes.io/managed-by", "pointsman", "plugin");
        labels.push(Offer { strength: Strength::Fallback, ..fallback });
    }
    if config.upstream_keys {
        let facts = layers.iter().rfind(|layer| layer.name == "facts").map_or(&[][..], |facts| &facts.labels);
        upstream::offer(&target, facts, &mut labels, &mut annotations);
    }
    for Layer { name, labels: its_labels, annotations: its_annotations } in layers {
        let strength = strength(&name);
        let source = Source { config, target: &target, strength, name };
        source.offer(Sort::Label, its_labels, &mut labels);
        source.offer(Sort::Annotation, its_annotations, &mut annotations);
    }

    let mut answer = Answer::default();
    settle(&mut answer, Sort::Label, labels);
    settle(&mut answer, Sort::Annotation, annotations);
    answer
}

/// By name and not by place in the request, so that the order is the policy's.
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

/// A layer, seen from the target.
struct Source<'a> {
    config: &'a Config,
    target: &'a Target,
    strength: Strength,
    name: String,
}

impl Source<'_> {
    fn offer(&self, sort: Sort, entries: Vec<Entry>, offers: &mut Vec<Offer>) {
        offers.reserve(entries.len());
        for Entry { key, value } in entries {
            // A namespace has labels for many purposes. Those that nobody asked for aren't worth telling.
            if self.strength == Strength::Namespace && !named(&self.config.namespace_labels, &key) {
                continue;
            }
            let barred = self.bar(sort, &key);
            offers.push(Offer { key: key.into(), value, layer: self.name.clone().into(), strength: self.strength, barred });
        }
    }

    /// Why the target doesn't get it from this layer.
    fn bar(&self, sort: Sort, key: &str) -> Option<Reason> {
        let on_object = self.target.place == Place::Object;
        match self.strength {
            Strength::Facts => return self.bar_fact(sort, key),
            Strength::Unknown => return Some(reason("UnknownLayer", "This policy has no rules for this layer.")),
            _ => {}
        }
        if !is_key(key) {
            return Some(reason("InvalidKey", "Kubernetes takes no such key."));
        }
        if let Some(internal) = internal(self.config, sort, self.target.place, key) {
            return Some(internal.reason());
        }
        match self.strength {
            Strength::Runtime if on_object => Some(reason("PodsOnly", "The runtime's labels and annotations are for pods.")),
            Strength::Component if on_object && sort == Sort::Annotation => {
                Some(reason("PodsOnly", "A component's annotations are for its pods."))
            }
            _ => None,
        }
    }

    fn bar_fact(&self, sort: Sort, key: &str) -> Option<Reason> {
        let of_pods = self.target.place == Place::PodTemplate;
        match (sort, key) {
            (Sort::Label, "ome.io/version") => {
                of_pods.then(|| reason("ObjectsOnly", "Pods don't carry it: a new version would restart them."))
            }
            (Sort::Label, upstream::FINE_TUNED) if !self.config.upstream_keys => {
                Some(reason("SwitchedOff", "The configuration's upstreamKeys is false."))
            }
            (Sort::Label, upstream::FINE_TUNED) => {
                self.target.role.is_none().then(|| reason("RolesOnly", "It is for what belongs to a component."))
            }
            (
                Sort::Label,
                "ome.io/component"
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
}
