//! LLMInferenceServices: how preset, base configurations and service are merged, and the minimum content of a pod.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{llm, main};
use pointsman_plugin::Role;
use serde_json::{Value, json};

#[test]
fn the_preset_is_the_weakest_and_the_service_the_strongest() {
    let layer =
        |image: &str, args: &[&str]| json!({"pod": {"hostname": image, "containers": [{"name": "main", "image": image, "args": args}]}});
    let base = json!({"pod": {"hostname": "two", "nodeSelector": {"zone": "a"}, "containers": [{"name": "main", "args": ["--b"]}]}});
    let user = json!({"pod": {"containers": [{"env": [{"name": "A", "value": "1"}]}]}});
    let asked = llm([
        ("preset", layer("preset", &["--a"])),
        ("base:one", layer("one", &["--one"])),
        ("base:two", base),
        ("user", user),
        ("accelerator", layer("unknown", &[])),
    ]);
    let expected = [
        "preset + /spec/containers []",
        r#"preset + /spec/containers/- {"name":"main"}"#,
        r#"base:two + /spec/containers/0/args ["--b"]"#,
        r#"user + /spec/containers/0/env [{"name":"A","value":"1"}]"#,
        r#"base:one + /spec/containers/0/image "one""#,
        r#"plugin + /spec/containers/0/readinessProbe {"tcpSocket":{"port":8000}}"#,
        r#"base:two + /spec/hostname "two""#,
        r#"base:two + /spec/nodeSelector {"zone":"a"}"#,
    ];
    assert_eq!(asked.steps(), expected);
}

#[test]
fn only_main_is_the_main_container() {
    let preset = main(json!({"args": ["serve"]}));
    let names = |user: Value| -> Vec<(Value, Value)> {
        let spec = llm([("preset", preset.clone()), ("user", json!({"pod": {"containers": user}}))]).spec();
        spec["containers"].as_array().unwrap().iter().map(|container| (container["name"].clone(), container["image"].clone())).collect()
    };
    let pair = |name: &str, image: &str| (json!(name), json!(image));
    assert_eq!(names(json!([{"image": "mine"}])), [pair("main", "mine")], "who has no name is main, and blanks none");
    assert_eq!(names(json!([{"name": "", "image": "mine"}])), [pair("main", "mine")]);
    assert_eq!(names(json!([{"name": "proxy", "image": "p"}])), [pair("main", "engine:1"), pair("proxy", "p")]);
    let two = json!({"pod": {"containers": [{"image": "a"}, {"image": "b"}]}});
    assert!(llm([("user", two)]).failure().starts_with("user.pod.containers has two containers that are main"));
    let base = json!({"pod": {"containers": [{"name": "main", "args": [1]}]}});
    assert!(llm([("base:one", base)]).failure().starts_with("base:one.pod.containers.0.args.0 must be a string"));
}

#[test]
fn arguments_merge_by_flag_where_that_is_configured() {
    let layers = || [("preset", main(json!({"args": ["--port", "8000", "--a"]}))), ("user", main(json!({"args": ["--port=9", "--b"]})))];
    let args = |config: Value| llm(layers()).config(config).container()["args"].take();
    assert_eq!(args(json!({})), json!(["--port=9", "--b"]));
    assert_eq!(args(json!({"arguments": "MergeByFlag"})), json!(["--port=9", "--a", "--b"]));
}

#[test]
fn the_frame_and_braces_and_variables_are_left_alone() {
    let words = json!(["{{.Name}}", "$(MODEL_PATH)", "$(LWS_LEADER_ADDRESS)", "$$(A)"]);
    let frame = json!({"metadata": {}, "spec": {"serviceAccountName": "frame"}});
    let asked = llm([("preset", main(json!({"args": words}))), ("model", json!({"uri": "pvc://claim", "name": "m"}))]).template(&frame);
    assert_eq!(asked.container()["args"], words);
    assert_eq!(asked.container().get("env"), None);
    assert_eq!(asked.spec()["serviceAccountName"], "frame");
}

#[test]
fn without_an_image_there_is_a_sentence_that_says_where_to_set_one() {
    let told = |place: &str| {
        format!(
            "the container main has no image: set spec.{place}.containers[name=main].image in the service, \
             or in an LLMInferenceServiceConfig that it names in spec.baseRefs"
        )
    };
    let other = || [("preset", json!({"pod": null})), ("user", json!({"pod": {"containers": [{"name": "proxy", "image": "p"}]}}))];
    assert_eq!(llm(other()).failure(), told("template"));
    assert_eq!(llm([]).role(Role::Prefill).failure(), told("prefill.template"));
    assert_eq!(llm([]).role(Role::Scheduler).failure(), told("router.scheduler.template"));
    assert_eq!(llm([]).of_group(Role::Leader, Role::Main).failure(), told("template"));
    assert_eq!(llm([]).of_group(Role::Worker, Role::Main).failure(), told("worker"));
    assert_eq!(llm([]).of_group(Role::Leader, Role::Prefill).failure(), told("prefill.template"));
    assert_eq!(llm([]).of_group(Role::Worker, Role::Prefill).failure(), told("prefill.worker"));
}

#[test]
fn who_takes_requests_has_a_readiness_probe() {
    let of = |role: Role, fields: Value| llm([("user", main(fields))]).of_group(role, Role::Main).container()["readinessProbe"].take();
    for role in [Role::Main, Role::Prefill, Role::Leader] {
        assert_eq!(of(role, json!({})), json!({"tcpSocket": {"port": 8000}}));
        assert_eq!(of(role, json!({"ports": [{"containerPort": 9}]})), json!({"tcpSocket": {"port": 9}}));
        assert_eq!(of(role, json!({"readinessProbe": {"exec": {}}})), json!({"exec": {}}));
    }
    assert_eq!(of(Role::Worker, json!({})), Value::Null);
    assert_eq!(of(Role::Scheduler, json!({})), Value::Null, "its preset has one that fits");
}
