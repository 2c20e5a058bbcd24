//! Plugins with matchConditions: which subjects they are called for, also after a change, and what happens if a condition can't be
//! evaluated.

use super::digest;
use crate::{
    rules::host,
    services::{Space, condition, fixed, with_model},
    sets::label,
};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource};
use pointsman_tests::{PolicyCluster, plugin_bytes};
use serde_json::{Value, json};

/// The plugin, and the label of the namespace that it propagates to pods.
const COST_CENTRE: &str = "cost-centre";

/// A kind for whose services the plugin is called.
struct Kind {
    resource: &'static Resource,
    /// The part of its services' names before the dash.
    prefix: &'static str,
    /// The part of its Deployments' names after the dash.
    suffix: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind { resource: &INFERENCE_SERVICE, prefix: "isvc", suffix: "engine" },
    Kind { resource: &LLM_INFERENCE_SERVICE, prefix: "llm", suffix: "kserve" },
];

impl Kind {
    fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.prefix)
    }

    fn deployment(&self, what: &str) -> String {
        format!("{}-{}", self.name(what), self.suffix)
    }

    async fn serve(&self, space: &Space<'_>, what: &str, labels: Value) {
        let spec = if *self.resource == INFERENCE_SERVICE {
            with_model(json!({"engine": fixed(1)}))
        } else {
            json!({"model": {"uri": "hf://example/llama"}})
        };
        space.create(self.resource, &self.name(what), json!({"metadata": {"labels": labels}, "spec": spec})).await;
    }

    /// Changes the labels of a service.
    async fn label(&self, space: &Space<'_>, what: &str, labels: Value) {
        space.patch(self.resource, &self.name(what), json!({"metadata": {"labels": labels}})).await;
    }

    /// Waits until the pod template of a service's Deployment has the label as expected.
    async fn carries(&self, space: &Space<'_>, what: &str, centre: Option<&str>) {
        let carried = |deployment: &Value| deployment["spec"]["template"]["metadata"]["labels"][COST_CENTRE].as_str() == centre;
        space.becomes(&DEPLOYMENT, &self.deployment(what), &format!("its pods carry {centre:?}"), carried).await;
    }

    /// Waits until a service reports that the plugin's conditions can't be evaluated, and the consequence.
    async fn is_undecided(&self, space: &Space<'_>, what: &str, becomes: &str, why: &str) {
        let asked = "it returned an error: its matchConditions can't be evaluated: spec.matchConditions[paid].expression";
        let message = format!("{becomes}: the plugin {COST_CENTRE} can't answer at metadata-propagation: {asked}: {why}.");
        let says = |service: &Value| {
            let told = condition(service, "Decided");
            (&told["status"], &told["reason"], &told["message"]) == (&json!("False"), &json!("PolicyFailed"), &json!(message))
        };
        space.becomes(self.resource, &self.name(what), &format!("Decided says {message:?}"), says).await;
    }

    /// Waits until the policies have decided for a service.
    async fn is_decided(&self, space: &Space<'_>, what: &str) {
        space.says_of(self.resource, &self.name(what), "Decided", "True", "Decided").await;
    }
}

/// Activates the plugin under these conditions.
async fn bind(cluster: &PolicyCluster, more: Value) {
    let plugin = plugin_bytes("pointsman-example-rust-labels");
    cluster.config_map(COST_CENTRE, &plugin).await;
    let mut spec = json!({"strategy": {"type": "Immediate"}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    cluster.plugin_of_config_map(COST_CENTRE, spec).await;
    cluster.active(COST_CENTRE, &digest(&plugin)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_asked_where_its_conditions_are_true_and_no_longer_where_they_are_not() {
    let cluster = PolicyCluster::start().await;
    let host = host(&cluster, &["--pace", "0"]).await;
    let space = Space::on(&cluster, "conditions").await;
    label(&space, json!({COST_CENTRE: "4711", "billing": "on"})).await;
    let conditions = json!([
        {"name": "paid", "expression": "object.metadata.?labels[?'paid'].orValue('no') == 'yes'"},
        {"name": "billing", "expression": "namespaceObject.metadata.labels['billing'] == 'on'"},
    ]);
    bind(&cluster, json!({"matchConditions": conditions})).await;
    for kind in &KINDS {
        kind.serve(&space, "paid", json!({"paid": "yes"})).await;
        kind.serve(&space, "free", json!({"paid": "no"})).await;
        kind.serve(&space, "bare", json!({})).await;
    }
    // All of them are planned under the set with the plugin.
    for kind in &KINDS {
        kind.carries(&space, "paid", Some("4711")).await;
        kind.carries(&space, "free", None).await;
        kind.carries(&space, "bare", None).await;
    }

    // If the fields that the conditions read change, so does whether the plugin is called.
    for kind in &KINDS {
        kind.label(&space, "paid", json!({"paid": "no"})).await;
        kind.label(&space, "free", json!({"paid": "yes"})).await;
        kind.label(&space, "bare", json!({"paid": "yes"})).await;
    }
    for kind in &KINDS {
        kind.carries(&space, "paid", None).await;
        kind.carries(&space, "free", Some("4711")).await;
        kind.carries(&space, "bare", Some("4711")).await;
    }
    label(&space, json!({"billing": "off"})).await;
    for kind in &KINDS {
        kind.carries(&space, "free", None).await;
        kind.carries(&space, "bare", None).await;
    }
    label(&space, json!({"billing": "on"})).await;
    for kind in &KINDS {
        kind.carries(&space, "free", Some("4711")).await;
        kind.carries(&space, "bare", Some("4711")).await;
        kind.carries(&space, "paid", None).await;
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn where_conditions_cannot_be_evaluated_the_plugin_counts_as_one_that_fails() {
    let cluster = PolicyCluster::start().await;
    let host = host(&cluster, &["--pace", "0"]).await;
    let space = Space::on(&cluster, "unclear").await;
    label(&space, json!({COST_CENTRE: "4711"})).await;
    let conditions = |failure_policy: &str| {
        let expression = "object.metadata.labels['paid'] == 'yes'";
        json!({"matchConditions": [{"name": "paid", "expression": expression}], "failurePolicy": failure_policy})
    };
    bind(&cluster, conditions("Fail")).await;
    for kind in &KINDS {
        kind.serve(&space, "paid", json!({"paid": "yes"})).await;
        kind.serve(&space, "free", json!({"paid": "no"})).await;
        kind.serve(&space, "unclear", json!({"team": "chat"})).await;
    }
    for kind in &KINDS {
        kind.carries(&space, "paid", Some("4711")).await;
        kind.carries(&space, "free", None).await;
        kind.is_undecided(&space, "unclear", "No object is created", "no such key: paid").await;
        assert!(space.find(&DEPLOYMENT, &kind.deployment("unclear")).await.is_none());
    }

    // With Skip, the other plugins decide for new services. The objects of running ones stay unchanged.
    bind(&cluster, conditions("Skip")).await;
    for kind in &KINDS {
        kind.carries(&space, "unclear", None).await;
        kind.is_undecided(&space, "unclear", "Existing objects stay unchanged", "no such key: paid").await;
        kind.label(&space, "paid", json!({"paid": null})).await;
    }
    for kind in &KINDS {
        kind.is_undecided(&space, "paid", "Existing objects stay unchanged", "no such key: labels").await;
        kind.carries(&space, "paid", Some("4711")).await;
        kind.label(&space, "paid", json!({"paid": "no"})).await;
        kind.label(&space, "unclear", json!({"paid": "yes"})).await;
    }
    // The plugin itself never failed, so services whose conditions can be evaluated again are served at once.
    for kind in &KINDS {
        kind.carries(&space, "paid", None).await;
        kind.carries(&space, "unclear", Some("4711")).await;
        kind.is_decided(&space, "paid").await;
        kind.is_decided(&space, "unclear").await;
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_with_a_typo_is_refused_with_the_nearest_name_and_the_former_ones_count() {
    let cluster = PolicyCluster::start().await;
    let host = host(&cluster, &["--pace", "0"]).await;
    let space = Space::on(&cluster, "typos").await;
    label(&space, json!({COST_CENTRE: "4711"})).await;
    let conditions = |expression: &str| json!([{"name": "sized", "expression": expression}]);
    bind(&cluster, json!({"matchConditions": conditions("object.metadata.?labels[?'paid'].hasValue()")})).await;
    let typos = [
        ("InferenceService", "ome.io", "has(object.spec.engine.minReplica)", "object.spec.engine.minReplica", "an", "minReplicas"),
        ("LLMInferenceService", "serving.kserve.io", "has(object.spec.replica)", "object.spec.replica", "an", "replicas"),
    ];
    for (kind, group, expression, path, article, meant) in typos {
        let more = json!({"match": {"kinds": [{"group": group, "kind": kind}]}, "matchConditions": conditions(expression)});
        cluster.plugin_of_config_map(COST_CENTRE, more).await;
        let (reason, message) = cluster.refused(COST_CENTRE).await;
        assert_eq!(reason, "InvalidSpec", "{message}");
        assert!(message.contains("spec.matchConditions[sized].expression: column "), "{message}");
        assert!(message.contains(&format!("{path}: {article} {kind} has no such field; did you mean {meant}?")), "{message}");
    }
    // A field that no namespace has is a typo too.
    let more = json!({"matchConditions": conditions("has(namespaceObject.metadata.label)")});
    cluster.plugin_of_config_map(COST_CENTRE, more).await;
    let (reason, message) = cluster.refused(COST_CENTRE).await;
    assert_eq!(reason, "InvalidSpec", "{message}");
    assert!(message.contains("namespaceObject.metadata.label: a Namespace has no such field; did you mean labels?"), "{message}");

    for kind in &KINDS {
        kind.serve(&space, "paid", json!({"paid": "yes"})).await;
        kind.serve(&space, "free", json!({"free": "yes"})).await;
    }
    for kind in &KINDS {
        kind.carries(&space, "paid", Some("4711")).await;
        kind.carries(&space, "free", None).await;
    }
    bind(&cluster, json!({"matchConditions": conditions("object.metadata.?labels[?'free'].hasValue()")})).await;
    for kind in &KINDS {
        kind.carries(&space, "paid", None).await;
        kind.carries(&space, "free", Some("4711")).await;
    }
    host.stop();
}
