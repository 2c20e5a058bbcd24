//! Coexistence with another controller, adoption from it, and release to it: a test client acts as the other controller, with upstream's
//! writes.

mod beside;
mod eh_ops;
mod guide;
mod kept;
mod kserve;
mod ome;
mod refused;

use crate::services::{Space, condition, home, with_model};
use kube::api::{Patch, PatchParams, PostParams};
use pointsman_core::resource::{DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, INFERENCE_SERVICE, POD, Resource, SERVICE};
use pointsman_tests::{CommandOutput, Host, TestCluster, eventually};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The field manager of a controller that doesn't name itself. None of upstream's does.
const MANAGER: &str = "manager";

/// Another controller that manages one service.
struct Other<'a> {
    space: &'a Space<'a>,
    resource: &'static Resource,
    service: String,
}

impl<'a> Other<'a> {
    fn new(space: &'a Space<'a>, resource: &'static Resource, service: &str) -> Self {
        Self { space, resource, service: service.to_owned() }
    }

    /// Creates an object for the service, as a client does.
    async fn makes(&self, resource: &Resource, name: &str, labels: Value, more: Value) -> Value {
        let uid = self.space.get(self.resource, &self.service).await["metadata"]["uid"].clone();
        let owner = json!({
            "apiVersion": self.resource.api_version(), "kind": self.resource.kind, "name": self.service, "uid": uid, "controller": true,
            "blockOwnerDeletion": true,
        });
        let mut object = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object["metadata"] = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let made = self.space.api(resource).create(&params, &serde_json::from_value(object).unwrap()).await.unwrap();
        serde_json::to_value(made).unwrap()
    }

    /// Writes the status of the service.
    async fn tells(&self, status: Value) {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let change = Patch::Merge(json!({"status": status}));
        self.space.api(self.resource).patch_status(&self.service, &params, &change).await.unwrap();
    }

    /// Reports once more that the service is ready, and replaces the conditions of others.
    async fn is_content(&self, times: u32) {
        let ready = json!({"type": "Ready", "status": "True", "reason": format!("Time{times}"), "lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""});
        self.tells(json!({"conditions": [ready], "url": format!("http://{}-{times}.example.com", self.service)})).await;
    }

    /// Creates a Deployment with its Service, and optionally an autoscaler.
    async fn deploys(&self, name: &str, labels: Value, pod: Value, scaled: bool) {
        let selector = json!({"app": format!("isvc.{name}")});
        let mut all = labels.clone();
        all["app"] = selector["app"].clone();
        let spec = json!({
            "replicas": 2, "selector": {"matchLabels": selector}, "template": {"metadata": {"labels": all}, "spec": pod},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        });
        self.makes(&DEPLOYMENT, name, all.clone(), json!({"spec": spec})).await;
        let ports = json!([{"name": "http", "port": 80, "targetPort": 8000}]);
        self.makes(&SERVICE, name, all.clone(), json!({"spec": {"selector": selector, "ports": ports}})).await;
        if scaled {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
            let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
            let spec = json!({"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4, "metrics": [cpu]});
            self.makes(&HORIZONTAL_POD_AUTOSCALER, name, all, json!({"spec": spec})).await;
        }
    }
}

/// A service with only an engine, with the objects of OME's own controller. `exposed` extends the spec of the Service of the same name.
async fn engine_alone(space: &Space<'_>, name: &str, exposed: Value) {
    space.service(name, with_model(json!({"engine": {"minReplicas": 2, "maxReplicas": 4}}))).await;
    let other = Other::new(space, &INFERENCE_SERVICE, name);
    let labels = json!({"component": "engine", "ome.io/inferenceservice": name});
    let container = json!({"name": "ome-container", "image": "example.com/engine:1", "ports": [{"containerPort": 8000}]});
    other.deploys(&format!("{name}-engine"), labels.clone(), json!({"containers": [container]}), true).await;
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8000}]);
    let mut entry = json!({"selector": {"app": format!("isvc.{name}-engine")}, "ports": ports});
    entry.as_object_mut().unwrap().extend(exposed.as_object().unwrap().clone());
    other.makes(&SERVICE, name, labels, json!({"spec": entry})).await;
    other.is_content(1).await;
}

/// A host of this test's own cluster.
async fn host(cluster: &TestCluster) -> Host<'_> {
    home(cluster).await;
    let host = Host::start(cluster, &[]).await;
    host.ready().await;
    host
}

/// `pointsman adopt` in a test's namespace.
fn adopt(space: &Space<'_>, args: &[&str]) -> CommandOutput {
    space.0.cluster.pointsman(&[&["adopt", "-n", &space.0.name], args].concat())
}

/// The pods of the namespace, with their uids and owners.
async fn running(space: &Space<'_>) -> BTreeMap<String, Value> {
    let pods = space.api(&POD).list(&kube::api::ListParams::default()).await.unwrap().items;
    let alive = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    alive.map(|pod| (pod.metadata.name.clone().unwrap(), json!([pod.metadata.uid, pod.metadata.owner_references]))).collect()
}

/// Waits until there are this many pods, all Ready.
async fn run(space: &Space<'_>, number: usize) -> BTreeMap<String, Value> {
    eventually(&format!("there are {number} pods, Ready"), async || {
        let pods = space.api(&POD).list(&kube::api::ListParams::default()).await.unwrap().items;
        let ready = pods.iter().filter(|pod| condition(&serde_json::to_value(pod).unwrap(), "Ready")["status"] == "True").count();
        (pods.len() == number && ready == number).then_some(())
    })
    .await;
    running(space).await
}

/// The number of reconciles of a host.
fn looks(host: &Host<'_>) -> u64 {
    let Ok((_, metrics)) = host.get("/metrics") else { return 0 };
    let counts = metrics.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Waits until a host has reconciled a service, after an edit without effect.
async fn looks_again(space: &Space<'_>, host: &Host<'_>, resource: &Resource, service: &str) {
    let before = looks(host);
    let touch = json!({"metadata": {"annotations": {"pointsman.dev/note": before.to_string()}}});
    space.patch(resource, service, touch).await;
    eventually("the host looks again", async || (looks(host) > before).then_some(())).await;
}

/// Whether an object has no labels, annotations or fields of ours.
fn unmarked(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let keys = ["labels", "annotations"].into_iter().flat_map(|part| metadata[part].as_object().into_iter().flatten().map(|(key, _)| key));
    let managers = metadata["managedFields"].as_array().into_iter().flatten().filter_map(|entry| entry["manager"].as_str());
    keys.map(String::as_str).chain(managers).all(|name| !name.starts_with("pointsman"))
}
