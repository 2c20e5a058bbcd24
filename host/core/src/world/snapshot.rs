//! The data that one plan may read.

use super::{
    GrantReference, Labels, ObjectKey, OwnedObject, Pod, ReferenceGrant, Subject,
    ome::{Models, Runtimes, WeightView},
    referenced::ReferencedObject,
    scoped::Scoped,
    subjects_by_age::SubjectsByAge,
};
use crate::{allocation::Entry, resource::Resource, subject_kind::SubjectKind};
use k8s_openapi::jiff::Timestamp;
use rpds::HashTrieMapSync;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// Kinds that the host may not list, each with the role that grants it.
pub type DeniedKinds = BTreeMap<&'static Resource, MissingRole>;

/// A role that the host lacks: a directory in `deploy/roles`, and where to apply it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingRole {
    /// Its directory in `deploy/roles`.
    pub folder: String,
    /// The namespaces that lack it; empty for a cluster role.
    pub namespaces: BTreeSet<String>,
}

impl fmt::Display for MissingRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "apply deploy/roles/{}", self.folder)?;
        match self.namespaces.len() {
            0 => Ok(()),
            1 => write!(f, " to the namespace {}", joined(&self.namespaces)),
            _ => write!(f, " to the namespaces {}", joined(&self.namespaces)),
        }
    }
}

fn joined(namespaces: &BTreeSet<String>) -> String {
    namespaces.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The data that rules may look up in addition to their object.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The creation time of the object; none if it doesn't exist yet.
    pub created: Option<Timestamp>,
    /// The models.
    pub models: Arc<Models>,
    /// The runtimes.
    pub runtimes: Arc<Runtimes>,
    /// The fine-tuned weights.
    pub weights: Arc<Scoped<WeightView>>,
    /// All subjects by age.
    pub crowd: SubjectsByAge,
}

/// The immutable view of the world for one subject.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The revision of the world.
    pub revision: u64,
    /// The subject.
    pub subject: Arc<Subject>,
    /// The labels of its namespace.
    pub namespace_labels: Arc<Labels>,
    /// The models.
    pub models: Arc<Models>,
    /// The runtimes.
    pub runtimes: Arc<Runtimes>,
    /// The fine-tuned weights.
    pub weights: Arc<Scoped<WeightView>>,
    /// The spec parts from `LLMInferenceServiceConfigs`.
    pub configs: Arc<Scoped<Value>>,
    /// The permitted references to other namespaces.
    pub(super) grants: Arc<Scoped<ReferenceGrant>>,
    /// The decision of the allocation on the subject.
    pub allocated: Option<Arc<Entry>>,
    /// Why there can be no decision, if so.
    pub unallocated: Option<Arc<str>>,
    /// All subjects by age.
    pub crowd: SubjectsByAge,
    /// The objects that subjects may name.
    pub(super) referenced: HashTrieMapSync<ObjectKey, Arc<ReferencedObject>>,
    /// The objects that belong to the subject, in order.
    pub children: Vec<Arc<OwnedObject>>,
    /// The adopted objects that replace ours, by our names.
    pub stand_ins: BTreeMap<ObjectKey, ObjectKey>,
    /// Its failing pods, by name.
    pub pods: Vec<Arc<Pod>>,
    /// The kinds that are available.
    pub available: Arc<BTreeSet<&'static Resource>>,
    /// The kinds that the host may not list, with the role that grants them.
    pub denied: Arc<DeniedKinds>,
    /// The time in seconds since 1970, rounded down to a minute, for policies that need it.
    pub now: u64,
}

impl Snapshot {
    /// Whether all kinds that a plan of the subject reads have been listed: an incomplete list of candidates would lead to another choice.
    pub fn is_complete(&self) -> bool {
        SubjectKind::find(self.subject.key.resource).is_none_or(|kind| {
            let is_allocated = !kind.competes || self.allocated.is_some() || self.unallocated.is_some();
            is_allocated && kind.reads.iter().all(|resource| self.serves(resource))
        })
    }

    /// The consequence of a missing decision for the subject's objects, as the beginning of a sentence.
    pub fn consequence(&self) -> &'static str {
        if self.children.is_empty() { "No object is created" } else { "Existing objects stay unchanged" }
    }

    /// The data that rules may look up for the subject.
    pub fn surroundings(&self) -> Surroundings {
        let Self { models, runtimes, weights, crowd, .. } = self;
        Surroundings {
            created: self.subject.created,
            models: Arc::clone(models),
            runtimes: Arc::clone(runtimes),
            weights: Arc::clone(weights),
            crowd: crowd.clone(),
        }
    }

    /// One of the subject's objects.
    pub fn child(&self, resource: &'static Resource, name: &str) -> Option<&Arc<OwnedObject>> {
        let key = ObjectKey { resource, namespace: self.subject.key.namespace.clone(), name: name.to_owned() };
        let key = self.stand_ins.get(&key).unwrap_or(&key);
        let at = self.children.binary_search_by(|child| child.key.cmp(key)).ok()?;
        self.children.get(at)
    }

    /// Another subject that the subject names.
    pub fn other_subject(&self, key: &ObjectKey) -> Option<&Arc<Subject>> {
        self.crowd.find(key)
    }

    /// Whether a `ReferenceGrant` permits an object of the subject's kind and namespace to refer to an object in another namespace.
    pub fn grants(&self, to: &ObjectKey) -> bool {
        let from = GrantReference::from_key(&self.subject.key);
        let grants = self.grants.namespaced.get(&to.namespace).into_iter().flatten();
        grants.map(|(_, grant)| grant).any(|grant| grant.allows(&from, &GrantReference::from_key(to)))
    }

    /// An object that the subject names.
    pub fn referenced(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<&Arc<ReferencedObject>> {
        self.referenced.get(&ObjectKey { resource, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Whether a kind is available and may be listed.
    pub fn serves(&self, resource: &'static Resource) -> bool {
        !self.denied.contains_key(resource) && (resource.neighbour.is_none() || self.available.contains(resource))
    }
}
