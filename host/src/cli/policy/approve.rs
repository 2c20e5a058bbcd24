//! `pointsman policy approve`.

use super::{MANAGER, SetsArgs, find_set, list, phase};
use crate::{
    cli::output::print,
    keeper::sets::{APPROVED, NOT_COVERED},
};
use anyhow::{Context, Error, Result, bail};
use clap::Args;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase, PolicySetStatus};
use serde_json::json;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

#[derive(Args, Debug)]
pub(super) struct ApproveArgs {
    /// Candidate to approve: its number, its name, or the beginning of its digest. Required, so that you approve what you have seen
    name: String,
    /// Approve before the comparison with the live subjects is done, without knowing the changes
    #[arg(long)]
    unseen: bool,
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

pub(super) async fn run(args: ApproveArgs) -> Result<ExitCode> {
    let client = args.sets.cluster.connect().await?;
    let set = find_set(list(&client).await?, &args.name)?;
    let name = set.name_any();
    match may(&set, args.unseen)? {
        Approvable::Decides => {
            print(&format!("{name} is already active"));
            return Ok(ExitCode::SUCCESS);
        }
        Approvable::Approve => {}
    }
    let api = Api::<PolicySet>::all(client);
    approve_set(&api, &set).await?;
    print(&format!("approved   {name}, {}", set.spec.digest));
    if args.wait == 0 && !args.watch {
        return Ok(ExitCode::SUCCESS);
    }
    let mut active = name;
    if args.wait > 0 {
        active = decides_or_successor(&api, active, args.wait).await?;
    }
    if args.watch {
        super::follow(&api, &active, args.timeout).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Approves a set as it was seen.
pub(in crate::cli) async fn approve_set(sets: &Api<PolicySet>, set: &PolicySet) -> Result<()> {
    let name = set.name_any();
    // The approval is for the state that the user has seen.
    let patch = json!({"metadata": {"resourceVersion": set.resource_version(), "annotations": {APPROVED: set.spec.digest}}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let approved = sets.patch(&name, &params, &Patch::Merge(&patch)).await;
    approved.map(|_| ()).map_err(|error| match &error {
        kube::Error::Api(status) if status.is_conflict() => Error::from(error)
            .context(format!("{name} has changed in the meantime: review it again with `pointsman policy history {name}`")),
        _ => Error::from(error).context(format!("approving {name}")),
    })
}

/// Waits until a set is active, or the one that has replaced it because another update became active at the same time: the approval also
/// covers that one if it makes no further changes. Returns the active one.
async fn decides_or_successor(api: &Api<PolicySet>, mut name: String, seconds: u64) -> Result<String> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let settled = |set: &PolicySet| phase(set) != Some(PolicySetPhase::Candidate) || is_refused(set);
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_secs();
        let Err(error) = super::decides(api, &name, left, settled).await else { return Ok(name) };
        let now = api.get_opt(&name).await.with_context(|| format!("reading {name}"))?;
        let Some(next) = now.and_then(|set| set.status?.replaced_by) else { return Err(error) };
        print(&format!("replaced   {name} by {next}: another set became active meanwhile"));
        name = next;
    }
}

/// Whether the approval of the replaced set doesn't cover a set.
fn is_refused(set: &PolicySet) -> bool {
    let status = set.status.as_ref();
    let message = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
    set.annotations().get(APPROVED) != Some(&set.spec.digest) && message.contains(NOT_COVERED)
}

#[derive(Debug, PartialEq, Eq)]
enum Approvable {
    Approve,
    Decides,
}

/// Whether an approval of a set would have an effect.
fn may(set: &PolicySet, unseen: bool) -> Result<Approvable> {
    let name = set.name_any();
    let PolicySetStatus { phase, message, conditions, replaced_by, .. } = set.status.clone().unwrap_or_default();
    let condition = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    match phase {
        Some(PolicySetPhase::Active) => return Ok(Approvable::Decides),
        Some(PolicySetPhase::Candidate) => {}
        Some(PolicySetPhase::Previous) => {
            bail!("{name} was active before and is not a candidate: run `pointsman policy rollback` to activate it again")
        }
        Some(PolicySetPhase::Abandoned) => {
            let next = replaced_by.map(|next| format!(" Review {next} with `pointsman policy history {next}`.")).unwrap_or_default();
            bail!("{name} was abandoned: {}{next}", message.unwrap_or_default())
        }
        None => bail!("no host has reported on {name} yet: check that one is running"),
    }
    if condition("Approved").is_some_and(|approved| approved.reason == "OnlyTried") {
        bail!("{name} is only compared: a plugin that it changes has the strategy Shadow");
    }
    let compared = condition("Shadowed").is_some_and(|shadowed| shadowed.status == "True");
    if !compared && !unseen {
        bail!("{name} is still being compared with the live subjects: wait, or set --unseen");
    }
    Ok(Approvable::Approve)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn set(phase: &str, shadowed: &str, approved: &str) -> PolicySet {
        let condition = |type_: &str, status: &str, reason: &str| -> Value {
            json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        serde_json::from_value(json!({
            "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicySet", "metadata": {"name": "s"},
            "spec": {"digest": "sha256:a", "host": {"version": "0.1.0", "builtins": "sha256:b"}},
            "status": {"phase": phase, "message": "why", "conditions": [condition("Shadowed", shadowed, "R"), condition("Approved", "False", approved)]},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_candidate_that_was_looked_at_is_approved() {
        let said = |phase: &str, shadowed: &str, approved: &str, unseen: bool| {
            may(&set(phase, shadowed, approved), unseen).map_err(|error| error.to_string())
        };
        assert_eq!(said("Candidate", "True", "Awaited", false), Ok(Approvable::Approve));
        assert_eq!(said("Candidate", "False", "Awaited", true), Ok(Approvable::Approve));
        assert_eq!(said("Active", "True", "Awaited", false), Ok(Approvable::Decides));
        assert!(said("Candidate", "False", "Awaited", false).unwrap_err().contains("--unseen"));
        assert!(said("Candidate", "True", "OnlyTried", true).unwrap_err().contains("is only compared"));
        assert!(said("Abandoned", "True", "Awaited", false).unwrap_err().contains("why"));
        assert!(said("Previous", "True", "Awaited", false).is_err());
    }
}
