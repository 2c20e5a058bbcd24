//! Failing pods, by the subject in their labels.

use super::{Pod, World};
use std::sync::Arc;

impl World {
    /// Healthy pods aren't stored: their workload counts them.
    pub(super) fn put_pod(&mut self, pod: Pod) {
        let subject_key = (pod.kind.clone(), pod.namespace.clone(), pod.subject.clone());
        let place = (pod.namespace.clone(), pod.name.clone());
        // The pod's labels may have changed.
        let known = self.whose.get(&place).and_then(|whose| Some((whose == &subject_key, self.pods.get(whose)?.get(&pod.name)?)));
        if !self.relisting && known.is_some_and(|(_, before)| before.version > pod.version) {
            return;
        }
        let works = pod.failure.is_none() || pod.deleting;
        let same = match known {
            Some((same, before)) => same && Pod { version: pod.version, ..(**before).clone() } == pod,
            None => works,
        };
        if known.is_some_and(|(same, _)| works || !same) {
            self.remove_pod(&place.0, &place.1);
        }
        if !works {
            self.whose.insert(place, subject_key.clone());
            self.pods.entry(subject_key.clone()).or_default().insert(pod.name.clone(), Arc::new(pod));
        }
        if !same {
            self.reported.extend(self.labels.get(&subject_key).cloned());
        }
    }

    pub(super) fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(subject_key) = self.whose.remove(&(namespace.to_owned(), name.to_owned())) else { return };
        if let Some(pods) = self.pods.get_mut(&subject_key) {
            pods.remove(name);
            if pods.is_empty() {
                self.pods.remove(&subject_key);
            }
        }
        self.reported.extend(self.labels.get(&subject_key).cloned());
    }
}
