//! The cache of compiled plugins.

use anyhow::{Context, Result, bail};
use clap::Args;
use pointsman_sandbox::compile::{CompileError, Compilers};
use std::{
    env,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// The minimum size of a key, and the maximum that is read, in bytes.
const SHORTEST_KEY: usize = 32;
const LONGEST_KEY: u64 = 4 << 10;

/// Cache and interfaces of compiled plugins
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CacheArgs {
    /// Folder of the cache of compiled plugins, which may be deleted at any time; default: pointsman/plugins in XDG_CACHE_HOME or ~/.cache
    #[arg(long, value_name = "FOLDER", env = "POINTSMAN_CACHE")]
    cache: Option<PathBuf>,
    /// File with a key of at least 32 bytes, such as a key of a mounted Secret: only plugins that were compiled and cached under this key
    /// are run. Required if others with the same user ID can write to the cache, as on a volume that several pods share
    #[arg(long, value_name = "FILE", env = "POINTSMAN_CACHE_KEY")]
    cache_key: Option<PathBuf>,
    /// Use the draft of the next interfaces with plugins that support it. The draft may change with every release: plugins built for it
    /// must then be rebuilt
    #[arg(long, env = "POINTSMAN_DRAFT_INTERFACES")]
    draft_interfaces: bool,
}

impl CacheArgs {
    /// Compilers that use the cache.
    pub(crate) fn compilers(&self) -> Result<Compilers> {
        Ok(self.in_folder()?.with_drafts(self.draft_interfaces))
    }

    /// The key of the cache's entries; empty if there is none.
    fn key(&self) -> Result<Vec<u8>> {
        let Some(file) = &self.cache_key else { return Ok(Vec::new()) };
        let context = || format!("--cache-key {}", file.display());
        let mut key = Vec::new();
        let reading = File::open(file).and_then(|opened| opened.take(LONGEST_KEY).read_to_end(&mut key));
        reading.with_context(context)?;
        if key.len() < SHORTEST_KEY {
            bail!(
                "{}: it holds {} bytes; a key needs at least {SHORTEST_KEY}: create one with openssl rand -out FILE 32",
                context(),
                key.len()
            );
        }
        Ok(key)
    }

    fn in_folder(&self) -> Result<Compilers> {
        let program = env::current_exe().context("finding this program's own file, which compiles plugins")?;
        let key = self.key()?;
        if let Some(folder) = &self.cache {
            return Compilers::with_key(program, folder, &key).with_context(|| format!("--cache {}", folder.display()));
        }
        if let Some(folder) = home(env::var_os("XDG_CACHE_HOME").map(PathBuf::from), env::home_dir()) {
            match Compilers::with_key(program.clone(), &folder, &key) {
                // A home folder that isn't writable, as in containers.
                Err(CompileError::Process(_)) => {}
                other => return other.with_context(|| format!("the folder {}; specify another with --cache", folder.display())),
            }
        }
        let folder = env::temp_dir().join(format!("pointsman-{}/plugins", rustix::process::geteuid().as_raw()));
        Compilers::with_key(program, &folder, &key)
            .with_context(|| format!("the folder {}; specify another with --cache", folder.display()))
    }
}

/// The user's own cache, by the XDG Base Directory Specification: relative paths are ignored.
fn home(xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let folder = xdg.filter(absolute).or_else(|| home.filter(absolute).map(|home| home.join(".cache")))?;
    Some(folder.join(Path::new("pointsman/plugins")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_the_user_s_own() {
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(home(path("/x"), path("/h")), path("/x/pointsman/plugins"));
        assert_eq!(home(path("x"), path("/h")), path("/h/.cache/pointsman/plugins"));
        assert_eq!(home(None, path("/h")), path("/h/.cache/pointsman/plugins"));
        assert_eq!(home(None, None), None);
    }
}
