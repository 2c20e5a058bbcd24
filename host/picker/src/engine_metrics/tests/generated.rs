//! Generated pages.

use super::{pages, reference};
use crate::engine_metrics::{
    Engine, EngineMetrics, parse,
    reading::{MAX_ADAPTER_NAME, MAX_ADAPTERS},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

/// A series about the load.
#[derive(Clone, Debug)]
struct Series {
    name: &'static str,
    labels: Vec<(&'static str, String)>,
    value: String,
}

/// The style of a line.
#[derive(Clone, Debug)]
struct Style {
    blank: &'static str,
    last_comma: bool,
    after_name: &'static str,
    tail: &'static str,
    reversed: bool,
}

/// Counts in several formats, with sums that don't depend on the order, and some unknown counts.
fn count() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0u32..100_000).prop_map(|count| count.to_string()),
        2 => (0u32..100_000).prop_map(|count| format!("{count}.0")),
        2 => (0u32..100_000).prop_map(|count| format!("{:e}", f64::from(count))),
        1 => select(&["NaN", "+Inf", "-Inf", "-1.0"][..]).prop_map(str::to_owned),
    ]
}

fn share() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (0.0..=1.0).prop_map(|share: f64| share.to_string()),
        1 => select(&["NaN", "1.005", "45.5", "-0.5", "0", "1"][..]).prop_map(str::to_owned),
    ]
}

fn size() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (1u32..100_000).prop_map(|size| size.to_string()),
        2 => (1u32..100_000).prop_map(|size| format!("{size}.0")),
        1 => select(&["NaN", "0", "16.5", "-3"][..]).prop_map(str::to_owned),
    ]
}

fn gauge(names: &'static [&'static str], value: impl Strategy<Value = String> + 'static) -> BoxedStrategy<Series> {
    (select(names), value).prop_map(|(name, value)| Series { name, labels: Vec::new(), value }).boxed()
}

/// A family whose series have different meanings, by a label.
fn typed(
    name: &'static str,
    label: &'static str,
    kinds: &'static [&'static str],
    value: impl Strategy<Value = String> + 'static,
) -> BoxedStrategy<Series> {
    (select(kinds), value).prop_map(move |(kind, value)| Series { name, labels: vec![(label, kind.to_owned())], value }).boxed()
}

fn cache(name: &'static str, labels: [&'static str; 2]) -> BoxedStrategy<Series> {
    let number = || prop_oneof![4 => (1u32..100_000).prop_map(|size| size.to_string()), 1 => Just("None".to_owned())];
    (option::of(number()), option::of(number()))
        .prop_map(move |(size, blocks)| {
            let labels = [size.map(|size| (labels[0], size)), blocks.map(|blocks| (labels[1], blocks))];
            Series { name, labels: labels.into_iter().flatten().collect(), value: "1.0".to_owned() }
        })
        .boxed()
}

fn loras() -> BoxedStrategy<Series> {
    let list = || vec("[a-zé:/.\\\\\"-]{0,5}", 0..4).prop_map(|names| names.join(","));
    (option::of(0u32..9), list(), list())
        .prop_map(|(max, running, waiting)| {
            let mut labels = vec![("running_lora_adapters", running), ("waiting_lora_adapters", waiting)];
            labels.extend(max.map(|max| ("max_lora", max.to_string())));
            Series { name: "vllm:lora_requests_info", labels, value: String::new() }
        })
        .boxed()
}

fn series(engine: Engine) -> BoxedStrategy<Series> {
    match engine {
        Engine::Vllm => prop_oneof![
            gauge(&["vllm:num_requests_waiting", "vllm:num_requests_running"], count()),
            gauge(&["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"], share()),
            gauge(&["vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "vllm:prefix_cache_queries"], count()),
            gauge(&["vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "vllm:prefix_cache_hits"], count()),
            cache("vllm:cache_config_info", ["block_size", "num_gpu_blocks"]),
            loras(),
        ]
        .boxed(),
        Engine::Sglang => {
            let reported = prop_oneof![
                gauge(&["sglang:num_queue_reqs", "sglang:num_running_reqs"], count()),
                gauge(&["sglang:token_usage"], share()),
                gauge(&["sglang:page_size", "sglang:num_pages"], size()),
                cache("sglang:cache_config_info", ["page_size", "num_pages"]),
            ];
            (reported, option::of(0u32..3), option::of(select(&["", "", "5", "None"][..])))
                .prop_map(|(mut series, rank, priority)| {
                    series.labels.extend(rank.map(|rank| ("dp_rank", rank.to_string())));
                    series.labels.extend(priority.map(|priority| ("priority", priority.to_owned())));
                    series
                })
                .boxed()
        }
        Engine::TrtllmServe => prop_oneof![
            gauge(&["trtllm_num_requests_waiting", "trtllm_num_requests_running"], count()),
            gauge(&["trtllm_kv_cache_utilization"], share()),
            gauge(&["trtllm_kv_cache_tokens_per_block", "trtllm_kv_cache_max_blocks"], size()),
        ]
        .boxed(),
        Engine::TritonTensorrtLlm => prop_oneof![
            typed("nv_trt_llm_request_metrics", "request_type", &["waiting", "scheduled", "active", ""], count()),
            typed("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", &["fraction"], share()),
            typed("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", &["tokens_per", "max", "used"], size()),
        ]
        .boxed(),
        Engine::Triton => gauge(&["nv_inference_pending_request_count"], count()),
    }
}

fn style() -> impl Strategy<Value = Style> {
    let tails: &'static [&str] = &["", "", "", "\r", " ", " 1722260000123", "\t1722260000.5 # {trace_id=\"a\"} 0.5", " # {} 1"];
    (select(&["", "", " ", "\t", "  "][..]), any::<bool>(), select(&["", "", " "][..]), select(tails), any::<bool>())
        .prop_map(|(blank, last_comma, after_name, tail, reversed)| Style { blank, last_comma, after_name, tail, reversed })
}

/// Labels that are irrelevant for the load.
fn other_labels() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    (option::of("[a-c{}, =#\\\\\"\nö]{0,6}"), option::of("[0-9]"))
        .prop_map(|(model, engine)| model.map(|model| ("model_name", model)).into_iter().chain(engine.map(|n| ("engine", n))).collect())
}

/// Lines that are irrelevant for the load.
fn other_line() -> impl Strategy<Value = String> {
    let names: &'static [&str] = &[
        "vllm:num_requests_waiting_by_reason",
        "vllm:prefix_cache_hits_created",
        "vllm:time_to_first_token_seconds_bucket",
        "sglang:num_grammar_queue_reqs",
        "sglang:token_usage_",
        "trtllm_num_requests_waiting2",
        "nv_inference_exec_count",
        "nv_gpu_utilization",
        "python_gc_objects_collected_total",
    ];
    prop_oneof![
        4 => (select(names), count()).prop_map(|(name, value)| format!("{name}{{le=\"+Inf\"}} {value}")),
        1 => select(names).prop_map(|name| format!("# TYPE {name} gauge")),
        1 => select(&["", "\r", "# EOF", "# HELP vllm:num_requests_waiting The vllm:num_requests_waiting 3", "{}", "%", "7 8"][..])
            .prop_map(str::to_owned),
    ]
}

fn line((series, others, style): (Series, Vec<(&'static str, String)>, Style)) -> String {
    let Style { blank, last_comma, after_name, tail, reversed } = style;
    let mut labels: Vec<String> = [others, series.labels]
        .concat()
        .iter()
        .map(|(name, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{blank}{name}{blank}={blank}\"{value}\"{blank}")
        })
        .collect();
    if reversed {
        labels.reverse();
    }
    let (name, value) = (series.name, series.value);
    if labels.is_empty() {
        return format!("{name} {value}{tail}");
    }
    format!("{name}{after_name}{{{}{}}}{after_name} {value}{tail}", labels.join(","), if last_comma { "," } else { "" })
}

/// Relevant lines of an engine, and other lines.
fn page() -> impl Strategy<Value = (Engine, Vec<String>, Vec<String>)> {
    select(&Engine::ALL[..]).prop_flat_map(|engine| {
        let said = vec((series(engine), other_labels(), style()), 1..24).prop_map(|lines| {
            let dated = lines.into_iter().enumerate().map(|(place, (mut series, others, style))| {
                if series.value.is_empty() {
                    // No two have the same time.
                    series.value = format!("1.7222{place:05}e+09");
                }
                line((series, others, style))
            });
            dated.collect()
        });
        (Just(engine), said, vec(other_line(), 0..12))
    })
}

/// Arbitrary bytes, or a page that is truncated and in which some bytes are replaced.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let texts: &'static [&str] = &[pages::VLLM, pages::SGLANG, pages::TRTLLM_SERVE, pages::TRITON_TENSORRT_LLM, pages::TRITON];
    let generated = page().prop_map(|(_, said, others)| [said, others].concat().join("\n"));
    let texts = prop_oneof![select(texts).prop_map(str::to_owned), generated];
    let broken =
        (texts, any::<prop::sample::Index>(), vec((any::<prop::sample::Index>(), any::<u8>()), 0..30)).prop_map(|(text, end, replaced)| {
            let mut bytes = text.into_bytes();
            bytes.truncate(end.index(bytes.len()) + 1);
            for (place, byte) in replaced {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes
        });
    let pieces: &'static [&str] =
        &["vllm:num_requests_waiting", "vllm:lora_requests_info", "{", "}", "max_lora", "=", "\"", "\\", ",", " ", "\n", "1", "#"];
    let pieced = vec(select(pieces), 0..60).prop_map(|pieces| pieces.concat().into_bytes());
    prop_oneof![vec(any::<u8>(), 0..400), broken, pieced]
}

/// Whether all known values are within their ranges.
fn is_sane(metrics: &EngineMetrics) -> bool {
    let is_count = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value >= 0.0);
    let is_size = |value: Option<u32>| value.is_none_or(|value| value > 0);
    let are_names =
        |names: &[String]| names.len() <= MAX_ADAPTERS && names.iter().all(|name| !name.is_empty() && name.len() <= MAX_ADAPTER_NAME);
    [metrics.waiting, metrics.running, metrics.prefix_queries, metrics.prefix_hits].into_iter().all(is_count)
        && metrics.kv_usage.is_none_or(|usage| (0.0..=1.0).contains(&usage))
        && [metrics.block_size, metrics.blocks].into_iter().all(is_size)
        && metrics.loras.as_ref().is_none_or(|adapters| are_names(&adapters.running) && are_names(&adapters.waiting))
}

/// Few cases by default, many with `--full`.
fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 100_000 } else { 300 })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_bytes_make_it_panic_or_say_what_cannot_be(bytes in bytes()) {
        for engine in Engine::ALL {
            match parse(engine, &bytes) {
                Ok(metrics) => prop_assert!(is_sane(&metrics), "{metrics:?}"),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }

    #[test]
    fn reads_what_the_reference_reads((engine, said, others) in page()) {
        let page = [said, others].concat().join("\n");
        prop_assert_eq!(parse(engine, page.as_bytes()), Ok(reference::metrics(engine, &page)), "{}", page);
    }

    #[test]
    fn order_and_other_lines_change_nothing(
        ((engine, said, _), shuffled) in page().prop_flat_map(|page| {
            let lines = [page.1.clone(), page.2.clone()].concat();
            (Just(page), Just(lines).prop_shuffle())
        })
    ) {
        let bare = parse(engine, said.join("\n").as_bytes());
        prop_assert!(bare.is_ok());
        prop_assert_eq!(parse(engine, format!("{}\n", shuffled.join("\n")).as_bytes()), bare);
    }
}
