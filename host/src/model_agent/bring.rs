//! Downloads one model to the node: the steps of a job, from the Secret to the facts in the files.

use super::peers::Exchange;
use crate::{model_facts::spec_fields, problem::sentence};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use pointsman_core::model_nodes::assignment::ModelObject;
use pointsman_crds::ome::storage::DownloadPolicy;
use pointsman_download::{Access, Downloader, Error, Outcome, Request, StorageUri, StoredModel, Watcher};
use pointsman_model::{Directory, inspect};
use pointsman_sandbox::digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{task::spawn_blocking, time::sleep};

/// The maximum size of the reported facts, in bytes: all reports of a node share a ConfigMap.
const MAX_FACTS: usize = 2 << 10;

/// How long to wait for the agents of other nodes to report that they should have the model: they share the work.
const JOIN_DELAY: Duration = Duration::from_secs(2);

/// The resources that jobs share.
pub(super) struct Tools {
    pub(super) client: Client,
    pub(super) downloader: Downloader,
    /// The namespace of the agents, which has the Secrets of ClusterBaseModels.
    pub(super) namespace: String,
    /// Whether every stored byte is verified at the agent's start.
    pub(super) verifies_fully: bool,
    /// Whether sources of ClusterBaseModels without a Secret are read with the agent's own identity.
    pub(super) ambient: bool,
    /// The exchange with the agents of other nodes, if enabled.
    pub(super) exchange: Option<Arc<Exchange>>,
}

/// A note on the disk about a model, for the agent's next start.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Note {
    /// The uid of the model that was last downloaded here.
    pub(super) uid: String,
    /// The origin of the download; none before it is complete.
    pub(super) origin: Option<String>,
    /// Whether the files stay if the model is deleted.
    pub(super) kept: bool,
}

impl Note {
    pub(super) fn parse(stored: &StoredModel) -> Self {
        stored.note.as_deref().and_then(|note| serde_json::from_str(note).ok()).unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        json!(self).to_string()
    }
}

/// The origin of a model: if it changes, the model is downloaded again.
pub(super) fn origin(model: &ModelObject) -> String {
    let ModelObject { namespace, storage, refresh, .. } = model;
    Digest::hash(json!([namespace, storage.storage_uri, storage.key, storage.parameters, refresh]).to_string().as_bytes()).hex()
}

/// A model that is on the node.
#[derive(Debug)]
pub(super) struct Brought {
    /// The facts in its files.
    pub(super) facts: Option<Box<RawValue>>,
    /// Why there are no facts.
    pub(super) message: Option<String>,
    /// The result of the download, if one was needed.
    pub(super) outcome: Option<Outcome>,
}

/// Why a model isn't on the node.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) remedy: Remedy,
}

/// The remedy for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// A user's action; or the failure is transient.
    Somebody,
    /// More space on the disk.
    Space,
    /// The end of an earlier job for the folder.
    Moment,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { message, remedy: Remedy::Somebody }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let remedy = match error {
            Error::DiskFull { .. } => Remedy::Space,
            Error::Busy { .. } => Remedy::Moment,
            _ => Remedy::Somebody,
        };
        Self { message: error.to_string(), remedy }
    }
}

/// Downloads a model to a folder, unless it is there. `watcher` is set once there is progress to watch.
pub(super) async fn download(
    tools: Arc<Tools>,
    model: ModelObject,
    folder: PathBuf,
    stored: Option<StoredModel>,
    watcher: Arc<OnceLock<Watcher>>,
) -> Result<Brought, Failure> {
    let origin = origin(&model);
    let known = stored.as_ref().map(Note::parse).unwrap_or_default();
    let note = |origin: Option<String>| Note { uid: model.uid.clone(), origin, kept: model.keeps_files }.text();
    let mut outcome = None;
    if known.origin.as_ref() == Some(&origin) && is_intact(&tools, &folder).await? {
        tools.downloader.note(&folder, note(Some(origin))).await?;
    } else {
        let uri = StorageUri::parse(&model.storage.storage_uri)?;
        let access = access(&tools, &model).await?;
        tools.downloader.note(&folder, note(None)).await?;
        let peers = match &tools.exchange {
            Some(exchange) => {
                sleep(JOIN_DELAY).await;
                exchange.peers(&model).await
            }
            None => None,
        };
        let reuses_files = model.storage.download_policy != Some(DownloadPolicy::AlwaysDownload);
        let request = Request { uri, access, path: folder.clone(), scope: model.namespace.clone(), peers, reuses_files };
        let download = tools.downloader.download(request);
        watcher.set(download.watcher()).ok();
        outcome = Some(download.run().await?);
        tools.downloader.note(&folder, note(Some(origin))).await?;
    }
    let (facts, message) = read(&model, folder).await;
    Ok(Brought { facts, message, outcome })
}

/// Looks for a folder that others fill.
pub(super) async fn find(model: ModelObject, folder: PathBuf) -> Result<Brought, Failure> {
    match tokio::fs::metadata(&folder).await {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(format!("{} isn't a folder: correct storageUri", folder.display()).into()),
        Err(error) => {
            let remedy = "put the model there, or mount that folder into the model agent";
            return Err(format!("the model agent can't read {} ({error}): {remedy}", folder.display()).into());
        }
    }
    let (facts, message) = read(&model, folder).await;
    Ok(Brought { facts, message, outcome: None })
}

/// Whether the files at a path are as they were written.
async fn is_intact(tools: &Tools, folder: &Path) -> Result<bool, Failure> {
    let Some(verification) = tools.downloader.verify(folder, tools.verifies_fully).await? else { return Ok(false) };
    for damage in verification.damage.iter().take(1) {
        let count = verification.damage.len();
        tracing::warn!(folder = %folder.display(), file = %damage.path, problem = ?damage.problem, count, "files were changed; downloading them again");
    }
    Ok(verification.is_intact())
}

/// The access to a model's source.
async fn access(tools: &Tools, model: &ModelObject) -> Result<Access, Failure> {
    let parameters = model.storage.parameters.clone();
    let Some(key) = model.storage.key.as_deref().filter(|key| !key.is_empty()) else {
        let mut access = Access::new(parameters, []);
        access.ambient = tools.ambient && model.namespace.is_empty();
        return Ok(access);
    };
    let namespace = if model.namespace.is_empty() { &tools.namespace } else { &model.namespace };
    let found = Api::<Secret>::namespaced(tools.client.clone(), namespace).get(key).await;
    let secret = found.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 404 => {
            format!("the Secret {namespace}/{key} of spec.storage.key doesn't exist: create it, or correct the key")
        }
        kube::Error::Api(status) if status.code == 403 => format!(
            "the model agent may not read the Secret {namespace}/{key} of spec.storage.key: run `kubectl create rolebinding {role} -n {namespace} \
             --clusterrole={role} --serviceaccount={agents}:{account}`",
            role = crate::permissions::MODEL_SECRETS_ROLE,
            agents = tools.namespace,
            account = crate::permissions::MODEL_AGENT_ACCOUNT,
        ),
        _ => format!("the Secret {namespace}/{key} of spec.storage.key can't be read: {}", sentence(&error)),
    })?;
    let mut entries = Vec::new();
    for (name, value) in secret.data.unwrap_or_default() {
        let text = String::from_utf8(value.0)
            .map_err(|_| format!("the entry {name} of the Secret {namespace}/{key} isn't text: write the credentials as text"))?;
        entries.push((name, text));
    }
    Ok(Access::new(parameters, entries))
}

/// The facts in the files, as JSON, or why there are none.
async fn read(model: &ModelObject, folder: PathBuf) -> (Option<Box<RawValue>>, Option<String>) {
    if model.skips_parsing {
        return (None, None);
    }
    let reading = spawn_blocking(move || {
        let facts = Directory::new(&folder)
            .map_err(|error| error.to_string())
            .and_then(|files| inspect(&files).map_err(|error| error.to_string()))?;
        let mut fields = spec_fields(&facts);
        fields.extend(facts.diffusion_pipeline.as_ref().map(|pipeline| ("diffusionPipeline".to_owned(), json!(pipeline))));
        let text = json!(fields).to_string();
        if text.len() > MAX_FACTS {
            return Err(format!("they have {} bytes of facts; the limit is {MAX_FACTS}: set the spec's fields yourself", text.len()));
        }
        RawValue::from_string(text).map_err(|error| error.to_string())
    });
    match reading.await.map_err(|error| error.to_string()).and_then(|read| read) {
        Ok(facts) => (Some(facts), None),
        Err(why) => (None, Some(format!("nothing is read from the model's files: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_downloaded_again_if_its_source_is_another() {
        let model = |change: serde_json::Value| {
            let mut object =
                json!({"metadata": {"name": "a", "namespace": "ml"}, "spec": {"storage": {"storageUri": "hf://a/b", "path": "/m/a"}}});
            for (pointer, value) in change.as_object().unwrap() {
                object.pointer_mut(pointer).unwrap().as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            }
            origin(&ModelObject::from_object(&object).unwrap())
        };
        let plain = model(json!({}));
        assert_eq!(plain, model(json!({"/spec/storage": {"nodeSelector": {"a": "b"}}, "/metadata": {"labels": {"a": "b"}}})));
        for other in [
            json!({"/spec/storage": {"storageUri": "hf://a/c"}}),
            json!({"/spec/storage": {"key": "token"}}),
            json!({"/spec/storage": {"parameters": {"endpoint": "https://example.com"}}}),
            json!({"/metadata": {"namespace": "chat"}}),
            json!({"/metadata": {"annotations": {"pointsman.dev/download-again": "2"}}}),
        ] {
            assert_ne!(model(other.clone()), plain, "{other}");
        }
    }
}
