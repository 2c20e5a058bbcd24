//! The endpoint picker's view of the cluster: its pool, the pool's pods, and the InferenceObjectives and InferenceModelRewrites that refer
//! to the pool.

pub mod view;

use self::view::{ForPool, PoolPod, PoolSpec};
use crate::problem::sentence;
use arc_swap::ArcSwap;
use futures::{
    StreamExt,
    future::{BoxFuture, join_all},
};
use kube::{
    Api, Client, ResourceExt,
    api::DynamicObject,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use pointsman_core::{
    resource::{
        INFERENCE_MODEL_REWRITE, INFERENCE_OBJECTIVE, INFERENCE_POOL, LLM_D_INFERENCE_MODEL_REWRITE, LLM_D_INFERENCE_OBJECTIVE, POD,
        Resource, X_INFERENCE_POOL,
    },
    selector::NAMESPACE_NAME,
};
use pointsman_picker::{
    fleet::{EndpointSpec, Fleet},
    rewrite::{ModelRewrite, ModelRewrites},
};
use pointsman_sandbox::{
    point::{Entry, Subject},
    sync::locked,
};
use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    pin::pin,
    str::FromStr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// The number of objects per page of a list.
const PAGE: u32 = 500;

/// The delay during which changes are gathered after one was published: a rollout changes many pods at once.
const GATHER_DELAY: Duration = Duration::from_millis(20);

/// The groups of pools. The first group that has the pool takes precedence.
static POOL_KINDS: [&Resource; 2] = [&INFERENCE_POOL, &X_INFERENCE_POOL];

/// The groups of objectives. Of two objects with one name, that of the later group takes precedence. Upstream ignores the older group as
/// soon as the cluster serves the newer one, which would drop objectives that nobody has migrated.
static OBJECTIVE_KINDS: [&Resource; 2] = [&INFERENCE_OBJECTIVE, &LLM_D_INFERENCE_OBJECTIVE];

/// The groups of rewrites, with the same precedence.
static REWRITE_KINDS: [&Resource; 2] = [&INFERENCE_MODEL_REWRITE, &LLM_D_INFERENCE_MODEL_REWRITE];

/// The API group of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolGroup {
    /// The first of the two that is served and has the pool.
    #[default]
    Any,
    /// inference.networking.k8s.io, in v1.
    Stable,
    /// inference.networking.x-k8s.io, in v1alpha2.
    Experimental,
}

impl PoolGroup {
    fn includes(self, kind: &Resource) -> bool {
        match self {
            Self::Any => true,
            Self::Stable => *kind == INFERENCE_POOL,
            Self::Experimental => *kind == X_INFERENCE_POOL,
        }
    }
}

impl FromStr for PoolGroup {
    type Err = String;

    fn from_str(group: &str) -> Result<Self, String> {
        match group {
            _ if group == INFERENCE_POOL.group => Ok(Self::Stable),
            _ if group == X_INFERENCE_POOL.group => Ok(Self::Experimental),
            _ => Err(format!("it is {} or {}", INFERENCE_POOL.group, X_INFERENCE_POOL.group)),
        }
    }
}

/// The pool of a picker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolName {
    /// Its API group.
    pub group: PoolGroup,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The pool's state in the cluster, which the picker reads for each request.
#[derive(Debug, Default)]
pub struct PoolView {
    /// Its endpoints.
    pub fleet: Arc<Fleet>,
    namespace: String,
    objectives: ArcSwap<BTreeMap<String, i64>>,
    rewrites: ArcSwap<ModelRewrites>,
    state: watch::Sender<PoolState>,
}

/// Whether requests can be handled correctly.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PoolState {
    /// Why they can't, and the remedy.
    obstacle: Option<String>,
    /// Whether everything has been listed, regardless of the pool's existence.
    is_listed: bool,
    /// The pool as the selectors of policies see it, if it exists.
    subject: Option<Arc<Subject>>,
}

impl Default for PoolState {
    fn default() -> Self {
        Known::default().state(&PoolName { group: PoolGroup::Any, namespace: String::new(), name: String::new() })
    }
}

impl PoolView {
    /// Creates a view without any objects.
    pub fn new(name: &PoolName) -> Self {
        let state = watch::Sender::new(Known::new(name.group).state(name));
        Self { namespace: name.namespace.clone(), state, ..Self::default() }
    }

    /// The namespace of the pool.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The priority of an objective of the pool; none if there is no such objective.
    pub fn priority(&self, objective: &str) -> Option<i64> {
        self.objectives.load().get(objective).copied()
    }

    /// The rewrites of the pool.
    pub fn rewrites(&self) -> Arc<ModelRewrites> {
        self.rewrites.load_full()
    }

    /// Why requests can't be handled, and the remedy: something hasn't been listed yet, or the pool doesn't exist.
    pub fn obstacle(&self) -> Option<String> {
        self.state.borrow().obstacle.clone()
    }

    /// Waits until the pool, as the selectors of policies see it, differs from `known`; none while it doesn't exist. Only the name of its
    /// namespace is known, not its labels.
    pub(super) async fn subject_other_than(&self, known: Option<&Arc<Subject>>) -> Option<Arc<Subject>> {
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| state.subject.as_ref() != known).await;
        // `self` has the sender, so it exists.
        state.ok().and_then(|state| state.subject.clone())
    }

    /// The kinds that aren't listed yet, regardless of the pool's existence.
    pub fn unlisted(&self) -> Option<String> {
        let state = self.state.borrow();
        state.obstacle.clone().filter(|_| !state.is_listed)
    }

    /// Resolves once everything has been listed, even if the pool doesn't exist.
    pub async fn listed(&self) {
        _ = self.state.subscribe().wait_for(|state| state.is_listed).await;
    }
}

/// Watches a pool and its objects until the process ends.
pub async fn keep(client: Client, name: PoolName, view: Arc<PoolView>) {
    Watches::new(client, name, view).run().await;
}

/// The objects of a kind.
#[derive(Debug)]
struct Listed<V> {
    /// The objects by name; none until they have been listed.
    objects: Option<BTreeMap<String, V>>,
    /// The label selector of the list.
    selector: Option<String>,
    /// Why they can't be listed.
    refusal: Option<String>,
}

impl<V> Default for Listed<V> {
    fn default() -> Self {
        Self { objects: None, selector: None, refusal: None }
    }
}

impl<V: PartialEq> Listed<V> {
    /// Replaces an object, or removes it. Returns whether anything relevant has changed: most changes of pods are irrelevant.
    fn apply(&mut self, name: String, value: Option<V>) -> bool {
        let Some(objects) = &mut self.objects else { return false };
        match value {
            Some(value) if objects.get(&name) == Some(&value) => false,
            Some(value) => {
                objects.insert(name, value);
                true
            }
            None => objects.remove(&name).is_some(),
        }
    }
}

fn is_missing<V>(groups: &[Listed<V>]) -> bool {
    groups.iter().any(|listed| listed.objects.is_none())
}

/// The objects from the watches.
#[derive(Debug, Default)]
struct Known {
    pools: [Listed<PoolSpec>; 2],
    pods: Listed<PoolPod>,
    objectives: [Listed<ForPool<i64>>; 2],
    rewrites: [Listed<ForPool<ModelRewrite>>; 2],
}

/// A kind's objects among all.
type Part<V> = fn(&mut Known) -> &mut Listed<V>;

impl Known {
    /// Without any objects; groups that can't have the pool aren't waited for.
    fn new(group: PoolGroup) -> Self {
        let mut known = Self::default();
        for (kind, listed) in POOL_KINDS.iter().zip(&mut known.pools) {
            listed.objects = (!group.includes(kind)).then(BTreeMap::new);
        }
        known
    }

    /// The pool and its group. An unlisted group may have it, so later ones must wait.
    fn pool(&self, name: &str) -> Option<(&'static str, &PoolSpec)> {
        let groups = POOL_KINDS.iter().zip(&self.pools);
        let mut listed = groups.map_while(|(kind, listed)| Some((kind.group, listed.objects.as_ref()?)));
        listed.find_map(|(group, pools)| Some((group, pools.get(name)?)))
    }

    /// The endpoints; none if they stay unchanged until the pods have been listed with the pool's selector.
    fn endpoints(&self, name: &str) -> Option<Vec<EndpointSpec>> {
        let Some((_, pool)) = self.pool(name).filter(|(_, pool)| !pool.selector.is_empty()) else { return Some(Vec::new()) };
        let is_current = self.pods.selector.as_ref() == Some(&pool.selector);
        let pods = self.pods.objects.as_ref().filter(|_| is_current)?;
        Some(view::endpoints(pool, pods.values()))
    }

    fn state(&self, name: &PoolName) -> PoolState {
        let pool = self.pool(&name.name);
        let has_selector = pool.is_some_and(|(_, pool)| !pool.selector.is_empty());
        let kinds = [
            ("InferencePools", pool.is_none() && is_missing(&self.pools)),
            ("pods", has_selector && self.pods.objects.is_none()),
            ("InferenceObjectives", is_missing(&self.objectives)),
            ("InferenceModelRewrites", is_missing(&self.rewrites)),
        ];
        let subject = pool.map(|(group, pool)| Arc::new(subject(name, group, pool)));
        let missing: Vec<&str> = kinds.into_iter().filter(|(_, is_missing)| *is_missing).map(|(kind, _)| kind).collect();
        let obstacle = if !missing.is_empty() {
            format!("the endpoint picker hasn't listed yet: {}", missing.join(", "))
        } else if pool.is_none() {
            format!("InferencePool {name} doesn't exist: create it, or correct its name in the flags of the endpoint picker")
        } else if !has_selector {
            format!("InferencePool {name} selects no pods: set their labels in spec.selector")
        } else {
            return PoolState { obstacle: None, is_listed: true, subject };
        };
        // Kinds that can't be listed may be the cause.
        let refusals = self.pools.iter().map(|listed| &listed.refusal).chain([&self.pods.refusal]).flatten();
        let sentences: Vec<&str> = [&obstacle].into_iter().chain(refusals).map(String::as_str).collect();
        PoolState { obstacle: Some(sentences.join("; ")), is_listed: missing.is_empty(), subject }
    }
}

/// The watches of a pool.
struct Watches {
    client: Client,
    name: PoolName,
    view: Arc<PoolView>,
    known: Mutex<Known>,
    /// The label selector of the pool's pods; empty if there is no pool.
    selector: watch::Sender<String>,
    changed: Notify,
}

impl Watches {
    fn new(client: Client, name: PoolName, view: Arc<PoolView>) -> Self {
        let known = Mutex::new(Known::new(name.group));
        Self { client, name, view, known, selector: watch::Sender::default(), changed: Notify::new() }
    }

    async fn run(&self) {
        let config = || watcher::Config::default().page_size(PAGE);
        let pool = config().fields(&format!("metadata.name={}", self.name.name));
        let mut tasks: Vec<BoxFuture<'_, ()>> = vec![Box::pin(self.publish_changes()), Box::pin(self.follow_pods())];
        let parts: [Part<PoolSpec>; 2] = [|known| &mut known.pools[0], |known| &mut known.pools[1]];
        for (kind, part) in POOL_KINDS.into_iter().zip(parts).filter(|(kind, _)| self.name.group.includes(kind)) {
            tasks.push(Box::pin(self.follow(kind, pool.clone(), read_pool, part)));
        }
        let parts: [Part<ForPool<i64>>; 2] = [|known| &mut known.objectives[0], |known| &mut known.objectives[1]];
        for (kind, part) in OBJECTIVE_KINDS.into_iter().zip(parts) {
            tasks.push(Box::pin(self.follow(kind, config(), view::read_objective, part)));
        }
        let parts: [Part<ForPool<ModelRewrite>>; 2] = [|known| &mut known.rewrites[0], |known| &mut known.rewrites[1]];
        for (kind, part) in REWRITE_KINDS.into_iter().zip(parts) {
            tasks.push(Box::pin(self.follow(kind, config(), view::read_rewrite, part)));
        }
        join_all(tasks).await;
    }

    /// Watches the pool's pods, from scratch whenever the selector changes.
    async fn follow_pods(&self) {
        let mut selectors = self.selector.subscribe();
        loop {
            let selector = selectors.borrow_and_update().clone();
            let followed = async {
                if selector.is_empty() {
                    // Nothing watches them now, so the known pods would become outdated.
                    locked(&self.known).pods = Listed::default();
                    std::future::pending::<()>().await;
                } else {
                    let config = watcher::Config::default().page_size(PAGE).labels(&selector);
                    self.follow(&POD, config, PoolPod::from_object, |known| &mut known.pods).await;
                }
            };
            tokio::select! {
                () = followed => {}
                _ = selectors.changed() => {}
            }
        }
    }

    async fn follow<V: PartialEq>(
        &self,
        kind: &'static Resource,
        config: watcher::Config,
        read: fn(&DynamicObject) -> Option<V>,
        part: Part<V>,
    ) {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.name.namespace, &kind.api_resource());
        let selector = config.label_selector.clone();
        let mut events = pin!(watcher::watcher(api, config).default_backoff());
        let mut listing: BTreeMap<String, V> = BTreeMap::new();
        let mut complained = false;
        while let Some(event) = events.next().await {
            let is_change = match event {
                Ok(Event::Init) => {
                    listing.clear();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    listing.extend(read(&object).map(|value| (object.name_any(), value)));
                    continue;
                }
                Ok(Event::InitDone) => {
                    let objects = Some(std::mem::take(&mut listing));
                    *part(&mut locked(&self.known)) = Listed { objects, selector: selector.clone(), refusal: None };
                    true
                }
                Ok(Event::Apply(object)) => part(&mut locked(&self.known)).apply(object.name_any(), read(&object)),
                Ok(Event::Delete(object)) => part(&mut locked(&self.known)).apply(object.name_any(), None),
                Err(error) => {
                    self.note_failure(kind, &error, part, std::mem::replace(&mut complained, true));
                    continue;
                }
            };
            complained = false;
            if is_change {
                self.changed.notify_one();
            }
        }
    }

    /// Records that a kind can't be watched, and logs it unless that was logged. Listed objects stay. A kind that was never listed has no
    /// objects if the cluster doesn't serve it, or if it can't be listed; only pods are waited for.
    fn note_failure<V>(&self, kind: &Resource, error: &watcher::Error, part: Part<V>, complained: bool) {
        let code = status_code(error);
        let is_optional = *kind != POD;
        let refusal = (code == Some(403)).then(|| {
            let Resource { group, plural, .. } = kind;
            let rule = format!("{{apiGroups: [{group:?}], resources: [{plural}], verbs: [get, list, watch]}}");
            format!(
                "the endpoint picker has no right to list {plural} in the namespace {}: add the rule {rule} to its Role",
                self.name.namespace
            )
        });
        {
            let mut known = locked(&self.known);
            let listed = part(&mut known);
            listed.refusal.clone_from(&refusal);
            if is_optional && matches!(code, Some(403 | 404)) {
                listed.objects.get_or_insert_default();
            }
        }
        self.changed.notify_one();
        if complained {
            return;
        }
        let (group, kind) = (kind.group, kind.plural);
        match refusal {
            Some(refusal) => tracing::warn!(group, kind, refusal, "watching; trying again, and serving by what is known"),
            None if is_optional && code == Some(404) => tracing::debug!(group, kind, "the cluster doesn't serve this kind; trying again"),
            None => tracing::warn!(group, kind, error = sentence(error), "watching; trying again, and serving by what is known"),
        }
    }

    /// Publishes the first change at once, and later ones together.
    async fn publish_changes(&self) {
        let mut complained = false;
        loop {
            self.changed.notified().await;
            let left_out = self.publish();
            if left_out > 0 && !std::mem::replace(&mut complained, true) {
                tracing::warn!(pool = %self.name, left_out, "the pool has too many endpoints: divide it into several pools");
            }
            tokio::time::sleep(GATHER_DELAY).await;
        }
    }

    /// Publishes the known state. Returns the number of endpoints that exceed the limit.
    fn publish(&self) -> usize {
        let name = self.name.name.as_str();
        let (objectives, rewrites, endpoints, selector, state) = {
            let known = locked(&self.known);
            let (group, selector) = known.pool(name).map_or(("", String::new()), |(group, pool)| (group, pool.selector.clone()));
            let objectives = known.objectives.iter().filter_map(|listed| listed.objects.as_ref());
            let rewrites = known.rewrites.iter().filter_map(|listed| listed.objects.as_ref());
            (
                view::objectives((group, name), objectives),
                view::rewrites((group, name), rewrites),
                known.endpoints(name),
                selector,
                known.state(&self.name),
            )
        };
        self.view.objectives.store(Arc::new(objectives));
        self.view.rewrites.store(Arc::new(rewrites));
        let left_out = endpoints.map_or(0, |endpoints| self.view.fleet.replace(endpoints));
        self.selector.send_if_modified(|current| {
            let is_new = *current != selector;
            *current = selector;
            is_new
        });
        let obstacle = state.obstacle.clone().filter(|_| state.is_listed);
        // Last, so that a task that waits for it finds the rest.
        let is_new = self.view.state.send_if_modified(|current| {
            let is_new = *current != state;
            *current = state;
            is_new
        });
        if let Some(obstacle) = obstacle
            && is_new
        {
            tracing::warn!(obstacle, "the endpoint picker has no endpoints");
        }
        left_out
    }
}

/// A pool that is being deleted counts as deleted.
fn read_pool(object: &DynamicObject) -> Option<PoolSpec> {
    let labels = || object.labels().clone();
    object.metadata.deletion_timestamp.is_none().then(|| PoolSpec { labels: labels(), ..PoolSpec::from_object(&object.data) })
}

fn subject(name: &PoolName, group: &str, pool: &PoolSpec) -> Subject {
    let entry = |(key, value): (&String, &String)| Entry { key: key.clone(), value: value.clone() };
    Subject {
        group: group.to_owned(),
        kind: INFERENCE_POOL.kind.to_owned(),
        namespace: name.namespace.clone(),
        name: name.name.clone(),
        labels: pool.labels.iter().map(entry).collect(),
        namespace_labels: vec![Entry { key: NAMESPACE_NAME.to_owned(), value: name.namespace.clone() }],
        ..Subject::default()
    }
}

pub(super) fn status_code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}
