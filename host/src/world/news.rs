//! What an object tells, read before the world is locked: the world's lock is held for moments only.

use super::{
    Child, Labels, ObjectKey, Pod, Subject,
    ome::{self, ModelView, RuntimeView},
    resource::{BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, INFERENCE_SERVICE, NAMESPACE, POD, Resource, SERVING_RUNTIME},
};
use serde_json::Value;

/// An object as the world keeps it.
#[derive(Debug)]
pub struct News {
    pub(super) key: ObjectKey,
    pub(super) version: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Subject(Subject),
    Namespace(Labels),
    /// None if it can't be read.
    Model(Option<Box<ModelView>>),
    /// None if it can't be read.
    Runtime(Option<Box<RuntimeView>>),
    Pod(Pod),
    Child(Child),
    /// It has no name.
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

    /// Reads an object.
    pub fn read(resource: &'static Resource, object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let namespace = if resource.namespaced { text("/metadata/namespace") } else { "" };
        let key = ObjectKey { resource, namespace: namespace.to_owned(), name: text("/metadata/name").to_owned() };
        let unread = |error: &serde_json::Error| tracing::warn!(object = %key, "it can't be read, and counts as absent: {error}");
        let what = if *resource == INFERENCE_SERVICE {
            What::Subject(Subject::of(key.clone(), object))
        } else if *resource == NAMESPACE {
            let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
            What::Namespace(labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect())
        } else if *resource == BASE_MODEL || *resource == CLUSTER_BASE_MODEL {
            What::Model(ome::model(object).inspect_err(unread).ok().map(Box::new))
        } else if *resource == SERVING_RUNTIME || *resource == CLUSTER_SERVING_RUNTIME {
            What::Runtime(ome::runtime(object).inspect_err(unread).ok().map(Box::new))
        } else if *resource == POD {
            Pod::of(object).map_or(What::Nothing, What::Pod)
        } else {
            Child::of(resource, object).map_or(What::Nothing, What::Child)
        };
        Self { version: text("/metadata/resourceVersion").parse().unwrap_or_default(), key, what }
    }
}
