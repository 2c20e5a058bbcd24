//! The alerts and the dashboard, checked with Prometheus' promtool.

use pointsman_core::resource::INFERENCE_SERVICE;
use pointsman_harness::{cluster_dir, workspace};
use pointsman_tests::{CommandOutput, TestCluster, eventually};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// The metrics of two healthy hosts, one value per minute for three hours. Time starts at 0.
const WELL: [(&str, &str); 20] = [
    (r#"up{job="pointsman",pod="a"}"#, "1x180"),
    (r#"pointsman_leader{job="pointsman",pod="a"}"#, "1x180"),
    (r#"pointsman_leader{job="pointsman",pod="b"}"#, "0x180"),
    (r#"pointsman_ready{job="pointsman",pod="a"}"#, "1x180"),
    (r#"pointsman_denied_kinds{job="pointsman",pod="a"}"#, "0x180"),
    (r#"workqueue_depth{job="pointsman",pod="a",name="subjects"}"#, "0 50 100x30 0x150"),
    (r#"controller_runtime_reconcile_total{job="pointsman",controller="InferenceService",result="success"}"#, "0+100x180"),
    (r#"controller_runtime_reconcile_total{job="pointsman",controller="InferenceService",result="error"}"#, "0+1x180"),
    (r#"pointsman_internal_errors_total{job="pointsman",pod="a"}"#, "3x180"),
    (r#"pointsman_policy_quarantined{job="pointsman",plugin="mine"}"#, "0x180"),
    (r#"pointsman_policy_quarantined_namespaces{job="pointsman",plugin="mine"}"#, "0x180"),
    (r#"pointsman_policy_plugin_info{job="pointsman",plugin="mine",digest="d",version="1"}"#, "1x180"),
    (r#"pointsman_policy_set_awaits_approval{job="pointsman",pod="a"}"#, "0x180"),
    (r#"pointsman_pace_stopped{job="pointsman",pod="a"}"#, "0x180"),
    (r#"apiserver_admission_webhook_fail_open_count{name="validate.pointsman.dev"}"#, "7x180"),
    (r#"apiserver_admission_webhook_fail_open_count{name="validate.example.com"}"#, "0+1x180"),
    (r#"controller_runtime_webhook_latency_seconds_bucket{job="pointsman",webhook="/validate",le="0.01"}"#, "0+10x180"),
    (r#"controller_runtime_webhook_latency_seconds_bucket{job="pointsman",webhook="/validate",le="5"}"#, "0+10x180"),
    (r#"controller_runtime_webhook_latency_seconds_bucket{job="pointsman",webhook="/validate",le="+Inf"}"#, "0+10x180"),
    // Thirty days later.
    (r#"pointsman_webhook_certificate_expiry_timestamp_seconds{job="pointsman",pod="a"}"#, "2592000x180"),
];

/// Failures, as the index of a series above and its values: each raises this alert and no other.
const WRONG: [(&str, usize, &str); 15] = [
    ("PointsmanDown", 0, "0x180"),
    ("PointsmanNoLeader", 1, "0x180"),
    ("PointsmanNotReady", 3, "0x180"),
    ("PointsmanRightsMissing", 4, "2x180"),
    ("PointsmanQueueGrowing", 5, "0+1x180"),
    ("PointsmanReconcilesFail", 7, "0+30x180"),
    ("PointsmanInternalErrors", 8, "0+0x170 1x10"),
    ("PointsmanPluginQuarantined", 9, "1x180"),
    ("PointsmanPluginQuarantinedInNamespaces", 10, "3x180"),
    ("PointsmanPluginNotLoaded", 11, "0x180"),
    ("PointsmanApprovalAwaited", 12, "1x180"),
    ("PointsmanPaceStopped", 13, "1x180"),
    ("PointsmanWebhookFailing", 14, "0+1x180"),
    ("PointsmanWebhookSlow", 16, "0x180"),
    ("PointsmanWebhookCertificateEnds", 19, "86400x180"),
];

fn promtool(folder: &Path, args: &[&str]) -> CommandOutput {
    CommandOutput::by(Command::new(cluster_dir().join("bin/promtool")).args(args).current_dir(folder))
}

fn component(file: &str) -> String {
    fs::read_to_string(workspace().join("deploy/components").join(file)).unwrap()
}

/// All queries of the dashboard.
fn queries(value: &Value) -> Vec<String> {
    let own = value.get("expr").and_then(Value::as_str).map(|query| query.replace("$__rate_interval", "5m"));
    let below: Vec<&Value> = match value {
        Value::Object(object) => object.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    };
    own.into_iter().chain(below.into_iter().flat_map(queries)).collect()
}

#[test]
fn each_alert_fires_for_what_it_is_about_and_none_while_all_is_well() {
    let folder = std::env::temp_dir().join(format!("pointsman-monitoring-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let rule: Value = serde_saphyr::from_str(&component("alerts/prometheus-rule.yaml")).unwrap();
    fs::write(folder.join("alerts.yaml"), rule["spec"].to_string()).unwrap();
    let dashboard: Value = serde_json::from_str(&component("dashboard/pointsman.json")).unwrap();
    let records: Vec<Value> = queries(&dashboard)
        .into_iter()
        .enumerate()
        .map(|(number, query)| json!({"record": format!("query:{number}"), "expr": query}))
        .collect();
    fs::write(folder.join("dashboard.yaml"), json!({"groups": [{"name": "dashboard", "rules": records}]}).to_string()).unwrap();
    promtool(&folder, &["check", "rules", "alerts.yaml", "dashboard.yaml"]).ok();

    let names: BTreeSet<&str> =
        rule["spec"]["groups"][0]["rules"].as_array().unwrap().iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    assert_eq!(WRONG.iter().map(|(alert, ..)| *alert).collect::<BTreeSet<_>>(), names, "each alert has what raises it");
    let guide = fs::read_to_string(workspace().join("docs/metrics.md")).unwrap();
    let untold: Vec<&&str> = names.iter().filter(|name| !guide.contains(&format!("\n| {name} |"))).collect();
    assert!(untold.is_empty(), "docs/metrics.md doesn't have {untold:?}");
    let case = |name: &str, wrong: Option<(usize, &str)>| {
        let series = WELL.iter().enumerate().map(|(number, (series, values))| {
            let values = wrong.filter(|(at, _)| *at == number).map_or(*values, |(_, values)| values);
            json!({"series": series, "values": values})
        });
        let fired: Vec<Value> = wrong.iter().map(|_| json!({"labels": format!("{{alertname=\"{name}\"}}"), "value": 1})).collect();
        let fires = json!({"expr": "count by (alertname) (ALERTS{alertstate=\"firing\"})", "eval_time": "175m", "exp_samples": fired});
        json!({"name": name, "interval": "1m", "input_series": series.collect::<Vec<_>>(), "promql_expr_test": [fires]})
    };
    let wrong = WRONG.iter().map(|(alert, series, values)| case(alert, Some((*series, values))));
    let tests: Vec<Value> = std::iter::once(case("all is well", None)).chain(wrong).collect();
    let tests = json!({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": tests});
    fs::write(folder.join("tests.yaml"), tests.to_string()).unwrap();
    promtool(&folder, &["test", "rules", "tests.yaml"]).ok();
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_api_server_counts_the_calls_of_the_webhook_that_fail_as_the_alert_expects() {
    let cluster = TestCluster::with_our_crds(pointsman_harness::Options {
        parts: Some(vec!["etcd".to_owned(), "apiserver".to_owned()]),
        ..pointsman_harness::Options::default()
    });
    let webhook = workspace().join("deploy/components/webhook/webhook.yaml");
    cluster.kubectl(&["apply", "--server-side", "-f", &webhook.to_string_lossy()]).ok();
    let counted = || {
        cluster
            .kubectl(&["get", "--raw", "/metrics"])
            .ok()
            .contains(r#"apiserver_admission_webhook_fail_open_count{name="validate.pointsman.dev""#)
    };
    let service = json!({
        "apiVersion": INFERENCE_SERVICE.api_version(), "kind": INFERENCE_SERVICE.kind, "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"model": {"name": "llama"}},
    });
    // The API server learns about the configuration by its own watch.
    let fails = async || {
        cluster.apply(&service).ok();
        cluster.kubectl(&["delete", "inferenceservice", "chat"]).ok();
        counted().then_some(())
    };
    eventually("a call that fails is counted", fails).await;
}
