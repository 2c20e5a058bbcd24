//! Handles ValidationRules on the leader: reads their parameters, compiles them in separate tasks, and reports on them.

use super::{Keeper, RETRY_INTERVAL, TaskResult, now, promote::FIELD_MANAGER, record};
use crate::problem::sentence;
use crate::{problem::Problem, source::config_map::ConfigMapKey};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use pointsman_core::{
    decide::set::ActiveSet,
    rules::{
        Rules,
        rule::{Rule, RuleError, bind},
        shipped,
        tally::Count,
    },
};
use pointsman_crds::policy::rule::{RuleCounts, ValidationRule, ValidationRuleStatus};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::Instant;

/// The progress of one ValidationRule.
#[derive(Debug, Default)]
pub(super) struct RuleProgress {
    /// Whether something may have changed.
    pub(super) dirty: bool,
    /// Whether its parameters aren't known yet.
    pub(super) pending: bool,
    /// Whether it is being compiled.
    pub(super) running: bool,
    /// When it is retried without a change.
    pub(super) retry: Option<Instant>,
    /// The digest of the last attempt, and its problem.
    pub(super) tried: Option<(String, Option<Problem>)>,
    /// The version that may become active.
    pub(super) ready: Option<Arc<Rule>>,
}

impl RuleProgress {
    /// Whether its new state will be known in a moment.
    pub(super) fn is_on_its_way(&self) -> bool {
        self.running || self.dirty || self.pending
    }
}

/// The maximum number of consecutive skips of counts that still change.
const MAX_SKIPPED_COUNTS: u32 = 12;

/// The counts of subjects per rule, as reported.
#[derive(Debug, Default)]
pub(super) struct ReportedCounts {
    /// The version of the tally with these counts.
    version: u64,
    /// The version that was seen last, and the number of skips since the last report.
    seen: u64,
    passed: u32,
    /// None until the first count.
    told: Option<BTreeMap<String, Count>>,
}

/// The result of compiling a rule.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) name: String,
    digest: String,
    outcome: Result<Arc<Rule>, RuleError>,
}

/// The data of a rule's ConfigMap, if it names one.
enum Params {
    Known(Option<BTreeMap<String, String>>),
    NotSeen,
    Refused(Problem),
}

impl Keeper {
    /// Handles the current state of a ValidationRule.
    pub(super) fn see_rule(&mut self, rule: ValidationRule, listed: Option<Instant>) {
        let (name, generation) = (rule.name_any(), rule.metadata.generation);
        let Ok(before) = self.rules.see(rule, listed) else { return };
        if before.is_none_or(|before| before.metadata.generation != generation) {
            self.rule_works.entry(name).or_default().dirty = true;
        }
    }

    /// The ConfigMap that a rule names, if the host may read it.
    pub(super) fn params_of(&self, rule: &ValidationRule) -> Option<ConfigMapKey> {
        let map = &rule.spec.params.as_ref()?.config_map;
        let namespace = map.namespace.as_ref().unwrap_or(&self.options.namespace);
        let allowed = self.options.namespaces.check(namespace, &self.options.namespace).is_ok();
        allowed.then(|| (namespace.clone(), map.name.clone()))
    }

    /// Advances every ValidationRule by one step.
    pub(super) fn consider_rules(&mut self) {
        let dirty = self.rule_works.iter().filter(|(_, work)| work.dirty && !work.running).map(|(name, _)| name.clone());
        for name in dirty.collect::<Vec<_>>() {
            self.consider_rule(&name);
        }
    }

    fn consider_rule(&mut self, name: &str) {
        let Some(rule) = self.rules.get(name) else { return };
        let params = self.params(rule);
        let spec = &rule.spec;
        let Some(work) = self.rule_works.get_mut(name) else { return };
        work.dirty = false;
        work.pending = matches!(params, Params::NotSeen);
        let params = match params {
            Params::Known(params) => params,
            Params::NotSeen => return,
            Params::Refused(problem) => {
                work.ready = None;
                work.tried = Some((String::new(), Some(problem)));
                return;
            }
        };
        let bound = bind(name, spec, params);
        let active = self.policies.active();
        if active.rules().find(name).is_some_and(|active| active.bound == bound && active.missing().is_none()) {
            work.ready = None;
            work.tried = Some((bound.digest, None));
            return;
        }
        if work.tried.as_ref().is_some_and(|(tried, _)| *tried == bound.digest) {
            return;
        }
        work.tried = None;
        work.ready = None;
        if let Some(problem) = self.outgrows_record(name, "with its parameters it has", &bound) {
            if let Some(work) = self.rule_works.get_mut(name) {
                work.tried = Some((bound.digest, Some(problem)));
            }
            return;
        }
        let Some(work) = self.rule_works.get_mut(name) else { return };
        work.running = true;
        let (loader, done, name) = (Arc::clone(&self.loader), self.done.clone(), name.to_owned());
        tokio::task::spawn_blocking(move || {
            let digest = bound.digest.clone();
            let outcome = loader.rule(bound).map(Arc::new);
            done.send(TaskResult::Ruled(Box::new(CompiledRule { name, digest, outcome }))).ok();
        });
    }

    fn params(&self, rule: &ValidationRule) -> Params {
        let Some(wanted) = &rule.spec.params else { return Params::Known(None) };
        let Some(place) = self.params_of(rule) else {
            let namespace = wanted.config_map.namespace.clone().unwrap_or_default();
            let message = format!(
                "params.configMap: this host reads no ConfigMaps in the namespace {namespace}: add it with the flag --plugin-namespace."
            );
            return Params::Refused(Problem { reason: "NamespaceNotAllowed".to_owned(), message });
        };
        let places = [place.clone()].into();
        if !self.config_maps.known(&places) {
            return match self.config_maps.unreadable(&places) {
                Some(error) => Params::Refused(Problem::new("ParamsUnreadable", &error)),
                None => Params::NotSeen,
            };
        }
        let found = self.config_maps.get(&place.0, &place.1);
        Params::Known(found.map(|map| map.data.clone().unwrap_or_default()))
    }

    /// Handles the result of compiling a rule.
    pub(super) fn ruled(&mut self, ruled: CompiledRule) {
        let CompiledRule { name, digest, outcome } = ruled;
        let Some(work) = self.rule_works.get_mut(&name) else { return };
        work.running = false;
        // It may have changed meanwhile.
        work.dirty = true;
        match outcome {
            Ok(rule) => {
                work.tried = Some((digest, None));
                let active = self.policies.active();
                // A rule that this host couldn't evaluate is active in its recorded form as soon as it can.
                if active.rules().find(&name).is_some_and(|counts| counts.bound == rule.bound) {
                    self.replace_broken_rule(&active, rule);
                } else {
                    work.ready = Some(rule);
                }
            }
            Err(error) => {
                tracing::warn!(rule = name, reason = error.reason(), "the rule can't be used: {error}");
                let passing = error.passing();
                work.tried = Some((if passing { String::new() } else { digest }, Some(Problem::new(error.reason(), &error))));
                work.retry = passing.then(|| Instant::now() + RETRY_INTERVAL);
                // Don't check it until then: it would fail again.
                work.dirty = !passing;
            }
        }
    }

    /// Replaces a rule that couldn't be evaluated with the same rule, which now can.
    fn replace_broken_rule(&self, active: &ActiveSet, rule: Arc<Rule>) {
        let mut all: Vec<Arc<Rule>> = active.rules().all().iter().filter(|other| other.name() != rule.name()).cloned().collect();
        all.push(rule);
        let rules = Rules::new(all, self.loader.evaluator().ok());
        self.policies.activate(Arc::new(ActiveSet::new(active.members().to_vec()).ruled(rules)));
        self.policies.request_reconcile();
    }

    /// Creates the shipped ValidationRules, and updates those of an older version that nobody has changed.
    pub(super) async fn make_shipped(&mut self) {
        let api = Api::<ValidationRule>::all(self.client.clone());
        // During an upgrade, an older host may be the leader for a while: its rules are no update.
        let older = record::newer(&self.record.host, &self.options.version);
        let written = |shipped: &shipped::Shipped| {
            let name = shipped.name_any();
            let there = self.rules.get(&name);
            let mut rule = match there {
                None => ValidationRule::clone(shipped),
                Some(there) if !older && shipped.differs(Some(there)) => shipped.instead_of(there),
                Some(there) => there.clone(),
            };
            rule.spec.enabled |= self.options.enabled_rules.contains(&name);
            there.is_none_or(|there| there.spec != rule.spec).then_some(rule)
        };
        for rule in shipped::all().iter().filter_map(written).collect::<Vec<_>>() {
            if !self.leadership.held() {
                return;
            }
            let name = rule.name_any();
            let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            let written = match self.rules.get(&name) {
                None => api.create(&parameters, &rule).await,
                Some(there) => {
                    let mut changes = merge_patch(&json!(there), &json!(rule));
                    let (labels, annotations) = (&rule.metadata.labels, &rule.metadata.annotations);
                    changes["metadata"] =
                        json!({"resourceVersion": there.resource_version(), "labels": labels, "annotations": annotations});
                    let parameters = PatchParams { field_manager: parameters.field_manager, ..PatchParams::default() };
                    api.patch(&name, &parameters, &Patch::Merge(&changes)).await
                }
            };
            match written {
                Ok(made) => {
                    self.rule_works.entry(name).or_default().dirty = true;
                    self.rules.answer(made);
                }
                // Another host was faster; the watch reports it.
                Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(rule = name, error = sentence(&error), "the shipped ValidationRule can't be created; trying again");
                    self.try_again();
                }
            }
        }
    }

    /// Whether the counts have changed since they were reported.
    pub(super) fn uncounted(&self) -> bool {
        self.leading && self.policies.tally().version() != self.counts.version
    }

    /// Counts the live subjects per rule.
    pub(super) fn count(&mut self) {
        let tally = self.policies.tally();
        // A change during the count causes another count.
        let version = tally.version();
        let ReportedCounts { seen, passed, .. } = &mut self.counts;
        // While many subjects change, such as after a start, each intermediate count would be reported.
        if std::mem::replace(seen, version) != version && *passed < MAX_SKIPPED_COUNTS {
            *passed += 1;
            return;
        }
        self.counts = ReportedCounts { version, seen: version, passed: 0, told: Some(tally.counts()) };
    }

    /// Writes the changed statuses of ValidationRules.
    pub(super) async fn tell_rules(&mut self) {
        let names: Vec<String> = self.rules.keys().cloned().collect();
        let active = self.policies.active();
        for name in names {
            let (Some(rule), Some(work)) = (self.rules.get(&name), self.rule_works.get(&name)) else { continue };
            if (work.running || work.pending || work.dirty) && rule.status.is_some() {
                continue;
            }
            let known = RuleState {
                problem: work.tried.as_ref().and_then(|(_, problem)| problem.as_ref()),
                compiled: work.tried.is_some(),
                counts: active.rules().find(&name).map(|active| (active.missing(), work.ready.is_none())),
                counted: self.counts.told.as_ref().map(|counts| counts.get(&name).cloned().unwrap_or_default()),
                waits: work.ready.as_ref().map(|_| self.waits("The newest version", |pending| pending.is_rule(&name))),
            };
            let after = status(rule, &known, &now());
            if rule.status.as_ref() == Some(&after) {
                continue;
            }
            if !self.leadership.held() {
                return;
            }
            let patch = json!({
                "apiVersion": ValidationRule::api_version(&()), "kind": ValidationRule::kind(&()), "metadata": {"name": name}, "status": after,
            });
            let api = Api::<ValidationRule>::all(self.client.clone());
            match api.patch_status(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&patch)).await {
                Ok(told) => {
                    let newer = told.metadata.generation != after.observed_generation;
                    self.rule_works.entry(name.clone()).or_default().dirty |= newer;
                    self.rules.answer(told);
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(rule = name, error = sentence(&error), "the status can't be written; trying again");
                    self.try_again();
                }
            }
        }
    }
}

/// The current state of a rule.
struct RuleState<'a> {
    problem: Option<&'a Problem>,
    compiled: bool,
    /// If the active set has the rule: why it can't be evaluated there, and whether it is the newest version.
    counts: Option<(Option<&'a str>, bool)>,
    /// The counts of live subjects for it.
    counted: Option<Count>,
    /// The reason why its newest version waits.
    waits: Option<(&'static str, String)>,
}

/// The status that a ValidationRule should have.
fn status(rule: &ValidationRule, known: &RuleState<'_>, now: &super::Time) -> ValidationRuleStatus {
    let before = rule.status.clone().unwrap_or_default();
    let generation = rule.metadata.generation;
    let condition = |type_: &str, (status, reason, message): (&str, &str, String)| {
        let former = before.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status);
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: former.map_or_else(|| now.clone(), |former| former.last_transition_time.clone()),
        }
    };
    let compiled = match known.problem {
        Some(problem) => ("False", problem.reason.as_str(), problem.message.clone()),
        None if known.compiled => ("True", "Compiled", "Its expressions compile, and every field that they use exists.".to_owned()),
        None => ("Unknown", "Waiting", "It hasn't been compiled yet.".to_owned()),
    };
    let former = if known.counts.is_some() { "; its previous version is active" } else { "" };
    let active = match (&known.counts, &known.waits) {
        (Some((Some(why), _)), _) => ("False", "NotEvaluated", format!("It is active, but can't be evaluated: {why}.")),
        (_, Some((reason, message))) => ("False", *reason, format!("{}{former}.", message.trim_end_matches('.'))),
        (Some((None, true)), _) if !rule.spec.enabled && known.problem.is_none() => {
            ("False", "Disabled", "It is disabled: spec.enabled is false.".to_owned())
        }
        (Some((None, true)), None) if known.problem.is_none() => ("True", "Active", "It is part of the active policy set.".to_owned()),
        (Some(_), None) => ("False", "LastGood", "Its previous version is active: see the condition Compiled.".to_owned()),
        (None, None) => ("False", "NotActive", "It isn't part of the active policy set.".to_owned()),
    };
    let ready = match (&compiled, &active) {
        ((word @ ("False" | "Unknown"), ..), _) => (*word, compiled.1, compiled.2.clone()),
        (_, (_, "Disabled", message)) => ("True", "Disabled", message.clone()),
        (_, active) => (active.0, active.1, active.2.clone()),
    };
    let actions: Vec<String> = rule.spec.actions.iter().map(|action| format!("{action:?}")).collect();
    ValidationRuleStatus {
        observed_generation: generation,
        action_names: Some(actions.join(",")),
        conditions: vec![condition("Ready", ready), condition("Compiled", compiled.clone()), condition("Active", active.clone())],
        counts: known
            .counted
            .as_ref()
            .map(|count| {
                let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
                RuleCounts { matched: number(count.matched), rejected: number(count.breaks), failed: number(count.fails) }
            })
            .or(before.counts),
        rejects: known.counted.as_ref().map_or(before.rejects, |count| count.named.clone()),
    }
}

/// The JSON merge patch from one object to another. Fields that neither has stay unchanged: they are a newer host's.
fn merge_patch(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let gone = before.keys().filter(|name| !after.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let differs = after.iter().filter(|(name, value)| before.get(*name) != Some(*value));
    let changed =
        differs.map(|(name, value)| (name.clone(), before.get(name).map_or_else(|| value.clone(), |was| merge_patch(was, value))));
    gone.chain(changed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_patch_has_what_differs_and_nothing_else() {
        let before = json!({"spec": {"enabled": false, "old": 1, "list": [1, 2], "same": {"a": 1}}, "kind": "A"});
        let after = json!({"spec": {"enabled": true, "new": {"b": 2}, "list": [2], "same": {"a": 1}}, "kind": "A"});
        assert_eq!(merge_patch(&before, &after), json!({"spec": {"enabled": true, "old": null, "new": {"b": 2}, "list": [2]}}));
        assert_eq!(merge_patch(&after, &after), json!({}));
    }
}
