//! Keys and quotas from a folder, such as a mounted Secret: read again after each change.

use super::{callers::Keys, quota::Quotas};
use crate::source::file;
use arc_swap::ArcSwap;
use futures::FutureExt;
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The maximum size of a file. A Secret may have 1 MiB.
const MAX_FILE: u64 = 1 << 20;

/// The maximum number of files.
const MAX_FILES: usize = 256;

/// Reads all files of the folder whose names end with .yaml, .yml or .json.
pub fn read(folder: &Path) -> Result<Keys, String> {
    let wrong = |path: &Path, error: io::Error| format!("{} can't be read: {error}", path.display());
    let mut files = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(|error| wrong(folder, error))?;
    for entry in entries {
        let path = entry.map_err(|error| wrong(folder, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_keys = path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known));
        // A mounted Secret has its files behind links, and folders whose names begin with dots.
        if name.starts_with('.') || !is_keys {
            continue;
        }
        let size = std::fs::metadata(&path).map_err(|error| wrong(&path, error))?.len();
        if size > MAX_FILE || files.len() >= MAX_FILES {
            return Err(format!("{} is larger than {MAX_FILE} bytes, or there are more than {MAX_FILES} files", path.display()));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(&path, error))?;
        files.push((name, text));
    }
    files.sort();
    Keys::parse(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

/// Uses the folder's keys, now and after each change. If they can't be read, the previous keys stay.
pub fn keep(folder: PathBuf, keys: Arc<ArcSwap<Keys>>, quotas: Arc<Quotas>) -> io::Result<impl Future<Output = ()>> {
    // Start to watch before the first read, so that no change is missed.
    let changes = file::watch(&folder)?;
    Ok(async move {
        let look = || {
            let from = folder.clone();
            tokio::task::spawn_blocking(move || read(&from)).map(|read| read.unwrap_or_else(|_| Err("reading them has failed".to_owned())))
        };
        let take = |read: Result<Keys, String>| match read {
            Ok(read) => {
                tracing::info!(keys = read.len(), folder = %folder.display(), "using the keys of the folder");
                quotas.set_namespaces(read.namespaces.clone());
                keys.store(Arc::new(read));
            }
            Err(error) => tracing::warn!(error, "keys can't be used; the previous ones stay in use"),
        };
        file::follow(changes, look, take).await;
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, time::Duration};
    use tempfile::TempDir;

    #[tokio::test]
    async fn a_key_that_is_added_is_used_and_a_broken_file_changes_nothing() {
        let folder = TempDir::new().unwrap();
        let write = |text: &str| fs::write(folder.path().join("keys.yaml"), text).unwrap();
        write("keys: [{name: a, token: one}]");
        fs::write(folder.path().join("README"), "not keys").unwrap();
        let (keys, quotas) = (Arc::new(ArcSwap::default()), Arc::new(Quotas::default()));
        let keeping = tokio::spawn(keep(folder.path().to_owned(), Arc::clone(&keys), Arc::clone(&quotas)).unwrap());
        let becomes = async |count: usize| {
            let mut looks = tokio::time::interval(Duration::from_millis(10));
            let until = async {
                while keys.load().len() != count {
                    looks.tick().await;
                }
            };
            tokio::time::timeout(Duration::from_mins(1), until).await.unwrap();
        };
        becomes(1).await;
        write("keys: [{name: a, token: ");
        write("keys: [{name: a, token: one}, {name: b, token: two}]\nnamespaces: {ml: {tokensPerDay: 5}}");
        becomes(2).await;
        assert_eq!(keys.load().namespaces["ml"].tokens_per_day, Some(5));
        keeping.abort();
    }
}
