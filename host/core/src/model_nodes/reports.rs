//! The reports of all agents, by model: after a change of a node's ConfigMap, only the models with a different report are summarized again.

use super::report::{DownloadProgress, ModelReport, NodeState};
use pointsman_sandbox::digest::Digest;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// The stored part of a report.
#[derive(Clone, Debug)]
pub struct NodeReport {
    /// The state of the model on the node.
    pub state: NodeState,
    /// The progress of the download.
    pub progress: Option<DownloadProgress>,
    /// Why it has failed or waits.
    pub message: Option<String>,
    /// The facts in the files, as JSON. Nodes with the same files share it.
    pub facts: Option<Arc<str>>,
}

/// The reports on one model, by node.
pub type ModelReports = BTreeMap<Arc<str>, NodeReport>;

/// All reports.
#[derive(Debug, Default)]
pub struct Reports {
    /// For each node, the keys of its ConfigMap with the digests of their values.
    nodes: HashMap<Arc<str>, HashMap<String, Digest>>,
    models: HashMap<String, ModelReports>,
}

impl Reports {
    /// Replaces a node's ConfigMap. Returns the keys of the models whose reports have changed.
    pub fn set(&mut self, node: &str, data: &BTreeMap<String, String>) -> BTreeSet<String> {
        let (node, known) = self.nodes.remove_entry(node).unwrap_or_else(|| (node.into(), HashMap::new()));
        let mut changed: BTreeSet<String> = known.keys().filter(|key| !data.contains_key(*key)).cloned().collect();
        for key in &changed {
            self.forget(&node, key);
        }
        let mut digests = HashMap::with_capacity(data.len());
        for (key, text) in data {
            let digest = Digest::hash(text.as_bytes());
            if known.get(key) != Some(&digest) {
                self.put(&node, key, text);
                changed.insert(key.clone());
            }
            digests.insert(key.clone(), digest);
        }
        self.nodes.insert(node, digests);
        changed
    }

    /// Removes a node's ConfigMap. Returns the keys of the models on which it had reported.
    pub fn remove(&mut self, node: &str) -> BTreeSet<String> {
        let known = self.nodes.remove(node).unwrap_or_default();
        for key in known.keys() {
            self.forget(node, key);
        }
        known.into_keys().collect()
    }

    /// The nodes with a report.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|node| &**node)
    }

    /// Whether a node has an agent's ConfigMap.
    pub fn has_agent(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// The reports on a model, by its key.
    pub fn for_model(&self, key: &str) -> &ModelReports {
        static NONE: ModelReports = BTreeMap::new();
        self.models.get(key).unwrap_or(&NONE)
    }

    fn put(&mut self, node: &Arc<str>, key: &str, text: &str) {
        let ModelReport { status, config, progress, message, .. } = ModelReport::parse(text);
        let reports = match self.models.get_mut(key) {
            Some(reports) => reports,
            None => self.models.entry(key.to_owned()).or_default(),
        };
        let facts = config.map(|config| {
            let shared = reports.values().filter_map(|report| report.facts.as_ref()).find(|known| ***known == *config.get());
            shared.cloned().unwrap_or_else(|| config.get().into())
        });
        reports.insert(Arc::clone(node), NodeReport { state: status, progress, message, facts });
    }

    fn forget(&mut self, node: &str, key: &str) {
        if let Some(reports) = self.models.get_mut(key) {
            reports.remove(node);
            if reports.is_empty() {
                self.models.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(key, status)| ((*key).to_owned(), json!({"status": status, "config": {"modelType": "llama"}}).to_string()))
            .collect()
    }

    #[test]
    fn only_what_a_config_map_reports_differently_has_changed() {
        let mut reports = Reports::default();
        let changed = |changed: BTreeSet<String>| changed.into_iter().collect::<Vec<_>>();
        assert_eq!(changed(reports.set("a", &data(&[("x", "Ready"), ("y", "Updating")]))), ["x", "y"]);
        assert_eq!(changed(reports.set("b", &data(&[("x", "Failed")]))), ["x"]);
        assert_eq!(changed(reports.set("a", &data(&[("x", "Ready"), ("y", "Ready")]))), ["y"]);
        assert_eq!(changed(reports.set("a", &data(&[("x", "Ready")]))), ["y"]);
        assert!(reports.for_model("y").is_empty() && reports.for_model("x").len() == 2);
        assert_eq!(changed(reports.remove("b")), ["x"]);
        assert_eq!(changed(reports.remove("b")), [""; 0]);
        assert!(reports.has_agent("a") && !reports.has_agent("b"));
        // An agent without models also has a ConfigMap.
        reports.set("b", &data(&[]));
        assert!(reports.has_agent("b") && reports.nodes().count() == 2);
    }

    #[test]
    fn nodes_with_the_same_files_share_what_these_say() {
        let mut reports = Reports::default();
        for node in ["a", "b"] {
            reports.set(node, &data(&[("x", "Ready")]));
        }
        let facts: Vec<_> = reports.for_model("x").values().map(|report| report.facts.clone().unwrap()).collect();
        assert!(Arc::ptr_eq(&facts[0], &facts[1]));
    }

    proptest! {
        /// After any sequence of changes, the reports equal those of the latest ConfigMaps.
        #[test]
        fn reports_kept_equal_reports_from_scratch(changes in prop::collection::vec((0_u8..4, prop::option::of(prop::collection::btree_map(0_u8..5, 0_u8..3, 0..5))), 1..40)) {
            let states = ["Ready", "Updating", "Failed"];
            let mut kept = Reports::default();
            let mut newest = BTreeMap::new();
            for (node, change) in changes {
                let node = format!("node-{node}");
                match change {
                    None => {
                        kept.remove(&node);
                        newest.remove(&node);
                    }
                    Some(models) => {
                        let text = |state: u8| json!({"status": states[usize::from(state)]}).to_string();
                        let data: BTreeMap<String, String> = models.into_iter().map(|(model, state)| (format!("model-{model}"), text(state))).collect();
                        kept.set(&node, &data);
                        newest.insert(node, data);
                    }
                }
            }
            let mut scratch = Reports::default();
            for (node, data) in &newest {
                scratch.set(node, data);
            }
            let states = |reports: &Reports, model: u8| {
                let reports = reports.for_model(&format!("model-{model}"));
                reports.iter().map(|(node, report)| (node.to_string(), report.state)).collect::<Vec<_>>()
            };
            for model in 0..5 {
                prop_assert_eq!(states(&kept, model), states(&scratch, model));
            }
            prop_assert_eq!(kept.models.len(), scratch.models.len());
        }
    }
}
