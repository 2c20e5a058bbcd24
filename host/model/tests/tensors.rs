//! Counts from tensors: files with the layouts of real models, each with its publisher's count.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use pointsman_model::{ModelFacts, Source};
use serde_json::json;
use std::{fs, path::Path};
use support::{
    LLAMA_1B, QWEN_7B, Tensor, count, facts, header, llama_config, qwen_config, tensor, write_json, write_shards, write_tensors,
};

/// Llama 3.2 1B, by its tensors on the hub.
const LLAMA_1B_COUNT: u64 = 1_235_814_400;
/// Qwen2.5 7B, by its tensors on the hub.
const QWEN_7B_COUNT: u64 = 7_615_616_512;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn notes(facts: &ModelFacts, about: &str) -> Vec<String> {
    facts.notes.iter().filter(|note| note.about == about).map(ToString::to_string).collect()
}

#[test]
fn a_model_in_one_file_is_counted_and_described() {
    let place = folder();
    write_json(&place.path().join("config.json"), &llama_config());
    write_tensors(&place.path().join("model.safetensors"), &LLAMA_1B.tensors("BF16"));
    let facts = facts(place.path());
    let parameters = facts.parameters.as_ref().unwrap();
    assert_eq!((parameters.count, parameters.size.as_str(), parameters.source), (LLAMA_1B_COUNT, "1.24B", Source::Tensors));
    assert_eq!(facts.notes, []);
    let shown = serde_json::to_value(&facts).unwrap();
    assert_eq!(
        shown,
        json!({
            "modelType": "llama", "architecture": "LlamaForCausalLM", "framework": {"name": "transformers", "version": "4.45.0.dev0"},
            "format": {"name": "safetensors", "version": "1.0.0"},
            "parameters": {"count": LLAMA_1B_COUNT, "size": "1.24B", "source": "tensors"},
            "dtype": "bfloat16", "maxTokens": 131_072, "capabilities": ["TEXT_TO_TEXT"], "configFile": "config.json",
        })
    );
}

#[test]
fn second_forms_of_the_same_tensors_count_once() {
    let place = folder();
    let at = |name: &str| place.path().join(name);
    write_json(&at("config.json"), &llama_config());
    write_tensors(&at("model.safetensors"), &LLAMA_1B.tensors("F32"));
    write_tensors(&at("model.fp16.safetensors"), &LLAMA_1B.tensors("F16"));
    assert_eq!(count(place.path()), LLAMA_1B_COUNT);
    // The same model with its publisher's own names, and an adapter.
    write_tensors(&at("consolidated.safetensors"), &[tensor("tok_embeddings.weight", "BF16", &[128_256, 2_048])]);
    write_tensors(&at("adapter_model.safetensors"), &[tensor("lora_A.weight", "F32", &[8, 2_048])]);
    write_tensors(&at("optimizer.safetensors"), &[tensor("state", "F32", &[8, 2_048])]);
    assert_eq!(count(place.path()), LLAMA_1B_COUNT);
    // A second set of shards in addition to the first.
    write_shards(place.path(), "model", &LLAMA_1B.tensors("BF16"), 3, &json!({}));
    assert_eq!(count(place.path()), LLAMA_1B_COUNT);
    fs::remove_file(at("model.safetensors.index.json")).unwrap();
    assert_eq!(count(place.path()), LLAMA_1B_COUNT);
}

#[test]
fn a_consolidated_file_counts_where_there_is_no_other() {
    let place = folder();
    write_json(&place.path().join("config.json"), &llama_config());
    write_tensors(&place.path().join("consolidated.safetensors"), &LLAMA_1B.tensors("BF16"));
    assert_eq!(count(place.path()), LLAMA_1B_COUNT);
}

#[test]
fn a_head_that_shares_the_embedding_and_is_stored_counts_once() {
    let place = folder();
    let mut tensors = LLAMA_1B.tensors("BF16");
    tensors.push(tensor("lm_head.weight", "BF16", &[128_256, 2_048]));
    write_json(&place.path().join("config.json"), &llama_config());
    write_tensors(&place.path().join("model.safetensors"), &tensors);
    assert_eq!(count(place.path()), LLAMA_1B_COUNT);
    let mut config = llama_config();
    config["tie_word_embeddings"] = json!(false);
    write_json(&place.path().join("config.json"), &config);
    assert_eq!(count(place.path()), LLAMA_1B_COUNT + 128_256 * 2_048);
}

#[test]
fn shards_are_those_of_the_index() {
    let place = folder();
    write_json(&place.path().join("config.json"), &qwen_config(&json!(null)));
    write_shards(place.path(), "model", &QWEN_7B.tensors("BF16"), 4, &json!({"total_size": QWEN_7B_COUNT * 2}));
    write_tensors(&place.path().join("other.safetensors"), &[tensor("other", "BF16", &[1_000, 1_000_000])]);
    assert_eq!(count(place.path()), QWEN_7B_COUNT);
}

#[test]
fn a_missing_shard_leaves_the_formula_and_a_note() {
    let place = folder();
    write_json(&place.path().join("config.json"), &qwen_config(&json!(null)));
    write_shards(place.path(), "model", &QWEN_7B.tensors("BF16"), 4, &json!({}));
    fs::remove_file(place.path().join("model-00003-of-00004.safetensors")).unwrap();
    let found = facts(place.path());
    let parameters = found.parameters.as_ref().unwrap();
    assert_eq!((parameters.source, parameters.count), (Source::Formula, QWEN_7B_COUNT));
    assert_eq!(
        notes(&found, "parameters"),
        [
            "parameters: model.safetensors.index.json lists 1 files that don't exist, such as model-00003-of-00004.safetensors: download them"
        ]
    );
    // Without the index, the names of the shards give their number.
    fs::remove_file(place.path().join("model.safetensors.index.json")).unwrap();
    let found = facts(place.path());
    assert_eq!(found.parameters.as_ref().unwrap().source, Source::Formula);
    assert_eq!(notes(&found, "parameters"), ["parameters: model: 3 of 4 shards exist: download the others"]);
}

#[test]
fn the_count_of_the_index_is_used_where_shards_are_missing() {
    let place = folder();
    write_json(&place.path().join("config.json"), &json!({"model_type": "unheard-of", "torch_dtype": "bfloat16"}));
    let index = |metadata| json!({"metadata": metadata, "weight_map": {"a": "model-00001-of-00002.safetensors"}});
    write_json(&place.path().join("model.safetensors.index.json"), &index(json!({"total_size": 14_000, "total_parameters": 7_001})));
    let found = facts(place.path()).parameters.unwrap();
    assert_eq!((found.count, found.source), (7_001, Source::Index));
    write_json(&place.path().join("model.safetensors.index.json"), &index(json!({"total_size": 14_000})));
    let found = facts(place.path()).parameters.unwrap();
    assert_eq!((found.count, found.source), (7_000, Source::Bytes));
}

/// AWQ's layout: columns packed by eight, and scales and zeros for groups of 128.
fn awq(name: &str, rows: u64, columns: u64) -> Vec<Tensor> {
    vec![
        tensor(format!("{name}.qweight"), "I32", &[columns, rows / 8]),
        tensor(format!("{name}.qzeros"), "I32", &[columns / 128, rows / 8]),
        tensor(format!("{name}.scales"), "F16", &[columns / 128, rows]),
    ]
}

/// GPTQ's layout: rows packed by eight, and the group of each.
fn gptq(name: &str, rows: u64, columns: u64) -> Vec<Tensor> {
    vec![
        tensor(format!("{name}.qweight"), "I32", &[columns / 8, rows]),
        tensor(format!("{name}.qzeros"), "I32", &[columns / 128, rows / 8]),
        tensor(format!("{name}.scales"), "F16", &[columns / 128, rows]),
        tensor(format!("{name}.g_idx"), "I32", &[columns]),
    ]
}

/// The layout of bitsandbytes with four bits.
fn bitsandbytes(name: &str, rows: u64, columns: u64) -> Vec<Tensor> {
    vec![
        tensor(format!("{name}.weight"), "U8", &[rows * columns / 2, 1]),
        tensor(format!("{name}.weight.absmax"), "U8", &[rows * columns / 64]),
        tensor(format!("{name}.weight.nested_absmax"), "F32", &[rows * columns / 64 / 256]),
        tensor(format!("{name}.weight.nested_quant_map"), "F32", &[256]),
        tensor(format!("{name}.weight.quant_map"), "F32", &[16]),
        tensor(format!("{name}.weight.quant_state.bitsandbytes__nf4"), "U8", &[80]),
    ]
}

/// The layout of compressed-tensors with four bits.
fn compressed(name: &str, rows: u64, columns: u64) -> Vec<Tensor> {
    vec![
        tensor(format!("{name}.weight_packed"), "I32", &[rows, columns / 8]),
        tensor(format!("{name}.weight_scale"), "BF16", &[rows, columns / 128]),
        tensor(format!("{name}.weight_shape"), "I64", &[2]),
    ]
}

/// NVIDIA's layout with four bits.
fn nvfp4(name: &str, rows: u64, columns: u64) -> Vec<Tensor> {
    vec![
        tensor(format!("{name}.weight"), "U8", &[rows, columns / 2]),
        tensor(format!("{name}.weight_scale"), "F8_E4M3", &[rows, columns / 16]),
        tensor(format!("{name}.weight_scale_2"), "F32", &[]),
        tensor(format!("{name}.input_scale"), "F32", &[]),
    ]
}

/// DeepSeek's layout of fp8, with a scale for each block.
fn fp8(name: &str, rows: u64, columns: u64) -> Vec<Tensor> {
    vec![
        tensor(format!("{name}.weight"), "F8_E4M3", &[rows, columns]),
        tensor(format!("{name}.weight_scale_inv"), "F32", &[rows.div_ceil(128), columns.div_ceil(128)]),
    ]
}

#[test]
fn quantized_weights_count_as_the_model_that_was_quantized() {
    type Layout = fn(&str, u64, u64) -> Vec<Tensor>;
    let group = json!({"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 128}}});
    let cases: [(Layout, serde_json::Value, &str); 6] = [
        (awq, json!({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": true}), "int4"),
        (gptq, json!({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false, "sym": true}), "int4"),
        (bitsandbytes, json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}), "nf4"),
        (compressed, json!({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": group}), "int4"),
        (nvfp4, json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), "nvfp4"),
        (fp8, json!({"quant_method": "fp8", "weight_block_size": [128, 128]}), "fp8"),
    ];
    for (layout, quantization, name) in cases {
        let place = folder();
        write_json(&place.path().join("config.json"), &qwen_config(&quantization));
        write_shards(place.path(), "model", &QWEN_7B.tensors_with("F16", layout), 2, &json!({}));
        let found = facts(place.path());
        assert_eq!(
            found.parameters.as_ref().map(|found| (found.count, found.source)),
            Some((QWEN_7B_COUNT, Source::Tensors)),
            "{quantization}"
        );
        assert_eq!(found.quantization.unwrap().name, name);
        assert_eq!(found.notes, [], "{quantization}");
    }
}

#[test]
fn quantization_that_only_nvidias_file_states_is_found() {
    let place = folder();
    write_json(&place.path().join("config.json"), &qwen_config(&json!(null)));
    write_json(
        &place.path().join("hf_quant_config.json"),
        &json!({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}),
    );
    write_tensors(&place.path().join("model.safetensors"), &QWEN_7B.tensors_with("BF16", nvfp4));
    let found = facts(place.path());
    assert_eq!(found.parameters.unwrap().count, QWEN_7B_COUNT);
    assert_eq!(found.quantization.unwrap().name, "nvfp4");
}

#[test]
fn mxfp4_blocks_count_as_gpt_oss_publishes_it() {
    let (hidden, width, experts, layers, words) = (2_880, 2_880, 32, 24, 201_088);
    let mut tensors = vec![
        tensor("model.embed_tokens.weight", "BF16", &[words, hidden]),
        tensor("lm_head.weight", "BF16", &[words, hidden]),
        tensor("model.norm.weight", "BF16", &[hidden]),
    ];
    for layer in 0..layers {
        let mut add = |name: &str, dtype, shape: &[u64]| tensors.push(tensor(format!("model.layers.{layer}.{name}"), dtype, shape));
        for (name, rows, columns) in [("q", 4_096, hidden), ("k", 512, hidden), ("v", 512, hidden), ("o", hidden, 4_096)] {
            add(&format!("self_attn.{name}_proj.weight"), "BF16", &[rows, columns]);
            add(&format!("self_attn.{name}_proj.bias"), "BF16", &[rows]);
        }
        add("self_attn.sinks", "BF16", &[64]);
        add("mlp.router.weight", "BF16", &[experts, hidden]);
        add("mlp.router.bias", "BF16", &[experts]);
        add("mlp.experts.gate_up_proj_blocks", "U8", &[experts, 2 * width, hidden / 32, 16]);
        add("mlp.experts.gate_up_proj_scales", "U8", &[experts, 2 * width, hidden / 32]);
        add("mlp.experts.gate_up_proj_bias", "BF16", &[experts, 2 * width]);
        add("mlp.experts.down_proj_blocks", "U8", &[experts, hidden, width / 32, 16]);
        add("mlp.experts.down_proj_scales", "U8", &[experts, hidden, width / 32]);
        add("mlp.experts.down_proj_bias", "BF16", &[experts, hidden]);
        add("input_layernorm.weight", "BF16", &[hidden]);
        add("post_attention_layernorm.weight", "BF16", &[hidden]);
    }
    let place = folder();
    let config = json!({
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64,
        "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "num_local_experts": 32, "vocab_size": 201_088,
        "attention_bias": true, "tie_word_embeddings": false, "quantization_config": {"quant_method": "mxfp4"},
    });
    write_json(&place.path().join("config.json"), &config);
    write_shards(place.path(), "model", &tensors, 3, &json!({}));
    let found = facts(place.path());
    assert_eq!(found.parameters.as_ref().unwrap().size, "20.91B");
    // The formula and the tensors agree to the last parameter.
    let by_formula = pointsman_model::inspect_config(config.as_object().unwrap().clone());
    assert_eq!(found.parameters.unwrap().count, by_formula.parameters.unwrap().count);
}

#[test]
fn codes_of_a_codebook_leave_the_formula() {
    let place = folder();
    write_json(&place.path().join("config.json"), &qwen_config(&json!({"quant_method": "aqlm", "nbits_per_codebook": 16})));
    write_tensors(&place.path().join("model.safetensors"), &[tensor("a.codes", "I16", &[448, 448, 1])]);
    let found = facts(place.path());
    assert_eq!(found.parameters.as_ref().map(|found| (found.count, found.source)), Some((QWEN_7B_COUNT, Source::Formula)));
    assert_eq!(found.quantization.as_ref().unwrap().name, "aqlm");
    let expected = "parameters: model.safetensors packs a.codes in a form whose shape doesn't state how many parameters it has";
    assert_eq!(notes(&found, "parameters"), [expected]);
}

#[test]
fn layers_that_only_draft_are_not_counted() {
    let place = folder();
    let mut tensors = LLAMA_1B.tensors("BF16");
    tensors.push(tensor("model.layers.16.eh_proj.weight", "BF16", &[2_048, 4_096]));
    tensors.push(tensor("mtp.fc.weight", "BF16", &[2_048, 2_048]));
    write_json(&place.path().join("config.json"), &llama_config());
    write_tensors(&place.path().join("model.safetensors"), &tensors);
    let found = facts(place.path());
    assert_eq!(found.parameters.as_ref().unwrap().count, LLAMA_1B_COUNT);
    let drafting = 2_048 * 4_096 + 2_048 * 2_048;
    assert_eq!(
        notes(&found, "parameters"),
        [format!("parameters: {drafting} more parameters are of layers that only draft tokens, and aren't counted")]
    );
}

#[test]
fn a_broken_file_is_reported_and_the_formula_stays() {
    let place = folder();
    let file = place.path().join("model.safetensors");
    write_json(&place.path().join("config.json"), &llama_config());
    let check = |bytes: &[u8], expected: &str| {
        fs::write(&file, bytes).unwrap();
        let found = facts(place.path());
        assert_eq!(found.parameters.as_ref().unwrap().source, Source::Formula);
        assert_eq!(notes(&found, "parameters"), [format!("parameters: model.safetensors {expected}")]);
    };
    check(b"", "has fewer than 8 bytes, so it has no header: download it again");
    check(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "is a pointer of Git LFS, not the file: run `git lfs pull`",
    );
    check(&u64::MAX.to_le_bytes(), "states a header of 18446744073709551615 bytes and has 8 bytes in all: download it again");
    check(&[&2_u64.to_le_bytes()[..], b"{]"].concat(), "has a broken header: key must be a string at line 1 column 2: download it again");
    let (mut cut, _) = header(&[tensor("a", "F32", &[100])]);
    cut.extend([0; 100]);
    let text = "has a broken header: a lies outside of the file's 100 bytes of data at line 1 column 89: download it again";
    check(&cut, text);
}

#[test]
fn weights_in_a_folder_below_are_found() {
    let place = folder();
    write_json(&place.path().join("config.json"), &llama_config());
    write_tensors(&place.path().join("safetensors/model.safetensors"), &LLAMA_1B.tensors("BF16"));
    assert_eq!(facts(place.path()).parameters.unwrap().source, Source::Tensors);
    // The config is also in a subfolder.
    fs::rename(place.path().join("config.json"), place.path().join("safetensors/config.json")).unwrap();
    let found = facts(place.path());
    assert_eq!((found.parameters.unwrap().count, found.config_file.as_deref()), (LLAMA_1B_COUNT, Some("safetensors/config.json")));
}

#[test]
fn without_a_usable_config_the_weights_still_count() {
    let place = folder();
    write_tensors(&place.path().join("model.safetensors"), &LLAMA_1B.tensors("BF16"));
    let found = facts(place.path());
    assert_eq!((found.parameters.unwrap().count, found.dtype.as_deref()), (LLAMA_1B_COUNT, Some("bfloat16")));
    fs::write(place.path().join("config.json"), "{\"hidden_size\": 1,\n  oops}").unwrap();
    let found = facts(place.path());
    assert_eq!(found.parameters.as_ref().unwrap().count, LLAMA_1B_COUNT);
    assert_eq!(
        notes(&found, "configFile"),
        ["configFile: config.json is not valid JSON: key must be a string at line 2 column 3: download it again, or fix it"]
    );
}

#[test]
fn a_pipeline_below_a_model_is_not_the_model() {
    let place = folder();
    write_json(&place.path().join("config.json"), &llama_config());
    write_json(&place.path().join("examples/model_index.json"), &json!({"_class_name": "FluxPipeline"}));
    assert_eq!(facts(place.path()).architecture.as_deref(), Some("LlamaForCausalLM"));
}

#[test]
fn the_count_of_the_index_is_not_that_of_packed_weights() {
    let place = folder();
    write_json(&place.path().join("config.json"), &qwen_config(&json!({"quant_method": "awq", "bits": 4})));
    let index = json!({"metadata": {"total_parameters": 1_000_000}, "weight_map": {"a": "model-00001-of-00002.safetensors"}});
    write_json(&place.path().join("model.safetensors.index.json"), &index);
    let found = facts(place.path()).parameters.unwrap();
    assert_eq!((found.count, found.source), (QWEN_7B_COUNT, Source::Formula));
}

#[test]
fn other_formats_are_named_and_not_read() {
    let place = folder();
    write_json(&place.path().join("config.json"), &json!({"model_type": "unheard-of", "torch_dtype": "float16"}));
    fs::write(place.path().join("pytorch_model.bin"), [0; 1_000]).unwrap();
    fs::write(place.path().join("training_args.bin"), [0; 1_000]).unwrap();
    fs::write(place.path().join("tokenizer.bin"), [0; 1_000]).unwrap();
    let found = facts(place.path());
    assert_eq!(found.format.as_ref().unwrap().name, "PyTorch");
    assert_eq!(found.parameters.as_ref().map(|found| (found.count, found.source)), Some((500, Source::Bytes)));
    let empty = folder();
    let found = facts(empty.path());
    assert_eq!((found.parameters, found.format), (None, None));
    assert_eq!(found.notes.len(), 2, "{:?}", found.notes);
}

#[test]
fn a_weight_that_contradicts_the_config_is_noted() {
    let place = folder();
    write_json(&place.path().join("config.json"), &qwen_config(&json!(null)));
    write_tensors(&place.path().join("model.safetensors"), &LLAMA_1B.tensors("BF16"));
    let found = facts(place.path());
    assert_eq!(found.parameters.as_ref().unwrap().count, LLAMA_1B_COUNT);
    assert!(notes(&found, "parameters")[0].contains("check that they belong together"), "{:?}", found.notes);
}

fn pipeline(place: &Path) {
    let index = json!({
        "_class_name": "StableDiffusionXLPipeline", "_diffusers_version": "0.19.0.dev0", "force_zeros_for_empty_prompt": true,
        "scheduler": ["diffusers", "EulerDiscreteScheduler"], "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"], "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"],
        "safety_checker": [null, null],
    });
    write_json(&place.join("model_index.json"), &index);
    write_json(&place.join("scheduler/scheduler_config.json"), &json!({}));
    write_json(&place.join("tokenizer/tokenizer_config.json"), &json!({}));
    write_json(&place.join("text_encoder/config.json"), &json!({"architectures": ["CLIPTextModel"], "model_type": "clip_text_model"}));
    write_tensors(&place.join("text_encoder/model.safetensors"), &[tensor("a", "F32", &[100, 10])]);
    write_tensors(&place.join("text_encoder/model.fp16.safetensors"), &[tensor("a", "F16", &[100, 10])]);
    write_json(&place.join("unet/config.json"), &json!({"_class_name": "UNet2DConditionModel"}));
    let unet: Vec<Tensor> = (0..10).map(|number| tensor(format!("b{number}"), "F16", &[20_000])).collect();
    write_shards(&place.join("unet"), "diffusion_pytorch_model", &unet, 2, &json!({}));
    write_json(&place.join("vae/config.json"), &json!({"_class_name": "AutoencoderKL"}));
    write_tensors(&place.join("vae/diffusion_pytorch_model.safetensors"), &[tensor("c", "F16", &[30])]);
    // The whole pipeline in one file, for other programs.
    write_tensors(&place.join("sd_xl_base_1.0.safetensors"), &[tensor("d", "F16", &[201_030])]);
}

#[test]
fn a_pipeline_is_the_sum_of_its_components() {
    let place = folder();
    pipeline(place.path());
    let found = facts(place.path());
    assert_eq!(found.parameters.as_ref().map(|found| (found.count, found.source)), Some((1_000 + 200_000 + 30, Source::Tensors)));
    let shown = serde_json::to_value(&found).unwrap();
    assert_eq!(shown["architecture"], "StableDiffusionXLPipeline");
    assert_eq!(shown["framework"], json!({"name": "diffusers", "version": "0.19.0.dev0"}));
    assert_eq!(shown["format"], json!({"name": "diffusers", "version": "0.19.0.dev0"}));
    assert_eq!(shown["capabilities"], json!(["TEXT_TO_IMAGE"]));
    assert_eq!(
        shown["diffusionPipeline"],
        json!({
            "className": "StableDiffusionXLPipeline",
            "scheduler": {"library": "diffusers", "type": "EulerDiscreteScheduler"},
            "textEncoder": {"library": "transformers", "type": "CLIPTextModel"},
            "tokenizer": {"library": "transformers", "type": "CLIPTokenizer"},
            "transformer": {"library": "diffusers", "type": "UNet2DConditionModel"},
            "vae": {"library": "diffusers", "type": "AutoencoderKL"},
        })
    );
    assert_eq!(found.notes, []);
}

#[test]
fn a_pipeline_without_a_component_has_no_count() {
    let place = folder();
    pipeline(place.path());
    fs::remove_dir_all(place.path().join("vae")).unwrap();
    let found = facts(place.path());
    assert_eq!(found.parameters, None);
    assert_eq!(
        notes(&found, "parameters"),
        [
            "parameters: the component vae has no files: download them",
            "parameters: not all components could be counted: set `modelParameterSize`",
        ]
    );
}
