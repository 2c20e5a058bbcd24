//! Applies the rules to a plan: those for the subject first, then those for its objects, before they are applied.

pub mod provenance;

use crate::{
    condition::Condition,
    decide::Pinned,
    objects::strings,
    plan::{Object, Plan, UndecidedSteps},
    question::{self, entries},
    rules::{
        judge::{Finding, Judgement, RuleInput, sentence},
        lookups::LookupContext,
        visible::{namespace, object},
    },
    spans,
    world::{ObjectKey, Read, Snapshot},
};
use pointsman_crds::policy::rule::RuleStage;
use pointsman_sandbox::{
    digest::Digest,
    engine::Lane,
    limits::SUMS_WITHIN,
    point::{Entry, Subject},
};
use provenance::AdminConfigs;
use serde_json::Value;
use std::{cell::OnceCell, collections::BTreeSet, sync::Arc, time::Duration};
use tracing::{Span, field::Empty};

/// Whether the subject complies with the rules.
pub const VALID: &str = "Valid";

/// Whether the planned objects comply with the rules.
pub const ALLOWED: &str = "Allowed";

/// The delay before a rule is evaluated again after a transient failure.
const RULE_RETRY_INTERVAL: Duration = Duration::from_secs(15);

/// The maximum length of a condition's message about rules, in bytes.
const MAX_MESSAGE_BYTES: usize = 4096;

fn of_subject(snapshot: &Snapshot) -> Value {
    let ObjectKey { resource, namespace, name } = &snapshot.subject.key;
    object(&resource.api_version(), resource.kind, namespace, name, &snapshot.subject.content())
}

/// Evaluates the plugins' matchConditions for the subject.
pub(crate) fn evaluate_match_conditions(snapshot: &Snapshot, policies: &mut Pinned<'_>) {
    if policies.set().members().iter().all(|member| member.conditions().is_none()) {
        return;
    }
    let key = &snapshot.subject.key;
    let subject = || of_subject(snapshot).to_string().into();
    let namespace = || (!key.namespace.is_empty()).then(|| namespace(&key.namespace, &*snapshot.namespace_labels).to_string().into());
    policies.evaluate_match_conditions(&question::subject(snapshot), subject, namespace);
}

/// The span for the rules of a stage.
fn rules_span(stage: &'static str) -> Span {
    tracing::debug_span!(target: spans::TARGET, "rules", otel.name = %format_args!("rules {stage}"), stage, cached = Empty)
}

/// Evaluates the rules for a plan: for its subject and its objects.
#[derive(Debug)]
pub(crate) struct PlanGuard<'a> {
    snapshot: &'a Snapshot,
    policies: &'a Pinned<'a>,
    subject: OnceCell<Arc<str>>,
    namespace: OnceCell<Arc<str>>,
}

impl<'a> PlanGuard<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, policies: &'a Pinned<'a>) -> Self {
        Self { snapshot, policies, subject: OnceCell::new(), namespace: OnceCell::new() }
    }

    fn subject(&self) -> Arc<str> {
        Arc::clone(self.subject.get_or_init(|| of_subject(self.snapshot).to_string().into()))
    }

    fn namespace(&self) -> Option<Arc<str>> {
        let name = &self.snapshot.subject.key.namespace;
        let of_namespace = || namespace(name, &*self.snapshot.namespace_labels).to_string().into();
        (!name.is_empty()).then(|| Arc::clone(self.namespace.get_or_init(of_namespace)))
    }

    /// The results for the subject, and the lookups that they depend on.
    fn input(&self) -> (Arc<Judgement>, BTreeSet<Read>) {
        let rules = self.policies.set().rules();
        if rules.for_stage(RuleStage::Input).next().is_none() {
            return Default::default();
        }
        let span = rules_span("Input");
        let _within = span.enter();
        let namespace = self.namespace().unwrap_or_default();
        let object = Digest::of_all(&[Digest::hash(self.subject().as_bytes()), Digest::hash(namespace.as_bytes())]);
        let about = OnceCell::new();
        let judge = |around: Option<&LookupContext<'_>>| {
            let about = about.get_or_init(|| question::subject(self.snapshot));
            let mut root = |name: &str| match name {
                "object" => Some(self.subject()),
                "namespaceObject" => self.namespace(),
                _ => None,
            };
            let case = RuleInput { stage: RuleStage::Input, about, operation: None, root: &mut root, around, lane: Lane::Work };
            rules.judge_some(case, |rule| rule.looks_up() == around.is_some())
        };
        let of_object = self.kept(&span, &[*rules.digest(RuleStage::Input), object], || vec![judge(None)]);
        let of_object = of_object.first().cloned().unwrap_or_default();
        if !rules.for_stage(RuleStage::Input).any(|rule| rule.looks_up()) {
            return (Arc::new(of_object), BTreeSet::new());
        }
        // Results that depend on lookups are cached per rule, by the objects that were found.
        let surroundings = self.snapshot.surroundings();
        let around = LookupContext::new(&surroundings, Some(self.policies.cache()), Some(object), SUMS_WITHIN);
        let judgement = of_object.and(judge(Some(&around)));
        (Arc::new(judgement), around.reads())
    }

    /// The results for each object of the plan, in order.
    fn output(&self, objects: &[Object], plan: &Plan) -> Arc<Vec<Judgement>> {
        let rules = self.policies.set().rules();
        if rules.for_stage(RuleStage::Output).next().is_none() {
            return Arc::default();
        }
        let span = rules_span("Output");
        let _within = span.enter();
        let namespace = self.namespace().unwrap_or_default();
        let mut parts = vec![*rules.digest(RuleStage::Output), Digest::hash(self.subject().as_bytes()), Digest::hash(namespace.as_bytes())];
        parts.extend(objects.iter().map(|object| Digest::hash(object.manifest().to_string().as_bytes())));
        // The inputs and the answers of the decisions, which determine the provenance.
        parts.extend(plan.decisions.iter().flat_map(provenance::digests));
        parts.push(*self.policies.set().configs_digest());
        self.kept(&span, &parts, || objects.iter().map(|object| self.judge_object(object, plan)).collect())
    }

    fn judge_object(&self, object: &Object, plan: &Plan) -> Judgement {
        let set = self.policies.set();
        let about = Subject {
            group: object.key.resource.group.to_owned(),
            version: object.key.resource.version.to_owned(),
            kind: object.key.resource.kind.to_owned(),
            namespace: object.key.namespace.clone(),
            name: object.key.name.clone(),
            labels: entries_in(&object.body["metadata"]["labels"]),
            annotations: entries_in(&object.body["metadata"]["annotations"]),
            namespace_labels: entries(&self.snapshot.namespace_labels),
        };
        let asked = OnceCell::new();
        let configs = provenance::configs_for(object, &plan.decisions, set.configs());
        let asked = || asked.get_or_init(|| provenance::field_provenance(object, &plan.decisions, &AdminConfigs { configs: &configs }));
        let mut root = |name: &str| match name {
            "object" => Some(object.manifest().to_string().into()),
            "subject" => Some(self.subject()),
            "namespaceObject" => self.namespace(),
            "layers" if !asked().too_large => Some(asked().layers().to_string().into()),
            "added" if !asked().too_large => Some(asked().added().to_string().into()),
            _ => None,
        };
        set.rules().judge(RuleInput {
            stage: RuleStage::Output,
            about: &about,
            operation: None,
            root: &mut root,
            around: None,
            lane: Lane::Work,
        })
    }

    /// The cached results, or new ones, which are cached unless a failure is transient.
    fn kept(&self, span: &Span, parts: &[Digest], judge: impl FnOnce() -> Vec<Judgement>) -> Arc<Vec<Judgement>> {
        let key = Digest::of_all(parts);
        let kept = self.policies.cache().get::<Vec<Judgement>>(&key);
        span.record("cached", kept.is_some());
        if let Some(kept) = kept {
            return kept;
        }
        let judged = Arc::new(judge());
        let findings = || judged.iter().flat_map(|judgement| &judgement.findings);
        if !judged.iter().any(|judgement| judgement.passing) {
            let names: usize = judged.iter().map(|judgement| judgement.matched.len() * 48).sum();
            let size = findings().map(|finding| finding.message.len() + 128).sum::<usize>() + names;
            self.policies.cache().keep(key, Arc::clone(&judged), size);
        }
        judged
    }

    /// Applies the rules to a plan: adds the conditions, and removes all objects if anything is denied.
    pub(crate) fn enforce(&self, mut plan: Plan) -> Plan {
        let (input, looked_at) = self.input();
        plan.reads.extend(looked_at);
        let output = plan.objects.as_ref().map(|objects| self.output(objects, &plan));
        let denied = !input.admits() || output.as_ref().is_some_and(|output| output.iter().any(|judgement| !judgement.admits()));
        if input.passing || output.iter().flat_map(|output| output.iter()).any(|judgement| judgement.passing) {
            plan.recheck_after = Some(plan.recheck_after.map_or(RULE_RETRY_INTERVAL, |again| again.min(RULE_RETRY_INTERVAL)));
        }
        // The rules' own conditions are added to either status.
        if let Some(status) = plan.status_if_denied.take().filter(|_| denied) {
            plan.status = status;
        }
        plan.rule_results.add(&input);
        output.iter().flat_map(|output| output.iter()).for_each(|judgement| plan.rule_results.add(judgement));
        plan.status.conditions.insert(0, self.valid(&input));
        let allowed = self.allowed(plan.objects.as_deref().zip(output.as_deref()), &plan);
        if let (None, UndecidedSteps::Some(steps)) = (allowed.status, &mut plan.status.undecided) {
            steps.push(ALLOWED);
        }
        plan.status.conditions.push(allowed);
        if denied {
            plan.objects = None;
            plan.creates.clear();
        }
        plan.reads.insert(Read::Namespace(self.snapshot.subject.key.namespace.clone()));
        plan
    }

    fn valid(&self, judgement: &Judgement) -> Condition {
        let denied = judgement.sentences(Finding::denies);
        if !denied.is_empty() {
            let message = truncated(format!("{}: {}", self.snapshot.consequence(), joined(&denied)));
            return refused(VALID, "RuleBroken", message, judgement.findings.iter().filter(|finding| finding.denies()));
        }
        let warned = judgement.sentences(Finding::warns);
        if !warned.is_empty() {
            return Condition::satisfied(VALID, "Warned", truncated(joined(&warned))).with_event();
        }
        Condition::satisfied(VALID, "Valid", format!("The {} satisfies all rules.", self.snapshot.subject.key.resource.noun()))
    }

    fn allowed(&self, judged: Option<(&[Object], &Vec<Judgement>)>, plan: &Plan) -> Condition {
        let Some((objects, judgements)) = judged else {
            return Condition::unknown(ALLOWED, "Blocked", "The objects are not planned: the other conditions give the reason.");
        };
        let sentences = |wanted: fn(&Finding) -> bool| -> Vec<String> {
            let of_object = |(object, judgement): (&Object, &Judgement)| -> Vec<String> {
                let named = format!("{} {}", object.key.resource.kind, object.key.name);
                let findings = judgement.findings.iter().filter(|finding| wanted(finding));
                findings.map(|finding| sentence(&finding.rule, &format!("{named}: {}", finding.message))).collect()
            };
            objects.iter().zip(judgements).flat_map(of_object).collect()
        };
        let denied = sentences(Finding::denies);
        if !denied.is_empty() {
            let broken = objects.iter().zip(judgements).filter(|(_, judgement)| !judgement.admits()).map(|(object, _)| object);
            let plugins: BTreeSet<&str> = broken.flat_map(|object| provenance::plugins(object, &plan.decisions)).collect();
            let plugins = plugins.into_iter().collect::<Vec<_>>().join(", ");
            let by = if plugins.is_empty() { String::new() } else { format!(", to which the plugins {plugins} contribute,") };
            let message = truncated(format!("{}: the plan{by} is refused. {}", self.snapshot.consequence(), joined(&denied)));
            let findings = judgements.iter().flat_map(|judgement| &judgement.findings).filter(|finding| finding.denies());
            return refused(ALLOWED, "GuardrailBroken", message, findings);
        }
        let warned = sentences(Finding::warns);
        if !warned.is_empty() {
            return Condition::satisfied(ALLOWED, "Warned", truncated(joined(&warned))).with_event();
        }
        Condition::satisfied(ALLOWED, "Allowed", "The planned objects satisfy all rules.")
    }
}

/// The condition for denials. It is unknown if all of them are only transient failures to evaluate a rule.
fn refused<'f>(type_: &'static str, broken: &str, message: String, mut findings: impl Iterator<Item = &'f Finding> + Clone) -> Condition {
    const NOT_EVALUATED: &str = "RuleNotEvaluated";
    if findings.clone().all(|finding| finding.passing) {
        return Condition::unknown(type_, NOT_EVALUATED, message);
    }
    let reason = if findings.all(|finding| finding.failed) { NOT_EVALUATED } else { broken };
    Condition::no(type_, reason, message)
}

fn joined(sentences: &[String]) -> String {
    let ended = sentences.iter().map(|sentence| format!("{}.", sentence.trim_end_matches('.')));
    ended.collect::<Vec<_>>().join(" ")
}

fn truncated(mut text: String) -> String {
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        text.push('\u{2026}');
    }
    text
}

fn entries_in(map: &Value) -> Vec<Entry> {
    entries(&strings(map))
}
