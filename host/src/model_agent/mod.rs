//! `pointsman model-agent`: downloads the models that a node should have, removes those that are no longer needed, and reports both.
//!
//! One task decides and writes; downloads and removals are separate jobs, which it starts and whose ends it handles. Its decisions follow
//! from the watches and the disk, so a restarted agent continues where it ended.

mod bring;
mod counts;
mod models;
mod peers;
mod report;
mod retention;
mod stores;

pub use counts::Counts;

use crate::{
    problem::sentence,
    watch::store::{Obstacle, Watched},
};
use bring::{Brought, Failure, Note, Tools};
use kube::Client;
use models::{LeavingModel, Models};
use peers::Exchange;
use pointsman_core::model_nodes::{
    assignment::{Assignment, Task, assign},
    names::node_label,
    report::NodeState,
};
use pointsman_download::{Downloader, Limits, StoredModel, Watcher};
use report::{Desired, Reporter};
use retention::{Removal, Retention, Wishes};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use stores::{OwnNode, Seen};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{Id, JoinError, JoinSet},
    time::sleep_until,
};

/// The delay after a failure that has no delay of its own.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The settings of an agent.
#[derive(Debug)]
pub struct Settings {
    /// The node that it runs on.
    pub node: String,
    /// The namespace of its report.
    pub namespace: String,
    /// The folder of the node below which the agent writes, as models name it.
    pub root: PathBuf,
    /// The path at which the agent sees that folder.
    pub mount: PathBuf,
    /// The listener for other agents, and the address at which they reach it.
    pub peers: Option<(TcpListener, SocketAddr)>,
    /// The limits of downloads.
    pub limits: Limits,
    /// The maximum number of models that are downloaded at once.
    pub parallel_models: usize,
    /// How long files stay that no model needs any more.
    pub retention: Duration,
    /// The delay after the first failure of a model.
    pub retry_delay: Duration,
    /// The interval of progress reports of downloads.
    pub progress_interval: Duration,
    /// Whether every stored byte is verified at the agent's start.
    pub verifies_fully: bool,
    /// Whether sources of ClusterBaseModels without a Secret are read with the agent's own identity.
    pub ambient: bool,
}

/// The purpose of a job.
#[derive(Debug)]
enum Work {
    /// A model, by its key.
    Model(String),
    Removal,
}

/// The result of a job.
#[derive(Debug)]
enum Done {
    Model(Box<Result<Brought, Failure>>),
    Removal(Result<(), String>),
}

struct Agent {
    settings: Settings,
    tools: Arc<Tools>,
    stores: Watched<Seen>,
    models: Models,
    jobs: JoinSet<Done>,
    /// The purpose of each job, and its folder.
    work: HashMap<Id, (Work, PathBuf)>,
    /// The stored models; none if they aren't known.
    stored: Option<Vec<StoredModel>>,
    retention: Retention,
    /// The paths whose removal has failed: the reason, and when to retry.
    blocked: BTreeMap<PathBuf, (String, Instant)>,
    reporter: Reporter,
    counts: Arc<Counts>,
    /// The current problem, if any.
    obstacle: watch::Sender<Option<String>>,
    /// When the progress is read again.
    progress_at: Option<Instant>,
    /// When failed work is retried.
    retry_at: Option<Instant>,
}

/// Why an agent can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The agent can't write in the folder.
    #[error(transparent)]
    Root(#[from] pointsman_download::Error),
    /// Other agents can't identify it.
    #[error("exchanging models with other agents: {0}")]
    Peers(#[from] peers::IdentityError),
}

/// Works until it is dropped. `obstacle` has the reason why it can't work, if any.
///
/// # Errors
///
/// Fails if the folder for models can't be used, or no certificate can be generated.
pub async fn run(
    client: Client,
    mut settings: Settings,
    counts: Arc<Counts>,
    obstacle: watch::Sender<Option<String>>,
) -> Result<(), StartError> {
    let downloader = Downloader::open(&settings.mount, settings.limits.clone())?;
    let (namespace, node) = (settings.namespace.clone(), settings.node.clone());
    let exchange = match settings.peers.take() {
        Some(place) => Some(Exchange::start(client.clone(), &node, &namespace, downloader.clone(), place)?),
        None => None,
    };
    let peer = exchange.as_ref().map(|exchange| exchange.annotation());
    let stores = stores::start(&client, &node, &namespace);
    let tools = Tools {
        client: client.clone(),
        downloader,
        namespace: namespace.clone(),
        verifies_fully: settings.verifies_fully,
        ambient: settings.ambient,
        exchange,
    };
    let agent = Agent {
        tools: Arc::new(tools),
        stores,
        models: Models::new(settings.retry_delay),
        jobs: JoinSet::new(),
        work: HashMap::new(),
        stored: None,
        retention: Retention::default(),
        blocked: BTreeMap::new(),
        reporter: Reporter { client, node, namespace, replaced: None, peer },
        counts,
        obstacle,
        progress_at: None,
        retry_at: None,
        settings,
    };
    agent.run().await;
    Ok(())
}

impl Agent {
    async fn run(mut self) {
        let mut changed = self.stores.changed();
        loop {
            changed.mark_unchanged();
            let next = if self.is_known() { self.work().await } else { None };
            let wait = async {
                match next {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The stores own the sender, so it exists.
                _ = changed.changed() => {}
                Some(done) = self.jobs.join_next_with_id() => self.note_end(done),
                () = wait => {}
            }
        }
    }

    /// Whether the models and the node are known. An unknown object must not seem absent.
    fn is_known(&self) -> bool {
        let seen = self.stores.lock();
        let why = match seen.obstacle() {
            Some(Obstacle::Failed(why)) => Some(why),
            Some(Obstacle::Pending) => Some("the models haven't been listed yet".to_owned()),
            None if seen.node.is_none() => {
                Some(format!("there is no node {}: set --node to the node of the agent's pod", self.settings.node))
            }
            None => None,
        };
        self.obstacle.send_if_modified(|known| mem::replace(known, why.clone()) != why);
        why.is_none()
    }

    /// Does the work that is due now. Returns the time of the next work, unless an event comes first.
    async fn work(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
        if self.stored.is_none() {
            match self.tools.downloader.stored().await {
                Ok(stored) => self.stored = Some(stored),
                Err(error) => {
                    tracing::warn!(%error, "the disk can't be read; trying again");
                    self.retry_at = Some(now + RETRY_DELAY);
                    return self.retry_at;
                }
            }
        }
        let (node, live) = {
            let seen = self.stores.lock();
            (seen.node.clone()?, seen.report.clone())
        };
        let leaving = self.assign(&node).await;
        let next_job = self.start_jobs(now);
        let next_removal = self.remove(&node, &leaving, now);
        self.note_progress(now);
        let desired = self.desired(&leaving);
        if self.retry_at.is_none()
            && let Err(error) = self.reporter.write(&node, live.as_ref(), &desired).await
        {
            tracing::warn!(error = sentence(&error), "the node's models can't be reported; trying again");
            self.retry_at = Some(now + RETRY_DELAY);
        }
        [next_job, next_removal, self.progress_at, self.retry_at].into_iter().flatten().min()
    }

    /// Updates the models that the node should have. Returns those that are being deleted and whose files still exist.
    async fn assign(&mut self, node: &OwnNode) -> Vec<LeavingModel> {
        let root = self.settings.root.to_string_lossy();
        let (assignments, deleting) = {
            let seen = self.stores.lock();
            let deleting: Vec<_> = seen.models().filter(|model| model.is_deleting).cloned().collect();
            (assign(seen.models(), &self.settings.node, &node.labels, &root), deleting)
        };
        let assignments = assignments.into_iter().map(|assignment| self.as_mounted(assignment)).collect();
        let changed_notes = self.models.take(assignments);
        let stored: HashMap<&PathBuf, Note> = self.stored.iter().flatten().map(|stored| (&stored.path, Note::parse(stored))).collect();
        if let Some(exchange) = &self.tools.exchange {
            exchange.share(self.models.downloads());
        }
        let wanted = self.models.folders();
        let mut leaving = Vec::new();
        let mut notes: Vec<(PathBuf, Note)> = Vec::new();
        for (folder, model) in changed_notes {
            if let Some(note) = stored.get(&folder).filter(|note| note.uid == model.uid && note.kept != model.keeps_files) {
                notes.push((folder, Note { uid: note.uid.clone(), origin: note.origin.clone(), kept: model.keeps_files }));
            }
        }
        for model in deleting {
            let Some(folder) = model.storage.path.as_ref().map(|path| self.mounted(path.trim_end_matches('/'))) else { continue };
            let Some(note) = stored.get(&folder).filter(|note| note.uid == model.uid && !wanted.contains(&folder)) else { continue };
            if model.keeps_files {
                if !note.kept {
                    notes.push((folder, Note { uid: note.uid.clone(), origin: note.origin.clone(), kept: true }));
                }
            } else {
                leaving.push(LeavingModel { model, folder });
            }
        }
        for (folder, note) in notes {
            match self.tools.downloader.note(&folder, note.text()).await {
                Ok(()) => self.stored = None,
                Err(error) => tracing::warn!(%error, folder = %folder.display(), "the record of retained files can't be written"),
            }
        }
        leaving
    }

    /// The path at which the agent sees a folder of the node.
    fn mounted(&self, folder: &str) -> PathBuf {
        let path = Path::new(folder);
        path.strip_prefix(&self.settings.root).map_or_else(|_| path.to_owned(), |below| self.settings.mount.join(below))
    }

    fn as_mounted(&self, mut assignment: Assignment) -> Assignment {
        if let Task::Download(folder) | Task::Find(folder) = &mut assignment.task {
            *folder = self.mounted(folder).to_string_lossy().into_owned();
        }
        assignment
    }

    /// Starts the jobs that may start. Returns the time of the next one.
    fn start_jobs(&mut self, now: Instant) -> Option<Instant> {
        let busy: BTreeSet<PathBuf> = self.work.values().map(|(_, folder)| folder.clone()).collect();
        let (orders, next) = self.models.due(self.settings.parallel_models, busy, now);
        for order in orders {
            let watcher = Arc::<OnceLock<Watcher>>::default();
            let (tools, model, folder) = (Arc::clone(&self.tools), order.model, order.folder.clone());
            let handle = if order.is_download {
                let stored = self.stored.iter().flatten().find(|stored| stored.path == folder).cloned();
                let watched = Arc::clone(&watcher);
                self.jobs.spawn(async move { Done::Model(Box::new(bring::download(tools, model, folder, stored, watched).await)) })
            } else {
                self.jobs.spawn(async move { Done::Model(Box::new(bring::find(model, folder).await)) })
            };
            self.work.insert(handle.id(), (Work::Model(order.key.clone()), order.folder));
            self.models.started(&order.key, handle, watcher);
        }
        next
    }

    /// Removes files that are no longer needed. Returns the time of the next removal.
    fn remove(&mut self, node: &OwnNode, leaving: &[LeavingModel], now: Instant) -> Option<Instant> {
        if self.stores.lock().has_unreadable() {
            return None;
        }
        let stored = self.stored.as_deref().unwrap_or_default();
        // Pods may still arrive until the label is gone.
        let may_go = |left: &&LeavingModel| !node.labels.contains_key(&node_label(&left.model.namespace, &left.model.name));
        let wishes = Wishes {
            wanted: self.models.folders(),
            deleted: leaving.iter().filter(may_go).map(|left| left.folder.clone()).collect(),
            kept: stored.iter().filter(|stored| Note::parse(stored).kept).map(|stored| stored.path.clone()).collect(),
        };
        let (removals, mut next) = self.retention.due(stored, &wishes, self.settings.retention, now);
        self.blocked.retain(|path, (_, at)| *at > now || leaving.iter().any(|left| left.folder == *path));
        for removal in removals {
            let path = removal.path().to_owned();
            if let Some((_, at)) = self.blocked.get(&path).filter(|(_, at)| *at > now) {
                next = Some(next.map_or(*at, |next| next.min(*at)));
                continue;
            }
            if self.work.values().any(|(_, folder)| *folder == path) {
                continue;
            }
            tracing::info!(folder = %path.display(), ?removal, "removing files that no model uses");
            let tools = Arc::clone(&self.tools);
            let handle = self.jobs.spawn(async move {
                let removed = match removal {
                    Removal::Model(path) => tools.downloader.remove(&path).await,
                    Removal::Versions { path, retained } => {
                        tools.downloader.prune(&path, move |version| retained.contains(version)).await.map(|_| ())
                    }
                };
                Done::Removal(removed.map_err(|error| error.to_string()))
            });
            self.work.insert(handle.id(), (Work::Removal, path));
        }
        next
    }

    /// Handles the end of a job.
    fn note_end(&mut self, done: Result<(Id, Done), JoinError>) {
        let id = done.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some((work, folder)) = self.work.remove(&id) else { return };
        self.stored = None;
        let now = Instant::now();
        let done = match done {
            Ok((_, done)) => done,
            Err(error) if error.is_cancelled() => return,
            Err(error) => match work {
                Work::Model(_) => Done::Model(Box::new(Err(format!("the agent has failed: {error}").into()))),
                Work::Removal => Done::Removal(Err(format!("the agent has failed: {error}"))),
            },
        };
        match (work, done) {
            (Work::Model(key), Done::Model(result)) => {
                let frees = self.models.ended(&key, id, *result, self.retention.is_any(), now, &self.counts);
                if frees {
                    self.retention.expire();
                }
            }
            (Work::Removal, Done::Removal(Err(error))) => {
                tracing::warn!(folder = %folder.display(), error, "files that no model uses can't be removed; trying again");
                self.blocked.insert(folder, (error, now + RETRY_DELAY));
            }
            _ => _ = self.blocked.remove(&folder),
        }
    }

    /// Reads the progress of downloads at intervals.
    fn note_progress(&mut self, now: Instant) {
        if !self.models.is_downloading() {
            self.progress_at = None;
        } else if self.progress_at.is_none_or(|at| at <= now) {
            self.models.note_progress();
            self.progress_at = Some(now + self.settings.progress_interval);
        }
    }

    /// The desired report in the cluster.
    fn desired(&self, leaving: &[LeavingModel]) -> Desired {
        let mut desired = Desired::default();
        for (key, model, report) in self.models.reports() {
            desired.labels.insert(node_label(&model.namespace, &model.name), report.status);
            desired.data.insert(key.to_owned(), serde_json::to_string(&report).unwrap_or_default());
        }
        for LeavingModel { model, folder } in leaving {
            let failure = self.blocked.get(folder).map(|(why, _)| format!("its files can't be removed: {why}"));
            let state = if failure.is_some() { NodeState::Failed } else { NodeState::Updating };
            let message = failure.unwrap_or_else(|| "its files are being removed".to_owned());
            let (key, report) = models::leaving_report(model, state, message);
            desired.data.insert(key, serde_json::to_string(&report).unwrap_or_default());
        }
        desired
    }
}
