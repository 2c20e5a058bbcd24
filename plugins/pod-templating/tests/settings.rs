//! Settings from annotations about the engine, the cloud and secrets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask, runner};
use pointsman_plugin::Role;
use serde_json::{Value, json};

const ENGINE: [(&str, &str, &str); 6] = [
    ("model.ome.io/max-tokens", "8192", "MODEL_MAX_TOKENS"),
    ("model.ome.io/context-length", "4096", "MODEL_CONTEXT_LENGTH"),
    ("model.ome.io/quantization", "awq", "MODEL_QUANTIZATION"),
    ("performance.ome.io/gpu-memory-fraction", "0.85", "GPU_MEMORY_FRACTION"),
    ("performance.ome.io/batch-size", "32", "BATCH_SIZE"),
    ("performance.ome.io/max-batch-delay", "10ms", "MAX_BATCH_DELAY"),
];

fn all() -> Value {
    ENGINE.iter().map(|(annotation, value, _)| ((*annotation).to_owned(), json!(value))).collect::<serde_json::Map<_, _>>().into()
}

fn vllm(args: &[&str]) -> Value {
    json!({"command": ["vllm", "serve"], "args": args})
}

fn sglang(args: &[&str]) -> Value {
    json!({"command": ["python3", "-m", "sglang.launch_server"], "args": args})
}

fn with(settings: Value, fields: Value) -> TestRequest {
    ask([("runtime", runner(fields)), ("settings", settings)])
}

fn args(asked: &TestRequest) -> Vec<String> {
    serde_json::from_value(asked.container()["args"].take()).unwrap_or_default()
}

fn variables(asked: &TestRequest) -> Vec<String> {
    let variable = |variable: &Value| format!("{}={}", variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
    let mut told: Vec<_> = asked.container()["env"].as_array().into_iter().flatten().map(variable).collect();
    told.sort();
    told
}

#[test]
fn each_engine_is_told_by_its_own_flags() {
    let asked = with(all(), vllm(&["m"]));
    let expected = ["--max-model-len", "4096", "--quantization", "awq", "--gpu-memory-utilization", "0.85", "--max-num-seqs", "32"];
    assert_eq!(args(&asked), [&["m"][..], &expected].concat());
    assert!(asked.steps().contains(&r#"settings + /spec/containers/0/args/- "--max-model-len""#.to_owned()));
    assert_eq!(asked.said("SettingsTold"), format!("The annotations set flags of vLLM: {}.", expected.join(" ")));
    let expected = ["--context-length", "4096", "--quantization", "awq", "--mem-fraction-static", "0.85", "--max-running-requests", "32"];
    assert_eq!(args(&with(all(), sglang(&[]))), expected);
}

#[test]
fn of_two_lengths_the_smaller_counts() {
    for (tokens, context, counts) in [("8192", "4096", "4096"), ("2048", "16384", "2048"), ("1000", "999", "999")] {
        let settings = json!({"model.ome.io/max-tokens": tokens, "model.ome.io/context-length": context});
        assert_eq!(args(&with(settings, vllm(&["m"]))), ["m", "--max-model-len", counts]);
    }
    for annotation in ["model.ome.io/max-tokens", "model.ome.io/context-length"] {
        assert_eq!(args(&with(json!({annotation: "7"}), sglang(&[]))), ["--context-length", "7"]);
    }
    let said = with(json!({"model.ome.io/max-tokens": "many"}), vllm(&[])).failure();
    assert_eq!(said, "the annotation model.ome.io/max-tokens is \"many\": write a whole number");
}

#[test]
fn quantization_is_a_type_a_width_or_a_method() {
    let told = |word: &str| with(json!({"model.ome.io/quantization": word}), vllm(&["m"]));
    for (words, dtype) in
        [(&["fp16", "float16", "half", "FP16"][..], "float16"), (&["bf16", "bfloat16"], "bfloat16"), (&["fp32", "float32"], "float32")]
    {
        for word in words {
            assert_eq!(args(&told(word)), ["m", "--dtype", dtype], "{word}");
        }
    }
    for method in ["fp8", "awq", "compressed-tensors"] {
        assert_eq!(args(&told(method)), ["m", "--quantization", method]);
        assert_eq!(variables(&told(method)), Vec::<String>::new());
    }
    for width in ["int8", "int4"] {
        let asked = told(width);
        assert_eq!((args(&asked), variables(&asked)), (vec!["m".to_owned()], vec![format!("MODEL_QUANTIZATION={width}")]));
        assert_eq!(
            asked.said("QuantizationByModel"),
            format!("{width} is a width, not a method, so vLLM reads the method from the model's own files.")
        );
    }
}

#[test]
fn a_delay_is_only_a_variable() {
    for fields in [vllm(&["m"]), sglang(&["--m"])] {
        let before = fields["args"].clone();
        let asked = with(json!({"performance.ome.io/max-batch-delay": "10ms"}), fields);
        assert_eq!((json!(args(&asked)), variables(&asked)), (before, vec!["MAX_BATCH_DELAY=10ms".to_owned()]));
        assert!(asked.said("BatchDelayUntold").ends_with("has no delay, so performance.ome.io/max-batch-delay is only a variable."));
    }
}

#[test]
fn a_flag_that_is_given_stays() {
    let of_vllm = ["--max-model-len=1", "--max_model_len", "-q", "--quantization=x", "--gpu-memory-utilization=1", "--max_num_seqs=2"];
    let of_sglang = ["--context-length=1", "--context_length", "--quantization", "--mem-fraction-static=1", "--max-running-requests=1"];
    for (engine, flags) in [("vllm", &of_vllm[..]), ("sglang", &of_sglang)] {
        for flag in flags {
            let asked = with(all(), json!({"command": [engine, "serve"], "args": [flag]}));
            let name = flag.split('=').next().unwrap().replace('_', "-");
            let same: Vec<_> = args(&asked).into_iter().filter(|word| word.split('=').next().unwrap().replace('_', "-") == name).collect();
            assert_eq!(same, [*flag]);
            assert_eq!(args(&asked).len(), 7, "the other three are told: {flag}");
            assert_eq!(asked.codes().iter().filter(|code| *code == "FlagKept").count(), 1);
        }
    }
    let dtype = with(json!({"model.ome.io/quantization": "fp16"}), vllm(&["--dtype", "auto"]));
    assert_eq!(args(&dtype), ["--dtype", "auto"]);
    let lengths = with(all(), vllm(&["--max-model-len", "9"]));
    let kept = "The command line of ome-container has --max-model-len already, which overrides model.ome.io/max-tokens and \
                model.ome.io/context-length.";
    assert_eq!(lengths.said("FlagKept"), kept);
}

#[test]
fn what_runs_no_known_engine_is_told_by_variables() {
    let expected: Vec<_> = ENGINE.iter().map(|(_, value, variable)| format!("{variable}={value}")).collect();
    for fields in [
        json!({"command": ["tritonserver"], "args": ["--a"]}),
        json!({"command": ["sh", "-c"], "args": ["vllm serve m"]}),
        json!({"image": "vllm/vllm-openai:v1"}),
    ] {
        let line = fields.get("args").cloned().unwrap_or_default();
        let asked = with(all(), fields);
        assert_eq!(asked.container().get("args").cloned().unwrap_or_default(), line);
        let mut told = expected.clone();
        told.sort();
        assert_eq!(variables(&asked), told);
        assert!(asked.said("SettingsUntold").ends_with("MODEL_QUANTIZATION, GPU_MEMORY_FRACTION, BATCH_SIZE, MAX_BATCH_DELAY."));
        let step = asked.steps().into_iter().find(|step| step.starts_with("settings + /spec/containers/0/env [")).unwrap();
        assert!(step.contains(r#"{"name":"BATCH_SIZE","value":"32"}"#), "{step}");
    }
    let own = json!({"env": [{"name": "BATCH_SIZE", "value": "mine"}]});
    assert_eq!(variables(&with(json!({"performance.ome.io/batch-size": "2"}), own)), ["BATCH_SIZE=mine"]);
}

#[test]
fn a_router_runs_no_engine_and_workers_run_the_leaders() {
    let router = with(all(), vllm(&["m"])).role(Role::Router);
    assert_eq!((args(&router), variables(&router)), (vec!["m".to_owned()], vec![]));
    let group = |role: Role| {
        let asked = ask([("runtime", runner(vllm(&["m"]))), ("group", json!({"nodes": 2})), ("settings", all())]);
        args(&asked.role(role))
    };
    assert_eq!(group(Role::Leader), group(Role::Worker));
    assert!(group(Role::Worker).contains(&"--max-model-len".to_owned()));
}

#[test]
fn nothing_that_is_said_is_nothing_that_is_done() {
    for settings in [json!({}), Value::Null, json!({"model.ome.io/other": "1"})] {
        let (without, with) = (ask([("runtime", runner(vllm(&["m"])))]), with(settings, vllm(&["m"])));
        assert_eq!(with.answer(), without.answer());
    }
    assert!(with(json!({"model.ome.io/max-tokens": 1}), vllm(&[])).failure().starts_with("settings can't be read"));
}

#[test]
fn everybody_is_told_where_in_the_cloud_he_is() {
    let settings =
        json!({"oci.ome.io/compartment-id": "ocid1.c", "oci.ome.io/region": "us-ashburn-1", "oci.ome.io/availability-domain": "AD-1"});
    let expected = ["OCI_AVAILABILITY_DOMAIN=AD-1", "OCI_COMPARTMENT_ID=ocid1.c", "OCI_REGION=us-ashburn-1"];
    for role in [Role::Engine, Role::Router, Role::Leader, Role::Worker] {
        assert_eq!(variables(&with(settings.clone(), json!({})).role(role)), expected);
    }
    let own = json!({"env": [{"name": "OCI_REGION", "value": "mine"}]});
    assert_eq!(variables(&with(json!({"oci.ome.io/region": "other"}), own)), ["OCI_REGION=mine"]);
}

#[test]
fn a_secret_is_variables_of_the_main_container_and_of_what_downloads() {
    let settings = json!({"security.ome.io/secret-ref": "credentials"});
    let secret = json!([{"secretRef": {"name": "credentials"}}]);
    for role in [Role::Engine, Role::Router, Role::Worker] {
        assert_eq!(with(settings.clone(), json!({})).role(role).container()["envFrom"], secret);
    }
    let both = json!([{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "credentials"}}]);
    assert_eq!(with(settings.clone(), json!({"envFrom": both})).container()["envFrom"], both);
    let other = json!([{"secretRef": {"name": "other"}}]);
    let sources = with(settings.clone(), json!({"envFrom": other})).container()["envFrom"].take();
    assert_eq!(sources, json!([{"secretRef": {"name": "credentials"}}, {"secretRef": {"name": "other"}}]));

    let mut runtime = runner(json!({}));
    runtime["pod"] = json!({"initContainers": [{"name": "other", "image": "o"}]});
    let model = json!({"name": "llama", "download": true, "storageUri": "s3://b/m"});
    let adapter = json!({"name": "sql", "storageUri": "s3://b/a"});
    let spec = ask([("runtime", runtime), ("model", model), ("adapter", adapter), ("settings", settings)]).spec();
    let sources = |name: &str| {
        let containers = spec["initContainers"].as_array().unwrap();
        containers.iter().find(|container| container["name"] == name).unwrap().get("envFrom").cloned()
    };
    assert_eq!((sources("model-initializer"), sources("adapter-initializer")), (Some(secret.clone()), Some(secret)));
    assert_eq!(sources("other"), None);
}

#[test]
fn a_models_limit_of_tokens_is_a_flag_where_nothing_else_says_it() {
    let args = |words: &[&str], settings: Value, tokens: Value| {
        let model = json!({"name": "llama", "storageUri": "hf://a/b", "maxTokens": tokens});
        let runtime = runner(json!({"command": ["vllm", "serve"], "args": words}));
        ask([("runtime", runtime), ("model", model), ("settings", settings)]).container()["args"].take()
    };
    assert_eq!(args(&["m"], json!({}), json!(8192)), json!(["m", "--max-model-len", "8192"]));
    assert_eq!(args(&["m"], json!({}), json!(null)), json!(["m"]));
    assert_eq!(args(&["m", "--max-model-len=4096"], json!({}), json!(8192)), json!(["m", "--max-model-len=4096"]));
    let annotated = args(&["m"], json!({"model.ome.io/max-tokens": "4096"}), json!(8192));
    assert_eq!(annotated, json!(["m", "--max-model-len", "4096"]));
    let model = json!({"name": "llama", "storageUri": "hf://a/b", "maxTokens": 8192});
    let sglang = runner(json!({"command": ["sglang", "serve"], "args": ["m"]}));
    assert_eq!(ask([("runtime", sglang), ("model", model.clone())]).container()["args"], json!(["m", "--context-length", "8192"]));
    assert_eq!(ask([("runtime", runner(json!({"args": ["m"]}))), ("model", model)]).container()["args"], json!(["m"]));
}
