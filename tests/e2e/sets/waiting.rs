//! Sets that wait, that need no approval, that are abandoned, and that survive restarts and changes of their sources.
//!
//! Mostly only on an API server: pod templates show the effects on pods, even if there are none.

use super::{
    LABEL, LABELS, annotate, bring, counts, decides, digest, has, is, label, message, next, radius, reason, set_that, sets_are_seen, start,
    status, turns, waits,
};
use crate::services::{Space, fixed, own_cluster, with_model};
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::ConfigMap};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
};
use pointsman::keeper::reports;
use pointsman_core::{
    resource::{DEPLOYMENT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource},
    settings::HOST_NAMESPACE,
};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use pointsman_tests::{Host, PolicyCluster, condition, eventually, plugin_bytes};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// An annotation that the built-in policy propagates to objects and never to pods, if it is approved.
const OF_OBJECTS: &str = "ome.io/version";

/// Selects the services that the plugin is called for.
fn gold() -> Value {
    json!({"objectSelector": {"matchLabels": {"tier": "gold"}}})
}

/// The metadata of a golden service, or of another one.
fn tier(gold: bool) -> Value {
    if gold { json!({"labels": {"tier": "gold"}, "annotations": {OF_OBJECTS: "7"}}) } else { json!({"labels": {"tier": "silver"}}) }
}

/// The parts of a Deployment that show every change: its generation, its labels, and the names of its ReplicaSets.
type Workload = (Option<i64>, BTreeMap<String, String>, BTreeSet<String>);

async fn workloads(space: &Space<'_>) -> BTreeMap<String, Workload> {
    let listed = Api::<ReplicaSet>::namespaced(space.0.client.clone(), &space.0.name).list(&ListParams::default()).await.unwrap();
    let mut of_each: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for set in listed.items {
        for owner in set.owner_references() {
            of_each.entry(owner.name.clone()).or_default().insert(set.name_any());
        }
    }
    let deployments = space.api(&DEPLOYMENT).list(&ListParams::default()).await.unwrap();
    let workload = |deployment: DynamicObject| {
        let name = deployment.name_any();
        let sets = of_each.remove(&name).unwrap_or_default();
        (name, (deployment.metadata.generation, deployment.labels().clone(), sets))
    };
    deployments.items.into_iter().map(workload).collect()
}

/// The services whose pod template has the label, each with its value.
async fn marked(space: &Space<'_>) -> BTreeMap<String, String> {
    let deployments = space.api(&DEPLOYMENT).list(&ListParams::default()).await.unwrap();
    let value = |deployment: DynamicObject| {
        let value = deployment.data.pointer("/spec/template/metadata/labels")?.get(LABEL)?.as_str()?.to_owned();
        Some((deployment.name_any().trim_end_matches("-kserve").to_owned(), value))
    };
    deployments.items.into_iter().filter_map(value).collect()
}

fn all_marked(services: &[&str], value: &str) -> BTreeMap<String, String> {
    services.iter().map(|service| ((*service).to_owned(), value.to_owned())).collect()
}

/// Waits until the pod templates of exactly these services have the label with this value.
async fn carry(space: &Space<'_>, services: &[&str], value: &str) {
    let expected = all_marked(services, value);
    eventually(&format!("{services:?} carry {value}"), async || (marked(space).await == expected).then_some(())).await;
}

/// The number of reconciles of a host.
fn looks(host: &Host<'_>) -> u64 {
    let Ok((_, metrics)) = host.get("/metrics") else { return 0 };
    let counts = metrics.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// A namespace with a cost centre and LLMInferenceServices, each golden or not, once their Deployments exist.
async fn services<'a>(cluster: &'a PolicyCluster, names: &[(&str, bool)]) -> Space<'a> {
    let space = Space::bare(cluster, "sets").await;
    label(&space, json!({LABEL: "4711"})).await;
    for (name, gold) in names {
        let spec = json!({"model": {"uri": "hf://example/llama"}});
        space.create(&LLM_INFERENCE_SERVICE, name, json!({"metadata": tier(*gold), "spec": spec})).await;
    }
    for (name, _) in names {
        space.becomes(&DEPLOYMENT, &format!("{name}-kserve"), "it is there", |_| true).await;
    }
    space
}

fn approve(cluster: &PolicyCluster, set: &PolicySet) {
    let name = set.name_any();
    let said = cluster.pointsman(&["policy", "approve", &name]).ok();
    assert!(said.contains(&format!("active    {name}")), "{said}");
}

/// A service, its Deployment, and whether the plugin is called for it.
const SERVED: [(&Resource, &str, &str, bool); 10] = [
    (&INFERENCE_SERVICE, "chat-0", "chat-0-engine", false),
    (&INFERENCE_SERVICE, "chat-1", "chat-1-engine", true),
    (&INFERENCE_SERVICE, "chat-2", "chat-2-engine", false),
    (&INFERENCE_SERVICE, "chat-3", "chat-3-engine", false),
    (&INFERENCE_SERVICE, "chat-4", "chat-4-engine", true),
    (&INFERENCE_SERVICE, "chat-5", "chat-5-engine", false),
    (&LLM_INFERENCE_SERVICE, "llama-0", "llama-0-kserve", false),
    (&LLM_INFERENCE_SERVICE, "llama-1", "llama-1-kserve", false),
    (&LLM_INFERENCE_SERVICE, "llama-2", "llama-2-kserve", true),
    (&LLM_INFERENCE_SERVICE, "llama-3", "llama-3-kserve", false),
];

async fn serve(space: &Space<'_>) {
    for (kind, name, _, gold) in SERVED {
        let of_ome = *kind == INFERENCE_SERVICE;
        let spec = if of_ome { with_model(json!({"engine": fixed(1)})) } else { json!({"model": {"uri": "hf://example/llama"}}) };
        space.create(kind, name, json!({"metadata": tier(gold), "spec": spec})).await;
    }
}

/// Waits until all of them are Ready.
async fn all_serve(space: &Space<'_>) {
    for (kind, name, ..) in SERVED {
        if *kind == INFERENCE_SERVICE {
            space.ready(name).await;
        } else {
            space.says_of(kind, name, "Ready", "True", "Ready").await;
        }
    }
}

/// Whether the rollout of pods with the label is complete.
fn rolled_out(deployment: &Value) -> bool {
    let (status, labels) = (&deployment["status"], &deployment["spec"]["template"]["metadata"]["labels"]);
    let one = |field: &str| status[field] == 1;
    labels[LABEL] == "4711"
        && status["observedGeneration"] == deployment["metadata"]["generation"]
        && one("replicas")
        && one("updatedReplicas")
        && one("availableReplicas")
}

/// A set that needs an approval names its subjects: in its status, in kubectl, and on the command line.
fn names_them(cluster: &PolicyCluster, namespace: &str, set: &PolicySet) {
    let name = set.name_any();
    let golden: BTreeSet<String> = SERVED
        .iter()
        .filter(|(.., gold)| *gold)
        .map(|(kind, service, ..)| format!("{} {namespace}/{service}: pods restart", kind.kind))
        .collect();
    let radius = radius(set);
    assert_eq!((radius.subjects, radius.evaluated, counts(set)), (10, 10, [3, 0, 0, 0]), "{radius:?}");
    let examples: BTreeSet<String> = radius.examples.iter().map(|line| line.split(" (").next().unwrap().to_owned()).collect();
    assert_eq!((&examples, radius.examples.len()), (&golden, 3));
    assert!(radius.examples.iter().all(|line| line.contains("(Deployment ") && line.contains(": spec.template.")), "{radius:?}");
    assert!(!radius.examples.iter().any(|line| line.contains("revision")), "{radius:?}");

    let table = cluster.kubectl(&["get", "policysets"]).ok();
    let heading: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, ["NAME", "NUMBER", "PHASE", "CHANGE", "RESTARTS", "OBJECTS", "METADATA", "FAILED", "CHOICES", "AGE"]);
    let row = table.lines().find(|line| line.starts_with(&name)).unwrap();
    assert!(row.contains("Candidate") && row.contains("plugin cost-centre: added"), "{row}");

    let history = |args: &[&str]| cluster.pointsman(&[&["policy", "history"], args].concat()).ok();
    let table = history(&[]);
    let row: Vec<&str> = table.lines().find(|line| line.contains(&name)).unwrap().split_whitespace().collect();
    assert_eq!((row[2], &row[4..8]), ("Candidate", &["3", "0", "0", "0"][..]), "{table}");
    assert!(table.lines().any(|line| line.contains("Active")), "{table}");
    // By its number, which is enough to refer to a set.
    let number = row[0].trim_start_matches('#');
    let told = history(&[number, "--subjects"]);
    assert!(told.contains(&name), "{told}");
    assert!(told.contains("10 of 10 subjects"), "{told}");
    let named: BTreeSet<String> = told.lines().filter(|line| line.ends_with(": pods restart")).map(str::to_owned).collect();
    assert_eq!(named, golden, "{told}");
    let told: Value = serde_json::from_str(&history(&[name.as_str(), "-o", "json"])).unwrap();
    assert_eq!(told["report"]["changed"].as_array().map(Vec::len), Some(3), "{told:#}");
}

#[tokio::test]
async fn a_plugin_that_would_restart_pods_waits_names_them_and_rolls_them_once_approved() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&[])));
    let host = start(&cluster, &[]).await;
    let space = Space::on(&cluster, "waits").await;
    label(&space, json!({LABEL: "4711"})).await;
    serve(&space).await;
    all_serve(&space).await;
    let former = set_that(&cluster, "a set decides", decides).await;
    let before = workloads(&space).await;

    // The PolicyPlugin exists before its bytes, because only it has the match.
    cluster.plugin_of_config_map("cost-centre", json!({"match": gold()})).await;
    assert_eq!(cluster.refused("cost-centre").await.0, "ConfigMapNotFound");
    let plugin = plugin_bytes(LABELS);
    let file = cluster.folder("plugins").join("labels.wasm");
    std::fs::write(&file, &plugin).unwrap();
    let push = ["plugin", "push", file.to_str().unwrap(), "--name", "cost-centre"];
    cluster.pointsman(&[&push[..], &["--wait", "0"]].concat()).ok();
    let set = set_that(&cluster, "the set with the plugin waits", |set| waits(set) && has(set, "cost-centre")).await;
    let name = set.name_any();
    // Push it again, this time with the default wait.
    let said = cluster.pointsman(&push);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.stdout.contains("isn't active yet") && said.stdout.contains(&format!("`pointsman policy approve {name}`")), "{said:?}");
    let listed = cluster.pointsman(&["plugin", "status"]).ok();
    let row = listed.lines().find(|line| line.starts_with("cost-centre ")).unwrap();
    assert!(row.contains("metadata-propagation") && row.contains(" (waiting) ") && row.contains("ApprovalNeeded"), "{row}");

    let needed = |status: &_| condition(status, "Ready").is_some_and(|(is, reason, _)| is == "False" && reason == "ApprovalNeeded");
    let told = cluster.status("cost-centre", "it needs an approval", needed).await;
    let (.., why) = condition(&told, "Ready").unwrap();
    assert!(why.contains(&name) && why.contains("the pods of 3 subjects would restart; the limit is 0"), "{why}");
    assert_eq!(told.candidate.map(|candidate| candidate.digest), Some(digest(&plugin)));
    assert!(message(&set).contains(&format!("`pointsman policy approve {name}`")), "{}", message(&set));
    assert_eq!(status(&set).against, Some(former.spec.digest.clone()));
    names_them(&cluster, &space.0.name, &set);
    assert_eq!(workloads(&space).await, before, "nothing has changed");

    let awaits = async |value: f64| {
        let told = || host.metric("pointsman_policy_set_awaits_approval") == Some(value);
        eventually("the metric says whether a set waits", async || told().then_some(())).await;
    };
    awaits(1.0).await;
    let looked = looks(&host);
    approve(&cluster, &set);
    for (.., deployment, _) in SERVED.iter().filter(|(.., gold)| *gold) {
        space.becomes(&DEPLOYMENT, deployment, "its pods carry the label", rolled_out).await;
    }
    eventually("every service was looked at again", async || (looks(&host) >= looked + SERVED.len() as u64).then_some(())).await;
    let after = workloads(&space).await;
    for (.., deployment, gold) in SERVED {
        let ((generation, labels, sets), now) = (before[deployment].clone(), &after[deployment]);
        if gold {
            assert_eq!(now.0, generation.map(|generation| generation + 1), "{deployment}");
            assert!(now.2.len() == sets.len() + 1 && now.2.is_superset(&sets), "{deployment}: {sets:?} {:?}", now.2);
        } else {
            assert_eq!(*now, (generation, labels, sets), "{deployment}");
        }
    }
    all_serve(&space).await;

    let set = turns(&cluster, &set, PolicySetPhase::Active).await;
    assert_eq!((reason(&set, "Approved"), reason(&set, "Promoted")), ("Approved".to_owned(), "Active".to_owned()));
    assert!(status(&set).promoted_at.is_some());
    turns(&cluster, &former, PolicySetPhase::Previous).await;
    cluster.active("cost-centre", &digest(&plugin)).await;
    for expected in ["Nominated", "ApprovalNeeded", "Promoted"] {
        eventually(&format!("an event {expected}"), async || {
            cluster.events(&name).await.into_iter().find(|(reason, _)| reason == expected)
        })
        .await;
    }
    awaits(0.0).await;
    let (_, metrics) = host.get("/metrics").unwrap();
    for turn in ["waiting", "promoted"] {
        assert!(metrics.contains(&format!("pointsman_policy_set_turns_total{{turn=\"{turn}\"}} 1\n")), "{turn}: {metrics}");
    }
    let said = cluster.pointsman(&["policy", "approve", &name]).ok();
    assert!(said.contains("is already active"), "{said}");
    host.stop();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_waiting_candidate_is_rebuilt_over_an_immediate_change_and_needs_its_approval_again() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = services(&cluster, &[("a", true), ("b", true), ("c", false)]).await;
    let labels = plugin_bytes(LABELS);
    bring(&cluster, "labels", &labels, json!({"match": gold()})).await;
    let first = set_that(&cluster, "the set with the labels waits", |set| waits(set) && has(set, "labels")).await;
    assert_eq!(counts(&first), [2, 0, 0, 0]);

    // A plugin that ranks runtimes is active at once by default.
    let cost = plugin_bytes("pointsman-example-rust-cost");
    bring(&cluster, "cost", &cost, json!({})).await;
    cluster.active("cost", &digest(&cost)).await;
    let active = set_that(&cluster, "the set with the costs decides", |set| decides(set) && has(set, "cost")).await;
    assert!(!has(&active, "labels"), "it was promoted alone: {active:#?}");
    let gone = turns(&cluster, &first, PolicySetPhase::Abandoned).await;
    assert!(message(&gone).contains(&active.name_any()), "{}", message(&gone));
    eventually("it is told", async || cluster.events(&first.name_any()).await.into_iter().find(|(reason, _)| reason == "Abandoned")).await;
    let refused = cluster.pointsman(&["policy", "approve", &first.name_any()]).refused();
    assert!(refused.contains("was abandoned"), "{refused}");

    let second = set_that(&cluster, "another set with the labels waits", |set| waits(set) && has(set, "labels")).await;
    assert!(has(&second, "cost") && second.spec.digest != first.spec.digest);
    assert_eq!((status(&second).against, counts(&second)), (Some(active.spec.digest.clone()), [2, 0, 0, 0]));
    let name = second.name_any();
    let told = |status: &_| condition(status, "Ready").is_some_and(|(_, reason, why)| reason == "ApprovalNeeded" && why.contains(&name));
    cluster.status("labels", "it waits for the approval of the other set", told).await;

    // The approved digest is that of another set.
    annotate(&cluster, &second, &first.spec.digest);
    let active_still = sets_are_seen(&cluster).await;
    assert_eq!(active_still.spec.digest, active.spec.digest);
    turns(&cluster, &second, PolicySetPhase::Candidate).await;
    assert_eq!(marked(&space).await, BTreeMap::new());

    annotate(&cluster, &second, &second.spec.digest);
    turns(&cluster, &second, PolicySetPhase::Active).await;
    carry(&space, &["a", "b"], "4711").await;
    turns(&cluster, &active, PolicySetPhase::Previous).await;
    host.stop();
}

/// Waits until a PolicyPlugin's condition gives this reason why its newest version isn't active, and returns the message.
async fn held(cluster: &PolicyCluster, plugin: &str, reason: &str) -> String {
    let so = |status: &_| condition(status, "Ready").is_some_and(|(is, why, _)| is == "False" && why == reason);
    let (.., why) = condition(&cluster.status(plugin, reason, so).await, "Ready").unwrap();
    why
}

#[tokio::test]
async fn what_is_within_its_bounds_gets_active_by_itself_and_what_is_only_tried_never_does() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = services(&cluster, &[("a", true), ("b", false), ("c", false), ("d", false)]).await;
    let guarded = |bounds: Value| {
        let mut strategy = json!({"type": "Guarded"});
        strategy.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        strategy
    };
    let labels = plugin_bytes(LABELS);
    bring(&cluster, "labels", &labels, json!({"match": gold(), "strategy": guarded(json!({"maxRestarting": 1}))})).await;
    cluster.active("labels", &digest(&labels)).await;
    let set = set_that(&cluster, "the set with the labels decides", |set| decides(set) && has(set, "labels")).await;
    assert_eq!((radius(&set).subjects, counts(&set), reason(&set, "Approved").as_str()), (4, [1, 0, 0, 0], "NotNeeded"));
    carry(&space, &["a"], "4711").await;

    // First one more than the limit, then exactly the limit: the limits don't change the set.
    cluster.plugin_of_config_map("labels", json!({"strategy": guarded(json!({"maxRestarting": "50%"}))})).await;
    let why = held(&cluster, "labels", "ApprovalNeeded").await;
    assert!(why.contains("the pods of 3 subjects would restart; the limit is 2"), "{why}");
    let waiting = set_that(&cluster, "the set for all waits", waits).await;
    assert_eq!((counts(&waiting), marked(&space).await), ([3, 0, 0, 0], all_marked(&["a"], "4711")));
    cluster.plugin_of_config_map("labels", json!({"strategy": guarded(json!({"maxRestarting": "75%"}))})).await;
    let set = turns(&cluster, &waiting, PolicySetPhase::Active).await;
    assert_eq!(reason(&set, "Approved"), "NotNeeded");
    let all = ["a", "b", "c", "d"];
    carry(&space, &all, "4711").await;

    // Subjects that don't restart have their own limit.
    let carries = |bounds: Value| {
        let source = json!({"builtin": {"name": "metadata-propagation"}});
        let config = json!({"llmInferenceService": {"approvedAnnotations": [OF_OBJECTS]}});
        json!({"source": source, "config": config, "strategy": guarded(bounds)})
    };
    cluster.plugin("metadata-propagation", carries(json!({"maxChanged": 0}))).await;
    let why = held(&cluster, "metadata-propagation", "ApprovalNeeded").await;
    assert!(why.contains("1 subject would change in other ways; the limit is 0"), "{why}");
    let waiting = set_that(&cluster, "the set with the annotation waits", waits).await;
    assert_eq!(counts(&waiting), [0, 0, 1, 0]);
    cluster.plugin("metadata-propagation", carries(json!({"maxChanged": "25%"}))).await;
    turns(&cluster, &waiting, PolicySetPhase::Active).await;
    let carried = |now: &Value| now["metadata"]["annotations"][OF_OBJECTS] == "7";
    let now = space.becomes(&DEPLOYMENT, "a-kserve", "it has the annotation", carried).await;
    assert_eq!(now["spec"]["template"]["metadata"]["annotations"][OF_OBJECTS], Value::Null);

    // A set that is only tried never becomes active, even if it is approved.
    let next = next();
    bring(&cluster, "next", &next, json!({"strategy": {"type": "Shadow"}})).await;
    let why = held(&cluster, "next", "OnlyTried").await;
    assert!(why.contains("never activated"), "{why}");
    let tried = |set: &PolicySet| {
        is(set, PolicySetPhase::Candidate) && reason(set, "Approved") == "OnlyTried" && reason(set, "Shadowed") == "Compared"
    };
    let tried = set_that(&cluster, "the set is only tried", tried).await;
    assert_eq!(counts(&tried), [4, 0, 0, 0]);
    let refused = cluster.pointsman(&["policy", "approve", &tried.name_any()]).refused();
    assert!(refused.contains("is only compared"), "{refused}");
    annotate(&cluster, &tried, &tried.spec.digest);
    sets_are_seen(&cluster).await;
    turns(&cluster, &tried, PolicySetPhase::Candidate).await;
    assert_eq!(marked(&space).await, all_marked(&all, "4711"));

    cluster.plugin_of_config_map("next", json!({"strategy": guarded(json!({"maxRestarting": "100%"}))})).await;
    turns(&cluster, &tried, PolicySetPhase::Active).await;
    carry(&space, &all, "centre-4711").await;
    host.stop();
}

/// The resource version of a set's report, which changes if the report is written again.
async fn report_version(cluster: &PolicyCluster, set: &PolicySet) -> Option<String> {
    let maps = Api::<ConfigMap>::namespaced(cluster.client().await, HOST_NAMESPACE);
    maps.get(&reports::config_map_name(&set.spec.digest)).await.unwrap().resource_version()
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_report_survives_a_restart_of_the_host_and_a_candidate_goes_when_its_source_does() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = services(&cluster, &[("a", true), ("b", true), ("c", false)]).await;
    let labels = plugin_bytes(LABELS);
    bring(&cluster, "labels", &labels, json!({"match": gold()})).await;
    let waiting = set_that(&cluster, "the set with the labels waits", waits).await;
    let report = report_version(&cluster, &waiting).await;
    host.stop();

    let host = start(&cluster, &[]).await;
    annotate(&cluster, &waiting, &waiting.spec.digest);
    let set = turns(&cluster, &waiting, PolicySetPhase::Active).await;
    carry(&space, &["a", "b"], "4711").await;
    assert_eq!((set.uid(), radius(&set)), (waiting.uid(), radius(&waiting)));
    assert_eq!(report_version(&cluster, &set).await, report, "it was compared once");
    let (_, metrics) = host.get("/metrics").unwrap();
    assert!(!metrics.contains("turn=\"nominated\""), "it was nominated once: {metrics}");

    // Another set waits while its source is deleted and created again. Then its PolicyPlugin is deleted, and the source stays.
    let before = workloads(&space).await;
    let next = next();
    bring(&cluster, "next", &next, json!({"match": gold()})).await;
    let waiting = set_that(&cluster, "the set with the next plugin waits", |set| waits(set) && has(set, "next")).await;
    assert_eq!(counts(&waiting), [2, 0, 0, 0]);
    cluster.kubectl(&["delete", "configmap", "-n", HOST_NAMESPACE, "next"]).ok();
    let gone = turns(&cluster, &waiting, PolicySetPhase::Abandoned).await;
    assert!(message(&gone).contains("reverted"), "{}", message(&gone));
    assert_eq!(cluster.refused("next").await.0, "ConfigMapNotFound");

    cluster.config_map("next", &next).await;
    let name = waiting.name_any();
    set_that(&cluster, "the same set waits again", |set| waits(set) && set.name_any() == name).await;
    cluster.delete_plugin("next").await;
    turns(&cluster, &waiting, PolicySetPhase::Abandoned).await;
    turns(&cluster, &set, PolicySetPhase::Active).await;
    assert_eq!(workloads(&space).await, before, "nothing has changed");
    host.stop();
}

#[tokio::test]
async fn the_active_set_s_object_comes_back_when_it_is_deleted_and_a_deleted_plugin_is_a_candidate_too() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = services(&cluster, &[("a", true), ("b", true), ("c", false)]).await;
    let first = set_that(&cluster, "a set decides", decides).await;
    let back = sets_are_seen(&cluster).await;
    assert_eq!((back.name_any(), &back.spec), (first.name_any(), &first.spec));
    assert_eq!(status(&back).promoted_at, status(&first).promoted_at, "it has decided all the while");

    // An immediate change is compared afterwards.
    let labels = plugin_bytes(LABELS);
    bring(&cluster, "labels", &labels, json!({"match": gold(), "strategy": {"type": "Immediate"}})).await;
    cluster.active("labels", &digest(&labels)).await;
    carry(&space, &["a", "b"], "4711").await;
    let followed = |set: &PolicySet| decides(set) && has(set, "labels") && reason(set, "Shadowed") == "Compared";
    let active = set_that(&cluster, "the report has followed", followed).await;
    assert_eq!((counts(&active), status(&active).against), ([2, 0, 0, 0], Some(first.spec.digest.clone())));

    // For a deletion, the strategy of the last spec applies.
    cluster.plugin_of_config_map("labels", json!({"match": gold()})).await;
    cluster.active("labels", &digest(&labels)).await;
    cluster.delete_plugin("labels").await;
    let without = |set: &PolicySet| waits(set) && !has(set, "labels");
    let waiting = set_that(&cluster, "the set without the labels waits", without).await;
    let told = status(&waiting).summary.unwrap_or_default();
    assert!(told.contains("plugin labels: removed"), "{told}");
    assert_eq!((counts(&waiting), marked(&space).await), ([2, 0, 0, 0], all_marked(&["a", "b"], "4711")));

    assert_eq!(waiting.name_any(), first.name_any(), "without it all is as it was before it");

    cluster.plugin_of_config_map("labels", json!({"match": gold()})).await;
    // It has been active before.
    let gone = turns(&cluster, &waiting, PolicySetPhase::Previous).await;
    assert!(message(&gone).contains("reverted"), "{}", message(&gone));
    cluster.active("labels", &digest(&labels)).await;
    cluster.delete_plugin("labels").await;
    let waiting = set_that(&cluster, "the set without the labels waits again", without).await;
    approve(&cluster, &waiting);
    carry(&space, &[], "").await;
    turns(&cluster, &active, PolicySetPhase::Previous).await;
    host.stop();
}
