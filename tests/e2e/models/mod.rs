//! InferenceModels end to end: models that compete for the memory of nodes, on an embedded control plane with its real controllers.

mod admission;
mod clients;
mod crashes;
mod gateway;
mod memory_usage;
mod nodes;
mod observed;
mod policies;
mod random;
mod served;
mod specs;

use crate::services::{LastSeen, Space, condition, home};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use pointsman_core::{
    allocation::{
        ObjectName, Phase,
        records::{
            ACTIVITY, GATEWAY_ACTIVITY, GATEWAY_PREFIX, GatewayActivity, ModelActivity, PLACES, RESERVATIONS, Reservation, Reservations,
        },
    },
    resource::INFERENCE_MODEL,
    settings::HOST_NAMESPACE,
};
use pointsman_tests::eventually;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

/// Nodes of one test: a label selects them, and only pods with GPUs run on them.
struct Pool<'s, 'c> {
    space: &'s Space<'c>,
    name: String,
}

impl<'s, 'c> Pool<'s, 'c> {
    /// Creates one node per amount of memory.
    fn new(space: &'s Space<'c>, memory: &[&str]) -> Self {
        let pool = Self { space, name: space.0.name.clone() };
        let nodes: Vec<Value> = memory.iter().enumerate().map(|(at, memory)| pool.node_yaml(at, memory)).collect();
        space.0.cluster.add_nodes(&json!({ "nodes": nodes }).to_string()).unwrap();
        pool
    }

    fn node_yaml(&self, at: usize, memory: &str) -> Value {
        json!({
            "name": self.node(at), "labels": {"inference-pool": self.name, "at": at.to_string()},
            "taints": [{"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}],
            "capacity": {"cpu": "64", "memory": memory, "nvidia.com/gpu": "64"},
        })
    }

    fn node(&self, at: usize) -> String {
        format!("{}-{at}", self.name)
    }

    /// The name of a model in requests, which is unique to this test.
    fn model_name(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// Creates a model without a minimum time awake.
    async fn create(&self, name: &str, memory: &str, more: Value) {
        let mut spec = json!({
            "modelName": self.model_name(name), "memory": memory, "backendUrl": format!("http://{name}:8000"),
            "containerImage": "example.com/vllm:1", "nodeSelector": {"inference-pool": self.name}, "resources": {"requests": {"gpu": "1"}},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let annotations = json!({"pointsman.dev/minimum-residency": "0s"});
        self.space.create(&INFERENCE_MODEL, name, json!({"metadata": {"annotations": annotations}, "spec": spec})).await;
    }

    async fn says(&self, name: &str, type_: &str, status: &str, reason: &str) -> String {
        self.space.says_of(&INFERENCE_MODEL, name, type_, status, reason).await
    }

    /// Waits until the message of its condition `Allocated` contains this text.
    async fn explains(&self, name: &str, text: &str) -> String {
        let message = |model: &Value| condition(model, "Allocated")["message"].as_str().unwrap_or_default().to_owned();
        let expected = |model: &Value| message(model).contains(text);
        message(&self.space.becomes(&INFERENCE_MODEL, name, &format!("it says {text:?}"), expected).await)
    }

    async fn ready(&self, name: &str) {
        self.says(name, "Ready", "True", "Deployed").await;
    }

    /// The reservations for models of this namespace: the node and the entry of each.
    async fn reserved(&self) -> BTreeMap<String, (String, Reservation)> {
        let mut reserved = BTreeMap::new();
        for (node, places) in reservations(&self.space.0.client).await.0 {
            for (ObjectName(name), place) in places {
                if let Some(name) = name.strip_prefix(&format!("{}/", self.space.0.name)) {
                    assert!(reserved.insert(name.to_owned(), (node.clone(), place)).is_none(), "{name} has two places");
                }
            }
        }
        reserved
    }

    /// Waits until the reservations are as expected.
    async fn reserves(&self, what: &str, expected: &[(&str, usize)]) {
        let expected: BTreeMap<String, String> = expected.iter().map(|(name, at)| ((*name).to_owned(), self.node(*at))).collect();
        let last = LastSeen::default();
        eventually(what, async || {
            let reserved = self.reserved().await;
            last.note(format!("{reserved:?}"));
            let nodes: BTreeMap<String, String> = reserved.into_iter().map(|(name, (node, _))| (name, node)).collect();
            (nodes == expected).then_some(())
        })
        .await;
    }
}

/// Now, in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The reservations per node, and their resource version.
pub(crate) async fn reservations(client: &Client) -> (BTreeMap<String, Reservations>, String) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), HOST_NAMESPACE);
    let maps = api.list(&ListParams::default().labels(RESERVATIONS)).await.unwrap();
    let version = maps.metadata.resource_version.clone().unwrap();
    let data = maps.into_iter().filter_map(|map| map.data);
    (data.map(|data| (data["node"].clone(), serde_json::from_str(&data[PLACES]).unwrap())).collect(), version)
}

/// Writes the activity of a gateway. `written` must differ at each write.
async fn write_activity(client: &Client, name: &str, written: u64, models: BTreeMap<ObjectName, ModelActivity>) {
    let activity = GatewayActivity { written, models };
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {GATEWAY_ACTIVITY: "true"}},
        "data": {ACTIVITY: serde_json::to_string(&activity).unwrap()},
    });
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), HOST_NAMESPACE);
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(map)).await.unwrap();
}

/// Writes the activity of a simulated gateway for the models of a test; the real gateway has its own tests. For models of other tests it
/// reports no requests, and confirms that they are drained.
struct PlayedGateway {
    namespace: String,
    seen: watch::Sender<BTreeMap<ObjectName, ModelActivity>>,
    client: Client,
    name: String,
    task: JoinHandle<()>,
}

impl PlayedGateway {
    fn new(pool: &Pool<'_, '_>) -> Self {
        let client = pool.space.0.client.clone();
        let (seen, told) = watch::channel(BTreeMap::new());
        let namespace = pool.space.0.name.clone();
        let name = format!("{GATEWAY_PREFIX}{namespace}");
        let task = tokio::spawn(play(client.clone(), name.clone(), namespace.clone(), told));
        Self { namespace, seen, client, name, task }
    }

    /// Changes the reported activity.
    fn writes(&self, models: &[(&str, ModelActivity)]) {
        let models = models.iter().map(|(name, seen)| (ObjectName(format!("{}/{name}", self.namespace)), seen.clone()));
        self.seen.send_replace(models.collect());
    }

    /// Stops the gateway and deletes its ConfigMap.
    async fn leaves(self) {
        self.task.abort();
        let api: Api<ConfigMap> = Api::namespaced(self.client, HOST_NAMESPACE);
        api.delete(&self.name, &DeleteParams::default()).await.unwrap();
    }
}

async fn play(client: Client, name: String, namespace: String, mut seen: watch::Receiver<BTreeMap<ObjectName, ModelActivity>>) {
    for written in 1.. {
        let mut models = seen.borrow_and_update().clone();
        for (model, place) in reservations(&client).await.0.into_values().flatten() {
            if matches!(place.phase, Phase::Draining(_)) && !model.0.starts_with(&format!("{namespace}/")) {
                models.entry(model).or_default().drained = Some(place.since);
            }
        }
        write_activity(&client, &name, written, models).await;
        // In the meantime, models of other tests may begin to drain.
        timeout(Duration::from_secs(1), seen.changed()).await.ok();
    }
}

/// A space on the shared control plane, with the namespace of hosts.
async fn shared_space(what: &str) -> Space<'static> {
    let space = Space::shared_bare(what).await;
    home(space.0.cluster).await;
    space
}
