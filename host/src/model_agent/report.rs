//! An agent's report: the ConfigMap of its node, and the node's labels.

use super::{
    peers::PEER,
    stores::{LiveReport, OwnNode},
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use pointsman_core::model_nodes::{
    names::is_node_label,
    report::{AGENT, CONFIG_MAP, MANAGED_BY, NODE_NAME, NodeState},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The field manager of an agent's writes.
const MANAGER: &str = "pointsman/model-agent";

/// The label of the ConfigMap with the node's name, as OME's agents set it.
const NODE: &str = "node";

/// The desired report in the cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Desired {
    /// The data, by the models' keys.
    pub(super) data: BTreeMap<String, String>,
    /// The labels of the node.
    pub(super) labels: BTreeMap<String, NodeState>,
}

/// Writes reports.
pub(super) struct Reporter {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) namespace: String,
    /// The version that was replaced last: the watch will bring its successor.
    pub(super) replaced: Option<String>,
    /// The address of this agent, for other agents.
    pub(super) peer: Option<String>,
}

impl Reporter {
    /// Makes the cluster match the desired report. Writes nothing if it is up to date.
    pub(super) async fn write(&mut self, node: &OwnNode, live: Option<&LiveReport>, desired: &Desired) -> kube::Result<()> {
        // First the labels that keep pods away, last those that admit them.
        let changes = label_changes(&node.labels, &desired.labels);
        let (gone, here): (serde_json::Map<String, Value>, _) = changes.into_iter().partition(|(_, word)| word != NodeState::Ready.word());
        self.set_labels(node, gone).await?;
        self.write_map(node, live, desired).await?;
        self.set_labels(node, here).await
    }

    async fn set_labels(&self, node: &OwnNode, labels: serde_json::Map<String, Value>) -> kube::Result<()> {
        if labels.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": node.uid, "labels": labels}});
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        Api::<Node>::all(self.client.clone()).patch_metadata(&self.node, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn write_map(&mut self, node: &OwnNode, live: Option<&LiveReport>, desired: &Desired) -> kube::Result<()> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let Some(live) = live else {
            api.create(&params, &self.map(node, desired, None)).await?;
            return Ok(());
        };
        if self.replaced.as_ref() == Some(&live.version) || self.is_current(node, live, desired) {
            return Ok(());
        }
        api.replace(&self.node, &params, &self.map(node, desired, Some(live))).await?;
        self.replaced = Some(live.version.clone());
        Ok(())
    }

    fn is_current(&self, node: &OwnNode, live: &LiveReport, desired: &Desired) -> bool {
        let has =
            |there: &BTreeMap<String, String>, own: &BTreeMap<String, String>| own.iter().all(|(key, value)| there.get(key) == Some(value));
        let stale = live.labels.keys().any(|label| is_node_label(label) && !desired.labels.contains_key(label));
        live.data == desired.data
            && !stale
            && live.owner.as_ref() == Some(&node.uid)
            && has(&live.labels, &self.labels(desired))
            && has(&live.annotations, &self.annotations())
    }

    /// The labels of the ConfigMap. They include the node's, by which other agents find this one.
    fn labels(&self, desired: &Desired) -> BTreeMap<String, String> {
        let own = [(CONFIG_MAP, "true".to_owned()), (NODE, self.node.clone())].map(|(key, value)| (key.to_owned(), value));
        own.into_iter().chain(desired.labels.iter().map(|(label, state)| (label.clone(), state.word().to_owned()))).collect()
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let own = [(NODE_NAME, Some(self.node.clone())), (MANAGED_BY, Some(AGENT.to_owned())), (PEER, self.peer.clone())];
        own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }

    fn map(&self, node: &OwnNode, desired: &Desired, live: Option<&LiveReport>) -> ConfigMap {
        // Labels and annotations of others stay.
        let with = |there: Option<&BTreeMap<String, String>>, own: BTreeMap<String, String>| -> BTreeMap<String, String> {
            let there = there.into_iter().flatten().filter(|(key, _)| !is_node_label(key));
            there.map(|(key, value)| (key.clone(), value.clone())).chain(own).collect()
        };
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.node.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(with(live.map(|live| &live.labels), self.labels(desired))),
                annotations: Some(with(live.map(|live| &live.annotations), self.annotations())),
                // It is deleted with the node.
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: self.node.clone(),
                    uid: node.uid.clone(),
                    ..OwnerReference::default()
                }]),
                resource_version: live.map(|live| live.version.clone()),
                ..ObjectMeta::default()
            },
            data: Some(desired.data.clone()),
            ..ConfigMap::default()
        }
    }
}

/// The changes of a node's labels; null removes one. Model labels from an earlier agent are also removed.
fn label_changes(there: &BTreeMap<String, String>, desired: &BTreeMap<String, NodeState>) -> serde_json::Map<String, Value> {
    let set = desired.iter().filter(|(label, state)| there.get(*label).map(String::as_str) != Some(state.word()));
    let set = set.map(|(label, state)| (label.clone(), state.word().into()));
    let stale = there.keys().filter(|label| is_node_label(label) && !desired.contains_key(*label));
    set.chain(stale.map(|label| (label.clone(), Value::Null))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_of_models_are_changed() {
        let there: BTreeMap<String, String> = [
            ("kubernetes.io/hostname", "gpu-1"),
            ("models.ome.io/clusterbasemodel.a", "Ready"),
            ("models.ome.io/clusterbasemodel.b", "Updating"),
            ("models.ome.io/clusterbasemodel.stale", "Ready"),
            ("models.ome.io/instance", "x"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let desired: BTreeMap<String, NodeState> = [
            ("models.ome.io/clusterbasemodel.a", NodeState::Ready),
            ("models.ome.io/clusterbasemodel.b", NodeState::Ready),
            ("models.ome.io/ml.basemodel.c", NodeState::Failed),
        ]
        .map(|(key, state)| (key.to_owned(), state))
        .into();
        let expected = json!({
            "models.ome.io/clusterbasemodel.b": "Ready", "models.ome.io/ml.basemodel.c": "Failed", "models.ome.io/clusterbasemodel.stale": null,
        });
        assert_eq!(Value::from(label_changes(&there, &desired)), expected);
    }
}
