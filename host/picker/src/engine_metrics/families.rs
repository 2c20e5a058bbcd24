//! The families of metrics that each engine reports, and their meanings.

use super::{Engine, text::Sample};

/// The meaning of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The number of queued requests.
    Waiting,
    /// The number of running requests.
    Running,
    /// The used share of the KV cache.
    KvUsage,
    /// The number of tokens in a block of the KV cache.
    BlockSize,
    /// The number of blocks in the KV cache.
    Blocks,
    /// Both, in these labels.
    Cache {
        /// The label with the number of tokens in a block.
        block_size: &'static str,
        /// The label with the number of blocks.
        blocks: &'static str,
    },
    /// The LoRA adapters, in labels.
    Adapters,
    /// The number of tokens that were looked up in the prefix cache.
    PrefixQueries,
    /// The number of tokens that were found in it.
    PrefixHits,
}

/// A relevant family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// Its name.
    pub(super) name: &'static str,
    /// The label, and its value, of the relevant series. None if all series are relevant.
    pub(super) only: Option<(&'static str, &'static str)>,
    /// The meaning.
    pub(super) signal: Signal,
    /// The age of the name. A page may have the same number under an old and a new name: the one with the lowest age is used.
    pub(super) age: u8,
}

/// The families of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Families {
    /// The prefix of all names. Other lines are skipped early.
    pub(super) prefix: &'static str,
    /// The families.
    pub(super) all: &'static [Family],
    /// The label with the data-parallel rank, if several series of one rank repeat the same number.
    pub(super) rank: Option<&'static str>,
    /// The label that distinguishes parts of a total. In the total itself, it is empty or absent.
    pub(super) part: Option<&'static str>,
}

impl Families {
    /// The data-parallel rank of a series. Other series of the same rank repeat its number. All series without a rank have the same rank.
    /// None if no series repeats another.
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

/// A family in which all series are relevant.
const fn family(name: &'static str, signal: Signal) -> Family {
    Family { name, only: None, signal, age: 0 }
}

/// A family with an old name.
const fn old(age: u8, name: &'static str, signal: Signal) -> Family {
    Family { name, only: None, signal, age }
}

/// The series of a family in which a label has a value.
const fn only(name: &'static str, label: &'static str, value: &'static str, signal: Signal) -> Family {
    Family { name, only: Some((label, value)), signal, age: 0 }
}

/// The labels of Triton's families for requests and for the KV cache.
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
        // The counters were renamed in 0.9. vLLM's client adds _total to their names; simulators of vLLM may not.
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
        // Releases before 0.5.11 report both in labels.
        old(1, "sglang:cache_config_info", Signal::Cache { block_size: "page_size", blocks: "num_pages" }),
    ],
    // With --enable-metrics-for-all-schedulers, and with pipeline parallelism, every process of a rank reports the rank's requests.
    rank: Some("dp_rank"),
    // With priorities, a queue is reported as a total and by priority.
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

/// Triton doesn't report running requests. `nv_inference_exec_count`, which llm-d uses for them, counts all executions since the start.
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
