//! Which families of metrics each engine reports, and what they say.

use super::{Engine, text::Sample};

/// What a family says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// How many requests wait.
    Waiting,
    /// How many requests run.
    Running,
    /// The used share of the KV cache.
    KvUsage,
    /// How many tokens a block of the KV cache has.
    BlockSize,
    /// How many blocks the KV cache has.
    Blocks,
    /// Both, in the labels of these names.
    Cache {
        /// The label with the tokens of a block.
        block_size: &'static str,
        /// The label with the number of blocks.
        blocks: &'static str,
    },
    /// The LoRA adapters, in labels.
    Adapters,
    /// How many tokens the prefix cache was asked for.
    PrefixQueries,
    /// How many tokens it had.
    PrefixHits,
}

/// A family that says something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// Its name.
    pub(super) name: &'static str,
    /// The label, and its value, of the series that say it. None: all say it.
    pub(super) only: Option<(&'static str, &'static str)>,
    /// What it says.
    pub(super) signal: Signal,
    /// How outdated the name is. A page may have the same number under an old and a new name: the least outdated one counts.
    pub(super) age: u8,
}

/// The families of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Families {
    /// What all names begin with: other lines are skipped early.
    pub(super) prefix: &'static str,
    /// The families.
    pub(super) all: &'static [Family],
    /// The label with the data-parallel rank, if series of one rank repeat the same number.
    pub(super) rank: Option<&'static str>,
    /// The label that tells parts of a total from the total, which has it empty or not at all.
    pub(super) part: Option<&'static str>,
}

impl Families {
    /// The data-parallel rank of a series: another series of the same rank says the same again. Series without a rank are of one rank.
    /// None if every series counts.
    pub(super) fn rank(&self, sample: &Sample<'_>) -> Option<u32> {
        let number = sample.label(self.rank?);
        Some(number.and_then(|text| str::from_utf8(&text).ok()?.parse().ok()).unwrap_or(u32::MAX))
    }

    /// Whether a series is a part of another.
    pub(super) fn is_part(&self, sample: &Sample<'_>) -> bool {
        self.part.and_then(|label| sample.label(label)).is_some_and(|value| !value.is_empty())
    }

    /// The names to look for on a page, as a text.
    pub(super) fn expected(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for family in self.all {
            let is_load = matches!(family.signal, Signal::Waiting | Signal::Running | Signal::KvUsage);
            if is_load && family.age == 0 && !names.contains(&family.name) {
                names.push(family.name);
            }
        }
        names.join(", ")
    }
}

/// A family of which every series counts.
const fn family(name: &'static str, signal: Signal) -> Family {
    Family { name, only: None, signal, age: 0 }
}

/// A family by an outdated name.
const fn old(age: u8, name: &'static str, signal: Signal) -> Family {
    Family { name, only: None, signal, age }
}

/// The series of a family whose label has a value.
const fn only(name: &'static str, label: &'static str, value: &'static str, signal: Signal) -> Family {
    Family { name, only: Some((label, value)), signal, age: 0 }
}

/// The label of Triton's families of requests, and of those of the KV cache.
const REQUEST: &str = "request_type";
const BLOCK: &str = "kv_cache_block_type";

static VLLM: Families = Families {
    prefix: "vllm:",
    all: &[
        family("vllm:num_requests_waiting", Signal::Waiting),
        family("vllm:num_requests_running", Signal::Running),
        family("vllm:kv_cache_usage_perc", Signal::KvUsage),
        old(1, "vllm:gpu_cache_usage_perc", Signal::KvUsage),
        family("vllm:cache_config_info", Signal::Cache { block_size: "block_size", blocks: "num_gpu_blocks" }),
        family("vllm:lora_requests_info", Signal::Adapters),
        // The counters were renamed in 0.9. vLLM's client adds _total to their names; what simulates vLLM may not.
        family("vllm:prefix_cache_queries_total", Signal::PrefixQueries),
        old(1, "vllm:prefix_cache_queries", Signal::PrefixQueries),
        old(2, "vllm:gpu_prefix_cache_queries_total", Signal::PrefixQueries),
        old(3, "vllm:gpu_prefix_cache_queries", Signal::PrefixQueries),
        family("vllm:prefix_cache_hits_total", Signal::PrefixHits),
        old(1, "vllm:prefix_cache_hits", Signal::PrefixHits),
        old(2, "vllm:gpu_prefix_cache_hits_total", Signal::PrefixHits),
        old(3, "vllm:gpu_prefix_cache_hits", Signal::PrefixHits),
    ],
    // Each engine of a data-parallel deployment has its own series, and none repeats another.
    rank: None,
    part: None,
};

static SGLANG: Families = Families {
    prefix: "sglang:",
    all: &[
        family("sglang:num_queue_reqs", Signal::Waiting),
        family("sglang:num_running_reqs", Signal::Running),
        family("sglang:token_usage", Signal::KvUsage),
        family("sglang:page_size", Signal::BlockSize),
        family("sglang:num_pages", Signal::Blocks),
        // Releases before 0.5.11 say both in labels.
        old(1, "sglang:cache_config_info", Signal::Cache { block_size: "page_size", blocks: "num_pages" }),
    ],
    // With --enable-metrics-for-all-schedulers, and with pipeline parallelism, every process of a rank reports the rank's requests.
    rank: Some("dp_rank"),
    // With priorities, a queue is reported in total and by priority.
    part: Some("priority"),
};

static TRTLLM_SERVE: Families = Families {
    prefix: "trtllm_",
    all: &[
        family("trtllm_num_requests_waiting", Signal::Waiting),
        family("trtllm_num_requests_running", Signal::Running),
        family("trtllm_kv_cache_utilization", Signal::KvUsage),
        family("trtllm_kv_cache_tokens_per_block", Signal::BlockSize),
        family("trtllm_kv_cache_max_blocks", Signal::Blocks),
    ],
    rank: None,
    part: None,
};

static TRITON_TENSORRT_LLM: Families = Families {
    prefix: "nv_trt_llm_",
    all: &[
        only("nv_trt_llm_request_metrics", REQUEST, "waiting", Signal::Waiting),
        only("nv_trt_llm_request_metrics", REQUEST, "scheduled", Signal::Running),
        only("nv_trt_llm_kv_cache_block_metrics", BLOCK, "fraction", Signal::KvUsage),
        only("nv_trt_llm_kv_cache_block_metrics", BLOCK, "tokens_per", Signal::BlockSize),
        only("nv_trt_llm_kv_cache_block_metrics", BLOCK, "max", Signal::Blocks),
    ],
    rank: None,
    part: None,
};

/// Triton doesn't report what runs: `nv_inference_exec_count`, which llm-d takes for it, counts all executions since the start.
static TRITON: Families =
    Families { prefix: "nv_inference_", all: &[family("nv_inference_pending_request_count", Signal::Waiting)], rank: None, part: None };

/// The families of an engine.
pub(super) fn of(engine: Engine) -> &'static Families {
    match engine {
        Engine::Vllm => &VLLM,
        Engine::Sglang => &SGLANG,
        Engine::TrtllmServe => &TRTLLM_SERVE,
        Engine::TritonTensorrtLlm => &TRITON_TENSORRT_LLM,
        Engine::Triton => &TRITON,
    }
}
