//! The propagation of labels and annotations to objects and pods: KServe's page, with its examples and row by row, on the objects that
//! Kubernetes and LeaderWorkerSet create.

use super::{SHAPES, Shape, pods, ready, with_model};
use crate::services::Space;
use pointsman_core::resource::DEPLOYMENT;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The page's examples, with the expected labels and annotations of each object.
fn examples() -> [(&'static str, &'static str, Expected); 3] {
    let everywhere = |(labels, annotations): (Value, Value)| {
        let both = Carried { labels, annotations };
        Expected { objects: both.clone(), decode: both.clone(), prefill: both, scheduler: Carried::default() }
    };
    let scraped = json!({"prometheus.io/scrape": "true", "prometheus.io/port": "8000", "prometheus.io/path": "/metrics"});
    let base = json!({"platform.example.com/cost-center": "ai-infra", "platform.example.com/team": "ml-platform"});
    let monitored = json!({"platform.example.com/monitored": "true"});
    let per_component = Expected {
        objects: Carried::default(),
        decode: Carried { labels: base.clone(), annotations: monitored.clone() },
        prefill: Carried {
            labels: with(base, json!({"platform.example.com/role": "prefill"})),
            annotations: with(monitored, json!({"platform.example.com/slo": "latency-sensitive"})),
        },
        scheduler: Carried {
            labels: json!({"platform.example.com/role": "scheduler"}),
            annotations: json!({"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}),
        },
    };
    [
        ("prometheus", include_str!("examples/prometheus.yaml"), everywhere((json!({}), scraped))),
        ("kueue", include_str!("examples/kueue.yaml"), everywhere((json!({"kueue.x-k8s.io/queue-name": "gpu-queue"}), json!({})))),
        ("per-component", include_str!("examples/per-component.yaml"), per_component),
    ]
}

/// All layers at once: each row of the page's summary, with keys that several layers set and keys that aren't propagated.
fn rows() -> (Value, Expected) {
    let own = json!({
        "my-team.example.com/owner": "me", "internal.serving.kserve.io/secret": "x", "internal.example.com/note": "x",
        "kueue.x-k8s.io/queue-name": "gpu-queue", "kueue.x-k8s.io/priority-class": "high",
    });
    let scrape = json!({
        "prometheus.io/scrape": "true", "prometheus.io/port": "8000", "prometheus.io/path": "/metrics",
        "k8s.v1.cni.cncf.io/networks": "rdma-net",
    });
    let service = json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService",
        // Annotations and labels have different propagated prefixes.
        "metadata": {"labels": with(own.clone(), json!({"prometheus.io/scrape": "no"})), "annotations": with(own, scrape.clone())},
        "spec": with_model(json!({
            "labels": {"platform.example.com/team": "ml-platform", "kueue.x-k8s.io/queue-name": "decode-queue"},
            "annotations": {"platform.example.com/monitored": "true", "prometheus.io/port": "9000"},
            "prefill": {
                "labels": {
                    "platform.example.com/role": "prefill", "platform.example.com/team": "prefill-team",
                    "kueue.x-k8s.io/priority-class": "low",
                },
                "annotations": {"platform.example.com/slo": "latency-sensitive", "prometheus.io/path": "/prefill"},
            },
            "router": {"scheduler": {
                "labels": {"platform.example.com/role": "scheduler"},
                "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            }},
        })),
    });
    let queued = json!({"kueue.x-k8s.io/queue-name": "gpu-queue", "kueue.x-k8s.io/priority-class": "high"});
    let of_metadata = with(queued.clone(), scrape);
    let decode = Carried {
        labels: with(queued.clone(), json!({"platform.example.com/team": "ml-platform", "kueue.x-k8s.io/queue-name": "decode-queue"})),
        annotations: with(of_metadata.clone(), json!({"platform.example.com/monitored": "true", "prometheus.io/port": "9000"})),
    };
    let prefill = Carried {
        labels: with(
            decode.labels.clone(),
            json!({
                "platform.example.com/role": "prefill", "platform.example.com/team": "prefill-team",
                "kueue.x-k8s.io/priority-class": "low",
            }),
        ),
        annotations: with(
            decode.annotations.clone(),
            json!({"platform.example.com/slo": "latency-sensitive", "prometheus.io/path": "/prefill"}),
        ),
    };
    let scheduler = Carried {
        labels: json!({"platform.example.com/role": "scheduler"}),
        annotations: json!({"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}),
    };
    (service, Expected { objects: Carried { labels: queued, annotations: of_metadata }, decode, prefill, scheduler })
}

/// The labels and annotations of an object that the service sets.
#[derive(Clone, Debug, PartialEq)]
struct Carried {
    labels: Value,
    annotations: Value,
}

impl Default for Carried {
    fn default() -> Self {
        Self { labels: json!({}), annotations: json!({}) }
    }
}

/// The expected ones on the workload objects, and on all pods.
struct Expected {
    objects: Carried,
    decode: Carried,
    prefill: Carried,
    scheduler: Carried,
}

/// Compares the objects and pods with the expected labels and annotations.
async fn check(space: &Space<'_>, shape: &Shape, name: &str, expected: &Expected) {
    let service = ready(space, name).await;
    let given = given(&service);
    assert!(given.contains("kubectl.kubernetes.io/last-applied-configuration"), "{given:?}");
    for (resource, workload) in shape.workloads(name) {
        assert_eq!(carried(&space.get(resource, &workload).await, &given), expected.objects, "{} {workload}", resource.kind);
    }
    let scheduled = service["spec"]["router"]["scheduler"].is_object();
    if scheduled {
        let object = space.get(&DEPLOYMENT, &format!("{name}-kserve-router-scheduler")).await;
        assert_eq!(carried(&object, &given), Carried::default(), "{name}: the scheduler's Deployment");
    }
    let pods = pods(space, name).await;
    let mut components = shape.components();
    components.extend(scheduled.then(|| "router-scheduler".to_owned()));
    assert_eq!(pods.keys().cloned().collect::<BTreeSet<_>>(), components, "{name}");
    for (component, pods) in pods {
        let expected = match component.as_str() {
            "router-scheduler" => &expected.scheduler,
            prefill if prefill.ends_with("-prefill") => &expected.prefill,
            _ => &expected.decode,
        };
        for pod in pods {
            assert_eq!(carried(&pod, &given), *expected, "{name}: {component}");
        }
    }
}

/// All keys that a service sets anywhere, so that unexpected ones are found everywhere.
fn given(service: &Value) -> BTreeSet<String> {
    let places = ["/metadata", "/spec", "/spec/prefill", "/spec/router/scheduler"];
    let maps = places.iter().flat_map(|place| ["labels", "annotations"].map(|map| format!("{place}/{map}")));
    let keys = maps.filter_map(|path| service.pointer(&path)?.as_object().cloned()).flatten();
    keys.map(|(key, _)| key).collect()
}

/// The labels and annotations of an object with those keys.
fn carried(object: &Value, given: &BTreeSet<String>) -> Carried {
    let of = |map: &str| {
        let map = object["metadata"][map].as_object().cloned().unwrap_or_default();
        map.into_iter().filter(|(key, _)| given.contains(key)).collect::<Map<_, _>>().into()
    };
    Carried { labels: of("labels"), annotations: of("annotations") }
}

/// One map merged over another.
fn with(mut map: Value, over: Value) -> Value {
    let Value::Object(over) = over else { panic!("{over} is no map") };
    map.as_object_mut().unwrap().extend(over);
    map
}

#[tokio::test]
async fn the_page_s_examples_hold_in_every_topology() {
    let space = Space::shared_bare("llm-examples").await;
    let examples = examples();
    let applied = examples.iter().flat_map(|(what, text, expected)| SHAPES.iter().map(move |shape| (what, text, expected, shape)));
    // Apply all of them first, so that they become Ready in parallel.
    let applied: Vec<_> = applied
        .map(|(what, text, expected, shape)| (shape.apply(&space, what, serde_saphyr::from_str(text).unwrap()), shape, expected))
        .collect();
    for (name, shape, expected) in applied {
        check(&space, shape, &name, expected).await;
    }
}

#[tokio::test]
async fn each_row_of_the_page_holds_in_every_topology() {
    let space = Space::shared_bare("llm-rows").await;
    let (service, expected) = rows();
    let names = SHAPES.map(|shape| (shape.apply(&space, "rows", service.clone()), shape));
    for (name, shape) in names {
        check(&space, &shape, &name, &expected).await;
    }
}
