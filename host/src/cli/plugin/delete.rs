//! `pointsman plugin delete`.

use super::{live, push::ConfigMaps};
use crate::cli::{ClusterArgs, HostNamespaceArgs, output::print};
use anyhow::{Context, Result, bail};
use clap::Args;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Preconditions},
};
use pointsman_crds::policy::plugin::{ConfigMapSource, PolicyPlugin};
use std::{collections::BTreeSet, process::ExitCode};

#[derive(Args, Debug)]
pub(super) struct DeleteArgs {
    /// PolicyPlugin to delete, with its ConfigMaps
    name: String,
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    host: HostNamespaceArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: DeleteArgs) -> Result<ExitCode> {
    let name = &args.name;
    let client = args.cluster.connect().await?;
    let plugins: Api<PolicyPlugin> = Api::all(client.clone());
    let all = plugins.list(&ListParams::default()).await.context("listing the PolicyPlugins")?.items;
    let (found, others): (Vec<PolicyPlugin>, Vec<_>) = all.into_iter().partition(|plugin| plugin.metadata.name.as_deref() == Some(name));
    let plugin = found.into_iter().next().ok_or_else(|| live::absent(name))?;
    if plugin.spec.source.builtin.is_some() && plugin.spec.order == 0 {
        bail!("{name} is built in: the host would create it again, with its defaults. To replace it, push a plugin with --mode Replace");
    }
    let maps = |plugin: &PolicyPlugin| plugin.spec.source.config_map.as_ref().map(|source| config_maps(source, &args.host.host_namespace));
    let shared: BTreeSet<_> = others.iter().filter_map(maps).flatten().collect();
    let maps = maps(&plugin).unwrap_or_default();
    if args.dry_run {
        print(&format!("would delete  PolicyPlugin {name}"));
    } else {
        // With the uid, so that only the plugin that was read is deleted, not a later one of its name.
        let preconditions = Some(Preconditions { uid: plugin.metadata.uid.clone(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        plugins.delete(name, &params).await.with_context(|| format!("deleting the PolicyPlugin {name}"))?;
        print(&format!("deleted   PolicyPlugin {name}"));
    }
    for (at, (namespace, map)) in maps.iter().enumerate() {
        if shared.contains(&(namespace.clone(), map.clone())) {
            print(&format!("kept      ConfigMap {namespace}/{map}: another PolicyPlugin uses it"));
            continue;
        }
        let target = ConfigMaps::new(client.clone(), namespace);
        match target.delete_part(map, at + 1, args.dry_run).await? {
            Some(true) if args.dry_run => print(&format!("would delete  ConfigMap {namespace}/{map}")),
            Some(true) => print(&format!("deleted   ConfigMap {namespace}/{map}")),
            Some(false) => print(&format!("kept      ConfigMap {namespace}/{map}: it isn't marked as a part of a plugin")),
            None => {}
        }
    }
    let is_active = plugin.status.as_ref().is_some_and(|status| status.active.is_some());
    if !args.dry_run && is_active {
        print("The plugin stays active until a policy set without it is active: see `pointsman policy history`.");
    }
    Ok(ExitCode::SUCCESS)
}

/// The ConfigMaps of a source, the first part first.
fn config_maps(source: &ConfigMapSource, own: &str) -> Vec<(String, String)> {
    let namespace = source.namespace.as_deref().unwrap_or(own);
    let names = [&source.name].into_iter().chain(&source.parts);
    names.map(|name| (namespace.to_owned(), name.clone())).collect()
}
