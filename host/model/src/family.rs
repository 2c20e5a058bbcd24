//! The description of a model family as data: how its layers are built, as far as the config doesn't describe it.

/// A number that the formula needs. The usual names apply to all families; a family can add others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dim {
    Hidden,
    Layers,
    Heads,
    KvHeads,
    HeadWidth,
    /// The width of a dense MLP.
    Width,
    Experts,
    ExpertWidth,
    SharedExperts,
    /// The width of all shared experts together.
    SharedWidth,
    Vocabulary,
    Positions,
    TokenTypes,
    ImageSize,
    PatchSize,
    Channels,
}

impl Dim {
    /// The names in configs, most specific first.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Hidden => &["hidden_size", "d_model", "n_embd", "dim", "width"],
            Self::Layers => &["num_hidden_layers", "num_layers", "n_layers", "n_layer", "depth", "layers"],
            Self::Heads => &["num_attention_heads", "n_heads", "n_head", "num_heads", "attention_heads", "heads"],
            Self::KvHeads => &["num_key_value_heads", "num_kv_heads", "attn_config.kv_n_heads", "multi_query_group_num"],
            Self::HeadWidth => &["head_dim", "kv_channels", "attention_head_dim", "d_kv"],
            Self::Width => &[
                "intermediate_size_mlp",
                "intermediate_size",
                "ffn_hidden_size",
                "ffn_config.ffn_hidden_size",
                "ff_intermediate_size",
                "ffn_dim",
                "d_ff",
                "n_inner",
                "hidden_dim",
            ],
            Self::Experts => &[
                "n_routed_experts",
                "num_experts",
                "num_local_experts",
                "moe_num_experts",
                "ffn_config.moe_num_experts",
                "num_routed_experts",
            ],
            Self::ExpertWidth => &["moe_intermediate_size", "expert_ffn_hidden_size", "ffn_config.ffn_hidden_size", "intermediate_size"],
            Self::SharedExperts => &["n_shared_experts", "num_shared_experts", "moe_num_shared_experts"],
            Self::SharedWidth => &["shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"],
            Self::Vocabulary => &["padded_vocab_size", "vocab_size"],
            Self::Positions => &["max_position_embeddings", "n_positions", "max_target_positions"],
            Self::TokenTypes => &["type_vocab_size"],
            Self::ImageSize => &["image_size"],
            Self::PatchSize => &["patch_size"],
            Self::Channels => &["num_channels", "in_channels", "in_chans"],
        }
    }
}

/// Whether something exists in a model.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Switch {
    No,
    Yes,
    /// As in this field, or this default if the config lacks it.
    Field(&'static str, bool),
    /// Yes, unless this field is true; absent means false.
    Unless(&'static str),
    /// Yes, if this field contains the text.
    Contains(&'static str, &'static str),
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueryNorm {
    /// One vector for all heads.
    Head,
    /// A vector for each head.
    Whole,
}

/// The component that mixes tokens in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixer {
    Attention,
    /// The selective state space of Mamba.
    Mamba,
    /// The state space of Mamba 2, with heads.
    Mamba2,
    /// Linear attention with a gated delta rule.
    DeltaNet,
}

/// The layers of a family.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(crate) struct Block {
    /// The mixer of layers that the config doesn't describe as attention.
    pub mixer: Mixer,
    /// Whether all layers have only that mixer, without an MLP.
    pub mixer_only: bool,
    pub qkv_bias: Switch,
    /// Whether keys also have a bias if queries and values have one.
    pub key_bias: bool,
    pub out_bias: Switch,
    pub query_norm: QueryNorm,
    pub has_query_norm: Switch,
    /// Whether queries have a gate of the same size.
    pub query_gate: bool,
    /// Whether each head has a number that absorbs attention.
    pub sinks: bool,
    /// Whether each layer also attends to an encoder.
    pub cross: bool,
    /// Whether the MLP has three matrices instead of two.
    pub gated: Switch,
    pub mlp_bias: Switch,
    /// The divisor of the width in the config.
    pub width_divisor: u64,
    /// The field with the ratio of the width to the hidden size, and its default, for configs without a width.
    pub width_ratio: Option<(&'static str, f64)>,
    pub router_bias: Switch,
    pub expert_bias: bool,
    /// Whether the shared experts have a gate.
    pub shared_gate: bool,
    /// Vectors of a layer, such as norms and the scales of residuals.
    pub norms: u64,
    pub norm_bias: bool,
    /// Whether parallel residuals remove one norm, and the field that enables them.
    pub parallel: Switch,
}

/// The parts of a model before and after its layers.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(crate) struct Ends {
    /// Whether it has its own embedding.
    pub embedding: bool,
    /// Whether the head shares the embedding, if the config doesn't specify it.
    pub tied: bool,
    pub head: Head,
    pub head_bias: Switch,
    /// The number of position embeddings in addition to the config's number; None without position embeddings.
    pub positions: Option<u64>,
    pub embedding_norm: bool,
    pub final_norm: bool,
    pub pooler: bool,
    /// The patches of an image, if it begins with them.
    pub patches: Option<Patches>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// If the class has one.
    ByClass,
    Always,
    Never,
}

/// The conversion of an image to vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patches {
    pub bias: bool,
    /// Whether the whole image has its own vector.
    pub class_token: bool,
    /// Whether each patch has a position embedding.
    pub positions: bool,
    /// Whether the tower ends with attention pooling.
    pub pooling: Switch,
}

/// A factor of an additional tensor's size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Factor {
    Number(u64),
    Dim(Dim),
    /// A number of this config, or the default.
    Field(&'static str, Option<u64>),
    /// The length of a list in this config.
    Length(&'static str),
    /// A dimension of the language model, for tensors of the whole model.
    Text(Dim),
    /// A dimension of the vision tower.
    Vision(Dim),
    /// A number of the vision tower's config, or the default.
    VisionField(&'static str, Option<u64>),
    /// The number of the vision tower's patches per token.
    Merge(&'static str, u64),
    /// The patches of an image, and its class token.
    Patches,
}

/// A part of a model that consists of parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub role: Role,
    /// The paths of its config; the first that exists is used.
    pub at: &'static [&'static str],
    /// Whether its numbers are in the config of the whole model if there is no such part.
    pub flat: bool,
    /// The family that is used if its config has no `model_type`, or one without a family.
    pub family: &'static str,
    /// The field with the name of a published tower, which replaces a config.
    pub preset: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Text,
    Vision,
    Other,
}

/// A family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    /// Its usual name.
    pub title: &'static str,
    /// The values of `model_type`.
    pub types: &'static [&'static str],
    /// Names of numbers that differ from the usual ones.
    pub names: &'static [(Dim, &'static [&'static str])],
    /// Numbers that configs may omit, with the defaults of the library's class.
    pub defaults: &'static [(Dim, u64)],
    pub block: Block,
    pub ends: Ends,
    /// Its parts, if it consists of more than layers.
    pub parts: &'static [Part],
    /// Tensors in addition to its layers and parts, each as the factors of its size.
    pub extra: &'static [&'static [Factor]],
}

/// Llama's layers. Others are described by their differences from these.
pub(crate) const BLOCK: Block = Block {
    mixer: Mixer::Attention,
    mixer_only: false,
    qkv_bias: Switch::Field("attention_bias", false),
    key_bias: true,
    out_bias: Switch::Field("attention_bias", false),
    query_norm: QueryNorm::Head,
    has_query_norm: Switch::No,
    query_gate: false,
    sinks: false,
    cross: false,
    gated: Switch::Yes,
    mlp_bias: Switch::Field("mlp_bias", false),
    width_divisor: 1,
    width_ratio: None,
    router_bias: Switch::No,
    expert_bias: false,
    shared_gate: false,
    norms: 2,
    norm_bias: false,
    parallel: Switch::No,
};

/// Layers with a bias everywhere, as in GPT-NeoX and BERT.
pub(crate) const BIASED: Block =
    Block { qkv_bias: Switch::Yes, out_bias: Switch::Yes, gated: Switch::No, mlp_bias: Switch::Yes, norm_bias: true, ..BLOCK };

/// Llama's ends.
pub(crate) const ENDS: Ends = Ends {
    embedding: true,
    tied: false,
    head: Head::ByClass,
    head_bias: Switch::No,
    positions: None,
    embedding_norm: false,
    final_norm: true,
    pooler: false,
    patches: None,
};

/// Ends whose head shares the embedding, which is the library's default.
pub(crate) const TIED: Ends = Ends { tied: true, ..ENDS };

/// Ends of a vision tower.
pub(crate) const TOWER: Ends = Ends { embedding: false, head: Head::Never, ..ENDS };

/// Llama.
pub(crate) const FAMILY: Family =
    Family { title: "Llama", types: &["llama"], names: &[], defaults: &[], block: BLOCK, ends: ENDS, parts: &[], extra: &[] };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_have_no_doubles() {
        for dim in [Dim::Hidden, Dim::Layers, Dim::Heads, Dim::Width, Dim::Experts] {
            let mut names = dim.names().to_vec();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), dim.names().len(), "{dim:?}");
        }
    }
}
