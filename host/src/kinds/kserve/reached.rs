//! How a service is reached: what Gateways say of its routes and its pool, and the addresses that follow from it.

use super::{Found, GATEWAYS_READY, HTTP_ROUTES, Making, POOL, router::OWN_ROUTE, workload::PORT};
use crate::{
    kinds::gateways,
    plan::Condition,
    world::{
        ObjectKey,
        child::Condition as Told,
        named::{Named, Parent},
        resource::{GATEWAY, HTTP_ROUTE, INFERENCE_POOL, Resource},
    },
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What begins a sentence about what hangs on Gateways.
const WHO: &str = "A Gateway";

impl Making<'_> {
    fn named(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<&Arc<Named>> {
        let key = ObjectKey { resource, namespace: namespace.to_owned(), name: name.to_owned() };
        self.asking.snapshot.named.get(&key)
    }

    /// The routes that lead to the service, as far as they are there: its own as planned.
    pub(super) fn find_routes(&self) -> Vec<Arc<Named>> {
        let own = self.route.as_ref().map(|spec| Arc::new(Named::of_spec(spec, &self.service.namespace)));
        let refs = self.route_refs();
        let named = refs.iter().filter_map(|name| self.named(&HTTP_ROUTE, &self.service.namespace, name));
        own.into_iter().chain(named.cloned()).collect()
    }

    /// What the routes hang on, each Gateway once.
    pub(super) fn gateways(&self) -> Vec<Parent> {
        let whole = |parent: &Parent| Parent { section_name: None, port: None, ..parent.clone() };
        let mut all: Vec<Parent> = self.routes.iter().flat_map(|route| &route.parents).map(whole).collect();
        all.sort();
        all.dedup();
        all
    }

    pub(super) fn of_gateways(&self) -> Condition {
        let gateways = self.gateways();
        if gateways.is_empty() {
            let refs = self.route_refs();
            if refs.len() > self.routes.len() {
                return Condition::unknown(GATEWAYS_READY, "Blocked", format!("Waits for {HTTP_ROUTES}."));
            }
            let message = if refs.is_empty() {
                "Nobody says which Gateway the route hangs on: name one in spec.router.gateway.refs, or give the controller one for all \
                 (--gateway)."
            } else {
                "The routes that spec.router.route.http.refs names hang on no Gateway: name one in their parentRefs."
            };
            return Condition::no(GATEWAYS_READY, "NoGateway", message);
        }
        for Parent { namespace, name, .. } in &gateways {
            let Some(gateway) = self.named(&GATEWAY, namespace, name) else {
                let message = format!("There is no Gateway {name} in the namespace {namespace}: create it, or name another.");
                return Condition::no(GATEWAYS_READY, "GatewayNotFound", message);
            };
            match gateway.condition("Programmed") {
                Some(programmed) if programmed.status == "True" => {}
                Some(programmed) if programmed.status == "False" => {
                    let message = format!("The Gateway {namespace}/{name} doesn't work: {}", programmed.message);
                    return Condition::no(GATEWAYS_READY, programmed.reason.clone(), message);
                }
                _ => {
                    let message = format!("The Gateway {namespace}/{name} hasn't said that it works.");
                    return Condition::unknown(GATEWAYS_READY, "Progressing", message);
                }
            }
        }
        Condition::yes(GATEWAYS_READY, "Programmed", "The Gateways work.")
    }

    pub(super) fn of_routes(&self, found: &Found) -> Condition {
        let refs = self.route_refs();
        for name in &refs {
            let Some(route) = self.named(&HTTP_ROUTE, &self.service.namespace, name) else {
                let message = format!(
                    "There is no HTTPRoute {name} in the namespace {}, which spec.router.route.http.refs names: create it.",
                    self.service.namespace
                );
                return Condition::no(HTTP_ROUTES, "RouteNotFound", message);
            };
            let what = format!("the HTTPRoute {name}");
            let told = (route.conditions.as_slice(), route.generation);
            if let Some(told) = gateways::refusal(HTTP_ROUTES, (WHO, &what), told, route.parents.len()) {
                return told;
            }
        }
        if !refs.is_empty() {
            return Condition::yes(HTTP_ROUTES, "Accepted", "The Gateways have taken the routes.");
        }
        let name = format!("{}{OWN_ROUTE}", self.service.name);
        let what = format!("the HTTPRoute {name}");
        let planned = self.routes.first().map(|route| route.parents.len());
        match (self.asking.snapshot.child(&HTTP_ROUTE, &name), planned) {
            (Some(route), Some(parents)) => {
                let told = (route.observed.conditions.as_slice(), route.observed.generation);
                let refusal = gateways::refusal(HTTP_ROUTES, (WHO, &what), told, parents);
                refusal.unwrap_or_else(|| Condition::yes(HTTP_ROUTES, "Accepted", "The Gateways have taken the route."))
            }
            (None, Some(_)) if found.objects.is_some() => gateways::unsaid(HTTP_ROUTES, (WHO, &what)),
            _ => Condition::unknown(HTTP_ROUTES, "Blocked", "There is no route yet: the other conditions say why."),
        }
    }

    pub(super) fn of_pool(&self, found: &Found) -> Condition {
        let (name, namespace) = (self.pool_name(), &self.service.namespace);
        let what = format!("the InferencePool {name}");
        // Only a Gateway whose route leads to a pool says anything of it.
        let mut gateways: Vec<_> =
            self.routes.iter().filter(|route| route.pools.contains(&name)).flat_map(|route| &route.parents).collect();
        gateways.sort_by_key(|parent| (&parent.namespace, &parent.name));
        gateways.dedup_by_key(|parent| (&parent.namespace, &parent.name));
        let alone = || {
            let message = format!("The InferencePool {name} is there, and no route of the service leads to it.");
            Condition::yes(POOL, "NotReferenced", message)
        };
        let judged = |conditions: &[Told], generation: Option<i64>| {
            if gateways.is_empty() {
                return alone();
            }
            let refusal = gateways::refusal(POOL, (WHO, &what), (conditions, generation), gateways.len());
            refusal.unwrap_or_else(|| Condition::yes(POOL, "Accepted", "The Gateways have taken the pool."))
        };
        if self.own_pool() {
            return match self.asking.snapshot.child(&INFERENCE_POOL, &name) {
                Some(pool) => judged(&pool.observed.conditions, pool.observed.generation),
                None if found.objects.is_none() => {
                    Condition::unknown(POOL, "Blocked", "There is no pool yet: the other conditions say why.")
                }
                None if gateways.is_empty() => alone(),
                None => gateways::unsaid(POOL, (WHO, &what)),
            };
        }
        let Some(pool) = self.named(&INFERENCE_POOL, namespace, &name) else {
            let message = format!(
                "There is no InferencePool {name} in the namespace {namespace}, which spec.router.scheduler.pool.ref names: create it."
            );
            return Condition::no(POOL, "PoolNotFound", message);
        };
        judged(&pool.conditions, pool.generation)
    }

    /// Everything of the status but its conditions.
    pub(super) fn fields(&self, found: &Found) -> Map<String, Value> {
        let mut fields = Map::new();
        if found.objects.is_none() {
            // What was told of it holds for what runs.
            return fields;
        }
        let within = format!(
            "http://{}-kserve-workload-svc.{}.svc.{}:{PORT}",
            self.service.name, self.service.namespace, self.settings.cluster_domain
        );
        // The paths of other people's routes nobody knows but they.
        let path = if self.route_refs().is_empty() { self.path() } else { String::new() };
        let mut outside: Vec<String> = Vec::new();
        for route in &self.routes {
            for parent in &route.parents {
                let gateway = self.named(&GATEWAY, &parent.namespace, &parent.name);
                outside.extend(gateway.into_iter().flat_map(|gateway| gateway.urls(parent, &route.hosts)));
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
