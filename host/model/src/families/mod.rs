//! The table of families, and look-ups in it.

mod dense;
mod encoders;
mod experts;
mod multimodal;
mod towers;

use crate::{config::Config, family::Family};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// All families, in the order of the docs.
pub(crate) fn all() -> impl Iterator<Item = &'static Family> {
    [dense::FAMILIES, experts::FAMILIES, encoders::FAMILIES, multimodal::FAMILIES, towers::FAMILIES].into_iter().flatten()
}

/// The family with this `model_type`.
pub(crate) fn find(model_type: &str) -> Option<&'static Family> {
    all().find(|family| family.types.contains(&model_type))
}

/// Whether models of this type are language models or text encoders, without other parts.
pub(crate) fn is_text(model_type: &str) -> bool {
    let texts = [dense::FAMILIES, experts::FAMILIES, encoders::FAMILIES];
    texts.into_iter().flatten().any(|family| family.types.contains(&model_type))
}

/// The family of a class such as LlamaForCausalLM, for configs without a `model_type`. Before its ending, the class has the letters and
/// digits of the type.
pub(crate) fn for_class(class: &str) -> Option<&'static Family> {
    let stem = ["For", "LMHead", "Model"].iter().find_map(|end| class.find(end)).map_or(class, |at| &class[..at]);
    let plain = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect::<String>();
    let stem = plain(stem);
    all().find(|family| family.types.iter().any(|name| plain(name) == stem))
}

/// Types of parts that many families share. The family of the whole model determines their meaning.
pub(crate) fn is_part_type(model_type: &str) -> bool {
    matches!(model_type, "vision" | "audio" | "text") || all().any(|family| family.types.contains(&model_type))
}

/// The config of a published vision tower, for configs that contain only its name.
pub(crate) fn preset(name: &str) -> Option<Config<'static>> {
    static PRESETS: LazyLock<Vec<(&'static str, Map<String, Value>)>> = LazyLock::new(|| {
        let tower = |model_type: &str, hidden: u64, width: u64, layers: u64, image: u64, patch: u64| {
            let value = json!({
                "model_type": model_type, "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": layers,
                "num_attention_heads": 16, "image_size": image, "patch_size": patch, "num_channels": 3,
            });
            if let Value::Object(map) = value { map } else { Map::new() }
        };
        vec![
            ("clip-vit-large-patch14-336", tower("clip_vision_model", 1024, 4096, 24, 336, 14)),
            ("clip-vit-large-patch14", tower("clip_vision_model", 1024, 4096, 24, 224, 14)),
            ("siglip_large_patch16_384", tower("siglip_vision_model", 1024, 4096, 24, 384, 16)),
            ("siglip_so400m_patch14_384", tower("siglip_vision_model", 1152, 4304, 27, 384, 14)),
            ("siglip-so400m-patch14-384", tower("siglip_vision_model", 1152, 4304, 27, 384, 14)),
        ]
    });
    let name = name.rsplit('/').next().unwrap_or(name);
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, map)| Config::new(map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_type_is_of_one_family() {
        let mut seen = BTreeSet::new();
        for family in all() {
            assert!(!family.types.is_empty(), "{}", family.title);
            for name in family.types {
                assert!(seen.insert(*name), "{name} is of two families");
            }
        }
    }

    #[test]
    fn each_part_has_a_family() {
        for family in all() {
            for part in family.parts {
                assert!(find(part.family).is_some(), "{} has a part of no family, {}", family.title, part.family);
            }
        }
    }

    #[test]
    fn a_class_has_the_family_of_its_type() {
        for (class, title) in [
            ("YiForCausalLM", "Llama, Yi, Aquila, Xverse, Solar"),
            ("Qwen3MoeForCausalLM", "Qwen3 MoE"),
            ("GPT2LMHeadModel", "GPT-2"),
            ("BertModel", "BERT"),
            ("Mistral3ForConditionalGeneration", "Mistral 3"),
        ] {
            assert_eq!(for_class(class).map(|family| family.title), Some(title), "{class}");
        }
        assert!(for_class("NobodyForCausalLM").is_none());
    }
}
