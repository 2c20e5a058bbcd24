//! Converts Rust types to the structural schemas that the API server requires.
//!
//! schemars generates JSON Schema with references. A CRD requires one inlined OpenAPI v3 tree, supports `x-kubernetes-*`, and must stay
//! below etcd's size limit. This module therefore resolves the references itself, which also shows where a core type begins.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// The number of levels of an embedded core type that retain the first sentence of their descriptions. With all levels, InferenceService
/// would have 1.6 MB, and etcd rejects more than 1.5 MB.
const DESCRIBED_CORE_LEVELS: u8 = 2;

/// Marks an inlined property as a field of a core type; see [`mark_core`]. No CRD contains it.
const CORE_MARK: &str = "x-pointsman-core";

/// The lists of core types that Kubernetes' own API declares as maps. Server-side apply merges them by these keys; it replaces all other
/// lists as a whole.
const LIST_MAPS: &[(&str, &[&str])] = &[
    ("claims", &["name"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ports", &["containerPort", "protocol"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
];

/// Core types that server-side apply replaces as a whole: their fields are meaningful only together.
const ATOMIC_MAPS: &[&str] = &[
    "ConfigMapKeySelector",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "SecretKeySelector",
    "SecretReference",
    "TypedLocalObjectReference",
];

/// Core types whose `name` Kubernetes defaults to "" although it is a required string. A schema that requires it would reject objects that
/// upstream's CRDs accept.
const NAME_DEFAULTS_TO_EMPTY: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// The structural OpenAPI v3 schema of `T`.
pub(crate) fn structural_schema<T: JsonSchema>() -> Value {
    let root = SchemaSettings::draft2020_12().with(|s| s.meta_schema = None).into_generator().into_root_schema_for::<T>().to_value();
    let Value::Object(mut root) = root else { return Value::Null };
    let definitions = match root.remove("$defs") {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    Inliner { definitions }.inline(Value::Object(root), 0)
}

/// Marks the properties of a core type before it is flattened into one of our types, so that they are still treated as core fields there. A
/// flattened core type has no required fields.
pub(crate) fn mark_core(schema: &mut schemars::Schema) {
    schema.remove("required");
    schema.remove("description");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            property.insert(CORE_MARK.into(), true.into());
        }
    }
}

/// Converts pairs of rule and message to `x-kubernetes-validations`.
pub(crate) fn rules(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect()
}

struct Inliner {
    definitions: Map<String, Value>,
}

impl Inliner {
    /// Converts `schema` to a structural one. `core` is the number of core types that contain it.
    fn inline(&self, schema: Value, core: u8) -> Value {
        let Value::Object(mut schema) = schema else {
            // `true` accepts any value.
            return json!({ "x-kubernetes-preserve-unknown-fields": true });
        };
        if let Some(Value::String(reference)) = schema.remove("$ref") {
            let name = reference.rsplit('/').next().unwrap_or_default().replace("~1", "/");
            let mut target = self.definitions.get(&name).cloned().unwrap_or_default();
            let core = if name.starts_with("io.k8s.") { core.saturating_add(1) } else { core };
            if core > 0
                && let Some(target) = target.as_object_mut()
            {
                adapt_core_type(name.rsplit('.').next().unwrap_or_default(), target);
            }
            return self.inline(with_siblings(target, schema), core);
        }
        if let Some(only) = sole_alternative(&mut schema) {
            return self.inline(with_siblings(only, schema), core);
        }
        let core = if schema.remove(CORE_MARK).is_some() { core.max(1) } else { core };
        tidy_type(&mut schema);
        tidy_enum(&mut schema);
        tidy_description(&mut schema, core);
        for meta in ["title", "nullable", "$schema", "examples"] {
            schema.remove(meta);
        }
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for (name, property) in properties.iter_mut() {
                let in_core = core > 0 || property.get(CORE_MARK).is_some();
                *property = self.inline(property.take(), core);
                if in_core {
                    as_list_map(name, property);
                }
            }
            properties.sort_keys();
        }
        for child in ["items", "additionalProperties"] {
            match schema.get_mut(child) {
                Some(Value::Bool(_)) if child == "additionalProperties" => {
                    schema.remove(child);
                }
                Some(value) => *value = self.inline(value.take(), core),
                None => {}
            }
        }
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            required.dedup();
            if required.is_empty() {
                schema.remove("required");
            }
        }
        Value::Object(schema)
    }
}

/// Merges the siblings of a reference (a field's own description, default and rules) over its target.
fn with_siblings(mut target: Value, siblings: Map<String, Value>) -> Value {
    if let Some(target) = target.as_object_mut() {
        target.extend(siblings);
    }
    target
}

/// Returns the `T` of `anyOf: [T, null]`, schemars' form of an optional reference: a CRD doesn't declare that a field may be absent.
fn sole_alternative(schema: &mut Map<String, Value>) -> Option<Value> {
    let Value::Array(alternatives) = schema.get("anyOf")? else { return None };
    let mut others = alternatives.iter().filter(|a| a.get("type") != Some(&json!("null")));
    let only = others.next()?.clone();
    if others.next().is_some() {
        return None;
    }
    schema.remove("anyOf");
    Some(only)
}

fn tidy_type(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get("type") {
        let only = types.iter().find(|t| *t != "null").cloned().unwrap_or_default();
        schema.insert("type".into(), only);
    }
    // The API server supports only the signed integer formats.
    if let Some(Value::String(format)) = schema.get("format")
        && format.starts_with("uint")
    {
        schema.remove("format");
    }
    if schema.get("default") == Some(&Value::Null) {
        schema.remove("default");
    }
}

/// Converts `oneOf` of constants, schemars' form of an enum with documented variants: a CRD lists the values, and the description explains
/// them.
fn tidy_enum(schema: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = schema.remove("oneOf") else { return };
    let mut values = Vec::new();
    let mut told = Vec::new();
    for variant in &variants {
        let names: Vec<Value> = match (variant.get("const"), variant.get("enum")) {
            (Some(one), _) => vec![one.clone()],
            (_, Some(Value::Array(many))) => many.clone(),
            _ => Vec::new(),
        };
        if let (Some(Value::String(description)), Some(Value::String(name))) = (variant.get("description"), names.first()) {
            told.push(format!("{name}: {}", one_line(description)));
        }
        values.extend(names);
    }
    if !told.is_empty() {
        let before = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{before}\n\n{}", told.join("\n\n"));
        schema.insert("description".into(), text.trim().into());
    }
    schema.insert("type".into(), "string".into());
    schema.insert("enum".into(), Value::Array(values));
}

fn tidy_description(schema: &mut Map<String, Value>, core: u8) {
    let Some(Value::String(text)) = schema.get("description") else { return };
    if core > DESCRIBED_CORE_LEVELS {
        schema.remove("description");
        return;
    }
    let tidied = if core > 0 {
        first_sentence(text)
    } else {
        // Rust's doc comments wrap lines: each paragraph becomes one line.
        text.split("\n\n").map(one_line).collect::<Vec<_>>().join("\n")
    };
    schema.insert("description".into(), tidied.into());
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn first_sentence(text: &str) -> String {
    let paragraph = one_line(text.split("\n\n").next().unwrap_or_default());
    match paragraph.find(". ") {
        Some(end) => paragraph[..=end].to_owned(),
        None => paragraph,
    }
}

fn as_list_map(name: &str, property: &mut Value) {
    let Some((_, keys)) = LIST_MAPS.iter().find(|(list, _)| *list == name) else { return };
    // `claims` is also a map in other types: only a list of objects with all the keys qualifies.
    let has_keys = |items: &Value| keys.iter().all(|key| items["properties"].get(key).is_some());
    if !property.get("items").is_some_and(has_keys) {
        return;
    }
    let Some(property) = property.as_object_mut() else { return };
    property.insert("x-kubernetes-list-type".into(), "map".into());
    property.insert("x-kubernetes-list-map-keys".into(), json!(keys));
    if keys.contains(&"protocol") {
        // A key must be required or have a default; this is Kubernetes' own default.
        property["items"]["properties"]["protocol"]["default"] = "TCP".into();
    }
}

/// Adds declarations of Kubernetes' Go types that its OpenAPI, and therefore k8s-openapi, lacks.
fn adapt_core_type(name: &str, schema: &mut Map<String, Value>) {
    if ATOMIC_MAPS.contains(&name) {
        schema.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    if NAME_DEFAULTS_TO_EMPTY.contains(&name) {
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.retain(|field| field != "name");
        }
        if let Some(property) = schema.get_mut("properties").and_then(|p| p.get_mut("name")) {
            property["default"] = "".into();
        }
    }
    match name {
        // The API server manages the other metadata fields.
        "ObjectMeta" => {
            if let Some(Value::Object(properties)) = schema.get_mut("properties") {
                properties.retain(|field, _| ["annotations", "finalizers", "labels", "name", "namespace"].contains(&field.as_str()));
            }
        }
        "RawExtension" => {
            schema.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
        }
        "Quantity" => {
            schema.insert("pattern".into(), QUANTITY.into());
        }
        _ => {}
    }
}

/// The syntax of Go's `time.ParseDuration`, without negative durations.
pub(crate) const DURATION: &str = r"^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// The syntax of Kubernetes' quantities, as in its own CRDs.
pub(crate) const QUANTITY: &str =
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_ends_at_the_first_full_stop_that_a_space_follows() {
        assert_eq!(first_sentence("Version v1.2\nof it. And more."), "Version v1.2 of it.");
        assert_eq!(first_sentence("No stop\n\nsecond paragraph."), "No stop");
    }
}
