//! Finds the addresses of a pool's endpoint pickers: from the pool to its Service to the Service's pods, read again for each request.

use super::Unanswered;
use crate::problem::{is_forbidden, sentence};
use axum::http::StatusCode;
use k8s_openapi::{
    api::core::v1::{Pod, Service},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use pointsman_core::resource::{INFERENCE_POOL, X_INFERENCE_POOL};
use std::net::SocketAddr;

/// The maximum number of pickers of a pool.
const MAX_PICKERS: usize = 32;

/// The maximum number of listed pods of its Service: some may be starting or terminating.
const MAX_LISTED: u32 = 64;

/// The names of the metrics port, the more likely one first.
const PORT_NAMES: [&str; 2] = ["metrics", "http"];

/// The port if none has such a name.
const DEFAULT_PORT: u16 = 9090;

/// The pool's pickers that are ready, at least one.
pub(super) async fn find(client: &Client, namespace: &str, pool: &str) -> Result<Vec<SocketAddr>, Unanswered> {
    let named = format!("the InferencePool {namespace}/{pool}");
    let service_name = picker_service(client, namespace, pool).await?;
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let service =
        services.get_opt(&service_name).await.map_err(|error| unread(&format!("the Service {namespace}/{service_name}"), &error))?;
    let service = service.ok_or_else(|| {
        let remedy = "create it, or correct spec.endpointPickerRef";
        unanswered(format!("{named} refers to the Service {service_name} of its picker, which doesn't exist: {remedy}"))
    })?;
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).filter(|selector| !selector.is_empty());
    let selector: Vec<String> = selector.into_iter().flatten().map(|(label, value)| format!("{label}={value}")).collect();
    if selector.is_empty() {
        let remedy = "set its spec.selector to the labels of the picker's pods";
        return Err(unanswered(format!("{named}: the Service {service_name} of its picker selects no pods: {remedy}")));
    }
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(&selector.join(",")).limit(MAX_LISTED);
    let pods = pods.list(&params).await.map_err(|error| unread(&format!("the pods of the Service {namespace}/{service_name}"), &error))?;
    let addresses: Vec<SocketAddr> = pods.items.iter().filter_map(|pod| address(pod, &service)).collect();
    if addresses.is_empty() {
        let remedy = "check its Deployment, and /readyz of its pods";
        return Err(unanswered(format!("{named}: no pod of its picker's Service {service_name} is ready: {remedy}")));
    }
    if addresses.len() > MAX_PICKERS || pods.metadata.continue_.is_some_and(|next| !next.is_empty()) {
        let remedy = "run fewer pods of it, or correct the Service's selector";
        return Err(unanswered(format!("{named}: its picker's Service {service_name} has more than {MAX_PICKERS} pods: {remedy}")));
    }
    Ok(addresses)
}

/// The name of the Service in a pool's reference to its picker, regardless of the pool's group.
async fn picker_service(client: &Client, namespace: &str, pool: &str) -> Result<String, Unanswered> {
    for kind in [&INFERENCE_POOL, &X_INFERENCE_POOL] {
        let pools = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind.api_resource());
        let found = pools.get_opt(pool).await.map_err(|error| unread(&format!("the InferencePool {namespace}/{pool}"), &error))?;
        let Some(found) = found else { continue };
        let spec = &found.data["spec"];
        // v1alpha2 has another name for it.
        let name = [&spec["endpointPickerRef"], &spec["extensionRef"]].iter().find_map(|reference| reference["name"].as_str());
        return name.map(str::to_owned).ok_or_else(|| {
            unanswered(format!("the InferencePool {namespace}/{pool} refers to no endpoint picker: set spec.endpointPickerRef"))
        });
    }
    let remedy = "create it, or correct the selector's inference_pool";
    Err(Unanswered::new(StatusCode::NOT_FOUND, format!("the InferencePool {namespace}/{pool} doesn't exist: {remedy}")))
}

/// The address of a pod, if it is ready.
fn address(pod: &Pod, service: &Service) -> Option<SocketAddr> {
    let status = pod.status.as_ref()?;
    let is_ready = status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if !is_ready || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(SocketAddr::new(status.pod_ip.as_ref()?.parse().ok()?, metrics_port(pod, service)))
}

fn metrics_port(pod: &Pod, service: &Service) -> u16 {
    let container_port = |name: &str| {
        let ports = pod.spec.iter().flat_map(|spec| &spec.containers).flat_map(|container| container.ports.iter().flatten());
        let mut named = ports.filter(|port| port.name.as_deref() == Some(name));
        named.next().map(|port| port.container_port)
    };
    let service_port = |name: &str| {
        let mut ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let port = ports.find(|port| port.name.as_deref() == Some(name))?;
        match &port.target_port {
            None => Some(port.port),
            Some(IntOrString::Int(number)) => Some(*number),
            Some(IntOrString::String(name)) => container_port(name),
        }
    };
    let found = PORT_NAMES.iter().find_map(|name| service_port(name).or_else(|| container_port(name)));
    found.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(DEFAULT_PORT)
}

fn unanswered(message: String) -> Unanswered {
    Unanswered::new(StatusCode::SERVICE_UNAVAILABLE, message)
}

fn unread(what: &str, error: &kube::Error) -> Unanswered {
    let remedy = if is_forbidden(error) { ": apply deploy/roles/external-metrics" } else { "" };
    unanswered(format!("the controller can't read {what}: {}{remedy}", sentence(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(ports: &Value) -> Service {
        serde_json::from_value(json!({"spec": {"selector": {"app": "picker"}, "ports": ports}})).unwrap()
    }

    fn pod(ports: &Value, ready: &str) -> Pod {
        let containers = json!([{"name": "proxy"}, {"name": "picker", "ports": ports}]);
        let status = json!({"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": ready}]});
        serde_json::from_value(json!({"spec": {"containers": containers}, "status": status})).unwrap()
    }

    #[test]
    fn the_port_is_the_one_that_is_called_so_by_the_service_or_by_a_container() {
        let (none, grpc) = (json!([]), json!({"name": "grpc", "port": 9002}));
        let port = |number: u16, name: &str| json!([{"name": "grpc", "containerPort": 9002}, {"name": name, "containerPort": number}]);
        for (service_ports, pod_ports, expected) in [
            (json!([grpc]), none.clone(), 9090),
            (json!([grpc]), port(9091, "http"), 9091),
            (json!([grpc]), port(9092, "metrics"), 9092),
            (json!([{"name": "metrics", "port": 80}]), none.clone(), 80),
            (json!([{"name": "metrics", "port": 80, "targetPort": 9093}]), port(1, "http"), 9093),
            (json!([{"name": "metrics", "port": 80, "targetPort": "pages"}]), port(9094, "pages"), 9094),
            (json!([{"name": "metrics", "port": 80, "targetPort": "gone"}]), port(9095, "http"), 9095),
            (json!([{"name": "http", "port": 8080, "targetPort": 9096}]), port(9097, "metrics"), 9097),
        ] {
            let (service, pod) = (service(&service_ports), pod(&pod_ports, "True"));
            assert_eq!(address(&pod, &service), Some(SocketAddr::from(([10, 0, 0, 7], expected))), "{service:?}, {pod:?}");
        }
    }

    #[test]
    fn only_pods_that_are_ready_and_stay_are_asked() {
        let mut leaving = pod(&json!([]), "True");
        leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let mut without = pod(&json!([]), "True");
        without.status.as_mut().unwrap().pod_ip = None;
        for pod in [pod(&json!([]), "False"), leaving, without, Pod::default()] {
            assert_eq!(address(&pod, &service(&json!([]))), None);
        }
    }
}
