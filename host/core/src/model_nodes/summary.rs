//! Summarizes the reports on one model: its state, its nodes, and a message for users who wait for it.

use super::{
    assignment::ModelObject,
    report::{DownloadProgress, NodeState},
    reports::{ModelReports, NodeReport},
};
use crate::{
    allocation::time_text,
    condition::{Condition, READY},
};
use pointsman_crds::ome::model::LifeCycleState;
use std::{collections::BTreeMap, fmt::Write, sync::Arc};

/// The maximum number of nodes in a message.
const MAX_LISTED: usize = 3;

/// The step of percentages in messages, because each change is a write of the status.
const PERCENT_STEP: u64 = 5;

/// The fields of a node that matter for models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelNode {
    /// Its labels, which models select.
    pub labels: BTreeMap<String, String>,
    /// Whether it is Ready.
    pub is_ready: bool,
}

/// The status to report for a model.
#[derive(Debug)]
pub struct Summary {
    /// The model's lifecycle state.
    pub state: LifeCycleState,
    /// The nodes that hold it.
    pub nodes_ready: Vec<String>,
    /// The nodes on which it has failed.
    pub nodes_failed: Vec<String>,
    /// Why it is Ready, or why not.
    pub condition: Condition,
    /// The facts in its files, from the first node that holds it and has parsed them.
    pub facts: Option<Arc<str>>,
}

/// Summarizes a model from the cluster's nodes and the agents' reports. Reports on deleted nodes are ignored.
pub fn summarize(
    model: &ModelObject,
    nodes: &BTreeMap<String, ModelNode>,
    reports: &ModelReports,
    has_agent: impl Fn(&str) -> bool,
) -> Summary {
    let reports: BTreeMap<&str, &NodeReport> =
        reports.iter().map(|(node, report)| (&**node, report)).filter(|(node, _)| nodes.contains_key(*node)).collect();
    let in_state = |state: NodeState| reports.iter().filter(move |(_, report)| report.state == state).map(|(node, _)| (*node).to_owned());
    let nodes_ready: Vec<String> = in_state(NodeState::Ready).collect();
    let nodes_failed: Vec<String> = in_state(NodeState::Failed).collect();
    let state = match (&nodes_ready[..], &nodes_failed[..]) {
        ([], []) => LifeCycleState::InTransit,
        ([], _) => LifeCycleState::Failed,
        _ => LifeCycleState::Ready,
    };
    let selected = || nodes.iter().filter(|(name, node)| model.selects(name, &node.labels)).map(|(name, _)| &**name);
    let updating: Vec<(&str, &NodeReport)> =
        reports.iter().filter(|(_, report)| report.state == NodeState::Updating).map(|(node, report)| (*node, *report)).collect();
    let failure = || nodes_failed.first().map(|node| failure(node, reports.get(&**node).copied(), nodes_failed.len() - 1));
    let condition = if !nodes_ready.is_empty() {
        let is_ready = |node: &str| reports.get(node).is_some_and(|report| report.state == NodeState::Ready);
        let count = selected().filter(|node| !is_ready(node)).count() + nodes_ready.len();
        let mut message = format!("{} of {count} selected {} the model.", nodes_ready.len(), plural(count, "node holds", "nodes hold"));
        if !updating.is_empty() {
            write!(message, " Downloading: {}.", updating.len()).ok();
        }
        let copies = model.copies.as_ref().and_then(|copies| copies.count.as_ref().ok());
        if let Some(missing) = copies.and_then(|copies| copies.checked_sub(selected().count())).filter(|missing| *missing > 0) {
            write!(message, " Copies without a node: {missing}.").ok();
        }
        message.extend(failure().map(|failure| format!(" {failure}")));
        Condition::satisfied(READY, "NodesReady", message)
    } else if let Some((node, report)) = updating.iter().max_by_key(|(_, report)| furthest(report)) {
        let mut message = downloading(node, report, updating.len());
        message.extend(failure().map(|failure| format!(" {failure}")));
        Condition::no(READY, "Downloading", message)
    } else if let Some(failure) = failure() {
        Condition::no(READY, "DownloadFailed", failure)
    } else {
        waiting(model, nodes, &selected().collect::<Vec<_>>(), has_agent)
    };
    let facts = reports.values().filter(|report| report.state == NodeState::Ready).find_map(|report| report.facts.clone());
    Summary { state, nodes_ready, nodes_failed, condition, facts }
}

fn plural<'w>(count: usize, one: &'w str, more: &'w str) -> &'w str {
    if count == 1 { one } else { more }
}

/// Why no agent reports on the model.
fn waiting(model: &ModelObject, nodes: &BTreeMap<String, ModelNode>, selected: &[&str], has_agent: impl Fn(&str) -> bool) -> Condition {
    if let Some(condition) = model.copies.as_ref().filter(|_| selected.is_empty()).and_then(|copies| copies.problem(&model.storage, nodes))
    {
        return condition;
    }
    let storage = &model.storage;
    if selected.is_empty() {
        let message = if storage.node_selector.is_empty() && storage.node_affinity.is_none() {
            "The cluster has no nodes.".to_owned()
        } else {
            let fields =
                [("spec.storage.nodeSelector", !storage.node_selector.is_empty()), ("nodeAffinity", storage.node_affinity.is_some())];
            let fields: Vec<&str> = fields.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect();
            let count = nodes.len();
            format!(
                "{} of the cluster's {count} {} {}: label the nodes that are to hold the model, or correct it.",
                if count == 1 { "The one" } else { "None" },
                plural(count, "node isn't selected by", "nodes is selected by"),
                fields.join(" and "),
            )
        };
        return Condition::no(READY, "NoNodeSelected", message);
    }
    let count = selected.len();
    let without: Vec<&str> = selected.iter().copied().filter(|node| !has_agent(node)).collect();
    if without.len() == count {
        let message = format!(
            "No model agent reports from the {count} selected {} ({}): install the model agent there, or check why its pods don't run.",
            plural(count, "node", "nodes"),
            listed(&without),
        );
        return Condition::no(READY, "NoAgent", message);
    }
    let down = selected.iter().filter(|node| nodes.get(**node).is_some_and(|node| !node.is_ready)).count();
    let mut message = format!("The model agents of the {count} selected {} haven't started to process it.", plural(count, "node", "nodes"));
    if down > 0 {
        write!(message, " Not ready: {down}.").ok();
    }
    Condition::no(READY, "WaitingForAgents", message)
}

fn listed(names: &[&str]) -> String {
    let mut text = names[..names.len().min(MAX_LISTED)].join(", ");
    if let Some(more) = names.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        write!(text, " and {more} more").ok();
    }
    text
}

fn failure(node: &str, report: Option<&NodeReport>, others: usize) -> String {
    let why = report.and_then(|report| report.message.as_deref()).unwrap_or("its agent doesn't report why; see the agent's log");
    let others = if others > 0 { format!(", and on {others} more {}", plural(others, "node", "nodes")) } else { String::new() };
    format!("It failed on {node}{others}: {}.", why.trim_end_matches('.'))
}

/// The key that orders reports by progress.
fn furthest(report: &NodeReport) -> Option<u64> {
    report.progress.as_ref().and_then(DownloadProgress::percent)
}

fn downloading(node: &str, report: &NodeReport, count: usize) -> String {
    let others =
        if count > 1 { format!(" ({} more {} downloading)", count - 1, plural(count - 1, "node is", "nodes are")) } else { String::new() };
    let Some(progress) = report.progress.as_ref().filter(|progress| progress.percent().is_some()) else {
        return match &report.message {
            Some(message) => format!("{node}{others}: {}.", message.trim_end_matches('.')),
            None => format!("{node} is downloading the model{others}."),
        };
    };
    let percent = progress.percent().unwrap_or_default() / PERCENT_STEP * PERCENT_STEP;
    let left = progress.seconds_left().map(|left| format!(", about {} left", time_text(rounded(left)))).unwrap_or_default();
    format!("{node} has {percent} %{left}{others}.")
}

/// A duration, rounded more coarsely the longer it is: an estimate isn't more precise, and each change is a write of the status.
fn rounded(seconds: u64) -> u64 {
    const STEPS: [u64; 6] = [86_400, 14_400, 3600, 900, 300, 60];
    let step = STEPS.into_iter().find(|step| seconds >= step * 4).unwrap_or(60);
    seconds.div_ceil(step) * step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_nodes::reports::Reports;
    use serde_json::{Value, json};

    fn nodes(names: &[&str]) -> BTreeMap<String, ModelNode> {
        let node = |name: &str| ModelNode { labels: [("name".to_owned(), name.to_owned())].into(), is_ready: name != "down" };
        names.iter().map(|name| ((*name).to_owned(), node(name))).collect()
    }

    fn model(more: Value) -> ModelObject {
        let mut storage = json!({"storageUri": "hf://a/b"});
        let Value::Object(more) = more else { panic!("{more} is no object") };
        storage.as_object_mut().unwrap().extend(more);
        ModelObject { storage: serde_json::from_value(storage).unwrap(), ..ModelObject::default() }
    }

    /// The summary of a model on the nodes a, b, c and d, with these reports.
    fn summary(reported: &[(&str, Value)]) -> Summary {
        let mut reports = Reports::default();
        for (node, report) in reported {
            reports.set(node, &[("x".to_owned(), report.to_string())].into());
        }
        let all = nodes(&["a", "b", "c", "d"]);
        summarize(&model(json!({})), &all, reports.for_model("x"), |node| reports.has_agent(node))
    }

    fn message(summary: &Summary) -> (&str, &str) {
        (&summary.condition.reason, &summary.condition.message)
    }

    #[test]
    fn one_node_that_holds_it_makes_it_ready_and_the_others_are_counted() {
        let found = summary(&[
            ("c", json!({"status": "Ready", "config": {"modelType": "llama"}})),
            ("a", json!({"status": "Failed", "message": "the disk is full."})),
            ("b", json!({"status": "Updating"})),
            ("elsewhere", json!({"status": "Ready"})),
        ]);
        assert!(found.state == LifeCycleState::Ready && found.nodes_ready == ["c"] && found.nodes_failed == ["a"]);
        assert_eq!(&*found.facts.clone().unwrap(), r#"{"modelType":"llama"}"#);
        let expected = "1 of 4 selected nodes hold the model. Downloading: 1. It failed on a: the disk is full.";
        assert_eq!(message(&found), ("NodesReady", expected));
    }

    #[test]
    fn the_furthest_download_is_described() {
        let progress = |completed: u64, speed: f64| json!({"status": "Updating", "progress": {"totalBytes": 1000, "completedBytes": completed, "speedBytesPerSec": speed}});
        let found = summary(&[("a", progress(500, 1.0)), ("b", progress(678, 1.0)), ("c", json!({"status": "Updating"}))]);
        assert_eq!(found.state, LifeCycleState::InTransit);
        assert_eq!(message(&found), ("Downloading", "b has 65 %, about 6m left (2 more nodes are downloading)."));
        let waits = summary(&[("a", json!({"status": "Updating", "message": "it waits for two other models."}))]);
        assert_eq!(message(&waits), ("Downloading", "a: it waits for two other models."));
    }

    #[test]
    fn what_failed_everywhere_has_failed() {
        let found = summary(&[("a", json!({"status": "Failed", "message": "401 from the hub"})), ("b", json!({"status": "Failed"}))]);
        assert_eq!(found.state, LifeCycleState::Failed);
        assert_eq!(message(&found), ("DownloadFailed", "It failed on a, and on 1 more node: 401 from the hub."));
    }

    #[test]
    fn a_model_that_nobody_has_begun_with_says_what_it_waits_for() {
        let none = summary(&[]);
        assert_eq!(none.state, LifeCycleState::InTransit);
        let expected = "No model agent reports from the 4 selected nodes (a, b, c and 1 more): install the model agent there, or check \
                        why its pods don't run.";
        assert_eq!(message(&none), ("NoAgent", expected));
        let waiting = |model: &ModelObject, nodes: &BTreeMap<String, ModelNode>| {
            let found = summarize(model, nodes, &ModelReports::new(), |_| true);
            (found.condition.reason, found.condition.message)
        };
        let (reason, text) = waiting(&model(json!({})), &nodes(&["a", "down"]));
        assert_eq!(
            (&*reason, &*text),
            ("WaitingForAgents", "The model agents of the 2 selected nodes haven't started to process it. Not ready: 1.")
        );
        let (reason, text) = waiting(&model(json!({"nodeSelector": {"name": "z"}})), &nodes(&["a", "b"]));
        let expected = "None of the cluster's 2 nodes is selected by spec.storage.nodeSelector: label the nodes that are to hold the model, or correct it.";
        assert_eq!((&*reason, &*text), ("NoNodeSelected", expected));
        assert_eq!(waiting(&model(json!({})), &nodes(&[])).1, "The cluster has no nodes.");
    }

    #[test]
    fn estimates_are_rounded_up_in_growing_steps() {
        assert_eq!([1, 60, 239, 241, 1300, 5000, 20_000].map(rounded), [60, 60, 240, 300, 1500, 5400, 21_600]);
    }
}
