//! Decisions: the host's function for each policy point. It calls the plugins in order, combines their answers, and caches the result under
//! the digests of everything that it depends on.
//!
//! The outcome depends only on the policy set, the question, whether the subject already has objects, and which plugins are in quarantine.

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

/// Whether a part of a question is empty and therefore omitted from its image.
fn is_empty<T>(list: &Digested<Vec<T>>) -> bool {
    list.is_empty()
}

/// An answer and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<Answer> {
    /// The answer; equal answers share one allocation.
    pub answer: Arc<Answer>,
    /// The digest of the question.
    pub inputs: Digest,
    /// The plugins that contributed, in order.
    pub plugins: Vec<AskedPlugin>,
    /// The plugins that failed, and why.
    pub failed: Vec<FailedPlugin>,
}

/// A plugin that was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedPlugin {
    /// The name of its PolicyPlugin.
    pub plugin: String,
    /// The digest of its bytes.
    pub digest: String,
}

/// A plugin that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPlugin {
    /// The name of its PolicyPlugin.
    pub plugin: String,
    /// The failure.
    pub error: CallError,
}

/// Why there is no answer. Existing objects stay unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// A plugin failed and has no fallback.
    #[error("the plugin {} can't answer at {}: {}", .failed.plugin, name(*.point), .failed.error)]
    Failed {
        /// The policy point.
        point: PolicyPoint,
        /// The plugin and its failure.
        failed: FailedPlugin,
    },
    /// No plugin is bound there for this subject.
    #[error("no plugin answers at {} for this subject: the built-in one is switched off or skipped", name(*.0))]
    Nobody(PolicyPoint),
    /// The question itself is invalid.
    #[error("the question can't be built: {0}")]
    Question(String),
}

impl Undecided {
    /// The reason in CamelCase, for conditions and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "PolicyFailed",
            Self::Nobody(_) => "NoPolicy",
            Self::Question(_) => "InvalidQuestion",
        }
    }
}

/// A change in a plugin's health during a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginHealthEvent {
    /// The name of its PolicyPlugin.
    pub plugin: String,
    /// The digest of its bytes.
    pub digest: String,
    /// The change.
    pub turn: HealthChange,
}

/// Receives events while policies decide.
pub trait Listener: fmt::Debug + Send + Sync {
    /// The health of a plugin has changed.
    fn heard(&self, news: PluginHealthEvent);

    /// Another set is active, or everything must be reconciled.
    fn changed(&self);
}

/// Ignores all events: offline and in comparisons.
#[derive(Clone, Copy, Debug)]
pub struct Unheard;

impl Listener for Unheard {
    fn heard(&self, _: PluginHealthEvent) {}

    fn changed(&self) {}
}

/// Decides with the active set.
#[derive(Debug)]
pub struct Policies {
    set: ArcSwap<ActiveSet>,
    cache: Arc<Cache>,
    /// Questions at hot points, for comparisons with other sets.
    sample: replay::Sample,
    listener: Arc<dyn Listener>,
    /// The previous sets that subjects may still use, the newest first.
    formers: ArcSwap<Vec<Arc<ActiveSet>>>,
    /// Whether this is only a comparison: it puts no plugin into quarantine.
    tried: bool,
    /// The number of times that a set became a candidate, was queued, promoted or abandoned.
    turns: Mutex<BTreeMap<&'static str, u64>>,
    /// Whether a set waits for an approval.
    awaits_approval: AtomicBool,
    /// The results of the rules for the live subjects.
    tally: Tally,
}

impl Policies {
    /// Starts with a set. Events go to the listener.
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

    /// The results of the rules for the live subjects.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The previous sets that subjects may still use, the newest first.
    pub fn previous_sets(&self) -> Arc<Vec<Arc<ActiveSet>>> {
        self.formers.load_full()
    }

    /// Replaces the previous sets.
    pub fn set_formers(&self, formers: Vec<Arc<ActiveSet>>) {
        self.formers.store(Arc::new(formers));
    }

    /// Decides with another set for a subject that still uses it: decisions are cached and failures reported and counted as usual.
    #[must_use]
    pub fn with_set(&self, set: Arc<ActiveSet>) -> Self {
        Self { cache: Arc::clone(&self.cache), set: ArcSwap::new(set), ..Self::new(ActiveSet::new(Vec::new()), Arc::clone(&self.listener)) }
    }

    /// Counts a transition of a policy set.
    pub fn count_transition(&self, turn: &'static str) {
        *locked(&self.turns).entry(turn).or_default() += 1;
    }

    /// The number of transitions of each type.
    pub fn turns(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.turns).clone()
    }

    /// Sets whether a set waits for an approval.
    pub fn set_awaits_approval(&self, awaits: bool) {
        self.awaits_approval.store(awaits, Ordering::Relaxed);
    }

    /// Whether a set waits for an approval, as far as this host knows: only the leader knows for certain.
    pub fn awaits_approval(&self) -> bool {
        self.awaits_approval.load(Ordering::Relaxed)
    }

    /// Decides with a set that isn't active: failures are neither reported nor counted against a plugin.
    pub fn for_comparison(set: &ActiveSet, cache: Arc<Cache>) -> Self {
        Self { cache, tried: true, ..Self::new(set.afresh(), Arc::new(Unheard)) }
    }

    /// Replaces the active set. Decisions in progress continue with their own set.
    pub fn activate(&self, set: Arc<ActiveSet>) {
        let same = self.active().digest() == set.digest();
        self.set.store(set);
        if !same {
            self.listener.changed();
        }
    }

    /// Requests that everything be reconciled.
    pub fn request_reconcile(&self) {
        self.listener.changed();
    }

    /// The set that is active now.
    pub fn active(&self) -> Arc<ActiveSet> {
        self.set.load_full()
    }

    /// The recorded questions at hot points.
    pub fn recorded(&self) -> Vec<Arc<replay::Recorded>> {
        self.sample.all()
    }

    /// The cache of decisions.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The number of cached decisions.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Pins the state for all decisions of one plan: the active set, and the plugins that are in quarantine now.
    pub fn pin(&self, standing: Standing) -> Pinned<'_> {
        Pinned { policies: self, set: self.active(), since: Instant::now(), passed_over: BTreeMap::new(), standing }
    }
}

/// Whether a subject has objects that a plan would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has none: the failure policy of a plugin may use a fallback.
    New,
    /// It has some: if a plugin fails, they stay unchanged.
    Running,
}

/// A set that is pinned for one plan.
#[derive(Debug)]
pub struct Pinned<'a> {
    policies: &'a Policies,
    set: Arc<ActiveSet>,
    /// The plan considers quarantines as of this time.
    since: Instant,
    /// The plugins whose match conditions the subject doesn't meet (none) or that can't be evaluated (why).
    passed_over: BTreeMap<String, Option<String>>,
    standing: Standing,
}

impl Pinned<'_> {
    /// The set.
    pub fn set(&self) -> &ActiveSet {
        &self.set
    }

    /// Evaluates the match conditions of the plugins for the subject; object and namespace are as rules see them.
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

    /// The cache of decisions.
    pub(crate) fn cache(&self) -> &Cache {
        &self.policies.cache
    }

    /// Whether a plugin isn't called about a subject because it failed too often.
    fn is_quarantined(&self, member: &Member, subject: &Subject) -> bool {
        !self.policies.tried && member.health.is_quarantined(&subject.namespace, self.since)
    }

    /// Calls a plugin at its policy point, and records the outcome.
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
                    // Spans have no unsigned numbers.
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

    /// Records the outcome of one call, and reports it.
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
            // A built-in has no better fallback, so its failures don't count.
            Err(error) if member.is_builtin() => member.health.failed_innocently(error),
            Err(error) => member.health.failed(&subject.namespace, error, now),
        };
        if let Some(turn) = turn {
            self.policies.listener.heard(PluginHealthEvent { plugin: member.name().to_owned(), digest: member.bound.digest.clone(), turn });
        }
        outcome.map(|(answer, _)| answer)
    }
}
