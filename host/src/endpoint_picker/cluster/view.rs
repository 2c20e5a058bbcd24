//! Computes endpoints, priorities and rewrites from a pool, its pods and the objects that refer to the pool: pure functions.

#[cfg(test)]
mod tests;

use kube::{ResourceExt, api::DynamicObject};
use pointsman_core::pool_refs::PoolUser;
use pointsman_picker::{
    fleet::EndpointSpec,
    rewrite::{ModelRewrite, ModelRewrites, Rule, Target},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// The maximum number of ports per pod that are endpoints.
const MAX_PORTS: usize = 8;

/// The annotations of a pod with the pool's ports that it serves, separated by commas. The first that is set takes precedence.
const ACTIVE_PORTS: [&str; 2] = ["llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"];

/// The fields of an InferencePool that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSpec {
    /// The label selector of its pods, in the API server's format. An empty one selects no pods.
    pub selector: String,
    /// The ports of each pod that serve requests.
    pub ports: Vec<u16>,
    /// The protocol of these ports, if it is set.
    pub app_protocol: Option<String>,
    /// The pool's own labels.
    pub labels: BTreeMap<String, String>,
}

impl PoolSpec {
    /// Parses its spec, in the format of either group.
    pub fn from_object(object: &Value) -> Self {
        let spec = &object["spec"];
        let selector = &spec["selector"];
        // In v1alpha2, the selector is a map of labels.
        let labels = if selector["matchLabels"].is_object() { &selector["matchLabels"] } else { selector };
        let labels = labels.as_object().into_iter().flatten();
        let mut selector: Vec<String> = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
        selector.sort();
        let numbers = spec["targetPorts"].as_array().into_iter().flatten().map(|port| &port["number"]);
        let mut ports = Vec::new();
        for number in numbers.chain([&spec["targetPortNumber"]]) {
            let port = number.as_u64().and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0);
            ports.extend(port.filter(|port| !ports.contains(port)));
        }
        ports.truncate(MAX_PORTS);
        let app_protocol = spec["appProtocol"].as_str().map(str::to_owned);
        Self { selector: selector.join(","), ports, app_protocol, ..Self::default() }
    }
}

/// The fields of a pod that matter here. The pod can serve requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPod {
    uid: Arc<str>,
    name: Arc<str>,
    labels: Arc<BTreeMap<String, String>>,
    ip: IpAddr,
    /// The pool's ports that it serves; all if it has no annotation.
    active_ports: Option<Vec<u16>>,
}

impl PoolPod {
    /// Parses a pod. None if it can't serve requests: it isn't Ready, has no address, or is being deleted.
    pub fn from_object(object: &DynamicObject) -> Option<Self> {
        let status = &object.data["status"];
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        if !is_ready || object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let active_ports = ACTIVE_PORTS.iter().find_map(|key| object.annotations().get(*key));
        Some(Self {
            uid: object.metadata.uid.as_deref().unwrap_or_default().into(),
            name: object.name_any().into(),
            labels: Arc::new(object.labels().clone()),
            ip: status["podIP"].as_str()?.parse().ok()?,
            // Invalid numbers are ignored, as upstream does: an annotation without any number leaves no endpoint.
            active_ports: active_ports.map(|text| text.split(',').filter_map(|port| port.trim().parse().ok()).collect()),
        })
    }

    fn serves(&self, port: u16) -> bool {
        self.active_ports.as_ref().is_none_or(|active| active.contains(&port))
    }
}

/// The endpoints of a pool: each of its ports on each pod that serves the port.
pub fn endpoints<'a>(pool: &PoolSpec, pods: impl IntoIterator<Item = &'a PoolPod>) -> Vec<EndpointSpec> {
    let mut endpoints = Vec::new();
    for pod in pods {
        for port in pool.ports.iter().copied().filter(|port| pod.serves(*port)) {
            endpoints.push(EndpointSpec {
                uid: Arc::clone(&pod.uid),
                pod: Arc::clone(&pod.name),
                address: SocketAddr::new(pod.ip, port),
                labels: Arc::clone(&pod.labels),
            });
        }
    }
    endpoints
}

/// A value from an object for the pool that it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForPool<T> {
    group: &'static str,
    pool: String,
    value: T,
}

impl<T> ForPool<T> {
    /// None if the object is being deleted, or can't refer to a pool. Without a group it refers to a pool of v1, which is the default of
    /// the CRDs.
    fn new(object: &DynamicObject, value: T) -> Option<Self> {
        if object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let user = PoolUser::from_object(&object.data);
        let (group, pool) = user.pool()?;
        Some(Self { group, pool: pool.to_owned(), value })
    }
}

/// Parses the priority of an InferenceObjective.
pub fn read_objective(object: &DynamicObject) -> Option<ForPool<i64>> {
    ForPool::new(object, object.data["spec"]["priority"].as_i64().unwrap_or_default())
}

/// Parses an InferenceModelRewrite.
pub fn read_rewrite(object: &DynamicObject) -> Option<ForPool<ModelRewrite>> {
    let rewrite = ModelRewrite {
        created: object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        name: (object.namespace().unwrap_or_default(), object.name_any()),
        rules: object.data["spec"]["rules"].as_array().into_iter().flatten().filter_map(read_rule).collect(),
    };
    ForPool::new(object, rewrite)
}

fn read_rule(rule: &Value) -> Option<Rule> {
    let matches = rule["matches"].as_array().map(Vec::as_slice).unwrap_or_default();
    let models = matches.iter().map(|matched| &matched["model"]);
    let exact = models.filter(|model| model["type"].as_str().is_none_or(|type_| type_ == "Exact"));
    let models: Vec<String> = exact.filter_map(|model| model["value"].as_str().map(str::to_owned)).collect();
    // Without models, it would apply to all models.
    if models.is_empty() && !matches.is_empty() {
        return None;
    }
    let targets = rule["targets"].as_array().into_iter().flatten().filter_map(|target| {
        let weight = target["weight"].as_u64().and_then(|weight| u32::try_from(weight).ok());
        Some(Target { model: target["modelRewrite"].as_str()?.to_owned(), weight })
    });
    Some(Rule { models, targets: targets.collect() })
}

/// The priorities of the objectives of a pool, which is given by group and name. Of two with one name, that of the later group takes
/// precedence.
pub fn objectives<'a>(pool: (&str, &str), groups: impl IntoIterator<Item = &'a BTreeMap<String, ForPool<i64>>>) -> BTreeMap<String, i64> {
    for_pool(pool, groups).into_iter().map(|(name, priority)| (name.to_owned(), *priority)).collect()
}

/// The rewrites of a pool, which is given by group and name. Of two with one name, that of the later group takes precedence.
pub fn rewrites<'a>(pool: (&str, &str), groups: impl IntoIterator<Item = &'a BTreeMap<String, ForPool<ModelRewrite>>>) -> ModelRewrites {
    ModelRewrites::new(for_pool(pool, groups).into_values().cloned().collect())
}

fn for_pool<'a, T: 'a>(pool: (&str, &str), groups: impl IntoIterator<Item = &'a BTreeMap<String, ForPool<T>>>) -> BTreeMap<&'a str, &'a T> {
    let objects = groups.into_iter().flatten().filter(|(_, object)| (object.group, object.pool.as_str()) == pool);
    objects.map(|(name, object)| (name.as_str(), &object.value)).collect()
}
