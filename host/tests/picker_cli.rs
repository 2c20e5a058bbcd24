//! `pointsman picker simulate`: the effect of policies, before one is used.

use crate::{
    policies::module,
    program::{empty_folder, ended, pointsman, printed_json},
};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// Two conversations of three turns each, and a request for an adapter.
const TRACE: &str = r#"{"at": 100, "blocks": [1, 2, 3, 4], "output": 3}
{"at": 100.1, "blocks": ["a", "b", "c", "d"], "output": 3}
{"at": 100.5, "blocks": [1, 2, 3, 4, 5, 6], "output": 3}
{"at": 100.6, "blocks": ["a", "b", "c", "d", "e", "f"], "output": 3}

{"at": 100.6, "blocks": [1, 2, 3, 4, 5, 6, 7, 8], "tokens": 900, "output": 3, "priority": 1, "flow": "first", "session": "s"}
{"at": 101, "blocks": ["a", "b", "c", "d", "e", "f", "g", "h"], "output": 1}
{"at": 101, "blocks": [1, 2, 3, 4], "output": 3, "model": "adapter"}
"#;

/// The output for it.
const GOLDEN: &str = "\
7 requests within 1.0 s (the trace trace.jsonl), to 2 endpoints that report every 50ms.
An endpoint has 64 seats and 64 blocks of 128 tokens. A token of a prompt takes 50 us, and one of output 10000 us, and 100 us more for each request that runs.

POLICY        REQUESTS   REFUSED   TTFT MEAN   TTFT P50   TTFT P90   TTFT P99   PER TOKEN   TOKENS/S   PREFIX HITS   MAX QUEUE
default       7          0         17.4 ms     12.8 ms    25.6 ms    25.6 ms    10.1 ms     18         51.2 %        0
round-robin   7          0         17.4 ms     12.8 ms    25.6 ms    25.6 ms    10.1 ms     18         51.2 %        0
least-queue   7          0         26.5 ms     25.6 ms    38.4 ms    38.4 ms    10.1 ms     18         30.7 %        1
";

/// Two endpoints.
const SMALL: [&str; 8] = ["--endpoints", "2", "--block-tokens", "128", "--kv-blocks", "64", "--seed", "7"];

fn simulated(folder: &Path, words: &[&str]) -> Value {
    let mut command = pointsman(&[&["picker", "simulate", "-o", "json"], words].concat());
    printed_json(0, command.current_dir(folder))
}

/// The result of a policy.
fn row<'v>(printed: &'v Value, policy: &str) -> &'v Value {
    let rows = printed["policies"].as_array().unwrap();
    rows.iter().find(|row| row["policy"] == policy).unwrap_or_else(|| panic!("no row {policy} in {printed:#}"))
}

fn mean(printed: &Value, policy: &str) -> f64 {
    row(printed, policy)["timeToFirstTokenSeconds"]["mean"].as_f64().unwrap()
}

#[test]
fn a_trace_has_a_row_for_each_policy() {
    let folder = empty_folder("simulated");
    fs::write(folder.join("trace.jsonl"), TRACE).unwrap();
    let words = [&["picker", "simulate", "--trace", "trace.jsonl"], &SMALL[..]].concat();
    let (printed, said) = ended(0, &folder, &words, "");
    assert_eq!((printed.as_str(), said.as_str()), (GOLDEN, ""));
    let found = simulated(&folder, &[&["--trace", "trace.jsonl"], &SMALL[..]].concat());
    assert_eq!(found["workload"], json!({"source": "the trace trace.jsonl", "requests": 7, "seconds": 1.0}));
    assert_eq!((&found["fleet"]["endpoints"], &found["fleet"]["reportIntervalUs"]), (&json!(2), &json!(50_000)));
    assert_eq!(found["notes"], json!([]));
}

#[test]
fn prefixes_and_queues_pay_off_where_they_should_and_equal_seeds_are_equal() {
    let folder = empty_folder("simulated-workloads");
    let shared = ["--requests", "600", "--seed", "3", "--rate", "30"];
    let printed = simulated(&folder, &shared);
    assert_eq!(printed, simulated(&folder, &shared));
    assert!(mean(&printed, "default") < 0.7 * mean(&printed, "round-robin"), "{printed:#}");
    let hits = |policy: &str| row(&printed, policy)["prefixHitShare"].as_f64().unwrap();
    assert!(hits("default") > hits("round-robin"), "{printed:#}");
    assert_eq!(row(&printed, "default")["requests"], 600);

    let bursty = ["--workload", "bursty", "--requests", "600", "--compare", "least-queue,random"];
    let printed = simulated(&folder, &bursty);
    assert!(mean(&printed, "least-queue") < mean(&printed, "random"), "{printed:#}");
    let other = simulated(&folder, &[&bursty[..], &["--seed", "2"]].concat());
    assert_ne!(printed["policies"], other["policies"]);
}

#[test]
fn policies_of_one_s_own_are_rows_with_names_of_their_own() {
    let folder = empty_folder("simulated-policies");
    fs::write(folder.join("balance.wasm"), module("pointsman-example-rust-balance")).unwrap();
    fs::write(folder.join("busiest.yaml"), "weights: {queue-length: 1, running-requests: 1, prefix-match: 0, kv-cache-utilization: 0}")
        .unwrap();
    let policies = ["--policy", "balance.wasm", "--policy", "balance.wasm=busiest", "--policy-config", "busiest=busiest.yaml"];
    let printed = simulated(&folder, &[&["--requests", "300", "--compare", "random"], &policies[..]].concat());
    let names: Vec<&str> = printed["policies"].as_array().unwrap().iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(names, ["balance", "busiest", "random"]);
    assert!(mean(&printed, "balance") < mean(&printed, "busiest"), "{printed:#}");
    assert_eq!((&row(&printed, "balance")["policyFailures"], &printed["notes"]), (&json!({}), &json!([])));

    let refused = |words: &[&str]| ended(1, &folder, &[&["picker", "simulate"], words].concat(), "").1;
    let twice = refused(&["--policy", "balance.wasm", "--policy", "balance.wasm"]);
    assert!(twice.contains("two rows would have the name balance: set another with FILE=NAME"), "{twice}");
    let nobody = refused(&["--policy", "balance.wasm", "--policy-config", "x=busiest.yaml"]);
    assert!(nobody.contains("--policy-config x=busiest.yaml: there is no --policy of this name"), "{nobody}");
    fs::write(folder.join("trace.jsonl"), "{\"at\": 1}\n").unwrap();
    let wrong = refused(&["--trace", "trace.jsonl"]);
    assert!(wrong.contains("--trace: trace.jsonl: line 1: column 9: missing field `output`: write a request as {"), "{wrong}");
    assert_eq!(wrong.lines().count(), 1, "{wrong}");
}

#[test]
fn flow_control_and_filters_are_those_of_the_configuration() {
    const CONFIG: &str = "\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: queue-scorer
- type: concurrency-detector
  parameters: {maxConcurrency: 2}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer}]
flowControl:
  maxRequests: 40
  defaultRequestTTL: 5s
  saturationDetector: {pluginRef: concurrency-detector}
";
    let folder = empty_folder("simulated-flow-control");
    fs::write(folder.join("config.yaml"), CONFIG).unwrap();
    let words = ["--config-file", "config.yaml", "--workload", "bursty", "--requests", "400", "--compare", "default", "--endpoints", "4"];
    let printed = simulated(&folder, &words);
    assert_eq!(printed, simulated(&folder, &words));
    for policy in ["config", "default"] {
        let row = row(&printed, policy);
        let refused: u64 = row["refused"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(row["requests"].as_u64().unwrap() + refused, 400, "{row:#}");
        assert!(refused > 0 && row["maxWaiting"] == 40 && row["maxQueue"].as_u64().unwrap() <= 8, "{row:#}");
    }
    let note = printed["notes"][0].as_str().unwrap();
    assert_eq!(note, "config: by flow control, up to 40 requests have waited in the picker");
}
