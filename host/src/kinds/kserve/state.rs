//! What is told of the parts of a service, from what its objects and pods tell.

use super::{
    COMBINED, Found, GATEWAYS, HTTP_ROUTES, Making, POOL, ROUTER, SCHEDULER_READY, WORKLOADS,
    metadata::SCHEDULER,
    service::{Part, Workload},
};
use crate::{
    kinds::fares::Fares,
    plan::Condition,
    policy::point::Role,
    world::{
        ObjectKey, child,
        named::Named,
        resource::{DEPLOYMENT, GATEWAY, HTTP_ROUTE, INFERENCE_POOL, Resource},
    },
};
use serde_json::{Map, Value, json};

impl Part {
    pub(super) const fn condition(self) -> &'static str {
        match self {
            Self::Main => "MainWorkloadReady",
            Self::Prefill => "PrefillWorkloadReady",
        }
    }

    /// The condition of the other pods of its groups.
    const fn of_workers(self) -> &'static str {
        match self {
            Self::Main => "WorkerWorkloadReady",
            Self::Prefill => "PrefillWorkerWorkloadReady",
        }
    }
}

impl Making<'_> {
    /// The conditions of all parts, `stopped` among them.
    pub(super) fn conditions(&self, found: &Found, stopped: Option<&Condition>) -> Vec<Condition> {
        let mut told = Vec::new();
        let combined = stopped.filter(|stopped| stopped.type_ == COMBINED).cloned();
        told.push(combined.unwrap_or_else(|| match self.service.notes.join(" ") {
            notes if notes.is_empty() => {
                Condition::yes(COMBINED, "Combined", "The service, its base configurations and the presets make a whole.")
            }
            notes => Condition::yes(COMBINED, "Ignored", notes).noted(),
        }));
        let mut workloads: Vec<Condition> = Part::ALL.into_iter().flat_map(|part| self.of_workload(part, found)).collect();
        let mut router = self.of_router_parts(found);
        for condition in workloads.iter_mut().chain(&mut router) {
            if let Some(stopped) = stopped.filter(|stopped| stopped.type_ == condition.type_) {
                *condition = stopped.clone();
            }
        }
        let all = all(WORKLOADS, &workloads, "All workloads are available.");
        told.append(&mut workloads);
        told.push(all);
        if !router.is_empty() {
            let all = self::all(ROUTER, &router, "Requests find their way.");
            told.append(&mut router);
            told.push(all);
        }
        told
    }

    fn of_workload(&self, part: Part, found: &Found) -> Vec<Condition> {
        let snapshot = self.asking.snapshot;
        let wanted = self.service.workload(part);
        let live = part.workloads(&snapshot.subject.key.name).into_iter().find_map(|(resource, name)| snapshot.child(resource, &name));
        let live = live.filter(|live| !live.deleting);
        let fares = match (live, wanted) {
            (Some(live), _) => {
                let components = [Role::Main, Role::Leader, Role::Worker].map(|place| part.component(place));
                let pods = snapshot.pods.iter().filter(|pod| components.contains(&pod.component));
                Fares::of(part.condition(), live, pods)
            }
            (None, Some(Workload { runs: (resource, name), .. })) if found.objects.is_some() => {
                Fares::made(part.condition(), resource, name)
            }
            (None, wanted) if wanted.is_some() || part == Part::Main => {
                let message = format!("There is no {} yet: the other conditions say why.", part.name());
                Fares::not_made(Condition::unknown(part.condition(), "Blocked", message))
            }
            (None, _) => return Vec::new(),
        };
        let of_workers = wanted.and_then(|wanted| wanted.group).map(|_| Condition { type_: part.of_workers(), ..fares.condition.clone() });
        [Some(fares.condition), of_workers].into_iter().flatten().collect()
    }

    fn of_router_parts(&self, found: &Found) -> Vec<Condition> {
        let mut told = Vec::new();
        let routed = self.service.combined.given("/router/route").is_object();
        if routed {
            told.push(self.of_gateways());
            told.push(self.of_routes(found));
        }
        if self.service.scheduled() {
            told.push(self.of_pool(found, routed));
            let snapshot = self.asking.snapshot;
            let name = format!("{}-kserve-router-scheduler", self.service.name);
            let fares = match snapshot.child(&DEPLOYMENT, &name).filter(|live| !live.deleting) {
                Some(live) => Fares::of(SCHEDULER_READY, live, snapshot.pods.iter().filter(|pod| pod.component == SCHEDULER)),
                None if found.objects.is_some() => Fares::made(SCHEDULER_READY, &DEPLOYMENT, &name),
                None => Fares::not_made(Condition::unknown(
                    SCHEDULER_READY,
                    "Blocked",
                    "There is no scheduler yet: the other conditions say why.",
                )),
            };
            told.push(fares.condition);
        }
        told
    }

    fn named(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<&Named> {
        let key = ObjectKey { resource, namespace: namespace.to_owned(), name: name.to_owned() };
        self.asking.snapshot.named.get(&key)
    }

    fn of_gateways(&self) -> Condition {
        let gateways = self.route_gateways();
        if gateways.is_empty() {
            let message = "Nobody says which Gateway the route hangs on: name one in spec.router.gateway.refs, or give the controller one for \
                           all (--gateway).";
            return Condition::no(GATEWAYS, "NoGateway", message);
        }
        for (namespace, name) in &gateways {
            let Some(gateway) = self.named(&GATEWAY, namespace, name) else {
                let message = format!("There is no Gateway {name} in the namespace {namespace}: create it, or name another.");
                return Condition::no(GATEWAYS, "GatewayNotFound", message);
            };
            match gateway.condition("Programmed") {
                Some(programmed) if programmed.status == "True" => {}
                Some(programmed) if programmed.status == "False" => {
                    let message = format!("The Gateway {namespace}/{name} doesn't work: {}", programmed.message);
                    return Condition::no(GATEWAYS, programmed.reason.clone(), message);
                }
                _ => {
                    let message = format!("The Gateway {namespace}/{name} hasn't said that it works.");
                    return Condition::unknown(GATEWAYS, "Progressing", message);
                }
            }
        }
        Condition::yes(GATEWAYS, "Programmed", "The Gateways work.")
    }

    /// The Gateways of the route that is made, or of the user's own.
    pub(super) fn route_gateways(&self) -> Vec<(String, String)> {
        let refs = self.route_refs();
        if refs.is_empty() {
            return self.gateways();
        }
        let routes = refs.iter().filter_map(|name| self.named(&HTTP_ROUTE, &self.service.namespace, name));
        let mut gateways: Vec<(String, String)> = routes.flat_map(|route| route.parents.clone()).collect();
        gateways.dedup();
        gateways
    }

    fn of_routes(&self, found: &Found) -> Condition {
        let namespace = &self.service.namespace;
        let refs = self.route_refs();
        for name in &refs {
            let Some(route) = self.named(&HTTP_ROUTE, namespace, name) else {
                let message = format!(
                    "There is no HTTPRoute {name} in the namespace {namespace}, which spec.router.route.http.refs names: create it."
                );
                return Condition::no(HTTP_ROUTES, "RouteNotFound", message);
            };
            if let Some(told) = refused(HTTP_ROUTES, &format!("HTTPRoute {name}"), &route.conditions, route.generation) {
                return told;
            }
        }
        if !refs.is_empty() {
            return Condition::yes(HTTP_ROUTES, "Accepted", "The Gateways have taken the routes.");
        }
        let name = format!("{}-kserve-route", self.service.name);
        match self.asking.snapshot.child(&HTTP_ROUTE, &name) {
            Some(route) => {
                let told = refused(HTTP_ROUTES, &format!("HTTPRoute {name}"), &route.observed.conditions, route.observed.generation);
                told.unwrap_or_else(|| Condition::yes(HTTP_ROUTES, "Accepted", "The Gateways have taken the route."))
            }
            None if found.objects.is_some() && !self.gateways().is_empty() => unsaid(HTTP_ROUTES, &format!("HTTPRoute {name}")),
            None => Condition::unknown(HTTP_ROUTES, "Blocked", "There is no route yet: the other conditions say why."),
        }
    }

    fn of_pool(&self, found: &Found, routed: bool) -> Condition {
        let name = self.pool_name();
        let own =
            self.asking.snapshot.child(&INFERENCE_POOL, &name).map(|pool| (pool.observed.conditions.clone(), pool.observed.generation));
        let named = self.named(&INFERENCE_POOL, &self.service.namespace, &name).map(|pool| (pool.conditions.clone(), pool.generation));
        let what = format!("InferencePool {name}");
        match own.or(named) {
            // Only a Gateway whose route refers to it says anything of a pool.
            Some(_) if !routed => {
                Condition::yes(POOL, "NotReferenced", format!("The {what} is there, and no route of the service refers to it."))
            }
            Some((conditions, generation)) => {
                let told = refused(POOL, &what, &conditions, generation);
                told.unwrap_or_else(|| Condition::yes(POOL, "Accepted", "The Gateways have taken the pool."))
            }
            None if self.service.combined.given("/router/scheduler/pool/ref").is_object() => {
                let message = format!(
                    "There is no {what} in the namespace {}, which spec.router.scheduler.pool.ref names: create it.",
                    self.service.namespace
                );
                Condition::no(POOL, "PoolNotFound", message)
            }
            None if found.objects.is_some() && routed => unsaid(POOL, &what),
            None if found.objects.is_some() => {
                Condition::yes(POOL, "NotReferenced", format!("The {what} is there, and no route of the service refers to it."))
            }
            None => Condition::unknown(POOL, "Blocked", "There is no pool yet: the other conditions say why."),
        }
    }

    /// Everything of the status but its conditions.
    pub(super) fn fields(&self, found: &Found) -> Map<String, Value> {
        let mut fields = Map::new();
        if found.objects.is_none() {
            // What was told of it holds for what runs.
            return fields;
        }
        let within = format!(
            "http://{}-kserve-workload-svc.{}.svc.{}:{}",
            self.service.name,
            self.service.namespace,
            self.settings.cluster_domain,
            super::workload::PORT
        );
        let mut outside: Vec<String> = Vec::new();
        if self.service.combined.given("/router/route").is_object() {
            let refs = self.route_refs();
            let routes = refs.iter().filter_map(|name| self.named(&HTTP_ROUTE, &self.service.namespace, name));
            let mut names: Vec<String> = routes.flat_map(|route| route.hosts.clone()).collect();
            let own = self.service.combined.given("/router/route/http/spec/hostnames");
            names.extend(own.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)));
            let path = if refs.is_empty() { self.path() } else { String::new() };
            for (namespace, name) in self.route_gateways() {
                let Some(gateway) = self.named(&GATEWAY, &namespace, &name) else { continue };
                let scheme = if gateway.secure { "https" } else { "http" };
                let hosts = if names.is_empty() { &gateway.hosts } else { &names };
                outside.extend(hosts.iter().map(|host| format!("{scheme}://{host}{path}")));
            }
            outside.sort();
            outside.dedup();
        }
        let addresses: Vec<Value> = outside.iter().map(|url| json!({"name": "gateway", "url": url})).collect();
        let addresses: Vec<Value> = addresses.into_iter().chain([json!({"name": "service", "url": within})]).collect();
        fields.insert("url".to_owned(), outside.first().unwrap_or(&within).as_str().into());
        fields.insert("address".to_owned(), json!({"name": "service", "url": within}));
        fields.insert("addresses".to_owned(), addresses.into());
        fields
    }
}

fn unsaid(type_: &'static str, what: &str) -> Condition {
    Condition::unknown(type_, "Progressing", format!("No Gateway has said whether it takes the {what}."))
}

/// What Gateways say of an object, unless they have taken it.
fn refused(type_: &'static str, what: &str, conditions: &[child::Condition], generation: Option<i64>) -> Option<Condition> {
    let current = |condition: &&child::Condition| condition.speaks_of(generation);
    if let Some(refused) = conditions.iter().filter(current).find(|condition| condition.status == "False") {
        let message = format!("A Gateway doesn't take the {what} ({}): {}", refused.type_, refused.message);
        return Some(Condition::no(type_, refused.reason.clone(), message));
    }
    let accepted = conditions.iter().filter(current).any(|condition| condition.type_ == "Accepted" && condition.status == "True");
    (!accepted).then(|| unsaid(type_, what))
}

/// The first of the parts that isn't well, or that all are.
fn all(type_: &'static str, parts: &[Condition], well: &str) -> Condition {
    let first = |status: Option<bool>| parts.iter().find(|part| part.status == status);
    match first(Some(false)).or_else(|| first(None)) {
        Some(part) => Condition { type_, notable: false, ..part.clone() },
        None => Condition::yes(type_, "Ready", well),
    }
}
