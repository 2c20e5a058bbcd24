//! The policy of a file, loaded again whenever the file changes.

use super::{
    decide::Policies,
    policy::{ScoringPolicy, Terms},
    pool::Pool,
};
use crate::{
    load::Loader,
    source::{file, unpack::unpack},
};
use serde_json::{Value, json};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::task::spawn_blocking;

/// Loads it. Blocks while it is compiled.
pub fn load(loader: &Loader, file: &Path, config: Option<&Path>, terms: &Terms) -> Result<ScoringPolicy, String> {
    let name = file.file_stem().map_or_else(|| "policy".into(), |stem| stem.to_string_lossy());
    let (bytes, config) = read(file, config)?;
    ScoringPolicy::load(loader, &name, &bytes, &config, terms).map_err(|error| format!("--policy {}: {error}", file.display()))
}

/// Reads the policy's bytes and its configuration.
pub fn read(file: &Path, config: Option<&Path>) -> Result<(Vec<u8>, Value), String> {
    let bytes = file.file_name().and_then(|last| Some((file.parent()?, last.to_str()?)));
    let (folder, last) = bytes.ok_or_else(|| format!("--policy {}: it is no path of a file", file.display()))?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let bytes = file::read(folder, last).map_err(|error| format!("--policy: {error}"))?;
    let bytes = unpack(&bytes).map_err(|error| format!("--policy {}: {error}", file.display()))?.into_owned();
    let config = match config {
        None => json!({}),
        Some(path) => {
            let wrong = |error: &dyn std::fmt::Display| format!("--policy-config {}: {error}", path.display());
            let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
            serde_saphyr::from_str::<Value>(&text).map_err(|error| wrong(&error))?
        }
    };
    Ok((bytes, config))
}

/// Has a pool decided by what the file holds, from its next change on. It never ends by itself.
pub fn follow(
    loader: Loader,
    file: PathBuf,
    config: Option<PathBuf>,
    terms: Terms,
    pool: Arc<Pool>,
) -> io::Result<impl Future<Output = ()> + Send> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let changes = file::watch(&folder)?;
    let loader = Arc::new(loader);
    Ok(async move {
        let read = || {
            let (loader, file, config, terms) = (Arc::clone(&loader), file.clone(), config.clone(), terms.clone());
            async move {
                let loading = spawn_blocking(move || load(&loader, &file, config.as_deref(), &terms));
                loading.await.unwrap_or_else(|error| Err(error.to_string()))
            }
        };
        let take = |loaded: Result<ScoringPolicy, String>| match loaded {
            Ok(policy) => {
                let before = pool.policies();
                let is_another = before.custom.as_ref().is_none_or(|before| before.identity() != policy.identity());
                if is_another {
                    tracing::info!(policy = policy.name(), digest = policy.digest(), "another policy decides from now on");
                    pool.set_policies(Policies { custom: Some(Arc::new(policy)), ..(*before).clone() });
                }
            }
            Err(error) => tracing::warn!(error, "the policy can't be loaded; the former one decides"),
        };
        file::follow(changes, read, take).await;
    })
}
