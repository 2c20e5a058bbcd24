//! Combines the spec of a service with the specs it builds on: the presets for its shape, its base configurations in order, and its own
//! spec last.

use super::{
    preset::{self, PRESET},
    router::{GATEWAYS, PARENTS},
    template::Scope,
};
use crate::{
    resource::LLM_CONFIG,
    settings::{Scheduler, Settings},
    world::{ObjectKey, Read, Snapshot},
};
use pointsman_crds::kserve::spec::LLMServingFields;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The name of the layer with the highest precedence: the service's own spec.
const USER: &str = "user";

/// Pairs of fields of which a layer that sets one removes the other from the layers below: together they make no sense.
const MUTUALLY_EXCLUSIVE: [(&str, &str); 7] = [
    ("replicas", "scaling"),
    ("pipeline", "data"),
    ("pipeline", "dataLocal"),
    ("refs", "spec"),
    ("ref", "spec"),
    ("inline", "ref"),
    ("hpa", "keda"),
];

/// Fields with free content, which may contain fields with the names above.
const CARRIED: [&str; 6] = ["labels", "annotations", "inline", "spec", "template", "worker"];

/// The fields with pod templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodTemplateField {
    Template,
    Worker,
    PrefillTemplate,
    PrefillWorker,
    Scheduler,
}

impl PodTemplateField {
    const ALL: [Self; 5] = [Self::Template, Self::Worker, Self::PrefillTemplate, Self::PrefillWorker, Self::Scheduler];

    const fn path(self) -> &'static str {
        match self {
            Self::Template => "/template",
            Self::Worker => "/worker",
            Self::PrefillTemplate => "/prefill/template",
            Self::PrefillWorker => "/prefill/worker",
            Self::Scheduler => "/router/scheduler/template",
        }
    }
}

/// The effective spec of a service.
#[derive(Debug, Default)]
pub(super) struct EffectiveSpec {
    /// The merged spec, without the pods.
    pub(super) spec: LLMServingFields,
    /// The merged spec as JSON, for parts that are copied unchanged.
    whole: Value,
    /// The layers in order of precedence, the lowest first.
    layers: Vec<(String, Value)>,
    /// The names of the layers that only administrators write.
    pub(super) admin_layers: BTreeSet<String>,
    /// The endpoint picker that the preset's scheduler runs.
    pub(super) scheduler: Scheduler,
}

impl EffectiveSpec {
    /// A part of the spec; null if no layer has it.
    pub(super) fn given(&self, path: &str) -> &Value {
        self.whole.pointer(path).unwrap_or(&Value::Null)
    }

    /// The field in which the layer with the highest precedence names Gateways, and whether it does so in both fields.
    pub(super) fn gateways_named_by(&self) -> Option<(&'static str, bool)> {
        let gives = |spec: &Value, list: &str| spec.pointer(list).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        self.layers.iter().rev().find_map(|(_, spec)| match (gives(spec, GATEWAYS), gives(spec, PARENTS)) {
            (true, both) => Some((GATEWAYS, both)),
            (false, true) => Some((PARENTS, false)),
            (false, false) => None,
        })
    }

    /// Whether only administrators write the layer that determines a part.
    pub(super) fn is_of_admins(&self, path: &str) -> bool {
        let gives = |spec: &Value| spec.pointer(path).is_some_and(|value| !value.is_null());
        self.layers.iter().rev().find(|(_, spec)| gives(spec)).is_some_and(|(name, _)| self.admin_layers.contains(name))
    }

    /// The pod template of each layer; null if a layer has none.
    pub(super) fn pods(&self, at: PodTemplateField) -> Vec<(String, Value)> {
        self.layers.iter().map(|(name, spec)| (name.clone(), spec.pointer(at.path()).cloned().unwrap_or_default())).collect()
    }

    /// Merges all layers. The error is a reason and a message.
    pub(super) fn resolve(
        snapshot: &Snapshot,
        settings: &Settings,
        content: &Value,
        reads: &mut BTreeSet<Read>,
    ) -> Result<Self, (&'static str, String)> {
        let own = content["spec"].clone();
        let bases = bases(snapshot, settings, &own, reads)?;
        let said = bases.iter().map(|base| &base.spec).chain([&own]).fold(json!({}), merged);
        let object = json!({
            "metadata": {
                "name": snapshot.subject.key.name, "namespace": snapshot.subject.key.namespace,
                "labels": content["metadata"]["labels"], "annotations": content["metadata"]["annotations"],
            },
            "spec": with_name(said.clone(), &snapshot.subject.key.name),
        });
        let scope = Scope::new(&object, settings);
        let mut layers = Vec::new();
        // Containers are merged by name, so any layer may specify the image.
        let another = bases.iter().map(|base| &base.spec).chain([&own]).any(preset::has_scheduler_of_its_own);
        let scheduler = Scheduler::choose(snapshot, settings, &content["metadata"]["annotations"], another)?;
        let mut preset = preset::for_spec(&said, scheduler, another).map_err(|error| ("InvalidPreset", error))?;
        if let Some(mirror) = &settings.image_mirror {
            preset::mirror(&mut preset, mirror);
        }
        if scheduler == Scheduler::Pointsman && !another && preset["router"]["scheduler"].is_object() {
            let Some(image) = &settings.picker_image else {
                let message = "The image of Pointsman's endpoint picker is unknown: set the controller's flag --picker-image, or \
                               --scheduler llm-d.";
                return Err(("NoPickerImage", message.to_owned()));
            };
            preset::run_scheduler(&mut preset, image);
        }
        scope.fill(&mut preset, "spec").map_err(|error| ("InvalidPreset", format!("The built-in preset can't be rendered: {error}.")))?;
        layers.push((PRESET.to_owned(), preset));
        let mut admin_layers = BTreeSet::from([PRESET.to_owned()]);
        for Base { name, mut spec, of_all } in bases {
            let told = |error| ("InvalidConfig", format!("The LLMInferenceServiceConfig {name} can't be rendered: {error}. Fix it there."));
            scope.fill(&mut spec, "spec").map_err(told)?;
            let layer = format!("base:{name}");
            if of_all {
                admin_layers.insert(layer.clone());
            }
            layers.push((layer, spec));
        }
        layers.push((USER.to_owned(), own));
        let whole = layers.iter().fold(json!({}), |weak, (_, strong)| merged(weak, strong));
        let mut whole = with_name(whole, &snapshot.subject.key.name);
        for at in PodTemplateField::ALL {
            // A policy merges the pods, layer by layer.
            if let Some(pod) = whole.pointer_mut(at.path()) {
                *pod = if pod.is_null() { Value::Null } else { json!({}) };
            }
        }
        let spec = LLMServingFields::deserialize(&whole)
            .map_err(|error| ("InvalidConfig", format!("The service combined with its base configurations is invalid: {error}.")))?;
        Ok(Self { spec, whole, layers, admin_layers, scheduler })
    }
}

/// The maximum number of base configurations of a service.
const MAX_BASES: usize = 16;

/// A base configuration of a service.
struct Base {
    name: String,
    spec: Value,
    /// Whether it is in the shared namespace.
    of_all: bool,
}

/// The base configurations of the service, each from its own namespace, otherwise from the shared one.
fn bases(snapshot: &Snapshot, settings: &Settings, own: &Value, reads: &mut BTreeSet<Read>) -> Result<Vec<Base>, (&'static str, String)> {
    let named: Vec<&str> = own["baseRefs"].as_array().into_iter().flatten().filter_map(|reference| reference["name"].as_str()).collect();
    // If a name is repeated, only the last occurrence counts, because it would overwrite the others.
    let mut once = BTreeSet::new();
    let mut names: Vec<&str> = named.into_iter().rev().filter(|name| once.insert(*name)).collect();
    names.reverse();
    if names.len() > MAX_BASES {
        let message = format!("spec.baseRefs has {} entries; the limit is {MAX_BASES}: combine some of the configurations.", names.len());
        return Err(("TooManyBaseRefs", message));
    }
    let mut bases = Vec::new();
    for name in names {
        let places = [snapshot.subject.key.namespace.as_str(), settings.config_namespace.as_str()];
        let key = |namespace: &str| ObjectKey { resource: &LLM_CONFIG, namespace: namespace.to_owned(), name: name.to_owned() };
        reads.extend(places.iter().map(|place| Read::Object(key(place))));
        let find = |place: &&str| Some((snapshot.configs.get(place, name)?, **place == settings.config_namespace));
        let Some((found, of_all)) = places.iter().find_map(find) else {
            let [own, of_all] = places;
            let message = format!(
                "spec.baseRefs names the LLMInferenceServiceConfig {name}, which is neither in the namespace {own} nor in {of_all}: create \
                 it, or remove the name."
            );
            return Err(("ConfigNotFound", message));
        };
        bases.push(Base { name: name.to_owned(), spec: (**found).clone(), of_all });
    }
    Ok(bases)
}

/// A model without a name has the name of its service.
fn with_name(mut spec: Value, name: &str) -> Value {
    let unnamed = spec.pointer("/model/name").and_then(Value::as_str).is_none_or(str::is_empty);
    if unnamed && spec.is_object() {
        if !spec["model"].is_object() {
            spec["model"] = json!({});
        }
        spec["model"]["name"] = name.into();
    }
    spec
}

/// Merges a layer into those with lower precedence: objects field by field, all other values as a whole. Null changes nothing.
pub(super) fn merged(weak: Value, strong: &Value) -> Value {
    laid(weak, strong, true)
}

fn laid(weak: Value, strong: &Value, ours: bool) -> Value {
    match (weak, strong) {
        (weak, Value::Null) => weak,
        (Value::Object(mut weak), Value::Object(strong)) => {
            for (one, other) in MUTUALLY_EXCLUSIVE.iter().filter(|_| ours) {
                for (given, gone) in [(*one, *other), (*other, *one)] {
                    let says = |name: &str| strong.get(name).is_some_and(|value| !value.is_null());
                    if says(given) && !says(gone) {
                        weak.shift_remove(gone);
                    }
                }
            }
            for (name, value) in strong {
                let before = weak.get_mut(name).map(Value::take).unwrap_or_default();
                // A mix of two configurations would make no sense.
                let before = if ours && name == "inline" && !value.is_null() { Value::Null } else { before };
                weak.insert(name.clone(), laid(before, value, ours && !CARRIED.contains(&name.as_str())));
            }
            Value::Object(weak)
        }
        // Removes the nulls in it.
        (_, Value::Object(strong)) => laid(Value::Object(Map::new()), &Value::Object(strong.clone()), ours),
        (_, strong) => strong.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_wins_field_by_field_and_takes_away_what_it_replaces() {
        let weak = json!({"replicas": 2, "model": {"uri": "hf://a/b", "name": "a"}, "router": {"route": {"http": {"spec": {"x": 1}}}}});
        let strong = json!({"scaling": {"maxReplicas": 3}, "model": {"name": "b", "uri": null}, "router": {"route": {"http": {"refs": [{"name": "r"}]}}}});
        let expected = json!({
            "model": {"uri": "hf://a/b", "name": "b"}, "router": {"route": {"http": {"refs": [{"name": "r"}]}}}, "scaling": {"maxReplicas": 3},
        });
        assert_eq!(merged(weak, &strong), expected);
    }

    #[test]
    fn a_model_is_called_as_its_service_unless_it_has_a_name() {
        assert_eq!(with_name(json!({}), "llama")["model"]["name"], "llama");
        assert_eq!(with_name(json!({"model": {"name": "a"}}), "llama")["model"]["name"], "a");
    }
}
