//! The available models, by the name in requests: an immutable view, replaced as a whole, over state that stays.

use super::{
    error::GatewayError,
    model::{Gate, Model, Shared},
};
use arc_swap::ArcSwap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use pointsman_core::{allocation::ObjectName, selector::selects};
use pointsman_sandbox::sync::locked;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

/// The callers that may use a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllowList {
    /// The namespaces of callers. None: no limit by name.
    pub namespaces: Option<BTreeSet<String>>,
    /// The labels of their namespaces. None: no limit by labels.
    pub selector: Option<LabelSelector>,
}

impl AllowList {
    /// Whether a caller of this namespace may use the model: it must be in one of the lists, unless there are none.
    pub fn allows(&self, namespace: Option<&str>, labels: impl Fn(&str) -> BTreeMap<String, String>) -> bool {
        if self.namespaces.is_none() && self.selector.is_none() {
            return true;
        }
        let Some(namespace) = namespace else { return false };
        let is_listed = self.namespaces.as_ref().is_some_and(|listed| listed.contains(namespace));
        is_listed
            || self.selector.as_ref().is_some_and(|selector| {
                let labels = labels(namespace);
                selects(selector, |key| labels.get(key).map(String::as_str))
            })
    }
}

/// A model in the cluster.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its namespace and name.
    pub key: ObjectName,
    /// The name in requests.
    pub name: String,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// The callers that may use it.
    pub allowed: AllowList,
    /// Whether requests may go to it.
    pub gate: Gate,
}

/// An available model.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name in requests.
    pub name: String,
    /// Its state.
    pub model: Arc<Model>,
    /// The callers that may use it.
    pub allowed: AllowList,
    /// When it was created, in seconds since 1970.
    pub created: u64,
}

impl Entry {
    /// The namespace of the model.
    pub fn namespace(&self) -> &str {
        self.model.key().0.split_once('/').map_or("", |(namespace, _)| namespace)
    }
}

/// All models at one moment.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    entries: BTreeMap<String, Arc<Entry>>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Catalog {
    /// The model with this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// All models, by name.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    /// Whether a caller of this namespace may use a model.
    pub fn allows(&self, entry: &Entry, namespace: Option<&str>) -> bool {
        entry.allowed.allows(namespace, |name| self.namespaces.get(name).cloned().unwrap_or_default())
    }
}

/// The catalog, and the state of each model.
#[derive(Debug)]
pub struct Models {
    current: ArcSwap<Catalog>,
    known: Mutex<BTreeMap<ObjectName, Arc<Model>>>,
    shared: Arc<Shared>,
}

impl Models {
    /// Creates an empty catalog.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { current: ArcSwap::default(), known: Mutex::default(), shared }
    }

    /// The current catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// The state that all models share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The state of each known model.
    pub fn all(&self) -> Vec<Arc<Model>> {
        locked(&self.known).values().cloned().collect()
    }

    /// Replaces the catalog, the labels of namespaces, and the drainings of deleted models, each given by its
    /// [`Reservation::since`](pointsman_core::allocation::records::Reservation::since).
    pub fn update(
        &self,
        mut definitions: Vec<Definition>,
        drains: &BTreeMap<ObjectName, u64>,
        namespaces: BTreeMap<String, BTreeMap<String, String>>,
    ) {
        let mut known = locked(&self.known);
        // If two models have the same name, the older one gets it.
        definitions.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        let mut entries = BTreeMap::new();
        let mut present = BTreeSet::new();
        for definition in definitions {
            let Definition { key, name, created, allowed, gate } = definition;
            let model = self.state(&mut known, &key);
            model.set_gate(gate);
            present.insert(key);
            entries.entry(name.clone()).or_insert_with(|| Arc::new(Entry { name, model, allowed, created }));
        }
        for (key, since) in drains.iter().filter(|(key, _)| !present.contains(*key)) {
            self.state(&mut known, key).set_gate(Gate::Refused { drain: Some(*since), answer: gone(key) });
        }
        for (key, model) in known.iter().filter(|(key, _)| !present.contains(*key) && !drains.contains_key(*key)) {
            model.set_gate(Gate::Refused { drain: None, answer: gone(key) });
        }
        // Requests in flight to a deleted model still matter if its reservation drains later.
        known.retain(|key, model| present.contains(key) || drains.contains_key(key) || !model.is_idle());
        self.current.store(Arc::new(Catalog { entries, namespaces }));
    }

    /// The state of a model. It starts as that of a missing one, so that its first gate is a change that hosts may wait for.
    fn state(&self, known: &mut BTreeMap<ObjectName, Arc<Model>>, key: &ObjectName) -> Arc<Model> {
        let begin = || Arc::new(Model::new(key.clone(), Arc::clone(&self.shared), Gate::Refused { drain: None, answer: gone(key) }));
        Arc::clone(known.entry(key.clone()).or_insert_with(begin))
    }
}

fn gone(key: &ObjectName) -> GatewayError {
    GatewayError::model_not_found(&key.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::target::Target;

    fn definition(key: &str, name: &str, created: u64) -> Definition {
        let gate = Gate::Open(Arc::new(Target::parse("http://vllm", "ml", "cluster.local").unwrap()));
        Definition { key: ObjectName(key.to_owned()), name: name.to_owned(), created, allowed: AllowList::default(), gate }
    }

    fn models() -> Models {
        Models::new(Arc::new(Shared::new(0, 10)))
    }

    #[test]
    fn of_two_models_with_one_name_the_older_has_it() {
        let models = models();
        let owner = |definitions: &[(&str, u64)]| {
            let definitions = definitions.iter().map(|(key, created)| definition(key, "llama", *created)).collect();
            models.update(definitions, &BTreeMap::new(), BTreeMap::new());
            models.catalog().find("llama").unwrap().model.key().0.clone()
        };
        assert_eq!(owner(&[("a/new", 2), ("b/old", 1)]), "b/old");
        assert_eq!(owner(&[("b/x", 1), ("a/x", 1)]), "a/x");
    }

    #[test]
    fn what_is_in_flight_to_a_deleted_model_counts_until_its_place_has_drained() {
        use crate::gateway::model::Admission;
        let models = models();
        models.update(vec![definition("a/x", "x", 1)], &BTreeMap::new(), BTreeMap::new());
        let Admission::Granted(in_flight) = models.catalog().find("x").unwrap().model.admit(0) else { panic!("it is open") };
        models.update(Vec::new(), &BTreeMap::new(), BTreeMap::new());
        assert!(models.catalog().find("x").is_none());
        let drains = BTreeMap::from([(ObjectName("a/x".to_owned()), 7)]);
        models.update(Vec::new(), &drains, BTreeMap::new());
        let drained = || models.all()[0].activity().unwrap().drained;
        assert_eq!(drained(), None);
        drop(in_flight);
        assert_eq!(drained(), Some(7));
        models.update(Vec::new(), &BTreeMap::new(), BTreeMap::new());
        assert!(models.all().is_empty());
    }

    #[test]
    fn either_list_allows_and_without_a_namespace_none_does() {
        let labels = |_: &str| BTreeMap::from([("team".to_owned(), "ml".to_owned())]);
        let by_label = |value: &str| {
            let labels = BTreeMap::from([("team".to_owned(), value.to_owned())]);
            Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() })
        };
        let named = |name: &str| Some(BTreeSet::from([name.to_owned()]));
        for (namespaces, selector, expected) in [
            (None, None, true),
            (named("a"), None, true),
            (named("b"), None, false),
            (None, by_label("ml"), true),
            (None, by_label("other"), false),
            (named("b"), by_label("ml"), true),
        ] {
            let list = AllowList { namespaces, selector };
            assert_eq!(list.allows(Some("a"), labels), expected, "{list:?}");
            assert_eq!(list.allows(None, labels), list == AllowList::default(), "{list:?}");
        }
    }
}
