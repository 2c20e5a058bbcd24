//! BenchmarkJobs end to end: batch Jobs with the real Job controller, and pods that succeed, fail and hang.

use crate::services::{Space, condition, fixed, with_model};
use pointsman_core::resource::{BENCHMARK_JOB, JOB, REFERENCE_GRANT};
use pointsman_harness::Behaviour;
use pointsman_tests::TestCluster;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A benchmark of an endpoint outside of the cluster.
#[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
fn benchmark(more: Value) -> Value {
    let mut spec = json!({
        "endpoint": {"endpoint": {"url": "https://llm.example.com", "apiFormat": "openai", "modelName": "acme/llama"}},
        "task": "text-to-text", "maxTimePerIteration": 5, "maxRequestsPerIteration": 100,
        "outputLocation": {"storageUri": "s3://benchmarks/runs"},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "spec": spec })
}

/// Sets the behaviour of a benchmark's pods.
fn behave(space: &Space<'_>, name: &str, behaviour: Behaviour) {
    let rule = format!("{}-{name}", space.0.name);
    space.0.cluster.behave(&rule, &space.0.name, &BTreeMap::from([("benchmark.ome.io/job-name", name)]), behaviour).unwrap();
}

/// Waits until a benchmark is in this state.
async fn reaches(space: &Space<'_>, name: &str, state: &str) -> Value {
    space.becomes(&BENCHMARK_JOB, name, &format!("its state is {state}"), |job| job["status"]["state"] == state).await
}

fn message(job: &Value, type_: &str) -> String {
    condition(job, type_)["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_benchmark_runs_once_and_its_job_goes_by_itself() {
    let space = Space::shared_bare("benchmark").await;
    space.create(&BENCHMARK_JOB, "once", benchmark(json!({}))).await;
    let done = reaches(&space, "once", "Completed").await;
    let status = &done["status"];
    assert!(status["startTime"].is_string() && status["completionTime"].is_string() && status["lastReconcileTime"].is_string(), "{status}");
    assert!(status["resultLocation"].as_str().unwrap().starts_with("s3://benchmarks/runs/once-"), "{status}");
    assert_eq!(condition(&done, "Ready")["status"], "True");
    let job = space.get(&JOB, "once").await;
    assert_eq!(job["metadata"]["labels"]["benchmark.ome.io/job-name"], "once");
    assert_eq!(job["spec"]["template"]["metadata"]["labels"]["pointsman.dev/subject-kind"], "BenchmarkJob");
    assert_eq!(job["spec"]["backoffLimit"], 0);

    // The Job is deleted once its end is recorded, and isn't created again.
    space.patch(&BENCHMARK_JOB, "once", json!({"spec": {"ttlSecondsAfterFinished": 0}})).await;
    space.goes(&JOB, "once").await;
    let generation = space.get(&BENCHMARK_JOB, "once").await["metadata"]["generation"].clone();
    let seen = space
        .becomes(&BENCHMARK_JOB, "once", "it was planned without its Job", |job| {
            job["status"]["observedGeneration"] == generation && message(job, "Applied") == "The objects of the benchmark are as planned."
        })
        .await;
    assert_eq!(seen["status"]["completionTime"], status["completionTime"]);
    assert!(space.find(&JOB, "once").await.is_none(), "a run that has ended isn't repeated");

    // A changed spec starts a new run.
    space.patch(&BENCHMARK_JOB, "once", json!({"spec": {"maxRequestsPerIteration": 200, "ttlSecondsAfterFinished": null}})).await;
    let again = space
        .becomes(&BENCHMARK_JOB, "once", "the second run has completed", |job| {
            job["status"]["state"] == "Completed" && job["status"]["specHash"] != status["specHash"]
        })
        .await;
    assert_ne!(again["status"]["resultLocation"], status["resultLocation"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_benchmark_that_fails_says_why() {
    let space = Space::shared_bare("benchmark-fails").await;
    behave(&space, "fails", Behaviour::Fail);
    behave(&space, "late", Behaviour::Pending);
    space.create(&BENCHMARK_JOB, "fails", benchmark(json!({}))).await;
    space.create(&BENCHMARK_JOB, "late", benchmark(json!({"activeDeadlineSeconds": 1}))).await;
    let failed = reaches(&space, "fails", "Failed").await;
    let said = failed["status"]["failureMessage"].as_str().unwrap();
    assert!(said.starts_with("The Job fails has failed: ") && said.contains("backoff limit"), "{said}");
    space
        .becomes(&BENCHMARK_JOB, "fails", "it has the container's exit code", |job| {
            job["status"]["failureMessage"]
                .as_str()
                .is_some_and(|said| said.contains("The container genai-bench has the state Error, it last ended with exit code 1"))
        })
        .await;
    space.says_of(&BENCHMARK_JOB, "fails", "Ready", "False", "BackoffLimitExceeded").await;

    let late = reaches(&space, "late", "Failed").await;
    assert_eq!(condition(&late, "Completed")["reason"], "DeadlineExceeded");
    assert!(late["status"]["failureMessage"].as_str().unwrap().contains("active longer than specified deadline"), "{late}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_runs_keeps_its_template_until_it_is_deleted() {
    let space = Space::shared_bare("benchmark-changed").await;
    behave(&space, "runs", Behaviour::Run);
    space.create(&BENCHMARK_JOB, "runs", benchmark(json!({}))).await;
    reaches(&space, "runs", "Running").await;
    let before = space.get(&JOB, "runs").await;
    space.patch(&BENCHMARK_JOB, "runs", json!({"spec": {"maxRequestsPerIteration": 200, "backoffLimit": 4}})).await;
    let said = space.says_of(&BENCHMARK_JOB, "runs", "UpToDate", "False", "SpecChanged").await;
    assert!(said.contains(&format!("`kubectl delete jobs --cascade=foreground -n {} runs`", space.0.name)), "{said}");
    let after = space.becomes(&JOB, "runs", "what may change has changed", |job| job["spec"]["backoffLimit"] == 4).await;
    assert_eq!((&after["metadata"]["uid"], &after["spec"]["template"]), (&before["metadata"]["uid"], &before["spec"]["template"]));
    space.says_of(&BENCHMARK_JOB, "runs", "Applied", "True", "Applied").await;

    space.delete(&JOB, "runs").await;
    let new = space.becomes(&JOB, "runs", "it is another one", |job| job["metadata"]["uid"] != before["metadata"]["uid"]).await;
    let args = new["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let place = args.iter().position(|word| word == "--max-requests-per-run").unwrap();
    assert_eq!(args[place + 1], "200");
    space.says_of(&BENCHMARK_JOB, "runs", "UpToDate", "True", "UpToDate").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_measured_once_it_is_ready_and_its_namespace_allows_it() {
    let space = Space::shared("benchmark-service").await;
    let other = Space::bare(TestCluster::shared(), "benchmark-abroad").await;
    let own = json!({"inferenceService": {"name": "chat", "modelName": "model"}});
    let abroad = json!({"inferenceService": {"name": "chat", "namespace": space.0.name, "modelName": "model"}});
    space.create(&BENCHMARK_JOB, "own", benchmark(json!({"endpoint": own}))).await;
    let tokenizer = json!({"endpoint": abroad, "tokenizer": "acme/llama"});
    other.create(&BENCHMARK_JOB, "abroad", benchmark(tokenizer)).await;
    space.says_of(&BENCHMARK_JOB, "own", "EndpointReady", "False", "ServiceNotFound").await;
    let said = other.says_of(&BENCHMARK_JOB, "abroad", "EndpointReady", "False", "ReferenceNotGranted").await;
    assert!(said.contains(&format!("kind: BenchmarkJob, namespace: {}", other.0.name)), "{said}");

    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    let done = reaches(&space, "own", "Completed").await;
    assert_eq!(
        message(&done, "EndpointReady"),
        "The endpoint was resolved, and a service of the cluster was Ready, when the Job was created."
    );
    let pod = &space.get(&JOB, "own").await["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({format!("models.ome.io/{}.basemodel.model", space.0.name): "Ready"}));
    assert!(other.find(&JOB, "abroad").await.is_none());

    let from = json!([{"group": "ome.io", "kind": "BenchmarkJob", "namespace": other.0.name}]);
    let to = json!([{"group": "ome.io", "kind": "InferenceService"}]);
    space.create(&REFERENCE_GRANT, "benchmarks", json!({"spec": {"from": from, "to": to}})).await;
    reaches(&other, "abroad", "Completed").await;
}
