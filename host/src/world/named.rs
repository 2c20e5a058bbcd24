//! What is kept of an object that a subject may name, whoever has made it: whether it is there, and what it tells of itself.

use super::{
    child::{Condition, told_in},
    live::Live,
    resource::{GATEWAY, INFERENCE_POOL, Resource},
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A Gateway, a route or a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// What it tells in conditions: of a route or a pool those of all its parents.
    pub conditions: Vec<Condition>,
    /// What a Gateway listens on.
    pub listeners: Vec<Listener>,
    /// Where a Gateway is reached.
    pub addresses: Vec<String>,
    /// The host names of a route.
    pub hosts: Vec<String>,
    /// The Gateways that a route hangs on.
    pub parents: Vec<Parent>,
    /// The pools of its own namespace that a route leads to.
    pub pools: Vec<String>,
}

/// A listener that routes hang on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// The host names that it takes; all if there is none. It may begin with `*.`.
    pub hostname: Option<String>,
    /// HTTP, HTTPS or another.
    pub protocol: String,
    /// Its port.
    pub port: i64,
}

/// What a route hangs on: a Gateway, or only some of its listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Parent {
    /// The Gateway's namespace.
    pub namespace: String,
    /// The Gateway's name.
    pub name: String,
    /// The listener's name, if it is that one.
    pub section_name: Option<String>,
    /// The listeners' port, if it is those.
    pub port: Option<i64>,
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
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    value: String,
}

impl Named {
    /// Reads a live object.
    pub(super) fn of(resource: &'static Resource, live: &Live<'_>) -> Self {
        let own = live.metadata.namespace.as_deref().unwrap_or_default();
        let spec: Spec = read(live.field("spec"));
        let status: Status = if *resource == GATEWAY { read(live.status) } else { Status::default() };
        Self {
            generation: live.metadata.generation,
            conditions: told_in(live),
            listeners: spec.listeners,
            addresses: status.addresses.into_iter().map(|address| address.value).collect(),
            hosts: spec.hostnames,
            parents: parents(spec.parent_refs, own),
            pools: pools(spec.rules, own),
        }
    }

    /// Reads what a route will be.
    pub fn of_spec(spec: &serde_json::Value, namespace: &str) -> Self {
        let spec = Spec::deserialize(spec).unwrap_or_default();
        let (parents, pools) = (parents(spec.parent_refs, namespace), pools(spec.rules, namespace));
        Self { hosts: spec.hostnames, parents, pools, ..Self::default() }
    }

    /// A condition that speaks of its newest state.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_ && condition.speaks_of(self.generation))
    }

    /// The addresses below which those reach a Gateway's listeners who ask for one of these host names, or for any if there is none.
    pub fn urls(&self, parent: &Parent, hosts: &[String]) -> Vec<String> {
        let chosen = |listener: &&Listener| {
            parent.section_name.as_ref().is_none_or(|name| *name == listener.name) && parent.port.is_none_or(|port| port == listener.port)
        };
        self.listeners.iter().filter(chosen).flat_map(|listener| listener.urls(hosts, &self.addresses)).collect()
    }
}

impl Listener {
    fn urls(&self, hosts: &[String], addresses: &[String]) -> Vec<String> {
        let (scheme, usual) = match self.protocol.as_str() {
            "HTTP" => ("http", 80),
            "HTTPS" => ("https", 443),
            // No route hangs on any other.
            _ => return Vec::new(),
        };
        let port = if self.port == usual { String::new() } else { format!(":{}", self.port) };
        let own: Vec<String> = self.hostname.iter().filter(|host| !host.is_empty()).cloned().collect();
        let names: Vec<&String> = match (hosts.is_empty(), own.is_empty()) {
            (true, true) => addresses.iter().collect(),
            (true, false) => own.iter().collect(),
            (false, true) => hosts.iter().collect(),
            // The narrower of the two.
            (false, false) => hosts.iter().filter_map(|host| own.iter().find_map(|own| narrower(host, own))).collect(),
        };
        // A wildcard is no name that anything is reached by.
        let names = names.into_iter().filter(|name| !name.contains('*'));
        let bracketed = |name: &String| if name.contains(':') { format!("[{name}]") } else { name.clone() };
        names.map(|name| format!("{scheme}://{}{port}", bracketed(name))).collect()
    }
}

/// Of two host names that may begin with `*.` the one that the other includes.
fn narrower<'h>(one: &'h String, other: &'h String) -> Option<&'h String> {
    let includes = |wide: &str, narrow: &str| wide.strip_prefix('*').is_some_and(|end| narrow.len() > end.len() && narrow.ends_with(end));
    if one == other || includes(other, one) {
        Some(one)
    } else if includes(one, other) {
        Some(other)
    } else {
        None
    }
}

fn parents(given: Vec<Parent>, own: &str) -> Vec<Parent> {
    let within = |parent: Parent| if parent.namespace.is_empty() { Parent { namespace: own.to_owned(), ..parent } } else { parent };
    given.into_iter().map(within).collect()
}

fn pools(rules: Vec<Rule>, own: &str) -> Vec<String> {
    let backends = rules.into_iter().flat_map(|rule| rule.backend_refs);
    let ours = |backend: &Backend| {
        backend.kind == INFERENCE_POOL.kind && backend.namespace.as_deref().is_none_or(|namespace| namespace.is_empty() || namespace == own)
    };
    let mut pools: Vec<String> = backends.filter(ours).map(|backend| backend.name).collect();
    pools.sort();
    pools.dedup();
    pools
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
            "status": {"addresses": [{"value": "192.0.2.7"}], "conditions": [{"type": "Programmed", "status": "True", "observedGeneration": 1}]},
        });
        let named = Named::of(&GATEWAY, &Live::of(&gateway.to_string()));
        assert_eq!(named.addresses, ["192.0.2.7"]);
        assert!(named.condition("Programmed").is_none(), "that is of a former state");
        let backends =
            json!([{"kind": "InferencePool", "name": "p"}, {"kind": "InferencePool", "name": "far", "namespace": "other"}, {"name": "s"}]);
        let route = json!({
            "metadata": {"name": "r", "namespace": "chat"},
            "spec": {
                "hostnames": ["a"], "parentRefs": [{"name": "g"}, {"name": "h", "namespace": "edge", "sectionName": "x"}],
                "rules": [{"backendRefs": backends}, {"backendRefs": [{"kind": "InferencePool", "name": "p"}]}],
            },
            "status": {"parents": [{"conditions": [{"type": "Accepted", "status": "True"}]}]},
        });
        let named = Named::of(&HTTP_ROUTE, &Live::of(&route.to_string()));
        let parents: Vec<_> = named.parents.iter().map(|parent| (parent.namespace.as_str(), parent.name.as_str())).collect();
        assert_eq!(parents, [("chat", "g"), ("edge", "h")]);
        assert_eq!(named.pools, ["p"]);
        assert_eq!(named.condition("Accepted").unwrap().status, "True");
        let own = Named::of_spec(&route["spec"], "chat");
        assert_eq!((own.parents, own.pools, own.hosts), (named.parents, named.pools, named.hosts));
    }

    #[test]
    fn a_listener_is_reached_by_its_own_scheme_port_and_names() {
        let listener = |name: &str, protocol: &str, port: i64, hostname: Option<&str>| Listener {
            name: name.to_owned(),
            protocol: protocol.to_owned(),
            port,
            hostname: hostname.map(str::to_owned),
        };
        let gateway = Named {
            listeners: vec![
                listener("plain", "HTTP", 80, None),
                listener("tls", "HTTPS", 8443, Some("*.example.com")),
                listener("named", "HTTPS", 443, Some("llm.example.com")),
                listener("raw", "TCP", 9000, None),
            ],
            addresses: vec!["192.0.2.7".to_owned(), "2001:db8::7".to_owned()],
            ..Named::default()
        };
        let all = Parent::default();
        let urls = |parent: &Parent, hosts: &[&str]| gateway.urls(parent, &hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>());
        assert_eq!(urls(&all, &[]), ["http://192.0.2.7", "http://[2001:db8::7]", "https://llm.example.com"]);
        assert_eq!(urls(&all, &["a.example.com"]), ["http://a.example.com", "https://a.example.com:8443"]);
        assert_eq!(urls(&all, &["*.example.com"]), ["https://llm.example.com"], "of a wildcard only what narrows it down");
        assert!(urls(&Parent { section_name: Some("tls".to_owned()), ..Parent::default() }, &["a.other.com"]).is_empty());
        assert_eq!(urls(&Parent { port: Some(443), ..Parent::default() }, &["llm.example.com"]), ["https://llm.example.com"]);
    }
}
