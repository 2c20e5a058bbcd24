//! The memory that models were seen to take: measured at each source, kept while hosts come and go, and reported in the status.

use super::Pool;
use crate::services::{Space, own_cluster};
use pointsman_core::{
    memory_usage::MEMORY_USAGE,
    resource::{DEPLOYMENT, INFERENCE_MODEL, POD},
};
use pointsman_tests::{Host, TestCluster, eventually};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const GI: u64 = 1 << 30;

/// Serves metrics.k8s.io as metrics-server does, but for who writes the objects: the test. kwok's nodes measure nothing.
fn serve_metrics_api(cluster: &TestCluster) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pods.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {
            "group": "metrics.k8s.io", "scope": "Namespaced", "names": {"kind": "PodMetrics", "plural": "pods", "singular": "pod"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": schema}],
        },
    });
    cluster.apply(&crd).ok();
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/pods.metrics.k8s.io", "--timeout", "60s"]).ok();
}

/// A server that answers each request with what a function makes of its first line.
async fn serve(address: &str, answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(address).await.unwrap();
    let local = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut chunk).await {
                        Ok(read) if read > 0 => head.extend_from_slice(&chunk[..read]),
                        _ => return,
                    }
                }
                let text = String::from_utf8_lossy(&head);
                let body = answer(text.lines().next().unwrap_or_default());
                let length = body.len();
                let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
                // A host that has ended meanwhile doesn't read it.
                stream.write_all(response.as_bytes()).await.ok();
            });
        }
    });
    local
}

/// Waits until the status has these.
async fn reports(space: &Space<'_>, peak: &str, percent: u32) -> Value {
    let what = format!("the peak is {peak}");
    let reported = |model: &Value| (model["status"]["observedPeakMemory"] == peak).then(|| model["status"].clone());
    let model = space.becomes(&INFERENCE_MODEL, "llama", &what, |model| reported(model).is_some()).await;
    let status = reported(&model).unwrap();
    assert_eq!(status["utilizationPercent"], percent, "{status}");
    assert!(status["lastObservation"].as_str().is_some_and(|time| time.ends_with('Z')), "{status}");
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peak_is_measured_at_each_source_and_outlives_hosts() {
    let cluster = own_cluster(Some(&[]));
    let often = ["--memory-usage-interval", "1s"];
    let host = Host::start(&cluster, &often).await;
    let space = Space::bare(&cluster, "memory").await;
    let pool = Pool::new(&space, &["100Gi"]);
    pool.create("llama", "80Gi", json!({})).await;
    pool.ready("llama").await;
    // A cluster without metrics-server has no such API.
    let missing = "the cluster doesn't serve metrics.k8s.io: install metrics-server, or choose another source with --memory-usage";
    let logs = |host: &Host<'_>, text: &str| host.logged().iter().any(|line| line["message"].as_str().unwrap().contains(text));
    eventually("the host says what is missing", async || logs(&host, missing).then_some(())).await;

    serve_metrics_api(&cluster);
    let pods = space.pods_with("app.kubernetes.io/name=llama").await;
    let (pod, live) = pods.into_iter().next().unwrap();
    let container = |name: &str, memory: &str| json!({"name": name, "usage": {"cpu": "1", "memory": memory}});
    let metrics = json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
        "metadata": {"name": pod, "namespace": space.0.name, "labels": live["metadata"]["labels"]},
        "timestamp": "2026-01-01T00:00:00Z", "window": "15s",
        "containers": [container("sidecar", "70Gi"), container("inference", "62914560Ki")],
    });
    cluster.apply(&metrics).ok();
    // It has been observed for too short a time to recommend less.
    assert_eq!(reports(&space, "60Gi", 75).await["recommendation"], Value::Null);
    host.stop();

    // Two hours pass, as far as the annotation can tell.
    let annotations = space.get(&DEPLOYMENT, "llama").await["metadata"]["annotations"].clone();
    let mut usage: BTreeMap<String, Value> = serde_json::from_str(annotations[MEMORY_USAGE].as_str().unwrap()).unwrap();
    for time in ["since", "last"] {
        usage.insert(time.to_owned(), "2026-01-01T00:00:00Z".into());
    }
    let aged = json!({"metadata": {"annotations": {MEMORY_USAGE: serde_json::to_string(&usage).unwrap()}}});
    space.patch(&DEPLOYMENT, "llama", aged).await;

    // Nobody else listens on this address of loopback.
    let address = "127.84.6.1";
    let resident = Arc::new(Mutex::new(10 * GI));
    let shown = Arc::clone(&resident);
    let page = move |request: &str| {
        assert_eq!(request, "GET /metrics HTTP/1.1");
        format!("# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {}\n", shown.lock().unwrap())
    };
    serve(&format!("{address}:8080"), page).await;
    space.patch_status(&POD, &pod, json!({"podIP": address, "podIPs": [{"ip": address}]})).await;
    let host = Host::start(&cluster, &[&often[..], &["--memory-usage", "pods"]].concat()).await;
    let less = "Consider reducing memory from 80Gi to 66Gi (observed peak 60Gi since 2026-01-01T00:00:00Z, 25% overprovisioned)";
    let recommends = |text: &'static str| move |model: &Value| model["status"]["recommendation"] == text;
    space.becomes(&INFERENCE_MODEL, "llama", "less is recommended", recommends(less)).await;
    reports(&space, "60Gi", 75).await;
    *resident.lock().unwrap() = 76 * GI;
    assert_eq!(reports(&space, "76Gi", 95).await["recommendation"], Value::Null);
    host.stop();

    let (namespace, name) = (space.0.name.clone(), pod.clone());
    let query = move |request: &str| {
        assert_eq!(request, "GET /prometheus/api/v1/query?query=max+by+%28namespace%2C+pod%29+%28used%29 HTTP/1.1");
        let sample = json!({"metric": {"namespace": namespace, "pod": name}, "value": [1_764_000_000.123, (84 * GI).to_string()]});
        json!({"status": "success", "data": {"resultType": "vector", "result": [sample]}}).to_string()
    };
    let prometheus = format!("http://{}/prometheus/", serve("127.0.0.1:0", query).await);
    let flags = ["--memory-usage", "prometheus:max by (namespace, pod) (used)", "--prometheus", &prometheus];
    let host = Host::start(&cluster, &[&often[..], &flags].concat()).await;
    reports(&space, "84Gi", 100).await;
    let more = "Consider increasing memory from 80Gi to 93Gi (observed peak 84Gi since 2026-01-01T00:00:00Z)";
    space.becomes(&INFERENCE_MODEL, "llama", "more is recommended", recommends(more)).await;

    // It stays while the model sleeps.
    space.patch(&INFERENCE_MODEL, "llama", json!({"spec": {"maxReplicas": 0}})).await;
    pool.reserves("it sleeps", &[]).await;
    reports(&space, "84Gi", 100).await;
    host.stop();
}
