//! The host's facts, and upstream's keys.

mod asking;

use asking::{Ask, FACTS, Object, Pairs, PodTemplate, annotation, config, dropped, keys, label, shown, why};
use pointsman_metadata_propagation::Config;
use pointsman_plugin::{
    Role,
    metadata_propagation::{Placed, Sort},
};

const STANDARD: [&str; 12] = [
    "model.ome.io/format",
    "model.ome.io/name",
    "model.ome.io/size",
    "model.ome.io/type",
    "model.ome.io/vendor",
    "ome.io/component",
    "ome.io/managed-by",
    "ome.io/part-of",
    "serving.ome.io/component",
    "serving.ome.io/inferenceservice",
    "serving.ome.io/model",
    "serving.ome.io/runtime",
];

fn without_upstream() -> Config {
    Config { upstream_keys: false, ..config() }
}

fn sorted(mut keys: Vec<&str>) -> Vec<&str> {
    keys.sort_unstable();
    keys
}

#[test]
fn objects_get_the_standard_keys_and_the_version() {
    let answer = Ask::engine(Object).layer("facts", FACTS, &[]).with(&without_upstream());
    let more = ["app.kubernetes.io/managed-by", "ome.io/version"];
    assert_eq!(keys(&answer.labels), sorted([&STANDARD[..], &more].concat()));
    assert_eq!(label(&answer, "ome.io/managed-by"), "ome-controller (plugin)");
    assert_eq!(label(&answer, "app.kubernetes.io/managed-by"), "pointsman (plugin)");
    assert_eq!(label(&answer, "ome.io/version"), "v0.1.0 (facts)");
    assert!(answer.annotations.is_empty());
}

#[test]
fn pods_get_them_without_the_version() {
    let answer = Ask::engine(PodTemplate).layer("facts", FACTS, &[]).with(&without_upstream());
    assert_eq!(keys(&answer.labels), STANDARD);
    assert_eq!(why(&answer, Sort::Label, "facts", "ome.io/version"), "ObjectsOnly");
}

#[test]
fn a_version_that_the_user_gives_reaches_no_pod_either() {
    let user: Pairs<'_> = &[("ome.io/version", "mine"), ("serving.ome.io/revision", "7")];
    for facts in [FACTS, &[]] {
        let answer = Ask::engine(PodTemplate).layer("subject", user, user).layer("facts", facts, &[]).answer();
        for key in ["ome.io/version", "serving.ome.io/revision"] {
            assert_eq!((label(&answer, key), annotation(&answer, key)), ("-".into(), "-".into()));
            assert_eq!(why(&answer, Sort::Label, "subject", key), "Internal");
            assert_eq!(why(&answer, Sort::Annotation, "subject", key), "Internal");
        }
    }
    let of_object = Ask::engine(Object).layer("subject", user, &[]).layer("facts", FACTS, &[]).answer();
    assert_eq!(label(&of_object, "ome.io/version"), "v0.1.0 (facts)");
    assert_eq!(dropped(&of_object), ["subject ome.io/version Overridden"]);
}

#[test]
fn a_known_fact_wins_over_what_the_user_gives_under_its_key() {
    let user: Vec<_> = STANDARD.iter().map(|key| (*key, "mine")).collect();
    for place in [Object, PodTemplate] {
        let answer = Ask::engine(place).layer("subject", &user, &[]).layer("facts", FACTS, &[]).answer();
        let told: Vec<_> = STANDARD.iter().map(|key| format!("subject {key} Overridden")).collect();
        assert_eq!(dropped(&answer), told);
    }
}

#[test]
fn where_a_fact_is_not_known_the_users_value_travels() {
    for place in [Object, PodTemplate] {
        let user = [("model.ome.io/vendor", "mine"), ("serving.ome.io/model", "mine"), ("model.ome.io/quantization", "int4")];
        let answer = Ask::engine(place).layer("subject", &user, &[]).answer();
        for (key, value) in user {
            assert_eq!(label(&answer, key), format!("{value} (subject)"));
        }
        assert_eq!(answer.dropped, []);
    }
}

#[test]
fn what_an_object_belongs_to_only_the_host_tells() {
    let user = [("serving.ome.io/component", "engine"), ("serving.ome.io/inferenceservice", "other")];
    let answer = Ask::new(Object, None, None).layer("subject", &user, &[]).answer();
    assert_eq!(dropped(&answer), ["subject serving.ome.io/component Internal", "subject serving.ome.io/inferenceservice Internal"]);
}

#[test]
fn who_manages_it_can_be_configured() {
    let answer = Ask::engine(PodTemplate).with(&Config { managed_by: "pointsman".into(), ..config() });
    assert_eq!(label(&answer, "ome.io/managed-by"), "pointsman (plugin)");
}

#[test]
fn an_object_is_managed_by_pointsman_unless_a_layer_says_otherwise() {
    let key = "app.kubernetes.io/managed-by";
    let other = |place, layer| Ask::engine(place).layer(layer, &[(key, "Helm")], &[]).answer();
    assert_eq!(label(&Ask::engine(Object).answer(), key), "pointsman (plugin)");
    assert_eq!(label(&Ask::engine(PodTemplate).answer(), key), "-");
    assert_eq!(label(&other(Object, "subject"), key), "Helm (subject)");
    assert_eq!(other(Object, "subject").dropped, []);
    assert_eq!(label(&other(PodTemplate, "subject"), key), "Helm (subject)");
    // The runtime's value isn't propagated to the object.
    assert_eq!(label(&other(Object, "runtime"), key), "pointsman (plugin)");
    assert_eq!(dropped(&other(Object, "runtime")), [format!("runtime {key} PodsOnly")]);
}

#[test]
fn a_role_gets_upstreams_keys_on_its_objects_and_its_pods() {
    for place in [Object, PodTemplate] {
        let answer = Ask::engine(place).layer("facts", FACTS, &[]).answer();
        let standard = |placed: &&Placed| !STANDARD.contains(&placed.key.as_str());
        let labels: Vec<_> = answer.labels.iter().filter(standard).cloned().collect();
        let of_object = ["app.kubernetes.io/managed-by=pointsman (plugin)", "ome.io/version=v0.1.0 (facts)"];
        let mut expected = vec![
            "base-model-name=llama-8b (facts)",
            "base-model-size=8B (facts)",
            "base-model-type=text-generation (facts)",
            "base-model-vendor=meta (facts)",
            "component=engine (plugin)",
            "fine-tuned-serving=false (facts)",
            "ome.io/inferenceservice=llama (facts)",
            "serving-runtime=vllm (facts)",
        ];
        expected.extend(of_object.iter().filter(|_| place == Object));
        assert_eq!(shown(&labels), sorted(expected));
        let annotations = [
            "ome.io/base-model-format=safetensors (facts)",
            "ome.io/base-model-name=llama-8b (facts)",
            "ome.io/base-model-vendor=meta (facts)",
            "ome.io/serving-runtime=vllm (facts)",
        ];
        assert_eq!(shown(&answer.annotations), annotations);
    }
}

#[test]
fn an_object_of_the_whole_service_gets_only_its_name_of_them() {
    let answer = Ask::new(Object, None, None).layer("facts", FACTS, &[]).answer();
    let more = ["app.kubernetes.io/managed-by", "ome.io/version", "ome.io/inferenceservice"];
    assert_eq!(keys(&answer.labels), sorted([&STANDARD[..], &more].concat()));
    assert!(answer.annotations.is_empty());
    assert_eq!(why(&answer, Sort::Label, "facts", "fine-tuned-serving"), "RolesOnly");
}

#[test]
fn upstreams_keys_can_be_switched_off() {
    let answer = Ask::engine(PodTemplate).layer("facts", FACTS, &[]).with(&without_upstream());
    assert_eq!(keys(&answer.labels), STANDARD);
    assert_eq!(why(&answer, Sort::Label, "facts", "fine-tuned-serving"), "SwitchedOff");
    let user = Ask::engine(Object).layer("subject", &[("component", "mine")], &[]);
    assert_eq!(label(&user.with(&without_upstream()), "component"), "mine (subject)");
}

#[test]
fn the_component_is_the_role_or_that_of_its_group() {
    let component = |role, group_role| label(&Ask::new(PodTemplate, Some(role), group_role).answer(), "component");
    assert_eq!(component(Role::Engine, None), "engine (plugin)");
    assert_eq!(component(Role::Decoder, None), "decoder (plugin)");
    assert_eq!(component(Role::Router, None), "router (plugin)");
    assert_eq!(component(Role::Leader, Some(Role::Engine)), "engine (plugin)");
    assert_eq!(component(Role::Worker, Some(Role::Decoder)), "decoder (plugin)");
    assert_eq!(component(Role::Worker, None), "-");
    assert_eq!(component(Role::Main, None), "-");
}

#[test]
fn upstreams_keys_win_over_the_users() {
    let answer = Ask::engine(Object).layer("subject", &[("component", "mine")], &[("ome.io/serving-runtime", "mine")]);
    let answer = answer.layer("facts", FACTS, &[]).answer();
    assert_eq!(dropped(&answer), ["subject component Overridden", "subject ome.io/serving-runtime Overridden"]);
    assert_eq!(answer.dropped[0].reason.message, "The stronger layer plugin sets this key to another value.");
}

#[test]
fn what_is_not_known_is_left_out() {
    let answer = Ask::engine(PodTemplate).layer("facts", &[("model.ome.io/name", "llama-8b")], &[]).answer();
    assert_eq!(keys(&answer.labels), ["base-model-name", "component", "model.ome.io/name", "ome.io/managed-by"]);
    assert_eq!(keys(&answer.annotations), ["ome.io/base-model-name"]);
}

#[test]
fn a_fact_without_rules_is_told() {
    let answer = Ask::engine(Object).layer("facts", &[("colour", "red")], &[("colour", "red")]).answer();
    assert_eq!(why(&answer, Sort::Label, "facts", "colour"), "UnknownFact");
    assert_eq!(why(&answer, Sort::Annotation, "facts", "colour"), "UnknownFact");
}
