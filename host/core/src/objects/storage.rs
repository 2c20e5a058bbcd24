//! Volumes.

use super::Metadata;
use serde_json::{Value, json};

/// A PersistentVolumeClaim's body. Without a class, the cluster's default class applies.
pub fn claim(metadata: Metadata, class: Option<&str>, size: &str, mode: &str) -> Value {
    let mut spec = json!({"accessModes": [mode], "resources": {"requests": {"storage": size}}});
    if let Some(class) = class {
        spec["storageClassName"] = class.into();
    }
    json!({"metadata": metadata.into_value(), "spec": spec})
}
