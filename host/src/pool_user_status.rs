//! Writes, on the leader, whether the pool is there that an InferenceObjective or an InferenceModelRewrite refers to.

use crate::{
    allocator::some_at_once,
    leader::{Leadership, fence::fenced},
    permissions,
    problem::sentence,
    watch::{
        apis::Apis,
        seen::ObjectText,
        store::{LIST_PAGE_SIZE, Name, Store, StoreKind, Unlisted, Watched},
    },
};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    runtime::watcher,
};
use pointsman_core::{
    claims::Claims,
    pool_refs::{PoolUser, Pools, STATUS_MANAGER},
    resource::{INFERENCE_POOL, LLM_INFERENCE_SERVICE, POOL_USERS, Resource, X_INFERENCE_POOL},
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

/// How long changes are gathered: they come in bursts.
const GATHER: Duration = Duration::from_millis(200);

/// After how long a write is tried again that has failed.
const RETRY_DELAY: Duration = Duration::from_secs(15);

/// The role with the rights to all this.
const ROLE: &str = "inference-pool";

/// The pools.
const POOLS: [&Resource; 2] = [&INFERENCE_POOL, &X_INFERENCE_POOL];

/// What it needs.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Inputs {
    /// The cluster.
    pub client: Client,
    /// Whether this host leads.
    pub leadership: Leadership,
    /// The namespaces and kinds that are ours.
    pub claims: Claims,
    /// Which kinds the cluster serves.
    pub apis: watch::Receiver<Apis>,
}

/// Writes while this host leads. It never ends.
pub async fn run(inputs: Inputs) {
    let mut leadership = inputs.leadership.clone();
    loop {
        leadership.for_a_term(lead(&inputs)).await;
    }
}

/// The kinds of ours that the cluster serves.
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
        let other = async {
            // Kinds come and go.
            _ = apis.wait_for(|apis| served(apis) != kinds).await;
        };
        let mut serving = Serving::new(inputs, kinds.clone());
        tokio::select! {
            () = other => {}
            () = serving.run() => {}
        }
    }
}

/// As long as the cluster serves the same kinds.
struct Serving<'i> {
    claims: &'i Claims,
    /// Writes only while we lead.
    client: Client,
    kinds: BTreeSet<&'static Resource>,
    watched: Watched<Seen>,
    /// The versions in which objects were written whose next version the watch hasn't brought yet.
    written: BTreeMap<ObjectKey, String>,
    /// What was logged last.
    problem: Option<String>,
}

impl<'i> Serving<'i> {
    fn new(inputs: &'i Inputs, kinds: BTreeSet<&'static Resource>) -> Self {
        Self {
            claims: &inputs.claims,
            client: fenced(inputs.client.clone(), inputs.leadership.clone()),
            watched: start(&inputs.client, &inputs.claims.namespaces, &kinds),
            kinds,
            written: BTreeMap::new(),
            problem: None,
        }
    }

    async fn run(&mut self) {
        let mut changed = self.watched.changed();
        loop {
            let retry_at = self.write().await.then(|| Instant::now() + RETRY_DELAY);
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

    /// Writes what differs. Returns whether something couldn't be written.
    async fn write(&mut self) -> bool {
        let obstacle = self.watched.lock().unlisted.obstacle();
        if let Some(obstacle) = obstacle {
            self.log(obstacle.failure().map(|why| format!("what refers to pools isn't looked at: {why}")));
            return false;
        }
        let requests: Vec<_> = self.writes().into_iter().map(|write| send(self.client.clone(), write)).collect();
        let mut failure = None;
        for (key, version, answer) in some_at_once(requests).await {
            match answer {
                Ok(()) => _ = self.written.insert(key, version),
                // It has changed, or is gone: the watch brings that.
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
                Err(error) => failure = Some(format!("the status of {key} can't be written: {}; trying again", sentence(&error))),
            }
        }
        let has_failed = failure.is_some();
        self.log(failure);
        has_failed
    }

    fn log(&mut self, problem: Option<String>) {
        if let Some(problem) = problem.as_ref().filter(|problem| self.problem.as_ref() != Some(problem)) {
            tracing::warn!("{problem}");
        }
        self.problem = problem;
    }

    fn writes(&mut self) -> Vec<Write> {
        // Who looks after no services with a scheduler doesn't say which pools have one.
        let is_ours = |namespace: &str| {
            let any = ObjectKey { resource: &LLM_INFERENCE_SERVICE, namespace: namespace.to_owned(), name: String::new() };
            self.claims.contains(&any)
        };
        let is_served = |group: &str| self.kinds.iter().any(|kind| kind.kind == INFERENCE_POOL.kind && kind.group == group);
        let now = Timestamp::now();
        let seen = self.watched.lock();
        let mut writes = Vec::new();
        for (key, user) in seen.users.iter().filter(|(key, _)| is_ours(&key.namespace)) {
            if let Some(status) = user.status_to_write(&key.namespace, &seen.pools, is_served, now) {
                let (uid, resource_version) = (user.live.uid.clone(), user.live.resource_version.clone());
                writes.push(Write { key: key.clone(), uid, resource_version, status });
            }
        }
        // The next version comes, and is looked at then.
        writes.retain(|write| self.written.get(&write.key) != Some(&write.resource_version));
        self.written.retain(|key, version| seen.users.get(key).is_some_and(|user| user.live.resource_version == *version));
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

/// Sends it. Returns the version in which it was written.
async fn send(client: Client, write: Write) -> (ObjectKey, String, kube::Result<()>) {
    let Write { key, uid, resource_version, status } = write;
    let resource = key.resource.api_resource();
    let api: Api<DynamicObject> = Api::namespaced_with(client, &key.namespace, &resource);
    // With its version, an apply creates nothing, and writes nothing about a spec that has changed meanwhile.
    let metadata = json!({"name": key.name, "uid": uid, "resourceVersion": resource_version});
    let object = json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "status": status});
    let answer = api.patch_status(&key.name, &PatchParams::apply(STATUS_MANAGER).force(), &Patch::Apply(object)).await;
    (key, resource_version, answer.map(|_| ()))
}

/// A kind, in all namespaces or in the one at this place of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind(&'static Resource, usize);

impl StoreKind for Kind {
    fn display_name(self) -> &'static str {
        self.0.plural
    }

    fn has_namespace(self) -> bool {
        true
    }
}

/// What the watches have seen.
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

/// Begins to watch, in all namespaces if none are given.
fn start(client: &Client, namespaces: &BTreeSet<String>, kinds: &BTreeSet<&'static Resource>) -> Watched<Seen> {
    let limits: Vec<Option<&str>> =
        if namespaces.is_empty() { vec![None] } else { namespaces.iter().map(|namespace| Some(&**namespace)).collect() };
    // Without anything that refers to a pool, nobody asks for pools.
    let is_used = POOL_USERS.iter().any(|kind| kinds.contains(kind));
    let kinds = kinds.iter().filter(|_| is_used).flat_map(|kind| (0..limits.len()).map(|at| Kind(kind, at)));
    let mut watched = Watched::new(Seen { unlisted: Unlisted::new(kinds.clone()), ..Seen::default() });
    for kind in kinds {
        let resource = kind.0.api_resource();
        let namespace = limits[kind.1];
        let api: Api<ObjectText> = match namespace {
            None => Api::all_with(client.clone(), &resource),
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        let folder = if namespace.is_none() { ROLE.to_owned() } else { format!("{}/{ROLE}", permissions::IN_NAMESPACE) };
        let role = MissingRole { folder, namespaces: namespace.map(str::to_owned).into_iter().collect() };
        watched.follow(kind, api, watcher::Config::default().page_size(LIST_PAGE_SIZE), role.to_string());
    }
    watched
}
