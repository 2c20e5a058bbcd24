//! The text of a live object, parsed only as far as needed: most updates from a watch concern other managers' fields, or change nothing.

use super::child::FIELD_MANAGER_PREFIX;
use k8s_openapi::jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

/// The annotation in which kubectl stores the object that it applied. It is never propagated.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object in parts.
#[derive(Debug, Default)]
pub struct Live<'a> {
    pub metadata: Metadata<'a>,
    pub(super) status: Option<&'a RawValue>,
    /// All other fields: its spec, or the equivalent of one.
    rest: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// The parsed fields of its metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata<'a> {
    #[serde(borrow)]
    pub name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub resource_version: Option<Cow<'a, str>>,
    pub(super) generation: Option<i64>,
    #[serde(borrow)]
    pub(super) creation_timestamp: Option<Cow<'a, str>>,
    deletion_timestamp: Option<IgnoredAny>,
    pub(super) finalizers: Vec<String>,
    #[serde(borrow)]
    pub(super) labels: Option<&'a RawValue>,
    #[serde(borrow)]
    pub annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    owner_references: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) managed_fields: Option<Vec<Managed<'a>>>,
}

/// The managedFields of one manager.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Managed<'a> {
    #[serde(borrow, default)]
    pub(super) manager: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) subresource: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) time: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    fields_v1: Option<&'a RawValue>,
}

/// The labels that a manager owns.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnedFields {
    #[serde(rename = "f:metadata")]
    metadata: OwnedMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnedMetadata {
    #[serde(rename = "f:labels")]
    #[allow(clippy::zero_sized_map_values, reason = "a set isn't read from an object")]
    labels: BTreeMap<String, IgnoredAny>,
}

impl Managed<'_> {
    /// The labels that it owns.
    fn labels(&self) -> BTreeSet<String> {
        let fields = self.fields_v1.and_then(|fields| serde_json::from_str::<OwnedFields>(fields.get()).ok()).unwrap_or_default();
        fields.metadata.labels.into_keys().filter_map(|key| key.strip_prefix("f:").map(str::to_owned)).collect()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Owner {
    #[serde(rename = "apiVersion")]
    api_version: String,
    name: String,
    uid: String,
    controller: bool,
}

impl<'a> Live<'a> {
    /// Splits a text into parts. A text that isn't an object has none.
    pub fn parse(text: &'a str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub(super) fn uid(&self) -> String {
        self.metadata.uid.as_deref().unwrap_or_default().to_owned()
    }

    pub(super) fn version(&self) -> u64 {
        self.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
    }

    /// The time of its creation; none offline.
    pub(super) fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_deref()?.parse().ok()
    }

    pub fn deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it has managedFields.
    pub(super) fn has_managed_fields(&self) -> bool {
        self.metadata.managed_fields.as_ref().is_some_and(|managed| !managed.is_empty())
    }

    pub fn labels(&self) -> BTreeMap<Cow<'a, str>, Cow<'a, str>> {
        self.metadata.labels.map(strings).unwrap_or_default()
    }

    /// The labels that only this manager owns.
    pub(super) fn labels_owned_only_by(&self, manager: &str) -> BTreeMap<String, String> {
        let managed = || self.metadata.managed_fields.iter().flatten();
        let (owned, others): (Vec<_>, Vec<_>) = managed().partition(|entry| entry.manager == manager);
        let mut owned: BTreeSet<String> = owned.into_iter().flat_map(Managed::labels).collect();
        if !owned.is_empty() {
            owned = others.into_iter().fold(owned, |owned, other| &owned - &other.labels());
        }
        let labels = if owned.is_empty() { BTreeMap::new() } else { self.labels() };
        labels.into_iter().filter(|(key, _)| owned.contains(&**key)).map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
    }

    fn controller(&self) -> Option<Owner> {
        let owners: Vec<Owner> = serde_json::from_str(self.metadata.owner_references?.get()).ok()?;
        owners.into_iter().find(|owner| owner.controller)
    }

    /// The uid of its owner.
    pub fn owner(&self) -> Option<String> {
        self.controller().map(|owner| owner.uid)
    }

    /// The group and the name of its owner.
    pub fn owner_group_and_name(&self) -> Option<(String, String)> {
        let Owner { api_version, name, .. } = self.controller()?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Some((group.to_owned(), name))
    }

    /// A field other than metadata and status.
    pub(super) fn field(&self, name: &str) -> Option<&'a RawValue> {
        self.rest.iter().find_map(|(key, value)| (key == name).then_some(*value))
    }

    /// The fingerprint of all fields except its status and those of other managers.
    pub(super) fn fingerprint(&self) -> u64 {
        let Metadata { labels, annotations, owner_references, managed_fields, .. } = &self.metadata;
        let mut hasher = DefaultHasher::new();
        let ours = managed_fields
            .iter()
            .flatten()
            .filter(|managed| managed.manager.starts_with(FIELD_MANAGER_PREFIX))
            .map(|managed| managed.fields_v1);
        for part in [*labels, *annotations, *owner_references].into_iter().chain(ours) {
            part.map(RawValue::get).hash(&mut hasher);
        }
        for (name, value) in &self.rest {
            (name, value.get()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// A string that borrows from the text.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A map of strings.
pub fn strings(map: &RawValue) -> BTreeMap<Cow<'_, str>, Cow<'_, str>> {
    let map: BTreeMap<Text<'_>, Text<'_>> = serde_json::from_str(map.get()).unwrap_or_default();
    map.into_iter().map(|(key, value)| (key.0, value.0)).collect()
}

impl<'de> Deserialize<'de> for Live<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Live<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of Kubernetes")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Live<'de>, A::Error> {
                let mut live = Live::default();
                while let Some(Text(key)) = fields.next_key()? {
                    match &*key {
                        "metadata" => live.metadata = fields.next_value()?,
                        "status" => live.status = Some(fields.next_value()?),
                        "apiVersion" | "kind" => _ = fields.next_value::<IgnoredAny>()?,
                        _ => live.rest.push((key, fields.next_value()?)),
                    }
                }
                Ok(live)
            }
        }
        from.deserialize_map(Parts)
    }
}

/// A live object without its status and without other managers' fields; null if it isn't an object.
pub(super) fn value(text: &str) -> Value {
    let mut text = serde_json::Deserializer::from_str(text);
    ParsePosition::Object.deserialize(&mut text).ok().flatten().unwrap_or_default()
}

/// The position of a value in an object.
#[derive(Clone, Copy)]
enum ParsePosition {
    Object,
    Metadata,
    /// The managedFields.
    Managers,
    /// One entry of managedFields. It starts with the manager's name, so that entries of others can be skipped.
    Manager,
    /// Everything else, which is parsed completely.
    Other,
}

impl ParsePosition {
    /// The position of the value for a key; none if the value isn't needed.
    fn inner(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object, "status") => None,
            (Self::Object, "metadata") => Some(Self::Metadata),
            (Self::Metadata, "managedFields") => Some(Self::Managers),
            _ => Some(Self::Other),
        }
    }
}

impl<'de> DeserializeSeed<'de> for ParsePosition {
    /// None if it belongs to another manager.
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Value>, D::Error> {
        match self {
            Self::Other => Value::deserialize(from).map(Some),
            _ => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for ParsePosition {
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
            let others = matches!(self, Self::Manager)
                && key == "manager"
                && !value.as_str().is_some_and(|name| name.starts_with(FIELD_MANAGER_PREFIX));
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
    use serde_json::json;

    fn entry(manager: &str) -> Value {
        json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}})
    }

    fn live(managers: &Value) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": {
                "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7", "generation": 2, "labels": {"x\ty": "1", "z": null},
                "ownerReferences": [{"uid": "x"}, {"uid": "y", "controller": true}], "managedFields": managers,
            },
            "spec": {"replicas": 1, "list": [{"manager": "kubectl"}]}, "status": {"metadata": {"managedFields": [1]}},
        })
    }

    #[test]
    fn what_others_manage_and_the_status_are_passed_over_and_the_rest_is_whole() {
        let ours = entry("pointsman/inferenceservice");
        let all = live(&json!([entry("kubectl"), ours, {"operation": "Update", "manager": "kubelet"}]));
        let mut expected = live(&json!([ours]));
        expected.as_object_mut().unwrap().remove("status");
        assert_eq!(value(&all.to_string()), expected);
        assert_eq!(value("7"), Value::Null);
        assert_eq!(value(r#"{"metadata": {"managedFields": null}}"#), json!({"metadata": {"managedFields": null}}));
    }

    #[test]
    fn an_object_comes_apart() {
        let text = live(&json!([entry("pointsman/inferenceservice")])).to_string();
        let live = Live::parse(&text);
        assert_eq!((live.uid().as_str(), live.version(), live.metadata.generation), ("u", 7, Some(2)));
        assert_eq!((live.owner().as_deref(), live.deleting()), (Some("y"), false));
        assert_eq!(live.field("spec").unwrap().get(), r#"{"replicas":1,"list":[{"manager":"kubectl"}]}"#);
        assert!(live.field("metadata").is_none() && live.field("kind").is_none() && live.status.is_some());
        assert_eq!(Live::parse("7").metadata.name, None);
    }

    #[test]
    fn only_what_others_do_leaves_the_fingerprint_as_it_is() {
        let ours = entry("pointsman/inferenceservice");
        let fingerprint = |change: fn(&mut Value)| {
            let mut live = live(&json!([ours, entry("kubectl")]));
            change(&mut live);
            Live::parse(&live.to_string()).fingerprint()
        };
        let before = fingerprint(|_| {});
        let same: [fn(&mut Value); 3] = [
            |live| live["status"] = json!({"replicas": 5}),
            |live| live["metadata"]["resourceVersion"] = "8".into(),
            |live| live["metadata"]["managedFields"][1]["fieldsV1"] = json!({}),
        ];
        assert!(same.into_iter().all(|change| fingerprint(change) == before));
        let other: [fn(&mut Value); 6] = [
            |live| live["spec"]["replicas"] = 2.into(),
            |live| live["rules"] = json!([]),
            |live| live["metadata"]["labels"] = json!({}),
            |live| live["metadata"]["annotations"] = json!({}),
            |live| live["metadata"]["ownerReferences"] = json!([]),
            |live| live["metadata"]["managedFields"][0]["fieldsV1"] = json!({}),
        ];
        assert!(other.into_iter().all(|change| fingerprint(change) != before));
    }
}
