//! The retained parts of an adopted object, which keep its pods from restarting.

use super::child::SUBJECT_KIND;
use crate::{resource::Resource, workload};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The annotation of an adoption: with the previous manager on an object, with the time on a subject.
pub const ADOPTED: &str = "pointsman.dev/adopted";

/// The annotation of a subject with the workloads that were adopted with it, as KIND/NAME.
pub const WORKLOADS: &str = "pointsman.dev/adopted-workloads";

/// The maximum number of adopted workloads of a subject: more than any subject has.
const MAX_WORKLOADS: usize = 16;

/// Parses the annotation [`WORKLOADS`]: returns the workloads, and why the rest is invalid.
pub fn workloads(text: &str) -> (Vec<(&'static Resource, String)>, Option<String>) {
    let mut known = Vec::new();
    let mut problem = None;
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let workload = entry.split_once('/').and_then(|(kind, name)| {
            let resource = workload::WORKLOADS.iter().map(|workload| workload.resource).find(|resource| resource.kind == kind)?;
            is_object_name(name).then(|| (resource, name.to_owned()))
        });
        match workload {
            Some(workload) if known.len() < MAX_WORKLOADS => known.push(workload),
            Some(_) => problem = Some(format!("names more than {MAX_WORKLOADS} workloads; the others are ignored")),
            None => {
                let shown: String = entry.chars().take(80).collect();
                problem = Some(format!("has the entry {shown:?}, which is ignored: it must be KIND/NAME of a workload"));
            }
        }
        if problem.is_some() {
            break;
        }
    }
    (known, problem)
}

/// Whether a name is valid for an object: a DNS subdomain.
pub fn is_object_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|part| {
            part.bytes().all(|byte| inner(byte) || byte == b'-')
                && part.bytes().next().is_some_and(inner)
                && part.bytes().next_back().is_some_and(inner)
        })
}

/// The labels with which controllers, including ours, name an object's component.
const COMPONENT: [&str; 3] = ["component", "ome.io/component", "serving.ome.io/component"];

/// The fields of a Service that determine how it is reached from outside the cluster, in addition to those of its load balancer.
const EXPOSED: [&str; 5] = ["type", "ports", "externalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts"];

/// The state of an object that another controller created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The manager from which it was adopted.
    pub from: String,
    /// Its component of the subject, by its labels.
    pub component: Option<String>,
    /// Its spec without the number of replicas, if it runs pods.
    pub runs: Option<Map<String, Value>>,
    /// The fields that determine how it is reached from outside the cluster, if it is such a Service: clients know its addresses and ports.
    pub exposed: Option<Map<String, Value>>,
}

impl Adopted {
    /// Parses a live object; none if it isn't adopted.
    pub fn from_live(live: &Value) -> Option<Self> {
        let metadata = &live["metadata"];
        let from = metadata.get("annotations")?.get(ADOPTED)?.as_str()?.to_owned();
        let component = COMPONENT.iter().find_map(|key| metadata["labels"][*key].as_str()).map(str::to_owned);
        let spec = live.get("spec").and_then(Value::as_object);
        let runs = spec.filter(|spec| spec.contains_key("template") || spec.contains_key("leaderWorkerTemplate"));
        let runs = runs.map(|spec| {
            let kept = spec.iter().filter(|(key, _)| *key != "replicas");
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        });
        let exposes = |spec: &&Map<String, Value>| spec.get("type").is_some_and(|type_| type_ == "LoadBalancer" || type_ == "NodePort");
        let exposed = spec.filter(exposes).map(|spec| {
            let kept = spec.iter().filter(|(key, _)| EXPOSED.contains(&key.as_str()) || key.starts_with("loadBalancer"));
            kept.map(|(key, value)| (key.clone(), value.clone())).collect()
        });
        Some(Self { from, component, runs, exposed })
    }

    /// Its live pod templates: a Deployment's, or those of leaders and workers.
    pub fn templates(&self) -> Vec<&Value> {
        let Some(runs) = &self.runs else { return Vec::new() };
        let group = runs.get("leaderWorkerTemplate");
        let of_group = ["leaderTemplate", "workerTemplate"].map(|place| group.and_then(|group| group.get(place)));
        runs.get("template").into_iter().chain(of_group.into_iter().flatten()).filter(|template| template.is_object()).collect()
    }

    /// Whether its templates are still those of the other controller: ours have our label.
    pub fn is_unchanged_since_adoption(&self) -> bool {
        self.templates().iter().any(|template| template["metadata"]["labels"].get(SUBJECT_KIND).is_none())
    }

    /// Its pod selector, which never changes.
    pub fn selector(&self) -> Option<BTreeMap<String, String>> {
        let labels = self.runs.as_ref()?.get("selector")?.get("matchLabels")?.as_object()?;
        Some(labels.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect())
    }
}

/// The value without nulls: the API server returns some for absent fields.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let some = fields.iter().filter(|(_, value)| !value.is_null());
            some.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_runs_is_kept_but_for_its_number_and_ours_is_told_by_its_label() {
        let mut live = json!({
            "metadata": {"annotations": {ADOPTED: "manager"}, "labels": {"component": "engine"}},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "isvc.chat-engine"}},
                "template": {"metadata": {"creationTimestamp": null, "labels": {"app": "isvc.chat-engine"}}, "spec": {}},
            },
        });
        let adopted = Adopted::from_live(&live).unwrap();
        assert_eq!((adopted.from.as_str(), adopted.component.as_deref()), ("manager", Some("engine")));
        assert_eq!(adopted.templates(), [&json!({"metadata": {"labels": {"app": "isvc.chat-engine"}}, "spec": {}})]);
        assert!(adopted.is_unchanged_since_adoption() && !adopted.runs.as_ref().unwrap().contains_key("replicas"));
        assert_eq!(adopted.selector().unwrap()["app"], "isvc.chat-engine");
        live["spec"]["template"]["metadata"]["labels"][SUBJECT_KIND] = "InferenceService".into();
        assert!(!Adopted::from_live(&live).unwrap().is_unchanged_since_adoption());
        live["metadata"]["annotations"] = json!({});
        assert_eq!(Adopted::from_live(&live), None);
    }

    #[test]
    fn what_runs_no_pods_keeps_nothing() {
        let live = json!({"metadata": {"annotations": {ADOPTED: "manager"}}, "spec": {"selector": {"app": "a"}}});
        let adopted = Adopted::from_live(&live).unwrap();
        assert!(adopted.runs.is_none() && adopted.templates().is_empty() && !adopted.is_unchanged_since_adoption());
    }

    #[test]
    fn only_workloads_that_there_can_be_are_looked_for() {
        let (known, problem) = workloads("Deployment/a-engine,LeaderWorkerSet/lws-a");
        let known: Vec<_> = known.iter().map(|(resource, name)| (resource.kind, name.as_str())).collect();
        assert_eq!((known, problem), (vec![("Deployment", "a-engine"), ("LeaderWorkerSet", "lws-a")], None));
        for odd in ["Secret/a", "Deployment/x/proxy/path", "Deployment/..", "Deployment/", "Deployment", "Deployment/A", "Deployment/a?b"] {
            let (known, problem) = workloads(odd);
            assert!(known.is_empty() && problem.is_some_and(|problem| problem.contains(odd)), "{odd}");
        }
        let many: Vec<String> = (0..40_000).map(|number| format!("Deployment/a-{number}")).collect();
        let (known, problem) = workloads(&many.join(","));
        assert_eq!((known.len(), problem.as_deref()), (16, Some("names more than 16 workloads; the others are ignored")));
    }
}
