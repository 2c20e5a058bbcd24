//! Services that nobody would write, and a context for them: for tests that must hold of all services. Plain JSON, so that the tests of
//! the host and those on a cluster share it. They share the corpus of `doors` too.

pub mod doors;
mod hostile;
mod llm;
mod pods;

pub use hostile::{HostileTenant, hostile_tenant};
pub use llm::llm_service;
use pods::{containers, pod, runner};
use proptest::{collection::btree_map, option, prelude::*, sample::select};
use serde_json::{Map, Value, json};

/// What the services refer to: models in every state and runtimes of every shape, cluster-wide and in the namespace, and what
/// LLMInferenceServices build on.
pub fn context(namespace: &str) -> Vec<Value> {
    let model = |kind: &str, name: &str, storage: Value, more: Value| {
        let mut model = json!({
            "apiVersion": "ome.io/v1beta1", "kind": kind, "metadata": {"name": name},
            "spec": {
                "vendor": "Meta Platforms, Inc.", "modelType": "llama", "modelArchitecture": "LlamaForCausalLM", "modelParameterSize": "8B",
                "modelFormat": {"name": "safetensors", "version": "1.0.0"}, "storage": storage,
            },
            "status": {"state": "Ready"},
        });
        if kind == "BaseModel" {
            model["metadata"]["namespace"] = namespace.into();
        }
        merge(&mut model, more);
        model
    };
    let on_node = json!({"storageUri": "hf://meta-llama/Llama-3.1-8B-Instruct", "path": "/mnt/models/llama"});
    let runtime = |kind: &str, name: &str, more: Value| {
        let mut runtime = json!({
            "apiVersion": "ome.io/v1beta1", "kind": kind, "metadata": {"name": name},
            "spec": {
                "supportedModelFormats": [{
                    "modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelArchitecture": "LlamaForCausalLM",
                    "autoSelect": true, "priority": 1,
                }],
                "modelSizeRange": {"min": "1B", "max": "13B"},
                "engineConfig": {"runner": {
                    "name": "ome-container", "image": "registry.example.com/vllm:1", "command": ["vllm", "serve"],
                    "args": ["$(MODEL_PATH)", "--port", "8080"], "ports": [{"containerPort": 8080}],
                    "resources": {"limits": {"nvidia.com/gpu": 2, "memory": "64Gi"}},
                }},
            },
        });
        if kind == "ServingRuntime" {
            runtime["metadata"]["namespace"] = namespace.into();
        }
        merge(&mut runtime, more);
        runtime
    };
    let weight = |name: &str, tuned: &str, uri: &str| {
        json!({
            "apiVersion": "ome.io/v1beta1", "kind": "FineTunedWeight", "metadata": {"name": name},
            "spec": {"baseModelRef": {"name": tuned}, "modelType": "LoRA", "storage": {"storageUri": uri}},
        })
    };
    let disaggregated = json!({"spec": {
        "decoderConfig": {"runner": {"name": "ome-container", "image": "registry.example.com/sglang:1", "args": ["--disaggregation-mode", "decode"]}},
        "routerConfig": {"config": {"POLICY": "random"}, "runner": {"name": "router", "image": "registry.example.com/router:1"}},
    }});
    let mut context = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"team": "a"}}}),
        model("ClusterBaseModel", "llama", on_node.clone(), json!({})),
        model("ClusterBaseModel", "disabled", on_node.clone(), json!({"spec": {"disabled": true}})),
        model("ClusterBaseModel", "odd", on_node.clone(), json!({"spec": {"modelParameterSize": "many", "modelFormat": {"name": "onnx"}}})),
        model("BaseModel", "own", json!({"storageUri": "pvc://models/own", "path": "/models"}), json!({})),
        model("BaseModel", "coming", on_node, json!({"status": {"state": "In_Transit"}})),
        runtime("ClusterServingRuntime", "vllm", json!({})),
        runtime("ClusterServingRuntime", "vllm-twin", json!({})),
        runtime("ClusterServingRuntime", "groups", json!({"spec": {"engineConfig": {"worker": {"size": 1}}}})),
        runtime("ClusterServingRuntime", "large", json!({"spec": {"modelSizeRange": {"min": "70B", "max": "1T"}}})),
        runtime("ServingRuntime", "own", disaggregated),
        runtime(
            "ClusterServingRuntime",
            "old",
            json!({"spec": {
                "engineConfig": null, "protocolVersions": ["openAI"], "nodeSelector": {"gpu": "h100"}, "labels": {"tier": "gpu"},
                "containers": [{"name": "ome-container", "image": "registry.example.com/sglang:1", "args": ["--port", "8080"]}],
                "workers": {"size": 2, "containers": [{"name": "ome-container", "image": "registry.example.com/sglang:1"}]},
            }}),
        ),
        weight("tuned", "llama", "hf://org/tuned"),
        weight("kept", "own", "pvc://adapters/kept"),
    ];
    context.extend(llm::configs(namespace));
    context
}

/// Lays one object over another.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

/// An object of those fields that are there.
fn object(fields: Vec<(&str, Option<Value>)>) -> Value {
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// What OME's labels page has for pods.
const SETTINGS: [(&str, &str); 18] = [
    ("model.ome.io/storage-uri", "hf://org/model"),
    ("model.ome.io/storage-uri", "pvc://models/llama"),
    ("model.ome.io/quantization", "fp8"),
    ("model.ome.io/max-tokens", "4096"),
    ("performance.ome.io/gpu-memory-fraction", "0.8"),
    ("performance.ome.io/max-batch-delay", "10ms"),
    ("performance.ome.io/batch-size", "none"),
    ("security.ome.io/pod-security-policy", "baseline"),
    ("security.ome.io/pod-security-policy", "restricted"),
    ("security.ome.io/network-policy", "allow-inference-only"),
    ("security.ome.io/secret-ref", "credentials"),
    ("storage.ome.io/size", "10Gi"),
    ("storage.ome.io/access-mode", "ReadOnlyMany"),
    ("monitoring.ome.io/scrape", "true"),
    ("monitoring.ome.io/port", "9400"),
    ("oci.ome.io/region", "us-phoenix-1"),
    ("ome.io/resource-version", "12345"),
    ("ome.io/last-applied-configuration", "{}"),
];

fn settings() -> BoxedStrategy<Value> {
    let annotation = prop_oneof![
        Just(("ome.io/deploymentMode", "RawDeployment")),
        Just(("ome.io/deploymentMode", "MultiNode")),
        Just(("ome.io/deploymentMode", "Serverless")),
        Just(("ome.io/deploymentMode", "MultiNodeRayVLLM")),
        Just(("autoscaling.knative.dev/metric", "rps")),
        select(SETTINGS.to_vec()),
        Just(("ome.io/min-replicas", "2")),
        Just(("ome.io/max-replicas", "9")),
        Just(("autoscaling.ome.io/target", "lots")),
        Just(("ome.io/autoscalerClass", "external")),
        Just(("example.com/note", "any text, even with {braces}")),
    ];
    let annotations = proptest::collection::vec(annotation, 0..3);
    let labels = btree_map("[a-z]{1,8}(/[A-Za-z0-9]{1,8})?", "[A-Za-z0-9]{0,10}", 0..3);
    let keda = option::weighted(0.2, (any::<bool>(), option::of(Just("http://prometheus:9090")), option::of(Just("sum(x)"))));
    let knatives = option::weighted(0.04, (option::of(0..9_i64), option::of(0..101_i64), option::of(1..601_i64)));
    let strategy = option::weighted(0.05, select(vec!["RollingUpdate", "Recreate"]));
    let metric = option::of(select(vec!["cpu", "memory", "rps"]));
    (option::of(0..4_i64), option::of(0..4_i64), metric, labels, annotations, keda, (knatives, strategy))
        .prop_map(|(least, more, metric, labels, annotations, keda, (knatives, strategy))| {
            let (concurrency, canary, seconds) = knatives.unwrap_or_default();
            let most = more.map(|more| if more == 0 { 0 } else { least.unwrap_or(1) + more });
            let annotations: Map<String, Value> = annotations.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
            let keda = keda.map(|(enable, server, query)| {
                let fields = [("promServerAddress", server), ("customPromQuery", query)];
                let mut fields: Map<String, Value> =
                    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
                fields.insert("enableKeda".to_owned(), enable.into());
                Value::Object(fields)
            });
            object(vec![
                ("minReplicas", least.map(Value::from)),
                ("maxReplicas", most.map(Value::from)),
                ("scaleMetric", metric.map(Value::from)),
                ("labels", (!labels.is_empty()).then(|| json!(labels))),
                ("annotations", (!annotations.is_empty()).then(|| annotations.into())),
                ("kedaConfig", keda),
                ("containerConcurrency", concurrency.map(Value::from)),
                ("canaryTrafficPercent", canary.map(Value::from)),
                ("timeoutSeconds", seconds.map(Value::from)),
                ("deploymentStrategy", strategy.map(|strategy| json!({"type": strategy}))),
            ])
        })
        .boxed()
}

/// A component, with leader and workers if it may have them.
fn component(grouped: bool) -> BoxedStrategy<Value> {
    let worker = (option::of(0..4_i64), option::of(runner()))
        .prop_map(|(size, runner)| object(vec![("size", size.map(Value::from)), ("runner", runner)]));
    let leader = (containers(), option::of(runner())).prop_map(|(containers, runner)| {
        object(vec![("containers", (!containers.is_empty()).then(|| containers.into())), ("runner", runner)])
    });
    (pod(), settings(), option::of(runner()), option::weighted(0.3, leader), option::weighted(0.3, worker))
        .prop_map(move |(mut pod, settings, runner, leader, worker)| {
            merge(&mut pod, settings);
            let (leader, worker) = (leader.filter(|_| grouped), worker.filter(|_| grouped));
            merge(&mut pod, object(vec![("runner", runner), ("leader", leader), ("worker", worker)]));
            pod
        })
        .boxed()
}

fn router() -> BoxedStrategy<Value> {
    (component(false), btree_map("[A-Z][A-Z_]{0,8}", "[a-z0-9 ]{0,10}", 0..3))
        .prop_map(|(mut router, config)| {
            if !config.is_empty() {
                router["config"] = json!(config);
            }
            router
        })
        .boxed()
}

/// A predictor, of a model or of whatever its pod says.
fn predictor() -> BoxedStrategy<Value> {
    let model = (
        option::of(select(vec!["llama", "own", "nowhere"])),
        option::of(select(vec!["vllm", "old", "own"])),
        option::of(select(vec!["hf://org/model", "pvc://models/llama"])),
        option::of(Just("v2")),
        option::of(select(vec!["openAI", "cohere"])),
    );
    let model = model.prop_map(|(base, runtime, uri, version, protocol)| {
        let text = |text: Option<&str>| text.map(Value::from);
        object(vec![
            ("baseModel", text(base)),
            ("runtime", text(runtime)),
            ("storageUri", text(uri)),
            ("runtimeVersion", text(version)),
            ("protocolVersion", text(protocol)),
        ])
    });
    let worker = option::weighted(0.2, (0..3_i64).prop_map(|size| json!({"size": size})));
    (component(false), option::weighted(0.8, model), worker)
        .prop_map(|(mut predictor, model, worker)| {
            predictor.as_object_mut().map(|fields| fields.remove("runner"));
            merge(&mut predictor, object(vec![("model", model), ("workerSpec", worker)]));
            predictor
        })
        .boxed()
}

/// A service of the namespace that the API server takes, however little sense it makes.
pub fn service(namespace: &'static str) -> BoxedStrategy<Value> {
    let model = select(vec![
        ("llama", "ClusterBaseModel"),
        ("llama", "ClusterBaseModel"),
        ("own", "BaseModel"),
        ("odd", "ClusterBaseModel"),
        ("disabled", "ClusterBaseModel"),
        ("coming", "BaseModel"),
        ("nowhere", "BaseModel"),
    ]);
    let weights = option::weighted(0.1, proptest::collection::vec(select(vec!["tuned", "tuned", "tuned", "kept", "nowhere"]), 1..3));
    let model = (model, weights).prop_map(|((name, kind), weights)| {
        let mut model = json!({"name": name, "kind": kind, "apiGroup": "ome.io"});
        if let Some(weights) = weights {
            model["fineTunedWeights"] = json!(weights);
        }
        model
    });
    let runtime = select(vec![
        ("vllm", "ClusterServingRuntime"),
        ("groups", "ClusterServingRuntime"),
        ("old", "ClusterServingRuntime"),
        ("own", "ServingRuntime"),
        ("large", "ClusterServingRuntime"),
    ]);
    let runtime = runtime.prop_map(|(name, kind)| json!({"name": name, "kind": kind, "apiGroup": "ome.io"}));
    let annotations = btree_map(
        select(vec![
            "ome.io/min-replicas",
            "ome.io/deploymentMode",
            "example.com/owner",
            "kubectl.kubernetes.io/x",
            "pointsman.dev/choose-runtime",
        ]),
        select(vec!["1", "RawDeployment", "somebody@example.com"]),
        0..2,
    );
    let annotations = (annotations, proptest::collection::vec(select(SETTINGS.to_vec()), 0..3)).prop_map(|(mut annotations, more)| {
        annotations.extend(more);
        annotations
    });
    let labels = btree_map("[a-z]{1,6}", "[A-Za-z0-9]{0,4}[a-z]", 0..3);
    (
        "[a-z]([a-z0-9-]{0,30}[a-z0-9])?",
        (labels, annotations),
        option::weighted(0.9, model),
        option::weighted(0.5, runtime),
        (option::of(component(true)), option::weighted(0.2, component(true)), option::weighted(0.2, router())),
        option::weighted(0.1, predictor()),
    )
        .prop_map(move |(name, (labels, annotations), model, runtime, (engine, decoder, router), predictor)| {
            let spec = match predictor {
                Some(predictor) => object(vec![("predictor", Some(predictor)), ("router", router)]),
                None => object(vec![("model", model), ("runtime", runtime), ("engine", engine), ("decoder", decoder), ("router", router)]),
            };
            json!({
                "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
                "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations},
                "spec": spec,
            })
        })
        .boxed()
}
