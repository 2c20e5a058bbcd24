//! The rules that the host brings, on golden cases: what each lets pass, and what it doesn't.

use crate::program::{pointsman, printed_json};
use kube::ResourceExt;
use pointsman_core::rules::shipped;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// How many characters of a warning kubectl is sure to show.
const LONGEST_WARNING: usize = 256;

/// What came of all cases, as `pointsman rule test` tells it.
static CASES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut report = printed_json(0, pointsman(&["rule", "test", "-o", "json"]).args(files()));
    serde_json::from_value(report["cases"].take()).unwrap()
});

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("core/src/rules/shipped/cases");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_golden_case_passes() {
    let failed: Vec<String> = CASES
        .iter()
        .filter(|case| case["passed"] != true)
        .map(|case| format!("{} ({}): {}", case["name"], case["place"], case["problem"]))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_rule_that_the_host_brings_has_cases_that_pass_and_cases_that_do_not() {
    let expected = |rule: &str, verdict: &Value| CASES.iter().any(|case| case["rule"] == rule && case["expected"] == *verdict);
    for rule in shipped::all() {
        let name = rule.name_any();
        assert!(expected(&name, &json!("Pass")), "no case shows what {name} lets pass");
        for action in &rule.spec.actions {
            assert!(expected(&name, &json!(action)), "no case shows what {name} is there for");
        }
    }
}

#[test]
fn every_warning_of_a_practice_is_told_whole() {
    let warned = CASES.iter().filter(|case| case["expected"] == "Warn");
    let warnings: Vec<String> = warned
        .flat_map(|case| {
            let rule = case["rule"].as_str().unwrap();
            case["messages"].as_array().unwrap().iter().map(move |message| format!("{rule}: {}", message.as_str().unwrap()))
        })
        .collect();
    assert!(!warnings.is_empty());
    for warning in warnings {
        assert!(warning.chars().count() <= LONGEST_WARNING, "{warning}");
    }
}

#[test]
fn a_practice_only_warns() {
    for rule in shipped::all().iter().filter(|rule| rule.name_any().starts_with("practice-")) {
        assert_eq!(json!(rule.spec.actions), json!(["Warn"]), "{}", rule.name_any());
        assert!(rule.spec.enabled, "{}", rule.name_any());
    }
}
