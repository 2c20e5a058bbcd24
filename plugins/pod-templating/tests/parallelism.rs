//! GPUs, the engines' flags, and readiness.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask, runner};
use pointsman_plugin::Role;
use serde_json::{Value, json};

fn gpus(count: Value) -> Value {
    json!({"limits": {"nvidia.com/gpu": count}})
}

fn vllm(args: &[&str]) -> Value {
    json!({"command": ["vllm", "serve"], "args": args, "resources": gpus(json!("4"))})
}

fn engine(fields: Value) -> TestRequest {
    ask([("runtime", runner(fields))])
}

fn group(fields: Value, nodes: u32) -> TestRequest {
    ask([("runtime", runner(fields)), ("group", json!({"nodes": nodes}))]).role(Role::Leader)
}

fn args(asked: &TestRequest) -> Vec<String> {
    serde_json::from_value(asked.container()["args"].take()).unwrap_or_default()
}

#[test]
fn the_container_is_told_how_many_gpus_there_are() {
    let size = |asked: TestRequest| asked.container().pointer("/env/0/value").cloned().unwrap_or_default();
    assert_eq!(size(engine(json!({"resources": gpus(json!("4"))}))), "4");
    assert_eq!(size(engine(json!({"resources": gpus(json!(1))}))), "1");
    assert_eq!(size(group(json!({"resources": gpus(json!(8))}), 3)), "24");
    let several = json!({"limits": {"nvidia.com/gpu": 1, "example.com/gpu": "2", "habana.ai/gaudi": 4, "cpu": "x"}, "requests": {"amd.com/gpu": 8, "nvidia.com/gpu": 1}});
    assert_eq!(size(engine(json!({"resources": several}))), "15");
    let npu = json!({"resources": {"requests": {"example.com/npu": "2"}}});
    assert_eq!(size(engine(npu.clone())), Value::Null);
    assert_eq!(size(engine(npu).config(json!({"gpuResources": ["example.com/npu"]}))), "2");
    assert_eq!(size(engine(json!({"resources": gpus(json!(0))}))), Value::Null);
    let set = json!({"resources": gpus(json!(2)), "env": [{"name": "PARALLELISM_SIZE", "value": "mine"}]});
    assert_eq!(size(engine(set)), "mine");
}

#[test]
fn a_number_of_gpus_that_cannot_be_read_is_told() {
    for odd in [json!("four"), json!("1.5"), json!(1.5), json!(-1), json!("1k"), json!(""), json!(true), json!([])] {
        let said = engine(json!({"resources": gpus(odd)})).failure();
        assert!(said.starts_with("the container ome-container requests ") && said.contains("of nvidia.com/gpu"), "{said}");
    }
}

#[test]
fn vllm_is_spread_over_its_gpus_and_its_group() {
    let asked = engine(vllm(&["model"]));
    assert_eq!(args(&asked), ["model", "--tensor-parallel-size", "4"]);
    assert_eq!(asked.said("Parallelism"), "vLLM is spread over 4 GPUs: --tensor-parallel-size 4.");
    assert!(asked.steps().contains(&r#"plugin + /spec/containers/0/args/- "--tensor-parallel-size""#.to_owned()));
    let asked = group(vllm(&["model"]), 2);
    assert_eq!(args(&asked), ["model", "--tensor-parallel-size", "4", "--pipeline-parallel-size", "2"]);
    assert!(asked.said("Parallelism").contains("4 GPUs on each of 2 nodes"));
    let one = json!({"command": ["vllm", "serve"], "args": ["m"], "resources": gpus(json!(1))});
    assert_eq!(args(&engine(one.clone())), ["m"]);
    assert_eq!(args(&group(one, 2)), ["m", "--pipeline-parallel-size", "2"]);
}

#[test]
fn sglang_is_spread_over_its_gpus_and_its_group() {
    let sglang = |args: &[&str]| json!({"command": ["python3", "-m", "sglang.launch_server"], "args": args, "resources": gpus(json!(8))});
    assert_eq!(args(&engine(sglang(&[]))), ["--tp-size", "8"]);
    let expected =
        ["--tp-size", "16", "--nnodes", "2", "--node-rank", "$(LWS_WORKER_INDEX)", "--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000"];
    assert_eq!(args(&group(sglang(&[]), 2)), expected);
    assert_eq!(args(&group(sglang(&["--nnodes=2", "--node_rank", "1"]), 2))[3..], ["--tp-size", "16", expected[6], expected[7]]);
}

#[test]
fn engines_are_known_by_what_they_run_and_by_their_image() {
    let spread = |image: &str, command: Value, given: Value| {
        let asked = engine(json!({"image": image, "command": command, "args": given, "resources": gpus(json!(2))}));
        args(&asked).iter().find(|word| ["--tensor-parallel-size", "--tp-size"].contains(&word.as_str())).cloned()
    };
    let (vllm, sglang) = (Some("--tensor-parallel-size".to_owned()), Some("--tp-size".to_owned()));
    let null = Value::Null;
    assert_eq!(spread("e", json!(["python3", "-m", "vllm.entrypoints.openai.api_server"]), null.clone()), vllm);
    assert_eq!(spread("e", json!(["/usr/bin/vllm"]), json!(["serve", "m"])), vllm);
    assert_eq!(spread("e", json!(["sglang", "serve"]), null.clone()), sglang);
    assert_eq!(spread("docker.io/vllm/vllm-openai:v0.10", null.clone(), json!(["--a"])), vllm);
    assert_eq!(spread("localhost:5000/lmsysorg/sglang@sha256:abc", null.clone(), json!(["--a"])), sglang);
    assert_eq!(spread("localhost:5000/engine:vllm", null.clone(), json!(["--a"])), None);
    assert_eq!(spread("vllm/vllm-openai", null.clone(), null.clone()), None, "the image's own arguments would be lost");
    assert_eq!(spread("vllm/vllm-openai", json!(["bash", "-c"]), json!(["vllm serve m"])), None, "a script stays as it is");
    assert_eq!(spread("vllm/vllm-openai", null, json!(["/bin/sh", "-ec", "exec vllm serve m"])), None);
    assert_eq!(spread("e", json!(["tritonserver"]), json!(["--a"])), None);
}

#[test]
fn who_says_how_to_spread_is_believed() {
    for given in
        ["--tensor-parallel-size=2", "--tensor_parallel_size", "-tp", "-pp=2", "--pipeline-parallel-size", "--data-parallel-size", "-dp"]
    {
        assert_eq!(args(&engine(vllm(&[given, "2"]))).len(), 2, "{given}");
    }
    for given in ["--tp", "--tp-size=2", "--tensor-parallel-size", "--dp_size", "--pp-size", "--ep-size"] {
        let fields = json!({"command": ["sglang", "serve", given, "2"], "resources": gpus(json!(2))});
        assert_eq!(engine(fields).container().get("args"), None, "{given}");
    }
    assert_eq!(args(&engine(vllm(&["m"])).config(json!({"parallelism": false}))), ["m"]);
    let router = engine(vllm(&["m"])).role(Role::Router);
    assert_eq!(args(&router), ["m"]);
    assert_eq!(router.container().get("env"), None);
}

#[test]
fn who_has_no_readiness_probe_gets_one() {
    let probe = |asked: TestRequest| asked.container()["readinessProbe"].take();
    let tcp = |port: u16| json!({"tcpSocket": {"port": port}});
    assert_eq!(probe(engine(json!({}))), tcp(8080));
    assert_eq!(
        probe(engine(json!({"ports": [{"containerPort": 1, "protocol": "UDP"}, {"containerPort": 9000}, {"containerPort": 2}]}))),
        tcp(9000)
    );
    let own = json!({"httpGet": {"path": "/health", "port": 1}});
    assert_eq!(probe(engine(json!({"readinessProbe": own}))), own);
    assert_eq!(probe(engine(json!({})).role(Role::Router)), tcp(8080));
    assert_eq!(probe(engine(json!({})).role(Role::Leader)), tcp(8080));
    assert_eq!(probe(engine(json!({})).role(Role::Worker)), Value::Null, "only the leader listens");
    assert_eq!(probe(engine(json!({})).role(Role::Job)), Value::Null, "a job doesn't listen");
    assert_eq!(engine(json!({})).container().get("ports"), None);
}
