//! The rights that `deploy/roles` grants: a host that has no others serves services of both kinds, and nothing is refused.

use crate::services::{Space, fixed, own_cluster, with_model};
use pointsman_core::{
    resource::{DEPLOYMENT, INFERENCE_POOL, LEADER_WORKER_SET, LLM_INFERENCE_SERVICE, SCALED_OBJECT},
    settings::HOST_NAMESPACE,
};
use pointsman_harness::workspace;
use pointsman_tests::Host;
use serde_json::{Value, json};

const ACCOUNT: &str = "system:serviceaccount:pointsman-system:pointsman";

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_the_shipped_roles_serves_both_kinds_and_is_refused_nothing() {
    let cluster = own_cluster(None);
    let roles = workspace().join("deploy/roles");
    let applied = cluster.kubectl(&["apply", "--server-side", "-k", roles.to_str().unwrap()]);
    assert_eq!(applied.stderr, "", "a warning, or an error");
    applied.ok();
    let account = cluster.kubeconfig_of_service_account(HOST_NAMESPACE, "pointsman").unwrap();
    let host = Host::start(&cluster, &account, &[]).await;
    host.ready().await;
    let space = Space::on(&cluster, "granted").await;

    space.service("chat", with_model(json!({"engine": fixed(1)}))).await;
    let keda = json!({"enableKeda": true, "promServerAddress": "http://prometheus:9090", "customPromQuery": "sum(queue)"});
    space.service("queue", with_model(json!({"kedaConfig": keda}))).await;
    let router = json!({"runner": {"name": "router", "image": "example.com/router:1"}, "minReplicas": 1, "maxReplicas": 1});
    space.service("routed", with_model(json!({"engine": fixed(1), "router": router}))).await;
    let model = json!({"uri": "hf://example/llama"});
    space.create(&LLM_INFERENCE_SERVICE, "picked", json!({"spec": {"model": model, "router": {"scheduler": {}}}})).await;
    let groups = json!({"model": model, "parallelism": {"pipeline": 2}, "worker": {"containers": []}});
    space.create(&LLM_INFERENCE_SERVICE, "grouped", json!({"spec": groups})).await;

    space.ready("chat").await;
    space.ready("routed").await;
    space.becomes(&SCALED_OBJECT, "queue-engine", "it is there", |_| true).await;
    space.becomes(&INFERENCE_POOL, "picked-inference-pool", "it is there", |_| true).await;
    space.becomes(&LEADER_WORKER_SET, "grouped-kserve-mn", "it is there", |_| true).await;
    for service in ["picked", "grouped"] {
        space.says_of(&LLM_INFERENCE_SERVICE, service, "Applied", "True", "Applied").await;
    }
    // Its objects go when it is changed, by the host; and when it is deleted, by the garbage collector.
    space.change("routed", json!({"router": null})).await;
    space.goes(&DEPLOYMENT, "routed-router").await;
    host.stop();

    let requests: Vec<Value> = cluster.requests().into_iter().filter(|request| request["user"]["username"] == ACCOUNT).collect();
    assert!(requests.iter().filter(|request| request["verb"] == "patch").count() > 20, "the audit log has what the host requested");
    let refused: Vec<Value> = requests
        .iter()
        .filter(|request| request["responseStatus"]["code"] == 403)
        .map(|request| json!([request["verb"], request["requestURI"], request["responseStatus"]["message"]]))
        .collect();
    assert_eq!(refused, [Value::Null; 0], "refused to the host");
}
