#![allow(clippy::unwrap_used)]
//! The corpus, which the API server also evaluates (tests/fixtures/cel): each verdict is Kubernetes', unless it is marked as our own.

use pointsman_cel::{Evaluator, Outcome, Rule, Validation, Verdict};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    objects: BTreeMap<String, serde_json::Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    expression: String,
    object: Option<String>,
    verdict: String,
    ours: Option<String>,
    #[allow(dead_code, reason = "it is for who reads the file")]
    because: Option<String>,
}

fn judged(expression: &str, object: &serde_json::Value) -> (String, String) {
    let rule = Rule {
        roots: ["object", "oldObject", "params", "namespaceObject", "request"].map(str::to_owned).to_vec(),
        validations: vec![Validation { expression: expression.to_owned(), message: None }],
        ..Rule::default()
    };
    let mut evaluator = Evaluator::default();
    if let Err(problems) = evaluator.load(&rule) {
        return ("refused".to_owned(), problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; "));
    }
    let null = ["oldObject", "params", "namespaceObject"].map(|root| (root.to_owned(), "null".to_owned()));
    evaluator.bind([("object".to_owned(), object.to_string())].into_iter().chain(null));
    let Outcome::Judged(verdicts) = evaluator.evaluate(0) else {
        return ("undecided".to_owned(), String::new());
    };
    match verdicts.first() {
        Some(Verdict::Holds) => ("holds".to_owned(), String::new()),
        Some(Verdict::Broken(_)) => ("broken".to_owned(), String::new()),
        Some(Verdict::Failed(problem)) => ("failed".to_owned(), problem.message.clone()),
        None => ("nothing".to_owned(), String::new()),
    }
}

#[test]
fn the_verdicts_are_those_of_kubernetes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/cel");
    let mut differences = Vec::new();
    let mut cases = 0;
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let file: File = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let first = std::fs::read_to_string(&path).unwrap();
        for case in &file.cases {
            cases += 1;
            let object = case.object.clone().unwrap_or_else(|| first_object(&first));
            let (verdict, message) = judged(&case.expression, &file.objects[&object]);
            let expected = case.ours.as_ref().unwrap_or(&case.verdict);
            if verdict != *expected {
                differences.push(format!("{name}: {}\n    {verdict} ({message}), not {expected}", case.expression));
            }
        }
    }
    assert!(cases >= 150, "only {cases} cases in {}", folder.display());
    assert!(differences.is_empty(), "{} of {cases} differ:\n{}", differences.len(), differences.join("\n"));
}

/// The default object of the cases in a file: its first one.
fn first_object(file: &str) -> String {
    let objects = file.lines().skip_while(|line| *line != "objects:").skip(1);
    objects.map(str::trim).find(|line| line.ends_with(':') && !line.starts_with('#')).unwrap().trim_end_matches(':').to_owned()
}
