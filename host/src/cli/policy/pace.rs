//! `pointsman policy pause`, `resume` and `rollback`: an administrator's instructions, each as an annotation of a PolicySet.

use super::{MANAGER, SetsArgs, activated, find_set, list, phase};
use crate::{
    cli::output::print,
    keeper::sets::{HOLD, PAUSED},
};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

#[derive(Args, Debug)]
pub(super) struct PauseArgs {
    /// Reason, shown in the status
    #[arg(long, default_value = "paused by `pointsman policy pause`")]
    reason: String,
    #[command(flatten)]
    sets: SetsArgs,
}

#[derive(Args, Debug)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    sets: SetsArgs,
}

#[derive(Args, Debug)]
pub(super) struct RollbackArgs {
    /// Set to roll back to: its name, or the beginning of its digest; default: the one before the active set
    name: Option<String>,
    /// Set to roll back to, as a flag
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    to: Option<String>,
    /// Print the set that would become active, and write nothing
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// Seconds to wait until the set is active; 0: don't wait
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    /// Watch the rollout until no restart is queued
    #[arg(long)]
    watch: bool,
    /// Seconds after which watching fails; default: no limit
    #[arg(long, value_name = "SECONDS", requires = "watch")]
    timeout: Option<u64>,
    #[command(flatten)]
    sets: SetsArgs,
}

pub(super) async fn pause(args: PauseArgs) -> Result<ExitCode> {
    let client = args.sets.cluster.connect().await?;
    let active = active(list(&client).await?)?;
    annotate(&Api::all(client), &active, PAUSED, json!(args.reason)).await?;
    print(&format!("paused    {}: no further pods restart; run `pointsman policy resume` to continue", active.name_any()));
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn resume(args: ResumeArgs) -> Result<ExitCode> {
    let client = args.sets.cluster.connect().await?;
    let sets = list(&client).await?;
    let api = Api::<PolicySet>::all(client);
    let (paused, left): (Vec<&PolicySet>, Vec<&PolicySet>) =
        sets.iter().filter(|set| set.annotations().contains_key(PAUSED)).partition(|set| phase(set) == Some(PolicySetPhase::Active));
    // On a set that is no longer active, it has no effect.
    for set in left {
        annotate(&api, set, PAUSED, Value::Null).await?;
    }
    let held: Vec<&PolicySet> = sets.iter().filter(|set| set.annotations().contains_key(HOLD)).collect();
    for set in &paused {
        annotate(&api, set, PAUSED, Value::Null).await?;
        print(&format!("resumed   {}: restarts continue", set.name_any()));
    }
    for set in &held {
        if paused.is_empty() {
            annotate(&api, set, HOLD, Value::Null).await?;
            print(&format!("released  {}: the sets that the PolicyPlugins request may become active again", set.name_any()));
        } else {
            // One step at a time: a user who resumes a paused rollback doesn't want to undo it.
            print(&format!("held      {} still: run `pointsman policy resume` again to undo the rollback", set.name_any()));
        }
    }
    if paused.is_empty() && held.is_empty() {
        print("nothing is paused, and no set is held");
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn rollback(args: RollbackArgs) -> Result<ExitCode> {
    let client = args.sets.cluster.connect().await?;
    let sets = list(&client).await?;
    let wanted = match args.name.as_ref().or(args.to.as_ref()) {
        Some(name) => find_set(sets.clone(), name)?,
        None => sets
            .iter()
            .filter(|set| phase(set) == Some(PolicySetPhase::Previous))
            .max_by_key(|set| activated(set))
            .cloned()
            .ok_or_else(|| anyhow!("no set was active before this one"))?,
    };
    let name = wanted.name_any();
    if !matches!(phase(&wanted), Some(PolicySetPhase::Previous | PolicySetPhase::Active)) {
        bail!("{name} has never been active, so a rollback to it is not possible: run `pointsman policy approve` to activate a candidate");
    }
    if args.dry_run {
        print(&format!("would hold {name}"));
        for line in differences(sets.iter().find(|set| phase(set) == Some(PolicySetPhase::Active)), &wanted) {
            print(&line);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let api = Api::<PolicySet>::all(client);
    for other in sets.iter().filter(|set| set.annotations().contains_key(HOLD) && set.name_any() != name) {
        annotate(&api, other, HOLD, Value::Null).await?;
    }
    if wanted.annotations().contains_key(PAUSED) {
        annotate(&api, &wanted, PAUSED, Value::Null).await?;
    }
    annotate(&api, &wanted, HOLD, json!(wanted.spec.digest)).await?;
    print(&format!("held      {name}, regardless of the PolicyPlugins, until `pointsman policy resume`"));
    if args.wait > 0 {
        super::decides(&api, &name, args.wait, |set| phase(set) == Some(PolicySetPhase::Active)).await?;
    }
    if args.watch {
        super::follow(&api, &name, args.timeout).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The plugins and rules that differ between the active set and the requested one, one per line.
fn differences(active: Option<&PolicySet>, wanted: &PolicySet) -> Vec<String> {
    let parts = |set: &PolicySet| -> BTreeMap<String, (String, String)> {
        let short = |digest: &str| digest.get(..19).unwrap_or(digest).to_owned();
        let version = |version: Option<&String>, digest: &str| match version {
            Some(version) => format!("{version} ({})", short(digest)),
            None => short(digest),
        };
        let plugins = set.spec.plugins.iter().map(|plugin| {
            let shown = version(plugin.version.as_ref(), &plugin.digest);
            (format!("plugin {}", plugin.name), (serde_json::to_string(plugin).unwrap_or_default(), shown))
        });
        let rules = set.spec.rules.iter().map(|rule| (format!("rule {}", rule.name), (rule.digest.clone(), rule.digest.clone())));
        plugins.chain(rules).collect()
    };
    let (now, then) = (active.map(parts).unwrap_or_default(), parts(wanted));
    let names: BTreeSet<&String> = now.keys().chain(then.keys()).collect();
    let line = |name: &String| match (now.get(name), then.get(name)) {
        (Some((before, _)), Some((after, _))) if before == after => None,
        (Some((_, before)), Some((_, after))) if before == after => Some(format!("  {name}: {before}, bound or configured differently")),
        (Some((_, before)), Some((_, after))) => Some(format!("  {name}: {before} -> {after}")),
        (Some((_, before)), None) => Some(format!("  {name}: {before} -> none")),
        (None, Some((_, after))) => Some(format!("  {name}: none -> {after}")),
        (None, None) => None,
    };
    names.into_iter().filter_map(line).collect()
}

fn active(sets: Vec<PolicySet>) -> Result<PolicySet> {
    sets.into_iter()
        .find(|set| phase(set) == Some(PolicySetPhase::Active))
        .ok_or_else(|| anyhow!("no PolicySet is active: is a host running?"))
}

async fn annotate(api: &Api<PolicySet>, set: &PolicySet, annotation: &str, value: Value) -> Result<()> {
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    let name = set.name_any();
    api.patch(&name, &params, &Patch::Merge(&patch)).await.map(|_| ()).with_context(|| format!("annotating {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_of_the_same_version_differ_by_their_digests() {
        let set = |digest: &str, order: i32| -> PolicySet {
            serde_json::from_value(json!({
                "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicySet", "metadata": {"name": "s"},
                "spec": {
                    "digest": "sha256:set", "host": {"version": "0.1.0", "builtins": "sha256:b"},
                    "plugins": [{
                        "name": "a", "digest": digest, "version": "0.1.0", "points": ["pod-templating"], "mode": "Extend", "order": order,
                        "weight": 1, "failurePolicy": "Fail",
                    }],
                },
            }))
            .unwrap()
        };
        let active = set("sha256:4585", 1);
        let changed = |wanted: &PolicySet| differences(Some(&active), wanted);
        assert_eq!(changed(&set("sha256:6307", 1)), ["  plugin a: 0.1.0 (sha256:4585) -> 0.1.0 (sha256:6307)"]);
        assert_eq!(changed(&set("sha256:4585", 2)), ["  plugin a: 0.1.0 (sha256:4585), bound or configured differently"]);
        assert!(changed(&active).is_empty());
    }
}
