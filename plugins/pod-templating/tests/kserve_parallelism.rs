//! LLMInferenceServices: vLLM's flags for the split of the model.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, llm, main};
use pointsman_plugin::Role;
use serde_json::{Value, json};

fn vllm(gpus: u32, args: &[&str]) -> Value {
    main(json!({"command": ["vllm", "serve", "/mnt/models"], "args": args, "resources": {"limits": {"nvidia.com/gpu": gpus}}}))
}

fn single(gpus: u32, parallelism: Value, args: &[&str]) -> TestRequest {
    llm([("user", vllm(gpus, args)), ("parallelism", parallelism)])
}

fn group(role: Role, gpus: u32, nodes: u32, parallelism: Value, args: &[&str]) -> TestRequest {
    llm([("user", vllm(gpus, args)), ("parallelism", parallelism), ("group", json!({"nodes": nodes}))]).of_group(role, Role::Main)
}

/// The arguments, in one line.
fn line(asked: &TestRequest) -> String {
    let args: Vec<String> = serde_json::from_value(asked.container()["args"].take()).unwrap();
    args.join(" ")
}

const RENDEZVOUS: &str = "--node-rank $(LWS_WORKER_INDEX) --master-addr $(LWS_LEADER_ADDRESS)";

#[test]
fn a_single_pod_is_spread_over_its_gpus() {
    let asked = single(4, json!({}), &[]);
    assert_eq!(line(&asked), "--tensor-parallel-size 4");
    assert_eq!(asked.said("Parallelism"), "vLLM splits the model by these flags: --tensor-parallel-size 4.");
    assert!(asked.steps().contains(&r#"plugin + /spec/containers/0/args ["--tensor-parallel-size","4"]"#.to_owned()));
    assert_eq!(line(&llm([("user", vllm(4, &[]))])), "--tensor-parallel-size 4", "without the layer as well");
    assert_eq!(line(&single(1, json!({}), &[])), "");
    assert_eq!(line(&single(8, json!({}), &[]).config(json!({"parallelism": false}))), "");
    assert_eq!(line(&single(8, json!({"data": 2, "dataLocal": 2}), &[])), "--tensor-parallel-size 4 --data-parallel-size 2");
    assert_eq!(line(&single(8, json!({"pipeline": 2}), &[])), "--tensor-parallel-size 4 --pipeline-parallel-size 2");
    assert_eq!(line(&single(3, json!({"data": 2}), &[])), "--data-parallel-size 2", "three can't be shared by two");
    assert_eq!(asked.container().get("env"), None);
}

#[test]
fn what_the_service_says_counts_for_more_than_the_gpus() {
    let asked = single(8, json!({"tensor": 2, "expert": true}), &["--a"]);
    assert_eq!(line(&asked), "--a --tensor-parallel-size 2 --enable-expert-parallel");
    assert!(asked.steps().contains(&r#"parallelism + /spec/containers/0/args/- "2""#.to_owned()));
    assert_eq!(line(&asked.config(json!({"parallelism": false}))), "--a --tensor-parallel-size 2 --enable-expert-parallel");
    assert_eq!(line(&single(0, json!({"tensor": 2, "expert": false}), &[])), "--tensor-parallel-size 2");
}

#[test]
fn a_pipeline_has_a_stage_a_pod() {
    let of = |role: Role, parallelism: Value, args: &[&str]| line(&group(role, 8, 2, parallelism, args));
    let told = format!("--tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 {RENDEZVOUS}");
    assert_eq!(of(Role::Leader, json!({"pipeline": 2}), &[]), told);
    assert_eq!(of(Role::Leader, json!({}), &[]), told, "the number of pods says it as well");
    assert_eq!(of(Role::Worker, json!({"pipeline": 2}), &[]), format!("{told} --headless"));
    let given = of(Role::Worker, json!({"pipeline": 2, "tensor": 4}), &["-tp=2", "--nnodes", "2", "--headless"]);
    assert_eq!(given, format!("-tp=2 --nnodes 2 --headless --pipeline-parallel-size 2 {RENDEZVOUS}"));
    let inside = llm([("user", vllm(8, &[])), ("parallelism", json!({"pipeline": 2, "group": {"nodes": 2}}))]);
    assert_eq!(line(&inside.of_group(Role::Leader, Role::Prefill)), told);
    assert_eq!(line(&group(Role::Leader, 8, 1, json!({"pipeline": 1}), &[])), "--tensor-parallel-size 8 --pipeline-parallel-size 1");
}

#[test]
fn copies_share_a_group() {
    let of = |role: Role, parallelism: Value| group(role, 8, 2, parallelism, &[]);
    let told = |data: u32, local: u32, port: u32| {
        format!(
            "--data-parallel-size {data} --data-parallel-size-local {local} --data-parallel-address $(LWS_LEADER_ADDRESS) \
             --data-parallel-rpc-port {port}"
        )
    };
    let eight = json!({"data": 16, "dataLocal": 8, "expert": true});
    assert_eq!(line(&of(Role::Leader, eight.clone())), format!("{} --enable-expert-parallel", told(16, 8, 5555)));
    let one = json!({"data": 2, "dataLocal": 1, "tensor": 8, "dataRPCPort": 7000});
    let leader = format!("--tensor-parallel-size 8 {}", told(2, 1, 7000));
    assert_eq!(line(&of(Role::Leader, one.clone())), leader);
    assert_eq!(line(&of(Role::Worker, one)), format!("{leader} --headless --data-parallel-start-rank $(LWS_WORKER_INDEX)"));

    let worker = of(Role::Worker, eight);
    assert_eq!(line(&worker), format!("{} --enable-expert-parallel --headless", told(16, 8, 5555)));
    let script = r#"exec "$@" --data-parallel-start-rank "$$((LWS_WORKER_INDEX * 8))""#;
    assert_eq!(worker.container()["command"], json!(["/bin/sh", "-c", script, "sh", "vllm", "serve", "/mnt/models"]));
    let wrapped = json!(["/bin/sh", "-c", script, "sh"]);
    assert!(worker.steps().contains(&format!("parallelism + /spec/containers/0/command {wrapped}")), "{:#?}", worker.steps());
    assert!(worker.steps().contains(&r#"user + /spec/containers/0/command/- "vllm""#.to_owned()));
}

#[test]
fn a_worker_that_says_its_first_copy_keeps_its_command() {
    let eight = json!({"data": 16, "dataLocal": 8});
    let given = group(Role::Worker, 8, 2, eight.clone(), &["-dpr", "8", "--data-parallel-hybrid-lb"]);
    assert_eq!(given.container()["command"], json!(["vllm", "serve", "/mnt/models"]));
    assert!(!line(&given).contains("--headless"));
    let bare = main(json!({"image": "vllm/vllm-openai:v1", "args": ["--model=/mnt/models"]}));
    let asked = llm([("user", bare), ("parallelism", eight), ("group", json!({"nodes": 2}))]).of_group(Role::Worker, Role::Main);
    assert!(asked.failure().starts_with("the container main of a worker needs a command"), "{}", asked.failure());
}

#[test]
fn another_command_line_is_left_alone_and_told() {
    let of = |command: Value, parallelism: Value| {
        let fields = json!({"command": command, "resources": {"limits": {"nvidia.com/gpu": 8}}});
        let asked = llm([("user", main(fields)), ("parallelism", parallelism)]);
        (asked.container().get("args").cloned().unwrap_or_default(), asked.said("ParallelismUntold"))
    };
    let told = "The command line of main isn't vLLM's own, so it must set spec.parallelism itself.";
    assert_eq!(of(json!(["sh", "-c", "vllm serve m"]), json!({"tensor": 2})), (Value::Null, told.to_owned()));
    assert_eq!(of(json!(["sh", "-c", "vllm serve m"]), json!({})), (Value::Null, String::new()));
    assert_eq!(of(json!(["sglang", "serve"]), json!({"tensor": 2})), (Value::Null, told.to_owned()));
    assert_eq!(of(json!(["sglang", "serve"]), json!({})), (json!(["--tp-size", "8"]), String::new()));
}
