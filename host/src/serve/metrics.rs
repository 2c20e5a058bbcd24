//! /metrics, in Prometheus' text format.

use crate::{leader::Leadership, policy::decide::Policies};
use std::fmt::Write as _;

/// All metrics as they are now.
pub fn text(policies: &Policies, leadership: &Leadership) -> String {
    let mut text = String::new();
    let set = policies.active();
    head(&mut text, "pointsman_policy_calls_total", "counter", "Questions put to a plugin since it is bound as it is, by outcome.");
    for member in set.members() {
        let (answered, failed) = member.health.counts();
        for (outcome, count) in [("answered", answered), ("failed", failed)] {
            line(&mut text, "pointsman_policy_calls_total", &[("plugin", member.name()), ("outcome", outcome)], count);
        }
    }
    head(&mut text, "pointsman_policy_quarantined", "gauge", "Whether a plugin isn't asked for a while because it failed too often.");
    let now = std::time::Instant::now();
    for member in set.members() {
        let quarantined = member.health.quarantined(now).is_some();
        line(&mut text, "pointsman_policy_quarantined", &[("plugin", member.name())], quarantined.into());
    }
    head(&mut text, "pointsman_policy_set_info", "gauge", "The digest of the policy set that decides here.");
    line(&mut text, "pointsman_policy_set_info", &[("digest", &set.digest().to_string())], 1);
    head(&mut text, "pointsman_policy_plugin_info", "gauge", "The digest and version of each plugin that decides here.");
    for member in set.members() {
        let version = member.bound.version.as_deref().unwrap_or_default();
        let labels = [("plugin", member.name()), ("digest", &member.bound.digest), ("version", version)];
        line(&mut text, "pointsman_policy_plugin_info", &labels, u64::from(member.missing().is_none()));
    }
    head(&mut text, "pointsman_policy_cached_decisions", "gauge", "Decisions that are kept by the digests of their inputs.");
    line(&mut text, "pointsman_policy_cached_decisions", &[], policies.cached() as u64);
    head(&mut text, "pointsman_leader", "gauge", "Whether this host leads: only the leader writes.");
    line(&mut text, "pointsman_leader", &[], leadership.held().into());
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing into a String can't fail.
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
}

fn line(text: &mut String, name: &str, labels: &[(&str, &str)], value: u64) {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    writeln!(text, "{name}{labels} {value}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_s_value_cannot_break_out() {
        let mut text = String::new();
        line(&mut text, "m", &[("a", "x\"} 1\n\\")], 2);
        assert_eq!(text, "m{a=\"x\\\"} 1\\n\\\\\"} 2\n");
    }
}
