//! Provides the model and its adapters in the pod: KServe's initializer downloads them, or a volume contains them.
//!
//! For an image, KServe runs a sidecar and shares the process namespace, so that one container can access another's files. Kubernetes'
//! image volumes need neither.

use crate::{
    Config, MODELS, adapters,
    engine::{self, Engine},
    initializer::{self, Initializer},
    node::{By, Node},
    pod::Pod,
    volume::{self, Claim},
};
use pointsman_plugin::{Failure, Reason, Subject, pod_templating::Request, reason};
use serde::Deserialize;

/// The folder that contains one folder per adapter.
const ADAPTERS: &str = "/mnt/lora";

/// The folder of the model in an image, as in KServe's images.
const IMAGE_FOLDER: &str = "models";

/// The schemes that the initializer can download from.
const DOWNLOADS: [&str; 5] = ["hf://", "s3://", "gs://", "http://", "https://"];

/// The layer `model`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Model {
    uri: Option<String>,
    name: String,
    initializer: Option<bool>,
    adapters: Vec<Adapter>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Adapter {
    uri: Option<String>,
    name: Option<String>,
}

/// Files to provide at a path.
struct Artifact<'m> {
    /// A description for messages.
    what: String,
    uri: &'m str,
    path: String,
    /// The suffix that makes the names of its volumes and containers unique.
    suffix: String,
}

/// Provides the model and its adapters in the main container.
pub(crate) fn bring(config: &Config, request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    let by = By { layer: "model", ..By::PLUGIN };
    let Some(model) = request.layer::<Option<Model>>("model")?.flatten() else { return Ok(()) };
    if model.initializer == Some(false) {
        let message = "spec.storageInitializer.enabled is false, so the pod's own containers provide the model and its adapters.";
        reasons.push(reason("ModelLeft", message));
        return Ok(());
    }
    let mut artifacts = vec![Artifact {
        what: format!("the model {}", model.name),
        uri: model.uri.as_deref().unwrap_or_default(),
        path: MODELS.to_owned(),
        suffix: String::new(),
    }];
    for (number, adapter) in (1..).zip(&model.adapters) {
        let name = adapter.name.as_deref().unwrap_or_default();
        let path = format!("{ADAPTERS}/{name}");
        if !adapters::is_folder(name) || artifacts.iter().any(|other| other.path == path) {
            return Err(format!(
                "adapter {number} of the model {} is called {name:?}: give each adapter its own name in spec.model.lora.adapters, of \
                 letters, digits and - _ . /",
                model.name
            )
            .into());
        }
        let uri = adapter.uri.as_deref().unwrap_or_default();
        artifacts.push(Artifact { what: format!("the adapter {name}"), uri, path, suffix: format!("-lora-{number}") });
    }
    let mut initializers = Vec::new();
    for artifact in &artifacts {
        initializers.extend(artifact.bring(config, &request.subject, pod, by, reasons)?);
    }
    initializer::add(pod, initializers, by);
    tell_adapters(&artifacts[1..], pod, by, reasons);
    Ok(())
}

impl Artifact<'_> {
    /// Mounts the files. Returns the init container that downloads them first, if one is needed.
    fn bring<'a>(
        &self,
        config: &Config,
        subject: &Subject,
        pod: &mut Pod<'a>,
        by: By<'a>,
        reasons: &mut Vec<Reason>,
    ) -> Result<Option<Node<'a>>, Failure> {
        let Self { what, uri, path, suffix } = self;
        let claim = Claim::of_subject(uri, what, subject)?;
        let image = uri.strip_prefix("oci://").filter(|image| !image.is_empty());
        let download = DOWNLOADS.iter().any(|scheme| uri.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
        if claim.is_none() && image.is_none() && !download {
            return Err(format!(
                "the URI {uri:?} of {what} can't be downloaded: start it with hf://, s3://, gs://, http://, https://, pvc:// or oci://, or \
                 set spec.storageInitializer.enabled: false if the pod downloads it itself"
            )
            .into());
        }
        if pod.main().is_some_and(|main| volume::is_mounted(main, path)) {
            reasons.push(reason("ModelMountKept", format!("Something is mounted at {path} already, so {what} isn't.")));
            return Ok(None);
        }
        if let Some(claim) = claim {
            let volume = volume::add(pod, &format!("model{suffix}"), claim.source(by), by);
            volume::mount(pod, &volume, path, claim.sub_path, by);
            let message = format!("At {path} is {what}, from the claim {}.", claim.name);
            reasons.push(reason("ModelFromClaim", message));
            return Ok(None);
        }
        if let Some(image) = image {
            let text = |text: &str| Node::text(text, by);
            let source = ("image", Node::object([("reference", text(image)), ("pullPolicy", text("IfNotPresent"))], by));
            let volume = volume::add(pod, &format!("model{suffix}"), source, by);
            volume::mount(pod, &volume, path, IMAGE_FOLDER, by);
            let message = format!(
                "At {path} is {what}, from /{IMAGE_FOLDER} of the image {image}; for that the cluster needs Kubernetes' image volumes."
            );
            reasons.push(reason("ModelFromImage", message));
            return Ok(None);
        }
        // A layer that defines the volume determines its size, and whether it outlives the pod.
        let volume = format!("kserve-provision-location{suffix}");
        if !volume::is_there(pod, &volume) {
            volume::add(pod, &volume, ("emptyDir", Node::object([], by)), by);
        }
        volume::mount(pod, &volume, path, "", by);
        reasons.push(reason("ModelDownloaded", format!("At {path} is {what}, which an init container downloads from {uri}.")));
        let name = format!("storage-initializer{suffix}");
        Ok(Initializer { name: &name, image: &config.storage_initializer, uri, path, volume: &volume, part: "" }.container(by))
    }
}

/// Adds the adapters to vLLM's arguments, unless its command line already has them.
fn tell_adapters<'a>(adapters: &[Artifact<'_>], pod: &mut Pod<'a>, by: By<'a>, reasons: &mut Vec<Reason>) {
    let Some(main) = pod.main_mut().filter(|_| !adapters.is_empty()) else { return };
    if Engine::detect(main) != Some(Engine::Vllm) {
        let message = format!("The command line of main isn't vLLM's own, so it must load the adapters below {ADAPTERS} itself.");
        reasons.push(reason("AdaptersUntold", message));
        return;
    }
    if engine::given(main).iter().any(|flag| flag == Engine::Vllm.adapters()) {
        return;
    }
    let named = adapters.iter().map(|adapter| (adapter.path.trim_start_matches(ADAPTERS).trim_start_matches('/'), &*adapter.path));
    adapters::tell(Engine::Vllm, named, main, by);
}
