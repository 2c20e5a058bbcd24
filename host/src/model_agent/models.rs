//! The models that the node should have, and their progress. Pure: jobs start and end elsewhere.

use super::{
    bring::{Brought, Failure, Remedy, origin},
    counts::Counts,
};
use k8s_openapi::jiff::Timestamp;
use pointsman_core::model_nodes::{
    assignment::{Assignment, ModelObject, Task},
    names::config_map_key,
    report::{DownloadProgress, ModelReport, NodeState},
};
use pointsman_download::{Outcome, Phase, Watcher};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use tokio::task::{AbortHandle, Id};

/// The maximum number of models on a node: their reports share a ConfigMap of at most 1 MiB.
const MAX_MODELS: usize = 256;

/// The maximum length of a message.
const MAX_MESSAGE: usize = 1000;

/// The maximum delay after failures.
const MAX_DELAY: Duration = Duration::from_mins(15);

/// The delay before a retry if the cause takes only a moment.
const SHORT_DELAY: Duration = Duration::from_millis(500);

/// The interval of checks for a folder that others fill.
const FIND_INTERVAL: Duration = Duration::from_mins(1);

/// A model that is being deleted and whose files still exist.
#[derive(Debug)]
pub(super) struct LeavingModel {
    pub(super) model: ModelObject,
    pub(super) folder: PathBuf,
}

/// A job to start.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) key: String,
    pub(super) model: ModelObject,
    pub(super) folder: PathBuf,
    pub(super) is_download: bool,
}

/// A model that the node should have.
#[derive(Debug)]
struct Held {
    assignment: Assignment,
    /// Set if it is there.
    ready: Option<Ready>,
    /// Why it isn't there.
    failure: Option<String>,
    /// The number of failures since it was last there.
    failures: u32,
    job: Job,
    progress: Option<DownloadProgress>,
}

#[derive(Debug)]
struct Ready {
    facts: Option<Box<RawValue>>,
    message: Option<String>,
}

/// The job of a model.
#[derive(Debug)]
enum Job {
    None,
    /// It should start, at this time or as soon as possible.
    Due(Option<Instant>),
    Running {
        handle: AbortHandle,
        watcher: Arc<OnceLock<Watcher>>,
    },
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Self::Running { handle, .. } = self {
            handle.abort();
        }
    }
}

/// All models of the node.
#[derive(Debug)]
pub(super) struct Models {
    /// The delay after the first failure of a model; it doubles with each failure.
    retry_delay: Duration,
    held: BTreeMap<String, Held>,
    /// The models' keys, in the order of their downloads.
    order: Vec<String>,
}

impl Held {
    fn new(assignment: Assignment) -> Self {
        let mut held = Self { ready: None, failure: None, failures: 0, job: Job::None, progress: None, assignment };
        match &held.assignment.task {
            Task::Download(_) | Task::Find(_) => held.job = Job::Due(None),
            Task::Nothing => held.ready = Some(Ready { facts: None, message: None }),
            Task::Refuse(why) => held.failure = Some(why.clone()),
        }
        held
    }

    /// The model's folder, and whether the model is downloaded to it.
    fn folder(&self) -> Option<(&str, bool)> {
        match &self.assignment.task {
            Task::Download(folder) => Some((folder, true)),
            Task::Find(folder) => Some((folder, false)),
            _ => None,
        }
    }

    fn is_downloading(&self) -> bool {
        matches!((&self.job, &self.assignment.task), (Job::Running { .. }, Task::Download(_)))
    }

    fn watcher(&self) -> Option<&Watcher> {
        match &self.job {
            Job::Running { watcher, .. } => watcher.get(),
            _ => None,
        }
    }

    /// Whether another assignment needs another job.
    fn is_outdated(&self, assignment: &Assignment) -> bool {
        let Assignment { model, task, .. } = &self.assignment;
        *task != assignment.task
            || model.uid != assignment.model.uid
            || model.skips_parsing != assignment.model.skips_parsing
            || origin(model) != origin(&assignment.model)
    }

    fn report(&self) -> ModelReport {
        let mut report = ModelReport { name: self.assignment.model.name.clone(), ..ModelReport::default() };
        match (&self.ready, &self.failure, &self.progress) {
            (Some(Ready { facts, message }), ..) => {
                report.status = NodeState::Ready;
                (report.config, report.message) = (facts.clone(), message.clone());
            }
            // The progress of a retry is more useful than the reason of the last failure.
            (None, Some(failure), None) => (report.status, report.message) = (NodeState::Failed, Some(failure.clone())),
            (None, _, Some(progress)) => (report.status, report.progress) = (NodeState::Updating, Some(progress.clone())),
            (None, None, None) => {
                report.status = NodeState::Updating;
                let waits = matches!(self.job, Job::Due(_));
                report.message = waits.then(|| "it waits until other models are downloaded".to_owned());
            }
        }
        shorten(&mut report.message);
        report
    }
}

fn shorten(message: &mut Option<String>) {
    if let Some(message) = message
        && message.len() > MAX_MESSAGE
    {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
}

/// The report on a model that is being deleted.
pub(super) fn leaving_report(model: &ModelObject, status: NodeState, message: String) -> (String, ModelReport) {
    let mut report = ModelReport { name: model.name.clone(), status, message: Some(message), ..ModelReport::default() };
    shorten(&mut report.message);
    (config_map_key(&model.namespace, &model.name), report)
}

impl Models {
    pub(super) fn new(retry_delay: Duration) -> Self {
        Self { retry_delay, held: BTreeMap::new(), order: Vec::new() }
    }

    /// Updates the models that the node should have. The jobs of removed or changed models end. Returns the folders of models whose files
    /// should now stay after their deletion, or no longer.
    pub(super) fn take(&mut self, assignments: Vec<Assignment>) -> Vec<(PathBuf, ModelObject)> {
        let mut before = std::mem::take(&mut self.held);
        let mut changed = Vec::new();
        self.order.clear();
        for (at, mut assignment) in assignments.into_iter().enumerate() {
            if at >= MAX_MODELS {
                assignment.task = Task::Refuse(format!("a node holds at most {MAX_MODELS} models: select fewer, or other nodes"));
            }
            let key = assignment.key.clone();
            let held = match before.remove(&key).filter(|held| !held.is_outdated(&assignment)) {
                Some(mut held) => {
                    if held.assignment.model.keeps_files != assignment.model.keeps_files
                        && let Task::Download(folder) = &assignment.task
                    {
                        changed.push((PathBuf::from(folder), assignment.model.clone()));
                    }
                    held.assignment = assignment;
                    held
                }
                None => Held::new(assignment),
            };
            self.order.push(key.clone());
            self.held.insert(key, held);
        }
        changed
    }

    /// The folders to which models are downloaded.
    pub(super) fn folders(&self) -> BTreeSet<PathBuf> {
        self.downloads().map(|(_, folder)| folder).collect()
    }

    /// The models that are downloaded, each with its folder.
    pub(super) fn downloads(&self) -> impl Iterator<Item = (&ModelObject, PathBuf)> {
        self.held.values().filter_map(|held| match &held.assignment.task {
            Task::Download(folder) => Some((&held.assignment.model, PathBuf::from(folder))),
            _ => None,
        })
    }

    /// The jobs that may start now, and the time of the next one. `most` is the maximum number of concurrent downloads, and no job starts
    /// in `busy` folders.
    pub(super) fn due(&self, most: usize, mut busy: BTreeSet<PathBuf>, now: Instant) -> (Vec<Order>, Option<Instant>) {
        let mut free = most.saturating_sub(self.held.values().filter(|held| held.is_downloading()).count());
        let (mut orders, mut next): (Vec<Order>, Option<Instant>) = (Vec::new(), None);
        for (key, held) in self.order.iter().filter_map(|key| Some((key, self.held.get(key)?))) {
            let (Job::Due(at), Some((folder, is_download))) = (&held.job, held.folder()) else { continue };
            if let Some(at) = at.filter(|at| *at > now) {
                next = Some(next.map_or(at, |next| next.min(at)));
                continue;
            }
            let folder = PathBuf::from(folder);
            if is_download && free == 0 || busy.contains(&folder) {
                continue;
            }
            free -= usize::from(is_download);
            busy.insert(folder.clone());
            orders.push(Order { key: key.clone(), model: held.assignment.model.clone(), folder, is_download });
        }
        (orders, next)
    }

    /// Records the start of a job.
    pub(super) fn started(&mut self, key: &str, handle: AbortHandle, watcher: Arc<OnceLock<Watcher>>) {
        if let Some(held) = self.held.get_mut(key) {
            held.job = Job::Running { handle, watcher };
        }
    }

    /// Handles the end of a job. Returns whether the model can continue once unneeded files are removed; `frees` is whether there are any.
    pub(super) fn ended(
        &mut self,
        key: &str,
        job: Id,
        result: Result<Brought, Failure>,
        frees: bool,
        now: Instant,
        counts: &Counts,
    ) -> bool {
        // Another job may have started since.
        let is_current = |held: &&mut Held| matches!(&held.job, Job::Running { handle, .. } if handle.id() == job);
        let Some(held) = self.held.get_mut(key).filter(is_current) else { return false };
        held.progress = None;
        let model = &held.assignment.model;
        let is_found = matches!(held.assignment.task, Task::Find(_));
        match result {
            Ok(Brought { facts, message, outcome }) => {
                if let Some(outcome @ Outcome { version, files, bytes, downloaded_bytes, shared_bytes, .. }) = &outcome {
                    tracing::info!(
                        model = model.display_name(),
                        version,
                        files,
                        bytes,
                        downloaded_bytes,
                        shared_bytes,
                        "the model is ready on the node"
                    );
                    counts.downloaded(model, outcome);
                }
                held.ready = Some(Ready { facts, message });
                (held.failure, held.failures) = (None, 0);
                held.job = if is_found { Job::Due(Some(now + FIND_INTERVAL)) } else { Job::None };
                false
            }
            Err(Failure { remedy: Remedy::Moment, .. }) => {
                held.job = Job::Due(Some(now + SHORT_DELAY));
                false
            }
            Err(Failure { remedy: Remedy::Space, .. }) if frees => {
                held.job = Job::Due(Some(now + SHORT_DELAY));
                true
            }
            Err(Failure { message, .. }) => {
                if held.failure.as_ref() != Some(&message) {
                    tracing::warn!(model = model.display_name(), error = message, "the model isn't ready on the node; trying again");
                }
                counts.failed(model);
                let delay = if is_found { FIND_INTERVAL } else { self.retry_delay.saturating_mul(2u32.saturating_pow(held.failures)) };
                held.job = Job::Due(Some(now + delay.min(MAX_DELAY)));
                (held.ready, held.failure) = (None, Some(message));
                held.failures += 1;
                false
            }
        }
    }

    /// Whether a download runs.
    pub(super) fn is_downloading(&self) -> bool {
        self.held.values().any(Held::is_downloading)
    }

    /// Reads the progress of downloads.
    pub(super) fn note_progress(&mut self) {
        for held in self.held.values_mut() {
            let progress = held.watcher().map(Watcher::progress);
            held.progress = progress.filter(|progress| matches!(progress.phase, Phase::Downloading | Phase::Unpacking)).map(|progress| {
                #[allow(clippy::cast_precision_loss, reason = "a speed needs no more digits")]
                DownloadProgress {
                    phase: format!("{:?}", progress.phase),
                    total_bytes: progress.total_bytes,
                    completed_bytes: progress.completed_bytes,
                    total_files: progress.total_files,
                    completed_files: progress.completed_files,
                    speed_bytes_per_sec: progress.bytes_per_second as f64,
                    last_updated: Some(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
                }
            });
        }
    }

    /// The report on each model, with its key.
    pub(super) fn reports(&self) -> impl Iterator<Item = (&str, &ModelObject, ModelReport)> {
        self.held.iter().map(|(key, held)| (&**key, &held.assignment.model, held.report()))
    }
}
