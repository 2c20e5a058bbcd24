//! PolicyPlugins in a cluster.

use crate::{
    cli::{
        exit::DECISION_NEEDED,
        output::{note, print},
        policy::approve_set,
        progress,
    },
    keeper::sets::{APPROVED, why_approval_is_needed},
    leader::{holder, seconds_since_renewal},
    permissions::ACCOUNT,
};
use anyhow::{Context, Error, Result, anyhow, bail};
use clap::Args;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::{Api, Client, ResourceExt, api::ListParams, runtime::wait::await_condition};
use pointsman_crds::policy::{
    plugin::{PluginRevision, PolicyPlugin, PolicyPluginStatus},
    set::{PolicySet, PolicySetPhase, PolicySetPlugin},
};
use std::{borrow::Cow, process::ExitCode, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// The field manager of this command line's writes.
pub(super) const MANAGER: &str = "pointsman-cli";

/// How long a refusal must last: the host may have seen the new PolicyPlugin, but not yet all of its ConfigMaps.
const LASTING: Duration = Duration::from_secs(3);

/// How long the host may take to handle an approval before it is checked whether another set waits.
const HANDLING: Duration = Duration::from_secs(3);

/// How long to wait before another attempt to approve a set that has just changed.
const RETRY: Duration = Duration::from_millis(100);

/// The reason of Ready for an update that waits for an approval.
const APPROVAL_NEEDED: &str = "ApprovalNeeded";

/// The reasons of Ready for a candidate that only a user can advance.
const FINAL_REASONS: [&str; 3] = [APPROVAL_NEEDED, "Held", "OnlyTried"];

/// The state of a change that no host has seen.
const NOT_PROCESSED: &str = "no host has processed it yet (is a host running?)";

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
    /// It waits for an approval.
    Waits {
        /// The reason, and what to do.
        why: String,
        /// Whether the bytes are active, with another configuration or binding.
        bytes_are_active: bool,
    },
}

impl Decided {
    /// Prints the result in a line. Returns the exit code.
    pub(super) fn tell(&self, digest: &str, told: impl Fn(&str)) -> ExitCode {
        match self {
            Self::Decides => {
                told(&format!("active    {digest}"));
                ExitCode::SUCCESS
            }
            Self::Waits { why, bytes_are_active } => {
                let what = if *bytes_are_active { "this configuration of " } else { "" };
                told(&format!("waiting   {what}{digest} isn't active yet. {why}"));
                ExitCode::from(DECISION_NEEDED)
            }
        }
    }
}

/// Warns if no host is the leader: nothing becomes active until one is.
pub(super) async fn warn_without_leader(client: &Client, namespace: &str) {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    // Whoever may push a plugin may lack the right to read it.
    if let Ok(lease) = leases.get_opt(ACCOUNT).await
        && !has_leader(lease.as_ref(), Timestamp::now())
    {
        note(format!("no host holds the Lease {namespace}/{ACCOUNT}, so nothing becomes active: is a host running?"));
    }
}

/// Whether a host holds the Lease: it has renewed it within twice its duration, because the clocks may differ.
fn has_leader(lease: Option<&Lease>, now: Timestamp) -> bool {
    let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else { return false };
    holder(spec).is_some() && seconds_since_renewal(spec, now) <= 2 * i64::from(spec.lease_duration_seconds.unwrap_or_default())
}

/// Waits until a digest is active, or until the host reports why it isn't, and returns the result. It doesn't wait for a user's approval,
/// unless --force gives it.
pub(super) async fn decides(plugins: &Api<PolicyPlugin>, applied: &PolicyPlugin, digest: &str, args: WaitArgs) -> Result<Decided> {
    let name = applied.name_any();
    let until = Instant::now() + Duration::from_secs(args.wait);
    let mut approved: Option<String> = None;
    loop {
        let (outcome, plugin) = settle(plugins, applied, digest, until, approved.as_deref()).await?;
        let in_time = Instant::now() < until;
        match outcome {
            Outcome::Active => return Ok(Decided::Decides),
            // Another update may become active at the same time: then another set waits.
            Outcome::Waits(reason, why) if args.force && reason == APPROVAL_NEEDED && in_time => {
                if approve(&plugins.clone().into_client(), &name, digest, &why).await? {
                    approved = Some(why);
                } else {
                    sleep(RETRY).await;
                }
            }
            Outcome::Waits(_, why) => {
                let bytes_are_active = active(plugin.as_ref()).is_some_and(|active| active.digest == digest);
                return Ok(Decided::Waits { why, bytes_are_active });
            }
            Outcome::Refused(why) => bail!("the host can't use {digest}: {}{}", why.trim_end_matches('.'), meanwhile(plugin.as_ref())),
            // It changed again.
            Outcome::Pending(_) if in_time => {}
            Outcome::Pending(state) => {
                bail!("{digest} isn't active after {} s: {state}; see `pointsman plugin status {name}`", args.wait)
            }
        }
    }
}

/// Waits until the result for a digest is known. `approved` is the message of the state that was approved.
async fn settle(
    plugins: &Api<PolicyPlugin>,
    applied: &PolicyPlugin,
    digest: &str,
    until: Instant,
    approved: Option<&str>,
) -> Result<(Outcome, Option<PolicyPlugin>)> {
    let name = applied.name_any();
    progress::set(format!("waiting for the host to activate {name}"));
    let generation = applied.metadata.generation;
    let see = |plugin: Option<&PolicyPlugin>| outcome(plugin, digest, generation);
    let settled = |plugin: Option<&PolicyPlugin>| is_settled(&see(plugin), approved);
    let accepted = |plugin: Option<&PolicyPlugin>| !matches!(see(plugin), Outcome::Refused(_));
    let watching = || format!("watching the PolicyPlugin {name}");
    let left = || until.saturating_duration_since(Instant::now());

    let patience = if approved.is_some() { left().min(HANDLING) } else { left() };
    if let Ok(seen) = timeout(patience, await_condition(plugins.clone(), &name, settled)).await
        && matches!(see(seen.with_context(watching)?.as_ref()), Outcome::Refused(_))
        && let Ok(seen) = timeout(left().min(LASTING), await_condition(plugins.clone(), &name, accepted)).await
    {
        seen.with_context(watching)?;
    }
    let now = plugins.get_opt(&name).await.with_context(watching)?;
    Ok((see(now.as_ref()), now))
}

/// Whether a result needs no further waiting. The host hasn't handled an approval while it reports the state that was approved.
fn is_settled(outcome: &Outcome, approved: Option<&str>) -> bool {
    match outcome {
        Outcome::Active | Outcome::Refused(_) => true,
        Outcome::Waits(_, why) => approved != Some(why.as_str()),
        Outcome::Pending(_) => false,
    }
}

/// Approves the candidate that activates a digest, unless it is approved. Returns whether it is now. `why` is the message about it.
async fn approve(client: &Client, plugin: &str, digest: &str, why: &str) -> Result<bool> {
    let sets = Api::<PolicySet>::all(client.clone());
    let all = sets.list(&ListParams::default()).await.context("listing the PolicySets")?.items;
    let Some(set) = waiting_set(&all, plugin, digest) else { return Ok(false) };
    if set.annotations().get(APPROVED) == Some(&set.spec.digest) {
        return Ok(true);
    }
    match approve_set(&sets, set).await {
        Ok(()) => {
            let although = why_approval_is_needed(why).map(|why| format!(", although {why}")).unwrap_or_default();
            print(&format!("approved  {}, by --force{although}", set.name_any()));
            Ok(true)
        }
        // It has changed in the meantime; its new state is checked next.
        Err(error) if error.downcast_ref::<kube::Error>().is_some_and(is_conflict) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The candidate that changes a plugin to a digest, with the fewest changes: a candidate may combine several that affect the same fields.
fn waiting_set<'a>(all: &'a [PolicySet], plugin: &str, digest: &str) -> Option<&'a PolicySet> {
    // The candidates of other changes contain the plugin as it is active.
    let active = all.iter().find(|set| is_in_phase(set, PolicySetPhase::Active)).and_then(|set| member(set, plugin));
    let changes = |set: &&PolicySet| set.status.as_ref().map_or(0, |status| status.changes.len());
    let candidates = all.iter().filter(|set| is_in_phase(set, PolicySetPhase::Candidate));
    let requested = candidates.filter(|set| member(set, plugin).is_some_and(|member| member.digest == digest && Some(member) != active));
    requested.min_by_key(changes)
}

fn is_in_phase(set: &PolicySet, phase: PolicySetPhase) -> bool {
    set.status.as_ref().is_some_and(|status| status.phase == Some(phase))
}

fn member<'a>(set: &'a PolicySet, plugin: &str) -> Option<&'a PolicySetPlugin> {
    set.spec.plugins.iter().find(|member| member.name == plugin)
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

/// The consequence of a refusal.
fn meanwhile(plugin: Option<&PolicyPlugin>) -> String {
    match (plugin, active(plugin)) {
        (_, Some(active)) => format!("; {} stays active", active.digest),
        (Some(plugin), None) => format!("; push a fix, or run `pointsman plugin delete {}` to remove it", plugin.name_any()),
        (None, None) => String::new(),
    }
}

/// The active revision of a plugin.
fn active(plugin: Option<&PolicyPlugin>) -> Option<&PluginRevision> {
    plugin?.status.as_ref()?.active.as_ref()
}

fn outcome(plugin: Option<&PolicyPlugin>, digest: &str, generation: Option<i64>) -> Outcome {
    let Some(plugin) = plugin else { return Outcome::Refused("the PolicyPlugin was deleted".to_owned()) };
    let Some(status) = &plugin.status else { return Outcome::Pending(NOT_PROCESSED.to_owned()) };
    if status.observed_generation < generation {
        return Outcome::Pending(NOT_PROCESSED.to_owned());
    }
    let loaded = status.conditions.iter().find(|condition| condition.type_ == "Loaded");
    let pending = |condition: &Condition| {
        let Condition { type_, status, reason, message, .. } = condition;
        Outcome::Pending(format!("{type_} is {status} ({reason}): {}", message.trim_end_matches('.')))
    };
    match loaded {
        Some(loaded) if loaded.status == "False" => Outcome::Refused(loaded.message.clone()),
        _ if status.candidate.as_ref().is_some_and(|candidate| candidate.digest == digest) => match ready(status) {
            Some(ready) if FINAL_REASONS.contains(&ready.reason.as_str()) => Outcome::Waits(ready.reason.clone(), ready.message.clone()),
            Some(ready) => pending(ready),
            None => Outcome::Pending("the host has not reported on it".to_owned()),
        },
        _ if status.active.as_ref().is_some_and(|active| active.digest == digest) => Outcome::Active,
        // Other bytes are loaded. A change of only the ConfigMaps doesn't change the generation.
        Some(loaded) if loaded.status == "True" => Outcome::Pending(NOT_PROCESSED.to_owned()),
        Some(loaded) => pending(loaded),
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
        assert_eq!(seen(status(2, "sha256:old", "True")), Outcome::Pending(NOT_PROCESSED.to_owned()), "other bytes are loaded");
        assert_eq!(seen(status(2, "sha256:old", "Unknown")), Outcome::Pending("Loaded is Unknown (R): m".to_owned()));
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
    fn what_waits_is_reported_at_once_and_an_approval_is_awaited_until_the_state_changes() {
        let waits = |why: &str| Outcome::Waits(APPROVAL_NEEDED.to_owned(), why.to_owned());
        assert!(is_settled(&waits("set-a"), None) && is_settled(&Outcome::Active, Some("set-a")));
        assert!(!is_settled(&waits("set-a"), Some("set-a")), "the host hasn't handled the approval");
        assert!(is_settled(&waits("set-b"), Some("set-a")), "another set waits");
        assert!(!is_settled(&Outcome::Pending(String::new()), None));
    }

    #[test]
    fn the_set_that_is_approved_changes_the_plugin() {
        let set = |name: &str, phase: &str, config: &str, changes: usize| -> PolicySet {
            serde_json::from_value(json!({
                "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicySet", "metadata": {"name": name},
                "spec": {
                    "digest": "sha256:set", "host": {"version": "0.1.0", "builtins": "sha256:b"},
                    "plugins": [{
                        "name": "a", "digest": "sha256:new", "points": ["pod-templating"], "mode": "Extend", "order": 1, "weight": 1,
                        "failurePolicy": "Fail", "config": config,
                    }],
                },
                "status": {"phase": phase, "changes": vec!["change"; changes]},
            }))
            .unwrap()
        };
        let mut all = vec![
            set("active", "Active", "{}", 1),
            set("of-another-plugin", "Candidate", "{}", 1),
            set("joint", "Candidate", r#"{"a":1}"#, 2),
            set("alone", "Candidate", r#"{"a":1}"#, 1),
        ];
        let found = |all: &[PolicySet], digest: &str| waiting_set(all, "a", digest).map(ResourceExt::name_any);
        assert_eq!(found(&all, "sha256:new").as_deref(), Some("alone"));
        assert_eq!(found(&all, "sha256:old"), None);
        all.truncate(2);
        assert_eq!(found(&all, "sha256:new"), None, "the active bytes and configuration");
    }

    #[test]
    fn a_refused_plugin_names_what_stays_and_how_to_remove_it() {
        let mut plugin = PolicyPlugin::new("a", PolicyPluginSpec::default());
        assert!(meanwhile(Some(&plugin)).contains("`pointsman plugin delete a`"));
        plugin.status = serde_json::from_value(status(1, "sha256:old", "False")).unwrap();
        assert_eq!(meanwhile(Some(&plugin)), "; sha256:old stays active");
        assert_eq!(meanwhile(None), "");
    }

    #[test]
    fn a_host_leads_while_it_renews_its_lease() {
        let lease = |holder: &str| -> Lease {
            serde_json::from_value(json!({"spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
            }}))
            .unwrap()
        };
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        assert!(has_leader(Some(&lease("host-a")), at("2026-01-01T00:00:20Z")));
        assert!(!has_leader(Some(&lease("host-a")), at("2026-01-01T00:01:00Z")), "it has ended");
        assert!(!has_leader(Some(&lease("")), at("2026-01-01T00:00:01Z")), "it has resigned");
        assert!(!has_leader(None, at("2026-01-01T00:00:01Z")));
    }

    #[test]
    fn a_digest_is_shortened_where_it_is_one() {
        assert_eq!(short("sha256:0123456789abcdef"), "sha256:0123456789ab");
        assert_eq!(short("sha256:one"), "sha256:one");
    }
}
