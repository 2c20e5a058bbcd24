//! LLMInferenceServices: the arguments of the endpoint picker.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, llm, main};
use pointsman_plugin::Role;
use serde_json::{Value, json};

fn scheduler(fields: Value, config: Value, config_map: Value) -> TestRequest {
    let layer = json!({"pool": "chat-inference-pool", "namespace": "prod", "config": config, "configMap": config_map});
    let model = json!({"uri": "hf://org/model", "name": "m"});
    llm([("user", main(fields)), ("scheduler", layer), ("model", model), ("parallelism", json!({"tensor": 2}))]).role(Role::Scheduler)
}

const POOL: [&str; 4] = ["--pool-name", "chat-inference-pool", "--pool-namespace", "prod"];

#[test]
fn it_is_told_its_pool_and_nothing_of_the_model() {
    let asked = scheduler(json!({}), Value::Null, Value::Null);
    assert_eq!(asked.container(), json!({"name": "main", "image": "engine:1", "args": POOL}));
    assert!(asked.steps().contains(&format!("scheduler + /spec/containers/0/args {}", json!(POOL))), "{:#?}", asked.steps());
    assert_eq!((asked.codes(), asked.spec().as_object().unwrap().len()), (vec![], 1));
    let given = json!({"args": ["-poolName", "mine", "--pool-namespace=other"]});
    assert_eq!(scheduler(given.clone(), Value::Null, Value::Null).container()["args"], given["args"]);
    assert_eq!(llm([("user", main(json!({})))]).role(Role::Scheduler).container().get("args"), None);
}

#[test]
fn its_configuration_is_an_argument() {
    let config = json!({"apiVersion": "a/v1", "kind": "EndpointPickerConfig", "plugins": [{"type": "queue-scorer"}]});
    let text = r#"{"apiVersion":"a/v1","kind":"EndpointPickerConfig","plugins":[{"type":"queue-scorer"}]}"#;
    let args = |fields: Value| scheduler(fields, config.clone(), json!({"name": "c", "key": "k"})).container()["args"].take();
    assert_eq!(args(json!({})), json!([POOL[0], POOL[1], POOL[2], POOL[3], "--config-text", text]));
    for given in ["--config-text", "--config-file", "-configText", "--configFile"] {
        assert_eq!(args(json!({"args": [given, "x"]})), json!([given, "x", POOL[0], POOL[1], POOL[2], POOL[3]]));
    }
}

#[test]
fn its_configuration_comes_from_a_config_map() {
    let of = |fields: Value| scheduler(fields, Value::Null, json!({"name": "picker", "key": "config.yaml"}));
    let spec = of(json!({})).spec();
    let args = &spec["containers"][0]["args"];
    assert_eq!((&args[4], &args[5]), (&json!("--config-file"), &json!("/etc/pointsman/scheduler/config.yaml")));
    let mount = json!({"name": "scheduler", "mountPath": "/etc/pointsman/scheduler", "readOnly": true});
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount]));
    let items = json!([{"key": "config.yaml", "path": "config.yaml"}]);
    assert_eq!(spec["volumes"], json!([{"name": "scheduler", "configMap": {"name": "picker", "items": items}}]));
    let mine = json!([{"name": "mine", "mountPath": "/etc/pointsman/scheduler"}]);
    let spec = of(json!({"volumeMounts": mine})).spec();
    assert_eq!((&spec["containers"][0]["volumeMounts"], spec.get("volumes")), (&mine, None));
    assert_eq!(spec["containers"][0]["args"][4], "--config-file");
}

#[test]
fn a_script_is_left_alone() {
    let asked = scheduler(json!({"command": ["/bin/sh", "-c", "exec /app/epp"]}), json!({}), Value::Null);
    assert_eq!(asked.container().get("args"), None);
    assert_eq!(asked.codes(), ["SchedulerUntold"]);
}
