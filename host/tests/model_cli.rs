//! `pointsman model inspect`, and models in manifests that are completed from their files.

use crate::program::{empty_folder, pointsman, text};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// The configuration of Llama 3.1 8B.
fn write_config(folder: &Path) {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128_256, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16", "transformers_version": "4.43.0", "tie_word_embeddings": false,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

#[test]
fn a_folder_is_inspected_for_people_and_for_programs() {
    let folder = empty_folder("inspected");
    write_config(&folder);
    let path = folder.to_str().unwrap();
    let shown = pointsman(&["model", "inspect", path]).output().unwrap();
    let printed = text(&shown.stdout);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    for line in [
        "architecture   LlamaForCausalLM",
        "framework      transformers 4.43.0",
        "format         unknown",
        "context        131072",
        "parameters     8.03B (8030261248), by the sizes in the config, within 2 %",
    ] {
        assert!(printed.contains(line), "{line:?} isn't in\n{printed}");
    }
    let output = pointsman(&["model", "inspect", &format!("local://{path}"), "-o", "json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = [
        ("modelArchitecture", json!("LlamaForCausalLM")),
        ("modelParameterSize", json!("8.03B")),
        ("parameters", json!(8_030_261_248_u64)),
        ("parametersFrom", json!("formula")),
        ("modelCapabilities", json!(["TEXT_TO_TEXT"])),
        ("maxTokens", json!(131_072)),
        ("dtype", json!("bfloat16")),
    ];
    for (field, value) in expected {
        assert_eq!(found[field], value, "{field}");
    }

    // Missing information is reported with a remedy.
    fs::write(folder.join("config.json"), "{\"architectures\":\n [}").unwrap();
    let output = pointsman(&["model", "inspect", path, "-o", "json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && found["parameters"].is_null() && found["modelArchitecture"].is_null(), "{found:#}");
    let note = found["notes"][0]["message"].as_str().unwrap();
    assert!(note.contains("line 2 column") && note.contains("download it again, or fix it"), "{note}");
}

/// As in the Job of a model on a claim.
#[test]
fn a_container_s_message_is_the_fields_of_the_spec_and_an_empty_folder_an_error() {
    let folder = empty_folder("claim");
    let (path, message) = (folder.to_str().unwrap(), folder.join("message"));
    let run = || pointsman(&["model", "inspect", path, "--termination-message", message.to_str().unwrap()]).output().unwrap();
    let empty = run();
    let said = text(&empty.stderr);
    assert!(!empty.status.success() && said.contains("there are no files in this folder: copy the model into it"), "{said}");
    assert!(!message.exists());
    write_config(&folder);
    let read = run();
    assert!(read.status.success() && read.stdout.is_empty(), "{}", text(&read.stderr));
    let fields: Value = serde_json::from_str(&fs::read_to_string(&message).unwrap()).unwrap();
    assert_eq!((&fields["modelArchitecture"], &fields["modelParameterSize"]), (&json!("LlamaForCausalLM"), &json!("8.03B")));
    assert!(fields.get("parameters").is_none(), "{fields}");
}

#[test]
fn what_is_no_folder_is_a_sentence() {
    for (folder, expected) in [
        ("/nowhere/model", "/nowhere/model"),
        ("pvc://models/llama", "files at pvc:// can't be reached from here: specify the folder in which they are mounted"),
        ("ftp://models/llama", "the storageUri ftp://models/llama"),
        ("http://127.0.0.1:1/llama/", "127.0.0.1"),
    ] {
        let output = pointsman(&["model", "inspect", folder]).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn manifests_are_planned_as_if_the_files_had_been_read() {
    let folder = empty_folder("filled-in");
    let files = empty_folder("filled-in-files");
    write_config(&files);
    let manifests = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": "llama"},
            "spec": {"modelFormat": {"name": "safetensors"}, "storage": {"storageUri": "hf://a/b", "path": "/raid/models/llama"}}},
        {"apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime", "metadata": {"name": "vllm"}, "spec": {
            "supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "modelFramework": {
                "name": "transformers", "version": "4.50.0", "operator": "GreaterThanOrEqual"},
                "modelArchitecture": "LlamaForCausalLM", "autoSelect": true}],
            "modelSizeRange": {"min": "7B", "max": "9B"},
            "engineConfig": {"runner": {"name": "ome-container", "image": "vllm/vllm-openai:v0.9.1"}}}},
        {"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "chat", "namespace": "ml"},
            "spec": {"model": {"name": "llama"}, "engine": {}}},
    ]});
    let file = folder.join("manifests.json");
    fs::write(&file, manifests.to_string()).unwrap();
    let (file, given) = (file.to_str().unwrap(), format!("llama={}", files.display()));
    let render = |more: &[&str]| pointsman(&[&["render", "-f", file], more].concat()).output().unwrap();
    let without = render(&[]);
    let said = [text(&without.stdout), text(&without.stderr)].concat();
    assert!(!said.contains("kind: Deployment") && said.contains("architecture"), "{said}");
    let with = render(&["--model-files", &given]);
    assert!(with.status.success() && text(&with.stdout).contains("kind: Deployment"), "{}{}", text(&with.stdout), text(&with.stderr));
    let unknown = render(&["--model-files", "lama=/nowhere"]);
    let said = text(&unknown.stderr);
    assert!(said.contains("--model-files lama=/nowhere: the files have no BaseModel or ClusterBaseModel lama"), "{said}");
    let form = text(&render(&["--model-files", "llama"]).stderr);
    assert!(form.contains("expected NAME=FOLDER"), "{form}");
}
