//! vLLM's metrics page, with the series that an endpoint picker reads.

use super::Site;
use std::{
    collections::BTreeMap,
    fmt::Write,
    time::{SystemTime, UNIX_EPOCH},
};

/// The page.
pub(super) fn page(site: &Site) -> String {
    let counts = site.worker.counts();
    let engine = &site.settings.engine;
    let model = site.settings.models.first().map(|model| escape(model)).unwrap_or_default();
    let labels = format!("engine=\"0\",model_name=\"{model}\"");
    let mut page = String::new();
    family(&mut page, "vllm:num_requests_running", "gauge", &labels, counts.running);
    family(&mut page, "vllm:num_requests_waiting", "gauge", &labels, counts.waiting);
    family(&mut page, "vllm:kv_cache_usage_perc", "gauge", &labels, counts.cache_usage);
    family(&mut page, "vllm:prefix_cache_queries_total", "counter", &labels, counts.prefix_queries);
    family(&mut page, "vllm:prefix_cache_hits_total", "counter", &labels, counts.prefix_hits);
    let (size, blocks) = (engine.block_size, engine.blocks);
    let cache = format!("block_size=\"{size}\",cache_dtype=\"auto\",engine=\"0\",num_gpu_blocks=\"{blocks}\"");
    family(&mut page, "vllm:cache_config_info", "gauge", &cache, "1.0");
    if let Some((_, adapters @ [_, ..])) = site.settings.models.split_first() {
        let names = |counts: &BTreeMap<usize, usize>| {
            let names = adapters.iter().enumerate().filter(|(at, _)| counts.contains_key(&(at + 1))).map(|(_, name)| escape(name));
            names.collect::<Vec<_>>().join(",")
        };
        let (running, waiting) = site.worker.models();
        let (running, waiting, limit) = (names(&running), names(&waiting), adapters.len());
        let labels = format!("max_lora=\"{limit}\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\"");
        // The newest series is the one with the greatest value.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        family(&mut page, "vllm:lora_requests_info", "gauge", &labels, now);
    }
    page
}

fn family(page: &mut String, name: &str, kind: &str, labels: &str, value: impl std::fmt::Display) {
    writeln!(page, "# HELP {name} As vLLM describes it.\n# TYPE {name} {kind}\n{name}{{{labels}}} {value}").ok();
}

/// Escapes the value of a label.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
