//! The watches that fill the world: one task per kind, while the cluster serves the kind.

pub mod apis;
pub(crate) mod config_map;
mod outdated;
pub mod seen;
pub(crate) mod store;

use crate::{
    permissions,
    problem::sentence,
    watch::{apis::Apis, seen::ObjectText},
};
use futures::StreamExt;
use kube::{
    Api, Client,
    core::{NamespaceResourceScope, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use pointsman_core::{
    resource::{
        BENCHMARK_JOB, FINE_TUNED_WEIGHT, GATEWAY, HORIZONTAL_POD_AUTOSCALER, HTTP_ROUTE, INFERENCE_OBJECTIVE, INFERENCE_POOL, JOB,
        LLM_CONFIG, LLM_D_INFERENCE_OBJECTIVE, NAMESPACE, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, POD, POD_DISRUPTION_BUDGET,
        REFERENCE_GRANT, ROLE, ROLE_BINDING, Resource, SCALED_OBJECT, SERVICE, SERVICE_ACCOUNT, TRAINING_JOB,
    },
    subject_kind::SUBJECT_KINDS,
    workload::WORKLOADS,
    world::{DeniedKinds, MissingRole, ObjectKey, ObjectUpdate, Touched, World, child::SUBJECT_KIND},
};
use pointsman_sandbox::sync::locked;
use serde::Deserialize;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};
use tokio::{sync::watch, task::JoinHandle};

/// The part of a kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Everything.
    All,
    /// The metadata of everything.
    Metadata,
    /// Objects that we created.
    Ours,
}

/// The watched kinds in addition to the kinds of subject, the kinds that their plans read, and workloads.
static BESIDE_SUBJECTS: &[(&Resource, Extent)] = &[
    (&NAMESPACE, Extent::Metadata),
    (&FINE_TUNED_WEIGHT, Extent::All),
    (&SERVICE, Extent::Ours),
    (&HORIZONTAL_POD_AUTOSCALER, Extent::Ours),
    (&SCALED_OBJECT, Extent::Ours),
    (&POD_DISRUPTION_BUDGET, Extent::Ours),
    (&NETWORK_POLICY, Extent::Ours),
    (&PERSISTENT_VOLUME_CLAIM, Extent::Ours),
    // All objects, because services may name others' objects.
    (&HTTP_ROUTE, Extent::All),
    (&GATEWAY, Extent::All),
    (&REFERENCE_GRANT, Extent::All),
    (&INFERENCE_POOL, Extent::All),
    (&INFERENCE_OBJECTIVE, Extent::Ours),
    (&LLM_D_INFERENCE_OBJECTIVE, Extent::Ours),
    (&SERVICE_ACCOUNT, Extent::Ours),
    (&ROLE, Extent::Ours),
    (&ROLE_BINDING, Extent::Ours),
    (&POD, Extent::Ours),
];

/// The watched kinds, each once.
pub(super) fn watched() -> impl Iterator<Item = (&'static Resource, Extent)> {
    let of_subjects = SUBJECT_KINDS.iter().flat_map(|kind| [kind.resource].into_iter().chain(kind.reads.iter().copied()));
    let workloads = WORKLOADS.iter().map(|workload| (workload.resource, Extent::Ours));
    let mut all: Vec<_> =
        of_subjects.map(|resource| (resource, Extent::All)).chain(workloads).chain(BESIDE_SUBJECTS.iter().copied()).collect();
    let mut seen = BTreeSet::new();
    all.retain(|(resource, _)| seen.insert(*resource));
    all.into_iter()
}

/// The kinds that are created for subjects, except pods: those that are watched as ours, and those that services may also name.
pub fn made() -> impl Iterator<Item = &'static Resource> {
    let ours = |(resource, extent): &(&'static Resource, Extent)| {
        *extent == Extent::Ours && *resource != &POD || [&HTTP_ROUTE, &INFERENCE_POOL].contains(resource)
    };
    watched().filter(ours).map(|(resource, _)| resource)
}

/// One API per namespace; one for all namespaces if there are none.
pub fn each_namespace<K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
    client: &Client,
    namespaces: &BTreeSet<String>,
) -> Vec<Api<K>> {
    if namespaces.is_empty() {
        return vec![Api::all(client.clone())];
    }
    namespaces.iter().map(|namespace| Api::namespaced(client.clone(), namespace)).collect()
}

/// The number of objects per page of a list: their JSON is in memory together.
const LIST_PAGE_SIZE: u32 = 100;

/// The world, shared by the watches and the workers.
#[derive(Clone, Debug)]
pub struct Shared {
    world: Arc<Mutex<World>>,
    news: Arc<watch::Sender<u64>>,
    models: Arc<watch::Sender<u64>>,
    catalogue: Arc<watch::Sender<u64>>,
    /// When the first change was seen whose touched subjects nobody has taken yet. The world is locked whenever this is.
    seen: Arc<Mutex<Option<SystemTime>>>,
}

impl Default for Shared {
    fn default() -> Self {
        let sender = || Arc::new(watch::Sender::new(0));
        Self { world: Arc::default(), news: sender(), models: sender(), catalogue: sender(), seen: Arc::default() }
    }
}

impl Shared {
    /// The world. Hold the lock only briefly, and never across I/O.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        locked(&self.world)
    }

    /// Changes the world and notifies its followers.
    pub fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let (done, touched, models, catalogue) = {
            let mut world = self.lock();
            let (models, catalogue) = (world.model_changes(), world.catalogue_changes());
            let done = change(&mut world);
            let touched = world.is_touched();
            if touched {
                locked(&self.seen).get_or_insert_with(SystemTime::now);
            }
            let changed = |before: u64, now: u64| (now != before).then_some(now);
            (done, touched, changed(models, world.model_changes()), changed(catalogue, world.catalogue_changes()))
        };
        if touched {
            self.news.send_modify(|count| *count += 1);
        }
        if let Some(models) = models {
            self.models.send_replace(models);
        }
        if let Some(catalogue) = catalogue {
            self.catalogue.send_replace(catalogue);
        }
        done
    }

    /// Takes the touched subjects, and when the first of these changes was seen. Each change wakes the task that queues them, so the other
    /// changes were seen at about the same time.
    pub fn take_touched(&self) -> (Touched, SystemTime) {
        let mut world = self.lock();
        (world.take_touched(), locked(&self.seen).take().unwrap_or_else(SystemTime::now))
    }

    /// Counts up when models change.
    pub fn model_changes(&self) -> watch::Receiver<u64> {
        self.models.subscribe()
    }

    /// Counts up when models, weights, runtimes, or the parts of them that subjects may use, change.
    pub fn catalogue_changes(&self) -> watch::Receiver<u64> {
        self.catalogue.subscribe()
    }

    /// Counts up when subjects are touched.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

/// The namespaces whose objects are watched.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    /// The served namespaces; all if empty.
    pub namespaces: BTreeSet<String>,
    /// The namespace of the LLMInferenceServiceConfigs that services of every namespace can build on.
    pub config_namespace: String,
}

impl Extents {
    /// The namespaces whose objects of a kind are watched, each by its own watch; or everything at once.
    fn places(&self, resource: &'static Resource) -> Vec<Option<String>> {
        if self.namespaces.is_empty() || permissions::is_read_everywhere(resource) {
            return vec![None];
        }
        let beside = (*resource == LLM_CONFIG).then_some(&self.config_namespace);
        self.namespaces.iter().chain(beside.filter(|beside| !self.namespaces.contains(*beside))).cloned().map(Some).collect()
    }

    /// The role with the rights that a watch needs.
    fn role(&self, resource: &'static Resource, place: Option<&String>) -> MissingRole {
        let feature = permissions::grants_list(resource).unwrap_or(permissions::BASE);
        permissions::missing_role(feature, &self.namespaces, place.map(String::as_str))
    }
}

/// The watch of one kind, in all namespaces or in one.
struct Watch {
    place: Option<String>,
    task: JoinHandle<()>,
    listing: watch::Receiver<Listing>,
}

/// The result of listing a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// Nothing yet.
    Pending,
    /// The host has no right to list it, and retries.
    Denied,
    /// Everything was listed at least once. After a later failure, the watch catches up.
    Done,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Keeps the world up to date with the cluster. `obstacle` has the kinds that aren't listed yet, until all are. It never ends by itself.
pub async fn keep(
    client: Client,
    extents: Extents,
    mut apis: watch::Receiver<Apis>,
    shared: Shared,
    obstacle: watch::Sender<Option<String>>,
) {
    let mut watches: BTreeMap<&'static Resource, Vec<Watch>> = BTreeMap::new();
    let (tell, mut told) = watch::channel(());
    loop {
        let served = apis.borrow_and_update().clone();
        for (resource, extent) in watched() {
            let serves = resource.neighbour.is_none() || served.serves(resource.group, resource.version, resource.plural);
            if served.known() && serves && !watches.contains_key(resource) {
                let places = extents.places(resource).into_iter();
                watches.insert(resource, places.map(|place| start(&client, resource, extent, place, &shared, tell.clone())).collect());
            } else if !serves && watches.remove(resource).is_some() {
                shared.change(|world| world.keys(resource).iter().for_each(|key| world.remove(key)));
            }
        }
        let mut listed = Listed::default();
        for (resource, watch) in watches.iter().flat_map(|(resource, watches)| watches.iter().map(|watch| (*resource, watch))) {
            listed.note(resource, *watch.listing.borrow(), || extents.role(resource, watch.place.as_ref()));
        }
        let now = if served.known() { listed.obstacle() } else { Some("the API server has not reported its kinds yet".to_owned()) };
        shared.change(|world| {
            world.set_available(listed.done);
            world.set_denied(listed.denied);
        });
        // Before that, existing objects would seem absent. A kind that the cluster serves later isn't available until it is listed.
        obstacle.send_if_modified(|obstacle| obstacle.is_some() && std::mem::replace(obstacle, now.clone()) != now);
        let gone = tokio::select! {
            changed = apis.changed() => changed.is_err(),
            changed = told.changed() => changed.is_err(),
        };
        if gone {
            return;
        }
    }
}

/// The results of listing all kinds.
#[derive(Debug, Default)]
struct Listed {
    /// The kinds that are listed in all watched namespaces.
    done: BTreeSet<&'static Resource>,
    pending: BTreeSet<&'static Resource>,
    denied: DeniedKinds,
}

impl Listed {
    /// Records the result of one watch of a kind.
    fn note(&mut self, resource: &'static Resource, listing: Listing, role: impl FnOnce() -> MissingRole) {
        match listing {
            Listing::Done if self.pending.contains(resource) || self.denied.contains_key(resource) => return,
            Listing::Done => _ = self.done.insert(resource),
            Listing::Pending => _ = self.pending.insert(resource),
            Listing::Denied => {
                let MissingRole { folder, namespaces } = role();
                let known = self.denied.entry(resource).or_insert(MissingRole { folder, namespaces: BTreeSet::new() });
                known.namespaces.extend(namespaces);
            }
        }
        if listing != Listing::Done {
            self.done.remove(resource);
        }
    }

    /// The reason why nothing may be written yet: existing objects would seem absent. If a kind of subject is listed, its whole role is
    /// needed; a neighbour's missing role makes nobody else wait.
    fn obstacle(&self) -> Option<String> {
        let subjects = SUBJECT_KINDS.iter().map(|kind| kind.resource).filter(|resource| self.done.contains(resource));
        let needed: BTreeSet<&str> = subjects.filter_map(permissions::grants_list).chain([permissions::BASE]).collect();
        // A role of an earlier version, without the rights for jobs, is complete for services.
        let runs_jobs = [&BENCHMARK_JOB, &TRAINING_JOB].iter().any(|kind| self.done.contains(*kind));
        let is_needed = |resource: &Resource| {
            if [&BENCHMARK_JOB, &TRAINING_JOB].contains(&resource) {
                return false;
            }
            if [&JOB, &REFERENCE_GRANT].contains(&resource) {
                return runs_jobs;
            }
            permissions::grants_list(resource).is_none_or(|feature| needed.contains(feature))
        };
        let indispensable =
            self.denied.iter().filter(|(resource, _)| is_needed(resource)).map(|(resource, role)| (*resource, role.clone()));
        if let Some(message) = denied_messages(&indispensable.collect()).pop() {
            return Some(message);
        }
        let pending: Vec<&str> = self.pending.iter().map(|resource| resource.plural).collect();
        (!pending.is_empty()).then(|| format!("these haven't been listed yet: {} (the log says why, if it fails)", pending.join(", ")))
    }
}

/// The kinds that the host has no right to list, and the remedy: a sentence per role.
pub fn denied_messages(denied: &DeniedKinds) -> Vec<String> {
    let mut kinds: BTreeMap<&MissingRole, Vec<String>> = BTreeMap::new();
    for (resource, role) in denied {
        kinds.entry(role).or_default().push(resource.crd_name());
    }
    let message = |(role, kinds): (&MissingRole, Vec<String>)| format!("the host has no right to list {}: {role}", kinds.join(", "));
    kinds.into_iter().map(message).collect()
}

/// Whether the API server refuses a list because a right is missing.
fn is_denied(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 403)
}

fn start(
    client: &Client,
    resource: &'static Resource,
    extent: Extent,
    place: Option<String>,
    shared: &Shared,
    tell: watch::Sender<()>,
) -> Watch {
    let (listing, answered) = watch::channel(Listing::Pending);
    let config = watcher::Config::default().page_size(LIST_PAGE_SIZE);
    let config = if extent == Extent::Ours { config.labels(SUBJECT_KIND) } else { config };
    let (client, shared, ar, within) = (client.clone(), shared.clone(), resource.api_resource(), place.clone());
    let task = tokio::spawn(async move {
        let said = move |now: Listing| {
            // If a right is withdrawn later, the known objects stay as they are, as after any failure of a watch.
            let changed = listing.send_if_modified(|listing| *listing != Listing::Done && std::mem::replace(listing, now) != now);
            if changed {
                tell.send_replace(());
            }
        };
        if extent == Extent::Metadata {
            let api: Api<PartialObjectMeta<kube::api::DynamicObject>> = Api::all_with(client, &ar);
            follow((resource, within), api, config, shared, said, |seen| serde_json::to_string(&seen).unwrap_or_default().into()).await;
        } else {
            let api: Api<ObjectText> = match &within {
                Some(namespace) => Api::namespaced_with(client, namespace, &ar),
                None => Api::all_with(client, &ar),
            };
            follow((resource, within), api, config, shared, said, |seen| seen.text().into()).await;
        }
    });
    Watch { place, task, listing: answered }
}

async fn follow<K>(
    (resource, within): (&'static Resource, Option<String>),
    api: Api<K>,
    config: watcher::Config,
    shared: Shared,
    answered: impl Fn(Listing),
    text: impl for<'k> Fn(&'k K) -> Cow<'k, str>,
) where
    K: kube::Resource + Clone + Debug + for<'de> Deserialize<'de> + Send + 'static,
{
    let key = |seen: &K| ObjectKey {
        resource,
        namespace: seen.meta().namespace.clone().unwrap_or_default(),
        name: seen.meta().name.clone().unwrap_or_default(),
    };
    let read = |seen: &K| ObjectUpdate::read(resource, &text(seen), |key| shared.lock().child(key));
    let mut events = pin!(watcher::watcher(api, config).default_backoff());
    let mut there = BTreeSet::new();
    let (mut complained, mut refused) = (false, false);
    while let Some(event) = events.next().await {
        match event {
            // This event comes before the list is requested.
            Ok(Event::Init) => {
                there.clear();
                continue;
            }
            Ok(Event::InitApply(seen)) => {
                there.insert(key(&seen));
                let news = read(&seen);
                shared.change(|world| world.apply_listed(news));
            }
            Ok(Event::InitDone) => {
                let there = std::mem::take(&mut there);
                shared.change(|world| {
                    let is_listed = |key: &&ObjectKey| within.as_ref().is_none_or(|namespace| key.namespace == *namespace);
                    for gone in world.keys(resource).difference(&there).filter(is_listed) {
                        world.remove(gone);
                    }
                });
                answered(Listing::Done);
            }
            Ok(Event::Apply(seen)) => {
                let news = read(&seen);
                shared.change(|world| world.apply_update(news));
            }
            Ok(Event::Delete(seen)) => {
                let key = key(&seen);
                let version = seen.meta().resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or_default();
                shared.change(|world| {
                    world.advance_to(&key, version);
                    world.remove(&key);
                });
            }
            Err(error) => {
                // An API server that has just started may refuse for a moment a request that it allows later.
                if is_denied(&error) && std::mem::replace(&mut refused, true) {
                    answered(Listing::Denied);
                }
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!(error = sentence(&error), kind = resource.kind, "watching; trying again");
                }
                continue;
            }
        }
        complained = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::{
        resource::{INFERENCE_SERVICE, LEADER_WORKER_SET, LLM_INFERENCE_SERVICE},
        subject_kind::ALL,
    };
    use serde_json::Value;

    #[test]
    fn whatever_is_neither_asked_for_nor_only_looked_at_is_made_for_subjects() {
        let asked = |resource: &&Resource| resource.is_subject() || ["ome.io", "serving.kserve.io"].contains(&resource.group);
        let looked_at = |resource: &&Resource| [&NAMESPACE, &POD, &GATEWAY, &REFERENCE_GRANT].contains(resource);
        let all: BTreeSet<&Resource> = ALL.iter().copied().filter(|resource| !asked(resource) && !looked_at(resource)).collect();
        assert_eq!(made().collect::<BTreeSet<_>>(), all);
    }

    #[test]
    fn a_neighbour_that_is_denied_keeps_nobody_waiting_and_a_part_of_what_a_subject_needs_does() {
        let obstacle = |done: &'static Resource, denied: &'static Resource| {
            let mut listed = Listed::default();
            for (resource, listing) in [(done, Listing::Done), (denied, Listing::Denied)] {
                listed.note(resource, listing, || Extents::default().role(resource, None));
            }
            listed.obstacle()
        };
        assert_eq!(obstacle(&LLM_INFERENCE_SERVICE, &LEADER_WORKER_SET), None);
        assert_eq!(obstacle(&LLM_INFERENCE_SERVICE, &POD_DISRUPTION_BUDGET), None, "only InferenceServices have one");
        let said = obstacle(&INFERENCE_SERVICE, &POD_DISRUPTION_BUDGET).unwrap();
        assert_eq!(said, "the host has no right to list poddisruptionbudgets.policy: apply deploy/roles/ome");
        assert_eq!(obstacle(&INFERENCE_SERVICE, &POD).unwrap(), "the host has no right to list pods: apply deploy/roles/base");
        for of_jobs in [&BENCHMARK_JOB, &TRAINING_JOB, &JOB, &REFERENCE_GRANT] {
            assert_eq!(obstacle(&INFERENCE_SERVICE, of_jobs), None, "{}", of_jobs.kind);
        }
        assert_eq!(obstacle(&TRAINING_JOB, &JOB).unwrap(), "the host has no right to list jobs.batch: apply deploy/roles/ome");
        let mut pending = Listed::default();
        pending.note(&LEADER_WORKER_SET, Listing::Pending, || unreachable!());
        assert!(pending.obstacle().unwrap().contains("leaderworkersets"));
    }

    #[test]
    fn a_host_of_some_namespaces_watches_these_and_says_where_a_role_is_missing() {
        let namespaces = ["a", "b"].map(str::to_owned);
        let extents = Extents { namespaces: BTreeSet::from(namespaces.clone()), config_namespace: "home".to_owned() };
        let some = |namespaces: &[&str]| namespaces.iter().map(|namespace| Some((*namespace).to_owned())).collect::<Vec<_>>();
        assert_eq!(extents.places(&POD), some(&["a", "b"]));
        assert_eq!(extents.places(&LLM_CONFIG), some(&["a", "b", "home"]));
        for everywhere in [&NAMESPACE, &GATEWAY] {
            assert_eq!(extents.places(everywhere), [None]);
        }
        assert_eq!(Extents::default().places(&POD), [None]);

        let mut listed = Listed::default();
        for (place, listing) in ["a", "b"].into_iter().zip([Listing::Done, Listing::Denied]) {
            listed.note(&POD, listing, || extents.role(&POD, Some(&place.to_owned())));
        }
        assert_eq!(listed.done, BTreeSet::new(), "it isn't listed in b");
        assert_eq!(
            listed.obstacle().unwrap(),
            "the host has no right to list pods: apply deploy/roles/namespaced/tenant/base to the namespace b"
        );
        let role = |resource, place: Option<&str>| extents.role(resource, place.map(str::to_owned).as_ref()).to_string();
        assert_eq!(role(&NAMESPACE, None), "apply deploy/roles/namespaced/host/base");
        assert_eq!(role(&LLM_CONFIG, Some("home")), "apply deploy/roles/namespaced/host/kserve");
    }

    #[test]
    fn every_kind_that_is_watched_may_be_listed_and_every_kind_that_is_made_may_be_written() {
        let granted: Vec<Value> = permissions::features().into_iter().flat_map(|feature| feature.everywhere).collect();
        let may = |resource: &Resource, verb: &str| {
            let has = |list: &Value, name: &str| list.as_array().unwrap().iter().any(|item| item == name);
            granted.iter().any(|rule| {
                has(&rule["apiGroups"], resource.group) && has(&rule["resources"], resource.plural) && has(&rule["verbs"], verb)
            })
        };
        for (resource, _) in watched() {
            assert!(may(resource, "list") && may(resource, "watch"), "{} can't be watched", resource.plural);
        }
        for resource in made() {
            assert!(["create", "get", "patch"].iter().all(|verb| may(resource, verb)), "{} can't be applied", resource.plural);
        }
    }
}
