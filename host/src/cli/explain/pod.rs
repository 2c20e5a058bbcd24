//! `pointsman explain pod/NAME`: why a pod went to its node, as the scheduler extender has recorded it.

use super::super::{
    live::ViewArgs,
    output::{Output, columns, print},
};
use super::remote;
use crate::{
    permissions::SCHEDULER_ACCOUNT,
    scheduler_extender::placements::{ExplainedNode, MAX_ANSWER_BYTES, PATH, PlacementsAnswer},
};
use anyhow::{Context, Result, bail};
use http::StatusCode;
use k8s_openapi::{
    api::core::v1::{ContainerPort, Pod},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use pointsman_core::placement::record::Placement;
use pointsman_sandbox::text::printable_line;
use serde_json::Value;
use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _, process::ExitCode};

/// The label of the pods of `deploy/scheduler`, whose value is the name of their account.
const APP_NAME: &str = "app.kubernetes.io/name";

/// The container of the extender, the name of its port and the port where the manifest doesn't say it.
const CONTAINER: &str = "extender";
const PORT_NAME: &str = "http";
const PORT: i32 = 8080;

/// How many of the best nodes are explained, beside the chosen one.
const EXPLAINED: usize = 3;

/// How many nodes the table has, and how many names a sentence.
const MAX_ROWS: usize = 20;
const MAX_NAMES: usize = 5;

/// The name of a pod, if KIND/NAME is one.
pub(super) fn parse(subject: &str) -> Option<&str> {
    let (kind, name) = subject.split_once('/')?;
    let is_pod = ["pod", "pods", "po"].iter().any(|word| word.eq_ignore_ascii_case(kind));
    Some(name).filter(|name| is_pod && !name.is_empty() && !name.contains('/'))
}

/// An extender that can be asked.
struct Source {
    client: Client,
    /// What comes before the path of its endpoint.
    prefix: String,
    name: String,
}

pub(super) async fn run(name: &str, view: &ViewArgs, extender: Option<&str>) -> Result<ExitCode> {
    let namespace = &view.offline.namespace;
    let sources = match extender {
        Some(address) => vec![Source::at(address)?],
        None => Source::find(view.cluster.connect().await?, &view.offline.host_namespace).await?,
    };
    // Of several schedulers one places pods at a time, and another may have before.
    let mut newest: Option<(&Source, PlacementsAnswer)> = None;
    for source in &sources {
        let answer = source.ask(namespace, name, &[]).await?;
        let at = |answer: &PlacementsAnswer| answer.placements.first().map(|placement| placement.at);
        if at(&answer).is_some() && newest.as_ref().is_none_or(|(_, known)| at(known) < at(&answer)) {
            newest = Some((source, answer));
        }
    }
    let names = || sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>().join(", ");
    let Some((source, mut answer)) = newest else {
        let scope = "it places pods of subjects, and those that its settings select";
        bail!("{} has recorded no placement of the pod {namespace}/{name}: only the last ones are recorded, and {scope}", names());
    };
    if let Some(placement) = answer.placements.first() {
        // What is recorded meanwhile isn't what was asked about.
        let explained = source.ask(namespace, name, &explained_nodes(placement)).await?;
        if explained.placements.first().is_some_and(|newer| newer.at == placement.at) {
            answer = explained;
        }
    }
    match view.output.output {
        Output::Table => print(&text(&answer)),
        Output::Json => print(&serde_json::to_string_pretty(&answer)?),
    }
    Ok(ExitCode::SUCCESS)
}

impl Source {
    /// The one at an address.
    fn at(address: &str) -> Result<Self> {
        let client = remote::client("--extender", address)?;
        Ok(Self { client, prefix: String::new(), name: format!("the extender at {address}") })
    }

    /// Those of the cluster, which its API server asks.
    async fn find(client: Client, namespace: &str) -> Result<Vec<Self>> {
        let selected = ListParams::default().labels(&format!("{APP_NAME}={SCHEDULER_ACCOUNT}"));
        let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&selected).await;
        let pods = pods.with_context(|| format!("listing the pods of the scheduler in the namespace {namespace}"))?;
        let is_running = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        let source = |pod: Pod| {
            let (name, port) = (pod.name_any(), port(&pod));
            let prefix = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy");
            Self { client: client.clone(), prefix, name: format!("the extender in the pod {namespace}/{name}") }
        };
        let sources: Vec<Self> = pods.items.into_iter().filter(is_running).map(source).collect();
        if sources.is_empty() {
            bail!(
                "no pod with the label {APP_NAME}={SCHEDULER_ACCOUNT} runs in the namespace {namespace}: name its namespace by \
                 --host-namespace, or an extender that runs elsewhere by --extender"
            );
        }
        Ok(sources)
    }

    async fn ask(&self, namespace: &str, name: &str, explain: &[String]) -> Result<PlacementsAnswer> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("namespace", namespace).append_pair("name", name).append_pair("limit", "1");
        for node in explain {
            query.append_pair("explain", node);
        }
        let target = format!("{}{PATH}?{}", self.prefix, query.finish());
        let answer = remote::ask(&self.client, &target, MAX_ANSWER_BYTES, &self.name).await?;
        if answer.status() != StatusCode::OK {
            let text = String::from_utf8_lossy(answer.body()).into_owned();
            let status: Value = serde_json::from_str(&text).unwrap_or_default();
            let message = status["message"].as_str().unwrap_or_else(|| text.lines().next().unwrap_or_default());
            bail!("{} answers {PATH} with status {}: {}", self.name, answer.status().as_u16(), printable_line(message));
        }
        serde_json::from_slice(answer.body()).with_context(|| format!("{} gives no placements", self.name))
    }
}

/// The port of the extender in a pod.
fn port(pod: &Pod) -> i32 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.filter(|container| container.name == CONTAINER).flat_map(|container| container.ports.iter().flatten());
    let is_it = |port: &&ContainerPort| port.name.as_deref() == Some(PORT_NAME);
    ports.filter(is_it).map(|port| port.container_port).next().unwrap_or(PORT)
}

/// The nodes of a placement from the best to the worst, with their scores and ranks; those that are excluded last.
fn rows(placement: &Placement) -> Vec<(&str, Option<f64>, i64)> {
    let Placement { nodes, scores, ranks, .. } = placement;
    let rows = nodes.iter().zip(scores).zip(ranks);
    let mut rows: Vec<(&str, Option<f64>, i64)> = rows.map(|((node, score), rank)| (node.as_str(), *score, *rank)).collect();
    rows.sort_by(|(one, score, rank), (other, other_score, other_rank)| {
        let by_score = other_score.unwrap_or(f64::NEG_INFINITY).total_cmp(&score.unwrap_or(f64::NEG_INFINITY));
        Reverse(rank).cmp(&Reverse(other_rank)).then(by_score).then(one.cmp(other))
    });
    rows
}

/// The nodes whose scores are explained: the best ones, and the chosen one.
fn explained_nodes(placement: &Placement) -> Vec<String> {
    let scored = rows(placement).into_iter().filter(|(_, score, _)| score.is_some());
    let mut nodes: Vec<String> = scored.take(EXPLAINED).map(|(node, ..)| node.to_owned()).collect();
    if let Some(chosen) = placement.chosen.as_ref().filter(|chosen| placement.nodes.contains(chosen) && !nodes.contains(chosen)) {
        nodes.push(chosen.clone());
    }
    nodes
}

fn text(answer: &PlacementsAnswer) -> String {
    let Some(placement) = answer.placements.first() else { return String::new() };
    let Placement { namespace, name, set, plugins, excluded, chosen, .. } = placement;
    let at = i64::try_from(placement.at).ok().and_then(|at| Timestamp::from_second(at).ok());
    let at = at.map_or_else(|| placement.at.to_string(), |at| at.to_string());
    let mut text = format!("pod {namespace}/{name}, asked about at {at}\nscored by {} of the policy set {set}\n\n", plugins.join(", "));
    let rows = rows(placement);
    let cells = |(node, score, rank): &(&str, Option<f64>, i64)| {
        let score = score.map_or_else(|| "excluded".to_owned(), |score| format!("{score:.4}"));
        let mark = if chosen.as_deref() == Some(*node) { "*" } else { "" };
        [printable_line(node), score, rank.to_string(), mark.to_owned()]
    };
    let is_shown = |at: usize, node: &str| at < MAX_ROWS || chosen.as_deref() == Some(node);
    let shown: Vec<[String; 4]> =
        rows.iter().enumerate().filter(|(at, (node, ..))| is_shown(*at, node)).map(|(_, row)| cells(row)).collect();
    text += &columns(["NODE", "SCORE", "RANK", "CHOSEN"], &shown);
    if rows.len() > shown.len() {
        line(&mut text, &format!("and {} more nodes", rows.len() - shown.len()));
    }
    if chosen.is_none() {
        line(&mut text, "The pod has no node yet.");
    }
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, why) in excluded {
        reasons.entry(why).or_default().push(node);
    }
    for (why, nodes) in reasons {
        let more = if nodes.len() > MAX_NAMES { format!(" and {} more", nodes.len() - MAX_NAMES) } else { String::new() };
        let names = nodes.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
        line(&mut text, &format!("left out, because {}: {}{more}", printable_line(why), printable_line(&names)));
    }
    for node in &answer.explained {
        text += &reasons_of(node);
    }
    if let Some(note) = &answer.note {
        line(&mut text, &format!("\nScores aren't explained: {}", printable_line(note)));
    }
    text
}

/// The parts of a node's score, a line each.
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

fn line(text: &mut String, line: &str) {
    // A text takes all that is written.
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
    fn a_pod_is_named_as_kubectl_takes_it() {
        assert_eq!((parse("pod/a"), parse("Pods/a"), parse("po/a")), (Some("a"), Some("a"), Some("a")));
        assert_eq!((parse("isvc/a"), parse("pod/"), parse("pod/a/b"), parse("a")), (None, None, None, None));
    }

    #[test]
    fn the_best_nodes_and_the_chosen_one_are_explained() {
        assert_eq!(explained_nodes(&answer().placements[0]), ["b", "c", "a", "d"]);
        let best = Placement { chosen: Some("c".to_owned()), ..answer().placements.remove(0) };
        assert_eq!(explained_nodes(&best), ["b", "c", "a"]);
    }

    #[test]
    fn a_placement_is_a_table_with_reasons() {
        let expected = "pod ml/llama-0, asked about at 2023-11-14T22:13:20Z\n\
            scored by scheduling-scoring of the policy set sha256:ab\n\n\
            NODE   SCORE      RANK   CHOSEN\n\
            b      0.7500     10\n\
            c      0.5000     9\n\
            a      0.2500     8\n\
            d      0.1000     7      *\n\
            x      excluded   0\n\
            left out, because the policy p excludes the node: x\n\
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
    fn the_port_is_the_one_of_the_container() {
        let pod = |containers: Value| serde_json::from_value::<Pod>(json!({"spec": {"containers": containers}})).unwrap();
        let ports = json!([{"name": "x", "containerPort": 1}, {"name": "http", "containerPort": 9000}]);
        assert_eq!(port(&pod(json!([{"name": "scheduler", "ports": ports}, {"name": "extender", "ports": ports}]))), 9000);
        assert_eq!(port(&pod(json!([{"name": "extender"}]))), PORT);
    }
}
