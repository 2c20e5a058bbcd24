//! What the command line tells the policy engine.

use super::cache::CacheArgs;
use crate::policy::{NAMESPACE, keeper::Options, source::config_map::Namespaces, start::Settings, trust::Trust};
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(super) struct PolicyArgs {
    /// The host's own namespace: its Lease, the kept revisions of plugins and the ConfigMaps that bring them are there.
    #[arg(long, env = "POINTSMAN_NAMESPACE", default_value = NAMESPACE)]
    namespace: String,
    /// This host's name among those of the cluster; by default the pod's or machine's, with the process's number.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: Option<String>,
    /// The directory that PolicyPlugins with source.file take plugins from.
    #[arg(long, value_name = "FOLDER")]
    plugin_dir: Option<PathBuf>,
    /// Another namespace whose ConfigMaps may bring plugins; may be repeated, and * is every one. Whoever may write ConfigMaps there
    /// runs code in this host's sandbox.
    #[arg(long = "plugin-namespace", value_name = "NAMESPACE")]
    plugin_namespaces: Vec<String>,
    /// The folder of the Ed25519 public keys, each a file NAME.pub, whose signatures on plugins are trusted.
    #[arg(long, value_name = "FOLDER")]
    trusted_keys: Option<PathBuf>,
    /// Refuses plugins without a signature by a trusted key. The built-in ones need none.
    #[arg(long)]
    require_signatures: bool,
    #[command(flatten)]
    cache: CacheArgs,
}

impl PolicyArgs {
    pub(super) fn settings(&self) -> Result<Settings> {
        let namespaces = match &self.plugin_namespaces[..] {
            [] => Namespaces::Own,
            named if named.iter().any(|name| name == "*") => Namespaces::All,
            named => Namespaces::Listed(named.iter().cloned().collect()),
        };
        let trust = match &self.trusted_keys {
            Some(folder) => Trust::load(folder, self.require_signatures).context("--trusted-keys")?,
            None => Trust { required: self.require_signatures, ..Trust::default() },
        };
        let identity = self.identity.clone().unwrap_or_else(|| {
            let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
            format!("{machine}-{}", std::process::id())
        });
        let options = Options { namespace: self.namespace.clone(), identity, directory: self.plugin_dir.clone(), namespaces, trust };
        Ok(Settings { compilers: self.cache.compilers()?, options })
    }
}
