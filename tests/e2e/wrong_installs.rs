//! Wrong installations: `pointsman doctor`, the host's log and /readyz each report the problem and the remedy.

use crate::{doctor::finds, services::own_cluster};
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::workspace;
use pointsman_tests::{Host, TestCluster, eventually};
use serde_json::{Value, json};

/// A host's report of a problem: whether the host is ready nevertheless, and parts of the message.
struct Said<'a> {
    ready: bool,
    sentence: &'a str,
    remedy: &'a str,
}

impl Said<'_> {
    fn is_in(&self, text: &str) -> bool {
        text.contains(self.sentence) && text.contains(self.remedy)
    }

    /// Waits until a host's /readyz and its log contain it.
    async fn by(&self, host: &Host<'_>) {
        self.by_readyz(host).await;
        self.by_log(host).await;
    }

    async fn by_readyz(&self, host: &Host<'_>) {
        let (code, what) = (if self.ready { 200 } else { 503 }, self.sentence);
        let answered = || host.get("/readyz").is_ok_and(|(is, page)| is == code && page.lines().any(|line| self.is_in(line)));
        eventually(&format!("/readyz says {what}"), async || answered().then_some(())).await;
    }

    async fn by_log(&self, host: &Host<'_>) {
        let what = self.sentence;
        let is_logged = |line: &Value| {
            ["WARN", "ERROR"].iter().any(|level| line["level"] == *level) && self.is_in(&format!("{} {}", line["message"], line["error"]))
        };
        eventually(&format!("the log says {what}"), async || host.logged().iter().any(is_logged).then_some(())).await;
    }
}

fn apply(cluster: &TestCluster, path: &str) {
    let path = workspace().join("deploy").join(path);
    let flag = if path.is_dir() { "-k" } else { "-f" };
    cluster.kubectl(&["apply", "--server-side", "--force-conflicts", flag, &path.to_string_lossy()]).ok();
}

/// Patches one of our CRDs, as another version of `crds install` would.
fn patch_crd(cluster: &TestCluster, name: &str, patch: &Value) {
    let patch = patch.to_string();
    cluster.kubectl(&["patch", "crd", name, "--type", "json", "-p", &patch, "--field-manager", "pointsman/crds"]).ok();
}

#[tokio::test]
async fn a_missing_namespace_and_other_crds_are_reported_and_healed_without_a_restart() {
    let cluster = TestCluster::bare(&[]);
    cluster.pointsman(&["crds", "install"]).ok();
    // The host's ServiceAccount would be in the missing namespace.
    let host = Host::start_as(&cluster, &cluster.kubeconfig, &[]).await;
    let namespace = "the host's namespace pointsman-system doesn't exist";
    Said { ready: false, sentence: namespace, remedy: "run `kubectl create namespace pointsman-system`" }.by(&host).await;
    finds(&cluster, namespace, "apply deploy/host/namespace.yaml").await;
    apply(&cluster, "host/namespace.yaml");
    host.ready().await;

    let crd = "policysets.policy.pointsman.dev";
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/summary";
    patch_crd(&cluster, crd, &json!([{"op": "remove", "path": field}]));
    let older = format!("the CRD {crd} is older than this host, and has no field status.summary");
    Said { ready: true, sentence: &older, remedy: ": run `pointsman crds install`" }.by(&host).await;
    finds(&cluster, &format!("{crd} is that of another version of Pointsman, and has no field status.summary"), "run `pointsman crds")
        .await;

    let mut other: Value = serde_json::from_str(&cluster.kubectl(&["get", "crd", crd, "-o", "json"]).ok()).unwrap();
    let mut version = other["spec"]["versions"][0].take();
    (version["name"], version["storage"]) = (json!("v1beta1"), json!(false));
    let no_longer = json!({"op": "replace", "path": "/spec/versions/0/served", "value": false});
    patch_crd(&cluster, crd, &json!([no_longer, {"op": "add", "path": "/spec/versions/-", "value": version}]));
    let unserved = format!("the cluster doesn't serve {crd}/v1alpha1");
    Said { ready: false, sentence: &unserved, remedy: "`pointsman crds install` installs the CRDs" }.by(&host).await;
    finds(&cluster, &format!("{crd} is that of another version of Pointsman, and can't be used"), "run `pointsman crds install`").await;

    cluster.pointsman(&["crds", "install"]).ok();
    eventually("nothing is wrong any more", async || host.get("/readyz").is_ok_and(|said| said == (200, "ok\n".to_owned())).then_some(()))
        .await;

    // A CRD that kubectl installed is also updated with kubectl.
    cluster.kubectl(&["delete", "crd", crd]).ok();
    let file = workspace().join("crds/yaml").join("policy.pointsman.dev_policysets.yaml");
    cluster.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]).ok();
    let patch = json!([{"op": "remove", "path": field}]).to_string();
    cluster.kubectl(&["patch", "crd", crd, "--type", "json", "-p", &patch, "--field-manager", "kubectl"]).ok();
    Said { ready: true, sentence: &older, remedy: ": run `kubectl apply --server-side -k crds`" }.by(&host).await;
    finds(&cluster, &format!("{crd} is that of another version of Pointsman"), "run `kubectl apply --server-side -k crds`").await;
    host.stop();

    // After an uninstallation, a pod may keep running for a while with a token that is no longer valid.
    cluster.kubectl(&["create", "serviceaccount", "replaced"]).ok();
    let replaced = cluster.kubeconfig_of_service_account("default", "replaced").unwrap();
    for verb in ["delete", "create"] {
        cluster.kubectl(&[verb, "serviceaccount", "replaced"]).ok();
    }
    let host = Host::start_as(&cluster, &replaced, &[]).await;
    Said { ready: false, sentence: "it rejects the host's token", remedy: "delete the host's pods" }.by(&host).await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_missing_right_other_flags_and_a_webhook_without_its_certificate_are_reported_and_healed() {
    let cluster = own_cluster(Some(&["lws"]));
    let webhook = ["--webhook", "127.0.0.1:0"];
    let leader = Host::start(&cluster, &webhook).await;
    leader.ready().await;
    apply(&cluster, "components/webhook/webhook.yaml");

    cluster.kubectl(&["delete", "clusterrolebinding", "pointsman-leaderworkerset"]).ok();
    let host = Host::start(&cluster, &["--webhook", "127.0.0.1:0", "--pace", "1", "--control", "isvc:team-a"]).await;
    let denied = "the host has no right to list leaderworkersets.leaderworkerset.x-k8s.io";
    let remedy = ": apply deploy/roles/leaderworkerset";
    Said { ready: true, sentence: denied, remedy }.by_readyz(&host).await;
    let denied = "can't list leaderworkersets.leaderworkerset.x-k8s.io: the ServiceAccount pointsman-system/pointsman lacks the right";
    Said { ready: true, sentence: denied, remedy }.by_log(&host).await;
    finds(&cluster, "the ServiceAccount has no right of leaderworkerset", "apply deploy/roles/leaderworkerset").await;

    let differs = "this host has another --control, --pace than the leader";
    Said { ready: true, sentence: differs, remedy: ": wait until the rollout has ended, or run all hosts with the same flags" }
        .by(&host)
        .await;
    assert!(!leader.get("/readyz").unwrap().1.contains("than the leader"), "the leader is the measure");
    apply(&cluster, "host");
    let deployment: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "deployment", "pointsman", "-n", HOST_NAMESPACE, "-o", "json"]).ok()).unwrap();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": deployment["spec"]["template"]["spec"]});
    pod["metadata"] = json!({"name": "another", "namespace": HOST_NAMESPACE, "labels": {"app.kubernetes.io/name": "pointsman"}});
    pod["spec"]["containers"][0]["env"].as_array_mut().unwrap().push(json!({"name": "POINTSMAN_CACHE_KEY", "value": "/key"}));
    cluster.apply(&pod).ok();
    finds(&cluster, "the pods run with different arguments or variables", "wait until the rollout has ended, and delete pods that don't")
        .await;
    // Hosts compare their flags with the leader's, and now the other host is the leader.
    leader.stop();
    eventually("it leads", async || host.get("/readyz").is_ok_and(|(_, said)| !said.contains("than the leader")).then_some(())).await;
    host.stop();
    apply(&cluster, "roles");

    cluster.kubectl(&["delete", "rolebinding", "pointsman-webhook", "-n", HOST_NAMESPACE]).ok();
    cluster.kubectl(&["delete", "secret", "pointsman-webhook", "-n", HOST_NAMESPACE]).ok();
    let host = Host::start(&cluster, &webhook).await;
    let bare = "the webhook has no certificate: the Secret pointsman-webhook: it can't be read";
    eventually("/readyz says it", async || {
        let (code, said) = host.get("/readyz").ok()?;
        (code == 503 && said.contains(bare) && said.contains(": apply deploy/roles/webhook")).then_some(())
    })
    .await;
    let lacks = "secrets in the namespace pointsman-system: the ServiceAccount pointsman-system/pointsman lacks the right";
    Said { ready: false, sentence: lacks, remedy: ": apply deploy/roles/webhook" }.by_log(&host).await;
    finds(&cluster, "the ServiceAccount lacks rights of webhook", "apply deploy/roles/webhook").await;
    finds(&cluster, "the Secret pointsman-webhook has no certificate of the webhook", "the rights of deploy/roles/webhook").await;
    apply(&cluster, "roles/webhook");
    host.ready().await;
    finds(&cluster, "webhook ok: the webhook's certificate expires in ", "").await;
    host.stop();

    let folder = cluster.dir.join("certificates");
    std::fs::create_dir(&folder).unwrap();
    let host = Host::start(&cluster, &["--webhook", "127.0.0.1:0", "--webhook-certs", folder.to_str().unwrap()]).await;
    let said = Said { ready: false, sentence: "tls.crt can't be read", remedy: "put tls.crt and tls.key into the folder " };
    said.by(&host).await;
    cluster.kubectl(&["create", "secret", "generic", "pointsman-webhook-certificate", "-n", HOST_NAMESPACE]).ok();
    let mount = json!([{"op": "add", "path": "/spec/template/spec/volumes/-",
        "value": {"name": "certificates", "secret": {"secretName": "pointsman-webhook-certificate"}}}]);
    cluster.kubectl(&["patch", "deployment", "pointsman", "-n", HOST_NAMESPACE, "--type", "json", "-p", &mount.to_string()]).ok();
    finds(&cluster, "the Secret pointsman-webhook-certificate has no certificate of the webhook in tls.crt", "check the Certificate").await;
    host.stop();
}
