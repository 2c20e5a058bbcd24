//! The quantization of a model's weights, with the names by which runtimes are selected.

use crate::config::Config;
use serde::Serialize;
use serde_json::Value;

/// The quantization of weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quantization {
    /// The value of `quantization` of models and runtimes: the type of the weights, such as fp8 or int4.
    pub name: String,
    /// `quant_method`, such as awq: the method that quantized them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The number of bits of a weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<u8>,
    /// The number of weights that share a scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u64>,
}

/// How a method determines the type of the weights.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// Always this type, with this number of bits.
    Type(&'static str, u8),
    /// Integers with the number of bits in this field, or the default.
    Integers(&'static str, u8),
    /// According to bitsandbytes' own flags.
    BitsAndBytes,
    /// According to the format of compressed-tensors.
    CompressedTensors,
    /// According to NVIDIA's algorithm.
    ModelOpt,
    /// According to the name of the type in these fields, such as `int4_weight_only` or float8.
    TypeName(&'static [&'static str]),
    /// The type has the name of the method; there is no shorter name.
    Method,
}

/// All known values of `quant_method`.
pub(crate) const METHODS: &[(&str, Rule)] = &[
    ("fp8", Rule::Type("fp8", 8)),
    ("fbgemm_fp8", Rule::Type("fbgemm_fp8", 8)),
    ("mxfp4", Rule::Type("mxfp4", 4)),
    ("awq", Rule::Integers("bits", 4)),
    ("gptq", Rule::Integers("bits", 4)),
    ("auto-round", Rule::Integers("bits", 4)),
    ("intel/auto-round", Rule::Integers("bits", 4)),
    ("autoround", Rule::Integers("bits", 4)),
    ("hqq", Rule::Integers("quant_config.weight_quant_params.nbits", 4)),
    ("eetq", Rule::Type("int8", 8)),
    ("marlin", Rule::Integers("bits", 4)),
    ("bitsandbytes", Rule::BitsAndBytes),
    ("compressed-tensors", Rule::CompressedTensors),
    ("compressed_tensors", Rule::CompressedTensors),
    ("modelopt", Rule::ModelOpt),
    ("modelopt_fp4", Rule::Type("nvfp4", 4)),
    ("torchao", Rule::TypeName(&["quant_type"])),
    ("quanto", Rule::TypeName(&["weights"])),
    ("aqlm", Rule::Method),
    ("vptq", Rule::Method),
    ("spqr", Rule::Method),
    ("higgs", Rule::Method),
    ("bitnet", Rule::Method),
];

/// The quantization in a config; none without one, and a message if it is unknown.
pub(crate) fn find(config: Config<'_>) -> Result<Option<Quantization>, String> {
    let parts = ["quantization_config", "text_config.quantization_config", "llm_config.quantization_config", "compression_config"];
    let Some(part) = config.first_part(&parts) else { return Ok(None) };
    let Some(method) = part.text("quant_method").or_else(|| is_compressed(part).then_some("compressed-tensors")) else {
        return Err("`quantization_config` has no `quant_method`: set `quantization`".to_owned());
    };
    let group_size = part.number("group_size").ok().flatten().or_else(|| group(part)?.number("weights.group_size").ok().flatten());
    let group_size = group_size.filter(|size| *size > 0);
    let lower = method.to_ascii_lowercase();
    let found = |name: String, bits| Quantization { name, method: Some(method.to_owned()), bits, group_size };
    let Some((_, rule)) = METHODS.iter().find(|(known, _)| *known == lower) else {
        return Err(format!("`quant_method: {method}` is unknown: set `quantization`"));
    };
    match type_name(part, *rule) {
        Some((name, bits)) => Ok(Some(found(name, bits))),
        None if matches!(rule, Rule::Method) => Ok(Some(found(lower, bits(part, "bits")))),
        None => Err(format!("`quantization_config` of `{method}` doesn't state the type of its weights: set `quantization`")),
    }
}

fn is_compressed(part: Config<'_>) -> bool {
    part.find("config_groups").is_some()
}

/// The quantization in `hf_quant_config.json`, which NVIDIA's tool writes next to config.json.
pub(crate) fn for_modelopt(config: Config<'_>) -> Option<Quantization> {
    let algorithm = config.text("quantization.quant_algo")?;
    let (name, bits) = algorithm_type(algorithm)?;
    let group_size = config.number("quantization.group_size").ok().flatten().filter(|size| *size > 0);
    Some(Quantization { name, method: Some("modelopt".to_owned()), bits, group_size })
}

fn bits(part: Config<'_>, field: &str) -> Option<u8> {
    part.number(field).ok().flatten().and_then(|bits| u8::try_from(bits).ok()).filter(|bits| (1..=16).contains(bits))
}

fn integers(bits: u8) -> (String, Option<u8>) {
    (format!("int{bits}"), Some(bits))
}

fn type_name(part: Config<'_>, rule: Rule) -> Option<(String, Option<u8>)> {
    match rule {
        Rule::Type(name, bits) => Some((name.to_owned(), Some(bits))),
        Rule::Integers(field, default) => Some(integers(bits(part, field).unwrap_or(default))),
        Rule::BitsAndBytes => {
            let four = part.flag("load_in_4bit").or_else(|| part.flag("_load_in_4bit")) == Some(true);
            let eight = part.flag("load_in_8bit").or_else(|| part.flag("_load_in_8bit")) == Some(true);
            match part.text("bnb_4bit_quant_type") {
                Some(name @ ("nf4" | "fp4")) if four => Some((name.to_owned(), Some(4))),
                // The library's default.
                _ if four => Some(("fp4".to_owned(), Some(4))),
                _ if eight => Some(integers(8)),
                _ => None,
            }
        }
        Rule::CompressedTensors => compressed(part),
        Rule::ModelOpt => match part.text("quant_algo") {
            Some(algorithm) => algorithm_type(algorithm),
            None => compressed(part),
        },
        Rule::TypeName(fields) => {
            let field = fields.iter().find_map(|field| part.find(field))?;
            let name = field.as_str().map(str::to_owned).or_else(|| Some(Value::to_string(field)))?.to_ascii_lowercase();
            let names = [("int4", "int4"), ("uint4", "int4"), ("int8", "int8"), ("int2", "int2"), ("float8", "fp8"), ("fp8", "fp8")];
            let (_, name) = names.into_iter().find(|(part, _)| name.contains(part))?;
            Some((name.to_owned(), if name == "fp8" { Some(8) } else { name.chars().last()?.to_digit(10)?.try_into().ok() }))
        }
        Rule::Method => None,
    }
}

/// The first group of compressed-tensors, whose weights represent all groups.
fn group(part: Config<'_>) -> Option<Config<'_>> {
    part.find("config_groups")?.as_object()?.values().find_map(|group| group.as_object()).map(Config::new)
}

fn compressed(part: Config<'_>) -> Option<(String, Option<u8>)> {
    match part.text("format") {
        Some("nvfp4-pack-quantized") => return Some(("nvfp4".to_owned(), Some(4))),
        Some("mxfp4-pack-quantized") => return Some(("mxfp4".to_owned(), Some(4))),
        _ => {}
    }
    let group = group(part)?;
    let bits = bits(group, "weights.num_bits")?;
    match group.text("weights.type") {
        Some("float") => Some((format!("fp{bits}"), Some(bits))),
        Some("int") | None => Some(integers(bits)),
        Some(_) => None,
    }
}

fn algorithm_type(algorithm: &str) -> Option<(String, Option<u8>)> {
    let (name, bits) = match algorithm {
        "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" | "FP8_PB_WO" => ("fp8", 8),
        "NVFP4" | "NVFP4_AWQ" => ("nvfp4", 4),
        "MXFP4" => ("mxfp4", 4),
        "W4A16_AWQ" | "W4A8_AWQ" | "INT4_AWQ" => ("int4", 4),
        "INT8_SQ" | "W8A8_SQ_PER_CHANNEL" | "W8A16" => ("int8", 8),
        _ => return None,
    };
    Some((name.to_owned(), Some(bits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn name(quantization: &Value) -> Result<Option<(String, Option<u8>)>, String> {
        let config = json!({"quantization_config": quantization});
        let found = find(Config::new(config.as_object().unwrap()))?;
        Ok(found.map(|quantization| (quantization.name, quantization.bits)))
    }

    #[test]
    fn each_method_has_the_name_of_its_weights() {
        let group = |bits: u8, kind: &str| json!({"group_0": {"weights": {"num_bits": bits, "type": kind, "group_size": 128}}});
        for (quantization, expected, bits) in [
            (json!({"quant_method": "fp8", "weight_block_size": [128, 128]}), "fp8", 8),
            (json!({"quant_method": "fbgemm_fp8"}), "fbgemm_fp8", 8),
            (json!({"quant_method": "mxfp4"}), "mxfp4", 4),
            (json!({"quant_method": "awq", "bits": 4, "group_size": 128}), "int4", 4),
            (json!({"quant_method": "gptq", "bits": 8}), "int8", 8),
            (json!({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}), "nf4", 4),
            (json!({"quant_method": "bitsandbytes", "load_in_8bit": true}), "int8", 8),
            (json!({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": group(8, "float")}), "fp8", 8),
            (json!({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": group(4, "int")}), "int4", 4),
            (json!({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}), "nvfp4", 4),
            (json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), "nvfp4", 4),
            (json!({"quant_method": "torchao", "quant_type": "int4_weight_only"}), "int4", 4),
            (json!({"quant_method": "quanto", "weights": "float8"}), "fp8", 8),
        ] {
            assert_eq!(name(&quantization), Ok(Some((expected.to_owned(), Some(bits)))), "{quantization}");
        }
    }

    #[test]
    fn what_is_unknown_is_said() {
        assert_eq!(name(&json!({"quant_method": "new"})), Err("`quant_method: new` is unknown: set `quantization`".to_owned()));
        assert!(name(&json!({})).is_err());
        assert!(name(&json!({"quant_method": "bitsandbytes"})).is_err());
        let config = json!({"hidden_size": 1});
        assert_eq!(find(Config::new(config.as_object().unwrap())), Ok(None));
    }

    #[test]
    fn methods_are_listed_once() {
        for (at, (method, _)) in METHODS.iter().enumerate() {
            assert!(METHODS[..at].iter().all(|(other, _)| other != method), "{method}");
        }
    }
}
