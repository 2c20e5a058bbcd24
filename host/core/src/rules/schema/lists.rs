//! Lists that are sets or maps, which must not contain duplicates.

use super::{Step, Violation, below, shown, step};
use pointsman_sandbox::digest::sorted;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The duplicates in lists.
pub(super) fn flaws(value: &Value, schema: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    visit(value, schema, &mut Vec::new(), &mut found);
    found
}

fn visit(value: &Value, schema: &Value, path: &mut Vec<Step>, found: &mut Vec<Violation>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let Some(inner) = below(schema, name) else { continue };
                path.push(step(schema, name));
                visit(value, inner, path, found);
                path.pop();
            }
        }
        Value::Array(items) => {
            match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => twice(items.iter().cloned(), path, found),
                Some("map") => in_map(items, schema, path, found),
                _ => {}
            }
            for (number, item) in items.iter().enumerate() {
                path.push(Step::Item(number));
                visit(item, &schema["items"], path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

fn in_map(items: &[Value], schema: &Value, path: &mut Vec<Step>, found: &mut Vec<Violation>) {
    if let Some((number, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        path.push(Step::Item(number));
        let message = format!("Invalid value: {}: must be an object for an array of list-type map", shown(item));
        found.push(Violation::new(path, message));
        path.pop();
        return;
    }
    let names: Vec<&str> = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let key = |item: &Value| {
        let parts = names.iter().filter_map(|name| Some(((*name).to_owned(), item.get(name)?.clone())));
        Value::Object(parts.collect::<Map<_, _>>())
    };
    twice(items.iter().map(key), path, found);
}

/// Reports each duplicated value once, at its second position.
fn twice(values: impl Iterator<Item = Value>, path: &mut Vec<Step>, found: &mut Vec<Violation>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (number, value) in values.enumerate() {
        let times = seen.entry(sorted(&value).to_string()).or_default();
        *times += 1;
        if *times == 2 {
            path.push(Step::Item(number));
            found.push(Violation::new(path, format!("Duplicate value: {}", shown(&value))));
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_stands_twice_is_told_at_its_second_place() {
        let schema = json!({"properties": {
            "set": {"x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"], "items": {"type": "object"}},
            "list": {"items": {"additionalProperties": {"x-kubernetes-list-type": "set"}}},
        }});
        let object = json!({
            "set": ["a", "b", "a", "a"],
            "map": [{"name": "a", "kind": "x", "other": 1}, {"name": "a"}, {"kind": "x", "name": "a", "other": 2}],
            "list": [{"key": [1, 1]}],
        });
        let told: Vec<String> = flaws(&object, &schema).iter().map(Violation::to_string).collect();
        assert_eq!(
            told,
            [
                "set[2]: Duplicate value: \"a\"",
                "map[2]: Duplicate value: {\"kind\":\"x\",\"name\":\"a\"}",
                "list[0][key][1]: Duplicate value: 1",
            ]
        );
        let told = flaws(&json!({"map": [5]}), &schema);
        assert_eq!(told.first().unwrap().to_string(), "map[0]: Invalid value: 5: must be an object for an array of list-type map");
    }
}
