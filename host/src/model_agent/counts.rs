//! The agent's metrics, under the same names as those of OME's agent.

use pointsman_core::model_nodes::assignment::ModelObject;
use pointsman_download::Outcome;
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

type Labels = [(&'static str, String); 3];

/// The metrics that are counted as events happen. Models that are gone keep their series until the agent ends.
#[derive(Debug, Default)]
pub struct Counts {
    successes: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    bytes: Family<Labels, Counter>,
}

fn labels(model: &ModelObject) -> Labels {
    let kind = if model.namespace.is_empty() { "ClusterBaseModel" } else { "BaseModel" };
    [("model_type", kind.to_owned()), ("namespace", model.namespace.clone()), ("name", model.name.clone())]
}

impl Counts {
    pub(super) fn downloaded(&self, model: &ModelObject, outcome: &Outcome) {
        self.successes.get_or_create(&labels(model)).inc();
        self.bytes.get_or_create(&labels(model)).inc_by(outcome.downloaded_bytes);
    }

    pub(super) fn failed(&self, model: &ModelObject) {
        self.failures.get_or_create(&labels(model)).inc();
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let families = [
            ("model_agent_downloads_success", "Models that were downloaded.", &self.successes),
            ("model_agent_downloads_failed", "Attempts to download a model to the node that failed.", &self.failures),
            ("model_agent_download_bytes", "Bytes that were downloaded for models that are complete.", &self.bytes),
        ];
        for (name, help, family) in families {
            registry.register(name, help, family.clone());
        }
    }
}
