//! Reads models at their sources, in ranges.

use crate::problem::sentence;
use anyhow::{Context, Result, bail};
use clap::Args;
use pointsman_download::{Access, Limits, RemoteModel, StorageUri};
use pointsman_model::{FileEntry, FilesError, Listing, ModelFacts, ModelFiles};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{runtime::Handle, task::spawn_blocking};

/// The maximum size of a Secret's entry.
const MAX_ENTRY: u64 = 1 << 20;

/// Access to a source
#[derive(Args, Debug)]
pub(super) struct AccessArgs {
    /// Setting as in `storage.parameters` of a model, such as region=eu-west-1; may be repeated
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, String)>,
    /// Folder with the entries of the Secret of `storage.key`, one file per entry, such as `token`
    #[arg(long, value_name = "FOLDER")]
    secret: Option<PathBuf>,
    /// Allow sources on loopback addresses
    #[arg(long)]
    allow_loopback: bool,
}

fn parameter(text: &str) -> Result<(String, String), String> {
    let parameter = text.split_once('=').filter(|(name, _)| !name.is_empty());
    parameter
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "expected NAME=VALUE, such as region=eu-west-1".to_owned())
}

/// The facts in the files at a source.
pub(super) async fn inspect(uri: &str, args: &AccessArgs) -> Result<ModelFacts> {
    let secret = args.secret.as_deref().map(entries).transpose()?.unwrap_or_default();
    let access = Access::new(args.parameters.iter().cloned(), secret);
    let parsed = StorageUri::parse(uri)?;
    let limits = Limits { loopback: args.allow_loopback, ..Limits::default() };
    let model = Arc::new(RemoteModel::open(&parsed, &access, limits).await?);
    let files = Files { model, handle: Handle::current() };
    Ok(spawn_blocking(move || pointsman_model::inspect(&files)).await.context("reading the model")??)
}

/// The files of a folder in the form of a mounted Secret: links are followed, and hidden files ignored.
fn entries(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("--secret {}", folder.display()))? {
        let path = entry.with_context(|| format!("--secret {}", folder.display()))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.')) else { continue };
        let found = fs::metadata(&path).with_context(|| path.display().to_string())?;
        if found.is_dir() {
            continue;
        }
        if found.len() > MAX_ENTRY {
            bail!("{}: an entry of a Secret has at most 1 MiB", path.display());
        }
        let value = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        entries.push((name.to_owned(), value));
    }
    Ok(entries)
}

struct Files {
    model: Arc<RemoteModel>,
    handle: Handle,
}

impl ModelFiles for Files {
    fn list(&self) -> Result<Listing, FilesError> {
        let files = self.model.files().iter();
        let files = files.map(|file| FileEntry { path: file.path.as_str().to_owned(), size: file.size }).collect();
        Ok(Listing { files, skipped: Vec::new() })
    }

    fn read_range(&self, path: &str, offset: u64, length: usize) -> Result<Vec<u8>, FilesError> {
        let reading = self.handle.block_on(self.model.read(path, offset, length));
        reading.map_err(|error| FilesError::Store { path: path.to_owned(), message: sentence(&error) })
    }
}
