//! All subjects by age, for rules that count older ones.

use super::{ObjectKey, Subject};
use crate::resource::Resource;
use k8s_openapi::jiff::Timestamp;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};
use std::{cmp::Ordering, sync::Arc};

/// The position of an object in the order of age. The API server has a resolution of one second: within a second, the order is by kind and
/// name, and an object that doesn't exist yet is newer than all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age<'a> {
    created: Timestamp,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Age<'a> {
    /// The age of an object; `created` is none if it doesn't exist yet.
    pub fn new(created: Option<Timestamp>, kind: &'a str, namespace: &'a str, name: &'a str) -> Self {
        Self { created: created.unwrap_or(Timestamp::MAX), kind, namespace, name }
    }

    /// The age of a subject.
    pub fn of_subject(subject: &'a Subject) -> Self {
        let Resource { kind, .. } = subject.key.resource;
        Self::new(subject.created, kind, &subject.key.namespace, &subject.key.name)
    }
}

/// The subjects of each namespace, the oldest first. It changes with every subject, and snapshots copy it.
#[derive(Clone, Debug, Default)]
pub struct SubjectsByAge(RedBlackTreeMapSync<String, RedBlackTreeSetSync<AgeOrdered>>);

impl SubjectsByAge {
    /// The older subjects of a namespace, by age; without a namespace, those of all namespaces, one namespace after the other. Without an
    /// age, all subjects count as older.
    pub fn before<'c>(&'c self, age: Option<Age<'c>>, namespace: Option<&str>) -> impl Iterator<Item = &'c Arc<Subject>> {
        let one = namespace.and_then(|namespace| self.0.get(namespace));
        let all = namespace.is_none().then(|| self.0.values());
        let crowds = one.into_iter().chain(all.into_iter().flatten());
        crowds.flat_map(move |crowd| {
            crowd.iter().map(|subject| &subject.0).take_while(move |subject| age.is_none_or(|age| Age::of_subject(subject) < age))
        })
    }

    /// The subject with this key.
    pub fn find(&self, key: &ObjectKey) -> Option<&Arc<Subject>> {
        let crowd = self.0.get(&key.namespace)?;
        crowd.iter().map(|subject| &subject.0).find(|subject| subject.key == *key)
    }

    pub(super) fn insert(&mut self, subject: Arc<Subject>) {
        let namespace = subject.key.namespace.clone();
        let mut crowd = self.0.get(&namespace).cloned().unwrap_or_default();
        // Replaces the previous state of the same subject.
        let subject = AgeOrdered(subject);
        crowd.remove_mut(&subject);
        crowd.insert_mut(subject);
        self.0.insert_mut(namespace, crowd);
    }

    pub(super) fn remove(&mut self, subject: &Arc<Subject>) {
        let namespace = &subject.key.namespace;
        let Some(mut crowd) = self.0.get(namespace).cloned() else { return };
        crowd.remove_mut(&AgeOrdered(Arc::clone(subject)));
        if crowd.is_empty() {
            self.0.remove_mut(namespace);
        } else {
            self.0.insert_mut(namespace.clone(), crowd);
        }
    }
}

#[derive(Clone, Debug)]
struct AgeOrdered(Arc<Subject>);

impl Ord for AgeOrdered {
    fn cmp(&self, other: &Self) -> Ordering {
        Age::of_subject(&self.0).cmp(&Age::of_subject(&other.0))
    }
}

impl PartialOrd for AgeOrdered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for AgeOrdered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for AgeOrdered {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{resource::INFERENCE_SERVICE, world::ObjectUpdate};
    use serde_json::json;

    fn subject(namespace: &str, name: &str, created: &str, replicas: u32) -> Arc<Subject> {
        let metadata = json!({"namespace": namespace, "name": name, "creationTimestamp": created});
        let object = json!({"metadata": metadata, "spec": {"replicas": replicas}});
        let ObjectUpdate { what, .. } = ObjectUpdate::read(&INFERENCE_SERVICE, &object.to_string(), |_| None);
        let crate::world::UpdatedObject::Subject(subject) = what else { panic!("{object}") };
        Arc::new(subject)
    }

    #[test]
    fn who_was_there_before_is_told_by_age_and_then_by_name() {
        let mut crowd = SubjectsByAge::default();
        let [early, late] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"];
        let all = [("a", "z", early), ("a", "y", late), ("a", "x", late), ("b", "w", early)];
        let all = all.map(|(namespace, name, created)| subject(namespace, name, created, 1));
        for subject in &all {
            crowd.insert(Arc::clone(subject));
        }
        let names = |crowd: &SubjectsByAge, age: Age<'_>, namespace: Option<&str>| -> Vec<String> {
            crowd.before(Some(age), namespace).map(|subject| subject.key.name.clone()).collect()
        };
        let [z, y, x, w] = &all;
        assert_eq!(names(&crowd, Age::of_subject(y), Some("a")), ["z", "x"]);
        assert_eq!(names(&crowd, Age::of_subject(x), Some("a")), ["z"]);
        assert!(names(&crowd, Age::of_subject(z), Some("a")).is_empty());
        assert_eq!(names(&crowd, Age::of_subject(w), None), ["z"], "the namespace comes before the name");
        let new = Age::new(None, "InferenceService", "a", "a");
        assert_eq!(names(&crowd, new, Some("a")), ["z", "x", "y"]);
        assert_eq!(names(&crowd, new, None), ["z", "x", "y", "w"]);
        assert!(names(&crowd, new, Some("c")).is_empty());

        let held = crowd.clone();
        crowd.insert(subject("a", "x", late, 2));
        assert_eq!(names(&crowd, new, Some("a")), ["z", "x", "y"], "a newer state takes the place of the former");
        let replicas = |crowd: &SubjectsByAge| crowd.before(None, Some("a")).nth(1).unwrap().content()["spec"]["replicas"].clone();
        assert_eq!((replicas(&held), replicas(&crowd)), (json!(1), json!(2)), "what somebody holds stays as it is");
        crowd.remove(w);
        crowd.remove(z);
        assert_eq!(names(&crowd, new, None), ["x", "y"]);
    }
}
