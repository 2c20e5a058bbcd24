//! An object as a watch brings it: only what is looked at is read, because most of what comes is what others manage and nobody here needs.

use super::child::MANAGER;
use kube::api::{ApiResource, ObjectMeta};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use std::{borrow::Cow, fmt};

/// Its JSON, and of its metadata what a watch needs. Left out are its spec where that isn't wanted, and what other managers own.
#[derive(Clone, Debug)]
pub(super) struct Seen<const SPEC: bool> {
    metadata: ObjectMeta,
    pub(super) value: Value,
}

impl<'de, const SPEC: bool> Deserialize<'de> for Seen<SPEC> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Place::Object { spec: SPEC }.deserialize(from)?.unwrap_or_default();
        let text = |name: &str| value.get("metadata").and_then(|metadata| metadata.get(name)?.as_str()).map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, value })
    }
}

impl<const SPEC: bool> Serialize for Seen<SPEC> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(to)
    }
}

impl<const SPEC: bool> kube::Resource for Seen<SPEC> {
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

/// Where in an object a value stands.
#[derive(Clone, Copy)]
enum Place {
    /// The object itself.
    Object {
        spec: bool,
    },
    Metadata,
    /// Its managedFields.
    Managers,
    /// One of them. It begins with the manager's name, so that all others can be passed over.
    Manager,
    /// Everything else is read whole.
    Other,
}

impl Place {
    /// What stands under a key; none if nobody looks at it.
    fn inner(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object { spec: false }, "spec") => None,
            (Self::Object { .. }, "metadata") => Some(Self::Metadata),
            (Self::Metadata, "managedFields") => Some(Self::Managers),
            _ => Some(Self::Other),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place {
    /// None where it is somebody else's.
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Value>, D::Error> {
        match self {
            Self::Other => Value::deserialize(from).map(Some),
            _ => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Place {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of Kubernetes")
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<Value>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self::Manager)? {
            list.extend(item);
        }
        Ok(Some(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<Value>, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let Some(inner) = self.inner(&key) else {
                fields.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = fields.next_value_seed(inner)?.unwrap_or_default();
            let others = matches!(self, Self::Manager) && key == "manager" && !value.as_str().is_some_and(|name| name.starts_with(MANAGER));
            if others {
                while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(None);
            }
            object.insert(key, value);
        }
        Ok(Some(Value::Object(object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Resource;
    use serde_json::json;

    #[test]
    fn what_others_manage_is_passed_over_and_the_rest_is_whole() {
        let entry = |manager: &str| json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let ours = entry("pointsman/inferenceservice");
        let live = |managers: Value| {
            json!({
                "kind": "Deployment", "metadata": {"name": "a", "namespace": "b", "resourceVersion": "7", "managedFields": managers},
                "spec": {"replicas": 1, "list": [{"manager": "kubectl"}]}, "status": {"metadata": {"managedFields": [1]}},
            })
        };
        let text = live(json!([entry("kubectl"), ours, {"operation": "Update", "manager": "kubelet"}])).to_string();
        let seen: Seen<true> = serde_json::from_str(&text).unwrap();
        assert_eq!(seen.value, live(json!([ours])));
        assert_eq!((seen.meta().name.as_deref(), seen.meta().resource_version.as_deref()), (Some("a"), Some("7")));
        let seen: Seen<false> = serde_json::from_str(&text).unwrap();
        assert_eq!((seen.value.get("spec"), seen.value.get("status").is_some()), (None, true));
        // As a text that isn't borrowed, too.
        let owned: Seen<true> = serde_json::from_reader(text.as_bytes()).unwrap();
        assert_eq!(owned.value, live(json!([ours])));
    }

    #[test]
    fn what_is_absent_stays_absent() {
        let seen: Seen<true> = serde_json::from_value(json!({"metadata": {"managedFields": null}})).unwrap();
        assert_eq!(seen.value, json!({"metadata": {"managedFields": null}}));
        assert!(serde_json::from_str::<Seen<true>>("7").is_err());
    }
}
