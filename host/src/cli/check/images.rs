//! Finds images that no kubelet can pull because their references are invalid. The API server accepts any text.

use pointsman_core::{image_reference, structural::Step};
use serde_json::Value;

/// The fields of an object that name images, by the schema of its kind, and the mistake in each.
pub(super) fn flaws(object: &Value, schema: &Value) -> Vec<(Vec<Step>, String)> {
    let mut found = Vec::new();
    walk(&object["spec"], &schema["properties"]["spec"], &mut vec![Step::Field("spec".to_owned())], &mut found);
    found
}

fn walk(value: &Value, schema: &Value, path: &mut Vec<Step>, found: &mut Vec<(Vec<Step>, String)>) {
    match value {
        Value::Object(fields) => {
            // A key without a field in the schema is a user's map key.
            for (name, value) in fields {
                let Some(schema) = schema["properties"].get(name) else { continue };
                path.push(Step::Field(name.clone()));
                walk(value, schema, path, found);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                path.push(Step::Item(number));
                walk(item, &schema["items"], path, found);
                path.pop();
            }
        }
        // An empty one counts as absent, and a template is replaced.
        Value::String(text) if !text.is_empty() && !text.contains("{{") && is_image(path) => {
            found.extend(image_reference::flaw(text).map(|flaw| (path.clone(), flaw)));
        }
        _ => {}
    }
}

/// Whether a field is a reference to an image: a container's, or a volume's.
fn is_image(path: &[Step]) -> bool {
    let name = |step: Option<&Step>| match step {
        Some(Step::Field(name)) => name.clone(),
        Some(Step::Item(_)) | None => String::new(),
    };
    let mut last = path.iter().rev();
    let (field, parent) = (name(last.next()), name(last.next()));
    match field.as_str() {
        "containerImage" => true,
        // Ceph's block devices also have a field of this name.
        "image" => parent != "rbd",
        "reference" => parent == "image",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::structural::kinds;
    use serde_json::json;

    fn fields(kind: &str, spec: &Value) -> Vec<String> {
        let kind = kinds().iter().find(|((_, name), _)| name == kind).unwrap().1;
        let field = |(path, _): &(Vec<Step>, String)| {
            let steps = path.iter().map(|step| match step {
                Step::Field(name) => name.clone(),
                Step::Item(number) => number.to_string(),
            });
            steps.collect::<Vec<_>>().join(".")
        };
        flaws(&json!({"spec": spec}), kind.schema()).iter().map(field).collect()
    }

    #[test]
    fn images_are_found_wherever_a_kind_has_them_and_nowhere_else() {
        let engine = json!({
            "runner": {"image": "A/b"}, "annotations": {"image": "no image"}, "leader": {"initContainers": [{"name": "a", "image": "a:"}]},
            "containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "a b", "env": [{"name": "image", "value": "a b"}]}],
            "volumes": [{"name": "v", "image": {"reference": "a//b"}}, {"name": "r", "rbd": {"image": "Some Device"}}],
        });
        assert_eq!(
            fields("InferenceService", &json!({"engine": engine})),
            ["spec.engine.leader.initContainers.0.image", "spec.engine.containers.1.image", "spec.engine.volumes.0.image.reference"]
        );
        let template = json!({"containers": [{"name": "main", "image": "{{ .Spec.Model.Name }}"}, {"name": "x", "image": ""}, {"name": "y", "image": "Y"}]});
        assert_eq!(fields("LLMInferenceService", &json!({"template": template})), ["spec.template.containers.2.image"]);
        assert_eq!(fields("InferenceModel", &json!({"containerImage": "a@b"})), ["spec.containerImage"]);
        assert_eq!(fields("BenchmarkJob", &json!({"podOverride": {"image": "a:-"}})), ["spec.podOverride.image"]);
    }
}
