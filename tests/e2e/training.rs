//! TrainingJobs end to end: batch Jobs with the real Job controller, and pods that succeed, fail and keep running.

use crate::services::{Space, condition};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject},
};
use pointsman_core::resource::{FINE_TUNED_WEIGHT, JOB, NETWORK_POLICY, POD, SERVICE, TRAINING_JOB};
use pointsman_harness::Behaviour;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A pod template.
fn template(command: &[&str]) -> Value {
    json!({"spec": {"containers": [{"name": "trainer", "image": "registry.example.com/trainer:1.0", "command": command}]}})
}

/// A job with two workers.
#[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
fn torchrun(more: Value) -> Value {
    let mut spec = json!({"framework": "pytorch", "worker": {"replicas": 2, "template": template(&["torchrun", "train.py"])}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "spec": spec })
}

/// Sets the behaviour of a job's pods.
fn behave(space: &Space<'_>, name: &str, replica: &str, behaviour: Behaviour) {
    let rule = format!("{}-{name}-{replica}", space.0.name);
    let selector = BTreeMap::from([("training.ome.io/job-name", name), ("training.ome.io/replica-type", replica)]);
    space.0.cluster.behave(&rule, &space.0.name, &selector, behaviour).unwrap();
}

/// Waits until a condition of a job is True.
async fn reaches(space: &Space<'_>, name: &str, type_: &str) -> Value {
    space.becomes(&TRAINING_JOB, name, &format!("it has {type_}"), |job| condition(job, type_)["status"] == "True").await
}

async fn job_uid(space: &Space<'_>, name: &str) -> Value {
    space.get(&JOB, name).await["metadata"]["uid"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_succeeds_leaves_its_weight_and_goes_when_its_time_is_over() {
    let space = Space::shared_bare("training").await;
    let weight = format!("{}.lora", space.0.name);
    let asked = json!({"name": weight, "baseModelRef": {"name": "llama"}, "modelType": "LoRA", "storage": {"storageUri": "s3://out/lora"}});
    let labels = json!({"infrastructure.ome.io/cluster": "gpu-1"});
    let job = torchrun(json!({"fineTunedWeight": asked}));
    space.create(&TRAINING_JOB, "tune", json!({"metadata": {"labels": labels}, "spec": job["spec"]})).await;
    let done = reaches(&space, "tune", "Succeeded").await;
    assert_eq!(condition(&done, "Succeeded")["reason"], "WorkersSucceeded");
    let status = &done["status"];
    assert_eq!(status["replicaStatuses"]["worker"]["succeeded"], 2, "{status}");
    assert!(status["startTime"].is_string() && status["completionTime"].is_string(), "{status}");
    let pods = space.pods_with("training.ome.io/job-name=tune,ome.io/component=trainer,infrastructure.ome.io/cluster=gpu-1").await;
    assert_eq!(pods.len(), 2);
    for pod in pods.values() {
        let index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"].as_str().unwrap();
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!(format!("tune-worker-{index}")), &json!("tune")));
    }
    let service = &space.get(&SERVICE, "tune").await["spec"];
    assert_eq!((&service["clusterIP"], &service["publishNotReadyAddresses"]), (&json!("None"), &json!(true)));

    let created = reaches(&space, "tune", "FineTunedWeightCreated").await;
    let weights = Api::<DynamicObject>::all_with(space.0.client.clone(), &FINE_TUNED_WEIGHT.api_resource());
    let made = serde_json::to_value(weights.get(&weight).await.unwrap()).unwrap();
    assert_eq!(made["spec"]["trainingJobRef"], json!({"name": "tune", "namespace": space.0.name}));
    assert_eq!(made["metadata"]["labels"]["training.ome.io/job-uid"], created["metadata"]["uid"]);
    space.patch(&TRAINING_JOB, "tune", json!({"spec": {"ttlSecondsAfterFinished": 0}})).await;
    space.goes(&TRAINING_JOB, "tune").await;
    space.goes(&JOB, "tune-worker").await;
    assert!(weights.get_opt(&weight).await.unwrap().is_some(), "the weight stays");
    weights.delete(&weight, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_starts_once_its_workers_are_ready_and_they_end_with_it() {
    let space = Space::shared_bare("training-mpi").await;
    behave(&space, "ring", "worker", Behaviour::Pending);
    let mut spec = json!({"framework": "mpi", "launcher": {"template": template(&["mpirun", "ring"])}, "worker": {"replicas": 2}});
    spec["worker"]["template"] = json!({"spec": {"containers": [{"name": "trainer", "image": "registry.example.com/trainer:1.0"}]}});
    let isolated = json!({"annotations": {"security.ome.io/network-policy": "allow-inference-only"}});
    space.create(&TRAINING_JOB, "ring", json!({"metadata": isolated, "spec": spec})).await;
    space.says_of(&TRAINING_JOB, "ring", "Created", "True", "JobsCreated").await;
    let files = &space.get(&JOB, "ring-worker").await["spec"]["template"]["metadata"]["annotations"];
    assert!(files["launch.pointsman.dev/agent.py"].is_string() && files["launch.pointsman.dev/hostfile"].is_null(), "{files:#}");
    assert!(space.find(&JOB, "ring-launcher").await.is_none(), "the workers aren't Ready");
    // Its new pods keep running.
    behave(&space, "ring", "worker", Behaviour::Run);
    space.delete(&JOB, "ring-worker").await;
    let done = reaches(&space, "ring", "Succeeded").await;
    assert_eq!(condition(&done, "Succeeded")["reason"], "LauncherSucceeded");
    space.goes(&JOB, "ring-worker").await;
    let launcher = space.find(&JOB, "ring-launcher").await.expect("its logs can be read");
    let hosts = &launcher["spec"]["template"]["metadata"]["annotations"]["launch.pointsman.dev/hostfile"];
    assert_eq!(*hosts, "ring-worker-0.ring slots=1\nring-worker-1.ring slots=1\n");
    // Objects that the spec no longer needs are deleted, although nothing runs again.
    let change = json!({"metadata": {"annotations": null}, "spec": {"framework": "pytorch", "launcher": null}});
    space.patch(&TRAINING_JOB, "ring", change).await;
    space.goes(&NETWORK_POLICY, "ring").await;
    let said = space.says_of(&TRAINING_JOB, "ring", "UpToDate", "False", "SpecChanged").await;
    assert!(said.contains("create another TrainingJob"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_starts_again_as_a_whole_and_no_more_often_than_it_may() {
    let space = Space::shared_bare("training-fails").await;
    behave(&space, "fails", "worker", Behaviour::Fail);
    space.create(&TRAINING_JOB, "fails", torchrun(json!({"backoffLimit": 1}))).await;
    let failed = reaches(&space, "fails", "Failed").await;
    assert_eq!((&failed["status"]["restarts"], condition(&failed, "Ready")["status"].as_str()), (&json!(1), Some("False")));
    let job = space.get(&JOB, "fails-worker").await;
    assert_eq!(job["metadata"]["annotations"]["pointsman.dev/attempt"], "1");
    space.create(&TRAINING_JOB, "never", torchrun(json!({"restartPolicy": "Never"}))).await;
    reaches(&space, "never", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_run_has_no_pods_and_begins_from_the_current_spec() {
    let space = Space::shared_bare("training-suspend").await;
    behave(&space, "tune", "worker", Behaviour::Run);
    space.create(&TRAINING_JOB, "tune", torchrun(json!({}))).await;
    let running = reaches(&space, "tune", "Running").await;
    let before = job_uid(&space, "tune-worker").await;
    assert!(running["status"]["startTime"].is_string());
    space.patch(&TRAINING_JOB, "tune", json!({"spec": {"worker": {"replicas": 3}}})).await;
    let said = space.says_of(&TRAINING_JOB, "tune", "UpToDate", "False", "SpecChanged").await;
    assert!(said.contains("spec.suspend"), "{said}");
    assert_eq!(job_uid(&space, "tune-worker").await, before, "it goes on as it was created");

    // An invalid spec can still be suspended.
    let refused = |hostname: Value| json!({"spec": {"worker": {"template": {"spec": {"hostname": hostname}}}}});
    space.patch(&TRAINING_JOB, "tune", refused(json!("a"))).await;
    space.says_of(&TRAINING_JOB, "tune", "Accepted", "False", "NotSupported").await;
    space.patch(&TRAINING_JOB, "tune", json!({"spec": {"suspend": true}})).await;
    let suspended = reaches(&space, "tune", "Suspended").await;
    assert!(suspended["status"].get("startTime").is_none(), "{suspended}");
    space.goes(&JOB, "tune-worker").await;
    space.patch(&TRAINING_JOB, "tune", refused(Value::Null)).await;
    space.patch(&TRAINING_JOB, "tune", json!({"spec": {"suspend": false}})).await;
    let resumed = reaches(&space, "tune", "Running").await;
    assert!(resumed["status"]["startTime"].is_string());
    assert_eq!(space.get(&JOB, "tune-worker").await["spec"]["completions"], 3);
    space.says_of(&TRAINING_JOB, "tune", "UpToDate", "True", "UpToDate").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn an_elastic_run_replaces_a_lost_worker_and_takes_more() {
    let space = Space::shared_bare("training-elastic").await;
    behave(&space, "tune", "worker", Behaviour::Run);
    space.create(&TRAINING_JOB, "tune", torchrun(json!({"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}))).await;
    reaches(&space, "tune", "Running").await;
    let before = job_uid(&space, "tune-worker").await;
    let pods = space.pods_with("training.ome.io/job-name=tune").await;
    let lost = pods.keys().next().unwrap();
    space.delete(&POD, lost).await;
    space.patch(&TRAINING_JOB, "tune", json!({"spec": {"worker": {"replicas": 3}}})).await;
    let three = |job: &Value| job["status"]["ready"] == 3 && job["spec"]["completions"] == 3;
    let job = space.becomes(&JOB, "tune-worker", "three workers are Ready", three).await;
    assert_eq!(job["metadata"]["uid"], before, "it is the same run");
    let seen = space.get(&TRAINING_JOB, "tune").await;
    assert!(seen["status"].get("restarts").is_none(), "{seen}");
}

/// The test suspends and starts the Job, as Kueue does.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_suspends_the_job_is_not_fought() {
    let space = Space::shared_bare("training-queue").await;
    behave(&space, "tune", "worker", Behaviour::Run);
    let labels = json!({"kueue.x-k8s.io/queue-name": "gpus"});
    let job = torchrun(json!({}));
    space.create(&TRAINING_JOB, "tune", json!({"metadata": {"labels": labels}, "spec": job["spec"]})).await;
    let job = space.becomes(&JOB, "tune-worker", "it exists", |_| true).await;
    assert_eq!(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "gpus");
    space.patch(&JOB, "tune-worker", json!({"spec": {"suspend": true}})).await;
    let said = space.says_of(&TRAINING_JOB, "tune", "Suspended", "True", "Queued").await;
    assert!(said.contains("queued in gpus"), "{said}");
    space.patch(&JOB, "tune-worker", json!({"spec": {"suspend": false}})).await;
    let running = reaches(&space, "tune", "Running").await;
    assert!(running["status"]["startTime"].is_string());
    space.says_of(&TRAINING_JOB, "tune", "Applied", "True", "Applied").await;
    assert_eq!(space.get(&JOB, "tune-worker").await["spec"]["suspend"], false);
    let pods = space.pods_with("training.ome.io/job-name=tune").await;
    assert!(pods.values().all(|pod| pod["metadata"]["labels"].get("kueue.x-k8s.io/queue-name").is_none()), "no pod queues by itself");
}
