//! The objects that a service becomes.

use super::{
    ACCEPTED, DECIDED, Making, Stop, choice,
    component::{Deployed, Mode, Part},
    metadata::{For, Sources},
    pods::places,
    scaling::Scaling,
};
use crate::{
    kinds::ask,
    objects::{Metadata, access, network, scaling, scaling::Target, workload},
    plan::Object,
    policy::digest::Digest,
    world::{
        Child, ObjectKey,
        child::{DERIVED, REVISION, REVISION_LABEL, RUNTIME},
        ome::{ModelView, RuntimeView},
        pod::WORKER_INDEX,
        resource::{
            DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, HTTP_ROUTE, POD_DISRUPTION_BUDGET, ROLE, ROLE_BINDING, Resource, SCALED_OBJECT, SERVICE,
            SERVICE_ACCOUNT,
        },
    },
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The container that runs the model, unless the runtime or the service names another.
const MAIN_CONTAINER: &str = "ome-container";

/// How many digits of a template's hash are kept.
const HASH: usize = 12;

/// The objects, and the newest revision of each component.
pub(super) struct Made {
    pub(super) objects: Vec<Object>,
    pub(super) revisions: BTreeMap<&'static str, String>,
}

/// The pods of a component, finished.
struct Pods {
    templates: Vec<Value>,
    ports: Vec<network::Port>,
    /// Its number, and the hash of the templates.
    revision: String,
    hash: String,
}

impl Making<'_> {
    /// Everything that the service becomes, in the order in which it is written.
    pub(super) fn objects(
        &mut self,
        model: Option<&ModelView>,
        runtime: Option<&RuntimeView>,
        components: &[Deployed],
    ) -> Result<Made, Box<Stop>> {
        for component in components {
            self.neighbours(component)?;
        }
        let mut sources = Sources::new(model, runtime);
        let mut made = Made { objects: Vec::new(), revisions: BTreeMap::new() };
        let mut entry = None;
        for component in components {
            let ports = self.deploy(&mut sources, component, &mut made)?;
            // A router stands before the others, and comes last.
            if component.part != Part::Decoder {
                entry = Some((component, ports));
            }
        }
        if let Some((component, ports)) = entry {
            self.entry(&mut sources, component, &ports, &mut made.objects)?;
        }
        Ok(made)
    }

    pub(super) fn key(&self, resource: &'static Resource, name: &str) -> ObjectKey {
        ObjectKey { resource, namespace: self.service.namespace.clone(), name: name.to_owned() }
    }

    fn neighbours(&self, component: &Deployed) -> Result<(), Box<Stop>> {
        let (workload, _) = component.workload;
        let scaler = matches!(component.scaling, Scaling::Keda(..)).then_some(&SCALED_OBJECT);
        for resource in [Some(workload), scaler].into_iter().flatten() {
            if !self.snapshot.serves(resource) {
                let message = ask::missing(component.part.name(), resource);
                return Err(Stop::new(ACCEPTED, "MissingApi", message, "RuntimeUnhealthy"));
            }
        }
        Ok(())
    }

    /// A component's objects. Tells the ports that it is reached by.
    fn deploy(&mut self, sources: &mut Sources<'_>, component: &Deployed, made: &mut Made) -> Result<Vec<network::Port>, Box<Stop>> {
        let (resource, name) = component.workload.clone();
        let key = self.key(resource, &name);
        let selector = self.selector(Some(component));
        if component.part == Part::Router {
            self.access(sources, component, &mut made.objects)?;
        }
        let pods = self.pods(sources, component, &key)?;

        let reached = reached(component, &selector);
        let service = self.key(&SERVICE, &component.name);
        let metadata = self.of(sources, component, &service)?;
        made.objects.push(Object::new(service, network::service(metadata, &reached, &pods.ports)));

        let mut metadata = self.of(sources, component, &key)?;
        metadata.labels.insert(REVISION_LABEL.to_owned(), pods.revision.clone());
        metadata.annotations.insert(REVISION.to_owned(), format!("{}-{}", pods.revision, pods.hash));
        if let Some(choice) = &self.choice {
            metadata.annotations.insert(RUNTIME.to_owned(), choice::written(choice));
        }
        made.objects.push(self.running(component, key, metadata, &selector, &pods.templates));
        made.revisions.insert(component.part.name(), format!("{}-{}", component.name, pods.revision));

        let budget = self.key(&POD_DISRUPTION_BUDGET, &component.name);
        let metadata = self.of(sources, component, &budget)?;
        made.objects.push(Object::new(budget, scaling::disruption_budget(metadata, &selector)));
        let target = Target { resource, name: &name };
        match &component.scaling {
            Scaling::Fixed(_) | Scaling::External(_) => {}
            Scaling::Horizontal(least, most, metric, percent) => {
                let key = self.key(&HORIZONTAL_POD_AUTOSCALER, &component.name);
                let mut metadata = self.of(sources, component, &key)?;
                metadata.annotations.extend(component.derived.then(|| (DERIVED.to_owned(), "true".to_owned())));
                made.objects
                    .push(Object::new(key, scaling::horizontal(metadata, target, *least, *most, &scaling::used(metric, *percent), None)));
            }
            Scaling::Keda(least, most, query) => {
                let key = self.key(&SCALED_OBJECT, &component.name);
                let mut metadata = self.of(sources, component, &key)?;
                metadata.annotations.extend(component.derived.then(|| (DERIVED.to_owned(), "true".to_owned())));
                made.objects.push(Object::new(key, scaling::scaled_object(metadata, target, *least, *most, query, Value::Null)));
            }
        }
        Ok(pods.ports)
    }

    /// The metadata of a component's object.
    fn of(&mut self, sources: &mut Sources<'_>, component: &Deployed, key: &ObjectKey) -> Result<Metadata, Box<Stop>> {
        self.metadata(sources, For { key, component: Some(component), pods: None })
    }

    fn running(
        &self,
        component: &Deployed,
        key: ObjectKey,
        metadata: Metadata,
        selector: &BTreeMap<String, String>,
        templates: &[Value],
    ) -> Object {
        let replicas = match component.scaling {
            Scaling::Fixed(replicas) => Some(replicas),
            // It begins with the fewest that are asked for; as soon as it is there, the number is handed over.
            Scaling::Horizontal(least, ..) | Scaling::Keda(least, ..) | Scaling::External(least) => {
                (least > 1 && self.snapshot.child(key.resource, &key.name).is_none()).then_some(least)
            }
        };
        let ours = matches!(component.scaling, Scaling::Fixed(_));
        let none = Value::Null;
        let template = |at: usize| templates.get(at).unwrap_or(&none);
        let body = match component.mode {
            Mode::Raw => {
                let strategy = component.either(|side| side.settings.deployment_strategy.clone()).map(|strategy| json!(strategy));
                workload::deployment(metadata, selector, replicas, strategy, template(0))
            }
            Mode::MultiNode(size) => workload::leader_worker_set(metadata, replicas, size, template(0), template(1)),
        };
        Object { yields_replicas: !ours, ..Object::new(key, body) }
    }

    fn pods(&mut self, sources: &mut Sources<'_>, component: &Deployed, key: &ObjectKey) -> Result<Pods, Box<Stop>> {
        let mut templates = Vec::new();
        let mut ports = None;
        for place in places(component) {
            let template = self.template(component, place, sources.model, key)?;
            let what = For { key, component: Some(component), pods: Some((place, &template["metadata"])) };
            let metadata = self.metadata(sources, what)?;
            if !place.follows() {
                ports = Some(network::ports(main_container(component, &template["spec"])));
            }
            templates.push(json!({"metadata": metadata.into_value(), "spec": template["spec"]}));
        }
        // A group of another size is another one for LeaderWorkerSet too.
        let size = if let Mode::MultiNode(size) = component.mode { size } else { 1 };
        // What says the same is the same, in whatever order its keys were given.
        let sorted: Vec<Value> = templates.iter().map(sorted).collect();
        let hash = Digest::of_value(&(sorted, size)).map(|digest| digest.hex()[..HASH].to_owned());
        let hash = hash.map_err(|error| {
            Stop::new(DECIDED, "InvalidTemplate", format!("The pods' template has no JSON: {error}."), "RuntimeUnhealthy")
        })?;
        let revision = self.revision(component, &templates, &hash);
        for template in &mut templates {
            template["metadata"]["labels"][REVISION_LABEL] = revision.as_str().into();
        }
        Ok(Pods { templates, ports: ports.unwrap_or_default(), revision, hash })
    }

    /// The number of the revision with this hash: that of what runs, or the next.
    fn revision(&self, component: &Deployed, templates: &[Value], hash: &str) -> String {
        let names = component.part.workloads(&self.service.name);
        let live = names.iter().filter_map(|(resource, name)| self.snapshot.child(resource, name));
        let numbers = live.filter_map(|live| {
            let told = live.observed.revision.as_ref().and_then(|revision| revision.split_once('-'));
            let label = live.observed.revision_label.as_deref().or(told.map(|(number, _)| number))?;
            let number: u64 = label.parse().ok()?;
            let same = match told.filter(|(number, _)| *number == label) {
                Some((_, known)) => known == hash,
                // Whoever has taken the annotation away or edited it must not restart pods by that: the templates themselves tell.
                None => Self::runs(live, templates, label),
            };
            Some(if same { number } else { number + 1 })
        });
        format!("{:05}", numbers.max().unwrap_or(1))
    }

    /// Whether a workload has these templates, under the number of a revision.
    fn runs(live: &Child, templates: &[Value], revision: &str) -> bool {
        let paths: &[&str] = if live.key.resource == &DEPLOYMENT {
            &["/spec/template"]
        } else {
            &["/spec/leaderWorkerTemplate/leaderTemplate", "/spec/leaderWorkerTemplate/workerTemplate"]
        };
        paths.len() == templates.len()
            && paths.iter().zip(templates).all(|(path, template)| {
                let mut numbered = template.clone();
                numbered["metadata"]["labels"][REVISION_LABEL] = revision.into();
                live.settled_at(path, &numbered)
            })
    }

    /// A router looks for the pods that it routes to.
    fn access(&mut self, sources: &mut Sources<'_>, component: &Deployed, objects: &mut Vec<Object>) -> Result<(), Box<Stop>> {
        let name = component.name.clone();
        let keys = [&SERVICE_ACCOUNT, &ROLE, &ROLE_BINDING].map(|resource| self.key(resource, &name));
        for key in keys {
            let metadata = self.of(sources, component, &key)?;
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

    /// How the service as a whole is reached: a Service of its own name, and a route where there is a Gateway.
    fn entry(
        &mut self,
        sources: &mut Sources<'_>,
        component: &Deployed,
        ports: &[network::Port],
        objects: &mut Vec<Object>,
    ) -> Result<(), Box<Stop>> {
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

    /// The host name that the service is reached by from outside, if it is.
    pub(super) fn host(&self) -> Option<String> {
        let gateway = self.settings.gateway.as_ref().filter(|_| self.snapshot.serves(&HTTP_ROUTE))?;
        Some(format!("{}.{}.{}", self.service.name, self.service.namespace, gateway.domain))
    }
}

/// The same value with the keys of all objects in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, Value> = fields.iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(fields.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// The labels of the pods that take requests.
fn reached(component: &Deployed, selector: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut reached = selector.clone();
    if let Mode::MultiNode(_) = component.mode {
        reached.insert(WORKER_INDEX.to_owned(), "0".to_owned());
    }
    reached
}

/// The container that takes requests, by the rule that the default policy at pod-templating follows too: it puts the model there.
fn main_container<'a>(component: &Deployed, spec: &'a Value) -> Option<&'a Value> {
    let containers = spec["containers"].as_array()?;
    let named = |name: &str| containers.iter().find(|container| container["name"] == name);
    let sides = [&component.runtime, &component.user];
    let mut parts = sides.into_iter().flat_map(|side| [Some(&side.part), side.leader.as_ref()]).flatten();
    let mut runner = || parts.find_map(|part| part.0.get("runner")?.get("name")?.as_str().filter(|name| !name.is_empty()));
    named(MAIN_CONTAINER).or_else(|| runner().and_then(named)).or_else(|| containers.first())
}
