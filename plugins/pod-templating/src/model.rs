//! How the model gets into the pod.

use crate::{
    Config,
    node::{By, Node},
    pod::{Pod, set_variable},
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

/// A claim that holds the model.
struct Claim<'m> {
    name: &'m str,
    sub_path: &'m str,
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
        let at =
            |mount: &Node<'_>| mount.text_at("mountPath").is_some_and(|other| other.trim_end_matches('/') == path.trim_end_matches('/'));
        if main.items_at("volumeMounts").iter().any(at) {
            reasons.push(reason("ModelMountKept", format!("Something is mounted at {path} already, so the model {} isn't.", self.name)));
        } else {
            let volume = add_volume(pod, &path, claim.as_ref(), by);
            let text = |text: &str| Node::text(text, by);
            let mut mount = Node::object([("name", text(&volume)), ("mountPath", text(&path)), ("readOnly", flag(by))], by);
            if let Some(Claim { sub_path, .. }) = claim.as_ref().filter(|claim| !claim.sub_path.is_empty()) {
                mount.set("subPath", text(sub_path));
            }
            if let Some(mounts) = pod.main_mut().and_then(|main| main.list_at("volumeMounts", by)) {
                mounts.push(mount);
            }
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
        let Some((uri, rest)) = self.storage_uri.as_deref().and_then(|uri| Some((uri, uri.strip_prefix("pvc://")?))) else {
            return Ok(None);
        };
        let (claim, sub_path) = rest.split_once('/').unwrap_or((rest, ""));
        let (namespace, name) = claim.split_once(':').map_or((None, claim), |(namespace, name)| (Some(namespace), name));
        if name.is_empty() {
            return Err(format!(
                "the storage URI {uri} of the model {} names no claim: write pvc://CLAIM/PATH or pvc://NAMESPACE:CLAIM/PATH",
                self.name
            )
            .into());
        }
        match namespace {
            Some(namespace) if namespace != subject.namespace => Err(format!(
                "the model {} is in the claim {name} of the namespace {namespace}, and a pod can only mount claims of its own, {}: \
                 serve the model in {namespace}, or make a claim in {} and a model that names it",
                self.name, subject.namespace, subject.namespace
            )
            .into()),
            _ => Ok(Some(Claim { name, sub_path: sub_path.trim_matches('/') })),
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

fn flag(by: By<'_>) -> Node<'_> {
    Node { by, form: crate::node::Form::Scalar(true.into()) }
}

/// Adds the volume that holds the model, and tells its name.
fn add_volume<'a>(pod: &mut Pod<'a>, path: &str, claim: Option<&Claim<'_>>, by: By<'a>) -> String {
    let taken = |name: &str| pod.spec.items_at("volumes").iter().any(|volume| volume.text_at("name") == Some(name));
    let mut name = "model".to_owned();
    let mut number = 1;
    while taken(&name) {
        name = if number == 1 { "model-files".to_owned() } else { format!("model-files-{number}") };
        number += 1;
    }
    let source = match claim {
        None => ("hostPath", Node::object([("path", Node::text(path, by))], by)),
        Some(claim) => {
            let fields = [("claimName", Node::text(claim.name, by)), ("readOnly", flag(by))];
            ("persistentVolumeClaim", Node::object(fields, by))
        }
    };
    if let Some(volumes) = pod.spec.list_at("volumes", by) {
        volumes.push(Node::object([("name", Node::text(&*name, by)), source], by));
    }
    name
}
