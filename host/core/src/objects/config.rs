//! Files and settings for pods.

use super::Metadata;
use serde_json::{Map, Value, json};

/// A ConfigMap's body.
pub fn map(metadata: Metadata, data: &Map<String, Value>) -> Value {
    json!({"metadata": metadata.into_value(), "data": data})
}
