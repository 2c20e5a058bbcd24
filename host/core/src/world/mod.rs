//! What we know of the cluster: filled by the watches, or offline by files, and read by plans through snapshots.
//!
//! Every change says which subjects it touches: the one that an object belongs to, and those whose last plan has read it. What is
//! kept is pruned to what plans and statuses are made from.

pub mod adopted;
mod allocated;
mod catalogue;
pub mod child;
mod children;
mod failing_pods;
mod followers;
mod grant;
pub mod listener;
pub mod live;
pub mod ome;
pub mod owned;
pub mod pod;
mod readers;
pub mod referenced;
pub mod scoped;
mod snapshot;
pub mod subject;
pub mod subjects_by_age;
mod update;
pub mod workload_status;
pub mod writers;

pub use crate::key::ObjectKey;
pub use child::OwnedObject;
pub use followers::Subscriber;
pub use grant::{GrantReference, ReferenceGrant};
pub(crate) use live::LAST_APPLIED;
pub use pod::Pod;
pub use readers::Read;
pub use snapshot::{DeniedKinds, MissingRole, Snapshot, Surroundings};
pub use subject::Subject;
pub use update::ObjectUpdate;

use crate::allocation::Entry;
use crate::resource::{
    BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, FINE_TUNED_WEIGHT, LLM_CONFIG, NAMESPACE, POD, REFERENCE_GRANT, Resource,
    SERVING_RUNTIME,
};
use crate::subject_kind::SubjectKind;
use allocated::Allocated;
use followers::Followers;
use ome::{Models, Runtimes, WeightView};
use pointsman_sandbox::sync::locked;
use readers::Readers;
use referenced::ReferencedObject;
use rpds::HashTrieMapSync;
use scoped::Scoped;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};
use subjects_by_age::{Age, SubjectsByAge};
use update::UpdatedObject;

/// What a subject's namespace says.
pub type Labels = BTreeMap<String, String>;

/// Whose a pod is, as its labels say: kind, namespace and name of the subject.
type PodSubjectKey = (String, String, String);

/// The namespace and the uid of a subject. An object can name an owner in another namespace, and doesn't belong to it: whoever knows the
/// uid of another tenant's service could slip it objects.
type Owner = (String, String);

fn whose(subject: &Subject) -> PodSubjectKey {
    (subject.key.resource.kind.to_owned(), subject.key.namespace.clone(), subject.label.clone())
}

/// Subjects that changes have touched.
#[derive(Debug, Default)]
pub struct Touched {
    /// To be looked at now.
    pub now: BTreeSet<ObjectKey>,
    /// To be looked at soon.
    pub soon: BTreeSet<ObjectKey>,
}

/// Everything that is known.
#[derive(Debug, Default)]
pub struct World {
    /// Counts up with each change.
    revision: u64,
    /// The kinds that can be read and written now.
    available: Arc<BTreeSet<&'static Resource>>,
    denied: Arc<DeniedKinds>,
    namespaces: BTreeMap<String, Arc<Labels>>,
    subjects: BTreeMap<ObjectKey, Arc<Subject>>,
    crowd: SubjectsByAge,
    models: Arc<Models>,
    runtimes: Arc<Runtimes>,
    weights: Arc<Scoped<WeightView>>,
    configs: Arc<Scoped<Value>>,
    grants: Arc<Scoped<ReferenceGrant>>,
    /// The entries of the last ledger.
    allocated: Allocated,
    unallocated: Option<Arc<str>>,
    /// What subjects may name. It changes with every word of a Gateway, and a snapshot copies it.
    named: HashTrieMapSync<ObjectKey, Arc<ReferencedObject>>,
    /// Whose each of the pods is that are kept.
    whose: HashMap<(String, String), PodSubjectKey>,
    /// What belongs to a subject.
    children: HashMap<Owner, BTreeMap<ObjectKey, Arc<OwnedObject>>>,
    owners: HashMap<ObjectKey, Owner>,
    /// The subjects by uid, and by what their pods' label says.
    uids: HashMap<Owner, ObjectKey>,
    labels: HashMap<PodSubjectKey, ObjectKey>,
    /// The pods that fail.
    pods: HashMap<PodSubjectKey, BTreeMap<String, Arc<Pod>>>,
    readers: Readers,
    touched: BTreeSet<ObjectKey>,
    /// Whether what comes is from a list.
    relisting: bool,
    /// The version that the watch of each kind has come to, by namespace: each may have a watch of its own.
    passed: HashMap<&'static Resource, HashMap<String, u64>>,
    /// What is known by an answer to a write alone: the watch hasn't come to it.
    answered: HashMap<ObjectKey, u64>,
    /// Touched only by what their objects and pods report, or by what older subjects have come to.
    reported: BTreeSet<ObjectKey>,
    /// What was touched since somebody beside the queue has asked last.
    followers: Followers,
    /// The models that have changed since somebody has asked last.
    model_followers: Followers,
    /// Counts their changes.
    model_changes: u64,
    /// Counts the changes of models, weights, runtimes and of what subjects may use of them.
    catalogue_changes: u64,
}

impl World {
    /// Takes an object as it is now. One that is older than what is known is no news.
    pub fn put(&mut self, resource: &'static Resource, object: &Value) {
        let text = object.to_string();
        let news = ObjectUpdate::read(resource, &text, |key| self.child(key));
        self.apply_update(news);
    }

    /// Takes what a watch has told.
    pub fn apply_update(&mut self, news: ObjectUpdate) {
        self.advance_to(&news.key, news.version);
        self.answered.remove(&news.key);
        self.store(news);
    }

    /// Takes an object from a list that was asked for anew. It counts even if it seems older than what is known, as it does when the
    /// cluster was restored from a backup; but not if what is known is an answer that the list can't know of yet.
    pub fn apply_listed(&mut self, news: ObjectUpdate) {
        self.relisting = !self.answered.contains_key(&news.key);
        self.store(news);
        self.relisting = false;
    }

    /// Takes what the API server has answered to a write of ours. What the watch has passed already it knows better: the object may be
    /// gone since.
    pub fn apply_response(&mut self, news: ObjectUpdate) {
        let passed = self.passed.get(news.key.resource).and_then(|passed| passed.get(&news.key.namespace));
        if passed.is_some_and(|passed| news.version <= *passed) {
            return;
        }
        self.answered.insert(news.key.clone(), news.version);
        self.store(news);
    }

    /// Takes it that the watch of an object has come to a version.
    pub fn advance_to(&mut self, key: &ObjectKey, version: u64) {
        let passed = self.passed.entry(key.resource).or_default();
        match passed.get_mut(&key.namespace) {
            Some(passed) => *passed = version.max(*passed),
            None => _ = passed.insert(key.namespace.clone(), version),
        }
    }

    fn store(&mut self, news: ObjectUpdate) {
        self.revision += 1;
        let ObjectUpdate { key, what, named, version } = news;
        // Of what is ours an answer to a write may have told more.
        if named.is_some() && (self.relisting || self.child(&key).is_none_or(|known| known.version <= version)) {
            self.set_named(&key, named);
        }
        match what {
            UpdatedObject::Subject(subject) => self.put_subject(subject),
            UpdatedObject::Namespace(labels) => self.set_namespace(&key.name, Some(labels)),
            UpdatedObject::Model(model) => self.set_model(key, model.map(|model| *model)),
            UpdatedObject::Runtime(runtime) => self.set_runtime(key, runtime.map(|runtime| *runtime)),
            UpdatedObject::Weight(weight) => self.set_weight(key, weight.map(|weight| *weight)),
            UpdatedObject::Config(config) => {
                Arc::make_mut(&mut self.configs).set(&key.namespace, &key.name, config);
                self.changed(&Read::Object(key));
            }
            UpdatedObject::Grant(grant) => self.set_grant(&key, Some(grant)),
            UpdatedObject::Pod(pod) => self.put_pod(pod),
            UpdatedObject::Child(child) => self.put_child(child),
            // It may have been ours, until somebody took our label away.
            UpdatedObject::Nothing => self.remove_child(&key),
        }
    }

    /// Takes it that an object is gone.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.revision += 1;
        self.answered.remove(key);
        let ObjectKey { resource, namespace, name } = key;
        if resource.is_subject() {
            if let Some(subject) = self.subjects.remove(key) {
                self.catalogue_changes += 1;
                self.crowd.remove(&subject);
                self.older_changed(&subject);
                self.uids.remove(&subject.owner_key());
                self.labels.remove(&whose(&subject));
                self.readers.forget(key);
                self.touched.insert(key.clone());
                self.changed(&Read::Object(key.clone()));
            }
        } else if **resource == NAMESPACE {
            self.set_namespace(name, None);
            self.passed.values_mut().for_each(|passed| _ = passed.remove(name));
        } else if **resource == BASE_MODEL || **resource == CLUSTER_BASE_MODEL {
            self.set_model(key.clone(), None);
        } else if **resource == SERVING_RUNTIME || **resource == CLUSTER_SERVING_RUNTIME {
            self.set_runtime(key.clone(), None);
        } else if **resource == FINE_TUNED_WEIGHT {
            self.set_weight(key.clone(), None);
        } else if **resource == REFERENCE_GRANT {
            self.set_grant(key, None);
        } else if **resource == POD {
            self.remove_pod(namespace, name);
        } else if **resource == LLM_CONFIG {
            Arc::make_mut(&mut self.configs).set(namespace, name, None);
            self.changed(&Read::Object(key.clone()));
        } else {
            self.set_named(key, None);
            self.remove_child(key);
        }
    }

    fn set_grant(&mut self, key: &ObjectKey, grant: Option<ReferenceGrant>) {
        Arc::make_mut(&mut self.grants).set(&key.namespace, &key.name, grant);
        self.changed(&Read::Grants(key.namespace.clone()));
    }

    fn set_named(&mut self, key: &ObjectKey, named: Option<ReferencedObject>) {
        if self.named.get(key).map(|known| &**known) == named.as_ref() {
            return;
        }
        match named {
            Some(named) => self.named.insert_mut(key.clone(), Arc::new(named)),
            None => drop(self.named.remove_mut(key)),
        }
        // Whose it is counts what is told of it as well.
        if let Some(owner) = self.owners.get(key).cloned() {
            self.touch_owner(&owner);
        }
        self.changed(&Read::Object(key.clone()));
    }

    /// All objects of a kind that are known, for one that was listed anew.
    pub fn keys(&self, resource: &'static Resource) -> BTreeSet<ObjectKey> {
        let key = |namespace: &str, name: &str| ObjectKey { resource, namespace: namespace.to_owned(), name: name.to_owned() };
        if resource.is_subject() {
            self.subjects.keys().filter(|key| key.resource == resource).cloned().collect()
        } else if *resource == NAMESPACE {
            self.namespaces.keys().map(|name| key("", name)).collect()
        } else if *resource == BASE_MODEL || *resource == CLUSTER_BASE_MODEL {
            self.models.keys(resource.namespaced).map(|(namespace, name)| key(namespace, name)).collect()
        } else if *resource == SERVING_RUNTIME || *resource == CLUSTER_SERVING_RUNTIME {
            self.runtimes.all.keys(resource.namespaced).map(|(namespace, name)| key(namespace, name)).collect()
        } else if *resource == FINE_TUNED_WEIGHT {
            self.weights.keys(resource.namespaced).map(|(namespace, name)| key(namespace, name)).collect()
        } else if *resource == POD {
            self.pods.iter().flat_map(|((_, namespace, _), pods)| pods.keys().map(|name| key(namespace, name))).collect()
        } else if *resource == REFERENCE_GRANT {
            self.grants.keys(resource.namespaced).map(|(namespace, name)| key(namespace, name)).collect()
        } else if *resource == LLM_CONFIG {
            self.configs.keys(resource.namespaced).map(|(namespace, name)| key(namespace, name)).collect()
        } else {
            self.owners.keys().chain(self.named.keys()).filter(|key| key.resource == resource).cloned().collect()
        }
    }

    /// Takes it that these kinds, and no others, can be read and written now.
    pub fn set_available(&mut self, available: BTreeSet<&'static Resource>) {
        if *self.available != available {
            self.revision += 1;
            self.available = Arc::new(available);
            self.touch_all();
        }
    }

    /// Takes the entries of another ledger: the subjects whose entries differ are touched, and no others.
    pub fn set_allocated(&mut self, entries: &BTreeMap<ObjectKey, Entry>) {
        let changed = self.allocated.replace(entries);
        if !changed.is_empty() {
            self.revision += 1;
            self.touched.extend(changed.into_iter().filter(|key| self.subjects.contains_key(key)));
        }
    }

    /// Takes it that nothing can be decided about those that compete, and why; or that it can.
    pub fn set_unallocated(&mut self, why: Option<String>) {
        if self.unallocated.as_deref() != why.as_deref() {
            self.revision += 1;
            self.unallocated = why.map(Into::into);
            let competes = |key: &&ObjectKey| SubjectKind::find(key.resource).is_some_and(|kind| kind.competes);
            self.touched.extend(self.subjects.keys().filter(competes).cloned());
        }
    }

    /// The kinds that the host may not list.
    pub fn denied(&self) -> &DeniedKinds {
        &self.denied
    }

    /// Takes it that the host may not list these kinds, and no others.
    pub fn set_denied(&mut self, denied: DeniedKinds) {
        if *self.denied != denied {
            self.revision += 1;
            self.denied = Arc::new(denied);
            self.touch_all();
        }
    }

    /// Has every subject looked at again.
    pub fn touch_all(&mut self) {
        self.touched.extend(self.subjects.keys().cloned());
    }

    /// The subjects that changes have touched since this was asked last: those that should be looked at now, and those about which
    /// something was only reported. Reports come in bursts, and the last one counts.
    pub fn take_touched(&mut self) -> Touched {
        let (now, mut soon) = (std::mem::take(&mut self.touched), std::mem::take(&mut self.reported));
        self.followers.note(|touched| touched.extend(now.iter().chain(&soon).cloned()));
        soon.retain(|key| !now.contains(key));
        Touched { now, soon }
    }

    /// Notes what is touched from now on for somebody else too, until he drops it.
    pub fn subscribe(&mut self) -> Arc<Subscriber> {
        self.followers.add(BTreeSet::new())
    }

    /// What was touched since a follower has asked last. What the queue hasn't taken yet is told again when it has.
    pub fn followed(&self, follower: &Subscriber) -> BTreeSet<ObjectKey> {
        let mut followed = std::mem::take(&mut *locked(follower));
        followed.extend(self.touched.iter().chain(&self.reported).cloned());
        followed
    }

    pub fn is_touched(&self) -> bool {
        !self.touched.is_empty() || !self.reported.is_empty()
    }

    /// Has these subjects looked at again.
    pub fn touch(&mut self, Touched { now, soon }: Touched) {
        self.touched.extend(now);
        self.reported.extend(soon);
    }

    /// All subjects.
    pub fn subjects(&self) -> impl Iterator<Item = &Arc<Subject>> {
        self.subjects.values()
    }

    /// All that a plan for the subject may see; none if the subject is gone.
    pub fn snapshot(&self, key: &ObjectKey, now: u64) -> Option<Snapshot> {
        let subject = self.subjects.get(key)?;
        let pods = self.pods.get(&whose(subject));
        Some(Snapshot {
            revision: self.revision,
            namespace_labels: self.namespaces.get(&key.namespace).cloned().unwrap_or_default(),
            models: Arc::clone(&self.models),
            runtimes: Arc::clone(&self.runtimes),
            weights: Arc::clone(&self.weights),
            configs: Arc::clone(&self.configs),
            grants: Arc::clone(&self.grants),
            allocated: self.allocated.get(key).cloned(),
            unallocated: self.unallocated.clone(),
            crowd: self.crowd.clone(),
            referenced: self.named.clone(),
            children: self.children.get(&subject.owner_key()).into_iter().flat_map(BTreeMap::values).cloned().collect(),
            stand_ins: BTreeMap::new(),
            pods: pods.into_iter().flat_map(BTreeMap::values).cloned().collect(),
            available: Arc::clone(&self.available),
            denied: Arc::clone(&self.denied),
            subject: Arc::clone(subject),
            // The finest that policies may know.
            now: now - now % 60,
        })
    }

    /// What rules may look up beside an object.
    pub fn surroundings(&self, key: &ObjectKey) -> Surroundings {
        Surroundings { created: self.subjects.get(key).and_then(|subject| subject.created), ..self.catalogue() }
    }

    /// The labels of a namespace; none of one that isn't known.
    pub fn namespace_labels(&self, name: &str) -> Arc<Labels> {
        self.namespaces.get(name).cloned().unwrap_or_default()
    }

    /// Notes what the last plan of a subject has read. What has changed since the snapshot touches the subject at once.
    pub fn read(&mut self, key: &ObjectKey, snapshot: u64, reads: BTreeSet<Read>) {
        if self.subjects.contains_key(key) && self.readers.note(key, reads, snapshot) {
            self.touched.insert(key.clone());
        }
    }

    fn changed(&mut self, read: &Read) {
        self.touched.extend(self.readers.changed(read, self.revision));
    }

    /// Takes an object as a subject, whether its kind is known as one of subjects or not.
    #[cfg(test)]
    pub(crate) fn put_subject_object(&mut self, resource: &'static Resource, object: &Value) {
        let text = object.to_string();
        let live = live::Live::parse(&text);
        let word = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        self.put_subject(Subject::from_live(ObjectKey { resource, namespace: word("namespace"), name: word("name") }, &live));
    }

    /// Touches those that are newer than a subject and have counted who is older.
    fn older_changed(&mut self, subject: &Subject) {
        let age = Age::of_subject(subject);
        for scope in [subject.key.namespace.clone(), String::new()] {
            let readers = self.readers.changed(&Read::Older(scope), self.revision);
            let newer = readers.into_iter().filter(|reader| self.subjects.get(reader).is_some_and(|reader| Age::of_subject(reader) > age));
            // There may be many, and changes that come together are one to them.
            self.reported.extend(newer);
        }
    }

    fn put_subject(&mut self, subject: Subject) {
        let key = subject.key.clone();
        let before = self.subjects.get(&key).cloned();
        if !self.relisting && before.as_ref().is_some_and(|before| before.uid == subject.uid && before.version > subject.version) {
            return;
        }
        let subject = Arc::new(subject);
        // What we ourselves say of it is no reason to look at it again.
        let news = before.as_ref().is_none_or(|before| before.differs(&subject));
        let counts = before.as_ref().is_none_or(|before| !before.counts_the_same(&subject));
        if let Some(before) = before {
            self.uids.remove(&before.owner_key());
            // It may be another one of the same name.
            self.crowd.remove(&before);
            if before.created < subject.created {
                self.older_changed(&before);
            }
        }
        if news {
            self.catalogue_changes += 1;
        }
        self.uids.insert(subject.owner_key(), key.clone());
        self.labels.insert(whose(&subject), key.clone());
        self.crowd.insert(Arc::clone(&subject));
        self.subjects.insert(key.clone(), Arc::clone(&subject));
        if counts {
            self.older_changed(&subject);
        }
        if news {
            self.touched.insert(key.clone());
            // Others may have read its status.
            self.changed(&Read::Object(key));
        }
    }

    fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let before = self.namespaces.get(name);
        if before.map(|before| &**before) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), Arc::new(labels)),
            None => self.namespaces.remove(name),
        };
        self.changed(&Read::Namespace(name.to_owned()));
    }
}

#[cfg(test)]
mod tests;
