//! `pointsman rule test`.

use super::cases::{CaseInputs, RuleCase, RuleVerdict};
use crate::{
    cli::{
        HostNamespaceArgs,
        cache::CacheArgs,
        exit::InputErrors,
        golden::{self, CasesArgs},
        offline::{
            files,
            objects::{OfflineObjects, gather},
            policies,
        },
        output::OutputArgs,
        render::loader,
    },
    load::Loader,
};
use anyhow::{Result, anyhow, bail};
use clap::Args;
use pointsman_core::{
    objects::strings,
    question::entries,
    rules::visible,
    rules::{
        Rules,
        judge::{self, Judgement},
        lookups::LOOKUPS,
        rule::{Rule, bind},
        shipped,
    },
};
use pointsman_crds::policy::rule::{Operation, RuleAction, RuleStage, ValidationRuleSpec};
use pointsman_sandbox::{engine::Lane, point::Subject};
use serde::Serialize;
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode, sync::Arc};

#[derive(Args, Debug)]
pub(super) struct TestArgs {
    /// File of ValidationRules and of their ConfigMaps, folder of such files, or - for standard input; may be repeated. Default: the
    /// shipped rules
    #[arg(short, long = "file", value_name = "FILE|FOLDER|-")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    cases: CasesArgs,
    #[command(flatten)]
    host: HostNamespaceArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The result of one case.
#[derive(Debug, Serialize)]
struct Outcome {
    name: String,
    rule: String,
    place: String,
    passed: bool,
    expected: RuleVerdict,
    actual: RuleVerdict,
    /// The rule's messages.
    messages: Vec<String>,
    /// The problem, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(super) fn run(args: &TestArgs) -> Result<ExitCode> {
    let cases: Vec<RuleCase> = args.cases.read()?;
    let (gathered, problems) = gather(files::read(&args.files)?, "default");
    InputErrors::check(problems)?;
    let bench = RulesUnderTest { gathered, host_namespace: &args.host.host_namespace, loader: loader(&args.cache)? };
    golden::run(&cases, args.output, |case| Ok(outcome(case, bench.ask(case)?)))
}

/// The rules that can be tested.
struct RulesUnderTest<'a> {
    gathered: OfflineObjects,
    host_namespace: &'a str,
    loader: Loader,
}

/// A rule's answer.
struct Answer {
    verdicts: Vec<RuleVerdict>,
    messages: Vec<String>,
}

impl RulesUnderTest<'_> {
    /// Evaluates the case's rule.
    fn ask(&self, case: &RuleCase) -> Result<Answer> {
        let (spec, place) = self.spec(case)?;
        let found = || policies::params(&self.gathered, spec.params.as_ref(), self.host_namespace);
        let params = case.known.params.clone().or_else(found);
        // A disabled rule is tested as if it were enabled.
        let spec = ValidationRuleSpec { enabled: true, ..spec.clone() };
        let rule = self.loader.rule(bind(&case.rule, &spec, params));
        let rule = rule.map_err(|error| anyhow!("{place}: the ValidationRule {} can't be used: {error}", case.rule))?;
        if case.known.params.is_some() && spec.params.is_none() {
            bail!("{}: the case {:?} has params, and the rule {} names no ConfigMap", case.place, case.name, case.rule);
        }
        if rule.looks_up() && !case.known.roots.contains_key(LOOKUPS) {
            bail!(
                "{}: the case {:?} has no lookups, and the rule {} reads some: add `lookups: {{NAME: VALUE}}`",
                case.place,
                case.name,
                case.rule
            );
        }
        let evaluator = self.loader.evaluator().map_err(|why| anyhow!(why))?;
        let operation = operation(&case.known, &rule);
        let about = about(&case.known);
        let mut root = |name: &str| value(&case.known, name, &about, operation).map(|value| Arc::from(value.to_string()));
        let rules = Rules::new(vec![Arc::new(rule)], Some(evaluator));
        let judgement =
            rules.judge(judge::RuleInput { stage: spec.stage, about: &about, operation, root: &mut root, around: None, lane: Lane::Work });
        Ok(Answer::from_judgement(judgement))
    }

    /// The rule of the files or, by default, the shipped one, with its place.
    fn spec(&self, case: &RuleCase) -> Result<(&ValidationRuleSpec, String)> {
        if let Some(ruled) = self.gathered.rules.iter().find(|ruled| ruled.name == case.rule) {
            return Ok((&ruled.rule.spec, ruled.place.to_string()));
        }
        let brought = shipped::find(&case.rule).map(|rule| (&rule.spec, "shipped with the host".to_owned()));
        brought.ok_or_else(|| {
            let RuleCase { rule, name, place, .. } = case;
            anyhow!("{place}: the case {name:?}: there is no rule {rule}, neither in the files (-f) nor among the shipped rules")
        })
    }
}

/// The operation, if the case has none: a rule that reads values of admission is evaluated as in admission.
fn operation(known: &CaseInputs, rule: &Rule) -> Option<Operation> {
    let of_admission = rule.stage() == RuleStage::Input && rule.is_of_admission();
    let likely = if known.roots.contains_key("oldObject") { Operation::Update } else { Operation::Create };
    known.operation.or_else(|| of_admission.then_some(likely))
}

/// The object as selectors see it. A deleted object is seen in its old state.
fn about(known: &CaseInputs) -> Subject {
    let none = Value::Null;
    let given = |root: &str| known.roots.get(root).filter(|value| !value.is_null());
    let object = given("object").or_else(|| given("oldObject")).unwrap_or(&none);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let labels = given("namespaceObject").map(|namespace| strings(&namespace["metadata"]["labels"])).unwrap_or_default();
    let metadata = &object["metadata"];
    Subject {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(&object["kind"]),
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        labels: entries(&strings(&metadata["labels"])),
        annotations: entries(&strings(&metadata["annotations"])),
        namespace_labels: entries(&labels),
    }
}

/// The value of a root: from the case, or the default.
fn value(known: &CaseInputs, root: &str, about: &Subject, operation: Option<Operation>) -> Option<Value> {
    let given = known.roots.get(root).cloned();
    given.or_else(|| match root {
        "object" | "oldObject" => operation.map(|_| Value::Null),
        "request" => operation.map(|operation| json!({"operation": operation, "namespace": about.namespace, "name": about.name})),
        "namespaceObject" if about.namespace.is_empty() => Some(Value::Null),
        "namespaceObject" => Some(visible::namespace(&about.namespace, [])),
        "layers" => Some(json!({})),
        "added" => Some(json!([])),
        _ => None,
    })
}

impl Answer {
    fn from_judgement(judgement: Judgement) -> Self {
        let Judgement { findings, matched, ignored, .. } = judgement;
        let messages = findings.iter().map(|finding| finding.message.clone()).chain(ignored.iter().map(|(_, why)| why.clone())).collect();
        let mut verdicts: Vec<RuleVerdict> = Vec::new();
        if !ignored.is_empty() || findings.iter().any(|finding| finding.failed) {
            verdicts.push(RuleVerdict::Failed);
        }
        for (action, verdict) in
            [(RuleAction::Deny, RuleVerdict::Deny), (RuleAction::Warn, RuleVerdict::Warn), (RuleAction::Audit, RuleVerdict::Audit)]
        {
            if findings.iter().any(|finding| !finding.failed && finding.actions.contains(&action)) {
                verdicts.push(verdict);
            }
        }
        if verdicts.is_empty() {
            verdicts.push(if matched.is_empty() { RuleVerdict::NotMatched } else { RuleVerdict::Pass });
        }
        Self { verdicts, messages }
    }
}

fn outcome(case: &RuleCase, answer: Answer) -> Outcome {
    let Answer { verdicts, messages } = answer;
    let expected = case.expected;
    let actual = if verdicts.contains(&expected) { expected } else { verdicts.first().copied().unwrap_or(RuleVerdict::NotMatched) };
    let said = if messages.is_empty() { String::new() } else { format!(": {}", messages.join("; ")) };
    let lacking = case.message.as_ref().filter(|part| !messages.iter().any(|message| message.contains(part.as_str())));
    let problem = if actual == expected {
        let got = if said.is_empty() { " none" } else { said.as_str() };
        lacking.map(|part| format!("expected a message with {part:?}, got{got}"))
    } else {
        Some(format!("expected {expected}, got {actual}{said}"))
    };
    Outcome {
        name: case.name.clone(),
        rule: case.rule.clone(),
        place: case.place.clone(),
        passed: problem.is_none(),
        expected,
        actual,
        messages,
        problem,
    }
}

impl golden::Outcome for Outcome {
    fn case(&self) -> (&str, &str) {
        (&self.name, &self.place)
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;
    use pointsman_core::rules::judge::Finding;
    use pointsman_crds::policy::rule::DenialReason;

    fn case(expected: RuleVerdict, message: Option<&str>) -> RuleCase {
        let message = message.map(str::to_owned);
        RuleCase { name: "a".into(), rule: "r".into(), known: CaseInputs::default(), expected, message, place: "cases.yaml:3".into() }
    }

    fn finding(actions: &[RuleAction], failed: bool) -> Finding {
        let (rule, message) = ("r".to_owned(), "it is wrong".to_owned());
        Finding { rule, actions: actions.to_vec(), message, reason: DenialReason::Invalid, failed, passing: false }
    }

    fn answer(findings: Vec<Finding>, matched: bool) -> Answer {
        let matched = matched.then(|| "r".to_owned()).into_iter().collect();
        Answer::from_judgement(Judgement { findings, matched, ..Judgement::default() })
    }

    #[test]
    fn a_verdict_is_what_the_rule_does() {
        let both = || answer(vec![finding(&[RuleAction::Deny, RuleAction::Audit], false)], true);
        for expected in [RuleVerdict::Deny, RuleVerdict::Audit] {
            assert!(outcome(&case(expected, Some("wrong")), both()).passed);
        }
        assert!(!outcome(&case(RuleVerdict::Warn, None), both()).passed);
        assert!(outcome(&case(RuleVerdict::Failed, None), answer(vec![finding(&[RuleAction::Deny], true)], true)).passed);
        assert!(!outcome(&case(RuleVerdict::Deny, None), answer(vec![finding(&[RuleAction::Deny], true)], true)).passed);
        assert!(outcome(&case(RuleVerdict::Pass, None), answer(Vec::new(), true)).passed);
        assert!(outcome(&case(RuleVerdict::NotMatched, None), answer(Vec::new(), false)).passed);
    }

    #[test]
    fn a_failed_case_tells_what_was_expected_and_what_came() {
        let denied = || answer(vec![finding(&[RuleAction::Deny], false)], true);
        assert_eq!(
            strip_str(&golden::result_lines(&outcome(&case(RuleVerdict::Pass, None), denied()))).to_string(),
            "FAILED  a (cases.yaml:3)\n        expected Pass, got Deny: it is wrong"
        );
        assert_eq!(
            strip_str(&golden::result_lines(&outcome(&case(RuleVerdict::Deny, Some("right")), denied()))).to_string(),
            "FAILED  a (cases.yaml:3)\n        expected a message with \"right\", got: it is wrong"
        );
        assert_eq!(strip_str(&golden::result_lines(&outcome(&case(RuleVerdict::Deny, None), denied()))).to_string(), "ok      a");
    }

    #[test]
    fn what_a_case_leaves_out_is_what_admission_would_say() {
        let mut known = CaseInputs::default();
        known.roots.insert("object", json!({"apiVersion": "ome.io/v1beta1", "kind": "A", "metadata": {"name": "a", "namespace": "n"}}));
        let about = about(&known);
        assert_eq!((about.group.as_str(), about.version.as_str(), about.namespace.as_str()), ("ome.io", "v1beta1", "n"));
        let root = |name: &str, operation| value(&known, name, &about, operation);
        assert_eq!(root("oldObject", Some(Operation::Create)), Some(Value::Null));
        assert_eq!(root("request", Some(Operation::Create)).unwrap()["operation"], "CREATE");
        assert_eq!((root("request", None), root("subject", None), root("added", None)), (None, None, Some(json!([]))));
        assert_eq!(root("namespaceObject", None).unwrap()["metadata"]["name"], "n");
        let of_the_cluster = Subject { namespace: String::new(), ..about.clone() };
        assert_eq!(value(&known, "namespaceObject", &of_the_cluster, None), Some(Value::Null));
    }
}
