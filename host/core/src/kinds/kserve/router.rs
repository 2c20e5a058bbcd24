//! Routes requests to a service's pods: the scheduler with its pool, and the route.

use super::{
    HTTP_ROUTES, POOL, PlanBuilder, PlanError,
    combine::{PodTemplateField, merged},
    metadata::{PICKS, hide_from_pools},
    route_scope::{RouteOwner, foreign_claim},
    workload::{PORT, WORKLOAD_SERVICE_SUFFIX},
};
use crate::{
    kinds::questions::MetadataQuestion,
    objects::{Metadata, access, network, workload},
    plan::Object,
    resource::{
        DEPLOYMENT, GATEWAY, HTTP_ROUTE, INFERENCE_OBJECTIVE, INFERENCE_POOL, LLM_D_INFERENCE_OBJECTIVE, ROLE, ROLE_BINDING, SERVICE,
        SERVICE_ACCOUNT,
    },
    settings::Scheduler,
    world::{ObjectKey, child::SCHEDULER},
};
use pointsman_crds::kserve::spec::Criticality;
use pointsman_sandbox::point::{Role, templating::Layer};
use serde_json::{Value, json};

/// The gRPC port of a picker.
const PICKER: i64 = 9002;

/// The suffixes of these objects' names.
pub(super) const OWN_ROUTE: &str = "-kserve-route";
pub(super) const SCHEDULER_NAME: &str = "-kserve-router-scheduler";
pub(super) const PICKER_SERVICE: &str = "-epp-service";
const OWN_POOL: &str = "-inference-pool";
const OWN_OBJECTIVE: &str = "-inference-objective";

/// The fields that name Gateways: one list, or the route's own. The layer with the higher precedence determines the field; within one
/// layer, the first field does.
pub(super) const GATEWAYS: &str = "/router/gateway/refs";
pub(super) const PARENTS: &str = "/router/route/http/spec/parentRefs";
const SPEC: &str = "/router/route/http/spec";

/// The priority for a criticality.
fn priority(criticality: Criticality) -> i64 {
    match criticality {
        Criticality::Critical => 10,
        Criticality::Standard => 0,
        Criticality::Sheddable => -10,
    }
}

impl PlanBuilder<'_> {
    fn about_scheduler(key: &ObjectKey) -> MetadataQuestion<'_> {
        MetadataQuestion { key, role: Some(Role::Scheduler), pods: None, template: None }
    }

    /// The scheduler's objects.
    pub(super) fn scheduler(&mut self) -> Result<Vec<Object>, Box<PlanError>> {
        if !self.service.scheduled() {
            return Ok(Vec::new());
        }
        if self.own_pool() {
            self.served(POOL, "scheduler", &INFERENCE_POOL)?;
        }
        let mut objects = Vec::new();
        let account = self.key(&SERVICE_ACCOUNT, "-epp-sa");
        let role = self.key(&ROLE, "-epp-role");
        let binding = self.key(&ROLE_BINDING, "-epp-rb");
        for key in [account.clone(), role.clone(), binding] {
            let metadata = self.metadata(Self::about_scheduler(&key), self.of_scheduler())?;
            let body = if key.resource == &SERVICE_ACCOUNT {
                access::service_account(metadata)
            } else if key.resource == &ROLE {
                match self.service.combined.scheduler {
                    Scheduler::Pointsman => access::picks_endpoints(metadata),
                    Scheduler::LlmD => access::picks_endpoints_by_leader(metadata, &key.namespace, &self.pool_name()),
                }
            } else {
                access::role_binding(metadata, &role.name, &key.namespace, &account.name)
            };
            objects.push(Object::new(key, body));
        }

        let key = self.key(&DEPLOYMENT, SCHEDULER_NAME);
        let layers = self.scheduler_layers();
        let frame = json!({"metadata": {}, "spec": {"serviceAccountName": account.name}});
        let template = self.pod(PICKS, (layers, frame), &key)?;
        let about = MetadataQuestion { key: &key, role: Some(Role::Scheduler), pods: Some(PICKS), template: Some(&template["metadata"]) };
        let mut of_pods = self.metadata(about, self.of_scheduler())?;
        hide_from_pools(&mut of_pods);

        let service = self.key(&SERVICE, PICKER_SERVICE);
        let mut metadata = self.metadata(Self::about_scheduler(&service), self.of_scheduler())?;
        self.mark_scheduler(&mut metadata);
        objects.push(Object::new(
            service,
            network::service(metadata, &self.of_scheduler(), &network::all_ports(&template["spec"]["containers"])),
        ));

        let pods = json!({"metadata": of_pods.into_value(), "spec": template["spec"]});
        let mut metadata = self.metadata(Self::about_scheduler(&key), self.of_scheduler())?;
        self.mark_scheduler(&mut metadata);
        let strategy = Some(match self.service.combined.scheduler {
            // All replicas serve. A new one starts before an old one stops.
            Scheduler::Pointsman => json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
            // A picker's knowledge of the pods is in its memory: with two active ones, each would know only half. So only one leads, and
            // new replicas start after the old ones have stopped.
            Scheduler::LlmD => json!({"type": "Recreate"}),
        });
        objects.push(Object::new(key, workload::deployment(metadata, &self.of_scheduler(), Some(self.service.pickers()), strategy, &pods)));
        if self.own_pool() {
            objects.push(self.pool()?);
        }
        objects.extend(self.objectives()?);
        Ok(objects)
    }

    /// Records the endpoint picker in an annotation of a scheduler's object, for the next plan. llm-d's objects have no annotation, for
    /// compatibility.
    fn mark_scheduler(&self, metadata: &mut Metadata) {
        let scheduler = self.service.combined.scheduler;
        if scheduler != Scheduler::LlmD {
            metadata.annotations.insert(SCHEDULER.to_owned(), scheduler.word().to_owned());
        }
    }

    /// The priority of requests that name this objective within the pool, if the service specifies a criticality. A picker reads only one
    /// API group, depending on its version and its start time, so there is one object in each group.
    fn objectives(&mut self) -> Result<Vec<Object>, Box<PlanError>> {
        let Some(criticality) = self.service.criticality() else { return Ok(Vec::new()) };
        let kinds = [&INFERENCE_OBJECTIVE, &LLM_D_INFERENCE_OBJECTIVE].into_iter();
        let served: Vec<_> = kinds.filter(|kind| self.asking.snapshot.serves(kind)).collect();
        if served.is_empty() && criticality != Criticality::Standard {
            let why = match self.asking.snapshot.denied.get(&INFERENCE_OBJECTIVE) {
                Some(role) => format!("the host has no right to list InferenceObjectives: {role}"),
                None => "the cluster doesn't serve InferenceObjectives: `pointsman crds install` installs their CRD".to_owned(),
            };
            self.service.notes.push(format!("spec.model.criticality has no effect: {why}."));
        }
        let pool = json!({"group": INFERENCE_POOL.group, "kind": INFERENCE_POOL.kind, "name": self.pool_name()});
        let mut objects = Vec::new();
        for kind in served {
            let key = self.key(kind, OWN_OBJECTIVE);
            let metadata = self.metadata(Self::about_scheduler(&key), self.of_scheduler())?;
            let spec = json!({"priority": priority(criticality), "poolRef": pool});
            objects.push(Object::new(key, json!({"metadata": metadata.into_value(), "spec": spec})));
        }
        Ok(objects)
    }

    fn scheduler_layers(&self) -> Vec<Layer> {
        let mut layers = self.pod_layers(PodTemplateField::Scheduler);
        let config = self.service.combined.given("/router/scheduler/config");
        let mut content = json!({
            "pool": self.pool_name(), "namespace": self.service.namespace, "replicas": self.service.pickers(), "config": config["inline"], "configMap": config["ref"],
        });
        if self.service.combined.scheduler == Scheduler::Pointsman {
            content["elects"] = false.into();
        }
        layers.push(Layer { name: "scheduler".to_owned(), content: content.to_string() });
        layers
    }

    /// The name of the pool that the scheduler picks from: the one that the service names, or its own.
    pub(super) fn pool_name(&self) -> String {
        let named = self.service.combined.given("/router/scheduler/pool/ref/name");
        named.as_str().map_or_else(|| format!("{}{OWN_POOL}", self.service.name), str::to_owned)
    }

    /// Whether the pool is planned, not only referenced.
    pub(super) fn own_pool(&self) -> bool {
        !self.service.combined.given("/router/scheduler/pool/ref").is_object()
    }

    fn pool(&mut self) -> Result<Object, Box<PlanError>> {
        let key = self.key(&INFERENCE_POOL, OWN_POOL);
        let metadata = self.metadata(Self::about_scheduler(&key), self.of_scheduler())?;
        let mut default = json!({
            "selector": {"matchLabels": self.picked_from()},
            "targetPorts": [{"number": PORT}],
            "endpointPickerRef": {
                "group": "", "kind": "Service", "name": format!("{}{PICKER_SERVICE}", self.service.name), "port": {"number": PICKER},
                // While the picker is unavailable, requests go to any of the pods.
                "failureMode": "FailOpen",
            },
        });
        let given = self.service.combined.given("/router/scheduler/pool/spec");
        if given["selector"].is_object()
            && let Some(default) = default.as_object_mut()
        {
            // Merged with the default, it would select fewer pods than it specifies.
            default.remove("selector");
        }
        let spec = merged(default, given);
        Ok(Object::new(key, json!({"metadata": metadata.into_value(), "spec": spec})))
    }

    /// The planned route, if one is requested and there is a Gateway for it.
    pub(super) fn route(&mut self) -> Result<Option<Object>, Box<PlanError>> {
        let Some(spec) = self.route.clone() else { return Ok(None) };
        self.served(HTTP_ROUTES, "route", &HTTP_ROUTE)?;
        let key = self.key(&HTTP_ROUTE, OWN_ROUTE);
        let about = MetadataQuestion { key: &key, role: None, pods: None, template: None };
        let metadata = self.metadata(about, self.of_router())?;
        Ok(Some(Object::new(key, json!({"metadata": metadata.into_value(), "spec": spec}))))
    }

    /// The spec of the planned route.
    pub(super) fn route_spec(&self) -> Option<Value> {
        if !self.routed() || !self.route_refs().is_empty() {
            return None;
        }
        let given = self.service.combined.given(SPEC);
        let (own, named) = (given["parentRefs"].clone(), self.service.combined.given(GATEWAYS));
        let of = |gateway: &Value| {
            let namespace = gateway["namespace"].as_str().filter(|text| !text.is_empty()).unwrap_or(&self.service.namespace);
            json!({"group": GATEWAY.group, "kind": GATEWAY.kind, "namespace": namespace, "name": gateway["name"]})
        };
        let named: Value = named.as_array().into_iter().flatten().map(of).collect();
        let of_all: Value = self.settings.gateway.iter().map(|all| of(&json!({"namespace": all.namespace, "name": all.name}))).collect();
        let lists = match self.service.combined.gateways_named_by() {
            Some((PARENTS, _)) => [own, named, of_all],
            _ => [named, own, of_all],
        };
        let parents = lists.into_iter().find(|list| list.as_array().is_some_and(|list| !list.is_empty()))?;
        let mut spec = merged(json!({"rules": self.rules()}), given);
        spec["parentRefs"] = parents;
        Some(spec)
    }

    /// Checks that the planned route stays within its limits.
    pub(super) fn check_route(&self) -> Result<(), Box<PlanError>> {
        let Some(spec) = &self.route else { return Ok(()) };
        let path = self.path();
        let owner = RouteOwner {
            namespace: &self.service.namespace,
            namespace_labels: &self.asking.snapshot.namespace_labels,
            path: &path,
            domain: self.settings.gateway.as_ref().map(|gateway| gateway.domain.as_str()),
            of_admins: ["hostnames", "rules"].map(|field| self.service.combined.is_of_admins(&format!("{SPEC}/{field}"))),
        };
        match foreign_claim(spec, owner) {
            None => Ok(()),
            Some(message) => Err(PlanError::new(HTTP_ROUTES, "RouteNotAllowed", message)),
        }
    }

    /// Whether a layer specifies the rules of the planned route.
    pub(super) fn rules_given(&self) -> bool {
        self.service.combined.given(SPEC)["rules"].is_array()
    }

    /// Whether a route is requested.
    pub(super) fn routed(&self) -> bool {
        self.service.combined.given("/router/route").is_object()
    }

    /// The names of the routes that the user manages.
    pub(super) fn route_refs(&self) -> Vec<String> {
        let refs = self.service.combined.given("/router/route/http/refs");
        refs.as_array().into_iter().flatten().filter_map(|reference| reference["name"].as_str().map(str::to_owned)).collect()
    }

    /// The path of the service at a Gateway.
    pub(super) fn path(&self) -> String {
        format!("/{}/{}", self.service.namespace, self.service.name)
    }

    fn rules(&self) -> Vec<Value> {
        let to_service = json!({"group": "", "kind": "Service", "name": format!("{}{WORKLOAD_SERVICE_SUFFIX}", self.service.name), "port": PORT, "weight": 1});
        let to_pool =
            json!({"group": INFERENCE_POOL.group, "kind": INFERENCE_POOL.kind, "name": self.pool_name(), "port": PORT, "weight": 1});
        let rule = |below: &str, backend: &Value| {
            let replaced = if below.is_empty() { "/" } else { below };
            json!({
                "matches": [{"path": {"type": "PathPrefix", "value": format!("{}{below}", self.path())}}],
                "filters": [{
                    "type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": replaced}},
                }],
                "backendRefs": [backend],
                // A response streams until the model has generated it.
                "timeouts": {"request": "0s", "backendRequest": "0s"},
            })
        };
        if !self.service.scheduled() {
            return vec![rule("", &to_service)];
        }
        // A picker reads only the bodies of these two.
        vec![rule("/v1/completions", &to_pool), rule("/v1/chat/completions", &to_pool), rule("", &to_service)]
    }
}
