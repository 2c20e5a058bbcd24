//! A question has the same JSON everywhere: as the host sends it, as the SDK receives it, and as golden cases write it.

use crate::questions::{Carrying, Dice, Scoring, Selecting, Templating, carried, templated, verdict};
use pointsman_core::decide;
use pointsman_plugin as sdk;
use pointsman_sandbox::point::{describe, propagation, scoring, selection, templating};
use serde::{Serialize, de::DeserializeOwned};

const CASES: u64 = 300;

/// Asserts that the SDK's type reads the host's JSON and writes it unchanged.
fn same<Sdk: Serialize + DeserializeOwned>(seed: u64, host: &impl Serialize) {
    let written = serde_json::to_string(host).unwrap();
    let read: Sdk = serde_json::from_str(&written).unwrap_or_else(|error| panic!("case {seed}: {error}: {written}"));
    assert_eq!(serde_json::to_string(&read).unwrap(), written, "case {seed}");
}

/// A text after it is read and written again, or the error.
fn read<T: Serialize + DeserializeOwned>(text: &str) -> Result<String, String> {
    serde_json::from_str::<T>(text).map(|read| serde_json::to_string(&read).unwrap()).map_err(|error| error.to_string())
}

/// Asserts that the host and the SDK agree on a text, and returns the result.
fn both<Host: Serialize + DeserializeOwned, Sdk: Serialize + DeserializeOwned>(text: &str) -> Result<String, String> {
    let (host, sdk) = (read::<Host>(text), read::<Sdk>(text));
    assert_eq!(host, sdk, "{text}");
    host
}

#[test]
fn every_question_of_the_host_is_read_and_written_alike_by_the_sdk() {
    for seed in 0..CASES {
        let dice = &mut Dice::new(seed);
        same::<sdk::runtime_selection::Request>(seed, &Selecting::new(dice).request());
        same::<sdk::metadata_propagation::Request>(seed, &Carrying::new(dice).request());
        same::<sdk::pod_templating::Request>(seed, &Templating::new(dice).request());
        let scoring = Scoring::new(dice, 3);
        same::<sdk::scheduling_scoring::Request>(seed, &scoring.request());
    }
}

#[test]
fn every_answer_is_read_as_it_is_written() {
    for seed in 0..CASES {
        let dice = &mut Dice::new(seed);
        same::<sdk::runtime_selection::Verdict>(seed, &verdict(dice));
        same::<sdk::metadata_propagation::Answer>(seed, &carried(dice));
        same::<sdk::pod_templating::Answer>(seed, &templated(dice));
        same::<sdk::scheduling_scoring::Scores>(seed, &scoring::Scores(dice.list(9, Dice::number)));
    }
}

#[test]
fn an_answer_leaves_out_what_may_be_left_out_and_nothing_else() {
    let verdicts = read::<Vec<selection::Verdict>>;
    assert!(verdicts(r#"["abstain", {"eligible": {}}, {"eligible": {"score": 1, "tieBreak": null, "reasons": null}}]"#).is_ok());
    for refused in
        [r#"["Abstain"]"#, r#"[{"eligible": {"tie_break": []}}]"#, r#"[{"excluded": {"code": "A"}}]"#, r#"[{"eligible": {"score": null}}]"#]
    {
        assert!(verdicts(refused).is_err(), "{refused}");
    }

    let carried = read::<propagation::Answer>;
    assert_eq!(carried("{}").unwrap(), r#"{"labels":[],"annotations":[]}"#);
    assert_eq!(carried(r#"{"labels": null, "annotations": null, "dropped": null, "reasons": null}"#), carried("{}"));
    assert!(carried(r#"{"labels": [{"key": "a", "value": "b"}]}"#).unwrap_err().contains("missing field `layer`"));

    let templated = read::<templating::Answer>;
    let null = r#"{"operations":[{"action":"add","path":"/a","value":null,"layer":"plugin"}]}"#;
    assert_eq!(templated(null).unwrap(), null, "null is a value");
    let absent = r#"{"operations":[{"action":"remove","path":"/a","layer":"plugin"}]}"#;
    assert_eq!(templated(absent).unwrap(), absent);
    assert!(templated(r#"{"operations":[{"action":"Add","path":"/a","layer":"plugin"}]}"#).is_err());

    let scores = read::<scoring::Scores>;
    assert_eq!(scores("[0.1, null]").unwrap(), "[0.1,null]");
    assert_eq!(scores("null").unwrap(), "[]");

    let described = read::<describe::Description>;
    let full = r#"{"name":"a","version":"1","points":["pod-templating"],"configSchema":{"type":"object"},"features":[{"question":"endpoint-pick","features":["x"]}],"wantsTime":true}"#;
    assert_eq!(described(full).unwrap(), full);
    assert!(described(r#"{"configSchema": null, "points": null}"#).unwrap().contains(r#""configSchema":null"#));
    assert!(described(r#"{"point": []}"#).unwrap_err().contains("unknown field `point`"));
}

#[test]
fn a_golden_case_s_question_is_the_same_to_both() {
    let selecting = both::<decide::selection::Inputs, sdk::runtime_selection::Request>;
    let short = r#"{"subject": {"labels": null}, "model": {"capabilities": null}, "candidates": [{"models": [{}]}]}"#;
    assert!(selecting(short).unwrap().contains(r#""named":false}"#));
    assert!(selecting(r#"{"subject": {}, "model": {}, "candidates": null}"#).is_err());
    assert!(selecting(r#"{"subject": {}, "model": {}}"#).unwrap_err().contains("missing field `candidates`"));
    assert!(selecting(r#"{"subject": {}, "model": {"size": "8B"}, "candidates": []}"#).unwrap_err().contains("unknown field `size`"));

    let carrying = both::<decide::propagation::Inputs, sdk::metadata_propagation::Request>;
    let short = r#"{"subject": {}, "target": {"groupRole": "leader", "place": "pod-template"}, "layers": [{"name": "a"}], "now": 60}"#;
    assert!(carrying(short).unwrap().ends_with(r#""labels":[],"annotations":[],"now":60}"#));
    assert!(carrying(r#"{"subject": {}, "target": {"role": "Engine"}, "layers": []}"#).is_err());

    let full = r#"{"subject": {}, "model": {}, "candidates": [], "accelerators": [{"name": "h100"}], "demands": [{"role": "engine"}],
        "current": {"name": "vllm"}, "facts": [{"name": "a", "value": {"b": 1}}]}"#;
    assert!(selecting(full).unwrap().contains(r#""facts":[{"name":"a","value":{"b":1}}]"#));

    let templating = both::<decide::templating::Inputs, sdk::pod_templating::Request>;
    let short =
        r#"{"subject": {}, "role": "engine", "layers": [{"name": "user", "content": {"b": 1, "a": 0.1}}], "template": {"spec": {}}}"#;
    assert!(templating(short).unwrap().contains(r#""content":{"b":1,"a":0.1}"#));
    assert!(templating(r#"{"subject": {}, "role": "engine", "layers": []}"#).unwrap_err().contains("missing field `template`"));
}
