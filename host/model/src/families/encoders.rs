//! Text encoders, and models with an encoder and a decoder.

use crate::family::{BIASED, BLOCK, Block, Dim, ENDS, Ends, FAMILY, Factor, Family, Head, Part, Role, Switch, TIED};

/// BERT's ends: an embedding with positions and a norm, and a pooler if the class has no head.
const BERT: Ends = Ends { positions: Some(0), embedding_norm: true, final_norm: false, pooler: true, ..TIED };

/// T5's layers: no biases, and positions inside attention.
const T5: Block = Block {
    qkv_bias: Switch::No,
    out_bias: Switch::No,
    mlp_bias: Switch::No,
    gated: Switch::Contains("feed_forward_proj", "gated"),
    ..BLOCK
};

const fn half(at: Role, family: &'static str) -> Part {
    Part { role: at, at: &[], flat: true, family, preset: None }
}

pub(super) const FAMILIES: &[Family] = &[
    Family { title: "BERT", types: &["bert"], defaults: &[(Dim::TokenTypes, 2)], block: BIASED, ends: BERT, ..FAMILY },
    Family {
        title: "RoBERTa, XLM-RoBERTa",
        types: &["roberta", "xlm-roberta", "camembert"],
        defaults: &[(Dim::TokenTypes, 1)],
        block: BIASED,
        ends: BERT,
        ..FAMILY
    },
    Family { title: "MPNet", types: &["mpnet"], block: BIASED, ends: BERT, ..FAMILY },
    Family { title: "DistilBERT", types: &["distilbert"], block: BIASED, ends: Ends { pooler: false, ..BERT }, ..FAMILY },
    Family {
        title: "NomicBERT",
        types: &["nomic_bert"],
        block: Block {
            qkv_bias: Switch::Field("qkv_proj_bias", false),
            out_bias: Switch::Field("qkv_proj_bias", false),
            mlp_bias: Switch::Field("mlp_fc1_bias", false),
            gated: Switch::Contains("activation_function", "glu"),
            ..BIASED
        },
        ends: Ends { positions: None, pooler: false, ..BERT },
        ..FAMILY
    },
    Family { title: "ModernBERT", types: &["modernbert"], block: BLOCK, ends: Ends { embedding_norm: true, ..TIED }, ..FAMILY },
    Family {
        title: "T5",
        types: &["t5", "mt5", "umt5"],
        parts: &[half(Role::Other, "t5 encoder"), half(Role::Text, "t5 decoder")],
        ..FAMILY
    },
    Family {
        title: "T5's encoder",
        types: &["t5 encoder"],
        block: T5,
        ends: Ends { embedding: false, head: Head::Never, ..ENDS },
        ..FAMILY
    },
    Family {
        title: "T5's decoder",
        types: &["t5 decoder"],
        names: &[(Dim::Layers, &["num_decoder_layers", "num_layers"])],
        block: Block { cross: true, ..T5 },
        ends: TIED,
        ..FAMILY
    },
    Family {
        title: "Whisper",
        types: &["whisper"],
        parts: &[half(Role::Other, "whisper encoder"), half(Role::Text, "whisper decoder")],
        ..FAMILY
    },
    Family {
        title: "Whisper's encoder",
        types: &["whisper encoder"],
        names: &[
            (Dim::Layers, &["encoder_layers"]),
            (Dim::Heads, &["encoder_attention_heads"]),
            (Dim::Width, &["encoder_ffn_dim"]),
            (Dim::Positions, &["max_source_positions"]),
        ],
        block: Block { key_bias: false, ..BIASED },
        ends: Ends { embedding: false, head: Head::Never, positions: Some(0), ..ENDS },
        // Two convolutions over three steps: the first on the spectrum, the second on its output.
        extra: &[
            &[Factor::Number(3), Factor::Field("num_mel_bins", Some(80)), Factor::Dim(Dim::Hidden)],
            &[Factor::Number(3), Factor::Dim(Dim::Hidden), Factor::Dim(Dim::Hidden)],
            &[Factor::Number(2), Factor::Dim(Dim::Hidden)],
        ],
        ..FAMILY
    },
    Family {
        title: "Whisper's decoder",
        types: &["whisper decoder"],
        names: &[
            (Dim::Layers, &["decoder_layers"]),
            (Dim::Heads, &["decoder_attention_heads"]),
            (Dim::Width, &["decoder_ffn_dim"]),
            (Dim::Positions, &["max_target_positions"]),
        ],
        block: Block { key_bias: false, cross: true, ..BIASED },
        ends: Ends { positions: Some(0), ..TIED },
        ..FAMILY
    },
];
