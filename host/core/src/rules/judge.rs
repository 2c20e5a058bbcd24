//! Evaluates the rules of a set for one object.

use super::{
    Rules,
    lookups::{LOOKUPS, LookupContext},
    rule::{Rule, of_problem},
};
use crate::selector;
use pointsman_crds::policy::rule::{DenialReason, Operation, ParamsNotFound, RuleAction, RuleFailurePolicy, RuleStage};
use pointsman_sandbox::{
    call::CallError,
    digest::Digest,
    engine::Lane,
    evaluator::{Asking, Outcome, Program, ValidationVerdict},
    point::Subject,
    text::printable_line,
};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};

/// The root with a rule's ConfigMap.
const PARAMS: &str = "params";

/// The input of the rules: an object and its context.
pub struct RuleInput<'a> {
    /// The stage of the rules to evaluate.
    pub stage: RuleStage,
    /// The object, for selectors.
    pub about: &'a Subject,
    /// The operation; none if it is unknown and only the object exists.
    pub operation: Option<Operation>,
    /// Returns the value of a root as JSON text; none if it doesn't exist here.
    pub root: &'a mut dyn FnMut(&str) -> Option<Arc<str>>,
    /// The context for lookups; none if only the object is known.
    pub around: Option<&'a LookupContext<'a>>,
    /// The lane of the evaluator.
    pub lane: Lane,
}

impl std::fmt::Debug for RuleInput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("stage", &self.stage).field("about", &self.about).finish_non_exhaustive()
    }
}

/// A rule that an object breaks, or that can't be evaluated for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the rule.
    pub rule: String,
    /// The actions of the rule.
    pub actions: Vec<RuleAction>,
    /// What is wrong.
    pub message: String,
    /// The reason of a denial for API clients.
    pub reason: DenialReason,
    /// Whether an expression couldn't be evaluated, as opposed to being false.
    pub failed: bool,
    /// Whether the failure is transient: the same object may get another result next time.
    pub passing: bool,
}

impl Finding {
    /// Whether it denies the object.
    pub fn denies(&self) -> bool {
        self.actions.contains(&RuleAction::Deny)
    }

    /// Whether it warns users.
    pub fn warns(&self) -> bool {
        self.actions.contains(&RuleAction::Warn)
    }
}

/// The results of the rules for an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The findings, in the order of the rules and their validations.
    pub findings: Vec<Finding>,
    /// The names of the rules that apply to the object.
    pub matched: Vec<String>,
    /// The rules that couldn't be evaluated and are ignored in this case, each with the reason.
    pub ignored: Vec<(String, String)>,
    /// The rules that need data which only admission has, or lookups that aren't available here.
    pub not_evaluated: Vec<String>,
    /// Whether a failure is transient: the same object may get another result next time.
    pub passing: bool,
}

impl Judgement {
    /// Whether nothing denies the object.
    pub fn admits(&self) -> bool {
        !self.findings.iter().any(Finding::denies)
    }

    /// Merges the results of other rules for the same object.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.findings.extend(other.findings);
        // The same order as if all had been evaluated together.
        self.findings.sort_by(|one, other| one.rule.cmp(&other.rule));
        self.matched.extend(other.matched);
        self.matched.sort();
        self.ignored.extend(other.ignored);
        self.not_evaluated.extend(other.not_evaluated);
        self.passing |= other.passing;
        self
    }

    /// The messages of the matching findings.
    pub fn sentences(&self, wanted: impl Fn(&Finding) -> bool) -> Vec<String> {
        self.findings.iter().filter(|finding| wanted(finding)).map(|finding| sentence(&finding.rule, &finding.message)).collect()
    }
}

/// The message of a rule, with the same form at every entry point.
pub fn sentence(rule: &str, message: &str) -> String {
    format!("{rule}: {message}")
}

impl Rules {
    /// Evaluates all rules that apply to the object.
    pub fn judge(&self, case: RuleInput<'_>) -> Judgement {
        self.judge_some(case, |_| true)
    }

    /// Evaluates the matching rules that apply to the object.
    pub fn judge_some(&self, case: RuleInput<'_>, wanted: impl Fn(&Rule) -> bool) -> Judgement {
        let RuleInput { stage, about, operation, root, around, lane } = case;
        let mut judgement = Judgement::default();
        let mut bench = Evaluation { rules: self, lane, asking: None, bound: BTreeSet::new(), params_of: None, root };
        for rule in self.for_stage(stage).filter(|rule| wanted(rule) && is_about(rule, about, operation)) {
            let unknown = rule.looks_up() && around.is_none() && (bench.root)(LOOKUPS).is_none();
            if operation.is_none() && rule.is_of_admission() || unknown {
                judgement.not_evaluated.push(rule.name().to_owned());
                continue;
            }
            take(rule, outcome(rule, about, &mut bench, around), &mut judgement);
        }
        judgement
    }
}

fn outcome(
    rule: &Rule,
    about: &Subject,
    bench: &mut Evaluation<'_, '_>,
    around: Option<&LookupContext<'_>>,
) -> Result<Option<Outcome>, Failed> {
    if let Some(why) = rule.missing() {
        return Err(Failed { why: why.to_owned(), passing: true });
    }
    match &rule.bound.spec.params {
        Some(wanted) if rule.bound.params.is_none() => {
            if wanted.not_found == ParamsNotFound::Allow {
                return Ok(None);
            }
            let map = &wanted.config_map;
            let namespace = map.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            return Err(Failed::for_good(format!("its parameters are missing: there is no ConfigMap {namespace}{}", map.name)));
        }
        Some(_) | None => {}
    }
    if !rule.looks_up() {
        return bench.judge(rule, rule.program()).map(Some);
    }
    // Lookups are only made if the rule applies to the object.
    if let Some(gate) = rule.gate() {
        let judge = |bench: &mut Evaluation<'_, '_>| bench.judge(rule, gate);
        let gone_through = match around {
            Some(around) => around.kept(&[*rule.identity(), Digest::hash(b"gate")], || judge(bench))?,
            None => Arc::new(judge(bench)?),
        };
        if !matches!(*gone_through, Outcome::Judged(_)) {
            return Ok(Some((*gone_through).clone()));
        }
    }
    if let Some(given) = (bench.root)(LOOKUPS) {
        bench.bound_with(rule, LOOKUPS, given)?;
        return bench.judge(rule, rule.program()).map(Some);
    }
    let Some(around) = around else { return Ok(None) };
    let found = around.find(rule, about, bench)?;
    let judged = around.kept(&[*rule.identity(), Digest::hash(b"verdict"), Digest::hash(found.as_bytes())], || {
        bench.bound_with(rule, LOOKUPS, found)?;
        bench.judge(rule, rule.program())
    })?;
    Ok(Some((*judged).clone()))
}

/// The state of an evaluation. The evaluator is acquired and roots are bound only when they are needed.
pub(super) struct Evaluation<'s, 'c> {
    rules: &'s Rules,
    lane: Lane,
    asking: Option<Asking<'s>>,
    /// The roots that are bound to the object's values.
    bound: BTreeSet<String>,
    /// The rule whose parameters are bound.
    params_of: Option<String>,
    root: &'c mut dyn FnMut(&str) -> Option<Arc<str>>,
}

impl<'s> Evaluation<'s, '_> {
    /// The evaluator, with all roots bound that a rule reads from the object itself.
    pub(super) fn bound(&mut self, rule: &Rule) -> Result<&mut Asking<'s>, Failed> {
        self.bound_but(rule, None)
    }

    /// The evaluator with another value for one root, until the object's own value is needed again.
    pub(super) fn bound_with(&mut self, rule: &Rule, root: &str, value: Arc<str>) -> Result<&mut Asking<'s>, Failed> {
        self.bound.remove(root);
        let asking = self.bound_but(rule, Some(root))?;
        asking.bind(root, value);
        Ok(asking)
    }

    fn bound_but(&mut self, rule: &Rule, except: Option<&str>) -> Result<&mut Asking<'s>, Failed> {
        let Self { rules, lane, asking, bound, params_of, root } = self;
        let asking = if let Some(asking) = asking {
            asking
        } else {
            let evaluator = rules.evaluator().ok_or_else(|| Failed { why: "there is no evaluator".to_owned(), passing: true })?;
            asking.insert(evaluator.ask_in(*lane).map_err(|error| Failed::from_call_error(&error))?)
        };
        let passed_over = [Some(PARAMS), Some(LOOKUPS), except];
        let roots = rule.program().source().roots.iter();
        for wanted in roots.filter(|wanted| rule.reads(wanted) && !passed_over.contains(&Some(wanted.as_str()))) {
            if bound.insert(wanted.clone())
                && let Some(value) = root(wanted)
            {
                asking.bind(wanted, value);
            }
        }
        // Each rule has its own parameters.
        if rule.reads(PARAMS) && params_of.as_deref() != Some(rule.name()) {
            *params_of = Some(rule.name().to_owned());
            if let Some(params) = params(rule) {
                asking.bind(PARAMS, params);
            }
        }
        Ok(asking)
    }

    fn judge(&mut self, rule: &Rule, program: &Program) -> Result<Outcome, Failed> {
        self.bound(rule)?.judge(program).map_err(|error| Failed::from_call_error(&error))
    }
}

/// Why a rule couldn't be evaluated.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) why: String,
    /// Whether the failure is transient.
    pub(super) passing: bool,
}

impl Failed {
    pub(super) fn for_good(why: String) -> Self {
        Self { why, passing: false }
    }

    pub(super) fn from_call_error(error: &CallError) -> Self {
        Self { why: unanswered(error), passing: !error.lasting() }
    }
}

/// Why the evaluator failed, for authors of rules: the texts of the error itself are about plugins.
pub(super) fn unanswered(error: &CallError) -> String {
    match error {
        CallError::Busy => "all rule evaluators were busy".to_owned(),
        CallError::Fuel(fuel) => {
            format!("it used up its {fuel} units of fuel: simplify the expression, or limit the list that it iterates over")
        }
        CallError::Deadline(within) => format!("it took longer than its {} ms", within.as_millis()),
        CallError::Memory(most) => format!("it exceeded its {} MiB of memory", most >> 20),
        other => format!("the evaluator returned no answer: {other}"),
    }
}

fn params(rule: &Rule) -> Option<Arc<str>> {
    let (wanted, data) = rule.bound.spec.params.as_ref().zip(rule.bound.params.as_ref())?;
    let metadata = json!({"name": wanted.config_map.name, "namespace": wanted.config_map.namespace});
    Some(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).to_string().into())
}

fn is_about(rule: &Rule, about: &Subject, operation: Option<Operation>) -> bool {
    let Some(selection) = &rule.bound.spec.selection else { return operation != Some(Operation::Delete) };
    let operations = &selection.operations;
    let operation = match operation {
        Some(operation) => operations.contains(&operation),
        // An existing object was once created or updated.
        None => operations.contains(&Operation::Create) || operations.contains(&Operation::Update),
    };
    operation && selector::fits(&selection.objects, about)
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
                    ValidationVerdict::Holds => {}
                    ValidationVerdict::Failed(problem) => failed(of_problem(spec, problem).to_string(), false, judgement),
                    ValidationVerdict::Broken(message) => {
                        let message = message.or_else(|| validation.message.clone()).filter(|message| !message.trim().is_empty());
                        let message = message.unwrap_or_else(|| format!("failed expression: {}", validation.expression.trim()));
                        judgement.findings.push(Finding {
                            rule: name(),
                            actions: spec.actions.clone(),
                            message: printable_line(&message),
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
