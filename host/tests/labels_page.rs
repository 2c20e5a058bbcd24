//! The table of OME's labels and annotations matches the code.

use crate::planning::{plan, world};
use pointsman_core::{
    plan::{Object, Plan},
    rules::ome_keys::{ANNOTATIONS, Annotation, LABELS, Reader, TRAINING_ANNOTATIONS, TRAINING_LABELS, is_on_the_page},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The page's annotations that users can set.
fn set() -> impl Iterator<Item = &'static Annotation> {
    ANNOTATIONS.iter().filter(|annotation| is_on_the_page(annotation) && annotation.reader != Reader::Nobody)
}

/// A service with these annotations; everything else is constant.
fn service(annotations: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<&str, &str> = annotations.iter().copied().collect();
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {
            "name": "chat", "namespace": "team", "uid": "1", "generation": 4, "annotations": annotations,
            "labels": {"infrastructure.ome.io/cluster": "gpu-1"},
        },
        "spec": {
            "model": {"name": "llama", "kind": "ClusterBaseModel", "apiGroup": "ome.io"},
            "runtime": {"name": "vllm", "kind": "ClusterServingRuntime", "apiGroup": "ome.io"},
        },
    })
}

fn planned(annotations: &[(&str, &str)]) -> Plan {
    let service = service(annotations);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {
        "infrastructure.ome.io/cluster": "weaker", "infrastructure.ome.io/profile": "h100-profile", "infrastructure.ome.io/capacity-reservation": "r-1",
    }}});
    let context = pointsman_samples::context("elsewhere");
    plan(&world(context.iter().chain([&namespace, &service])), &service)
}

fn objects(plan: &Plan) -> Vec<Value> {
    plan.objects.as_ref().unwrap_or_else(|| panic!("{:#?}", plan.status.conditions)).iter().map(Object::manifest).collect()
}

/// The workload of the engine.
fn workload(plan: &Plan) -> Value {
    let all = objects(plan);
    let template = |object: &&Value| object["spec"]["template"].is_object();
    all.iter().find(template).unwrap().clone()
}

/// Whether a key of labels or annotations is on the workload, and whether it is on its pods.
fn places(plan: &Plan, map: &str, key: &str) -> (bool, bool) {
    let workload = workload(plan);
    let on = |metadata: &Value| metadata[map].get(key).is_some();
    (on(&workload["metadata"]), on(&workload["spec"]["template"]["metadata"]))
}

#[test]
fn objects_and_pods_carry_the_keys_that_the_table_says() {
    let plain = planned(&[]);
    for label in &LABELS {
        assert_eq!(places(&plain, "labels", label.key), (label.objects, label.pods), "{}", label.key);
    }
    for annotation @ Annotation { key, example: (value, beside), .. } in &ANNOTATIONS {
        let plan = planned(&[*beside, &[(*key, *value)]].concat());
        assert_eq!(places(&plan, "annotations", key), (annotation.objects, annotation.pods), "{key}");
        if annotation.reader == Reader::Nobody {
            // A user's value under these keys is ignored.
            assert_ne!(workload(&plan)["metadata"]["annotations"][key], *value);
        }
    }
}

#[test]
fn every_annotation_changes_what_is_made_or_told() {
    for Annotation { key, example: (value, beside), .. } in set() {
        let told = |plan: &Plan| {
            let conditions: Vec<_> = plan.status.conditions.iter().map(|condition| condition.message.clone()).collect();
            let mut objects = objects(plan);
            for object in &mut objects {
                // A number, a hash and a copy of the key don't count as an effect.
                for metadata in ["/metadata", "/spec/template/metadata"] {
                    if let Some(metadata) = object.pointer_mut(metadata) {
                        let annotations = metadata["annotations"].as_object_mut();
                        if let Some(map) = annotations {
                            map.retain(|name, _| name.starts_with("prometheus") || name.starts_with("autoscaling"));
                        }
                    }
                }
            }
            json!([objects, conditions]).to_string()
        };
        let (without, with) = (planned(beside), planned(&[*beside, &[(*key, *value)]].concat()));
        assert!(told(&without) != told(&with), "{key} means nothing");
    }
}

#[test]
fn a_value_that_can_not_be_read_is_refused_by_the_name_of_its_key() {
    for Annotation { key, wrong, example: (_, beside), .. } in set() {
        let Some(wrong) = *wrong else { continue };
        let plan = planned(&[*beside, &[(*key, wrong)]].concat());
        assert!(plan.objects.is_none(), "{key}: {wrong:?} is taken");
        let accepted = plan.status.conditions.iter().find(|condition| condition.type_ == "Accepted").unwrap();
        assert_eq!((accepted.status, accepted.reason.as_str()), (Some(false), "InvalidValue"), "{key}: {accepted:?}");
        assert!(accepted.message.contains(key) && accepted.message.contains("it must be"), "{}", accepted.message);
    }
}

/// At admission, a user gets a warning about a value by the same rules, before the controller rejects it.
#[test]
fn the_practices_warn_of_what_is_refused_and_of_nothing_else() {
    for Annotation { key, wrong, example: (value, beside), .. } in set() {
        let valid = |value: &str| {
            let conditions = planned(&[*beside, &[(*key, value)]].concat()).status.conditions;
            conditions.into_iter().find(|condition| condition.type_ == "Valid").unwrap()
        };
        let right = valid(value);
        assert_eq!(right.reason, "Valid", "{key}: {value:?}: {}", right.message);
        let Some(wrong) = *wrong else { continue };
        let told = valid(wrong);
        assert_eq!((told.status, told.reason.as_str()), (Some(true), "Warned"), "{key}: {wrong:?}");
        assert!(told.message.contains("practice-") && told.message.contains(key), "{}", told.message);
    }
}

#[test]
fn what_the_labels_page_has_on_objects_never_restarts_a_pod() {
    let pods = |generation: i64, metadata: &[(&str, &str)]| {
        let mut service = service(metadata);
        service["metadata"]["generation"] = generation.into();
        let plan = plan(&world(pointsman_samples::context("elsewhere").iter().chain([&service])), &service);
        let workload = workload(&plan);
        (workload["spec"]["template"].to_string(), workload["metadata"]["annotations"]["ome.io/resource-version"].clone())
    };
    let (first, second) = (pods(4, &[]), pods(5, &[("ome.io/resource-version", "12345"), ("ome.io/last-applied-configuration", "{}")]));
    assert_eq!(first.0, second.0);
    assert_eq!((first.1, second.1), (json!("4"), json!("5")));
}

/// A training job with these annotations; everything else is constant.
fn training(annotations: &[(&str, &str)]) -> Plan {
    let annotations: BTreeMap<&str, &str> = annotations.iter().copied().collect();
    let container = json!({"name": "trainer", "image": "registry.example.com/trainer:1.0", "command": ["torchrun", "train.py"]});
    let job = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "TrainingJob",
        "metadata": {
            "name": "tune", "namespace": "team", "uid": "1", "generation": 1, "annotations": annotations,
            "labels": {
                "infrastructure.ome.io/cluster": "gpu-1", "infrastructure.ome.io/profile": "h100", "infrastructure.ome.io/capacity-reservation": "r",
                "model.ome.io/name": "bert", "model.ome.io/type": "bert", "model.ome.io/vendor": "google", "model.ome.io/format": "safetensors",
                "model.ome.io/size": "110m",
            },
        },
        "spec": {"framework": "pytorch", "worker": {"template": {"spec": {"containers": [container]}}}},
    });
    let context = pointsman_samples::context("elsewhere");
    plan(&world(context.iter().chain([&job])), &job)
}

#[test]
fn what_is_made_for_training_jobs_carries_the_labels_of_the_column() {
    let plain = training(&[]);
    for label in LABELS.iter().chain(&TRAINING_LABELS) {
        // An admission policy sets this one, not the workers' template.
        let expected = if label.key == "training.ome.io/replica-index" { (false, false) } else { (label.jobs, label.jobs && label.pods) };
        assert_eq!(places(&plain, "labels", label.key), expected, "{}", label.key);
    }
}

#[test]
fn the_annotations_of_the_column_and_no_others_change_a_training_job() {
    let own = &["prometheus.io/scrape", "prometheus.io/port", "prometheus.io/path"];
    let told = |plan: &Plan| {
        let mut objects = objects(plan);
        for object in &mut objects {
            for metadata in ["/metadata", "/spec/template/metadata"] {
                if let Some(annotations) = object.pointer_mut(metadata).and_then(|metadata| metadata["annotations"].as_object_mut()) {
                    annotations.retain(|key, _| own.contains(&key.as_str()));
                }
            }
        }
        json!(objects).to_string()
    };
    for annotation in ANNOTATIONS.iter().chain(&TRAINING_ANNOTATIONS).filter(|annotation| annotation.reader != Reader::Nobody) {
        let Annotation { key, example: (value, beside), wrong, .. } = annotation;
        let (without, with) = (training(beside), training(&[*beside, &[(*key, *value)]].concat()));
        let changed = told(&without) != told(&with);
        assert_eq!(changed, annotation.jobs, "{key}");
        let Some(wrong) = wrong.filter(|_| annotation.jobs) else { continue };
        let plan = training(&[*beside, &[(*key, wrong)]].concat());
        let accepted = plan.status.conditions.iter().find(|condition| condition.type_ == "Accepted").unwrap();
        assert_eq!((accepted.status, accepted.reason.as_str()), (Some(false), "InvalidValue"), "{key}: {accepted:?}");
        assert!(accepted.message.contains(key), "{}", accepted.message);
    }
}
