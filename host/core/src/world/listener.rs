//! The listeners of a Gateway: the routes that they accept, and their URLs.

use super::Labels;
use crate::{resource::HTTP_ROUTE, selector::selects};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

/// A listener of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Listener {
    pub(super) name: String,
    /// The host name that it accepts; all if there is none. It may start with `*.`.
    hostname: Option<String>,
    protocol: String,
    pub(super) port: i64,
    allowed_routes: Allowed,
}

/// The routes that may attach to it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Allowed {
    namespaces: Namespaces,
    kinds: Vec<RouteKind>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Namespaces {
    from: Option<String>,
    selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct RouteKind {
    kind: String,
}

/// The namespace of a route, with its labels.
#[derive(Clone, Copy, Debug)]
pub struct RouteNamespace<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// Its labels.
    pub labels: &'a Labels,
}

impl Listener {
    /// Whether an `HTTPRoute` may attach to it.
    pub(super) fn allows(&self, from: RouteNamespace<'_>, own: &str) -> bool {
        let Allowed { namespaces, kinds } = &self.allowed_routes;
        let kind = kinds.is_empty() || kinds.iter().any(|kind| kind.kind == HTTP_ROUTE.kind);
        let namespace = match namespaces.from.as_deref() {
            Some("All") => true,
            Some("Selector") => {
                let label = |key: &str| from.labels.get(key).map(String::as_str);
                namespaces.selector.as_ref().is_some_and(|selector| selects(selector, label))
            }
            Some("None") => false,
            // `Same`, which is the default.
            _ => from.namespace == own,
        };
        kind && namespace
    }

    /// The URLs for these host names, or for all of the listener's if there are none.
    pub(super) fn urls(&self, hosts: &[String], addresses: &[String]) -> Vec<String> {
        let (scheme, usual) = match self.protocol.as_str() {
            "HTTP" => ("http", 80),
            "HTTPS" => ("https", 443),
            // HTTPRoutes attach to no other protocols.
            _ => return Vec::new(),
        };
        let port = if self.port == usual { String::new() } else { format!(":{}", self.port) };
        let own = self.hostname.as_ref().filter(|host| !host.is_empty());
        let names: Vec<&String> = match own {
            None if hosts.is_empty() => addresses.iter().collect(),
            None => hosts.iter().collect(),
            Some(own) if hosts.is_empty() => vec![own],
            Some(own) => hosts.iter().filter_map(|host| narrower(host, own)).collect(),
        };
        // A wildcard isn't a usable host name.
        let names = names.into_iter().filter(|name| !name.contains('*'));
        let bracketed = |name: &String| if name.contains(':') { format!("[{name}]") } else { name.clone() };
        names.map(|name| format!("{scheme}://{}{port}", bracketed(name))).collect()
    }
}

/// The more specific of two host names that may start with `*.`; none if neither includes the other.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn listener(value: Value) -> Listener {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_listener_is_reached_by_its_own_scheme_port_and_names() {
        let addresses = ["192.0.2.7", "2001:db8::7"].map(str::to_owned);
        let urls =
            |value: Value, hosts: &[&str]| listener(value).urls(&hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>(), &addresses);
        let plain = || json!({"protocol": "HTTP", "port": 80});
        let wide = || json!({"protocol": "HTTPS", "port": 8443, "hostname": "*.example.com"});
        let named = || json!({"protocol": "HTTPS", "port": 443, "hostname": "llm.example.com"});
        assert_eq!(urls(plain(), &[]), ["http://192.0.2.7", "http://[2001:db8::7]"]);
        assert_eq!(urls(plain(), &["a.example.com"]), ["http://a.example.com"]);
        assert_eq!(urls(wide(), &["a.example.com", "a.other.com"]), ["https://a.example.com:8443"]);
        assert!(urls(wide(), &[]).is_empty(), "a wildcard is no name");
        assert_eq!(urls(named(), &[]), ["https://llm.example.com"]);
        assert_eq!(urls(named(), &["*.example.com"]), ["https://llm.example.com"], "the narrower counts");
        assert!(urls(json!({"protocol": "TCP", "port": 9000}), &["a"]).is_empty());
    }

    #[test]
    fn a_listener_takes_the_routes_that_it_says() {
        let labels = Labels::from([("team".to_owned(), "search".to_owned())]);
        let allows = |allowed: Value, namespace: &str| {
            listener(json!({"allowedRoutes": allowed})).allows(RouteNamespace { namespace, labels: &labels }, "edge")
        };
        let from = |from: &str| json!({"namespaces": {"from": from, "selector": {"matchLabels": {"team": "search"}}}});
        for (allowed, edge, chat) in [
            (json!({}), true, false),
            (from("Same"), true, false),
            (from("All"), true, true),
            (from("None"), false, false),
            (from("Selector"), true, true),
            (json!({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "ads"}}}}), false, false),
            (json!({"kinds": [{"kind": "GRPCRoute"}]}), false, false),
            (json!({"kinds": [{"kind": "GRPCRoute"}, {"kind": "HTTPRoute"}]}), true, false),
        ] {
            assert_eq!((allows(allowed.clone(), "edge"), allows(allowed.clone(), "chat")), (edge, chat), "{allowed}");
        }
    }
}
