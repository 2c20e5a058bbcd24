//! Keeps the active policy set what the cluster says it is.
//!
//! One task owns all state. What it sees (PolicyPlugins, ConfigMaps, files, the record of what decides) only makes it look again;
//! what is slow (compiling, loading revisions) happens beside it, and is dropped if something newer has come meanwhile.
//!
//! On the leader: a source's newest bytes are loaded, kept as a revision, written into the record, and only then active. Every other
//! host, and the leader when it starts, takes its set from the record and the revisions alone.

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

/// After how long something that failed for a reason outside the plugin is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// After how long at most.
const MAX_RETRY_INTERVAL: Duration = Duration::from_mins(5);

/// How long a host that begins to lead waits for what is still being loaded, before it says of candidates of another host that nobody asks for them.
const PROPOSING_PATIENCE: Duration = Duration::from_secs(30);

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
    /// What came of storing a revision of a PolicyPlugin.
    Kept(String, Kept),
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
    /// What is to decide next, by what each changes.
    candidates: BTreeMap<ChangeKeys, Candidate>,
    /// Which of them change the same fields. None until that is found out anew.
    meetings: Option<Vec<Meeting>>,
    /// The changes that exceed a limit together, over the active set.
    unbatchable: Option<ChangeKeys>,
    /// The comparison of what got active without one.
    follow_up: Option<Comparison>,
    /// Until when it is waited for what is still being loaded before what waits is known. None once it is.
    proposes_by: Option<Instant>,
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
    /// Whether it was looked for revisions of plugins that are gone, since this host leads.
    found_leftovers: bool,
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
