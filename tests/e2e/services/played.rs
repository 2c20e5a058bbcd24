//! Acts as the controllers of Knative and KubeRay, which don't run here: reports the status that each Knative Service and each RayCluster
//! would have with healthy pods, and creates no pods. Like Knative, it creates a Route for a Knative Service, and a Service of that name.

use super::Space;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use pointsman_core::resource::{KNATIVE_SERVICE, RAY_CLUSTER, Resource, SERVICE};
use serde_json::{Value, json};
use std::{collections::HashMap, time::Duration};
use tokio::{task::JoinHandle, time::interval};

/// The running simulation. It ends when it is dropped.
pub(crate) struct Play(JoinHandle<()>);

impl Drop for Play {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Space<'_> {
    /// Simulates both controllers in this namespace.
    pub(crate) fn play(&self) -> Play {
        let api =
            |resource: &Resource| Api::<DynamicObject>::namespaced_with(self.0.client.clone(), &self.0.name, &resource.api_resource());
        play([api(&KNATIVE_SERVICE), api(&RAY_CLUSTER)])
    }
}

/// Simulates both controllers for the objects of these APIs.
pub(crate) fn play([services, clusters]: [Api<DynamicObject>; 2]) -> Play {
    Play(tokio::spawn(async move {
        let mut revisions = Revisions::default();
        let mut beat = interval(Duration::from_millis(100));
        loop {
            beat.tick().await;
            say(&services, |service| revisions.status(service)).await;
            route(&services).await;
            say(&clusters, ray).await;
        }
    }))
}

/// Writes the status that the controller would report to each object, unless it is there already.
async fn say(api: &Api<DynamicObject>, mut status: impl FnMut(&Value) -> Value) {
    // The CRD may be removed.
    let Ok(objects) = api.list(&ListParams::default()).await else { return };
    for object in objects {
        let name = object.metadata.name.clone().unwrap_or_default();
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let object = serde_json::to_value(object).unwrap();
        let said = status(&object);
        if object["status"] != said {
            let api = Api::<DynamicObject>::namespaced_with(api.clone().into_client(), &namespace, &kind_of(&object).api_resource());
            // The object may have been deleted.
            let _gone = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": said}))).await;
        }
    }
}

/// The objects that Knative creates in addition to revisions, with the labels of its Service: the Service owns the Route, and the Route
/// owns the placeholder.
async fn route(services: &Api<DynamicObject>) {
    let Ok(all) = services.list(&ListParams::default()).await else { return };
    for service in all.into_iter().filter(|service| service.metadata.deletion_timestamp.is_none()) {
        let (name, namespace) = (service.metadata.name.unwrap_or_default(), service.metadata.namespace.unwrap_or_default());
        let client = services.clone().into_client();
        let route = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("serving.knative.dev", "v1", "Route"), "routes");
        let labels = service.metadata.labels.unwrap_or_default();
        let owned = |resource: &ApiResource, kind: &str, uid: &str, spec: Value| {
            let owner = json!({"apiVersion": "serving.knative.dev/v1", "kind": kind, "name": name, "uid": uid, "controller": true});
            let metadata = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
            let object = json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec});
            serde_json::from_value::<DynamicObject>(object).unwrap()
        };
        let routes = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &route);
        let uid = service.metadata.uid.unwrap_or_default();
        let spec = json!({"traffic": [{"configurationName": name, "latestRevision": true, "percent": 100}]});
        // It may exist already, or the owner may just have been deleted.
        let _there = routes.create(&PostParams::default(), &owned(&route, "Service", &uid, spec)).await;
        let Ok(Some(made)) = routes.get_opt(&name).await else { continue };
        let core = SERVICE.api_resource();
        let placeholder = json!({"type": "ExternalName", "externalName": "gateway.example.com"});
        let placeholder = owned(&core, "Route", &made.metadata.uid.unwrap_or_default(), placeholder);
        let _there = Api::<DynamicObject>::namespaced_with(client, &namespace, &core).create(&PostParams::default(), &placeholder).await;
    }
}

fn kind_of(object: &Value) -> &'static Resource {
    if object["apiVersion"] == "ray.io/v1" { &RAY_CLUSTER } else { &KNATIVE_SERVICE }
}

pub(crate) fn condition_status(type_: &str, status: &str) -> Value {
    json!({"type": type_, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "AsPlayed", "message": "It is as it is played."})
}

/// The revisions of Knative Services: a changed template is a new revision.
#[derive(Default)]
struct Revisions(HashMap<String, (Value, u32)>);

impl Revisions {
    fn status(&mut self, service: &Value) -> Value {
        let text = |field: &str| service["metadata"][field].as_str().unwrap().to_owned();
        let (name, namespace) = (text("name"), text("namespace"));
        let template = service["spec"]["template"].clone();
        let (known, number) = self.0.entry(text("uid")).or_insert_with(|| (template.clone(), 1));
        if *known != template {
            (*known, *number) = (template, *number + 1);
        }
        knative(&name, &namespace, *number, &service["spec"]["traffic"], &service["metadata"]["generation"])
    }
}

/// Knative's status of a service whose newest revision is ready.
pub(crate) fn knative(name: &str, namespace: &str, number: u32, traffic: &Value, generation: &Value) -> Value {
    let revision = format!("{name}-{number:05}");
    let traffic = traffic.as_array().into_iter().flatten().map(|part| {
        let mut part = part.clone();
        if part["latestRevision"] == true {
            part["revisionName"] = revision.as_str().into();
        }
        part
    });
    let conditions = ["ConfigurationsReady", "Ready", "RoutesReady"].map(|type_| condition_status(type_, "True"));
    json!({
        "observedGeneration": generation,
        "conditions": conditions,
        "latestCreatedRevisionName": revision,
        "latestReadyRevisionName": revision,
        "url": format!("http://{name}.{namespace}.example.com"),
        "address": {"url": format!("http://{name}.{namespace}.svc.cluster.local")},
        "traffic": traffic.collect::<Vec<_>>(),
    })
}

/// KubeRay's status of a cluster with ready pods.
fn ray(cluster: &Value) -> Value {
    let workers = cluster["spec"]["workerGroupSpecs"][0]["replicas"].clone();
    let workers = if workers.is_null() { json!(0) } else { workers };
    json!({
        "observedGeneration": cluster["metadata"]["generation"],
        "state": "ready",
        "desiredWorkerReplicas": workers, "readyWorkerReplicas": workers, "availableWorkerReplicas": workers,
        "conditions": [condition_status("HeadPodReady", "True"), condition_status("RayClusterProvisioned", "True")],
    })
}
