//! The flags for the policy engine.

use super::{HostNamespaceArgs, cache::CacheArgs, process_name};
use crate::{
    comparison::LiveComparison,
    keeper::{Options, start::SandboxOptions},
    liveness::Liveness,
    pace::Pacer,
    source::{SOURCES, config_map::Namespaces},
    trust::Trust,
};
use anyhow::{Context, Result, bail};
use clap::Args;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use pointsman_core::rules::shipped;
use pointsman_crds::policy::plugin::{UpdateStrategy, UpdateStrategyType};
use std::{path::PathBuf, sync::Arc};

#[derive(Args, Debug)]
pub(super) struct PolicyArgs {
    #[command(flatten)]
    host: HostNamespaceArgs,
    /// Name of this host, unique in the cluster; default: the name of the pod or machine, with the process ID
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: Option<String>,
    /// Folder of plugins for PolicyPlugins with source.file
    #[arg(long, value_name = "FOLDER")]
    plugin_dir: Option<PathBuf>,
    /// Additional namespace whose ConfigMaps may contain plugins; may be repeated; * for all namespaces. Whoever may write ConfigMaps there
    /// runs code in this host's sandbox
    #[arg(long = "plugin-namespace", value_name = "NAMESPACE")]
    plugin_namespaces: Vec<String>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Shipped ValidationRule that stays enabled, such as hardened-pods; may be repeated. If it is disabled, the host enables it again
    #[arg(long = "enable-rule", value_name = "NAME", value_parser = shipped_rule)]
    enabled_rules: Vec<String>,
    /// Update strategy of plugins whose PolicyPlugin specifies none: Immediate, Guarded or Shadow; default: Guarded at pod-templating and
    /// metadata-propagation, otherwise Immediate
    #[arg(long, value_name = "STRATEGY", value_parser = strategy)]
    update_strategy: Option<UpdateStrategyType>,
    /// Maximum number of services that a Guarded update may change without approval if its PolicyPlugin specifies none: a number or a
    /// percentage (10%)
    #[arg(long, value_name = "NUMBER", value_parser = most, requires = "update_strategy")]
    max_changed: Option<IntOrString>,
    /// Maximum number of services whose pods such an update may restart without approval; default: none
    #[arg(long, value_name = "NUMBER", value_parser = most, requires = "update_strategy")]
    max_restarting: Option<IntOrString>,
    /// Maximum number of services that such an update may let select another runtime at their next selection without approval; default: no
    /// limit
    #[arg(long, value_name = "NUMBER", value_parser = most, requires = "update_strategy")]
    max_choices: Option<IntOrString>,
    #[command(flatten)]
    cache: CacheArgs,
}

/// Trusted signatures of plugins
#[derive(Args, Debug)]
pub(super) struct TrustArgs {
    /// Folder of the trusted Ed25519 public keys that sign plugins, each a file NAME.pub
    #[arg(long, value_name = "FOLDER")]
    trusted_keys: Option<PathBuf>,
    /// Refuse plugins without a signature by a trusted key; built-in plugins need none
    #[arg(long)]
    require_signatures: bool,
}

impl TrustArgs {
    /// Whether any of the flags is set.
    pub(super) fn is_set(&self) -> bool {
        self.trusted_keys.is_some() || self.require_signatures
    }

    /// The trusted keys.
    pub(super) fn trust(&self) -> Result<Trust> {
        match &self.trusted_keys {
            Some(folder) => Trust::load(folder, self.require_signatures).context("--trusted-keys"),
            None => Ok(Trust { required: self.require_signatures, ..Trust::default() }),
        }
    }
}

fn shipped_rule(name: &str) -> Result<String, String> {
    if shipped::find(name).is_some() {
        return Ok(name.to_owned());
    }
    let names: Vec<String> = shipped::all().iter().map(|rule| rule.name_any()).collect();
    Err(format!("the host ships no such rule; use one of {}", names.join(", ")))
}

fn strategy(word: &str) -> Result<UpdateStrategyType, String> {
    serde_json::from_value(word.into()).map_err(|_| "expected Immediate, Guarded or Shadow".to_owned())
}

fn most(text: &str) -> Result<IntOrString, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<u8>().ok()).filter(|percent| *percent <= 100);
    match (percent, text.parse::<u16>()) {
        (Some(_), _) => Ok(IntOrString::String(text.to_owned())),
        (None, Ok(number)) => Ok(IntOrString::Int(number.into())),
        _ => Err("expected a number, or a percentage such as 10%".to_owned()),
    }
}

impl PolicyArgs {
    /// The host's own namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.host.host_namespace
    }

    /// This host's name.
    pub(super) fn identity(&self) -> String {
        self.identity.clone().unwrap_or_else(process_name)
    }

    pub(super) fn settings(&self, stage: LiveComparison, pacer: Arc<Pacer>, liveness: Liveness) -> Result<SandboxOptions> {
        let strategy = self.update_strategy.map(|type_| UpdateStrategy {
            type_,
            max_changed: self.max_changed.clone(),
            max_restarting: self.max_restarting.clone(),
            max_choices: self.max_choices.clone(),
        });
        let bounded = [&self.max_changed, &self.max_restarting, &self.max_choices].iter().any(|bound| bound.is_some());
        if bounded && strategy.as_ref().is_some_and(|strategy| strategy.type_ != UpdateStrategyType::Guarded) {
            bail!("--max-changed, --max-restarting and --max-choices limit a Guarded update: set --update-strategy Guarded, or omit them");
        }
        let namespaces = match &self.plugin_namespaces[..] {
            [] => Namespaces::Own,
            named if named.iter().any(|name| name == "*") => Namespaces::All,
            named => Namespaces::Listed(named.iter().cloned().collect()),
        };
        let options = Options {
            namespace: self.host.host_namespace.clone(),
            identity: self.identity(),
            directory: self.plugin_dir.clone(),
            namespaces,
            sources: SOURCES,
            trust: self.trust.trust()?,
            enabled_rules: self.enabled_rules.iter().cloned().collect(),
            strategy,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Ok(SandboxOptions { compilers: self.cache.compilers()?, options, stage: Arc::new(stage), pacer, liveness })
    }
}
