//! `pointsman plugin test`.

use super::{
    cases::{Expected, PluginCase},
    diff,
    file::{FileArgs, PluginUnderTest},
};
use crate::cli::{
    golden::{self, CasesArgs},
    output::OutputArgs,
};
use anyhow::Result;
use clap::Args;
use pointsman_core::{
    compare::places::places,
    decide::member::Member,
    point::{answered, name},
};
use pointsman_crds::policy::plugin::PluginInstances;
use serde::Serialize;
use serde_json::Value;
use std::{collections::HashMap, process::ExitCode, sync::Arc};

#[derive(Args, Debug)]
pub(super) struct TestArgs {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    cases: CasesArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result of one case.
#[derive(Debug, Serialize)]
struct Outcome {
    name: String,
    point: &'static str,
    place: String,
    passed: bool,
    /// The problem, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<Value>,
}

pub(super) fn run(args: &TestArgs) -> Result<ExitCode> {
    let cases: Vec<PluginCase> = args.cases.read()?;
    let mut members = Members::new(PluginUnderTest::new(&args.file)?, PluginInstances::Fresh);
    golden::run(&cases, args.output, |case| Ok(outcome(case, &members.answer(case))))
}

/// The plugin with each configuration of the cases.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) bench: PluginUnderTest,
    instances: PluginInstances,
    loaded: HashMap<String, Result<Arc<Member>, String>>,
}

impl Members {
    pub(super) fn new(bench: PluginUnderTest, instances: PluginInstances) -> Self {
        Self { bench, instances, loaded: HashMap::new() }
    }

    pub(super) fn for_config(&mut self, config: &str) -> Result<Arc<Member>, String> {
        if let Some(known) = self.loaded.get(config) {
            return known.clone();
        }
        let loaded = self.bench.load(config, self.instances).map(Arc::new);
        self.loaded.insert(config.to_owned(), loaded.clone());
        loaded
    }

    /// The answer to a case's inputs, or a sentence with the reason why there is none.
    fn answer(&mut self, case: &PluginCase) -> Result<Value, String> {
        let answered = answered(&self.bench.described.description);
        if !answered.contains(&case.question.point()) {
            let points = answered.into_iter().map(name).collect::<Vec<_>>().join(", ");
            return Err(format!("the plugin doesn't support {}; it supports {points}", case.point()));
        }
        let member = self.for_config(&case.config)?;
        case.question.ask(&member).map(|answered| answered.value).map_err(|error| error.to_string())
    }
}

fn outcome(case: &PluginCase, answer: &Result<Value, String>) -> Outcome {
    let mut outcome = Outcome {
        name: case.name.clone(),
        point: case.point(),
        place: case.place.clone(),
        passed: false,
        problem: None,
        expected: None,
        actual: answer.as_ref().ok().cloned(),
    };
    outcome.problem = match (&case.expected, answer) {
        (Some(Expected::Answer(expected)), Ok(actual)) => {
            outcome.expected = Some(expected.clone());
            places(expected, actual, 1).pop().map(|at| match at.as_str() {
                "" => "the answer differs".to_owned(),
                at => format!("the answer differs, first at {at}"),
            })
        }
        (Some(Expected::Answer(expected)), Err(error)) => {
            outcome.expected = Some(expected.clone());
            Some(format!("expected an answer, but {error}"))
        }
        (Some(Expected::Error(part)), Ok(_)) => Some(format!("expected an error with {part:?}, but the plugin answers")),
        (Some(Expected::Error(part)), Err(error)) => {
            (!error.contains(part.as_str())).then(|| format!("expected an error with {part:?}, but {error}"))
        }
        (None, Ok(_)) => Some("the case has neither answer nor error, and the plugin answers".to_owned()),
        (None, Err(error)) => Some(format!("the case has neither answer nor error, and {error}")),
    };
    outcome.passed = outcome.problem.is_none();
    outcome
}

/// In the format of a case, so that it can be copied from the screen.
fn yaml(value: Option<&Value>) -> String {
    value.map(|value| serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}"))).unwrap_or_default()
}

impl golden::Outcome for Outcome {
    fn case(&self) -> (&str, &str) {
        (&self.name, &self.place)
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn details(&self) -> Vec<String> {
        diff::lines(&yaml(self.expected.as_ref()), &yaml(self.actual.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::Question;
    use super::*;
    use anstream::adapter::strip_str;
    use pointsman_crds::policy::plugin::PolicyPoint;
    use serde_json::json;

    fn outcome_for(expected: Option<Expected>, answer: Result<Value, &str>) -> Outcome {
        let question = Question::parse(PolicyPoint::SchedulingScoring, json!({"question": "endpoint-pick"})).unwrap();
        let case = PluginCase { name: "a".into(), config: "{}".into(), question, expected, place: "cases.yaml:3".into() };
        outcome(&case, &answer.map_err(str::to_owned))
    }

    #[test]
    fn a_case_passes_by_its_answer_or_by_a_part_of_its_error() {
        assert!(outcome_for(Some(Expected::Answer(json!([1]))), Ok(json!([1]))).passed);
        assert!(outcome_for(Some(Expected::Error("loops".into())), Err("it loops")).passed);
        for (expected, answer, says) in [
            (Some(Expected::Answer(json!([1]))), Ok(json!([2])), "first at [0]"),
            (Some(Expected::Answer(json!([1]))), Err("it trapped"), "expected an answer, but it trapped"),
            (Some(Expected::Error("loops".into())), Err("it trapped"), "with \"loops\", but it trapped"),
            (Some(Expected::Error("loops".into())), Ok(json!([1])), "but the plugin answers"),
            (None, Ok(json!([1])), "neither answer nor error"),
        ] {
            let outcome = outcome_for(expected, answer);
            assert!(!outcome.passed && outcome.problem.as_deref().unwrap().contains(says), "{outcome:?}");
        }
    }

    #[test]
    fn a_failed_case_tells_where_it_stands_and_how_the_answers_differ() {
        assert_eq!(
            strip_str(&golden::result_lines(&outcome_for(Some(Expected::Answer(json!([0.5, 1]))), Ok(json!([0.5, 2]))))).to_string(),
            "FAILED  a (cases.yaml:3)\n        the answer differs, first at [1]\n          - 0.5\n        - - 1\n        + - 2"
        );
        assert_eq!(
            strip_str(&golden::result_lines(&outcome_for(Some(Expected::Answer(json!([]))), Ok(json!([]))))).to_string(),
            "ok      a"
        );
    }
}
