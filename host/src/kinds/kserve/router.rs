//! How requests get to a service's pods: the scheduler and its pool, and the route.

use super::{
    HTTP_ROUTES, Making, POOL, SCHEDULER_READY, Stop,
    combine::{PodAt, merged},
    metadata::PICKS,
    workload::PORT,
};
use crate::{
    kinds::ask::About,
    objects::{access, network, workload},
    plan::Object,
    policy::point::{Role, templating::Layer},
    world::{
        ObjectKey,
        resource::{DEPLOYMENT, GATEWAY, HTTP_ROUTE, INFERENCE_POOL, ROLE, ROLE_BINDING, SERVICE, SERVICE_ACCOUNT},
    },
};
use serde_json::{Value, json};

/// The port on which a picker is asked.
const PICKER: i64 = 9002;

impl Making<'_> {
    fn about_scheduler(key: &ObjectKey) -> About<'_> {
        About { key, role: Some(Role::Scheduler), pods: None, template: None }
    }

    /// The scheduler's objects.
    pub(super) fn scheduler(&mut self) -> Result<Vec<Object>, Box<Stop>> {
        let Some(scheduler) = self.service.combined.spec.router.as_ref().and_then(|router| router.scheduler.clone()) else {
            return Ok(Vec::new());
        };
        let step = SCHEDULER_READY;
        let own_pool = scheduler.pool.as_ref().and_then(|pool| pool.pool_ref.as_ref()).is_none();
        if own_pool {
            self.served(POOL, "scheduler", &INFERENCE_POOL)?;
        }
        let mut objects = Vec::new();
        let account = self.key(&SERVICE_ACCOUNT, "-epp-sa");
        let role = self.key(&ROLE, "-epp-role");
        let binding = self.key(&ROLE_BINDING, "-epp-rb");
        for key in [account.clone(), role.clone(), binding] {
            let metadata = self.metadata(step, Self::about_scheduler(&key), self.of_scheduler())?;
            let body = if key.resource == &SERVICE_ACCOUNT {
                access::service_account(metadata)
            } else if key.resource == &ROLE {
                access::picks_endpoints(metadata)
            } else {
                access::role_binding(metadata, &role.name, &key.namespace, &account.name)
            };
            objects.push(Object::new(key, body));
        }

        let key = self.key(&DEPLOYMENT, "-kserve-router-scheduler");
        let layers = self.scheduler_layers();
        let frame = json!({"metadata": {}, "spec": {"serviceAccountName": account.name}});
        let template = self.pod(step, PICKS, (layers, frame), &key)?;
        let about = About { key: &key, role: Some(Role::Scheduler), pods: Some(PICKS), template: Some(&template["metadata"]) };
        let of_pods = self.metadata(step, about, self.of_scheduler())?;

        let service = self.key(&SERVICE, "-epp-service");
        let metadata = self.metadata(step, Self::about_scheduler(&service), self.of_scheduler())?;
        objects.push(Object::new(service, network::service(metadata, &self.of_scheduler(), &declared(&template["spec"]))));

        let pods = json!({"metadata": of_pods.into_value(), "spec": template["spec"]});
        let metadata = self.metadata(step, Self::about_scheduler(&key), self.of_scheduler())?;
        // What a picker knows of the pods is in its memory: two of them at once would each know half.
        let strategy = Some(json!({"type": "Recreate"}));
        objects.push(Object::new(key, workload::deployment(metadata, &self.of_scheduler(), Some(1), strategy, &pods)));
        if own_pool {
            objects.push(self.pool()?);
        }
        Ok(objects)
    }

    fn scheduler_layers(&self) -> Vec<Layer> {
        let mut layers = self.pod_layers(PodAt::Scheduler);
        let config = self.service.combined.given("/router/scheduler/config");
        let content = json!({
            "pool": self.pool_name(), "namespace": self.service.namespace, "config": config["inline"], "configMap": config["ref"],
        });
        layers.push(Layer { name: "scheduler".to_owned(), content: content.to_string() });
        layers
    }

    /// The pool that the scheduler picks from: the one that the service names, or its own.
    pub(super) fn pool_name(&self) -> String {
        let named = self.service.combined.given("/router/scheduler/pool/ref/name");
        named.as_str().map_or_else(|| format!("{}-inference-pool", self.service.name), str::to_owned)
    }

    fn pool(&mut self) -> Result<Object, Box<Stop>> {
        let key = self.key(&INFERENCE_POOL, "-inference-pool");
        let metadata = self.metadata(POOL, Self::about_scheduler(&key), self.of_scheduler())?;
        let default = json!({
            "selector": {"matchLabels": self.picked_from()},
            "targetPorts": [{"number": PORT}],
            "endpointPickerRef": {
                "group": "", "kind": "Service", "name": format!("{}-epp-service", self.service.name), "port": {"number": PICKER},
                // Requests go on, to any of the pods, while the picker is away.
                "failureMode": "FailOpen",
            },
        });
        let spec = merged(default, &self.service.combined.given("/router/scheduler/pool/spec"));
        Ok(Object::new(key, json!({"metadata": metadata.into_value(), "spec": spec})))
    }

    /// The Gateways that the route hangs on: namespace and name.
    pub(super) fn gateways(&self) -> Vec<(String, String)> {
        let named = |path: &str| -> Vec<(String, String)> {
            let references = self.service.combined.given(path);
            let text = |reference: &Value, field: &str| reference[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            let references = references.as_array().into_iter().flatten();
            let own = || self.service.namespace.clone();
            references.filter_map(|reference| Some((text(reference, "namespace").unwrap_or_else(own), text(reference, "name")?))).collect()
        };
        let refs = [named("/router/gateway/refs"), named("/router/route/http/spec/parentRefs")].into_iter().find(|refs| !refs.is_empty());
        let of_all = self.settings.gateway.as_ref().map(|gateway| (gateway.namespace.clone(), gateway.name.clone()));
        refs.unwrap_or_else(|| of_all.into_iter().collect())
    }

    /// The route that is made, where one is asked for and there is a Gateway for it.
    pub(super) fn route(&mut self) -> Result<Option<Object>, Box<Stop>> {
        let route = self.service.combined.given("/router/route");
        if !route.is_object() || !self.route_refs().is_empty() {
            return Ok(None);
        }
        let gateways = self.gateways();
        if gateways.is_empty() {
            return Ok(None);
        }
        self.served(HTTP_ROUTES, "route", &HTTP_ROUTE)?;
        let key = self.key(&HTTP_ROUTE, "-kserve-route");
        let about = About { key: &key, role: None, pods: None, template: None };
        let metadata = self.metadata(HTTP_ROUTES, about, self.of_router())?;
        let parents: Vec<Value> = gateways
            .iter()
            .map(|(namespace, name)| json!({"group": GATEWAY.group, "kind": GATEWAY.kind, "namespace": namespace, "name": name}))
            .collect();
        let default = json!({"parentRefs": parents, "rules": self.rules()});
        let spec = merged(default, &self.service.combined.given("/router/route/http/spec"));
        Ok(Some(Object::new(key, json!({"metadata": metadata.into_value(), "spec": spec}))))
    }

    /// The names of the user's own routes.
    pub(super) fn route_refs(&self) -> Vec<String> {
        let refs = self.service.combined.given("/router/route/http/refs");
        refs.as_array().into_iter().flatten().filter_map(|reference| reference["name"].as_str().map(str::to_owned)).collect()
    }

    /// The path below which the service is reached at a Gateway.
    pub(super) fn path(&self) -> String {
        format!("/{}/{}", self.service.namespace, self.service.name)
    }

    fn rules(&self) -> Vec<Value> {
        let to_service = json!({"group": "", "kind": "Service", "name": format!("{}-kserve-workload-svc", self.service.name), "port": PORT, "weight": 1});
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
                // An answer streams for as long as the model writes.
                "timeouts": {"request": "0s", "backendRequest": "0s"},
            })
        };
        if !self.service.scheduled() {
            return vec![rule("", &to_service)];
        }
        // A picker reads the bodies of these two, and of no others.
        vec![rule("/v1/completions", &to_pool), rule("/v1/chat/completions", &to_pool), rule("", &to_service)]
    }
}

/// The ports that the scheduler's containers declare.
fn declared(spec: &Value) -> Vec<network::Port> {
    let containers = spec["containers"].as_array().into_iter().flatten();
    let ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    let port = |port: &Value| {
        let number = port["containerPort"].as_i64()?;
        let name = port["name"].as_str().map_or_else(|| format!("port-{number}"), str::to_owned);
        Some(network::Port { name, port: number, target: number, protocol: port["protocol"].as_str().unwrap_or("TCP").to_owned() })
    };
    ports.filter_map(port).collect()
}
