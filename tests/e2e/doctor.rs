//! `pointsman doctor` finds each defect of an installation, prints a remedy, and reports nothing once the remedy is applied.

use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::{Options, workspace};
use pointsman_tests::{CommandOutput, Host, TestCluster, eventually};
use serde_json::{Value, json};
use std::process::Command;

/// The findings as "check state: message: remedy", and the exit code.
fn examine(cluster: &TestCluster) -> (Option<i32>, Vec<String>) {
    let said = cluster.pointsman(&["doctor", "-o", "json"]);
    let lines: Vec<Value> = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", said.stdout, said.stderr));
    let part = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let text =
        |line: &Value| format!("{} {}: {}: {}", part(line, "check"), part(line, "state"), part(line, "message"), part(line, "remedy"));
    (said.code, lines.iter().map(text).collect())
}

/// Waits for a finding that only the previous step of the test explains.
pub(crate) async fn finds(cluster: &TestCluster, what: &str, remedy: &str) {
    eventually(what, async || {
        let (_, lines) = examine(cluster);
        lines.iter().any(|line| line.contains(what) && line.contains(remedy)).then_some(())
    })
    .await;
}

fn apply(cluster: &TestCluster, folder: &str) -> bool {
    cluster
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-k", &workspace().join("deploy").join(folder).to_string_lossy()])
        .success
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn doctor_finds_what_is_wrong_says_what_to_do_and_is_content_after_it() {
    let cluster = TestCluster::start(&Options { neighbours: Some(vec!["lws".to_owned()]), ..Options::default() });
    let (code, lines) = examine(&cluster);
    assert_eq!(code, Some(1), "{lines:#?}");
    for expected in [
        "crds wrong: policyplugins.policy.pointsman.dev is missing, without which hosts can't decide: run `pointsman crds install`",
        "namespace wrong: the host's namespace pointsman-system doesn't exist: apply deploy/host/namespace.yaml",
        "rights wrong: the ServiceAccount has no right of base, without which no host becomes ready: apply deploy/roles/base",
        "hosts note: there is no Deployment pointsman",
        "leader wrong: no host has led yet",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}: {lines:#?}");
    }

    cluster.pointsman(&["crds", "install"]).ok();
    // Without cert-manager, nothing creates the Secret.
    assert!(!apply(&cluster, "overlays/webhook-cert-manager"), "there are no Certificates");
    finds(&cluster, "mounts the Secret pointsman-webhook-certificate, which doesn't exist", "create it").await;
    finds(&cluster, "validate.pointsman.dev has no caBundle", "its injector does").await;

    assert!(apply(&cluster, "install"));
    cluster.kubectl(&["rollout", "status", "deployment/pointsman", "-n", HOST_NAMESPACE, "--timeout", "600s"]).ok();
    finds(&cluster, "no host runs with --webhook", "or delete the configurations").await;
    for kind in ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"] {
        cluster.kubectl(&["delete", kind, "pointsman"]).ok();
    }
    let deployment: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "deployment", "pointsman", "-n", HOST_NAMESPACE, "-o", "json"]).ok()).unwrap();
    let host = Host::start_as_deployed(&cluster, &deployment).await;
    host.ready().await;

    cluster.kubectl(&["delete", "clusterrolebinding", "pointsman-leaderworkerset"]).ok();
    finds(&cluster, "the ServiceAccount has no right of leaderworkerset", "apply deploy/roles/leaderworkerset").await;
    let crd = "crd/policysets.policy.pointsman.dev";
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/summary";
    let patch = json!([{"op": "remove", "path": field}]).to_string();
    // As an older host would have installed it.
    cluster.kubectl(&["patch", crd, "--type", "json", "-p", &patch, "--field-manager", "pointsman/crds"]).ok();
    finds(&cluster, "policysets.policy.pointsman.dev is that of another version of Pointsman", "run `pointsman crds install`").await;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": deployment["spec"]["template"]["spec"]});
    pod["metadata"] = json!({"name": "another", "namespace": HOST_NAMESPACE, "labels": {"app.kubernetes.io/name": "pointsman"}});
    pod["spec"]["containers"][0]["args"] = json!(["controller", "--pace=1"]);
    cluster.apply(&pod).ok();
    finds(&cluster, "the pods run with different arguments or variables", "delete pods that don't belong to it").await;

    pod["metadata"] = json!({"name": "unscheduled", "namespace": HOST_NAMESPACE});
    pod["spec"]["schedulerName"] = "pointsman".into();
    cluster.apply(&pod).ok();
    finds(&cluster, "scheduler wrong: 1 pod with schedulerName pointsman waits forever", "apply deploy/scheduler").await;
    assert!(apply(&cluster, "scheduler"));
    finds(&cluster, "scheduler ok: the kube-scheduler is of the cluster's minor version", "").await;
    finds(&cluster, "scheduler ok: 2 of 2 replicas are ready", "").await;

    cluster.kubectl(&["delete", "pod", "another", "unscheduled", "-n", HOST_NAMESPACE]).ok();
    cluster.pointsman(&["crds", "install"]).ok();
    assert!(apply(&cluster, "install"));
    eventually("it is content", async || (examine(&cluster).0 == Some(0)).then_some(())).await;
    let table = cluster.pointsman(&["doctor"]).ok();
    assert!(table.starts_with("CHECK ") && !table.contains("WRONG") && table.contains("leads"), "{table}");
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn doctor_looks_at_the_certificate_the_gateway_and_prometheus_and_packs_what_a_support_case_needs() {
    let neighbours = ["gateway", "prometheus-operator"].map(str::to_owned).to_vec();
    let cluster = TestCluster::start(&Options { neighbours: Some(neighbours), ..Options::default() });
    cluster.pointsman(&["crds", "install"]).ok();
    assert!(apply(&cluster, "overlays/webhook"));
    cluster.kubectl(&["rollout", "status", "deployment/pointsman", "-n", HOST_NAMESPACE, "--timeout", "600s"]).ok();
    finds(&cluster, "webhook wrong: the Secret pointsman-webhook has no certificate of the webhook in tls.crt", "its log has the reason")
        .await;
    finds(&cluster, "prometheus note: the cluster has Prometheus' operator", "add deploy/components/service-monitor").await;
    finds(&cluster, "gateway note: the hosts have no --gateway", "--gateway=NAMESPACE/NAME").await;

    let deployment: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "deployment", "pointsman", "-n", HOST_NAMESPACE, "-o", "json"]).ok()).unwrap();
    let host = Host::start_as_deployed(&cluster, &deployment).await;
    host.ready().await;
    finds(&cluster, "webhook ok: the webhook's certificate expires in ", "").await;
    assert!(apply(&cluster, "overlays/service-monitor"));
    finds(&cluster, "prometheus ok: the ServiceMonitor pointsman lets Prometheus' operator find the hosts", "").await;
    assert!(apply(&cluster, "overlays/webhook"));

    let environment = json!([{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--gateway=default/edge"},
        {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--prometheus=http://prometheus.monitoring.svc:9090"}]);
    let patch = ["patch", "deployment", "pointsman", "-n", HOST_NAMESPACE, "--type", "json", "-p", &environment.to_string()];
    cluster.kubectl(&patch).ok();
    finds(&cluster, "gateway wrong: the Gateway default/edge of --gateway doesn't exist", "create it, or change the flag").await;
    finds(&cluster, "prometheus wrong: no ready pod is behind the Service monitoring/prometheus of --prometheus", "change the flag").await;
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "none", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    });
    cluster.apply(&gateway).ok();
    finds(&cluster, "gateway wrong: the Gateway default/edge isn't programmed (Waiting for controller)", "GatewayClass").await;

    let service = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"engine": {"runner": {"name": "ome-container", "image": "example.com/a:1", "env": [{"name": "HF_TOKEN", "value": "hunter2"}]}}},
    });
    cluster.apply(&service).ok();
    // No kubelet runs here, so pods have no logs.
    let archive = cluster.dir.join("case.tar.gz").display().to_string();
    let said = cluster.pointsman(&["doctor", "--bundle", &archive]);
    for part in [
        "findings.json",
        "versions.json",
        "host/pods.json",
        "objects/inferenceservices.ome.io.json",
        "missing.txt",
        "It contains no Secrets",
    ] {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    CommandOutput::by(Command::new("tar").args(["-xzf", &archive]).current_dir(&*cluster.dir)).ok();
    let file = |name: &str| std::fs::read_to_string(cluster.dir.join("pointsman-bundle").join(name)).unwrap();
    assert!(file("missing.txt").contains(".log: ") && file("host/configmaps.json").contains("pointsman"), "{}", file("missing.txt"));
    let services = file("objects/inferenceservices.ome.io.json");
    assert!(services.contains("HF_TOKEN") && !services.contains("hunter2"), "{services}");
    let all = CommandOutput::by(Command::new("grep").args(["-rl", "PRIVATE KEY", "pointsman-bundle"]).current_dir(&*cluster.dir));
    assert_eq!((all.code, all.stdout.as_str()), (Some(1), ""), "no key is in it");
    let again = cluster.pointsman(&["doctor", "--bundle", &archive]);
    assert!(again.stderr.contains("case.tar.gz") && again.stderr.contains("exists"), "{}", again.stderr);

    // Without a host, nothing repairs it.
    host.stop();
    let another = cluster.kubectl(&["config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}"]).ok();
    let bundle = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": another}]).to_string();
    cluster.kubectl(&["patch", "validatingwebhookconfiguration", "pointsman", "--type", "json", "-p", &bundle]).ok();
    finds(
        &cluster,
        "the caBundle of validate.pointsman.dev doesn't trust the certificate of the Secret pointsman-webhook",
        "the leader writes",
    )
    .await;
}
