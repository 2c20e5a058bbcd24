//! Explains which layer requested a field of the planned objects, and which plugin set it.

use super::{
    labels::HOST,
    lines::{cut, line, table},
};
use crate::{
    guards::provenance::select::{FieldPath, FoundField, FoundPart, MissingPart},
    plan::{Object, Plan},
    rules::fields,
    world::{ObjectKey, Subject},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The fields at a path in the objects of a plan.
#[derive(Debug)]
pub struct FoundFields<'p> {
    subject: &'p Subject,
    plan: &'p Plan,
    parts: Vec<(&'p Object, FoundPart)>,
}

/// Why a path has no field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoField {
    /// No objects are planned.
    #[error("no objects are planned, so no field has a value: run `pointsman explain` without --why for the reason")]
    Unplanned,
    /// No object has this field.
    #[error("no planned object has the field {path}: {hint}")]
    Missing {
        /// The path as it was entered.
        path: String,
        /// The existing alternatives.
        hint: String,
    },
}

/// The fields at a path in the objects of a plan. A path is read from the root of an object if possible, otherwise from the root of a pod
/// template. `configs` are the configurations of all plugins.
pub fn find<'p>(subject: &'p Subject, plan: &'p Plan, configs: &[(String, Value)], path: &FieldPath) -> Result<FoundFields<'p>, NoField> {
    let objects = plan.objects.as_deref().filter(|objects| !objects.is_empty()).ok_or(NoField::Unplanned)?;
    let mut parts: Vec<(&Object, FoundPart)> = Vec::new();
    let mut furthest: Option<(&Object, MissingPart)> = None;
    let mut missed = |object: &'p Object, missing: MissingPart| {
        furthest = Some(match furthest.take() {
            Some((known, before)) => {
                let further = before.clone().or_further(missing);
                if further == before { (known, further) } else { (object, further) }
            }
            None => (object, missing),
        });
    };
    for object in objects {
        match path.in_object(object, &plan.decisions, configs) {
            Ok(found) => parts.extend(found.into_iter().map(|part| (object, part))),
            Err(missing) => missed(object, missing),
        }
    }
    if parts.is_empty() {
        for object in objects {
            match path.in_pods(object, &plan.decisions, configs) {
                Ok(found) => parts.extend(found.into_iter().map(|part| (object, part))),
                Err(missing) => missing.into_iter().for_each(|missing| missed(object, missing)),
            }
        }
    }
    if parts.is_empty() {
        let hint = furthest.map(|(object, missing)| hint(object, &missing)).unwrap_or_default();
        return Err(NoField::Missing { path: path.to_string(), hint });
    }
    Ok(FoundFields { subject, plan, parts })
}

/// The alternatives at the last existing part of a path.
fn hint(object: &Object, MissingPart { path, name, known, .. }: &MissingPart) -> String {
    let place = if path.is_empty() { String::new() } else { format!("{path} of ") };
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    let hint = fields::hint(name, &known);
    let hint = if hint.is_empty() { "; nothing is in it".to_owned() } else { hint };
    format!("{place}the {} {} has no {name}{hint}", object.key.resource.kind, object.key.name)
}

impl FoundFields<'_> {
    /// The explanation as text.
    pub fn text(&self) -> String {
        let ObjectKey { resource, namespace, name } = &self.subject.key;
        let mut text = format!("{} {namespace}/{name}\n", resource.kind);
        for (object, part) in &self.parts {
            text.push('\n');
            line(&mut text, 0, &format!("{} {}: {}", object.key.resource.kind, object.key.name, part.path));
            let mut rows = vec![["FIELD", "VALUE", "REQUESTED BY", "SET BY"].map(str::to_owned)];
            rows.extend(part.fields.iter().map(|found| self.row(part, found)));
            table(&mut text, &rows);
        }
        text
    }

    fn row(&self, part: &FoundPart, FoundField { field, writer }: &FoundField) -> [String; 4] {
        let inner = field.field.strip_prefix(&part.path).unwrap_or_default().trim_start_matches('.');
        let inner = if inner.is_empty() { field.name.as_str() } else { inner };
        let value = field.value.as_str().map_or_else(|| field.value.to_string(), str::to_owned);
        let by: Vec<String> = field.by.iter().map(|layer| self.layer(layer)).collect();
        let by = if by.is_empty() { "nobody but the plugin".to_owned() } else { by.join(", ") };
        [inner.to_owned(), cut(&value), by, writer.clone().unwrap_or_else(|| HOST.to_owned())]
    }

    /// A layer, with the name of its object if that is known.
    fn layer(&self, layer: &str) -> String {
        let ObjectKey { resource, name, .. } = &self.subject.key;
        match layer.split('-').next() {
            Some("runtime") => {
                let runtime = &self.plan.status.fields.get("runtime");
                let text = |field: &str| runtime.and_then(|runtime| runtime[field].as_str());
                match (text("kind"), text("name")) {
                    (Some(kind), Some(name)) => format!("{layer} ({kind} {name})"),
                    _ => layer.to_owned(),
                }
            }
            Some("user") => format!("{layer} ({} {name})", resource.kind),
            _ => layer.to_owned(),
        }
    }

    /// The explanation as JSON.
    pub fn json(&self) -> Value {
        let entry = |(object, part): &(&Object, FoundPart)| {
            let ObjectKey { resource, namespace, name } = &object.key;
            let object = json!({"group": resource.group, "kind": resource.kind, "namespace": namespace, "name": name});
            let field = |FoundField { field, writer }: &FoundField| json!({"object": object, "field": field.field, "value": field.value, "requestedBy": field.by, "setBy": writer});
            part.fields.iter().map(field).collect::<Vec<_>>()
        };
        let ObjectKey { resource, namespace, name } = &self.subject.key;
        let fields: Vec<Value> = self.parts.iter().flat_map(entry).collect();
        json!({"subject": {"kind": resource.kind, "namespace": namespace, "name": name}, "fields": fields})
    }
}
