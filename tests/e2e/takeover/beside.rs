//! Another controller's objects stay unchanged, and so do those of subjects that no controller manages.

use super::{Other, adopt, host, looks_again};
use crate::services::{Space, condition, fixed, own_cluster, with_model};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, SERVICE};
use pointsman_tests::{Host, eventually};
use serde_json::{Value, json};

const FALSE: &str = "pointsman.dev/control";

/// A service that isn't managed yet.
async fn unclaimed(space: &Space<'_>, name: &str) {
    space.annotated(name, json!({FALSE: "false"}), with_model(json!({"engine": fixed(1)}))).await;
}

async fn claim(space: &Space<'_>, name: &str) {
    space.annotate(name, json!({FALSE: null})).await;
}

/// How often a host has found that another controller removed its condition.
fn taken_away(host: &Host<'_>) -> u64 {
    let (_, metrics) = host.get("/metrics").unwrap();
    let counts = metrics.lines().filter(|line| line.starts_with("pointsman_contested_taken_away_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// The writes about a service, without events.
fn written(space: &Space<'_>, service: &str) -> Vec<String> {
    space.writes().into_iter().filter(|write| write.contains(&format!("/{service}")) && !write.contains(" events")).collect()
}

async fn status_of_another(space: &Space<'_>, host: &Host<'_>) {
    unclaimed(space, "told").await;
    let other = Other::new(space, &INFERENCE_SERVICE, "told");
    other.is_content(1).await;
    claim(space, "told").await;
    let told = |service: &Value| condition(service, "Contested")["status"] == "True";
    let service = space.becomes(&INFERENCE_SERVICE, "told", "it is contested", told).await;
    let contested = condition(&service, "Contested");
    let said = contested["message"].as_str().unwrap();
    assert_eq!(contested["reason"], "OtherController");
    for words in ["\"manager\" writes the status", "pointsman adopt", "--control", FALSE, "Seen at 20"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let ready = condition(&service, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("True"), &json!("Time1")), "it is the other controller's");
    assert_eq!(service["status"]["url"], "http://told-1.example.com");
    assert_eq!(space.warned("told", "Contested").await, said);

    // The other controller continues and removes our condition: the host doesn't write it again each time.
    let before = taken_away(host);
    for time in 2..5 {
        other.is_content(time).await;
        eventually("the host has seen it", async || (taken_away(host) >= before + u64::from(time) - 1).then_some(())).await;
    }
    assert_eq!(written(space, "told"), ["patch inferenceservices/told/status"]);
    assert_eq!(space.events("told").await.len(), 1);
    assert!(space.made().await.is_empty());

    // Once adopted, the service is served, and the other controller's earlier status no longer counts.
    let refused = adopt(space, &["isvc/told", "--yes"]);
    assert_eq!(refused.code, Some(2), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("\"manager\" has written") && refused.stdout.contains("--force"), "{}", refused.stdout);
    assert!(written(space, "told").len() == 1, "it was refused");
    adopt(space, &["isvc/told", "--yes", "--force"]).ok();
    let service = space.ready("told").await;
    assert_eq!(condition(&service, "Contested")["reason"], "NobodyElse");
    assert!(space.find(&DEPLOYMENT, "told-engine").await.is_some());

    // A single stray write is corrected.
    let pods = space.pod_uids("told").await;
    other.is_content(9).await;
    let ours = |service: &Value| condition(service, "Contested")["status"] == "False";
    space.becomes(&INFERENCE_SERVICE, "told", "it is set right", ours).await;
    space.ready("told").await;

    // Here, the other controller continues after all.
    for time in 10.. {
        other.is_content(time).await;
        let answered = |service: &Value| condition(service, "Contested")["status"].is_string();
        let service = space.becomes(&INFERENCE_SERVICE, "told", "it is set right, or given up", answered).await;
        if condition(&service, "Contested")["reason"] == "OtherController" {
            break;
        }
    }
    space.delete(&SERVICE, "told").await;
    looks_again(space, host, &INFERENCE_SERVICE, "told").await;
    assert!(space.find(&SERVICE, "told").await.is_none(), "nothing is written");
    assert_eq!(space.pod_uids("told").await, pods);
    adopt(space, &["isvc/told", "--yes", "--force"]).ok();
    space.ready("told").await;
    assert!(space.find(&SERVICE, "told").await.is_some());
}

async fn object_of_another(space: &Space<'_>) {
    unclaimed(space, "made").await;
    let other = Other::new(space, &INFERENCE_SERVICE, "made");
    let spec = json!({"selector": {"app": "isvc.made-engine"}, "ports": [{"port": 80}]});
    // The last object that the plan creates.
    let theirs = other.makes(&SERVICE, "made", json!({}), json!({"spec": spec})).await;
    claim(space, "made").await;
    let said = space.says("made", "Contested", "True", "MadeByOther").await;
    let object = format!("\"manager\" created the Service {}/made", space.0.name);
    assert!(said.contains(&object), "{said}");
    assert!(space.find(&DEPLOYMENT, "made-engine").await.is_none(), "nothing of the plan is made");
    assert_eq!(space.get(&SERVICE, "made").await["metadata"]["resourceVersion"], theirs["metadata"]["resourceVersion"]);
    assert!(written(space, "made").iter().all(|write| write == "patch inferenceservices/made/status"));

    adopt(space, &["isvc/made", "--yes", "--force"]).ok();
    space.ready("made").await;
    let now = space.get(&SERVICE, "made").await;
    assert_eq!(
        (&now["metadata"]["uid"], &now["spec"]["selector"]["serving.ome.io/component"]),
        (&theirs["metadata"]["uid"], &json!("engine"))
    );
    assert!(now["spec"]["selector"].get("app").is_none(), "{:#}", now["spec"]);
}

/// If another controller's object is deleted, no event informs the host.
async fn object_that_goes(space: &Space<'_>, host: &Host<'_>) {
    unclaimed(space, "gone").await;
    let spec = json!({"selector": {"app": "isvc.gone-engine"}, "ports": [{"port": 80}]});
    Other::new(space, &INFERENCE_SERVICE, "gone").makes(&SERVICE, "gone", json!({}), json!({"spec": spec})).await;
    claim(space, "gone").await;
    space.says("gone", "Contested", "True", "MadeByOther").await;
    space.delete(&SERVICE, "gone").await;
    looks_again(space, host, &INFERENCE_SERVICE, "gone").await;
    space.ready("gone").await;
}

async fn changed_back(space: &Space<'_>) {
    space.serves("fought", with_model(json!({"engine": fixed(1)}))).await;
    let ours = |service: &Value| service["spec"]["selector"]["serving.ome.io/component"] == "engine";
    let contested = async || condition(&space.get(&INFERENCE_SERVICE, "fought").await, "Contested")["status"] == "True";
    let params = kube::api::PatchParams { field_manager: Some("meddler".to_owned()), ..kube::api::PatchParams::default() };
    let change = kube::api::Patch::Merge(json!({"spec": {"selector": {"serving.ome.io/component": "nothing"}}}));
    while !contested().await {
        space.api(&SERVICE).patch("fought", &params, &change).await.unwrap();
        eventually("it is set right, or given up", async || {
            (contested().await || ours(&space.get(&SERVICE, "fought").await)).then_some(())
        })
        .await;
    }
    let said = space.says("fought", "Contested", "True", "ChangedBack").await;
    assert!(
        said.contains("Service") && said.contains("10 times within a minute") && said.contains("\"meddler\" changes it back"),
        "{said}"
    );
    space.says("fought", "Ready", "False", "Contested").await;
}

#[tokio::test]
async fn what_another_controller_works_on_is_left_alone_until_it_is_taken_over() {
    let cluster = own_cluster(Some(&[]));
    let host = host(&cluster).await;
    let space = Space::on(&cluster, "beside").await;
    status_of_another(&space, &host).await;
    object_of_another(&space).await;
    object_that_goes(&space, &host).await;
    changed_back(&space).await;
    host.stop();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn what_nobody_claims_is_left_alone_and_its_deletion_needs_nobody() {
    let cluster = own_cluster(Some(&[]));
    let space = Space::on(&cluster, "claims").await;
    let flags = ["--control", "llmisvc", "--control", &format!("InferenceService:{}", space.0.name)];
    let claimed = Host::start(&cluster, &flags).await;
    claimed.ready().await;
    let elsewhere = Space::on(&cluster, "unclaimed").await;
    elsewhere.service("chat", with_model(json!({"engine": fixed(1)}))).await;
    unclaimed(&space, "chat").await;
    space.serves("other", with_model(json!({"engine": fixed(1)}))).await;
    space.create(&LLM_INFERENCE_SERVICE, "llm", json!({"spec": {"model": {"uri": "hf://example/llama", "name": "llama"}}})).await;
    space.becomes(&DEPLOYMENT, "llm-kserve", "it is there", |_| true).await;
    assert_eq!(elsewhere.writes(), [""; 0]);
    assert_eq!(written(&space, "chat"), [""; 0]);
    assert!(space.get(&INFERENCE_SERVICE, "chat").await["status"].is_null());

    // `explain` reports that the service isn't managed.
    let said = cluster.pointsman(&["explain", "isvc/chat", "-n", &space.0.name]).ok();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("not managed: its annotation pointsman.dev/control is \"false\""), "{said}");
    space.annotate("chat", json!({FALSE: "no"})).await;
    let said = space.says("chat", "Contested", "False", "InvalidAnnotation").await;
    assert!(said.contains("\"no\""), "{said}");
    space.ready("chat").await;

    // If the service is released, its objects stay, and they are deleted with it.
    space.annotate("chat", json!({FALSE: "false"})).await;
    let version = space.get(&INFERENCE_SERVICE, "other").await;
    looks_again(&space, &claimed, &INFERENCE_SERVICE, "other").await;
    assert_eq!(version["status"], space.get(&INFERENCE_SERVICE, "other").await["status"]);
    space.delete(&SERVICE, "chat").await;
    looks_again(&space, &claimed, &INFERENCE_SERVICE, "other").await;
    assert!(space.find(&SERVICE, "chat").await.is_none());
    space.delete(&INFERENCE_SERVICE, "chat").await;
    space.goes(&DEPLOYMENT, "chat-engine").await;

    let said = cluster.pointsman(&["controller", "--control", "pods"]);
    assert_eq!(said.code, Some(64), "{}", said.stderr);
    assert!(said.stderr.contains("InferenceService (inferenceservices, isvc) or LLMInferenceService"), "{}", said.stderr);
    claimed.stop();
}
