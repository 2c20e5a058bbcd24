//! Parses updates of objects before the world is locked, so that the lock is only held briefly.

use super::{
    Labels, ObjectKey, OwnedObject, Pod, Subject,
    child::SUBJECT_KIND,
    grant::ReferenceGrant,
    live::Live,
    ome::{self, ModelView, RuntimeView, WeightView},
    referenced::ReferencedObject,
};
use crate::resource::{
    BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, FINE_TUNED_WEIGHT, LLM_CONFIG, NAMESPACE, POD, REFERENCE_GRANT,
    REFERENCED_KINDS, Resource, SERVING_RUNTIME,
};
use serde_json::Value;
use std::{borrow::Cow, sync::Arc};

/// An object in the form in which the world stores it.
#[derive(Debug)]
pub struct ObjectUpdate {
    pub(super) key: ObjectKey,
    pub(super) version: u64,
    pub(super) what: UpdatedObject,
    /// The state for subjects that name the object, if its kind can be named.
    pub(super) named: Option<ReferencedObject>,
}

#[derive(Debug)]
pub(super) enum UpdatedObject {
    Subject(Subject),
    Namespace(Labels),
    /// None if it is unreadable.
    Model(Option<Box<ModelView>>),
    /// None if it is unreadable.
    Runtime(Option<Box<RuntimeView>>),
    /// None if it is unreadable.
    Weight(Option<Box<WeightView>>),
    /// A part of a spec; none if it is unreadable.
    Config(Option<Value>),
    Grant(ReferenceGrant),
    Pod(Pod),
    Child(OwnedObject),
    /// It has no name, or only matters to subjects that name it.
    Nothing,
}

impl ObjectUpdate {
    /// The owned object, if it is one.
    pub fn child(&self) -> Option<&OwnedObject> {
        if let UpdatedObject::Child(child) = &self.what { Some(child) } else { None }
    }

    /// The subject, if it is one.
    pub fn subject(&self) -> Option<&Subject> {
        if let UpdatedObject::Subject(subject) = &self.what { Some(subject) } else { None }
    }

    /// Parses an object. Unchanged parts are taken from its known earlier state.
    pub fn read(resource: &'static Resource, text: &str, known: impl FnOnce(&ObjectKey) -> Option<Arc<OwnedObject>>) -> Self {
        let live = Live::parse(text);
        let word = |name: &Option<Cow<'_, str>>| name.as_deref().unwrap_or_default().to_owned();
        let namespace = if resource.namespaced { word(&live.metadata.namespace) } else { String::new() };
        let key = ObjectKey { resource, namespace, name: word(&live.metadata.name) };
        let value = || serde_json::from_str::<Value>(text).unwrap_or_default();
        let named = REFERENCED_KINDS.contains(&resource).then(|| ReferencedObject::from_live(&live));
        let unread = |error: &serde_json::Error| tracing::warn!(object = %key, "it can't be read, so it counts as absent: {error}");
        let what = if key.name.is_empty() {
            UpdatedObject::Nothing
        } else if resource.is_subject() {
            UpdatedObject::Subject(Subject::from_live(key.clone(), &live))
        } else if *resource == NAMESPACE {
            UpdatedObject::Namespace(live.labels().into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
        } else if *resource == BASE_MODEL || *resource == CLUSTER_BASE_MODEL {
            UpdatedObject::Model(ome::model(&value()).inspect_err(unread).ok().map(Box::new))
        } else if *resource == SERVING_RUNTIME || *resource == CLUSTER_SERVING_RUNTIME {
            UpdatedObject::Runtime(ome::runtime(&value()).inspect_err(unread).ok().map(Box::new))
        } else if *resource == FINE_TUNED_WEIGHT {
            UpdatedObject::Weight(WeightView::from_object(&value()).inspect_err(unread).ok().map(Box::new))
        } else if *resource == REFERENCE_GRANT {
            UpdatedObject::Grant(ReferenceGrant::from_live(&live))
        } else if *resource == POD {
            UpdatedObject::Pod(Pod::from_live(&live))
        } else if *resource == LLM_CONFIG {
            UpdatedObject::Config(live.field("spec").map(|spec| serde_json::from_str(spec.get()).unwrap_or_default()))
        } else if named.is_some() && !live.labels().contains_key(SUBJECT_KIND) {
            UpdatedObject::Nothing
        } else {
            let child = OwnedObject::from_live(key.clone(), (text, &live), known(&key).as_deref());
            // Any user can set our label on their own object, and name it in a subject. Without managedFields, as kubectl prints it, the
            // writer is unknown.
            if named.is_some() && live.has_managed_fields() && !child.ours() { UpdatedObject::Nothing } else { UpdatedObject::Child(child) }
        };
        let named = named.filter(|_| !key.name.is_empty());
        Self { version: live.version(), key, what, named }
    }
}
