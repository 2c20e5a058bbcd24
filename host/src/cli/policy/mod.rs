//! `pointsman policy`: the active set of a cluster, its candidates, and previous sets.

mod approve;
mod history;
mod members;
mod pace;

use super::{ClusterArgs, HostNamespaceArgs, output::print, progress};
use anyhow::{Context, Result, anyhow, bail};
pub(super) use approve::approve_set;
use clap::{Args, Subcommand};
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, wait::await_condition, watcher},
};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use std::{cmp::Reverse, pin::pin, process::ExitCode, time::Duration};
use tokio::time::timeout;

/// The minimum length at which digits are a digest's beginning rather than a set's number.
const SHORTEST_DIGEST: usize = 8;

/// The field manager of this command line's writes.
const MANAGER: &str = "pointsman-cli";

#[derive(Args, Debug)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// List the policy sets, newest first, or show one in detail
    History(history::HistoryArgs),
    /// Approve a candidate that exceeds the limits of its plugins
    Approve(approve::ApproveArgs),
    /// Roll back to a previous set, and keep it active regardless of the PolicyPlugins
    Rollback(pace::RollbackArgs),
    /// Pause the rollout
    Pause(pace::PauseArgs),
    /// Resume the rollout, or undo a rollback
    Resume(pace::ResumeArgs),
}

pub(super) async fn run(args: PolicyArgs) -> Result<ExitCode> {
    match args.command {
        PolicyCommand::History(args) => history::run(args).await,
        PolicyCommand::Approve(args) => approve::run(args).await,
        PolicyCommand::Rollback(args) => pace::rollback(args).await,
        PolicyCommand::Pause(args) => pace::pause(args).await,
        PolicyCommand::Resume(args) => pace::resume(args).await,
    }
}

/// Policy sets of a cluster
#[derive(Args, Debug)]
struct SetsArgs {
    #[command(flatten)]
    host: HostNamespaceArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

async fn list(client: &Client) -> Result<Vec<PolicySet>> {
    let sets = Api::<PolicySet>::all(client.clone()).list(&ListParams::default()).await.context("listing the PolicySets")?.items;
    Ok(newest_first(sets))
}

/// The sets, newest first. The host writes their statuses one after the other, so two of them may have the phase Active for a moment: only
/// the one that became active last is.
fn newest_first(mut sets: Vec<PolicySet>) -> Vec<PolicySet> {
    let active = sets.iter().filter(|set| phase(set) == Some(PolicySetPhase::Active));
    let active = active.max_by_key(|set| activated(set)).map(ResourceExt::name_any);
    for set in &mut sets {
        let replaced = Some(set.name_any()) != active;
        if let Some(status) = set.status.as_mut().filter(|status| replaced && status.phase == Some(PolicySetPhase::Active)) {
            status.phase = Some(PolicySetPhase::Previous);
        }
    }
    sets.sort_by_key(|set| Reverse((set.spec.number, set.creation_timestamp().map(|at| at.0))));
    sets
}

/// When a set last became active. Times have whole seconds: of two sets, the one with the higher number counts as the later one.
fn activated(set: &PolicySet) -> (Option<Timestamp>, Option<i64>) {
    let at = set.status.as_ref().and_then(|status| status.promoted_at.as_ref()).map(|at| at.0);
    (at, set.spec.number)
}

/// Waits until a set is active, or until it is clear that it won't be.
async fn decides(api: &Api<PolicySet>, name: &str, seconds: u64, settled: impl Fn(&PolicySet) -> bool) -> Result<()> {
    let settled = |set: Option<&PolicySet>| set.is_none_or(&settled);
    progress::set(format!("waiting for the host to activate {name}"));
    let seen = timeout(Duration::from_secs(seconds), await_condition(api.clone(), name, settled)).await;
    let Ok(now) = seen else {
        let told = api.get_opt(name).await.ok().flatten().and_then(|set| set.status?.message);
        bail!("{name} isn't active after {seconds} s: {}", told.unwrap_or_else(|| "is a host running?".to_owned()))
    };
    let now = now.with_context(|| format!("watching {name}"))?;
    match now {
        Some(set) if phase(&set) == Some(PolicySetPhase::Active) => {
            print(&format!("active    {name}"));
            Ok(())
        }
        Some(set) if phase(&set) == Some(PolicySetPhase::Candidate) => {
            bail!("{name} isn't active: {}", set.status.and_then(|status| status.message).unwrap_or_default())
        }
        Some(set) => bail!("{name} was abandoned: {}", set.status.and_then(|status| status.message).unwrap_or_default()),
        None => bail!("{name} was deleted"),
    }
}

/// Watches a set like [`print_changes`], with a timeout in seconds if given.
async fn follow(api: &Api<PolicySet>, name: &str, seconds: Option<u64>) -> Result<()> {
    let Some(seconds) = seconds else { return print_changes(api, name).await };
    let watched = timeout(Duration::from_secs(seconds), print_changes(api, name)).await;
    watched.unwrap_or_else(|_| bail!("the rollout of {name} isn't complete after {seconds} s: see `pointsman policy history {name}`"))
}

/// Prints a set's changes while it becomes active and rolls out, until it is rolled out, paused, or no longer active.
async fn print_changes(api: &Api<PolicySet>, name: &str) -> Result<()> {
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut changes = pin!(watcher::watcher(api.clone(), only).default_backoff().applied_objects());
    let mut told = String::new();
    while let Some(set) = changes.next().await {
        let set = set.with_context(|| format!("watching {name}"))?;
        let status = set.status.clone().unwrap_or_default();
        let rolled = status.conditions.iter().find(|condition| condition.type_ == "RolledOut");
        let line = match (&status.message, rolled) {
            (Some(message), _) => message.clone(),
            (None, Some(rolled)) => rolled.message.clone(),
            (None, None) => String::new(),
        };
        let line = format!("{:<9} {name}  {line}", phase_word(&set).to_lowercase());
        if line != told {
            print(&line);
            told = line;
        }
        match (phase(&set), rolled.map(|rolled| rolled.reason.as_str())) {
            (Some(PolicySetPhase::Candidate) | None, _) | (Some(PolicySetPhase::Active), None | Some("Beginning" | "Rolling")) => {}
            (Some(PolicySetPhase::Active), Some("Everywhere")) => return Ok(()),
            (Some(PolicySetPhase::Active), Some(_)) => bail!("the rollout is paused: see above"),
            (Some(PolicySetPhase::Previous | PolicySetPhase::Abandoned), _) => bail!("{name} is no longer active"),
        }
    }
    bail!("the watch of {name} has ended")
}

fn phase(set: &PolicySet) -> Option<PolicySetPhase> {
    set.status.as_ref()?.phase
}

fn phase_word(set: &PolicySet) -> String {
    phase(set).map(|phase| format!("{phase:?}")).unwrap_or_default()
}

/// The number of a set in the notation of messages.
fn number(set: &PolicySet) -> String {
    set.spec.number.map(|number| format!("#{number}")).unwrap_or_default()
}

/// The set with this number, name or digest, or with a name or digest that starts with it.
fn find_set(mut sets: Vec<PolicySet>, wanted: &str) -> Result<PolicySet> {
    // A digest may start with digits, but no set has such a high number.
    let numbered = wanted.trim_start_matches('#').parse::<i64>().ok().filter(|_| wanted.len() < SHORTEST_DIGEST);
    if let Some(place) = numbered.and_then(|number| sets.iter().position(|set| set.spec.number == Some(number))) {
        return Ok(sets.swap_remove(place));
    }
    let fits = |set: &PolicySet| {
        let digest = set.spec.digest.trim_start_matches("sha256:");
        let hash = wanted.trim_start_matches("sha256:").trim_start_matches("set-");
        !hash.is_empty() && digest.starts_with(hash)
    };
    let (mut fitting, others): (Vec<_>, Vec<_>) = sets.into_iter().partition(fits);
    match (fitting.pop(), fitting.is_empty()) {
        (Some(set), true) => Ok(set),
        (Some(_), false) => bail!("{wanted:?} is the beginning of several PolicySets: specify one with more characters of its digest"),
        (None, _) => {
            let names: Vec<String> = others.iter().map(|set| format!("{} {}", number(set), set.name_any()).trim().to_owned()).collect();
            let there = if names.is_empty() { "there are none".to_owned() } else { format!("there are {}", names.join(", ")) };
            Err(anyhow!("there is no PolicySet {wanted}; {there}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(number: i64, phase: &str, promoted_at: Option<&str>) -> PolicySet {
        serde_json::from_value(json!({
            "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicySet",
            "metadata": {"name": format!("set-{number}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"digest": format!("sha256:{number}"), "number": number, "host": {"version": "0.1.0", "builtins": "sha256:b"}},
            "status": {"phase": phase, "promotedAt": promoted_at},
        }))
        .unwrap()
    }

    #[test]
    fn sets_are_listed_by_number_and_the_one_that_became_active_last_is_active() {
        let listed = |sets: Vec<PolicySet>| -> Vec<_> {
            newest_first(sets).iter().map(|set| (set.spec.number.unwrap_or_default(), phase_word(set))).collect()
        };
        let [first, second] = [Some("2026-01-01T00:01:00Z"), Some("2026-01-01T00:02:00Z")];
        let words = |words: &[(i64, &str)]| words.iter().map(|(number, word)| (*number, (*word).to_owned())).collect::<Vec<_>>();
        assert_eq!(
            listed(vec![set(13, "Abandoned", None), set(16, "Candidate", None), set(14, "Active", first), set(15, "Active", second)]),
            words(&[(16, "Candidate"), (15, "Active"), (14, "Previous"), (13, "Abandoned")])
        );
        // After a rollback, the lower number is active.
        assert_eq!(listed(vec![set(14, "Active", second), set(15, "Active", first)]), words(&[(15, "Previous"), (14, "Active")]));
    }
}
