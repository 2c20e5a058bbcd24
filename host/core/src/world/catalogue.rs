//! Models, weights and runtimes: a change of one requires new plans for the services that depend on it, and is counted for followers.

use super::{
    ObjectKey, Read, Subscriber, Surroundings, World,
    ome::{ModelView, RuntimeView, WeightView},
};
use crate::resource::{BASE_MODEL, CLUSTER_BASE_MODEL};
use std::sync::Arc;

impl World {
    pub(super) fn set_model(&mut self, key: ObjectKey, model: Option<ModelView>) {
        Arc::make_mut(&mut self.models).set(&key.namespace, &key.name, model);
        self.model_changes += 1;
        self.catalogue_changes += 1;
        self.model_followers.note(|changed| _ = changed.insert(key.clone()));
        self.changed(&Read::Object(key));
    }

    pub(super) fn set_weight(&mut self, key: ObjectKey, weight: Option<WeightView>) {
        let before = self.weights.get(&key.namespace, &key.name);
        // Our own writes don't affect services.
        let serves_the_same = before.zip(weight.as_ref()).is_some_and(|(before, weight)| before.serves_the_same(weight));
        Arc::make_mut(&mut self.weights).set(&key.namespace, &key.name, weight);
        self.catalogue_changes += 1;
        if !serves_the_same {
            self.changed(&Read::Object(key));
        }
    }

    /// Subscribes to changes of models, starting with all known ones, until the subscriber is dropped.
    pub fn follow_models(&mut self) -> Arc<Subscriber> {
        let all = [&BASE_MODEL, &CLUSTER_BASE_MODEL].into_iter().flat_map(|resource| self.keys(resource)).collect();
        self.model_followers.add(all)
    }

    /// The number of changes of models.
    pub fn model_changes(&self) -> u64 {
        self.model_changes
    }

    /// The number of changes of models, weights, runtimes, and of the parts of subjects that refer to them.
    pub fn catalogue_changes(&self) -> u64 {
        self.catalogue_changes
    }

    /// A model in the cluster.
    pub fn model(&self, key: &ObjectKey) -> Option<Arc<ModelView>> {
        self.models.get(&key.namespace, &key.name).cloned()
    }

    /// Models, weights and runtimes, and all subjects, which may use them.
    pub fn catalogue(&self) -> Surroundings {
        Surroundings {
            created: None,
            models: Arc::clone(&self.models),
            runtimes: Arc::clone(&self.runtimes),
            weights: Arc::clone(&self.weights),
            crowd: self.crowd.clone(),
        }
    }

    pub(super) fn set_runtime(&mut self, key: ObjectKey, runtime: Option<RuntimeView>) {
        let before = self.runtimes.all.get(&key.namespace, &key.name);
        // Services that might use it only depend on the fields that make it a candidate.
        let candidate = before.map(|before| &before.candidate) != runtime.as_ref().map(|runtime| &runtime.candidate);
        // Our own writes don't affect services.
        let serves_the_same = before.zip(runtime.as_ref()).is_some_and(|(before, runtime)| before.serves_the_same(runtime));
        self.catalogue_changes += 1;
        Arc::make_mut(&mut self.runtimes).set(&key.namespace, &key.name, runtime, candidate);
        if candidate {
            self.changed(&Read::Candidates(key.namespace.clone()));
        }
        if !serves_the_same {
            self.changed(&Read::Object(key));
        }
    }
}
