//! Asking the rules of a set about one object.

use super::{
    Rules,
    rule::{Rule, of_problem},
};
use crate::policy::{
    call::CallError,
    evaluator::{Asking, Outcome, Verdict},
    matching,
    point::Subject,
    told,
};
use pointsman_crds::policy::rule::{DenialReason, Operation, ParamsNotFound, RuleAction, RuleFailurePolicy, RuleParams, RuleStage};
use serde_json::json;
use std::sync::Arc;

/// What is known of an object that rules are asked about.
pub struct Case<'a> {
    /// What rules are about.
    pub stage: RuleStage,
    /// The object, as selections see it.
    pub about: &'a Subject,
    /// What is done to it; none where nothing is known of that but that it is there.
    pub operation: Option<Operation>,
    /// The value of a root that is read, as JSON text; none where there is none here.
    pub root: &'a mut dyn FnMut(&str) -> Option<Arc<str>>,
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("stage", &self.stage).field("about", &self.about).finish_non_exhaustive()
    }
}

/// A rule that an object breaks, or that can't be evaluated on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the rule.
    pub rule: String,
    /// What is to happen.
    pub actions: Vec<RuleAction>,
    /// What is wrong.
    pub message: String,
    /// How a client of the API should take a denial.
    pub reason: DenialReason,
    /// Whether an expression couldn't be evaluated, rather than being false.
    pub failed: bool,
    /// Whether the same object may well be judged otherwise another time: no fault of the rule's or the object's.
    pub passing: bool,
}

impl Finding {
    /// Whether it stands against the object.
    pub fn denies(&self) -> bool {
        self.actions.contains(&RuleAction::Deny)
    }

    /// Whether users are told of it.
    pub fn warns(&self) -> bool {
        self.actions.contains(&RuleAction::Warn)
    }
}

/// What the rules say of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What is wrong, in the order of the rules and their validations.
    pub findings: Vec<Finding>,
    /// The rules that were asked.
    pub matched: Vec<String>,
    /// The rules that couldn't be evaluated and don't count then, each with why.
    pub ignored: Vec<(String, String)>,
    /// The rules that need what only admission knows.
    pub not_evaluated: Vec<String>,
    /// Whether the same object may well be judged otherwise another time, by no fault of a rule's or the object's.
    pub passing: bool,
}

impl Judgement {
    /// Whether nothing stands against the object.
    pub fn admits(&self) -> bool {
        !self.findings.iter().any(Finding::denies)
    }

    /// What stands against the object, or only speaks against it, a sentence each.
    pub fn sentences(&self, wanted: impl Fn(&Finding) -> bool) -> Vec<String> {
        self.findings.iter().filter(|finding| wanted(finding)).map(|finding| sentence(&finding.rule, &finding.message)).collect()
    }
}

/// What a rule says, as people are told it at every door.
pub fn sentence(rule: &str, message: &str) -> String {
    format!("{rule}: {message}")
}

impl Rules {
    /// Asks all that are about the object.
    pub fn judge(&self, case: Case<'_>) -> Judgement {
        let Case { stage, about, operation, root } = case;
        let mut judgement = Judgement::default();
        let mut asking: Option<Asking<'_>> = None;
        let mut bound: Vec<String> = Vec::new();
        for rule in self.of(stage).filter(|rule| is_about(rule, about, operation)) {
            if operation.is_none() && rule.is_of_admission() {
                judgement.not_evaluated.push(rule.name().to_owned());
                continue;
            }
            let outcome = self.outcome(rule, &mut asking, &mut bound, root);
            take(rule, outcome, &mut judgement);
        }
        judgement
    }

    fn outcome<'s>(
        &'s self,
        rule: &Rule,
        asking: &mut Option<Asking<'s>>,
        bound: &mut Vec<String>,
        root: &mut dyn FnMut(&str) -> Option<Arc<str>>,
    ) -> Result<Option<Outcome>, Failed> {
        if let Some(why) = rule.missing() {
            return Err(Failed { why: why.to_owned(), passing: true });
        }
        let params = match params(rule) {
            Params::None => None,
            Params::Given(params) => Some(params),
            Params::Missing(wanted) if wanted.not_found == ParamsNotFound::Allow => return Ok(None),
            Params::Missing(wanted) => {
                let map = &wanted.config_map;
                let namespace = map.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
                return Err(Failed {
                    why: format!("its parameters are missing: there is no ConfigMap {namespace}{}", map.name),
                    passing: false,
                });
            }
        };
        let asking = if let Some(asking) = asking {
            asking
        } else {
            let evaluator = self.evaluator().ok_or_else(|| Failed { why: "there is no evaluator".to_owned(), passing: true })?;
            asking.insert(evaluator.ask().map_err(|error| Failed::of(&error))?)
        };
        for wanted in rule.program.source().roots.iter().filter(|wanted| rule.reads(wanted) && *wanted != "params") {
            if !bound.contains(wanted) {
                if let Some(value) = root(wanted) {
                    asking.bind(wanted, value);
                }
                bound.push(wanted.clone());
            }
        }
        // Each rule has its own.
        if rule.reads("params")
            && let Some(params) = params
        {
            asking.bind("params", params);
        }
        asking.judge(&rule.program).map(Some).map_err(|error| Failed::of(&error))
    }
}

/// Why a rule couldn't be evaluated.
struct Failed {
    why: String,
    passing: bool,
}

impl Failed {
    fn of(error: &CallError) -> Self {
        Self { why: unanswered(error), passing: !error.lasting() }
    }
}

/// Why the evaluator gave no answer, for whoever wrote the rule: an error's own words are about plugins.
pub(super) fn unanswered(error: &CallError) -> String {
    match error {
        CallError::Busy => "everything that evaluates rules was busy".to_owned(),
        CallError::Fuel(fuel) => {
            format!("it used up its {fuel} units of fuel: simplify the expression, or bound the list that it goes over")
        }
        CallError::Deadline(within) => format!("it took longer than its {} ms", within.as_millis()),
        CallError::Memory(most) => format!("it wanted more than its {} MiB of memory", most >> 20),
        other => format!("the evaluator gave no answer: {other}"),
    }
}

enum Params<'a> {
    None,
    Given(Arc<str>),
    Missing(&'a RuleParams),
}

fn params(rule: &Rule) -> Params<'_> {
    let Some(wanted) = &rule.bound.spec.params else { return Params::None };
    let Some(data) = &rule.bound.params else { return Params::Missing(wanted) };
    let map = &wanted.config_map;
    let metadata = json!({"name": map.name, "namespace": map.namespace});
    Params::Given(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).to_string().into())
}

fn is_about(rule: &Rule, about: &Subject, operation: Option<Operation>) -> bool {
    let Some(selection) = &rule.bound.spec.selection else { return operation != Some(Operation::Delete) };
    let operations = &selection.operations;
    let operation = match operation {
        Some(operation) => operations.contains(&operation),
        // Whatever is there was made once, or changed.
        None => operations.contains(&Operation::Create) || operations.contains(&Operation::Update),
    };
    operation && matching::fits(&selection.objects, about)
}

fn take(rule: &Rule, outcome: Result<Option<Outcome>, Failed>, judgement: &mut Judgement) {
    let spec = &rule.bound.spec;
    let name = || rule.name().to_owned();
    let failed = |why: String, passing: bool, judgement: &mut Judgement| {
        judgement.passing |= passing;
        if spec.failure_policy == RuleFailurePolicy::Ignore {
            judgement.ignored.push((name(), why));
            return;
        }
        let message = format!("it can't be evaluated: {why}");
        judgement.findings.push(Finding {
            rule: name(),
            actions: spec.actions.clone(),
            message,
            reason: DenialReason::Invalid,
            failed: true,
            passing,
        });
    };
    match outcome {
        Ok(None | Some(Outcome::Unmatched(_))) => return,
        Ok(Some(Outcome::Undecided(problem))) => failed(of_problem(spec, problem).to_string(), false, judgement),
        Err(Failed { why, passing }) => failed(why, passing, judgement),
        Ok(Some(Outcome::Judged(verdicts))) => {
            for (validation, verdict) in spec.validations.iter().zip(verdicts) {
                match verdict {
                    Verdict::Holds => {}
                    Verdict::Failed(problem) => failed(of_problem(spec, problem).to_string(), false, judgement),
                    Verdict::Broken(message) => {
                        let message = message.or_else(|| validation.message.clone()).filter(|message| !message.trim().is_empty());
                        let message = message.unwrap_or_else(|| format!("failed expression: {}", validation.expression.trim()));
                        judgement.findings.push(Finding {
                            rule: name(),
                            actions: spec.actions.clone(),
                            message: told(&message),
                            reason: validation.reason.unwrap_or_default(),
                            failed: false,
                            passing: false,
                        });
                    }
                }
            }
        }
    }
    judgement.matched.push(name());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_wrote_a_rule_is_not_told_what_helps_a_plugin() {
        for error in [CallError::Busy, CallError::Fuel(7), CallError::Memory(1 << 20)] {
            let said = unanswered(&error);
            assert!(!said.contains("plugin") && !said.contains("limits.fuel"), "{said}");
        }
        assert!(unanswered(&CallError::Fuel(50_000_000)).starts_with("it used up its 50000000 units of fuel: simplify the expression"));
    }
}
