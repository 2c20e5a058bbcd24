//! Writes, on the leader, whether the pool of an InferenceObjective or an InferenceModelRewrite exists.

use crate::{
    allocator::{objects, some_at_once},
    leader::{Leadership, fence::fenced},
    permissions,
    problem::sentence,
    watch::{
        apis::Apis,
        seen::ObjectText,
        store::{LIST_PAGE_SIZE, Name, Store, StoreKind, Unlisted, Watched},
    },
};
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use pointsman_core::{
    claims::Claims,
    pool_refs::{PoolUser, Pools, STATUS_MANAGER},
    resource::{INFERENCE_POOL, LLM_D_INFERENCE_OBJECTIVE, LLM_INFERENCE_SERVICE, POOL_USERS, Resource, X_INFERENCE_POOL},
    status::without_times,
    world::{MissingRole, ObjectKey},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

/// The delay during which changes are gathered: they come in bursts, an object often just before its pool, and these statuses aren't
/// urgent.
const GATHER: Duration = Duration::from_secs(1);

/// The delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(15);

/// The delay before a write is retried for which a right was missing.
const FORBIDDEN_DELAY: Duration = Duration::from_mins(10);

/// The role with the rights that this needs.
const ROLE: &str = "inference-pool";

/// The kinds of pools.
const POOLS: [&Resource; 2] = [&INFERENCE_POOL, &X_INFERENCE_POOL];

/// The inputs of [`run`].
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Inputs {
    /// The cluster.
    pub client: Client,
    /// Whether this host is the leader.
    pub leadership: Leadership,
    /// The namespaces and kinds that this host serves.
    pub claims: Claims,
    /// The kinds that the cluster serves.
    pub apis: watch::Receiver<Apis>,
}

/// Writes while this host is the leader. It never ends.
pub async fn run(inputs: Inputs) {
    // Only a host that serves LLMInferenceServices knows their pools.
    if !inputs.claims.contains_kind(&LLM_INFERENCE_SERVICE) {
        return std::future::pending().await;
    }
    let mut leadership = inputs.leadership.clone();
    loop {
        leadership.for_a_term(lead(&inputs)).await;
    }
}

/// The kinds of pools and their users that the cluster serves.
fn served(apis: &Apis) -> BTreeSet<&'static Resource> {
    let all = POOLS.into_iter().chain(POOL_USERS);
    all.filter(|kind| apis.serves(kind.group, kind.version, kind.plural)).collect()
}

/// One term of a leader.
async fn lead(inputs: &Inputs) {
    let mut apis = inputs.apis.clone();
    loop {
        let kinds = match apis.wait_for(Apis::known).await {
            Ok(apis) => served(&apis),
            Err(_) => return,
        };
        // One writer per namespace if the host serves only some: a right may be missing in one of them.
        let namespaces: Vec<Option<&str>> = match &inputs.claims.namespaces {
            all if all.is_empty() => vec![None],
            some => some.iter().map(|namespace| Some(&**namespace)).collect(),
        };
        let mut writers: Vec<_> = namespaces.into_iter().map(|namespace| Writer::new(inputs, namespace, &kinds)).collect();
        tokio::select! {
            // A CRD was installed or removed.
            changed = apis.wait_for(|apis| served(apis) != kinds) => if changed.is_err() { return },
            _ = join_all(writers.iter_mut().map(Writer::run)) => {}
        }
    }
}

/// Writes in all namespaces or in one, until the cluster serves other kinds.
struct Writer<'i> {
    claims: &'i Claims,
    /// Writes only while this host is the leader.
    client: Client,
    kinds: BTreeSet<&'static Resource>,
    watched: Watched<Seen>,
    /// The last write of each object and the version it was based on: the watch may not have brought the next version yet.
    written: BTreeMap<ObjectKey, (String, Value)>,
    /// The failed writes, and the times to retry them.
    failed: BTreeMap<ObjectKey, Instant>,
    /// The kinds that we have no right to write, and the times to retry.
    paused: BTreeMap<&'static Resource, Instant>,
    /// The problem that was logged last.
    problem: Option<String>,
}

impl<'i> Writer<'i> {
    fn new(inputs: &'i Inputs, namespace: Option<&str>, kinds: &BTreeSet<&'static Resource>) -> Self {
        Self {
            claims: &inputs.claims,
            client: fenced(inputs.client.clone(), inputs.leadership.clone()),
            watched: watch(&inputs.client, namespace, kinds),
            kinds: kinds.clone(),
            written: BTreeMap::new(),
            failed: BTreeMap::new(),
            paused: BTreeMap::new(),
            problem: None,
        }
    }

    async fn run(&mut self) {
        let mut changed = self.watched.changed();
        loop {
            self.write().await;
            let retry_at = self.failed.values().chain(self.paused.values()).min().copied();
            let retry = async {
                match retry_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changed.changed() => if changed.is_err() { return },
                () = retry => {}
            }
            sleep(GATHER).await;
        }
    }

    /// Writes the differences.
    async fn write(&mut self) {
        let obstacle = self.watched.lock().unlisted.obstacle();
        if let Some(obstacle) = obstacle {
            let why = obstacle.failure();
            self.log(why.map(|why| format!("the status of InferenceObjectives and InferenceModelRewrites isn't written: {why}")));
            return;
        }
        let now = Instant::now();
        self.failed.retain(|_, until| now < *until);
        self.paused.retain(|_, until| now < *until);
        let requests: Vec<_> = self.writes().into_iter().map(|write| send(self.client.clone(), write)).collect();
        let mut failures = BTreeMap::new();
        for (write, answer) in some_at_once(requests).await {
            let Write { key, resource_version, status, .. } = write;
            match answer {
                Ok(()) => _ = self.written.insert(key, (resource_version, without_times(&status))),
                Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                // The object has changed, which the watch reports, or another manager has set such a condition, which stays.
                Err(kube::Error::Api(answer)) if answer.code == 409 => {
                    self.written.insert(key, (resource_version, without_times(&status)));
                }
                Err(kube::Error::Api(answer)) if answer.code == 403 => {
                    self.paused.insert(key.resource, Instant::now() + FORBIDDEN_DELAY);
                    failures.insert(key, format!("{}: apply deploy/roles/{ROLE}", answer.message));
                }
                Err(error) => {
                    self.failed.insert(key.clone(), Instant::now() + RETRY_DELAY);
                    failures.insert(key, format!("{}; trying again", sentence(&error)));
                }
            }
        }
        if self.failed.is_empty() && self.paused.is_empty() {
            self.problem = None;
        }
        if let Some((key, why)) = failures.first_key_value() {
            self.log(Some(format!("the status of {key} can't be written: {why}")));
        }
    }

    /// Logs a problem once.
    fn log(&mut self, problem: Option<String>) {
        if let Some(problem) = problem.as_ref().filter(|problem| self.problem.as_ref() != Some(problem)) {
            tracing::warn!("{problem}");
        }
        self.problem = problem;
    }

    fn writes(&mut self) -> Vec<Write> {
        let serves = |kind: &str, group: &str| self.kinds.iter().any(|served| served.kind == kind && served.group == group);
        let now = Timestamp::now();
        let seen = self.watched.lock();
        let mut writes = Vec::new();
        let ours = |key: &ObjectKey| self.claims.contains_in(&LLM_INFERENCE_SERVICE, &key.namespace);
        let is_due = |key: &ObjectKey| !self.failed.contains_key(key) && !self.paused.contains_key(key.resource);
        for (key, user) in seen.users.iter().filter(|(key, _)| ours(key) && is_due(key)) {
            let is_superseded =
                key.resource.group != LLM_D_INFERENCE_OBJECTIVE.group && serves(key.resource.kind, LLM_D_INFERENCE_OBJECTIVE.group);
            let is_served = |group: &str| serves(INFERENCE_POOL.kind, group);
            let Some(status) = user.status_to_write(&key.namespace, &seen.pools, is_served, is_superseded, now) else { continue };
            let version = &user.live.resource_version;
            // The watch will bring the next version, which is then checked.
            let is_written = |(written, last): &(String, Value)| written == version && *last == without_times(&status);
            if !self.written.get(key).is_some_and(is_written) {
                writes.push(Write { key: key.clone(), uid: user.live.uid.clone(), resource_version: version.clone(), status });
            }
        }
        self.written.retain(|key, (version, _)| seen.users.get(key).is_some_and(|user| user.live.resource_version == *version));
        writes
    }
}

/// A status to write.
struct Write {
    key: ObjectKey,
    uid: String,
    resource_version: String,
    status: Value,
}

/// Sends a write.
async fn send(client: Client, write: Write) -> (Write, kube::Result<()>) {
    let Write { key, uid, resource_version, status } = &write;
    let resource = key.resource.api_resource();
    let api = objects(client, key);
    // With the version, an apply neither creates an object nor writes about a spec that has changed meanwhile. Without force, it leaves the
    // conditions of other managers unchanged.
    let metadata = json!({"name": key.name, "uid": uid, "resourceVersion": resource_version});
    let object = json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "status": status});
    let answer = api.patch_status(&key.name, &PatchParams::apply(STATUS_MANAGER), &Patch::Apply(object)).await;
    (write, answer.map(|_| ()))
}

/// A kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind(&'static Resource);

impl StoreKind for Kind {
    fn display_name(self) -> &'static str {
        self.0.plural
    }

    fn has_namespace(self) -> bool {
        true
    }
}

/// The objects from the watches.
#[derive(Debug, Default)]
struct Seen {
    users: BTreeMap<ObjectKey, PoolUser>,
    pools: Pools,
    unlisted: Unlisted<Kind>,
    names: BTreeSet<(Kind, Name)>,
}

impl Store for Seen {
    type Kind = Kind;

    fn put(&mut self, kind: Kind, name: &Name, text: &str) {
        let (namespace, object) = name;
        self.names.insert((kind, name.clone()));
        if POOLS.contains(&kind.0) {
            self.pools.entry((kind.0.group, object.clone())).or_default().insert(namespace.clone());
            return;
        }
        let key = ObjectKey { resource: kind.0, namespace: namespace.clone(), name: object.clone() };
        self.users.insert(key, PoolUser::from_object(&serde_json::from_str(text).unwrap_or_default()));
    }

    fn remove(&mut self, kind: Kind, name: &Name) {
        let (namespace, object) = name;
        self.names.remove(&(kind, name.clone()));
        if POOLS.contains(&kind.0) {
            let pool = (kind.0.group, object.clone());
            if let Some(namespaces) = self.pools.get_mut(&pool) {
                namespaces.remove(namespace);
                if namespaces.is_empty() {
                    self.pools.remove(&pool);
                }
            }
            return;
        }
        self.users.remove(&ObjectKey { resource: kind.0, namespace: namespace.clone(), name: object.clone() });
    }

    fn names(&self, kind: Kind) -> Vec<Name> {
        self.names.iter().filter(|(known, _)| *known == kind).map(|(_, name)| name.clone()).collect()
    }

    fn unlisted(&mut self) -> &mut Unlisted<Kind> {
        &mut self.unlisted
    }
}

/// Starts the watches, in all namespaces or in one.
fn watch(client: &Client, namespace: Option<&str>, kinds: &BTreeSet<&'static Resource>) -> Watched<Seen> {
    // Pools without users don't matter.
    let has_users = POOL_USERS.iter().any(|kind| kinds.contains(kind));
    let kinds = kinds.iter().filter(|_| has_users).map(|kind| Kind(kind));
    let mut watched = Watched::new(Seen { unlisted: Unlisted::new(kinds.clone()), ..Seen::default() });
    let folder = if namespace.is_none() { ROLE.to_owned() } else { format!("{}/{ROLE}", permissions::IN_NAMESPACE) };
    let role = MissingRole { folder, namespaces: namespace.map(str::to_owned).into_iter().collect() };
    for kind in kinds {
        let resource = kind.0.api_resource();
        let api: Api<ObjectText> = match namespace {
            None => Api::all_with(client.clone(), &resource),
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        watched.follow(kind, api, watcher::Config::default().page_size(LIST_PAGE_SIZE), role.to_string());
    }
    watched
}
