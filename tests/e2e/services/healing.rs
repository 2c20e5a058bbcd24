//! Changes of our objects by others: changes of our fields are undone, all others stay.

use super::{DEPLOYMENT, INFERENCE_SERVICE, SERVICE, Space, fixed, with_model};
use pointsman_tests::eventually;
use serde_json::json;

#[tokio::test]
async fn a_fixed_number_of_replicas_comes_back_after_somebody_else_has_scaled() {
    let space = Space::shared("scaled").await;
    space.serves("chat", with_model(json!({"engine": fixed(2)}))).await;
    for replicas in ["--replicas=5", "--replicas=0"] {
        space.kubectl(&["scale", "deployment/chat-engine", replicas]).ok();
        space.becomes(&DEPLOYMENT, "chat-engine", "it has 2 again", |now| now["spec"]["replicas"] == 2).await;
    }
    space.ready("chat").await;
}

#[tokio::test]
async fn what_is_deleted_comes_back_and_what_is_changed_is_set_right() {
    let space = Space::shared("drift").await;
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    let made = space.made().await;
    let pods = space.pod_uids("chat").await;
    for name in ["chat", "chat-engine"] {
        let uid = space.get(&SERVICE, name).await["metadata"]["uid"].clone();
        space.delete(&SERVICE, name).await;
        space.becomes(&SERVICE, name, "it is back", |now| now["metadata"]["uid"] != uid).await;
    }
    space.kubectl(&["delete", "poddisruptionbudgets", "--all"]).ok();
    eventually("everything is back", async || (space.made().await == made).then_some(())).await;

    space.patch(&SERVICE, "chat", json!({"spec": {"selector": {"serving.ome.io/component": "nothing"}}})).await;
    space.becomes(&SERVICE, "chat", "it selects the engine", |now| now["spec"]["selector"]["serving.ome.io/component"] == "engine").await;
    space.kubectl(&["set", "image", "deployment/chat-engine", "ome-container=example.com/other:1"]).ok();
    let right = |now: &serde_json::Value| now["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/engine:1";
    space.becomes(&DEPLOYMENT, "chat-engine", "it has its image", right).await;
    space.ready("chat").await;
    // A pod with the other image may still be terminating.
    eventually("there are as many pods as before", async || (space.pod_uids("chat").await.len() == pods.len()).then_some(())).await;

    // The whole Deployment with its pods.
    space.delete(&DEPLOYMENT, "chat-engine").await;
    eventually("other pods are there", async || {
        let now = space.pod_uids("chat").await;
        (now.len() == 1 && now.is_disjoint(&pods)).then_some(())
    })
    .await;
    space.ready("chat").await;
}

#[tokio::test]
async fn others_labels_stay_and_ours_go_with_what_they_come_from() {
    let space = Space::shared("labels").await;
    let metadata = json!({"labels": {"team": "search"}, "annotations": {"example.com/contact": "someone"}});
    space.create(&INFERENCE_SERVICE, "chat", json!({"metadata": metadata, "spec": with_model(json!({"engine": fixed(1)}))})).await;
    space.ready("chat").await;
    let deployment = space.get(&DEPLOYMENT, "chat-engine").await;
    assert_eq!(deployment["metadata"]["labels"]["team"], "search");
    assert_eq!(deployment["metadata"]["annotations"]["example.com/contact"], "someone");
    space.kubectl(&["label", "deployment/chat-engine", "theirs=stays"]).ok();

    let without = json!({"metadata": {"labels": {"team": null}, "annotations": {"example.com/contact": null}}});
    space.patch(&INFERENCE_SERVICE, "chat", without).await;
    for resource in [&DEPLOYMENT, &SERVICE] {
        space
            .becomes(resource, "chat-engine", "both are gone", |now| {
                now["metadata"]["labels"]["team"].is_null() && now["metadata"]["annotations"]["example.com/contact"].is_null()
            })
            .await;
    }
    space.ready("chat").await;
    assert_eq!(space.get(&DEPLOYMENT, "chat-engine").await["metadata"]["labels"]["theirs"], "stays");
    eventually("the pods with them are gone", async || {
        let pods = space.pods("chat").await;
        pods.values().all(|pod| pod["metadata"]["labels"]["team"].is_null()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_service_that_is_made_anew_under_its_name_gets_objects_of_its_own() {
    let space = Space::shared("anew").await;
    let first = space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    // There may be events already if the watch of runtimes was later than that of services.
    let before = space.events("chat").await;
    space.delete(&INFERENCE_SERVICE, "chat").await;
    let second = space.serves("chat", with_model(json!({"engine": fixed(2)}))).await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    for (resource, name) in [(&DEPLOYMENT, "chat-engine"), (&SERVICE, "chat-engine"), (&SERVICE, "chat")] {
        let uid = &second["metadata"]["uid"];
        space.becomes(resource, name, "it is the second's", |now| now["metadata"]["ownerReferences"][0]["uid"] == *uid).await;
    }
    space.ready("chat").await;
    let events = space.events("chat").await;
    assert_eq!(events, before, "what was left of the first one is nobody's trouble");
    eventually("the first one's pod is gone", async || (space.pods("chat").await.len() == 2).then_some(())).await;
}
