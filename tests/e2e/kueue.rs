//! Jobs under the real Kueue: its webhook and its controller, built from its module. Only `--full` builds them.

use crate::services::{Space, condition, own_cluster};
use pointsman_core::resource::{BENCHMARK_JOB, JOB, POD, TRAINING_JOB};
use pointsman_harness::Behaviour;
use pointsman_tests::{Host, TestCluster, is_full};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A queue for two CPUs and enough memory, in which urgent jobs preempt the others.
fn two_cpus(cluster: &TestCluster, namespace: &str) {
    let flavors = json!([{"name": "any", "resources": [{"name": "cpu", "nominalQuota": 2}, {"name": "memory", "nominalQuota": "1Ti"}]}]);
    for object in [
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 1000}),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cpus"},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
                "preemption": {"withinClusterQueue": "LowerPriority"},
            },
        }),
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "cpus", "namespace": namespace},
            "spec": {"clusterQueue": "cpus"},
        }),
    ] {
        cluster.apply(&object).ok();
    }
}

/// A job with this many workers of one CPU each.
fn run(labels: &Value, workers: u32) -> Value {
    let container = json!({
        "name": "trainer", "image": "registry.example.com/trainer:1.0", "command": ["torchrun", "train.py"],
        "resources": {"requests": {"cpu": 1}},
    });
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "framework": "pytorch",
            "worker": {"replicas": workers, "template": {"spec": {"containers": [container]}}},
        },
    })
}

/// Keeps the pods of a training job running.
fn run_on(space: &Space<'_>, name: &str) {
    let selector = BTreeMap::from([("training.ome.io/job-name", name)]);
    space.0.cluster.behave(name, &space.0.name, &selector, Behaviour::Run).unwrap();
}

async fn reaches(space: &Space<'_>, name: &str, type_: &str) -> Value {
    space.becomes(&TRAINING_JOB, name, &format!("it has {type_}"), |job| condition(job, type_)["status"] == "True").await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_wait_for_their_quota_are_preempted_and_go_on() {
    if !is_full() {
        return;
    }
    let cluster = own_cluster(Some(&["kueue"]));
    cluster.pointsman(&["crds", "install", "--all"]).ok();
    let host = Host::start(&cluster, &[]).await;
    let space = Space::bare(&cluster, "kueue").await;
    two_cpus(&cluster, &space.0.name);
    let queued = json!({QUEUE: "cpus"});
    for name in ["first", "second", "urgent"] {
        run_on(&space, name);
    }

    // The first job takes the quota, and the second one is queued.
    space.create(&TRAINING_JOB, "first", run(&queued, 2)).await;
    reaches(&space, "first", "Running").await;
    space.create(&TRAINING_JOB, "second", run(&queued, 2)).await;
    let said = space.says_of(&TRAINING_JOB, "second", "Suspended", "True", "Queued").await;
    assert!(said.contains("the queue cpus"), "{said}");
    assert!(space.pods_with("training.ome.io/job-name=second").await.is_empty());

    // An urgent job preempts the first one: all of its pods are deleted, and that isn't a failure.
    space.create(&TRAINING_JOB, "urgent", run(&json!({QUEUE: "cpus", "kueue.x-k8s.io/priority-class": "urgent"}), 1)).await;
    reaches(&space, "urgent", "Running").await;
    space.says_of(&TRAINING_JOB, "first", "Suspended", "True", "Queued").await;
    let preempted = space.get(&TRAINING_JOB, "first").await;
    assert!(preempted["status"]["restarts"].as_i64().unwrap_or_default() == 0, "{:#}", preempted["status"]);
    for pod in space.pods_with("training.ome.io/job-name=first").await.keys() {
        space.goes(&POD, pod).await;
    }

    // The preempted job continues as the same run once there is enough quota.
    let worker = space.get(&JOB, "first-worker").await["metadata"]["uid"].clone();
    for pod in space.pods_with("training.ome.io/job-name=urgent").await.keys() {
        space.patch_status(&POD, pod, json!({"phase": "Succeeded"})).await;
    }
    reaches(&space, "urgent", "Succeeded").await;
    let running = reaches(&space, "first", "Running").await;
    assert_eq!(space.get(&JOB, "first-worker").await["metadata"]["uid"], worker);
    assert!(running["status"]["startTime"].is_string(), "{:#}", running["status"]);
    // If the first job is suspended manually, the second one gets its quota. If it is resumed, it is queued again.
    space.patch(&TRAINING_JOB, "first", json!({"spec": {"suspend": true}})).await;
    reaches(&space, "second", "Running").await;
    space.patch(&TRAINING_JOB, "first", json!({"spec": {"suspend": false}})).await;
    space.says_of(&TRAINING_JOB, "first", "Suspended", "True", "Queued").await;
    space.delete(&TRAINING_JOB, "second").await;
    reaches(&space, "first", "Running").await;

    // A benchmark is queued in the same way.
    let benchmark = json!({
        "metadata": {"labels": queued},
        "spec": {
            "endpoint": {"endpoint": {"url": "https://llm.example.com", "apiFormat": "openai", "modelName": "acme/llama"}},
            "task": "text-to-text", "maxTimePerIteration": 5, "maxRequestsPerIteration": 100,
            "outputLocation": {"storageUri": "s3://benchmarks/runs"},
            "podOverride": {"resources": {"requests": {"cpu": 1}}},
        },
    });
    space.create(&BENCHMARK_JOB, "load", benchmark).await;
    let job = space.becomes(&JOB, "load", "it exists", |_| true).await;
    assert_eq!((&job["metadata"]["labels"][QUEUE], &job["spec"]["suspend"]), (&json!("cpus"), &json!(true)));
    space.says_of(&BENCHMARK_JOB, "load", "Completed", "Unknown", "Suspended").await;
    space.delete(&TRAINING_JOB, "first").await;
    space.becomes(&BENCHMARK_JOB, "load", "it has run", |job| job["status"]["state"] == "Completed").await;
    host.stop();
}
