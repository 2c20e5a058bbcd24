//! How a service is reached: the state of its routes and its pool at the Gateways, and the resulting addresses.

use super::{
    GATEWAYS_READY, HTTP_ROUTES, POOL, PlanBuilder, StepResults,
    router::OWN_ROUTE,
    workload::{PORT, WORKLOAD_SERVICE_SUFFIX},
};
use crate::{
    condition::Condition,
    kinds::gateways,
    resource::{GATEWAY, HTTP_ROUTE, INFERENCE_POOL, Resource},
    world::{
        listener::RouteNamespace,
        referenced::{Parent, ReferencedObject},
    },
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

impl PlanBuilder<'_> {
    /// An object in the service's namespace.
    fn here(&self, resource: &'static Resource, name: &str) -> Option<&Arc<ReferencedObject>> {
        self.asking.snapshot.referenced(resource, &self.service.namespace, name)
    }

    /// The routes to the service: the planned one, or the existing ones that it names.
    pub(super) fn find_routes(&self) -> Vec<Arc<ReferencedObject>> {
        let own = self.route.as_ref().map(|spec| Arc::new(ReferencedObject::of_spec(spec, &self.service.namespace)));
        let refs = self.route_refs();
        let named = refs.iter().filter_map(|name| self.here(&HTTP_ROUTE, name));
        own.into_iter().chain(named.cloned()).collect()
    }

    /// The Gateways of the routes, each once.
    pub(super) fn gateways(&self) -> Vec<Parent> {
        let parents = self.routes.iter().flat_map(|route| &route.parents);
        once(parents.filter(|parent| parent.is_gateway()))
    }

    pub(super) fn of_gateways(&self) -> Condition {
        let gateways = self.gateways();
        if gateways.is_empty() {
            let refs = self.route_refs();
            if refs.len() > self.routes.len() {
                return Condition::unknown(GATEWAYS_READY, "Blocked", format!("Waiting for {HTTP_ROUTES}."));
            }
            if self.routes.iter().any(|route| !route.parents.is_empty()) {
                return Condition::satisfied(GATEWAYS_READY, "NotReferenced", "The routes have no Gateway as a parent.");
            }
            let message = if refs.is_empty() {
                "The route has no Gateway: name one in spec.router.gateway.refs, or set the controller's flag --gateway for all services."
            } else {
                "The routes in spec.router.route.http.refs have no Gateway: name one in their parentRefs."
            };
            return Condition::no(GATEWAYS_READY, "NoGateway", message);
        }
        for Parent { namespace, name, .. } in &gateways {
            let gateway = self.asking.snapshot.referenced(&GATEWAY, namespace, name);
            let own = &self.service.namespace;
            let Some(gateway) = gateway.filter(|gateway| namespace == own || gateway.takes_routes(self.from())) else {
                // A tenant must not learn which objects exist in other namespaces.
                let message = if namespace == own {
                    format!("There is no Gateway {name} in the namespace {namespace}: create it, or name another.")
                } else {
                    format!(
                        "There is no Gateway {name} in the namespace {namespace} that accepts routes from the namespace {own}: name \
                         another, or ask its owner to allow them (spec.listeners[].allowedRoutes)."
                    )
                };
                return Condition::no(GATEWAYS_READY, "GatewayNotFound", message);
            };
            match gateway.condition("Programmed") {
                Some(programmed) if programmed.status == "True" => {}
                Some(programmed) if programmed.status == "False" => {
                    let message = format!("The Gateway {namespace}/{name} is failing: {}", programmed.message);
                    return Condition::no(GATEWAYS_READY, programmed.reason.clone(), message);
                }
                _ => {
                    let message = format!("The Gateway {namespace}/{name} has not reported that it is ready.");
                    return Condition::unknown(GATEWAYS_READY, "Progressing", message);
                }
            }
        }
        Condition::satisfied(GATEWAYS_READY, "Programmed", "The Gateways are ready.")
    }

    pub(super) fn of_routes(&self, found: &StepResults) -> Condition {
        let refs = self.route_refs();
        for name in &refs {
            let Some(route) = self.here(&HTTP_ROUTE, name) else {
                let message = format!(
                    "There is no HTTPRoute {name} in the namespace {}, which spec.router.route.http.refs names: create it.",
                    self.service.namespace
                );
                return Condition::no(HTTP_ROUTES, "RouteNotFound", message);
            };
            if route.parents.is_empty() {
                let message = format!("The HTTPRoute {name} has no parent: name a Gateway in its parentRefs.");
                return Condition::no(HTTP_ROUTES, "NoGateway", message);
            }
            if let Some(told) = gateways::refusal(HTTP_ROUTES, &format!("the HTTPRoute {name}"), route, &route.parents) {
                return told;
            }
        }
        if !refs.is_empty() {
            return Condition::satisfied(HTTP_ROUTES, "Accepted", "The Gateways have accepted the routes.");
        }
        let name = format!("{}{OWN_ROUTE}", self.service.name);
        let what = format!("the HTTPRoute {name}");
        let Some(planned) = self.routes.first() else {
            return Condition::unknown(HTTP_ROUTES, "Blocked", "There is no route yet: the other conditions give the reason.");
        };
        let known = self.asking.snapshot.child(&HTTP_ROUTE, &name).and_then(|_| self.here(&HTTP_ROUTE, &name));
        match (known, planned.parents.first()) {
            (Some(known), _) => {
                let refusal = gateways::refusal(HTTP_ROUTES, &what, known, &planned.parents);
                refusal.unwrap_or_else(|| Condition::satisfied(HTTP_ROUTES, "Accepted", "The Gateways have accepted the route."))
            }
            (None, Some(parent)) if found.objects.is_some() => gateways::not_reported(HTTP_ROUTES, &what, parent),
            _ => Condition::unknown(HTTP_ROUTES, "Blocked", "There is no route yet: the other conditions give the reason."),
        }
    }

    pub(super) fn of_pool(&self, found: &StepResults) -> Condition {
        let name = self.pool_name();
        let what = format!("the InferencePool {name}");
        let own = self.own_pool();
        let known = self.here(&INFERENCE_POOL, &name).filter(|_| !own || self.asking.snapshot.child(&INFERENCE_POOL, &name).is_some());
        if known.is_none() && !own {
            let message = format!(
                "There is no InferencePool {name} in the namespace {}, which spec.router.scheduler.pool.ref names: create it.",
                self.service.namespace
            );
            return Condition::no(POOL, "PoolNotFound", message);
        }
        if known.is_none() && found.objects.is_none() {
            return Condition::unknown(POOL, "Blocked", "There is no pool yet: the other conditions give the reason.");
        }
        // A Gateway only reports on a pool if one of its routes leads there.
        let leading = self.routes.iter().filter(|route| route.pools.contains(&name)).flat_map(|route| &route.parents);
        let gateways = once(leading.filter(|parent| parent.is_gateway()));
        let Some(first) = gateways.first() else {
            let message = format!("The InferencePool {name} exists, but no route of the service leads from a Gateway to it.");
            return Condition::satisfied(POOL, "NotReferenced", message);
        };
        let Some(known) = known else { return gateways::not_reported(POOL, &what, first) };
        let refusal = gateways::refusal(POOL, &what, known, &gateways);
        refusal.unwrap_or_else(|| Condition::satisfied(POOL, "Accepted", "The Gateways have accepted the pool."))
    }

    /// The namespace of the routes.
    fn from(&self) -> RouteNamespace<'_> {
        RouteNamespace { namespace: &self.service.namespace, labels: &self.asking.snapshot.namespace_labels }
    }

    /// The fields of the status, without the conditions.
    pub(super) fn fields(&self, found: &StepResults) -> Map<String, Value> {
        let mut fields = Map::new();
        if found.objects.is_none() {
            // The current fields still describe the running objects.
            return fields;
        }
        let within = format!("http://{}:{PORT}", self.service_host(WORKLOAD_SERVICE_SUFFIX));
        // The paths of routes and rules that users define are unknown.
        let path = if self.route_refs().is_empty() && !self.rules_given() { self.path() } else { String::new() };
        let mut outside: Vec<String> = Vec::new();
        for route in &self.routes {
            for parent in route.parents.iter().filter(|parent| parent.is_gateway()) {
                let gateway = self.asking.snapshot.referenced(&GATEWAY, &parent.namespace, &parent.name);
                outside.extend(gateway.into_iter().flat_map(|gateway| gateway.urls(parent, &route.hosts, self.from())));
            }
        }
        outside.sort_by_key(|url| (!url.starts_with("https:"), url.clone()));
        outside.dedup();
        let outside: Vec<String> = outside.into_iter().map(|url| url + &path).collect();
        let addresses = outside.iter().map(|url| json!({"name": "gateway", "url": url}));
        let addresses: Vec<Value> = addresses.chain([json!({"name": "service", "url": within})]).collect();
        fields.insert("url".to_owned(), outside.first().unwrap_or(&within).as_str().into());
        fields.insert("address".to_owned(), json!({"name": "service", "url": within}));
        fields.insert("addresses".to_owned(), addresses.into());
        fields
    }
}

/// Gateways without duplicates.
fn once<'p>(parents: impl Iterator<Item = &'p Parent>) -> Vec<Parent> {
    let mut all: Vec<Parent> = parents.map(|parent| Parent::gateway(&parent.namespace, &parent.name)).collect();
    all.sort();
    all.dedup();
    all
}
