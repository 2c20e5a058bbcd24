//! /metrics, in Prometheus' text format.

use crate::{
    leader::Leadership,
    pace::{Pacer, Progress},
};
use pointsman_core::decide::Policies;
use pointsman_sandbox::sync::locked;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The bounds of the histogram of how long one look at a subject takes, in seconds.
const BOUNDS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// What the controller counts.
#[derive(Debug, Default)]
pub struct Reconciles {
    kinds: Mutex<BTreeMap<&'static str, Counts>>,
    depth: AtomicUsize,
}

#[derive(Debug, Default)]
struct Counts {
    done: u64,
    failed: u64,
    taken_away: u64,
    within: [u64; BOUNDS.len()],
    seconds: f64,
}

impl Reconciles {
    /// Counts one look at a subject of a kind.
    pub fn done(&self, kind: &'static str, well: bool, seconds: f64) {
        let mut kinds = locked(&self.kinds);
        let counts = kinds.entry(kind).or_default();
        *(if well { &mut counts.done } else { &mut counts.failed }) += 1;
        counts.seconds += seconds;
        for (within, bound) in counts.within.iter_mut().zip(BOUNDS) {
            *within += u64::from(seconds <= bound);
        }
    }

    /// Counts that somebody has taken away what was told of a contested subject.
    pub fn taken_away(&self, kind: &'static str) {
        locked(&self.kinds).entry(kind).or_default().taken_away += 1;
    }

    /// Says how many subjects wait.
    pub fn depth(&self, depth: usize) {
        self.depth.store(depth, Ordering::Relaxed);
    }

    fn text(&self, text: &mut String) {
        let kinds = locked(&self.kinds);
        head(text, "controller_runtime_reconcile_total", "counter", "Looks at a subject, by kind and result.");
        for (kind, counts) in &*kinds {
            for (result, count) in [("success", counts.done), ("error", counts.failed)] {
                line(text, "controller_runtime_reconcile_total", &[("controller", kind), ("result", result)], count);
            }
        }
        let name = "controller_runtime_reconcile_time_seconds";
        head(text, name, "histogram", "How long one look at a subject takes.");
        for (kind, counts) in &*kinds {
            for (count, bound) in counts.within.iter().zip(BOUNDS) {
                line(text, &format!("{name}_bucket"), &[("controller", kind), ("le", &bound.to_string())], *count);
            }
            let all = counts.done + counts.failed;
            line(text, &format!("{name}_bucket"), &[("controller", kind), ("le", "+Inf")], all);
            writeln!(text, "{name}_sum{{controller=\"{kind}\"}} {}", counts.seconds).ok();
            line(text, &format!("{name}_count"), &[("controller", kind)], all);
        }
        let name = "pointsman_contested_taken_away_total";
        head(text, name, "counter", "Looks at a subject whose condition Contested somebody has taken away.");
        for (kind, counts) in &*kinds {
            line(text, name, &[("controller", kind)], counts.taken_away);
        }
        head(text, "workqueue_depth", "gauge", "Subjects that wait to be looked at.");
        line(text, "workqueue_depth", &[("name", "subjects")], self.depth.load(Ordering::Relaxed) as u64);
    }
}

/// All metrics as they are now.
pub fn text(policies: &Policies, pacer: &Pacer, leadership: &Leadership, reconciles: &Reconciles) -> String {
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
    let name = "pointsman_policy_set_turns_total";
    head(&mut text, name, "counter", "Turns of policy sets: nominated, waiting for an approval, promoted, abandoned. Of the leader.");
    for (turn, count) in policies.turns() {
        line(&mut text, name, &[("turn", turn)], count);
    }
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
    let Progress { at_it, waiting, stopped, .. } = pacer.progress().borrow().clone();
    head(&mut text, "pointsman_pace_subjects", "gauge", "Subjects whose turn it is to restart pods, and those that wait for theirs.");
    line(&mut text, "pointsman_pace_subjects", &[("state", "restarting")], at_it as u64);
    line(&mut text, "pointsman_pace_subjects", &[("state", "waiting")], waiting as u64);
    head(&mut text, "pointsman_pace_stopped", "gauge", "Whether nobody gets a turn: one has failed in its own, or somebody has said so.");
    line(&mut text, "pointsman_pace_stopped", &[], stopped.is_some().into());
    reconciles.text(&mut text);
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
