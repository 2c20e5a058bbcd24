//! Language models whose layers route each token to a few of many experts.

use crate::family::{BLOCK, Block, Dim, ENDS, Ends, FAMILY, Family, Mixer, QueryNorm, Switch, TIED};

pub(super) const FAMILIES: &[Family] = &[
    Family { title: "Mixtral", types: &["mixtral"], ..FAMILY },
    Family {
        title: "Llama 4",
        types: &["llama4_text"],
        names: &[(Dim::ExpertWidth, &["intermediate_size"])],
        defaults: &[(Dim::SharedExperts, 1)],
        ..FAMILY
    },
    Family {
        title: "DeepSeek-V2, DeepSeek-V3, Kimi-K2",
        types: &["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"],
        block: Block { router_bias: Switch::Contains("topk_method", "noaux"), ..BLOCK },
        ..FAMILY
    },
    Family {
        title: "Qwen2 MoE",
        types: &["qwen2_moe"],
        block: Block { qkv_bias: Switch::Yes, out_bias: Switch::No, shared_gate: true, ..BLOCK },
        ..FAMILY
    },
    Family {
        title: "Qwen3 MoE",
        types: &["qwen3_moe", "qwen3_vl_moe_text"],
        block: Block { has_query_norm: Switch::Yes, ..BLOCK },
        ..FAMILY
    },
    Family {
        title: "Qwen3-Next",
        types: &["qwen3_next"],
        block: Block { mixer: Mixer::DeltaNet, has_query_norm: Switch::Yes, query_gate: true, shared_gate: true, ..BLOCK },
        ..FAMILY
    },
    Family {
        title: "GPT-OSS",
        types: &["gpt_oss"],
        block: Block {
            qkv_bias: Switch::Field("attention_bias", true),
            out_bias: Switch::Field("attention_bias", true),
            sinks: true,
            router_bias: Switch::Yes,
            expert_bias: true,
            ..BLOCK
        },
        ..FAMILY
    },
    Family {
        title: "Phi-3.5 MoE",
        types: &["phimoe"],
        block: Block { norm_bias: true, ..BLOCK },
        ends: Ends { head_bias: Switch::Field("lm_head_bias", false), ..ENDS },
        ..FAMILY
    },
    Family { title: "DBRX", types: &["dbrx"], names: &[(Dim::Positions, &["max_seq_len"])], ..FAMILY },
    Family {
        title: "OLMoE",
        types: &["olmoe"],
        block: Block { query_norm: QueryNorm::Whole, has_query_norm: Switch::Yes, ..BLOCK },
        ..FAMILY
    },
    Family {
        title: "MiniMax-M2",
        types: &["minimax_m2"],
        block: Block {
            query_norm: QueryNorm::Whole,
            has_query_norm: Switch::Field("use_qk_norm", true),
            router_bias: Switch::Field("use_routing_bias", true),
            ..BLOCK
        },
        ..FAMILY
    },
    Family {
        title: "GLM-4.5",
        types: &["glm4_moe", "glm4v_moe_text"],
        block: Block { out_bias: Switch::No, has_query_norm: Switch::Field("use_qk_norm", false), router_bias: Switch::Yes, ..BLOCK },
        ..FAMILY
    },
    Family { title: "Granite MoE", types: &["granitemoe", "granitemoeshared"], ends: TIED, ..FAMILY },
    Family {
        title: "ERNIE 4.5",
        types: &["ernie4_5_moe", "ernie4_5"],
        block: Block {
            qkv_bias: Switch::Field("use_bias", false),
            out_bias: Switch::Field("use_bias", false),
            mlp_bias: Switch::Field("use_bias", false),
            router_bias: Switch::Field("moe_use_aux_free", true),
            ..BLOCK
        },
        ends: TIED,
        ..FAMILY
    },
    Family { title: "Ling", types: &["bailing_moe"], ..FAMILY },
    Family { title: "Jamba", types: &["jamba"], block: Block { mixer: Mixer::Mamba, ..BLOCK }, ..FAMILY },
];
