//! The objects that a service becomes.

use super::{
    ACCEPTED, Making, Stop,
    component::{Deployed, Mode, Part},
    metadata::{For, REVISION_LABEL, Sources, follows},
    pods::Place,
    scaling::Scaling,
};
use crate::{
    objects::{Metadata, access, network, scaling, scaling::Target, workload},
    plan::Object,
    policy::digest::Digest,
    world::{
        ObjectKey,
        child::{REVISION, RUNTIME},
        ome::{ModelView, RuntimeView},
        pod::WORKER_INDEX,
        resource::{
            DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, HTTP_ROUTE, LEADER_WORKER_SET, POD_DISRUPTION_BUDGET, ROLE, ROLE_BINDING, Resource,
            SCALED_OBJECT, SERVICE, SERVICE_ACCOUNT,
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

    /// What runs a component's pods.
    pub(super) fn workload(component: &Deployed) -> (&'static Resource, String) {
        match component.mode {
            Mode::Raw => (&DEPLOYMENT, component.name.clone()),
            // LeaderWorkerSet makes a headless Service of its own name, so that can't be the name of ours.
            Mode::MultiNode(_) => (&LEADER_WORKER_SET, format!("{}-mn", component.name)),
        }
    }

    fn neighbours(&self, component: &Deployed) -> Result<(), Box<Stop>> {
        let (workload, _) = Self::workload(component);
        let scaler = matches!(component.scaling, Scaling::Keda(..)).then_some(&SCALED_OBJECT);
        for resource in [Some(workload), scaler].into_iter().flatten() {
            if !self.snapshot.serves(resource) {
                let message = format!(
                    "The {} needs a {}, which the cluster doesn't serve: install {} (it brings the CRD {}).",
                    component.part.name(),
                    resource.kind,
                    resource.neighbour.unwrap_or("it"),
                    resource.crd_name()
                );
                return Err(Stop::new(ACCEPTED, "MissingApi", message, "RuntimeUnhealthy"));
            }
        }
        Ok(())
    }

    /// A component's objects. Tells the ports that it is reached by.
    fn deploy(&mut self, sources: &mut Sources<'_>, component: &Deployed, made: &mut Made) -> Result<Vec<network::Port>, Box<Stop>> {
        let (resource, name) = Self::workload(component);
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
        if let Some(RuntimeView { candidate, .. }) = sources.runtime {
            metadata.annotations.insert(RUNTIME.to_owned(), format!("{}/{}", candidate.kind, candidate.name));
        }
        made.objects.push(self.running(component, key, metadata, &selector, pods.templates));
        made.revisions.insert(component.part.name(), format!("{}-{}", component.name, pods.revision));

        let budget = self.key(&POD_DISRUPTION_BUDGET, &component.name);
        let metadata = self.of(sources, component, &budget)?;
        made.objects.push(Object::new(budget, scaling::disruption_budget(metadata, &selector)));
        let target = Target { resource, name: &name };
        match &component.scaling {
            Scaling::Fixed(_) | Scaling::External => {}
            Scaling::Horizontal(least, most, metric, percent) => {
                let key = self.key(&HORIZONTAL_POD_AUTOSCALER, &component.name);
                let metadata = self.of(sources, component, &key)?;
                made.objects.push(Object::new(key, scaling::horizontal(metadata, target, *least, *most, metric, *percent)));
            }
            Scaling::Keda(least, most, query) => {
                let key = self.key(&SCALED_OBJECT, &component.name);
                let metadata = self.of(sources, component, &key)?;
                made.objects.push(Object::new(key, scaling::scaled_object(metadata, target, *least, *most, query)));
            }
        }
        Ok(pods.ports)
    }

    /// The metadata of a component's object.
    fn of(&mut self, sources: &mut Sources<'_>, component: &Deployed, key: &ObjectKey) -> Result<Metadata, Box<Stop>> {
        self.metadata(sources, For { key, component: Some(component), pods: None, template: None })
    }

    fn running(
        &self,
        component: &Deployed,
        key: ObjectKey,
        metadata: Metadata,
        selector: &BTreeMap<String, String>,
        templates: Vec<Value>,
    ) -> Object {
        let replicas = match component.scaling {
            Scaling::Fixed(replicas) => Some(replicas),
            Scaling::Horizontal(..) | Scaling::Keda(..) | Scaling::External => None,
        };
        let mut templates = templates.into_iter();
        let first = templates.next().unwrap_or_default();
        let body = match component.mode {
            Mode::Raw => {
                let strategy = component.either(|side| side.settings.deployment_strategy.clone()).map(|strategy| json!(strategy));
                workload::deployment(metadata, selector, replicas, strategy, first)
            }
            Mode::MultiNode(size) => workload::leader_worker_set(metadata, replicas, size, first, templates.next().unwrap_or_default()),
        };
        Object { yields_replicas: replicas.is_none(), ..Object::new(key, body) }
    }

    fn pods(&mut self, sources: &mut Sources<'_>, component: &Deployed, key: &ObjectKey) -> Result<Pods, Box<Stop>> {
        let mut templates = Vec::new();
        let mut ports = None;
        for place in Place::of(component) {
            let template = self.template(component, place, sources.model, key)?;
            let what = For { key, component: Some(component), pods: Some(place), template: Some(&template["metadata"]) };
            let metadata = self.metadata(sources, what)?;
            if !follows(place) {
                ports = Some(network::ports(main_container(component, &template["spec"])));
            }
            templates.push(json!({"metadata": metadata.into_value(), "spec": template["spec"]}));
        }
        // A group of another size is another one for LeaderWorkerSet too.
        let size = if let Mode::MultiNode(size) = component.mode { size } else { 1 };
        let hash = Digest::of_value(&(&templates, size)).map(|digest| digest.hex()[..HASH].to_owned()).unwrap_or_default();
        let revision = self.revision(component, &hash);
        for template in &mut templates {
            template["metadata"]["labels"][REVISION_LABEL] = revision.as_str().into();
        }
        Ok(Pods { templates, ports: ports.unwrap_or_default(), revision, hash })
    }

    /// The number of the revision with this hash: that of what runs, or the next.
    fn revision(&self, component: &Deployed, hash: &str) -> String {
        let names = [(&DEPLOYMENT, component.name.clone()), (&LEADER_WORKER_SET, format!("{}-mn", component.name))];
        let live = names.iter().filter_map(|(resource, name)| self.snapshot.child(resource, name)?.observed.revision.clone());
        let known = live.filter_map(|revision| {
            let (number, hash) = revision.split_once('-')?;
            Some((number.parse::<u64>().ok()?, hash.to_owned()))
        });
        let number = match known.max() {
            Some((number, known)) if known == hash => number,
            Some((number, _)) => number + 1,
            None => 1,
        };
        format!("{number:05}")
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
        let metadata = self.metadata(sources, For { key: &key, component: None, pods: None, template: None })?;
        let selector = reached(component, &self.selector(Some(component)));
        objects.push(Object::new(key, network::service(metadata, &selector, ports)));
        if let Some(host) = self.host() {
            let key = self.key(&HTTP_ROUTE, &name);
            let metadata = self.metadata(sources, For { key: &key, component: None, pods: None, template: None })?;
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

/// The labels of the pods that take requests.
fn reached(component: &Deployed, selector: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut reached = selector.clone();
    if let Mode::MultiNode(_) = component.mode {
        reached.insert(WORKER_INDEX.to_owned(), "0".to_owned());
    }
    reached
}

/// The container that takes requests.
fn main_container<'a>(component: &Deployed, spec: &'a Value) -> Option<&'a Value> {
    let runner = component.either(|side| side.part.0.get("runner")?.get("name")?.as_str().map(str::to_owned));
    let containers = spec["containers"].as_array()?;
    let named = |name: &str| containers.iter().find(|container| container["name"] == name);
    runner.and_then(|name| named(&name)).or_else(|| named(MAIN_CONTAINER)).or_else(|| containers.first())
}
