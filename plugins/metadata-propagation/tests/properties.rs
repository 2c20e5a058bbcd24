//! Properties that hold for every question.

mod asking;

use asking::{Ask, FACTS, Object, PodTemplate, entries, patterns};
use pointsman_metadata_propagation::{Config, valid_label_value};
use pointsman_plugin::{
    Entry, Role,
    metadata_propagation::{Answer, Layer, Place, Placed, Request, Sort},
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use std::collections::BTreeMap;

/// Possible keys of the host's frame.
const FRAME: [&str; 4] = ["serving.ome.io/component", "serving.ome.io/inferenceservice", "serving.ome.io/revision", "team"];

/// Keys that are propagated neither as labels nor as annotations.
const INTERNAL: [&str; 8] = [
    "kubectl.kubernetes.io/x",
    "policy.pointsman.dev/x",
    "argocd.argoproj.io/x",
    "helm.sh/chart",
    "kustomize.toolkit.fluxcd.io/name",
    "deployment.kubernetes.io/revision",
    "pod-template-hash",
    "secret.example.com/x",
];

const SETTINGS: [&str; 10] = [
    "ome.io/deploymentMode",
    "autoscaling.ome.io/metric",
    "autoscaling.knative.dev/target",
    "model.ome.io/max-tokens",
    "performance.ome.io/batch-size",
    "security.ome.io/secret-ref",
    "storage.ome.io/size",
    "monitoring.ome.io/scrape",
    "monitoring.ome.io/port",
    "monitoring.ome.io/path",
];

const OTHERS: [&str; 13] = [
    "infrastructure.ome.io/cluster",
    "oci.ome.io/region",
    "prometheus.io/port",
    "prometheus.io/scrape",
    "a",
    "example.com/b",
    "component",
    "base-model-name",
    "ome.io/base-model-name",
    "ome.io/managed-by",
    "app.kubernetes.io/managed-by",
    "leaderworkerset.sigs.k8s.io/size",
    "not a key",
];

fn key() -> impl Strategy<Value = String> {
    let facts = FACTS.iter().map(|(key, _)| *key);
    let known: Vec<&str> = FRAME.into_iter().chain(INTERNAL).chain(SETTINGS).chain(OTHERS).chain(facts).collect();
    prop_oneof![9 => select(known).prop_map(str::to_owned), 1 => any::<String>()]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![3 => select(vec!["", "1", "2", "a b", "-", "é", "false"]).prop_map(str::to_owned), 1 => any::<String>(), 1 => "[a-z.-]{60,70}"]
}

fn pairs() -> impl Strategy<Value = Vec<Entry>> {
    vec((key(), value()).prop_map(Entry::from), 0..8)
}

fn layer() -> impl Strategy<Value = Layer> {
    let name = select(vec!["namespace", "runtime", "subject", "component", "facts", "spec"]);
    (name, pairs(), pairs()).prop_map(|(name, labels, annotations)| Layer { name: name.into(), labels, annotations })
}

fn frame() -> impl Strategy<Value = Vec<Placed>> {
    vec(option::of(select(vec!["1", "2"])), FRAME.len()).prop_map(|values| {
        let frame = FRAME.iter().zip(values);
        frame.filter_map(|(key, value)| value.map(|value| asking::placed(key, value, "host"))).collect()
    })
}

fn role() -> impl Strategy<Value = Option<Role>> {
    option::of(select(vec![Role::Engine, Role::Decoder, Role::Router, Role::Leader, Role::Worker, Role::Job]))
}

prop_compose! {
    fn request()(
        layers in vec(layer(), 0..6), all_facts in any::<bool>(), labels in frame(), annotations in frame(),
        place in select(vec![Object, PodTemplate]), role in role(), group_role in role(),
    ) -> Request {
        let mut request = Request { layers, labels, annotations, ..Ask::new(place, role, group_role).0 };
        if all_facts {
            request.layers.push(Layer { name: "facts".into(), labels: entries(FACTS), annotations: Vec::new() });
        }
        request
    }
}

prop_compose! {
    fn config()(upstream_keys in any::<bool>(), names in select(vec![&[][..], &["*"], &["a", "example.com/"]])) -> Config {
        Config { upstream_keys, namespace_labels: patterns(names), internal_keys: patterns(&["secret.example.com/"]), ..Config::default() }
    }
}

fn ask(config: &Config, request: &Request) -> Answer {
    Ask(request.clone()).with(config)
}

/// Each label and annotation of the layers, with the layer's name.
fn given(request: &Request) -> Vec<(Sort, &str, &Entry)> {
    let mut given = Vec::new();
    for layer in &request.layers {
        given.extend(layer.labels.iter().map(|entry| (Sort::Label, layer.name.as_str(), entry)));
        given.extend(layer.annotations.iter().map(|entry| (Sort::Annotation, layer.name.as_str(), entry)));
    }
    given
}

fn by_key(placed: &[Placed]) -> BTreeMap<&str, &Placed> {
    placed.iter().map(|placed| (placed.key.as_str(), placed)).collect()
}

proptest! {
    #[test]
    fn what_is_placed_is_what_kubernetes_takes(config in config(), request in request()) {
        let answer = ask(&config, &request);
        for label in &answer.labels {
            prop_assert_eq!(valid_label_value(&label.value), label.value.as_str());
        }
        for placed in [&answer.labels, &answer.annotations] {
            prop_assert!(placed.is_sorted_by(|one, other| one.key < other.key), "each key once, in order");
            prop_assert!(placed.iter().all(|placed| !placed.key.contains(' ')));
        }
    }

    #[test]
    fn the_frame_is_kept(config in config(), request in request()) {
        let answer = ask(&config, &request);
        for (frame, placed) in [(&request.labels, &answer.labels), (&request.annotations, &answer.annotations)] {
            prop_assert!(frame.iter().all(|of_frame| placed.contains(of_frame)));
        }
    }

    #[test]
    fn what_is_internal_never_travels(config in config(), request in request()) {
        let answer = ask(&config, &request);
        let (labels, annotations) = (by_key(&answer.labels), by_key(&answer.annotations));
        for key in INTERNAL {
            prop_assert!(!labels.contains_key(key) && !annotations.contains_key(key), "{}", key);
        }
        for key in SETTINGS {
            prop_assert!(!annotations.contains_key(key), "{}", key);
        }
        if request.target.place == Place::PodTemplate {
            prop_assert!(!labels.contains_key("ome.io/version") && !annotations.contains_key("ome.io/version"));
            prop_assert!(!labels.contains_key("leaderworkerset.sigs.k8s.io/size"));
        }
    }

    #[test]
    fn whatever_a_layer_gives_is_placed_or_told(config in config(), request in request()) {
        let answer = ask(&config, &request);
        let (labels, annotations) = (by_key(&answer.labels), by_key(&answer.annotations));
        for (sort, layer, Entry { key, value }) in given(&request) {
            let (placed, value) = match sort {
                Sort::Label => (labels.get(key.as_str()), valid_label_value(value)),
                Sort::Annotation => (annotations.get(key.as_str()), value.into()),
            };
            let is_there = placed.is_some_and(|placed| placed.value == value);
            let is_told = answer.dropped.iter().any(|dropped| (dropped.sort, &dropped.key, dropped.layer.as_str()) == (sort, key, layer));
            let is_asked_for = layer != "namespace" || (sort == Sort::Label && key == "infrastructure.ome.io/cluster");
            prop_assert!(is_there || is_told || !is_asked_for, "{layer} {key} {value}");
        }
    }

    #[test]
    fn whatever_is_placed_or_told_comes_from_its_layer(config in config(), request in request()) {
        let answer = ask(&config, &request);
        let given = given(&request);
        for (sort, placed) in [(Sort::Label, &answer.labels), (Sort::Annotation, &answer.annotations)] {
            for Placed { key, value, layer } in placed.iter().filter(|placed| !["host", "plugin", "facts"].contains(&placed.layer.as_str())) {
                // Annotations about monitoring are reported under Prometheus' own keys.
                let monitored = key.replacen("prometheus.io", "monitoring.ome.io", 1);
                let from = |&(its_sort, name, entry): &(Sort, &str, &Entry)| {
                    let raw = if sort == Sort::Label { valid_label_value(&entry.value) } else { entry.value.as_str().into() };
                    let is_key = entry.key == *key || (sort == Sort::Annotation && entry.key == monitored);
                    (its_sort, name) == (sort, layer.as_str()) && is_key && raw == value.as_str()
                };
                prop_assert!(given.iter().any(from), "{layer} {key} {value}");
            }
        }
        for dropped in &answer.dropped {
            let from = |(sort, name, entry): &(Sort, &str, &Entry)| {
                (*sort, *name, &entry.key) == (dropped.sort, dropped.layer.as_str(), &dropped.key)
            };
            prop_assert!(given.iter().any(from), "{dropped:?}");
            prop_assert!(dropped.reason.message.ends_with('.'));
            prop_assert_eq!(answer.dropped.iter().filter(|other| *other == dropped).count(), 1);
        }
    }

    #[test]
    fn where_nobody_is_to_look_only_a_layer_says_where(config in config(), request in request()) {
        let answer = ask(&config, &request);
        let annotations = by_key(&answer.annotations);
        let said = |key: &str| given(&request).iter().any(|(sort, _, entry)| *sort == Sort::Annotation && entry.key == key);
        let off = annotations.get("prometheus.io/scrape").is_some_and(|placed| placed.value == "false") && !said("prometheus.io/scrape");
        prop_assert!(!off || said("prometheus.io/port") || !annotations.contains_key("prometheus.io/port"));
        let none = request.target.place == Place::Object && !said("prometheus.io/port");
        prop_assert!(!none || !annotations.contains_key("prometheus.io/port"));
    }

    #[test]
    fn the_same_question_has_the_same_answer(config in config(), request in request()) {
        prop_assert_eq!(ask(&config, &request), ask(&config, &request));
    }

    #[test]
    fn every_value_becomes_one_that_kubernetes_takes(raw in prop_oneof![any::<String>(), value()]) {
        let valid = valid_label_value(&raw);
        let outer = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
        prop_assert!(valid.len() <= 63 && outer(valid.chars().next()) && outer(valid.chars().last()));
        prop_assert!(valid.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
        prop_assert_eq!(valid.is_empty(), raw.is_empty());
        prop_assert_eq!(valid_label_value(&valid), valid.as_ref());
    }
}
