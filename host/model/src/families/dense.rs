//! Language models with identical layers and without experts.

use crate::family::{BIASED, BLOCK, Block, Dim, ENDS, Ends, FAMILY, Family, Head, Mixer, QueryNorm, Switch, TIED};

/// GPT-2's layers: biases everywhere, and a width of four times the hidden size.
const GPT: Block = Block { width_ratio: Some(("n_inner_ratio", 4.0)), ..BIASED };

/// GPT-J's layers: attention and MLP in parallel, after one norm.
const GPTJ: Block = Block { qkv_bias: Switch::No, out_bias: Switch::No, norms: 1, ..GPT };

pub(super) const FAMILIES: &[Family] = &[
    FAMILY_LLAMA,
    Family { title: "Mistral", types: &["mistral", "ministral"], ..FAMILY },
    Family { title: "Baichuan", types: &["baichuan"], ..FAMILY },
    Family { title: "EXAONE", types: &["exaone"], ..FAMILY },
    Family { title: "EXAONE 4", types: &["exaone4"], block: Block { has_query_norm: Switch::Yes, ..BLOCK }, ..FAMILY },
    Family { title: "Apertus", types: &["apertus"], block: Block { gated: Switch::No, has_query_norm: Switch::Yes, ..BLOCK }, ..FAMILY },
    Family { title: "SmolLM3, MiniCPM, MiniCPM3", types: &["smollm3", "minicpm", "minicpm3"], ends: TIED, ..FAMILY },
    Family {
        title: "InternLM2",
        types: &["internlm2"],
        block: Block { qkv_bias: Switch::Field("bias", false), out_bias: Switch::Field("bias", false), ..BLOCK },
        ..FAMILY
    },
    Family { title: "Granite", types: &["granite"], ..FAMILY },
    Family {
        title: "Seed-OSS",
        types: &["seed_oss"],
        block: Block { qkv_bias: Switch::Field("attention_bias", true), out_bias: Switch::Field("attention_out_bias", false), ..BLOCK },
        ..FAMILY
    },
    Family {
        title: "Qwen",
        types: &["qwen"],
        block: Block { qkv_bias: Switch::Yes, out_bias: Switch::No, width_divisor: 2, ..BLOCK },
        ..FAMILY
    },
    Family {
        title: "Qwen2",
        types: &["qwen2"],
        defaults: &[
            (Dim::Hidden, 4_096),
            (Dim::Width, 22_016),
            (Dim::Layers, 32),
            (Dim::Heads, 32),
            (Dim::Vocabulary, 151_936),
            (Dim::Positions, 32_768),
        ],
        block: Block { qkv_bias: Switch::Yes, out_bias: Switch::No, ..BLOCK },
        ..FAMILY
    },
    Family { title: "Qwen3", types: &["qwen3", "qwen3_vl_text"], block: Block { has_query_norm: Switch::Yes, ..BLOCK }, ..FAMILY },
    Family { title: "Gemma", types: &["gemma"], defaults: &[(Dim::HeadWidth, 256)], ends: TIED, ..FAMILY },
    Family {
        title: "Gemma 2",
        types: &["gemma2"],
        defaults: &[(Dim::HeadWidth, 256)],
        block: Block { norms: 4, ..BLOCK },
        ends: TIED,
        ..FAMILY
    },
    Family {
        title: "Gemma 3",
        types: &["gemma3_text"],
        defaults: &[
            (Dim::Vocabulary, 262_208),
            (Dim::Hidden, 2_304),
            (Dim::Width, 9_216),
            (Dim::Layers, 26),
            (Dim::Heads, 8),
            (Dim::KvHeads, 4),
            (Dim::HeadWidth, 256),
            (Dim::Positions, 131_072),
        ],
        block: Block { norms: 4, has_query_norm: Switch::Yes, ..BLOCK },
        ends: TIED,
        ..FAMILY
    },
    Family {
        title: "Phi",
        types: &["phi", "phi-msft"],
        block: Block { norms: 1, ..BIASED },
        ends: Ends { head_bias: Switch::Yes, ..ENDS },
        ..FAMILY
    },
    Family { title: "Phi-3, Phi-4", types: &["phi3"], ..FAMILY },
    Family { title: "Phi-3 small", types: &["phi3small"], block: Block { gated: Switch::Yes, ..BIASED }, ends: TIED, ..FAMILY },
    Family {
        title: "Cohere Command",
        types: &["cohere"],
        block: Block { norms: 1, query_norm: QueryNorm::Whole, has_query_norm: Switch::Field("use_qk_norm", false), ..BLOCK },
        ends: TIED,
        ..FAMILY
    },
    Family { title: "Cohere Command 2", types: &["cohere2"], block: Block { norms: 1, ..BLOCK }, ends: TIED, ..FAMILY },
    Family {
        title: "ChatGLM",
        types: &["chatglm"],
        block: Block {
            qkv_bias: Switch::Field("add_qkv_bias", true),
            out_bias: Switch::Field("add_bias_linear", false),
            mlp_bias: Switch::Field("add_bias_linear", false),
            ..BLOCK
        },
        ends: Ends { head: Head::Always, ..ENDS },
        ..FAMILY
    },
    Family {
        title: "GLM",
        types: &["glm"],
        block: Block { qkv_bias: Switch::Field("attention_bias", true), out_bias: Switch::No, ..BLOCK },
        ..FAMILY
    },
    Family {
        title: "GLM-4",
        types: &["glm4"],
        block: Block { qkv_bias: Switch::Field("attention_bias", true), out_bias: Switch::No, norms: 4, ..BLOCK },
        ..FAMILY
    },
    Family { title: "OLMo", types: &["olmo"], block: Block { norms: 0, ..BLOCK }, ends: Ends { final_norm: false, ..ENDS }, ..FAMILY },
    Family {
        title: "OLMo 2",
        types: &["olmo2", "olmo3"],
        block: Block { query_norm: QueryNorm::Whole, has_query_norm: Switch::Yes, ..BLOCK },
        ..FAMILY
    },
    Family {
        title: "StableLM",
        types: &["stablelm", "stablelm_epoch"],
        block: Block {
            qkv_bias: Switch::Field("use_qkv_bias", false),
            out_bias: Switch::No,
            query_norm: QueryNorm::Whole,
            has_query_norm: Switch::Field("qk_layernorm", false),
            norm_bias: true,
            parallel: Switch::Field("use_parallel_residual", false),
            ..BLOCK
        },
        ..FAMILY
    },
    Family {
        title: "StarCoder2",
        types: &["starcoder2"],
        block: Block {
            qkv_bias: Switch::Field("use_bias", true),
            out_bias: Switch::Field("use_bias", true),
            mlp_bias: Switch::Field("use_bias", true),
            ..BIASED
        },
        ends: TIED,
        ..FAMILY
    },
    Family { title: "Nemotron-4, Minitron", types: &["nemotron"], block: Block { gated: Switch::No, norm_bias: true, ..BLOCK }, ..FAMILY },
    Family {
        title: "Falcon",
        types: &["falcon", "RefinedWeb", "RefinedWebModel"],
        defaults: &[(Dim::Positions, 2_048)],
        block: Block {
            qkv_bias: Switch::Field("bias", false),
            out_bias: Switch::Field("bias", false),
            mlp_bias: Switch::Field("bias", false),
            width_ratio: Some(("ffn_ratio", 4.0)),
            parallel: Switch::Unless("new_decoder_architecture"),
            ..BIASED
        },
        ends: TIED,
        ..FAMILY
    },
    Family { title: "GPT-NeoX, Pythia", types: &["gpt_neox"], block: BIASED, ..FAMILY },
    Family { title: "GPT-2", types: &["gpt2"], block: GPT, ends: Ends { positions: Some(0), ..TIED }, ..FAMILY },
    Family { title: "GPT-BigCode", types: &["gpt_bigcode"], block: GPT, ends: Ends { positions: Some(0), ..TIED }, ..FAMILY },
    Family { title: "GPT-J", types: &["gptj", "codegen"], block: GPTJ, ends: Ends { head_bias: Switch::Yes, ..ENDS }, ..FAMILY },
    Family {
        title: "BLOOM",
        types: &["bloom"],
        block: Block { width_ratio: Some(("ffn_ratio", 4.0)), ..BIASED },
        ends: Ends { embedding_norm: true, ..TIED },
        ..FAMILY
    },
    Family { title: "OPT", types: &["opt"], block: BIASED, ends: Ends { positions: Some(2), ..TIED }, ..FAMILY },
    Family {
        title: "MPT",
        types: &["mpt"],
        block: Block {
            qkv_bias: Switch::No,
            out_bias: Switch::No,
            mlp_bias: Switch::No,
            norm_bias: false,
            width_ratio: Some(("expansion_ratio", 4.0)),
            ..BIASED
        },
        ends: TIED,
        ..FAMILY
    },
    Family {
        title: "Mamba",
        types: &["mamba", "falcon_mamba"],
        block: Block { mixer: Mixer::Mamba, mixer_only: true, norms: 1, ..BLOCK },
        ends: TIED,
        ..FAMILY
    },
    Family {
        title: "Nemotron-H",
        types: &["nemotron_h"],
        block: Block { mixer: Mixer::Mamba2, gated: Switch::No, norms: 1, router_bias: Switch::Yes, ..BLOCK },
        ..FAMILY
    },
];

const FAMILY_LLAMA: Family = Family {
    title: "Llama, Yi, Aquila, Xverse, Solar",
    types: &["llama", "mllama_text_model", "Yi", "yi", "aquila", "xverse", "solar", "deepseek"],
    defaults: &[(Dim::Hidden, 4_096), (Dim::Width, 11_008), (Dim::Layers, 32), (Dim::Heads, 32), (Dim::Vocabulary, 32_000)],
    ..FAMILY
};
