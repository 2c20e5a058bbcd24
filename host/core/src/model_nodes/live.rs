//! A model in the cluster, and the fields to write so that it reports the state of its nodes: values of other writers are never
//! overwritten.

use super::{
    assignment::ModelObject,
    report::NodeState,
    reports::ModelReports,
    summary::{ModelNode, Summary},
};
use crate::condition::condition_json;
use k8s_openapi::jiff::Timestamp;
use pointsman_crds::ome::model::ModelStatusSpec;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The field manager of models' statuses.
pub const STATUS_MANAGER: &str = "pointsman/model-status";

/// The field manager of the spec fields that are filled in from the files.
pub const FACTS_MANAGER: &str = "pointsman/model-facts";

/// The fields of a model's spec that are filled in from its files.
const FACTS: [&str; 8] = [
    "modelType",
    "modelArchitecture",
    "modelFramework",
    "modelFormat",
    "modelParameterSize",
    "modelCapabilities",
    "quantization",
    "maxTokens",
];

/// A model in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveModel {
    /// The part that agents read too.
    pub object: ModelObject,
    /// The number of changes of its spec.
    pub generation: i64,
    /// Its resource version.
    pub resource_version: String,
    /// Its status.
    pub status: ModelStatusSpec,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Whether another field manager has written its state.
    pub has_foreign_state: bool,
    /// Whether we own fields of its status.
    pub has_own_status: bool,
    /// The fields that we have filled in from the files.
    pub filled_in: BTreeMap<&'static str, Value>,
    /// The fields from the files that another field manager has set.
    pub set_by_others: BTreeSet<&'static str>,
}

impl LiveModel {
    /// Parses a BaseModel or a ClusterBaseModel.
    pub fn from_object(object: &Value) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
            spec: Map<String, Value>,
            #[serde(default)]
            status: ModelStatusSpec,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            generation: i64,
            resource_version: String,
            finalizers: Vec<String>,
            managed_fields: Vec<Managed>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Managed {
            manager: String,
            fields_v1: Value,
        }
        let Object { metadata, spec, status } = Object::deserialize(object)?;
        let owns = |managed: &Managed, part: &str, field: &str| managed.fields_v1[part].get(format!("f:{field}")).is_some();
        let mut filled_in = BTreeMap::new();
        let mut set_by_others = BTreeSet::new();
        for field in FACTS {
            let Some(value) = spec.get(field) else { continue };
            let mut owners = metadata.managed_fields.iter().filter(|managed| owns(managed, "f:spec", field)).peekable();
            if owners.peek().is_some() && owners.all(|managed| managed.manager == FACTS_MANAGER) {
                filled_in.insert(field, value.clone());
            } else {
                set_by_others.insert(field);
            }
        }
        let (has_foreign_state, has_own_status) = status_writers(object, STATUS_MANAGER);
        Ok(Self {
            object: ModelObject::from_object(object)?,
            generation: metadata.generation,
            resource_version: metadata.resource_version,
            status,
            finalizers: metadata.finalizers,
            has_foreign_state,
            has_own_status,
            filled_in,
            set_by_others,
        })
    }

    /// The finalizer for models of its kind, with the same name as OME's controller's, so that one that OME has left is removed too.
    pub fn finalizer(&self) -> &'static str {
        if self.object.namespace.is_empty() { "clusterbasemodels.ome.io/finalizer" } else { "basemodels.ome.io/finalizer" }
    }

    /// The status to write, if it differs from the current one. A state from another writer stays until an agent reports on the model,
    /// because users without agents set the states of models manually. Our earlier fields are then removed.
    pub fn status_to_write(&self, summary: &Summary, is_reported: bool, now: Timestamp) -> Option<Value> {
        if self.object.is_deleting {
            return None;
        }
        if self.has_foreign_state && !is_reported {
            return self.has_own_status.then(|| json!({}));
        }
        let known = &self.status;
        let former = known.conditions.iter().find(|condition| condition.type_ == summary.condition.type_);
        let former = former.and_then(|former| serde_json::to_value(former).ok());
        let condition = condition_json(summary.condition.clone(), former.as_ref(), Some(self.generation), now);
        let status = json!({
            "state": summary.state,
            "nodesReady": summary.nodes_ready,
            "nodesFailed": summary.nodes_failed,
            "conditions": [condition],
            "observedGeneration": self.generation,
        });
        let is_same = known.state == Some(summary.state)
            && known.nodes_ready == summary.nodes_ready
            && known.nodes_failed == summary.nodes_failed
            && known.observed_generation == Some(self.generation)
            && former.as_ref() == Some(&status["conditions"][0]);
        (!is_same).then_some(status)
    }

    /// The spec fields to fill in, if they differ from the current ones: always all fields that we own, because an apply removes omitted
    /// ones.
    pub fn facts_to_write(&self, summary: &Summary) -> Option<Value> {
        if self.object.is_deleting || self.object.skips_parsing {
            return None;
        }
        let facts: Value = serde_json::from_str(summary.facts.as_deref()?).ok()?;
        let is_said = |value: &Value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => fields.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty()),
            _ => true,
        };
        let answered = FACTS.into_iter().filter(|field| !self.set_by_others.contains(field));
        let wanted: BTreeMap<&str, Value> =
            answered.filter_map(|field| Some((field, facts.get(field).filter(|value| is_said(value))?.clone()))).collect();
        let is_same = wanted.len() == self.filled_in.len() && wanted.iter().all(|(field, value)| self.filled_in.get(field) == Some(value));
        (!is_same).then(|| json!(wanted))
    }

    /// The finalizers to write, if they differ from the current ones: the finalizer stays until the agents of existing nodes have deleted
    /// the model's files.
    pub fn finalizers_to_write(&self, reports: &ModelReports, nodes: &BTreeMap<String, ModelNode>) -> Option<Vec<String>> {
        let finalizer = self.finalizer();
        let has = self.finalizers.iter().any(|known| known == finalizer);
        let holds = reports.iter().any(|(node, report)| report.state != NodeState::Deleted && nodes.contains_key(&**node));
        match (self.object.is_deleting, has, holds) {
            (false, false, true) => Some(self.finalizers.iter().cloned().chain([finalizer.to_owned()]).collect()),
            (true, true, false) => Some(self.finalizers.iter().filter(|known| *known != finalizer).cloned().collect()),
            _ => None,
        }
    }
}

/// Whether another field manager has written the state in an object's status, and whether this manager owns any of its status.
pub(crate) fn status_writers(object: &Value, manager: &str) -> (bool, bool) {
    let managed = || object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let is_foreign = |entry: &Value| entry["manager"] != manager && entry["fieldsV1"]["f:status"].get("f:state").is_some();
    let is_own =
        |entry: &Value| entry["manager"] == manager && entry["fieldsV1"]["f:status"].as_object().is_some_and(|fields| !fields.is_empty());
    (managed().any(is_foreign), managed().any(is_own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_nodes::{reports::Reports, summary::summarize};

    fn live(more: Value) -> LiveModel {
        let mut object = json!({
            "metadata": {"name": "llama", "generation": 3},
            "spec": {"storage": {"storageUri": "hf://a/b"}},
        });
        let Value::Object(more) = more else { panic!("{more} is no object") };
        for (part, fields) in more {
            let part = &mut object[part];
            if part.is_null() {
                *part = json!({});
            }
            part.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        LiveModel::from_object(&object).unwrap()
    }

    fn managed(manager: &str, part: &str, fields: &[&str]) -> Value {
        let fields: Map<String, Value> = fields.iter().map(|field| (format!("f:{field}"), json!({}))).collect();
        json!({"manager": manager, "operation": "Apply", "fieldsV1": {format!("f:{part}"): fields}})
    }

    struct World {
        nodes: BTreeMap<String, ModelNode>,
        reports: Reports,
    }

    impl World {
        fn reporting(report: &Value) -> Self {
            let mut reports = Reports::default();
            reports.set("a", &[("x".to_owned(), report.to_string())].into());
            Self { nodes: [("a".to_owned(), ModelNode::default())].into(), reports }
        }

        fn summary(&self, model: &LiveModel) -> Summary {
            summarize(&model.object, &self.nodes, self.reports.for_model("x"), |node| self.reports.has_agent(node))
        }
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_status_is_written_once_and_then_stays() {
        let world = World::reporting(&json!({"status": "Ready"}));
        let model = live(json!({}));
        let status = model.status_to_write(&world.summary(&model), true, now()).unwrap();
        assert_eq!((&status["state"], &status["nodesReady"], &status["observedGeneration"]), (&json!("Ready"), &json!(["a"]), &json!(3)));
        let written = live(json!({"status": status.clone()}));
        let later = "2026-02-01T00:00:00Z".parse().unwrap();
        assert_eq!(written.status_to_write(&world.summary(&written), true, later), None);
        let failed = World::reporting(&json!({"status": "Failed"}));
        let status = written.status_to_write(&failed.summary(&written), true, later).unwrap();
        assert_eq!((&status["state"], &status["conditions"][0]["lastTransitionTime"]), (&json!("Failed"), &json!("2026-02-01T00:00:00Z")));
    }

    #[test]
    fn a_state_by_hand_stays_until_an_agent_reports_on_the_model() {
        let by_hand =
            live(json!({"metadata": {"managedFields": [managed("kubectl-patch", "status", &["state"])]}, "status": {"state": "Ready"}}));
        let world = World::reporting(&json!({"status": "Failed"}));
        assert_eq!(by_hand.status_to_write(&world.summary(&by_hand), false, now()), None);
        assert!(by_hand.status_to_write(&world.summary(&by_hand), true, now()).is_some());
        let ours =
            live(json!({"metadata": {"managedFields": [managed(STATUS_MANAGER, "status", &["state"])]}, "status": {"state": "Ready"}}));
        assert!(ours.status_to_write(&world.summary(&ours), false, now()).is_some());
    }

    #[test]
    fn nothing_is_written_of_what_is_deleted() {
        let world = World::reporting(&json!({"status": "Ready", "config": {"modelType": "llama"}}));
        let deleted = live(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        let summary = world.summary(&deleted);
        assert!(deleted.status_to_write(&summary, true, now()).is_none() && deleted.facts_to_write(&summary).is_none());
    }

    #[test]
    fn only_fields_that_nobody_has_set_are_filled_in() {
        let config = json!({
            "modelType": "llama", "modelArchitecture": "LlamaForCausalLM", "modelParameterSize": "8.03B", "quantization": "",
            "modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelFramework": {"name": ""}, "modelCapabilities": [], "maxTokens": 131_072,
            "modelConfiguration": {"x": 1},
        });
        let world = World::reporting(&json!({"status": "Ready", "config": config}));
        let model = live(json!({
            "metadata": {"managedFields": [managed("kubectl", "spec", &["modelFormat", "storage"])]},
            "spec": {"modelFormat": {"name": "safetensors"}, "modelType": "mine"},
        }));
        let facts = model.facts_to_write(&world.summary(&model)).unwrap();
        // The file format's version was set together with the name, and fields without a known owner aren't ours.
        assert_eq!(facts, json!({"maxTokens": 131_072, "modelArchitecture": "LlamaForCausalLM", "modelParameterSize": "8.03B"}));
        let mut spec = facts.clone();
        spec["modelFormat"] = json!({"name": "safetensors"});
        let owned = managed(FACTS_MANAGER, "spec", &["maxTokens", "modelArchitecture", "modelParameterSize"]);
        let filled =
            live(json!({"metadata": {"managedFields": [owned, managed("kubectl", "spec", &["modelFormat", "modelType"])]}, "spec": spec}));
        assert_eq!(filled.facts_to_write(&world.summary(&filled)).unwrap()["modelType"], "llama");
        let model = live(json!({"metadata": {"annotations": {"ome.oracle.com/skip-config-parsing": "true"}}}));
        assert_eq!(model.facts_to_write(&world.summary(&model)), None);
    }

    #[test]
    fn what_was_filled_in_follows_the_files_and_is_left_once_another_sets_it() {
        let world = World::reporting(&json!({"status": "Ready", "config": {"modelType": "llama", "quantization": "fp8"}}));
        let ours = managed(FACTS_MANAGER, "spec", &["modelType", "quantization"]);
        let model = |others: &[Value]| {
            let managers = [std::slice::from_ref(&ours), others].concat();
            live(json!({"metadata": {"managedFields": managers}, "spec": {"modelType": "llama", "quantization": "fp8"}}))
        };
        let same = model(&[]);
        assert_eq!(same.facts_to_write(&world.summary(&same)), None);
        let newer = World::reporting(&json!({"status": "Ready", "config": {"modelType": "llama"}}));
        assert_eq!(same.facts_to_write(&newer.summary(&same)).unwrap(), json!({"modelType": "llama"}));
        // Both own the field with the same value: the other owner decides on changes.
        let shared = model(&[managed("kubectl", "spec", &["quantization"])]);
        assert_eq!(shared.facts_to_write(&world.summary(&shared)), None);
        assert!(shared.set_by_others.contains("quantization"));
    }

    #[test]
    fn a_model_stays_until_living_nodes_have_deleted_its_files() {
        let finalizer = "clusterbasemodels.ome.io/finalizer";
        let ready = World::reporting(&json!({"status": "Ready"}));
        let reports = |world: &World, model: &LiveModel| model.finalizers_to_write(world.reports.for_model("x"), &world.nodes);
        let fresh = live(json!({"metadata": {"finalizers": ["other"]}}));
        assert_eq!(reports(&ready, &fresh), Some(vec!["other".to_owned(), finalizer.to_owned()]));
        let held = live(json!({"metadata": {"finalizers": [finalizer, "other"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert_eq!(reports(&ready, &held), None);
        let deleted = World::reporting(&json!({"status": "Deleted"}));
        assert_eq!(reports(&deleted, &held), Some(vec!["other".to_owned()]));
        assert_eq!(reports(&deleted, &fresh), None);
        let mut gone = ready;
        gone.nodes.clear();
        assert_eq!(reports(&gone, &held), Some(vec!["other".to_owned()]));
    }
}
