//! The objects that run a service's pods, and what scales them.

use super::{
    COMBINED, Making, Stop,
    combine::PodAt,
    service::{Part, Workload},
};
use crate::{
    kinds::ask::{self, About, Place},
    objects::{Metadata, network, scaling, scaling::Target, workload},
    plan::Object,
    policy::point::templating::Layer,
    world::{
        ObjectKey,
        resource::{HORIZONTAL_POD_AUTOSCALER, Resource, SERVICE},
    },
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The port on which every serving pod answers: presets, pools and routes count on it.
pub(super) const PORT: i64 = 8000;

impl Making<'_> {
    pub(super) fn key(&self, resource: &'static Resource, suffix: &str) -> ObjectKey {
        ObjectKey { resource, namespace: self.service.namespace.clone(), name: format!("{}{suffix}", self.service.name) }
    }

    /// Stops where the cluster doesn't serve a kind.
    pub(super) fn served(&self, step: &'static str, what: &str, resource: &'static Resource) -> Result<(), Box<Stop>> {
        if self.asking.snapshot.serves(resource) {
            return Ok(());
        }
        Err(Stop::new(step, "MissingApi", ask::missing(what, resource)))
    }

    /// The metadata of an object.
    pub(super) fn metadata(&mut self, step: &'static str, about: About<'_>, ours: BTreeMap<String, String>) -> Result<Metadata, Box<Stop>> {
        let metadata = self.asking.metadata(&self.service.subject, about, ours, self.layers.clone());
        metadata.map_err(|undecided| self.undecided(step, &undecided))
    }

    /// The Service that reaches all pods which answer.
    pub(super) fn reaching(&mut self) -> Result<Object, Box<Stop>> {
        let key = self.key(&SERVICE, "-kserve-workload-svc");
        let ours = self.selector(Part::Main);
        let metadata = self.metadata(Part::Main.condition(), About { key: &key, role: None, pods: None, template: None }, ours)?;
        let port = network::Port { name: "http".to_owned(), port: PORT, target: PORT, protocol: "TCP".to_owned() };
        Ok(Object::new(key, network::service(metadata, &self.reached(), &[port])))
    }

    /// A workload's objects.
    pub(super) fn deployed(&mut self, workload: &Workload) -> Result<Vec<Object>, Box<Stop>> {
        let (part, (resource, name)) = (workload.part, &workload.runs);
        let step = part.condition();
        self.served(step, part.name(), resource)?;
        let key = ObjectKey { resource, namespace: self.service.namespace.clone(), name: name.clone() };
        let role = Some(part.role());
        let mut templates = Vec::new();
        for (place, at) in workload.places() {
            let layers = self.model_layers(workload, at);
            let template = self.pod(step, place, (layers, json!({"metadata": {}, "spec": {}})), &key)?;
            let about = About { key: &key, role, pods: Some(place), template: Some(&template["metadata"]) };
            let metadata = self.metadata(step, about, self.of_pods(workload, place))?;
            templates.push(json!({"metadata": metadata.into_value(), "spec": template["spec"]}));
        }
        let metadata = self.metadata(step, About { key: &key, role, pods: None, template: None }, self.selector(part))?;
        let scaling = workload.spec.scaling.as_ref();
        let known = self.asking.snapshot.child(resource, name).is_some();
        let replicas = match (workload.spec.replicas, scaling) {
            (Some(replicas), _) => Some(i64::from(replicas)),
            // It begins with the fewest that are asked for; as soon as it is there, the number is the autoscaler's.
            (None, Some(scaling)) => scaling.min_replicas.map(i64::from).filter(|least| *least > 1 && !known),
            (None, None) => None,
        };
        let none = Value::Null;
        let template = |at: usize| templates.get(at).unwrap_or(&none);
        let body = match workload.group {
            None => workload::deployment(metadata, &self.selector(part), replicas, None, template(0)),
            Some(size) => workload::leader_worker_set(metadata, replicas, size, template(0), template(1)),
        };
        let mut objects = vec![Object { yields_replicas: workload.spec.replicas.is_none(), ..Object::new(key, body) }];
        if let Some(scaling) = scaling {
            objects.push(self.scaler(workload, scaling)?);
        }
        Ok(objects)
    }

    /// What scales a workload: by the number that the workload variant autoscaler wants.
    fn scaler(&mut self, workload: &Workload, asked: &pointsman_crds::kserve::scaling::ScalingSpec) -> Result<Object, Box<Stop>> {
        let field = workload.part.field();
        let refused = |reason: &str, message: String| Err(Stop::new(COMBINED, reason, message));
        let Some(most) = asked.max_replicas else {
            return refused("InvalidValue", format!("{field}.scaling has no maxReplicas: set it."));
        };
        let horizontal = match asked.wva.as_ref() {
            Some(wva) if wva.keda.is_some() => {
                return refused("NotSupported", format!("{field}.scaling.wva.keda is not supported yet: use hpa."));
            }
            Some(wva) => wva.hpa.clone().unwrap_or_default(),
            None => return refused("InvalidValue", format!("{field}.scaling has no wva, which says how it is scaled: set wva.hpa.")),
        };
        let (resource, name) = &workload.runs;
        let key = ObjectKey { resource: &HORIZONTAL_POD_AUTOSCALER, namespace: self.service.namespace.clone(), name: name.clone() };
        let about = About { key: &key, role: Some(workload.part.role()), pods: None, template: None };
        let metadata = self.metadata(workload.part.condition(), about, self.selector(workload.part))?;
        let least = asked.min_replicas.unwrap_or(1);
        let behavior = horizontal.behavior.map(|behavior| json!(behavior));
        let target = Target { resource, name };
        let body = scaling::horizontal(metadata, target, least.into(), most.into(), &scaling::wanted(name), behavior);
        Ok(Object::new(key, body))
    }

    /// The pods' template, as a policy makes it.
    pub(super) fn pod(
        &mut self,
        step: &'static str,
        place: Place,
        asked: (Vec<Layer>, Value),
        workload: &ObjectKey,
    ) -> Result<Value, Box<Stop>> {
        let template = self.asking.template(&self.service.subject, place, asked, workload);
        template.map_err(|undecided| self.undecided(step, &undecided))
    }

    /// What the layers say of a pod.
    pub(super) fn pod_layers(&self, at: PodAt) -> Vec<Layer> {
        let pods = self.service.combined.pods(at).into_iter();
        pods.map(|(name, pod)| Layer { name, content: json!({ "pod": pod }).to_string() }).collect()
    }

    fn model_layers(&self, workload: &Workload, at: PodAt) -> Vec<Layer> {
        let mut layers = self.pod_layers(at);
        let mut add = |name: &str, content: Value| layers.push(Layer { name: name.to_owned(), content: content.to_string() });
        let model = self.service.combined.given("/model");
        let brings = self.service.combined.spec.storage_initializer.as_ref().and_then(|initializer| initializer.enabled);
        let adapters = model.pointer("/lora/adapters").cloned().unwrap_or_else(|| json!([]));
        add("model", json!({"uri": model["uri"], "name": model["name"], "initializer": brings.unwrap_or(true), "adapters": adapters}));
        add("parallelism", json!(workload.spec.parallelism.clone().unwrap_or_default()));
        if let Some(nodes) = workload.group {
            add("group", json!({ "nodes": nodes }));
        }
        layers
    }
}
