//! The messages of kube-scheduler: the JSON of k8s.io/kube-scheduler/extender/v1, with Go's field names. Go writes an empty list or map as
//! null.

use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap, ops::Deref};

/// The maximum rank that an extender may assign.
pub const MAX_PRIORITY: i64 = 10;

/// The name of a node as received: a slice of the call, which has thousands of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for NodeName<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a, N: Into<Cow<'a, str>>> From<N> for NodeName<'a> {
    fn from(name: N) -> Self {
        Self(name.into())
    }
}

/// The request of filter and prioritize.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ExtenderArgs<'a> {
    /// The pod as the API returns it.
    pub pod: Value,
    /// Whole nodes, from a scheduler whose configuration lacks `nodeCacheCapable`.
    pub nodes: Option<IgnoredAny>,
    /// The names of the nodes.
    #[serde(borrow)]
    pub node_names: Option<Vec<NodeName<'a>>>,
}

/// The response of filter.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderFilterResult<'a> {
    /// The remaining nodes. None would mean that the response doesn't restrict nodes.
    pub node_names: Option<Vec<NodeName<'a>>>,
    /// Why other nodes fail, though they could be used after a preemption. Never used: the scheduler offers only nodes that have room.
    pub failed_nodes: BTreeMap<String, String>,
    /// Why other nodes fail regardless of preemption: no pod is preempted for these.
    pub failed_and_unresolvable_nodes: BTreeMap<String, String>,
    /// Why there is no result; a scheduler continues without one if the extender is ignorable.
    pub error: String,
}

/// The rank of a node.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority<'a> {
    /// The node.
    pub host: NodeName<'a>,
    /// Its rank, from 0 to 10.
    pub score: i64,
}

/// The request of preempt. With `nodeCacheCapable`, the scheduler sends only the uids of victims.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ExtenderPreemptionArgs {
    /// The pod as the API returns it.
    pub pod: Value,
    /// Whole victims, from a scheduler whose configuration lacks `nodeCacheCapable`.
    pub node_name_to_victims: Option<BTreeMap<String, Victims>>,
    /// The victims on each node.
    pub node_name_to_meta_victims: Option<BTreeMap<String, MetaVictims>>,
}

/// The victims on a node.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Victims {
    /// The victims as the API returns them.
    pub pods: Option<Vec<Value>>,
    /// The number of violated PodDisruptionBudgets.
    #[serde(rename = "NumPDBViolations")]
    pub num_pdb_violations: i64,
}

/// The victims on a node, by their uids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MetaVictims {
    /// The victims.
    pub pods: Option<Vec<MetaPod>>,
    /// The number of violated PodDisruptionBudgets.
    #[serde(rename = "NumPDBViolations")]
    pub num_pdb_violations: i64,
}

/// A pod by its uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetaPod {
    /// The uid.
    #[serde(rename = "UID")]
    pub uid: String,
}

/// The response of preempt: the remaining nodes.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderPreemptionResult {
    /// The nodes with their victims.
    pub node_name_to_meta_victims: BTreeMap<String, MetaVictims>,
}

impl ExtenderPreemptionArgs {
    /// The victims by their uids, in either form of the request.
    pub fn victims(&mut self) -> BTreeMap<String, MetaVictims> {
        if let Some(known) = self.node_name_to_meta_victims.take() {
            return known;
        }
        let uid = |pod: &Value| MetaPod { uid: pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned() };
        let meta = |victims: Victims| MetaVictims {
            pods: victims.pods.map(|pods| pods.iter().map(uid).collect()),
            num_pdb_violations: victims.num_pdb_violations,
        };
        self.node_name_to_victims.take().unwrap_or_default().into_iter().map(|(node, victims)| (node, meta(victims))).collect()
    }
}

impl MetaVictims {
    /// The uids.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        self.pods.iter().flatten().map(|pod| pod.uid.as_str())
    }
}

impl<'a> ExtenderFilterResult<'a> {
    /// These nodes pass, without reasons for the others.
    pub fn passing(nodes: Vec<NodeName<'a>>) -> Self {
        Self { node_names: Some(nodes), ..Self::default() }
    }

    /// These nodes pass, with reasons for the others. No pod is preempted on those: the scheduler has found that they have room.
    pub fn passing_without(nodes: Vec<NodeName<'a>>, failed_and_unresolvable_nodes: BTreeMap<String, String>) -> Self {
        Self { failed_and_unresolvable_nodes, ..Self::passing(nodes) }
    }

    /// No node passes, and no pod is preempted.
    pub fn none(nodes: &[NodeName<'_>], why: &str) -> Self {
        let failed_and_unresolvable_nodes = nodes.iter().map(|node| (node.to_string(), why.to_owned())).collect();
        Self { failed_and_unresolvable_nodes, ..Self::passing(Vec::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_scheduler_sends_is_read() {
        let text = r#"{"Pod":{"metadata":{"name":"a"}},"Nodes":null,"NodeNames":["n1","n2"]}"#;
        let args: ExtenderArgs<'_> = serde_json::from_str(text).unwrap();
        assert_eq!((args.pod["metadata"]["name"].as_str(), args.nodes.is_some()), (Some("a"), false));
        assert_eq!(args.node_names.unwrap(), ["n1", "n2"].map(NodeName::from));
        // Names need no escapes, but may have them.
        let escaped: ExtenderArgs<'_> = serde_json::from_str(r#"{"Pod":{},"NodeNames":["n\u0031"]}"#).unwrap();
        assert_eq!(escaped.node_names.unwrap(), ["n1"].map(NodeName::from));
        // Without nodeCacheCapable.
        let args: ExtenderArgs<'_> = serde_json::from_str(r#"{"Pod":{},"Nodes":{"items":[{"spec":{}}]},"NodeNames":null}"#).unwrap();
        assert!(args.nodes.is_some() && args.node_names.is_none());
    }

    #[test]
    fn answers_have_go_s_names_and_an_empty_list_is_no_null() {
        let result = ExtenderFilterResult::none(&["n1".into()], "it waits");
        let expected = json!({"NodeNames": [], "FailedNodes": {}, "FailedAndUnresolvableNodes": {"n1": "it waits"}, "Error": ""});
        assert_eq!(serde_json::to_value(&result).unwrap(), expected);
        let ranks = [HostPriority { host: "n1".into(), score: 10 }];
        assert_eq!(serde_json::to_value(ranks).unwrap(), json!([{"Host": "n1", "Score": 10}]));
    }

    #[test]
    fn victims_come_by_their_uids_or_whole_and_go_by_their_uids() {
        let meta = json!({"n1": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 1}, "n2": {"Pods": null, "NumPDBViolations": 0}});
        let mut args: ExtenderPreemptionArgs =
            serde_json::from_value(json!({"Pod": {}, "NodeNameToVictims": null, "NodeNameToMetaVictims": meta})).unwrap();
        let victims = args.victims();
        assert_eq!(victims["n1"].uids().collect::<Vec<_>>(), ["u1"]);
        let answer = ExtenderPreemptionResult { node_name_to_meta_victims: victims };
        assert_eq!(serde_json::to_value(&answer).unwrap(), json!({"NodeNameToMetaVictims": meta}));
        let whole = json!({"Pod": {}, "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": "u1"}}], "NumPDBViolations": 2}}});
        let victims = serde_json::from_value::<ExtenderPreemptionArgs>(whole).unwrap().victims();
        assert_eq!((victims["n1"].uids().collect::<Vec<_>>(), victims["n1"].num_pdb_violations), (vec!["u1"], 2));
    }
}
