//! The rollout of a change to the services: a limited number at once, only up to the first failure, and back again.

use super::{LABEL, LABELS, has, label, message, radius, reason, set_that, start, status, waits};
use crate::services::{AGENT, Space, condition as told, fixed, own_cluster, with_model};
use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, watcher},
};
use pointsman::keeper::sets;
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, SERVING_RUNTIME};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use pointsman_harness::Behaviour;
use pointsman_tests::{PolicyCluster, eventually, plugin_bytes};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex},
};

/// The generation and the ReplicaSets of each Deployment, and the uids of its pods.
type Running = BTreeMap<String, (Option<i64>, BTreeSet<String>, BTreeSet<String>)>;

async fn running(space: &Space<'_>) -> Running {
    let (client, namespace) = (space.0.client.clone(), &space.0.name);
    let owner = |object: &dyn Fn() -> Option<String>| object().unwrap_or_default();
    let all = ListParams::default();
    let mut of_sets: BTreeMap<String, String> = BTreeMap::new();
    let mut sets: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for set in Api::<ReplicaSet>::namespaced(client.clone(), namespace).list(&all).await.unwrap().items {
        let deployment = owner(&|| Some(set.owner_references().first()?.name.clone()));
        of_sets.insert(set.name_any(), deployment.clone());
        sets.entry(deployment).or_default().insert(set.name_any());
    }
    let mut pods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in Api::<Pod>::namespaced(client.clone(), namespace).list(&all).await.unwrap().items {
        let set = owner(&|| Some(pod.owner_references().first()?.name.clone()));
        pods.entry(of_sets.get(&set).cloned().unwrap_or_default()).or_default().insert(pod.uid().unwrap());
    }
    let deployments = Api::<Deployment>::namespaced(client, namespace).list(&all).await.unwrap().items;
    deployments
        .into_iter()
        .map(|deployment| {
            let name = deployment.name_any();
            let (sets, pods) = (sets.remove(&name).unwrap_or_default(), pods.remove(&name).unwrap_or_default());
            (name, (deployment.metadata.generation, sets, pods))
        })
        .collect()
}

/// Observes how many Deployments replace pods at once, and records the maximum and the order in which they began.
#[derive(Default)]
struct Rolling {
    now: BTreeSet<String>,
    most: usize,
    began: Vec<String>,
    /// The failed Deployment is stuck until the rollback, and doesn't occupy a slot.
    hangs: Option<String>,
}

fn watch_rolling(space: &Space<'_>) -> (Arc<Mutex<Rolling>>, tokio::task::JoinHandle<()>) {
    let seen = Arc::<Mutex<Rolling>>::default();
    let (api, noted) = (Api::<Deployment>::namespaced(space.0.client.clone(), &space.0.name), Arc::clone(&seen));
    let task = tokio::spawn(async move {
        let mut deployments = pin!(watcher::watcher(api, watcher::Config::default()).default_backoff().applied_objects());
        while let Some(deployment) = deployments.next().await {
            let Ok(deployment) = deployment else { continue };
            let (name, status) = (deployment.name_any(), deployment.status.clone().unwrap_or_default());
            let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            let done = status.observed_generation == deployment.metadata.generation
                && status.updated_replicas == wanted
                && status.available_replicas == wanted
                && status.replicas == wanted;
            let mut seen = noted.lock().unwrap();
            if done {
                seen.now.remove(&name);
            } else if seen.now.insert(name.clone()) {
                seen.began.push(name);
            }
            let at_it = seen.now.iter().filter(|name| seen.hangs.as_ref() != Some(name)).count();
            seen.most = seen.most.max(at_it);
        }
    });
    (seen, task)
}

async fn services(space: &Space<'_>) -> Vec<Value> {
    let mut all = Vec::new();
    for kind in [&INFERENCE_SERVICE, &LLM_INFERENCE_SERVICE] {
        let listed = space.api(kind).list(&ListParams::default()).await.unwrap().items;
        all.extend(listed.into_iter().map(|service| serde_json::to_value(service).unwrap()));
    }
    all
}

async fn all_ready(space: &Space<'_>, count: usize) {
    eventually(&format!("all {count} services are Ready"), async || {
        let ready = services(space).await.iter().filter(|service| told(service, "Ready")["status"] == "True").count();
        (ready == count).then_some(())
    })
    .await;
}

/// The queued services.
async fn waiting(space: &Space<'_>) -> BTreeSet<String> {
    let services = services(space).await;
    let waiting = services.iter().filter(|service| told(service, "Applied")["reason"] == "WaitingForTurn");
    waiting.map(|service| service["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The Deployments that differ between two moments.
fn touched(before: &Running, after: &Running) -> BTreeSet<String> {
    assert!(before.keys().eq(after.keys()), "Deployments came or went");
    before.iter().filter(|(name, state)| after[*name] != **state).map(|(name, _)| name.clone()).collect()
}

fn of_service(deployment: &str) -> &str {
    deployment.trim_end_matches("-engine").trim_end_matches("-kserve")
}

const OME: usize = 150;
const LLM: usize = 50;

/// The services that the plugin is called for, in the order of the rollout: 22 InferenceServices and 8 LLMInferenceServices.
fn golden() -> Vec<String> {
    let ome = (0..OME).step_by(7).map(|number| format!("chat-{number:03}"));
    ome.chain((1..=8).map(|number| format!("llama-{:02}", number * 6))).collect()
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn of_200_services_30_wait_and_are_named_roll_two_at_a_time_stop_at_the_7th_and_those_touched_go_back() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&[])));
    let host = start(&cluster, &["--pace", "2"]).await;
    let space = Space::on(&cluster, "pace").await;
    label(&space, json!({LABEL: "4711"})).await;
    let golden = golden();
    for (kind, names) in [
        (&INFERENCE_SERVICE, (0..OME).map(|number| format!("chat-{number:03}")).collect::<Vec<_>>()),
        (&LLM_INFERENCE_SERVICE, (1..=LLM).map(|number| format!("llama-{number:02}")).collect()),
    ] {
        for name in names {
            let tier = if golden.contains(&name) { "gold" } else { "silver" };
            let spec = if *kind == INFERENCE_SERVICE {
                with_model(json!({"engine": fixed(1)}))
            } else {
                json!({"model": {"uri": "hf://example/llama"}})
            };
            space.create(kind, &name, json!({"metadata": {"labels": {"tier": tier}}, "spec": spec})).await;
        }
    }
    all_ready(&space, OME + LLM).await;
    let former = set_that(&cluster, "a set decides", super::decides).await;
    let before = running(&space).await;

    // The effect is reported, and the set waits.
    cluster.config_map("cost-centre", &plugin_bytes(LABELS)).await;
    let matching = json!({"match": {"objectSelector": {"matchLabels": {"tier": "gold"}}}});
    cluster.plugin_of_config_map("cost-centre", matching).await;
    let candidate = set_that(&cluster, "it waits", |set| waits(set) && has(set, "cost-centre")).await;
    let name = candidate.name_any();
    names_those(&candidate, &golden);
    assert_eq!(running(&space).await, before, "nothing has changed yet");

    // The rollout runs until the 7th service fails.
    let seventh = golden[6].as_str();
    let pods_of_it = BTreeMap::from([("serving.ome.io/inferenceservice", seventh)]);
    cluster.behave("the-7th-fails", &space.0.name, &pods_of_it, Behaviour::Crash).unwrap();
    let (rolling, watching) = watch_rolling(&space);
    let asked = cluster.requests().len();
    cluster.pointsman(&["policy", "approve", &name]).ok();
    let stopped = set_that(&cluster, "it has stopped", |set| set.name_any() == name && reason(set, "RolledOut") == "Paused").await;
    assert!(message(&stopped).contains(&format!("/{seventh} failed to restart")), "{}", message(&stopped));
    // A service that was restarting at the same time completes, and all others are queued and report it.
    let rolled: BTreeSet<String> = eventually("the 7th alone is at it, and those that aren't through wait", async || {
        let now: Vec<String> = rolling.lock().unwrap().now.iter().map(|name| of_service(name).to_owned()).collect();
        let rolled: BTreeSet<String> = touched(&before, &running(&space).await).iter().map(|name| of_service(name).to_owned()).collect();
        let both: BTreeSet<String> = rolled.union(&waiting(&space).await).cloned().collect();
        (now == [seventh] && both == golden.iter().cloned().collect()).then_some(rolled)
    })
    .await;
    let rolled: BTreeSet<&str> = rolled.iter().map(String::as_str).collect();
    let first = |count: usize| -> BTreeSet<&str> { golden[..count].iter().map(String::as_str).collect() };
    assert!(rolled == first(7) || rolled == first(8), "{rolled:?}");
    let waits_for = services(&space).await.into_iter().find(|service| service["metadata"]["name"] == golden[29].as_str()).unwrap();
    let said = told(&waits_for, "Applied")["message"].as_str().unwrap().to_owned();
    assert!(said.contains(&former.name_any()) && said.contains(&name), "{said}");
    assert_eq!(told(&waits_for, "Ready")["status"], "True", "it serves on");
    let shown = cluster.pointsman(&["policy", "history", &name]).ok();
    assert!(shown.contains("Paused") && shown.contains(seventh) && shown.contains("policy rollback"), "{shown}");
    {
        let mut rolling = rolling.lock().unwrap();
        assert_eq!(std::mem::take(&mut rolling.most), 2, "no more than two at once, and not one by one");
        rolling.hangs = Some(format!("{seventh}-engine"));
        let began: Vec<&str> = rolling.began.iter().map(|name| of_service(name)).collect();
        assert!(began.iter().take(2).all(|name| first(7).contains(name)) && began.iter().all(|name| rolled.contains(name)), "{began:?}");
    }

    // The rollback only affects the services that were changed.
    cluster.pointsman(&["policy", "rollback"]).ok();
    cluster.behave_normally("the-7th-fails").unwrap();
    set_that(&cluster, "all are back", |set| {
        set.name_any() == former.name_any() && super::decides(set) && reason(set, "RolledOut") == "Everywhere"
    })
    .await;
    eventually("no Deployment rolls", async || rolling.lock().unwrap().now.is_empty().then_some(())).await;
    all_ready(&space, OME + LLM).await;
    let after = running(&space).await;
    for (name, (generation, sets, pods)) in &before {
        let (now, sets_now, pods_now) = &after[name];
        if rolled.contains(of_service(name)) {
            assert_eq!(now.unwrap(), generation.unwrap() + 2, "{name} went there and back");
            assert_eq!(pods_now.len(), 1, "{name}");
            assert!(sets_now.is_superset(sets) && sets_now.len() == 2, "{name} went back to the ReplicaSet that it had: {sets_now:?}");
            // The pod of the previous revision served all the time.
            assert!(of_service(name) != seventh || pods_now == pods, "{name}: {pods:?} {pods_now:?}");
        } else {
            assert_eq!((now, pods_now), (generation, pods), "{name} wasn't touched");
        }
    }
    assert_eq!(rolling.lock().unwrap().most, 2, "nor were there more on the way back");
    let carry = space.api(&DEPLOYMENT).list(&ListParams::default()).await.unwrap();
    assert!(carry.items.iter().all(|it| it.data.pointer(&format!("/spec/template/metadata/labels/{LABEL}")).is_none()));
    assert!(waiting(&space).await.is_empty());
    // The audit log shows the same: the host has written only the Deployments of these services.
    assert_eq!(written(&cluster.requests()[asked..], &space).iter().map(String::as_str).collect::<BTreeSet<_>>(), rolled);

    // While that set is held, nothing is nominated. Later the same set needs an approval again.
    cluster.status("cost-centre", "it is held", |status| told_reason(status) == "Held").await;
    cluster.pointsman(&["policy", "resume"]).ok();
    let again = set_that(&cluster, "it waits again", |set| waits(set) && has(set, "cost-centre")).await;
    assert_eq!((again.name_any(), again.annotations().get(sets::APPROVED)), (name, None));
    assert_eq!(status(&again).phase, Some(PolicySetPhase::Candidate));
    watching.abort();
    host.stop();
}

fn names_those(candidate: &PolicySet, golden: &[String]) {
    let told_of = radius(candidate);
    assert_eq!((told_of.subjects, told_of.restarts, told_of.objects + told_of.metadata + told_of.failed), (200, 30, 0));
    let name = |line: &'_ String| line.split(':').next().unwrap().rsplit('/').next().unwrap().to_owned();
    assert_eq!(told_of.examples.iter().map(name).collect::<BTreeSet<_>>(), golden.iter().cloned().collect());
}

/// The services whose Deployments the host has written.
fn written(requests: &[Arc<Value>], space: &Space<'_>) -> BTreeSet<String> {
    requests
        .iter()
        .filter(|request| request["userAgent"].as_str().is_some_and(|agent| agent.starts_with(AGENT)))
        .filter(|request| ["patch", "update", "create", "delete"].contains(&request["verb"].as_str().unwrap_or_default()))
        .filter(|request| request["objectRef"]["resource"] == "deployments" && request["objectRef"]["namespace"] == space.0.name.as_str())
        .filter_map(|request| Some(of_service(request["objectRef"]["name"].as_str()?).to_owned()))
        .collect()
}

fn told_reason(status: &pointsman_crds::policy::plugin::PolicyPluginStatus) -> String {
    pointsman_tests::condition(status, "Ready").map(|(_, reason, _)| reason).unwrap_or_default()
}

#[tokio::test]
async fn an_edit_of_a_runtime_comes_to_one_after_the_other_through_a_pause_and_a_change_of_the_leader() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&[])));
    let host = start(&cluster, &["--pace", "1"]).await;
    let space = Space::on(&cluster, "pace").await;
    let names = ["a", "b", "c", "d"];
    for name in names {
        space.service(name, with_model(json!({"engine": fixed(1)}))).await;
    }
    all_ready(&space, names.len()).await;
    let before = running(&space).await;
    let set = set_that(&cluster, "a set decides", super::decides).await;
    let (rolling, watching) = watch_rolling(&space);

    // No service may restart, even under another leader.
    cluster.pointsman(&["policy", "pause", "--reason", "the night shift looks first"]).ok();
    let image = |version: u32| json!({"spec": {"engineConfig": {"runner": {"name": "ome-container", "image": format!("example.com/engine:{version}")}}}});
    space.patch(&SERVING_RUNTIME, "runtime", image(2)).await;
    let all: BTreeSet<String> = names.map(str::to_owned).into();
    eventually("all wait", async || (waiting(&space).await == all).then_some(())).await;
    let paused = set_that(&cluster, "it is told", |set| reason(set, "RolledOut") == "Paused").await;
    assert!(message(&paused).contains("the night shift looks first"), "{}", message(&paused));
    host.stop();
    let host = start(&cluster, &["--pace", "1"]).await;
    // A user's own edit isn't queued.
    space.change("d", json!({"engine": {"runner": {"name": "ome-container", "env": [{"name": "X", "value": "1"}]}}})).await;
    space.ready("d").await;
    eventually("the others still wait", async || (waiting(&space).await == ["a", "b", "c"].map(str::to_owned).into()).then_some(())).await;
    assert_eq!(touched(&before, &running(&space).await), ["d-engine".to_owned()].into());

    cluster.pointsman(&["policy", "resume"]).ok();
    eventually("all are through", async || waiting(&space).await.is_empty().then_some(())).await;
    for name in names {
        space.ready(name).await;
        space
            .becomes(&DEPLOYMENT, &format!("{name}-engine"), "it has the new image", |deployment| {
                deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/engine:2"
            })
            .await;
    }
    set_that(&cluster, "it is everywhere", |now| now.name_any() == set.name_any() && reason(now, "RolledOut") == "Everywhere").await;
    let rolling = rolling.lock().unwrap();
    let began: Vec<&str> = rolling.began.iter().map(|name| of_service(name)).collect();
    assert_eq!((rolling.most, &began[..]), (1, &["d", "a", "b", "c"][..]));
    watching.abort();
    host.stop();
}
