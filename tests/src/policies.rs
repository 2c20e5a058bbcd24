//! Policies in the tests: plugins as shipped, clusters with policies, and the engine in this process.

use crate::{TestCluster, client, eventually, pointsman, pool::PooledCluster};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Event},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
};
use pointsman::{
    comparison::LiveComparison,
    keeper::{
        Options,
        start::{SandboxOptions, Started, start},
    },
    leader::{Timing, agreement::Agreement, campaign},
    liveness::Liveness,
    pace::Pacer,
    source::{SOURCES, Source, config_map::Namespaces},
    trust::Trust,
    watch::Shared,
};
use pointsman_core::{claims::Claims, decide::Policies, settings::HOST_NAMESPACE};
use pointsman_crds::policy::plugin::{PolicyPlugin, PolicyPluginStatus};
use pointsman_harness::plugins::plugin;
use pointsman_sandbox::compile::Compilers;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{sync::watch, task::JoinHandle};

/// The core module of one of our plugins' packages, up to date.
pub fn plugin_bytes(package: &str) -> Vec<u8> {
    let file = plugin(package);
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The same plugin with another digest, by a custom section that is never read.
pub fn with_other_digest(plugin: &[u8], number: usize) -> Vec<u8> {
    with_section(plugin, format!("{number:08}").as_bytes())
}

/// A plugin with a custom section.
pub fn with_section(plugin: &[u8], content: &[u8]) -> Vec<u8> {
    let section = [b"\x07comment", content].concat();
    let mut bytes = plugin.to_vec();
    bytes.push(0);
    let mut length = section.len();
    loop {
        let low = u8::try_from(length & 0x7f).expect("seven bits");
        length >>= 7;
        bytes.push(if length == 0 { low } else { low | 0x80 });
        if length == 0 {
            break;
        }
    }
    bytes.extend(section);
    bytes
}

/// A control plane for one test, with our CRDs and the host's namespace, because PolicyPlugins are cluster-wide.
#[derive(Debug)]
pub struct PolicyCluster(PolicyClusterKind);

#[derive(Debug)]
enum PolicyClusterKind {
    Pooled(PooledCluster),
    Other(TestCluster),
}

impl Deref for PolicyCluster {
    type Target = TestCluster;
    fn deref(&self) -> &TestCluster {
        match &self.0 {
            PolicyClusterKind::Pooled(cluster) => cluster,
            PolicyClusterKind::Other(cluster) => cluster,
        }
    }
}

impl PolicyCluster {
    /// An API server and its storage, in the state after their start.
    #[allow(clippy::unused_async)] // Its callers are asynchronous.
    pub async fn start() -> Self {
        Self(PolicyClusterKind::Pooled(PooledCluster::take()))
    }

    /// A given cluster, for tests that don't only need policies.
    pub fn from_cluster(cluster: TestCluster) -> Self {
        Self(PolicyClusterKind::Other(cluster))
    }

    /// A folder of this cluster, for caches and plugin files.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.join(name);
        std::fs::create_dir_all(&folder).expect("making a folder");
        folder
    }

    /// Writes a ConfigMap in the host's namespace with bytes under plugin.wasm.
    pub async fn config_map(&self, name: &str, bytes: &[u8]) {
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(name.to_owned()), namespace: Some(HOST_NAMESPACE.to_owned()), ..ObjectMeta::default() },
            binary_data: Some([("plugin.wasm".to_owned(), ByteString(bytes.to_vec()))].into()),
            ..ConfigMap::default()
        };
        self.apply_config_map(&map).await;
    }

    /// Applies a ConfigMap.
    pub async fn apply_config_map(&self, map: &ConfigMap) {
        let name = map.metadata.name.as_deref().unwrap_or_default();
        let api = Api::<ConfigMap>::namespaced(self.client().await, HOST_NAMESPACE);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "annotations": map.metadata.annotations}, "data": map.data, "binaryData": map.binary_data,
        });
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&map)).await.expect("applying a ConfigMap");
    }

    /// Applies a PolicyPlugin.
    pub async fn plugin(&self, name: &str, spec: Value) {
        let plugin = json!({
            "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicyPlugin", "metadata": {"name": name}, "spec": spec,
        });
        let api = Api::<PolicyPlugin>::all(self.client().await);
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&plugin))
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Applies a PolicyPlugin for the ConfigMap of the same name, with `more` in its spec.
    pub async fn plugin_of_config_map(&self, name: &str, more: Value) {
        let mut spec = json!({"source": {"configMap": {"name": name}}});
        let more = more.as_object().cloned().unwrap_or_default();
        spec.as_object_mut().expect("a spec").extend(more);
        self.plugin(name, spec).await;
    }

    /// Deletes a PolicyPlugin.
    pub async fn delete_plugin(&self, name: &str) {
        let api = Api::<PolicyPlugin>::all(self.client().await);
        api.delete(name, &DeleteParams::default()).await.expect("deleting a PolicyPlugin");
    }

    /// The status of a PolicyPlugin, once it is as expected.
    pub async fn status(&self, name: &str, what: &str, expected: impl Fn(&PolicyPluginStatus) -> bool) -> PolicyPluginStatus {
        let api = Api::<PolicyPlugin>::all(self.client().await);
        let last = std::sync::Mutex::new(None);
        eventually(&format!("{name}: {what}"), async || {
            let plugin = api.get_opt(name).await.expect("reading a PolicyPlugin")?;
            let status = plugin.status?;
            let is_so = expected(&status) && status.observed_generation == plugin.metadata.generation;
            *last.lock().expect("no panic") = Some(status.clone());
            is_so.then_some(status)
        })
        .await
    }

    /// Waits until these bytes are active.
    pub async fn active(&self, name: &str, digest: &str) -> PolicyPluginStatus {
        self.status(name, &format!("{digest} is active"), |status| {
            condition(status, "Ready").is_some_and(|(state, ..)| state == "True")
                && status.active.as_ref().is_some_and(|active| active.digest == digest)
        })
        .await
    }

    /// Waits until the newest generation can't be loaded, and returns the reason and the message.
    pub async fn refused(&self, name: &str) -> (String, String) {
        let status =
            self.status(name, "it is refused", |status| condition(status, "Loaded").is_some_and(|(state, ..)| state == "False")).await;
        let (_, reason, message) = condition(&status, "Loaded").expect("it was there");
        (reason, message)
    }

    /// The events about a PolicyPlugin: reason and note.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        let events = Api::<Event>::all(self.client().await).list(&kube::api::ListParams::default()).await.expect("listing events");
        let about = events.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        about.map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
    }
}

/// A condition's status, reason and message.
pub fn condition(status: &PolicyPluginStatus, type_: &str) -> Option<(String, String, String)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

/// The controller's policy engine in this process, for tests that send questions themselves.
#[derive(Debug)]
pub struct Engine {
    /// The active policies.
    pub policies: Arc<Policies>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Starts it for a cluster, as a host with this identity, and waits until the recorded policies are active.
    pub async fn start(cluster: &TestCluster, identity: &str, cache: &Path) -> Self {
        Self::start_with_sources(cluster, identity, cache, SOURCES).await
    }

    /// Starts an engine of another version.
    pub async fn start_version(cluster: &TestCluster, identity: &str, cache: &Path, version: &str) -> Self {
        Self::with(client(&cluster.host_kubeconfig()).await, identity, cache, version, SOURCES).await
    }

    /// Starts an engine with these sources of plugins.
    pub async fn start_with_sources(cluster: &TestCluster, identity: &str, cache: &Path, sources: &'static [&'static dyn Source]) -> Self {
        Self::with(client(&cluster.host_kubeconfig()).await, identity, cache, env!("CARGO_PKG_VERSION"), sources).await
    }

    async fn with(client: Client, identity: &str, cache: &Path, version: &str, sources: &'static [&'static dyn Source]) -> Self {
        let (stop, stopping) = watch::channel(false);
        let mut stopping_too = stopping.clone();
        let resign = async move { _ = stopping_too.wait_for(|stop| *stop).await };
        let (leadership, campaign) =
            campaign(client.clone(), HOST_NAMESPACE, "pointsman", identity, Timing::default(), Agreement::default(), resign);
        let options = Options {
            namespace: HOST_NAMESPACE.to_owned(),
            identity: identity.to_owned(),
            directory: None,
            namespaces: Namespaces::Own,
            sources,
            trust: Trust::default(),
            enabled_rules: BTreeSet::new(),
            strategy: None,
            version: version.to_owned(),
        };
        let compilers = Compilers::new(pointsman(), cache).expect("a cache of compiled plugins");
        // It has no subjects to compare.
        let (_, listed) = watch::channel(None);
        let stage = LiveComparison::new(Shared::default(), Claims::default(), pointsman_core::settings::Settings::default(), listed);
        let pacer = Arc::new(Pacer::new(None));
        let settings = SandboxOptions { compilers, options, stage: Arc::new(stage), pacer, liveness: Liveness::default() };
        let (Started { policies, mut obstacle, .. }, keep) = start(client, settings, leadership).await.expect("starting the engine");
        let tasks = vec![tokio::spawn(keep), tokio::spawn(campaign)];
        obstacle.wait_for(Option::is_none).await.expect("the engine runs");
        Self { policies, stop, tasks }
    }

    /// Stops it gracefully.
    pub async fn stop(mut self) {
        self.tasks[0].abort();
        self.stop.send_replace(true);
        for task in &mut self.tasks {
            task.await.ok();
        }
    }
}
