//! The observed memory of models: measured at each source, kept across restarts of hosts, and reported in the status.

use super::Pool;
use crate::services::{Space, own_cluster};
use pointsman_core::{
    memory_usage::MEMORY_USAGE,
    resource::{DEPLOYMENT, INFERENCE_MODEL, POD},
};
use pointsman_harness::{cluster_dir, http_get};
use pointsman_tests::{Host, TestCluster, eventually};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const GI: u64 = 1 << 30;

/// Serves metrics.k8s.io as metrics-server does, but the test writes the objects: kwok's nodes measure nothing.
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
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/pods.metrics.k8s.io", "--timeout", "600s"]).ok();
}

/// Responds to each request for /metrics like a model server that uses this much memory.
async fn serve_metrics(address: &str, resident: Arc<Mutex<u64>>) {
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let resident = Arc::clone(&resident);
            tokio::spawn(async move {
                let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut chunk).await {
                        Ok(read) if read > 0 => head.extend_from_slice(&chunk[..read]),
                        _ => return,
                    }
                }
                assert!(head.starts_with(b"GET /metrics HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&head));
                let bytes = *resident.lock().unwrap();
                let body = format!("# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {bytes}\n");
                let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}", body.len());
                // The client may have disconnected.
                stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes()).await.ok();
            });
        }
    });
}

/// Starts a Prometheus below a path that scrapes the server of a pod, and returns its URL. It ends with the cluster.
async fn start_prometheus(cluster: &TestCluster, address: &str, namespace: &str, pod: &str) -> String {
    let folder = cluster.dir.join("prometheus");
    std::fs::create_dir_all(&folder).unwrap();
    let target = json!({"targets": [format!("{address}:8080")], "labels": {"namespace": namespace, "pod": pod}});
    let scrape = json!({"job_name": "models", "scrape_interval": "1s", "static_configs": [target]});
    let config = folder.join("prometheus.yml");
    std::fs::write(&config, json!({"scrape_configs": [scrape]}).to_string()).unwrap();
    // Prometheus doesn't report a port that it chose itself.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let command = [
        cluster_dir().join("bin/prometheus").display().to_string(),
        format!("--config.file={}", config.display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
        "--web.route-prefix=/prometheus".to_owned(),
    ];
    cluster.run("prometheus", &command, &BTreeMap::new()).unwrap();
    let ready = async || http_get(&format!("127.0.0.1:{port}"), "/prometheus/-/ready").ok().filter(|(status, _)| *status == 200);
    eventually("Prometheus is ready", ready).await;
    format!("http://127.0.0.1:{port}/prometheus/")
}

/// Waits until the status has these values.
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
    // Without metrics-server, a cluster doesn't have this API.
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
    // The observation is too short for a recommendation of less memory.
    assert_eq!(reports(&space, "60Gi", 75).await["recommendation"], Value::Null);
    host.stop();

    // Changes the times in the annotation, as if more than two hours had passed.
    let annotations = space.get(&DEPLOYMENT, "llama").await["metadata"]["annotations"].clone();
    let mut usage: BTreeMap<String, Value> = serde_json::from_str(annotations[MEMORY_USAGE].as_str().unwrap()).unwrap();
    for time in ["since", "last"] {
        usage.insert(time.to_owned(), "2026-01-01T00:00:00Z".into());
    }
    let aged = json!({"metadata": {"annotations": {MEMORY_USAGE: serde_json::to_string(&usage).unwrap()}}});
    space.patch(&DEPLOYMENT, "llama", aged).await;

    // An address of loopback that nothing else uses.
    let address = "127.84.6.1";
    let resident = Arc::new(Mutex::new(10 * GI));
    serve_metrics(&format!("{address}:8080"), Arc::clone(&resident)).await;
    space.patch_status(&POD, &pod, json!({"podIP": address, "podIPs": [{"ip": address}]})).await;
    let host = Host::start(&cluster, &[&often[..], &["--memory-usage", "pods"]].concat()).await;
    let less = "Consider reducing memory from 80Gi to 66Gi (observed peak 60Gi since 2026-01-01T00:00:00Z, 25% overprovisioned)";
    let recommends = |text: &'static str| move |model: &Value| model["status"]["recommendation"] == text;
    space.becomes(&INFERENCE_MODEL, "llama", "less is recommended", recommends(less)).await;
    reports(&space, "60Gi", 75).await;
    *resident.lock().unwrap() = 76 * GI;
    assert_eq!(reports(&space, "76Gi", 95).await["recommendation"], Value::Null);
    host.stop();

    let prometheus = start_prometheus(&cluster, address, &space.0.name, &pod).await;
    *resident.lock().unwrap() = 84 * GI;
    let query = "prometheus:max by (namespace, pod) (max_over_time(process_resident_memory_bytes[1m]))";
    let flags = ["--memory-usage", query, "--prometheus", &prometheus];
    let host = Host::start(&cluster, &[&often[..], &flags].concat()).await;
    reports(&space, "84Gi", 100).await;
    let more = "Consider increasing memory from 80Gi to 93Gi (observed peak 84Gi since 2026-01-01T00:00:00Z)";
    space.becomes(&INFERENCE_MODEL, "llama", "more is recommended", recommends(more)).await;

    // The observation stays while the model sleeps.
    space.patch(&INFERENCE_MODEL, "llama", json!({"spec": {"maxReplicas": 0}})).await;
    pool.reserves("it sleeps", &[]).await;
    reports(&space, "84Gi", 100).await;
    host.stop();
}
