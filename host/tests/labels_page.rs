//! The table of docs/labels-and-annotations.md is what the code does.
#![allow(clippy::unwrap_used, clippy::panic)]

mod planning;
mod policies;

use planning::{plan, world};
use pointsman_core::plan::{Object, Plan};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The labels of OME's page that concern an InferenceService.
const LABELS: [&str; 17] = [
    "infrastructure.ome.io/capacity-reservation",
    "infrastructure.ome.io/cluster",
    "infrastructure.ome.io/profile",
    "model.ome.io/format",
    "model.ome.io/name",
    "model.ome.io/size",
    "model.ome.io/type",
    "model.ome.io/vendor",
    "ome.io/component",
    "ome.io/managed-by",
    "ome.io/part-of",
    "ome.io/version",
    "serving.ome.io/component",
    "serving.ome.io/inferenceservice",
    "serving.ome.io/model",
    "serving.ome.io/revision",
    "serving.ome.io/runtime",
];

/// An annotation of the page: a value, what must be said beside it, and a value that it can't have.
struct Annotation {
    key: &'static str,
    value: &'static str,
    beside: &'static [(&'static str, &'static str)],
    wrong: Option<&'static str>,
}

const fn row(
    key: &'static str,
    value: &'static str,
    beside: &'static [(&'static str, &'static str)],
    wrong: Option<&'static str>,
) -> Annotation {
    Annotation { key, value, beside, wrong }
}

const SERVERLESS: &[(&str, &str)] = &[("ome.io/deploymentMode", "Serverless")];
const SCRAPED: &[(&str, &str)] = &[("monitoring.ome.io/scrape", "true")];
const SIZED: &[(&str, &str)] = &[("storage.ome.io/size", "1Gi")];

/// Its annotations that somebody sets.
const SET: [Annotation; 28] = [
    row("autoscaling.knative.dev/metric", "rps", SERVERLESS, None),
    row("autoscaling.knative.dev/target", "20", SERVERLESS, None),
    row("autoscaling.ome.io/enable-keda", "true", SERVERLESS, Some("maybe")),
    row("autoscaling.ome.io/metric", "memory", &[], Some("happiness")),
    row("autoscaling.ome.io/target", "60", &[], Some("lots")),
    row("model.ome.io/context-length", "4096", &[], Some("long")),
    row("model.ome.io/max-tokens", "4096", &[], Some("-1")),
    row("model.ome.io/quantization", "fp8", &[], Some("f p 8")),
    row("model.ome.io/storage-uri", "hf://org/model", &[], Some("somewhere")),
    row("monitoring.ome.io/path", "/stats", SCRAPED, Some("stats")),
    row("monitoring.ome.io/port", "9400", SCRAPED, Some("0")),
    row("monitoring.ome.io/scrape", "true", &[], Some("yes")),
    row("oci.ome.io/availability-domain", "PHX-AD-1", &[], Some(" ")),
    row("oci.ome.io/compartment-id", "ocid1.compartment.oc1..", &[], Some("")),
    row("oci.ome.io/region", "us-phoenix-1", &[], Some("")),
    row("ome.io/deploymentMode", "Serverless", &[], Some("Bare")),
    row("ome.io/max-replicas", "7", &[], Some("-1")),
    row("ome.io/min-replicas", "2", &[], Some("two")),
    row("ome.io/target-utilization", "70", &[], Some("0")),
    row("performance.ome.io/batch-size", "8", &[], Some("0")),
    row("performance.ome.io/gpu-memory-fraction", "0.8", &[], Some("1.5")),
    row("performance.ome.io/max-batch-delay", "10ms", &[], Some("10")),
    row("security.ome.io/network-policy", "allow-inference-only", &[], Some("allow-all")),
    row("security.ome.io/pod-security-policy", "restricted", &[], Some("strict")),
    row("security.ome.io/secret-ref", "model-credentials", &[], Some("No Secret")),
    row("storage.ome.io/access-mode", "ReadWriteMany", SIZED, Some("ReadMostly")),
    row("storage.ome.io/class", "fast-ssd", SIZED, Some("-")),
    row("storage.ome.io/size", "100Gi", &[], Some("big")),
];

/// Those that are written to what is made.
const WRITTEN: [&str; 2] = ["ome.io/last-applied-configuration", "ome.io/resource-version"];

/// The rows of one of the document's tables: the key, and whether objects and pods carry it.
fn table(title: &str) -> BTreeMap<String, (bool, bool)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/labels-and-annotations.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with(title)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let yes = |cell: &str| match cell {
        "yes" => true,
        "no" => false,
        other => panic!("{other} is neither yes nor no"),
    };
    cells.map(|cells| (cells[1].trim_matches('`').to_owned(), (yes(cells[2]), yes(cells[3])))).collect()
}

/// A service with these annotations, of which everything else is always the same.
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
    plan.objects.as_ref().unwrap_or_else(|| panic!("{:#?}", plan.status.conditions)).iter().map(Object::whole).collect()
}

/// What runs the engine.
fn workload(plan: &Plan) -> Value {
    let all = objects(plan);
    let template = |object: &&Value| object["spec"]["template"].is_object();
    all.iter().find(template).unwrap().clone()
}

/// Where a key of labels or annotations is: on the workload, and on its pods.
fn places(plan: &Plan, map: &str, key: &str) -> (bool, bool) {
    let workload = workload(plan);
    let on = |metadata: &Value| metadata[map].get(key).is_some();
    (on(&workload["metadata"]), on(&workload["spec"]["template"]["metadata"]))
}

#[test]
fn the_document_has_all_of_the_page_and_nothing_else() {
    assert_eq!(table("Labels").into_keys().collect::<BTreeSet<_>>(), LABELS.map(str::to_owned).into());
    let annotations: BTreeSet<String> = SET.iter().map(|row| row.key).chain(WRITTEN).map(str::to_owned).collect();
    assert_eq!(table("Annotations").into_keys().collect::<BTreeSet<_>>(), annotations);
}

#[test]
fn objects_and_pods_carry_the_keys_that_the_document_says() {
    let plain = planned(&[]);
    for (label, expected) in table("Labels") {
        assert_eq!(places(&plain, "labels", &label), expected, "{label}");
    }
    let table = table("Annotations");
    for key in WRITTEN {
        // What somebody writes under these keys goes nowhere.
        assert_eq!(places(&planned(&[(key, "theirs")]), "annotations", key), table[key], "{key}");
        assert_ne!(workload(&planned(&[(key, "theirs")]))["metadata"]["annotations"][key], "theirs");
    }
    for Annotation { key, value, beside, .. } in SET {
        let plan = planned(&[beside, &[(key, value)]].concat());
        assert_eq!(places(&plan, "annotations", key), table[key], "{key}");
    }
}

#[test]
fn every_annotation_changes_what_is_made_or_told() {
    for Annotation { key, value, beside, .. } in SET {
        let told = |plan: &Plan| {
            let conditions: Vec<_> = plan.status.conditions.iter().map(|condition| condition.message.clone()).collect();
            let mut objects = objects(plan);
            for object in &mut objects {
                // A number, a hash and a copy of the key itself are no meaning.
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
        let (without, with) = (planned(beside), planned(&[beside, &[(key, value)]].concat()));
        assert!(told(&without) != told(&with), "{key} means nothing");
    }
}

#[test]
fn a_value_that_can_not_be_read_is_refused_by_the_name_of_its_key() {
    for Annotation { key, wrong, beside, .. } in SET {
        let Some(wrong) = wrong else { continue };
        let plan = planned(&[beside, &[(key, wrong)]].concat());
        assert!(plan.objects.is_none(), "{key}: {wrong:?} is taken");
        let accepted = plan.status.conditions.iter().find(|condition| condition.type_ == "Accepted").unwrap();
        assert_eq!((accepted.status, accepted.reason.as_str()), (Some(false), "InvalidValue"), "{key}: {accepted:?}");
        assert!(accepted.message.contains(key) && accepted.message.contains("it must be"), "{}", accepted.message);
    }
}

/// Whoever writes a value is told of it at admission, by the same rules, before the controller refuses it.
#[test]
fn the_practices_warn_of_what_is_refused_and_of_nothing_else() {
    for Annotation { key, value, wrong, beside } in SET {
        let valid = |value: &str| {
            let conditions = planned(&[beside, &[(key, value)]].concat()).status.conditions;
            conditions.into_iter().find(|condition| condition.type_ == "Valid").unwrap()
        };
        let right = valid(value);
        assert_eq!(right.reason, "Valid", "{key}: {value:?}: {}", right.message);
        let Some(wrong) = wrong else { continue };
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
