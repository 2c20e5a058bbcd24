//! Properties that hold for every question.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask, llm};
use pointsman_plugin::{Role, pod_templating::Layer};
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Map, Value, json};

const ROLES: [Role; 6] = [Role::Engine, Role::Decoder, Role::Router, Role::Leader, Role::Worker, Role::Job];

const LLM_ROLES: [Role; 5] = [Role::Main, Role::Prefill, Role::Leader, Role::Worker, Role::Scheduler];

const LLM_LAYERS: [&str; 7] = ["preset", "base:one", "base:two", "user", "model", "parallelism", "scheduler"];

const LAYERS: [&str; 12] = [
    "runtime",
    "runtime-leader",
    "runtime-worker",
    "user",
    "user-leader",
    "user-worker",
    "model",
    "group",
    "accelerator",
    "settings",
    "storage",
    "adapter",
];

/// The annotations about the engine, each with values that the host accepts.
const OF_ENGINE: [(&str, [&str; 3]); 6] = [
    ("model.ome.io/max-tokens", ["1", "4096", "18446744073709551615"]),
    ("model.ome.io/context-length", ["1", "8192", "131072"]),
    ("model.ome.io/quantization", ["fp16", "int4", "awq"]),
    ("performance.ome.io/gpu-memory-fraction", ["0.5", "0.9", "1"]),
    ("performance.ome.io/batch-size", ["1", "32", "256"]),
    ("performance.ome.io/max-batch-delay", ["1ms", "10ms", "1s"]),
];

const OTHER_SETTINGS: [(&str, [&str; 3]); 5] = [
    ("security.ome.io/pod-security-policy", ["privileged", "baseline", "restricted"]),
    ("security.ome.io/secret-ref", ["a", "b", "c"]),
    ("oci.ome.io/compartment-id", ["a", "b", "c"]),
    ("oci.ome.io/region", ["a", "b", "c"]),
    ("oci.ome.io/availability-domain", ["a", "b", "c"]),
];

/// Flags for settings, and aliases of them.
const FLAGS: [&str; 12] = [
    "--max-model-len=1",
    "--max_model_len",
    "--context-length",
    "--dtype=auto",
    "-q",
    "--quantization=x",
    "--gpu-memory-utilization=1",
    "--mem_fraction_static=1",
    "--max-num-seqs=1",
    "--max-running-requests",
    "--lora-modules",
    "--lora-paths",
];

/// Names that the policy knows, so that arbitrary values trigger its rules.
const FIELDS: [&str; 44] = [
    "pod",
    "runner",
    "config",
    "containers",
    "initContainers",
    "volumes",
    "env",
    "args",
    "command",
    "image",
    "name",
    "value",
    "valueFrom",
    "ports",
    "containerPort",
    "protocol",
    "volumeMounts",
    "mountPath",
    "resources",
    "limits",
    "requests",
    "nvidia.com/gpu",
    "readinessProbe",
    "httpGet",
    "tcpSocket",
    "emptyDir",
    "hostPath",
    "path",
    "storageUri",
    "nodeLabel",
    "nodes",
    "nodeSelector",
    "securityContext",
    "seccompProfile",
    "tolerations",
    "imagePullSecrets",
    "hostAliases",
    "ip",
    "topologySpreadConstraints",
    "lifecycle",
    "affinity",
    "a/b~c",
    "MODEL_PATH",
    "spec",
];

const TEXTS: [&str; 20] = [
    "",
    "a",
    "b",
    "ome-container",
    "vllm",
    "serve",
    "--tp=1",
    "--tensor_parallel_size",
    "-n",
    "--",
    "$(MODEL_PATH)",
    "{{.Name}}",
    "{{.Labels.none}}",
    "{{ x }}",
    "8",
    "1.5",
    "pvc://a/b",
    "pvc://x:a",
    "/mnt/a",
    "vllm/vllm-openai:1",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![9 => select(TEXTS.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::from),
        1 => (-1e9..1e9).prop_map(Value::from),
        6 => text().prop_map(Value::from),
    ]
}

fn object(fields: Vec<(&'static str, Value)>) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

/// An arbitrary value.
fn any_value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(6, 64, 6, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), vec((select(FIELDS.to_vec()), inner), 0..6).prop_map(object),]
    })
}

/// A list of items with a key, each with some of these fields.
fn keyed(key: &'static str, fields: &'static [&'static str]) -> impl Strategy<Value = Vec<Value>> {
    let item = (select(vec!["a", "b", "ome-container"]), vec((select(fields.to_vec()), any_value()), 0..3));
    vec(item, 0..3).prop_map(move |items| {
        let item = |(name, fields): (&str, Vec<(&'static str, Value)>)| {
            let mut item = object(fields);
            item[key] = json!(name);
            item
        };
        distinct(items.into_iter().map(item).collect(), key)
    })
}

/// Usually without duplicates, which would all be rejected.
fn distinct(items: Vec<Value>, key: &str) -> Vec<Value> {
    let keep = items.len() > 1 && items[0][key] == "b";
    let name = |item: &Value| item[key].as_str().filter(|name| !name.is_empty()).unwrap_or("ome-container").to_owned();
    let mut names = Vec::new();
    items
        .into_iter()
        .filter(|item| {
            keep || !names.contains(&name(item)) && {
                names.push(name(item));
                true
            }
        })
        .collect()
}

fn container() -> impl Strategy<Value = Value> {
    let words = || option::of(vec(text(), 0..6));
    let gpus = prop_oneof![9 => select(vec![json!(0), json!(1), json!("8"), Value::Null]), 1 => scalar()];
    let parts = (option::of(select(vec!["a", "ome-container", "main", ""])), words(), words());
    let lists = (keyed("name", &["value"]), keyed("mountPath", &["name"]), gpus, option::of(any_value()));
    (parts, lists).prop_map(|((name, args, command), (mut env, mounts, gpus, odd))| {
        for variable in &mut env {
            variable["value"] = json!(variable["value"].to_string());
        }
        json!({"image": "vllm", "name": name, "args": args, "command": command, "env": env, "volumeMounts": mounts, "lifecycle": null,
            "terminationMessagePath": odd, "resources": {"limits": {"nvidia.com/gpu": gpus}}})
    })
}

/// A plausible layer.
fn likely() -> impl Strategy<Value = Value> {
    let volumes = keyed("name", &["emptyDir", "hostPath"]);
    (vec(container(), 0..3), option::of(container()), volumes, option::of(any_value())).prop_map(
        |(containers, runner, volumes, affinity)| {
            let pod = json!({"containers": distinct(containers, "name"), "volumes": volumes, "affinity": affinity, "tolerations": [1]});
            json!({"pod": pod, "runner": runner, "config": {"A": "1"}, "path": "/m", "nodeLabel": "l", "nodes": 2,
                "uri": "hf://a/b", "name": "m", "adapters": [{"uri": "pvc://a", "name": "a"}], "group": {"nodes": 2}, "data": 4,
                "dataLocal": 2, "claim": "c", "storageUri": "s3://b/m", "download": true, "ray": true, "pool": "p", "namespace": "n", "configMap": {"name": "c", "key": "k"}})
        },
    )
}

fn asked() -> impl Strategy<Value = TestRequest> {
    let ome = requests(ask([]), &LAYERS, &ROLES);
    prop_oneof![ome, requests(llm([]), &LLM_LAYERS, &LLM_ROLES)]
}

/// Settings that the host accepts.
fn settings() -> impl Strategy<Value = Value> {
    let known = OF_ENGINE.iter().chain(&OTHER_SETTINGS);
    let each: Vec<_> = known.map(|(annotation, values)| (Just(*annotation), option::of(select(values.to_vec())))).collect();
    each.prop_map(|each| object(each.into_iter().filter_map(|(annotation, value)| Some((annotation, json!(value?)))).collect()))
}

/// A service with valid settings, a known or unknown engine, and layers for storage and an adapter.
fn valid() -> impl Strategy<Value = TestRequest> {
    let line = select(vec![
        json!({"command": ["vllm", "serve"]}),
        json!({"command": ["python3", "-m", "sglang.launch_server"]}),
        json!({"image": "vllm/vllm-openai:v1"}),
        json!({"command": ["tritonserver"]}),
        json!({"command": ["sh", "-c"]}),
    ]);
    let words = vec(select(FLAGS.to_vec()), 0..4);
    let security = option::weighted(0.2, select(vec![json!({"privileged": true}), json!({"capabilities": {"drop": ["NET_RAW"]}})]));
    let uri = || select(vec!["hf://a/b", "pvc://a/b", "local:///a", "oci://n/a/b/c/o/d"]);
    let model = (any::<bool>(), uri()).prop_map(|(download, uri)| json!({"name": "m", "download": download, "storageUri": uri}));
    let adapter = (uri(), select(vec!["LoRA", "other"])).prop_map(|(uri, kind)| json!({"name": "a", "storageUri": uri, "modelType": kind}));
    let storage = Just(json!({"claim": "c", "readOnly": false}));
    let layers = (option::of(model), option::of(adapter), option::of(storage), (any::<bool>(), any::<bool>()));
    ((line, words, security), settings(), layers, select(ROLES.to_vec())).prop_map(
        |((mut fields, words, security), settings, (model, adapter, storage, (ray, overwrite)), role)| {
            fields["args"] = json!(words);
            fields["securityContext"] = json!(security);
            let group = json!({"nodes": 2, "ray": ray, "overwrite": overwrite});
            let layers = [("runtime", asked::runner(fields)), ("settings", settings), ("model", json!(model)), ("group", group)];
            let mut asked = ask(layers).role(role);
            asked.request.layers.extend(ask([("adapter", json!(adapter)), ("storage", json!(storage))]).request.layers);
            asked
        },
    )
}

fn requests(empty: TestRequest, layers: &[&'static str], roles: &[Role]) -> impl Strategy<Value = TestRequest> {
    let content = prop_oneof![9 => likely(), 1 => any_value()];
    let layer =
        (select(layers.to_vec()), content, option::weighted(0.9, settings())).prop_map(|(name, content, settings)| match settings {
            Some(settings) if name == "settings" => (name, settings),
            _ => (name, content),
        });
    let layers = vec(layer, 0..5);
    let frame = prop_oneof![
        6 => Just(json!({"metadata": {}, "spec": {}})),
        2 => likely().prop_map(|layer| json!({"spec": layer["pod"]})),
        1 => any_value().prop_map(|spec| json!({"spec": spec})),
        1 => any_value(),
    ];
    let config = select(vec![json!({}), json!({"arguments": "MergeByFlag", "modelRoot": "", "placement": false, "parallelism": false})]);
    (layers, frame, config, select(roles.to_vec())).prop_map(move |(layers, frame, config, role)| {
        let mut asked = empty.clone().template(&frame).config(config).role(role);
        let layer = |(name, content): (&str, Value)| Layer { name: name.to_owned(), content: content.to_string() };
        asked.request.layers = layers.into_iter().map(layer).collect();
        asked
    })
}

/// The same value with the fields of its objects in reverse order, if the order is preserved.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.keys().collect();
            names.reverse();
            Value::Object(names.into_iter().map(|name| (name.clone(), reversed(&fields[name]))).collect())
        }
        Value::Array(items) => items.iter().map(reversed).collect(),
        scalar => scalar.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_question_is_answered_or_refused_with_a_sentence(asked in asked()) {
        match asked.answer() {
            Err(sentence) => prop_assert!(sentence.len() > 20, "{}", sentence),
            Ok(answer) => {
                let finished = asked.finished();
                prop_assert!(finished["spec"]["containers"].as_array().is_some_and(|containers| !containers.is_empty()));
                for operation in &answer.operations {
                    let known = operation.layer == "plugin" || asked.request.layers.iter().any(|layer| layer.name == operation.layer);
                    prop_assert!(known && operation.path.matches('/').count() < 60, "{:?}", operation);
                }
                prop_assert_eq!(asked.answer(), Ok(answer));
            }
        }
    }

    #[test]
    fn valid_settings_are_refused_by_pod_security_alone(asked in valid()) {
        let answer = asked.answer();
        if let Err(sentence) = &answer {
            prop_assert!(sentence.starts_with("the Pod Security Standard ") && sentence.contains("privileged: true"), "{}", sentence);
        }
        prop_assert_eq!(asked.answer(), answer);
    }

    #[test]
    fn no_flag_is_given_twice(asked in valid()) {
        prop_assume!(asked.answer().is_ok());
        let given: Value = asked.request.layers[0].content::<Value>().unwrap()["runner"].take();
        let container = asked.container();
        let name = |word: &str| word.split('=').next().unwrap_or_default().replace('_', "-");
        let times = |container: &Value, flag: &str| {
            let words = container["args"].as_array().into_iter().flatten();
            words.filter(|word| word.as_str().is_some_and(|word| name(word) == name(flag))).count()
        };
        for flag in FLAGS.into_iter().chain(["--enable-lora", "--distributed-executor-backend"]) {
            prop_assert!(times(&container, flag) <= times(&given, flag).max(1), "{flag}: {container}");
        }
        if times(&given, "-q") > 0 && given.to_string().contains("vllm") {
            prop_assert!(times(&container, "--quantization") <= times(&given, "--quantization"), "{container}");
        }
    }

    #[test]
    fn the_order_of_an_objects_fields_says_nothing(asked in asked()) {
        let mut other = asked.clone();
        let turned = |text: &str| reversed(&serde_json::from_str(text).unwrap()).to_string();
        other.request.template = turned(&asked.request.template);
        for layer in &mut other.request.layers {
            layer.content = turned(&layer.content);
        }
        // An error names the first unreadable position, which then differs.
        match (asked.answer(), other.answer()) {
            (Err(one), Err(another)) => prop_assert!(!one.is_empty() && !another.is_empty()),
            (one, another) => prop_assert_eq!(one, another),
        }
    }
}
