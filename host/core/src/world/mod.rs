//! The known state of the cluster: written by the watches, or offline from files, and read by plans through snapshots.
//!
//! Every change touches subjects: the owner of the object, and all subjects whose last plan read it. Stored objects are pruned to the
//! fields that plans and statuses need.

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

/// The labels of a namespace.
pub type Labels = BTreeMap<String, String>;

/// The subject of a pod, from its labels: kind, namespace and name.
type PodSubjectKey = (String, String, String);

/// The namespace and the uid of a subject. An object may name an owner in another namespace, but doesn't belong to it: otherwise, anyone
/// who knows the uid of another tenant's service could add objects to it.
type Owner = (String, String);

fn whose(subject: &Subject) -> PodSubjectKey {
    (subject.key.resource.kind.to_owned(), subject.key.namespace.clone(), subject.label.clone())
}

/// The subjects that changes have touched.
#[derive(Debug, Default)]
pub struct Touched {
    /// Subjects to reconcile now.
    pub now: BTreeSet<ObjectKey>,
    /// Subjects to reconcile soon.
    pub soon: BTreeSet<ObjectKey>,
}

/// The complete known state.
#[derive(Debug, Default)]
pub struct World {
    /// Increases with each change.
    revision: u64,
    /// The kinds that are currently available.
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
    /// The entries of the latest ledger.
    allocated: Allocated,
    unallocated: Option<Arc<str>>,
    /// The objects that subjects may name. It changes with every status of a Gateway, and snapshots copy it.
    named: HashTrieMapSync<ObjectKey, Arc<ReferencedObject>>,
    /// The subject of each stored pod.
    whose: HashMap<(String, String), PodSubjectKey>,
    /// The objects of each subject.
    children: HashMap<Owner, BTreeMap<ObjectKey, Arc<OwnedObject>>>,
    owners: HashMap<ObjectKey, Owner>,
    /// The subjects by uid, and by their pods' labels.
    uids: HashMap<Owner, ObjectKey>,
    labels: HashMap<PodSubjectKey, ObjectKey>,
    /// The failing pods.
    pods: HashMap<PodSubjectKey, BTreeMap<String, Arc<Pod>>>,
    readers: Readers,
    touched: BTreeSet<ObjectKey>,
    /// Whether the current update is from a list.
    relisting: bool,
    /// The latest version that the watch of each kind has reached, per namespace: each namespace may have its own watch.
    passed: HashMap<&'static Resource, HashMap<String, u64>>,
    /// Objects that are only known from the response to a write, because the watch hasn't reached them yet.
    answered: HashMap<ObjectKey, u64>,
    /// Subjects that only reports of their objects and pods, or changes of older subjects, have touched.
    reported: BTreeSet<ObjectKey>,
    /// The subscribers to touched subjects.
    followers: Followers,
    /// The subscribers to changed models.
    model_followers: Followers,
    /// The number of changes of models.
    model_changes: u64,
    /// The number of changes of models, weights, runtimes, and of the parts of subjects that refer to them.
    catalogue_changes: u64,
}

impl World {
    /// Stores the current state of an object. A state older than the known one is ignored.
    pub fn put(&mut self, resource: &'static Resource, object: &Value) {
        let text = object.to_string();
        let news = ObjectUpdate::read(resource, &text, |key| self.child(key));
        self.apply_update(news);
    }

    /// Stores an update from a watch.
    pub fn apply_update(&mut self, news: ObjectUpdate) {
        self.advance_to(&news.key, news.version);
        self.answered.remove(&news.key);
        self.store(news);
    }

    /// Stores an object from a new list. It takes precedence even if it seems older than the known state, for example after the cluster was
    /// restored from a backup; but not over the response to a write, which the list may not contain yet.
    pub fn apply_listed(&mut self, news: ObjectUpdate) {
        self.relisting = !self.answered.contains_key(&news.key);
        self.store(news);
        self.relisting = false;
    }

    /// Stores the API server's response to one of our writes. If the watch has already passed this version, it knows better: the object may
    /// have been deleted since.
    pub fn apply_response(&mut self, news: ObjectUpdate) {
        let passed = self.passed.get(news.key.resource).and_then(|passed| passed.get(&news.key.namespace));
        if passed.is_some_and(|passed| news.version <= *passed) {
            return;
        }
        self.answered.insert(news.key.clone(), news.version);
        self.store(news);
    }

    /// Records the version that the watch of an object has reached.
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
        // For our own objects, the response to a write may be newer.
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
            // It may have been ours until our label was removed.
            UpdatedObject::Nothing => self.remove_child(&key),
        }
    }

    /// Removes an object.
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
        // Its owner's plan depends on its status too.
        if let Some(owner) = self.owners.get(key).cloned() {
            self.touch_owner(&owner);
        }
        self.changed(&Read::Object(key.clone()));
    }

    /// All known objects of a kind, for comparison with a new list.
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

    /// Sets the kinds that are currently available.
    pub fn set_available(&mut self, available: BTreeSet<&'static Resource>) {
        if *self.available != available {
            self.revision += 1;
            self.available = Arc::new(available);
            self.touch_all();
        }
    }

    /// Replaces the entries of the ledger: only subjects whose entries differ are touched.
    pub fn set_allocated(&mut self, entries: &BTreeMap<ObjectKey, Entry>) {
        let changed = self.allocated.replace(entries);
        if !changed.is_empty() {
            self.revision += 1;
            self.touched.extend(changed.into_iter().filter(|key| self.subjects.contains_key(key)));
        }
    }

    /// Sets why the allocation can't decide; none if it can.
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

    /// Sets the kinds that the host may not list.
    pub fn set_denied(&mut self, denied: DeniedKinds) {
        if *self.denied != denied {
            self.revision += 1;
            self.denied = Arc::new(denied);
            self.touch_all();
        }
    }

    /// Touches all subjects.
    pub fn touch_all(&mut self) {
        self.touched.extend(self.subjects.keys().cloned());
    }

    /// Takes the subjects that changes have touched since the last call: those to reconcile now, and those with only reports. Reports come
    /// in bursts, and only the last one matters.
    pub fn take_touched(&mut self) -> Touched {
        let (now, mut soon) = (std::mem::take(&mut self.touched), std::mem::take(&mut self.reported));
        self.followers.note(|touched| touched.extend(now.iter().chain(&soon).cloned()));
        soon.retain(|key| !now.contains(key));
        Touched { now, soon }
    }

    /// Subscribes to touched subjects, until the subscriber is dropped.
    pub fn subscribe(&mut self) -> Arc<Subscriber> {
        self.followers.add(BTreeSet::new())
    }

    /// The subjects touched since the subscriber's last call. Those that the queue hasn't taken yet are returned again after it has.
    pub fn followed(&self, follower: &Subscriber) -> BTreeSet<ObjectKey> {
        let mut followed = std::mem::take(&mut *locked(follower));
        followed.extend(self.touched.iter().chain(&self.reported).cloned());
        followed
    }

    pub fn is_touched(&self) -> bool {
        !self.touched.is_empty() || !self.reported.is_empty()
    }

    /// Touches these subjects.
    pub fn touch(&mut self, Touched { now, soon }: Touched) {
        self.touched.extend(now);
        self.reported.extend(soon);
    }

    /// All subjects.
    pub fn subjects(&self) -> impl Iterator<Item = &Arc<Subject>> {
        self.subjects.values()
    }

    /// The data that a plan for the subject may read; none if the subject is deleted.
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
            // Policies don't get a finer time.
            now: now - now % 60,
        })
    }

    /// The data that rules may look up for an object.
    pub fn surroundings(&self, key: &ObjectKey) -> Surroundings {
        Surroundings { created: self.subjects.get(key).and_then(|subject| subject.created), ..self.catalogue() }
    }

    /// The labels of a namespace; empty if it is unknown.
    pub fn namespace_labels(&self, name: &str) -> Arc<Labels> {
        self.namespaces.get(name).cloned().unwrap_or_default()
    }

    /// Records what the last plan of a subject has read. If any of it has changed since the snapshot, the subject is touched at once.
    pub fn read(&mut self, key: &ObjectKey, snapshot: u64, reads: BTreeSet<Read>) {
        if self.subjects.contains_key(key) && self.readers.note(key, reads, snapshot) {
            self.touched.insert(key.clone());
        }
    }

    fn changed(&mut self, read: &Read) {
        self.touched.extend(self.readers.changed(read, self.revision));
    }

    /// Stores an object as a subject, even if its kind isn't one of subjects.
    #[cfg(test)]
    pub(crate) fn put_subject_object(&mut self, resource: &'static Resource, object: &Value) {
        let text = object.to_string();
        let live = live::Live::parse(&text);
        let word = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        self.put_subject(Subject::from_live(ObjectKey { resource, namespace: word("namespace"), name: word("name") }, &live));
    }

    /// Touches newer subjects whose rules count older ones.
    fn older_changed(&mut self, subject: &Subject) {
        let age = Age::of_subject(subject);
        for scope in [subject.key.namespace.clone(), String::new()] {
            let readers = self.readers.changed(&Read::Older(scope), self.revision);
            let newer = readers.into_iter().filter(|reader| self.subjects.get(reader).is_some_and(|reader| Age::of_subject(reader) > age));
            // There may be many of them, and they need only one plan for several changes at once.
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
        // Our own writes are no reason to reconcile it.
        let news = before.as_ref().is_none_or(|before| before.differs(&subject));
        let counts = before.as_ref().is_none_or(|before| !before.counts_the_same(&subject));
        if let Some(before) = before {
            self.uids.remove(&before.owner_key());
            // It may be a different subject with the same name.
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
            // Other subjects may depend on its status.
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
