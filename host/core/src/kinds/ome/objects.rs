//! The objects of a service.

use super::{
    ACCEPTED, PlanBuilder, PlanError, choice,
    component::{ComponentKind, DeployedComponent, KNATIVE_FEATURES, Mode, refused},
    metadata::{For, Sources},
    pods::places,
    revision::Revision,
    scaling::Scaling,
    serverless,
};
use crate::{
    kinds::questions,
    objects::{
        Metadata, access, knative, network, ray,
        scaling::{self, Target},
        storage, workload,
    },
    plan::Object,
    resource::{
        HORIZONTAL_POD_AUTOSCALER, HTTP_ROUTE, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, POD_DISRUPTION_BUDGET, ROLE, ROLE_BINDING,
        Resource, SCALED_OBJECT, SERVICE, SERVICE_ACCOUNT,
    },
    subject_kind::OME_CONTAINER,
    world::{
        ObjectKey,
        child::{APPLIED, DERIVED, GENERATION, REVISION, REVISION_LABEL, REVISIONS, RUNTIME},
        pod::WORKER_INDEX,
    },
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The ports of Knative's proxy in front of a container.
const KNATIVE_PORTS: [i64; 4] = [8012, 8013, 8022, 9090];

/// The maximum length of a spec that is stored in an annotation: all annotations of an object together have at most 256 KiB.
const MAX_APPLIED_SPEC: usize = 64 * 1024;

/// The objects, and the latest revision of each component.
pub(super) struct BuiltObjects {
    pub(super) objects: Vec<Object>,
    pub(super) revisions: BTreeMap<&'static str, String>,
    pub(super) workloads: BTreeMap<&'static str, ObjectKey>,
}

/// The pods of a component, complete.
struct Pods {
    templates: Vec<Value>,
    ports: Vec<network::Port>,
    revision: Revision,
}

impl PlanBuilder<'_> {
    /// All objects of the service, in the order in which they are written.
    pub(super) fn objects(&mut self, sources: &mut Sources<'_>, components: &[DeployedComponent]) -> Result<BuiltObjects, Box<PlanError>> {
        for component in components {
            self.neighbours(component)?;
        }
        let mut made = BuiltObjects { objects: Vec::new(), revisions: BTreeMap::new(), workloads: BTreeMap::new() };
        let mut ports = BTreeMap::new();
        for component in components {
            ports.insert(component.part, self.deploy(sources, component, &mut made)?);
        }
        // Knative has its own routing to its pods.
        let entry = super::entry(components).filter(|entry| entry.mode != Mode::Serverless);
        if let Some((entry, ports)) = entry.and_then(|entry| Some((entry, ports.get(&entry.part)?))) {
            self.entry(sources, entry, ports, &mut made.objects)?;
        }
        Ok(made)
    }

    pub(super) fn key(&self, resource: &'static Resource, name: &str) -> ObjectKey {
        ObjectKey { resource, namespace: self.service.namespace.clone(), name: name.to_owned() }
    }

    fn neighbours(&self, component: &DeployedComponent) -> Result<(), Box<PlanError>> {
        let (workload, _) = component.workload;
        let scaler = matches!(component.scaling, Scaling::Keda(..)).then_some(&SCALED_OBJECT);
        for resource in [Some(workload), scaler].into_iter().flatten() {
            if let Some((reason, message)) = questions::missing_kind(self.snapshot, component.part.name(), resource) {
                return Err(PlanError::new(ACCEPTED, reason, message, "RuntimeUnhealthy"));
            }
        }
        Ok(())
    }

    /// A component's objects. Returns the ports of its Service.
    fn deploy(
        &mut self,
        sources: &mut Sources<'_>,
        component: &DeployedComponent,
        made: &mut BuiltObjects,
    ) -> Result<Vec<network::Port>, Box<PlanError>> {
        let (resource, mut name) = component.workload.clone();
        let selector = self.selector(Some(component));
        if component.part == ComponentKind::Router {
            self.access(sources, component, &mut made.objects)?;
        }
        let pods = self.pods(sources, component, &self.key(resource, &name))?;
        if matches!(component.mode, Mode::Ray(_)) {
            // KubeRay doesn't restart pods when a template changes, so each revision is a new cluster.
            name = format!("{name}-{}", pods.revision.number);
        }
        let key = self.key(resource, &name);

        self.surroundings(sources, component, &pods, &mut made.objects)?;
        let mut metadata = self.component_metadata(sources, component, &key)?;
        let Revision { number, hash, history } = &pods.revision;
        metadata.labels.insert(REVISION_LABEL.to_owned(), number.clone());
        metadata.annotations.insert(REVISION.to_owned(), format!("{number}-{hash}"));
        metadata.annotations.extend(history.clone().map(|history| (REVISIONS.to_owned(), history)));
        if let Some(choice) = &self.choice {
            metadata.annotations.insert(RUNTIME.to_owned(), choice::written(choice));
        }
        metadata.annotations.extend(self.applied());
        made.workloads.insert(component.part.name(), key.clone());
        made.objects.push(self.running(component, key, metadata, &selector, &pods.templates));
        made.revisions.insert(component.part.name(), format!("{}-{number}", component.name));

        let budget = self.key(&POD_DISRUPTION_BUDGET, &component.name);
        // A RayCluster has no scale subresource.
        let unscaled = matches!(component.mode, Mode::Ray(_)).then(|| component.mode.size());
        let metadata = self.component_metadata(sources, component, &budget)?;
        made.objects.push(Object::new(budget, scaling::disruption_budget(metadata, &selector, unscaled)));
        let target = Target { resource, name: &name };
        match &component.scaling {
            Scaling::Fixed(_) | Scaling::External(_) | Scaling::Knative(_) => {}
            Scaling::Horizontal(least, most, metric, percent) => {
                let key = self.key(&HORIZONTAL_POD_AUTOSCALER, &component.name);
                let mut metadata = self.component_metadata(sources, component, &key)?;
                metadata.annotations.extend(component.derived.then(|| (DERIVED.to_owned(), "true".to_owned())));
                made.objects
                    .push(Object::new(key, scaling::horizontal(metadata, target, *least, *most, &scaling::used(metric, *percent), None)));
            }
            Scaling::Keda(least, most, query) => {
                let key = self.key(&SCALED_OBJECT, &component.name);
                let mut metadata = self.component_metadata(sources, component, &key)?;
                metadata.annotations.extend(component.derived.then(|| (DERIVED.to_owned(), "true".to_owned())));
                made.objects.push(Object::new(key, scaling::scaled_object(metadata, target, *least, *most, &query.trigger(), Value::Null)));
            }
        }
        Ok(pods.ports)
    }

    /// The objects around a component's pods: a claim for files, a Service, and a NetworkPolicy.
    fn surroundings(
        &mut self,
        sources: &mut Sources<'_>,
        component: &DeployedComponent,
        pods: &Pods,
        objects: &mut Vec<Object>,
    ) -> Result<(), Box<PlanError>> {
        let selector = self.selector(Some(component));
        if let Some(room) = &component.extras.storage {
            let key = self.key(&PERSISTENT_VOLUME_CLAIM, &component.claim());
            let metadata = self.component_metadata(sources, component, &key)?;
            objects.push(Object::new(key, storage::claim(metadata, room.class.as_deref(), &room.size, room.mode)));
        }
        // Knative itself creates a Service with the component's name.
        if component.mode != Mode::Serverless {
            let key = self.key(&SERVICE, &component.name);
            let metadata = self.component_metadata(sources, component, &key)?;
            objects.push(Object::new(key, network::service(metadata, &reached(component, &selector), &pods.ports)));
        }
        if component.extras.inference_only {
            let key = self.key(&NETWORK_POLICY, &component.name);
            let metadata = self.component_metadata(sources, component, &key)?;
            let tcp = pods.ports.iter().filter(|port| port.protocol == "TCP").map(|port| port.target);
            let own_proxy = (component.mode == Mode::Serverless).then_some(KNATIVE_PORTS).into_iter().flatten();
            let ports: BTreeSet<i64> = tcp.chain(component.extras.metrics_port).chain(own_proxy).collect();
            let ports: Vec<i64> = ports.into_iter().collect();
            objects.push(Object::new(key, network::inference_only(metadata, &selector, &self.selector(None), &ports)));
        }
        Ok(())
    }

    /// The annotations of a workload from OME's labels page: the service's generation, and the applied spec. They are only on the workload,
    /// never on its pods.
    fn applied(&self) -> Vec<(String, String)> {
        let Some(generation) = self.snapshot.subject.generation else { return Vec::new() };
        let spec = (self.service.spec.len() <= MAX_APPLIED_SPEC).then(|| (APPLIED.to_owned(), self.service.spec.clone()));
        std::iter::once((GENERATION.to_owned(), generation.to_string())).chain(spec).collect()
    }

    /// The metadata of a component's object.
    fn component_metadata(
        &mut self,
        sources: &mut Sources<'_>,
        component: &DeployedComponent,
        key: &ObjectKey,
    ) -> Result<Metadata, Box<PlanError>> {
        self.metadata(sources, For { key, component: Some(component), pods: None })
    }

    fn running(
        &self,
        component: &DeployedComponent,
        key: ObjectKey,
        metadata: Metadata,
        selector: &BTreeMap<String, String>,
        templates: &[Value],
    ) -> Object {
        let replicas = match component.scaling {
            Scaling::Fixed(replicas) => Some(replicas),
            // The initial number is the requested minimum; once the object exists, the autoscaler sets the number.
            Scaling::Horizontal(least, ..) | Scaling::Keda(least, ..) | Scaling::External(least) => {
                (least > 1 && self.snapshot.child(key.resource, &key.name).is_none()).then_some(least)
            }
            Scaling::Knative(_) => None,
        };
        let ours = matches!(component.scaling, Scaling::Fixed(_) | Scaling::Knative(_));
        let none = Value::Null;
        let template = |at: usize| templates.get(at).unwrap_or(&none);
        let body = match component.mode {
            Mode::Raw => {
                let strategy = component.either(|side| side.settings.deployment_strategy.clone()).map(|strategy| json!(strategy));
                // A new pod on another node would wait for the volume of the old one.
                let strategy = strategy.or_else(|| component.extras.on_one_node().then(|| json!({"type": "Recreate"})));
                workload::deployment(metadata, selector, replicas, strategy, template(0))
            }
            Mode::MultiNode(size) => {
                let strategy = component.either(|side| side.settings.deployment_strategy.clone()?.rolling_update);
                let group = workload::leader_worker_set(metadata, replicas, size, template(0), template(1));
                workload::rolled(group, strategy.map(|rolling| (rolling.max_unavailable, rolling.max_surge)))
            }
            Mode::Serverless => {
                let revision = metadata.annotations.get(REVISION).map_or("", String::as_str);
                let canary = self.canary(component, revision);
                knative::service(metadata, template(0), canary.as_ref())
            }
            Mode::Ray(size) => ray::cluster(metadata, &ray::spec(template(0), template(1), size - 1)),
        };
        Object { yields_replicas: !ours, ..Object::new(key, body) }
    }

    fn pods(&mut self, sources: &mut Sources<'_>, component: &DeployedComponent, key: &ObjectKey) -> Result<Pods, Box<PlanError>> {
        let mut templates = Vec::new();
        let mut ports = None;
        for place in places(component) {
            let template = self.template(component, place, sources, key)?;
            let what = For { key, component: Some(component), pods: Some((place, &template["metadata"])) };
            let mut metadata = self.metadata(sources, what)?;
            let main = main_container(component, &template["spec"]);
            if !place.follows() {
                ports = Some(network::ports(main));
            }
            let main = main.and_then(|main| main["name"].as_str()).unwrap_or_default();
            let spec = match component.mode {
                Mode::Raw | Mode::MultiNode(_) => template["spec"].clone(),
                Mode::Ray(_) => ray::fitted(&template["spec"], main),
                Mode::Serverless => self.fitted(component, &template["spec"], main)?,
            };
            if let Scaling::Knative(told) = &component.scaling {
                metadata.annotations.extend(told.clone());
            }
            let pods = json!({"metadata": metadata.into_value(), "spec": spec});
            templates.push(if component.mode == Mode::Serverless {
                knative::template(&pods, serverless::scaling_request(component))
            } else {
                pods
            });
        }
        let revision = self.revision(component, &templates)?;
        for template in &mut templates {
            template["metadata"]["labels"][REVISION_LABEL] = revision.number.as_str().into();
        }
        Ok(Pods { templates, ports: ports.unwrap_or_default(), revision })
    }

    /// The pod spec in the form that Knative accepts. The enabled features of Knative are unknown here, so the required ones are noted.
    fn fitted(&mut self, component: &DeployedComponent, spec: &Value, main: &str) -> Result<Value, Box<PlanError>> {
        let part = component.part.name();
        let knative::Fitted { spec, features } = knative::fit(spec, main).map_err(|fields| {
            refused(format!(
                "Knative accepts no pods of the {part} with {}: remove that, or set the mode RawDeployment.",
                fields.join(", ")
            ))
        })?;
        if !features.is_empty() {
            let features: Vec<_> = features.into_iter().collect();
            let message = format!(
                "Knative accepts the pods of the {part} only with these features enabled (ConfigMap config-features of knative-serving): \
                 {}.",
                features.join(", ")
            );
            self.notes.push((KNATIVE_FEATURES, message));
        }
        Ok(spec)
    }

    /// The objects that permit a router to watch the pods that it routes to.
    fn access(
        &mut self,
        sources: &mut Sources<'_>,
        component: &DeployedComponent,
        objects: &mut Vec<Object>,
    ) -> Result<(), Box<PlanError>> {
        let name = component.name.clone();
        let keys = [&SERVICE_ACCOUNT, &ROLE, &ROLE_BINDING].map(|resource| self.key(resource, &name));
        for key in keys {
            let metadata = self.component_metadata(sources, component, &key)?;
            let body = if key.resource == &SERVICE_ACCOUNT {
                access::service_account(metadata)
            } else if key.resource == &ROLE {
                access::sees_pods(metadata)
            } else {
                access::role_binding(metadata, &name, &key.namespace, &name)
            };
            objects.push(Object::new(key, body));
        }
        Ok(())
    }

    /// The objects that expose the service as a whole: a Service with its name, and a route if there is a Gateway.
    fn entry(
        &mut self,
        sources: &mut Sources<'_>,
        component: &DeployedComponent,
        ports: &[network::Port],
        objects: &mut Vec<Object>,
    ) -> Result<(), Box<PlanError>> {
        let name = self.service.name.clone();
        let key = self.key(&SERVICE, &name);
        let metadata = self.metadata(sources, For { key: &key, component: None, pods: None })?;
        let selector = reached(component, &self.selector(Some(component)));
        objects.push(Object::new(key, network::service(metadata, &selector, ports)));
        if let Some(host) = self.host() {
            let key = self.key(&HTTP_ROUTE, &name);
            let metadata = self.metadata(sources, For { key: &key, component: None, pods: None })?;
            let seconds = component.either(|side| side.settings.timeout_seconds);
            if let Some(gateway) = &self.settings.gateway {
                let route = network::http_route(metadata, (&gateway.namespace, &gateway.name), &host, &name, seconds);
                objects.push(Object::new(key, route));
            }
        }
        Ok(())
    }

    /// The external host name of the service, if it has one.
    pub(super) fn host(&self) -> Option<String> {
        let gateway = self.settings.gateway.as_ref().filter(|_| self.snapshot.serves(&HTTP_ROUTE))?;
        Some(format!("{}.{}.{}", self.service.name, self.service.namespace, gateway.domain))
    }
}

/// The labels of the pods that serve requests.
fn reached(component: &DeployedComponent, selector: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut reached = selector.clone();
    match component.mode {
        Mode::MultiNode(_) => drop(reached.insert(WORKER_INDEX.to_owned(), "0".to_owned())),
        Mode::Ray(_) => drop(reached.insert(ray::NODE_TYPE.to_owned(), "head".to_owned())),
        Mode::Raw | Mode::Serverless => {}
    }
    reached
}

/// The container that serves requests, by the same rule as the default policy at pod-templating, which puts the model there.
fn main_container<'a>(component: &DeployedComponent, spec: &'a Value) -> Option<&'a Value> {
    let containers = spec["containers"].as_array()?;
    let named = |name: &str| containers.iter().find(|container| container["name"] == name);
    let sides = [&component.runtime, &component.user];
    let mut parts = sides.into_iter().flat_map(|side| [Some(&side.part), side.leader.as_ref()]).flatten();
    let mut runner = || parts.find_map(|part| part.0.get("runner")?.get("name")?.as_str().filter(|name| !name.is_empty()));
    named(OME_CONTAINER).or_else(|| runner().and_then(named)).or_else(|| containers.first())
}
