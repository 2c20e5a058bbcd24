//! Whether an object came through whole.

use serde_json::Value;

/// The paths of what is in `wanted` and not, or differently, in `kept`. A number that stands for a quantity may have
/// become its text, and what is empty may have become absent.
pub fn lost(wanted: &Value, kept: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    walk(wanted, Some(kept), String::new(), &mut paths);
    paths
}

fn walk(wanted: &Value, kept: Option<&Value>, path: String, paths: &mut Vec<String>) {
    match (wanted, kept) {
        (Value::Object(wanted), Some(Value::Object(kept))) => {
            for (name, value) in wanted {
                walk(value, kept.get(name), format!("{path}.{name}"), paths);
            }
        }
        (Value::Array(wanted), Some(Value::Array(kept))) if wanted.len() == kept.len() => {
            for (index, (value, kept)) in wanted.iter().zip(kept).enumerate() {
                walk(value, Some(kept), format!("{path}[{index}]"), paths);
            }
        }
        (Value::Number(number), Some(Value::String(text))) if number.to_string() == *text => {}
        // 8.0 and 8 are one number, and the API server writes the latter.
        (Value::Number(wanted), Some(Value::Number(kept))) if wanted.as_f64() == kept.as_f64() => {}
        (wanted, Some(kept)) if wanted == kept => {}
        (Value::Array(items), None) if items.is_empty() => {}
        (Value::Object(fields), None) if fields.is_empty() => {}
        _ => paths.push(path),
    }
}

#[cfg(test)]
mod tests {
    use super::lost;
    use serde_json::json;

    #[test]
    fn a_lost_or_changed_field_is_named_by_its_path() {
        let wanted = json!({ "a": { "b": [1, { "c": "x" }], "d": [], "cpu": 4 }, "e": "f" });
        assert_eq!(lost(&wanted, &json!({ "a": { "b": [1, { "c": "x", "more": 1 }], "cpu": "4" }, "e": "f" })), Vec::<String>::new());
        assert_eq!(lost(&wanted, &json!({ "a": { "b": [1, { "c": "y" }], "cpu": 5 } })), [".a.b[1].c", ".a.cpu", ".e"]);
        assert_eq!(lost(&wanted, &json!({ "a": { "b": [1], "cpu": 4 }, "e": null })), [".a.b", ".e"]);
    }
}
