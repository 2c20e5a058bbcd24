//! Label values that Kubernetes would reject, and configured values.

mod asking;

use asking::{Ask, PodTemplate, annotation, label};
use pointsman_metadata_propagation::{Config, Pattern, valid_label_value};
use std::borrow::Cow;

#[test]
fn a_valid_value_stays() {
    let longest = "a".repeat(63);
    for valid in ["", "a", "7B", "v1.2_3-x", longest.as_str()] {
        assert!(matches!(valid_label_value(valid), Cow::Borrowed(same) if same == valid), "{valid}");
    }
}

#[test]
fn what_is_changed_ends_with_a_hash_of_the_raw_value() {
    let long = "a".repeat(64);
    let odd_cut = format!("{}-_.{}", "b".repeat(53), "c".repeat(20));
    for (raw, valid) in [
        ("Meta Platforms, Inc.", "Meta-Platforms--Inc-647e345c"),
        ("meta/llama", "meta-llama-597984f4"),
        (" meta ", "meta-852a837c"),
        ("-a-", "a-01bc72d5"),
        ("é", "bdda0906"),
        ("...", "1b922c0e"),
        (long.as_str(), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-285ec3ac"),
        (odd_cut.as_str(), "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-4db61e43"),
    ] {
        assert_eq!(valid_label_value(raw), valid, "{raw}");
    }
}

#[test]
fn different_values_stay_different() {
    assert_ne!(valid_label_value("a b"), valid_label_value("a/b"));
    assert_ne!(valid_label_value(&"a".repeat(64)), valid_label_value(&"a".repeat(65)));
}

#[test]
fn a_fact_is_made_a_labels_value_and_stays_raw_as_an_annotation() {
    let answer = Ask::engine(PodTemplate).layer("facts", &[("model.ome.io/vendor", "Meta Platforms, Inc.")], &[]).answer();
    assert_eq!(label(&answer, "model.ome.io/vendor"), "Meta-Platforms--Inc-647e345c (facts)");
    assert_eq!(label(&answer, "base-model-vendor"), "Meta-Platforms--Inc-647e345c (facts)");
    assert_eq!(annotation(&answer, "ome.io/base-model-vendor"), "Meta Platforms, Inc. (facts)");
    let told: Vec<_> = answer.reasons.iter().map(|reason| (reason.code.as_str(), reason.message.as_str())).collect();
    let sentence =
        |key| format!("The label {key} has the value Meta-Platforms--Inc-647e345c, because Kubernetes rejects `Meta Platforms, Inc.`.");
    let expected = [sentence("base-model-vendor"), sentence("model.ome.io/vendor")];
    assert_eq!(told, expected.each_ref().map(|sentence| ("ValueShortened", sentence.as_str())));
}

#[test]
fn a_long_raw_value_is_told_by_its_beginning() {
    let raw = "ä".repeat(100);
    let answer = Ask::engine(PodTemplate).layer("component", &[("a", &raw)], &[]).answer();
    assert!(answer.reasons[0].message.contains(&format!("`{}...`", "ä".repeat(80))), "{}", answer.reasons[0].message);
}

#[test]
fn only_a_value_that_is_placed_is_told() {
    let ask = Ask::engine(PodTemplate).layer("runtime", &[("a", "x y")], &[]).layer("component", &[("a", "z")], &[]);
    assert!(ask.answer().reasons.is_empty());
}

#[test]
fn an_annotations_value_travels_as_it_is() {
    let answer = Ask::engine(PodTemplate).layer("subject", &[], &[("a", "{\"x\": 1}\n")]).answer();
    assert_eq!(annotation(&answer, "a"), "{\"x\": 1}\n (subject)");
    assert!(answer.reasons.is_empty());
}

#[test]
fn a_configured_value_is_made_valid_too() {
    let config = Config { managed_by: "my team".into(), ..Config::default() };
    let answer = Ask::engine(PodTemplate).with(&config);
    assert_eq!(label(&answer, "ome.io/managed-by"), format!("{} (plugin)", valid_label_value("my team")));
}

#[test]
fn a_pattern_that_names_nothing_is_refused() {
    for text in ["", "a*b", "*a", "a**", "*.example.com/"] {
        let refused = Pattern::try_from(text.to_owned()).unwrap_err();
        assert!(refused.contains("names no keys"), "{refused}");
    }
    for text in ["a", "a*", "a/", "example.com/*", "*"] {
        assert!(Pattern::try_from(text.to_owned()).is_ok(), "{text}");
    }
}
