//! What the API server makes of an object before anyone sees it: it leaves out what the kind's schema doesn't know, and fills in
//! the schema's defaults. Plans depend on both.

use super::fields::Step;
use pointsman_crds::Served;
use serde_json::{Map, Value};

/// A kind of ours.
#[derive(Debug)]
pub(super) struct Kind {
    /// Reads an object into our type and writes it again.
    pub(super) read: fn(Value) -> serde_json::Result<Value>,
    schema: Value,
}

impl Kind {
    /// With its schema, which takes some milliseconds.
    pub(super) fn of(served: &Served) -> Self {
        let schema = (served.crd)().spec.versions.pop().and_then(|version| version.schema?.open_api_v3_schema);
        Self { read: served.read, schema: serde_json::to_value(schema).unwrap_or_default() }
    }

    /// The object as it is kept. Tells the fields that the schema doesn't know.
    pub(super) fn shape(&self, object: &mut Map<String, Value>) -> Vec<Vec<Step>> {
        let mut unknown = Vec::new();
        let known = ["apiVersion", "kind", "metadata", "spec", "status"];
        for name in object.keys().filter(|name| !known.contains(&name.as_str())) {
            unknown.push(vec![Step::Field(name.clone())]);
        }
        object.retain(|name, _| known.contains(&name.as_str()));
        for name in ["spec", "status"] {
            if let (Some(value), Some(schema)) = (object.get_mut(name), self.schema["properties"].get(name)) {
                shape(value, schema, &mut vec![Step::Field(name.to_owned())], &mut unknown);
            }
        }
        unknown
    }
}

fn shape(value: &mut Value, schema: &Value, path: &mut Vec<Step>, unknown: &mut Vec<Vec<Step>>) {
    match value {
        Value::Object(fields) => {
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let properties = schema["properties"].as_object();
            let others = schema.get("additionalProperties").filter(|others| **others != Value::Bool(false));
            let mut pruned = Vec::new();
            for (name, value) in fields.iter_mut() {
                path.push(Step::Field(name.clone()));
                match properties.and_then(|properties| properties.get(name)).or(others) {
                    Some(schema) => shape(value, schema, path, unknown),
                    None if keeps => {}
                    None => {
                        unknown.push(path.clone());
                        pruned.push(name.clone());
                    }
                }
                path.pop();
            }
            fields.retain(|name, _| !pruned.contains(name));
            for (name, schema) in properties.into_iter().flatten() {
                if let Some(default) = schema.get("default").filter(|_| fields.get(name).is_none_or(Value::is_null)) {
                    fields.insert(name.clone(), default.clone());
                }
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter_mut().enumerate() {
                path.push(Step::Item(number));
                shape(item, &schema["items"], path, unknown);
                path.pop();
            }
        }
        _ => {}
    }
}
