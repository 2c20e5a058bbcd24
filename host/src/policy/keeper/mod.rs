//! Keeps the active policy set what the cluster says it is.
//!
//! One task owns all state. What it sees (PolicyPlugins, ConfigMaps, files, the record of what decides) only makes it look again;
//! what is slow (compiling, loading revisions) happens beside it, and is dropped if something newer has come meanwhile.
//!
//! On the leader: a source's newest bytes are loaded, kept as a revision, written into the record, and only then active. Every other
//! host, and the leader when it starts, takes its set from the record and the revisions alone.

mod adopt;
pub mod binding;
mod promote;
pub mod record;
pub mod status;
mod watch;
mod work;

use super::{
    decide::{News, Policies},
    health::Turn,
    load::Loader,
    revision::Revisions,
    source::{builtin::BUILTINS, config_map::Namespaces},
    trust::Trust,
};
use crate::leader::Leadership;
use crate::sentence;
use adopt::Adopted;
pub use adopt::{builtins, recorded};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt};
use pointsman_crds::policy::plugin::PolicyPlugin;
use record::ActiveRecord;
use status::Problem;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch as channel},
    time::{Instant, sleep_until},
};
use watch::{ConfigMaps, Place, Seen};
use work::{Loaded, Work};

/// After how long something that failed for a reason outside the plugin is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// After how long at most.
const AGAIN_MOST: Duration = Duration::from_mins(5);

/// How long a write may take. The lease may be another's by then.
const WRITE_WITHIN: Duration = Duration::from_secs(4);

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
    /// Whose signatures count.
    pub trust: Trust,
}

/// What reaches the keeper from elsewhere.
#[derive(Debug)]
pub struct Inputs {
    /// Whether this host leads.
    pub leadership: Leadership,
    /// What becomes known of plugins while they decide.
    pub news: mpsc::UnboundedReceiver<News>,
    /// Counts up when plugin files may have changed.
    pub files: Option<channel::Receiver<u64>>,
}

/// What comes back from work that was done beside the keeper.
#[derive(Debug)]
enum Done {
    Loaded(Box<Loaded>),
    Adopted(Box<Adopted>),
}

/// What was seen at least once, there or not.
#[derive(Debug, Default)]
struct Known {
    plugins: bool,
    record: bool,
    namespace: bool,
}

/// The one that keeps the set.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Keeper {
    client: Client,
    options: Arc<Options>,
    loader: Arc<Loader>,
    policies: Arc<Policies>,
    revisions: Arc<Revisions>,
    leadership: Leadership,
    leading: bool,
    /// The PolicyPlugins, by name.
    plugins: BTreeMap<String, PolicyPlugin>,
    config_maps: ConfigMaps,
    /// The record as it is in the cluster, with its resource version.
    record: ActiveRecord,
    record_version: Option<String>,
    known: Known,
    /// The digest of the record that is being adopted.
    adopting: Option<String>,
    /// The digest of the record that is in force here. None until the first: the set is then that of the built-ins.
    in_force: Option<String>,
    works: BTreeMap<String, Work>,
    done: mpsc::UnboundedSender<Done>,
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
    let mut keeper = Keeper {
        revisions: Arc::new(Revisions::new(client.clone(), options.namespace.as_str())),
        config_maps: ConfigMaps::new(client.clone(), seen_sender.clone()),
        client: client.clone(),
        options: Arc::new(options),
        loader,
        policies,
        leadership: inputs.leadership.clone(),
        leading: false,
        plugins: BTreeMap::new(),
        record: ActiveRecord::default(),
        record_version: None,
        known: Known::default(),
        adopting: None,
        in_force: None,
        works: BTreeMap::new(),
        done: done_sender,
        again: None,
        ready,
    };
    let run = async move {
        let plugins = watch::plugins(client, seen_sender);
        tokio::select! {
            () = keeper.run(seen, done, inputs) => {}
            () = plugins => {}
        }
    };
    (obstacle, run)
}

impl Keeper {
    async fn run(&mut self, mut seen: mpsc::UnboundedReceiver<Seen>, mut done: mpsc::UnboundedReceiver<Done>, inputs: Inputs) {
        let Inputs { mut leadership, mut news, mut files } = inputs;
        self.config_maps.want(&self.places());
        loop {
            let again = self.wakes_at();
            tokio::select! {
                Some(seen) = seen.recv() => self.see(seen),
                Some(done) = done.recv() => self.take(done),
                Some(news) = news.recv() => self.hear(news),
                () = turned(&mut leadership, self.leading) => self.lead(!self.leading),
                () = changed(&mut files) => self.look_at_files(),
                () = until(again) => self.retry(),
                else => return,
            }
            // What has come together is looked at together.
            while let Ok(seen) = seen.try_recv() {
                self.see(seen);
            }
            while let Ok(done) = done.try_recv() {
                self.take(done);
            }
            self.settle().await;
        }
    }

    fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Plugin(plugin) => {
                let name = plugin.name_any();
                // Our own last write may be newer than what the watch tells.
                let version = |plugin: &PolicyPlugin| plugin.resource_version().and_then(|version| version.parse::<u64>().ok());
                if self.plugins.get(&name).is_some_and(|known| version(known) > version(&plugin)) {
                    return;
                }
                let generation = plugin.metadata.generation;
                let before = self.plugins.insert(name.clone(), *plugin);
                // What we ourselves say of it is no reason to look at it again.
                if before.is_none_or(|before| before.metadata.generation != generation) {
                    self.works.entry(name).or_default().dirty = true;
                }
            }
            Seen::PluginGone(name) => {
                self.plugins.remove(&name);
                self.works.remove(&name);
            }
            Seen::Plugins(names) => {
                self.plugins.retain(|name, _| names.contains(name));
                self.works.retain(|name, _| names.contains(name));
                self.known.plugins = true;
            }
            Seen::ConfigMap(place, state) => {
                if place == self.record_place() {
                    self.see_record(state.as_deref());
                    self.config_maps.take(&place, state);
                } else if self.config_maps.take(&place, state) {
                    self.look_at_users(&place);
                }
            }
            Seen::Unreadable(place, error) => {
                if self.config_maps.fail(&place, error) {
                    self.look_at_users(&place);
                }
            }
        }
    }

    fn take(&mut self, done: Done) {
        match done {
            Done::Loaded(loaded) => {
                if let Some(work) = self.works.get_mut(&loaded.plugin) {
                    work.running = false;
                    work.dirty = true;
                    work.loaded = Some(*loaded);
                }
            }
            Done::Adopted(adopted) => self.adopted(*adopted),
        }
    }

    fn hear(&mut self, news: News) {
        let active = self.policies.active();
        // What a former version did is no longer of interest.
        if active.member(&news.plugin).is_none_or(|member| member.bound.digest != news.digest) {
            return;
        }
        let Some(work) = self.works.get_mut(&news.plugin) else { return };
        let plugin = &news.plugin;
        match news.turn {
            Turn::Failed(error) => {
                tracing::warn!(plugin, digest = news.digest, reason = error.reason(), "the plugin gave no answer: {error}");
                work.failure = Some(Problem { reason: error.reason().to_owned(), message: format!("{error}.") });
            }
            Turn::Quarantined(pause, error) => {
                tracing::warn!(plugin, digest = news.digest, seconds = pause.as_secs(), "the plugin isn't asked for a while: {error}");
                work.failure = Some(Problem { reason: error.reason().to_owned(), message: format!("{error}.") });
                work.quarantine = Some((Instant::now() + pause, error));
            }
            Turn::Recovered => {
                tracing::info!(plugin, "the plugin answers again");
                work.quarantine = None;
                work.failure = None;
            }
        }
    }

    fn lead(&mut self, leading: bool) {
        self.leading = leading;
        // Somebody else may have led meanwhile.
        self.look_at_all();
    }

    fn look_at_all(&mut self) {
        for work in self.works.values_mut() {
            work.dirty = true;
            work.attempted = None;
        }
    }

    /// Looks again at the PolicyPlugins that take their bytes from a ConfigMap.
    fn look_at_users(&mut self, place: &Place) {
        let users = self.plugins.iter().filter(|(_, plugin)| self.sources(plugin).contains(place));
        let users: Vec<String> = users.map(|(name, _)| name.clone()).collect();
        for name in users {
            self.works.entry(name).or_default().dirty = true;
        }
    }

    fn look_at_files(&mut self) {
        for (name, plugin) in &self.plugins {
            if plugin.spec.source.file.is_some() {
                self.works.entry(name.clone()).or_default().dirty = true;
            }
        }
    }

    /// Brings everything into line with what is known.
    async fn settle(&mut self) {
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
        self.ready.send_if_modified(|obstacle| obstacle.take().is_some());
        if !self.leadership.held() || !self.known.plugins {
            return;
        }
        self.make_builtins().await;
        let dirty: Vec<String> = self.works.iter().filter(|(_, work)| work.dirty && !work.running).map(|(name, _)| name.clone()).collect();
        for name in dirty {
            self.consider(&name).await;
        }
        self.remove_gone().await;
        self.tell().await;
    }

    /// Whether the host's namespace is there: without it nothing can be kept, and nobody leads.
    async fn look_for_home(&mut self) -> bool {
        let name = &self.options.namespace;
        let why = match Api::<Namespace>::all(self.client.clone()).get_metadata_opt(name).await {
            Ok(Some(_)) => {
                self.known.namespace = true;
                return true;
            }
            Ok(None) => {
                format!("the host's namespace {name} doesn't exist: `kubectl create namespace {name}` makes it, --namespace names another")
            }
            Err(error) => format!("the host's namespace {name} can't be read: {}", sentence(&error)),
        };
        self.ready.send_if_modified(|obstacle| {
            let differs = obstacle.as_ref() != Some(&why);
            if differs {
                tracing::error!("{why}");
                *obstacle = Some(why);
            }
            differs
        });
        self.try_again();
        false
    }

    /// The ConfigMaps that matter now.
    fn places(&self) -> BTreeSet<Place> {
        let sources = self.plugins.values().flat_map(|plugin| self.sources(plugin));
        // Only the leader reads sources.
        sources.filter(|_| self.leading).chain([self.record_place()]).collect()
    }

    fn record_place(&self) -> Place {
        (self.options.namespace.clone(), record::NAME.to_owned())
    }

    /// The ConfigMaps that a PolicyPlugin takes its bytes from.
    fn sources(&self, plugin: &PolicyPlugin) -> BTreeSet<Place> {
        let Some(source) = &plugin.spec.source.config_map else { return BTreeSet::new() };
        let namespace = source.namespace.as_ref().unwrap_or(&self.options.namespace);
        if self.options.namespaces.check(namespace, &self.options.namespace).is_err() {
            return BTreeSet::new();
        }
        [&source.name].into_iter().chain(&source.parts).map(|name| (namespace.clone(), name.clone())).collect()
    }

    /// When something is due although nothing has come: another try, or a quarantine's end.
    fn wakes_at(&self) -> Option<Instant> {
        let quarantines = self.works.values().filter_map(|work| work.quarantine.as_ref().map(|(until, _)| *until));
        let now = Instant::now();
        let retries = self.works.values().filter_map(|work| work.retry);
        quarantines.filter(|until| *until > now).chain(self.again).chain(retries).min()
    }

    fn retry(&mut self) {
        let now = Instant::now();
        self.again.take_if(|again| *again <= now);
        for work in self.works.values_mut() {
            work.dirty |= work.retry.take_if(|retry| *retry <= now).is_some();
        }
    }

    fn try_again(&mut self) {
        self.again.get_or_insert_with(|| Instant::now() + AGAIN);
    }

    /// The names of the built-ins' PolicyPlugins that aren't there.
    fn missing_builtins(&self) -> impl Iterator<Item = &'static super::source::builtin::Builtin> {
        BUILTINS.iter().filter(|builtin| !self.plugins.contains_key(builtin.name))
    }
}

fn now() -> Time {
    // Times in Kubernetes' objects have whole seconds.
    Time(Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Waits until we lead where we don't, or don't where we do.
async fn turned(leadership: &mut Leadership, leading: bool) {
    if leading {
        leadership.lost().await;
    } else {
        leadership.acquired().await;
    }
}

async fn until(instant: Option<Instant>) {
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
