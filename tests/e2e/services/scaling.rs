//! The owner of the number of replicas: the service, an autoscaler, or another component.

use super::{DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, INFERENCE_SERVICE, SCALED_OBJECT, Space, fixed, with_model};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, runtime::WatchStreamExt, runtime::watcher};
use pointsman_tests::eventually;
use serde_json::{Value, json};
use std::{
    pin::pin,
    sync::{Arc, Mutex},
};
use tokio::task::JoinHandle;

/// Every observed state of a Deployment: its resource version, and its replicas.
struct States {
    seen: Arc<Mutex<Vec<(String, i32)>>>,
    api: Api<Deployment>,
    name: &'static str,
    watch: JoinHandle<()>,
}

impl States {
    async fn watch(space: &Space<'_>, name: &'static str) -> Self {
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let api = Api::<Deployment>::namespaced(space.0.client.clone(), &space.0.name);
        let (all, config) = (Arc::clone(&seen), watcher::Config::default().fields(&format!("metadata.name={name}")));
        let states = watcher(api.clone(), config).applied_objects();
        let watch = tokio::spawn(async move {
            let mut states = pin!(states);
            while let Some(state) = states.next().await {
                let state = state.unwrap();
                all.lock().unwrap().push((state.metadata.resource_version.unwrap(), state.spec.unwrap().replicas.unwrap()));
            }
        });
        eventually("the Deployment is watched", async || (!seen.lock().unwrap().is_empty()).then_some(())).await;
        Self { seen, api, name, watch }
    }

    /// The replicas of all states so far.
    async fn replicas(self) -> Vec<i32> {
        let now = self.api.get(self.name).await.unwrap().metadata.resource_version.unwrap();
        eventually("its state of now was seen", async || self.seen.lock().unwrap().iter().any(|(seen, _)| *seen == now).then_some(()))
            .await;
        self.watch.abort();
        self.seen.lock().unwrap().iter().map(|(_, replicas)| *replicas).collect()
    }
}

/// The field managers that own the replicas of a Deployment.
fn owners(deployment: &Value) -> Vec<&str> {
    let managed = deployment["metadata"]["managedFields"].as_array().unwrap().iter();
    managed.filter(|entry| !entry["fieldsV1"]["f:spec"]["f:replicas"].is_null()).map(|entry| entry["manager"].as_str().unwrap()).collect()
}

const OURS: &str = "pointsman/inferenceservice";

fn replicas(deployment: &Value) -> Option<i64> {
    deployment["spec"]["replicas"].as_i64()
}

#[tokio::test]
async fn without_a_word_of_it_a_service_is_scaled_from_1_to_3_by_cpu() {
    let space = Space::shared("hpa").await;
    space.serves("chat", with_model(json!({}))).await;
    let spec = &space.get(&HORIZONTAL_POD_AUTOSCALER, "chat-engine").await["spec"];
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(1), &json!(3)));
    assert_eq!(spec["scaleTargetRef"], json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-engine"}));
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
    assert_eq!(spec["metrics"], json!([cpu]));
    assert!(!owners(&space.get(&DEPLOYMENT, "chat-engine").await).contains(&OURS));

    // The autoscaler owns the number from the start: no later plan overwrites it.
    space.kubectl(&["scale", "deployment/chat-engine", "--replicas=3"]).ok();
    space.change("chat", json!({"engine": {"scaleMetric": "memory", "scaleTarget": 60, "maxReplicas": 4}})).await;
    let scaler = space.becomes(&HORIZONTAL_POD_AUTOSCALER, "chat-engine", "it is by memory", |hpa| hpa["spec"]["maxReplicas"] == 4).await;
    assert_eq!(scaler["spec"]["metrics"][0]["resource"]["name"], "memory");
    assert_eq!(scaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
    space.ready("chat").await;
    assert_eq!(replicas(&space.get(&DEPLOYMENT, "chat-engine").await), Some(3));
}

#[tokio::test]
async fn handing_five_replicas_over_to_an_autoscaler_and_taking_them_back_loses_nobody() {
    let space = Space::shared("handover").await;
    space.serves("chat", with_model(json!({"engine": fixed(5)}))).await;
    assert!(space.find(&HORIZONTAL_POD_AUTOSCALER, "chat-engine").await.is_none());
    let before = space.pod_uids("chat").await;
    assert_eq!(before.len(), 5);
    let states = States::watch(&space, "chat-engine").await;

    space.change("chat", json!({"engine": {"minReplicas": null, "maxReplicas": null}})).await;
    let scaler = space.becomes(&HORIZONTAL_POD_AUTOSCALER, "chat-engine", "it is there", |_| true).await;
    assert_eq!((&scaler["spec"]["minReplicas"], &scaler["spec"]["maxReplicas"]), (&json!(1), &json!(5)));
    let deployment = space.becomes(&DEPLOYMENT, "chat-engine", "the replicas aren't ours", |now| !owners(now).contains(&OURS)).await;
    assert_eq!(replicas(&deployment), Some(5));
    space.ready("chat").await;

    space.change("chat", json!({"engine": fixed(5)})).await;
    space.goes(&HORIZONTAL_POD_AUTOSCALER, "chat-engine").await;
    space.becomes(&DEPLOYMENT, "chat-engine", "the replicas are ours", |now| owners(now).contains(&OURS)).await;
    space.ready("chat").await;

    // The same with KEDA.
    let keda = json!({"enableKeda": true, "promServerAddress": "http://prometheus:9090", "customPromQuery": "sum(queue)"});
    space.change("chat", json!({"engine": {"minReplicas": 1, "maxReplicas": null, "kedaConfig": keda}})).await;
    let scaler = space.becomes(&SCALED_OBJECT, "chat-engine", "it is there", |_| true).await;
    assert_eq!(scaler["spec"]["maxReplicaCount"], 5);
    space.becomes(&DEPLOYMENT, "chat-engine", "the replicas aren't ours", |now| !owners(now).contains(&OURS)).await;
    space.change("chat", json!({"engine": {"minReplicas": 5, "maxReplicas": 5, "kedaConfig": null}})).await;
    space.goes(&SCALED_OBJECT, "chat-engine").await;
    space.becomes(&DEPLOYMENT, "chat-engine", "the replicas are ours", |now| owners(now).contains(&OURS)).await;
    space.ready("chat").await;

    assert_eq!(space.pod_uids("chat").await, before, "every pod is still there");
    let seen = states.replicas().await;
    assert!(seen.len() > 1 && seen.iter().all(|replicas| *replicas == 5), "{seen:?}");
}

#[tokio::test]
async fn annotations_scale_where_the_spec_says_nothing_and_are_told_to_count_for_nothing_where_it_does() {
    let space = Space::shared("annotations").await;
    let annotations = json!({"ome.io/min-replicas": "2", "ome.io/max-replicas": "6", "ome.io/target-utilization": "70"});
    space.annotated("noted", annotations.clone(), with_model(json!({}))).await;
    space.says("noted", "Accepted", "True", "Accepted").await;
    let spec = space.becomes(&HORIZONTAL_POD_AUTOSCALER, "noted-engine", "it is there", |_| true).await["spec"].clone();
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(2), &json!(6)));
    assert_eq!(spec["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
    space.ready("noted").await;
    assert!(space.events("noted").await.iter().all(|(_, reason, _)| reason != "AnnotationOverridden"));

    // Both are applied in one request.
    let engine = json!({"minReplicas": 1, "maxReplicas": 6});
    space.annotated("both", annotations, with_model(json!({"engine": engine}))).await;
    let said = space.says("both", "Accepted", "True", "AnnotationOverridden").await;
    assert!(said.contains("spec.engine.minReplicas is 1") && said.contains("ome.io/min-replicas (2)"), "{said}");
    assert!(!said.contains("max-replicas"), "they agree: {said}");
    assert_eq!(space.warned("both", "AnnotationOverridden").await, said);
    let spec = space.becomes(&HORIZONTAL_POD_AUTOSCALER, "both-engine", "it is there", |_| true).await["spec"].clone();
    assert_eq!(spec["minReplicas"], 1);
}

#[tokio::test]
async fn an_annotation_s_impossible_value_is_told_by_name_and_what_runs_stays_until_it_is_mended() {
    let space = Space::shared("invalid").await;
    space.serves("chat", with_model(json!({}))).await;
    let (pods, made) = (space.pod_uids("chat").await, space.made().await);
    for (key, value) in [
        ("ome.io/min-replicas", "two"),
        ("ome.io/max-replicas", "-1"),
        ("ome.io/target-utilization", "80%"),
        ("ome.io/deploymentMode", "Raw"),
        ("ome.io/autoscalerClass", "vpa"),
        ("autoscaling.ome.io/enable-keda", "yes"),
    ] {
        space.annotate("chat", json!({key: value})).await;
        let said = eventually(&format!("{key} is refused"), async || {
            let service = space.get(&INFERENCE_SERVICE, "chat").await;
            let accepted = super::condition(&service, "Accepted");
            let message = accepted["message"].as_str().unwrap().to_owned();
            (accepted["status"] == "False" && message.contains(key)).then_some((accepted["reason"].clone(), message))
        })
        .await;
        assert_eq!(said.0, "InvalidValue");
        assert!(said.1.contains(&format!("{value:?}")) && said.1.contains("it must be"), "{}", said.1);
        space.annotate("chat", json!({key: null})).await;
        space.says("chat", "Accepted", "True", "Accepted").await;
    }
    space.ready("chat").await;
    assert_eq!((space.pod_uids("chat").await, space.made().await), (pods, made));
}

#[tokio::test]
async fn keda_scales_by_a_query() {
    let space = Space::shared("keda").await;
    let keda = json!({
        "enableKeda": true, "promServerAddress": "http://prometheus:9090", "customPromQuery": "sum(queue)", "scalingThreshold": "25",
        "scalingOperator": "GreaterThanOrEqual",
    });
    space.serves("chat", with_model(json!({"kedaConfig": keda, "engine": {"minReplicas": 2, "maxReplicas": 7}}))).await;
    let spec = space.get(&SCALED_OBJECT, "chat-engine").await["spec"].clone();
    let expected = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat-engine"},
        "minReplicaCount": 2, "maxReplicaCount": 7,
        "triggers": [{
            "type": "prometheus",
            "metadata": {"serverAddress": "http://prometheus:9090", "query": "sum(queue)", "threshold": "25"},
        }],
    });
    assert_eq!(spec, expected);
    assert!(space.find(&HORIZONTAL_POD_AUTOSCALER, "chat-engine").await.is_none());
    assert!(!owners(&space.get(&DEPLOYMENT, "chat-engine").await).contains(&OURS));

    space.change("chat", json!({"kedaConfig": {"promServerAddress": null}})).await;
    let said = space.says("chat", "Accepted", "False", "InvalidValue").await;
    assert!(said.contains("kedaConfig.promServerAddress"), "{said}");
    assert_eq!(space.get(&SCALED_OBJECT, "chat-engine").await["spec"], expected, "what there is stays");
}

#[tokio::test]
async fn where_somebody_else_scales_there_is_no_autoscaler_and_what_they_say_stays() {
    let space = Space::shared("external").await;
    space.annotated("chat", json!({"ome.io/autoscalerClass": "external"}), with_model(json!({}))).await;
    space.ready("chat").await;
    assert!(space.find(&HORIZONTAL_POD_AUTOSCALER, "chat-engine").await.is_none());
    space.kubectl(&["scale", "deployment/chat-engine", "--replicas=4"]).ok();
    // A change that updates the Deployment.
    space.change("chat", json!({"engine": {"runner": {"name": "ome-container", "image": "example.com/engine:2"}}})).await;
    let service = space.ready("chat").await;
    assert_eq!(service["status"]["modelStatus"]["modelCopies"]["totalCopies"], 4);
    assert_eq!(replicas(&space.get(&DEPLOYMENT, "chat-engine").await), Some(4));
}

#[tokio::test]
async fn a_service_that_keda_has_scaled_to_zero_stands_by() {
    let space = Space::shared("standby").await;
    let keda = json!({"enableKeda": true, "promServerAddress": "http://prometheus:9090", "customPromQuery": "sum(queue)"});
    space.serves("chat", with_model(json!({"kedaConfig": keda, "engine": {"minReplicas": 0, "maxReplicas": 2}}))).await;
    // KEDA doesn't run here, so the test scales.
    space.kubectl(&["scale", "deployment", "chat-engine", "--replicas=0"]).ok();
    let stands_by = |service: &Value| {
        let status = &service["status"]["modelStatus"];
        status["modelRevisionStates"] == json!({"activeModelState": "Standby", "targetModelState": "Standby"})
            && status["transitionStatus"] == "UpToDate"
    };
    space.becomes(&INFERENCE_SERVICE, "chat", "it stands by", stands_by).await;
}
