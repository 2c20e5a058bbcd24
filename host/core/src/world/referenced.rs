//! The stored state of an object that subjects may name, regardless of its creator: its existence and its status.

use super::{
    child::Condition,
    listener::{Listener, RouteNamespace},
    live::Live,
};
use crate::resource::{GATEWAY, INFERENCE_POOL};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// A Gateway, a route or a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReferencedObject {
    /// Its namespace.
    pub namespace: String,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The conditions of a Gateway.
    pub conditions: Vec<Condition>,
    /// The statuses of a route or a pool, per parent.
    pub words: Vec<RouteParentStatus>,
    /// The listeners of a Gateway.
    listeners: Vec<Listener>,
    /// The addresses of a Gateway.
    addresses: Vec<String>,
    /// The host names of a route.
    pub hosts: Vec<String>,
    /// The parents of a route.
    pub parents: Vec<Parent>,
    /// The pools in its own namespace to which a route leads.
    pub pools: Vec<String>,
}

/// A parent of a route: a Gateway, some of its listeners, or another kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Parent {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its kind; a Gateway if there is none.
    kind: Option<String>,
    /// The listener's name, if it refers to one.
    pub section_name: Option<String>,
    /// The listeners' port, if it refers to one.
    pub port: Option<i64>,
}

/// The status from one parent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RouteParentStatus {
    /// The parent.
    pub parent_ref: Parent,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    hostnames: Vec<String>,
    listeners: Vec<Listener>,
    parent_refs: Vec<Parent>,
    rules: Vec<Rule>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    backend_refs: Vec<Backend>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Backend {
    kind: String,
    namespace: Option<String>,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    addresses: Vec<Address>,
    conditions: Vec<Condition>,
    parents: Vec<RouteParentStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    value: String,
}

impl ReferencedObject {
    /// Parses a live object.
    pub(super) fn from_live(live: &Live<'_>) -> Self {
        let own = live.metadata.namespace.as_deref().unwrap_or_default();
        let status: Status = read(live.status);
        let word = |word: RouteParentStatus| RouteParentStatus { parent_ref: word.parent_ref.within(own), ..word };
        Self {
            generation: live.metadata.generation,
            conditions: status.conditions,
            words: status.parents.into_iter().map(word).collect(),
            addresses: status.addresses.into_iter().map(|address| address.value).collect(),
            ..Self::of_parts(read(live.field("spec")), own)
        }
    }

    /// Parses the spec of a planned route.
    pub fn of_spec(spec: &Value, namespace: &str) -> Self {
        Self::of_parts(Spec::deserialize(spec).unwrap_or_default(), namespace)
    }

    fn of_parts(spec: Spec, own: &str) -> Self {
        let backends = spec.rules.into_iter().flat_map(|rule| rule.backend_refs);
        let here = |backend: &Backend| {
            let elsewhere = backend.namespace.as_deref().is_some_and(|namespace| !namespace.is_empty() && namespace != own);
            backend.kind == INFERENCE_POOL.kind && !elsewhere
        };
        Self {
            namespace: own.to_owned(),
            listeners: spec.listeners,
            hosts: spec.hostnames,
            parents: spec.parent_refs.into_iter().map(|parent| parent.within(own)).collect(),
            pools: backends.filter(here).map(|backend| backend.name).collect(),
            ..Self::default()
        }
    }

    /// A condition for the current generation.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_ && condition.is_for_generation(self.generation))
    }

    /// A parent's conditions for the current generation.
    pub fn conditions_from<'n>(&'n self, parent: &'n Parent) -> impl Iterator<Item = &'n Condition> {
        let words = self.words.iter().filter(|word| word.parent_ref.is_part_of(parent));
        words.flat_map(|word| &word.conditions).filter(|condition| condition.is_for_generation(self.generation))
    }

    /// Whether any listener of this Gateway accepts routes from a namespace.
    pub fn takes_routes(&self, from: RouteNamespace<'_>) -> bool {
        self.listeners.iter().any(|listener| listener.allows(from, &self.namespace))
    }

    /// The URLs of a route at the listeners of this Gateway to which it attaches.
    pub fn urls(&self, parent: &Parent, hosts: &[String], from: RouteNamespace<'_>) -> Vec<String> {
        let chosen = |listener: &&Listener| {
            parent.section_name.as_ref().is_none_or(|name| *name == listener.name)
                && parent.port.is_none_or(|port| port == listener.port)
                && listener.allows(from, &self.namespace)
        };
        self.listeners.iter().filter(chosen).flat_map(|listener| listener.urls(hosts, &self.addresses)).collect()
    }
}

impl Parent {
    /// A parent that is a whole Gateway.
    pub fn gateway(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), ..Self::default() }
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or(GATEWAY.kind)
    }

    /// Whether it is a Gateway.
    pub fn is_gateway(&self) -> bool {
        self.kind() == GATEWAY.kind
    }

    /// Whether it equals the other parent, or is one of its listeners.
    fn is_part_of(&self, other: &Self) -> bool {
        let same = |own: bool, others: bool| own || !others;
        (self.kind(), &self.namespace, &self.name) == (other.kind(), &other.namespace, &other.name)
            && same(self.section_name == other.section_name, other.section_name.is_some())
            && same(self.port == other.port, other.port.is_some())
    }

    fn within(self, own: &str) -> Self {
        if self.namespace.is_empty() { Self { namespace: own.to_owned(), ..self } } else { self }
    }
}

fn read<T: Default + for<'de> Deserialize<'de>>(text: Option<&RawValue>) -> T {
    text.and_then(|text| serde_json::from_str(text.get()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_gateway_tells_of_itself_and_of_a_route_each_parent_tells() {
        let programmed = json!({"type": "Programmed", "status": "True", "observedGeneration": 1});
        let gateway = json!({"metadata": {"name": "g", "namespace": "edge", "generation": 2}, "status": {"conditions": [programmed]}});
        assert!(
            ReferencedObject::from_live(&Live::parse(&gateway.to_string())).condition("Programmed").is_none(),
            "that is of a former state"
        );

        let backends =
            json!([{"kind": "InferencePool", "name": "p"}, {"kind": "InferencePool", "name": "far", "namespace": "other"}, {"name": "s"}]);
        let accepted = json!([{"type": "Accepted", "status": "True"}]);
        let route = json!({
            "metadata": {"name": "r", "namespace": "chat"},
            "spec": {
                "hostnames": ["a"], "rules": [{"backendRefs": backends}],
                "parentRefs": [{"name": "g"}, {"name": "h", "namespace": "edge", "sectionName": "x"}, {"kind": "Service", "name": "s"}],
            },
            "status": {"parents": [
                {"parentRef": {"kind": "Gateway", "name": "g", "sectionName": "y"}, "conditions": accepted},
                {"parentRef": {"name": "h", "namespace": "edge", "sectionName": "y"}, "conditions": accepted},
            ]},
        });
        let named = ReferencedObject::from_live(&Live::parse(&route.to_string()));
        let parents: Vec<_> = named.parents.iter().map(|parent| (parent.kind(), parent.namespace.as_str(), parent.name.as_str())).collect();
        assert_eq!(parents, [("Gateway", "chat", "g"), ("Gateway", "edge", "h"), ("Service", "chat", "s")]);
        let said: Vec<usize> = named.parents.iter().map(|parent| named.conditions_from(parent).count()).collect();
        assert_eq!(said, [1, 0, 0], "of the second another listener speaks");
        assert_eq!(named.pools, ["p"]);
        let own = ReferencedObject::of_spec(&route["spec"], "chat");
        assert_eq!((own.parents, own.pools, own.hosts), (named.parents, named.pools, named.hosts));
    }

    #[test]
    fn a_route_is_reached_by_the_listeners_that_it_names_and_that_take_it() {
        let gateway = json!({
            "metadata": {"name": "g", "namespace": "edge"},
            "spec": {"listeners": [
                {"name": "plain", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces": {"from": "All"}}},
                {"name": "inner", "protocol": "HTTPS", "port": 443},
                {"name": "tls", "protocol": "HTTPS", "port": 8443, "allowedRoutes": {"namespaces": {"from": "All"}}},
            ]},
            "status": {"addresses": [{"value": "192.0.2.7"}]},
        });
        let (named, labels) = (ReferencedObject::from_live(&Live::parse(&gateway.to_string())), super::super::Labels::new());
        let urls = |parent: &Parent| named.urls(parent, &[], RouteNamespace { namespace: "chat", labels: &labels });
        let all = Parent::gateway("edge", "g");
        assert_eq!(urls(&all), ["http://192.0.2.7", "https://192.0.2.7:8443"]);
        assert_eq!(urls(&Parent { section_name: Some("tls".to_owned()), ..all.clone() }), ["https://192.0.2.7:8443"]);
        assert!(urls(&Parent { port: Some(443), ..all }).is_empty());
    }
}
