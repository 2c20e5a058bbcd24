//! What the leader does about one PolicyPlugin: read its source, load what is there, put it into the set.

use super::{Keeper, MAX_RETRY_INTERVAL, RETRY_INTERVAL, TaskResult, binding::binding, record, status::Problem};
use crate::{
    revision::RevisionError,
    source::{config_map, file, unpack::unpack},
};
use pointsman_core::decide::member::Member;
use pointsman_crds::policy::{
    plugin::{PluginSignature, PolicyPluginSpec},
    set::PolicySetPlugin,
};
use pointsman_sandbox::{builtin, call::CallError, digest::Digest};
use std::sync::Arc;
use tokio::time::Instant;

/// Where one PolicyPlugin stands.
#[derive(Debug, Default)]
pub(super) struct PluginProgress {
    /// Whether something may have changed.
    pub(super) dirty: bool,
    /// When it is to be tried again although nothing has changed.
    pub(super) retry: Option<Instant>,
    /// How often that was so in a row.
    pub(super) tries: u32,
    /// Whether its source wasn't seen whole yet.
    pub(super) pending: bool,
    /// Whether it is being loaded: one at a time, the newest next.
    pub(super) running: bool,
    /// What was loaded last.
    pub(super) loaded: Option<Loaded>,
    /// What can decide from now on. Whether it does is for its strategy to say.
    pub(super) ready: Option<Arc<Member>>,
    /// The digest of the newest bytes that were loaded.
    pub(super) newest: Option<String>,
    /// What was tried last, and why it didn't do.
    pub(super) attempted: Option<(Digest, Option<Problem>)>,
    /// What went wrong last when it was asked.
    pub(super) failure: Option<Problem>,
    /// Until when it isn't asked, and why.
    pub(super) quarantine: Option<(Instant, CallError)>,
}

/// What came of loading.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) plugin: String,
    /// What was to be loaded: a digest of the binding and of the bytes.
    key: Digest,
    outcome: Result<(Arc<Member>, Arc<Vec<u8>>), Failed>,
}

/// Why nothing could be loaded.
#[derive(Debug)]
struct Failed {
    problem: Problem,
    /// Whether another try may do better although nothing has changed.
    passing: bool,
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self { problem, passing: false }
    }
}

/// What a source gives.
enum SourceState {
    Bytes(Vec<u8>),
    /// The bytes of a revision that is kept.
    Revision(Digest),
}

impl Keeper {
    /// Brings one PolicyPlugin one step further.
    pub(super) async fn advance(&mut self, name: &str) {
        let Some(plugin) = self.plugins.get(name) else { return };
        let bound = binding(name, &plugin.spec);
        let key = |bytes: &Digest, kept: bool| key(&bound, &plugin.spec, bytes, kept);
        let source = self.source(name, &plugin.spec);
        let Some(work) = self.works.get_mut(name) else { return };
        work.dirty = false;
        work.pending = matches!(source, Ok(None));
        let (key, source) = match source {
            Ok(None) => {
                // What was asked for before is what nobody asks for any more.
                work.ready = None;
                return;
            }
            Ok(Some(source)) => match &source {
                SourceState::Bytes(bytes) => (key(&Digest::hash(bytes), false), source),
                SourceState::Revision(digest) => (key(digest, true), source),
            },
            Err((digest, problem)) => {
                // What waits is what nobody asks for any more.
                work.ready = None;
                work.attempted = Some((key(&digest, false), Some(problem)));
                return;
            }
        };
        if let Some(Loaded { outcome, .. }) = work.loaded.take_if(|loaded| loaded.key == key) {
            match outcome {
                Ok((member, bytes)) => {
                    work.attempted = Some((key, None));
                    work.tries = 0;
                    self.keep_loaded(name, key, member, &bytes).await;
                }
                Err(Failed { problem, passing: true }) => self.failed_outside(name, key, problem),
                Err(Failed { problem, .. }) => work.attempted = Some((key, Some(problem))),
            }
            return;
        }
        work.loaded = None;
        if work.attempted.as_ref().is_some_and(|(attempted, _)| *attempted == key) {
            return;
        }
        work.attempted = None;
        work.ready = None;
        work.running = true;
        let signature = plugin.spec.signature.clone();
        self.load(name.to_owned(), key, bound, source, signature);
    }

    /// The bytes that a PolicyPlugin wants, none if not all of them were seen yet, or what is wrong with their source.
    fn source(&self, name: &str, spec: &PolicyPluginSpec) -> Result<Option<SourceState>, (Digest, Problem)> {
        if builtin::find(name).is_some() && spec.source.builtin.is_none() {
            let message =
                "metadata.name: this is the name of a built-in plugin, which stands in for others; give yours another name.".to_owned();
            return Err((Digest::hash(name.as_bytes()), Problem { reason: "NameReserved".to_owned(), message }));
        }
        let pinned = spec.digest.as_deref().and_then(|digest| digest.parse::<Digest>().ok());
        // While hosts are upgraded, an older one may lead for a while: what it brings is no update.
        let by_newer = spec.source.builtin.is_some() && record::newer(&self.record.host, &self.options.version);
        let recorded = self.record.plugins.get(name).filter(|_| by_newer && pinned.is_none());
        if let Some(recorded) = recorded.and_then(|recorded| recorded.active.digest.parse().ok()) {
            return Ok(Some(SourceState::Revision(recorded)));
        }
        let bytes = match self.read(spec) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            // What is pinned may be kept although the source is gone.
            Err(problem) => match pinned {
                Some(pinned) => return Ok(Some(SourceState::Revision(pinned))),
                None => return Err((Digest::hash(problem.message.as_bytes()), problem)),
            },
        };
        let digest = Digest::hash(&bytes);
        if let Some(pinned) = pinned.filter(|pinned| *pinned != digest) {
            return Ok(Some(SourceState::Revision(pinned)));
        }
        // What this host brings it trusts.
        if spec.source.builtin.is_some() {
            return Ok(Some(SourceState::Bytes(bytes)));
        }
        match self.options.trust.check(&bytes, &digest, spec.digest.as_deref(), spec.signature.as_ref()) {
            Ok(()) => Ok(Some(SourceState::Bytes(bytes))),
            Err(error) => Err((digest, problem(error.reason(), &error))),
        }
    }

    fn read(&self, spec: &PolicyPluginSpec) -> Result<Option<Vec<u8>>, Problem> {
        let source = &spec.source;
        if let Some(builtin) = &source.builtin {
            let found = builtin::find(&builtin.name);
            return found.map(|builtin| Some(builtin.bytes.to_vec())).ok_or_else(|| {
                let known: Vec<_> = builtin::BUILTINS.iter().map(|builtin| builtin.name).collect();
                let message = format!("source.builtin: there is no built-in plugin {:?}; there are {}.", builtin.name, known.join(", "));
                Problem { reason: "BuiltinNotFound".to_owned(), message }
            });
        }
        if let Some(wanted) = &source.file {
            let Some(directory) = &self.options.directory else {
                let message = "source.file: this host has no plugin directory; start it with --plugin-dir.".to_owned();
                return Err(Problem { reason: "NoPluginDirectory".to_owned(), message });
            };
            let read = file::read(directory, &wanted.path).map_err(|error| problem(error.reason(), &error))?;
            return unpack(&read).map(|bytes| Some(bytes.into_owned())).map_err(|error| problem(error.reason(), &error));
        }
        let Some(wanted) = &source.config_map else {
            return Err(Problem {
                reason: "InvalidSpec".to_owned(),
                message: "source: give one of builtin, file and configMap.".to_owned(),
            });
        };
        let namespace = wanted.namespace.as_ref().unwrap_or(&self.options.namespace);
        let places = [&wanted.name].into_iter().chain(&wanted.parts).map(|name| (namespace.clone(), name.clone())).collect();
        if self.options.namespaces.check(namespace, &self.options.namespace).is_ok() && !self.config_maps.known(&places) {
            let unreadable = self.config_maps.unreadable(&places);
            return unreadable.map_or(Ok(None), |error| Err(problem("SourceUnreadable", &error)));
        }
        let get = |namespace: &str, name: &str| self.config_maps.get(namespace, name);
        config_map::assemble(wanted, &self.options.namespace, &self.options.namespaces, get)
            .map(Some)
            .map_err(|error| problem(error.reason(), &error))
    }

    /// Loads beside the keeper; the result comes back as `TaskResult`.
    fn load(&self, plugin: String, key: Digest, mut bound: PolicySetPlugin, source: SourceState, signature: Option<PluginSignature>) {
        let (loader, revisions, done) = (Arc::clone(&self.loader), Arc::clone(&self.revisions), self.done.clone());
        let options = Arc::clone(&self.options);
        tokio::spawn(async move {
            let outcome = async {
                let bytes = match source {
                    SourceState::Bytes(bytes) => bytes,
                    SourceState::Revision(pinned) => {
                        let kept = revisions.load(&pinned).await.map_err(|error| {
                            let passing = matches!(error, RevisionError::Cluster { .. });
                            Failed { problem: problem(error.reason(), &error), passing }
                        })?;
                        let check = options.trust.check_kept(&kept, &pinned, signature.as_ref());
                        check.map_err(|error| Failed::from(problem(error.reason(), &error)))?;
                        kept
                    }
                };
                let bytes = Arc::new(bytes);
                bound.digest = Digest::hash(&bytes).to_string();
                let (loading, loaded_bytes) = (Arc::clone(&loader), Arc::clone(&bytes));
                let tried = tokio::task::spawn_blocking(move || loading.load(bound, &loaded_bytes)).await;
                match tried {
                    Ok(Ok(member)) => Ok((Arc::new(member), bytes)),
                    Ok(Err(error)) => Err(Failed { problem: problem(error.reason(), &error), passing: error.passing() }),
                    Err(error) => Err(Failed { problem: problem("LoadingFailed", &error), passing: true }),
                }
            };
            let outcome = outcome.await;
            done.send(TaskResult::Loaded(Box::new(Loaded { plugin, key, outcome }))).ok();
        });
    }

    /// Lets what failed for a reason outside the plugin be tried again.
    pub(super) fn failed_outside(&mut self, name: &str, key: Digest, problem: Problem) {
        tracing::warn!(plugin = name, reason = problem.reason, "{}", problem.message);
        if let Some(work) = self.works.get_mut(name) {
            // Another key than the next attempt's, so that there is one.
            work.attempted = Some((Digest::of_all([&key]), Some(problem)));
            let pause = RETRY_INTERVAL.saturating_mul(1_u32.checked_shl(work.tries).unwrap_or(u32::MAX)).min(MAX_RETRY_INTERVAL);
            work.tries = work.tries.saturating_add(1);
            work.retry = Some(Instant::now() + pause);
        }
    }
}

/// Of all that another try depends on: how and on which terms it is bound, its bytes, and whether those are a kept revision's.
fn key(bound: &PolicySetPlugin, spec: &PolicyPluginSpec, bytes: &Digest, kept: bool) -> Digest {
    // A binding is plain data, which always has JSON.
    let bound = Digest::of_value(&(bound, &spec.digest, &spec.signature)).unwrap_or(Digest([0; 32]));
    Digest::of_all([&bound, bytes, &Digest([kept.into(); 32])])
}

pub(super) fn problem(reason: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem { reason: reason.to_owned(), message: format!("{error}.") }
}
