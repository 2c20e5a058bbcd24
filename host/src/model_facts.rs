//! The facts from a model's files, as the optional fields of a BaseModel's spec.

use pointsman_model::ModelFacts;
use serde_json::{Map, Value, json};

/// The fields of the spec that the files determine.
pub(crate) fn spec_fields(facts: &ModelFacts) -> Map<String, Value> {
    let max_tokens = facts.max_tokens.and_then(|tokens| i32::try_from(tokens).ok());
    let fields = [
        ("modelType", json!(facts.model_type)),
        ("modelArchitecture", json!(facts.architecture)),
        ("modelFramework", json!(facts.framework)),
        ("modelFormat", json!(facts.format)),
        ("modelParameterSize", json!(facts.parameters.as_ref().map(|parameters| &parameters.size))),
        ("quantization", json!(facts.quantization.as_ref().map(|quantization| &quantization.name))),
        ("maxTokens", json!(max_tokens)),
        ("modelCapabilities", json!(Some(&facts.capabilities).filter(|capabilities| !capabilities.is_empty()))),
    ];
    fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(field, value)| (field.to_owned(), value)).collect()
}

/// Sets the missing fields of a spec, as the leader does in a cluster.
pub(crate) fn fill_in(spec: &mut Map<String, Value>, facts: &ModelFacts) {
    let is_unset = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    for (field, value) in spec_fields(facts) {
        if spec.get(&field).is_none_or(is_unset) {
            spec.insert(field, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_model::inspect_config;

    #[test]
    fn only_what_is_unset_is_filled_in() {
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128_256, "max_position_embeddings": 131_072,
            "torch_dtype": "bfloat16", "transformers_version": "4.43.0",
        });
        let facts = inspect_config(config.as_object().unwrap().clone());
        let mut spec =
            json!({"modelType": "mine", "modelArchitecture": "", "modelCapabilities": [], "modelFramework": {"name": "transformers"}});
        fill_in(spec.as_object_mut().unwrap(), &facts);
        let expected = json!({
            "modelType": "mine", "modelArchitecture": "LlamaForCausalLM", "modelCapabilities": ["TEXT_TO_TEXT"],
            "modelFramework": {"name": "transformers"}, "modelParameterSize": "8.03B", "maxTokens": 131_072,
        });
        assert_eq!(spec, expected);
    }
}
