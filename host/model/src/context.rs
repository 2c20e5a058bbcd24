//! The maximum number of tokens that a model can process at once.

use crate::{
    config::{Config, TEXT_PARTS},
    limits::MAX_DIMENSION,
};

/// Fields with the context. The first that exists is used.
pub(crate) const FIELDS: &[&str] = &[
    "max_position_embeddings",
    "model_max_length",
    "max_seq_len",
    "max_seq_length",
    "n_positions",
    "n_ctx",
    "max_target_positions",
    "seq_length",
];

/// Types whose positions begin after the padding: the config states two more than there are.
const OFFSET: &[&str] = &["roberta", "xlm-roberta", "camembert", "mpnet"];

/// The context in a config, or otherwise the default of its family's class.
pub(crate) fn find(config: Config<'_>, default: Option<u64>) -> Result<Option<u64>, String> {
    // The language model's own config first: the numbers of the whole model may belong to the vision tower.
    for part in TEXT_PARTS.iter().filter_map(|part| config.part(part)).chain([config]) {
        if let Some(context) = part_context(part)? {
            return Ok(Some(context));
        }
    }
    Ok(default)
}

fn part_context(config: Config<'_>) -> Result<Option<u64>, String> {
    let stated = config.first_number(FIELDS).map_err(|unusable| unusable.0)?.filter(|context| *context > 0);
    let Some(stated) = stated else { return Ok(None) };
    if config.model_type().is_some_and(|model_type| OFFSET.contains(&model_type)) {
        return Ok(Some(stated.saturating_sub(2)));
    }
    Ok(Some(stated.max(yarn(config).unwrap_or(0))))
}

/// The context after YaRN. With other kinds of scaling, the config already states the scaled context.
fn yarn(config: Config<'_>) -> Option<u64> {
    let scaling = config.first_part(&["rope_scaling", "rope_parameters"])?;
    if scaling.text("rope_type").or_else(|| scaling.text("type")) != Some("yarn") {
        return None;
    }
    let original = scaling.number("original_max_position_embeddings").ok().flatten()?;
    let factor = scaling.find("factor")?.as_f64().filter(|factor| (1.0..=4096.0).contains(factor))?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let stretched = (original as f64 * factor) as u64;
    // A value that no model has is an error.
    Some(stretched).filter(|context| *context <= MAX_DIMENSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn context(config: &Value) -> Option<u64> {
        find(Config::new(config.as_object().unwrap()), None).unwrap()
    }

    #[test]
    fn yarn_stretches_the_context_once() {
        let yarn = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768});
        assert_eq!(context(&json!({"max_position_embeddings": 32_768, "rope_scaling": yarn})), Some(131_072));
        assert_eq!(context(&json!({"max_position_embeddings": 131_072, "rope_scaling": yarn})), Some(131_072));
        let linear = json!({"rope_type": "linear", "factor": 8.0});
        assert_eq!(context(&json!({"max_position_embeddings": 16_384, "rope_scaling": linear})), Some(16_384));
    }

    #[test]
    fn a_sliding_window_is_not_the_context() {
        assert_eq!(context(&json!({"max_position_embeddings": 32_768, "sliding_window": 4_096})), Some(32_768));
        assert_eq!(context(&json!({"sliding_window": 4_096})), None);
    }

    #[test]
    fn the_language_model_comes_first() {
        assert_eq!(context(&json!({"max_position_embeddings": 1, "text_config": {"max_position_embeddings": 131_072}})), Some(131_072));
        assert_eq!(context(&json!({"model_type": "xlm-roberta", "max_position_embeddings": 8_194})), Some(8_192));
        assert!(find(Config::new(json!({"max_position_embeddings": "many"}).as_object().unwrap()), None).is_err());
    }
}
