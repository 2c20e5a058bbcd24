//! `pointsman policy history`.

use super::{SetsArgs, find_set, list, members::members, number, phase, phase_word};
use crate::{
    cli::output::{OutputArgs, Tone, columns, counted, pairs},
    keeper::reports,
};
use anyhow::Result;
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use pointsman_core::compare::Report;
use pointsman_crds::policy::set::{BlastRadius, PolicySet, PolicySetActivation, PolicySetPhase, ReplayedScores};
use serde_json::json;
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct HistoryArgs {
    /// Show one set in detail: its number, its name, or the beginning of its digest
    name: Option<String>,
    /// List all changed subjects; default: only the first ones
    #[arg(long, requires = "name")]
    subjects: bool,
    /// List all plugins and rules of the set; default: without unchanged built-in policies and shipped rules
    #[arg(long, requires = "name")]
    all: bool,
    #[command(flatten)]
    sets: SetsArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: HistoryArgs) -> Result<ExitCode> {
    let client = args.sets.cluster.connect().await?;
    let sets = list(&client).await?;
    let Some(name) = &args.name else {
        args.output.print(&sets, || table(&sets, Timestamp::now()))?;
        return Ok(ExitCode::SUCCESS);
    };
    let set = find_set(sets.clone(), name)?;
    let report = reports::read(&client, &args.sets.host.host_namespace, &set.name_any()).await;
    // A report against another set doesn't match.
    let against = set.status.as_ref().and_then(|status| status.against.clone());
    let report = report.filter(|report| report.set == set.spec.digest && Some(&report.against) == against.as_ref());
    args.output.print(&json!({ "set": set, "report": report }), || {
        details(&set, report.as_ref(), args.subjects) + "\n\n" + &members(&set, &sets, args.all)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The age of something, in kubectl's format.
fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn painted_phase(set: &PolicySet) -> String {
    let word = phase_word(set);
    match phase(set) {
        Some(PolicySetPhase::Active) => Tone::Good.paint(word),
        Some(PolicySetPhase::Candidate) => Tone::Attention.paint(word),
        Some(PolicySetPhase::Previous | PolicySetPhase::Abandoned) | None => word,
    }
}

fn table(sets: &[PolicySet], now: Timestamp) -> String {
    let rows: Vec<_> = sets
        .iter()
        .map(|set| {
            let status = set.status.clone().unwrap_or_default();
            // The report at its activation stays, until it is a candidate again.
            let activation = status.activations.last().filter(|_| phase(set) != Some(PolicySetPhase::Candidate));
            let reported = activation.and_then(|activation| activation.blast_radius.clone());
            let radius = reported.or(status.blast_radius).unwrap_or_default();
            let summary = activation.and_then(|activation| activation.summary.clone()).or(status.summary);
            let known = radius.evaluated > 0 || radius.subjects > 0;
            let count = |count: i64| if known { count.to_string() } else { String::new() };
            let is_candidate = phase(set) == Some(PolicySetPhase::Candidate);
            let since = status.phase_since.filter(|_| is_candidate).or(status.promoted_at);
            let since = since.map(|at| at.0).or(set.creation_timestamp().map(|at| at.0));
            [
                number(set),
                set.name_any(),
                painted_phase(set),
                since.map(|since| age(since, now)).unwrap_or_default(),
                count(radius.restarts),
                count(radius.objects),
                count(radius.metadata),
                count(radius.failed),
                count(radius.choices),
                summary.unwrap_or_default(),
            ]
        })
        .collect();
    columns(["NUMBER", "NAME", "PHASE", "AGE", "RESTARTS", "OBJECTS", "METADATA", "FAILED", "CHOICES", "CHANGE"], &rows)
}

fn details(set: &PolicySet, report: Option<&Report>, all: bool) -> String {
    let status = set.status.clone().unwrap_or_default();
    let BlastRadius { subjects, evaluated, restarts, objects, metadata, failed, choices, scores, examples } =
        status.blast_radius.clone().unwrap_or_default();
    let mut facts = vec![
        ("number", number(set)),
        ("name", set.name_any()),
        ("digest", set.spec.digest.clone()),
        ("phase", phase_word(set)),
        ("creator", format!("host {}", set.spec.host.version)),
    ];
    for (place, PolicySetActivation { at, summary, blast_radius, .. }) in status.activations.iter().enumerate() {
        let restarts = blast_radius.as_ref().map(|radius| format!(", restarts: {}", radius.restarts)).unwrap_or_default();
        let summary = summary.as_ref().map(|summary| format!(": {summary}")).unwrap_or_default();
        facts.push((if place == 0 { "active from" } else { "" }, format!("{}{summary}{restarts}", at.0)));
    }
    if let Some(against) = &status.against {
        facts.push(("against", crate::keeper::sets::name(against)));
    }
    for (number, change) in status.changes.iter().enumerate() {
        facts.push((if number == 0 { "changes" } else { "" }, change.clone()));
    }
    if let Some(message) = &status.message {
        facts.push(("message", message.clone()));
    }
    facts.push(("compared", format!("{evaluated} of {}", counted(usize::try_from(subjects).unwrap_or_default(), "subject"))));
    facts.push(("restarts", restarts.to_string()));
    facts.push(("objects", objects.to_string()));
    facts.push(("metadata", metadata.to_string()));
    facts.push(("failed", failed.to_string()));
    facts.push(("choices", format!("{choices} would choose another runtime at the next choice")));
    if let Some(ReplayedScores { questions, best, scores, failed }) = scores {
        let told =
            format!("recorded questions: {questions}; another best candidate: {best}, only other scores: {scores}, failed: {failed}");
        facts.push(("scores", told));
    }
    let mut text = pairs(&facts);
    let lines = if let Some(report) = report.filter(|_| all) {
        whole(report)
    } else {
        let reported = || usize::try_from(restarts + objects + metadata + failed).unwrap_or_default();
        let changed = report.map_or_else(reported, |report| report.changed.len() + report.omitted);
        let left = changed.saturating_sub(examples.len());
        let more = (left > 0).then(|| format!("and {left} more: --subjects lists them"));
        examples.into_iter().chain(more).collect()
    };
    if all && report.is_none() {
        text.push_str("\nthe full report is not stored; these are the first subjects\n");
    } else if !lines.is_empty() {
        text.push('\n');
    }
    text + &lines.join("\n")
}

/// All subjects of a report, with the changed places.
fn whole(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for changed in &report.changed {
        lines.push(format!("{} {}/{}: {}", changed.kind, changed.namespace, changed.name, changed.effect.description()));
        lines.extend(changed.places.iter().map(|place| format!("  {place}")));
    }
    if report.omitted > 0 {
        lines.push(format!("and {} more, omitted because of the report's maximum size", report.omitted));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;

    fn set() -> PolicySet {
        serde_json::from_value(json!({
            "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicySet",
            "metadata": {"name": "set-aaaaaaaaaaaa", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"digest": format!("sha256:{}", "a".repeat(64)), "number": 14, "host": {"version": "0.1.0", "builtins": "sha256:b"}},
            "status": {
                "phase": "Candidate", "summary": "plugin a: added", "changes": ["plugin a: added", "plugin b: removed"], "message": "It waits.",
                "blastRadius": {"subjects": 9, "evaluated": 9, "restarts": 3, "scores": {"questions": 8, "best": 2, "scores": 1, "failed": 0}, "examples": ["InferenceService n/a: pods restart"]},
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_row_a_set_is_printed_with_its_age_and_what_it_changes() {
        let now = "2026-01-01T00:03:00Z".parse().unwrap();
        let table = strip_str(&table(&[set()], now)).to_string();
        assert_eq!(
            table.lines().nth(1).unwrap(),
            "#14      set-aaaaaaaaaaaa   Candidate   3m    3          0         0          0        0         plugin a: added"
        );
        let ages = [(5, "5s"), (119, "119s"), (120, "2m"), (7_300, "2h"), (172_800, "2d")];
        for (seconds, told) in ages {
            assert_eq!(age(Timestamp::UNIX_EPOCH, Timestamp::from_second(seconds).unwrap()), told);
        }
    }

    #[test]
    fn the_details_name_subjects_and_how_many_are_left_out() {
        let told = details(&set(), None, false);
        for part in [
            "plugin b: removed",
            "It waits.",
            "9 of 9 subjects",
            "recorded questions: 8; another best candidate: 2, only other scores: 1, failed: 0",
            "n/a: pods restart",
            "and 2 more: --subjects lists them",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
        assert!(details(&set(), None, true).contains("the full report is not stored"));
        let mut one = set();
        one.status.as_mut().unwrap().blast_radius = Some(BlastRadius { subjects: 1, evaluated: 1, ..BlastRadius::default() });
        let told = details(&one, None, false);
        assert!(told.lines().any(|line| line.ends_with("   1 of 1 subject")), "{told}");
    }

    #[test]
    fn what_was_reported_of_a_set_when_it_became_active_is_printed_whatever_was_found_later() {
        let mut set = set();
        let radius = |restarts| BlastRadius { subjects: 9, evaluated: 9, restarts, ..BlastRadius::default() };
        let status = set.status.as_mut().unwrap();
        let at = serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap();
        status.activations =
            vec![PolicySetActivation { at, against: None, summary: Some("then".to_owned()), blast_radius: Some(radius(4)) }];
        status.blast_radius = Some(radius(6));
        let row = |set: &PolicySet| {
            let table = strip_str(&table(std::slice::from_ref(set), "2026-01-01T00:03:00Z".parse().unwrap())).to_string();
            let cells: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
            (cells[4].to_owned(), cells[9..].join(" "))
        };
        assert_eq!(row(&set), ("6".to_owned(), "plugin a: added".to_owned()), "it is a candidate again, over another set");
        set.status.as_mut().unwrap().phase = Some(PolicySetPhase::Active);
        assert_eq!(row(&set), ("4".to_owned(), "then".to_owned()));
        assert!(details(&set, None, false).contains("2026-01-01T00:01:00Z: then, restarts: 4"));
    }

    #[test]
    fn a_set_is_found_by_the_beginning_of_its_digest() {
        for wanted in ["set-aaaaaaaaaaaa", "aaa", "sha256:aaaaa", "set-aa", "14", "#14"] {
            assert_eq!(find_set(vec![set()], wanted).unwrap().name_any(), "set-aaaaaaaaaaaa", "{wanted}");
        }
        assert!(find_set(vec![set()], "13").unwrap_err().to_string().contains("there are #14 set-aaaaaaaaaaaa"));
        assert!(find_set(vec![set(), set()], "aa").unwrap_err().to_string().contains("several"));
        assert!(find_set(vec![set()], "set-").is_err());
    }
}
