//! Vision towers, which are parts of other models or separate models.

use crate::family::{BIASED, BLOCK, Block, Dim, ENDS, Ends, FAMILY, Factor, Family, Patches, QueryNorm, Switch, TOWER};

const PATCHES: Patches = Patches { bias: false, class_token: false, positions: false, pooling: Switch::No };

/// A merger of patches, as in Qwen's towers: its two matrices, without biases and norm.
const MERGER: &[&[Factor]] = &[
    &[Factor::Merge("spatial_merge_size", 2), Factor::Dim(Dim::Hidden), Factor::Merge("spatial_merge_size", 2), Factor::Dim(Dim::Hidden)],
    &[Factor::Merge("spatial_merge_size", 2), Factor::Dim(Dim::Hidden), Factor::Field("out_hidden_size", None)],
];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        title: "CLIP's vision tower",
        types: &["clip_vision_model"],
        defaults: &[(Dim::Channels, 3)],
        block: BIASED,
        ends: Ends { embedding_norm: true, patches: Some(Patches { class_token: true, positions: true, ..PATCHES }), ..TOWER },
        ..FAMILY
    },
    Family {
        title: "CLIP's text tower",
        types: &["clip_text_model"],
        defaults: &[
            (Dim::Vocabulary, 49_408),
            (Dim::Hidden, 512),
            (Dim::Width, 2_048),
            (Dim::Layers, 12),
            (Dim::Heads, 8),
            (Dim::Positions, 77),
        ],
        block: BIASED,
        ends: Ends { positions: Some(0), head: crate::family::Head::Never, ..ENDS },
        ..FAMILY
    },
    Family {
        title: "SigLIP's vision tower",
        types: &["siglip_vision_model"],
        defaults: &[(Dim::Channels, 3), (Dim::Hidden, 768), (Dim::Width, 3_072), (Dim::Layers, 12), (Dim::Heads, 12)],
        block: BIASED,
        ends: Ends {
            patches: Some(Patches { bias: true, positions: true, pooling: Switch::Field("vision_use_head", true), ..PATCHES }),
            ..TOWER
        },
        ..FAMILY
    },
    Family {
        title: "Pixtral's vision tower",
        types: &["pixtral"],
        defaults: &[
            (Dim::Channels, 3),
            (Dim::Hidden, 1_024),
            (Dim::Width, 4_096),
            (Dim::Layers, 24),
            (Dim::Heads, 16),
            (Dim::PatchSize, 16),
        ],
        block: BLOCK,
        ends: Ends { patches: Some(PATCHES), ..TOWER },
        ..FAMILY
    },
    Family {
        title: "InternViT",
        types: &["intern_vit_6b"],
        defaults: &[(Dim::Channels, 3)],
        // Two norms, and the scales of two residuals.
        block: Block {
            qkv_bias: Switch::Field("qkv_bias", false),
            query_norm: QueryNorm::Whole,
            has_query_norm: Switch::Field("qk_normalization", false),
            norm_bias: false,
            norms: 6,
            ..BIASED
        },
        ends: Ends { final_norm: false, patches: Some(Patches { bias: true, class_token: true, positions: true, ..PATCHES }), ..TOWER },
        ..FAMILY
    },
    Family {
        title: "MoonViT",
        types: &["moonvit"],
        defaults: &[(Dim::Channels, 3)],
        block: BIASED,
        ends: Ends { patches: Some(Patches { bias: true, ..PATCHES }), ..TOWER },
        extra: &[&[
            Factor::Field("init_pos_emb_height", Some(64)),
            Factor::Field("init_pos_emb_width", Some(64)),
            Factor::Dim(Dim::Hidden),
        ]],
        ..FAMILY
    },
    Family {
        title: "Llama 4's vision tower",
        types: &["llama4_vision_model"],
        defaults: &[(Dim::Channels, 3)],
        block: BIASED,
        ends: Ends { embedding_norm: true, patches: Some(Patches { class_token: true, positions: true, ..PATCHES }), ..TOWER },
        extra: &[
            &[Factor::Field("intermediate_size", None), Factor::Field("projector_input_dim", None)],
            &[Factor::Field("projector_input_dim", None), Factor::Field("projector_output_dim", None)],
        ],
        ..FAMILY
    },
    Family {
        title: "Llama 3.2's vision tower",
        types: &["mllama_vision_model"],
        defaults: &[(Dim::Channels, 3)],
        block: Block { qkv_bias: Switch::No, out_bias: Switch::No, ..BIASED },
        ends: Ends { embedding_norm: true, patches: Some(Patches { class_token: true, positions: true, ..PATCHES }), ..TOWER },
        extra: &[
            // Position embeddings of the tiles of an image, in nine layouts.
            &[Factor::Number(9), Factor::Field("max_num_tiles", Some(4)), Factor::Patches, Factor::Dim(Dim::Hidden)],
            // The additional global layers, which process all tiles.
            &[Factor::Number(4), Factor::Field("num_global_layers", Some(8)), Factor::Dim(Dim::Hidden), Factor::Dim(Dim::Hidden)],
            &[Factor::Number(2), Factor::Field("num_global_layers", Some(8)), Factor::Dim(Dim::Hidden), Factor::Dim(Dim::Width)],
        ],
        ..FAMILY
    },
    Family {
        title: "Qwen2-VL's vision tower",
        types: &["qwen2_vl vision"],
        names: &[(Dim::Hidden, &["embed_dim"])],
        defaults: &[(Dim::Channels, 3), (Dim::Hidden, 1_280), (Dim::Layers, 32), (Dim::Heads, 16), (Dim::PatchSize, 14)],
        block: Block { width_ratio: Some(("mlp_ratio", 4.0)), ..BIASED },
        ends: Ends { patches: Some(PATCHES), ..TOWER },
        extra: &[MERGER[0], &[Factor::Merge("spatial_merge_size", 2), Factor::Dim(Dim::Hidden), Factor::Field("hidden_size", Some(3_584))]],
        ..FAMILY
    },
    Family {
        title: "Qwen2.5-VL's vision tower",
        types: &["qwen2_5_vl vision"],
        defaults: &[
            (Dim::Channels, 3),
            (Dim::Hidden, 1_280),
            (Dim::Width, 3_420),
            (Dim::Layers, 32),
            (Dim::Heads, 16),
            (Dim::PatchSize, 14),
        ],
        block: Block { gated: Switch::Yes, norm_bias: false, ..BIASED },
        ends: Ends { patches: Some(PATCHES), ..TOWER },
        extra: MERGER,
        ..FAMILY
    },
    Family {
        title: "Qwen3-VL's vision tower",
        types: &["qwen3_vl vision"],
        defaults: &[(Dim::Channels, 3)],
        block: BIASED,
        ends: Ends { patches: Some(Patches { bias: true, positions: true, ..PATCHES }), ..TOWER },
        extra: &[
            MERGER[0],
            MERGER[1],
            &[
                Factor::Length("deepstack_visual_indexes"),
                Factor::Merge("spatial_merge_size", 2),
                Factor::Dim(Dim::Hidden),
                Factor::Merge("spatial_merge_size", 2),
                Factor::Dim(Dim::Hidden),
            ],
            &[
                Factor::Length("deepstack_visual_indexes"),
                Factor::Merge("spatial_merge_size", 2),
                Factor::Dim(Dim::Hidden),
                Factor::Field("out_hidden_size", None),
            ],
        ],
        ..FAMILY
    },
];
