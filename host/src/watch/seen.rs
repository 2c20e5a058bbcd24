//! An object from a watch or a response: its text, which each kind parses for itself.

use kube::api::{ApiResource, ObjectMeta};
use pointsman_core::world::{
    adopted::ADOPTED,
    child::SUBJECT_KIND,
    live::{Live, strings},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

/// Its text, and the metadata that a watcher needs.
#[derive(Clone, Debug)]
pub(crate) struct ObjectText {
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

impl ObjectText {
    pub(crate) fn text(&self) -> &str {
        self.text.get()
    }

    /// Its managed fields.
    pub(crate) fn managed_fields(&self) -> Vec<Value> {
        let whole: Value = serde_json::from_str(self.text()).unwrap_or_default();
        whole["metadata"]["managedFields"].as_array().cloned().unwrap_or_default()
    }

    /// Whether it is being deleted.
    pub(crate) fn deleting(&self) -> bool {
        Live::parse(self.text()).deleting()
    }

    /// Whether it has the label of the watches, and whether it was adopted from another controller.
    pub(crate) fn marks(&self) -> (bool, bool) {
        let live = Live::parse(self.text());
        let adopted = live.metadata.annotations.map(strings).is_some_and(|annotations| annotations.contains_key(ADOPTED));
        (live.labels().contains_key(SUBJECT_KIND), adopted)
    }

    /// The uid of its owner.
    pub(crate) fn owner(&self) -> Option<String> {
        Live::parse(self.text()).owner()
    }

    /// The group and the name of its owner.
    pub(crate) fn owner_group_and_name(&self) -> Option<(String, String)> {
        Live::parse(self.text()).owner_group_and_name()
    }
}

impl<'de> Deserialize<'de> for ObjectText {
    /// Works only with serde_json, and in a watch only if an event's type comes before its object, as API servers write it.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(from)?;
        let live = Live::parse(text.get()).metadata;
        let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
        let metadata = ObjectMeta {
            name: owned(live.name),
            namespace: owned(live.namespace),
            resource_version: owned(live.resource_version),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, text })
    }
}

impl kube::Resource for ObjectText {
    type DynamicType = ApiResource;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }
    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }
    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }
    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::{Resource, core::WatchEvent};

    #[test]
    fn a_watch_brings_it_as_it_was_written() {
        let text = r#"{"kind":"Deployment","metadata":{"name":"a","resourceVersion":"7"},"spec":{ "replicas" : 1 }}"#;
        let event: WatchEvent<ObjectText> = serde_json::from_str(&format!(r#"{{"type":"ADDED","object":{text}}}"#)).unwrap();
        let WatchEvent::Added(seen) = event else { panic!("{event:?}") };
        assert_eq!(seen.text(), text);
        assert_eq!((seen.meta().name.as_deref(), seen.meta().resource_version.as_deref()), (Some("a"), Some("7")));
    }
}
