//! The labels and annotations of each object: the question at metadata-propagation.

use super::{DECIDED, PlanBuilder, PlanError, component::DeployedComponent};
use crate::{
    kinds::questions::{MetadataQuestion, PodRole},
    objects::Metadata,
    question::entries,
    subject_kind::{COMPONENT, SUBJECT},
    world::{
        ObjectKey,
        child::VERSION,
        ome::{ModelView, RuntimeView, WeightView},
    },
};
use pointsman_sandbox::{
    digest::Digested,
    point::{Entry, propagation::Layer},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// The sources of the labels and annotations of all objects.
pub(super) struct Sources<'a> {
    pub(super) model: Option<&'a ModelView>,
    pub(super) runtime: Option<&'a RuntimeView>,
    /// The fine-tuned weights, by name.
    pub(super) weights: &'a [(String, Arc<WeightView>)],
    /// The layers per component (or none) and version, because most objects share them.
    layers: HashMap<(Option<&'static str>, String), Digested<Vec<Layer>>>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(model: Option<&'a ModelView>, runtime: Option<&'a RuntimeView>, weights: &'a [(String, Arc<WeightView>)]) -> Self {
        Self { model, runtime, weights, layers: HashMap::new() }
    }
}

impl Sources<'_> {
    /// The merged weight that is served instead of its model, if any.
    pub(super) fn merged_weight(&self) -> Option<(&str, &WeightView)> {
        self.weights.iter().find(|(_, weight)| weight.is_merged).map(|(name, weight)| (name.as_str(), &**weight))
    }
}

/// The target of labels and annotations.
#[derive(Clone, Copy)]
pub(super) struct For<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) component: Option<&'a DeployedComponent>,
    /// The role of the pods and their metadata from pod-templating, if the target is pods instead of the object.
    pub(super) pods: Option<(PodRole, &'a Value)>,
}

impl PlanBuilder<'_> {
    /// The labels that select pods and objects. Policies can't change them, and they never change.
    pub(super) fn selector(&self, component: Option<&DeployedComponent>) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([(SUBJECT.to_owned(), self.snapshot.subject.label.clone())]);
        if let Some(component) = component {
            labels.insert(COMPONENT.to_owned(), component.part.name().to_owned());
        }
        labels
    }

    /// The metadata of an object, or of its pods.
    pub(super) fn metadata(&mut self, sources: &mut Sources<'_>, what: For<'_>) -> Result<Metadata, Box<PlanError>> {
        let ours = self.selector(what.component);
        let version = self.snapshot.child(what.key.resource, &what.key.name).and_then(|child| child.observed.made_by.clone());
        let version = version.unwrap_or_else(|| self.settings.version.clone());
        let layers = self.layers(sources, what.component, &version);
        let about = MetadataQuestion {
            key: what.key,
            role: what.component.map(|component| component.part.role()),
            pods: what.pods.map(|(place, _)| place),
            template: what.pods.map(|(_, metadata)| metadata),
        };
        let metadata = self.asking.metadata(&self.service.subject, about, ours, layers);
        metadata.map_err(|undecided| self.undecided(DECIDED, &undecided))
    }

    fn layers(&self, sources: &mut Sources<'_>, component: Option<&DeployedComponent>, version: &str) -> Digested<Vec<Layer>> {
        let part = component.map(|component| component.part.name());
        let (model, runtime, tuned) = (sources.model, sources.runtime, !sources.weights.is_empty());
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
            layers.push(layer("facts", self.facts(part, (model, tuned), runtime, version), Vec::new()));
            Digested::new(layers).unwrap_or_default()
        };
        sources.layers.entry((part, version.to_owned())).or_insert_with(make).clone()
    }

    /// Known facts, under the keys from OME's labels page.
    fn facts(
        &self,
        part: Option<&str>,
        (model, tuned): (Option<&ModelView>, bool),
        runtime: Option<&RuntimeView>,
        version: &str,
    ) -> Vec<Entry> {
        let model_fact = |fact: fn(&ModelView) -> Option<String>| model.and_then(fact);
        let facts = [
            ("fine-tuned-serving", model.map(|_| tuned.to_string())),
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
