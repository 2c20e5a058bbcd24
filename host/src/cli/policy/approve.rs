//! `pointsman policy approve`.

use super::{MANAGER, SetsArgs, find_set, list, phase};
use crate::{cli::output::print, keeper::sets::APPROVED};
use anyhow::{Context, Result, bail};
use clap::Args;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase, PolicySetStatus};
use serde_json::json;
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct ApproveArgs {
    /// Candidate: its name, or the beginning of its digest. Required, so that you approve what you have seen
    name: String,
    /// Approve before the comparison with the live subjects is done, without knowing what changes
    #[arg(long)]
    unseen: bool,
    /// Seconds to wait until the set decides; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    /// Watch the rollout until no restart is queued
    #[arg(long)]
    watch: bool,
    /// Seconds after which watching ends with an error; by default it doesn't
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
            print(&format!("{name} decides already"));
            return Ok(ExitCode::SUCCESS);
        }
        Approvable::Approve => {}
    }
    let api = Api::<PolicySet>::all(client);
    let digest = &set.spec.digest;
    // Whoever has looked at it has looked at this state of it.
    let patch = json!({"metadata": {"resourceVersion": set.resource_version(), "annotations": {APPROVED: digest}}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let approved = api.patch(&name, &params, &Patch::Merge(&patch)).await;
    if let Err(kube::Error::Api(status)) = &approved
        && status.is_conflict()
    {
        bail!("{name} has changed in the meantime: review it again with `pointsman policy history {name}`");
    }
    approved.with_context(|| format!("approving {name}"))?;
    print(&format!("approved   {name}, {digest}"));
    if args.wait == 0 && !args.watch {
        return Ok(ExitCode::SUCCESS);
    }
    if args.wait > 0 {
        super::decides(&api, &name, args.wait, |set| phase(set) != Some(PolicySetPhase::Candidate)).await?;
    }
    if args.watch {
        super::follow(&api, &name, args.timeout).await?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, PartialEq, Eq)]
enum Approvable {
    Approve,
    Decides,
}

/// Whether an approval of a set would lead to something.
fn may(set: &PolicySet, unseen: bool) -> Result<Approvable> {
    let name = set.name_any();
    let PolicySetStatus { phase, message, conditions, .. } = set.status.clone().unwrap_or_default();
    let condition = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    match phase {
        Some(PolicySetPhase::Active) => return Ok(Approvable::Decides),
        Some(PolicySetPhase::Candidate) => {}
        Some(PolicySetPhase::Previous) => {
            bail!("{name} was active before and is not a candidate: run `pointsman policy rollback` to go back to it")
        }
        Some(PolicySetPhase::Abandoned) => bail!("{name} was abandoned: {}", message.unwrap_or_default()),
        None => bail!("no host has reported on {name} yet: check that one is running"),
    }
    if condition("Approved").is_some_and(|approved| approved.reason == "OnlyTried") {
        bail!("{name} is compared only: a plugin that it changes has the strategy Shadow");
    }
    let compared = condition("Shadowed").is_some_and(|shadowed| shadowed.status == "True");
    if !compared && !unseen {
        bail!("{name} is still being compared with the live subjects: wait, or give --unseen");
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
        assert!(said("Candidate", "True", "OnlyTried", true).unwrap_err().contains("is compared only"));
        assert!(said("Abandoned", "True", "Awaited", false).unwrap_err().contains("why"));
        assert!(said("Previous", "True", "Awaited", false).is_err());
    }
}
