//! The pods of a Ray cluster, which KubeRay starts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask, runner};
use pointsman_plugin::Role;
use serde_json::{Value, json};
use std::process::Command;

const SCRIPT: &str = r#"ulimit -n 65536; eval "${KUBERAY_GEN_RAY_START_CMD/--block/}" && exec "$@""#;

fn ray(fields: Value, role: Role) -> TestRequest {
    ask([("runtime", runner(fields)), ("group", json!({"nodes": 2, "ray": true}))]).role(role)
}

fn words(container: &Value, field: &str) -> Vec<String> {
    serde_json::from_value(container[field].clone()).unwrap_or_default()
}

fn overwrites(asked: &TestRequest) -> Value {
    asked.finished()["metadata"]["annotations"]["ray.io/overwrite-container-cmd"].take()
}

#[test]
fn ray_is_started_before_the_heads_command() {
    let fields = json!({"command": ["vllm", "serve"], "args": ["$(MODEL_PATH)"], "resources": {"limits": {"nvidia.com/gpu": "8"}}});
    let asked = ray(fields, Role::Leader);
    let container = asked.container();
    assert_eq!(words(&container, "command"), ["/bin/bash", "-c", "--"]);
    let parallel = ["--tensor-parallel-size", "8", "--pipeline-parallel-size", "2", "--distributed-executor-backend", "ray"];
    assert_eq!(words(&container, "args"), [&[SCRIPT, "bash", "vllm", "serve", "$(MODEL_PATH)"][..], &parallel].concat());
    assert_eq!(overwrites(&asked), "true");
    assert_eq!(container["readinessProbe"], json!({"tcpSocket": {"port": 8080}}), "in place of Ray's own, which knows no model");
    assert!(asked.steps().contains(&r#"group + /metadata/annotations/ray.io~1overwrite-container-cmd "true""#.to_owned()));
    assert!(asked.steps().contains(&r#"runtime + /spec/containers/0/args/- "$(MODEL_PATH)""#.to_owned()));
    assert_eq!(asked.codes(), ["Parallelism", "ReadinessProbe", "RayHead"]);
}

/// Bash itself prints the words, which it would interpret differently inside a script.
#[test]
fn the_words_of_the_command_reach_it_as_they_are() {
    let odd = ["printf", "[%s]", "it's", "a \"b\"", "$HOME", "`x`", "$(y)", "", "a\nb", "*"];
    let container = ray(json!({"command": odd}), Role::Leader).container();
    let run = |start: &str| {
        let line = [words(&container, "command"), words(&container, "args")].concat();
        let output = Command::new(&line[0]).args(&line[1..]).env("KUBERAY_GEN_RAY_START_CMD", start).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let expected = format!("[{}]", odd[2..].join("]["));
    assert_eq!(run("test 'a b' = 'a b'  --block "), (true, expected), "with --block it would wait for Ray's end");
    assert_eq!(run("false --head"), (false, String::new()));
}

#[test]
fn annotations_that_the_template_has_stay() {
    for (metadata, expected) in [
        (json!({}), json!({"ray.io/overwrite-container-cmd": "true"})),
        (json!(null), json!({"ray.io/overwrite-container-cmd": "true"})),
        (json!({"annotations": null}), json!({"ray.io/overwrite-container-cmd": "true"})),
        (json!({"annotations": {"a": "b"}}), json!({"a": "b", "ray.io/overwrite-container-cmd": "true"})),
    ] {
        let asked = ray(json!({"command": ["vllm", "serve"]}), Role::Leader).template(&json!({"metadata": metadata, "spec": {}}));
        assert_eq!(asked.finished()["metadata"]["annotations"], expected);
    }
    assert_eq!(overwrites(&ray(json!({"command": ["vllm"]}), Role::Leader).template(&json!({}))), "true");
}

#[test]
fn a_head_without_a_command_gets_what_its_image_starts() {
    let began =
        |image: &str, args: Value| words(&ray(json!({"image": image, "args": args}), Role::Leader).container(), "args")[2..].to_vec();
    let server = ["python3", "-m", "vllm.entrypoints.openai.api_server"];
    let backend = ["--distributed-executor-backend", "ray"];
    for image in ["vllm/vllm-openai:v0.10", "registry:5000/mirror/vllm-openai@sha256:abc"] {
        let expected = [&server[..], &["--model=m", "--pipeline-parallel-size", "2"], &backend].concat();
        let args = json!(["--model=m"]);
        let asked = ray(json!({"image": image, "args": args, "resources": {"limits": {"nvidia.com/gpu": 1}}}), Role::Leader);
        assert_eq!(words(&asked.container(), "args")[2..], expected);
    }
    assert_eq!(began("vllm/vllm-openai", json!(["m"])), [&["vllm", "serve", "m"][..], &backend].concat());
    assert_eq!(began("vllm/vllm-openai", Value::Null), [&server[..], &backend].concat());
    let said = ray(json!({"image": "other/engine:1", "args": ["serve"]}), Role::Leader).failure();
    assert!(said.starts_with("the container ome-container of the leader needs a command, such as [vllm, serve]"), "{said}");
    assert!(said.contains("other/engine:1") && said.contains("set runner.command in the leader"), "{said}");
}

#[test]
fn a_worker_leaves_its_command_line_to_kuberay() {
    let settings = json!({"model.ome.io/max-tokens": "1", "oci.ome.io/region": "r"});
    let fields = json!({"command": ["vllm", "serve"], "resources": {"limits": {"nvidia.com/gpu": "8"}}});
    let mut asked = ray(fields, Role::Worker);
    asked.request.layers.extend(ask([("settings", settings), ("adapter", json!({"name": "a", "storageUri": "pvc://a"}))]).request.layers);
    let container = asked.container();
    assert_eq!((container.get("command"), container.get("args"), container.get("readinessProbe")), (None, None, None));
    let names: Vec<_> = container["env"].as_array().unwrap().iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["OCI_REGION", "PARALLELISM_SIZE", "ADAPTER_PATH"], "it runs no engine of its own");
    assert_eq!(asked.said("RayWorker"), "KubeRay gives a worker its command line, which runs no engine, so these are left out: command.");
    assert_eq!(overwrites(&asked), Value::Null);
    assert_eq!(ray(json!({}), Role::Worker).said("RayWorker"), "KubeRay gives a worker its command line, which runs no engine.");
}

#[test]
fn a_worker_has_no_probes_and_ports_of_an_engine() {
    let get = json!({"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 5});
    let of_engine = |command: &str| {
        json!({"args": [command], "livenessProbe": get, "readinessProbe": get, "startupProbe": get,
            "ports": [{"containerPort": 8080}], "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}})
    };
    let mut asked = ray(of_engine("m"), Role::Worker);
    let proxy =
        json!({"pod": {"containers": [{"name": "proxy", "image": "p", "ports": [{"containerPort": 9000}], "readinessProbe": get}]}});
    asked.request.layers.extend(ask([("user", proxy)]).request.layers);
    let containers = asked.spec()["containers"].take();
    assert_eq!(containers[0], json!({"name": "ome-container", "image": "engine:1", "lifecycle": of_engine("m")["lifecycle"]}));
    assert_eq!((&containers[1]["readinessProbe"], &containers[1]["ports"][0]["containerPort"]), (&get, &json!(9000)), "it runs as ever");
    assert_eq!(
        asked.said("RayWorker"),
        "KubeRay gives a worker its command line, which runs no engine, so these are left out: args, livenessProbe, readinessProbe, \
         startupProbe, ports."
    );

    for (command, role) in [("ray start --block", Role::Worker), ("ray start --head; vllm serve", Role::Leader)] {
        let container = ray(of_engine(command), role).container();
        for field in ["livenessProbe", "readinessProbe", "startupProbe", "ports"] {
            assert_eq!(container[field], of_engine(command)[field], "who writes the command line knows what runs");
        }
    }
}

#[test]
fn who_starts_ray_himself_is_left_alone() {
    for line in [
        json!({"command": ["bash", "-c"], "args": ["ray start --head && vllm serve m"]}),
        json!({"command": ["ray", "start"], "args": ["--head"]}),
        json!({"command": ["sh", "-c", "eval \"$KUBERAY_GEN_RAY_START_CMD\""]}),
    ] {
        for role in [Role::Leader, Role::Worker] {
            let asked = ray(line.clone(), role);
            let container = asked.container();
            assert_eq!(container["command"], line["command"]);
            assert_eq!(words(&container, "args"), words(&line, "args"));
            assert_eq!(overwrites(&asked), "true", "KubeRay only finds `ray start` in one word");
        }
    }
}

#[test]
fn where_it_is_asked_for_the_command_lines_stay_as_they_are() {
    for role in [Role::Leader, Role::Worker] {
        let asked = |overwrite: bool| {
            let fields = json!({"command": ["/start.sh"], "args": ["m"], "livenessProbe": {"exec": {"command": ["true"]}}});
            ask([("runtime", runner(fields)), ("group", json!({"nodes": 2, "ray": true, "overwrite": overwrite}))]).role(role)
        };
        let container = asked(true).container();
        assert_eq!((words(&container, "command"), words(&container, "args")), (vec!["/start.sh".to_owned()], vec!["m".to_owned()]));
        assert!(container["livenessProbe"].is_object());
        assert_eq!(overwrites(&asked(true)), "true");
        assert_ne!(words(&asked(false).container(), "command"), ["/start.sh"]);
    }
    let plain = ask([("runtime", runner(json!({"command": ["vllm"]}))), ("group", json!({"nodes": 2, "overwrite": true}))]);
    assert_eq!(overwrites(&plain.role(Role::Leader)), Value::Null, "no Ray, no annotation");
}

#[test]
fn a_backend_that_is_given_stays_and_another_engine_has_none() {
    let line = |fields: Value| words(&ray(fields, Role::Leader).container(), "args")[2..].to_vec();
    assert_eq!(
        line(json!({"command": ["vllm", "serve", "--distributed_executor_backend=mp"]})),
        ["vllm", "serve", "--distributed_executor_backend=mp"]
    );
    assert_eq!(line(json!({"command": ["tritonserver"]})), ["tritonserver"]);
    let asked = ray(json!({"command": ["sglang", "serve"], "resources": {"limits": {"nvidia.com/gpu": 4}}}), Role::Leader);
    assert_eq!(words(&asked.container(), "args")[2..], ["sglang", "serve", "--tp-size", "4"], "it has no LeaderWorkerSet's variables");
    assert!(asked.codes().contains(&"RayUnused".to_owned()));
    let fields = json!({"command": ["sglang", "serve"], "resources": {"limits": {"nvidia.com/gpu": 4}}});
    let own = ask([("runtime", runner(fields)), ("group", json!({"nodes": 2, "ray": true, "overwrite": true}))]).role(Role::Leader);
    assert_eq!(words(&own.container(), "args"), ["--tp-size", "4"]);
}

#[test]
fn flags_and_placeholders_are_in_what_follows_ray() {
    let mut asked = ray(json!({"command": ["vllm", "serve"], "args": ["--served-model-name={{.Name}}"]}), Role::Leader);
    asked.request.layers.extend(ask([("settings", json!({"model.ome.io/max-tokens": "9"}))]).request.layers);
    let args = words(&asked.container(), "args");
    assert_eq!(args[2..7], ["vllm", "serve", "--served-model-name=chat", "--max-model-len", "9"]);
}

#[test]
fn kuberay_looks_at_the_first_container_so_that_is_the_main_one() {
    let mut runtime = runner(json!({"command": ["vllm", "serve"]}));
    runtime["pod"] = json!({"containers": [{"name": "proxy", "image": "p"}, {"name": "ome-container"}]});
    let names = |group: Value, role: Role| -> Vec<Value> {
        let spec = ask([("runtime", runtime.clone()), ("group", group)]).role(role).spec();
        spec["containers"].as_array().unwrap().iter().map(|container| container["name"].clone()).collect()
    };
    for role in [Role::Leader, Role::Worker] {
        assert_eq!(names(json!({"nodes": 2, "ray": true}), role), ["ome-container", "proxy"]);
        assert_eq!(names(json!({"nodes": 2}), role), ["proxy", "ome-container"]);
    }
}

#[test]
fn a_group_that_is_no_ray_cluster_gets_nothing_of_it() {
    for group in [json!({"nodes": 2}), json!({"nodes": 2, "ray": false})] {
        let asked = ask([("runtime", runner(json!({"command": ["vllm", "serve"]}))), ("group", group)]).role(Role::Leader);
        assert_eq!((words(&asked.container(), "command"), overwrites(&asked)), (vec!["vllm".to_owned(), "serve".to_owned()], Value::Null));
    }
}
