//! Limits the paths and host names of routes at a Gateway of another namespace to those of the route's own namespace.

use crate::world::Labels;
use serde_json::Value;

/// The label of a namespace whose routes aren't limited. Only users who may edit namespaces can set it.
pub(super) const ROUTES: &str = "pointsman.dev/routes";
const ANY: &str = "any";

/// The owner of a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteOwner<'a> {
    pub(super) namespace: &'a str,
    pub(super) namespace_labels: &'a Labels,
    /// The path of the service.
    pub(super) path: &'a str,
    /// The domain under which each namespace has its host names, if any.
    pub(super) domain: Option<&'a str>,
    /// Whether the host names, and the rules, come from an administrator's configuration.
    pub(super) of_admins: [bool; 2],
}

/// The first field in which a route exceeds the limits, with its value. None if all its Gateways are in its own namespace.
pub(super) fn foreign_claim(spec: &Value, owner: RouteOwner<'_>) -> Option<String> {
    let parents = spec["parentRefs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = |parent: &Value| parent["namespace"].as_str().is_none_or(|namespace| namespace.is_empty() || namespace == owner.namespace);
    if parents.iter().all(own) || owner.namespace_labels.get(ROUTES).is_some_and(|value| value == ANY) {
        return None;
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let [hosts_of_admins, rules_of_admins] = owner.of_admins;
    let host = list(if hosts_of_admins { &Value::Null } else { &spec["hostnames"] }).into_iter().enumerate().find_map(|(at, host)| {
        let host = host.as_str().unwrap_or_default().to_lowercase();
        (!is_own_host(&host, owner)).then(|| format!("hostnames[{at}] is {host}"))
    });
    let rule = || {
        list(if rules_of_admins { &Value::Null } else { &spec["rules"] }).iter().enumerate().find_map(|(at, rule)| {
            let matches = list(&rule["matches"]);
            if matches.is_empty() {
                return Some(format!("rules[{at}] has no matches, so it matches every path"));
            }
            matches.iter().enumerate().find_map(|(number, matched)| {
                let place = format!("rules[{at}].matches[{number}].path");
                let path = &matched["path"];
                match (path["type"].as_str().unwrap_or("PathPrefix"), path["value"].as_str()) {
                    ("PathPrefix" | "Exact", Some(value)) if is_below(value, owner.path) => None,
                    (kind @ ("PathPrefix" | "Exact"), value) => Some(format!("{place} is {kind} {}", value.unwrap_or("/"))),
                    (kind, _) => Some(format!("{place} is a {kind}")),
                }
            })
        })
    };
    let claim = host.or_else(rule)?;
    let hosts = match owner.domain {
        Some(domain) => format!("host names below {}.{domain}", owner.namespace),
        None => "no host names".to_owned(),
    };
    Some(format!(
        "spec.router.route.http.spec.{claim}. On a Gateway of another namespace, a route may have only paths below {} and {hosts}. Change \
         it, use a Gateway of the namespace {}, or ask an administrator to label that namespace {ROUTES}={ANY}.",
        owner.path, owner.namespace
    ))
}

/// Whether a path equals the other or is below it.
fn is_below(path: &str, own: &str) -> bool {
    let rest = path.strip_prefix(own);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) && !path.split('/').any(|part| part == "..")
}

fn is_own_host(host: &str, owner: RouteOwner<'_>) -> bool {
    let below = |domain: &str| host.strip_suffix(&format!(".{}.{domain}", owner.namespace)).is_some_and(|name| !name.is_empty());
    owner.domain.is_some_and(below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(spec: &Value, labels: &Labels, domain: Option<&str>) -> Option<String> {
        foreign_claim(spec, RouteOwner { namespace: "chat", namespace_labels: labels, path: "/chat/llama", domain, of_admins: [false; 2] })
    }

    fn on_the_platforms(mut spec: Value) -> Value {
        spec["parentRefs"] = json!([{"namespace": "chat", "name": "own"}, {"namespace": "edge", "name": "shared"}]);
        spec
    }

    fn path(kind: &str, value: &str) -> Value {
        on_the_platforms(json!({"rules": [{"matches": [{"path": {"type": kind, "value": value}}]}]}))
    }

    #[test]
    fn paths_and_names_of_others_are_refused_on_their_gateways() {
        let none = Labels::new();
        for (spec, says) in [
            (path("Exact", "/ads/llama/v1/chat/completions"), "rules[0].matches[0].path is Exact /ads/llama/v1/chat/completions"),
            (path("PathPrefix", "/"), "rules[0].matches[0].path is PathPrefix /"),
            (path("PathPrefix", "/chat/llama2"), "is PathPrefix /chat/llama2"),
            (path("PathPrefix", "/chat/llama/../../ads"), "is PathPrefix"),
            (path("RegularExpression", "/chat/llama/.*"), "rules[0].matches[0].path is a RegularExpression"),
            (on_the_platforms(json!({"rules": [{"matches": [{"headers": []}]}]})), "rules[0].matches[0].path is PathPrefix /"),
            (on_the_platforms(json!({"rules": [{}]})), "rules[0] has no matches, so it matches every path"),
            (on_the_platforms(json!({"hostnames": ["bank.example.com"]})), "hostnames[0] is bank.example.com"),
        ] {
            let said = claim(&spec, &none, None).unwrap();
            assert!(said.contains(says), "{said}");
        }
        let said = claim(&on_the_platforms(json!({"hostnames": ["x.ads.example.com"]})), &none, Some("example.com")).unwrap();
        assert!(said.contains("paths below /chat/llama and host names below chat.example.com. Change it"), "{said}");
    }

    #[test]
    fn what_is_the_services_own_is_not() {
        let none = Labels::new();
        assert_eq!(claim(&path("PathPrefix", "/chat/llama"), &none, None), None);
        assert_eq!(claim(&path("Exact", "/chat/llama/v1/models"), &none, None), None);
        assert_eq!(claim(&on_the_platforms(json!({"hostnames": ["llama.chat.example.com"]})), &none, Some("example.com")), None);
        let mut own = path("PathPrefix", "/");
        own["parentRefs"] = json!([{"name": "own"}]);
        assert_eq!(claim(&own, &none, None), None, "the Gateway is its own");
        let allowed = Labels::from([(ROUTES.to_owned(), ANY.to_owned())]);
        assert_eq!(claim(&path("PathPrefix", "/"), &allowed, None), None);
    }
}
