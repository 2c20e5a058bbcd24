//! `pointsman policy approve`.

use super::{MANAGER, SetsArgs, list, named, phase};
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
    /// The candidate, by its name or the beginning of its digest. It must be named: what is approved is what was looked at.
    name: String,
    /// Doesn't wait for the comparison with the live subjects: it decides before anybody knows what it changes.
    #[arg(long)]
    unseen: bool,
    /// How many seconds to wait until it decides; 0 doesn't wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    /// Tells how the set comes to the services until none waits for its turn to restart pods.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    sets: SetsArgs,
}

pub(super) async fn run(args: ApproveArgs) -> Result<ExitCode> {
    let client = args.sets.cluster.connect().await?;
    let set = named(list(&client).await?, &args.name)?;
    let name = set.name_any();
    match may(&set, args.unseen)? {
        May::Decides => {
            print(&format!("{name} decides already"));
            return Ok(ExitCode::SUCCESS);
        }
        May::Approve => {}
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
        bail!("{name} has changed just now: look at it again, `pointsman policy history {name}`");
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
        super::follow(&api, &name).await?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, PartialEq, Eq)]
enum May {
    Approve,
    Decides,
}

/// Whether an approval of a set would lead to something.
fn may(set: &PolicySet, unseen: bool) -> Result<May> {
    let name = set.name_any();
    let PolicySetStatus { phase, message, conditions, .. } = set.status.clone().unwrap_or_default();
    let condition = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    match phase {
        Some(PolicySetPhase::Active) => return Ok(May::Decides),
        Some(PolicySetPhase::Candidate) => {}
        Some(PolicySetPhase::Previous) => {
            bail!("{name} has decided before, and is no candidate: `pointsman policy rollback` goes back to it")
        }
        Some(PolicySetPhase::Abandoned) => bail!("{name} was abandoned: {}", message.unwrap_or_default()),
        None => bail!("no host has said anything of {name} yet: is one running?"),
    }
    if condition("Approved").is_some_and(|approved| approved.reason == "OnlyTried") {
        bail!("{name} is only tried: a plugin that it changes has the strategy Shadow");
    }
    let compared = condition("Shadowed").is_some_and(|shadowed| shadowed.status == "True");
    if !compared && !unseen {
        bail!("{name} is still being compared with the live subjects: wait for that, or say --unseen");
    }
    Ok(May::Approve)
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
        assert_eq!(said("Candidate", "True", "Awaited", false), Ok(May::Approve));
        assert_eq!(said("Candidate", "False", "Awaited", true), Ok(May::Approve));
        assert_eq!(said("Active", "True", "Awaited", false), Ok(May::Decides));
        assert!(said("Candidate", "False", "Awaited", false).unwrap_err().contains("--unseen"));
        assert!(said("Candidate", "True", "OnlyTried", true).unwrap_err().contains("only tried"));
        assert!(said("Abandoned", "True", "Awaited", false).unwrap_err().contains("why"));
        assert!(said("Previous", "True", "Awaited", false).is_err());
    }
}
