//! Loads a PolicyPlugin into a member of a set, in a separate task: reading, hashing and compiling 64 MiB takes long, and nothing else
//! should wait.

use super::Options;
use crate::{
    load::Loader,
    problem::Problem,
    revision::{RevisionError, Revisions},
    source::{Source, SourceView, off_the_runtime},
};
use pointsman_core::decide::member::Member;
use pointsman_crds::policy::{plugin::PolicyPluginSpec, set::PolicySetPlugin};
use pointsman_sandbox::digest::Digest;
use std::sync::Arc;
use tokio::{task::spawn_blocking, time::timeout};

/// The result of reading a source and loading its bytes.
#[derive(Debug)]
pub(super) enum Tried {
    /// The source isn't completely known yet.
    NotSeen,
    /// This key, of bytes and binding, was already tried.
    Same(Digest),
    /// It was loaded, or can't be. The key is a digest of the binding and of the bytes.
    Loaded { key: Digest, outcome: Result<(Arc<Member>, Arc<Vec<u8>>), Failed> },
}

/// Why nothing could be loaded.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) problem: Problem,
    /// Whether a retry may succeed without a change.
    pub(super) passing: bool,
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self { problem, passing: false }
    }
}

/// The source of the bytes.
pub(super) enum Wanted {
    Source(&'static dyn Source, SourceView),
    /// A stored revision.
    Revision(Digest),
    /// There is none, for this reason.
    Nothing(Problem),
}

/// The content of a source.
enum SourceState {
    Bytes(Vec<u8>),
    /// The bytes of a stored revision.
    Revision(Digest),
}

/// One PolicyPlugin in its current state.
pub(super) struct SourceTask {
    pub(super) bound: PolicySetPlugin,
    pub(super) spec: PolicyPluginSpec,
    pub(super) wanted: Wanted,
    /// The keys that needn't be loaded again.
    pub(super) known: Vec<Digest>,
    pub(super) options: Arc<Options>,
    pub(super) loader: Arc<Loader>,
    pub(super) revisions: Arc<Revisions>,
}

impl SourceTask {
    /// Runs the task, and calls `has_read` between reading and loading.
    pub(super) async fn run(mut self, has_read: impl FnOnce()) -> Tried {
        let (key, state) = match self.read().await {
            Ok(None) => return Tried::NotSeen,
            Ok(Some((digest, state))) => (self.key(&digest, matches!(state, SourceState::Revision(_))), Ok(state)),
            Err((digest, failed)) => (self.key(&digest, false), Err(failed)),
        };
        has_read();
        if self.known.contains(&key) {
            return Tried::Same(key);
        }
        let outcome = match state {
            Ok(state) => self.load(state).await,
            Err(failed) => Err(failed),
        };
        Tried::Loaded { key, outcome }
    }

    /// The content with its digest, none if not all of it is known yet, or a problem with its digest.
    async fn read(&mut self) -> Result<Option<(Digest, SourceState)>, (Digest, Failed)> {
        let failed = |problem: Problem| (Digest::hash(problem.message.as_bytes()), Failed::from(problem));
        let kept = |digest| Ok(Some((digest, SourceState::Revision(digest))));
        let pinned = self.spec.digest.as_deref().and_then(|digest| digest.parse::<Digest>().ok());
        let (source, view) = match std::mem::replace(&mut self.wanted, Wanted::Revision(Digest([0; 32]))) {
            Wanted::Source(source, view) => (source, view),
            Wanted::Revision(digest) => return kept(digest),
            Wanted::Nothing(problem) => return Err(failed(problem)),
        };
        let read = timeout(source.deadline(), source.read(self.spec.source.clone(), view));
        let bytes = match (read.await, pinned) {
            (Ok(Ok(Some(bytes))), _) => bytes,
            (Ok(Ok(None)), _) => return Ok(None),
            // A pinned revision may be stored even if the source is gone.
            (Ok(Err(_)) | Err(_), Some(pinned)) => return kept(pinned),
            (Ok(Err(problem)), None) => return Err(failed(problem)),
            (Err(_), None) => {
                let message = format!(
                    "source.{}: no bytes arrived within {:?}; trying again. Check that the source is reachable.",
                    source.field(),
                    source.deadline()
                );
                let problem = Problem { reason: "SourceTimeout".to_owned(), message };
                return Err((Digest::hash(problem.message.as_bytes()), Failed { problem, passing: true }));
            }
        };
        let (options, spec) = (Arc::clone(&self.options), self.spec.clone());
        let checked = off_the_runtime(move || {
            let digest = Digest::hash(&bytes);
            if let Some(pinned) = pinned.filter(|pinned| *pinned != digest) {
                return Ok((pinned, Ok(SourceState::Revision(pinned))));
            }
            // The host trusts its own built-ins.
            let trusted = source.is_part_of_host().then_some(Ok(()));
            let trusted = trusted.unwrap_or_else(|| options.trust.check(&bytes, &digest, spec.digest.as_deref(), spec.signature.as_ref()));
            let state = trusted.map(|()| SourceState::Bytes(bytes)).map_err(|error| Problem::new(error.reason(), &error));
            Ok((digest, state))
        });
        match checked.await {
            Ok((digest, Ok(state))) => Ok(Some((digest, state))),
            Ok((digest, Err(problem))) => Err((digest, problem.into())),
            Err(problem) => Err(failed(problem)),
        }
    }

    async fn load(mut self, state: SourceState) -> Result<(Arc<Member>, Arc<Vec<u8>>), Failed> {
        let (bytes, digest) = match state {
            SourceState::Bytes(bytes) => (bytes, None),
            SourceState::Revision(pinned) => {
                let kept = self.revisions.load(&pinned).await.map_err(|error| {
                    let passing = matches!(error, RevisionError::Cluster { .. });
                    Failed { problem: Problem::new(error.reason(), &error), passing }
                })?;
                (kept, Some(pinned))
            }
        };
        let load = move || {
            if let Some(pinned) = &digest {
                let check = self.options.trust.check_kept(&bytes, pinned, self.spec.signature.as_ref());
                check.map_err(|error| Failed::from(Problem::new(error.reason(), &error)))?;
            }
            self.bound.digest = Digest::hash(&bytes).to_string();
            let bytes = Arc::new(bytes);
            match self.loader.load(self.bound, &bytes) {
                Ok(member) => Ok((Arc::new(member), bytes)),
                Err(error) => Err(Failed { problem: Problem::new(error.reason(), &error), passing: error.passing() }),
            }
        };
        spawn_blocking(load).await.unwrap_or_else(|error| Err(Failed { problem: Problem::new("LoadingFailed", &error), passing: true }))
    }

    /// The key of an attempt: the binding with its pin and signature, the bytes, and whether they are from a stored revision.
    fn key(&self, bytes: &Digest, kept: bool) -> Digest {
        // A binding is plain data, which always serializes.
        let bound = Digest::of_value(&(&self.bound, &self.spec.digest, &self.spec.signature)).unwrap_or(Digest([0; 32]));
        Digest::of_all([&bound, bytes, &Digest([kept.into(); 32])])
    }
}
