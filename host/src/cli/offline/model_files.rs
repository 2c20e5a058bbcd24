//! Fills unset fields of a model's spec from the model's files, as in a cluster.

use super::files::Document;
use crate::{cli::exit::InputResult, model_facts::fill_in};
use anyhow::{Context, Result, bail};
use pointsman_core::resource::{BASE_MODEL, CLUSTER_BASE_MODEL};
use pointsman_model::{Directory, inspect};
use serde_json::Value;
use std::{path::PathBuf, str::FromStr};

/// A model's name, and the folder of its files.
#[derive(Clone, Debug)]
pub(in crate::cli) struct ModelFolder {
    name: String,
    folder: PathBuf,
}

impl FromStr for ModelFolder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, folder)) if !name.is_empty() && !folder.is_empty() => Ok(Self { name: name.to_owned(), folder: folder.into() }),
            _ => Err("expected NAME=FOLDER".to_owned()),
        }
    }
}

/// Fills the models of these names. Returns notes for users.
pub(in crate::cli) fn fill_models_in(documents: &mut [Document], folders: &[ModelFolder]) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for ModelFolder { name, folder } in folders {
        let models = documents.iter_mut().filter(|document| is_model(document, name)).collect::<Vec<_>>();
        if models.is_empty() {
            bail!("--model-files {name}={}: the files have no BaseModel or ClusterBaseModel {name}", folder.display());
        }
        let reading = || format!("--model-files {name}={}", folder.display());
        let facts = inspect(&Directory::new(folder).with_context(reading).readable()?).with_context(reading)?;
        for model in models {
            if let Some(spec) = model.object.get_mut("spec").and_then(Value::as_object_mut) {
                fill_in(spec, &facts);
            }
        }
        notes.extend(facts.notes.iter().map(|note| format!("the files of the model {name}: {note}")));
    }
    Ok(notes)
}

fn is_model(document: &Document, name: &str) -> bool {
    let text = |field: &str| document.object.get(field).and_then(Value::as_str).unwrap_or_default();
    let is_of =
        |resource: &pointsman_core::resource::Resource| text("kind") == resource.kind && text("apiVersion") == resource.api_version();
    (is_of(&BASE_MODEL) || is_of(&CLUSTER_BASE_MODEL)) && document.object.get("metadata").is_some_and(|metadata| metadata["name"] == name)
}
