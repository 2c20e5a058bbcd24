//! The objects that run a service's pods, and their autoscalers.

use super::{
    COMBINED, PlanBuilder, PlanError,
    combine::PodTemplateField,
    metadata::hide_from_pools,
    service::{Workload, WorkloadRole},
};
use crate::{
    kinds::questions::{self, MetadataQuestion, PodRole, TemplateQuestion},
    objects::{Metadata, network, workload},
    plan::Object,
    resource::{Resource, SERVICE},
    world::ObjectKey,
};
use pointsman_sandbox::point::templating::Layer;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The port of every serving pod: presets, pools and routes rely on it.
pub(super) const PORT: i64 = 8000;

/// The suffix of the Service for a service's workload.
pub(super) const WORKLOAD_SERVICE_SUFFIX: &str = "-kserve-workload-svc";

impl PlanBuilder<'_> {
    pub(super) fn key(&self, resource: &'static Resource, suffix: &str) -> ObjectKey {
        ObjectKey { resource, namespace: self.service.namespace.clone(), name: format!("{}{suffix}", self.service.name) }
    }

    /// The host name of one of its Services within the cluster.
    pub(super) fn service_host(&self, suffix: &str) -> String {
        format!("{}{suffix}.{}.svc.{}", self.service.name, self.service.namespace, self.settings.cluster_domain)
    }

    /// Fails if a kind isn't installed.
    pub(super) fn served(&self, step: &'static str, what: &str, resource: &'static Resource) -> Result<(), Box<PlanError>> {
        match questions::missing_kind(self.asking.snapshot, what, resource) {
            Some((reason, message)) => Err(PlanError::new(step, reason, message)),
            None => Ok(()),
        }
    }

    /// The metadata of an object.
    pub(super) fn metadata(&mut self, about: MetadataQuestion<'_>, ours: BTreeMap<String, String>) -> Result<Metadata, Box<PlanError>> {
        let metadata = self.asking.metadata(&self.service.subject, about, ours, self.layers.clone());
        metadata.map_err(|undecided| self.undecided(&undecided))
    }

    /// The Service for all pods that serve requests.
    pub(super) fn reaching(&mut self) -> Result<Object, Box<PlanError>> {
        let key = self.key(&SERVICE, WORKLOAD_SERVICE_SUFFIX);
        let ours = self.selector(WorkloadRole::Main);
        let metadata = self.metadata(MetadataQuestion { key: &key, role: None, pods: None, template: None }, ours)?;
        let port = network::Port { name: "http".to_owned(), port: PORT, target: PORT, protocol: "TCP".to_owned() };
        Ok(Object::new(key, network::service(metadata, &self.reached(), &[port])))
    }

    /// The objects of a workload.
    pub(super) fn deployed(&mut self, workload: &Workload) -> Result<Vec<Object>, Box<PlanError>> {
        let (part, (resource, name)) = (workload.part, &workload.runs);
        self.served(COMBINED, part.name(), resource)?;
        let key = ObjectKey { resource, namespace: self.service.namespace.clone(), name: name.clone() };
        let role = Some(part.role());
        let mut templates = Vec::new();
        for (place, at) in workload.places() {
            let layers = self.model_layers(workload, at);
            let template = self.pod(place, (layers, json!({"metadata": {}, "spec": {}})), &key)?;
            let about = MetadataQuestion { key: &key, role, pods: Some(place), template: Some(&template["metadata"]) };
            let mut metadata = self.metadata(about, self.of_pods(workload, place))?;
            if place.follows() {
                hide_from_pools(&mut metadata);
            }
            templates.push(json!({"metadata": metadata.into_value(), "spec": template["spec"]}));
        }
        let metadata = self.metadata(MetadataQuestion { key: &key, role, pods: None, template: None }, self.workload_labels(part))?;
        let scaling = workload.spec.scaling.as_ref();
        let known = self.asking.snapshot.child(resource, name).is_some();
        let replicas = match (workload.spec.replicas, scaling) {
            (Some(replicas), _) => Some(i64::from(replicas)),
            // The initial number is the requested minimum; once the object exists, the autoscaler sets the number.
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

    /// The pod template, as policies decide it.
    pub(super) fn pod(
        &mut self,
        place: PodRole,
        (layers, frame): (Vec<Layer>, Value),
        workload: &ObjectKey,
    ) -> Result<Value, Box<PlanError>> {
        let combined = &self.service.combined;
        let is_of_admins = |layer: &str| match layer {
            "model" => combined.is_of_admins("/model/uri"),
            _ => combined.admin_layers.contains(layer),
        };
        let admin_layers = layers.iter().map(|layer| layer.name.clone()).filter(|layer| is_of_admins(layer)).collect();
        let question = TemplateQuestion { layers, admin_layers, frame };
        let template = self.asking.template(&self.service.subject, place, question, workload);
        template.map_err(|undecided| self.undecided(&undecided))
    }

    /// The layers for a pod.
    pub(super) fn pod_layers(&self, at: PodTemplateField) -> Vec<Layer> {
        let pods = self.service.combined.pods(at).into_iter();
        pods.map(|(name, pod)| Layer { name, content: json!({ "pod": pod }).to_string() }).collect()
    }

    fn model_layers(&self, workload: &Workload, at: PodTemplateField) -> Vec<Layer> {
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
