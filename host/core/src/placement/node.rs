//! Parses nodes.

use super::{derived::Derived, features::facts::NodeFacts, resources::Resources, settings::Settings};
use crate::objects::strings;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// The fields of a node that matter for a placement.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The annotations that the settings name.
    pub annotations: BTreeMap<String, String>,
    /// The total that pods may request.
    pub allocatable: Resources,
    /// The taints, which keep pods away that don't tolerate them.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// The images on the node: every name of each, in the form of [`image_name`], with its size in bytes.
    pub images: BTreeMap<String, u64>,
    /// The values of [`Settings::features`], in order; NaN if unknown.
    pub custom: Vec<f64>,
    /// The features' inputs, cached.
    pub facts: Derived<Arc<NodeFacts>>,
}

impl PartialEq for Node {
    /// Whether both were parsed from the same object, even if a value is NaN.
    fn eq(&self, other: &Self) -> bool {
        let Self { labels, annotations, allocatable, taints, unschedulable, images, custom, facts: _ } = self;
        *labels == other.labels
            && *annotations == other.annotations
            && *allocatable == other.allocatable
            && *taints == other.taints
            && *unschedulable == other.unschedulable
            && *images == other.images
            && custom.len() == other.custom.len()
            && custom.iter().zip(&other.custom).all(|(one, another)| one.total_cmp(another).is_eq())
    }
}

/// A taint, which keeps pods away that don't tolerate it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, often empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Node {
    /// Parses a node. The values of custom features are added elsewhere.
    pub fn from_value(object: &Value, settings: &Settings) -> Self {
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let taint = |taint: &Value| Taint { key: text(&taint["key"]), value: text(&taint["value"]), effect: text(&taint["effect"]) };
        let annotation = metadata["annotations"][settings.price.as_str()].as_str();
        let mut images = BTreeMap::new();
        for image in status["images"].as_array().into_iter().flatten() {
            let bytes = image["sizeBytes"].as_u64().unwrap_or_default();
            let names = image["names"].as_array().into_iter().flatten().filter_map(Value::as_str);
            images.extend(names.map(|name| (image_name(name), bytes)));
        }
        Self {
            labels: strings(&metadata["labels"]),
            annotations: annotation.map(|value| (settings.price.clone(), value.to_owned())).into_iter().collect(),
            allocatable: Resources::from_value(&status["allocatable"]),
            taints: spec["taints"].as_array().into_iter().flatten().map(taint).collect(),
            unschedulable: spec["unschedulable"].as_bool().unwrap_or_default(),
            images,
            custom: Vec::new(),
            facts: Derived::default(),
        }
    }

    /// Its price, if its annotation, or otherwise its label, is a number.
    pub fn price(&self, settings: &Settings) -> Option<f64> {
        let written = self.annotations.get(&settings.price).or_else(|| self.labels.get(&settings.price))?;
        written.parse::<f64>().ok().filter(|price| price.is_finite())
    }
}

/// The canonical name of an image: with its registry, and with its digest, otherwise its tag.
pub fn image_name(written: &str) -> String {
    let (name, digest) = written.split_once('@').map_or((written, None), |(name, digest)| (name, Some(digest)));
    // A colon before a slash starts a port.
    let (repository, tag) = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).unwrap_or((name, "latest"));
    let registry = match repository.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => "",
        Some(_) => "docker.io/",
        None => "docker.io/library/",
    };
    match digest {
        Some(digest) => format!("{registry}{repository}@{digest}"),
        None => format!("{registry}{repository}:{tag}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_node_says_is_read_and_no_more_of_its_annotations_than_is_needed() {
        let object = json!({
            "metadata": {"name": "n", "labels": {"zone": "a"}, "annotations": {"pointsman.dev/price": "2.5", "other": "x"}},
            "spec": {"unschedulable": true, "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoExecute"}]},
            "status": {
                "allocatable": {"cpu": "7500m", "nvidia.com/gpu": "8"}, "capacity": {"cpu": "8"},
                "images": [{"names": ["docker.io/vllm/vllm-openai@sha256:ab", "docker.io/vllm/vllm-openai:v1"], "sizeBytes": 9}, {"names": null}],
            },
        });
        let node = Node::from_value(&object, &Settings::default());
        let taint = |key: &str, value: &str, effect: &str| Taint { key: key.into(), value: value.into(), effect: effect.into() };
        assert_eq!(node.taints, [taint("nvidia.com/gpu", "", "NoSchedule"), taint("a", "b", "NoExecute")]);
        assert_eq!(node.allocatable, Resources::from_iter([("cpu", 7500), ("nvidia.com/gpu", 8)]));
        assert!(node.unschedulable && node.custom.is_empty());
        assert_eq!((node.labels.len(), node.annotations.len()), (1, 1));
        assert_eq!(node.images.get(&image_name("vllm/vllm-openai:v1")), Some(&9));
        assert_eq!(node.images.len(), 2);
        assert_eq!(Node::from_value(&json!({}), &Settings::default()), Node::default());
    }

    #[test]
    fn a_node_with_an_unknown_value_equals_itself() {
        let node = |custom: &[f64]| Node { custom: custom.to_vec(), ..Node::default() };
        assert_eq!(node(&[f64::NAN, 1.0]), node(&[f64::NAN, 1.0]));
        assert_ne!(node(&[f64::NAN, 1.0]), node(&[f64::NAN, 2.0]));
        assert_ne!(node(&[1.0]), node(&[1.0, 1.0]));
        assert_ne!(Node { unschedulable: true, ..Node::default() }, Node::default());
    }

    #[test]
    fn the_price_is_the_annotation_s_or_else_the_label_s() {
        let price = |annotation: Option<&str>, label: Option<&str>| {
            let entry = |value: Option<&str>| value.map(|value| ("pointsman.dev/price".to_owned(), value.to_owned())).into_iter().collect();
            Node { annotations: entry(annotation), labels: entry(label), ..Node::default() }.price(&Settings::default())
        };
        assert_eq!(price(Some("2.5"), Some("3")), Some(2.5));
        assert_eq!(price(None, Some("3")), Some(3.0));
        assert_eq!(price(Some("NaN"), Some("3")), None);
        assert_eq!(price(None, None), None);
    }

    #[test]
    fn an_image_has_one_name_however_it_is_written() {
        for (written, name) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("vllm/vllm-openai:v1", "docker.io/vllm/vllm-openai:v1"),
            ("docker.io/vllm/vllm-openai:v1", "docker.io/vllm/vllm-openai:v1"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
            ("localhost/a:1", "localhost/a:1"),
            ("ghcr.io/a/b:1@sha256:cd", "ghcr.io/a/b@sha256:cd"),
        ] {
            assert_eq!(image_name(written), name, "{written}");
        }
    }
}
