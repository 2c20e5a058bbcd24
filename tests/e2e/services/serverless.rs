//! Services on Knative.

use super::{
    DEPLOYMENT, INFERENCE_SERVICE, POD_DISRUPTION_BUDGET, SERVICE, SERVING_RUNTIME, Space, condition, fixed,
    played::{condition_status, knative},
    set, with_model,
};
use pointsman_core::resource::KNATIVE_SERVICE;
use serde_json::{Value, json};

fn traffic(service: &Value) -> &Value {
    &service["spec"]["traffic"]
}

#[tokio::test]
async fn a_component_that_may_go_to_zero_is_knatives_and_tells_what_knative_tells() {
    let space = Space::shared("knative").await;
    space
        .service("chat", with_model(json!({"engine": {"minReplicas": 0, "maxReplicas": 4, "scaleTarget": 7, "timeoutSeconds": 300}})))
        .await;
    let made = space.becomes(&KNATIVE_SERVICE, "chat-engine", "it is there", |_| true).await;
    let template = &made["spec"]["template"];
    let told = &template["metadata"]["annotations"];
    assert_eq!(
        [&told["autoscaling.knative.dev/min-scale"], &told["autoscaling.knative.dev/max-scale"], &told["autoscaling.knative.dev/target"]],
        ["0", "4", "7"],
    );
    assert_eq!(template["spec"]["timeoutSeconds"], 300);
    let container = &template["spec"]["containers"][0];
    assert_eq!((&container["name"], &container["ports"][0]["containerPort"]), (&json!("ome-container"), &json!(8000)));
    space.says("chat", "EngineReady", "Unknown", "Progressing").await;
    let features = space.says("chat", "Accepted", "True", "KnativeFeatures").await;
    for feature in ["kubernetes.podspec-nodeselector", "kubernetes.podspec-volumes-hostpath"] {
        assert!(features.contains(feature), "{features}");
    }
    // Knative creates the Services.
    assert_eq!(space.made().await, set(["PodDisruptionBudget chat-engine", "Service chat-engine"]));
    assert!(space.find(&SERVICE, "chat").await.is_none() && space.find(&SERVICE, "chat-engine").await.is_none());

    // A failed revision is reported with Knative's message.
    let generation = &made["metadata"]["generation"];
    let mut failed = condition_status("Ready", "False");
    failed["reason"] = "RevisionFailed".into();
    failed["message"] = "Container failed with: out of memory.".into();
    let status = json!({"observedGeneration": generation, "latestCreatedRevisionName": "chat-engine-00001", "conditions": [failed]});
    space.patch_status(&KNATIVE_SERVICE, "chat-engine", status).await;
    let why = space.says("chat", "EngineReady", "False", "RevisionFailed").await;
    assert!(why.contains("Knative Service chat-engine") && why.contains("out of memory"), "{why}");

    space.patch_status(&KNATIVE_SERVICE, "chat-engine", knative("chat-engine", &space.0.name, 1, traffic(&made), generation)).await;
    let service = space.ready("chat").await;
    let status = &service["status"];
    assert_eq!(status["url"], format!("http://chat-engine.{}.example.com", space.0.name));
    assert_eq!(status["address"]["url"], format!("http://chat-engine.{}.svc.cluster.local", space.0.name));
    let engine = &status["components"]["engine"];
    for field in ["latestCreatedRevision", "latestReadyRevision", "latestRolledoutRevision"] {
        assert_eq!(engine[field], "chat-engine-00001", "{engine:#}");
    }
    assert_eq!(engine["traffic"], json!([{"revisionName": "chat-engine-00001", "latestRevision": true, "percent": 100}]));
    assert_eq!(condition(&service, "IngressReady")["reason"], "Knative");
    assert_eq!(status["modelStatus"]["modelRevisionStates"]["activeModelState"], "Loaded");
}

#[tokio::test]
async fn a_canary_gets_its_share_until_it_is_promoted_or_withdrawn() {
    let space = Space::shared("canary").await;
    let play = space.play();
    space.serves("chat", with_model(json!({"engine": {"minReplicas": 0}}))).await;
    let image = |version: u32| json!({"name": "ome-container", "image": format!("example.com/engine:{version}")});

    space.change("chat", json!({"engine": {"canaryTrafficPercent": 10, "runner": image(2)}})).await;
    let service = space.ready("chat").await;
    let split = json!([
        {"latestRevision": true, "percent": 10},
        {"revisionName": "chat-engine-00001", "latestRevision": false, "percent": 90, "tag": "prev"},
    ]);
    assert_eq!(traffic(&space.get(&KNATIVE_SERVICE, "chat-engine").await), &split);
    let engine = &service["status"]["components"]["engine"];
    assert_eq!(
        (&engine["latestReadyRevision"], &engine["latestRolledoutRevision"]),
        (&json!("chat-engine-00002"), &json!("chat-engine-00001"))
    );
    assert_eq!(engine["traffic"][1]["percent"], 90);
    // The columns of kubectl.
    let columns = space.kubectl(&["get", "isvc", "chat", "-o", "wide"]).ok();
    assert!(columns.contains(" 90 ") && columns.contains(" 10 "), "{columns}");

    // If a canary follows a canary, the revision that had all traffic keeps the rest.
    space.change("chat", json!({"engine": {"canaryTrafficPercent": 30, "runner": image(3)}})).await;
    space
        .becomes(&KNATIVE_SERVICE, "chat-engine", "the third gets its share", |now| {
            now["spec"]["traffic"][0]["percent"] == 30 && now["spec"]["traffic"][1]["revisionName"] == "chat-engine-00001"
        })
        .await;

    space.change("chat", json!({"engine": {"canaryTrafficPercent": 100}})).await;
    let promoted = |now: &Value| {
        let engine = &now["status"]["components"]["engine"];
        engine["latestRolledoutRevision"] == "chat-engine-00003" && engine["previousRolledoutRevision"] == "chat-engine-00001"
    };
    space.becomes(&INFERENCE_SERVICE, "chat", "the third is rolled out", promoted).await;
    assert_eq!(traffic(&space.get(&KNATIVE_SERVICE, "chat-engine").await), &json!([{"latestRevision": true, "percent": 100}]));
    drop(play);
}

#[tokio::test]
async fn a_canary_that_is_withdrawn_never_gets_all_of_the_traffic_while_the_next_one_comes_up() {
    let space = Space::shared("withdrawn").await;
    space.service("chat", with_model(json!({"engine": {"minReplicas": 0}}))).await;
    let mut made = space.becomes(&KNATIVE_SERVICE, "chat-engine", "it is there", |_| true).await;
    // The test writes Knative's status, revision by revision.
    let tell = async |made: &Value, number: u32, ready: u32| {
        let mut status = knative("chat-engine", &space.0.name, number, traffic(made), &made["metadata"]["generation"]);
        let latest = format!("chat-engine-{ready:05}");
        status["latestReadyRevisionName"] = latest.as_str().into();
        for part in status["traffic"].as_array_mut().unwrap().iter_mut().filter(|part| part["latestRevision"] == true) {
            part["revisionName"] = latest.as_str().into();
        }
        space.patch_status(&KNATIVE_SERVICE, "chat-engine", status).await;
    };
    tell(&made, 1, 1).await;
    space.ready("chat").await;
    let image = |version: u32| json!({"name": "ome-container", "image": format!("example.com/engine:{version}")});
    space.change("chat", json!({"engine": {"canaryTrafficPercent": 10, "runner": image(2)}})).await;
    let shares = |latest: u32, rest: u32| {
        move |now: &Value| {
            let traffic = traffic(now);
            traffic[0]["percent"] == latest && traffic[1]["percent"] == rest && traffic[1]["revisionName"] == "chat-engine-00001"
        }
    };
    made = space.becomes(&KNATIVE_SERVICE, "chat-engine", "the canary has its share", shares(10, 90)).await;
    tell(&made, 2, 2).await;
    space
        .becomes(&INFERENCE_SERVICE, "chat", "the canary is told", |now| {
            now["status"]["components"]["engine"]["latestReadyRevision"] == "chat-engine-00002"
        })
        .await;

    // One edit withdraws the canary. Until the third revision is ready, the newest ready one is still the canary.
    space.change("chat", json!({"engine": {"canaryTrafficPercent": null, "runner": null}})).await;
    made = space.becomes(&KNATIVE_SERVICE, "chat-engine", "the first has everything", shares(0, 100)).await;
    tell(&made, 3, 2).await;
    space
        .becomes(&INFERENCE_SERVICE, "chat", "the third is told", |now| {
            now["status"]["components"]["engine"]["latestCreatedRevision"] == "chat-engine-00003"
        })
        .await;
    assert!(shares(0, 100)(&space.get(&KNATIVE_SERVICE, "chat-engine").await));
    tell(&made, 3, 3).await;
    let whole = |now: &Value| *traffic(now) == json!([{"latestRevision": true, "percent": 100}]);
    made = space.becomes(&KNATIVE_SERVICE, "chat-engine", "the third has everything", whole).await;
    tell(&made, 3, 3).await;
    let engine = |now: &Value| now["status"]["components"]["engine"]["latestRolledoutRevision"] == "chat-engine-00003";
    let service = space.becomes(&INFERENCE_SERVICE, "chat", "the third is rolled out", engine).await;
    assert_eq!(service["status"]["components"]["engine"]["previousRolledoutRevision"], "chat-engine-00001");
}

#[tokio::test]
async fn what_knative_never_takes_is_refused_before_it_is_asked() {
    let space = Space::shared("knative-refuses").await;
    space.service("chat", with_model(json!({"engine": {"minReplicas": 0, "terminationGracePeriodSeconds": 5}}))).await;
    let why = space.says("chat", "Accepted", "False", "NotSupported").await;
    assert!(why.contains("terminationGracePeriodSeconds") && why.contains("RawDeployment"), "{why}");
    assert!(space.made().await.is_empty());
}

#[tokio::test]
async fn from_a_deployment_to_knative_and_back_nothing_is_left_over() {
    let space = Space::shared("to-knative").await;
    let _play = space.play();
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    space.annotate("chat", json!({"ome.io/deploymentMode": "Serverless"})).await;
    space.goes(&DEPLOYMENT, "chat-engine").await;
    space.goes(&SERVICE, "chat").await;
    // The name now belongs to Knative's Service.
    space.becomes(&SERVICE, "chat-engine", "it is Knative's own", |now| now["spec"]["type"] == "ExternalName").await;
    let url = format!("http://chat-engine.{}.example.com", space.0.name);
    space
        .becomes(&INFERENCE_SERVICE, "chat", "it is Knative's", |now| {
            now["status"]["url"] == url && condition(now, "Ready")["status"] == "True"
        })
        .await;
    // `Service` is the Knative Service here: the core Services are gone.
    assert_eq!(space.made().await, set(["PodDisruptionBudget chat-engine", "Service chat-engine"]));

    space.annotate("chat", json!({"ome.io/deploymentMode": null})).await;
    space.goes(&KNATIVE_SERVICE, "chat-engine").await;
    // Our Service is created once Knative's is deleted.
    space.becomes(&SERVICE, "chat-engine", "it is ours", |now| now["spec"]["selector"]["serving.ome.io/component"] == "engine").await;
    let url = format!("http://chat.{}.svc.cluster.local", space.0.name);
    space
        .becomes(&INFERENCE_SERVICE, "chat", "it is ours again", |now| {
            now["status"]["url"] == url && condition(now, "Ready")["status"] == "True"
        })
        .await;
    assert!(space.find(&POD_DISRUPTION_BUDGET, "chat-engine").await.is_some());
}

#[tokio::test]
async fn knatives_stays_while_a_name_of_what_comes_after_it_is_somebody_elses() {
    let space = Space::shared("knative-stays").await;
    let _play = space.play();
    space.annotated("chat", json!({"ome.io/deploymentMode": "Serverless"}), with_model(json!({"engine": fixed(1)}))).await;
    space.ready("chat").await;
    let runs = space.get(&KNATIVE_SERVICE, "chat-engine").await;
    space.kubectl(&["create", "deployment", "chat-engine", "--image=example.com/theirs:1"]).ok();
    space.annotate("chat", json!({"ome.io/deploymentMode": null})).await;
    space.says("chat", "Applied", "False", "NameTaken").await;
    let stays = space.get(&KNATIVE_SERVICE, "chat-engine").await;
    assert_eq!((&stays["metadata"]["uid"], &stays["metadata"]["deletionTimestamp"]), (&runs["metadata"]["uid"], &json!(null)));
    space.delete(&DEPLOYMENT, "chat-engine").await;
    space.goes(&KNATIVE_SERVICE, "chat-engine").await;
    space.ready("chat").await;
}

#[tokio::test]
async fn a_router_that_is_a_deployment_stands_before_an_engine_of_knatives() {
    let space = Space::shared("knative-router").await;
    let _play = space.play();
    let mut router = fixed(1);
    router["runner"] = json!({"name": "router", "image": "example.com/router:1"});
    space.annotated("chat", json!({"ome.io/deploymentMode": "Serverless"}), with_model(json!({"router": router}))).await;
    let service = space.ready("chat").await;
    assert_eq!(service["status"]["url"], format!("http://chat.{}.svc.cluster.local", space.0.name));
    assert_eq!(space.get(&SERVICE, "chat").await["spec"]["selector"]["serving.ome.io/component"], "router");
    assert_eq!(service["status"]["components"]["engine"]["latestReadyRevision"], "chat-engine-00001");
    assert!(space.find(&SERVING_RUNTIME, "runtime").await.is_some());
}
