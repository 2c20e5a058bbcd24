//! The host's presets for LLMInferenceServices: each gives complete pods and pins its images.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, llm};
use pointsman_plugin::Role;
use serde_json::{Value, json};

macro_rules! preset {
    ($name:literal) => {
        serde_saphyr::from_str::<Value>(include_str!(concat!("../../../host/core/src/kinds/kserve/presets/", $name, ".yaml"))).unwrap()
    };
}

fn pod(preset: &Value, place: &str) -> TestRequest {
    let pod = preset.pointer(place).unwrap();
    let parallelism = json!({"data": 4, "dataLocal": 2});
    llm([("preset", json!({"pod": pod})), ("model", json!({"uri": "hf://a/b", "name": "b"})), ("parallelism", parallelism)])
}

/// Every image has a tag other than `latest`, and no container may run as root.
fn is_sound(spec: &Value) {
    for container in ["initContainers", "containers"].iter().filter_map(|field| spec[field].as_array()).flatten() {
        let (_, tag) = container["image"].as_str().unwrap().rsplit_once(':').unwrap();
        assert!(tag.starts_with('v'), "{tag}");
        assert_eq!(container["securityContext"]["runAsNonRoot"], true, "{container}");
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            assert!(spec["volumes"].as_array().unwrap().iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
        }
    }
}

#[test]
fn single_pods_are_whole() {
    for (preset, role, port) in
        [(preset!("single"), Role::Main, 8000), (preset!("decode"), Role::Main, 8200), (preset!("prefill"), Role::Prefill, 8000)]
    {
        let asked = pod(&preset, "/template").role(role);
        let spec = asked.spec();
        is_sound(&spec);
        assert_eq!(spec["containers"][0]["readinessProbe"]["httpGet"]["port"], port);
        assert_eq!(spec["containers"][0]["command"], json!(["vllm", "serve", "/mnt/models"]));
        assert!(asked.codes().contains(&"Parallelism".to_owned()));
    }
}

#[test]
fn groups_are_whole() {
    for (preset, parallelism) in
        [(preset!("groups-pipeline"), json!({"pipeline": 2})), (preset!("groups-data"), json!({"data": 4, "dataLocal": 2}))]
    {
        for (place, role) in [("/template", Role::Leader), ("/worker", Role::Worker)] {
            for of in [Role::Main, Role::Prefill] {
                let mut asked = pod(&preset, place).of_group(role, of);
                asked.request.layers[2].content = parallelism.to_string();
                asked.request.layers.push(llm([("group", json!({"nodes": 2}))]).request.layers.remove(0));
                let spec = asked.spec();
                is_sound(&spec);
                let headless = spec["containers"][0]["args"].as_array().unwrap().contains(&json!("--headless"));
                assert_eq!((headless, spec["containers"][0].get("readinessProbe").is_none()), (role == Role::Worker, role == Role::Worker));
            }
        }
    }
}

#[test]
fn the_scheduler_is_whole() {
    let mut asked = pod(&preset!("scheduler"), "/router/scheduler/template").role(Role::Scheduler);
    let layer = json!({"pool": "p", "namespace": "n", "config": {"kind": "EndpointPickerConfig"}, "configMap": null});
    asked.request.layers.push(llm([("scheduler", layer)]).request.layers.remove(0));
    let spec = asked.spec();
    is_sound(&spec);
    let args = spec["containers"][0]["args"].as_array().unwrap();
    assert_eq!(args.iter().filter(|word| ["--pool-name", "--pool-namespace", "--config-text"].map(Value::from).contains(word)).count(), 3);
}
