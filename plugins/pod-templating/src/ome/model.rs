//! How the model gets into the pod.

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
    /// Whether nobody has put it on the nodes.
    download: bool,
    /// How many tokens it can work on at once, where somebody limits that.
    pub(super) max_tokens: Option<u64>,
}

impl Model {
    /// Where the model is, in the pod.
    pub(crate) fn path(&self, config: &Config) -> String {
        match self.path.as_deref() {
            Some(path) if !path.is_empty() => path.to_owned(),
            _ => format!("{}/{}", config.model_root.trim_end_matches('/'), self.name),
        }
    }

    /// Brings the model into the main container, tells it where, and sends the pod where the model is. The answer is whether the storage
    /// holds it now.
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

    /// Where the model is before the pod starts: what isn't on a claim somebody has put on the nodes, unless it is to be downloaded.
    fn origin(&self, what: &str, path: &str, subject: &Subject) -> Result<Origin<'_>, Failure> {
        let uri = self.storage_uri.as_deref();
        if self.download {
            return Origin::from_uri(uri, what, subject);
        }
        let claim = Claim::of_subject(uri.unwrap_or_default(), &format!("the {what}"), subject)?;
        Ok(claim.map_or_else(|| Origin::Node(path.to_owned()), Origin::Claim))
    }

    /// Only nodes that have the model, which its agent says by a label.
    fn place<'a>(&self, pod: &mut Pod<'a>, by: By<'a>, reasons: &mut Vec<Reason>) {
        let Some(label) = self.node_label.as_deref().filter(|label| !label.is_empty()) else { return };
        let Some(selector) = pod.spec.object_at("nodeSelector", by) else { return };
        if selector.get(label).is_none() {
            selector.set(label, Node::text("Ready", by));
            reasons.push(reason("Placement", format!("The pod runs on a node with the label {label}=Ready, which has the model.")));
        }
    }
}
