//! The models of `corpus/`.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)] // a helper that fails ends the test

use serde::Deserialize;
use serde_json::{Map, Value};
use std::{fs, path::Path};

/// A published model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    pub(crate) name: String,
    /// The relevant fields of its config.json.
    pub(crate) config: Map<String, Value>,
    /// The published count.
    pub(crate) parameters: f64,
    /// The source of the published facts.
    pub(crate) from: String,
    /// The published context, if there is one.
    pub(crate) context: Option<u64>,
    pub(crate) quantization: Option<String>,
    #[serde(default)]
    pub(crate) capabilities: Vec<String>,
}

/// All models, in the order of the files.
pub(crate) fn models() -> Vec<Model> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "yaml"));
    files.sort();
    files
        .into_iter()
        .flat_map(|file| {
            serde_saphyr::from_str::<Vec<Model>>(&fs::read_to_string(&file).unwrap())
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        })
        .collect()
}
