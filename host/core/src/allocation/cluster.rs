//! Builds the inputs of an allocation: the models with their reservations, pods and gateway activity, and the nodes with what other pods
//! request.

use super::{
    Activity, Held, Model, Node, ObjectName, Phase,
    inputs::PodUsage,
    records::{GatewayActivity, ModelActivity, Reservations},
};
use crate::{key::ObjectKey, objects::label_value};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// How long a wake is counted, in seconds.
const HOUR: u64 = 3600;

/// The state of the cluster, except for the models' own objects.
#[derive(Clone, Debug)]
pub struct Cluster<'a> {
    /// The nodes as their objects describe them, without the requests of other pods.
    pub nodes: &'a BTreeMap<String, Node>,
    /// The pods that haven't ended, by namespace and name.
    pub pods: &'a BTreeMap<(String, String), PodUsage>,
    /// The activity reported by each live gateway.
    pub gateways: Vec<&'a GatewayActivity>,
    /// The reservations, by node.
    pub places: BTreeMap<&'a str, &'a Reservations>,
    /// The stored history of each model.
    pub histories: &'a BTreeMap<ObjectKey, History>,
    /// For each stopping model, the [`Held::since`] with which its objects were last written.
    pub settled: &'a BTreeMap<ObjectKey, u64>,
}

/// The history of a model, retained while it sleeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The time of the last request, in seconds since 1970.
    pub last_request: Option<u64>,
    /// The duration of its last start, in seconds; none if it has never been ready.
    pub start_seconds: Option<f64>,
    /// The times when it was admitted, in seconds since 1970: the latest ones.
    pub wakes: Vec<u64>,
}

impl History {
    /// The maximum number of wakes that are stored.
    const MAX_WAKES: usize = 60;

    /// Records that the model is admitted.
    pub fn note_wake(&mut self, now: u64) {
        self.wakes.retain(|wake| now.saturating_sub(*wake) < HOUR);
        self.wakes.push(now);
        let surplus = self.wakes.len().saturating_sub(Self::MAX_WAKES);
        self.wakes.drain(..surplus);
    }
}

/// The relevant state of a model's own object and its Deployment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelObject {
    /// The model as its object describes it.
    pub model: Model,
    /// The resource version of its object.
    pub version: u64,
    /// The finalizers of its object.
    pub finalizers: Vec<String>,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// Whether the Deployment exists.
    pub has_deployment: bool,
    /// Whether the Deployment has no pods and requests none; true if it doesn't exist.
    pub scaled_to_zero: bool,
    /// The image of its container.
    pub image: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The labels of its namespace.
    pub namespace_labels: Arc<BTreeMap<String, String>>,
}

/// A reservation without a purpose: the node and the model's name.
pub type Stray = (String, ObjectName);

/// The inputs of an allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// The nodes, with the requests of other pods.
    pub nodes: BTreeMap<String, Node>,
    /// The models, with their reservations, pods and activity.
    pub models: BTreeMap<ObjectKey, Model>,
    /// Reservations to remove: the model is gone or has another reservation.
    pub strays: Vec<Stray>,
}

impl Cluster<'_> {
    /// Combines this state with the models' objects.
    pub fn inputs(&self, objects: &BTreeMap<ObjectKey, ModelObject>, now: u64) -> Inputs {
        let labels: HashMap<(&str, String), &ObjectKey> =
            objects.keys().map(|key| ((key.namespace.as_str(), label_value(&key.name).into_owned()), key)).collect();
        let mut nodes = self.nodes.clone();
        let mut pods: BTreeMap<&ObjectKey, Vec<&PodUsage>> = BTreeMap::new();
        for pod in self.pods.values() {
            let model = pod.model.as_ref().and_then(|(namespace, label)| labels.get(&(namespace.as_str(), label.clone())));
            if let Some(model) = model {
                pods.entry(model).or_default().push(pod);
            } else if let Some(node) = nodes.get_mut(&pod.node) {
                node.others += pod.amounts;
            }
        }
        let (mut places, mut strays) = self.choose_places(objects, &pods);
        let mut seen = self.seen();
        let models = objects.iter().map(|(key, object)| {
            let pods = pods.remove(key).unwrap_or_default();
            let held = places.remove(key);
            let seen = seen.remove(&ObjectName::new(key)).unwrap_or_default();
            let activity = self.activity(key, object, held.as_ref(), &pods, &seen, now);
            let pods = pods.into_iter().map(|pod| (pod.node.clone(), pod.amounts)).collect();
            let off = object.model.off || object.deleting;
            (key.clone(), Model { off, held, pods, activity, ..object.model.clone() })
        });
        let models = models.collect();
        strays.sort();
        Inputs { nodes, models, strays }
    }

    /// The reservation of each model, and the strays.
    fn choose_places(
        &self,
        objects: &BTreeMap<ObjectKey, ModelObject>,
        pods: &BTreeMap<&ObjectKey, Vec<&PodUsage>>,
    ) -> (BTreeMap<ObjectKey, Held>, Vec<Stray>) {
        let by_name: HashMap<ObjectName, &ObjectKey> = objects.keys().map(|key| (ObjectName::new(key), key)).collect();
        let mut places: BTreeMap<ObjectKey, Held> = BTreeMap::new();
        let mut strays = Vec::new();
        for (node, reservations) in &self.places {
            for (name, reservation) in *reservations {
                let Some(&key) = by_name.get(name) else {
                    strays.push(((*node).to_owned(), name.clone()));
                    continue;
                };
                let found = reservation.held(node);
                // Two hosts that both considered themselves the leader may each have written a reservation. The one with a running pod
                // takes precedence. Pods on the other node are counted even without a reservation.
                let rank = |held: &Held| (pods.get(key).is_some_and(|pods| pods.iter().any(|pod| pod.node == held.node)), held.since);
                let stray = match places.get(key) {
                    Some(known) if rank(known) >= rank(&found) => found,
                    _ => match places.insert(key.clone(), found) {
                        Some(known) => known,
                        None => continue,
                    },
                };
                strays.push((stray.node, name.clone()));
            }
        }
        (places, strays)
    }

    /// The activity of all gateways, summed per model.
    fn seen(&self) -> HashMap<ObjectName, ModelActivity> {
        let mut seen: HashMap<ObjectName, ModelActivity> = HashMap::new();
        let earlier = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        for (name, model) in self.gateways.iter().flat_map(|gateway| &gateway.models) {
            let sum = seen.entry(name.clone()).or_default();
            sum.in_flight += model.in_flight;
            sum.waiting += model.waiting;
            sum.waiting_since = earlier(sum.waiting_since, model.waiting_since);
            sum.last_request = sum.last_request.max(model.last_request);
            let rates = [sum.requests_per_second, model.requests_per_second];
            sum.requests_per_second = rates.into_iter().flatten().reduce(|a, b| a + b);
        }
        seen
    }

    fn activity(
        &self,
        key: &ObjectKey,
        object: &ModelObject,
        held: Option<&Held>,
        pods: &[&PodUsage],
        seen: &ModelActivity,
        now: u64,
    ) -> Activity {
        let history = self.histories.get(key);
        let ready = pods.iter().filter(|pod| pod.ready_since.is_some()).min_by_key(|pod| pod.ready_since);
        let ready_since = ready.and_then(|pod| pod.ready_since);
        // The start time of a restarted pod is no longer known.
        #[allow(clippy::cast_precision_loss, reason = "seconds")]
        let start_seconds = ready.filter(|pod| !pod.restarted).and_then(|pod| Some(pod.ready_since?.saturating_sub(pod.created) as f64));
        let wakes = history.map_or(0, |history| history.wakes.iter().filter(|wake| now.saturating_sub(**wake) < HOUR).count());
        let is_settled = |held: &Held| held.phase != Phase::Stopping || self.settled.get(key) == Some(&held.since);
        Activity {
            in_flight: seen.in_flight,
            waiting: seen.waiting,
            waiting_since: seen.waiting_since,
            requests_per_second: seen.requests_per_second,
            last_request: seen.last_request.max(history.and_then(|history| history.last_request)),
            ready_since,
            drained: held.is_some_and(|held| self.is_drained(key, held)),
            // A write of an older plan may still be in flight and would start a pod. For a model that is being deleted, the Deployment must
            // be gone too.
            scaled_to_zero: object.scaled_to_zero
                && held.is_none_or(is_settled)
                && !(object.deleting && held.is_some() && object.has_deployment),
            wakes: u32::try_from(wakes).unwrap_or(u32::MAX),
            start_seconds: start_seconds.or_else(|| history.and_then(|history| history.start_seconds)),
            ran: ready_since.is_some() || history.is_some_and(|history| history.start_seconds.is_some()),
        }
    }

    /// Whether each live gateway confirms that it no longer routes to a model and has no requests in flight.
    pub fn is_drained(&self, key: &ObjectKey, held: &Held) -> bool {
        let name = ObjectName::new(key);
        self.gateways
            .iter()
            .all(|gateway| gateway.models.get(&name).is_some_and(|model| model.drained == Some(held.since) && model.in_flight == 0))
    }

    /// The reservations that were made for a root model which has none itself: a host ended between the two writes. They are removed before
    /// any pod starts under them, except for those of models that had a reservation before (`is_known`).
    pub fn unfinished(&self, objects: &BTreeMap<ObjectKey, ModelObject>, is_known: impl Fn(&ObjectKey) -> bool) -> Vec<Stray> {
        let reserved: BTreeSet<&ObjectName> = self.places.values().flat_map(|reservations| reservations.keys()).collect();
        let busy: BTreeSet<(&str, &str)> = self
            .pods
            .values()
            .filter_map(|pod| pod.model.as_ref())
            .map(|(namespace, label)| (namespace.as_str(), label.as_str()))
            .collect();
        let is_idle = |name: &ObjectName| {
            let found = objects.iter().find(|(key, _)| ObjectName::new(key) == *name);
            found.is_none_or(|(key, object)| {
                object.scaled_to_zero && !is_known(key) && !busy.contains(&(key.namespace.as_str(), label_value(&key.name).as_ref()))
            })
        };
        let mut unfinished = Vec::new();
        for (node, reservations) in &self.places {
            for (name, reservation) in *reservations {
                let is_lost = reservation.root.as_ref().is_some_and(|root| !reserved.contains(root));
                if is_lost && reservation.phase == Phase::Admitted && is_idle(name) {
                    unfinished.push(((*node).to_owned(), name.clone()));
                }
            }
        }
        unfinished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        allocation::{amounts::Amounts, records::Reservation},
        resource::INFERENCE_MODEL,
    };

    fn key(name: &str) -> ObjectKey {
        ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: name.to_owned() }
    }

    fn name(name: &str) -> ObjectName {
        ObjectName(format!("ml/{name}"))
    }

    fn amounts(memory: i64) -> Amounts {
        Amounts { memory, cpu: 0, gpus: 0, pods: 1 }
    }

    fn pod(node: &str, model: Option<&str>, memory: i64) -> PodUsage {
        let model = model.map(|model| ("ml".to_owned(), model.to_owned()));
        PodUsage { node: node.to_owned(), amounts: amounts(memory), model, ..PodUsage::default() }
    }

    /// Owns the parts that a `Cluster` borrows.
    #[derive(Default)]
    struct Parts {
        pods: BTreeMap<(String, String), PodUsage>,
        places: BTreeMap<String, Reservations>,
        gateways: BTreeMap<String, GatewayActivity>,
        histories: BTreeMap<ObjectKey, History>,
        settled: BTreeMap<ObjectKey, u64>,
    }

    impl Parts {
        fn inputs(&self, objects: &BTreeMap<ObjectKey, ModelObject>, now: u64) -> Inputs {
            let nodes = ["a", "b"].map(|node| (node.to_owned(), Node::default())).into();
            self.cluster(&nodes).inputs(objects, now)
        }

        fn cluster<'a>(&'a self, nodes: &'a BTreeMap<String, Node>) -> Cluster<'a> {
            let Self { pods, places, gateways, histories, settled } = self;
            let places = places.iter().map(|(node, places)| (node.as_str(), places)).collect();
            Cluster { nodes, pods, gateways: gateways.values().collect(), places, histories, settled }
        }
    }

    fn cluster(pods: Vec<PodUsage>, places: &[(&str, &str, u64)]) -> Parts {
        let mut cluster = Parts::default();
        for (at, pod) in pods.into_iter().enumerate() {
            cluster.pods.insert(("ml".to_owned(), at.to_string()), pod);
        }
        for (node, model, since) in places {
            let reservation = Reservation { amounts: amounts(10), since: *since, ..Reservation::default() };
            cluster.places.entry((*node).to_owned()).or_default().insert(name(model), reservation);
        }
        cluster
    }

    fn objects(names: &[&str]) -> BTreeMap<ObjectKey, ModelObject> {
        names.iter().map(|name| (key(name), ModelObject { scaled_to_zero: true, ..ModelObject::default() })).collect()
    }

    #[test]
    fn pods_of_models_are_theirs_and_all_others_take_of_the_nodes() {
        let pods =
            vec![pod("a", Some("llama"), 5), pod("a", Some("gone"), 7), pod("a", None, 1), pod("", None, 9), pod("", Some("llama"), 5)];
        let inputs = cluster(pods, &[]).inputs(&objects(&["llama"]), 0);
        assert_eq!((inputs.nodes["a"].others.memory, inputs.nodes["b"].others.memory), (8, 0));
        assert_eq!(inputs.models[&key("llama")].pods.len(), 2, "one without a node is a pod as well");
    }

    #[test]
    fn of_two_places_the_one_with_the_pod_counts_and_those_of_nobody_are_strays() {
        let places = [("a", "llama", 1), ("b", "llama", 2), ("b", "gone", 3)];
        let found = |pods: Vec<PodUsage>| {
            let inputs = cluster(pods, &places).inputs(&objects(&["llama"]), 0);
            (inputs.models[&key("llama")].held.as_ref().unwrap().node.clone(), inputs.strays)
        };
        let gone = ("b".to_owned(), name("gone"));
        assert_eq!(found(vec![pod("a", Some("llama"), 5)]), ("a".to_owned(), vec![gone.clone(), ("b".to_owned(), name("llama"))]));
        assert_eq!(found(Vec::new()), ("b".to_owned(), vec![("a".to_owned(), name("llama")), gone]));
    }

    #[test]
    fn gateways_add_up_and_a_draining_needs_the_confirmation_of_each_that_lives() {
        let mut cluster = cluster(Vec::new(), &[("a", "llama", 7)]);
        let seen = |drained: Option<u64>, last: u64| {
            let activity = ModelActivity {
                waiting: 1,
                waiting_since: Some(last),
                last_request: Some(last),
                requests_per_second: Some(0.5),
                drained,
                ..ModelActivity::default()
            };
            GatewayActivity { written: 0, models: BTreeMap::from([(name("llama"), activity)]) }
        };
        cluster.histories.insert(key("llama"), History { last_request: Some(3), start_seconds: Some(9.0), wakes: vec![1, 3000] });
        let read = |cluster: &Parts| cluster.inputs(&objects(&["llama"]), 4000).models[&key("llama")].activity.clone();
        let alone = read(&cluster);
        assert_eq!((alone.last_request, alone.wakes, alone.ran, alone.drained), (Some(3), 1, true, true), "there is no gateway to ask");
        cluster.gateways.insert("one".to_owned(), seen(Some(7), 5));
        cluster.gateways.insert("two".to_owned(), seen(Some(6), 4));
        let both = read(&cluster);
        assert_eq!((both.waiting, both.waiting_since, both.last_request, both.drained), (2, Some(4), Some(5), false));
        assert_eq!(both.requests_per_second, Some(1.0));
        cluster.gateways.insert("two".to_owned(), seen(Some(7), 4));
        assert!(read(&cluster).drained);
        cluster.gateways.insert("three".to_owned(), GatewayActivity::default());
        assert!(!read(&cluster).drained, "one that has never seen it may route to it still");
    }

    #[test]
    fn a_model_that_stops_is_at_zero_once_its_objects_were_written_since() {
        let mut cluster = cluster(Vec::new(), &[("a", "llama", 7)]);
        cluster.places.get_mut("a").unwrap().get_mut(&name("llama")).unwrap().phase = Phase::Stopping;
        let at_zero = |cluster: &Parts, deleting: bool, has_deployment: bool| {
            let object = ModelObject { deleting, has_deployment, scaled_to_zero: true, ..ModelObject::default() };
            cluster.inputs(&BTreeMap::from([(key("llama"), object)]), 0).models[&key("llama")].activity.scaled_to_zero
        };
        assert!(!at_zero(&cluster, false, true));
        cluster.settled.insert(key("llama"), 6);
        assert!(!at_zero(&cluster, false, true), "that was for a former place");
        cluster.settled.insert(key("llama"), 7);
        assert!(at_zero(&cluster, false, true) && at_zero(&cluster, true, false) && !at_zero(&cluster, true, true));
    }

    #[test]
    fn what_was_admitted_for_a_model_without_a_place_is_taken_back_unless_it_runs() {
        let mut cluster =
            cluster(vec![pod("a", Some("runs"), 1)], &[("a", "tokens", 1), ("a", "runs", 1), ("b", "whole", 1), ("b", "root", 1)]);
        for (node, model, root) in [("a", "tokens", "lost"), ("a", "runs", "lost"), ("b", "whole", "root")] {
            cluster.places.get_mut(node).unwrap().get_mut(&name(model)).unwrap().root = Some(name(root));
        }
        let objects = objects(&["tokens", "runs", "whole", "root"]);
        assert_eq!(cluster.cluster(&BTreeMap::new()).unfinished(&objects, |_| false), [("a".to_owned(), name("tokens"))]);
        assert_eq!(cluster.cluster(&BTreeMap::new()).unfinished(&objects, |known| *known == key("tokens")), []);
    }

    #[test]
    fn wakings_of_the_last_hour_are_remembered_and_not_too_many() {
        let mut history = History::default();
        history.note_wake(1);
        (0..100).for_each(|at| history.note_wake(5000 + at));
        assert_eq!((history.wakes.len(), history.wakes.first(), history.wakes.last()), (60, Some(&5040), Some(&5099)));
    }
}
