//! Models that only some of the selected nodes hold: the number of copies, the chosen nodes, and the candidates.

use super::{report::NodeState, reports::ModelReports, selection, summary::ModelNode};
use crate::condition::{Condition, READY};
use pointsman_crds::ome::storage::StorageSpec;
use pointsman_sandbox::text::printable_line;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

/// The annotation of a model with its number of copies.
pub const COPIES: &str = "pointsman.dev/copies";

/// The annotation with the names of the chosen nodes.
pub const COPY_NODES: &str = "pointsman.dev/copy-nodes";

/// The maximum number of copies of a model.
pub const MAX_COPIES: usize = 64;

/// The reason of a model without chosen nodes.
pub const NOT_CHOSEN: &str = "NodesNotChosen";

/// The number of copies of a model, and the chosen nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// The number; if it is invalid, the text.
    pub count: Result<usize, String>,
    /// The nodes that were chosen, automatically or by users.
    pub nodes: BTreeSet<String>,
    /// The model's labels, by which plugins select subjects.
    pub labels: BTreeMap<String, String>,
}

/// The state of a model's copies.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// The nodes that remain chosen.
    pub nodes: BTreeSet<String>,
    /// The nodes that may be chosen.
    pub candidates: Vec<String>,
    /// The number of copies without a node.
    pub missing: usize,
}

impl Copies {
    /// Parses a model's metadata; none if it has no number of copies.
    pub fn from_metadata(annotations: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> Option<Self> {
        let text = annotations.get(COPIES)?;
        let count = text.trim().parse().ok().filter(|count| (1..=MAX_COPIES).contains(count));
        let nodes = annotations.get(COPY_NODES).map(String::as_str).unwrap_or_default();
        let nodes = nodes.split(',').map(str::trim).filter(|name| !name.is_empty()).take(MAX_COPIES);
        Some(Self { count: count.ok_or_else(|| printable_line(text)), nodes: nodes.map(str::to_owned).collect(), labels: labels.clone() })
    }

    /// The chosen nodes that still exist and are selected. If there are too many, those that hold the model take precedence, then the order
    /// of names.
    pub fn keep(&self, storage: &StorageSpec, nodes: &BTreeMap<String, ModelNode>, reports: &ModelReports) -> Kept {
        let state = |node: &str| reports.get(node).map(|report| report.state);
        let selected = nodes.iter().filter(|(name, node)| selection::selects(storage, name, &node.labels));
        let (mut kept, others): (Vec<(&str, &ModelNode)>, Vec<_>) =
            selected.map(|(name, node)| (&**name, node)).partition(|(name, _)| self.nodes.contains(*name));
        // An invalid number changes nothing.
        let count = self.count.as_ref().map_or(kept.len(), |count| *count);
        kept.sort_by_key(|(name, _)| Reverse(state(name) == Some(NodeState::Ready)));
        kept.truncate(count);
        let may_hold = |(name, node): &(&str, &ModelNode)| node.is_ready && state(name) != Some(NodeState::Failed);
        Kept {
            missing: count - kept.len(),
            nodes: kept.into_iter().map(|(name, _)| name.to_owned()).collect(),
            candidates: others.into_iter().filter(may_hold).map(|(name, _)| name.to_owned()).collect(),
        }
    }

    /// Why no node holds the model although its storage selects some.
    pub(super) fn problem(&self, storage: &StorageSpec, nodes: &BTreeMap<String, ModelNode>) -> Option<Condition> {
        let selected = || nodes.iter().filter(|(name, node)| selection::selects(storage, name, &node.labels));
        let (count, down) = (selected().count(), selected().filter(|(_, node)| !node.is_ready).count());
        if count == 0 {
            return None;
        }
        if let Err(text) = &self.count {
            let message = format!(
                "The annotation {COPIES} is \"{text}\": set a number from 1 to {MAX_COPIES}, or remove it to have all selected nodes hold the model."
            );
            return Some(Condition::no(READY, "InvalidCopies", message));
        }
        let mut message = format!("No node is chosen yet among the {count} selected nodes to hold a copy.");
        if down > 0 {
            write!(message, " Not ready: {down}.").ok();
        }
        Some(Condition::no(READY, NOT_CHOSEN, message))
    }
}

/// The nodes as the annotation's value.
pub fn text(nodes: &BTreeSet<String>) -> String {
    nodes.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_nodes::{assignment::ModelObject, reports::Reports, summary::summarize};
    use serde_json::json;

    fn model(copies: &str, chosen: &str) -> ModelObject {
        let object = json!({
            "metadata": {"name": "m", "labels": {"team": "a"}, "annotations": {COPIES: copies, COPY_NODES: chosen}},
            "spec": {"storage": {"storageUri": "hf://a/b", "nodeSelector": {"gpu": "yes"}}},
        });
        ModelObject::from_object(&object).unwrap()
    }

    fn nodes() -> BTreeMap<String, ModelNode> {
        let node = |name: &str, gpu: &str, is_ready: bool| {
            (name.to_owned(), ModelNode { labels: [("gpu".to_owned(), gpu.to_owned())].into(), is_ready })
        };
        [node("a", "yes", true), node("b", "yes", true), node("c", "yes", true), node("cpu", "no", true), node("down", "yes", false)].into()
    }

    fn kept(model: &ModelObject, reports: &Reports) -> (Vec<String>, Vec<String>, usize) {
        let copies = model.copies.as_ref().unwrap();
        let Kept { nodes, candidates, missing } = copies.keep(&model.storage, &nodes(), reports.for_model("x"));
        (nodes.into_iter().collect(), candidates, missing)
    }

    fn reports(states: &[(&str, &str)]) -> Reports {
        let mut reports = Reports::default();
        for (node, state) in states {
            reports.set(node, &[("x".to_owned(), json!({"status": state}).to_string())].into());
        }
        reports
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_chosen_nodes_of_those_that_are_selected_hold_it() {
        let nodes = nodes();
        let selected = |model: &ModelObject| {
            let held = nodes.iter().filter(|(name, node)| model.selects(name, &node.labels));
            held.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(selected(&model("2", "a, c,cpu,gone")), names(&["a", "c"]));
        assert!(selected(&model("2", "")).is_empty());
        assert_eq!(model("2", "").copies.unwrap().labels.get("team").map(String::as_str), Some("a"));
        let every = ModelObject { copies: None, ..model("2", "") };
        assert_eq!(selected(&every), names(&["a", "b", "c", "down"]));
    }

    #[test]
    fn what_was_chosen_stays_and_what_is_gone_or_not_selected_is_replaced() {
        let none = Reports::default();
        assert_eq!(kept(&model("2", ""), &none), (vec![], names(&["a", "b", "c"]), 2));
        assert_eq!(kept(&model("2", "b,gone"), &none), (names(&["b"]), names(&["a", "c"]), 1));
        assert_eq!(kept(&model("2", "cpu,down"), &none), (names(&["down"]), names(&["a", "b", "c"]), 1));
        let failed = reports(&[("a", "Failed"), ("b", "Failed")]);
        assert_eq!(kept(&model("2", "b"), &failed), (names(&["b"]), names(&["c"]), 1));
    }

    #[test]
    fn of_too_many_those_stay_that_hold_it() {
        assert_eq!(kept(&model("1", "a,b"), &reports(&[("b", "Ready")])).0, names(&["b"]));
        assert_eq!(kept(&model("1", "a,b"), &Reports::default()).0, names(&["a"]));
    }

    #[test]
    fn what_is_no_number_changes_nothing_and_is_reported() {
        for wrong in ["two", "0", "65", "-1", ""] {
            let known = kept(&model(wrong, "b"), &Reports::default());
            assert_eq!((known.0, known.2), (names(&["b"]), 0), "{wrong}");
        }
        let condition = |model: &ModelObject| {
            let condition = summarize(model, &nodes(), &ModelReports::new(), |_| true).condition;
            (condition.reason, condition.message)
        };
        let expected = "The annotation pointsman.dev/copies is \"two\": set a number from 1 to 64, or remove it to have all selected nodes hold the model.";
        assert_eq!(condition(&model("two", "")), ("InvalidCopies".to_owned(), expected.to_owned()));
        let expected = "No node is chosen yet among the 4 selected nodes to hold a copy. Not ready: 1.";
        assert_eq!(condition(&model("2", "")), (NOT_CHOSEN.to_owned(), expected.to_owned()));
        let mut nowhere = model("2", "");
        nowhere.storage.node_selector.insert("gpu".to_owned(), "maybe".to_owned());
        assert_eq!(condition(&nowhere).0, "NoNodeSelected");
    }

    #[test]
    fn copies_without_a_node_are_counted_where_others_hold_the_model() {
        let reports = reports(&[("a", "Ready"), ("b", "Updating")]);
        let message = |copies: &str| summarize(&model(copies, "a,b"), &nodes(), reports.for_model("x"), |_| true).condition.message;
        assert_eq!(message("2"), "1 of 2 selected nodes hold the model. Downloading: 1.");
        assert_eq!(message("5"), "1 of 2 selected nodes hold the model. Downloading: 1. Copies without a node: 3.");
    }
}
