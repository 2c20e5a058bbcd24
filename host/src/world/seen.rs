//! An object as a watch or an answer brings it: its text, which whoever knows the kind takes apart.

use super::live::Live;
use kube::api::{ApiResource, ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Its text, and of its metadata what a watcher asks for.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

impl Seen {
    pub(crate) fn text(&self) -> &str {
        self.text.get()
    }

    /// The uid of the object that it belongs to.
    pub(crate) fn owner(&self) -> Option<String> {
        Live::of(self.text()).owner()
    }
}

impl<'de> Deserialize<'de> for Seen {
    /// By serde_json alone, and in a watch only where the type of an event comes before its object, as API servers write it.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(from)?;
        let live = Live::of(text.get()).metadata;
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

impl kube::Resource for Seen {
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
        let event: WatchEvent<Seen> = serde_json::from_str(&format!(r#"{{"type":"ADDED","object":{text}}}"#)).unwrap();
        let WatchEvent::Added(seen) = event else { panic!("{event:?}") };
        assert_eq!(seen.text(), text);
        assert_eq!((seen.meta().name.as_deref(), seen.meta().resource_version.as_deref()), (Some("a"), Some("7")));
    }
}
