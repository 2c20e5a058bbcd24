//! Explains the node of a pod, from the scheduler extender's records.

use super::{
    super::{
        live::ViewArgs,
        offline::DEFAULT_NAMESPACE,
        output::{columns, note},
    },
    extenders::{ExtenderSource, ask_all, failure},
};
use crate::scheduler_extender::placements::{ExplainedNode, PlacementsAnswer};
use anyhow::{Error, Result, anyhow};
use k8s_openapi::jiff::Timestamp;
use pointsman_core::placement::record::{Placement, RankedNode};
use pointsman_sandbox::text::printable_line;
use std::{collections::BTreeMap, fmt::Write as _};

/// The number of best nodes that are explained, in addition to the chosen one.
const EXPLAINED: usize = 3;

/// The maximum number of nodes in the table, and of names in a sentence.
const MAX_ROWS: usize = 20;
const MAX_NAMES: usize = 5;

/// Why there is no placement.
#[derive(Debug)]
pub(super) enum NoPlacement {
    /// No extender was found, or none responded.
    Unanswered(Error),
    /// No extender has recorded one.
    Unrecorded(String),
}

impl NoPlacement {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Unanswered(error) => error,
            Self::Unrecorded(why) => anyhow!(why),
        }
    }
}

/// The newest recorded placement of a pod.
pub(super) async fn find(name: &str, view: &ViewArgs, extenders: &[String]) -> Result<PlacementsAnswer, NoPlacement> {
    let namespace = namespace(view, extenders).await.map_err(NoPlacement::Unanswered)?;
    let sources = sources(view, extenders).await.map_err(NoPlacement::Unanswered)?;
    let pod = [("namespace", namespace.as_str()), ("name", name), ("limit", "1")];
    let answers = ask_all(&sources, &pod).await.map_err(NoPlacement::Unanswered)?;
    let names = answers.iter().map(|(source, _)| source.name.as_str()).collect::<Vec<_>>().join(", ");
    // One of several schedulers places pods at a time, and another one may have done so before.
    let recorded = answers.into_iter().filter_map(|(source, answer)| Some((answer.placements.first()?.at, source, answer)));
    let Some((at, source, mut answer)) = recorded.max_by_key(|(at, ..)| *at) else {
        let scope = "it places pods of subjects, and those that its settings select";
        return Err(NoPlacement::Unrecorded(format!(
            "{names} has recorded no placement of the pod {namespace}/{name}: only the last ones are recorded, and {scope}"
        )));
    };
    let nodes: Vec<String> = answer.placements.first().map(explained_nodes).unwrap_or_default();
    let explain = nodes.iter().map(|node| ("explain", node.as_str()));
    let query: Vec<(&str, &str)> = pod.into_iter().chain(explain).collect();
    match source.ask(&query).await {
        // A newer placement isn't the one in question.
        Ok(explained) if explained.placements.first().is_some_and(|newer| newer.at == at) => answer = explained,
        Ok(_) => {}
        Err(error) => note(format!("scores aren't explained: {}", failure(&error))),
    }
    Ok(answer)
}

/// The namespace of -n; otherwise, the one of the kubeconfig's context. With --extender, no kubeconfig is needed.
async fn namespace(view: &ViewArgs, extenders: &[String]) -> Result<String> {
    if let Some(namespace) = &view.offline.namespace {
        return Ok(namespace.clone());
    }
    match view.cluster.default_namespace().await {
        Err(_) if !extenders.is_empty() => Ok(DEFAULT_NAMESPACE.to_owned()),
        found => found,
    }
}

async fn sources(view: &ViewArgs, extenders: &[String]) -> Result<Vec<ExtenderSource>> {
    if extenders.is_empty() {
        ExtenderSource::find(view.cluster.connect().await?, &view.offline.host.host_namespace).await
    } else {
        ExtenderSource::at(extenders)
    }
}

/// The nodes whose scores are explained: the best ones, and the chosen one.
fn explained_nodes(placement: &Placement) -> Vec<String> {
    let scored = placement.ranked().into_iter().filter(|candidate| candidate.score.is_some());
    let mut nodes: Vec<String> = scored.take(EXPLAINED).map(|candidate| candidate.node.to_owned()).collect();
    if let Some(chosen) = placement.chosen.as_ref().filter(|chosen| placement.nodes.contains(chosen) && !nodes.contains(chosen)) {
        nodes.push(chosen.clone());
    }
    nodes
}

/// The output for people.
pub(super) fn text(answer: &PlacementsAnswer) -> String {
    let Some(placement) = answer.placements.first() else { return String::new() };
    let Placement { namespace, name, set, plugins, excluded, chosen, .. } = placement;
    let at = i64::try_from(placement.at).ok().and_then(|at| Timestamp::from_second(at).ok());
    let at = at.map_or_else(|| placement.at.to_string(), |at| at.to_string());
    let mut text = format!("pod {namespace}/{name}, queried at {at}\nscored by {} of the policy set {set}\n\n", plugins.join(", "));
    let ranked = placement.ranked();
    let cells = |RankedNode { node, score, rank, .. }: &RankedNode<'_>| {
        let score = score.map_or_else(|| "excluded".to_owned(), |score| format!("{score:.4}"));
        let mark = if chosen.as_deref() == Some(*node) { "*" } else { "" };
        [printable_line(node), score, rank.to_string(), mark.to_owned()]
    };
    let is_shown = |at: usize, node: &str| at < MAX_ROWS || chosen.as_deref() == Some(node);
    let shown = ranked.iter().enumerate().filter(|(at, candidate)| is_shown(*at, candidate.node));
    let shown: Vec<[String; 4]> = shown.map(|(_, candidate)| cells(candidate)).collect();
    text += &columns(["NODE", "SCORE", "RANK", "CHOSEN"], &shown);
    let further = ranked.len() - shown.len() + placement.nodes_left_out;
    if further > 0 {
        line(&mut text, &format!("and {}", further_nodes(further)));
    }
    match chosen {
        None => line(&mut text, "The pod has no node yet."),
        Some(chosen) if !placement.nodes.contains(chosen) => {
            line(&mut text, &format!("The scheduler chose {}, whose score isn't recorded.", printable_line(chosen)));
        }
        Some(_) => {}
    }
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, why) in excluded {
        reasons.entry(why).or_default().push(node);
    }
    for (why, nodes) in reasons {
        let more = if nodes.len() > MAX_NAMES { format!(" and {} more", nodes.len() - MAX_NAMES) } else { String::new() };
        let names = nodes.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
        line(&mut text, &format!("omitted, because {}: {}{more}", printable_line(why), printable_line(&names)));
    }
    if placement.excluded_left_out > 0 {
        line(&mut text, &format!("omitted, for reasons that aren't recorded: {}", further_nodes(placement.excluded_left_out)));
    }
    for node in &answer.explained {
        text += &reasons_of(node);
    }
    if let Some(note) = &answer.note {
        line(&mut text, &format!("\nScores aren't explained: {}", printable_line(note)));
    }
    text
}

/// The parts of a node's score, one per line.
fn reasons_of(ExplainedNode { node, plugins }: &ExplainedNode) -> String {
    let mut text = format!("\n{}\n", printable_line(node));
    for by in plugins {
        if let Some(problem) = &by.problem {
            line(&mut text, &format!("  {}: {}", by.plugin, printable_line(problem)));
        }
        for term in &by.terms {
            let value = term.value.map(|value| format!(" {value:+.4}")).unwrap_or_default();
            line(&mut text, &format!("  {} {}{value}: {}", by.plugin, printable_line(&term.code), printable_line(&term.message)));
        }
    }
    text
}

fn further_nodes(number: usize) -> String {
    if number == 1 { "1 further node".to_owned() } else { format!("{number} further nodes") }
}

fn line(text: &mut String, line: &str) {
    // Writing to a String can't fail.
    writeln!(text, "{line}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer() -> PlacementsAnswer {
        let placement = json!({
            "at": 1_700_000_000, "namespace": "ml", "name": "llama-0", "uid": "u", "set": "sha256:ab", "plugins": ["scheduling-scoring"],
            "features": ["pods"], "nodes": ["a", "b", "c", "d", "x"], "values": [1, 2, 3, 4, null],
            "scores": [0.25, 0.75, 0.5, 0.1, null], "ranks": [8, 10, 9, 7, 0], "excluded": {"x": "the policy p excludes the node"},
            "chosen": "d",
        });
        let terms = json!([{"code": "Locality", "message": "the node has the model", "value": 0.5}, {"code": "Note", "message": "as is"}]);
        let explained = json!([{"node": "b", "plugins": [{"plugin": "p", "terms": terms}, {"plugin": "q", "problem": "it trapped"}]}]);
        serde_json::from_value(json!({"placements": [placement], "explained": explained})).unwrap()
    }

    #[test]
    fn the_best_nodes_and_the_chosen_one_are_explained() {
        assert_eq!(explained_nodes(&answer().placements[0]), ["b", "c", "a", "d"]);
        let best = Placement { chosen: Some("c".to_owned()), ..answer().placements.remove(0) };
        assert_eq!(explained_nodes(&best), ["b", "c", "a"]);
    }

    #[test]
    fn a_placement_is_a_table_with_reasons() {
        let expected = "pod ml/llama-0, queried at 2023-11-14T22:13:20Z\n\
            scored by scheduling-scoring of the policy set sha256:ab\n\n\
            NODE   SCORE      RANK   CHOSEN\n\
            b      0.7500     10\n\
            c      0.5000     9\n\
            a      0.2500     8\n\
            d      0.1000     7      *\n\
            x      excluded   0\n\
            omitted, because the policy p excludes the node: x\n\
            \nb\n\
            \x20 p Locality +0.5000: the node has the model\n\
            \x20 p Note: as is\n\
            \x20 q: it trapped\n";
        assert_eq!(text(&answer()), expected);
        let mut unplaced = answer();
        unplaced.placements[0].chosen = None;
        unplaced.note = Some("another policy set decides now".to_owned());
        let said = text(&unplaced);
        assert!(said.contains("The pod has no node yet.\n") && said.ends_with("Scores aren't explained: another policy set decides now\n"));
    }

    #[test]
    fn what_was_left_out_is_counted_and_a_chosen_node_among_it_is_named() {
        let mut large = answer();
        let placement = &mut large.placements[0];
        (placement.nodes_left_out, placement.excluded_left_out, placement.chosen) = (1, 300, Some("far".to_owned()));
        let said = text(&large);
        let rows = "x      excluded   0\nand 1 further node\nThe scheduler chose far, whose score isn't recorded.\n";
        assert!(said.contains(rows), "{said}");
        assert!(said.contains(": x\nomitted, for reasons that aren't recorded: 300 further nodes\n"), "{said}");
        assert_eq!(explained_nodes(&large.placements[0]), ["b", "c", "a"]);
    }
}
