//! What an object tells, read before the world is locked: the world's lock is held for moments only.

use super::{
    Child, Labels, ObjectKey, Pod, Subject,
    child::SUBJECT_KIND,
    live::Live,
    named::Named,
    ome::{self, ModelView, RuntimeView, WeightView},
};
use crate::resource::{
    BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, FINE_TUNED_WEIGHT, LLM_CONFIG, NAMED_BY_SUBJECTS, NAMESPACE, POD, Resource,
    SERVING_RUNTIME,
};
use serde_json::Value;
use std::{borrow::Cow, sync::Arc};

/// An object as the world keeps it.
#[derive(Debug)]
pub struct News {
    pub(super) key: ObjectKey,
    pub(super) version: u64,
    pub(super) what: What,
    /// What a subject that names it wants to know, if it is of such a kind.
    pub(super) named: Option<Named>,
}

#[derive(Debug)]
pub(super) enum What {
    Subject(Subject),
    Namespace(Labels),
    /// None if it can't be read.
    Model(Option<Box<ModelView>>),
    /// None if it can't be read.
    Runtime(Option<Box<RuntimeView>>),
    /// None if it can't be read.
    Weight(Option<WeightView>),
    /// A part of a spec; none if it can't be read.
    Config(Option<Value>),
    Pod(Pod),
    Child(Child),
    /// It has no name, or matters to nobody but those who name it.
    Nothing,
}

impl News {
    /// The object that was made for a subject, if it is one.
    pub fn child(&self) -> Option<&Child> {
        if let What::Child(child) = &self.what { Some(child) } else { None }
    }

    /// The subject, if it is one.
    pub fn subject(&self) -> Option<&Subject> {
        if let What::Subject(subject) = &self.what { Some(subject) } else { None }
    }

    /// Reads an object. What is known of it spares reading it all.
    pub fn read(resource: &'static Resource, text: &str, known: impl FnOnce(&ObjectKey) -> Option<Arc<Child>>) -> Self {
        let live = Live::of(text);
        let word = |name: &Option<Cow<'_, str>>| name.as_deref().unwrap_or_default().to_owned();
        let namespace = if resource.namespaced { word(&live.metadata.namespace) } else { String::new() };
        let key = ObjectKey { resource, namespace, name: word(&live.metadata.name) };
        let value = || serde_json::from_str::<Value>(text).unwrap_or_default();
        let named = NAMED_BY_SUBJECTS.contains(&resource).then(|| Named::of(&live));
        let unread = |error: &serde_json::Error| tracing::warn!(object = %key, "it can't be read, and counts as absent: {error}");
        let what = if key.name.is_empty() {
            What::Nothing
        } else if resource.is_subject() {
            What::Subject(Subject::of(key.clone(), &live))
        } else if *resource == NAMESPACE {
            What::Namespace(live.labels().into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
        } else if *resource == BASE_MODEL || *resource == CLUSTER_BASE_MODEL {
            What::Model(ome::model(&value()).inspect_err(unread).ok().map(Box::new))
        } else if *resource == SERVING_RUNTIME || *resource == CLUSTER_SERVING_RUNTIME {
            What::Runtime(ome::runtime(&value()).inspect_err(unread).ok().map(Box::new))
        } else if *resource == FINE_TUNED_WEIGHT {
            What::Weight(ome::weight(&value()).inspect_err(unread).ok())
        } else if *resource == POD {
            What::Pod(Pod::of(&live))
        } else if *resource == LLM_CONFIG {
            What::Config(live.field("spec").map(|spec| serde_json::from_str(spec.get()).unwrap_or_default()))
        } else if named.is_some() && !live.labels().contains_key(SUBJECT_KIND) {
            What::Nothing
        } else {
            let child = Child::of(key.clone(), (text, &live), known(&key).as_deref());
            // Anybody may write our label on what is his own, and name that. As kubectl prints it, it says nothing of who has written it.
            if named.is_some() && live.says_who_wrote() && !child.ours() { What::Nothing } else { What::Child(child) }
        };
        let named = named.filter(|_| !key.name.is_empty());
        Self { version: live.version(), key, what, named }
    }
}
