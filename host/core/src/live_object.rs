//! An object as it stands in the cluster, for whoever writes its status: a runtime, a weight.

use serde_json::{Map, Value};

/// What of an object stands in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveObject {
    /// It, and no later one of the same name.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// Counts the changes of its spec.
    pub generation: i64,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Its status.
    pub status: Value,
}

impl LiveObject {
    /// Reads it.
    pub fn from_object(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        Self {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            is_deleting: !metadata["deletionTimestamp"].is_null(),
            status: object.get("status").cloned().unwrap_or_else(|| Value::Object(Map::new())),
        }
    }
}
