//! The policies: the active set, candidates, and policies that can't be used.

use super::{Checked, Finding, Installation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, ResourceExt, api::ListParams};
use pointsman_core::resource::POLICY_SET;
use pointsman_crds::policy::{
    plugin::PolicyPlugin,
    rule::ValidationRule,
    set::{PolicySet, PolicySetPhase},
};

pub(super) async fn check(installation: &Installation) -> Checked {
    if !installation.served.serves_any_version(POLICY_SET.group, POLICY_SET.plural) {
        // The check of the CRDs reports it.
        return Ok(Vec::new());
    }
    let (client, all) = (&installation.client, ListParams::default());
    let sets = Api::<PolicySet>::all(client.clone()).list(&all).await?.items;
    let plugins = Api::<PolicyPlugin>::all(client.clone()).list(&all).await?.items;
    let rules = Api::<ValidationRule>::all(client.clone()).list(&all).await?.items;

    let mut findings = Vec::new();
    let in_phase =
        |phase: PolicySetPhase| sets.iter().filter(move |set| set.status.as_ref().and_then(|status| status.phase) == Some(phase));
    findings.push(match in_phase(PolicySetPhase::Active).next() {
        Some(active) => Finding::ok(format!("{} is active", active.name_any())),
        None => Finding::wrong("no PolicySet is active", "check that a host is the leader; it records the active set"),
    });
    for candidate in in_phase(PolicySetPhase::Candidate) {
        let status = candidate.status.clone().unwrap_or_default();
        let why = status.message.or(status.summary).unwrap_or_default();
        let remedy = "`pointsman policy history` shows what it changes, `pointsman policy approve` activates it";
        findings.push(Finding::note(format!("{} waits to be active ({})", candidate.name_any(), why.trim_end_matches('.')), remedy));
    }
    let mut broken: Vec<Finding> = Vec::new();
    for plugin in &plugins {
        let conditions = plugin.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        broken.extend(failed("PolicyPlugin", &plugin.name_any(), conditions));
    }
    for rule in &rules {
        let conditions = rule.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        broken.extend(failed("ValidationRule", &rule.name_any(), conditions));
    }
    if broken.is_empty() {
        findings.push(Finding::ok(format!("{} plugins and {} rules can be used", plugins.len(), rules.len())));
    }
    findings.extend(broken);
    Ok(findings)
}

/// An object that isn't Ready.
fn failed(kind: &str, name: &str, conditions: &[Condition]) -> Option<Finding> {
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "False")?;
    let message = format!("the {kind} {name} can't be used ({})", ready.message.trim_end_matches('.'));
    Some(Finding::wrong(message, format!("correct it, or delete it; `kubectl get {}/{name} -o yaml` shows all", kind.to_lowercase())))
}
