//! A host without some of the roles: it reports the missing rights, and serves everything that doesn't need them.

use crate::services::{Space, own_cluster};
use pointsman_core::{
    resource::{LEADER_WORKER_SET, LLM_INFERENCE_SERVICE},
    settings::HOST_NAMESPACE,
};
use pointsman_tests::{Host, TestCluster, eventually};
use serde_json::json;

/// Not the shipped ServiceAccount, which has all roles: the audit expects that none of its requests is denied.
const ACCOUNT: &str = "narrow";

fn grant(cluster: &TestCluster, role: &str) {
    let (role, account) = (format!("pointsman-{role}"), format!("{HOST_NAMESPACE}:{ACCOUNT}"));
    let name = format!("{ACCOUNT}-{role}");
    cluster.kubectl(&["create", "clusterrolebinding", &name, "--clusterrole", &role, "--serviceaccount", &account]).ok();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn what_a_host_may_not_list_is_told_where_it_is_needed_and_healed_by_the_role() {
    let cluster = own_cluster(Some(&["lws"]));
    cluster.kubectl(&["create", "serviceaccount", ACCOUNT, "-n", HOST_NAMESPACE]).ok();
    let account = format!("{HOST_NAMESPACE}:{ACCOUNT}");
    cluster
        .kubectl(&["create", "rolebinding", ACCOUNT, "-n", HOST_NAMESPACE, "--role", "pointsman-base", "--serviceaccount", &account])
        .ok();
    let kubeconfig = cluster.kubeconfig_of_service_account(HOST_NAMESPACE, ACCOUNT).unwrap();
    let host = Host::start_as(&cluster, &kubeconfig, &[]).await;
    let readiness = async |status: u16, line: &str| {
        eventually(line, async || host.get("/readyz").ok().filter(|(code, body)| *code == status && body.contains(line))).await.1
    };
    // The reason, and not a list that is pending.
    readiness(503, "namespaces, pods: apply deploy/roles/base\n").await;
    let lacks = format!("the ServiceAccount {HOST_NAMESPACE}/{ACCOUNT} lacks the right: apply deploy/roles/base");
    let lines = |start: &str| {
        let logged = host.logged();
        let lines = logged.iter().filter_map(|line| line["message"].as_str()?.strip_prefix(start));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    // Denials within a second are logged in one line, and each resource is only in one line.
    let denied = |lines: Vec<String>| {
        let resources =
            lines.iter().filter_map(|line| line.strip_suffix(&format!(": {lacks}"))).flat_map(|resources| resources.split(", "));
        resources.map(str::to_owned).collect::<Vec<_>>()
    };
    let known = ["namespaces", "pods", "policyplugins.policy.pointsman.dev"].map(str::to_owned);
    let all = || Some(denied(lines("can't list "))).filter(|denied| known.iter().all(|known| denied.contains(known)));
    eventually("the log names what is denied", async || all()).await;
    let refused = || host.metric(r#"pointsman_api_server_errors_total{verb="list",resource="pods",code="403"}"#).unwrap_or_default();
    eventually("it has tried again", async || (refused() > 3.0).then_some(())).await;
    let mut repeated = denied(lines("can't list "));
    repeated.sort();
    assert!(repeated.is_sorted_by(|one, next| one < next), "{repeated:?}");
    for role in ["base", "kserve"] {
        grant(&cluster, role);
    }
    let said = readiness(200, "leaderworkersets.leaderworkerset.x-k8s.io: apply deploy/roles/leaderworkerset\n").await;
    assert!(said.starts_with("ok\n") && said.contains("apply deploy/roles/ome\n"), "{said}");

    let space = Space::on(&cluster, "narrow").await;
    let model = json!({"uri": "hf://example/llama"});
    space.create(&LLM_INFERENCE_SERVICE, "plain", json!({"spec": {"model": model}})).await;
    let groups = json!({"model": model, "parallelism": {"pipeline": 2}, "worker": {"containers": []}});
    space.create(&LLM_INFERENCE_SERVICE, "grouped", json!({"spec": groups})).await;
    space.says_of(&LLM_INFERENCE_SERVICE, "plain", "Ready", "True", "Ready").await;
    let said = space.says_of(&LLM_INFERENCE_SERVICE, "grouped", "PresetsCombined", "False", "MissingPermission").await;
    assert!(said.contains("needs a LeaderWorkerSet") && said.contains("apply deploy/roles/leaderworkerset"), "{said}");

    grant(&cluster, "leaderworkerset");
    space.becomes(&LEADER_WORKER_SET, "grouped-kserve-mn", "it is there", |_| true).await;
    eventually("the log says that it may", async || {
        (!lines("can list leaderworkersets.leaderworkerset.x-k8s.io again").is_empty()).then_some(())
    })
    .await;
    // Each missing right is logged once, and no other line logs the API server's message.
    let logged = host.logged();
    let messages = || logged.iter().filter_map(|line| line["message"].as_str());
    let denials: Vec<&str> = messages().filter(|message| message.starts_with("can't ")).collect();
    for right in ["pods", "leaderworkersets.leaderworkerset.x-k8s.io", "inferenceservices.ome.io"] {
        let about = |denial: &&&str| denial.split([' ', ',', ':']).any(|word| word == right);
        assert_eq!(denials.iter().filter(about).count(), 1, "{right}: {denials:#?}");
    }
    let repeated: Vec<_> = logged.iter().filter(|line| line.to_string().contains("is forbidden: User")).collect();
    assert!(repeated.is_empty(), "{repeated:#?}");
    host.stop();
}
