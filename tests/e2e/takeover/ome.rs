//! The adoption of services from OME's own controller, and their release: all pods keep running.

use super::{MANAGER, Other, adopt, host, looks_again, run, running, unmarked};
use crate::services::{Space, condition, fixed, own_cluster, set, with_model};
use kube::api::ListParams;
use pointsman_core::{
    resource::{
        DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, INFERENCE_SERVICE, LEADER_WORKER_SET, POD_DISRUPTION_BUDGET, ROLE, ROLE_BINDING, Resource,
        SERVICE, SERVICE_ACCOUNT,
    },
    world::child::SUBJECT_KIND,
};
use pointsman_tests::{Host, eventually};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn container(name: &str, image: &str) -> Value {
    json!({
        "name": name, "image": image, "args": ["--old"], "env": [{"name": "OLD", "value": "1"}], "ports": [{"containerPort": 8000}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

fn labels(service: &str, component: &str) -> Value {
    json!({"ome.io/inferenceservice": service, "component": component, "serving-runtime": "runtime"})
}

/// A service with a router and a superfluous autoscaler.
pub(super) async fn raw(space: &Space<'_>, name: &str) {
    let engine = json!({"minReplicas": 2, "maxReplicas": 4});
    let mut router = fixed(2);
    router["runner"] = json!({"name": "router", "image": "example.com/router:1", "ports": [{"containerPort": 8000}]});
    space.service(name, with_model(json!({"engine": engine, "router": router}))).await;
    let other = Other::new(space, &INFERENCE_SERVICE, name);
    let pod = |container: Value| json!({"containers": [container]});
    other.deploys(&format!("{name}-engine"), labels(name, "engine"), pod(container("ome-container", "example.com/engine:1")), true).await;
    let account = format!("{name}-router");
    other.makes(&SERVICE_ACCOUNT, &account, labels(name, "router"), json!({})).await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]);
    other.makes(&ROLE, &account, labels(name, "router"), json!({"rules": rules})).await;
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "namespace": space.0.name, "name": account}],
    });
    other.makes(&ROLE_BINDING, &account, labels(name, "router"), binding).await;
    let mut routing = pod(container("router", "example.com/router:1"));
    routing["serviceAccountName"] = account.as_str().into();
    other.deploys(&account, labels(name, "router"), routing, true).await;
    let entry = json!({"selector": {"app": format!("isvc.{name}-router")}, "ports": [{"name": "http", "port": 80, "targetPort": 8000}]});
    other.makes(&SERVICE, name, labels(name, "router"), json!({"spec": entry})).await;
    other.is_content(1).await;
}

/// A service with groups of two pods.
pub(super) async fn grouped(space: &Space<'_>, name: &str) {
    let runner = json!({"runner": {"name": "ome-container", "image": "example.com/engine:1", "ports": [{"containerPort": 8000}]}});
    let mut engine = fixed(1);
    (engine["leader"], engine["worker"]) = (runner.clone(), json!({"runner": runner["runner"], "size": 1}));
    space.service(name, with_model(json!({"engine": engine}))).await;
    let other = Other::new(space, &INFERENCE_SERVICE, name);
    let template = |head: bool| {
        let mut labels = labels(name, "engine");
        if head {
            (labels["app"], labels["ray.io/node-type"]) = (format!("{name}-engine").into(), "head".into());
        }
        json!({"metadata": {"labels": labels}, "spec": {"containers": [container("ome-container", "example.com/engine:1")]}})
    };
    let set = json!({
        "replicas": 1, "startupPolicy": "LeaderCreated", "networkConfig": {"subdomainPolicy": "Shared"},
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 1}},
        "leaderWorkerTemplate": {
            "size": 2, "restartPolicy": "RecreateGroupOnPodRestart", "leaderTemplate": template(true), "workerTemplate": template(false),
        },
    });
    other.makes(&LEADER_WORKER_SET, &format!("lws-{name}-engine"), labels(name, "engine"), json!({"spec": set})).await;
    for service in [format!("{name}-engine"), name.to_owned()] {
        let selector = json!({"ray.io/node-type": "head", "app": format!("{name}-engine")});
        let spec = json!({"selector": selector, "ports": [{"name": "http", "port": 80, "targetPort": 8000}]});
        other.makes(&SERVICE, &service, labels(name, "engine"), json!({"spec": spec})).await;
    }
    other.is_content(1).await;
}

/// The owners of pods, and their templates.
async fn workloads(space: &Space<'_>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (resource, paths) in
        [(&DEPLOYMENT, ["/spec/template", "/spec/selector"]), (&LEADER_WORKER_SET, ["/spec/leaderWorkerTemplate", "/spec/networkConfig"])]
    {
        for object in space.api(resource).list(&ListParams::default()).await.unwrap().items {
            let object = serde_json::to_value(object).unwrap();
            let kept = paths.map(|path| object.pointer(path).cloned());
            all.insert(object["metadata"]["name"].as_str().unwrap().to_owned(), json!([object["metadata"]["uid"], kept]));
        }
    }
    for kind in ["replicasets", "statefulsets", "controllerrevisions"] {
        let listed: Value = serde_json::from_str(&space.kubectl(&["get", kind, "-o", "json"]).ok()).unwrap();
        for object in listed["items"].as_array().unwrap() {
            all.insert(format!("{kind} {}", object["metadata"]["name"]), object["metadata"]["uid"].clone());
        }
    }
    all
}

async fn quiet(space: &Space<'_>, host: &Host<'_>, services: &[&str]) {
    let before = space.writes();
    for service in services {
        looks_again(space, host, &INFERENCE_SERVICE, service).await;
    }
    assert_eq!(space.writes(), before);
}

/// The field managers of an object, without those of its status.
async fn managers(space: &Space<'_>, resource: &Resource, name: &str) -> Vec<String> {
    let object = space.get(resource, name).await;
    let managed = object["metadata"]["managedFields"].as_array().unwrap().iter();
    managed.filter(|entry| entry.get("subresource").is_none()).map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
}

const PREVIEW: &str = "\
InferenceService NAMESPACE/chat: 0 pods restart
  KIND                      NAME          MANAGER   RESULT
  Service                   chat          manager   changed: spec.ports
  Service                   chat-engine   manager   changed: spec.ports
  Service                   chat-router   manager   changed: spec.ports
  ServiceAccount            chat-router   manager   adopted unchanged
  Deployment                chat-engine   manager   changed: spec.strategy
  Deployment                chat-router   manager   changed: spec.strategy
  HorizontalPodAutoscaler   chat-engine   manager   adopted unchanged
  HorizontalPodAutoscaler   chat-router   manager   removed: not planned
  Role                      chat-router   manager   adopted unchanged
  RoleBinding               chat-router   manager   adopted unchanged
  PodDisruptionBudget       chat-router             created
";

/// Everything is adopted, and no pod or address changes.
async fn takes_over(space: &Space<'_>, host: &Host<'_>) {
    let (pods, before) = (run(space, 10).await, workloads(space).await);
    let ways: Vec<_> = ["chat", "chat-engine", "big", "big-engine"].map(|service| space.reached(service)).into();
    assert!(ways.iter().all(|way| !way.is_empty()), "{ways:?}");
    for service in ["chat", "back", "big"] {
        space.says(service, "Contested", "True", "OtherController").await;
    }
    assert!(space.made().await.is_empty());

    let told = adopt(space, &["isvc/chat", "--force"]).ok();
    let told: Vec<&str> = told.lines().filter(|line| !line.contains("has written")).collect();
    println!("{}", told.join("\n"));
    for line in PREVIEW.replace("NAMESPACE", &space.0.name).lines() {
        assert!(told.contains(&line), "{line}\nisn't in\n{}", told.join("\n"));
    }
    assert_eq!(told.last(), Some(&"Nothing was changed: set --yes to apply."));
    let told = adopt(space, &["isvc/chat", "isvc/big", "--new-templates", "--force"]).ok();
    assert!(told.contains("/chat: 4 pods restart") && told.contains("/big: 2 pods restart"), "{told}");
    assert_eq!(managers(space, &SERVICE, "chat").await, [MANAGER], "a preview writes nothing");

    let told = adopt(space, &["--all", "--yes", "--force"]).ok();
    assert!(told.contains("/back: 0 pods restart") && !told.contains("set --yes to apply"), "{told}");
    for service in ["chat", "back", "big"] {
        let service = space.ready(service).await;
        assert_eq!(condition(&service, "Contested")["reason"], "NobodyElse");
    }
    space.goes(&HORIZONTAL_POD_AUTOSCALER, "chat-router").await;
    assert!(space.find(&POD_DISRUPTION_BUDGET, "chat-router").await.is_some());
    let now: Vec<_> = ["chat", "chat-engine", "big", "big-engine"].map(|service| space.reached(service)).into();
    assert_eq!((running(space).await, workloads(space).await, now), (pods, before, ways));
    let made = space.made().await;
    assert!(made.contains("LeaderWorkerSet lws-big-engine") && !made.contains("LeaderWorkerSet big-engine-mn"), "{made:?}");
    assert!(managers(space, &DEPLOYMENT, "chat-engine").await.iter().all(|manager| manager != MANAGER));
    quiet(space, host, &["chat", "back", "big"]).await;
}

/// Later edits are rolled out as usual, and nothing of the previous controller's templates is left.
async fn rolls(space: &Space<'_>) {
    let old = running(space).await;
    let runner = json!({"name": "ome-container", "image": "example.com/engine:2"});
    space.change("chat", json!({"engine": {"runner": runner}})).await;
    let mut next = runner.clone();
    next["ports"] = json!([{"containerPort": 8000}]);
    space.change("big", json!({"engine": {"leader": {"runner": next}, "worker": {"runner": next}}})).await;
    for (service, number) in [("chat", 2), ("big", 2)] {
        let of = format!("serving.ome.io/inferenceservice={service},serving.ome.io/component=engine");
        let fresh = eventually(&format!("the pods of {service} are new"), async || {
            let pods = space.pods_with(&of).await;
            let ready = |pod: &Value| condition(pod, "Ready")["status"] == "True";
            (pods.len() == number && pods.values().all(ready)).then_some(pods)
        })
        .await;
        for pod in fresh.values() {
            let container = &pod["spec"]["containers"][0];
            assert_eq!((&container["image"], &container["args"]), (&json!("example.com/engine:2"), &Value::Null), "{container:#}");
            assert!(!container["env"].to_string().contains("OLD") && container["terminationMessagePolicy"] == "File", "{container:#}");
            let labels = &pod["metadata"]["labels"];
            assert_eq!((&labels[SUBJECT_KIND], &labels["ray.io/node-type"]), (&json!("InferenceService"), &Value::Null));
        }
        space.ready(service).await;
    }
    eventually("the old pods are gone", async || (running(space).await.len() == old.len()).then_some(())).await;
    let engine = space.get(&DEPLOYMENT, "chat-engine").await;
    assert_eq!(engine["spec"]["selector"]["matchLabels"], json!({"app": "isvc.chat-engine"}), "it can't change");
    for (service, pods) in [("chat-engine", 2), ("big", 1), ("big-engine", 1)] {
        eventually(&format!("{service} reaches the new pods"), async || (space.reached(service).len() == pods).then_some(())).await;
    }
    let routers = async |pods: BTreeMap<String, Value>| -> BTreeMap<String, Value> {
        pods.into_iter().filter(|(name, _)| name.starts_with("chat-router")).collect()
    };
    assert_eq!(routers(running(space).await).await, routers(old).await, "nothing was asked for the router");
}

/// The service is released unchanged, and the host no longer manages it.
async fn gives_back(space: &Space<'_>, host: &Host<'_>) {
    let of_back =
        |all: BTreeMap<String, Value>| -> BTreeMap<String, Value> { all.into_iter().filter(|(name, _)| name.contains("back-")).collect() };
    let (pods, before) = (of_back(running(space).await), of_back(workloads(space).await));
    let told = adopt(space, &["isvc/back", "--back"]).ok();
    for words in ["/back: 0 pods restart", "removed: the other controller didn't create it", "released unchanged", "set --yes to apply"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(space.find(&POD_DISRUPTION_BUDGET, "back-engine").await.is_some());
    adopt(space, &["isvc/back", "--back", "--yes"]).ok();
    assert!(space.find(&POD_DISRUPTION_BUDGET, "back-engine").await.is_none());
    for (resource, name) in
        [(&DEPLOYMENT, "back-engine"), (&DEPLOYMENT, "back-router"), (&SERVICE, "back"), (&SERVICE_ACCOUNT, "back-router")]
    {
        let object = space.get(resource, name).await;
        assert!(unmarked(&object), "{name}: {object:#}");
        assert!(managers(space, resource, name).await.contains(&MANAGER.to_owned()), "{name}");
    }
    let service = space.get(&INFERENCE_SERVICE, "back").await;
    assert_eq!(service["metadata"]["annotations"]["pointsman.dev/control"], "false");
    assert!(service["metadata"]["annotations"]["pointsman.dev/adopted"].is_null());
    quiet(space, host, &["chat"]).await;
    assert_eq!((of_back(running(space).await), of_back(workloads(space).await)), (pods, before));

    // Adopt it once more.
    adopt(space, &["isvc/back", "--yes", "--force"]).ok();
    space.becomes(&POD_DISRUPTION_BUDGET, "back-engine", "it is there again", |_| true).await;
    space.ready("back").await;
    let made = space.made().await;
    assert!(made.is_superset(&set(["Deployment back-engine", "Deployment back-router", "Service back", "Role back-router"])), "{made:?}");

    let of_plain = || space.writes().into_iter().filter(|write| write.contains("/plain")).count();
    let before = of_plain();
    let told = adopt(space, &["isvc/plain", "--yes"]).ok();
    assert!(told.contains("/plain: nothing to adopt"), "{told}");
    assert_eq!(of_plain(), before);
    let refused = adopt(space, &["isvc/plain", "--back"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    assert!(refused.stdout.contains("there is none to release it to"), "{}", refused.stdout);
}

#[tokio::test]
async fn services_of_ome_s_own_controller_run_on_through_a_taking_over_and_a_giving_back() {
    let cluster = own_cluster(Some(&["lws"]));
    let space = Space::on(&cluster, "takeover").await;
    raw(&space, "chat").await;
    raw(&space, "back").await;
    grouped(&space, "big").await;
    let first = host(&cluster).await;
    takes_over(&space, &first).await;
    let pods = running(&space).await;
    first.stop();
    let before = space.writes();
    let second = host(&cluster).await;
    for service in ["chat", "back", "big"] {
        looks_again(&space, &second, &INFERENCE_SERVICE, service).await;
    }
    assert_eq!((space.writes(), running(&space).await), (before, pods), "a restart changes nothing");
    rolls(&space).await;
    space.serves("plain", with_model(json!({"engine": fixed(1)}))).await;
    gives_back(&space, &second).await;
    second.stop();
}
