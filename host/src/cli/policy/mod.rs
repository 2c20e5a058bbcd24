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
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, wait::await_condition, watcher},
};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use std::{pin::pin, process::ExitCode, time::Duration};
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
    let mut sets = Api::<PolicySet>::all(client.clone()).list(&ListParams::default()).await.context("listing the PolicySets")?.items;
    let since = |set: &PolicySet| {
        let promoted = set.status.as_ref().and_then(|status| status.promoted_at.as_ref()).map(|at| at.0);
        (
            phase(set) == Some(PolicySetPhase::Candidate),
            phase(set) == Some(PolicySetPhase::Active),
            promoted.or(set.creation_timestamp().map(|at| at.0)),
        )
    };
    sets.sort_by_key(|set| std::cmp::Reverse(since(set)));
    Ok(sets)
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
