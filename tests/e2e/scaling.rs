//! Pools that scale by demand: a real HorizontalPodAutoscaler queries the API server, which queries a host, which queries the pool's
//! pickers, which read the queue of a simulated model server.

use crate::{
    proxies::{ask, post},
    services::{Space, condition, own_cluster},
};
use http::Request;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{
    Api, Client, Config,
    config::{AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext},
};
use pointsman_core::resource::{DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, INFERENCE_POOL, POD, SERVICE};
use pointsman_harness::workspace;
use pointsman_tests::{
    Host, PickerProcess, TestCluster, eventually, guide,
    model_server::{ModelServer, Settings},
};
use serde_json::{Value, json};
use std::{fs, path::Path};
use tokio::task::JoinSet;

/// The names of the pool and of the Deployment, as in the guide.
const POOL: &str = "llama";

/// The name of the APIService.
const API: &str = "v1beta1.external.metrics.k8s.io";

/// A model server that completes no request during the test: all requests except the first one stay queued.
fn stuck_server() -> ModelServer {
    let mut settings = Settings::new("stuck", &["llama"]);
    settings.engine.max_num_seqs = 1;
    settings.engine.decode_us = 3_600_000_000;
    ModelServer::start(([127, 0, 0, 1], 0).into(), settings)
}

/// A pod that nothing schedules, Ready on a loopback address.
async fn pod(space: &Space<'_>, name: &str, app: &str, port: &Value) {
    let container = json!({"name": "main", "image": "example.com/main:1", "ports": [port]});
    let spec = json!({"schedulerName": "nobody", "containers": [container]});
    space.create(&POD, name, json!({"metadata": {"labels": {"app": app}}, "spec": spec})).await;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let address = "127.0.0.1";
    space.patch_status(&POD, name, json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready})).await;
}

/// Applies the component's objects, with a Service that points to the host's address outside of the cluster.
async fn register(cluster: &TestCluster, address: &str) {
    let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let file = workspace().join("deploy/components/external-metrics/external-metrics.yaml");
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(file).unwrap()).unwrap();
    for object in &mut objects {
        match object["kind"].as_str().unwrap() {
            "Service" => {
                let ports = json!([{"name": "metrics-api", "port": port}]);
                object["spec"] = json!({"type": "ExternalName", "externalName": "localhost", "ports": ports});
            }
            "APIService" => object["spec"]["service"]["port"] = json!(port),
            other => panic!("{other} is applied by no test"),
        }
        cluster.apply(object).ok();
    }
    let services = Api::<APIService>::all(cluster.client().await);
    eventually("the API server trusts the host, and reaches it", async || {
        let service = serde_json::to_value(services.get(API).await.unwrap()).unwrap();
        (condition(&service, "Available")["status"] == "True").then_some(())
    })
    .await;
}

/// Whether a host serves a client with this certificate, or without one.
async fn answers(address: &str, certificate: Option<&Path>) -> bool {
    let path = |extension: &str| certificate.map(|file| file.with_extension(extension).display().to_string());
    let name = || "host".to_owned();
    let cluster = Cluster { server: Some(format!("https://{address}")), insecure_skip_tls_verify: Some(true), ..Cluster::default() };
    let user = AuthInfo { client_certificate: path("crt"), client_key: path("key"), ..AuthInfo::default() };
    let context = Context { cluster: name(), user: Some(name()), ..Context::default() };
    let kubeconfig = Kubeconfig {
        clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: name(), auth_info: Some(user), ..NamedAuthInfo::default() }],
        contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    client.request_text(Request::get("/apis").body(Vec::new()).unwrap()).await.is_ok()
}

/// The guide's autoscaler and ScaledObject, in a namespace.
fn examples(namespace: &str) -> [Value; 2] {
    let page = guide::page("endpoint-picker.md");
    let (_, section) = guide::sections(&page).into_iter().find(|(heading, _)| *heading == "Scaling by demand").unwrap();
    let blocks = guide::fenced(section).into_iter().filter(|(language, _)| *language == "yaml");
    let objects: Vec<Value> = blocks.map(|(_, text)| serde_saphyr::from_str(&text.replace("models", namespace)).unwrap()).collect();
    objects.try_into().unwrap_or_else(|objects| panic!("the guide has other objects: {objects:?}"))
}

fn engine() -> Value {
    let labels = json!({"app": "engine"});
    let spec = json!({"containers": [{"name": "main", "image": "example.com/engine:1"}]});
    json!({"spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn an_autoscaler_scales_by_the_demand_of_a_pool_and_keeps_the_replicas_when_nobody_reports_it() {
    let cluster = own_cluster(Some(&["inference-pool", "keda"]));
    let host = Host::start(&cluster, &["--external-metrics", "127.0.0.1:0"]).await;
    host.ready().await;
    let address = host.external_metrics().await;
    register(&cluster, &address).await;
    let listed = cluster.kubectl(&["get", "--raw", "/apis/external.metrics.k8s.io/v1beta1"]).ok();
    assert!(listed.contains("pointsman_pool_demand"), "{listed}");

    // The host only serves the API server's front proxy: neither anonymous clients, nor clients with a certificate of the cluster's other
    // CA.
    let pki = cluster.dir.join("pki");
    assert!(answers(&address, Some(&pki.join("front-proxy-client.crt"))).await);
    assert!(!answers(&address, None).await && !answers(&address, Some(&pki.join("admin.crt"))).await);

    let space = Space::bare(&cluster, "scaled").await;
    let namespace = space.0.name.clone();
    let raw = |selector: &str| {
        let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/pointsman_pool_demand?labelSelector={selector}");
        cluster.kubectl(&["get", "--raw", &path])
    };
    let of_pool = format!("inference_pool%3D{POOL}");
    let refused = raw(&of_pool).refused();
    assert!(refused.contains(&format!("the InferencePool {namespace}/{POOL} doesn't exist: create it")), "{refused}");
    assert!(raw("app%3Dllama").refused().contains("set matchLabels to inference_pool: NAME"), "the remedy is named");

    // Both pickers see the same queue, which counts once.
    let pickers = [
        PickerProcess::start(&space.0, POOL, &["--grpc-port", "0"]).await,
        PickerProcess::start(&space.0, POOL, &["--grpc-port", "0"]).await,
    ];
    let [autoscaler, scaled_object] = examples(&namespace);
    let trigger = &scaled_object["spec"]["triggers"][0]["metadata"];
    let (_, flat) = trigger["url"].as_str().unwrap().split_once(":9090").unwrap();
    let value_location = trigger["valueLocation"].as_str().unwrap();
    for path in ["/scaling", flat] {
        let (status, why) = pickers[0].get(path).unwrap();
        assert!(status == 503 && why.contains("doesn't exist: create it"), "{path}: {status}, {why}");
    }
    let server = stuck_server();
    let spec = json!({
        "selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": server.address().port()}],
        "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
    });
    space.create(&INFERENCE_POOL, POOL, json!({"spec": spec})).await;
    space.create(&SERVICE, "picker", json!({"spec": {"selector": {"app": "picker"}, "ports": [{"name": "grpc", "port": 9002}]}})).await;
    let unready = eventually("what is missing is named", async || {
        let said = raw(&of_pool).stderr;
        said.contains("no pod of its picker's Service picker is ready").then_some(said)
    })
    .await;
    assert!(unready.contains("check its Deployment"), "{unready}");
    for (number, picker) in pickers.iter().enumerate() {
        let port: u16 = picker.pages().rsplit_once(':').unwrap().1.parse().unwrap();
        pod(&space, &format!("picker-{number}"), "picker", &json!({"name": "metrics", "containerPort": port})).await;
    }
    pod(&space, "server", "llama", &json!({"containerPort": server.address().port()})).await;

    // One request runs and twenty are queued: four times the number that saturates a server by default.
    let mut requests = JoinSet::new();
    for number in 0..21 {
        let (address, body) = (
            server.address(),
            json!({"model": "llama", "max_tokens": 4, "messages": [{"role": "user", "content": format!("prompt {number}")}]}),
        );
        requests.spawn(async move { ask(address, post(&body)).await.whole().await });
    }
    eventually("each picker reports the demand", async || {
        let demands = pickers.iter().filter_map(|picker| serde_json::from_str::<Value>(&picker.get(flat)?.1).ok());
        demands.map(|demand| demand[value_location] == 4.0).eq([true, true]).then_some(())
    })
    .await;
    let value = eventually("the API reports it", async || {
        let list: Value = serde_json::from_str(&raw(&of_pool).stdout).ok()?;
        Some(list["items"][0].clone()).filter(|item| item["value"] == "4000m")
    })
    .await;
    assert_eq!(value["metricLabels"], json!({"inference_pool": POOL, "role": "decode"}));
    assert!(pickers[0].page().contains(&format!("pointsman_pool_demand{{inference_pool=\"{namespace}/{POOL}\",role=\"decode\"}} 4.0")));

    // Nothing acts as KEDA here. Its CRD accepts the object.
    cluster.apply(&scaled_object).ok();
    space.create(&DEPLOYMENT, POOL, engine()).await;
    cluster.apply(&autoscaler).ok();
    // The load of four saturated servers needs five servers at a target of 80 %.
    space.becomes(&DEPLOYMENT, POOL, "has five replicas", |engine| engine["spec"]["replicas"] == 5).await;

    pickers.iter().for_each(PickerProcess::kill);
    let scaler = space
        .becomes(&HORIZONTAL_POD_AUTOSCALER, POOL, "has no value", |scaler| condition(scaler, "ScalingActive")["status"] == "False")
        .await;
    let message = condition(&scaler, "ScalingActive")["message"].to_string();
    assert!(message.contains(&format!("no picker of the InferencePool {namespace}/{POOL} reports its demand")), "{message}");
    assert_eq!(space.get(&DEPLOYMENT, POOL).await["spec"]["replicas"], 5, "it stays as it is");
    requests.shutdown().await;
    host.stop();
}
