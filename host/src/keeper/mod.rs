//! Keeps the active policy set what the cluster says it is.
//!
//! One task owns all state. What it sees (PolicyPlugins, ConfigMaps, files, the record of what decides) only makes it look again;
//! what is slow (compiling, loading revisions) happens beside it, and is dropped if something newer has come meanwhile.
//!
//! On the leader: a source's newest bytes are loaded, kept as a revision, written into the record, and only then active. Every other
//! host, and the leader when it starts, takes its set from the record and the revisions alone.

pub mod binding;
mod candidate;
mod changes;
mod churn;
pub mod follow;
mod hold;
mod load_record;
mod namespace;
mod objects;
mod pending;
mod plugin;
mod promote;
pub mod record;
mod report;
pub mod reports;
mod requeue;
mod rules;
pub mod sets;
mod source_task;
pub mod start;
pub mod status;
mod watch;

use super::{
    load::Loader,
    revision::Revisions,
    source::{Source, SourceSettings, config_map::Namespaces},
    trust::Trust,
};
use crate::{
    comparison::{LiveComparison, Progress},
    leader::{Leadership, fence::fenced},
    liveness::Liveness,
    pace::Pacer,
    problem::Problem,
};
use candidate::{Candidate, Comparison};
use hold::LoadedSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt};
use load_record::Adopted;
pub use load_record::{builtins, of_set, recorded};
use objects::Objects;
use plugin::PluginProgress;
use pointsman_core::{
    compare::Report,
    decide::{
        PluginHealthEvent, Policies,
        health::{HealthChange, QuarantineScope},
    },
};
use pointsman_crds::policy::{
    plugin::{PolicyPlugin, UpdateStrategy},
    rule::ValidationRule,
    set::PolicySet,
};
use pointsman_sandbox::builtin::BUILTINS;
use record::ActiveRecord;
use rules::{CompiledRule, ReportedCounts, RuleProgress};
use sets::SetFacts;
use source_task::Tried;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch as channel},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use watch::{ConfigMaps, Event, KeeperEvent};

/// After how long something that failed for a reason outside the plugin is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// After how long at most.
const MAX_RETRY_INTERVAL: Duration = Duration::from_mins(5);

/// How often it is told how the live subjects stand to the rules.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// What a host is told about where plugins may come from.
#[derive(Debug)]
pub struct Options {
    /// The host's namespace: the record and the revisions are in it, and ConfigMaps are looked for there.
    pub namespace: String,
    /// Who this host is.
    pub identity: String,
    /// The directory of plugin files.
    pub directory: Option<PathBuf>,
    /// The namespaces that ConfigMaps may be in.
    pub namespaces: Namespaces,
    /// The sources that PolicyPlugins may name; a host has [`SOURCES`](crate::source::SOURCES).
    pub sources: &'static [&'static dyn Source],
    /// Whose signatures count.
    pub trust: Trust,
    /// The shipped rules that stay enabled.
    pub enabled_rules: BTreeSet<String>,
    /// How updates get active whose PolicyPlugin doesn't say it; none is by their policy points.
    pub strategy: Option<UpdateStrategy>,
    /// The version of this host.
    pub version: String,
}

impl Options {
    fn source_settings(&self) -> SourceSettings {
        SourceSettings { namespace: self.namespace.clone(), namespaces: self.namespaces.clone(), directory: self.directory.clone() }
    }
}

/// What reaches the keeper from elsewhere.
#[derive(Debug)]
pub struct Inputs {
    /// Whether this host leads.
    pub leadership: Leadership,
    /// What becomes known of plugins while they decide.
    pub news: mpsc::UnboundedReceiver<PluginHealthEvent>,
    /// Counts up when plugin files may have changed.
    pub files: Option<channel::Receiver<u64>>,
    /// Where a candidate is compared with what decides.
    pub stage: Arc<LiveComparison>,
    /// Who gives turns to restart pods.
    pub pacer: Arc<Pacer>,
    /// What is being done.
    pub liveness: Liveness,
}

/// What comes back from work that was done beside the keeper.
#[derive(Debug)]
enum TaskResult {
    /// The source of a PolicyPlugin has been read, by the task with a number.
    HasRead(String, u64),
    /// What came of a PolicyPlugin, by the task with a number.
    Tried(String, u64, Box<Tried>),
    Ruled(Box<CompiledRule>),
    Adopted(Box<Adopted>),
    /// How far the comparison of the set with a digest has come.
    Compares(String, Progress),
    Compared(Box<Report>),
    Restored(LoadedSet),
}

/// What was seen at least once, there or not.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is known apart from the others.
struct Synced {
    plugins: bool,
    rules: bool,
    sets: bool,
    record: bool,
    namespace: bool,
}

/// The one that keeps the set.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Keeper {
    /// Everything is written by it, and so only while we lead.
    client: Client,
    options: Arc<Options>,
    loader: Arc<Loader>,
    policies: Arc<Policies>,
    revisions: Arc<Revisions>,
    leadership: Leadership,
    leading: bool,
    /// The PolicyPlugins, by name.
    plugins: Objects<PolicyPlugin>,
    /// The ValidationRules, by name.
    rules: Objects<ValidationRule>,
    rule_works: BTreeMap<String, RuleProgress>,
    counts: ReportedCounts,
    /// The PolicySets, by name.
    sets: Objects<PolicySet>,
    /// What is to be told of them beside what is told already.
    facts: BTreeMap<String, SetFacts>,
    candidate: Option<Candidate>,
    /// The comparison of what got active without one.
    follow_up: Option<Comparison>,
    /// Whether it is known, since this host leads, what waits.
    proposed: bool,
    stage: Arc<LiveComparison>,
    pacer: Arc<Pacer>,
    /// The digests of the sets that are being loaded from what is kept, and what has come of the last one.
    restoring: BTreeSet<String>,
    restored: Option<LoadedSet>,
    /// The digests of former sets that couldn't be loaded when it was tried last.
    unloadable: BTreeSet<String>,
    /// The uid of the PolicySet that the pause was read from last.
    pause_read: Option<String>,
    /// What was recorded before the record was lost.
    lost: Option<ActiveRecord>,
    /// What was told last of a set that can't decide again.
    complained: Option<String>,
    /// The plugins whose old revisions may go.
    to_prune: BTreeSet<String>,
    config_maps: ConfigMaps,
    /// The record as it is in the cluster, with its resource version.
    record: ActiveRecord,
    record_version: Option<String>,
    /// When our own last write of it was answered.
    record_answered: Option<Instant>,
    known: Synced,
    /// The digest of the record that is being adopted.
    adopting: Option<String>,
    /// The digest of the record that is in force here. None until the first: the set is then that of the built-ins.
    in_force: Option<String>,
    works: BTreeMap<String, PluginProgress>,
    /// How many tasks were started for them.
    tasks: u64,
    done: mpsc::UnboundedSender<TaskResult>,
    again: Option<Instant>,
    ready: channel::Sender<Option<String>>,
}

/// Starts the keeper. The receiver tells what keeps the policies from being in force, or none. The future never ends by itself.
pub fn keep(
    client: Client,
    options: Options,
    loader: Arc<Loader>,
    policies: Arc<Policies>,
    inputs: Inputs,
) -> (channel::Receiver<Option<String>>, impl Future<Output = ()>) {
    let (ready, obstacle) = channel::channel(Some("the policies in force haven't been read yet".to_owned()));
    let (seen_sender, seen) = mpsc::unbounded_channel();
    let (done_sender, done) = mpsc::unbounded_channel();
    let writing = fenced(client.clone(), inputs.leadership.clone());
    let mut keeper = Keeper {
        revisions: Arc::new(Revisions::new(writing.clone(), options.namespace.as_str())),
        config_maps: ConfigMaps::new(client.clone(), seen_sender.clone()),
        client: writing,
        options: Arc::new(options),
        loader,
        policies,
        leadership: inputs.leadership.clone(),
        leading: false,
        plugins: Objects::default(),
        rules: Objects::default(),
        rule_works: BTreeMap::new(),
        counts: ReportedCounts::default(),
        sets: Objects::default(),
        facts: BTreeMap::new(),
        candidate: None,
        follow_up: None,
        proposed: false,
        stage: Arc::clone(&inputs.stage),
        pacer: Arc::clone(&inputs.pacer),
        restoring: BTreeSet::new(),
        pause_read: None,
        lost: None,
        complained: None,
        to_prune: BTreeSet::new(),
        restored: None,
        unloadable: BTreeSet::new(),
        record: ActiveRecord::default(),
        record_version: None,
        record_answered: None,
        known: Synced::default(),
        adopting: None,
        in_force: None,
        works: BTreeMap::new(),
        tasks: 0,
        done: done_sender,
        again: None,
        ready,
    };
    let run = async move {
        let plugins = watch::all(client.clone(), seen_sender.clone(), "PolicyPlugins", KeeperEvent::Plugin);
        let rules = watch::all(client.clone(), seen_sender.clone(), "ValidationRules", KeeperEvent::Rule);
        let sets = watch::all(client, seen_sender, "PolicySets", KeeperEvent::Set);
        tokio::select! {
            () = keeper.run(seen, done, inputs) => {}
            () = plugins => {}
            () = rules => {}
            () = sets => {}
        }
    };
    (obstacle, run)
}

impl Keeper {
    async fn run(&mut self, mut seen: mpsc::UnboundedReceiver<KeeperEvent>, mut done: mpsc::UnboundedReceiver<TaskResult>, inputs: Inputs) {
        let Inputs { mut leadership, mut news, mut files, pacer, liveness, .. } = inputs;
        let mut progress = pacer.progress();
        self.config_maps.want(&self.places());
        let mut counting = interval(COUNT_INTERVAL);
        // Those that passed while the keeper was busy must not come all at once: what still changes would look settled.
        counting.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked_at = Instant::now();
        loop {
            let again = self.wakes_at(looked_at);
            tokio::select! {
                Some(seen) = seen.recv() => self.handle_event(seen),
                Some(done) = done.recv() => self.handle_done(done),
                Some(news) = news.recv() => self.handle_decision_event(news),
                () = leadership_changed(&mut leadership, self.leading) => self.lead(!self.leading),
                () = changed(&mut files) => self.look_at_files(),
                // It is told below.
                _ = progress.changed() => {}
                // Nothing wakes the keeper when the counts of rules change: it checks by itself.
                _ = counting.tick() => {
                    if !self.uncounted() {
                        continue;
                    }
                    self.count();
                }
                () = sleep_until_some(again) => self.retry(),
                else => return,
            }
            let work = liveness.begin("reconciling the policies".to_owned());
            // What has come together is looked at together.
            while let Ok(seen) = seen.try_recv() {
                self.handle_event(seen);
            }
            while let Ok(done) = done.try_recv() {
                self.handle_done(done);
            }
            looked_at = Instant::now();
            self.reconcile().await;
            self.policies.set_awaits_approval(self.awaits_approval());
            drop(work);
        }
    }

    fn handle_event(&mut self, seen: KeeperEvent) {
        match seen {
            KeeperEvent::Plugin(Event::Now(plugin, listed)) => {
                let (name, generation) = (plugin.name_any(), plugin.metadata.generation);
                let Ok(before) = self.plugins.see(*plugin, listed) else { return };
                // What we ourselves say of it is no reason to look at it again.
                if before.is_none_or(|before| before.metadata.generation != generation) {
                    self.works.entry(name).or_default().dirty = true;
                }
            }
            KeeperEvent::Plugin(Event::Gone(name)) => {
                self.plugins.remove(&name);
                self.works.remove(&name);
            }
            KeeperEvent::Plugin(Event::All(names, listed)) => {
                self.plugins.retain_listed(&names, listed);
                self.works.retain(|name, _| self.plugins.contains_key(name));
                self.known.plugins = true;
            }
            KeeperEvent::Rule(Event::Now(rule, listed)) => self.see_rule(*rule, listed),
            KeeperEvent::Rule(Event::Gone(name)) => {
                self.rules.remove(&name);
                self.rule_works.remove(&name);
            }
            KeeperEvent::Rule(Event::All(names, listed)) => {
                self.rules.retain_listed(&names, listed);
                self.rule_works.retain(|name, _| self.rules.contains_key(name));
                self.known.rules = true;
            }
            KeeperEvent::Set(Event::Now(set, listed)) => drop(self.sets.see(*set, listed)),
            KeeperEvent::Set(Event::Gone(name)) => self.sets.remove(&name),
            KeeperEvent::Set(Event::All(names, listed)) => {
                self.sets.retain_listed(&names, listed);
                self.known.sets = true;
            }
            KeeperEvent::ConfigMap(place, state, listed) => {
                if place == self.record_place() {
                    self.see_record(state.as_deref(), listed);
                    self.config_maps.take(&place, state);
                } else if self.config_maps.take(&place, state) {
                    self.look_at_users(&place);
                }
            }
            KeeperEvent::Unreadable(place, error) => {
                if self.config_maps.fail(&place, error) {
                    self.look_at_users(&place);
                }
            }
        }
    }

    fn handle_done(&mut self, done: TaskResult) {
        match done {
            TaskResult::HasRead(plugin, task) => {
                if let Some(work) = self.works.get_mut(&plugin).filter(|work| work.task == task) {
                    work.read_by = None;
                }
            }
            TaskResult::Tried(plugin, task, tried) => {
                if let Some(work) = self.works.get_mut(&plugin).filter(|work| work.task == task) {
                    work.take(*tried);
                }
            }
            TaskResult::Ruled(ruled) => self.ruled(*ruled),
            TaskResult::Adopted(adopted) => self.adopted(*adopted),
            TaskResult::Compares(set, progress) => self.compares(&set, progress),
            TaskResult::Compared(report) => self.compared(*report),
            TaskResult::Restored(restored) => self.take_restored(restored),
        }
    }

    fn handle_decision_event(&mut self, news: PluginHealthEvent) {
        let active = self.policies.active();
        // What a former version did is no longer of interest.
        if active.member(&news.plugin).is_none_or(|member| member.bound.digest != news.digest) {
            return;
        }
        let Some(work) = self.works.get_mut(&news.plugin) else { return };
        let plugin = &news.plugin;
        match news.turn {
            HealthChange::Failed(error) => {
                tracing::warn!(plugin, digest = news.digest, reason = error.reason(), "the plugin gave no answer: {error}");
                work.failure = Some(Problem { reason: error.reason().to_owned(), message: format!("{error}.") });
            }
            HealthChange::Quarantined(scope, pause, error) => {
                let namespace = scope.namespace();
                let seconds = pause.as_secs();
                tracing::warn!(plugin, digest = news.digest, namespace, seconds, "the plugin is quarantined: {error}");
                work.failure = Some(Problem { reason: error.reason().to_owned(), message: format!("{error}.") });
                let (now, until) = (Instant::now(), Instant::now() + pause);
                match scope {
                    QuarantineScope::All => work.quarantine = Some((until, error)),
                    QuarantineScope::Namespace(namespace) => {
                        work.namespaces.retain(|_, (until, _)| *until > now);
                        work.namespaces.insert(namespace, (until, error));
                    }
                }
            }
            HealthChange::Recovered(scope) => {
                tracing::info!(plugin, namespace = scope.namespace(), "the plugin is no longer quarantined");
                match scope {
                    QuarantineScope::All => work.quarantine = None,
                    QuarantineScope::Namespace(namespace) => drop(work.namespaces.remove(&namespace)),
                }
                work.failure = None;
            }
        }
    }

    fn lead(&mut self, leading: bool) {
        self.leading = leading;
        self.candidate = None;
        self.follow_up = None;
        self.restored = None;
        self.unloadable.clear();
        self.pause_read = None;
        for work in self.works.values_mut() {
            (work.ready, work.tried) = (None, None);
        }
        self.rule_works.values_mut().for_each(|work| work.ready = None);
        self.facts.clear();
        self.proposed = false;
        // Somebody else may have led meanwhile.
        self.requeue_all();
    }

    /// Brings everything into line with what is known.
    async fn reconcile(&mut self) {
        self.config_maps.want(&self.places());
        if !self.known.record {
            return;
        }
        if self.start_adoption() {
            return;
        }
        if !self.known.namespace && !self.look_for_home().await {
            return;
        }
        if !self.knows_the_last().await {
            return;
        }
        self.ready.send_if_modified(|obstacle| obstacle.take().is_some());
        // A word on a set counts from the beginning.
        if !self.leadership.held() || !self.known.plugins || !self.known.rules || !self.known.sets {
            return;
        }
        if !self.record_first().await {
            return;
        }
        self.make_builtins().await;
        self.make_shipped().await;
        let due = self.works.iter().filter(|(_, work)| (work.dirty || work.tried.is_some()) && !work.running);
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            self.advance(&name).await;
        }
        self.consider_rules();
        self.load_formers();
        if !self.hold().await {
            self.promote_at_once().await;
            self.propose().await;
        }
        self.record_update_policies().await;
        self.apply_pause().await;
        self.prune_sets().await;
        self.tell().await;
        self.tell_rules().await;
        self.tell_sets().await;
        for name in std::mem::take(&mut self.to_prune) {
            self.prune(&name).await;
        }
    }

    /// The names of the built-ins' PolicyPlugins that aren't there.
    fn missing_builtins(&self) -> impl Iterator<Item = &'static pointsman_sandbox::builtin::Builtin> {
        BUILTINS.iter().filter(|builtin| !self.plugins.contains_key(builtin.name))
    }
}

fn now() -> Time {
    // Times in Kubernetes' objects have whole seconds.
    Time(Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Waits until we lead where we don't, or don't where we do.
async fn leadership_changed(leadership: &mut Leadership, leading: bool) {
    if leading {
        leadership.lost().await;
    } else {
        leadership.acquired().await;
    }
}

async fn sleep_until_some(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

async fn changed(files: &mut Option<channel::Receiver<u64>>) {
    match files {
        Some(receiver) => {
            if receiver.changed().await.is_err() {
                *files = None;
            }
        }
        None => std::future::pending().await,
    }
}
