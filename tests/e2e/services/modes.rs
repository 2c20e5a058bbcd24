//! The objects of a service in each mode, down to Ready pods.

use super::{
    DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, INFERENCE_SERVICE, LEADER_WORKER_SET, ROLE, ROLE_BINDING, SERVICE, SERVING_RUNTIME, Space,
    condition, fixed, is_ready, set, simple_runtime, with_model,
};
use pointsman_tests::eventually;
use serde_json::{Value, json};

/// A component with a leader and this many workers.
fn multi_node(workers: u32) -> Value {
    let runner = json!({"runner": {"name": "ome-container", "image": "example.com/engine:1", "ports": [{"containerPort": 8000}]}});
    let mut worker = runner.clone();
    worker["size"] = workers.into();
    json!({"leader": runner, "worker": worker})
}

/// A runtime whose engine is a leader with this many workers.
fn grouped_runtime(workers: u32) -> Value {
    let mut runtime = simple_runtime();
    runtime["engineConfig"] = multi_node(workers);
    runtime
}

#[tokio::test]
async fn an_engine_from_the_runtime_alone_becomes_a_deployment_with_all_that_goes_with_it() {
    let space = Space::shared("raw").await;
    let service = space.serves("chat", with_model(json!({}))).await;
    let expected = [
        "Deployment chat-engine",
        "HorizontalPodAutoscaler chat-engine",
        "PodDisruptionBudget chat-engine",
        "Service chat",
        "Service chat-engine",
    ];
    assert_eq!(space.made().await, set(expected));
    let pods = space.pods("chat").await;
    assert_eq!((pods.len(), pods.values().all(is_ready)), (1, true), "{pods:#?}");
    let pod = pods.values().next().unwrap();
    assert_eq!(pod["spec"]["containers"][0]["image"], "example.com/engine:1");
    assert!(pod["spec"]["nodeName"].as_str().unwrap().starts_with("cpu-"), "it is where the model is");

    // Both Services select the pod, at the runtime's port.
    for name in ["chat", "chat-engine"] {
        let ports = space.get(&SERVICE, name).await["spec"]["ports"].clone();
        assert_eq!((&ports[0]["port"], &ports[0]["targetPort"]), (&json!(80), &json!(8000)), "{ports}");
        space.reaches(name, &[pod["metadata"]["name"].as_str().unwrap()]).await;
    }

    let status = &service["status"];
    let url = format!("http://chat.{}.svc.cluster.local", space.0.name);
    assert_eq!((&status["url"], &status["address"]["url"]), (&json!(url), &json!(url)));
    assert_eq!(status["observedGeneration"], service["metadata"]["generation"]);
    assert_eq!(status["runtime"], json!({"name": "runtime", "kind": "ServingRuntime", "apiGroup": "ome.io", "chosenAtGeneration": 1}));
    assert_eq!(
        status["modelStatus"],
        json!({
            "transitionStatus": "UpToDate",
            "modelRevisionStates": {"activeModelState": "Loaded", "targetModelState": "Loaded"},
            "modelCopies": {"failedCopies": 0, "totalCopies": 1},
        })
    );
    let engine = &status["components"]["engine"];
    assert_eq!(engine["latestCreatedRevision"], "chat-engine-00001");
    assert_eq!(engine["latestReadyRevision"], "chat-engine-00001");
    assert_eq!(engine["latestRolledoutRevision"], "chat-engine-00001");
    assert_eq!(engine["traffic"], json!([{"revisionName": "chat-engine-00001", "latestRevision": true, "percent": 100}]));
    assert_eq!(engine["url"], format!("http://chat-engine.{}.svc.cluster.local", space.0.name));
    assert_eq!(engine["restURL"], engine["url"]);
    assert_eq!(status["components"].as_object().unwrap().len(), 1);
    for (type_, reason) in [("EngineReady", "Available"), ("IngressReady", "ClusterLocal"), ("RuntimeSelected", "Selected")] {
        let told = condition(&service, type_);
        assert_eq!((told["status"].as_str(), told["reason"].as_str()), (Some("True"), Some(reason)), "{told}");
    }
}

#[tokio::test]
async fn a_new_revision_takes_the_place_of_the_old_one_and_both_are_told() {
    let space = Space::shared("revision").await;
    space.serves("chat", with_model(json!({"engine": fixed(2)}))).await;
    space.change("chat", json!({"engine": {"runner": {"name": "ome-container", "image": "example.com/engine:2"}}})).await;
    let service = space.ready("chat").await;
    let engine = &service["status"]["components"]["engine"];
    assert_eq!(engine["latestRolledoutRevision"], "chat-engine-00002", "{engine:#}");
    assert_eq!(engine["previousRolledoutRevision"], "chat-engine-00001");
    assert_eq!(service["status"]["modelStatus"]["modelCopies"]["totalCopies"], 2);
    let images: Vec<_> =
        space.pods("chat").await.into_values().map(|pod| (is_ready(&pod), pod["spec"]["containers"][0]["image"].clone())).collect();
    assert_eq!(images, vec![(true, json!("example.com/engine:2")); 2]);
}

#[tokio::test]
async fn a_decoder_beside_the_engine_has_objects_of_its_own() {
    let space = Space::shared("decoder").await;
    let decoder = json!({"runner": {"name": "ome-container", "image": "example.com/decoder:1"}, "minReplicas": 2, "maxReplicas": 2});
    let service = space.serves("split", with_model(json!({"engine": fixed(1), "decoder": decoder}))).await;
    let expected = [
        "Deployment split-decoder",
        "Deployment split-engine",
        "PodDisruptionBudget split-decoder",
        "PodDisruptionBudget split-engine",
        "Service split",
        "Service split-decoder",
        "Service split-engine",
    ];
    assert_eq!(space.made().await, set(expected));
    assert_eq!(condition(&service, "DecoderReady")["reason"], "Available");
    assert_eq!(service["status"]["modelStatus"]["modelCopies"]["totalCopies"], 3);
    assert_eq!(service["status"]["components"]["decoder"]["latestReadyRevision"], "split-decoder-00001");
    assert_eq!(space.get(&SERVICE, "split").await["spec"]["selector"]["serving.ome.io/component"], "engine");
    assert_eq!(space.get(&SERVICE, "split-decoder").await["spec"]["selector"]["serving.ome.io/component"], "decoder");

    // Without the decoder, its objects are deleted.
    space.change("split", json!({"decoder": null})).await;
    space.goes(&DEPLOYMENT, "split-decoder").await;
    let service = space.ready("split").await;
    assert_eq!(
        space.made().await,
        set(["Deployment split-engine", "PodDisruptionBudget split-engine", "Service split", "Service split-engine"])
    );
    assert_eq!(condition(&service, "DecoderReady")["reason"], "NotWanted");
    assert!(service["status"]["components"]["decoder"].is_null(), "{:#}", service["status"]["components"]);
}

#[tokio::test]
async fn a_router_may_see_pods_has_its_configuration_and_takes_the_requests() {
    let space = Space::shared("router").await;
    let router = json!({
        "runner": {"name": "router", "image": "example.com/router:1", "ports": [{"containerPort": 9000}]},
        "config": {"policy": "least-busy"}, "minReplicas": 1, "maxReplicas": 1,
    });
    let service = space.serves("routed", with_model(json!({"engine": fixed(1), "router": router}))).await;
    let made = space.made().await;
    for object in ["ServiceAccount routed-router", "Role routed-router", "RoleBinding routed-router", "Deployment routed-router"] {
        assert!(made.contains(object), "{object} isn't among {made:?}");
    }
    let rules = &space.get(&ROLE, "routed-router").await["rules"];
    assert_eq!(rules, &json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]));
    let account = format!("system:serviceaccount:{}:routed-router", space.0.name);
    assert_eq!(space.kubectl(&["auth", "can-i", "list", "pods", "--as", &account]).stdout.trim(), "yes");
    assert_eq!(space.get(&ROLE_BINDING, "routed-router").await["roleRef"]["name"], "routed-router");

    let pods = space.pods("routed").await;
    let router = pods.values().find(|pod| pod["metadata"]["labels"]["serving.ome.io/component"] == "router").unwrap();
    assert_eq!(router["spec"]["serviceAccountName"], "routed-router");
    let env = router["spec"]["containers"][0]["env"].as_array().unwrap();
    assert!(env.iter().any(|variable| variable["value"] == "least-busy"), "{env:?}");

    let entry = space.get(&SERVICE, "routed").await;
    assert_eq!(entry["spec"]["selector"]["serving.ome.io/component"], "router");
    assert_eq!(entry["spec"]["ports"][0]["targetPort"], 9000);
    assert_eq!(condition(&service, "RouterReady")["status"], "True");
    // A router holds no copy of the model.
    assert_eq!(service["status"]["modelStatus"]["modelCopies"]["totalCopies"], 1);
}

#[tokio::test]
async fn an_engine_with_workers_becomes_groups_of_pods_that_are_reached_at_their_leaders() {
    let space = Space::shared("group").await;
    space.create(&SERVING_RUNTIME, "grouped", json!({"spec": grouped_runtime(2)})).await;
    let service = space.serves("big", with_model(json!({"runtime": {"name": "grouped"}, "engine": fixed(2)}))).await;
    let expected = ["LeaderWorkerSet big-engine-mn", "PodDisruptionBudget big-engine", "Service big", "Service big-engine"];
    assert_eq!(space.made().await, set(expected));
    let set = space.get(&LEADER_WORKER_SET, "big-engine-mn").await;
    assert_eq!((&set["spec"]["replicas"], &set["spec"]["leaderWorkerTemplate"]["size"]), (&json!(2), &json!(3)));
    assert_eq!(set["spec"]["startupPolicy"], "LeaderCreated");
    assert_eq!(set["spec"]["leaderWorkerTemplate"]["restartPolicy"], "RecreateGroupOnPodRestart");
    let pods = space.pods("big").await;
    assert_eq!((pods.len(), pods.values().all(is_ready)), (6, true), "{:?}", pods.keys());
    assert_eq!(service["status"]["modelStatus"]["modelCopies"]["totalCopies"], 2);

    let leaders: Vec<&str> = pods
        .iter()
        .filter(|(_, pod)| pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0")
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(leaders, ["big-engine-mn-0", "big-engine-mn-1"]);
    for name in ["big", "big-engine"] {
        space.reaches(name, &leaders).await;
    }
}

#[tokio::test]
async fn the_annotation_changes_the_mode_and_nothing_of_the_other_kind_stays() {
    let space = Space::shared("switch").await;
    space.create(&SERVING_RUNTIME, "grouped", json!({"spec": grouped_runtime(1)})).await;
    let mut engine = fixed(1);
    engine["runner"] = json!({"name": "ome-container", "image": "example.com/engine:1"});
    space
        .annotated(
            "both",
            json!({"ome.io/deploymentMode": "RawDeployment"}),
            with_model(json!({"runtime": {"name": "grouped"}, "engine": engine})),
        )
        .await;
    let raw = set(["Deployment both-engine", "PodDisruptionBudget both-engine", "Service both", "Service both-engine"]);
    let grouped = set(["LeaderWorkerSet both-engine-mn", "PodDisruptionBudget both-engine", "Service both", "Service both-engine"]);
    space.ready("both").await;
    assert_eq!(space.made().await, raw);
    let said = space.says("both", "Accepted", "True", "AnnotationOverridden").await;
    assert!(said.contains("RawDeployment") && said.contains("ignored"), "{said}");

    for (mode, gone, expected, number) in
        [("MultiNode", "deployment/both-engine", &grouped, 2), ("RawDeployment", "leaderworkerset/both-engine-mn", &raw, 1)]
    {
        space.annotate("both", json!({"ome.io/deploymentMode": mode})).await;
        space.kubectl(&["wait", "--for=delete", gone, "--timeout=600s"]).ok();
        eventually(&format!("only the pods of {mode} are left, Ready"), async || {
            let pods = space.pods("both").await;
            (pods.len() == number && pods.values().all(is_ready)).then_some(())
        })
        .await;
        space.ready("both").await;
        assert_eq!(&space.made().await, expected);
    }
}

#[tokio::test]
async fn kubectl_waits_for_a_service_and_its_deletion_leaves_nothing() {
    let space = Space::shared("kubectl").await;
    let router = json!({"runner": {"name": "router", "image": "example.com/router:1"}});
    let service = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "chat", "namespace": space.0.name},
        "spec": with_model(json!({"router": router})),
    });
    space.0.cluster.apply(&service).ok();
    space.kubectl(&["wait", "--for=condition=Ready", "inferenceservice/chat", "--timeout=600s"]).ok();
    assert_eq!(space.made().await.len(), 12, "{:?}", space.made().await);
    let listed = space.kubectl(&["get", "inferenceservice"]).ok();
    assert!(listed.contains("chat") && listed.contains("True"), "{listed}");

    space.kubectl(&["delete", "inferenceservice", "chat", "--wait=true"]).ok();
    eventually("nothing is left", async || {
        let left = space.made().await.len() + space.pods("chat").await.len();
        (left == 0).then_some(())
    })
    .await;
    assert!(space.find(&INFERENCE_SERVICE, "chat").await.is_none());
    assert!(space.find(&HORIZONTAL_POD_AUTOSCALER, "chat-engine").await.is_none());
}
