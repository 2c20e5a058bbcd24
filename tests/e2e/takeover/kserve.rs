//! The adoption of an LLMInferenceService from KServe's own controller.

use super::{Other, adopt, host, looks_again, run, running, unmarked};
use crate::services::{Space, condition, own_cluster};
use pointsman_core::resource::{DEPLOYMENT, LEADER_WORKER_SET, LLM_INFERENCE_SERVICE, POD, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT};
use pointsman_tests::eventually;
use serde_json::{Value, json};

const REACHED: &str = "llama-kserve-workload-svc";

/// The objects of KServe's controller for a service on one node.
async fn made_by_kserve(space: &Space<'_>) {
    let image = json!({"containers": [{"name": "main", "image": "example.com/vllm:1"}]});
    let spec = json!({"model": {"uri": "hf://example/llama", "name": "llama"}, "replicas": 2, "template": image});
    space.create(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": spec})).await;
    let other = Other::new(space, &LLM_INFERENCE_SERVICE, "llama");
    let labels = json!({
        "app.kubernetes.io/component": "llminferenceservice-workload", "app.kubernetes.io/name": "llama",
        "app.kubernetes.io/part-of": "llminferenceservice", "kserve.io/component": "workload", "llm-d.ai/role": "both",
    });
    let container = json!({"name": "main", "image": "example.com/vllm:1", "args": ["--old"], "ports": [{"containerPort": 8000}]});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    other.makes(&DEPLOYMENT, "llama-kserve", labels.clone(), json!({"spec": spec})).await;
    let mut selector = labels.clone();
    selector.as_object_mut().unwrap().retain(|key, _| key.starts_with("app.kubernetes.io/"));
    let ports = json!([{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP"}]);
    other.makes(&SERVICE, REACHED, labels, json!({"spec": {"selector": selector, "ports": ports}})).await;
    other.is_content(1).await;
}

async fn ready(space: &Space<'_>) {
    let expected = |service: &Value| {
        condition(service, "Ready")["status"] == "True" && service["status"]["observedGeneration"] == service["metadata"]["generation"]
    };
    space.becomes(&LLM_INFERENCE_SERVICE, "llama", "it is Ready", expected).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_service_of_kserve_s_own_controller_runs_on_rolls_when_it_is_asked_to_and_is_given_back() {
    let cluster = own_cluster(Some(&["lws"]));
    let space = Space::bare(&cluster, "from-kserve").await;
    made_by_kserve(&space).await;
    let host = host(&cluster).await;
    space.says_of(&LLM_INFERENCE_SERVICE, "llama", "Contested", "True", "OtherController").await;
    let pods = run(&space, 2).await;
    let old = space.get(&DEPLOYMENT, "llama-kserve").await;
    let told = adopt(&space, &["llmisvc/llama", "--yes", "--force"]).ok();
    assert!(told.contains("/llama: 0 pods restart") && told.matches("adopted unchanged").count() == 2, "{told}");
    ready(&space).await;
    let now = space.get(&DEPLOYMENT, "llama-kserve").await;
    for part in ["/metadata/uid", "/spec/template", "/spec/selector", "/spec/replicas"] {
        assert_eq!(now.pointer(part), old.pointer(part), "{part}");
    }
    assert_eq!((running(&space).await, space.reached(REACHED).len()), (pods.clone(), 2));
    let quiet = async || {
        let before = space.writes();
        looks_again(&space, &host, &LLM_INFERENCE_SERVICE, "llama").await;
        assert_eq!(space.writes(), before);
    };
    quiet().await;

    let image = json!([{"name": "main", "image": "example.com/vllm:2"}]);
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"template": {"containers": image}}})).await;
    eventually("all pods are new, and have nothing of the old", async || {
        let pods = space.pods_with("kserve.io/component=workload,llm-d.ai/role=both").await;
        let fresh = |pod: &Value| {
            let container = &pod["spec"]["containers"][0];
            container["image"] == "example.com/vllm:2"
                && !container["args"].to_string().contains("--old")
                && condition(pod, "Ready")["status"] == "True"
        };
        (pods.len() == 2 && pods.values().all(fresh)).then_some(())
    })
    .await;
    ready(&space).await;
    assert_eq!(space.get(&DEPLOYMENT, "llama-kserve").await["spec"]["selector"], old["spec"]["selector"]);
    assert!(space.get(&DEPLOYMENT, "llama-kserve").await["metadata"]["annotations"]["pointsman.dev/revision"].is_null());
    quiet().await;

    let (pods, before) = (run(&space, 2).await, space.get(&DEPLOYMENT, "llama-kserve").await);
    adopt(&space, &["llmisvc/llama", "--back", "--yes"]).ok();
    let now = space.get(&DEPLOYMENT, "llama-kserve").await;
    assert_eq!((&now["spec"], &now["metadata"]["uid"]), (&before["spec"], &before["metadata"]["uid"]));
    assert!(unmarked(&now), "{:#}", now["metadata"]);
    assert_eq!((running(&space).await, space.reached(REACHED).len()), (pods, 2));
    host.stop();
}

/// The objects of KServe's controller for a service on two nodes. Its pods have their own ServiceAccount, which ours don't need.
async fn made_for_two_nodes(space: &Space<'_>) {
    let pod = json!({"containers": [{"name": "main", "image": "example.com/vllm:1"}]});
    let model = json!({"uri": "hf://example/llama", "name": "llama"});
    let spec = json!({"model": model, "replicas": 1, "parallelism": {"pipeline": 2}, "template": pod, "worker": pod});
    space.create(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": spec})).await;
    let other = Other::new(space, &LLM_INFERENCE_SERVICE, "llama");
    let labels = |component: &str| {
        json!({
            "app.kubernetes.io/component": format!("llminferenceservice-{component}"), "app.kubernetes.io/name": "llama",
            "app.kubernetes.io/part-of": "llminferenceservice", "kserve.io/component": "workload", "llm-d.ai/role": "both",
        })
    };
    let of_all = labels("workload");
    let account = "llama-kserve-mn";
    other.makes(&SERVICE_ACCOUNT, account, of_all.clone(), json!({})).await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    other.makes(&ROLE, "llama-kserve-mn-role", of_all.clone(), json!({"rules": rules})).await;
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "llama-kserve-mn-role"},
        "subjects": [{"kind": "ServiceAccount", "namespace": space.0.name, "name": account}],
    });
    other.makes(&ROLE_BINDING, "llama-kserve-mn-rb", of_all.clone(), binding).await;
    let template = |component: &str| {
        let container = json!({"name": "main", "image": "example.com/vllm:1", "args": ["--old"], "ports": [{"containerPort": 8000}]});
        json!({"metadata": {"labels": labels(component)}, "spec": {"serviceAccountName": account, "containers": [container]}})
    };
    let group = json!({
        "size": 2, "restartPolicy": "RecreateGroupOnPodRestart", "leaderTemplate": template("workload-leader"),
        "workerTemplate": template("workload-worker"),
    });
    let set = json!({"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": group});
    other.makes(&LEADER_WORKER_SET, "llama-kserve-mn", of_all.clone(), json!({"spec": set})).await;
    let ports = json!([{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP"}]);
    let mut leaders = labels("workload-leader");
    leaders.as_object_mut().unwrap().retain(|key, _| key.starts_with("app.kubernetes.io/"));
    other.makes(&SERVICE, REACHED, of_all, json!({"spec": {"selector": leaders, "ports": ports}})).await;
    other.is_content(1).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn whom_the_old_pods_of_several_nodes_are_stays_until_they_are_gone() {
    let cluster = own_cluster(Some(&["lws"]));
    let space = Space::bare(&cluster, "from-kserve-groups").await;
    made_for_two_nodes(&space).await;
    let host = host(&cluster).await;
    let pods = run(&space, 2).await;
    let told = adopt(&space, &["llmisvc/llama", "--yes", "--force"]).ok();
    let stays = told.matches("retained until the pods are replaced").count();
    assert!(told.contains("/llama: 0 pods restart") && stays == 3, "{told}");
    ready(&space).await;
    looks_again(&space, &host, &LLM_INFERENCE_SERVICE, "llama").await;
    let whom = [(&SERVICE_ACCOUNT, "llama-kserve-mn"), (&ROLE, "llama-kserve-mn-role"), (&ROLE_BINDING, "llama-kserve-mn-rb")];
    for (resource, name) in whom {
        let now = space.get(resource, name).await;
        assert!(!unmarked(&now) && now["metadata"]["deletionTimestamp"].is_null(), "{now:#}");
    }
    assert_eq!((running(&space).await, space.reached(REACHED).len()), (pods, 1));

    let next = json!({"containers": [{"name": "main", "image": "example.com/vllm:2"}]});
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"template": next, "worker": next}})).await;
    for (resource, name) in whom {
        space.goes(resource, name).await;
        let pods = space.pods_with("app.kubernetes.io/name=llama").await;
        let left: Vec<&Value> = pods.values().filter(|pod| pod["spec"]["containers"][0]["image"] != "example.com/vllm:2").collect();
        assert!(left.is_empty(), "the {} {name} went before {left:#?}", resource.kind);
    }
    let pods = run(&space, 2).await;
    for pod in pods.keys() {
        let account = space.get(&POD, pod).await["spec"]["serviceAccountName"].take();
        assert_eq!(account, "default", "{pod} needs none of its own");
    }
    ready(&space).await;
    eventually("the new leader is reached", async || (space.reached(REACHED).len() == 1).then_some(())).await;
    host.stop();
}
