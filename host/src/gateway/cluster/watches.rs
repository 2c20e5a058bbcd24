//! The watches that fill the view, and the updates of the catalog.

use super::view::{ModelObject, View};
use crate::{gateway::catalog::Models, problem::sentence};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::DynamicObject,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use pointsman_core::{
    allocation::{
        ObjectName,
        records::{self, RESERVATIONS, Reservations},
    },
    resource::INFERENCE_MODEL,
};
use pointsman_sandbox::sync::locked;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fmt::Debug,
    pin::pin,
    sync::{Arc, Mutex},
};
use tokio::sync::watch;

/// The number of objects per page of a list.
const PAGE: u32 = 200;

/// The maximum number of models whose logged problem is remembered.
const MAX_COMPLAINTS: usize = 1000;

/// The watched kinds.
const KINDS: [&str; 3] = ["InferenceModels", "reservations", "namespaces"];

/// The watches of a gateway.
#[derive(Debug)]
pub struct Watches {
    models: Arc<Models>,
    cluster_domain: String,
    view: Mutex<View>,
    /// The logged problem of each model, so that it is logged once.
    complaints: Mutex<BTreeMap<ObjectName, String>>,
    /// The kinds that have been listed.
    listed: watch::Sender<[bool; 3]>,
}

impl Watches {
    /// Creates watches that fill the catalog of these models.
    pub fn new(models: Arc<Models>, cluster_domain: String) -> Self {
        Self { models, cluster_domain, view: Mutex::default(), complaints: Mutex::default(), listed: watch::Sender::new([false; 3]) }
    }

    /// The kinds that aren't listed yet, or none. Until then no response would be reliable.
    pub fn obstacle(&self) -> Option<String> {
        let listed = *self.listed.borrow();
        let missing: Vec<&str> = KINDS.into_iter().zip(listed).filter(|(_, is_listed)| !is_listed).map(|(kind, _)| kind).collect();
        (!missing.is_empty()).then(|| format!("the gateway hasn't listed yet: {}", missing.join(", ")))
    }

    /// Resolves once all kinds have been listed.
    pub async fn listed(&self) {
        _ = self.listed.subscribe().wait_for(|listed| listed.iter().all(|is_listed| *is_listed)).await;
    }

    /// Watches until the process ends: models in all namespaces, reservations in the hosts' namespace, and namespaces if callers have any.
    pub async fn keep(&self, client: Client, host_namespace: &str, with_namespaces: bool) {
        let config = || watcher::Config::default().page_size(PAGE);
        let models: Api<DynamicObject> = Api::all_with(client.clone(), &INFERENCE_MODEL.api_resource());
        let key = |object: &DynamicObject| ObjectName(format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()));
        let models = self.follow(0, models, config(), key, |object| {
            let read = serde_json::to_value(object).and_then(ModelObject::deserialize);
            let key = key(object);
            let flaw = match &read {
                Ok(read) => read.flaw(&key, &self.cluster_domain),
                Err(error) => Some(format!("it can't be read, and stays unchanged: {error}")),
            };
            self.complain(key, flaw);
            read.ok()
        });
        let places: Api<ConfigMap> = Api::namespaced(client.clone(), host_namespace);
        let selected = config().labels(&format!("{RESERVATIONS}=true"));
        let places = self.follow(1, places, selected, ResourceExt::name_any, |map| {
            let Some(read) = map.data.as_ref().and_then(records::reservations) else { return Some(Reservations::new()) };
            read.map_err(
                |error| tracing::warn!(name = map.name_any(), %error, "the reservations on a node can't be read, and stay unchanged"),
            )
            .ok()
        });
        let namespaces = async {
            if !with_namespaces {
                self.listed.send_modify(|listed| listed[2] = true);
                return std::future::pending().await;
            }
            let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
            self.follow(2, namespaces, config(), ResourceExt::name_any, |namespace| Some(namespace.labels().clone())).await;
        };
        futures::join!(models, places, namespaces);
    }

    async fn follow<K, I, V>(
        &self,
        kind: usize,
        api: Api<K>,
        config: watcher::Config,
        key: impl Fn(&K) -> I,
        read: impl Fn(&K) -> Option<V>,
    ) where
        K: Resource + Clone + Debug + for<'de> Deserialize<'de> + Send + 'static,
        I: Ord + Clone,
        View: Part<I, V>,
    {
        let mut events = pin!(watcher::watcher(api, config).default_backoff());
        let mut listing: BTreeMap<I, V> = BTreeMap::new();
        let mut complained = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    listing.clear();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    listing.extend(read(&object).map(|value| (key(&object), value)));
                    continue;
                }
                Ok(Event::InitDone) => {
                    *locked(&self.view).part() = std::mem::take(&mut listing);
                    self.listed.send_modify(|listed| listed[kind] = true);
                }
                Ok(Event::Apply(object)) => {
                    // An unreadable version leaves the previous one in place.
                    if let Some(value) = read(&object) {
                        locked(&self.view).part().insert(key(&object), value);
                    }
                }
                Ok(Event::Delete(object)) => drop(locked(&self.view).part().remove(&key(&object))),
                Err(error) => {
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!(
                            error = sentence(&error),
                            kind = KINDS[kind],
                            "watching; trying again, and serving by what is known"
                        );
                    }
                    continue;
                }
            }
            complained = false;
            self.update();
        }
    }

    /// Logs the problem of a model, unless it was already logged.
    fn complain(&self, key: ObjectName, flaw: Option<String>) {
        let mut complaints = locked(&self.complaints);
        match flaw {
            Some(flaw) if complaints.get(&key) != Some(&flaw) => {
                tracing::warn!(model = %key, flaw, "a model's spec can't be used");
                if complaints.len() >= MAX_COMPLAINTS {
                    complaints.clear();
                }
                complaints.insert(key, flaw);
            }
            Some(_) => {}
            None => drop(complaints.remove(&key)),
        }
    }

    /// Replaces the catalog, once all of its inputs are known.
    fn update(&self) {
        if self.obstacle().is_some() {
            return;
        }
        let view = locked(&self.view);
        let (definitions, drains) = view.catalog(&self.cluster_domain);
        // Within the lock, so that an older view never replaces a newer one.
        self.models.update(definitions, &drains, view.namespaces.clone());
    }
}

/// A part of the view, by its key and value types.
trait Part<I, V> {
    fn part(&mut self) -> &mut BTreeMap<I, V>;
}

impl Part<ObjectName, ModelObject> for View {
    fn part(&mut self) -> &mut BTreeMap<ObjectName, ModelObject> {
        &mut self.models
    }
}

impl Part<String, Reservations> for View {
    fn part(&mut self) -> &mut BTreeMap<String, Reservations> {
        &mut self.places
    }
}

impl Part<String, BTreeMap<String, String>> for View {
    fn part(&mut self) -> &mut BTreeMap<String, BTreeMap<String, String>> {
        &mut self.namespaces
    }
}
