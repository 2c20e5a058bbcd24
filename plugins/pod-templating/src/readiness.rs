//! The readiness of a pod.

use crate::{
    node::{By, Form, Node},
    pod::Pod,
};
use pointsman_plugin::{Reason, reason};
use serde_json::Value;

/// Adds a readiness probe to the main container unless it has one: the container is ready as soon as it listens. `port` is used if it
/// declares no port.
///
/// Without a probe, a pod would get requests while it loads its model.
pub(crate) fn probe(port: u64, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) {
    let Some(main) = pod.main_mut().filter(|main| main.get("readinessProbe").is_none()) else { return };
    let tcp = |port: &&Node<'_>| port.text_at("protocol").is_none_or(|protocol| protocol == "TCP");
    let number = |port: &Node<'_>| port.get("containerPort").and_then(Node::scalar).and_then(Value::as_u64);
    let port = main.items_at("ports").iter().filter(tcp).find_map(number).unwrap_or(port);
    let by = By::PLUGIN;
    let socket = Node::object([("port", Node { by, form: Form::Scalar(port.into()) })], by);
    main.set("readinessProbe", Node::object([("tcpSocket", socket)], by));
    let name = main.text_at("name").unwrap_or_default();
    reasons.push(reason("ReadinessProbe", format!("{name} has no readinessProbe, so it is ready once it listens on {port}.")));
}
