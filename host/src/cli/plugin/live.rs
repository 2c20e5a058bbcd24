//! PolicyPlugins in a cluster.

use crate::cli::{exit::DECISION_NEEDED, output::print, policy::approve_set, progress};
use anyhow::{Context, Error, Result, anyhow, bail};
use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client, ResourceExt, api::ListParams, runtime::wait::await_condition};
use pointsman_crds::policy::{
    plugin::{PolicyPlugin, PolicyPluginStatus},
    set::{PolicySet, PolicySetPhase},
};
use std::{borrow::Cow, process::ExitCode, time::Duration};
use tokio::time::{Instant, timeout};

/// The field manager of this command line's writes.
pub(super) const MANAGER: &str = "pointsman-cli";

/// A refusal may be out of date, so it must last this long.
const LASTING: Duration = Duration::from_secs(3);

/// The reason of Ready for an update that waits for an approval.
const APPROVAL_NEEDED: &str = "ApprovalNeeded";

/// The reasons of Ready for a candidate that only a user can advance.
const FINAL_REASONS: [&str; 3] = [APPROVAL_NEEDED, "Held", "OnlyTried"];

/// Time to wait for an active digest, and approval
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct WaitArgs {
    /// Seconds to wait until the plugin is active; 0: don't wait
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(super) wait: u64,
    /// Approve the update if it waits for an approval, regardless of its changes and even if no plan can be computed
    #[arg(long)]
    pub(super) force: bool,
}

/// The host's result for a digest so far.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Active,
    /// Why it can't be used.
    Refused(String),
    /// It waits for an approval or is only a trial: the reason, and the message.
    Waits(String, String),
    /// The current state.
    Pending(String),
}

/// The final result for a digest that the host can use.
#[derive(Debug)]
pub(super) enum Decided {
    Decides,
    /// It waits for an approval, for this reason.
    Waits(String),
}

impl Decided {
    /// Prints the result in a line. Returns the exit code.
    pub(super) fn tell(&self, digest: &str, told: impl Fn(&str)) -> ExitCode {
        match self {
            Self::Decides => {
                told(&format!("active    {digest}"));
                ExitCode::SUCCESS
            }
            Self::Waits(why) => {
                told(&format!("waiting   {digest} isn't active yet. {why}"));
                ExitCode::from(DECISION_NEEDED)
            }
        }
    }
}

/// Waits until a digest is active, or until the host reports why it isn't, and returns the result. It doesn't wait for a user's approval,
/// unless --force gives it.
pub(super) async fn decides(plugins: &Api<PolicyPlugin>, applied: &PolicyPlugin, digest: &str, args: WaitArgs) -> Result<Decided> {
    let name = applied.name_any();
    let until = Instant::now() + Duration::from_secs(args.wait);
    loop {
        let (decided, plugin) = settle(plugins, applied, digest, until).await?;
        return match decided {
            Outcome::Active => Ok(Decided::Decides),
            Outcome::Waits(reason, why) => {
                // Another update may become active at the same time: then another set waits.
                if args.force && reason == APPROVAL_NEEDED && Instant::now() < until {
                    approve(&plugins.clone().into_client(), &name, digest).await?;
                    continue;
                }
                Ok(Decided::Waits(why))
            }
            Outcome::Refused(why) => bail!("the host can't use {digest}: {}{}", why.trim_end_matches('.'), meanwhile(plugin.as_ref())),
            Outcome::Pending(state) => {
                bail!("{digest} isn't active after {} s: {state}; see `pointsman plugin status {name}`", args.wait)
            }
        };
    }
}

/// Waits until the result for a digest is known.
async fn settle(
    plugins: &Api<PolicyPlugin>,
    applied: &PolicyPlugin,
    digest: &str,
    until: Instant,
) -> Result<(Outcome, Option<PolicyPlugin>)> {
    let name = applied.name_any();
    progress::set(format!("waiting for the host to activate {name}"));
    let generation = applied.metadata.generation;
    let see = |plugin: Option<&PolicyPlugin>| outcome(plugin, digest, generation);
    let settled = |plugin: Option<&PolicyPlugin>| !matches!(see(plugin), Outcome::Pending(_));
    let active = |plugin: Option<&PolicyPlugin>| see(plugin) == Outcome::Active;
    let watching = || format!("watching the PolicyPlugin {name}");
    let left = || until.saturating_duration_since(Instant::now());

    if let Ok(seen) = timeout(left(), await_condition(plugins.clone(), &name, settled)).await
        && see(seen.with_context(watching)?.as_ref()) != Outcome::Active
        && let Ok(seen) = timeout(left().min(LASTING), await_condition(plugins.clone(), &name, active)).await
    {
        seen.with_context(watching)?;
    }
    let now = plugins.get_opt(&name).await.with_context(watching)?;
    Ok((see(now.as_ref()), now))
}

/// Approves the candidate that activates a digest, unless it is approved.
async fn approve(client: &Client, plugin: &str, digest: &str) -> Result<()> {
    let sets = Api::<PolicySet>::all(client.clone());
    let all = sets.list(&ListParams::default()).await.context("listing the PolicySets")?.items;
    let brings = |set: &&PolicySet| {
        let status = set.status.as_ref();
        status.is_some_and(|status| status.phase == Some(PolicySetPhase::Candidate))
            && set.spec.plugins.iter().any(|bound| bound.name == plugin && bound.digest == digest)
    };
    // A candidate may combine several changes that affect the same fields.
    let changes = |set: &&PolicySet| set.status.as_ref().map_or(0, |status| status.changes.len());
    let Some(set) = all.iter().filter(brings).min_by_key(changes) else { return Ok(()) };
    match approve_set(&sets, set).await {
        Ok(()) => print(&format!("approved  {}, by --force", set.name_any())),
        // It has changed in the meantime; its new state is checked next.
        Err(error) if error.downcast_ref::<kube::Error>().is_some_and(is_conflict) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Reads a PolicyPlugin, which must exist.
pub(super) async fn get(plugins: &Api<PolicyPlugin>, name: &str) -> Result<PolicyPlugin> {
    let found = plugins.get_opt(name).await.with_context(|| format!("reading the PolicyPlugin {name}"))?;
    found.ok_or_else(|| absent(name))
}

/// The error for a missing PolicyPlugin.
pub(super) fn absent(name: &str) -> Error {
    anyhow!("there is no PolicyPlugin {name}: run `pointsman plugin status` to list all of them")
}

fn meanwhile(plugin: Option<&PolicyPlugin>) -> String {
    let active = plugin.and_then(|plugin| plugin.status.as_ref()?.active.as_ref());
    active.map(|active| format!("; {} stays active", active.digest)).unwrap_or_default()
}

fn outcome(plugin: Option<&PolicyPlugin>, digest: &str, generation: Option<i64>) -> Outcome {
    let Some(plugin) = plugin else { return Outcome::Refused("the PolicyPlugin was deleted".to_owned()) };
    let Some(status) = &plugin.status else { return Outcome::Pending("no host has processed it; is one running?".to_owned()) };
    if status.observed_generation < generation {
        return Outcome::Pending("no host has seen the newest state; is one running?".to_owned());
    }
    let loaded = status.conditions.iter().find(|condition| condition.type_ == "Loaded");
    match loaded {
        Some(loaded) if loaded.status == "False" => Outcome::Refused(loaded.message.clone()),
        _ if status.candidate.as_ref().is_some_and(|candidate| candidate.digest == digest) => match ready(status) {
            Some(ready) if FINAL_REASONS.contains(&ready.reason.as_str()) => Outcome::Waits(ready.reason.clone(), ready.message.clone()),
            Some(ready) => Outcome::Pending(format!("Ready is {} ({}): {}", ready.status, ready.reason, ready.message)),
            None => Outcome::Pending("the host has not reported on it".to_owned()),
        },
        _ if status.active.as_ref().is_some_and(|active| active.digest == digest) => Outcome::Active,
        Some(loaded) => Outcome::Pending(format!("Loaded is {} ({}): {}", loaded.status, loaded.reason, loaded.message)),
        None => Outcome::Pending("the host has not reported on it".to_owned()),
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

/// The state of a plugin as one word: the reason of the condition Ready.
pub(super) fn state(status: Option<&PolicyPluginStatus>) -> Cow<'_, str> {
    status.and_then(ready).map_or(Cow::Borrowed("Unknown"), |ready| Cow::Borrowed(&ready.reason))
}

/// The condition Ready of a plugin.
pub(super) fn ready(status: &PolicyPluginStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// The first characters of a digest, which are enough to distinguish it.
pub(super) fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_crds::policy::plugin::PolicyPluginSpec;
    use serde_json::{Value, json};

    fn seen(status: Value) -> Outcome {
        let mut plugin = PolicyPlugin::new("a", PolicyPluginSpec::default());
        plugin.status = serde_json::from_value(status).unwrap();
        outcome(Some(&plugin), "sha256:new", Some(2))
    }

    fn status(generation: i64, digest: &str, loaded: &str) -> Value {
        let condition =
            json!({"type": "Loaded", "status": loaded, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"observedGeneration": generation, "active": {"digest": digest}, "conditions": [condition]})
    }

    #[test]
    fn a_push_has_ended_when_the_digest_decides_or_is_refused() {
        assert_eq!(seen(status(2, "sha256:new", "True")), Outcome::Active);
        assert_eq!(seen(status(2, "sha256:old", "False")), Outcome::Refused("m".to_owned()));
        assert_eq!(seen(status(2, "sha256:old", "True")), Outcome::Pending("Loaded is True (R): m".to_owned()));
        assert!(matches!(seen(status(1, "sha256:old", "False")), Outcome::Pending(_)));
        assert!(matches!(seen(Value::Null), Outcome::Pending(_)));
        let waits = |reason: &str| {
            let mut status = status(2, "sha256:old", "True");
            status["candidate"] = json!({"digest": "sha256:new"});
            let mut ready = status["conditions"][0].clone();
            (ready["type"], ready["reason"]) = ("Ready".into(), reason.into());
            status["conditions"].as_array_mut().unwrap().push(ready);
            seen(status)
        };
        assert_eq!(waits("ApprovalNeeded"), Outcome::Waits("ApprovalNeeded".to_owned(), "m".to_owned()));
        assert!(matches!(waits("UpdateIsTried"), Outcome::Pending(_)));
        assert!(matches!(outcome(None, "sha256:new", None), Outcome::Refused(_)));
    }

    #[test]
    fn a_digest_is_shortened_where_it_is_one() {
        assert_eq!(short("sha256:0123456789abcdef"), "sha256:0123456789ab");
        assert_eq!(short("sha256:one"), "sha256:one");
    }
}
