//! A slow reference parser for the same pages, which parses them completely, character by character.

use crate::engine_metrics::{Adapters, Engine, EngineMetrics};
use std::collections::BTreeMap;

/// A line of a page.
struct Series {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Series {
    fn has(&self, label: &str, value: &str) -> bool {
        self.labels.get(label).is_some_and(|found| found == value)
    }
}

/// All series of a well-formed page.
fn series(page: &str) -> Vec<Series> {
    page.split('\n').map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(one).collect()
}

fn one(line: &str) -> Option<Series> {
    let name: String = line.chars().take_while(|char| *char != '{' && !char.is_whitespace()).collect();
    let mut rest = line[name.len()..].trim_start().chars().peekable();
    let mut labels = BTreeMap::new();
    if rest.next_if_eq(&'{').is_some() {
        loop {
            while rest.next_if(|char| *char == ',' || char.is_whitespace()).is_some() {}
            if rest.next_if_eq(&'}').is_some() {
                break;
            }
            let mut label = String::new();
            while let Some(char) = rest.next_if(|char| *char != '=') {
                label.push(char);
            }
            while rest.next()? != '"' {}
            let mut value = String::new();
            loop {
                match rest.next()? {
                    '"' => break,
                    '\\' => value.push(match rest.next()? {
                        'n' => '\n',
                        other => other,
                    }),
                    other => value.push(other),
                }
            }
            labels.insert(label.trim().to_owned(), value);
        }
    }
    let rest: String = rest.collect();
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Series { name, labels, value })
}

/// The valid values of the first name that has any.
fn values<'a>(all: &'a [Series], names: &[&str], sense: impl Fn(&Series) -> Option<f64>) -> Vec<(&'a Series, f64)> {
    names
        .iter()
        .map(|name| {
            let named = all.iter().filter(|series| series.name == *name);
            named.filter_map(|series| Some((series, sense(series)?))).collect::<Vec<_>>()
        })
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

fn sum(found: &[(&Series, f64)]) -> Option<f64> {
    (!found.is_empty()).then(|| found.iter().map(|(_, value)| value).sum())
}

/// The sum of the maximum values of the ranks.
fn sum_of_ranks(found: &[(&Series, f64)]) -> Option<f64> {
    let mut ranks: BTreeMap<Option<&String>, f64> = BTreeMap::new();
    for (series, value) in found {
        let greatest = ranks.entry(series.labels.get("dp_rank")).or_insert(*value);
        *greatest = greatest.max(*value);
    }
    (!ranks.is_empty()).then(|| ranks.values().sum())
}

fn count(series: &Series) -> Option<f64> {
    (series.value.is_finite() && series.value >= 0.0).then_some(series.value)
}

fn share(series: &Series) -> Option<f64> {
    (series.value >= 0.0 && series.value <= 1.01).then_some(if series.value > 1.0 { 1.0 } else { series.value })
}

fn size(value: f64) -> Option<f64> {
    (value >= 1.0 && value <= f64::from(u32::MAX) && value.trunc().total_cmp(&value).is_eq()).then_some(value)
}

fn gauge(series: &Series) -> Option<f64> {
    size(series.value)
}

fn label(name: &str) -> impl Fn(&Series) -> Option<f64> {
    move |series| size(series.labels.get(name)?.trim().parse().ok()?)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The tests have small sizes.
fn small(value: f64) -> u32 {
    value as u32
}

fn least(found: &[(&Series, f64)]) -> Option<u32> {
    found.iter().map(|(_, value)| small(*value)).min()
}

fn greatest(found: &[(&Series, f64)]) -> Option<f64> {
    found.iter().map(|(_, value)| *value).max_by(f64::total_cmp)
}

fn adapters(all: &[Series]) -> Option<Adapters> {
    let dated = all.iter().filter(|series| series.name == "vllm:lora_requests_info" && series.value.is_finite());
    let newest = dated.max_by(|a, b| a.value.total_cmp(&b.value))?;
    let list = |name: &str| -> Vec<String> {
        let list = newest.labels.get(name).map(String::as_str).unwrap_or_default();
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    Some(Adapters {
        running: list("running_lora_adapters"),
        waiting: list("waiting_lora_adapters"),
        max: newest.labels.get("max_lora").and_then(|max| max.parse().ok()).unwrap_or(0),
    })
}

/// The metrics of a page, which has at least one series of the engine.
pub(super) fn metrics(engine: Engine, page: &str) -> EngineMetrics {
    let all = series(page);
    match engine {
        Engine::Vllm => EngineMetrics {
            waiting: sum(&values(&all, &["vllm:num_requests_waiting"], count)),
            running: sum(&values(&all, &["vllm:num_requests_running"], count)),
            kv_usage: greatest(&values(&all, &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"], share)),
            block_size: least(&values(&all, &["vllm:cache_config_info"], label("block_size"))),
            blocks: sum(&values(&all, &["vllm:cache_config_info"], label("num_gpu_blocks"))).map(small),
            loras: adapters(&all),
            prefix_queries: sum(&values(
                &all,
                &["vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total"],
                count,
            )),
            prefix_hits: sum(&values(
                &all,
                &["vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total"],
                count,
            )),
        },
        Engine::Sglang => {
            let all: Vec<Series> = all.into_iter().filter(|series| series.labels.get("priority").is_none_or(String::is_empty)).collect();
            let old = ["sglang:cache_config_info"];
            let (sizes, pages) = (values(&all, &["sglang:page_size"], gauge), values(&all, &["sglang:num_pages"], gauge));
            EngineMetrics {
                waiting: sum_of_ranks(&values(&all, &["sglang:num_queue_reqs"], count)),
                running: sum_of_ranks(&values(&all, &["sglang:num_running_reqs"], count)),
                kv_usage: greatest(&values(&all, &["sglang:token_usage"], share)),
                block_size: least(&sizes).or_else(|| least(&values(&all, &old, label("page_size")))),
                blocks: sum_of_ranks(&pages).or_else(|| sum_of_ranks(&values(&all, &old, label("num_pages")))).map(small),
                ..EngineMetrics::default()
            }
        }
        Engine::TrtllmServe => EngineMetrics {
            waiting: sum(&values(&all, &["trtllm_num_requests_waiting"], count)),
            running: sum(&values(&all, &["trtllm_num_requests_running"], count)),
            kv_usage: greatest(&values(&all, &["trtllm_kv_cache_utilization"], share)),
            block_size: least(&values(&all, &["trtllm_kv_cache_tokens_per_block"], gauge)),
            blocks: sum(&values(&all, &["trtllm_kv_cache_max_blocks"], gauge)).map(small),
            ..EngineMetrics::default()
        },
        Engine::TritonTensorrtLlm => {
            let (request, block) = (["nv_trt_llm_request_metrics"], ["nv_trt_llm_kv_cache_block_metrics"]);
            let of = |label: &'static str, value: &'static str, sense: fn(&Series) -> Option<f64>| {
                move |series: &Series| series.has(label, value).then(|| sense(series))?
            };
            EngineMetrics {
                waiting: sum(&values(&all, &request, of("request_type", "waiting", count))),
                running: sum(&values(&all, &request, of("request_type", "scheduled", count))),
                kv_usage: greatest(&values(&all, &block, of("kv_cache_block_type", "fraction", share))),
                block_size: least(&values(&all, &block, of("kv_cache_block_type", "tokens_per", gauge))),
                blocks: sum(&values(&all, &block, of("kv_cache_block_type", "max", gauge))).map(small),
                ..EngineMetrics::default()
            }
        }
        Engine::Triton => {
            EngineMetrics { waiting: sum(&values(&all, &["nv_inference_pending_request_count"], count)), ..EngineMetrics::default() }
        }
    }
}
