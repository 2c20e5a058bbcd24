//! Healthy services stay unchanged: after another check, a resync, a restart, and when another host becomes the leader.

use super::{AGENT, DEPLOYMENT, INFERENCE_SERVICE, SERVING_RUNTIME, Space, fixed, own_cluster, simple_runtime, with_model, writes};
use kube::{Api, api::ListParams};
use pointsman_crds::policy::{
    rule::{Operation, RuleStage, ValidationRule},
    selection::KindReference,
};
use pointsman_tests::{Host, TestCluster, eventually};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};

/// The number of services of each kind, and the number of objects of one.
fn kinds() -> [(&'static str, Value, usize, usize); 7] {
    let keda = json!({"enableKeda": true, "promServerAddress": "http://prometheus:9090", "customPromQuery": "sum(queue)"});
    let router = json!({"runner": {"name": "router", "image": "example.com/router:1"}, "minReplicas": 1, "maxReplicas": 1});
    [
        ("scaled", json!({}), 8, 5),
        ("fixed", json!({"engine": fixed(2)}), 5, 4),
        ("queue", json!({"kedaConfig": keda}), 2, 5),
        ("routed", json!({"engine": fixed(1), "router": router}), 3, 10),
        ("group", json!({"runtime": {"name": "grouped"}, "engine": fixed(1)}), 2, 4),
        ("knative", json!({"engine": {"minReplicas": 0, "canaryTrafficPercent": 20}}), 2, 2),
        ("ray", json!({"runtime": {"name": "grouped"}, "engine": {"annotations": {"ome.io/deploymentMode": "MultiNodeRayVLLM"}}}), 2, 4),
    ]
}

fn services() -> Vec<(String, Value, usize)> {
    let all = kinds().into_iter();
    all.flat_map(|(kind, spec, number, objects)| (0..number).map(move |at| (format!("{kind}-{at}"), spec.clone(), objects))).collect()
}

/// The maximum number of status writes until a service is ready: one for its progress, and for each workload one that it is available and
/// one that it is up to date. On an idle machine there are 2, because reports are gathered for a moment, but this can't be relied on.
fn statuses(service: &str) -> usize {
    if service.starts_with("routed") { 5 } else { 3 }
}

/// The requests of our hosts without those for leases, and the number of the latter.
fn requests(cluster: &TestCluster) -> (Vec<Arc<Value>>, usize) {
    let of_hosts =
        cluster.requests().into_iter().filter(|request| request["userAgent"].as_str().is_some_and(|agent| agent.starts_with(AGENT)));
    let (leases, others): (Vec<_>, Vec<_>) = of_hosts.partition(|request| request["objectRef"]["resource"] == "leases");
    (others, leases.len())
}

/// Waits for this many renewals of the lease, which are the hosts' clock.
async fn beats(cluster: &TestCluster, number: usize) {
    let before = requests(cluster).1;
    eventually("the lease is renewed", async || (requests(cluster).1 >= before + number).then_some(())).await;
}

async fn has_looked(host: &Host<'_>, times: u64) {
    eventually("the host has looked", async || (host.reconciles() >= times).then_some(())).await;
}

async fn all_pods(space: &Space<'_>) -> BTreeSet<String> {
    let mut uids = BTreeSet::new();
    for (service, ..) in services() {
        uids.extend(space.pod_uids(&service).await);
    }
    uids
}

/// Creates the services, and counts the writes.
async fn make(space: &Space<'_>) {
    let runner = json!({"runner": {"name": "ome-container", "image": "example.com/engine:1", "command": ["serve"]}});
    let mut grouped = simple_runtime();
    grouped["engineConfig"] = json!({"leader": runner, "worker": runner});
    // For services that name it.
    grouped["supportedModelFormats"][0]["autoSelect"] = false.into();
    space.create(&SERVING_RUNTIME, "grouped", json!({"spec": grouped})).await;
    let _play = space.play();
    for (service, spec, _) in services() {
        space.service(&service, with_model(spec)).await;
    }
    for (service, ..) in services() {
        space.ready(&service).await;
    }
    beats(space.0.cluster, 2).await;
    let (writes, of_runtimes) = space.all_writes();
    // The users of a runtime are gathered, so that several services take one write.
    assert!(of_runtimes.len() <= services().len(), "{of_runtimes:#?}");
    for (service, _, objects) in services() {
        let own = |write: &&String| write.split('/').nth(1).is_some_and(|name| name == service || name.starts_with(&format!("{service}-")));
        let (told, made): (Vec<_>, Vec<_>) = writes.iter().filter(own).partition(|write| write.ends_with("/status"));
        assert_eq!(made.len(), objects + 1, "{service}: each object and the service's own labels are written once: {made:#?}");
        assert!(told.len() <= statuses(&service), "{service}: {told:#?}");
    }
    // This also covers writes without a name, such as those of events.
    let all: usize = services().iter().map(|(service, _, objects)| objects + 1 + statuses(service)).sum();
    println!("{} writes for {} services", writes.len(), services().len());
    assert!(writes.len() <= all, "{writes:#?}");
}

/// The host sends no requests except watches and renewals of the lease.
async fn rests(cluster: &TestCluster) {
    let before = requests(cluster).0.len();
    beats(cluster, 3).await;
    let later = requests(cluster).0.split_off(before);
    let asked: Vec<_> = later.iter().filter(|request| request["verb"] != "watch").collect();
    assert!(asked.is_empty(), "{asked:#?}");
}

/// Whether the controller evaluates a rule for each service: others are about other kinds, or only about changes.
fn is_asked(rule: &ValidationRule) -> bool {
    let named = |kind: &KindReference| ["*", "InferenceService"].contains(&kind.kind.as_str());
    let of_services = rule
        .spec
        .selection
        .as_ref()
        .is_none_or(|selection| selection.operations.contains(&Operation::Create) && selection.objects.kinds.iter().any(named));
    rule.spec.stage == RuleStage::Output || of_services
}

/// Waits until the rules report on all services, which follows the last service's check with a delay.
async fn are_counted(cluster: &TestCluster) {
    let api = Api::<ValidationRule>::all(cluster.client().await);
    let all = i64::try_from(services().len()).unwrap();
    eventually("the rules tell how all services stand to them", async || {
        let rules = api.list(&ListParams::default()).await.unwrap().items;
        let counted = |rule: &ValidationRule| {
            let counts = rule.status.as_ref().and_then(|status| status.counts.as_ref());
            counts.is_some_and(|counts| !rule.spec.enabled || !is_asked(rule) || counts.matched == all)
        };
        (!rules.is_empty() && rules.iter().all(counted)).then_some(())
    })
    .await;
}

/// The writes since then, without leases.
fn written(cluster: &TestCluster, since: usize) -> Vec<String> {
    writes(cluster, |request| request["objectRef"]["resource"] != "leases").split_off(since)
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn services_that_work_are_left_alone_through_touches_resyncs_restarts_and_changes_of_the_leader() {
    let cluster = own_cluster(None);
    let host = Host::start(&cluster, &[]).await;
    let space = Space::on(&cluster, "quiet").await;
    make(&space).await;
    are_counted(&cluster).await;
    rests(&cluster).await;
    let pods = all_pods(&space).await;
    let so_far = written(&cluster, 0).len();

    // An edit without effect, and an apply of the same spec.
    let before = host.reconciles();
    space.kubectl(&["annotate", "inferenceservices", "--all", "pointsman.dev/note=nothing"]).ok();
    has_looked(&host, before + services().len() as u64).await;
    let (name, spec, _) = services().remove(0);
    let again = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name, "namespace": space.0.name},
        "spec": with_model(spec),
    });
    cluster.apply(&again).ok();
    rests(&cluster).await;
    assert_eq!(written(&cluster, so_far), [""; 0], "after a touch");

    // The restarted API server has lost its watch history, so everything is listed again.
    let before = requests(&cluster).0.len();
    cluster.stop_part("apiserver").unwrap();
    cluster.start_part("apiserver").unwrap();
    eventually("what there is is listed again", async || {
        let later = requests(&cluster).0.split_off(before);
        let listed = |plural: &str| later.iter().any(|request| request["verb"] == "list" && request["objectRef"]["resource"] == plural);
        ["inferenceservices", "deployments", "services", "pods", "servingruntimes"].iter().all(|plural| listed(plural)).then_some(())
    })
    .await;
    beats(&cluster, 3).await;
    assert_eq!(written(&cluster, so_far), [""; 0], "after a resync");

    // A new process without decisions.
    host.stop();
    let before = requests(&cluster).0.len();
    let leader = Host::start(&cluster, &[]).await;
    has_looked(&leader, services().len() as u64).await;
    eventually("it has read our CRDs, and asked once more what the cluster serves", async || {
        let later = requests(&cluster).0.split_off(before);
        // The last one of ours. The host also requests the CRDs of neighbours that aren't installed.
        let is_last = |request: &Value| request["objectRef"]["name"].as_str().is_some_and(|name| name.starts_with("validationrules."));
        let last = later.iter().rposition(|request| {
            request["verb"] == "get" && request["objectRef"]["resource"] == "customresourcedefinitions" && is_last(request)
        })?;
        later[last..].iter().any(|request| request["requestURI"] == "/apis").then_some(())
    })
    .await;
    rests(&cluster).await;
    assert_eq!(written(&cluster, so_far), [""; 0], "after a restart");

    // A standby host, which has to wait until the lease expires.
    let standby = Host::start(&cluster, &[]).await;
    standby.ready().await;
    cluster.kill_part(&leader.part).unwrap();
    space.change("fixed-0", json!({"engine": fixed(3)})).await;
    space.becomes(&DEPLOYMENT, "fixed-0-engine", "it has 3", |now| now["spec"]["replicas"] == 3).await;
    has_looked(&standby, services().len() as u64).await;
    space.ready("fixed-0").await;
    beats(&cluster, 2).await;
    let wrote = written(&cluster, so_far);
    let needless: Vec<_> = wrote.iter().filter(|write| !write.contains("/fixed-0")).collect();
    assert!(needless.is_empty(), "{needless:#?}");
    assert!(all_pods(&space).await.is_superset(&pods), "no pod was restarted");
    assert!(space.find(&INFERENCE_SERVICE, "fixed-0").await.is_some());
    standby.stop();
}
