//! The keeper's watches: PolicyPlugins, ValidationRules, PolicySets, and only the ConfigMaps that it needs.

use crate::{problem::sentence, source::config_map::ConfigMapKey};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use pointsman_crds::policy::{plugin::PolicyPlugin, rule::ValidationRule, set::PolicySet};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    pin::pin,
    sync::Arc,
};
use tokio::{sync::mpsc::UnboundedSender, task::JoinHandle, time::Instant};

/// An event from a watch.
#[derive(Debug)]
pub(super) enum KeeperEvent {
    /// An event of a PolicyPlugin.
    Plugin(Event<PolicyPlugin>),
    /// An event of a ValidationRule.
    Rule(Event<ValidationRule>),
    /// An event of a PolicySet.
    Set(Event<PolicySet>),
    /// The current state of a ConfigMap, or none if it doesn't exist; if it is from a list, with the time of the request.
    ConfigMap(ConfigMapKey, Option<Arc<ConfigMap>>, Option<Instant>),
    /// The reason why a ConfigMap can't be read.
    Unreadable(ConfigMapKey, String),
}

/// An event of an object of a kind.
#[derive(Debug)]
pub(super) enum Event<K> {
    /// The current state of an object; if it is from a list, with the time of the request.
    Now(Box<K>, Option<Instant>),
    /// An object is gone.
    Gone(String),
    /// All objects were listed, as requested at this time; these exist.
    All(BTreeSet<String>, Instant),
}

/// Watches all objects of a kind.
pub(super) async fn all<K>(client: Client, seen: UnboundedSender<KeeperEvent>, called: &str, of: fn(Event<K>) -> KeeperEvent)
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watcher::watcher(Api::<K>::all(client), watcher::Config::default()).default_backoff());
    let (mut listed, mut begun) = (BTreeSet::new(), Instant::now());
    let mut complained = false;
    while let Some(event) = events.next().await {
        let told = match event {
            // This event comes before the list is requested.
            Ok(watcher::Event::Init) => {
                listed.clear();
                begun = Instant::now();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed.insert(object.name_any());
                Event::Now(Box::new(object), Some(begun))
            }
            Ok(watcher::Event::InitDone) => Event::All(std::mem::take(&mut listed), begun),
            Ok(watcher::Event::Apply(object)) => Event::Now(Box::new(object), None),
            Ok(watcher::Event::Delete(object)) => Event::Gone(object.name_any()),
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!(error = sentence(&error), "watching {called}; trying again");
                }
                continue;
            }
        };
        complained = false;
        if seen.send(of(told)).is_err() {
            return;
        }
    }
}

/// Watches one ConfigMap: a watch of all would read those that we don't need.
async fn config_map(client: Client, (namespace, name): ConfigMapKey, seen: UnboundedSender<KeeperEvent>) {
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let api = Api::<ConfigMap>::namespaced(client, &namespace);
    let mut events = pin!(watcher::watcher(api, only).default_backoff());
    let (mut listed, mut begun) = (false, Instant::now());
    let mut complained = false;
    while let Some(event) = events.next().await {
        let (now, from_list) = match event {
            Ok(watcher::Event::Init) => {
                listed = false;
                begun = Instant::now();
                continue;
            }
            Ok(watcher::Event::InitApply(found)) => {
                listed = true;
                (Some(Arc::new(found)), Some(begun))
            }
            Ok(watcher::Event::InitDone) if listed => continue,
            Ok(watcher::Event::InitDone) => (None, Some(begun)),
            Ok(watcher::Event::Delete(_)) => (None, None),
            Ok(watcher::Event::Apply(found)) => (Some(Arc::new(found)), None),
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!(error = sentence(&error), namespace, name, "watching a ConfigMap; trying again");
                    let why = format!("the ConfigMap {namespace}/{name} can't be read: {}", sentence(&error));
                    if seen.send(KeeperEvent::Unreadable((namespace.clone(), name.clone()), why)).is_err() {
                        return;
                    }
                }
                continue;
            }
        };
        complained = false;
        if seen.send(KeeperEvent::ConfigMap((namespace.clone(), name.clone()), now, from_list)).is_err() {
            return;
        }
    }
}

/// The watched ConfigMaps and their states.
pub(super) struct ConfigMaps {
    client: Client,
    seen: UnboundedSender<KeeperEvent>,
    watched: BTreeMap<ConfigMapKey, Watched>,
}

#[derive(Debug)]
struct Watched {
    task: JoinHandle<()>,
    /// Whether there was a response.
    known: bool,
    error: Option<String>,
    found: Option<Arc<ConfigMap>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ConfigMaps {
    pub(super) fn new(client: Client, seen: UnboundedSender<KeeperEvent>) -> Self {
        Self { client, seen, watched: BTreeMap::new() }
    }

    /// Watches exactly these.
    pub(super) fn want(&mut self, wanted: &BTreeSet<ConfigMapKey>) {
        self.watched.retain(|place, _| wanted.contains(place));
        for place in wanted {
            if !self.watched.contains_key(place) {
                let task = tokio::spawn(config_map(self.client.clone(), place.clone(), self.seen.clone()));
                self.watched.insert(place.clone(), Watched { task, known: false, error: None, found: None });
            }
        }
    }

    /// Records a ConfigMap's state. Returns false if it is no longer needed.
    pub(super) fn take(&mut self, place: &ConfigMapKey, state: Option<Arc<ConfigMap>>) -> bool {
        match self.watched.get_mut(place) {
            Some(watched) => {
                watched.known = true;
                watched.found = state;
                true
            }
            None => false,
        }
    }

    /// Records why a ConfigMap can't be read. Returns false if it is no longer needed.
    pub(super) fn fail(&mut self, place: &ConfigMapKey, error: String) -> bool {
        self.watched.get_mut(place).map(|watched| watched.error = Some(error)).is_some()
    }

    /// Why one of these, which have never been read, can't be read.
    pub(super) fn unreadable(&self, places: &BTreeSet<ConfigMapKey>) -> Option<String> {
        let watched = places.iter().filter_map(|place| self.watched.get(place));
        watched.filter(|watched| !watched.known).find_map(|watched| watched.error.clone())
    }

    /// A ConfigMap, if it exists.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<ConfigMap>> {
        self.watched.get(&(namespace.to_owned(), name.to_owned()))?.found.clone()
    }

    /// The known states of these ConfigMaps, including missing ones.
    pub(super) fn seen(&self, keys: &BTreeSet<ConfigMapKey>) -> BTreeMap<ConfigMapKey, Option<Arc<ConfigMap>>> {
        let known = |key: &ConfigMapKey| self.watched.get(key).filter(|watched| watched.known);
        keys.iter().filter_map(|key| known(key).map(|watched| (key.clone(), watched.found.clone()))).collect()
    }

    /// Whether the states of all of these are known, including missing ones.
    pub(super) fn known(&self, places: &BTreeSet<ConfigMapKey>) -> bool {
        places.iter().all(|place| self.watched.get(place).is_some_and(|watched| watched.known))
    }
}
