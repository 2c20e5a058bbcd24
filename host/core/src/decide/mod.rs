//! Deciding: the host's function for each policy point. It asks the plugins in line, lays their answers together, and caches the
//! result under the digests of all that it depends on.
//!
//! The outcome depends on the policy set, the question, whether the subject has objects already, and which plugins are in
//! quarantine, and on nothing else.

mod cached;
mod chain;
pub mod health;
pub mod latency;
pub mod member;
pub mod propagation;
pub mod replay;
pub mod scoring;
pub mod selection;
pub mod set;
pub mod templating;

use crate::{
    decide::{health::HealthChange, member::Member, set::ActiveSet},
    point::name,
    rules::{rule::of_condition, tally::Tally},
    spans,
};
use arc_swap::ArcSwap;
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{
    cache::Cache,
    call::{CallError, Spent},
    digest::{Digest, Digested},
    engine::Use,
    evaluator::Outcome,
    limits::DECISION_CACHE,
    plugin::Plugin,
    point::Subject,
    sync::locked,
    text::printable_line,
};
use std::{
    cell::LazyCell,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tracing::field::Empty;

/// Whether a part of a question is left out of its image, because it is empty.
fn is_empty<T>(list: &Digested<Vec<T>>) -> bool {
    list.is_empty()
}

/// An answer, with all that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<Answer> {
    /// The answer: equal ones are one.
    pub answer: Arc<Answer>,
    /// The digest of the question.
    pub inputs: Digest,
    /// The plugins that gave it, in line.
    pub plugins: Vec<AskedPlugin>,
    /// The plugins that gave none, and why.
    pub failed: Vec<FailedPlugin>,
}

/// A plugin that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedPlugin {
    /// The name of its PolicyPlugin.
    pub plugin: String,
    /// The digest of its bytes.
    pub digest: String,
}

/// A plugin that gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPlugin {
    /// The name of its PolicyPlugin.
    pub plugin: String,
    /// Why.
    pub error: CallError,
}

/// Why there is no answer. What already runs stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// A plugin gave none, and nobody may stand in for it.
    #[error("the plugin {} can't answer at {}: {}", .failed.plugin, name(*.point), .failed.error)]
    Failed {
        /// The policy point.
        point: PolicyPoint,
        /// Who, and why.
        failed: FailedPlugin,
    },
    /// No plugin is asked there about this subject.
    #[error("no plugin answers at {} for this subject: the built-in one is switched off or skipped", name(*.0))]
    Nobody(PolicyPoint),
    /// The question itself can't be put.
    #[error("the question can't be built: {0}")]
    Question(String),
}

impl Undecided {
    /// One CamelCase word for it, for conditions and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "PolicyFailed",
            Self::Nobody(_) => "NoPolicy",
            Self::Question(_) => "InvalidQuestion",
        }
    }
}

/// What becomes known of a plugin while it decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginHealthEvent {
    /// The name of its PolicyPlugin.
    pub plugin: String,
    /// The digest of its bytes.
    pub digest: String,
    /// What has changed.
    pub turn: HealthChange,
}

/// What hears of it while policies decide.
pub trait Listener: fmt::Debug + Send + Sync {
    /// Something has become known of a plugin.
    fn heard(&self, news: PluginHealthEvent);

    /// Another set decides, or everything is to be looked at again.
    fn changed(&self);
}

/// Where nobody listens: offline, and in what is only tried.
#[derive(Clone, Copy, Debug)]
pub struct Unheard;

impl Listener for Unheard {
    fn heard(&self, _: PluginHealthEvent) {}

    fn changed(&self) {}
}

/// What decides, whatever set is active.
#[derive(Debug)]
pub struct Policies {
    set: ArcSwap<ActiveSet>,
    cache: Arc<Cache>,
    /// Questions at hot points, for sets that are only tried.
    sample: replay::Sample,
    listener: Arc<dyn Listener>,
    /// The sets that decided before and that subjects may still be on, the newest first.
    formers: ArcSwap<Vec<Arc<ActiveSet>>>,
    /// Whether this is only tried: nobody is put into quarantine by it.
    tried: bool,
    /// How often a set was nominated, waited, was promoted or abandoned.
    turns: Mutex<BTreeMap<&'static str, u64>>,
    /// Whether a set waits for an approval.
    awaits_approval: AtomicBool,
    /// How the live subjects stand to the rules.
    tally: Tally,
}

impl Policies {
    /// Starts with a set. What becomes known of its plugins goes to the listener.
    pub fn new(set: ActiveSet, listener: Arc<dyn Listener>) -> Self {
        Self {
            set: ArcSwap::from_pointee(set),
            cache: Arc::new(Cache::new(DECISION_CACHE)),
            sample: replay::Sample::default(),
            listener,
            formers: ArcSwap::default(),
            tried: false,
            turns: Mutex::default(),
            awaits_approval: AtomicBool::default(),
            tally: Tally::default(),
        }
    }

    /// How the live subjects stand to the rules.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The sets that decided before and that subjects may still be on, the newest first.
    pub fn previous_sets(&self) -> Arc<Vec<Arc<ActiveSet>>> {
        self.formers.load_full()
    }

    /// Takes what these are now.
    pub fn set_formers(&self, formers: Vec<Arc<ActiveSet>>) {
        self.formers.store(Arc::new(formers));
    }

    /// Decides by another set for somebody who is still on it: what is decided is kept, told and held against plugins as ever.
    #[must_use]
    pub fn with_set(&self, set: Arc<ActiveSet>) -> Self {
        Self { cache: Arc::clone(&self.cache), set: ArcSwap::new(set), ..Self::new(ActiveSet::new(Vec::new()), Arc::clone(&self.listener)) }
    }

    /// Counts a turn of a policy set.
    pub fn count_transition(&self, turn: &'static str) {
        *locked(&self.turns).entry(turn).or_default() += 1;
    }

    /// How often each turn was taken.
    pub fn turns(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.turns).clone()
    }

    /// Takes whether a set waits for an approval.
    pub fn set_awaits_approval(&self, awaits: bool) {
        self.awaits_approval.store(awaits, Ordering::Relaxed);
    }

    /// Whether a set waits for an approval, as far as this host knows: the leader does.
    pub fn awaits_approval(&self) -> bool {
        self.awaits_approval.load(Ordering::Relaxed)
    }

    /// Decides by a set beside what is active: it is only tried, and neither told of nor held against a plugin.
    pub fn for_comparison(set: &ActiveSet, cache: Arc<Cache>) -> Self {
        Self { cache, tried: true, ..Self::new(set.afresh(), Arc::new(Unheard)) }
    }

    /// Puts another set in the place of the active one. Decisions that have begun end under theirs.
    pub fn activate(&self, set: Arc<ActiveSet>) {
        let same = self.active().digest() == set.digest();
        self.set.store(set);
        if !same {
            self.listener.changed();
        }
    }

    /// Has everything looked at again.
    pub fn request_reconcile(&self) {
        self.listener.changed();
    }

    /// The set that is active now.
    pub fn active(&self) -> Arc<ActiveSet> {
        self.set.load_full()
    }

    /// Questions that were put at hot points.
    pub fn recorded(&self) -> Vec<Arc<replay::Recorded>> {
        self.sample.all()
    }

    /// What was found before.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// How many decisions are kept.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// What all decisions of one plan run under: the active set, and the plugins that are in quarantine now.
    pub fn pin(&self, standing: Standing) -> Pinned<'_> {
        Pinned { policies: self, set: self.active(), since: Instant::now(), passed_over: BTreeMap::new(), standing }
    }
}

/// Whether a subject has objects that a plan would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has none: the failure policy of a plugin may let others answer in its place.
    New,
    /// It has some: if a plugin fails they stay as they are.
    Running,
}

/// One set, for the time of one plan.
#[derive(Debug)]
pub struct Pinned<'a> {
    policies: &'a Policies,
    set: Arc<ActiveSet>,
    /// Whoever is in quarantine by then stays there for the plan, and nobody else comes.
    since: Instant,
    /// The plugins whose conditions aren't met by the subject, or can't be evaluated: why.
    passed_over: BTreeMap<String, Option<String>>,
    standing: Standing,
}

impl Pinned<'_> {
    /// The set.
    pub fn set(&self) -> &ActiveSet {
        &self.set
    }

    /// Evaluates under which conditions alone plugins are asked about the subject; its object and its namespace as rules see them.
    pub(crate) fn evaluate_match_conditions(
        &mut self,
        subject: &Subject,
        object: impl FnOnce() -> Arc<str>,
        namespace: impl FnOnce() -> Option<Arc<str>>,
    ) {
        let (object, namespace) = (LazyCell::new(object), LazyCell::new(namespace));
        let known = LazyCell::new(|| {
            let namespace = namespace.as_deref().unwrap_or_default();
            [Digest::hash(object.as_bytes()), Digest::hash(namespace.as_bytes())]
        });
        for member in self.set.members() {
            let Some(conditions) = member.conditions().filter(|_| crate::decide::set::concerns(member, subject)) else { continue };
            let key = Digest::of_all([conditions.program.digest()].into_iter().chain(&*known));
            let judged = match self.policies.cache.get::<Outcome>(&key) {
                Some(kept) => Ok((*kept).clone()),
                None => conditions.evaluator.ask().and_then(|mut asking| {
                    asking.bind("object", Arc::clone(&object));
                    if let Some(namespace) = &*namespace {
                        asking.bind("namespaceObject", Arc::clone(namespace));
                    }
                    let judged = asking.judge(&conditions.program)?;
                    self.policies.cache.keep(key, Arc::new(judged.clone()), 128);
                    Ok(judged)
                }),
            };
            let why = match judged {
                Ok(Outcome::Judged(_)) => continue,
                Ok(Outcome::Unmatched(_)) => None,
                Ok(Outcome::Undecided(problem)) => Some(of_condition(&member.bound, problem).to_string()),
                Err(error) => Some(error.to_string()),
            };
            self.passed_over.insert(member.name().to_owned(), why);
        }
    }

    /// What was found before.
    pub(crate) fn cache(&self) -> &Cache {
        &self.policies.cache
    }

    /// Whether a plugin isn't asked about a subject because it failed too often.
    fn is_quarantined(&self, member: &Member, subject: &Subject) -> bool {
        !self.policies.tried && member.health.is_quarantined(&subject.namespace, self.since)
    }

    /// Calls a plugin that is bound to a policy point, and notes what comes of it.
    fn call<Answer>(
        &self,
        point: PolicyPoint,
        member: &Member,
        subject: &Subject,
        ask: impl FnOnce(&Plugin) -> Result<(Answer, Spent), CallError>,
    ) -> Result<Answer, CallError> {
        let use_ = if point == PolicyPoint::SchedulingScoring { Use::Hot } else { Use::ControlPlane };
        let outcome = member.plugin(use_).and_then(|plugin| {
            let (name, digest) = (member.name(), member.bound.digest.as_str());
            let span = tracing::debug_span!(
                target: spans::TARGET, "call", otel.name = %format_args!("call {name}"), plugin = name, digest, point = self::name(point),
                outcome = Empty, fuel = Empty, otel.status_code = Empty, otel.status_description = Empty,
            );
            let begun = Instant::now();
            let outcome = span.in_scope(|| ask(plugin));
            member.health.latency(point).record(begun.elapsed());
            match &outcome {
                Ok((_, spent)) => {
                    span.record("outcome", "Answered");
                    // Spans know no unsigned numbers.
                    spent.fuel.and_then(|fuel| i64::try_from(fuel).ok()).map(|fuel| span.record("fuel", fuel));
                }
                Err(error) => {
                    span.record("outcome", error.reason()).record("otel.status_code", "error");
                    span.record("otel.status_description", tracing::field::display(error));
                }
            }
            outcome
        });
        self.noted(member, subject, outcome)
    }

    /// Notes what came of one call, and tells it.
    fn noted<Answer>(&self, member: &Member, subject: &Subject, outcome: Result<(Answer, Spent), CallError>) -> Result<Answer, CallError> {
        let now = Instant::now();
        let outcome = outcome.map_err(|error| member.excuse(error));
        let turn = match &outcome {
            Ok((_, spent)) => {
                for line in &spent.log {
                    tracing::debug!(target: "pointsman::plugin", plugin = member.name(), level = %line.level, "{}", printable_line(&line.message));
                }
                member.health.answered(&subject.namespace, now)
            }
            // Whatever a built-in fails on, there is nobody to answer better.
            Err(error) if member.is_builtin() => member.health.failed_innocently(error),
            Err(error) => member.health.failed(&subject.namespace, error, now),
        };
        if let Some(turn) = turn {
            self.policies.listener.heard(PluginHealthEvent { plugin: member.name().to_owned(), digest: member.bound.digest.clone(), turn });
        }
        outcome.map(|(answer, _)| answer)
    }
}
