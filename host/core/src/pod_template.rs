//! Checks that a value is a pod template, field by field, as the API server parses it. All later steps rely on that, because policies may
//! combine users' values into anything.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;
use std::borrow::Cow;

/// The first invalid field, with the error; none if all are valid. Unknown fields are left to the API server.
pub fn flaw(template: &Value) -> Option<String> {
    let template = if has_number(template, false) { Cow::Owned(as_texts(template, false)) } else { Cow::Borrowed(template) };
    let error = serde_path_to_error::deserialize::<_, PodTemplateSpec>(&*template).err()?;
    Some(format!("{}: {}", error.path(), error.inner()))
}

/// Whether the values of a field are quantities, for which the API server accepts numbers but the Rust type doesn't.
fn is_quantity(field: &str) -> bool {
    matches!(field, "limits" | "requests" | "overhead" | "sizeLimit" | "divisor")
}

fn has_number(value: &Value, quantity: bool) -> bool {
    match value {
        Value::Number(_) => quantity,
        Value::Object(object) => object.iter().any(|(field, value)| has_number(value, quantity || is_quantity(field))),
        Value::Array(list) => list.iter().any(|value| has_number(value, false)),
        _ => false,
    }
}

fn as_texts(value: &Value, quantity: bool) -> Value {
    match value {
        Value::Number(number) if quantity => number.to_string().into(),
        Value::Object(object) => {
            let field = |(field, value): (&String, &Value)| (field.clone(), as_texts(value, quantity || is_quantity(field)));
            Value::Object(object.iter().map(field).collect())
        }
        Value::Array(list) => list.iter().map(|value| as_texts(value, false)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_flaw_is_told_with_its_place() {
        let mounts = json!({"spec": {"containers": [{"name": "main", "volumeMounts": [{"name": "", "mountPath": ""}, "x"]}]}});
        let said = flaw(&mounts).unwrap();
        assert!(said.starts_with("spec.containers[0].volumeMounts[1]: invalid type: string \"x\""), "{said}");
        let said = flaw(&json!({"metadata": {"labels": {"a": 1}}, "spec": {"containers": []}})).unwrap();
        assert!(said.starts_with("metadata.labels.a: invalid type: integer"), "{said}");
    }

    #[test]
    fn quantities_may_be_numbers_and_unknown_fields_anything() {
        let container = json!({
            "name": "main", "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "1Gi"}, "requests": {"cpu": 0.5}},
            "env": [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}}}],
            "ports": [{"containerPort": 8080}], "livenessProbe": {"httpGet": {"port": "http"}}, "unheardOf": [1],
        });
        let volumes = json!([{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": 1024}}]);
        assert_eq!(flaw(&json!({"metadata": {}, "spec": {"containers": [container], "volumes": volumes}})), None);
    }
}
