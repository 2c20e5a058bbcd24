//! A control plane with the objects that services refer to, and services without a host.

use crate::kind::OwnKind;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use pointsman_core::{
    resource::{POD, Resource},
    settings::HOST_NAMESPACE,
};
use pointsman_harness::Options;
use pointsman_tests::TestCluster;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::task::JoinSet;

/// The namespace of the services.
pub(crate) const SERVICES_ARE_IN: &str = "bench";

/// Nodes for two pods of each of ten thousand services, all with the model.
const NODES: &str = r#"nodes:
- name: large
  count: 10
  labels: {models.ome.io/clusterbasemodel.llama: Ready}
  capacity: {cpu: "20000", memory: 200Ti, nvidia.com/gpu: "4000", pods: "2400"}
"#;

/// A control plane with all its parts, and the objects that services of a kind refer to.
pub(crate) async fn cluster(kind: &OwnKind) -> TestCluster {
    // Only the required ones: the host watches every kind that it knows.
    let neighbours = kind.neighbours.iter().map(|(name, _)| (*name).to_owned()).collect();
    let cluster = TestCluster::start(&Options { neighbours: Some(neighbours), ..Options::default() });
    cluster.add_nodes(NODES).unwrap();
    cluster.pointsman(&["crds", "install", "--all"]).ok();
    for name in [HOST_NAMESPACE, SERVICES_ARE_IN] {
        cluster.kubectl(&["create", "namespace", name]).ok();
    }
    let client = cluster.client().await;
    for (resource, object) in (kind.inputs)() {
        cluster.apply(&object).ok();
        // A status needs its own request.
        if let Some(status) = object.get("status") {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource.api_resource());
            let name = object["metadata"]["name"].as_str().unwrap();
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.unwrap();
        }
    }
    cluster
}

pub(crate) fn api(client: Client, resource: &Resource) -> Api<DynamicObject> {
    Api::namespaced_with(client, SERVICES_ARE_IN, &resource.api_resource())
}

/// Creates this number of services.
pub(crate) async fn make_services(cluster: &TestCluster, kind: &OwnKind, number: usize) {
    let all: Vec<_> = (0..number).map(|number| vec![(kind.resource, kind.service(number))]).collect();
    write(cluster, "setting", all, 8).await;
}

/// Applies objects over this number of connections: on each, one batch after the other, and in a batch, one object after the other.
pub(crate) async fn write(cluster: &TestCluster, user: &str, batches: Vec<Vec<(&'static Resource, Value)>>, connections: usize) {
    let (batches, next) = (Arc::new(batches), Arc::new(AtomicUsize::new(0)));
    let kubeconfig = cluster.kubeconfig_of_user(user, &["system:masters"]).unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (client, batches, next) = (pointsman_tests::client(&kubeconfig).await, Arc::clone(&batches), Arc::clone(&next));
        tasks.spawn(async move {
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                for (resource, object) in batch {
                    let name = object["metadata"]["name"].as_str().unwrap();
                    api(client.clone(), resource).patch(name, &PatchParams::apply("bench"), &Patch::Apply(object)).await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
}

/// All objects of a kind.
async fn all(api: Api<DynamicObject>, kind: &Resource) -> Vec<Value> {
    let mut params = ListParams::default().limit(200);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await.unwrap();
        all.extend(page.items.into_iter().map(|object| {
            let mut value = serde_json::to_value(object).unwrap();
            value["apiVersion"] = kind.api_version().into();
            value["kind"] = kind.kind.into();
            value
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return all,
        }
    }
}

pub(crate) async fn services(client: &Client, kind: &OwnKind) -> Vec<Value> {
    all(api(client.clone(), kind.resource), kind.resource).await
}

/// The pods, by name and uid, with their numbers of restarts.
pub(crate) async fn pods(client: &Client) -> Vec<String> {
    let mut pods: Vec<String> = all(api(client.clone(), &POD), &POD)
        .await
        .iter()
        .map(|pod| {
            format!("{} {} {}", pod["metadata"]["name"], pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        })
        .collect();
    pods.sort();
    pods
}

/// The objects that services refer to, from the cluster.
pub(crate) async fn inputs(client: &Client, kind: &OwnKind) -> Vec<(&'static Resource, Value)> {
    let resources: BTreeSet<&Resource> = (kind.inputs)().into_iter().map(|(resource, _)| resource).collect();
    let mut inputs = Vec::new();
    for resource in resources {
        let api = Api::all_with(client.clone(), &resource.api_resource());
        inputs.extend(all(api, resource).await.into_iter().map(|object| (resource, object)));
    }
    inputs
}
