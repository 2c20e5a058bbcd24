//! Keeps the active policy set in line with the cluster.
//!
//! One task owns all state. Its events (PolicyPlugins, ConfigMaps, files, the record of the active set) only trigger a reconcile; slow work
//! (compiling, loading revisions) runs in separate tasks, and its result is dropped if it is out of date.
//!
//! On the leader, a source's newest bytes are loaded, stored as a revision, written into the record, and only then active. Every other
//! host, and the leader at startup, loads its set only from the record and the revisions.

mod batch;
pub mod binding;
mod candidate;
mod changes;
mod events;
pub mod follow;
mod hold;
mod load_record;
mod namespace;
mod objects;
mod pending;
mod plugin;
mod promote;
mod propose;
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
};
use candidate::{Candidate, Comparison};
use hold::LoadedSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use load_record::Adopted;
pub use load_record::{builtins, of_set, recorded};
use objects::Objects;
use pending::ChangeKeys;
use plugin::{Kept, PluginProgress};
use pointsman_core::{
    compare::Report,
    decide::{PluginHealthEvent, Policies},
};
use pointsman_crds::policy::{
    plugin::{PolicyPlugin, UpdateStrategy},
    rule::ValidationRule,
    set::PolicySet,
};
use pointsman_sandbox::builtin::BUILTINS;
use propose::Meeting;
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
use watch::{ConfigMaps, KeeperEvent};

/// The delay before a failure outside the plugin is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum delay.
const MAX_RETRY_INTERVAL: Duration = Duration::from_mins(5);

/// How long a new leader waits for loading plugins before it abandons another host's candidates whose changes it doesn't find.
const PROPOSING_PATIENCE: Duration = Duration::from_secs(30);

/// The interval at which the counts of subjects per rule are written.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// The host's options for the sources of plugins.
#[derive(Debug)]
pub struct Options {
    /// The host's namespace, which has the record and the revisions. ConfigMaps without a namespace are read there.
    pub namespace: String,
    /// This host's name.
    pub identity: String,
    /// The directory of plugin files.
    pub directory: Option<PathBuf>,
    /// The namespaces that ConfigMaps may be in.
    pub namespaces: Namespaces,
    /// The sources that PolicyPlugins may name; a host has [`SOURCES`](crate::source::SOURCES).
    pub sources: &'static [&'static dyn Source],
    /// The trusted signatures.
    pub trust: Trust,
    /// The shipped rules that stay enabled.
    pub enabled_rules: BTreeSet<String>,
    /// The default update strategy; without it, the default depends on the policy points.
    pub strategy: Option<UpdateStrategy>,
    /// The version of this host.
    pub version: String,
}

impl Options {
    fn source_settings(&self) -> SourceSettings {
        SourceSettings { namespace: self.namespace.clone(), namespaces: self.namespaces.clone(), directory: self.directory.clone() }
    }
}

/// The keeper's inputs from other tasks.
#[derive(Debug)]
pub struct Inputs {
    /// Whether this host is the leader.
    pub leadership: Leadership,
    /// The health of active plugins.
    pub news: mpsc::UnboundedReceiver<PluginHealthEvent>,
    /// Counts up when plugin files may have changed.
    pub files: Option<channel::Receiver<u64>>,
    /// Compares candidates with the active set.
    pub stage: Arc<LiveComparison>,
    /// Limits the restarts of pods.
    pub pacer: Arc<Pacer>,
    /// The work in progress.
    pub liveness: Liveness,
}

/// The result of a separate task.
#[derive(Debug)]
enum TaskResult {
    /// The source of a PolicyPlugin was read by the task of this number.
    HasRead(String, u64),
    /// The result of loading a PolicyPlugin by the task of this number.
    Tried(String, u64, Box<Tried>),
    /// The result of storing a revision of a PolicyPlugin.
    Kept(String, Kept),
    Ruled(Box<CompiledRule>),
    Adopted(Box<Adopted>),
    /// The progress of the comparison of the set with this digest.
    Compares(String, Progress),
    Compared(Box<Report>),
    Restored(LoadedSet),
}

/// The kinds and objects whose state is known, even if they don't exist.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is known apart from the others.
struct Synced {
    plugins: bool,
    rules: bool,
    sets: bool,
    record: bool,
    namespace: bool,
}

/// The keeper.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Keeper {
    /// Used for all writes, so it writes only while this host is the leader.
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
    /// The facts about the sets that their statuses don't have yet.
    facts: BTreeMap<String, SetFacts>,
    /// The candidates, by their changes.
    candidates: BTreeMap<ChangeKeys, Candidate>,
    /// The candidates that change the same fields. None until it is computed again.
    meetings: Option<Vec<Meeting>>,
    /// The changes that together exceed a limit over the active set.
    unbatchable: Option<ChangeKeys>,
    /// The comparison of a set that became active without one.
    follow_up: Option<Comparison>,
    /// Until when candidates aren't abandoned, because plugins are still being loaded. None once the pending changes are known.
    proposes_by: Option<Instant>,
    stage: Arc<LiveComparison>,
    pacer: Arc<Pacer>,
    /// The digests of the stored sets that are being loaded, and the last result.
    restoring: BTreeSet<String>,
    restored: Option<LoadedSet>,
    /// The digests of previous sets that couldn't be loaded at the last attempt.
    unloadable: BTreeSet<String>,
    /// The uid of the PolicySet whose pause was read last.
    pause_read: Option<String>,
    /// The last record before it was lost.
    lost: Option<ActiveRecord>,
    /// The last message about a set that can't be reactivated.
    complained: Option<String>,
    /// The plugins whose old revisions may be deleted.
    to_prune: BTreeSet<String>,
    /// Whether this leader has looked for revisions of deleted plugins.
    found_leftovers: bool,
    config_maps: ConfigMaps,
    /// The record in the cluster, with its resource version.
    record: ActiveRecord,
    record_version: Option<String>,
    /// When our last write of the record was confirmed.
    record_answered: Option<Instant>,
    known: Synced,
    /// The digest of the record that is being loaded.
    adopting: Option<String>,
    /// The digest of the record that is active here. None until the first: the built-ins are active.
    in_force: Option<String>,
    works: BTreeMap<String, PluginProgress>,
    /// The number of tasks that were started for them.
    tasks: u64,
    done: mpsc::UnboundedSender<TaskResult>,
    again: Option<Instant>,
    ready: channel::Sender<Option<String>>,
}

/// Starts the keeper. The receiver has the reason why the policies aren't active, or none. The future never ends by itself.
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
        candidates: BTreeMap::new(),
        meetings: None,
        unbatchable: None,
        follow_up: None,
        proposes_by: Some(Instant::now() + PROPOSING_PATIENCE),
        stage: Arc::clone(&inputs.stage),
        pacer: Arc::clone(&inputs.pacer),
        restoring: BTreeSet::new(),
        pause_read: None,
        lost: None,
        complained: None,
        to_prune: BTreeSet::new(),
        found_leftovers: false,
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
        // Ticks that the keeper missed must not arrive at once: counts that still change would look stable.
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
                // Written below.
                _ = progress.changed() => {}
                // Nothing wakes the keeper when the counts of rules change: it checks them itself.
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
            // Events that arrive together are handled together.
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

    fn lead(&mut self, leading: bool) {
        self.leading = leading;
        self.candidates.clear();
        self.meetings = None;
        self.follow_up = None;
        self.restored = None;
        self.unloadable.clear();
        self.pause_read = None;
        for work in self.works.values_mut() {
            (work.ready, work.tried, work.unkept) = (None, None, None);
        }
        self.rule_works.values_mut().for_each(|work| work.ready = None);
        self.facts.clear();
        self.found_leftovers = false;
        // Another host may have been the leader meanwhile.
        self.requeue_all();
    }

    /// Reconciles the policies with the known state.
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
        // Annotations on sets must be known first.
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
            self.advance(&name);
        }
        self.consider_rules();
        self.load_formers();
        if !self.hold().await {
            self.propose().await;
        }
        self.record_update_policies().await;
        self.apply_pause().await;
        self.prune_sets().await;
        self.tell().await;
        self.tell_rules().await;
        self.tell_sets().await;
        self.find_leftovers().await;
        for name in std::mem::take(&mut self.to_prune) {
            self.prune(&name).await;
        }
    }

    /// The built-ins without a PolicyPlugin.
    fn missing_builtins(&self) -> impl Iterator<Item = &'static pointsman_sandbox::builtin::Builtin> {
        BUILTINS.iter().filter(|builtin| !self.plugins.contains_key(builtin.name))
    }
}

fn now() -> Time {
    // Times in Kubernetes objects have whole seconds.
    Time(Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Waits until this host becomes the leader or, if it is, no longer is.
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
