//! Core Kubernetes types in the form in which our kinds embed them: every field is optional.

use crate::schema::mark_core;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    ops::{Deref, DerefMut},
};

/// Declares a wrapper to flatten into a kind: `$core`, whose required field `$field` becomes optional.
macro_rules! embedded {
    ($(#[$doc:meta])* $name:ident, $core:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name(pub $core);

        impl Deref for $name {
            type Target = $core;
            fn deref(&self) -> &$core {
                &self.0
            }
        }

        impl DerefMut for $name {
            fn deref_mut(&mut self) -> &mut $core {
                &mut self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut fields = serde_json::to_value(&self.0).map_err(S::Error::custom)?;
                if let Value::Object(fields) = &mut fields {
                    drop_if_empty(fields, $field);
                }
                fields.serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $core::deserialize(deserializer).map(Self)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let mut schema = $core::json_schema(generator);
                mark_core(&mut schema);
                schema
            }
        }
    };
}

embedded! {
    /// A `PodSpec` with optional containers, to flatten into a component.
    PodFields, PodSpec, "containers"
}
embedded! {
    /// A `Container` with an optional name, to flatten into an override.
    ContainerFields, Container, "name"
}

/// Removes a required field if it is empty: k8s-openapi always writes it, and an absent field must stay absent.
fn drop_if_empty(fields: &mut Map<String, Value>, field: &str) {
    let empty = match fields.get(field) {
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        _ => false,
    };
    if empty {
        fields.remove(field);
    }
}

/// A JSON object that is stored without validation (upstream's `RawExtension`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawObject(pub Map<String, Value>);

impl JsonSchema for RawObject {
    fn schema_name() -> Cow<'static, str> {
        "RawObject".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}
