//! Helpers that call the policy.
#![allow(clippy::unwrap_used)]
#![allow(dead_code, unused_imports, reason = "each test uses some of them")]

use pointsman_metadata_propagation::{Config, Pattern, propagate};
use pointsman_plugin::{
    Entry, Role, Subject,
    metadata_propagation::{Answer, Layer, Place, Placed, Request, Sort, Target},
};

pub(crate) use Place::{Object, PodTemplate};

/// Labels or annotations, by key.
pub(crate) type Pairs<'a> = &'a [(&'a str, &'a str)];

/// The host's facts about a service for which all are known.
pub(crate) const FACTS: Pairs<'static> = &[
    ("fine-tuned-serving", "false"),
    ("model.ome.io/format", "safetensors"),
    ("model.ome.io/name", "llama-8b"),
    ("model.ome.io/size", "8B"),
    ("model.ome.io/type", "text-generation"),
    ("model.ome.io/vendor", "meta"),
    ("ome.io/component", "engine"),
    ("ome.io/part-of", "llama"),
    ("ome.io/version", "v0.1.0"),
    ("serving.ome.io/component", "engine"),
    ("serving.ome.io/inferenceservice", "llama"),
    ("serving.ome.io/model", "llama-8b"),
    ("serving.ome.io/runtime", "vllm"),
];

pub(crate) fn config() -> Config {
    Config::default()
}

pub(crate) fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| (*text).to_owned().try_into().unwrap()).collect()
}

/// A question, built layer by layer.
#[derive(Clone, Debug)]
pub(crate) struct Ask(pub(crate) Request);

impl Ask {
    /// A question about the engine's Deployment, or its pods.
    pub(crate) fn engine(place: Place) -> Self {
        Self::new(place, Some(Role::Engine), None)
    }

    pub(crate) fn new(place: Place, role: Option<Role>, group_role: Option<Role>) -> Self {
        let target = Target { group: "apps".into(), kind: "Deployment".into(), name: "llama-engine".into(), role, group_role, place };
        let subject = Subject { group: "ome.io".into(), kind: "InferenceService".into(), name: "llama".into(), ..Subject::default() };
        Self(Request { subject, target, ..Request::default() })
    }

    /// A question about an object of that kind of an LLMInferenceService, or its pods.
    pub(crate) fn llm(mut self, kind: &str) -> Self {
        let (group, kind_of_subject) = ("serving.kserve.io".into(), "LLMInferenceService".into());
        self.0.subject = Subject { group, kind: kind_of_subject, ..self.0.subject };
        self.0.target.kind = kind.into();
        self
    }

    pub(crate) fn layer(mut self, name: &str, labels: Pairs<'_>, annotations: Pairs<'_>) -> Self {
        self.0.layers.push(Layer { name: name.into(), labels: entries(labels), annotations: entries(annotations) });
        self
    }

    pub(crate) fn frame(mut self, labels: Pairs<'_>, annotations: Pairs<'_>) -> Self {
        let placed = |pairs: Pairs<'_>| pairs.iter().map(|(key, value)| placed(key, value, "host")).collect();
        (self.0.labels, self.0.annotations) = (placed(labels), placed(annotations));
        self
    }

    pub(crate) fn answer(self) -> Answer {
        self.with(&config())
    }

    pub(crate) fn with(self, config: &Config) -> Answer {
        propagate(config, self.0).unwrap()
    }
}

pub(crate) fn placed(key: &str, value: &str, layer: &str) -> Placed {
    Placed { key: key.into(), value: value.into(), layer: layer.into() }
}

pub(crate) fn entries(pairs: Pairs<'_>) -> Vec<Entry> {
    pairs.iter().map(|&pair| pair.into()).collect()
}

/// `value (layer)`, or `-` if the target doesn't get it.
pub(crate) fn label(answer: &Answer, key: &str) -> String {
    found(&answer.labels, key)
}

pub(crate) fn annotation(answer: &Answer, key: &str) -> String {
    found(&answer.annotations, key)
}

fn found(placed: &[Placed], key: &str) -> String {
    placed.iter().find(|placed| placed.key == key).map_or_else(|| "-".into(), |Placed { value, layer, .. }| format!("{value} ({layer})"))
}

/// `layer key code`, for everything that is dropped except facts.
pub(crate) fn dropped(answer: &Answer) -> Vec<String> {
    let others = answer.dropped.iter().filter(|dropped| dropped.layer != "facts");
    others.map(|dropped| format!("{} {} {}", dropped.layer, dropped.key, dropped.reason.code)).collect()
}

/// The code for one key of a layer, or `-`.
pub(crate) fn why(answer: &Answer, sort: Sort, layer: &str, key: &str) -> String {
    let told = answer.dropped.iter().find(|dropped| (dropped.sort, dropped.layer.as_str(), dropped.key.as_str()) == (sort, layer, key));
    told.map_or_else(|| "-".into(), |dropped| dropped.reason.code.clone())
}

/// `key=value (layer)`, for all.
pub(crate) fn shown(placed: &[Placed]) -> Vec<String> {
    placed.iter().map(|Placed { key, value, layer }| format!("{key}={value} ({layer})")).collect()
}

pub(crate) fn keys(placed: &[Placed]) -> Vec<&str> {
    placed.iter().map(|placed| placed.key.as_str()).collect()
}
