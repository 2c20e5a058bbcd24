//! Where compiled plugins are kept.

use anyhow::{Context, Result};
use clap::Args;
use pointsman_sandbox::compile::{CompileError, Compilers};
use std::{
    env,
    path::{Path, PathBuf},
};

/// How plugins are compiled: where what is compiled is kept, and for which interfaces.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CacheArgs {
    /// Where compiled plugins are kept; by default pointsman/plugins in XDG_CACHE_HOME or ~/.cache. It may be deleted at any time.
    #[arg(long, value_name = "FOLDER", env = "POINTSMAN_CACHE")]
    cache: Option<PathBuf>,
    /// Ask plugins by the draft of the next interfaces where they speak it, too. It may change with every release: what is built for it
    /// today must be built again.
    #[arg(long, env = "POINTSMAN_DRAFT_INTERFACES")]
    draft_interfaces: bool,
}

impl CacheArgs {
    /// Compilers that keep what they compile there.
    pub(crate) fn compilers(&self) -> Result<Compilers> {
        Ok(self.in_folder()?.with_drafts(self.draft_interfaces))
    }

    fn in_folder(&self) -> Result<Compilers> {
        let program = env::current_exe().context("finding this program's own file, which compiles plugins")?;
        if let Some(folder) = &self.cache {
            return Compilers::new(program, folder).with_context(|| format!("--cache {}", folder.display()));
        }
        if let Some(folder) = home(env::var_os("XDG_CACHE_HOME").map(PathBuf::from), env::home_dir()) {
            match Compilers::new(program.clone(), &folder) {
                // A home that can't be written to, as containers have it.
                Err(CompileError::Process(_)) => {}
                other => return other.with_context(|| format!("the folder {}; name another with --cache", folder.display())),
            }
        }
        let ours = env::temp_dir().join(format!("pointsman-{}", rustix::process::geteuid().as_raw()));
        // Whoever owns the folder above could put another one in its place.
        Compilers::new(program.clone(), &ours).with_context(|| format!("the folder {}; name another with --cache", ours.display()))?;
        let folder = ours.join("plugins");
        Compilers::new(program, &folder).with_context(|| format!("the folder {}; name another with --cache", folder.display()))
    }
}

/// The user's own cache, as the XDG Base Directory Specification has it: a relative path is no path.
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
