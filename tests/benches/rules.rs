//! 50 rules on an object of 10 KiB, compared with Kubernetes' own validator of ValidatingAdmissionPolicies, in Go: the same expressions on
//! the same object, each as its own rule and its own policy, alternating in one run.
#![allow(clippy::unwrap_used)]

use pointsman::load::Loader;
use pointsman_core::rules::{Rules, judge::RuleInput, rule::bind};
use pointsman_crds::policy::rule::{RuleStage, ValidationRuleSpec};
use pointsman_harness::{cluster_dir, target_dir};
use pointsman_sandbox::{
    compile::Compilers,
    engine::{Engines, Lane},
    point::Subject,
};
use pointsman_tests::{
    measure::{goal, is_quick, keep, quantile},
    pointsman,
    rules::{RULES, expression, object},
};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

/// The number of rounds, and of evaluations of all expressions per round.
const TURNS: usize = 20;
const TIMES: u32 = 100;

fn main() {
    let object = object();
    let expressions: Vec<String> = (0..RULES).map(expression).collect();
    let text = object.to_string();
    assert!((10 << 10..11 << 10).contains(&text.len()), "the object has {} bytes", text.len());

    let rules = rules(&expressions);
    let about =
        Subject { group: "ome.io".to_owned(), version: "v1beta1".to_owned(), kind: "InferenceService".to_owned(), ..Subject::default() };
    let ours = || {
        // As from a watch: a new object each time.
        let text: Arc<str> = text.as_str().into();
        let mut root = |name: &str| (name == "object").then(|| Arc::clone(&text));
        let judgement = rules.judge(RuleInput {
            stage: RuleStage::Input,
            about: &about,
            operation: None,
            root: &mut root,
            around: None,
            lane: Lane::Work,
        });
        assert_eq!((judgement.matched.len(), judgement.findings.len()), (RULES, 0), "{:?}", judgement.findings);
    };
    ours();
    let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
    for _ in 0..if is_quick() { 3 } else { TURNS } {
        let begun = Instant::now();
        for _ in 0..TIMES {
            ours();
        }
        of_ours.push(begun.elapsed() / TIMES);
        of_theirs.push(theirs(&object, &expressions));
    }
    let (ours, theirs) = (quantile(&of_ours, 0.5), quantile(&of_theirs, 0.5));
    println!("\n{RULES} rules on an object of {} bytes: {ours:.0?}; Kubernetes' own validator takes {theirs:.0?}", text.len());
    let times = ours.as_secs_f64() / theirs.as_secs_f64();
    goal("ours / Kubernetes'", &format!("{times:.2}"), "<= 1", times <= 1.0);
    keep("50 rules on an object of 10 KiB", &[("native", theirs), ("in the sandbox", ours)]);
}

/// The median of one round of Kubernetes' validator.
fn theirs(object: &Value, expressions: &[String]) -> Duration {
    let mut validator = Command::new(cluster_dir().join("bin/pointsman-cluster"))
        .arg("validate")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = json!({"object": object, "expressions": expressions, "batches": 5, "times": TIMES / 5});
    validator.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let said = validator.wait_with_output().unwrap();
    assert!(said.status.success());
    Duration::from_nanos(String::from_utf8(said.stdout).unwrap().trim().parse().unwrap())
}

fn rules(expressions: &[String]) -> Rules {
    let engines = Arc::new(Engines::with_slots(8).unwrap());
    let loader = Loader::new(engines, Compilers::new(pointsman(), &target_dir().join("tmp/rules-cache")).unwrap());
    let rule = |(number, expression): (usize, &String)| {
        let spec = json!({"validations": [{"expression": expression}]});
        let spec: ValidationRuleSpec = serde_json::from_value(spec).unwrap();
        Arc::new(loader.rule(bind(&format!("rule-{number:02}"), &spec, None)).unwrap())
    };
    Rules::new(expressions.iter().enumerate().map(rule).collect(), Some(loader.evaluator().unwrap()))
}
