//! Models that consist of a language model, towers, and connectors.

use crate::{
    config::{AUDIO_PARTS, TEXT_PARTS, VISION_PARTS},
    family::{Dim, FAMILY, Factor, Family, Part, Role},
};

const fn text(family: &'static str) -> Part {
    Part { role: Role::Text, at: &TEXT_PARTS, flat: false, family, preset: None }
}

const fn vision(family: &'static str) -> Part {
    Part { role: Role::Vision, at: &VISION_PARTS, flat: false, family, preset: None }
}

/// A language model whose numbers are in a part, or in the config of the whole model.
const fn flat(family: &'static str) -> Part {
    Part { role: Role::Text, at: &TEXT_PARTS, flat: true, family, preset: None }
}

const fn named(family: &'static str, field: &'static str) -> Part {
    Part { role: Role::Vision, at: &VISION_PARTS, flat: false, family, preset: Some(field) }
}

/// Two matrices, from the tower's output to the language model.
const TWO: &[&[Factor]] =
    &[&[Factor::Vision(Dim::Hidden), Factor::Text(Dim::Hidden)], &[Factor::Text(Dim::Hidden), Factor::Text(Dim::Hidden)]];

/// The number of Janus's image words, and the number of values in each.
const IMAGE_WORDS: Factor = Factor::Field("gen_vision_config.params.image_token_size", Some(16_384));
const IMAGE_WIDTH: Factor = Factor::Field("gen_vision_config.params.n_embed", Some(8));

pub(super) const FAMILIES: &[Family] = &[
    Family {
        title: "LLaVA",
        types: &["llava", "llava_llama", "vipllava"],
        parts: &[flat("llama"), named("clip_vision_model", "mm_vision_tower")],
        extra: TWO,
        ..FAMILY
    },
    Family {
        title: "LLaVA-NeXT",
        types: &["llava_next"],
        parts: &[text("llama"), vision("clip_vision_model")],
        extra: &[TWO[0], TWO[1], &[Factor::Text(Dim::Hidden)]],
        ..FAMILY
    },
    Family {
        title: "Phi-3 vision",
        types: &["phi3_v"],
        parts: &[flat("phi3"), named("clip_vision_model", "img_processor.model_name")],
        // Four patches become one token.
        extra: &[&[Factor::Number(4), Factor::Vision(Dim::Hidden), Factor::Text(Dim::Hidden)], TWO[1]],
        ..FAMILY
    },
    Family {
        title: "Gemma 3, with vision",
        types: &["gemma3"],
        parts: &[text("gemma3_text"), vision("siglip_vision_model")],
        extra: &[TWO[0], &[Factor::Vision(Dim::Hidden)]],
        ..FAMILY
    },
    Family {
        title: "PaliGemma",
        types: &["paligemma"],
        parts: &[text("gemma"), vision("siglip_vision_model")],
        extra: &[TWO[0]],
        ..FAMILY
    },
    Family {
        title: "Mistral 3",
        types: &["mistral3"],
        parts: &[text("mistral"), vision("pixtral")],
        extra: &[&[Factor::Merge("spatial_merge_size", 2), Factor::Vision(Dim::Hidden), Factor::Vision(Dim::Hidden)], TWO[0], TWO[1]],
        ..FAMILY
    },
    Family {
        title: "Llama 3.2 vision",
        types: &["mllama"],
        parts: &[text("mllama_text_model"), vision("mllama_vision_model")],
        extra: &[
            &[Factor::VisionField("vision_output_dim", Some(7_680)), Factor::Text(Dim::Hidden)],
            // The embedding has eight more words than the head.
            &[Factor::Number(8), Factor::Text(Dim::Hidden)],
        ],
        ..FAMILY
    },
    Family {
        title: "Llama 4, with vision",
        types: &["llama4"],
        parts: &[text("llama4_text"), vision("llama4_vision_model")],
        extra: &[&[Factor::VisionField("vision_output_dim", Some(4_096)), Factor::Text(Dim::Hidden)]],
        ..FAMILY
    },
    Family { title: "Qwen2-VL", types: &["qwen2_vl"], parts: &[flat("qwen2"), vision("qwen2_vl vision")], ..FAMILY },
    Family { title: "Qwen2.5-VL", types: &["qwen2_5_vl"], parts: &[flat("qwen2"), vision("qwen2_5_vl vision")], ..FAMILY },
    Family { title: "Qwen3-VL", types: &["qwen3_vl"], parts: &[text("qwen3"), vision("qwen3_vl vision")], ..FAMILY },
    Family { title: "Qwen3-VL MoE", types: &["qwen3_vl_moe"], parts: &[text("qwen3_moe"), vision("qwen3_vl vision")], ..FAMILY },
    Family {
        title: "InternVL",
        types: &["internvl_chat"],
        parts: &[text("internlm2"), vision("intern_vit_6b")],
        extra: &[&[Factor::Number(4), Factor::Vision(Dim::Hidden), Factor::Text(Dim::Hidden)], TWO[1]],
        ..FAMILY
    },
    Family {
        title: "Kimi-VL",
        types: &["kimi_vl"],
        parts: &[text("deepseek_v3"), vision("moonvit")],
        extra: &[
            &[Factor::Number(16), Factor::Vision(Dim::Hidden), Factor::Vision(Dim::Hidden)],
            &[Factor::Number(4), Factor::Vision(Dim::Hidden), Factor::Text(Dim::Hidden)],
        ],
        ..FAMILY
    },
    Family {
        title: "DeepSeek-VL2",
        types: &["deepseek_vl_v2"],
        parts: &[text("deepseek_v2"), named("siglip_vision_model", "vision_config.model_name")],
        extra: &[&[Factor::Number(4), Factor::Vision(Dim::Hidden), Factor::Text(Dim::Hidden)], TWO[1]],
        ..FAMILY
    },
    Family {
        title: "Janus",
        types: &["multi_modality"],
        parts: &[text("llama"), named("siglip_vision_model", "vision_config.params.model_name")],
        extra: &[
            TWO[0],
            TWO[1],
            // Image generation: words of eight numbers, two matrices into the language model, and two out of it.
            &[IMAGE_WORDS, IMAGE_WIDTH],
            &[IMAGE_WIDTH, Factor::Text(Dim::Hidden)],
            TWO[1],
            TWO[1],
            &[Factor::Text(Dim::Hidden), IMAGE_WORDS],
            // The image tokenizer, VQ-16, whose layers no config describes.
            &[Factor::Number(72_000_000)],
        ],
        ..FAMILY
    },
    Family {
        title: "Qwen2-Audio",
        types: &["qwen2_audio"],
        parts: &[text("qwen2"), Part { role: Role::Other, at: &AUDIO_PARTS, flat: false, family: "whisper encoder", preset: None }],
        extra: &[&[Factor::Field("audio_config.d_model", Some(1_280)), Factor::Text(Dim::Hidden)]],
        ..FAMILY
    },
    Family {
        title: "CLIP",
        types: &["clip"],
        parts: &[text("clip_text_model"), vision("clip_vision_model")],
        extra: &[
            &[Factor::Vision(Dim::Hidden), Factor::Field("projection_dim", Some(512))],
            &[Factor::Text(Dim::Hidden), Factor::Field("projection_dim", Some(512))],
        ],
        ..FAMILY
    },
];
