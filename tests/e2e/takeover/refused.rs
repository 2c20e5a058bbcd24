//! A service that can't be adopted is refused with a reason, and nothing of it is written.

use super::{
    Other, adopt, engine_alone,
    ome::{grouped, raw},
    unmarked,
};
use crate::services::{Space, own_cluster, with_model};
use pointsman_core::resource::{
    DEPLOYMENT, HTTP_ROUTE, INFERENCE_SERVICE, LEADER_WORKER_SET, POD_DISRUPTION_BUDGET, RAY_CLUSTER, Resource, SERVICE,
};
use pointsman_tests::{CommandOutput, eventually};
use serde_json::{Value, json};

/// A service whose engine and workers run on KubeRay.
async fn ray(space: &Space<'_>, name: &str) {
    let runner = json!({"name": "ome-container", "image": "vllm/vllm-openai:1", "command": ["vllm", "serve"]});
    let spec = with_model(json!({"engine": {"worker": {"size": 2}, "runner": runner}}));
    space.annotated(name, json!({"ome.io/deploymentMode": "MultiNodeRayVLLM"}), spec).await;
    let template = json!({"spec": {"containers": [{"name": "ray-head", "image": "vllm/vllm-openai:1"}]}});
    let cluster = json!({"headGroupSpec": {"rayStartParams": {}, "template": template}});
    let other = Other::new(space, &INFERENCE_SERVICE, name);
    other.makes(&RAY_CLUSTER, &format!("{name}-engine-0"), json!({"component": "engine"}), json!({"spec": cluster})).await;
    other.is_content(1).await;
}

/// The part of the output about a service.
fn part<'a>(told: &'a CommandOutput, service: &str) -> &'a str {
    let head = format!("/{service}: ");
    let part = told.stdout.split("\n\n").find(|part| part.lines().next().is_some_and(|first| first.contains(&head)));
    part.unwrap_or_else(|| panic!("{service} isn't in\n{}{}", told.stdout, told.stderr))
}

/// Whether an object has nothing of ours.
async fn untouched(space: &Space<'_>, resource: &Resource, name: &str) -> bool {
    unmarked(&space.get(resource, name).await)
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn of_all_services_those_that_can_be_are_taken_over_and_the_others_are_told_why_not() {
    let cluster = own_cluster(Some(&["lws", "ray", "gateway"]));
    let space = Space::on(&cluster, "refused").await;
    grouped(&space, "big").await;
    space.annotate("big", json!({"ome.io/deploymentMode": "RawDeployment"})).await;
    raw(&space, "lost").await;
    space.change("lost", json!({"model": {"name": "nothing"}})).await;
    ray(&space, "ray").await;
    raw(&space, "alone").await;
    space.annotate("alone", json!({"pointsman.dev/control": "false"})).await;
    raw(&space, "fine").await;
    raw(&space, "routed").await;
    let rules = json!([{"backendRefs": [{"name": "routed", "port": 80}]}]);
    let route = json!({"parentRefs": [{"name": "gateway"}], "rules": rules});
    Other::new(&space, &INFERENCE_SERVICE, "routed").makes(&HTTP_ROUTE, "routed", json!({}), json!({"spec": route})).await;

    let refused = adopt(&space, &["isvc/routed", "--yes"]);
    assert_eq!(refused.code, Some(2), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("/routed would be removed, and with it a route to the service"), "{}", refused.stdout);
    assert!(untouched(&space, &HTTP_ROUTE, "routed").await && untouched(&space, &DEPLOYMENT, "routed-engine").await);

    let told = adopt(&space, &["--all", "--yes", "--force"]);
    assert_eq!(told.code, Some(2), "{}{}", told.stdout, told.stderr);
    for (service, words) in [
        ("big", &["refused: ", "LeaderWorkerSet", "never removed here"][..]),
        ("lost", &["refused: It can't be served", "ModelNotFound"]),
        ("ray", &["refused: ", "RayCluster", "ray-engine-0", "never removed here"]),
        ("alone", &["not managed because of its annotation pointsman.dev/control: name it to adopt it"]),
    ] {
        let part = part(&told, service);
        assert!(words.iter().all(|word| part.contains(word)), "{words:?}: {part}");
    }
    for service in ["alone", "fine", "routed"] {
        assert!(!part(&told, service).contains("refused: "), "{}", part(&told, service));
    }
    assert!(part(&told, "routed").contains("removed: not planned"), "{}", part(&told, "routed"));
    for (resource, name) in [
        (&LEADER_WORKER_SET, "lws-big-engine"),
        (&DEPLOYMENT, "lost-engine"),
        (&RAY_CLUSTER, "ray-engine-0"),
        (&DEPLOYMENT, "alone-engine"),
    ] {
        assert!(untouched(&space, resource, name).await, "{name}");
    }
    for service in ["big", "lost", "ray", "alone"] {
        assert!(untouched_service(&space, service).await, "{service}");
    }
    for service in ["fine", "routed"] {
        assert!(!untouched(&space, &DEPLOYMENT, &format!("{service}-engine")).await && !untouched_service(&space, service).await);
    }
}

/// Whether a service isn't marked as adopted.
async fn untouched_service(space: &Space<'_>, service: &str) -> bool {
    space.get(&INFERENCE_SERVICE, service).await["metadata"]["annotations"]["pointsman.dev/adopted"].is_null()
}

/// Rejects updates that violate an expression, and waits until the API server rejects the probe, a patch that changes nothing else.
async fn demands(space: &Space<'_>, name: &str, (resource, object): (&Resource, &str), expression: &str, probe: Value) {
    let rule = json!({"apiGroups": [resource.group], "apiVersions": ["*"], "resources": [resource.plural], "operations": ["UPDATE"]});
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail",
        "validations": [{"expression": expression, "message": format!("{name} says no")}],
    });
    let version = "admissionregistration.k8s.io/v1";
    let cluster = space.0.cluster;
    cluster.apply(&json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec})).ok();
    let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.0.name}}});
    let binding = json!({"policyName": name, "validationActions": ["Deny"], "matchResources": here});
    cluster
        .apply(&json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": binding}))
        .ok();
    eventually("the API server knows the policy", async || {
        let said = space.kubectl(&["patch", resource.plural, object, "--type=merge", "--dry-run=server", "-p", &probe.to_string()]);
        said.stderr.contains("says no").then_some(())
    })
    .await;
}

/// Asserts that a service is refused with these messages, in a preview and with `--yes`, and that nothing of it was written.
async fn stays_untouched(space: &Space<'_>, service: &str, words: &[&str]) {
    for args in [&["--force"][..], &["--force", "--yes"]] {
        let refused = adopt(space, &[&[&format!("isvc/{service}")[..]], args].concat());
        assert_eq!(refused.code, Some(2), "{}{}", refused.stdout, refused.stderr);
        for words in words.iter().chain(&["refused: The API server rejects the ", "Nothing of the service was written"]) {
            assert!(refused.stdout.contains(words), "{words}: {}", refused.stdout);
        }
    }
    let engine = format!("{service}-engine");
    assert!(untouched(space, &DEPLOYMENT, &engine).await && untouched(space, &SERVICE, service).await);
    assert!(untouched_service(space, service).await && space.find(&POD_DISRUPTION_BUDGET, &engine).await.is_none());
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn what_the_api_server_would_refuse_is_told_before_anything_is_written() {
    let cluster = own_cluster(Some(&[]));

    // The API server rejects a new object.
    let space = Space::on(&cluster, "quota").await;
    engine_alone(&space, "chat", json!({})).await;
    space.kubectl(&["create", "quota", "none", "--hard=count/poddisruptionbudgets.policy=0"]).ok();
    eventually("the quota counts", async || {
        let said = space.kubectl(&["get", "quota", "none", "-o", "jsonpath={.status.hard}"]).ok();
        (!said.is_empty()).then_some(())
    })
    .await;
    stays_untouched(&space, "chat", &["PodDisruptionBudget", "/chat-engine", "exceeded quota: none"]).await;
    space.kubectl(&["delete", "quota", "none"]).ok();
    eventually("the quota is gone", async || adopt(&space, &["isvc/chat", "--force"]).success.then_some(())).await;

    // The API server rejects the change of an existing object.
    let space = Space::on(&cluster, "ports").await;
    engine_alone(&space, "chat", json!({})).await;
    let ports = json!({"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 1}]}});
    demands(&space, "same-ports", (&SERVICE, "chat"), "object.spec.ports == oldObject.spec.ports", ports).await;
    let told = adopt(&space, &["isvc/chat", "--force"]);
    assert!(told.stdout.contains("changed: spec.ports"), "{}", told.stdout);
    stays_untouched(&space, "chat", &["Service", "same-ports says no"]).await;

    // The API server rejects the adoption itself.
    let space = Space::on(&cluster, "labels").await;
    engine_alone(&space, "chat", json!({})).await;
    let labels = "object.metadata.labels == oldObject.metadata.labels";
    demands(&space, "same-labels", (&DEPLOYMENT, "chat-engine"), labels, json!({"metadata": {"labels": {"x": "y"}}})).await;
    stays_untouched(&space, "chat", &["Deployment", "/chat-engine", "same-labels says no"]).await;
}

/// Grants a user these rights in a namespace, or in the whole cluster.
fn allow(space: &Space<'_>, user: &str, everywhere: bool, rules: &Value) {
    let prefix = if everywhere { "Cluster" } else { "" };
    let version = "rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": user, "namespace": (!everywhere).then_some(&space.0.name)});
    let role = json!({"apiVersion": version, "kind": format!("{prefix}Role"), "metadata": metadata, "rules": rules});
    let to = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": format!("{prefix}Role"), "name": user});
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]);
    let binding =
        json!({"apiVersion": version, "kind": format!("{prefix}RoleBinding"), "metadata": metadata, "roleRef": to, "subjects": subjects});
    for object in [role, binding] {
        space.0.cluster.apply(&object).ok();
    }
}

#[tokio::test]
async fn what_the_user_may_not_write_and_the_host_may_is_no_reason_to_refuse() {
    let cluster = own_cluster(Some(&[]));
    let space = Space::on(&cluster, "rights").await;
    engine_alone(&space, "chat", json!({})).await;
    let kubeconfig = cluster.kubeconfig_of_user("alice", &[]).unwrap();
    let alice = |args: &[&str]| adopt(&space, &[&["--kubeconfig", &kubeconfig.to_string_lossy(), "isvc/chat", "--force"], args].concat());
    allow(&space, "alice", true, &json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]));
    let told = eventually("alice may look", async || {
        let told = alice(&[]);
        told.success.then_some(told)
    })
    .await;
    assert!(told.stdout.contains("--yes needs more rights: ") && told.stdout.contains("created"), "{}", told.stdout);
    let refused = alice(&["--yes"]);
    assert_eq!(refused.code, Some(2), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("User \"alice\" cannot patch resource"), "{}", refused.stdout);
    assert!(untouched(&space, &DEPLOYMENT, "chat-engine").await && untouched_service(&space, "chat").await);

    let groups = ["", "apps", "autoscaling", "ome.io"];
    let kinds = ["services", "deployments", "horizontalpodautoscalers", "inferenceservices"];
    allow(&space, "alice", false, &json!([{"apiGroups": groups, "resources": kinds, "verbs": ["patch"]}]));
    let told = eventually("alice may write", async || {
        let told = alice(&["--yes"]);
        told.success.then_some(told)
    })
    .await;
    let note = told.stdout.lines().find(|line| line.contains("couldn't be tested")).unwrap_or_else(|| panic!("{}", told.stdout));
    assert!(note.contains("PodDisruptionBudget") && note.contains("chat-engine"), "{note}");
    assert!(!untouched(&space, &DEPLOYMENT, "chat-engine").await && !untouched_service(&space, "chat").await);
}
