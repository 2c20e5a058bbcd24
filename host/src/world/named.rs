//! What is kept of an object that a subject names and somebody else has made: whether it is there, and what it tells of itself.

use super::{
    child::{Condition, told_in},
    live::Live,
    resource::{GATEWAY, Resource},
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A Gateway, or somebody's HTTPRoute or InferencePool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// What it tells in conditions: of a route or a pool those of all its parents.
    pub conditions: Vec<Condition>,
    /// The names that it is reached by: of a route its host names, of a Gateway its listeners' and its addresses.
    pub hosts: Vec<String>,
    /// Whether a Gateway has a listener with TLS.
    pub secure: bool,
    /// The Gateways that a route hangs on: namespace and name.
    pub parents: Vec<(String, String)>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    hostnames: Vec<String>,
    listeners: Vec<Listener>,
    parent_refs: Vec<Parent>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Listener {
    hostname: Option<String>,
    protocol: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Parent {
    namespace: Option<String>,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    addresses: Vec<Address>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    value: String,
}

impl Named {
    /// Reads a live object.
    pub(super) fn of(resource: &'static Resource, live: &Live<'_>) -> Self {
        let spec: Spec = read(live.field("spec"));
        let mut hosts = spec.hostnames;
        if *resource == GATEWAY {
            // A wildcard is no name that anything is reached by.
            hosts.extend(spec.listeners.iter().filter_map(|listener| listener.hostname.clone()).filter(|host| !host.contains('*')));
            hosts.extend(read::<Status>(live.status).addresses.into_iter().map(|address| address.value));
        }
        let own = live.metadata.namespace.as_deref().unwrap_or_default();
        let parents = spec.parent_refs.into_iter().map(|parent| (parent.namespace.unwrap_or_else(|| own.to_owned()), parent.name));
        Self {
            generation: live.metadata.generation,
            conditions: told_in(live),
            hosts,
            secure: spec.listeners.iter().any(|listener| matches!(listener.protocol.as_str(), "HTTPS" | "TLS")),
            parents: parents.collect(),
        }
    }

    /// A condition that speaks of its newest state.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_ && condition.speaks_of(self.generation))
    }
}

fn read<T: Default + for<'de> Deserialize<'de>>(text: Option<&RawValue>) -> T {
    text.and_then(|text| serde_json::from_str(text.get()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::resource::HTTP_ROUTE;
    use serde_json::json;

    #[test]
    fn a_gateway_tells_where_it_is_and_a_route_what_its_gateways_say() {
        let gateway = json!({
            "metadata": {"name": "g", "namespace": "edge", "generation": 2},
            "spec": {"listeners": [{"hostname": "*.example.com", "protocol": "HTTPS"}, {"hostname": "llm.example.com", "protocol": "HTTP"}]},
            "status": {"addresses": [{"value": "192.0.2.7"}], "conditions": [{"type": "Programmed", "status": "True", "observedGeneration": 1}]},
        });
        let named = Named::of(&GATEWAY, &Live::of(&gateway.to_string()));
        assert_eq!((named.hosts.join(" ").as_str(), named.secure), ("llm.example.com 192.0.2.7", true));
        assert!(named.condition("Programmed").is_none(), "that is of a former state");
        let route = json!({
            "metadata": {"name": "r", "namespace": "chat"},
            "spec": {"hostnames": ["a"], "parentRefs": [{"name": "g"}, {"name": "h", "namespace": "edge"}]},
            "status": {"parents": [{"conditions": [{"type": "Accepted", "status": "True"}]}]},
        });
        let named = Named::of(&HTTP_ROUTE, &Live::of(&route.to_string()));
        assert_eq!(named.parents, [("chat", "g"), ("edge", "h")].map(|(namespace, name)| (namespace.to_owned(), name.to_owned())));
        assert_eq!(named.condition("Accepted").unwrap().status, "True");
    }
}
