//! Processes objects like the API server: removes unknown fields and invalid nulls, and adds the schema's defaults. Plans depend on all of
//! this.

use pointsman_crds::{KINDS, Served};
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    sync::{LazyLock, OnceLock},
};

/// A step into an object: a field, or an index of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Field(String),
    Item(usize),
}

/// One of our kinds.
#[derive(Debug)]
pub struct Kind {
    /// Converts an object to our type and back.
    pub read: fn(Value) -> serde_json::Result<Value>,
    served: &'static Served,
    /// Built on first use, because it takes a while and most kinds aren't needed.
    made: OnceLock<Made>,
}

/// The parts of a kind's CRD that are needed here.
#[derive(Debug)]
struct Made {
    schema: Value,
    namespaced: bool,
}

/// Our kinds, by apiVersion and kind.
pub type Kinds = HashMap<(String, String), Kind>;

/// All of our kinds.
pub fn kinds() -> &'static Kinds {
    static ALL: LazyLock<Kinds> = LazyLock::new(|| {
        let named = |served: &'static Served| {
            let resource = (served.resource)();
            ((resource.api_version, resource.kind), Kind { read: served.read, served, made: OnceLock::new() })
        };
        KINDS.iter().map(named).collect()
    });
    &ALL
}

impl Kind {
    fn made(&self) -> &Made {
        self.made.get_or_init(|| {
            let mut spec = (self.served.crd)().spec;
            let schema = spec.versions.pop().and_then(|version| version.schema?.open_api_v3_schema);
            Made { schema: serde_json::to_value(schema).unwrap_or_default(), namespaced: spec.scope == "Namespaced" }
        })
    }

    /// The schema of its objects.
    pub fn schema(&self) -> &Value {
        &self.made().schema
    }

    /// Whether its objects are in namespaces.
    pub fn namespaced(&self) -> bool {
        self.made().namespaced
    }

    /// The object as the API server stores it.
    pub fn defaulted(&self, mut object: Map<String, Value>) -> Map<String, Value> {
        self.shape(&mut object);
        object
    }

    /// Converts the object to its stored form. Returns the unknown fields.
    pub fn shape(&self, object: &mut Map<String, Value>) -> Vec<Vec<Step>> {
        let mut unknown = Vec::new();
        let known = ["apiVersion", "kind", "metadata", "spec", "status"];
        for name in object.keys().filter(|name| !known.contains(&name.as_str())) {
            unknown.push(vec![Step::Field(name.clone())]);
        }
        object.retain(|name, _| known.contains(&name.as_str()));
        for name in ["spec", "status"] {
            let Some(schema) = self.schema()["properties"].get(name) else { continue };
            object.retain(|field, value| field != name || !is_absent(value, schema));
            if let Some(value) = object.get_mut(name) {
                shape(value, schema, &mut vec![Step::Field(name.to_owned())], &mut unknown);
            }
        }
        unknown
    }
}

/// Whether a value is a meaningless null: if a field isn't nullable, the API server treats null as absent.
fn is_absent(value: &Value, schema: &Value) -> bool {
    value.is_null() && schema["nullable"] != true
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
                    Some(schema) if is_absent(value, schema) => pruned.push(name.clone()),
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
                if let Some(default) = schema.get("default").filter(|_| !fields.contains_key(name)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_null_is_kept_only_where_the_schema_has_one_and_defaults_come_in_the_place_of_others() {
        let schema = json!({"properties": {
            "plain": {"type": "string"},
            "filled": {"type": "integer", "default": 1},
            "null": {"type": "string", "nullable": true, "default": "a"},
            "list": {"items": {"properties": {"a": {"type": "string"}}}},
            "map": {"additionalProperties": {"type": "string"}},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
        }});
        let mut value = json!({
            "plain": null, "filled": null, "null": null, "list": [{"a": null}, null], "map": {"a": null}, "any": {"a": null}, "other": null,
        });
        let mut unknown = Vec::new();
        shape(&mut value, &schema, &mut Vec::new(), &mut unknown);
        assert_eq!(value, json!({"null": null, "list": [{}, null], "map": {}, "any": {"a": null}, "filled": 1}));
        assert_eq!(unknown, [[Step::Field("other".to_owned())]]);
    }
}
