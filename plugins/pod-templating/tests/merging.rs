//! How the layers of runtime and service are merged.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{ask, runner};
use pointsman_plugin::Role;
use serde_json::{Value, json};

/// The merged field of the first container, from the runners of a runtime and a service.
fn merged(field: &str, runtime: Value, user: Value) -> Value {
    let container = |value: Value| json!({field: value});
    ask([("runtime", runner(container(runtime))), ("user", json!({"runner": container(user)}))]).container()[field].take()
}

/// The merged field of the spec, from the pods of a runtime and a service.
fn merged_pod(field: &str, runtime: Value, user: Value) -> Value {
    let mut layer = runner(json!({}));
    layer["pod"] = json!({field: runtime});
    ask([("runtime", layer), ("user", json!({"pod": {field: user}}))]).spec()[field].take()
}

#[test]
fn lists_with_keys_merge_by_them_and_keep_their_order() {
    let env = merged(
        "env",
        json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]),
        json!([{"name": "C", "value": "3"}, {"name": "A", "value": "4"}]),
    );
    assert_eq!(env, json!([{"name": "A", "value": "4"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]));

    let ports = merged(
        "ports",
        json!([{"containerPort": 80, "name": "http"}, {"containerPort": 80, "protocol": "UDP"}]),
        json!([{"containerPort": 80, "protocol": "TCP", "hostPort": 8}, {"containerPort": 90}]),
    );
    let expected = json!([
        {"containerPort": 80, "name": "http", "hostPort": 8}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 90}
    ]);
    assert_eq!(ports, expected);

    let mounts =
        merged("volumeMounts", json!([{"name": "a", "mountPath": "/a", "readOnly": true}]), json!([{"name": "b", "mountPath": "/a"}]));
    assert_eq!(mounts, json!([{"name": "b", "mountPath": "/a", "readOnly": true}]));

    let devices = merged("volumeDevices", json!([{"name": "a", "devicePath": "/a"}]), json!([{"name": "b", "devicePath": "/b"}]));
    assert_eq!(devices.as_array().map(Vec::len), Some(2));

    let secrets = merged_pod("imagePullSecrets", json!([{"name": "a"}]), json!([{"name": "b"}, {"name": "a"}]));
    assert_eq!(secrets, json!([{"name": "a"}, {"name": "b"}]));

    let aliases = merged_pod("hostAliases", json!([{"ip": "::1", "hostnames": ["a"]}]), json!([{"ip": "::1", "hostnames": ["b"]}]));
    assert_eq!(aliases, json!([{"ip": "::1", "hostnames": ["b"]}]));

    let spread = |when: &str, skew: u32| json!([{"topologyKey": "zone", "whenUnsatisfiable": when, "maxSkew": skew}]);
    assert_eq!(merged_pod("topologySpreadConstraints", spread("A", 1), spread("A", 2)), spread("A", 2));
    assert_eq!(merged_pod("topologySpreadConstraints", spread("A", 1), spread("B", 2)).as_array().map(Vec::len), Some(2));

    let init = merged_pod("initContainers", json!([{"name": "a", "image": "x"}]), json!([{"name": "a", "args": ["y"]}, {"name": "b"}]));
    assert_eq!(init, json!([{"name": "a", "image": "x", "args": ["y"]}, {"name": "b"}]));
}

#[test]
fn other_lists_are_replaced() {
    assert_eq!(merged_pod("tolerations", json!([{"key": "a"}]), json!([{"key": "b"}])), json!([{"key": "b"}]));
    assert_eq!(merged_pod("tolerations", json!([{"key": "a"}]), json!([])), json!([]));
    assert_eq!(merged("envFrom", json!([{"prefix": "a"}]), json!([{"prefix": "b"}])), json!([{"prefix": "b"}]));
}

#[test]
fn objects_merge_field_by_field() {
    assert_eq!(merged_pod("nodeSelector", json!({"a": "1", "b": "2"}), json!({"b": "3"})), json!({"a": "1", "b": "3"}));
    assert_eq!(
        merged_pod("securityContext", json!({"runAsUser": 1, "fsGroup": 2}), json!({"runAsUser": 3})),
        json!({"runAsUser": 3, "fsGroup": 2})
    );
    let affinity = merged_pod(
        "affinity",
        json!({"nodeAffinity": {"a": {"nodeSelectorTerms": [1]}}, "podAffinity": {"b": 1}}),
        json!({"nodeAffinity": {"a": {"nodeSelectorTerms": [2]}}}),
    );
    assert_eq!(affinity, json!({"nodeAffinity": {"a": {"nodeSelectorTerms": [2]}}, "podAffinity": {"b": 1}}));
    assert_eq!(merged_pod("hostNetwork", json!(true), json!(false)), json!(false));
    assert_eq!(
        merged_pod("terminationGracePeriodSeconds", json!(9_007_199_254_740_993_i64), Value::Null),
        json!(9_007_199_254_740_993_i64),
        "null counts as absent, and a number stays what it is"
    );
}

#[test]
fn the_users_resources_win_key_by_key_and_the_runtime_fills() {
    let resources = merged(
        "resources",
        json!({"limits": {"cpu": "4", "memory": "8Gi"}, "requests": {"cpu": "2"}}),
        json!({"limits": {"cpu": "8", "example.com/nic": 1}}),
    );
    assert_eq!(resources, json!({"limits": {"cpu": "8", "memory": "8Gi", "example.com/nic": 1}, "requests": {"cpu": "2"}}));
}

#[test]
fn of_devices_the_stronger_number_is_both_limit_and_request() {
    let of = |limits: Value, requests: Value| json!({"limits": limits, "requests": requests});
    let runtime = of(
        json!({"nvidia.com/gpu": 1, "cpu": "4", "hugepages-2Mi": "1Gi"}),
        json!({"nvidia.com/gpu": 1, "cpu": "2", "hugepages-2Mi": "1Gi"}),
    );
    let resources = merged("resources", runtime.clone(), json!({"limits": {"nvidia.com/gpu": 2, "cpu": "8"}}));
    let expected = of(
        json!({"nvidia.com/gpu": 2, "cpu": "8", "hugepages-2Mi": "1Gi"}),
        json!({"nvidia.com/gpu": 2, "cpu": "2", "hugepages-2Mi": "1Gi"}),
    );
    assert_eq!(resources, expected);
    let resources = merged("resources", runtime, json!({"requests": {"nvidia.com/gpu": 4}}));
    assert_eq!((&resources["limits"]["nvidia.com/gpu"], &resources["requests"]["nvidia.com/gpu"]), (&json!(4), &json!(4)));
}

#[test]
fn one_of_several_replaces_another_and_merges_with_itself() {
    let volumes = merged_pod(
        "volumes",
        json!([{"name": "a", "emptyDir": {"medium": "Memory"}}, {"name": "b", "emptyDir": {"medium": "Memory"}}]),
        json!([{"name": "a", "hostPath": {"path": "/a"}}, {"name": "b", "emptyDir": {"sizeLimit": "1Gi"}}]),
    );
    let expected = json!([{"name": "a", "hostPath": {"path": "/a"}}, {"name": "b", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]);
    assert_eq!(volumes, expected);

    let secret = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let env = merged("env", json!([{"name": "A", "value": "1"}]), json!([{"name": "A", "valueFrom": secret}]));
    assert_eq!(env, json!([{"name": "A", "valueFrom": secret}]));
    let field = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    let env = merged("env", json!([{"name": "A", "valueFrom": secret}]), json!([{"name": "A", "valueFrom": field}]));
    assert_eq!(env, json!([{"name": "A", "valueFrom": field}]));

    let probe = merged(
        "readinessProbe",
        json!({"tcpSocket": {"port": 1}, "periodSeconds": 5}),
        json!({"httpGet": {"port": 2}, "failureThreshold": 9}),
    );
    assert_eq!(probe, json!({"httpGet": {"port": 2}, "periodSeconds": 5, "failureThreshold": 9}));
    let lifecycle = merged("lifecycle", json!({"preStop": {"exec": {"command": ["a"]}}}), json!({"preStop": {"sleep": {"seconds": 1}}}));
    assert_eq!(lifecycle, json!({"preStop": {"sleep": {"seconds": 1}}}));
    let security = merged(
        "securityContext",
        json!({"runAsUser": 1, "seccompProfile": {"type": "Localhost", "localhostProfile": "p"}}),
        json!({"seccompProfile": {"type": "RuntimeDefault"}}),
    );
    assert_eq!(security, json!({"runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}}));
}

#[test]
fn a_runner_goes_to_the_container_of_its_name() {
    let runtime = json!({
        "pod": {"containers": [{"name": "sidecar", "image": "s"}, {"name": "vllm", "image": "v"}]},
        "runner": {"name": "vllm", "workingDir": "/w"},
    });
    let asked = ask([("runtime", runtime), ("user", json!({"runner": {"image": "mine"}}))]);
    let spec = asked.spec();
    assert_eq!(spec["containers"][0], json!({"name": "sidecar", "image": "s"}));
    assert_eq!(spec["containers"][1]["image"], "mine", "the runtime's runner is the main container, though it isn't the first");
    assert_eq!(spec["containers"][1]["workingDir"], "/w");
    assert_eq!(spec["containers"][1]["name"], "vllm");
}

#[test]
fn a_runner_without_a_name_goes_to_the_main_container() {
    let names = |asked: asked::TestRequest| -> Vec<(String, String)> {
        let spec = asked.spec();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        spec["containers"].as_array().unwrap().iter().map(|container| (text(&container["name"]), text(&container["image"]))).collect()
    };
    let pair = |name: &str, image: &str| (name.to_owned(), image.to_owned());
    assert_eq!(names(ask([("user", json!({"runner": {"image": "i"}}))])), [pair("ome-container", "i")]);
    let first = json!({"pod": {"containers": [{"name": "a"}, {"name": "b"}]}});
    assert_eq!(names(ask([("runtime", first), ("user", json!({"runner": {"name": "", "image": "i"}}))])), [pair("a", "i"), pair("b", "")]);
    let ome = json!({"pod": {"containers": [{"name": "a"}, {"name": "ome-container"}]}});
    assert_eq!(names(ask([("runtime", ome), ("user", json!({"runner": {"image": "i"}}))])), [pair("a", ""), pair("ome-container", "i")]);
    let nameless = json!({"pod": {"containers": [{"image": "i"}]}});
    assert_eq!(names(ask([("user", nameless)])), [pair("ome-container", "i")]);
}

#[test]
fn the_frame_stands_between_runtime_and_service() {
    let frame = json!({"metadata": {}, "spec": {"serviceAccountName": "frame", "schedulerName": "frame", "priority": 1}});
    let mut runtime = runner(json!({}));
    runtime["pod"] = json!({"serviceAccountName": "runtime", "schedulerName": "runtime", "hostname": "runtime"});
    let user = json!({"pod": {"schedulerName": "user"}});
    let spec = ask([("runtime", runtime.clone()), ("user", user)]).template(&frame).spec();
    assert_eq!(
        [&spec["serviceAccountName"], &spec["schedulerName"], &spec["hostname"], &spec["priority"]],
        [&json!("frame"), &json!("user"), &json!("runtime"), &json!(1)]
    );
    let spec = ask([("runtime", runtime)]).template(&frame).spec();
    assert_eq!(spec["schedulerName"], "frame", "without a service's layer as well");
}

#[test]
fn leader_and_worker_have_layers_of_their_own() {
    let image = |image: &str| json!({"runner": {"image": image}});
    let layers = || {
        [
            ("runtime", image("runtime")),
            ("runtime-leader", image("leader")),
            ("runtime-worker", image("worker")),
            ("user", json!({"pod": {"hostname": "user"}})),
            ("user-worker", json!({"pod": {"hostname": "user-worker"}})),
            ("accelerator", image("unknown")),
        ]
    };
    let seen = |role: Role| {
        let spec = ask(layers()).role(role).spec();
        (spec["containers"][0]["image"].clone(), spec["hostname"].clone())
    };
    assert_eq!(seen(Role::Engine), (json!("runtime"), json!("user")));
    assert_eq!(seen(Role::Leader), (json!("leader"), json!("user")));
    assert_eq!(seen(Role::Worker), (json!("worker"), json!("user-worker")));
}

#[test]
fn entries_of_config_are_variables_unless_env_says_otherwise() {
    let mut runtime = runner(json!({"env": [{"name": "WEAK", "value": "env"}, {"name": "SAME", "value": "env"}]}));
    runtime["config"] = json!({"z": "1", "a": "2", "SAME": "config", "OVER": "config"});
    let user = json!({"config": {"WEAK": "config", "a": "3"}, "runner": {"env": [{"name": "OVER", "value": "env"}]}});
    let asked = ask([("runtime", runtime), ("user", user)]).role(Role::Router);
    let expected = json!([
        {"name": "WEAK", "value": "config"}, {"name": "SAME", "value": "env"}, {"name": "OVER", "value": "env"},
        {"name": "a", "value": "3"}, {"name": "z", "value": "1"},
    ]);
    assert_eq!(asked.container()["env"], expected);
    assert!(asked.steps().contains(&r#"user + /spec/containers/0/env/- {"name":"a","value":"3"}"#.to_owned()));
}

#[test]
fn without_an_image_there_is_a_sentence_that_says_what_to_do() {
    let told =
        "the container ome-container has no image: set engineConfig.runner.image in the runtime, or engine.runner.image in the service";
    assert_eq!(ask([]).failure(), told);
    assert_eq!(ask([("runtime", json!({"runner": {"args": ["a"], "image": ""}}))]).failure(), told);
    let router = ask([("user", json!({"runner": {"name": "r"}}))]).role(Role::Router).failure();
    assert!(router.contains("the container r has no image: set routerConfig.runner.image"), "{router}");
    assert!(ask([]).role(Role::Worker).failure().contains("engineConfig.worker.runner.image"));
    assert!(ask([]).role(Role::Job).failure().contains("set runner.image in the runtime"));
}

#[test]
fn what_cannot_be_merged_is_told_with_its_place() {
    let cases = [
        (json!(5), "user must be an object"),
        (json!({"pod": []}), "user.pod must be an object"),
        (json!({"runner": "x"}), "user.runner must be an object"),
        (json!({"config": []}), "user.config must be an object"),
        (json!({"config": {"a": 1}}), "user.config.a must be a string"),
        (json!({"pod": {"containers": {}}}), "user.pod.containers must be a list"),
        (json!({"pod": {"containers": [1]}}), "user.pod.containers.0 must be an object"),
        (json!({"pod": {"containers": [{"name": "a"}, {"name": "a"}]}}), "user.pod.containers has two containers that are a"),
        (json!({"pod": {"containers": [{}, {}]}}), "user.pod.containers has two containers that are ome-container"),
        (json!({"pod": {"containers": [{"name": {}}]}}), "user.pod.containers.0.name must be a string"),
        (json!({"pod": {"initContainers": [{}]}}), "user.pod.initContainers.0 needs a name"),
        (json!({"pod": {"volumes": [{"name": "a"}, {"name": "a"}]}}), "user.pod.volumes.1 is the second with the name \"a\""),
        (json!({"pod": {"nodeSelector": []}}), "user.pod.nodeSelector must be an object"),
        (json!({"runner": {"args": "--a"}}), "user.runner.args must be a list"),
        (json!({"runner": {"args": ["--port", 80]}}), "user.runner.args.1 must be a string: write it in quotes"),
        (json!({"runner": {"env": [{"name": "A", "value": 1}]}}), "user.runner.env.0.value must be a string"),
        (json!({"runner": {"env": [{"value": "1"}]}}), "user.runner.env.0 needs a name"),
        (json!({"runner": {"ports": [{"name": "a"}]}}), "user.runner.ports.0 needs a containerPort"),
        (json!({"runner": {"resources": {"limits": 1}}}), "user.runner.resources.limits must be an object"),
    ];
    for (content, says) in cases {
        let said = ask([("user", content.clone())]).failure();
        assert!(said.starts_with(says), "{content}: {said}");
    }
    assert!(ask([]).template(&json!([])).failure().starts_with("the template from the host or the previous plugin must be an object"));
    assert!(ask([]).template(&json!({"spec": 1})).failure().starts_with("the template's spec must be an object"));
}
