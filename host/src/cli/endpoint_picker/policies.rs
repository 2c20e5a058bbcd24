//! The flags of the picker's policies.

use super::{SLOTS, TICK};
use crate::{
    cli::{cache::CacheArgs, gateway::Tasks, policies::TrustArgs},
    endpoint_picker::{
        Policies, custom,
        policy::ScoringPolicy,
        policy_set::follow::{SetSource, apply},
        pool::Pool,
    },
    load::Loader,
};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kube::Client;
use pointsman_picker::config::PickerConfig;
use pointsman_sandbox::engine::Engines;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::sync::watch;

/// Policy that scores endpoints before the configuration's scorers
#[derive(Args, Debug)]
pub(super) struct PolicyArgs {
    /// Plugin at scheduling-scoring that scores endpoints instead of the configuration's scorers. It is reloaded when the file changes;
    /// while it can't be loaded, the previous one stays active. If it returns no scores, the configuration's scorers are used
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// ConfigMap of the pool's namespace with such a plugin in the key plugin.wasm, and its configuration in the key config.yaml. May be
    /// repeated for a plugin in several parts, in order. Until it can be loaded, the configuration's scorers are used
    #[arg(long = "policy-config-map", value_name = "NAME", conflicts_with = "policy")]
    policy_config_maps: Vec<String>,
    /// File with the policy's configuration, in JSON or YAML
    #[arg(long, value_name = "FILE", requires = "policy")]
    policy_config: Option<PathBuf>,
    /// Namespace of a Pointsman controller. The PolicyPlugins of its active policy set that are bound at scheduling-scoring and request
    /// features of endpoints score endpoints; a plugin of --policy or --policy-config-map takes precedence
    #[arg(long, value_name = "NAMESPACE")]
    policy_set: Option<String>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Maximum time that a policy may take for one request
    #[arg(long, value_name = "DURATION", default_value = "500us", value_parser = deadline)]
    policy_deadline: Duration,
}

fn deadline(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration between 100us and 5s, such as 500us".to_owned();
    let seconds = pointsman_core::duration::parse(text).ok_or_else(wrong)?;
    let deadline = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if (TICK..=Duration::from_secs(5)).contains(&deadline) { Ok(deadline) } else { Err(wrong()) }
}

impl PolicyArgs {
    /// The initial policies, and their loader.
    pub(super) fn load(&self, config: &PickerConfig, cache: &CacheArgs) -> Result<(Policies, Arc<Loader>)> {
        let engines = Engines::with_clock(SLOTS, TICK).map_err(|error| anyhow!("{error:#}")).context("starting the engine of policies")?;
        let loader = Loader::new(Arc::new(engines), cache.compilers()?).with_hot_deadline(self.policy_deadline);
        let scorers = |profile| ScoringPolicy::of_profile(&loader, profile).map(Arc::new).map_err(|error| anyhow!("{error}"));
        let primary = scorers(config.profiles.primary()).context("loading the default policy")?;
        let prefill = config.profiles.prefill().map(scorers).transpose().context("loading the default policy")?;
        let custom = match &self.policy {
            None => None,
            // It is better to find an initial error before any request is served.
            Some(file) => Some(Arc::new(custom::load(&loader, file, self.policy_config.as_deref()).map_err(|error| anyhow!(error))?)),
        };
        Ok((Policies { custom, set: None, primary, prefill }, Arc::new(loader)))
    }

    /// Updates the pools' policies. ConfigMaps are in this namespace.
    pub(super) fn follow(
        self,
        client: &Client,
        namespace: &str,
        loader: &Arc<Loader>,
        pools: &[Arc<Pool>],
        tasks: &mut Tasks,
    ) -> Result<()> {
        const WHAT: &str = "following the policy";
        if !self.policy_config_maps.is_empty() {
            let (names, loader) = (self.policy_config_maps, Arc::clone(loader));
            let following = custom::config_map::follow(client.clone(), namespace.to_owned(), names, loader, pools.to_vec());
            tasks.spawn(async { (following.await, WHAT).1 });
        }
        if let Some(file) = self.policy {
            let following = custom::follow(Arc::clone(loader), file, self.policy_config, pools.to_vec()).context("--policy")?;
            tasks.spawn(async { (following.await, WHAT).1 });
        }
        let Some(namespace) = self.policy_set else {
            if self.trust.is_set() {
                bail!("--trusted-keys and --require-signatures are for the plugins of a policy set: add --policy-set, or remove them");
            }
            return Ok(());
        };
        let source = SetSource { client: client.clone(), namespace, trust: self.trust.trust()?, loader: Arc::clone(loader) };
        let newest = watch::Sender::new(None);
        for pool in pools {
            let applying = apply(newest.subscribe(), Arc::clone(pool));
            tasks.spawn(async { (applying.await, WHAT).1 });
        }
        tasks.spawn(async { (source.follow(newest).await, WHAT).1 });
        Ok(())
    }
}
