//! Compares our CRDs with those that a cluster has.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use std::fmt;

/// The differences that limit or prevent the use of an installed CRD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The reason why the kind can't be served at all.
    pub unusable: Option<String>,
    /// Fields of our CRD that the API server would reject or drop.
    pub missing: Vec<String>,
    /// The storage version, and the fields of our CRD that it lacks although the served version accepts them. Their values are lost unless
    /// the conversion webhook of the kind's own controller preserves them.
    pub not_stored: Option<(String, Vec<String>)>,
}

impl Comparison {
    /// Whether the installed CRD can be used and has all our fields.
    pub fn compatible(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.unusable {
            return write!(f, "can't be used: {why}");
        }
        if self.compatible() {
            return write!(f, "compatible");
        }
        let mut parts = Vec::new();
        if !self.missing.is_empty() {
            parts.push(format!("has no field {}", listed(&self.missing)));
        }
        if let Some((version, fields)) = &self.not_stored {
            parts.push(format!("its storage version {version} has no field {}", listed(fields)));
        }
        write!(f, "{}", parts.join("; "))
    }
}

/// Lists the first few fields and counts the others, because a long list isn't readable.
fn listed(fields: &[String]) -> String {
    const SHOWN: usize = 12;
    let shown = fields[..fields.len().min(SHOWN)].join(", ");
    match fields.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Compares the CRD `installed` in a cluster with `ours`.
pub fn compare(ours: &CustomResourceDefinition, installed: &CustomResourceDefinition) -> Comparison {
    let mut comparison = Comparison::default();
    if ours.spec.scope != installed.spec.scope {
        comparison.unusable = Some(format!("it is {} and should be {}", installed.spec.scope, ours.spec.scope));
        return comparison;
    }
    let Some(our_version) = ours.spec.versions.first() else { return comparison };
    let served = installed.spec.versions.iter().find(|v| v.served && v.name == our_version.name);
    let Some(served) = served else {
        comparison.unusable = Some(format!("it doesn't serve the version {}", our_version.name));
        return comparison;
    };
    let has_status = |version: &CustomResourceDefinitionVersion| version.subresources.as_ref().is_some_and(|s| s.status.is_some());
    if has_status(our_version) && !has_status(served) {
        comparison.unusable = Some("it has no status subresource".to_owned());
        return comparison;
    }
    let Some(wanted) = schema(our_version) else { return comparison };
    walk(wanted, schema(served), "", &mut comparison.missing);
    let stored = installed.spec.versions.iter().find(|v| v.storage && v.name != served.name);
    if let Some(stored) = stored {
        let mut fields = Vec::new();
        walk(wanted, schema(stored), "", &mut fields);
        fields.retain(|field| !comparison.missing.contains(field));
        if !fields.is_empty() {
            comparison.not_stored = Some((stored.name.clone(), fields));
        }
    }
    comparison
}

fn schema(version: &CustomResourceDefinitionVersion) -> Option<&JSONSchemaProps> {
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

/// Adds to `missing` the paths of the fields that `ours` has and `theirs` lacks.
fn walk(ours: &JSONSchemaProps, theirs: Option<&JSONSchemaProps>, path: &str, missing: &mut Vec<String>) {
    let Some(theirs) = theirs else { return };
    if theirs.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, property) in ours.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match theirs.properties.as_ref().and_then(|properties| properties.get(name)) {
            Some(found) => walk(property, Some(found), &path, missing),
            None => missing.push(path),
        }
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(ours)), Some(JSONSchemaPropsOrArray::Schema(theirs))) = (&ours.items, &theirs.items) {
        walk(ours, Some(theirs), &format!("{path}[]"), missing);
    }
    let free = ours.x_kubernetes_preserve_unknown_fields == Some(true);
    if free || (ours.additional_properties.is_some() && theirs.additional_properties.is_none()) {
        // Ours accepts keys that theirs doesn't.
        missing.push(format!("{path}.*"));
    }
    if let (Some(ours), Some(theirs)) = (&ours.type_, &theirs.type_)
        && ours != theirs
    {
        missing.push(format!("{path} of type {ours} (there it is {theirs})"));
    }
    if let (Some(JSONSchemaPropsOrBool::Schema(ours)), Some(JSONSchemaPropsOrBool::Schema(theirs))) =
        (&ours.additional_properties, &theirs.additional_properties)
    {
        walk(ours, Some(theirs), &format!("{path}{{}}"), missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KINDS;

    fn any() -> CustomResourceDefinition {
        (KINDS.iter().find(|kind| (kind.resource)().kind == "InferenceObjective").unwrap().crd)()
    }

    fn spec_of(crd: &mut CustomResourceDefinition, version: usize) -> &mut JSONSchemaProps {
        let schema = crd.spec.versions[version].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        schema.properties.as_mut().unwrap().get_mut("spec").unwrap()
    }

    #[test]
    fn a_crd_is_compatible_with_itself() {
        assert!(compare(&any(), &any()).compatible());
    }

    #[test]
    fn a_missing_field_is_named_by_its_path() {
        let mut theirs = any();
        let pool = spec_of(&mut theirs, 0).properties.as_mut().unwrap().get_mut("poolRef").unwrap();
        pool.properties.as_mut().unwrap().remove("group");
        assert_eq!(compare(&any(), &theirs).to_string(), "has no field spec.poolRef.group");
    }

    #[test]
    fn a_field_of_another_type_or_without_room_for_any_key_is_named() {
        let mut ours = any();
        let mut theirs = any();
        let labels = serde_json::json!({ "type": "object", "additionalProperties": { "type": "string" } });
        let free = serde_json::json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        for (name, schema) in [("labels", labels), ("free", free)] {
            let closed = serde_json::from_value(serde_json::json!({ "type": "object" })).unwrap();
            spec_of(&mut ours, 0).properties.as_mut().unwrap().insert(name.into(), serde_json::from_value(schema).unwrap());
            spec_of(&mut theirs, 0).properties.as_mut().unwrap().insert(name.into(), closed);
        }
        spec_of(&mut theirs, 0).properties.as_mut().unwrap().get_mut("priority").unwrap().type_ = Some("string".into());
        assert_eq!(
            compare(&ours, &theirs).to_string(),
            "has no field spec.free.*, spec.labels.*, spec.priority of type integer (there it is string)"
        );
    }

    #[test]
    fn a_field_that_only_the_storage_version_lacks_is_told_apart() {
        let mut theirs = any();
        let mut stored = theirs.spec.versions[0].clone();
        stored.name = "v1alpha3".into();
        theirs.spec.versions[0].storage = false;
        theirs.spec.versions.push(stored);
        spec_of(&mut theirs, 1).properties.as_mut().unwrap().remove("priority");
        assert_eq!(compare(&any(), &theirs).to_string(), "its storage version v1alpha3 has no field spec.priority");
    }

    #[test]
    fn a_kind_that_does_not_serve_our_version_cannot_be_used() {
        let mut theirs = any();
        theirs.spec.versions[0].served = false;
        assert_eq!(compare(&any(), &theirs).to_string(), "can't be used: it doesn't serve the version v1alpha2");
    }
}
