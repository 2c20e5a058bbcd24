//! How the model gets into the pod.

use crate::{
    Config,
    node::{By, Node},
    pod::{Pod, set_variable},
    volume::{self, Claim},
};
use pointsman_plugin::{Failure, Reason, Subject, reason};
use serde::Deserialize;

/// The layer `model`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Model {
    name: String,
    path: Option<String>,
    storage_uri: Option<String>,
    node_label: Option<String>,
}

impl Model {
    /// Where the model is, in the pod.
    pub(crate) fn path(&self, config: &Config) -> String {
        match self.path.as_deref() {
            Some(path) if !path.is_empty() => path.to_owned(),
            _ => format!("{}/{}", config.model_root.trim_end_matches('/'), self.name),
        }
    }

    /// Mounts the model into the main container, tells it where, and sends the pod where the model is.
    pub(crate) fn mount(&self, config: &Config, subject: &Subject, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
        let by = By { rank: usize::MAX, layer: "model" };
        let path = self.path(config);
        let claim = self.claim(subject)?;
        let Some(main) = pod.main_mut() else { return Ok(()) };
        set_variable(main, "MODEL_PATH", &*path, by);
        if volume::is_mounted(main, &path) {
            reasons.push(reason("ModelMountKept", format!("Something is mounted at {path} already, so the model {} isn't.", self.name)));
        } else {
            let source =
                claim.as_ref().map_or_else(|| ("hostPath", Node::object([("path", Node::text(&*path, by))], by)), |claim| claim.source(by));
            let volume = volume::add(pod, "model", source, by);
            volume::mount(pod, &volume, &path, claim.as_ref().map_or("", |claim| claim.sub_path), by);
            reasons.push(match &claim {
                None => reason("ModelFromNode", format!("The model {} comes from the node's {path}.", self.name)),
                Some(claim) => {
                    reason("ModelFromClaim", format!("The model {} is mounted at {path}, from the claim {}.", self.name, claim.name))
                }
            });
        }
        if config.placement && claim.is_none() {
            self.place(pod, by, reasons);
        }
        Ok(())
    }

    /// The claim that the storage URI names, if it is one of those.
    fn claim(&self, subject: &Subject) -> Result<Option<Claim<'_>>, Failure> {
        let Some((uri, claim)) = self.storage_uri.as_deref().and_then(|uri| Some((uri, Claim::of(uri)?))) else { return Ok(None) };
        if claim.name.is_empty() {
            return Err(format!(
                "the storage URI {uri} of the model {} names no claim: write pvc://CLAIM/PATH or pvc://NAMESPACE:CLAIM/PATH",
                self.name
            )
            .into());
        }
        match claim.namespace {
            Some(namespace) if namespace != subject.namespace => Err(format!(
                "the model {} is in the claim {} of the namespace {namespace}, and a pod can only mount claims of its own, {}: \
                 serve the model in {namespace}, or make a claim in {} and a model that names it",
                self.name, claim.name, subject.namespace, subject.namespace
            )
            .into()),
            _ => Ok(Some(claim)),
        }
    }

    /// Only nodes that have the model, which its agent says by a label.
    fn place<'a>(&self, pod: &mut Pod<'a>, by: By<'a>, reasons: &mut Vec<Reason>) {
        let Some(label) = self.node_label.as_deref().filter(|label| !label.is_empty()) else { return };
        let Some(spec) = pod.spec.fields_mut() else { return };
        let selector = spec.entry("nodeSelector".to_owned()).or_insert_with(|| Node::object([], by));
        if selector.get(label).is_none() {
            selector.set(label, Node::text("Ready", by));
            reasons.push(reason("Placement", format!("The pod goes to a node with the label {label}=Ready, which has the model.")));
        }
    }
}
