//! Measures the memory of InferenceModels on the leader, and writes the peaks to their Deployments. Plans read them there, and write the
//! status.

mod metrics_api;
mod pod_metrics;
mod prometheus;
mod source;

pub use source::{DEFAULT_METRIC, DEFAULT_QUERY, Source};

use crate::{
    allocator::{annotate, some_at_once},
    leader::{Leadership, fence::fenced},
    outbound::OutboundError,
    problem::sentence,
    watch::{Shared, each_namespace},
};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{Client, ResourceExt, api::ListParams};
use pointsman_core::{
    allocation::inputs::{PodUsage, SERVER},
    claims::Claims,
    memory_usage::{MEMORY_USAGE, MemoryUsage},
    planning,
    resource::{DEPLOYMENT, INFERENCE_MODEL},
    subject_kind::APP_COMPONENT,
    world::{ObjectKey, Snapshot},
};
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{MissedTickBehavior, interval};

/// The field manager of the annotation.
const MANAGER: &str = "pointsman/memory-usage";

/// The inputs of [`run`].
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Inputs {
    /// The cluster.
    pub client: Client,
    /// Whether this host is the leader.
    pub leadership: Leadership,
    /// The world, which has the models.
    pub shared: Shared,
    /// The subjects that this host serves.
    pub claims: Claims,
    /// The source of the measurements.
    pub source: Source,
    /// The interval of measurements.
    pub interval: Duration,
}

/// A running pod of a model.
#[derive(Clone, Debug)]
struct ModelPod {
    /// Its namespace and its name.
    name: PodName,
    /// The label that names the model.
    model: String,
    ip: Option<String>,
}

/// The namespace and the name of a pod.
type PodName = (String, String);

/// The memory of pods, in bytes.
type Measured = BTreeMap<PodName, i64>;

/// Measures while this host is the leader. It never ends.
pub async fn run(inputs: Inputs) {
    let writing = fenced(inputs.client.clone(), inputs.leadership.clone());
    let mut leadership = inputs.leadership.clone();
    loop {
        leadership.for_a_term(inputs.measure_repeatedly(&writing)).await;
    }
}

impl Inputs {
    async fn measure_repeatedly(&self, writing: &Client) {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut complaint = None;
        loop {
            ticks.tick().await;
            let failure = self.measure(writing).await.err().map(|error| sentence(&*error));
            if failure != complaint {
                if let Some(why) = &failure {
                    tracing::warn!(source = %self.source, "the memory of InferenceModels can't be measured; trying again: {why}");
                } else {
                    tracing::info!(source = %self.source, "the memory of InferenceModels is measured");
                }
                complaint = failure;
            }
        }
    }

    async fn measure(&self, writing: &Client) -> Result<(), OutboundError> {
        let models = self.models();
        if models.is_empty() {
            return Ok(());
        }
        let pods = self.pods().await?;
        if pods.is_empty() {
            return Ok(());
        }
        let measured = self.source.measure(&self.client, &self.claims.namespaces, &pods).await?;
        let mut peaks: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for ModelPod { name, model, .. } in &pods {
            if let Some(bytes) = measured.get(name) {
                let peak = peaks.entry((&name.0, model)).or_default();
                *peak = (*peak).max(*bytes);
            }
        }
        let now = Timestamp::now();
        let mut writes = Vec::new();
        for snapshot in &models {
            let Some(&bytes) = peaks.get(&(&*snapshot.subject.key.namespace, &*snapshot.subject.label)) else { continue };
            if let Some(usage) = usage_after(snapshot, bytes, now) {
                writes.push(write(writing.clone(), snapshot.subject.key.clone(), usage));
            }
        }
        Ok(some_at_once(writes).await.into_iter().collect::<kube::Result<()>>()?)
    }

    /// The models that this host serves.
    fn models(&self) -> Vec<Snapshot> {
        let world = self.shared.lock();
        let ours = world.keys(&INFERENCE_MODEL).into_iter().filter(|key| self.claims.contains(key));
        ours.filter_map(|key| world.snapshot(&key, 0)).filter(|snapshot| planning::theirs(snapshot).is_none()).collect()
    }

    /// Their running pods.
    async fn pods(&self) -> kube::Result<Vec<ModelPod>> {
        let mut pods = Vec::new();
        for api in each_namespace::<Pod>(&self.client, &self.claims.namespaces) {
            for pod in api.list(&ListParams::default().labels(&of_models())).await? {
                let name = (pod.namespace().unwrap_or_default(), pod.name_any());
                let model = serde_json::to_string(&pod).ok().and_then(|text| PodUsage::from_object(&text)?.model);
                let status = pod.status.unwrap_or_default();
                if let Some((_, model)) = model.filter(|_| status.phase.as_deref() == Some("Running")) {
                    pods.push(ModelPod { name, model, ip: status.pod_ip });
                }
            }
        }
        Ok(pods)
    }
}

/// The label selector of models' pods.
fn of_models() -> String {
    format!("{APP_COMPONENT}={SERVER}")
}

/// The peak to write for a model whose pod uses this memory. While its pods are being replaced, it isn't known which image uses it.
fn usage_after(model: &Snapshot, bytes: i64, now: Timestamp) -> Option<MemoryUsage> {
    let deployment = model.child(&DEPLOYMENT, &model.subject.key.name).filter(|deployment| deployment.ours())?;
    let observed = &deployment.observed;
    let is_replaced = !observed.current_generation() || observed.updated < observed.current;
    let content = model.subject.content();
    let image = content["spec"]["containerImage"].as_str().filter(|_| !is_replaced)?;
    MemoryUsage::after(observed.memory_usage.as_deref(), bytes, image, now)
}

async fn write(client: Client, model: ObjectKey, usage: MemoryUsage) -> kube::Result<()> {
    let text = serde_json::to_string(&usage).map_err(kube::Error::SerdeError)?;
    annotate(client, &model, MANAGER, json!({MEMORY_USAGE: text})).await
}

/// A number of bytes; none if it isn't a valid number.
fn whole_bytes(number: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "a float's cast saturates")]
    (number.is_finite() && number >= 0.0).then_some(number as i64)
}
