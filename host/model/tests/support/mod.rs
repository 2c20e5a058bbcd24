//! Models that tests write: safetensors files with real layouts, whose data is a hole in the file.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)] // a helper that fails ends the test

use pointsman_model::{Directory, ModelFacts, inspect};
use serde_json::{Map, Value, json};
use std::{fs, path::Path};

/// A tensor: name, type, shape.
pub(crate) type Tensor = (String, &'static str, Vec<u64>);

pub(crate) fn tensor(name: impl Into<String>, dtype: &'static str, shape: &[u64]) -> Tensor {
    (name.into(), dtype, shape.to_vec())
}

fn bits(dtype: &str) -> u64 {
    match dtype {
        "U8" | "I8" | "BOOL" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 8,
        "I16" | "F16" | "BF16" => 16,
        "I32" | "F32" => 32,
        "I64" => 64,
        other => panic!("{other}"),
    }
}

/// A header, and the number of data bytes after it.
pub(crate) fn header(tensors: &[Tensor]) -> (Vec<u8>, u64) {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut at = 0;
    for (name, dtype, shape) in tensors {
        let end = at + shape.iter().product::<u64>() * bits(dtype) / 8;
        entries.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": [at, end]}));
        at = end;
    }
    let text = serde_json::to_vec(&entries).unwrap();
    ([(text.len() as u64).to_le_bytes().as_slice(), &text].concat(), at)
}

/// Writes a safetensors file.
pub(crate) fn write_tensors(file: &Path, tensors: &[Tensor]) {
    let (header, data) = header(tensors);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, &header).unwrap();
    fs::File::options().write(true).open(file).unwrap().set_len(header.len() as u64 + data).unwrap();
}

/// Writes JSON.
pub(crate) fn write_json(file: &Path, value: &Value) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, value.to_string()).unwrap();
}

/// Writes tensors as this number of shards with their index.
pub(crate) fn write_shards(folder: &Path, stem: &str, tensors: &[Tensor], number: usize, metadata: &Value) {
    let mut map = Map::new();
    for (at, part) in tensors.chunks(tensors.len().div_ceil(number)).enumerate() {
        let name = format!("{stem}-{:05}-of-{number:05}.safetensors", at + 1);
        map.extend(part.iter().map(|(tensor, ..)| (tensor.clone(), Value::from(name.as_str()))));
        write_tensors(&folder.join(&name), part);
    }
    write_json(&folder.join(format!("{stem}.safetensors.index.json")), &json!({"metadata": metadata, "weight_map": map}));
}

/// The facts of a folder.
pub(crate) fn facts(folder: &Path) -> ModelFacts {
    inspect(&Directory::new(folder).unwrap()).unwrap()
}

/// The count of a folder.
pub(crate) fn count(folder: &Path) -> u64 {
    let facts = facts(folder);
    facts.parameters.as_ref().unwrap_or_else(|| panic!("{:?}", facts.notes)).count
}

/// A model with Llama's layout.
#[derive(Clone, Copy)]
pub(crate) struct Llama {
    pub hidden: u64,
    pub width: u64,
    pub layers: u64,
    pub queries: u64,
    pub keys: u64,
    pub words: u64,
    pub tied: bool,
    pub qkv_bias: bool,
}

/// Llama 3.2 1B.
pub(crate) const LLAMA_1B: Llama =
    Llama { hidden: 2_048, width: 8_192, layers: 16, queries: 2_048, keys: 512, words: 128_256, tied: true, qkv_bias: false };

/// Qwen2.5 7B.
pub(crate) const QWEN_7B: Llama =
    Llama { hidden: 3_584, width: 18_944, layers: 28, queries: 3_584, keys: 512, words: 152_064, tied: false, qkv_bias: true };

impl Llama {
    /// The matrices of a layer: name, rows, columns.
    fn matrices(&self) -> [(&'static str, u64, u64); 7] {
        let Self { hidden, width, queries, keys, .. } = *self;
        [
            ("self_attn.q_proj", queries, hidden),
            ("self_attn.k_proj", keys, hidden),
            ("self_attn.v_proj", keys, hidden),
            ("self_attn.o_proj", hidden, queries),
            ("mlp.gate_proj", width, hidden),
            ("mlp.up_proj", width, hidden),
            ("mlp.down_proj", hidden, width),
        ]
    }

    /// All tensors, with each matrix as `matrix` returns it.
    pub(crate) fn tensors_with(&self, dtype: &'static str, matrix: impl Fn(&str, u64, u64) -> Vec<Tensor>) -> Vec<Tensor> {
        let mut tensors = vec![tensor("model.embed_tokens.weight", dtype, &[self.words, self.hidden])];
        for layer in 0..self.layers {
            for (name, rows, columns) in self.matrices() {
                let name = format!("model.layers.{layer}.{name}");
                tensors.extend(matrix(&name, rows, columns));
                if self.qkv_bias && ["q_proj", "k_proj", "v_proj"].iter().any(|end| name.ends_with(end)) {
                    tensors.push(tensor(format!("{name}.bias"), dtype, &[rows]));
                }
            }
            for norm in ["input_layernorm", "post_attention_layernorm"] {
                tensors.push(tensor(format!("model.layers.{layer}.{norm}.weight"), dtype, &[self.hidden]));
            }
        }
        tensors.push(tensor("model.norm.weight", dtype, &[self.hidden]));
        if !self.tied {
            tensors.push(tensor("lm_head.weight", dtype, &[self.words, self.hidden]));
        }
        tensors
    }

    pub(crate) fn tensors(&self, dtype: &'static str) -> Vec<Tensor> {
        self.tensors_with(dtype, |name, rows, columns| vec![tensor(format!("{name}.weight"), dtype, &[rows, columns])])
    }
}

/// Llama 3.2 1B's config.
pub(crate) fn llama_config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128_256,
        "max_position_embeddings": 131_072, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0",
    })
}

/// Qwen2.5 7B's config with this quantization.
pub(crate) fn qwen_config(quantization: &Value) -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064,
        "max_position_embeddings": 32_768, "tie_word_embeddings": false, "torch_dtype": "float16", "quantization_config": quantization,
    })
}
