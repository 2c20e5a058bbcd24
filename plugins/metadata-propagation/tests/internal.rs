//! Keys that are never propagated, regardless of their source.
#![allow(clippy::panic)]

mod asking;

use asking::{Ask, Object, PodTemplate, annotation, config, label, patterns, why};
use pointsman_metadata_propagation::{Config, LlmInferenceService};
use pointsman_plugin::{
    Role,
    metadata_propagation::{Place, Sort},
};

/// Whether the subject's label and annotation with that key are propagated to an object and to pods.
fn travels(config: &Config, key: &str) -> [bool; 4] {
    let ask = |place: Place, sort: Sort| {
        let pair = [(key, "1")];
        let (labels, annotations): (&[_], &[_]) = if sort == Sort::Label { (&pair, &[]) } else { (&[], &pair) };
        let answer = Ask::engine(place).layer("subject", labels, annotations).with(config);
        let found = if sort == Sort::Label { label(&answer, key) } else { annotation(&answer, key) };
        match (found.as_str(), why(&answer, sort, "subject", key).as_str()) {
            ("1 (subject)", "-") => true,
            ("-", "Internal") => false,
            other => panic!("{key}: {other:?}"),
        }
    };
    [ask(Object, Sort::Label), ask(PodTemplate, Sort::Label), ask(Object, Sort::Annotation), ask(PodTemplate, Sort::Annotation)]
}

#[test]
fn the_notes_of_tools_and_controllers_stay_where_they_are() {
    for key in [
        "kubectl.kubernetes.io/last-applied-configuration",
        "kubectl.kubernetes.io/restartedAt",
        "pointsman.dev/paused",
        "policy.pointsman.dev/x",
        "a.b.pointsman.dev/x",
        "argocd.argoproj.io/sync-wave",
        "meta.helm.sh/release-name",
        "helm.sh/chart",
        "kustomize.toolkit.fluxcd.io/name",
        "helm.toolkit.fluxcd.io/name",
        "kapp.k14s.io/identity",
        "config.kubernetes.io/index",
        "deployment.kubernetes.io/revision",
        "statefulset.kubernetes.io/pod-name",
        "pod-template-hash",
        "controller-revision-hash",
    ] {
        assert_eq!(travels(&config(), key), [false; 4], "{key}");
    }
}

#[test]
fn what_only_looks_like_them_travels() {
    for key in [
        "notpointsman.dev/x",
        "pointsman.dev.example.com/x",
        "pointsman.dev",
        "toolkit.fluxcd.io/x",
        "sub.helm.sh/x",
        "example.com/pod-template-hash",
        "app.kubernetes.io/instance",
        "helm.sh",
        "ome.io/minReplicas",
        "oci.ome.io/region",
        "training.ome.io/framework",
        "model.ome.io.example.com/max-tokens",
        "submodel.ome.io/max-tokens",
    ] {
        assert_eq!(travels(&config(), key), [true; 4], "{key}");
    }
}

#[test]
fn settings_for_the_controller_are_not_repeated_as_annotations() {
    for key in [
        "ome.io/deploymentMode",
        "ome.io/autoscalerClass",
        "ome.io/min-replicas",
        "ome.io/max-replicas",
        "ome.io/target-utilization",
        "ome.io/resource-version",
        "ome.io/last-applied-configuration",
        "autoscaling.ome.io/enable-keda",
        "autoscaling.knative.dev/target",
        "model.ome.io/max-tokens",
        "model.ome.io/storage-uri",
        "performance.ome.io/batch-size",
        "security.ome.io/secret-ref",
        "storage.ome.io/class",
        "monitoring.ome.io/port",
    ] {
        assert_eq!(travels(&config(), key), [true, true, false, false], "{key}");
    }
}

#[test]
fn settings_of_any_layer_are_not_repeated() {
    for layer in ["runtime", "subject", "component"] {
        let answer = Ask::engine(PodTemplate).layer(layer, &[], &[("security.ome.io/secret-ref", "1")]).answer();
        assert_eq!(annotation(&answer, "security.ome.io/secret-ref"), "-");
        assert_eq!(why(&answer, Sort::Annotation, layer, "security.ome.io/secret-ref"), "Internal");
    }
}

#[test]
fn to_an_llm_inference_service_they_are_keys_like_any_other() {
    let approved = LlmInferenceService { approved_annotations: patterns(&["model.ome.io/"]), ..LlmInferenceService::default() };
    let config = Config { llm_inference_service: approved, ..config() };
    let ask = Ask::new(PodTemplate, Some(Role::Main), None).llm("Deployment");
    let answer = ask.layer("subject", &[], &[("model.ome.io/max-tokens", "1")]).with(&config);
    assert_eq!(annotation(&answer, "model.ome.io/max-tokens"), "1 (subject)");
}

#[test]
fn labels_of_leader_worker_sets_reach_no_pods_and_their_annotations_do() {
    assert_eq!(travels(&config(), "leaderworkerset.sigs.k8s.io/exclusive-topology"), [true, false, true, true]);
}

#[test]
fn versions_reach_objects_and_no_pods() {
    for key in ["ome.io/version", "serving.ome.io/revision"] {
        assert_eq!(travels(&config(), key), [true, false, true, false], "{key}");
    }
}

#[test]
fn more_can_be_configured() {
    let config = Config { internal_keys: patterns(&["team", "secret.example.com/", "tmp-*"]), ..config() };
    for key in ["team", "secret.example.com/a", "tmp-1"] {
        assert_eq!(travels(&config, key), [false; 4], "{key}");
    }
    for key in ["team2", "example.com/team", "secret.example.com.x/a", "tmp"] {
        assert_eq!(travels(&config, key), [true; 4], "{key}");
    }
    assert_eq!(travels(&config, "helm.sh/chart"), [false; 4]);
}

#[test]
fn no_layer_carries_them_not_even_one_that_names_them() {
    let config = Config { namespace_labels: patterns(&["*"]), ..config() };
    for layer in ["namespace", "runtime", "subject", "component"] {
        let answer = Ask::engine(PodTemplate).layer(layer, &[("pod-template-hash", "1")], &[]).with(&config);
        assert_eq!(label(&answer, "pod-template-hash"), "-");
        assert_eq!(why(&answer, Sort::Label, layer, "pod-template-hash"), "Internal");
    }
}

#[test]
fn what_the_host_knows_is_not_configured_away() {
    let config = Config { internal_keys: patterns(&["*"]), ..config() };
    let ask = Ask::engine(Object).layer("facts", asking::FACTS, &[]).layer("subject", &[("a", "1")], &[]);
    let answer = ask.with(&config);
    assert_eq!(label(&answer, "serving.ome.io/model"), "llama-8b (facts)");
    assert_eq!(label(&answer, "ome.io/managed-by"), "ome-controller (plugin)");
    assert_eq!(why(&answer, Sort::Label, "subject", "a"), "Internal");
}

#[test]
fn each_says_whom_the_key_is_for() {
    let said = |key, message: &str| {
        let answer = Ask::engine(PodTemplate).layer("subject", &[], &[(key, "1")]).answer();
        assert_eq!(answer.dropped[0].reason.message, message);
    };
    said("helm.sh/chart", "A tool writes this key for this object alone.");
    said("pod-template-hash", "The cluster's controllers set this key themselves.");
    said("ome.io/deploymentMode", "It is a setting for the controller, so it isn't copied to objects.");
    said("ome.io/version", "Pods don't carry it: a new version would restart them.");
}
