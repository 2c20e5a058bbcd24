//! Counts a model's parameters from its config, with one formula for all families.

mod layers;

use crate::{
    config::{Config, Unusable},
    families::{self, preset},
    family::{Block, Dim, Factor, Family, Head, Mixer, Part, QueryNorm, Role, Switch},
    limits::MAX_PARAMETERS,
};
use layers::{Mlp, layers};

/// A value that the formula needs but doesn't find, as the end of a sentence.
pub(crate) type Missing = String;

/// The part after the last layer, from the end of the class's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Top {
    /// One row per word.
    Words,
    /// One row per label.
    Labels,
    Nothing,
}

impl Top {
    /// The top of a class, by its name.
    pub(crate) fn for_class(class: Option<&str>) -> Self {
        let Some(class) = class else { return Self::Words };
        if ["ForSequenceClassification", "ForTokenClassification", "ForRewardModel", "RewardModel"].iter().any(|end| class.ends_with(end)) {
            Self::Labels
        } else if class.ends_with("Model") && !class.ends_with("LMHeadModel") || class.ends_with("ModelWithProjection") {
            Self::Nothing
        } else {
            Self::Words
        }
    }
}

/// The family of a config: by its `model_type`, otherwise by its class.
pub(crate) fn family(config: Config<'_>) -> Option<&'static Family> {
    match config.model_type() {
        Some(model_type) => families::find(model_type),
        None => families::for_class(config.architecture()?),
    }
}

/// Counts the parameters of a model of this family.
pub(crate) fn count(config: Config<'_>, family: &'static Family) -> Result<u64, Missing> {
    let top = Top::for_class(config.architecture());
    let total = Counter { config, family, top, root: config }.whole()?;
    let count = u64::try_from(total).ok().filter(|count| (1..=MAX_PARAMETERS).contains(count));
    count.ok_or_else(|| format!("its sizes give {total} parameters, and a model has 1 to {MAX_PARAMETERS}"))
}

/// One config with its family.
#[derive(Clone, Copy)]
pub(crate) struct Counter<'a> {
    pub config: Config<'a>,
    pub family: &'static Family,
    top: Top,
    /// The config of the whole model, which describes what all parts share.
    root: Config<'a>,
}

/// The parts that the model's other tensors refer to.
#[derive(Clone, Copy, Default)]
struct Parts<'a> {
    text: Option<Counter<'a>>,
    vision: Option<Counter<'a>>,
}

impl<'a> Counter<'a> {
    /// A number, if the config has it, or otherwise the family.
    pub(crate) fn find(self, dim: Dim) -> Result<Option<u64>, Missing> {
        let own = self.family.names.iter().find(|(of, _)| *of == dim);
        let names = own.map_or(dim.names(), |(_, names)| names);
        let default = || self.family.defaults.iter().find(|(of, _)| *of == dim).map(|(_, value)| *value);
        match self.config.first_number(names) {
            Ok(number) => Ok(number.or_else(default)),
            Err(Unusable(why)) => Err(why),
        }
    }

    /// A required number.
    pub(crate) fn need(self, dim: Dim) -> Result<u128, Missing> {
        let own = self.family.names.iter().find(|(of, _)| *of == dim);
        let names = own.map_or(dim.names(), |(_, names)| names);
        let name = names.first().copied().unwrap_or_default();
        self.find(dim)?.map(u128::from).ok_or_else(|| format!("`{name}` is missing"))
    }

    /// A number of the config by its path.
    pub(crate) fn field(self, path: &str) -> Result<Option<u128>, Missing> {
        self.config.number(path).map(|number| number.map(u128::from)).map_err(|Unusable(why)| why)
    }

    /// The same, with a default.
    pub(crate) fn field_or(self, path: &str, default: u128) -> Result<u128, Missing> {
        Ok(self.field(path)?.unwrap_or(default))
    }

    fn need_field(self, path: &str) -> Result<u128, Missing> {
        self.field(path)?.ok_or_else(|| format!("`{path}` is missing"))
    }

    fn on(self, switch: Switch) -> bool {
        match switch {
            Switch::No => false,
            Switch::Yes => true,
            Switch::Field(field, default) => self.config.flag(field).unwrap_or(default),
            Switch::Unless(field) => !self.config.flag(field).unwrap_or(false),
            Switch::Contains(field, text) => self.config.text(field).is_some_and(|value| value.contains(text)),
        }
    }

    fn whole(self) -> Result<u128, Missing> {
        if self.family.parts.is_empty() {
            return Ok(self.stack()? + self.extra(Parts { text: Some(self), vision: Some(self) })?);
        }
        let mut parts = Parts::default();
        let mut total = 0;
        for part in self.family.parts {
            let counter = self.part(part)?;
            total += counter.counted()?;
            match part.role {
                Role::Text => parts.text = Some(counter),
                Role::Vision => parts.vision = Some(counter),
                Role::Other => {}
            }
        }
        Ok(total + self.extra(parts)?)
    }

    /// Counts a part that may have parts of its own.
    fn counted(self) -> Result<u128, Missing> {
        if self.family.parts.is_empty() {
            Ok(self.stack()? + self.extra(Parts { text: Some(self), vision: Some(self) })?)
        } else {
            self.whole()
        }
    }

    /// A part with its config and family.
    fn part(self, part: &Part) -> Result<Counter<'a>, Missing> {
        let preset = part.preset.and_then(|field| self.config.text(field)).and_then(preset);
        let nested = preset.or_else(|| self.config.first_part(part.at));
        let config = match nested {
            Some(config) => config,
            None if part.flat => self.config,
            None if part.preset.is_some() => return Err(format!("`{}` names no known vision tower", part.preset.unwrap_or_default())),
            None => return Err(format!("`{}` is missing", part.at.first().copied().unwrap_or_default())),
        };
        // The type in the model's own config is that of the whole model.
        let typed = nested.and_then(Config::model_type);
        let found = typed.and_then(families::find).filter(|family| !std::ptr::eq(*family, self.family));
        let is_own =
            typed.is_none_or(|typed| families::is_part_type(typed) || self.family.types.iter().any(|whole| typed.starts_with(whole)));
        let family = match (found, families::find(part.family)) {
            (Some(family), _) => family,
            (None, Some(family)) if is_own => family,
            _ => return Err(format!("`model_type: {}` of a part is of no known family", typed.unwrap_or_default())),
        };
        // The class of the language model itself, if its config has one: InternVLChatModel has the ending of a model without a head.
        let top = match part.role {
            Role::Text => nested.and_then(Config::architecture).map_or(self.top, |class| Top::for_class(Some(class))),
            Role::Vision | Role::Other => Top::Nothing,
        };
        Ok(Counter { config, family, top, root: self.root })
    }

    fn extra(self, parts: Parts<'a>) -> Result<u128, Missing> {
        let mut total = 0_u128;
        for factors in self.family.extra {
            let mut product = 1_u128;
            for factor in *factors {
                let factor = self.factor(*factor, parts)?;
                product = product.checked_mul(factor).ok_or("its sizes are too large")?;
            }
            total = total.checked_add(product).ok_or("its sizes are too large")?;
        }
        Ok(total)
    }

    fn factor(self, factor: Factor, parts: Parts<'a>) -> Result<u128, Missing> {
        let text = || parts.text.ok_or_else(|| "the language model's config is missing".to_owned());
        let vision = || parts.vision.ok_or_else(|| "the vision tower's config is missing".to_owned());
        let or_default = |counter: Self, field: &str, default: Option<u64>| match (counter.field(field)?, default) {
            (Some(number), _) => Ok(number),
            (None, Some(default)) => Ok(u128::from(default)),
            (None, None) => Err(format!("`{field}` is missing")),
        };
        match factor {
            Factor::Number(number) => Ok(u128::from(number)),
            Factor::Dim(dim) => self.need(dim),
            Factor::Field(field, default) => or_default(self, field, default),
            Factor::Length(field) => Ok(self.config.find(field).and_then(|value| value.as_array()).map_or(0, Vec::len) as u128),
            Factor::Text(dim) => text()?.need(dim),
            Factor::Vision(dim) => vision()?.need(dim),
            Factor::VisionField(field, default) => or_default(vision()?, field, default),
            Factor::Merge(field, default) => {
                let side = vision()?.field(field)?.map_or_else(|| self.field_or(field, u128::from(default)), Ok)?;
                Ok(side * side)
            }
            Factor::Patches => vision()?.patches(),
        }
    }

    /// The patches of an image, and its class token.
    fn patches(self) -> Result<u128, Missing> {
        let (image, patch) = (self.need(Dim::ImageSize)?, self.need(Dim::PatchSize)?);
        let side = image.checked_div(patch).ok_or("`patch_size` is 0")?;
        let class_token = self.family.ends.patches.is_some_and(|patches| patches.class_token);
        Ok(side * side + u128::from(class_token))
    }

    /// The embedding, all layers and the head.
    fn stack(self) -> Result<u128, Missing> {
        if self.config.find("block_configs").is_some() {
            return Err("`block_configs` describes layers that differ from each other".to_owned());
        }
        let mut total = self.ends()?;
        let sizes = Sizes::new(self)?;
        for (layer, number) in layers(self)? {
            let mixer = match layer.mixer {
                None => 0,
                Some(Mixer::Attention) => sizes.attention,
                Some(Mixer::Mamba) => self.mamba()?,
                Some(Mixer::Mamba2) => self.mamba2()?,
                Some(Mixer::DeltaNet) => self.delta_net()?,
            };
            let mlp = match layer.mlp {
                Mlp::None => 0,
                Mlp::Dense => self.dense(self.width()?),
                Mlp::Experts => self.experts()?,
            };
            // A layer with only one of mixer and MLP has only one of the norms.
            let norms = if layer.mixer.is_some() && layer.mlp != Mlp::None { sizes.norms } else { sizes.norms.min(sizes.norm) };
            let cross = if self.family.block.cross { sizes.attention + sizes.norm } else { 0 };
            total += number * (mixer + mlp + norms + cross);
        }
        Ok(total)
    }

    fn hidden(self) -> Result<u128, Missing> {
        self.need(Dim::Hidden)
    }

    fn norm(self) -> Result<u128, Missing> {
        Ok(self.hidden()? * if self.family.block.norm_bias { 2 } else { 1 })
    }

    fn ends(self) -> Result<u128, Missing> {
        let ends = &self.family.ends;
        let hidden = self.hidden()?;
        let norm = self.norm()?;
        let mut total = 0;
        if ends.embedding {
            total += self.need(Dim::Vocabulary)? * hidden;
        }
        if let Some(more) = ends.positions {
            total += (self.need(Dim::Positions)? + u128::from(more)) * hidden;
        }
        total += self.find(Dim::TokenTypes)?.map_or(0, u128::from) * hidden;
        total += norm * (u128::from(ends.embedding_norm) + u128::from(ends.final_norm));
        if ends.pooler && self.top != Top::Words {
            total += hidden * hidden + hidden;
        }
        if let Some(patches) = ends.patches {
            let patch = self.need(Dim::PatchSize)?;
            let depth = self.field_or("temporal_patch_size", 1)?;
            total += self.need(Dim::Channels)? * patch * patch * depth * hidden;
            total += u128::from(patches.bias) * hidden + u128::from(patches.class_token) * hidden;
            if patches.positions {
                total += self.field("num_position_embeddings")?.map_or_else(|| self.patches(), Ok)? * hidden;
            }
            if self.on(patches.pooling) {
                total += hidden + 4 * hidden * hidden + 4 * hidden + norm + self.dense(self.width()?);
            }
        }
        Ok(total + self.head()?)
    }

    fn head(self) -> Result<u128, Missing> {
        let ends = &self.family.ends;
        let hidden = self.hidden()?;
        let top = if ends.head == Head::Always { Top::Words } else { self.top };
        match (ends.head, top) {
            (Head::Never, _) | (_, Top::Nothing) => Ok(0),
            (_, Top::Labels) => {
                let labels = self.root.find("id2label").and_then(|labels| labels.as_object()).map_or(2, |labels| labels.len().max(1));
                Ok(labels as u128 * hidden)
            }
            (_, Top::Words) => {
                let vocabulary = self.need(Dim::Vocabulary)?;
                let bias = if self.on(ends.head_bias) { vocabulary } else { 0 };
                Ok(bias + if self.is_tied() { 0 } else { vocabulary * hidden })
            }
        }
    }

    pub(crate) fn is_tied(self) -> bool {
        let own = self.config.flag("tie_word_embeddings");
        own.or_else(|| self.root.flag("tie_word_embeddings")).unwrap_or(self.family.ends.tied)
    }

    fn width(self) -> Result<u128, Missing> {
        let block = &self.family.block;
        if let Some(width) = self.find(Dim::Width)? {
            return Ok(u128::from(width / block.width_divisor));
        }
        let Some((field, default)) = block.width_ratio else { return self.need(Dim::Width) };
        let ratio = self.config.find(field).and_then(serde_json::Value::as_f64).unwrap_or(default);
        if !(0.0..=1024.0).contains(&ratio) {
            return Err(format!("`{field}` is not a number from 0 to 1024"));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let width = (self.hidden()? as f64 * ratio) as u128;
        Ok(width)
    }

    /// The parameters of an MLP with this width.
    fn dense(self, width: u128) -> u128 {
        let hidden = self.find(Dim::Hidden).ok().flatten().map_or(0, u128::from);
        let inner = if self.on(self.family.block.gated) { 2 } else { 1 };
        let bias = if self.on(self.family.block.mlp_bias) { inner * width + hidden } else { 0 };
        (inner + 1) * hidden * width + bias
    }

    /// The parameters of a layer's experts, with their router and the shared experts.
    fn experts(self) -> Result<u128, Missing> {
        let block = &self.family.block;
        let (hidden, experts) = (self.hidden()?, self.need(Dim::Experts)?);
        let width = self.need(Dim::ExpertWidth)?;
        let inner = if self.on(block.gated) { 2 } else { 1 };
        let bias = if block.expert_bias { inner * width + hidden } else { 0 };
        let routed = experts * ((inner + 1) * hidden * width + bias);
        let router = experts * hidden + if self.on(block.router_bias) { experts } else { 0 };
        let shared = match (self.find(Dim::SharedWidth)?, self.find(Dim::SharedExperts)?) {
            (Some(width), _) => u128::from(width),
            (None, Some(shared)) => u128::from(shared) * width,
            (None, None) => 0,
        };
        let gate = if block.shared_gate && shared > 0 { hidden } else { 0 };
        Ok(routed + router + self.dense(shared) + gate)
    }

    fn mamba(self) -> Result<u128, Missing> {
        let hidden = self.hidden()?;
        let inner = self.field("intermediate_size")?.filter(|_| self.family.block.mixer_only);
        let inner = match inner {
            Some(inner) => inner,
            None => hidden * self.first(&["expand", "mamba_expand"], 2)?,
        };
        let state = self.first(&["state_size", "mamba_d_state", "d_state"], 16)?;
        let kernel = self.first(&["conv_kernel", "mamba_d_conv", "d_conv"], 4)?;
        let automatic = hidden.div_ceil(16);
        // The rank is a number, or the word "auto".
        let rank = self.field("time_step_rank").or_else(|_| self.field("mamba_dt_rank")).unwrap_or(None);
        let rank = rank.or(self.field("mamba_dt_rank").unwrap_or(None)).unwrap_or(automatic);
        let norms = if self.family.block.mixer_only { 0 } else { rank + 2 * state };
        Ok(hidden * 2 * inner
            + inner * kernel
            + inner
            + inner * (rank + 2 * state)
            + rank * inner
            + inner
            + inner * state
            + inner
            + inner * hidden
            + norms)
    }

    fn mamba2(self) -> Result<u128, Missing> {
        let hidden = self.hidden()?;
        let heads = self.first(&["mamba_num_heads", "mamba_n_heads"], 0)?;
        let inner = match (heads, self.first(&["mamba_head_dim", "mamba_d_head"], 0)?) {
            (0, _) | (_, 0) => return Err("`mamba_num_heads` or `mamba_head_dim` is missing".to_owned()),
            (heads, width) => heads * width,
        };
        let state = self.first(&["ssm_state_size", "mamba_d_state"], 128)?;
        let groups = self.first(&["n_groups", "mamba_n_groups"], 1)?;
        let kernel = self.first(&["conv_kernel", "mamba_d_conv"], 4)?;
        let convolved = inner + 2 * groups * state;
        Ok(hidden * (inner + convolved + heads) + convolved * (kernel + 1) + 3 * heads + inner + inner * hidden)
    }

    fn delta_net(self) -> Result<u128, Missing> {
        let hidden = self.hidden()?;
        let (key_heads, value_heads) = (self.need_field("linear_num_key_heads")?, self.need_field("linear_num_value_heads")?);
        let (key_width, value_width) = (self.need_field("linear_key_head_dim")?, self.need_field("linear_value_head_dim")?);
        let kernel = self.field_or("linear_conv_kernel_dim", 4)?;
        let (keys, values) = (key_heads * key_width, value_heads * value_width);
        Ok(hidden * (2 * keys + 2 * values)
            + hidden * 2 * value_heads
            + (2 * keys + values) * kernel
            + 2 * value_heads
            + value_width
            + values * hidden)
    }

    fn first(self, names: &[&str], default: u128) -> Result<u128, Missing> {
        self.config.first_number(names).map(|number| number.map_or(default, u128::from)).map_err(|Unusable(why)| why)
    }
}

/// The sizes that are the same in each layer.
struct Sizes {
    attention: u128,
    norm: u128,
    norms: u128,
}

impl Sizes {
    fn new(counter: Counter<'_>) -> Result<Self, Missing> {
        let block = &counter.family.block;
        let attention = if block.mixer_only { 0 } else { attention(counter, block)? };
        let norm = counter.norm()?;
        let parallel = u128::from(counter.on(block.parallel));
        Ok(Self { attention, norm, norms: norm * u128::from(block.norms).saturating_sub(parallel) })
    }
}

/// The parameters of attention in any of its forms, with its query norms.
fn attention(counter: Counter<'_>, block: &Block) -> Result<u128, Missing> {
    let hidden = counter.hidden()?;
    let heads = counter.need(Dim::Heads)?;
    if let Some(rank) = counter.field("kv_lora_rank")?.filter(|_| counter.config.flag("use_mla") != Some(false)) {
        return latent_attention(counter, hidden, heads, rank);
    }
    let width = match counter.find(Dim::HeadWidth)? {
        Some(width) => u128::from(width),
        None => hidden.checked_div(heads).ok_or("`num_attention_heads` is 0")?,
    };
    let single = counter.config.flag("multi_query") == Some(true) && counter.config.flag("new_decoder_architecture") != Some(true);
    let kv_heads = if single { 1 } else { counter.find(Dim::KvHeads)?.map_or(heads, u128::from) };
    let (queries, keys) = (heads * width, kv_heads * width);
    let gates = if block.query_gate { queries } else { 0 };
    let mut total = hidden * (queries + gates + 2 * keys) + queries * hidden;
    if counter.on(block.qkv_bias) {
        total += queries + gates + keys + if block.key_bias { keys } else { 0 };
    }
    if counter.on(block.out_bias) {
        total += hidden;
    }
    if counter.on(block.has_query_norm) {
        total += match block.query_norm {
            QueryNorm::Head => 2 * width,
            QueryNorm::Whole => queries + keys,
        };
    }
    Ok(total + if block.sinks { heads } else { 0 })
}

/// DeepSeek's latent attention: queries, keys and values are projected through vectors of a low rank.
fn latent_attention(counter: Counter<'_>, hidden: u128, heads: u128, rank: u128) -> Result<u128, Missing> {
    let (plain, rotated) = (counter.need_field("qk_nope_head_dim")?, counter.need_field("qk_rope_head_dim")?);
    let value = match counter.field("v_head_dim")? {
        Some(value) => value,
        None => hidden.checked_div(heads).ok_or("`num_attention_heads` is 0")?,
    };
    let queries = heads * (plain + rotated);
    let query = match counter.field("q_lora_rank")? {
        Some(rank) => hidden * rank + rank + rank * queries,
        None => hidden * queries,
    };
    Ok(query + hidden * (rank + rotated) + rank + rank * heads * (plain + value) + heads * value * hidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{AUDIO_PARTS, TEXT_PARTS, VISION_PARTS},
        limits::{MAX_DIMENSION, MAX_LAYERS},
    };
    use serde_json::{Map, Value, json};

    /// All numbers that the formula may read, with the largest allowed value.
    fn largest() -> Map<String, Value> {
        const DIMS: [Dim; 16] = [
            Dim::Hidden,
            Dim::Heads,
            Dim::KvHeads,
            Dim::HeadWidth,
            Dim::Width,
            Dim::Experts,
            Dim::ExpertWidth,
            Dim::SharedExperts,
            Dim::SharedWidth,
            Dim::Vocabulary,
            Dim::Positions,
            Dim::TokenTypes,
            Dim::ImageSize,
            Dim::PatchSize,
            Dim::Channels,
            Dim::Layers,
        ];
        let others = [
            "embed_dim",
            "encoder_ffn_dim",
            "decoder_ffn_dim",
            "encoder_attention_heads",
            "decoder_attention_heads",
            "max_source_positions",
            "num_mel_bins",
            "expand",
            "mamba_expand",
            "state_size",
            "mamba_d_state",
            "conv_kernel",
            "mamba_d_conv",
            "time_step_rank",
            "mamba_dt_rank",
            "mamba_num_heads",
            "mamba_head_dim",
            "n_groups",
            "ssm_state_size",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_key_head_dim",
            "linear_value_head_dim",
            "linear_conv_kernel_dim",
            "spatial_merge_size",
            "out_hidden_size",
            "temporal_patch_size",
            "num_position_embeddings",
            "max_num_tiles",
            "num_global_layers",
            "vision_output_dim",
            "projector_input_dim",
            "projector_output_dim",
            "projection_dim",
            "init_pos_emb_height",
            "init_pos_emb_width",
        ];
        let mut config = Map::new();
        for name in DIMS.iter().flat_map(|dim| dim.names()).filter(|name| !name.contains('.')).chain(&others) {
            config.insert((*name).to_owned(), MAX_DIMENSION.into());
        }
        for name in Dim::Layers.names().iter().chain(&["encoder_layers", "decoder_layers", "num_decoder_layers"]) {
            config.insert((*name).to_owned(), MAX_LAYERS.into());
        }
        config.insert("patch_size".to_owned(), 1.into());
        config.insert("mlp_ratio".to_owned(), 1_024.into());
        config.insert("mm_vision_tower".to_owned(), "clip-vit-large-patch14".into());
        config
    }

    #[test]
    fn the_largest_numbers_are_refused_and_never_overflow() {
        for family in families::all() {
            for latent in [false, true] {
                let mut config = largest();
                if latent {
                    for name in ["kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"] {
                        config.insert(name.to_owned(), MAX_DIMENSION.into());
                    }
                }
                let part = Value::Object(config.clone());
                for name in TEXT_PARTS.iter().chain(&VISION_PARTS).chain(&AUDIO_PARTS).filter(|name| !name.contains('.')) {
                    config.insert((*name).to_owned(), part.clone());
                }
                config.insert("img_processor".to_owned(), json!({"model_name": "clip-vit-large-patch14"}));
                assert!(count(Config::new(&config), family).is_err(), "{}", family.title);
            }
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |config: Value| {
            let config = config.as_object().unwrap();
            count(Config::new(config), family(Config::new(config)).unwrap()).unwrap_err()
        };
        assert_eq!(error(json!({"model_type": "mistral"})), "`hidden_size` is missing");
        assert_eq!(
            error(json!({"model_type": "mistral", "hidden_size": "large"})),
            "`hidden_size` is not a whole number from 0 to 16777216"
        );
        assert_eq!(error(json!({"model_type": "mistral3"})), "`text_config` is missing");
        assert_eq!(error(json!({"model_type": "llava", "mm_vision_tower": "mine"})), "`mm_vision_tower` names no known vision tower");
        let nested = json!({"model_type": "mistral3", "text_config": {"model_type": "unheard-of"}});
        assert_eq!(error(nested), "`model_type: unheard-of` of a part is of no known family");
        let odd = json!({"model_type": "llama", "block_configs": []});
        assert_eq!(error(odd), "`block_configs` describes layers that differ from each other");
        let many = json!({"model_type": "llama", "num_hidden_layers": 5_000});
        assert_eq!(error(many), "it has more than 4096 layers");
    }
}
