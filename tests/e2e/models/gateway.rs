//! A simulated gateway: it serves requests for a given time, queues those whose model sleeps, and confirms that models are drained. The
//! real gateway has its own tests.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use pointsman_core::{
    allocation::{
        ObjectName, Phase,
        records::{GATEWAY_PREFIX, ModelActivity, Reservation},
    },
    resource::INFERENCE_MODEL,
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// A request.
struct Asked {
    model: ObjectName,
    takes: Duration,
    since: u64,
    /// When the response ends; `None` while the request is queued.
    answered: Option<Instant>,
}

pub(super) struct Gateway {
    client: Client,
    namespace: String,
    name: String,
    requests: Vec<Asked>,
    last: BTreeMap<ObjectName, u64>,
    written: u64,
    /// The number of completed requests.
    pub(super) answered: usize,
}

impl Gateway {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        let name = format!("{GATEWAY_PREFIX}{name}");
        Self { client, namespace: namespace.to_owned(), name, requests: Vec::new(), last: BTreeMap::new(), written: 0, answered: 0 }
    }

    pub(super) fn ask(&mut self, model: &str, takes: Duration) {
        let model = ObjectName(format!("{}/{model}", self.namespace));
        self.requests.push(Asked { model, takes, since: super::now(), answered: None });
    }

    /// The number of requests that are queued or being served.
    pub(super) fn open(&self) -> usize {
        self.requests.len()
    }

    /// Cancels the queued requests, as clients do.
    pub(super) fn give_up(&mut self) {
        self.requests.retain(|request| request.answered.is_some());
    }

    async fn has_node(&self, name: &str) -> bool {
        Api::<Node>::all(self.client.clone()).get_opt(name).await.unwrap().is_some()
    }

    /// Reads the state of the cluster, serves the requests whose models are ready, and writes its activity.
    pub(super) async fn tick(&mut self) {
        let mut places: BTreeMap<ObjectName, (String, Reservation)> = BTreeMap::new();
        for (node, reserved) in super::reservations(&self.client).await.0 {
            places.extend(reserved.into_iter().map(|(model, place)| (model, (node.clone(), place))));
        }
        let models: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &INFERENCE_MODEL.api_resource());
        let models = models.list(&ListParams::default()).await.unwrap();
        let name = |model: &DynamicObject| ObjectName(format!("{}/{}", self.namespace, model.metadata.name.clone().unwrap()));
        let ready: BTreeMap<ObjectName, bool> =
            models.iter().map(|model| (name(model), model.data.pointer("/status/ready") == Some(&json!(true)))).collect();
        let admitted: BTreeSet<&ObjectName> =
            places.iter().filter(|(_, (_, place))| place.phase == Phase::Admitted).map(|(name, _)| name).collect();
        self.requests.retain(|request| ready.contains_key(&request.model));
        for request in &mut self.requests {
            if request.answered.is_none() && admitted.contains(&request.model) && ready[&request.model] {
                request.answered = Some(Instant::now() + request.takes);
                self.last.insert(request.model.clone(), super::now());
            }
        }
        let before = self.requests.len();
        self.requests.retain(|request| request.answered.is_none_or(|until| until > Instant::now()));
        self.answered += before - self.requests.len();
        let mut seen: BTreeMap<ObjectName, ModelActivity> = BTreeMap::new();
        for (model, last) in self.last.iter().filter(|(model, _)| ready.contains_key(*model)) {
            seen.entry(model.clone()).or_default().last_request = Some(*last);
        }
        for request in &self.requests {
            let activity = seen.entry(request.model.clone()).or_default();
            if request.answered.is_some() {
                activity.in_flight += 1;
            } else {
                activity.waiting += 1;
                activity.waiting_since = activity.waiting_since.into_iter().chain([request.since]).min();
                activity.last_request = activity.last_request.max(Some(request.since));
            }
        }
        for (model, (node, place)) in &places {
            if place.phase == Phase::Stopping && !self.has_node(node).await {
                // The node is gone, and its requests with it: clients retry.
                self.requests.iter_mut().filter(|request| request.model == *model).for_each(|request| request.answered = None);
                seen.remove(model);
                continue;
            }
            let in_flight = seen.get(model).map_or(0, |activity| activity.in_flight);
            assert!(place.phase != Phase::Stopping || in_flight == 0, "{model} is stopped while {in_flight} requests are answered");
            if matches!(place.phase, Phase::Draining(_)) && in_flight == 0 {
                seen.entry(model.clone()).or_default().drained = Some(place.since);
            }
        }
        self.written += 1;
        super::write_activity(&self.client, &self.name, self.written, seen).await;
    }
}
