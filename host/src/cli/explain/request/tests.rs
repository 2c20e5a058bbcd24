//! Records as a picker writes them, and their explanations, with simulated policies.

use super::{text, verdict};
use crate::endpoint_picker::decisions::record::Record;
use pointsman_picker::pick::EndpointFeatures;
use pointsman_sandbox::point::scoring::Term;
use serde_json::{Value, json};

/// A decision between three endpoints, of which a filter has removed one.
fn record() -> Value {
    let endpoint = |at: usize, score: Option<f64>, queue: Option<f64>, prefix: f64| {
        let features = json!({"queue-length": queue, "prefix-match": prefix, "uncached-tokens": 812.5, "session": null});
        json!({"pod": format!("llama-{at}"), "address": format!("10.0.0.{at}:8000"), "score": score, "features": features})
    };
    let mut record = json!({
        "number": 17, "request": "3f0c", "time": "2026-11-26T15:00:00.123456Z", "pool": "models/llama", "model": "llama",
        "objective": "interactive", "priority": 10, "flow": "default-flow", "promptTokens": 812, "outputLimit": 256,
        "waitedSeconds": 0.0125, "saturation": 0.75, "poolEndpoints": 3, "sent": ["10.0.0.1:8000"],
        "profiles": [{
            "name": "default", "picker": "max-score-picker", "seed": 42,
            "policy": {
                "name": "scheduling-scoring", "digest": format!("sha256:{}", "ab".repeat(32)),
                "features": ["queue-length", "prefix-match", "uncached-tokens", "session"],
            },
            "unanswered": [{"policy": "mine", "digest": format!("sha256:{}", "cd".repeat(32)), "reason": "Trapped", "message": "it trapped"}],
            "endpoints": [
                endpoint(1, Some(0.8), Some(3.0), 0.9),
                endpoint(0, Some(0.5), Some(0.0), 0.0),
                endpoint(2, None, None, 0.0),
            ],
            "leftOut": 0,
        }],
    });
    let endpoints = &mut record["profiles"][0]["endpoints"];
    endpoints[0]["chosen"] = true.into();
    endpoints[2]["removedBy"] = "label-selector-filter".into();
    record
}

/// Two scorers: the prefix has a weight of 0.8.
#[allow(clippy::unnecessary_wraps)] // It replaces a policy, which may fail.
fn scorers(rows: &[EndpointFeatures], row: usize) -> Result<Vec<Term>, String> {
    let EndpointFeatures { queue_length, prefix_match, .. } = rows[row];
    let queue = if queue_length > 0.0 { 0.08 } else { 0.5 };
    let prefix = prefix_match * 0.8;
    Ok(vec![
        Term::new("Queue", format!("{queue_length} requests wait in its queue."), queue),
        Term::new("PrefixCache", format!("It has cached {:.0} % of the prompt.", prefix_match * 100.0), prefix),
    ])
}

fn explained(record: Value, terms: impl FnMut(&[EndpointFeatures], usize) -> Result<Vec<Term>, String>) -> String {
    let record: Record = serde_json::from_value(record).unwrap();
    let explanations: Vec<_> = record.profiles.first().map(|profile| verdict::explain(profile, terms)).into_iter().collect();
    text::text(&record, &explanations)
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap()
}

#[test]
fn the_request_the_endpoints_and_the_parts_of_the_scores_are_shown() {
    let expected = "\
request      3f0c
time         2026-11-26T15:00:00.123456Z
pool         models/llama, 3 endpoints
model        llama
priority     10 (objective interactive), flow default-flow
tokens       812 in the prompt, by estimate, at most 256 in the response
waited       0.013 s in flow control
saturation   0.75
sent to      10.0.0.1:8000

profile default: scored by scheduling-scoring sha256:abababababab, chosen by max-score-picker
  no answer by mine sha256:cdcdcdcdcdcd: it trapped (Trapped)

    ENDPOINT        POD       SCORE                              QUEUE-LENGTH   PREFIX-MATCH
*   10.0.0.1:8000   llama-1   0.8000                             3              0.900
    10.0.0.0:8000   llama-0   0.5000                             0              0
    10.0.0.2:8000   llama-2   removed by label-selector-filter   -              0
the same for all: uncached-tokens 812.500

PART          10.0.0.1:8000   10.0.0.0:8000   DIFFERENCE
PrefixCache   0.7200          0.0000          +0.7200
Queue         0.0800          0.5000          -0.4200

10.0.0.1:8000
  PrefixCache: It has cached 90 % of the prompt.
  Queue: 3 requests wait in its queue.

10.0.0.0:8000
  PrefixCache: It has cached 0 % of the prompt.
  Queue: 0 requests wait in its queue.

PrefixCache made the difference between 10.0.0.1:8000 and 10.0.0.0:8000: +0.7200 of +0.3000; Queue (-0.4200) counted against it.
";
    assert_eq!(explained(record(), scorers), expected);
}

#[test]
fn equal_scores_chance_and_single_endpoints_are_named_as_what_decided() {
    let changed = |change: fn(&mut Value)| {
        let mut record = record();
        change(&mut record["profiles"][0]);
        last_line(&explained(record, scorers)).to_owned()
    };
    let equal = changed(|profile| profile["endpoints"][1]["score"] = 0.8.into());
    assert_eq!(equal, "Chance chose 10.0.0.1:8000 among the 2 endpoints with the score 0.8000 (seed 42).");
    let drawn = changed(|profile| profile["picker"] = "weighted-random-picker".into());
    assert_eq!(drawn, "Chance chose 10.0.0.1:8000, with odds by the scores (weighted-random-picker, seed 42).");
    let alone = changed(|profile| profile["endpoints"][1]["removedBy"] = "avoided".into());
    assert_eq!(alone, "10.0.0.1:8000 was the only endpoint left to choose.");
    let by_load = changed(|profile| profile["policy"] = Value::Null);
    assert!(by_load.starts_with("No policy has answered: 10.0.0.1:8000 had the least load"), "{by_load}");
    let none = changed(|profile| profile["endpoints"][0]["chosen"] = false.into());
    assert_eq!(none, "No endpoint was left to choose.");
}

#[test]
fn without_the_policy_or_its_numbers_the_scores_alone_are_compared() {
    let text = explained(record(), |_, _| Err("a plugin scored: specify the file with --policy".to_owned()));
    assert!(text.contains("\na plugin scored: specify the file with --policy\n") && !text.contains("DIFFERENCE"), "{text}");
    assert!(last_line(&text).starts_with("10.0.0.1:8000 has the better score, by 0.3000 against 10.0.0.0:8000"), "{text}");
    let wordy = |rows: &[EndpointFeatures], row: usize| {
        scorers(rows, row).map(|terms| terms.into_iter().map(|term| Term { value: None, ..term }).collect())
    };
    let text = explained(record(), wordy);
    assert!(text.contains("  Queue: 3 requests wait in its queue.") && last_line(&text).contains("by 0.3000"), "{text}");
    // A sum that differs from the score means that something isn't recorded.
    let text = explained(record(), |rows, row| scorers(rows, row).map(|terms| terms[1..].to_vec()));
    assert!(text.contains("The parts add up to 0.7200, and the score was 0.8000"), "{text}");
}

#[test]
fn scorers_find_the_range_of_all_endpoints_where_some_are_left_out() {
    let mut record = record();
    record["profiles"][0]["extremes"] = json!({"least": {"queue-length": 0}, "most": {"queue-length": 99}});
    record["profiles"][0]["leftOut"] = 136.into();
    let text = explained(record, |rows, row| {
        assert_eq!((rows.len(), rows[3].queue_length.to_bits()), (4, 99.0_f64.to_bits()), "neither what a filter has removed");
        scorers(rows, row)
    });
    assert!(text.contains("\nand 136 more, which aren't recorded\n"), "{text}");
}

#[test]
fn a_refused_request_is_shown_by_its_reason_and_what_clients_choose_stays_in_its_line() {
    let refused = json!({
        "number": 18, "request": "two\nlines", "time": "2026-11-26T15:00:01Z", "pool": "models/llama", "flow": "default-flow",
        "poolEndpoints": 0, "subset": 2, "refused": {"status": 503, "reason": "rejected-no-endpoints", "message": "The pool has no endpoint."},
    });
    let text = explained(refused, scorers);
    assert!(text.contains("\nrefused    503 rejected-no-endpoints: The pool has no endpoint.\n"), "{text}");
    assert!(text.contains("\npool       models/llama, 0 endpoints, the gateway allows 2\nmodel      unknown\n"), "{text}");
    assert!(!text.contains("\nlines"), "{text}");
}
