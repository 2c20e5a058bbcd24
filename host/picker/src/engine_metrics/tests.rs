mod generated;
mod pages;
mod reference;

use super::{
    Adapters, Engine, EngineMetrics, MAX_PAGE, MetricsError, parse,
    reading::{MAX_ADAPTER_NAME, MAX_ADAPTERS},
    text::MAX_LINE,
};

/// The metrics from some lines of vLLM.
fn vllm(lines: &str) -> EngineMetrics {
    parse(Engine::Vllm, lines.as_bytes()).expect("a page of vLLM")
}

fn sglang(lines: &str) -> EngineMetrics {
    parse(Engine::Sglang, lines.as_bytes()).expect("a page of SGLang")
}

/// The number of queued requests from a line with this text after the name.
fn waiting(rest: &str) -> Option<f64> {
    vllm(&format!("vllm:num_requests_waiting{rest}")).waiting
}

#[test]
fn names_of_engines_are_the_labels_values() {
    for engine in Engine::ALL {
        assert_eq!(Engine::parse(engine.as_str()), Some(engine));
        assert_eq!(engine.to_string(), engine.as_str());
    }
    for unknown in ["", "VLLM", "vllm ", "trtllm", "atom"] {
        assert_eq!(Engine::parse(unknown), None, "{unknown:?}");
    }
}

#[test]
fn reads_the_page_of_vllm() {
    let expected = EngineMetrics {
        waiting: Some(7.0),
        running: Some(21.0),
        kv_usage: Some(0.8125),
        block_size: Some(16),
        blocks: Some(55_296),
        loras: Some(Adapters { running: vec!["sql".into(), "legal-de".into()], waiting: vec!["sql".into()], max: 4 }),
        prefix_queries: Some(1_834_992.0),
        prefix_hits: Some(1_102_304.0),
    };
    assert_eq!(parse(Engine::Vllm, pages::VLLM.as_bytes()), Ok(expected));
}

#[test]
fn reads_the_page_of_sglang() {
    let expected = EngineMetrics {
        // There are two data-parallel ranks. A second process of the second rank repeats its numbers.
        waiting: Some(9.0),
        running: Some(40.0),
        kv_usage: Some(0.91),
        block_size: Some(64),
        blocks: Some(12_000),
        ..EngineMetrics::default()
    };
    assert_eq!(parse(Engine::Sglang, pages::SGLANG.as_bytes()), Ok(expected));
}

#[test]
fn reads_the_page_of_trtllm_serve() {
    let expected = EngineMetrics {
        waiting: Some(0.0),
        running: Some(3.0),
        kv_usage: Some(0.25),
        block_size: Some(32),
        blocks: Some(18_804),
        ..EngineMetrics::default()
    };
    assert_eq!(parse(Engine::TrtllmServe, pages::TRTLLM_SERVE.as_bytes()), Ok(expected));
}

#[test]
fn reads_the_page_of_triton_with_tensorrt_llm() {
    let expected = EngineMetrics {
        waiting: Some(2.0),
        running: Some(6.0),
        kv_usage: Some(0.4375),
        block_size: Some(64),
        blocks: Some(6_144),
        ..EngineMetrics::default()
    };
    assert_eq!(parse(Engine::TritonTensorrtLlm, pages::TRITON_TENSORRT_LLM.as_bytes()), Ok(expected));
}

#[test]
fn reads_the_page_of_triton() {
    let expected = EngineMetrics { waiting: Some(5.0), ..EngineMetrics::default() };
    assert_eq!(parse(Engine::Triton, pages::TRITON.as_bytes()), Ok(expected));
}

#[test]
fn reads_all_forms_of_numbers() {
    for (text, value) in [
        ("3", 3.0),
        ("3.0", 3.0),
        ("+3", 3.0),
        ("3.", 3.0),
        (".5", 0.5),
        ("1.2e+01", 12.0),
        ("12E-1", 1.2),
        ("-0", 0.0),
        ("1e308", 1e308),
        ("0", 0.0),
    ] {
        assert_eq!(waiting(&format!(" {text}\n")), Some(value), "{text}");
    }
    for text in ["NaN", "nan", "+Inf", "-Inf", "inf", "infinity", "-1", "-0.5", "None", "1e999", "0x10", "1_000", "12ms", "\u{0663}"] {
        assert_eq!(waiting(&format!("{{model_name=\"m\"}} {text}\n")), None, "{text}");
    }
}

#[test]
fn reads_all_forms_of_lines() {
    for rest in [
        " 4",
        "\t4\n",
        "  4  \n",
        " 4\r\n",
        " 4 1722260000123\n",
        " 4 1722260000.123 # {trace_id=\"5e}\"} 0.3 1722260000.1\n",
        "{} 4\n",
        "{ } 4\n",
        "{}4\n",
        "{model_name=\"m\"} 4\n",
        "{model_name=\"m\",} 4\n",
        " { model_name = \"m\" , engine = \"0\" , }\t4 \r\n",
        "{model_name=\"\"} 4\n",
        "{model_name=\"a } b\",engine=\"{0}\"} 4\n",
        "{model_name=\"a \\\" } 9\\\\\",engine=\"\\n\"} 4\n",
        "{\"the.model\"=\"m\",engine=\"0\"} 4\n",
        "{model_name=\"Möhre\"} 4\n",
        " 4\n# EOF\n",
        " 4\n\n\n",
        " 4 # HELP\n",
    ] {
        assert_eq!(waiting(rest), Some(4.0), "{rest:?}");
    }
    assert_eq!(vllm("  vllm:num_requests_waiting 4\n").waiting, Some(4.0));
    assert_eq!(vllm("\r\nvllm:num_requests_waiting 4\r\nvllm:num_requests_running 5\r\n").running, Some(5.0));
}

#[test]
fn skips_lines_that_break_the_format() {
    for rest in [
        " ",
        " \r\n",
        "{",
        "{}",
        "{model_name=\"m\"}",
        "{model_name=\"m\" 4",
        "{model_name=\"m} 4",
        "{model_name=\"m\\\"} 4",
        "{model_name=m} 4",
        "{model_name} 4",
        "{=\"m} 4",
        "{\"model_name} 4",
        "{model_name=\"m\"engine=\"0\"} 4",
        "{model_name=\"m\",,} 4",
        "{model_name=\"\\",
    ] {
        assert_eq!(waiting(rest), None, "{rest:?}");
        assert_eq!(waiting(&format!("{rest}\nvllm:num_requests_waiting 1\n")), Some(1.0), "{rest:?}");
    }
}

#[test]
fn skips_invalid_utf8_and_comments() {
    let page = b"# HELP vllm:num_requests_waiting \xff\xfe\n# vllm:num_requests_waiting 8\n\xc3\x28 3\nvllm:other{a=\"\xff\"} 1\n\
        vllm:num_requests_waiting{model_name=\"\xff\xfe\"} 2\nvllm:num_requests_waiting{model_name=\"b\"} \xff\n";
    assert_eq!(parse(Engine::Vllm, page).map(|metrics| metrics.waiting), Ok(Some(2.0)));
}

#[test]
fn skips_families_of_similar_names() {
    let metrics = vllm(
        "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 5\nvllm:num_requests_waiting 1\nvllm:num_requests_waiting:sum 7\n\
         vllm:num_requests_waitin 8\nxvllm:num_requests_waiting 9\nvllm:prefix_cache_queries_created 1.7e9\n\
         vllm:external_prefix_cache_hits_total 3\n",
    );
    assert_eq!(metrics, EngineMetrics { waiting: Some(1.0), ..EngineMetrics::default() });
}

#[test]
fn sums_what_waits_and_takes_the_fullest_cache() {
    let metrics = vllm(
        "vllm:num_requests_waiting{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"1\"} 2\nvllm:num_requests_waiting{engine=\"2\"} NaN\n\
         vllm:num_requests_waiting{engine=\"3\"} -4\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
         vllm:kv_cache_usage_perc{engine=\"1\"} 0.75\nvllm:kv_cache_usage_perc{engine=\"2\"} 55\n\
         vllm:kv_cache_usage_perc{engine=\"3\"} 0.5\nvllm:cache_config_info{engine=\"0\",block_size=\"32\",num_gpu_blocks=\"10\"} 1\n\
         vllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"30\"} 1\n",
    );
    let expected =
        EngineMetrics { waiting: Some(3.0), kv_usage: Some(0.75), block_size: Some(16), blocks: Some(40), ..EngineMetrics::default() };
    assert_eq!(metrics, expected);
}

#[test]
fn sums_that_are_too_large_are_bounded() {
    let metrics = vllm("vllm:num_requests_waiting{engine=\"0\"} 1e308\nvllm:num_requests_waiting{engine=\"1\"} 1e308\n");
    assert_eq!(metrics.waiting, None);
    let line = "vllm:cache_config_info{num_gpu_blocks=\"4294967295\"} 1\n";
    assert_eq!(vllm(&line.repeat(3)).blocks, Some(u32::MAX));
    let ranks: Vec<String> = (0..1000).map(|rank| format!("sglang:num_queue_reqs{{dp_rank=\"{rank}\"}} 1\n")).collect();
    assert_eq!(sglang(&ranks.concat()).waiting, Some(256.0));
}

#[test]
fn kv_usage_is_a_share_or_unknown() {
    for (text, usage) in [
        ("0", Some(0.0)),
        ("-0.0", Some(0.0)),
        ("1", Some(1.0)),
        ("1.0000001", Some(1.0)),
        ("1.01", Some(1.0)),
        ("1.02", None),
        ("85.5", None),
        ("-0.1", None),
        ("NaN", None),
    ] {
        assert_eq!(vllm(&format!("vllm:kv_cache_usage_perc {text}\n")).kv_usage, usage, "{text}");
    }
}

#[test]
fn sizes_are_positive_whole_numbers_or_unknown() {
    for (text, size) in [
        ("16", Some(16)),
        (" 16.0 ", Some(16)),
        ("4294967295", Some(u32::MAX)),
        ("4294967296", None),
        ("0", None),
        ("-16", None),
        ("16.5", None),
        ("None", None),
        ("", None),
        ("1e400", None),
    ] {
        assert_eq!(vllm(&format!("vllm:cache_config_info{{block_size=\"{text}\"}} 1\n")).block_size, size, "{text:?}");
        let gauge = sglang(&format!("sglang:num_queue_reqs 0\nsglang:page_size {text}\n"));
        assert_eq!(gauge.block_size, size, "{text:?}");
    }
    // The value of an info metric is ignored.
    assert_eq!(vllm("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} NaN\n").block_size, Some(16));
}

#[test]
fn new_names_count_before_old_ones_in_any_order() {
    let new = "vllm:kv_cache_usage_perc 0.5\nvllm:prefix_cache_hits_total{engine=\"0\"} 4\nvllm:prefix_cache_hits_total{engine=\"1\"} 5\n";
    let old = "vllm:gpu_cache_usage_perc 0.9\nvllm:gpu_prefix_cache_hits_total 90\nvllm:gpu_prefix_cache_hits 900\n";
    for page in [format!("{new}{old}"), format!("{old}{new}")] {
        assert_eq!(vllm(&page), EngineMetrics { kv_usage: Some(0.5), prefix_hits: Some(9.0), ..EngineMetrics::default() });
    }
    assert_eq!(vllm(old), EngineMetrics { kv_usage: Some(0.9), prefix_hits: Some(90.0), ..EngineMetrics::default() });
    assert_eq!(vllm("vllm:prefix_cache_queries 3\n").prefix_queries, Some(3.0));
    // If the new name has no value, the old one is used.
    assert_eq!(vllm("vllm:kv_cache_usage_perc NaN\nvllm:gpu_cache_usage_perc 0.9\n").kv_usage, Some(0.9));
    let sglang = sglang("sglang:cache_config_info{page_size=\"1\",num_pages=\"500\"} 1\nsglang:page_size 64\n");
    assert_eq!((sglang.block_size, sglang.blocks), (Some(64), Some(500)));
}

#[test]
fn parts_of_sglangs_queues_are_not_counted_twice() {
    let metrics = sglang(
        "sglang:num_queue_reqs{tp_rank=\"0\",priority=\"\"} 5\nsglang:num_queue_reqs{tp_rank=\"0\",priority=\"10\"} 3\n\
         sglang:num_queue_reqs{tp_rank=\"0\",priority=\"0\"} 2\nsglang:num_queue_reqs{tp_rank=\"1\",priority=\"\"} 4\n",
    );
    assert_eq!(metrics.waiting, Some(5.0));
}

#[test]
fn the_newest_adapters_count() {
    let old = "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"a\",waiting_lora_adapters=\"b\"} 1.7222e+09\n";
    let new = "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\" c , ,d,\",waiting_lora_adapters=\"\"} 1.7223e+09\n";
    let broken = "vllm:lora_requests_info{max_lora=\"9\",running_lora_adapters=\"x\"} NaN\n";
    let expected = Adapters { running: vec!["c".into(), "d".into()], waiting: vec![], max: 2 };
    for page in [[old, new, broken].concat(), [broken, new, old].concat(), [new, old].concat()] {
        assert_eq!(vllm(&page).loras, Some(expected.clone()));
    }
    assert_eq!(vllm(broken).loras, None);
    assert_eq!(vllm("vllm:lora_requests_info 1\n").loras, Some(Adapters::default()));
    let escaped = "vllm:lora_requests_info{max_lora=\"many\",running_lora_adapters=\"a\\\"b,c\\\\d,e\\qf,g\\nh\"} 1\n";
    assert_eq!(vllm(escaped).loras.expect("adapters").running, ["a\"b", "c\\d", "e\\qf", "g\nh"]);
}

#[test]
fn adapters_are_bounded() {
    let longest = "n".repeat(MAX_ADAPTER_NAME);
    let others: Vec<String> = (0..2 * MAX_ADAPTERS).map(|number| format!("a{number}")).collect();
    let list = format!("{longest}n,{longest},{}", others.join(","));
    let page = format!("vllm:lora_requests_info{{running_lora_adapters=\"{list}\",waiting_lora_adapters=\"w\"}} 1\n");
    let adapters = vllm(&page).loras.expect("adapters");
    assert_eq!(adapters.running.len(), MAX_ADAPTERS);
    assert_eq!(&adapters.running[..2], [longest, "a0".to_owned()]);
    assert_eq!(adapters.waiting, ["w"]);
    let page = b"vllm:lora_requests_info{running_lora_adapters=\"a,\xff,b\"} 1\n";
    let adapters = parse(Engine::Vllm, page).expect("a page").loras.expect("adapters");
    assert_eq!(adapters.running, ["a", "b"]);
}

#[test]
fn lines_and_pages_are_bounded() {
    let line = |length: usize| {
        let name = "vllm:num_requests_waiting";
        format!("{name}{}4\n", " ".repeat(length - name.len() - 1))
    };
    let good = "vllm:num_requests_waiting 1\n";
    assert_eq!(vllm(&format!("{}{good}", line(MAX_LINE))).waiting, Some(5.0));
    assert_eq!(vllm(&format!("{}{good}", line(MAX_LINE + 1))).waiting, Some(1.0));
    let page = format!("{good}{}", "\n".repeat(MAX_PAGE - good.len()));
    assert_eq!(vllm(&page).waiting, Some(1.0));
    let error = parse(Engine::Vllm, format!("{page}\n").as_bytes()).expect_err("too large");
    assert_eq!(error, MetricsError::TooLarge(MAX_PAGE + 1));
    assert_eq!(
        error.to_string(),
        "the page has 4194305 bytes, and at most 4194304 are read: check that the port and the path are those of the metrics"
    );
}

#[test]
fn pages_without_the_engines_families_say_what_to_do() {
    let text = |engine, page: &str| parse(engine, page.as_bytes()).expect_err("an error").to_string();
    for page in ["", "\n", "# TYPE vllm:num_requests_waiting gauge\n", "process_cpu_seconds_total 3\n", "vllm:num_requests_waiting"] {
        assert_eq!(
            text(Engine::Vllm, page),
            "the page has none of vllm:num_requests_waiting, vllm:num_requests_running, vllm:kv_cache_usage_perc, which vllm reports: \
             check that the label llm-d.ai/engine-type of the pod is right, and that the server reports metrics"
        );
    }
    assert_eq!(
        text(Engine::TritonTensorrtLlm, pages::SGLANG),
        "the page has none of nv_trt_llm_request_metrics, nv_trt_llm_kv_cache_block_metrics, which triton-tensorrt-llm reports: it has \
         those of sglang, so set the label llm-d.ai/engine-type of the pod to sglang"
    );
    for (page, engine) in [
        (pages::VLLM, Engine::Vllm),
        (pages::TRTLLM_SERVE, Engine::TrtllmServe),
        (pages::TRITON_TENSORRT_LLM, Engine::TritonTensorrtLlm),
        (pages::TRITON, Engine::Triton),
    ] {
        let error = parse(Engine::Sglang, page.as_bytes()).expect_err("another engine");
        assert!(matches!(error, MetricsError::NoFamilies { engine: Engine::Sglang, other: Some(other), .. } if other == engine), "{error}");
    }
    assert_eq!(
        text(Engine::TrtllmServe, "[{\"iter\": 1, \"numActiveRequests\": 2}]"),
        "the page isn't Prometheus text, because it begins with '[': check the port and the path of the metrics (trtllm-serve has JSON \
         at /metrics, and Prometheus text at /prometheus/metrics)"
    );
    assert_eq!(parse(Engine::Vllm, b" <html>"), Err(MetricsError::NotText('<')));
}
