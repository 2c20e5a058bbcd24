//! A user's own policy, loaded again whenever its file or ConfigMaps change.

pub mod config_map;

use super::{policy::ScoringPolicy, pool::Pool};
use crate::{
    load::Loader,
    source::{file, unpack::unpack},
};
use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::task::spawn_blocking;

/// Sets the loaded policy in pools, and logs each failure once.
#[derive(Debug)]
struct Complaints {
    pools: Vec<Arc<Pool>>,
    /// The active policy: the one from startup is already set in the pools.
    decides: Option<Arc<ScoringPolicy>>,
    last: String,
}

impl Complaints {
    fn new(pools: Vec<Arc<Pool>>) -> Self {
        let decides = pools.first().and_then(|pool| pool.policies().custom.clone());
        Self { pools, decides, last: String::new() }
    }

    /// If loading fails, the previous policy stays.
    fn take(&mut self, loaded: Result<ScoringPolicy, String>) {
        let policy = match loaded {
            Ok(policy) => policy,
            Err(error) => {
                if self.last != error {
                    tracing::warn!(error, "the policy can't be loaded; the previous one stays active");
                    self.last = error;
                }
                return;
            }
        };
        self.last.clear();
        if self.decides.as_ref().is_none_or(|before| before.identity() != policy.identity()) {
            tracing::info!(policy = policy.name(), digest = policy.digest(), "another policy is active");
            let policy = Arc::new(policy);
            for pool in &self.pools {
                pool.update_policies(|policies| policies.custom = Some(Arc::clone(&policy)));
            }
            self.decides = Some(policy);
        }
    }
}

/// Loads a policy. Blocks while it is compiled.
fn from_bytes(loader: &Loader, name: &str, bytes: &[u8], config: &Value) -> Result<ScoringPolicy, String> {
    ScoringPolicy::load(loader, name, bytes, config).map_err(|error| error.to_string())
}

/// Loads the policy of a file. Blocks while it is compiled.
pub fn load(loader: &Loader, file: &Path, config: Option<&Path>) -> Result<ScoringPolicy, String> {
    let name = file.file_stem().map_or_else(|| "policy".into(), |stem| stem.to_string_lossy());
    let (bytes, config) = read(file, config)?;
    from_bytes(loader, &name, &bytes, &config).map_err(|error| format!("--policy {}: {error}", file.display()))
}

/// The folder of a file.
fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Reads the policy's bytes and its configuration.
pub fn read(file: &Path, config: Option<&Path>) -> Result<(Vec<u8>, Value), String> {
    let last = file.file_name().and_then(OsStr::to_str);
    let last = last.ok_or_else(|| format!("--policy {}: it is not the path of a file", file.display()))?;
    let bytes = file::read(folder(file), last).map_err(|error| format!("--policy: {error}"))?;
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

/// Sets the policy of the file in pools, from its next change on. It never ends by itself.
pub fn follow(
    loader: Arc<Loader>,
    file: PathBuf,
    config: Option<PathBuf>,
    pools: Vec<Arc<Pool>>,
) -> io::Result<impl Future<Output = ()> + Send> {
    let changes = file::watch(folder(&file))?;
    let mut complaints = Complaints::new(pools);
    Ok(async move {
        let read = || {
            let (loader, file, config) = (Arc::clone(&loader), file.clone(), config.clone());
            async move {
                let loading = spawn_blocking(move || load(&loader, &file, config.as_deref()));
                loading.await.unwrap_or_else(|error| Err(error.to_string()))
            }
        };
        file::follow(changes, read, |loaded| complaints.take(loaded)).await;
    })
}
