//! The endpoint picker with a real Envoy in front of it and simulated model servers behind it. The API server has the pods of these.

mod policy_set;
mod pools;

use crate::{
    proxies::{Answer, ask, post},
    services::Space,
};
use axum::body::Body;
use base64::{Engine, engine::general_purpose::STANDARD};
use http::Request;
use pointsman_core::resource::{INFERENCE_MODEL_REWRITE, INFERENCE_OBJECTIVE, INFERENCE_POOL, POD};
use pointsman_harness::{clients_dir, workspace};
use pointsman_tests::{
    CommandOutput, Envoy, EnvoySettings, EnvoyStyle, PickerProcess, TestCluster, eventually,
    model_server::{ModelServer, SERVED_BY, Settings},
    plugin_bytes, with_other_digest,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
};
use tokio::task::JoinSet;

/// The pool, and the model of its servers.
const POOL: &str = "llama-pool";
const MODEL: &str = "llama";

/// A long deadline for policies: these tests aren't about the speed of a busy machine.
const PATIENT: [&str; 2] = ["--policy-deadline", "5s"];

/// The label in the pool's selector.
const APP: &str = "app";

/// A pool of simulated model servers. Each has its own loopback address, because the pods of a pool share their port numbers.
struct Servers<'a> {
    space: &'a Space<'a>,
    port: u16,
    subnet: u8,
    running: BTreeMap<u8, ModelServer>,
}

impl<'a> Servers<'a> {
    async fn start(space: &'a Space<'a>, number: u8, settings: impl Fn(&mut Settings)) -> Self {
        static SUBNET: AtomicU8 = AtomicU8::new(1);
        let subnet = SUBNET.fetch_add(1, Ordering::Relaxed);
        let mut servers = Self { space, port: 0, subnet, running: BTreeMap::new() };
        for server in 1..=number {
            servers.start_one(server, &settings);
        }
        let spec = json!({
            "selector": {"matchLabels": {APP: MODEL}}, "targetPorts": [{"number": servers.port}],
            "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
        });
        space.create(&INFERENCE_POOL, POOL, json!({"spec": spec})).await;
        for server in 1..=number {
            servers.create_pod(server).await;
        }
        servers
    }

    fn start_one(&mut self, server: u8, settings: &impl Fn(&mut Settings)) {
        let address = SocketAddr::from((Ipv4Addr::new(127, 0, self.subnet, server), self.port));
        let mut made = Settings::new(&name(server), &[MODEL, "llama-next"]);
        settings(&mut made);
        let started = ModelServer::start(address, made);
        self.port = started.address().port();
        self.running.insert(server, started);
    }

    async fn create_pod(&self, server: u8) {
        // Nothing schedules it, so only this test sets its status.
        let spec = json!({"schedulerName": "nobody", "containers": [{"name": "main", "image": "example.com/engine:1"}]});
        self.space.create(&POD, &name(server), json!({"metadata": {"labels": {APP: MODEL}}, "spec": spec})).await;
        self.set_ready(server, true).await;
    }

    async fn set_ready(&self, server: u8, is_ready: bool) {
        let address = Ipv4Addr::new(127, 0, self.subnet, server).to_string();
        let ready = json!({"type": "Ready", "status": if is_ready { "True" } else { "False" }});
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]});
        self.space.patch_status(&POD, &name(server), status).await;
    }
}

fn name(server: u8) -> String {
    format!("server-{server}")
}

/// A request whose prompt shares no prefix with others, except those with the same text.
fn request(text: &str) -> Value {
    json!({"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": text}]})
}

fn long(text: &str) -> String {
    format!("{text} ").repeat(400)
}

async fn send(envoy: &Envoy, body: &Value) -> Answer {
    ask(envoy.address(), post(body)).await.whole().await
}

/// A folder of one test.
fn folder(what: &str, space: &Space<'_>) -> PathBuf {
    let folder = space.0.cluster.dir.join(format!("{what}-{}", space.0.name));
    fs::create_dir_all(&folder).unwrap();
    folder
}

async fn start_envoy(space: &Space<'_>, picker: &PickerProcess<'_>) -> Envoy {
    start_envoy_for(picker.address, &folder("envoy", space)).await
}

async fn start_envoy_for(picker: SocketAddr, folder: &Path) -> Envoy {
    let settings = EnvoySettings { picker, picker_tls: true, style: EnvoyStyle::OriginalDst, failure_mode_allow: false };
    Envoy::start(folder, &settings).await
}

/// Consecutive requests on several connections, until `end`.
struct Load {
    tasks: JoinSet<Vec<Answer>>,
    stop: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
}

impl Load {
    fn start(address: SocketAddr, connections: usize) -> Self {
        let (stop, answered) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        for connection in 0..connections {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            tasks.spawn(async move {
                let mut answers = Vec::new();
                while stop.load(Ordering::SeqCst) == 0 {
                    let body = request(&long(&format!("{connection} {}", answers.len())));
                    answers.push(ask(address, post(&body)).await.whole().await);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                answers
            });
        }
        Self { tasks, stop, answered }
    }

    /// Waits for this many further answers.
    async fn goes_on(&self, answers: usize) {
        let enough = self.answered.load(Ordering::SeqCst) + answers;
        eventually("requests are answered", async || (self.answered.load(Ordering::SeqCst) >= enough).then_some(())).await;
    }

    /// Stops and returns the answers, once all have arrived.
    async fn end(self) -> Vec<Answer> {
        self.stop.store(1, Ordering::SeqCst);
        self.tasks.join_all().await.into_iter().flatten().collect()
    }
}

fn all_are_served(answers: &[Answer]) {
    let others: Vec<_> = answers.iter().filter(|answer| answer.status != 200).map(|answer| (answer.status, &answer.body)).collect();
    assert!(others.is_empty(), "of {} requests these weren't served: {others:?}", answers.len());
}

async fn space(what: &str) -> Space<'static> {
    Space::bare(TestCluster::shared(), what).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_where_their_prefix_is_cached_and_nowhere_else_but_to_endpoints_that_are_ready() {
    let space = space("picked").await;
    let picker = PickerProcess::start(&space.0, POOL, &[&["--grpc-port", "0"], &PATIENT[..]].concat()).await;
    let envoy = start_envoy(&space, &picker).await;
    let (status, why) = picker.ready().unwrap();
    assert_eq!(status, 503);
    assert!(why.contains(&format!("InferencePool {}/{POOL} doesn't exist: create it", space.0.name)), "{why}");
    let refused = send(&envoy, &request("nobody")).await;
    assert_eq!((refused.status, refused.header("x-llm-d-request-dropped-reason")), (503, "rejected-no-endpoints"));
    assert_eq!(refused.json()["error"]["code"], "rejected-no-endpoints");

    let servers = Servers::start(&space, 3, |_| {}).await;
    picker.knows(3).await;
    eventually("it is ready", async || (picker.ready()?.0 == 200).then_some(())).await;
    // Different prompts use all endpoints, and each prompt returns to the endpoint that has cached it.
    let mut used = BTreeSet::new();
    for number in 0..12 {
        let body = request(&long(&format!("prompt {number}")));
        let first = send(&envoy, &body).await;
        assert_eq!(first.status, 200, "{:?}", first.body);
        for _ in 0..3 {
            assert_eq!(send(&envoy, &body).await.header(SERVED_BY), first.header(SERVED_BY), "its prefix is there");
        }
        used.insert(first.header(SERVED_BY).to_owned());
    }
    assert_eq!(used.len(), 3, "{used:?}");

    // A request without a body also reaches an endpoint.
    let models = Request::get("/v1/models").header("host", "models").body(Body::empty()).unwrap();
    assert_eq!(ask(envoy.address(), models).await.whole().await.status, 200);
    let unreadable = send(&envoy, &json!({"messages": []})).await;
    assert_eq!(unreadable.status, 400);
    let said = unreadable.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(said.contains("the body has no `model`"), "{said}");

    // The endpoint gets the client's body byte for byte, unless the model is rewritten.
    let rules = json!([{"matches": [{"model": {"type": "Exact", "value": MODEL}}], "targets": [{"modelRewrite": "llama-next"}]}]);
    space.create(&INFERENCE_MODEL_REWRITE, "next", json!({"spec": {"poolRef": {"name": POOL}, "rules": rules}})).await;
    let rewritten = eventually("another model answers", async || {
        let answer = send(&envoy, &request("rewritten")).await;
        let seen = servers.running.iter().find(|(server, _)| name(**server) == answer.header(SERVED_BY))?.1.seen();
        (seen.last.back()?.model.as_deref() == Some("llama-next")).then_some(answer)
    })
    .await;
    assert_eq!(rewritten.json()["model"], MODEL, "the client gets the name that it knows");

    // A response is counted once the proxy has seen its end.
    for series in [
        format!(
            "llm_d_epp_request_total{{model_name=\"{MODEL}\",target_model_name=\"{MODEL}\",fairness_id=\"default-flow\",priority=\"0\"}}"
        ),
        format!("llm_d_epp_request_output_tokens_count{{model_name=\"{MODEL}\",target_model_name=\"llama-next\""),
        "llm_d_epp_plugin_duration_seconds_count{extension_point=\"Score\",plugin_type=\"policy\",plugin_name=\"scheduling-scoring\"}"
            .to_owned(),
    ] {
        eventually(&format!("{series} is on the page"), async || picker.page().contains(&series).then_some(())).await;
    }
    picker.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_endpoints_go_a_policy_is_swapped_and_the_picker_restarts_and_no_request_is_lost_that_can_live() {
    let space = space("loaded").await;
    let mut servers = Servers::start(&space, 3, |_| {}).await;
    let folder = folder("policy", &space);
    let file = folder.join("balance.wasm");
    let bytes = plugin_bytes("pointsman-example-rust-balance");
    fs::write(&file, &bytes).unwrap();
    let policy = file.to_string_lossy().into_owned();
    let flags = [&["--policy", &policy], &PATIENT[..]].concat();
    let picker = PickerProcess::start(&space.0, POOL, &[&["--grpc-port", "0"], &flags[..]].concat()).await;
    let envoy = start_envoy(&space, &picker).await;
    picker.knows(3).await;
    let load = Load::start(envoy.address(), 8);
    load.goes_on(100).await;

    // Another policy becomes active. An invalid one doesn't: the previous one stays active.
    let replace = |bytes: &[u8]| {
        fs::write(folder.join("next"), bytes).unwrap();
        fs::rename(folder.join("next"), &file).unwrap();
    };
    replace(&with_other_digest(&bytes, 1));
    let says = async |message: &str| {
        eventually(message, async || picker.log().iter().any(|line| line["message"] == message).then_some(())).await;
    };
    says("another policy is active").await;
    load.goes_on(100).await;
    replace(b"no plugin");
    says("the policy can't be loaded; the previous one stays active").await;
    load.goes_on(100).await;

    // An endpoint becomes unready, drains, and is back later.
    servers.set_ready(1, false).await;
    picker.knows(2).await;
    load.goes_on(50).await;
    eventually("its last answers have ended", async || {
        let counts = servers.running[&1].counts();
        (counts.running == 0 && counts.waiting == 0).then_some(())
    })
    .await;
    let before = servers.running[&1].requests_seen();
    load.goes_on(100).await;
    assert_eq!(servers.running[&1].requests_seen(), before, "it gets no requests any more");
    servers.running.remove(&1);
    servers.start_one(1, &|_| {});
    servers.set_ready(1, true).await;
    picker.knows(3).await;
    eventually("it gets requests again", async || (servers.running[&1].requests_seen() > 0).then_some(())).await;
    all_are_served(&load.end().await);

    // A dead endpoint gets no requests, although its pod is still Ready.
    servers.running.remove(&2);
    eventually("the picker notices", async || {
        let noted = |line: &Value| line["pod"] == name(2) && line["message"] == "the metrics of an endpoint can't be read";
        picker.log().iter().any(noted).then_some(())
    })
    .await;
    let served = async |number: usize| {
        let load = Load::start(envoy.address(), 4);
        load.goes_on(number).await;
        load.end().await
    };
    eventually("nobody is sent there", async || served(40).await.iter().all(|answer| answer.status == 200).then_some(())).await;

    // If the picker is killed, requests fail and don't hang. A new picker starts without state and serves.
    picker.kill();
    assert_eq!(send(&envoy, &request("nobody answers")).await.status, 500);
    let port = picker.address.port().to_string();
    replace(&bytes);
    let again = PickerProcess::start(&space.0, POOL, &[&["--grpc-port", &port], &flags[..]].concat()).await;
    again.knows(3).await;
    eventually("requests are served again", async || (send(&envoy, &request("again")).await.status == 200).then_some(())).await;

    // The picker terminates in good order under load: requests that have begun are answered.
    let load = Load::start(envoy.address(), 4);
    load.goes_on(20).await;
    again.stop();
    let answers = load.end().await;
    let expected = |answer: &Answer| [200, 500, 503].contains(&answer.status);
    assert!(answers.iter().all(expected), "{:?}", answers.iter().map(|answer| answer.status).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_a_config_map_comes_is_replaced_and_stays_when_what_holds_it_is_broken_or_gone() {
    const NAME: &str = "scorer";
    let space = space("scored").await;
    let _servers = Servers::start(&space, 2, |_| {}).await;
    let flags = [&["--grpc-port", "0", "--policy-config-map", NAME], &PATIENT[..]].concat();
    let picker = PickerProcess::start(&space.0, POOL, &flags).await;
    let envoy = start_envoy(&space, &picker).await;
    picker.knows(2).await;
    assert_eq!(send(&envoy, &request("the default policy decides")).await.status, 200);

    let map = |bytes: &[u8], config: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": space.0.name},
            "binaryData": {"plugin.wasm": STANDARD.encode(bytes)}, "data": {"config.yaml": config},
        })
    };
    let lines = |message: &str| picker.log().into_iter().filter(|line| line["message"] == message).collect::<Vec<_>>();
    let told = async |message: &str, times: usize| {
        eventually(message, async || {
            let lines = lines(message);
            (lines.len() == times).then_some(lines)
        })
        .await
    };
    assert_eq!(told("the policy can't be loaded; the previous one stays active", 1).await.len(), 1, "it isn't there yet");
    let bytes = plugin_bytes("pointsman-example-rust-balance");
    space.0.cluster.apply(&map(&bytes, "weights: {prefix-match: 5}")).ok();
    told("another policy is active", 1).await;
    assert_eq!(send(&envoy, &request("its policy decides")).await.status, 200);
    let asked = "llm_d_epp_plugin_duration_seconds_count{extension_point=\"Score\",plugin_type=\"policy\",plugin_name=\"scorer\"} 1";
    eventually("it was asked", async || picker.page().contains(asked).then_some(())).await;
    // A changed configuration also makes another policy active.
    space.0.cluster.apply(&map(&bytes, "weights: {queue-length: -1}")).ok();
    told("another policy is active", 2).await;
    space.0.cluster.apply(&map(&bytes, "weights: {no-such-feature: 1}")).ok();
    let refused = told("the policy can't be loaded; the previous one stays active", 2).await;
    assert!(refused[1]["error"].as_str().unwrap().contains("no-such-feature"), "{refused:?}");
    space.kubectl(&["delete", "configmap", NAME]).ok();
    told("the policy can't be loaded; the previous one stays active", 3).await;
    assert_eq!(send(&envoy, &request("the former one decides")).await.status, 200);
    eventually("it still is asked", async || picker.page().contains(&asked.replace("} 1", "} 2")).then_some(())).await;
    picker.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_saturated_pool_wait_by_priority_and_the_openai_client_is_served() {
    const CONFIG: &str = "\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: concurrency-detector
  parameters: {maxConcurrency: 1}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
";
    let space = space("queued").await;
    // A token takes long enough for other requests to arrive.
    let servers = Servers::start(&space, 1, |settings| settings.engine.decode_us = 100_000).await;
    for (name, priority) in [("important", 10), ("sheddable", -10)] {
        space.create(&INFERENCE_OBJECTIVE, name, json!({"spec": {"poolRef": {"name": POOL}, "priority": priority}})).await;
    }
    let picker = PickerProcess::start(&space.0, POOL, &[&["--grpc-port", "0", "--config-text", CONFIG], &PATIENT[..]].concat()).await;
    let envoy = start_envoy(&space, &picker).await;
    picker.knows(1).await;

    let order = Arc::<std::sync::Mutex<Vec<&'static str>>>::default();
    let mut tasks = JoinSet::new();
    let address = envoy.address();
    let waiting = |number: f64| {
        let picker = &picker;
        eventually("so many wait", async move || {
            let waits = "llm_d_epp_flow_control_queue_size{inference_pool=";
            let known = picker.page().lines().find_map(|line| line.strip_prefix(waits)?.split_once(' ')?.1.parse::<f64>().ok());
            (known == Some(number)).then_some(())
        })
    };
    let mut begin = |objective: &'static str| {
        let order = Arc::clone(&order);
        tasks.spawn(async move {
            let mut request = post(&request(objective));
            request.headers_mut().insert("x-gateway-inference-objective", objective.parse().unwrap());
            let answer = ask(address, request).await.whole().await;
            order.lock().unwrap().push(objective);
            answer
        });
    };
    begin("first");
    eventually("the first is sent", async || (servers.running[&1].requests_seen() == 1).then_some(())).await;
    for (number, objective) in [(1.0, "sheddable"), (2.0, "unknown"), (3.0, "important")] {
        begin(objective);
        waiting(number).await;
    }
    let answers = tasks.join_all().await;
    all_are_served(&answers);
    assert_eq!(*order.lock().unwrap(), ["first", "important", "unknown", "sheddable"]);

    let program = clients_dir().join("python/venv/bin/python");
    let script = workspace().join("tests/clients/python/ask_pool.py");
    let asked = CommandOutput::by(Command::new(program).arg(script).args([&address.to_string(), MODEL]));
    assert_eq!(asked.stdout, "the client for Python is served\n", "{}", asked.stderr);
    picker.stop();
}
