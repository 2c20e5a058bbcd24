//! Which labels and annotations each object gets: the question that is put to metadata-propagation.

use super::{DECIDED, Making, Stop, component::Deployed, entries, pods::Place, strings};
use crate::{
    objects::Metadata,
    plan::Decided,
    policy::{
        decide::propagation::{Inputs, Propagated},
        digest::Digested,
        point::{
            Entry, Role,
            propagation::{Layer, Place as Where, Placed, Target},
        },
    },
    world::{
        ObjectKey,
        child::{SUBJECT_KIND, VERSION},
        ome::{ModelView, RuntimeView},
        pod::{COMPONENT, SUBJECT},
    },
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// What the labels and annotations of all objects are made from.
pub(super) struct Sources<'a> {
    pub(super) model: Option<&'a ModelView>,
    pub(super) runtime: Option<&'a RuntimeView>,
    /// The layers for a component (or none) and a version: most objects share them.
    layers: HashMap<(Option<&'static str>, String), Digested<Vec<Layer>>>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(model: Option<&'a ModelView>, runtime: Option<&'a RuntimeView>) -> Self {
        Self { model, runtime, layers: HashMap::new() }
    }
}

/// What labels and annotations are wanted for.
#[derive(Clone, Copy)]
pub(super) struct For<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) component: Option<&'a Deployed>,
    /// The pods in a place, rather than the object itself.
    pub(super) pods: Option<Place>,
    /// The metadata that pod-templating has given the pods.
    pub(super) template: Option<&'a Value>,
}

impl Making<'_> {
    /// The labels that pods and objects are found by. Nobody else has a say in them, and they never change.
    pub(super) fn selector(&self, component: Option<&Deployed>) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([(SUBJECT.to_owned(), self.snapshot.subject.label.clone())]);
        if let Some(component) = component {
            labels.insert(COMPONENT.to_owned(), component.part.name().to_owned());
        }
        labels
    }

    /// The metadata of an object, or of its pods.
    pub(super) fn metadata(&mut self, sources: &mut Sources<'_>, what: For<'_>) -> Result<Metadata, Box<Stop>> {
        let mut ours = self.selector(what.component);
        ours.insert(SUBJECT_KIND.to_owned(), what_kind(self));
        let frame = |map: &BTreeMap<String, String>, layer: &str| -> Vec<Placed> {
            map.iter().map(|(key, value)| Placed { key: key.clone(), value: value.clone(), layer: layer.to_owned() }).collect()
        };
        let of_template = |name: &str| what.template.map(|metadata| strings(&metadata[name])).unwrap_or_default();
        let mut labels = frame(&ours, "host");
        let mut given = of_template("labels");
        given.retain(|key, _| !ours.contains_key(key));
        labels.extend(frame(&given, "template"));
        labels.sort();
        let annotations = frame(&of_template("annotations"), "template");
        let version = self.snapshot.child(what.key.resource, &what.key.name).and_then(|child| child.observed.made_by.clone());
        let version = version.unwrap_or_else(|| self.settings.version.clone());
        let target = Target {
            group: what.key.resource.group.to_owned(),
            kind: what.key.resource.kind.to_owned(),
            name: what.key.name.clone(),
            role: what.pods.map(|place| place.role).or(what.component.map(|component| component.part.role())),
            group_role: what.pods.and_then(|place| place.group),
            place: if what.pods.is_some() { Where::PodTemplate } else { Where::Object },
        };
        let inputs = Inputs {
            subject: self.service.subject.clone(),
            target: Digested::new(target.clone()).unwrap_or_default(),
            layers: self.layers(sources, what.component, &version),
            labels: Digested::new(labels).unwrap_or_default(),
            annotations: Digested::new(annotations).unwrap_or_default(),
            now: Some(self.snapshot.now),
        };
        let decision = self.policies.propagate(&inputs).map_err(|undecided| self.undecided(DECIDED, &undecided))?;
        let Propagated { labels, annotations, .. } = &*decision.answer;
        let map = |placed: &[Placed]| -> BTreeMap<String, String> {
            placed.iter().map(|placed| (placed.key.clone(), placed.value.clone())).collect()
        };
        let (mut labels, annotations) = (map(labels), map(annotations));
        // What a policy does to these is undone: selectors must find what they found before.
        labels.extend(ours);
        if what.pods.is_some() {
            // An upgrade must not restart pods, whatever the policy says.
            labels.remove(VERSION);
        }
        self.decisions.push(Decided::Metadata(target, inputs, Arc::clone(&decision)));
        Ok(Metadata { labels, annotations, owner: what.pods.is_none().then(|| self.owner()).flatten() })
    }

    /// What makes objects go with the service. Offline it has no uid, and nothing can go with it.
    fn owner(&self) -> Option<Value> {
        let subject = &self.snapshot.subject;
        (!subject.uid.is_empty()).then(|| {
            json!({
                "apiVersion": subject.key.resource.api_version(), "kind": subject.key.resource.kind, "name": subject.key.name,
                "uid": subject.uid, "controller": true, "blockOwnerDeletion": true,
            })
        })
    }

    fn layers(&self, sources: &mut Sources<'_>, component: Option<&Deployed>, version: &str) -> Digested<Vec<Layer>> {
        let part = component.map(|component| component.part.name());
        let (model, runtime) = (sources.model, sources.runtime);
        let make = || {
            let layer = |name: &str, labels: Vec<Entry>, annotations: Vec<Entry>| Layer { name: name.to_owned(), labels, annotations };
            let none = BTreeMap::new();
            let of_component = component.map(|component| &component.user.settings);
            let of_runtime = component.map(|component| &component.runtime.settings);
            let mut layers = vec![
                layer("namespace", entries(&self.snapshot.namespace_labels), Vec::new()),
                layer(
                    "runtime",
                    entries(of_runtime.map_or(&none, |settings| &settings.labels)),
                    entries(of_runtime.map_or(&none, |settings| &settings.annotations)),
                ),
                layer("subject", entries(&self.service.labels), entries(&self.service.annotations)),
            ];
            if let Some(settings) = of_component {
                layers.push(layer("component", entries(&settings.labels), entries(&settings.annotations)));
            }
            layers.push(layer("facts", self.facts(part, model, runtime, version), Vec::new()));
            Digested::new(layers).unwrap_or_default()
        };
        sources.layers.entry((part, version.to_owned())).or_insert_with(make).clone()
    }

    /// What is known for certain, under the keys of OME's labels page.
    fn facts(&self, part: Option<&str>, model: Option<&ModelView>, runtime: Option<&RuntimeView>, version: &str) -> Vec<Entry> {
        let model_fact = |fact: fn(&ModelView) -> Option<String>| model.and_then(fact);
        let facts = [
            ("fine-tuned-serving", model.map(|_| "false".to_owned())),
            ("model.ome.io/format", model_fact(|view| view.model.format.as_ref().map(|format| format.name.clone()))),
            ("model.ome.io/name", model_fact(|view| Some(view.model.name.clone()))),
            ("model.ome.io/size", model_fact(|view| view.model.parameter_size.clone())),
            ("model.ome.io/type", model_fact(|view| view.model.model_type.clone())),
            ("model.ome.io/vendor", model_fact(|view| view.vendor.clone())),
            ("ome.io/component", part.map(str::to_owned)),
            ("ome.io/part-of", Some(self.service.name.clone())),
            (VERSION, Some(version.to_owned())),
            (COMPONENT, part.map(str::to_owned)),
            (SUBJECT, Some(self.service.name.clone())),
            ("serving.ome.io/model", model_fact(|view| Some(view.model.name.clone()))),
            ("serving.ome.io/runtime", runtime.map(|runtime| runtime.candidate.name.clone())),
        ];
        facts.into_iter().filter_map(|(key, value)| Some(Entry { key: key.to_owned(), value: value? })).collect()
    }
}

fn what_kind(making: &Making<'_>) -> String {
    making.snapshot.subject.key.resource.kind.to_owned()
}

/// Whether a place follows a leader: nothing reaches it by a Service.
pub(super) fn follows(place: Place) -> bool {
    place.role == Role::Worker
}
