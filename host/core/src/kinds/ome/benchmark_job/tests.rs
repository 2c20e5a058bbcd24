use super::{
    arguments::{Arguments, literal},
    storage::{self, Storage},
    *,
};
use crate::{
    decide::{Policies, Standing, Unheard, set::ActiveSet},
    resource::{CLUSTER_BASE_MODEL, INFERENCE_MODEL, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, POD, REFERENCE_GRANT},
    status::{Applied, settle},
    subject_kind::{ALL, BENCHMARK_NAME},
    world::{
        World,
        child::{SPEC_HASH, SUBJECT_KIND},
    },
};
use k8s_openapi::jiff::Timestamp;
use pointsman_crds::ome::storage::StorageSpec;
use serde_json::json;
use std::sync::Arc;

const UID: &str = "b-uid";

fn key(resource: &'static Resource, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { resource, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn benchmark(spec: &Value) -> Value {
    let mut whole = json!({
        "endpoint": {"inferenceService": {"name": "llama"}}, "task": "text-to-text", "maxTimePerIteration": 15, "maxRequestsPerIteration": 100,
        "outputLocation": {"storageUri": "pvc://results/runs"},
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": "b", "namespace": "perf", "uid": UID, "generation": 1}, "spec": whole})
}

/// A service that is Ready, with a model on nodes.
fn service() -> Value {
    json!({
        "metadata": {"name": "llama", "namespace": "perf", "uid": "s", "generation": 2},
        "spec": {"model": {"name": "llama"}, "engine": {"runner": {
            "name": "ome-container", "image": "vllm/vllm-openai:v0.9.1", "args": ["--served-model-name=llama-8b"],
            "resources": {"limits": {"nvidia.com/gpu": "4"}},
        }}},
        "status": {
            "address": {"url": "http://llama.perf.svc.cluster.local"}, "url": "http://llama.perf.example.com",
            "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}],
        },
    })
}

struct Case {
    world: World,
    status: Value,
}

impl Case {
    fn new(spec: &Value) -> Self {
        let mut world = World::default();
        world.set_available(ALL.iter().copied().collect());
        world.put(&BENCHMARK_JOB, &benchmark(spec));
        let storage = json!({"storageUri": "hf://meta-llama/Llama-3.1-8B", "path": "/mnt/models/llama"});
        let model = json!({"storage": storage, "modelFormat": {"name": "safetensors"}});
        world.put(&CLUSTER_BASE_MODEL, &json!({"kind": "ClusterBaseModel", "metadata": {"name": "llama"}, "spec": model}));
        Self { world, status: Value::Null }
    }

    fn with(mut self, resource: &'static Resource, object: &Value) -> Self {
        self.world.put(resource, object);
        self
    }

    /// The endpoint, or the message of the condition that blocks it.
    fn endpoint(&self) -> Result<endpoint::Endpoint, String> {
        self.built(|making| {
            let accepted = making.benchmark.accept().map_err(|stop| stop.condition.message)?;
            making.endpoint(&accepted).map_err(|stop| stop.condition.message)
        })
    }

    fn built<T>(&self, ask: impl FnOnce(&mut PlanBuilder<'_>) -> T) -> T {
        let snapshot = self.world.snapshot(&key(&BENCHMARK_JOB, "perf", "b"), 0).unwrap();
        let policies = Policies::new(ActiveSet::new(Vec::new()), Arc::new(Unheard));
        let (pinned, settings) = (policies.pin(Standing::New), Settings::default());
        let asking = Questions::new(&snapshot, &pinned, &settings);
        let before = snapshot.subject.status();
        let benchmark = Benchmark::from_subject(&asking);
        ask(&mut PlanBuilder { benchmark, record: RunRecord::from_status(&before), asking, settings: &settings, before })
    }

    fn spec_hash(&self) -> String {
        self.built(|making| making.benchmark.spec_hash.clone())
    }

    /// The written status, and the plan. There are no policies, so a missing Job isn't planned.
    fn status(&mut self) -> (Value, Plan) {
        let snapshot = self.world.snapshot(&key(&BENCHMARK_JOB, "perf", "b"), 0).unwrap();
        let policies = Policies::new(ActiveSet::new(Vec::new()), Arc::new(Unheard));
        let mut plan = BenchmarkJobs.plan(&snapshot, &policies.pin(Standing::New), &Settings::default());
        let planned = std::mem::take(&mut plan.status);
        let before = self.status.clone();
        self.status = settle(&before, "benchmark", planned, &Applied::Done, Some(1), Timestamp::UNIX_EPOCH).0;
        (self.status.clone(), plan)
    }

    /// Adds the benchmark with its status and this spec to the world, as a watch would.
    fn recorded(mut self, spec: &Value) -> Self {
        let mut object = benchmark(spec);
        object["status"] = self.status.clone();
        self.world.put(&BENCHMARK_JOB, &object);
        self
    }

    /// Adds an existing Job that was created from the spec with this hash.
    fn job(self, hash: &str, status: &Value) -> Self {
        let fields = json!({
            "f:metadata": {"f:annotations": {format!("f:{SPEC_HASH}"): {}}},
            "f:spec": {"f:template": {"f:spec": {"f:restartPolicy": {}}}},
        });
        let job = json!({
            "metadata": {
                "name": "b", "namespace": "perf", "uid": "j", "labels": {SUBJECT_KIND: "BenchmarkJob"}, "annotations": {SPEC_HASH: hash},
                "ownerReferences": [{"uid": UID, "controller": true}],
                "managedFields": [{"manager": "pointsman/benchmarkjob", "operation": "Apply", "fieldsV1": fields}],
            },
            "spec": {"template": {"spec": {"restartPolicy": "Never"}}}, "status": status,
        });
        self.with(&JOB, &job)
    }

    fn failing_pod(self, container: &Value) -> Self {
        let labels = json!({SUBJECT_KIND: "BenchmarkJob", BENCHMARK_NAME: "b"});
        let status = json!({"phase": "Failed", "containerStatuses": [container]});
        self.with(&POD, &json!({"metadata": {"name": "b-x", "namespace": "perf", "uid": "p", "labels": labels}, "status": status}))
    }
}

fn condition<'s>(status: &'s Value, type_: &str) -> &'s Value {
    status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == type_).unwrap()
}

fn failed(reason: &str, message: &str) -> Value {
    let condition =
        json!({"type": "Failed", "status": "True", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:09Z"});
    json!({"startTime": "2026-01-01T00:00:00Z", "failed": 1, "conditions": [condition]})
}

fn complete() -> Value {
    json!({
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:10:00Z", "succeeded": 1,
        "conditions": [{"type": "Complete", "status": "True"}],
    })
}

#[test]
fn a_service_is_measured_by_its_own_names() {
    let endpoint = Case::new(&json!({})).with(&INFERENCE_SERVICE, &service()).endpoint().unwrap();
    assert_eq!(endpoint.url, "http://llama.perf.svc.cluster.local");
    assert_eq!((endpoint.model_name.as_str(), endpoint.tokenizer.as_str()), ("llama-8b", "/mnt/models/llama"));
    let served = &endpoint.served;
    assert_eq!((served.engine, served.version.as_deref(), served.gpus), (Some("vLLM"), Some("0.9.1"), Some(4)));

    let with = |change: fn(&mut Value)| {
        let mut service = service();
        change(&mut service);
        Case::new(&json!({})).with(&INFERENCE_SERVICE, &service).endpoint().map(|found| (found.model_name, found.tokenizer))
    };
    let path = "/mnt/models/llama".to_owned();
    assert_eq!(
        with(|service| service["spec"]["engine"]["runner"]["args"] = json!(["--model", "$(MODEL_PATH)"])),
        Ok((path.clone(), path.clone()))
    );
    assert_eq!(
        with(|service| service["spec"]["engine"]["runner"]["args"] = json!(["exec vllm serve --served-model-name {{.Name}}"])),
        Ok(("llama".to_owned(), path))
    );
    let unknown = with(|service| service["spec"]["engine"]["runner"]["args"] = json!(["--served-model-name=$NAME"]));
    assert!(unknown.unwrap_err().ends_with("recreate the benchmark with spec.endpoint.inferenceService.modelName."));
    let elsewhere = with(|service| service["metadata"]["annotations"] = json!({"model.ome.io/storage-uri": "hf://acme/llama@v1"}));
    assert_eq!(elsewhere.unwrap().1, "acme/llama");
    let bucket = with(|service| service["metadata"]["annotations"] = json!({"model.ome.io/storage-uri": "s3://models/llama"}));
    assert!(bucket.unwrap_err().contains("set spec.tokenizer to a Hugging Face repository"));
}

#[test]
fn a_service_that_is_not_ready_is_waited_for() {
    let missing = Case::new(&json!({})).endpoint().unwrap_err();
    assert!(missing.starts_with("There is no InferenceService llama in the namespace perf: create it"), "{missing}");
    for (status, expected) in [
        (json!({}), "its status doesn't report it yet"),
        (json!({"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}), "its status doesn't report it yet"),
        (
            json!({"conditions": [{"type": "Ready", "status": "False", "message": "No model."}]}),
            "The InferenceService llama is not Ready (No model): ",
        ),
        (json!({"conditions": [{"type": "Ready", "status": "True"}]}), "its status has no URL"),
    ] {
        let mut service = service();
        service["status"] = status;
        let message = Case::new(&json!({})).with(&INFERENCE_SERVICE, &service).endpoint().unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_service_of_another_namespace_takes_a_grant() {
    let spec = json!({"endpoint": {"inferenceService": {"name": "llama", "namespace": "chat"}}});
    let mut other = service();
    other["metadata"]["namespace"] = "chat".into();
    let case = Case::new(&spec).with(&INFERENCE_SERVICE, &other);
    let message = case.endpoint().unwrap_err();
    assert!(
        message.contains(
            "from: [{group: ome.io, kind: BenchmarkJob, namespace: perf}], to: [{group: ome.io, kind: InferenceService, name: llama}]"
        ),
        "{message}"
    );
    let none = Case::new(&spec).endpoint().unwrap_err();
    assert_eq!(message, none, "whether there is such a service is for its namespace to tell");
    let grant = json!({
        "metadata": {"name": "g", "namespace": "chat"},
        "spec": {"from": [{"group": "ome.io", "kind": "BenchmarkJob", "namespace": "perf"}], "to": [{"group": "ome.io", "kind": "InferenceService"}]},
    });
    assert!(case.with(&REFERENCE_GRANT, &grant).endpoint().is_ok());
}

#[test]
fn other_kinds_of_service_are_measured_too() {
    let reference = |kind: &str| json!({"endpoint": {"inferenceService": {"kind": kind, "name": "llama"}}});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let metadata = json!({"name": "llama", "namespace": "perf", "uid": "s"});
    let llm = json!({
        "metadata": metadata, "spec": {"model": {"uri": "hf://acme/llama@main", "name": "acme/llama"}},
        "status": {"url": "https://gateway/perf/llama", "address": {"url": "http://within"}, "conditions": ready},
    });
    let endpoint = Case::new(&reference("LLMInferenceService")).with(&LLM_INFERENCE_SERVICE, &llm).endpoint().unwrap();
    assert_eq!(
        (endpoint.url.as_str(), endpoint.model_name.as_str(), endpoint.tokenizer.as_str()),
        ("https://gateway/perf/llama", "acme/llama", "acme/llama")
    );
    let mut based = llm.clone();
    based["spec"] = json!({"baseRefs": [{"name": "x"}], "model": {"uri": "hf://acme/llama"}});
    assert!(
        Case::new(&reference("LLMInferenceService")).with(&LLM_INFERENCE_SERVICE, &based).endpoint().unwrap_err().contains("modelName")
    );

    let model = json!({
        "metadata": metadata, "spec": {"modelName": "acme/llama", "backendUrl": "http://llama:8000/", "containerImage": "vllm/vllm-openai:v1"},
        "status": {"conditions": ready},
    });
    let endpoint = Case::new(&reference("InferenceModel")).with(&INFERENCE_MODEL, &model).endpoint().unwrap();
    assert_eq!((endpoint.url.as_str(), endpoint.tokenizer.as_str()), ("http://llama:8000", "acme/llama"));
}

#[test]
fn a_url_needs_a_model_and_a_tokenizer() {
    let endpoint = |endpoint: Value, tokenizer: Value| {
        let case = Case::new(&json!({"endpoint": {"endpoint": endpoint}, "tokenizer": tokenizer}));
        case.endpoint().map(|endpoint| (endpoint.backend, endpoint.model_name, endpoint.tokenizer))
    };
    let url = |model: Value| json!({"url": "https://llm.example.com/", "apiFormat": "cohere", "modelName": model});
    let texts = |one: &str, two: &str| Ok(("cohere".to_owned(), one.to_owned(), two.to_owned()));
    assert_eq!(endpoint(url(json!("acme/llama")), Value::Null), texts("acme/llama", "acme/llama"));
    assert_eq!(endpoint(url(json!("llama")), json!("acme/llama")), texts("llama", "acme/llama"));
    assert!(endpoint(url(json!("llama")), Value::Null).unwrap_err().contains("set spec.tokenizer"));
    assert!(endpoint(url(Value::Null), Value::Null).unwrap_err().starts_with("spec.endpoint.endpoint.modelName is missing"));
}

#[test]
fn what_can_not_be_measured_is_refused_with_the_field() {
    for (spec, expected) in [
        (json!({"task": "text-to-song"}), "set spec.task to one of text-to-text, "),
        (json!({"task": "image-to-text"}), "name a dataset with them in spec.dataset."),
        (json!({"task": "text-to-rerank"}), ""),
    ] {
        let result = Case::new(&spec).built(|making| making.benchmark.accept().map(|_| ()).map_err(|stop| stop.condition.message));
        assert!(result.clone().err().unwrap_or_default().contains(expected), "{spec} {result:?}");
    }
    let mut tgi = service();
    tgi["spec"]["engine"]["runner"]["image"] = "ghcr.io/huggingface/text-generation-inference:3".into();
    let message = Case::new(&json!({"task": "text-to-rerank"})).with(&INFERENCE_SERVICE, &tgi).endpoint().unwrap_err();
    assert!(message.contains("needs vLLM or SGLang"), "{message}");
}

fn words(spec: &Value) -> (Vec<String>, Vec<String>) {
    let case = Case::new(spec).with(&INFERENCE_SERVICE, &service());
    case.built(|making| {
        let accepted = making.benchmark.accept().ok().unwrap();
        let endpoint = making.endpoint(&accepted).ok().unwrap();
        (Arguments::from_benchmark(&accepted, &endpoint).0, [accepted.notes.clone(), arguments::service_notes(&accepted)].concat())
    })
}

#[test]
fn the_command_line_is_in_the_words_of_the_tool() {
    let (arguments, notes) = words(&json!({
        "task": "image-to-text", "dataset": {"storageUri": "hf://acme/pictures"}, "trafficScenarios": ["I(512,512)", "D(100,$(X))"],
        "numConcurrency": [1, 4], "additionalRequestParams": {"temperature": "0.5", "tool_choice": "auto"},
        "serviceMetadata": {"engine": "sglang", "gpuType": "H800", "gpuCount": 8},
    }));
    let line = arguments.join(" ");
    let expected = "benchmark --api-backend openai --api-base http://llama.perf.svc.cluster.local --api-key $(MODEL_API_KEY) \
                    --api-model-name llama-8b --model-tokenizer /mnt/models/llama --task image-text-to-text --max-time-per-run 15 \
                    --max-requests-per-run 100 --traffic-scenario I(512,512) --traffic-scenario D(100,$$(X)) --num-concurrency 1 \
                    --num-concurrency 4 --additional-request-params {\"temperature\":0.5,\"tool_choice\":\"auto\"} --server-engine SGLang \
                    --server-version 0.9.1 --server-gpu-count 8";
    assert_eq!(line, expected);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("The results leave out spec.serviceMetadata.gpuType (H800)"), "{notes:?}");
}

#[test]
fn annotations_act() {
    let accepted = |annotations: Value| {
        let mut object = benchmark(&json!({}));
        object["metadata"]["annotations"] = annotations;
        let case = Case::new(&json!({})).with(&BENCHMARK_JOB, &object);
        case.built(|making| {
            making.benchmark.accept().map(|accepted| (accepted.minutes, accepted.notes.join(" "))).map_err(|stop| stop.condition.message)
        })
    };
    assert_eq!(accepted(json!({"benchmark.ome.io/duration": "90s"})).unwrap().0, 2);
    assert!(accepted(json!({"benchmark.ome.io/target-qps": "100"})).unwrap().1.contains("limits nothing"));
    for (annotation, value) in [("duration", "soon"), ("duration", "0s"), ("target-qps", "-1"), ("target-qps", "fast")] {
        let message = accepted(json!({format!("benchmark.ome.io/{annotation}"): value})).unwrap_err();
        assert!(message.starts_with(&format!("The annotation benchmark.ome.io/{annotation} is {value:?}: set it to ")), "{message}");
    }
}

#[test]
fn a_command_line_has_a_limit() {
    let mut arguments = Arguments::default();
    arguments.flag("--traffic-scenario", &"x".repeat(64 << 10));
    assert!(arguments.check_length().unwrap_err().contains("shorten spec.trafficScenarios"));
    assert_eq!(literal("$(A) $$ a"), "$$(A) $$$$ a");
}

fn output(spec: Value) -> Result<(Storage, String), (&'static str, String)> {
    storage::output(&serde_json::from_value::<StorageSpec>(spec).unwrap(), "perf", "run-1")
}

#[test]
fn results_go_to_every_kind_of_store_and_secrets_never_into_arguments() {
    for (uri, location, provider) in [
        ("s3://b@eu-west-1/p/", "s3://b/p/run-1", "aws"),
        ("gs://b/p", "gs://b/p/run-1", "gcp"),
        ("az://acct.blob.core.windows.net/c/p", "az://acct/c/p/run-1", "azure"),
        ("oci://n/ns/b/bucket/o/p", "oci://n/ns/b/bucket/o/p/run-1", "oci"),
        ("github://acme/results@v1", "github://acme/results@v1", "github"),
    ] {
        let parameters = json!({
            "aws_secret_access_key": "hidden", "azure_account_key": "hidden", "github_token": "hidden", "security_token": "hidden",
            "auth": "SecurityToken",
        });
        let (storage, place) = output(json!({"storageUri": uri, "key": "creds", "parameters": parameters})).unwrap();
        assert_eq!(place, location);
        let line = storage.arguments.0.join(" ");
        assert!(line.contains(&format!("--storage-provider {provider} ")) && !line.contains("hidden"), "{line}");
        assert!(storage.arguments.0.windows(2).any(|pair| pair[0] == "--storage-prefix") && line.contains("--upload-results"), "{line}");
    }
    let (storage, _) = output(json!({"storageUri": "s3://b/p", "key": "creds"})).unwrap();
    assert_eq!(storage.env_from, [json!({"secretRef": {"name": "creds"}})]);
    let reference = json!({"name": "creds", "key": "aws_access_key_id", "optional": true});
    assert_eq!(storage.env[0], json!({"name": "AWS_ACCESS_KEY_ID", "valueFrom": {"secretKeyRef": reference}}));
}

#[test]
fn a_claim_keeps_results_and_a_place_that_takes_none_is_refused() {
    let (storage, place) = output(json!({"storageUri": "pvc://results/a/b"})).unwrap();
    assert_eq!(place, "pvc://results/a/b/run-1");
    assert_eq!(storage.mounts, [json!({"name": "results", "mountPath": "/mnt/results", "subPath": "a/b"})]);
    assert!(!storage.arguments.0.contains(&"--upload-results".to_owned()));
    assert!(output(json!({"storageUri": "pvc://perf:results/a"})).is_ok());
    for (uri, expected) in [
        ("pvc://other:results/a", "can only mount claims of its own namespace"),
        ("pvc://results/../a", "without `..`"),
        ("hf://acme/results", "where results can't be written"),
        ("local:///etc", "where results can't be written"),
        ("az://acct", "has no container"),
        ("github://acme", "has no repository"),
    ] {
        let (_, message) = output(json!({"storageUri": uri})).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_dataset_is_a_repository_or_a_file() {
    let dataset = |spec: Value| storage::dataset(&serde_json::from_value::<StorageSpec>(spec).unwrap(), "perf");
    let plain = dataset(json!({"storageUri": "hf://acme/d", "parameters": {"prompt_column": "q"}})).unwrap();
    assert_eq!(plain.storage.arguments.0, ["--dataset-path", "acme/d", "--dataset-prompt-column", "q"]);
    let configured = dataset(json!({"storageUri": "hf://acme/d@v2", "parameters": {"split": "test", "image_column": "i"}})).unwrap();
    let config: Value = serde_json::from_str(configured.config.as_deref().unwrap()).unwrap();
    assert_eq!(
        (&config["source"]["huggingface_kwargs"], &config["image_column"]),
        (&json!({"split": "test", "revision": "v2"}), &json!("i"))
    );
    let file = dataset(json!({"storageUri": "s3://b/d.csv", "key": "creds"})).unwrap();
    assert_eq!(file.secret.as_deref(), Some("creds"));
    assert_eq!(file.layer.unwrap(), json!({"name": "d.csv", "storageUri": "s3://b/d.csv", "path": "/mnt/dataset"}));
    assert_eq!(dataset(json!({"storageUri": "pvc://c/d.txt"})).unwrap().layer.unwrap()["path"], "/mnt/dataset/d.txt");
    assert_eq!(dataset(json!({"storageUri": "s3://b/folder"})).unwrap_err().0, "DatasetNotSupported");
    assert_eq!(dataset(json!({"storageUri": "pvc://other:c/d.txt"})).unwrap_err().0, "ClaimOfAnotherNamespace");
}

#[test]
fn before_there_is_a_job_the_status_says_what_it_waits_for() {
    let mut case = Case::new(&json!({}));
    let (status, plan) = case.status();
    assert!(plan.objects.is_none());
    assert_eq!((&status["state"], condition(&status, "EndpointReady")["status"].as_str()), (&json!("Pending"), Some("False")));
    assert!(status["details"].as_str().unwrap().starts_with("There is no InferenceService llama"), "{status}");
    assert!(status.get("startTime").is_none() && status.get("specHash").is_none());
}

#[test]
fn each_state_of_the_job_is_a_state_of_the_benchmark() {
    let hash = Case::new(&json!({})).spec_hash();
    for (job, state, reason, details) in [
        (json!({}), "Pending", "Pending", "The pod of the Job b hasn't started yet."),
        (json!({"conditions": [{"type": "Suspended", "status": "True"}]}), "Pending", "Suspended", "The Job b is suspended"),
        (json!({"active": 1, "ready": 1}), "Running", "Running", "The benchmark is running."),
        (json!({"active": 1, "ready": 1, "failed": 1}), "Running", "Running", "Attempt 2 of 1 is running."),
        (json!({"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}), "Running", "Running", "The last pods"),
    ] {
        let (status, _) = Case::new(&json!({})).job(&hash, &job).status();
        assert_eq!((&status["state"], &condition(&status, "Completed")["reason"]), (&json!(state), &json!(reason)));
        assert!(status["details"].as_str().unwrap().starts_with(details), "{status}");
        assert_eq!(status["specHash"], json!(hash));
    }
    let (status, plan) = Case::new(&json!({})).job(&hash, &complete()).status();
    assert_eq!((&status["state"], &status["completionTime"]), (&json!("Completed"), &json!("2026-01-01T00:10:00Z")));
    assert_eq!(status["resultLocation"], json!(format!("pvc://results/runs/b-{hash}")));
    assert!(status.get("details").is_none() && plan.recheck_after.is_some());
}

#[test]
fn a_failure_says_why_and_still_does_when_the_pods_are_gone() {
    let hash = Case::new(&json!({})).spec_hash();
    let ended = json!({"name": "genai-bench", "state": {"terminated": {"reason": "Error", "exitCode": 1, "message": "no such model"}}});
    let backoff = failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    let mut case = Case::new(&json!({})).job(&hash, &backoff).failing_pod(&ended);
    let (status, _) = case.status();
    let message = status["failureMessage"].as_str().unwrap().to_owned();
    assert_eq!(status["state"], "Failed");
    assert!(message.starts_with("The Job b has failed: Job has reached the specified backoff limit. The pod b-x failed. "), "{message}");
    assert!(message.contains("exit code 1: no such model"), "{message}");
    assert_eq!(
        (&condition(&status, "Completed")["reason"], &condition(&status, "Ready")["status"]),
        (&json!("BackoffLimitExceeded"), &json!("False"))
    );
    let mut case = case.recorded(&json!({}));
    case.world.remove(&key(&POD, "perf", "b-x"));
    assert_eq!(case.status().0["failureMessage"], json!(message));

    let deadline = failed("DeadlineExceeded", "Job was active longer than specified deadline");
    let (status, _) = Case::new(&json!({})).job(&hash, &deadline).status();
    assert_eq!(status["failureMessage"], "The Job b has failed: Job was active longer than specified deadline.");

    let waiting = json!({"name": "genai-bench", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}});
    let (status, _) = Case::new(&json!({})).job(&hash, &json!({"active": 1})).failing_pod(&waiting).status();
    assert_eq!((&status["state"], &condition(&status, "Completed")["reason"]), (&json!("Pending"), &json!("PodFailing")));
}

#[test]
fn a_changed_spec_leaves_the_job_and_says_what_it_takes() {
    let hash = Case::new(&json!({})).spec_hash();
    let mut case = Case::new(&json!({"maxRequestsPerIteration": 200})).job(&hash, &json!({"active": 1, "ready": 1}));
    let (status, _) = case.status();
    let changed = condition(&status, "UpToDate");
    assert_eq!((&changed["status"], &changed["reason"]), (&json!("False"), &json!("SpecChanged")));
    assert!(changed["message"].as_str().unwrap().contains("`kubectl delete jobs --cascade=foreground -n perf b`"), "{changed}");
    let mut same = Case::new(&json!({"ttlSecondsAfterFinished": 5, "backoffLimit": 2})).job(&hash, &json!({"active": 1, "ready": 1}));
    assert_eq!(condition(&same.status().0, "UpToDate")["status"], "True", "these may change");
}

#[test]
fn a_benchmark_whose_job_is_gone_is_not_run_again() {
    let hash = Case::new(&json!({})).spec_hash();
    let mut case = Case::new(&json!({})).job(&hash, &complete());
    let (before, _) = case.status();
    let mut case = case.recorded(&json!({}));
    case.world.remove(&key(&JOB, "perf", "b"));
    let (status, plan) = case.status();
    assert_eq!(plan.objects.map(|objects| objects.len()), Some(0));
    for field in ["state", "startTime", "completionTime", "resultLocation", "specHash"] {
        assert_eq!((&status[field], before.get(field).is_some()), (&before[field], true), "{field}");
    }
    assert_eq!(condition(&status, "Completed"), condition(&before, "Completed"));
    let mut again = case.recorded(&json!({"maxRequestsPerIteration": 200}));
    let (status, plan) = again.status();
    assert!(plan.objects.is_none(), "it waits for its endpoint");
    // The record stays until the next run has its Job: if the edit is reverted, nothing runs again.
    for field in ["state", "completionTime", "resultLocation", "specHash"] {
        assert_eq!(status[field], before[field], "{field}");
    }
}
