//! The changes of a set, as text. Pure.

use super::{
    pending::{Pending, WantedState},
    sets::short,
};
use pointsman_core::{decide::set::ActiveSet, rules::rule::Rule};
use pointsman_crds::policy::set::PolicySetPlugin;
use std::sync::Arc;

/// The change of a plugin or a rule, in one line.
pub(super) fn describe(active: &ActiveSet, pending: &Pending) -> String {
    let by = pending.by.as_ref().map(|by| format!(", by {by}")).unwrap_or_default();
    match &pending.wanted {
        WantedState::Plugin(member, _) => {
            let current = active.member(&pending.name).map(|member| &member.bound);
            format!("plugin {}: {}{by}", pending.name, told_of_plugin(current, member.as_ref().map(|member| &member.bound)))
        }
        WantedState::Rule(rule) => {
            format!("rule {}: {}{by}", pending.name, told_of_rule(active.rules().find(&pending.name), rule.as_ref()))
        }
    }
}

fn told_of_rule(current: Option<&Arc<Rule>>, wanted: Option<&Arc<Rule>>) -> String {
    let (Some(current), Some(wanted)) = (current, wanted) else {
        return match wanted {
            Some(wanted) if wanted.bound.spec.enabled => "added".to_owned(),
            Some(_) => "added, switched off".to_owned(),
            None => "removed".to_owned(),
        };
    };
    let (old, new) = (&current.bound.spec, &wanted.bound.spec);
    let switched = match (old.enabled, new.enabled) {
        (false, true) => Some("switched on"),
        (true, false) => Some("switched off"),
        _ => None,
    };
    let others = [
        ("stage", old.stage != new.stage),
        ("match", old.selection != new.selection || old.match_conditions != new.match_conditions),
        ("variables", old.variables != new.variables),
        ("validations", old.validations != new.validations),
        ("actions", old.actions != new.actions),
        ("failurePolicy", old.failure_policy != new.failure_policy),
        ("params", old.params != new.params || current.bound.params != wanted.bound.params),
    ];
    let others = others.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| format!("other {name}"));
    switched.map(str::to_owned).into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

fn told_of_plugin(current: Option<&PolicySetPlugin>, wanted: Option<&PolicySetPlugin>) -> String {
    let revision = |bound: &PolicySetPlugin| {
        let version = bound.version.as_ref().map(|version| format!(" ({version})")).unwrap_or_default();
        format!("{}{version}", short(&bound.digest))
    };
    match (current, wanted) {
        (Some(current), Some(wanted)) => {
            let mut parts = Vec::new();
            if current.digest != wanted.digest {
                parts.push(format!("{} -> {}", revision(current), revision(wanted)));
            }
            if current.order != wanted.order {
                parts.push(format!("order {} -> {}", current.order, wanted.order));
            }
            if current.weight != wanted.weight {
                parts.push(format!("weight {} -> {}", current.weight, wanted.weight));
            }
            let others = [
                ("config", current.config != wanted.config),
                ("match", current.selection != wanted.selection || current.match_conditions != wanted.match_conditions),
                ("points", current.points != wanted.points),
                ("mode", current.mode != wanted.mode),
                ("limits", current.limits != wanted.limits),
                ("instances", current.instances != wanted.instances),
                ("failurePolicy", current.failure_policy != wanted.failure_policy),
            ];
            parts.extend(others.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| format!("other {name}")));
            parts.join(", ")
        }
        (None, Some(wanted)) => format!("added, {}", revision(wanted)),
        (Some(current), None) => format!("removed, {}", revision(current)),
        (None, None) => "nothing".to_owned(),
    }
}

/// The changes of a set, in one line.
pub(super) fn summary(pending: &[Pending], changes: &[String]) -> String {
    match changes {
        [one] => one.clone(),
        _ => format!("{} changes: {}", pending.len(), pending.iter().map(|pending| pending.name.as_str()).collect::<Vec<_>>().join(", ")),
    }
}
