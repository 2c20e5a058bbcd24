//! The choice of a service's endpoint picker, its process as planned, and the change from one to the other.

use super::{create, ready, serves, with_model};
use crate::{
    services::{Space, condition, own_cluster},
    sets::{decides, set_that},
};
use pointsman_core::resource::{DEPLOYMENT, LLM_INFERENCE_SERVICE};
use pointsman_tests::{Host, PickerProcess, PolicyCluster, eventually};
use serde_json::{Value, json};

const SCHEDULER: &str = "llama-kserve-router-scheduler";

/// The image of `Host`'s endpoint pickers.
const OURS: &str = "pointsman:test";

fn image(deployment: &Value) -> &str {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

/// Changes the annotation that chooses the scheduler; null removes it.
async fn choose(space: &Space<'_>, service: &str, scheduler: Value) {
    space.patch(&LLM_INFERENCE_SERVICE, service, json!({"metadata": {"annotations": {"pointsman.dev/scheduler": scheduler}}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picker_of_a_new_service_runs_with_the_arguments_and_the_rights_that_are_planned() {
    let space = Space::shared_bare("llm-picker").await;
    let spec = with_model(json!({"replicas": 2, "prefill": {"replicas": 1}, "router": {"scheduler": {"replicas": 2}}}));
    let service = serves(&space, "llama", spec).await;
    assert_eq!(condition(&service, "PresetsCombined")["reason"], "Combined");
    let deployment = space.get(&DEPLOYMENT, SCHEDULER).await;
    assert_eq!((image(&deployment), &deployment["spec"]["strategy"]["type"]), (OURS, &json!("RollingUpdate")));

    // Runs the program of its pods as their ServiceAccount: its Role is enough to find the pool and the pods of both workloads.
    let picker = PickerProcess::start_as_deployed(&space.0, &deployment).await;
    picker.knows(3).await;
    eventually("the picker is ready", async || (picker.ready()?.0 == 200).then_some(())).await;
    let warned: Vec<Value> = picker.log().into_iter().filter(|line| line["level"] == "WARN" && line["source"].is_string()).collect();
    assert!(warned.is_empty(), "the preset's configuration is its own: {warned:?}");
    let refused = |line: &Value| line.to_string().contains("forbidden");
    assert!(!picker.log().iter().any(refused), "{:?}", picker.log());
    picker.kill();
}

#[tokio::test]
async fn a_service_keeps_its_scheduler_until_it_asks_for_another_one() {
    let space = Space::shared_bare("llm-kept").await;
    let metadata = json!({"annotations": {"pointsman.dev/scheduler": "llm-d"}});
    create(&space, "llama", metadata, with_model(json!({"router": {"scheduler": {}}}))).await;
    ready(&space, "llama").await;
    let first = space.get(&DEPLOYMENT, SCHEDULER).await;
    assert!(image(&first).contains("llm-d") && first["spec"]["strategy"]["type"] == "Recreate", "{}", first["spec"]);

    // Nothing requests it any more. A later plan that changes the Deployment keeps the scheduler.
    choose(&space, "llama", Value::Null).await;
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"router": {"scheduler": {"labels": {"team": "a"}}}}})).await;
    let labelled = |deployment: &Value| deployment["spec"]["template"]["metadata"]["labels"]["team"] == "a";
    let later = space.becomes(&DEPLOYMENT, SCHEDULER, "it has the label", labelled).await;
    assert_eq!(image(&later), image(&first));

    choose(&space, "llama", json!("pointsman")).await;
    space.becomes(&DEPLOYMENT, SCHEDULER, "it is this project's", |deployment| image(deployment) == OURS).await;
    ready(&space, "llama").await;
    choose(&space, "llama", Value::Null).await;
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"router": {"scheduler": {"labels": {"team": "b"}}}}})).await;
    let labelled = |deployment: &Value| deployment["spec"]["template"]["metadata"]["labels"]["team"] == "b";
    let last = space.becomes(&DEPLOYMENT, SCHEDULER, "it has the other label", labelled).await;
    assert_eq!((image(&last), &last["spec"]["strategy"]["type"]), (OURS, &json!("RollingUpdate")));
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn with_a_flag_the_schedulers_of_all_services_are_replaced_at_the_pace() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&["inference-pool"])));
    let names = ["a", "b", "c"];
    let scheduler = |name: &str| format!("{name}-kserve-router-scheduler");
    let host = Host::start(&cluster, &["--scheduler", "llm-d"]).await;
    host.ready().await;
    let space = Space::bare(&cluster, "replaced").await;
    for name in names {
        create(&space, name, json!({}), with_model(json!({"router": {"scheduler": {}}}))).await;
    }
    for name in names {
        ready(&space, name).await;
    }
    host.stop();

    // With only another default, everything stays unchanged. With the flag, all services are queued, because the rollout is paused.
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    set_that(&cluster, "a set decides", decides).await;
    cluster.pointsman(&["policy", "pause", "--reason", "the night shift looks first"]).ok();
    host.stop();
    let host = Host::start(&cluster, &["--replace-schedulers", "--pace", "1"]).await;
    host.ready().await;
    for name in names {
        let waits = |service: &Value| condition(service, "Applied")["reason"] == "WaitingForTurn";
        space.becomes(&LLM_INFERENCE_SERVICE, name, "it waits for its turn", waits).await;
        let deployment = space.get(&DEPLOYMENT, &scheduler(name)).await;
        assert!(image(&deployment).contains("llm-d"), "{name}: {}", image(&deployment));
    }
    cluster.pointsman(&["policy", "resume"]).ok();
    for name in names {
        space.becomes(&DEPLOYMENT, &scheduler(name), "it is this project's", |deployment| image(deployment) == OURS).await;
        ready(&space, name).await;
    }
    host.stop();
}
