//! Builds the Deployment and the Service of a model.

use super::{ALLOCATED, PORT, PlanBuilder, PlanError, backend::Backend, reasons};
use crate::{
    allocation::{
        Entry, Held, Phase,
        inputs::{GPU, MANAGED, MODEL, PodUsage, SERVER},
    },
    condition::Condition,
    kinds::questions::{MetadataQuestion, PodRole, TemplateQuestion},
    objects::{Metadata, label_value, network, workload},
    plan::Object,
    resource::{DEPLOYMENT, Resource, SERVICE},
    subject_kind::{APP_COMPONENT, APP_NAME, INFERENCE_CONTAINER},
    world::ObjectKey,
};
use pointsman_sandbox::{
    digest::Digested,
    point::{Role, templating::Layer},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const HEALTH: &str = "/health";

/// How long a server may take to load its model: the number of probes, one every 10 seconds.
const STARTUP_PROBES: i64 = 360;

/// An annotation that upstream documents.
const MEMORY: &str = "inference.eh-ops.io/memory";

impl PlanBuilder<'_> {
    fn key(&self, resource: &'static Resource, name: &str) -> ObjectKey {
        ObjectKey { resource, namespace: self.asking.snapshot.subject.key.namespace.clone(), name: name.to_owned() }
    }

    /// The labels that select its pods.
    fn selector(&self) -> BTreeMap<String, String> {
        let label = self.asking.snapshot.subject.label.clone();
        [(APP_NAME, label), (APP_COMPONENT, SERVER.to_owned())].map(|(key, value)| (key.to_owned(), value)).into()
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector();
        labels.insert(MODEL.to_owned(), label_value(&self.model.name).into_owned());
        labels.insert(MANAGED.to_owned(), "true".to_owned());
        labels
    }

    fn metadata(&mut self, about: MetadataQuestion<'_>) -> Result<Metadata, Box<PlanError>> {
        let ours = self.labels();
        let metadata = self.asking.metadata(&self.subject, about, ours, Digested::default());
        metadata.map_err(|undecided| self.undecided(&undecided))
    }

    /// The Deployment, with one pod or none.
    pub(super) fn workload(&mut self) -> Result<Object, Box<PlanError>> {
        let name = self.asking.snapshot.subject.key.name.clone();
        let key = self.key(&DEPLOYMENT, &name);
        let place = PodRole { role: Role::Server, group: None };
        let layer = Layer { name: "user".to_owned(), content: json!({ "pod": self.pod() }).to_string() };
        let question = TemplateQuestion { layers: vec![layer], admin_layers: Vec::new(), frame: json!({"metadata": {}, "spec": {}}) };
        let template = self.asking.template(&self.subject, place, question, &key);
        let mut template = template.map_err(|undecided| self.undecided(&undecided))?;
        if let Some(Entry::Placed { held, .. }) = self.entry.as_deref() {
            if held.phase != Phase::Stopping {
                fits_reservation(&template["spec"], held)?;
            }
            pin(&mut template["spec"], &held.node);
        }
        let role = Some(Role::Server);
        let pods = self.metadata(MetadataQuestion { key: &key, role, pods: Some(place), template: Some(&template["metadata"]) })?;
        let mut metadata = self.metadata(MetadataQuestion { key: &key, role, pods: None, template: None })?;
        metadata.annotations.insert(MEMORY.to_owned(), self.spec["memory"].as_str().unwrap_or_default().to_owned());
        let template = json!({"metadata": pods.into_value(), "spec": template["spec"]});
        // Two pods of one model never fit at the same time.
        let strategy = Some(json!({"type": "Recreate"}));
        let replicas = Some(i64::from(self.runs()));
        Ok(Object::new(key, workload::deployment(metadata, &self.selector(), replicas, strategy, &template)))
    }

    /// The Service that `backendUrl` names, if that is in the model's namespace.
    pub(super) fn service(&mut self) -> Result<Option<Object>, Box<PlanError>> {
        let url = self.spec["backendUrl"].as_str().unwrap_or_default();
        let Some(backend) = Backend::parse(url, &self.asking.snapshot.subject.key.namespace) else { return Ok(None) };
        let key = self.key(&SERVICE, &backend.service);
        let metadata = self.metadata(MetadataQuestion { key: &key, role: None, pods: None, template: None })?;
        let port = network::Port { name: "http".to_owned(), port: backend.port, target: i64::from(PORT), protocol: "TCP".to_owned() };
        Ok(Some(Object::new(key, network::service(metadata, &self.selector(), &[port]))))
    }

    /// The pod for the model's spec.
    fn pod(&self) -> Value {
        let text = |field: &str| self.spec[field].as_str().unwrap_or_default();
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        let probe = |failures: i64| json!({"httpGet": {"path": HEALTH, "port": PORT}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures});
        let mut pod = json!({
            "containers": [{
                "name": INFERENCE_CONTAINER,
                "image": text("containerImage"),
                "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
                "env": [
                    variable("MODEL_NAME", text("modelName")), variable("BACKEND_URL", text("backendUrl")), variable("PORT", &PORT.to_string()),
                ],
                "startupProbe": probe(STARTUP_PROBES),
                "readinessProbe": probe(3),
                "livenessProbe": probe(3),
                "resources": self.resources(),
            }],
            "nodeSelector": self.model.selector,
        });
        if self.model.needs.gpus > 0 {
            pod["tolerations"] = json!([{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]);
        }
        pod
    }

    /// The resources: memory defaults to `spec.memory`, and GPUs are set under their name in Kubernetes, in both lists.
    fn resources(&self) -> Value {
        let given = &self.spec["resources"];
        let gpus = Some(self.model.needs.gpus).filter(|gpus| *gpus > 0);
        let mut resources = Map::new();
        for list in ["requests", "limits"] {
            let mut amounts = Map::new();
            if let Some(cpu) = given[list]["cpu"].as_str() {
                amounts.insert("cpu".to_owned(), cpu.into());
            }
            let memory = given[list]["memory"].as_str().or_else(|| self.default_memory(list));
            amounts.extend(memory.map(|memory| ("memory".to_owned(), memory.into())));
            amounts.extend(gpus.map(|gpus| (GPU.to_owned(), gpus.to_string().into())));
            resources.insert(list.to_owned(), amounts.into());
        }
        resources.into()
    }

    /// The default memory of a list: the declared one, unless the other list has a lower limit or a higher request.
    fn default_memory(&self, list: &str) -> Option<&str> {
        let other = if list == "requests" { "limits" } else { "requests" };
        let declared = self.spec["memory"].as_str()?;
        let Some(given) = self.spec["resources"][other]["memory"].as_str() else { return Some(declared) };
        let is_smaller = crate::quantity::parse_text(given)? < crate::quantity::parse_text(declared)?;
        // The API server rejects a request above its limit.
        Some(if is_smaller == (list == "requests") { given } else { declared })
    }
}

/// Checks that the pod still fits its reservation after the policies' changes.
fn fits_reservation(spec: &Value, held: &Held) -> Result<(), Box<PlanError>> {
    let mut pod = json!({ "spec": spec });
    pod["spec"]["nodeName"] = held.node.as_str().into();
    let takes = PodUsage::from_object(&pod.to_string()).map(|usage| usage.amounts).unwrap_or_default();
    if takes.fit(held.amounts) {
        return Ok(());
    }
    let message = format!(
        "A pod-templating policy makes its pod larger than the reservation on the node {}: it takes {}. Raise spec.memory and \
         spec.resources to match, or change the policy.",
        held.node,
        takes.lacking(held.amounts, "reserved")
    );
    Err(PlanError::new(Condition::no(ALLOCATED, reasons::FAILED, message)))
}

/// Restricts a pod to one node, in addition to its other node requirements.
fn pin(spec: &mut Value, node: &str) {
    let name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let required = &mut spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    // One matching term suffices, so each term gets the restriction.
    match required["nodeSelectorTerms"].as_array_mut().filter(|terms| !terms.is_empty()) {
        Some(terms) => terms.iter_mut().for_each(|term| match term["matchFields"].as_array_mut() {
            Some(fields) => fields.push(name.clone()),
            None => term["matchFields"] = json!([name]),
        }),
        None => *required = json!({"nodeSelectorTerms": [{"matchFields": [name]}]}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_stays_on_its_node_whatever_else_it_asks_of_nodes() {
        let mut spec = json!({});
        pin(&mut spec, "n1");
        let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let name = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        assert_eq!(spec.pointer(terms).unwrap(), &json!([{"matchFields": [name]}]));
        let zone = json!({"key": "zone", "operator": "Exists"});
        let mut spec = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [zone]}, {"matchFields": [zone]},
        ]}}}});
        pin(&mut spec, "n1");
        let expected = json!([{"matchExpressions": [zone], "matchFields": [name]}, {"matchFields": [zone, name]}]);
        assert_eq!(spec.pointer(terms).unwrap(), &expected);
    }
}
