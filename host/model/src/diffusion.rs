//! Parses the `model_index.json` of a diffusion pipeline.

use crate::config::{Config, is_usable};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The maximum number of stored components of a pipeline.
const MAX_COMPONENTS: usize = 64;

/// A diffusion pipeline, as `diffusionPipeline` of a model has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffusionPipeline {
    /// The class, such as FluxPipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<DiffusionComponent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_encoder: Option<DiffusionComponent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<DiffusionComponent>,
    /// The component that denoises: a transformer, or a U-Net.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transformer: Option<DiffusionComponent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vae: Option<DiffusionComponent>,
    /// All others, by the names of their folders.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_components: BTreeMap<String, DiffusionComponent>,
}

/// A component of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiffusionComponent {
    /// The library, such as diffusers.
    pub library: String,
    /// The class, such as `AutoencoderKL`.
    #[serde(rename = "type")]
    pub class: String,
}

/// A pipeline, with the folders of all its components.
pub(crate) fn parse(index: &Map<String, Value>) -> (DiffusionPipeline, Vec<String>) {
    let config = Config::new(index);
    let mut pipeline = DiffusionPipeline { class_name: config.text("_class_name").map(str::to_owned), ..DiffusionPipeline::default() };
    let mut folders = Vec::new();
    // Settings such as `requires_safety_checker` aren't pairs.
    let components = index.iter().filter_map(|(name, value)| {
        let usable = !name.starts_with('_') && !name.is_empty() && is_usable(name) && !name.contains(['/', '\\', '.']);
        Some((name, component(value)?)).filter(|_| usable)
    });
    for (name, component) in components.take(MAX_COMPONENTS) {
        folders.push(name.clone());
        let place = match name.as_str() {
            "scheduler" => &mut pipeline.scheduler,
            "text_encoder" => &mut pipeline.text_encoder,
            "tokenizer" => &mut pipeline.tokenizer,
            "transformer" => &mut pipeline.transformer,
            "unet" if pipeline.transformer.is_none() => &mut pipeline.transformer,
            "vae" => &mut pipeline.vae,
            _ => {
                pipeline.additional_components.insert(name.clone(), component);
                continue;
            }
        };
        *place = Some(component);
    }
    (pipeline, folders)
}

/// A pair of library and class. It is null for components that this model lacks.
fn component(value: &Value) -> Option<DiffusionComponent> {
    let [library, class] = value.as_array()?.as_slice() else { return None };
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty() && is_usable(text)).map(str::to_owned);
    Some(DiffusionComponent { library: text(library)?, class: text(class)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn components_have_their_places_and_absent_ones_none() {
        let index = json!({
            "_class_name": "StableDiffusionXLPipeline", "_diffusers_version": "0.19.0.dev0", "force_zeros_for_empty_prompt": true,
            "scheduler": ["diffusers", "EulerDiscreteScheduler"], "text_encoder": ["transformers", "CLIPTextModel"],
            "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"], "unet": ["diffusers", "UNet2DConditionModel"],
            "vae": ["diffusers", "AutoencoderKL"], "safety_checker": [null, null], "../evil": ["a", "b"],
        });
        let (pipeline, folders) = parse(index.as_object().unwrap());
        assert_eq!(pipeline.class_name.as_deref(), Some("StableDiffusionXLPipeline"));
        assert_eq!(pipeline.transformer.unwrap().class, "UNet2DConditionModel");
        assert_eq!(pipeline.additional_components.keys().collect::<Vec<_>>(), ["text_encoder_2"]);
        assert_eq!(folders, ["scheduler", "text_encoder", "text_encoder_2", "unet", "vae"]);
    }
}
