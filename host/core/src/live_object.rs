//! The metadata and status of an object in the cluster whose status this host writes: a runtime, a weight.

use serde_json::{Map, Value};

/// The metadata and status of an object in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveObject {
    /// Its uid, which distinguishes it from later objects with the same name.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// The number of changes of its spec.
    pub generation: i64,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Its status.
    pub status: Value,
}

impl LiveObject {
    /// Parses the object.
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
