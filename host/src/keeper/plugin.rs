//! Handles one PolicyPlugin on the leader: reads its source, loads the bytes, and adds the plugin to the set.

use super::{
    Keeper, MAX_RETRY_INTERVAL, RETRY_INTERVAL, TaskResult,
    binding::binding,
    record,
    source_task::{Failed, SourceTask, Tried, Wanted},
};
use crate::{
    problem::Problem,
    revision::RevisionError,
    source::{self, SourceView},
};
use pointsman_core::decide::member::Member;
use pointsman_crds::policy::plugin::PolicyPluginSpec;
use pointsman_sandbox::{builtin, call::CallError, digest::Digest};
use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};
use tokio::{task::AbortHandle, time::Instant};

/// How long a group waits for a source that is being read.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// The time after which the status reports that a revision is still being stored.
const SLOW_STORING: Duration = Duration::from_secs(5);

/// The progress of one PolicyPlugin.
#[derive(Debug, Default)]
pub(super) struct PluginProgress {
    /// Whether something may have changed.
    pub(super) dirty: bool,
    /// When it is retried without a change.
    pub(super) retry: Option<Instant>,
    /// The number of consecutive retries.
    pub(super) tries: u32,
    /// Whether its source isn't completely known yet.
    pub(super) pending: bool,
    /// Whether its source is being read or its bytes are being loaded: one at a time, then the newest.
    pub(super) running: bool,
    /// The number of this task. Another task's result was for a PolicyPlugin that is gone.
    pub(super) task: u64,
    /// Until when the others of its group wait for its source, while that is being read.
    pub(super) read_by: Option<Instant>,
    /// The result of this task.
    pub(super) tried: Option<Tried>,
    /// The version whose revision isn't stored yet.
    pub(super) unkept: Option<Unkept>,
    /// The version that may become active. Its strategy determines when.
    pub(super) ready: Option<Arc<Member>>,
    /// The digest of the newest bytes that were loaded.
    pub(super) newest: Option<String>,
    /// The key of the last attempt, and its problem.
    pub(super) attempted: Option<(Digest, Option<Problem>)>,
    /// The last failure of a call.
    pub(super) failure: Option<Problem>,
    /// Until when it isn't called, and why.
    pub(super) quarantine: Option<(Instant, CallError)>,
    /// Until when the active version isn't called for the subjects of a namespace, and the last failure there.
    pub(super) namespaces: BTreeMap<String, (Instant, CallError)>,
}

/// A version that is loaded, and may become active only once its bytes are stored.
#[derive(Debug)]
pub(super) struct Unkept {
    key: Digest,
    pub(super) member: Arc<Member>,
    bytes: usize,
    /// When storing began.
    since: Instant,
    /// The task that stores it. None until the next attempt.
    storing: Option<AbortHandle>,
}

impl Drop for Unkept {
    fn drop(&mut self) {
        if let Some(storing) = &self.storing {
            storing.abort();
        }
    }
}

/// The result of storing a revision.
#[derive(Debug)]
pub(super) struct Kept {
    key: Digest,
    outcome: Result<(), RevisionError>,
}

impl PluginProgress {
    /// Whether a revision is being stored now.
    pub(super) fn stores(&self) -> bool {
        self.unkept.as_ref().is_some_and(|unkept| unkept.storing.is_some())
    }

    /// When the status reports that its revision is still being stored.
    pub(super) fn slow_at(&self) -> Option<Instant> {
        self.unkept.as_ref().filter(|unkept| unkept.storing.is_some()).map(|unkept| unkept.since + SLOW_STORING)
    }

    /// The size of the revision, if storing it takes long.
    pub(super) fn slow_bytes(&self, now: Instant) -> Option<usize> {
        self.slow_at().filter(|at| *at <= now)?;
        self.unkept.as_ref().map(|unkept| unkept.bytes)
    }

    /// Handles the result of a task. If the source is unchanged since an earlier task has loaded it, that result stays.
    pub(super) fn take(&mut self, tried: Tried) {
        (self.running, self.read_by) = (false, None);
        let kept = matches!((&tried, &self.tried), (Tried::Same(same), Some(Tried::Loaded { key, .. })) if same == key);
        if !kept {
            self.tried = Some(tried);
        }
    }

    /// Whether its group waits for it, unless its source is slow. Changes during the reading are read next, and the group waits again.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        if self.running { self.read_by.is_none_or(|read_by| now < read_by) } else { self.dirty || self.pending }
    }

    /// The keys that needn't be loaded again. While another version is being stored, the previous one isn't among them.
    fn known_keys(&self) -> Vec<Digest> {
        let loaded = match &self.tried {
            Some(Tried::Loaded { key, .. }) => Some(*key),
            _ => None,
        };
        let latest = match &self.unkept {
            Some(unkept) => unkept.storing.as_ref().map(|_| unkept.key),
            None => self.attempted.as_ref().map(|(key, _)| *key),
        };
        latest.into_iter().chain(loaded).collect()
    }
}

impl Keeper {
    /// Advances one PolicyPlugin by one step.
    pub(super) fn advance(&mut self, name: &str) {
        let (Some(plugin), Some(work)) = (self.plugins.get(name), self.works.get_mut(name)) else { return };
        if !mem::take(&mut work.dirty) {
            // Nothing has changed since the source was read.
            if let Some(tried) = work.tried.take() {
                self.take_tried(name, tried);
            }
            return;
        }
        self.tasks += 1;
        let number = self.tasks;
        (work.running, work.task) = (true, number);
        work.read_by = Some(Instant::now() + READ_PATIENCE);
        let known = work.known_keys();
        let spec = plugin.spec.clone();
        let task = SourceTask {
            bound: binding(name, &spec),
            wanted: self.wanted(name, &spec),
            spec,
            known,
            options: Arc::clone(&self.options),
            loader: Arc::clone(&self.loader),
            revisions: Arc::clone(&self.revisions),
        };
        let (plugin, done) = (name.to_owned(), self.done.clone());
        tokio::spawn(async move {
            let has_read = || drop(done.send(TaskResult::HasRead(plugin.clone(), number)));
            let tried = task.run(has_read).await;
            done.send(TaskResult::Tried(plugin, number, Box::new(tried))).ok();
        });
    }

    fn take_tried(&mut self, name: &str, tried: Tried) {
        let Some(work) = self.works.get_mut(name) else { return };
        work.pending = matches!(tried, Tried::NotSeen);
        match tried {
            // The previous version is no longer requested.
            Tried::NotSeen => (work.ready, work.unkept) = (None, None),
            Tried::Same(_) => {}
            Tried::Loaded { key, outcome } => {
                (work.ready, work.unkept) = (None, None);
                match outcome {
                    Ok((member, bytes)) => {
                        if let Some(problem) = self.outgrows_record(name, "with its configuration it has", &member.bound) {
                            if let Some(work) = self.works.get_mut(name) {
                                work.attempted = Some((key, Some(problem)));
                            }
                            return;
                        }
                        self.keep_beside(name, key, member, bytes);
                    }
                    Err(Failed { problem, passing: true }) => self.failed_outside(name, key, problem),
                    Err(Failed { problem, .. }) => work.attempted = Some((key, Some(problem))),
                }
            }
        }
    }

    /// Stores the bytes of a loaded version in a separate task: a large plugin takes long, and the others shouldn't wait.
    fn keep_beside(&mut self, name: &str, key: Digest, member: Arc<Member>, bytes: Arc<Vec<u8>>) {
        let Some(work) = self.works.get_mut(name) else { return };
        let Ok(digest) = member.bound.digest.parse::<Digest>() else { return };
        let (revisions, done, plugin) = (Arc::clone(&self.revisions), self.done.clone(), name.to_owned());
        let version = member.bound.version.clone().unwrap_or_default();
        let size = bytes.len();
        let storing = tokio::spawn(async move {
            let outcome = revisions.keep(&plugin, &version, &digest, &bytes).await;
            done.send(TaskResult::Kept(plugin, Kept { key, outcome })).ok();
        });
        work.unkept = Some(Unkept { key, member, bytes: size, since: Instant::now(), storing: Some(storing.abort_handle()) });
    }

    /// Handles the result of storing a revision.
    pub(super) fn take_kept(&mut self, name: &str, kept: Kept) {
        let Kept { key, outcome } = kept;
        let Some(work) = self.works.get_mut(name) else { return };
        // The PolicyPlugin may have changed meanwhile, or another host may be the leader.
        let Some(mut unkept) = work.unkept.take_if(|unkept| unkept.key == key && unkept.storing.is_some()) else { return };
        match outcome {
            Ok(()) => {
                work.attempted = Some((key, None));
                work.tries = 0;
                self.take_loaded(name, &unkept.member);
            }
            Err(error) => {
                unkept.storing = None;
                // Its parts stay: the next attempt continues there.
                work.unkept = Some(unkept);
                self.failed_outside(name, key, Problem::new("RevisionNotKept", &error));
            }
        }
    }

    /// The source of the bytes.
    fn wanted(&self, name: &str, spec: &PolicyPluginSpec) -> Wanted {
        let found = source::find(self.options.sources, &spec.source);
        let part_of_host = matches!(&found, Ok(source) if source.is_part_of_host());
        if builtin::find(name).is_some() && !part_of_host {
            let message = "metadata.name: the name is reserved for a built-in plugin: use another name.".to_owned();
            return Wanted::Nothing(Problem { reason: "NameReserved".to_owned(), message });
        }
        // During an upgrade, an older host may be the leader for a while: its built-ins are no update.
        let by_newer = part_of_host && spec.digest.is_none() && record::newer(&self.record.host, &self.options.version);
        let recorded = self.record.plugins.get(name).filter(|_| by_newer);
        if let Some(recorded) = recorded.and_then(|recorded| recorded.active.digest.parse().ok()) {
            return Wanted::Revision(recorded);
        }
        match found {
            Ok(source) => {
                let settings = self.options.source_settings();
                let keys = source.config_maps(&spec.source, &settings);
                let unreadable = self.config_maps.unreadable(&keys);
                Wanted::Source(source, SourceView { config_maps: self.config_maps.seen(&keys), unreadable, settings })
            }
            Err(problem) => Wanted::Nothing(problem),
        }
    }

    /// Schedules a retry after a failure outside the plugin.
    pub(super) fn failed_outside(&mut self, name: &str, key: Digest, problem: Problem) {
        tracing::warn!(plugin = name, reason = problem.reason, "{}", problem.message);
        if let Some(work) = self.works.get_mut(name) {
            // Another key than the next attempt's, so that it isn't skipped.
            work.attempted = Some((Digest::of_all([&key]), Some(problem)));
            let pause = RETRY_INTERVAL.saturating_mul(1_u32.checked_shl(work.tries).unwrap_or(u32::MAX)).min(MAX_RETRY_INTERVAL);
            work.tries = work.tries.saturating_add(1);
            work.retry = Some(Instant::now() + pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_crds::policy::set::PolicySetPlugin;
    use pointsman_sandbox::point::describe::Description;

    #[tokio::test]
    async fn what_was_ready_before_another_version_is_stored_is_loaded_once_more_when_it_is_asked_for_again() {
        let member = Member::new(PolicySetPlugin::default(), Description::default(), None, None).unwrap();
        let (former, next) = (Digest::hash(b"former"), Digest::hash(b"next"));
        let mut work = PluginProgress { attempted: Some((former, None)), ..PluginProgress::default() };
        assert_eq!(work.known_keys(), [former]);
        let storing = Some(tokio::spawn(std::future::pending::<()>()).abort_handle());
        work.unkept = Some(Unkept { key: next, member: Arc::new(member), bytes: 0, since: Instant::now(), storing });
        assert_eq!(work.known_keys(), [next]);
    }
}
