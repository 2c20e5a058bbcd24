//! Compares two policy sets on recorded placements: the pods whose best node changes, and the nodes that become excluded.

use super::{DiffArgs, live_sets, read_files};
use crate::{
    cli::{
        exit::DECISION_NEEDED,
        explain::{
            extenders::{ExtenderSource, ask_all},
            remote::read_file,
        },
        live::Source,
        offline::OfflineArgs,
        output::counted,
    },
    load::Loader,
    scheduler_extender::placements::{PATH, PlacementsAnswer},
};
use anyhow::{Context, Result, bail};
use pointsman_core::{
    decide::{
        Decision, Policies, Standing, Undecided,
        scoring::{Candidates, Scores},
        set::ActiveSet,
    },
    placement::{rank, record::Placement},
};
use pointsman_sandbox::{
    cache::Cache,
    limits::DECISION_CACHE,
    point::{Question, Subject},
    text::printable_line,
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt, process::ExitCode, sync::Arc};
use tokio::task::block_in_place;

/// The number of placements that an extender is asked for: its maximum.
const MAX_PLACEMENTS: &str = "1000";

/// The number of best nodes whose order is compared: those that have a rank.
const FIRST_NODES: usize = 10;

/// The maximum number of printed placements with another best node.
const MAX_LINES: usize = 20;

/// Why a placement isn't compared.
const INCOMPLETE: &str = "the subject or the features of the nodes aren't recorded";

/// The score of each candidate under one of the sets, or why there is none.
type Outcome = Result<Vec<Option<f64>>, String>;

/// The changes for recorded placements.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlacementReport {
    /// The digest of the set.
    set: String,
    /// The digest of the set that it was compared with.
    against: String,
    /// The number of compared placements.
    compared: usize,
    /// The number of placements that weren't compared, because their inputs are incomplete.
    incomplete: usize,
    /// The placements with another best node.
    best: Vec<BestChange>,
    /// The number of placements whose first nodes, or their order, changes.
    reordered: usize,
    /// The number of placements that no longer have scores.
    undecided: usize,
    /// The number of nodes that become excluded, over all placements.
    excluded: usize,
    /// The number of nodes that become allowed.
    allowed: usize,
    /// The plugins of the set that failed, each with its first error.
    failed: BTreeMap<String, String>,
}

/// A pod with another best node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BestChange {
    namespace: String,
    name: String,
    before: BestNode,
    after: BestNode,
}

/// The best node under one of the sets.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BestNode {
    /// None if every node is excluded, or there are no scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    /// Why there are no scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(super) async fn run(args: &DiffArgs, loader: Arc<Loader>) -> Result<ExitCode> {
    let placements = read(args).await?;
    let (before, after) = sets(args, loader).await?;
    let report = block_in_place(|| PlacementReport::new(&placements, &before, &after));
    if report.compared == 0 {
        bail!("no placement can be compared: {INCOMPLETE} ({})", counted(report.incomplete, "placement"));
    }
    args.view.output.print(&report, || report.text(!args.summary))?;
    Ok(if report.is_unchanged() { ExitCode::SUCCESS } else { ExitCode::from(DECISION_NEEDED) })
}

/// The two sets.
async fn sets(args: &DiffArgs, loader: Arc<Loader>) -> Result<(Arc<ActiveSet>, ActiveSet)> {
    if args.view.offline.files.is_empty() {
        let source = Source::connect(&args.view.cluster).await?;
        return live_sets(args, &source, loader).await;
    }
    let (offline, after) = block_in_place(|| read_files(args, &loader))?;
    Ok((offline.policies.active(), after))
}

/// The selected placements.
async fn read(args: &DiffArgs) -> Result<Vec<Placement>> {
    let mut placements: Vec<Placement> = if let Some(file) = &args.placements {
        let text = read_file(file)?;
        let answer = serde_json::from_str::<PlacementsAnswer>(&text);
        answer.with_context(|| format!("{}: it is not a response of a scheduler extender's {PATH}", file.display()))?.placements
    } else {
        let sources = ExtenderSource::at(&args.extender)?;
        let answers = ask_all(&sources, &[("limit", MAX_PLACEMENTS)]).await?;
        answers.into_iter().flat_map(|(_, answer)| answer.placements).collect()
    };
    placements.retain(|placement| is_wanted(&args.view.offline, placement));
    if placements.is_empty() {
        bail!("there is no placement to compare: an extender records the last ones of its pods, and -n and --for select among them");
    }
    Ok(placements)
}

/// Whether -n and --for select a placement, like services.
fn is_wanted(offline: &OfflineArgs, placement: &Placement) -> bool {
    let OfflineArgs { files, namespace, only, .. } = offline;
    // With files, -n is the namespace of objects that specify none.
    let is_in_namespace = !files.is_empty() || namespace.as_ref().is_none_or(|namespace| *namespace == placement.namespace);
    let is_meant = |subject: &Subject| only.iter().any(|(namespace, name)| *namespace == subject.namespace && *name == subject.name);
    is_in_namespace && (only.is_empty() || placement.subject.as_ref().is_some_and(is_meant))
}

/// Calls a set with the inputs of the placement.
fn ask(policies: &Policies, placement: &Placement, subject: &Subject) -> Result<Decision<Scores>, Undecided> {
    let features: Vec<&str> = placement.features.iter().map(String::as_str).collect();
    let candidates = Candidates { features: &features, values: &placement.values };
    policies.pin(Standing::New).score(subject, Question::NodePlacement, candidates)
}

fn outcome(decision: Result<Decision<Scores>, Undecided>) -> Outcome {
    decision.map(|decision| decision.answer.0.clone()).map_err(|undecided| undecided.to_string())
}

/// Whether there is a complete row for each candidate.
fn has_rows(placement: &Placement) -> bool {
    let Placement { nodes, features, values, .. } = placement;
    !values.is_empty() && values.len() == nodes.len() * features.len()
}

impl PlacementReport {
    fn new(placements: &[Placement], before: &ActiveSet, after: &ActiveSet) -> Self {
        let mut report = Self { set: after.digest().to_string(), against: before.digest().to_string(), ..Self::default() };
        let cache = Arc::new(Cache::new(DECISION_CACHE));
        let (before, after) = (Policies::for_comparison(before, Arc::clone(&cache)), Policies::for_comparison(after, cache));
        for placement in placements {
            let Some(subject) = placement.subject.as_ref().filter(|_| has_rows(placement)) else {
                report.incomplete += 1;
                continue;
            };
            let (former, planned) = (ask(&before, placement, subject), ask(&after, placement, subject));
            for failed in planned.iter().flat_map(|decision| &decision.failed) {
                report.failed.entry(failed.plugin.clone()).or_insert_with(|| failed.error.to_string());
            }
            report.add(placement, &outcome(former), &outcome(planned));
        }
        report
    }

    /// Adds the changes for a placement.
    fn add(&mut self, placement: &Placement, before: &Outcome, after: &Outcome) {
        let nodes: Vec<&str> = placement.nodes.iter().map(String::as_str).collect();
        let [former, planned] = [before, after].map(|outcome| first_nodes(&nodes, outcome));
        self.compared += 1;
        self.reordered += usize::from(former != planned);
        self.undecided += usize::from(before.is_ok() && after.is_err());
        for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
            self.excluded += usize::from(before.is_some() && after.is_none());
            self.allowed += usize::from(before.is_none() && after.is_some());
        }
        let (before, after) = (BestNode::new(&nodes, before, &former), BestNode::new(&nodes, after, &planned));
        if before.differs(&after) {
            self.best.push(BestChange { namespace: placement.namespace.clone(), name: placement.name.clone(), before, after });
        }
    }

    fn is_unchanged(&self) -> bool {
        // A fallback replaces a failed plugin, so its results would show no change.
        self.failed.is_empty()
            && self.best.is_empty()
            && [self.reordered, self.undecided, self.excluded, self.allowed].iter().all(|number| *number == 0)
    }

    /// The output for people. Without details, only the numbers.
    fn text(&self, detailed: bool) -> String {
        let mut lines: Vec<String> = Vec::new();
        if detailed && !self.best.is_empty() {
            lines.extend(self.best.iter().take(MAX_LINES).map(ToString::to_string));
            if self.best.len() > MAX_LINES {
                lines.push(format!("and {}", counted(self.best.len() - MAX_LINES, "further placement")));
            }
            lines.push(String::new());
        }
        for (plugin, error) in &self.failed {
            lines.push(format!("the plugin {plugin} didn't answer for all of them: {}", printable_line(error)));
        }
        if self.incomplete > 0 {
            lines.push(format!("not compared: {}, because {INCOMPLETE}", counted(self.incomplete, "placement")));
        }
        lines.push(format!(
            "{}; another node is the best: {}, the first ten nodes change: {}, no answer any more: {}, nodes become excluded: {}, \
             nodes become allowed: {}",
            counted(self.compared, "placement"),
            self.best.len(),
            self.reordered,
            self.undecided,
            self.excluded,
            self.allowed
        ));
        lines.join("\n")
    }
}

/// The best nodes in order; none without scores.
fn first_nodes<'n>(nodes: &[&'n str], outcome: &Outcome) -> Vec<&'n str> {
    let mut ordered = rank::order(nodes, outcome.as_deref().unwrap_or_default());
    ordered.truncate(FIRST_NODES);
    ordered
}

impl BestNode {
    fn new(nodes: &[&str], outcome: &Outcome, ordered: &[&str]) -> Self {
        let best = ordered.first().copied();
        let mut scores = nodes.iter().zip(outcome.iter().flatten());
        let score = scores.find(|(node, _)| Some(**node) == best).and_then(|(_, score)| *score);
        Self { node: best.map(str::to_owned), score, problem: outcome.as_ref().err().cloned() }
    }

    fn differs(&self, other: &Self) -> bool {
        self.node != other.node || self.problem.is_some() != other.problem.is_some()
    }
}

impl fmt::Display for BestNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.node, &self.problem) {
            (Some(node), _) => write!(f, "{} ({:.4})", printable_line(node), self.score.unwrap_or_default()),
            (None, Some(problem)) => write!(f, "no answer, because {}", printable_line(problem)),
            (None, None) => f.write_str("no node"),
        }
    }
}

impl fmt::Display for BestChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, before, after } = self;
        write!(f, "{namespace}/{name}: {before} -> {after}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(name: &str) -> Placement {
        Placement {
            namespace: "ml".to_owned(),
            name: name.to_owned(),
            nodes: ["a", "b", "c"].map(str::to_owned).to_vec(),
            ..Placement::default()
        }
    }

    fn scored(scores: [f64; 3]) -> Vec<Option<f64>> {
        scores.map(|score| (!score.is_nan()).then_some(score)).to_vec()
    }

    #[test]
    fn what_changes_is_counted_and_other_best_nodes_are_named() {
        let mut report = PlacementReport::default();
        let (former, failed) = (Ok(scored([0.9, 0.5, f64::NAN])), Err("the plugin p is slow".to_owned()));
        report.add(&placement("same"), &former, &Ok(scored([0.7, 0.6, f64::NAN])));
        report.add(&placement("neither"), &failed, &failed);
        assert!(report.is_unchanged());
        report.add(&placement("order"), &Ok(scored([0.9, 0.5, 0.4])), &Ok(scored([0.9, 0.4, 0.5])));
        assert!(!report.is_unchanged() && report.best.is_empty());
        report.add(&placement("other"), &former, &Ok(scored([f64::NAN, 0.6, 0.7])));
        report.add(&placement("no-answer"), &former, &failed);
        report.add(&placement("no-node"), &failed, &Ok(scored([f64::NAN; 3])));
        report.incomplete = 2;
        report.failed.insert("q".to_owned(), "it trapped".to_owned());
        let numbers = "not compared: 2 placements, because the subject or the features of the nodes aren't recorded\n\
            6 placements; another node is the best: 3, the first ten nodes change: 3, no answer any more: 1, nodes become excluded: 1, \
            nodes become allowed: 1";
        let details = "ml/other: a (0.9000) -> c (0.7000)\n\
            ml/no-answer: a (0.9000) -> no answer, because the plugin p is slow\n\
            ml/no-node: no answer, because the plugin p is slow -> no node\n\n";
        let failure = "the plugin q didn't answer for all of them: it trapped\n";
        assert_eq!(report.text(true), format!("{details}{failure}{numbers}"));
        assert_eq!(report.text(false), format!("{failure}{numbers}"));
    }

    #[test]
    fn only_some_of_many_placements_are_printed() {
        let mut report = PlacementReport::default();
        for _ in 0..MAX_LINES + 3 {
            report.add(&placement("x"), &Ok(scored([0.9, 0.5, 0.4])), &Ok(scored([0.4, 0.5, 0.9])));
        }
        let text = report.text(true);
        assert_eq!((text.matches(" -> c").count(), text.lines().nth(MAX_LINES)), (MAX_LINES, Some("and 3 further placements")));
    }

    #[test]
    fn a_placement_is_asked_about_again_only_if_each_candidate_has_its_row() {
        let recorded = |features: &[&str], values: &[f64]| Placement {
            features: features.iter().map(ToString::to_string).collect(),
            values: values.to_vec(),
            ..placement("x")
        };
        assert!(has_rows(&recorded(&["price"], &[1.0, 2.0, f64::NAN])));
        assert!(!has_rows(&recorded(&["price"], &[1.0, 2.0])) && !has_rows(&recorded(&[], &[])));
    }
}
