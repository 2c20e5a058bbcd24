//! The capabilities of a model, as far as its class and config state them.

use crate::{
    config::{AUDIO_PARTS, Config, VISION_PARTS},
    families,
};
use serde::Serialize;
use std::fmt;

/// A capability, in the terms of OME's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Capability {
    TextToText,
    ImageTextToText,
    Embedding,
    Rerank,
    TextToImage,
    ImageTextToImage,
    TextToVideo,
    ImageTextToVideo,
    TextToAudio,
    ImageTextToAudio,
    VideoTextToAudio,
    AudioToText,
    AudioToAudio,
    AudioTranslation,
}

use Capability::{
    AudioToAudio, AudioToText, AudioTranslation, Embedding, ImageTextToAudio, ImageTextToImage, ImageTextToText, ImageTextToVideo, Rerank,
    TextToAudio, TextToImage, TextToText, TextToVideo, VideoTextToAudio,
};

impl Capability {
    /// The word, such as `TEXT_TO_TEXT`.
    pub fn as_str(self) -> &'static str {
        match self {
            TextToText => "TEXT_TO_TEXT",
            ImageTextToText => "IMAGE_TEXT_TO_TEXT",
            Embedding => "EMBEDDING",
            Rerank => "RERANK",
            TextToImage => "TEXT_TO_IMAGE",
            ImageTextToImage => "IMAGE_TEXT_TO_IMAGE",
            TextToVideo => "TEXT_TO_VIDEO",
            ImageTextToVideo => "IMAGE_TEXT_TO_VIDEO",
            TextToAudio => "TEXT_TO_AUDIO",
            ImageTextToAudio => "IMAGE_TEXT_TO_AUDIO",
            VideoTextToAudio => "VIDEO_TEXT_TO_AUDIO",
            AudioToText => "AUDIO_TO_TEXT",
            AudioToAudio => "AUDIO_TO_AUDIO",
            AudioTranslation => "AUDIO_TRANSLATION",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The condition of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// The class contains one of these.
    ClassContains(&'static [&'static str]),
    /// The class ends with one of these.
    ClassEnds(&'static [&'static str]),
    /// `model_type` is one of these.
    Type(&'static [&'static str]),
    /// The config has one of these fields.
    Has(&'static [&'static str]),
    /// This field is false.
    IsFalse(&'static str),
    /// Files of Sentence Transformers are next to the config.
    SentenceTransformers,
    /// An encoder with one label.
    EncoderWithOneLabel,
    /// The config has vision and audio parts.
    SeesAndHears,
    /// Whisper with languages and a decoder with all layers: turbo's wasn't trained to translate.
    TranslatesSpeech,
    /// The bare class of a text family.
    BareModel,
}

/// A rule. The first whose condition holds is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub when: When,
    /// The description in the docs, whose table a test writes.
    #[cfg_attr(not(test), allow(dead_code))]
    pub about: &'static str,
    /// The capabilities, or the reason why they are unknown.
    pub gives: Result<&'static [Capability], &'static str>,
}

const fn rule(when: When, about: &'static str, gives: &'static [Capability]) -> Rule {
    Rule { when, about, gives: Ok(gives) }
}

const fn unknown(when: When, about: &'static str, why: &'static str) -> Rule {
    Rule { when, about, gives: Err(why) }
}

/// Types of text encoders.
const ENCODERS: &[&str] = &[
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "distilbert",
    "modernbert",
    "nomic_bert",
    "deberta",
    "deberta-v2",
    "electra",
    "albert",
    "new",
    "xlm-roberta-xl",
    "ernie",
    "megatron-bert",
    "minilm",
    "gte",
    "eurobert",
];

/// Fields of models with vision.
const VISION_FIELDS: &[&str] = &[
    "vision_config",
    "vision_tower_config",
    "thinker_config.vision_config",
    "visual",
    "img_processor",
    "mm_vision_tower",
    "vision_tower",
    "vision_cfg",
    "vision_encoder_config",
];

/// The rules for models with a config.json.
pub(crate) const RULES: &[Rule] = &[
    rule(
        When::Has(&["sbert_ce_default_activation_function", "sentence_transformers.activation_fn"]),
        "a cross-encoder of Sentence Transformers, by its activation function in config.json",
        &[Rerank],
    ),
    rule(When::ClassContains(&["Rerank", "ForRanking"]), "class `*Rerank*`, `*ForRanking`", &[Rerank]),
    rule(When::EncoderWithOneLabel, "class `*ForSequenceClassification` of an encoder such as BERT, with one label", &[Rerank]),
    rule(
        When::SentenceTransformers,
        "`modules.json`, `config_sentence_transformers.json` or `1_Pooling/config.json` beside config.json, or `similarity_fn_name` in it",
        &[Embedding],
    ),
    unknown(
        When::ClassContains(&["Reward", "ForSequenceClassification", "ForProcessReward"]),
        "other class `*ForSequenceClassification`, `*Reward*`",
        "a classifier, a reward model and a reranker look alike",
    ),
    unknown(
        When::ClassContains(&[
            "ForTokenClassification",
            "ForQuestionAnswering",
            "ForMaskedLM",
            "ForImageClassification",
            "ForMultipleChoice",
        ]),
        "class `*ForTokenClassification`, `*ForQuestionAnswering`, `*ForMaskedLM`, `*ForImageClassification`",
        "OME has no word for what this class does",
    ),
    rule(
        When::ClassContains(&["Embed", "Sentence", "ColPali", "ColQwen", "ColBERT", "ColIdefics"]),
        "class `*Embed*`, `*Sentence*`, `ColPali`, `ColQwen*`",
        &[Embedding],
    ),
    rule(When::IsFalse("is_causal"), "`is_causal: false` in config.json", &[Embedding]),
    rule(
        When::Type(&["clip", "siglip", "siglip2", "chinese_clip", "align", "altclip", "clap", "clip_vision_model", "siglip_vision_model"]),
        "type `clip`, `siglip`, `clap` and their like",
        &[Embedding],
    ),
    rule(When::ClassContains(&["Omni"]), "class `*Omni*`", &[TextToAudio, ImageTextToAudio, VideoTextToAudio, AudioToText, AudioToAudio]),
    rule(
        When::TranslatesSpeech,
        "multilingual Whisper, with as many layers in the decoder as in the encoder",
        &[AudioToText, AudioTranslation],
    ),
    rule(
        When::ClassContains(&["Whisper", "ForCTC", "ForSpeechSeq2Seq", "ForSpeechToText", "ForRNNT", "ForTDT"]),
        "class `*Whisper*`, `*ForCTC`, `*ForSpeechToText`",
        &[AudioToText],
    ),
    rule(
        When::ClassContains(&["ForTextToSpeech", "ForTextToWaveform", "BarkModel", "VitsModel", "Musicgen", "ParlerTTS"]),
        "class `*ForTextToSpeech`, `BarkModel`, `VitsModel`, `Musicgen*`",
        &[TextToAudio],
    ),
    rule(When::Type(&["multi_modality", "janus"]), "type `multi_modality` (Janus)", &[ImageTextToText, TextToImage]),
    rule(When::Type(&["phi4mm", "phi4_multimodal"]), "type `phi4mm`", &[ImageTextToText, AudioToText]),
    rule(When::SeesAndHears, "parts that see and parts that hear in config.json", &[ImageTextToText, AudioToText]),
    rule(When::Has(VISION_FIELDS), "a part that sees, such as `vision_config`", &[ImageTextToText]),
    rule(When::Has(&AUDIO_PARTS), "a part that hears, such as `audio_config`", &[AudioToText]),
    rule(
        When::ClassContains(&["VLFor", "VisionFor", "VisionText", "Llava", "MiniCPMV"]),
        "class `*VLFor*`, `*Llava*`, `MiniCPMV`",
        &[ImageTextToText],
    ),
    rule(
        When::ClassEnds(&["ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForSeq2SeqLM", "ChatGLMModel"]),
        "class `*ForCausalLM`, `*LMHeadModel`, `*ForConditionalGeneration`",
        &[TextToText],
    ),
    rule(When::BareModel, "class `*Model` of a family of texts, such as `MistralModel`", &[Embedding]),
];

/// Files next to a config.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    pub sentence_transformers: bool,
}

/// The capabilities of a model, or the reason why they are unknown.
pub(crate) fn find(config: Config<'_>, hints: Hints) -> Result<&'static [Capability], String> {
    let class = config.architecture();
    match RULES.iter().find(|rule| holds(rule.when, config, class.unwrap_or_default(), hints)) {
        Some(rule) => rule.gives.map_err(|why| format!("{why}: set `modelCapabilities`")),
        None => Err(match class {
            Some(class) => format!("the class {class} doesn't state what the model can do: set `modelCapabilities`"),
            None => "config.json has no `architectures`: set `modelCapabilities`".to_owned(),
        }),
    }
}

fn holds(when: When, config: Config<'_>, class: &str, hints: Hints) -> bool {
    let has = |fields: &[&str]| fields.iter().any(|field| config.find(field).is_some_and(|value| value.as_bool() != Some(false)));
    let is_type = |types: &[&str]| config.model_type().is_some_and(|model_type| types.contains(&model_type));
    match when {
        When::ClassContains(parts) => parts.iter().any(|part| class.contains(part)),
        When::ClassEnds(ends) => ends.iter().any(|end| class.ends_with(end)),
        When::Type(types) => is_type(types),
        When::Has(fields) => has(fields),
        When::IsFalse(field) => config.flag(field) == Some(false),
        When::SentenceTransformers => hints.sentence_transformers || config.find("similarity_fn_name").is_some(),
        When::EncoderWithOneLabel => class.ends_with("ForSequenceClassification") && is_type(ENCODERS) && labels(config) == Some(1),
        When::SeesAndHears => has(VISION_FIELDS) && has(&AUDIO_PARTS),
        When::TranslatesSpeech => {
            let number = |field| config.number(field).ok().flatten();
            class.contains("Whisper")
                && number("vocab_size").is_some_and(|size| size >= 51_865)
                && number("decoder_layers").is_some_and(|layers| number("encoder_layers") == Some(layers))
        }
        When::BareModel => {
            let sees = VISION_PARTS.iter().any(|part| config.part(part).is_some());
            let is_text = config.model_type().is_some_and(|name| ENCODERS.contains(&name) || families::is_text(name));
            class.ends_with("Model") && !sees && is_text
        }
    }
}

/// The number of a classifier's labels, if its config states it.
fn labels(config: Config<'_>) -> Option<usize> {
    let listed = config.find("id2label").and_then(|labels| labels.as_object()).map(serde_json::Map::len);
    listed.or_else(|| config.number("num_labels").ok().flatten().and_then(|number| usize::try_from(number).ok()))
}

/// The capability of diffusion pipelines, by parts of their class's name. The first match is used.
pub(crate) const PIPELINES: &[(&[&str], Capability)] = &[
    (&["AudioLDM", "MusicLDM", "StableAudio", "ACEStep"], TextToAudio),
    (&["ImageToVideo", "Image2Video", "I2V", "StableVideoDiffusion", "I2VGen"], ImageTextToVideo),
    (
        &[
            "TextToVideo",
            "T2V",
            "WanPipeline",
            "HunyuanVideoPipeline",
            "CogVideoXPipeline",
            "LTXPipeline",
            "MochiPipeline",
            "AllegroPipeline",
            "AnimateDiffPipeline",
            "LattePipeline",
        ],
        TextToVideo,
    ),
    (
        &[
            "Pix2Pix",
            "Img2Img",
            "ImageToImage",
            "Inpaint",
            "ImageEdit",
            "EditPlus",
            "Kontext",
            "FluxFill",
            "FluxControl",
            "ControlNet",
            "Upscale",
            "ImageVariation",
            "Depth2Img",
            "PaintByExample",
        ],
        ImageTextToImage,
    ),
    (
        &[
            "StableDiffusion",
            "StableCascade",
            "Flux",
            "PixArt",
            "Sana",
            "Kandinsky",
            "QwenImagePipeline",
            "HunyuanDiT",
            "Lumina",
            "AuraFlow",
            "Kolors",
            "Chroma",
            "HiDream",
            "CogView",
            "LatentConsistency",
            "Wuerstchen",
            "IFPipeline",
            "ZImage",
            "OmniGen",
            "TextToImage",
        ],
        TextToImage,
    ),
];

/// The capability of a pipeline with this class, if its name states it.
pub(crate) fn for_pipeline(class: &str) -> Option<Capability> {
    let (_, capability) = PIPELINES.iter().find(|(parts, _)| parts.iter().any(|part| class.contains(part)))?;
    Some(*capability)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn found(config: &Value) -> Result<Vec<&'static str>, String> {
        find(Config::new(config.as_object().unwrap()), Hints::default()).map(|all| all.iter().map(|one| one.as_str()).collect())
    }

    #[test]
    fn words_are_those_of_the_api() {
        for rule in RULES {
            for capability in rule.gives.unwrap_or_default() {
                assert_eq!(serde_json::to_value(capability).unwrap(), capability.as_str());
            }
        }
    }

    #[test]
    fn rerankers_are_no_embeddings_and_rewards_are_unknown() {
        let one = json!({"0": "LABEL_0"});
        let reranker = json!({"architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta", "id2label": one});
        assert_eq!(found(&reranker), Ok(vec!["RERANK"]));
        let classes = json!({"architectures": ["BertForSequenceClassification"], "model_type": "bert", "id2label": {"0": "a", "1": "b"}});
        assert!(found(&classes).is_err());
        let reward = json!({"architectures": ["LlamaForSequenceClassification"], "model_type": "llama", "id2label": one});
        assert!(found(&reward).unwrap_err().contains("reward"));
        let cross = json!({"architectures": ["Qwen2ForSequenceClassification"], "sentence_transformers": {"activation_fn": "x.Sigmoid"}});
        assert_eq!(found(&cross), Ok(vec!["RERANK"]));
    }

    #[test]
    fn decoders_that_make_embeddings_are_found() {
        let decoder = json!({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"});
        assert_eq!(found(&decoder), Ok(vec!["TEXT_TO_TEXT"]));
        let beside = find(Config::new(decoder.as_object().unwrap()), Hints { sentence_transformers: true }).unwrap();
        assert_eq!(beside, [Embedding]);
        let both_ways = json!({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "is_causal": false});
        assert_eq!(found(&both_ways), Ok(vec!["EMBEDDING"]));
        assert_eq!(found(&json!({"architectures": ["MistralModel"], "model_type": "mistral"})), Ok(vec!["EMBEDDING"]));
    }

    #[test]
    fn a_class_without_a_rule_is_unknown() {
        assert!(found(&json!({"architectures": ["ViTModel"], "model_type": "vit"})).unwrap_err().contains("ViTModel"));
        assert!(found(&json!({"model_type": "llama"})).unwrap_err().contains("no `architectures`"));
        let whisper = |vocabulary: u64, layers: u64| json!({"architectures": ["WhisperForConditionalGeneration"], "vocab_size": vocabulary, "encoder_layers": 32, "decoder_layers": layers});
        assert_eq!(found(&whisper(51_866, 32)), Ok(vec!["AUDIO_TO_TEXT", "AUDIO_TRANSLATION"]));
        assert_eq!(found(&whisper(51_866, 4)), Ok(vec!["AUDIO_TO_TEXT"]));
        assert_eq!(found(&whisper(51_864, 32)), Ok(vec!["AUDIO_TO_TEXT"]));
    }

    #[test]
    fn pipelines_are_recognized_by_their_class() {
        for (class, expected) in [
            ("FluxPipeline", Some(TextToImage)),
            ("FluxKontextPipeline", Some(ImageTextToImage)),
            ("QwenImagePipeline", Some(TextToImage)),
            ("QwenImageEditPlusPipeline", Some(ImageTextToImage)),
            ("StableDiffusionXLImg2ImgPipeline", Some(ImageTextToImage)),
            ("WanPipeline", Some(TextToVideo)),
            ("WanImageToVideoPipeline", Some(ImageTextToVideo)),
            ("StableVideoDiffusionPipeline", Some(ImageTextToVideo)),
            ("StableAudioPipeline", Some(TextToAudio)),
            ("MarigoldDepthPipeline", None),
        ] {
            assert_eq!(for_pipeline(class), expected, "{class}");
        }
    }
}
