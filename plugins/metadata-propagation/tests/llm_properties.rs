//! An LLMInferenceService's targets get the metadata that its documentation specifies, for any input.

mod asking;
mod oracle;

use asking::{Ask, Object, PodTemplate};
use oracle::{Metadata, Pairs, Service, Target, received};
use pointsman_plugin::{
    Entry, Role,
    metadata_propagation::{Answer, Dropped, Layer, Place, Placed, Sort},
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};

/// The keys of selectors.
const FRAME: [&str; 6] = [
    "app.kubernetes.io/component",
    "app.kubernetes.io/name",
    "app.kubernetes.io/part-of",
    "kserve.io/component",
    "llm-d.ai/role",
    "pointsman.dev/subject-kind",
];

const OTHERS: [&str; 22] = [
    "app.kubernetes.io/managed-by",
    "base-model-name",
    "controller-revision-hash",
    "example.com/prometheus.io",
    "helm.sh/chart",
    "internal.serving.kserve.io/localmodel",
    "k8s.v1.cni.cncf.io/networks",
    "k8s.v1.cni.cncf.iox/networks",
    "kubectl.kubernetes.io/last-applied-configuration",
    "kueue.x-k8s.io",
    "kueue.x-k8s.io/queue-name",
    "leaderworkerset.sigs.k8s.io",
    "leaderworkerset.sigs.k8s.io/size",
    "my-team.example.com/owner",
    "ome.io/managed-by",
    "pod-template-hash",
    "prometheus.io",
    "prometheus.io/x",
    "prometheus.iox/x",
    "serving.kserve.io/stop",
    "sub.kueue.x-k8s.io/queue-name",
    "team",
];

/// A target in the form of the host and of the oracle, with the layers that apply to it.
type TestRequest = (&'static str, Option<Role>, Option<Role>, Place, Target, &'static [&'static str]);

const TARGETS: [TestRequest; 21] = {
    use Role::{Leader, Main, Prefill, Scheduler, Worker};
    use Target::{DecodePods, Other, PrefillPods, SchedulerPods, Workload};
    const DECODE: &[&str] = &["subject", "spec"];
    const PREFILL: &[&str] = &["subject", "spec", "prefill"];
    [
        ("Deployment", Some(Main), None, Object, Workload, DECODE),
        ("Deployment", Some(Main), None, PodTemplate, DecodePods, DECODE),
        ("Deployment", Some(Prefill), None, Object, Workload, PREFILL),
        ("Deployment", Some(Prefill), None, PodTemplate, PrefillPods, PREFILL),
        ("LeaderWorkerSet", Some(Main), None, Object, Workload, DECODE),
        ("LeaderWorkerSet", Some(Leader), Some(Main), PodTemplate, DecodePods, DECODE),
        ("LeaderWorkerSet", Some(Worker), Some(Main), PodTemplate, DecodePods, DECODE),
        ("LeaderWorkerSet", Some(Prefill), None, Object, Workload, PREFILL),
        ("LeaderWorkerSet", Some(Leader), Some(Prefill), PodTemplate, PrefillPods, PREFILL),
        ("LeaderWorkerSet", Some(Worker), Some(Prefill), PodTemplate, PrefillPods, PREFILL),
        ("Deployment", Some(Scheduler), None, Object, Other, &["scheduler"]),
        ("Deployment", Some(Scheduler), None, PodTemplate, SchedulerPods, &["scheduler"]),
        ("Service", Some(Scheduler), None, Object, Other, &[]),
        ("InferencePool", Some(Scheduler), None, Object, Other, &[]),
        ("ServiceAccount", Some(Scheduler), None, Object, Other, &[]),
        ("Service", Some(Main), None, Object, Other, &[]),
        ("HorizontalPodAutoscaler", Some(Main), None, Object, Other, &[]),
        ("ScaledObject", Some(Prefill), None, Object, Other, &[]),
        ("PodDisruptionBudget", Some(Prefill), None, Object, Other, &[]),
        ("HTTPRoute", None, None, Object, Other, &[]),
        ("Role", None, None, Object, Other, &[]),
    ]
};

fn key() -> impl Strategy<Value = String> {
    let known: Vec<&str> = FRAME.into_iter().chain(OTHERS).collect();
    prop_oneof![
        8 => select(known).prop_map(str::to_owned),
        1 => "(kueue\\.x-k8s|prometheus|k8s\\.v1\\.cni\\.cncf)\\.i[ox]?(/[a-c])?",
        1 => "[a-c]{1,2}(/[a-c])?",
    ]
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let value = || select(vec!["", "1", "2", "gpu-queue", "a.b_C"]).prop_map(str::to_owned);
    let labels = btree_map(key(), value(), 0..8);
    let annotations = btree_map(key(), prop_oneof![3 => value(), 1 => any::<String>()], 0..8);
    (labels, annotations).prop_map(|(labels, annotations)| Metadata { labels, annotations })
}

fn service() -> impl Strategy<Value = Service> {
    (metadata(), metadata(), option::of(metadata()), option::of(metadata())).prop_map(|(metadata, spec, prefill, scheduler)| Service {
        metadata,
        spec,
        prefill,
        scheduler,
    })
}

/// The labels of the host, and the metadata of a template.
fn frame() -> impl Strategy<Value = (Vec<Placed>, Metadata)> {
    let of_host = vec(select(vec!["1", "2"]), FRAME.len())
        .prop_map(|values| FRAME.iter().zip(values).map(|(key, value)| asking::placed(key, value, "host")).collect());
    (of_host, metadata())
}

fn layers(namespace: &Pairs, service: &Service) -> Vec<Layer> {
    let entries = |pairs: &Pairs| pairs.iter().map(|(key, value)| Entry { key: key.clone(), value: value.clone() }).collect();
    let layer = |name: &str, written: &Metadata| Layer {
        name: name.into(),
        labels: entries(&written.labels),
        annotations: entries(&written.annotations),
    };
    let of_namespace = Metadata { labels: namespace.clone(), ..Metadata::default() };
    let mut layers = vec![layer("namespace", &of_namespace), layer("subject", &service.metadata), layer("spec", &service.spec)];
    layers.extend(service.prefill.as_ref().map(|prefill| layer("prefill", prefill)));
    layers.extend(service.scheduler.as_ref().map(|scheduler| layer("scheduler", scheduler)));
    layers
}

/// The metadata of a target including its frame, which takes precedence.
fn framed(mut received: Metadata, labels: &[Placed], annotations: &[Placed], place: Place) -> Metadata {
    let pairs = |placed: &[Placed]| placed.iter().map(|placed| (placed.key.clone(), placed.value.clone())).collect::<Vec<_>>();
    received.labels.extend(pairs(labels));
    received.annotations.extend(pairs(annotations));
    if place == Object {
        received.labels.entry("app.kubernetes.io/managed-by".into()).or_insert_with(|| "pointsman".into());
    }
    received
}

fn of_answer(answer: &Answer) -> Metadata {
    let pairs = |placed: &[Placed]| placed.iter().map(|placed| (placed.key.clone(), placed.value.clone())).collect();
    Metadata { labels: pairs(&answer.labels), annotations: pairs(&answer.annotations) }
}

fn is_told(dropped: &[Dropped], sort: Sort, layer: &str, key: &str) -> bool {
    dropped.iter().any(|dropped| (dropped.sort, dropped.layer.as_str(), dropped.key.as_str()) == (sort, layer, key))
}

proptest! {
    #[test]
    fn all_targets_get_what_the_documentation_says(
        service in service(), namespace in btree_map(key(), "[a-z]", 0..4), (of_host, of_template) in frame(),
    ) {
        let layers = layers(&namespace, &service);
        for (kind, role, group_role, place, target, with_a_say) in TARGETS {
            let mut request = Ask::new(place, role, group_role).llm(kind).0;
            request.layers.clone_from(&layers);
            request.labels.clone_from(&of_host);
            if place == PodTemplate {
                let placed = |(key, value): (&String, &String)| asking::placed(key, value, "template");
                let others = of_template.labels.iter().filter(|(key, _)| !FRAME.contains(&key.as_str()));
                request.labels.extend(others.map(placed));
                request.annotations = of_template.annotations.iter().map(placed).collect();
            }
            let expected = framed(received(&service, target), &request.labels, &request.annotations, place);
            let answer = Ask(request).answer();
            let got = of_answer(&answer);
            prop_assert_eq!(&got, &expected, "{} {:?} {:?}", kind, role, place);
            prop_assert_eq!(answer.reasons, []);

            // An entry of a layer that applies is either placed or reported. Entries of other layers aren't reported.
            for Layer { name, labels, annotations } in &layers {
                let has_a_say = with_a_say.contains(&name.as_str());
                prop_assert!(has_a_say || answer.dropped.iter().all(|dropped| &dropped.layer != name), "{} {:?}", name, answer.dropped);
                for (sort, entries, got) in [(Sort::Label, labels, &got.labels), (Sort::Annotation, annotations, &got.annotations)] {
                    for Entry { key, value } in entries.iter().filter(|_| has_a_say) {
                        let is_there = got.get(key) == Some(value);
                        prop_assert!(is_there != is_told(&answer.dropped, sort, name, key), "{name} {key} {value}");
                    }
                }
            }
        }
    }
}
