//! Services, routes and NetworkPolicies.

use super::Metadata;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A port of a Service, with the target port of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The Service's port.
    pub port: i64,
    /// The container's port.
    pub target: i64,
    /// TCP, UDP or SCTP.
    pub protocol: String,
}

/// The assumed port of a container that declares none.
pub const DEFAULT_PORT: i64 = 8080;

/// The HTTP port of every Service.
pub const HTTP: i64 = 80;

/// The ports of a Service for a container: 80 for its first port, and each declared port with its own number.
pub fn ports(container: Option<&Value>) -> Vec<Port> {
    let first = first_port(container).unwrap_or(DEFAULT_PORT);
    let http = Port { name: "http".to_owned(), port: HTTP, target: first, protocol: "TCP".to_owned() };
    with_declared(vec![http], container)
}

/// The port on which a container receives requests, if it declares one.
pub fn first_port(container: Option<&Value>) -> Option<i64> {
    declared(container).find(|(_, protocol, _)| *protocol == "TCP").map(|(number, ..)| number)
}

/// The ports of a Service for all containers of a pod, each with its own number.
pub fn all_ports(containers: &Value) -> Vec<Port> {
    with_declared(Vec::new(), containers.as_array().into_iter().flatten())
}

/// The declared ports of containers: number, protocol and name.
fn declared<'c>(containers: impl IntoIterator<Item = &'c Value>) -> impl Iterator<Item = (i64, &'c str, Option<&'c str>)> {
    let ports = containers.into_iter().flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.filter_map(|port| Some((port["containerPort"].as_i64()?, port["protocol"].as_str().unwrap_or("TCP"), port["name"].as_str())))
}

/// Adds the declared ports of containers. A Service has each number and each name only once.
fn with_declared<'c>(mut ports: Vec<Port>, containers: impl IntoIterator<Item = &'c Value>) -> Vec<Port> {
    for (target, protocol, name) in declared(containers) {
        if ports.iter().any(|port| port.port == target && port.protocol == protocol) {
            continue;
        }
        let named = name.filter(|name| ports.iter().all(|port| port.name != *name));
        let name = named.map_or_else(|| made_up(&ports, protocol, target), str::to_owned);
        ports.push(Port { name, port: target, target, protocol: protocol.to_owned() });
    }
    ports
}

/// A name that no other port has, regardless of the containers' names for them.
fn made_up(ports: &[Port], protocol: &str, number: i64) -> String {
    let name = format!("{}-{number}", protocol.to_lowercase());
    let free = |name: &String| ports.iter().all(|port| port.name != *name);
    let others = (2..).map(|count| format!("{name}-{count}"));
    std::iter::once(name.clone()).chain(others).find(free).unwrap_or_default()
}

/// A Service's body.
pub fn service(metadata: Metadata, selector: &BTreeMap<String, String>, ports: &[Port]) -> Value {
    let port =
        |Port { name, port, target, protocol }: &Port| json!({"name": name, "port": port, "targetPort": target, "protocol": protocol});
    let ports: Vec<Value> = ports.iter().map(port).collect();
    json!({"metadata": metadata.into_value(), "spec": {"selector": selector, "ports": ports}})
}

/// The body of a Service that gives each of its pods a host name, even before it is Ready, because pods that work together look each other
/// up at startup.
pub fn headless(metadata: Metadata, selector: &BTreeMap<String, String>, ports: &[Port]) -> Value {
    let mut body = service(metadata, selector, ports);
    body["spec"]["clusterIP"] = "None".into();
    body["spec"]["publishNotReadyAddresses"] = true.into();
    body
}

/// The body of a NetworkPolicy that admits traffic only between these pods, and from anywhere to their metrics port.
pub fn own_pods_only(metadata: Metadata, pods: &BTreeMap<String, String>, metrics: Option<i64>) -> Value {
    let mut ingress = vec![json!({"from": [{"podSelector": {"matchLabels": pods}}]})];
    ingress.extend(metrics.map(|port| json!({"ports": [{"port": port, "protocol": "TCP"}]})));
    json!({
        "metadata": metadata.into_value(),
        "spec": {"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": ingress},
    })
}

/// The body of a NetworkPolicy that admits only requests: from anywhere to these ports, and from the service's own pods to all ports.
/// Egress isn't restricted.
pub fn inference_only(metadata: Metadata, pods: &BTreeMap<String, String>, own: &BTreeMap<String, String>, ports: &[i64]) -> Value {
    let ports: Vec<Value> = ports.iter().map(|port| json!({"port": port, "protocol": "TCP"})).collect();
    let ingress = json!([{"ports": ports}, {"from": [{"podSelector": {"matchLabels": own}}]}]);
    json!({
        "metadata": metadata.into_value(),
        "spec": {"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": ingress},
    })
}

/// An HTTPRoute's body: routes all requests for a host name to a Service.
pub fn http_route(metadata: Metadata, gateway: (&str, &str), host: &str, service: &str, seconds: Option<i64>) -> Value {
    let mut rule = json!({
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "backendRefs": [{"group": "", "kind": "Service", "name": service, "port": HTTP, "weight": 1}],
    });
    if let Some(seconds) = seconds {
        rule["timeouts"] = json!({"request": format!("{seconds}s")});
    }
    let (namespace, name) = gateway;
    let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": namespace, "name": name});
    json!({"metadata": metadata.into_value(), "spec": {"parentRefs": [parent], "hostnames": [host], "rules": [rule]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_answers_on_80_and_on_each_declared_port() {
        let container =
            json!({"ports": [{"containerPort": 9000, "name": "metrics"}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 80}]});
        let ports: Vec<_> = ports(Some(&container)).into_iter().map(|port| (port.name, port.port, port.target)).collect();
        let expected = [("http", 80, 9000), ("metrics", 9000, 9000), ("udp-53", 53, 53)];
        assert_eq!(ports, expected.map(|(name, port, target)| (name.to_owned(), port, target)));
        assert_eq!(super::ports(None)[0].target, DEFAULT_PORT);
    }

    #[test]
    fn a_service_of_several_containers_has_each_number_and_each_name_once() {
        let containers = json!([
            {"ports": [{"containerPort": 9002, "name": "grpc"}, {"containerPort": 9090, "name": "metrics"}, {"containerPort": 1, "name": "tcp-8125"}]},
            {"ports": [{"containerPort": 9002, "name": "again"}, {"containerPort": 8125, "name": "metrics"}]},
        ]);
        let ports: Vec<_> = all_ports(&containers).into_iter().map(|port| (port.name, port.port)).collect();
        let expected = [("grpc", 9002), ("metrics", 9090), ("tcp-8125", 1), ("tcp-8125-2", 8125)];
        assert_eq!(ports, expected.map(|(name, port)| (name.to_owned(), port)));
    }
}
