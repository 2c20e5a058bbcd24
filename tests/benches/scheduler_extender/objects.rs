//! The nodes and pods of the clusters: six shapes of node in four RDMA domains, and pods of services.

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::{Api, api::PostParams};
use pointsman_tests::TestNamespace;
use serde_json::{Value, json};
use std::ops::Range;

/// The label of the nodes that have the model.
const MODEL: &str = "models.ome.io/clusterbasemodel.llama";

/// The resource of accelerators.
const GPU: &str = "nvidia.com/gpu";

/// The label of a pod with its service.
pub(crate) const SERVICE: &str = "serving.ome.io/inferenceservice";

/// The number of services of the pods.
pub(crate) const SERVICES: usize = 50;

/// The number of objects that are created at once.
pub(crate) const CONNECTIONS: usize = 8;

/// The number of RDMA domains, each in its own zone.
const DOMAINS: usize = 4;

/// The shapes of nodes, with their numbers of accelerators. A domain has equally many nodes of each entry.
const SHAPES: [(&str, u32); 8] = [("h100", 8), ("h100", 8), ("a100", 8), ("h100-half", 4), ("l40", 2), ("l40", 2), ("l4", 1), ("cpu", 0)];

/// The index of a node's shape in [`SHAPES`].
fn shape_index(number: usize) -> usize {
    number / DOMAINS % SHAPES.len()
}

/// The name of a node.
pub(crate) fn node_name(number: usize) -> String {
    format!("{}-{number}", SHAPES[shape_index(number)].0)
}

/// A node, in the harness's format. Every other H100 node has the model.
fn node(number: usize) -> Value {
    let (index, domain) = (shape_index(number), number % DOMAINS);
    let (shape, gpus) = SHAPES[index];
    let mut labels = json!({
        "topology.kubernetes.io/zone": format!("zone-{domain}"),
        "pointsman.dev/rdma-domain": format!("domain-{domain}"),
        "shape": shape,
    });
    if index == 0 {
        labels[MODEL] = "Ready".into();
    }
    let mut capacity = json!({"cpu": "96", "memory": "1Ti"});
    if gpus > 0 {
        capacity[GPU] = gpus.to_string().into();
    }
    json!({"name": node_name(number), "labels": labels, "capacity": capacity})
}

/// The harness's file with this number of nodes.
pub(crate) fn node_file(number: usize) -> String {
    json!({"nodes": (0..number).map(node).collect::<Vec<_>>()}).to_string()
}

/// A node, as a kubelet registers it.
fn registered_node(number: usize) -> Node {
    let node = node(number);
    let mut capacity = node["capacity"].clone();
    capacity["pods"] = "110".into();
    let registered = json!({
        "metadata": {"name": node["name"], "labels": node["labels"]},
        "status": {"capacity": capacity, "allocatable": capacity},
    });
    serde_json::from_value(registered).unwrap()
}

/// The name of a service.
pub(crate) fn service_name(number: usize) -> String {
    format!("chat-{number}")
}

/// A pod of a service. One with accelerators prefers nodes that have the model.
fn described_pod(name: &str, service: usize, component: &str, gpus: u32) -> Value {
    let labels = json!({
        "pointsman.dev/subject-kind": "InferenceService", (SERVICE): service_name(service), "serving.ome.io/component": component,
    });
    let mut requests = json!({"cpu": "1", "memory": "4Gi"});
    let mut affinity = json!({});
    if gpus > 0 {
        requests[GPU] = gpus.to_string().into();
        let has_model = json!({"matchExpressions": [{"key": MODEL, "operator": "In", "values": ["Ready"]}]});
        let preferred = json!([{"weight": 1, "preference": has_model}]);
        affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    }
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": "pointsman", "terminationGracePeriodSeconds": 0, "affinity": affinity,
            "containers": [{"name": "main", "image": "example.com/engine:1", "resources": {"requests": requests, "limits": requests}}],
        },
    })
}

/// An engine of a service with an accelerator.
pub(crate) fn engine(name: &str, service: usize) -> Pod {
    serde_json::from_value(described_pod(name, service, "engine", 1)).unwrap()
}

/// A router of a service, which requests no accelerator.
pub(crate) fn router(name: &str, service: usize) -> Pod {
    serde_json::from_value(described_pod(name, service, "router", 0)).unwrap()
}

/// A pod that is already on a node, alternating between an engine and a decoder.
fn bound_pod(number: usize) -> Pod {
    let component = if number.is_multiple_of(2) { "engine" } else { "decoder" };
    let mut pod = described_pod(&format!("bound-{number}"), number / (2 * DOMAINS) % SERVICES, component, 1);
    pod["spec"]["nodeName"] = node_name(number).into();
    serde_json::from_value(pod).unwrap()
}

/// The pods of the namespace.
pub(crate) fn pods(space: &TestNamespace<'_>) -> Api<Pod> {
    Api::namespaced(space.client.clone(), &space.name)
}

/// Creates the objects that the API server requires in a namespace with pods: no controller creates them here.
pub(crate) async fn create_service_account(space: &TestNamespace<'_>) {
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("default".to_owned());
    Api::namespaced(space.client.clone(), &space.name).create(&PostParams::default(), &account).await.unwrap();
}

/// Creates the nodes with these numbers, without kubelets, and a bound pod on every other one.
pub(crate) async fn create_nodes(space: &TestNamespace<'_>, numbers: Range<usize>) {
    let (nodes, pods) = (Api::<Node>::all(space.client.clone()), pods(space));
    let create = |number: usize| {
        let (nodes, pods) = (&nodes, &pods);
        async move {
            nodes.create(&PostParams::default(), &registered_node(number)).await.unwrap();
            if shape_index(number).is_multiple_of(2) {
                pods.create(&PostParams::default(), &bound_pod(number)).await.unwrap();
            }
        }
    };
    stream::iter(numbers).for_each_concurrent(CONNECTIONS, create).await;
}

/// An engine without a node, as a scheduler sends it: with the API server's defaults.
pub(crate) async fn pod_template(space: &TestNamespace<'_>) -> Value {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let mut pod = pods(space).create(&params, &engine("asked", 0)).await.unwrap();
    // The scheduler drops these from the objects of its watch.
    pod.metadata.managed_fields = None;
    let mut template = serde_json::to_value(pod).unwrap();
    let fields = template.as_object_mut().unwrap();
    // Go's typed objects don't have these.
    fields.remove("apiVersion");
    fields.remove("kind");
    template
}
