//! The control plane itself, through the handle that other tests use.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Node, Pod, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use pointsman_harness::{Behaviour, Options};
use pointsman_tests::{PolicyCluster, TestCluster, client, eventually};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt};

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "example.com/any" }] },
            },
        },
    })
}

async fn pods(client: &Client, namespace: &str, labels: &str) -> Vec<Pod> {
    Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default().labels(labels)).await.unwrap().items
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

#[tokio::test]
async fn a_deployment_s_pods_become_ready_on_played_nodes() {
    let namespace = TestCluster::shared().namespace("deployment").await;
    create(&Api::<Deployment>::namespaced(namespace.client.clone(), &namespace.name), deployment("web", 2)).await;
    eventually("both pods are ready", async || {
        let pods = pods(&namespace.client, &namespace.name, "app=web").await;
        (pods.iter().filter(|pod| is_ready(pod)).count() == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_leader_worker_set_s_pods_are_made_by_its_real_manager() {
    let namespace = TestCluster::shared().namespace("lws").await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"));
    let api: Api<DynamicObject> = Api::namespaced_with(namespace.client.clone(), &namespace.name, &resource);
    let template = json!({ "spec": { "containers": [{ "name": "main", "image": "example.com/any" }] } });
    create(
        &api,
        json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": { "name": "group" },
            "spec": { "replicas": 1, "leaderWorkerTemplate": { "size": 3, "workerTemplate": template } },
        }),
    )
    .await;
    let set = "leaderworkerset.sigs.k8s.io/name=group";
    let pods = eventually("a leader and two workers are ready", async || {
        let pods = pods(&namespace.client, &namespace.name, set).await;
        (pods.iter().filter(|pod| is_ready(pod)).count() == 3).then_some(pods)
    })
    .await;
    // LeaderWorkerSet's pod webhook sets the address of the leader.
    for pod in pods {
        let env = pod.spec.unwrap().containers[0].env.clone().unwrap_or_default();
        assert!(env.iter().any(|variable| variable.name == "LWS_LEADER_ADDRESS"), "{env:?}");
    }
}

#[tokio::test]
async fn pods_hang_fail_and_crash_when_told_to() {
    let namespace = TestCluster::shared().namespace("behaviour").await;
    let labels = BTreeMap::from([("app", "stuck")]);
    namespace.cluster.behave("stuck", &namespace.name, &labels, Behaviour::Pending).unwrap();
    let deployments: Api<Deployment> = Api::namespaced(namespace.client.clone(), &namespace.name);
    create(&deployments, deployment("stuck", 1)).await;
    create(&deployments, deployment("good", 1)).await;
    eventually("the other pod is ready", async || {
        pods(&namespace.client, &namespace.name, "app=good").await.iter().any(is_ready).then_some(())
    })
    .await;
    let stuck = &pods(&namespace.client, &namespace.name, "app=stuck").await[0];
    assert_eq!((phase(stuck), is_ready(stuck)), ("Pending", false));
    namespace.cluster.behave_normally("stuck").unwrap();

    let api: Api<Pod> = Api::namespaced(namespace.client.clone(), &namespace.name);
    let good = pods(&namespace.client, &namespace.name, "app=good").await.remove(0).metadata.name.unwrap();
    let behave = async |how: Value| {
        let patch = json!({ "metadata": { "annotations": { "cluster.pointsman.dev/behaviour": how } } });
        api.patch(&good, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    behave("crash".into()).await;
    eventually("it crashes", async || {
        let pod = api.get(&good).await.unwrap();
        let state = pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?.waiting.as_ref()?.reason.clone()?;
        (state == "CrashLoopBackOff" && !is_ready(&pod)).then_some(())
    })
    .await;
    behave(Value::Null).await;
    eventually("it recovers", async || is_ready(&api.get(&good).await.unwrap()).then_some(())).await;
    behave("fail".into()).await;
    eventually("it fails", async || (phase(&api.get(&good).await.unwrap()) == "Failed").then_some(())).await;
}

#[tokio::test]
async fn a_pod_reports_the_memory_that_it_was_told_to_use() {
    let namespace = TestCluster::shared().namespace("memory").await;
    namespace.cluster.start_part("metrics").unwrap();
    let mut hungry = deployment("hungry", 1);
    hungry["spec"]["template"]["metadata"]["annotations"] = json!({ "kwok.x-k8s.io/usage-memory": "3Gi" });
    create(&Api::<Deployment>::namespaced(namespace.client.clone(), &namespace.name), hungry).await;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics"), "pods");
    let metrics: Api<DynamicObject> = Api::namespaced_with(namespace.client.clone(), &namespace.name, &resource);
    let used = eventually("the metrics server has scraped the pod", async || {
        let pods = metrics.list(&ListParams::default()).await.ok()?;
        Some(pods.items.first()?.data["containers"][0]["usage"]["memory"].clone())
    })
    .await;
    assert_eq!(used, "3Gi");
}

#[tokio::test]
async fn nodes_of_chosen_shapes_can_be_added() {
    let cluster = TestCluster::shared();
    cluster
        .add_nodes(
            "nodes:\n- name: shape\n  count: 2\n  labels: {gpu: h100}\n  capacity: {cpu: \"8\", memory: 64Gi, nvidia.com/gpu: \"4\"}\n",
        )
        .unwrap();
    let nodes: Api<Node> = Api::all(cluster.client().await);
    let found = nodes.list(&ListParams::default().labels("gpu=h100")).await.unwrap();
    let names: Vec<_> = found.iter().map(|node| node.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["shape-0", "shape-1"]);
    let allocatable = found.items[0].status.as_ref().unwrap().allocatable.as_ref().unwrap();
    assert_eq!(allocatable["nvidia.com/gpu"].0, "4");
}

#[tokio::test]
async fn users_and_service_accounts_have_the_rights_that_they_were_given_and_no_others() {
    let namespace = TestCluster::shared().namespace("rights").await;
    let cluster = namespace.cluster;
    create(&Api::<ServiceAccount>::namespaced(namespace.client.clone(), &namespace.name), json!({ "metadata": { "name": "robot" } })).await;
    cluster
        .kubectl(&[
            "create",
            "rolebinding",
            "robot",
            "--clusterrole=view",
            &format!("--serviceaccount={}:robot", namespace.name),
            "-n",
            &namespace.name,
        ])
        .ok();
    let robot = cluster.kubeconfig_of_service_account(&namespace.name, "robot").unwrap();
    let alice = cluster.kubeconfig_of_user("alice", &["dev"]).unwrap();
    let can = |kubeconfig: &std::path::Path, verb: &str| {
        cluster
            .kubectl(&["--kubeconfig", &kubeconfig.to_string_lossy(), "auth", "can-i", verb, "pods", "-n", &namespace.name])
            .stdout
            .trim()
            .to_owned()
    };
    assert_eq!((can(&robot, "list"), can(&robot, "delete")), ("yes".into(), "no".into()));
    assert_eq!(can(&alice, "list"), "no");
    let who = cluster.kubectl(&["--kubeconfig", &alice.to_string_lossy(), "auth", "whoami", "-o", "json"]).ok();
    assert_eq!(serde_json::from_str::<Value>(&who).unwrap()["status"]["userInfo"]["username"], "alice");
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn parts_can_be_stopped_and_started_and_two_clusters_run_side_by_side() {
    let one = TestCluster::bare(&[]);
    let two = TestCluster::bare(&[]);
    one.kubectl(&["create", "namespace", "kept"]).ok();
    one.kill_part("etcd").unwrap();
    assert!(!one.kubectl(&["get", "namespace", "kept", "--request-timeout=2s"]).success);
    assert!(two.kubectl(&["get", "namespace", "default"]).success);
    one.start_part("etcd").unwrap();
    eventually("the API server answers again", async || {
        one.kubectl(&["get", "namespace", "kept", "--request-timeout=2s"]).success.then_some(())
    })
    .await;
    one.stop_part("apiserver").unwrap();
    assert!(!one.kubectl(&["get", "namespace", "kept", "--request-timeout=2s"]).success);
    one.start_part("apiserver").unwrap();
    one.kubectl(&["get", "namespace", "kept"]).ok();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn every_part_can_be_stopped_started_and_paused() {
    let cluster = TestCluster::start(&Options { neighbours: Some(vec!["lws".to_owned()]), ..Options::default() });
    for part in ["lws-manager", "kwok", "scheduler", "controller-manager"] {
        cluster.stop_part(part).unwrap();
    }
    let deployments: Api<Deployment> = Api::namespaced(cluster.client().await, "default");
    create(&deployments, deployment("late", 1)).await;
    for part in ["controller-manager", "scheduler", "kwok"] {
        assert!(pods(&cluster.client().await, "default", "app=late").await.iter().all(|pod| !is_ready(pod)), "{part} isn't needed");
        cluster.start_part(part).unwrap();
    }
    cluster.start_part("lws-manager").unwrap();
    let client = cluster.client().await;
    eventually("the pod is ready", async || pods(&client, "default", "app=late").await.iter().any(is_ready).then_some(())).await;

    cluster.pause_part("apiserver").unwrap();
    assert!(!cluster.kubectl(&["get", "nodes", "--request-timeout=1s"]).success);
    cluster.resume_part("apiserver").unwrap();
    eventually("it answers again", async || cluster.kubectl(&["get", "nodes", "--request-timeout=5s"]).success.then_some(())).await;
}

/// Follows the envtest convention: the etcd in the folder replaces ours. A script that runs ours and leaves a file shows that it is used.
#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn binaries_in_kubebuilder_assets_are_used() {
    let ours = pointsman_harness::cluster_dir().join("bin/pointsman-cluster");
    let assets = std::env::temp_dir().join(format!("pointsman-assets-{}", std::process::id()));
    fs::create_dir_all(&assets).unwrap();
    let etcd = assets.join("etcd");
    let used = assets.join("used");
    fs::write(&etcd, format!("#!/bin/sh\ntouch {}\nexec {} part etcd \"$@\"\n", used.display(), ours.display())).unwrap();
    fs::set_permissions(&etcd, fs::Permissions::from_mode(0o755)).unwrap();
    let with_assets = |assets: &std::path::Path| Options {
        parts: Some(vec!["etcd".to_owned(), "apiserver".to_owned()]),
        neighbours: Some(Vec::new()),
        kubebuilder_assets: Some(assets.to_owned()),
        ..Options::default()
    };
    let cluster = TestCluster::start(&with_assets(&assets));
    assert!(used.exists());
    cluster.kubectl(&["get", "namespace", "default"]).ok();
    drop(cluster);
    let error = pointsman_harness::Cluster::start(&with_assets(&assets.join("nowhere"))).unwrap_err().to_string();
    assert!(error.contains("KUBEBUILDER_ASSETS"), "{error}");
    fs::remove_dir_all(assets).unwrap();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_neighbour_can_be_left_out_and_installed_later() {
    let cluster = TestCluster::bare(&["keda"]);
    let served = |plural: &str| cluster.kubectl(&["get", "crd", "-o", "name"]).ok().lines().any(|line| line.ends_with(plural));
    assert!(served("/scaledobjects.keda.sh") && !served("/services.serving.knative.dev"));
    cluster.install("knative").unwrap();
    assert!(served("/services.serving.knative.dev"));
    cluster.remove("keda").unwrap();
    assert!(!served("/scaledobjects.keda.sh"));
}

#[tokio::test]
async fn knatives_own_webhook_judges_by_the_features_of_its_config_map() {
    let cluster = TestCluster::bare(&["knative"]);
    let service = json!({
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": { "name": "llama", "namespace": "default" },
        "spec": { "template": { "spec": {
            "containers": [{ "image": "example.com/any", "volumeMounts": [{ "name": "model", "mountPath": "/mnt/models" }] }],
            "volumes": [{ "name": "model", "hostPath": { "path": "/models" } }],
        } } },
    });
    cluster.apply(&service).ok();
    let off = r#"{"data":{"kubernetes.podspec-volumes-hostpath":"disabled"}}"#;
    cluster.kubectl(&["patch", "configmap", "config-features", "--namespace", "knative-serving", "--type", "merge", "--patch", off]).ok();
    eventually("a hostPath is refused", async || {
        cluster.apply(&service).stderr.contains("HostPath volume support is disabled").then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_second_control_plane_in_the_same_folder_is_refused() {
    let cluster = TestCluster::bare(&[]);
    let options = Options { dir: Some(cluster.dir.clone()), ..Options::default() };
    let error = pointsman_harness::Cluster::start(&options).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
}

#[tokio::test]
async fn the_audit_log_counts_every_request() {
    let cluster = TestCluster::shared();
    let kubeconfig = cluster.kubeconfig_of_user("counted", &["system:masters"]).unwrap();
    // Not kubectl: some builds of it send additional requests.
    let namespaces: Api<Namespace> = Api::all(client(&kubeconfig).await);
    for _ in 0..3 {
        namespaces.get("default").await.unwrap();
    }
    let requests = cluster.requests();
    assert_eq!(requests.iter().filter(|request| request["user"]["username"] == "counted").count(), 3);
}

#[tokio::test]
async fn a_restored_cluster_holds_what_it_held_and_one_whose_rules_changed_is_refused() {
    // The snapshot was taken at startup.
    let cluster = PolicyCluster::start().await;
    let everything = || {
        let kinds = "namespaces,configmaps,services,serviceaccounts,nodes,clusterroles";
        cluster
            .kubectl(&["get", kinds, "--all-namespaces", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.uid} {.data}{\"\\n\"}{end}"])
            .ok()
    };
    let before = everything();
    let log = cluster.run("guest", &["sleep".to_owned(), "1000".to_owned()], &BTreeMap::new()).unwrap();
    let files = ["apply.json", "kubeconfigs/left"].map(|name| cluster.dir.join(name));
    for file in &files {
        fs::write(file, "left behind").unwrap();
    }
    cluster.kubectl(&["create", "namespace", "further"]).ok();
    cluster.kubectl(&["create", "configmap", "further", "--namespace", "further", "--from-literal", "a=b"]).ok();
    let trusted = ["configmap", "extension-apiserver-authentication", "--namespace", "kube-system"];
    cluster.kubectl(&[&["patch"], &trusted[..], &["--patch", "{\"data\": {\"a\": \"b\"}}"]].concat()).ok();
    cluster.kubectl(&["delete", "node", "--all"]).ok();
    assert_ne!(everything(), before);

    cluster.restore().unwrap();
    // The API server's cache follows its storage with a delay.
    eventually("all is as it was", async || (everything() == before).then_some(())).await;
    assert_eq!([&log, &files[0], &files[1]].map(|file| file.exists()), [false; 3], "files go too");
    let status = cluster.control(&json!({"do": "status"})).unwrap();
    assert!(!status.to_string().contains("guest"), "{status}");

    cluster.kubectl(&["create", "clusterrole", "further", "--verb", "get", "--resource", "pods"]).ok();
    let refused = cluster.restore().unwrap_err().to_string();
    assert!(refused.contains("clusterroles/further was changed since the snapshot"), "{refused}");
    cluster.kubectl(&["delete", "clusterrole", "further"]).ok();
    cluster.restore().unwrap();
    cluster.stop_part("apiserver").unwrap();
    cluster.start_part("apiserver").unwrap();
    let refused = cluster.restore().unwrap_err().to_string();
    assert!(refused.contains("apiserver was stopped"), "{refused}");
}
