//! Watches that fill a store other than the world, with objects that only the leader reads.

use super::seen::ObjectText;
use crate::problem::{is_forbidden, sentence};
use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use pointsman_sandbox::sync::locked;
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::{sync::watch, task::JoinSet};

/// The number of objects per page of a list: their JSON is in memory together.
pub(crate) const LIST_PAGE_SIZE: u32 = 500;

/// The namespace and the name of an object. The namespace is empty for cluster-scoped kinds, and for kinds that are read in one namespace.
pub(crate) type Name = (String, String);

/// A kind that is watched.
pub(crate) trait StoreKind: Copy + Ord + Send + Sync + 'static {
    /// Its name in messages.
    fn display_name(self) -> &'static str;
    /// Whether names of its objects have a namespace.
    fn has_namespace(self) -> bool {
        false
    }
}

/// A store that watches fill.
pub(crate) trait Store: Send + 'static {
    /// The watched kinds.
    type Kind: StoreKind;

    /// Stores an object.
    fn put(&mut self, kind: Self::Kind, name: &Name, text: &str);
    /// Removes an object.
    fn remove(&mut self, kind: Self::Kind, name: &Name);
    /// The names of the stored objects.
    fn names(&self, kind: Self::Kind) -> Vec<Name>;
    /// The kinds that aren't listed yet.
    fn unlisted(&mut self) -> &mut Unlisted<Self::Kind>;
}

/// The kinds that aren't listed yet, each with the reason if known.
#[derive(Debug)]
pub(crate) struct Unlisted<K>(BTreeMap<K, Option<String>>);

impl<K> Default for Unlisted<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// Why the store is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Not everything was listed yet.
    Pending,
    /// Something can't be listed, for this reason.
    Failed(String),
}

impl Obstacle {
    /// Why something can't be listed, if so.
    pub(crate) fn failure(&self) -> Option<&str> {
        match self {
            Self::Pending => None,
            Self::Failed(why) => Some(why),
        }
    }
}

impl<K: StoreKind> Unlisted<K> {
    pub(crate) fn new(kinds: impl IntoIterator<Item = K>) -> Self {
        Self(kinds.into_iter().map(|kind| (kind, None)).collect())
    }

    /// The reason why the store is incomplete, if any.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        let known = self.0.values().flatten().next().cloned();
        known.map(Obstacle::Failed).or_else(|| (!self.0.is_empty()).then_some(Obstacle::Pending))
    }
}

/// A store with its watches, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    store: Arc<Mutex<S>>,
    changed: watch::Sender<u64>,
    tasks: JoinSet<()>,
}

impl<S: Store> Watched<S> {
    pub(crate) fn new(store: S) -> Self {
        Self { store: Arc::new(Mutex::new(store)), changed: watch::Sender::new(0), tasks: JoinSet::new() }
    }

    /// Starts to watch a kind. `remedy` is the text for a host without the right to it.
    pub(crate) fn follow(&mut self, kind: S::Kind, api: Api<ObjectText>, config: watcher::Config, remedy: String) {
        self.tasks.spawn(follow(kind, api, config, remedy, Arc::clone(&self.store), self.changed.clone()));
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        locked(&self.store)
    }

    /// Counts up with each change.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// Keeps the objects of this kind in a store up to date with the cluster. `remedy` is the text for a host without the right to it, and
/// `changed` counts up with each change. It never ends.
async fn follow<S: Store>(
    kind: S::Kind,
    api: Api<ObjectText>,
    config: watcher::Config,
    remedy: String,
    store: Arc<Mutex<S>>,
    changed: watch::Sender<u64>,
) {
    let name = |object: &ObjectText| {
        let meta = object.meta();
        (meta.namespace.clone().filter(|_| kind.has_namespace()).unwrap_or_default(), meta.name.clone().unwrap_or_default())
    };
    let mut events = pin!(watcher::watcher(api, config).default_backoff());
    let mut there = BTreeSet::new();
    let mut complained = false;
    while let Some(event) = events.next().await {
        let mut store = locked(&store);
        match event {
            Ok(Event::Init) => {
                there.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                let name = name(&object);
                store.put(kind, &name, object.text());
                there.insert(name);
                continue;
            }
            Ok(Event::InitDone) => {
                for gone in store.names(kind).into_iter().filter(|name| !there.contains(name)) {
                    store.remove(kind, &gone);
                }
                store.unlisted().0.remove(&kind);
                there.clear();
            }
            Ok(Event::Apply(object)) => store.put(kind, &name(&object), object.text()),
            Ok(Event::Delete(object)) => store.remove(kind, &name(&object)),
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!(error = sentence(&error), kind = kind.display_name(), "watching; trying again");
                }
                let why = if is_forbidden(&error) {
                    format!("the host has no right to list {}: {remedy}", kind.display_name())
                } else {
                    format!("{} can't be listed: {}", kind.display_name(), sentence(&error))
                };
                // After a later failure, the watch catches up.
                match store.unlisted().0.get_mut(&kind) {
                    Some(known) => *known = Some(why),
                    None => continue,
                }
            }
        }
        complained = false;
        changed.send_modify(|count| *count += 1);
    }
}
