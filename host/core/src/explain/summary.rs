//! A summary of the decisions on one screen: the runtimes, the contribution of each plugin, and problems.

use super::{
    conditions,
    lines::{count, cut_line, cut_table, line, score, wrapped},
    selected,
};
use crate::{
    condition::READY,
    decide::{
        AskedPlugin, FailedPlugin,
        propagation::Propagated,
        selection::{self, Judged, Selection},
        templating::Templated,
    },
    plan::{Decided, Plan},
    point::name,
    status::{APPLIED, RESTARTING, WAITING},
    world::{ObjectKey, Subject},
};
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::point::{Reason, propagation::Target, selection::Candidate};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of runtimes that are listed.
const MAX_RUNTIMES: usize = 6;

/// The maximum number of reasons per plugin, and of label keys.
const MAX_REASONS: usize = 2;
const MAX_KEYS: usize = 3;

/// The maximum number of conditions that are listed, the most serious first.
const MAX_STATES: usize = 5;

/// The reason of a condition that waits for another one; the other one has the details.
const BLOCKED: &str = "Blocked";

/// The label of a condition that differs in the stored status.
const STORED: &str = " (stored)";

/// The summary of a subject's plan. `stored` are its stored conditions that differ from the predicted ones. Lines of tables are truncated
/// at `width`, if there is one.
pub fn text(subject: &Subject, plan: &Plan, stored: &[Value], width: Option<usize>) -> String {
    let ObjectKey { resource, namespace, name } = &subject.key;
    let conditions = conditions(subject, plan);
    let mut text = format!("{} {namespace}/{name}{}\n", resource.kind, readiness(&conditions, stored));
    for decided in &plan.decisions {
        if let Decided::Selection(inputs, decision) = decided {
            text.push_str("\nruntimes\n");
            runtimes(&mut text, plan, inputs, &decision.answer, width);
        }
    }
    let plugins = Contributions::collect(&plan.decisions);
    if !plugins.0.is_empty() {
        text.push_str("\nplugins\n");
        plugins.print(&mut text, width);
    }
    text.push('\n');
    attention(&mut text, plan, &conditions, stored);
    text
}

/// Whether a subject is Ready: according to its status, otherwise as predicted; or both, if they differ.
fn readiness(conditions: &[Value], stored: &[Value]) -> String {
    let state = |conditions: &[Value]| {
        let ready = conditions.iter().find(|condition| condition["type"] == READY)?;
        let [status, reason] = ["status", "reason"].map(|field| ready[field].as_str().unwrap_or_default());
        // The reason of a subject that is Ready is usually Ready.
        Some(if [READY, ""].contains(&reason) { status.to_owned() } else { format!("{status}, {reason}") })
    };
    match (state(stored), state(conditions)) {
        (Some(stored), Some(predicted)) if stored != predicted => format!(": {READY} {stored} (predicted: {predicted})"),
        (Some(state), _) | (None, Some(state)) => format!(": {READY} {state}"),
        (None, None) => String::new(),
    }
}

/// The runtimes: the selected one, the alternatives that rank lower, and the excluded ones.
fn runtimes(text: &mut String, plan: &Plan, inputs: &selection::Inputs, answer: &Selection, width: Option<usize>) {
    let selected = selected(plan, inputs);
    let eligible = |place: usize| match answer.judged.get(place) {
        Some(Judged::Eligible(eligible)) => Some(eligible),
        _ => None,
    };
    let mut rows: Vec<[String; 3]> = Vec::new();
    for place in &answer.ranking {
        let Some(found) = eligible(*place) else { continue };
        let verdict = match selected {
            Some(chosen) if chosen == *place => "selected".to_owned(),
            Some(chosen) => against(inputs, answer, chosen, *place),
            None => String::new(),
        };
        let parts = [verdict, split(answer, *place), reasons(&found.reasons)];
        let why = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        rows.push([candidate(&inputs.candidates[*place]), score(found.score), why]);
    }
    // The selected runtime is listed first, even if it is no longer the best.
    let place = answer.ranking.iter().position(|place| selected == Some(*place));
    if let Some(rows) = rows.get_mut(..=place.unwrap_or_default()) {
        rows.rotate_right(1);
    }
    for (place, judged) in answer.judged.iter().enumerate() {
        if let Judged::Excluded { plugin, reason } = judged {
            let by = plugin.as_ref().map(|plugin| format!(" by {plugin}")).unwrap_or_default();
            let why = format!("excluded{by}, {}: {}", reason.code, reason.message);
            rows.push([candidate(&inputs.candidates[place]), "-".to_owned(), why]);
        }
    }
    let further = rows.len().saturating_sub(MAX_RUNTIMES);
    // A line with the last runtime takes no more space than a line with the number of further ones.
    let shown = if further > 1 { MAX_RUNTIMES } else { rows.len() };
    cut_table(text, rows.get(..shown).unwrap_or_default(), width);
    if further > 1 {
        line(text, 1, &format!("and {further} more, which --all lists"));
    }
    if selected.is_none() {
        line(text, 1, "none is selected");
    }
}

fn candidate(Candidate { kind, namespace, name, .. }: &Candidate) -> String {
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

/// Why another runtime isn't selected.
fn against(inputs: &selection::Inputs, answer: &Selection, selected: usize, other: usize) -> String {
    let merit = |place: usize| match answer.judged.get(place) {
        Some(Judged::Eligible(eligible)) => Some((eligible.score, &eligible.tie_break)),
        _ => None,
    };
    let (Some(first), Some(second)) = (merit(selected), merit(other)) else { return String::new() };
    let own = |place: usize| inputs.candidates.get(place).is_some_and(|candidate| candidate.namespace == inputs.subject.namespace);
    let rank = |wanted: usize| answer.ranking.iter().position(|place| *place == wanted);
    let (is_better, difference) = (rank(other) < rank(selected), first.0 - second.0);
    if is_better {
        return if difference < 0.0 {
            format!("{} more, for the next choice", score(-difference))
        } else {
            "for the next choice".to_owned()
        };
    }
    if own(selected) && !own(other) {
        "the subject's namespace comes first".to_owned()
    } else if difference > 0.0 {
        format!("{} less", score(difference))
    } else if first.1 == second.1 {
        "same score, a later name".to_owned()
    } else {
        "same score, a worse tie-break".to_owned()
    }
}

/// The plugins' shares of a score, if several gave one.
fn split(answer: &Selection, place: usize) -> String {
    let shares = answer.shares.iter().filter_map(|share| Some((share.plugin.as_str(), (*share.scores.get(place)?)?)));
    let shares: Vec<String> = shares.map(|(plugin, given)| format!("{plugin} {}", score(given))).collect();
    if answer.shares.len() > 1 { shares.join(" + ") } else { String::new() }
}

fn reasons(reasons: &[Reason]) -> String {
    reasons.iter().map(|reason| reason.message.as_str()).collect::<Vec<_>>().join(" ")
}

/// One plugin's contribution to a plan.
#[derive(Debug, Default)]
struct Contribution<'p> {
    /// The number of runtimes that it scored, and that it excluded.
    scored: usize,
    excluded: usize,
    /// The number of pod templates that it changed, and the number of changes per requesting layer.
    templates: usize,
    changes: BTreeMap<&'p str, usize>,
    /// The keys of the labels and annotations that it set, their objects, and the number that it dropped.
    keys: BTreeSet<&'p str>,
    objects: BTreeSet<(&'p str, &'p str)>,
    dropped: usize,
    /// The distinct reasons that it gave.
    reasons: Vec<&'p Reason>,
    /// The points at which it failed, and why.
    failures: BTreeSet<String>,
}

/// The contribution of each plugin, in the order of the calls.
#[derive(Debug, Default)]
pub(super) struct Contributions<'p>(Vec<(&'p str, Contribution<'p>)>);

impl<'p> Contributions<'p> {
    pub(super) fn collect(decisions: impl IntoIterator<Item = &'p Decided>) -> Self {
        let mut all = Self::default();
        for decided in decisions {
            match decided {
                Decided::Selection(_, decision) => {
                    all.asked(&decision.plugins, &decision.failed, PolicyPoint::RuntimeSelection);
                    all.selection(&decision.answer);
                }
                Decided::Template(_, _, decision) => {
                    all.asked(&decision.plugins, &decision.failed, PolicyPoint::PodTemplating);
                    all.template(&decision.answer);
                }
                Decided::Metadata(target, _, decision) => {
                    all.asked(&decision.plugins, &decision.failed, PolicyPoint::MetadataPropagation);
                    all.metadata(target, &decision.plugins, &decision.answer);
                }
            }
        }
        all
    }

    fn plugin(&mut self, name: &'p str) -> &mut Contribution<'p> {
        let at = self.0.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            self.0.push((name, Contribution::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    fn asked(&mut self, asked: &'p [AskedPlugin], failed: &'p [FailedPlugin], point: PolicyPoint) {
        for asked in asked {
            self.plugin(&asked.plugin);
        }
        for failed in failed {
            self.plugin(&failed.plugin).failures.insert(format!("no answer at {}: {}", name(point), failed.error));
        }
    }

    fn selection(&mut self, answer: &'p Selection) {
        for share in &answer.shares {
            self.plugin(&share.plugin).scored += share.scores.iter().flatten().count();
        }
        for judged in &answer.judged {
            if let Judged::Excluded { plugin: Some(plugin), .. } = judged {
                self.plugin(plugin).excluded += 1;
            }
        }
    }

    fn template(&mut self, answer: &'p Templated) {
        let mut changed: BTreeSet<&str> = BTreeSet::new();
        for step in &answer.steps {
            let plugin = self.plugin(&step.plugin);
            *plugin.changes.entry(&step.operation.layer).or_default() += 1;
            plugin.templates += usize::from(changed.insert(&step.plugin));
        }
        self.reasons(&answer.reasons);
    }

    fn metadata(&mut self, target: &'p Target, asked: &'p [AskedPlugin], answer: &'p Propagated) {
        let labels = answer.labels.iter().zip(&answer.label_writers);
        for (placed, writer) in labels.chain(answer.annotations.iter().zip(&answer.annotation_writers)) {
            let Some(asked) = writer.and_then(|writer| asked.get(usize::from(writer))) else { continue };
            let plugin = self.plugin(&asked.plugin);
            plugin.keys.insert(&placed.key);
            plugin.objects.insert((&target.kind, &target.name));
        }
        for (plugin, _) in &answer.dropped {
            self.plugin(plugin).dropped += 1;
        }
        self.reasons(&answer.reasons);
    }

    fn reasons(&mut self, reasons: &'p [(String, Reason)]) {
        for (plugin, reason) in reasons {
            let known = &mut self.plugin(plugin).reasons;
            if !known.contains(&reason) {
                known.push(reason);
            }
        }
    }

    pub(super) fn print(&self, text: &mut String, width: Option<usize>) {
        let rows: Vec<[String; 2]> = self.0.iter().map(|(name, plugin)| [(*name).to_owned(), plugin.words()]).collect();
        let mut table = String::new();
        cut_table(&mut table, &rows, width);
        for (row, (_, plugin)) in table.lines().zip(&self.0) {
            line(text, 0, row);
            for failure in &plugin.failures {
                wrapped(text, 2, failure);
            }
            for reason in plugin.reasons.iter().take(MAX_REASONS) {
                cut_line(text, 2, &format!("{}: {}", reason.code, reason.message), width);
            }
        }
    }
}

impl Contribution<'_> {
    fn words(&self) -> String {
        let mut parts = Vec::new();
        if self.scored > 0 {
            parts.push(format!("scores {}", count(self.scored, "runtime")));
        }
        if self.excluded > 0 {
            parts.push(format!("excludes {}", count(self.excluded, "runtime")));
        }
        if self.templates > 0 {
            let changes = self.changes.values().sum();
            let layers: Vec<String> = self.changes.iter().map(|(layer, changes)| format!("{layer} {changes}")).collect();
            let templates = count(self.templates, "pod template");
            parts.push(format!("{} of {templates} ({})", count(changes, "change"), layers.join(", ")));
        }
        if !self.keys.is_empty() {
            let keys = || self.keys.iter().copied().collect::<Vec<_>>().join(", ");
            let what = if self.keys.len() > MAX_KEYS { format!("{} labels and annotations", self.keys.len()) } else { keys() };
            parts.push(format!("sets {what} of {}", count(self.objects.len(), "object")));
        }
        if self.dropped > 0 {
            parts.push(format!("drops {}", self.dropped));
        }
        if self.reasons.len() > MAX_REASONS {
            parts.push(count(self.reasons.len(), "reason"));
        }
        if parts.is_empty() { "changes nothing".to_owned() } else { parts.join("; ") }
    }
}

/// The conditions that need attention, each with its remedy. Conditions with the same message are merged.
pub(super) fn attention(text: &mut String, plan: &Plan, conditions: &[Value], stored: &[Value]) {
    let field = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let predicted = conditions.iter().filter(|told| needs_attention(plan, told)).map(|told| (told, ""));
    let stored = stored.iter().filter(|told| is_abnormal(told)).map(|told| (told, STORED));
    let (ready, applied): (Vec<_>, Vec<_>) = stored.partition(|(told, _)| told["type"] == READY);
    let mut states: Vec<([String; 3], Vec<String>)> = Vec::new();
    for (told, label) in applied.into_iter().chain(predicted).chain(ready) {
        let state = ["status", "reason", "message"].map(|name| field(told, name));
        let type_ = format!("{}{label}", field(told, "type"));
        match states.iter_mut().find(|(known, _)| *known == state) {
            // Ready usually repeats another condition.
            Some(_) if told["type"] == READY => {}
            Some((_, types)) => types.push(type_),
            None => states.push((state, vec![type_])),
        }
    }
    let is_blocked = |([_, reason, _], _): &([String; 3], Vec<String>)| reason == BLOCKED;
    if !states.iter().all(is_blocked) {
        states.retain(|state| !is_blocked(state));
    }
    if states.is_empty() {
        return line(text, 0, "nothing needs attention");
    }
    // Failures come first, then warnings, then unknown conditions.
    let weight = |([status, ..], _): &([String; 3], Vec<String>)| ["False", "True", "Unknown"].iter().position(|known| known == status);
    states.sort_by_key(weight);
    line(text, 0, "needs attention");
    for ([status, reason, message], types) in states.iter().take(MAX_STATES) {
        wrapped(text, 1, &format!("{} {status}, {reason}: {message}", types.join(", ")));
    }
    if let Some(further @ 1..) = states.len().checked_sub(MAX_STATES) {
        line(text, 1, &format!("and {}, which --all lists", count(further, "more state")));
    }
}

fn needs_attention(plan: &Plan, told: &Value) -> bool {
    if told["type"] == APPLIED {
        return is_abnormal(told);
    }
    // Ready only repeats another condition.
    plan.status.conditions.iter().any(|condition| told["type"] == condition.type_ && condition.needs_attention())
}

/// Whether Applied or Ready needs attention.
fn is_abnormal(told: &Value) -> bool {
    told["status"] != "True" || [WAITING, RESTARTING].iter().any(|reason| told["reason"] == *reason)
}
