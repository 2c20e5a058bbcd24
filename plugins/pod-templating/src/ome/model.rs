//! Provides the model in the pod.

use super::{
    files::{Files, Origin},
    storage::Storage,
};
use crate::{
    Config,
    node::{By, Node},
    pod::{Pod, set_variable},
    volume::Claim,
};
use pointsman_plugin::{Failure, Reason, Subject, reason};
use serde::Deserialize;

/// The init container that downloads the model.
pub(super) const INITIALIZER: &str = "model-initializer";

/// The layer `model`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Model {
    name: String,
    path: Option<String>,
    storage_uri: Option<String>,
    node_label: Option<String>,
    /// Whether the model must be downloaded, because it isn't on the nodes.
    download: bool,
    /// The limit for the number of tokens that it may process at once, if there is one.
    pub(super) max_tokens: Option<u64>,
}

impl Model {
    /// The path of the model in the pod.
    pub(crate) fn path(&self, config: &Config) -> String {
        match self.path.as_deref() {
            Some(path) if !path.is_empty() => path.to_owned(),
            _ => format!("{}/{}", config.model_root.trim_end_matches('/'), self.name),
        }
    }

    /// Provides the model in the main container, sets its path there, and places the pod on nodes with the model. Returns whether the
    /// storage now contains it.
    pub(crate) fn mount(
        &self,
        config: &Config,
        subject: &Subject,
        storage: Option<&Storage>,
        pod: &mut Pod<'_>,
        reasons: &mut Vec<Reason>,
    ) -> Result<bool, Failure> {
        let by = By { rank: usize::MAX, layer: "model" };
        let (what, path) = (format!("model {}", self.name), self.path(config));
        let origin = self.origin(&what, &path, subject)?;
        if let Some(main) = pod.main_mut() {
            set_variable(main, "MODEL_PATH", &*path, by);
        }
        let on_nodes = !self.download && matches!(origin, Origin::Node(_));
        let initializer = (INITIALIZER, &*config.storage_initializer);
        let stored = Files { what: &what, origin, path: &path, volume: "model", initializer }.bring(storage, pod, by, reasons)?;
        if config.placement && on_nodes {
            self.place(pod, by, reasons);
        }
        Ok(stored)
    }

    /// The location of the model before the pod starts. A model that isn't on a claim is already on the nodes, unless it must be
    /// downloaded.
    fn origin(&self, what: &str, path: &str, subject: &Subject) -> Result<Origin<'_>, Failure> {
        let uri = self.storage_uri.as_deref();
        if self.download {
            return Origin::from_uri(uri, what, subject);
        }
        let claim = Claim::of_subject(uri.unwrap_or_default(), &format!("the {what}"), subject)?;
        Ok(claim.map_or_else(|| Origin::Node(path.to_owned()), Origin::Claim))
    }

    /// Restricts the pod to nodes with the model, which the model agent labels.
    fn place<'a>(&self, pod: &mut Pod<'a>, by: By<'a>, reasons: &mut Vec<Reason>) {
        let Some(label) = self.node_label.as_deref().filter(|label| !label.is_empty()) else { return };
        let Some(selector) = pod.spec.object_at("nodeSelector", by) else { return };
        if selector.get(label).is_none() {
            selector.set(label, Node::text("Ready", by));
            reasons.push(reason("Placement", format!("The pod runs on a node with the label {label}=Ready, which has the model.")));
        }
    }
}
