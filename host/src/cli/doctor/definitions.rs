//! The CustomResourceDefinitions: ours, and others'.

use super::{Checked, Finding, Installation};
use crate::{
    crds::{CrdError, Outcome, install},
    watch,
};
use kube::ResourceExt;
use pointsman_core::resource::POLICY_PLUGIN;
use pointsman_crds::KINDS;
use std::collections::BTreeSet;

const INSTALL: &str = "run `pointsman crds install`";

pub(super) async fn ours(installation: &Installation) -> Checked<CrdError> {
    let (mut findings, mut good) = (Vec::new(), 0);
    for kind in KINDS.iter().filter(|kind| !kind.optional) {
        let crd = (kind.crd)();
        let name = crd.name_any();
        match install(&installation.client, &crd, false, &|_| ()).await? {
            Outcome::Missing if crd.spec.group == POLICY_PLUGIN.group => {
                findings.push(Finding::wrong(format!("{name} is missing, without which hosts can't decide"), INSTALL));
            }
            Outcome::Missing => {
                findings.push(Finding::note(format!("{name} is missing, so objects of this kind can't be created"), INSTALL));
            }
            Outcome::Outdated(comparison) if comparison.compatible() => {
                let message = format!("{name} is that of another version of Pointsman, and lacks nothing of this one");
                findings.push(Finding::note(message, format!("if it is older, {INSTALL}")));
            }
            Outcome::Outdated(comparison) => {
                findings.push(Finding::wrong(format!("{name} is that of another version of Pointsman, and {comparison}"), INSTALL));
            }
            Outcome::Foreign(comparison) if comparison.unusable.is_some() => {
                let message = format!("{name} was not installed by Pointsman, and {comparison}");
                findings.push(Finding::wrong(message, "install a version that docs/crds.md lists"));
            }
            // No other project has this group, so the CRD was installed from our files.
            Outcome::Foreign(comparison) if !comparison.compatible() && crd.spec.group == POLICY_PLUGIN.group => {
                let message = format!("{name} is that of another version of Pointsman, and {comparison}");
                findings.push(Finding::wrong(message, "run `kubectl apply --server-side -k crds`"));
            }
            Outcome::Foreign(comparison) if !comparison.compatible() => {
                let message = format!("{name} was not installed by Pointsman, and {comparison}");
                findings.push(Finding::note(message, "if a service needs such a field, install a version that has it"));
            }
            _ => good += 1,
        }
    }
    findings.insert(0, Finding::ok(format!("{good} of our {} CRDs can be used", good + findings.len())));
    Ok(findings)
}

/// The other projects whose kinds the cluster lacks.
pub(super) fn neighbours(installation: &Installation) -> Vec<Finding> {
    let is_ours =
        |group: &str, plural: &str| KINDS.iter().map(|kind| (kind.resource)()).any(|ours| ours.group == group && ours.plural == plural);
    let mut lacking = BTreeSet::new();
    let mut served = BTreeSet::new();
    for (resource, _) in watch::watched().filter(|(resource, _)| !is_ours(resource.group, resource.plural)) {
        if let Some(neighbour) = resource.neighbour {
            let there = installation.served.serves(resource.group, resource.version, resource.plural);
            if there {
                served.insert(neighbour)
            } else {
                lacking.insert(neighbour)
            };
        }
    }
    let listed = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let mut findings = Vec::new();
    if !served.is_empty() {
        findings.push(Finding::ok(format!("the cluster has {}", listed(served))));
    }
    if !lacking.is_empty() {
        let remedy = "install what your services need; those that need one report MissingApi";
        findings.push(Finding::note(format!("the cluster doesn't have {}", listed(lacking)), remedy));
    }
    findings
}
