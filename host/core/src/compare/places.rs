//! Where two values differ, as readable paths.

use serde_json::Value;

/// The first places where the values differ, such as `labels[0].value`, up to a maximum; an element of a list is identified by its name if
/// it has one.
pub fn places(one: &Value, other: &Value, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    walk(one, other, String::new(), most, &mut found);
    found
}

fn walk(one: &Value, other: &Value, at: String, most: usize, found: &mut Vec<String>) {
    if found.len() >= most || one == other {
        return;
    }
    let inside = |step: &str| if at.is_empty() { step.to_owned() } else { format!("{at}.{step}") };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for name in one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))) {
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => walk(one, other, inside(&quoted(name)), most, found),
                    _ if found.len() < most => found.push(inside(&quoted(name))),
                    _ => return,
                }
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            let named = |element: &Value| element["name"].as_str().map(str::to_owned);
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                let step = named(one).filter(|name| named(other).as_ref() == Some(name)).unwrap_or_else(|| index.to_string());
                walk(one, other, format!("{at}[{step}]"), most, found);
            }
            if one.len() != other.len() && found.len() < most {
                let longer = if one.len() > other.len() { one } else { other };
                let index = one.len().min(other.len());
                let step = longer.get(index).and_then(named).unwrap_or_else(|| index.to_string());
                found.push(format!("{at}[{step}]"));
            }
        }
        _ => found.push(at),
    }
}

/// A key with a dot, such as a label's, would otherwise look like two keys.
pub(super) fn quoted(name: &str) -> String {
    if name.contains('.') { format!("{name:?}") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_place_is_told_until_there_are_enough() {
        let cases = [
            (json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]}), vec!["a[1].b"]),
            (json!({"a": 1, "c": 1}), json!({"a": 2, "b": null}), vec!["a", "c", "b"]),
            (json!([1]), json!([1, 2, 3]), vec!["[1]"]),
            (json!({"c": [{"name": "x", "v": 1}]}), json!({"c": [{"name": "x", "v": 2}, {"name": "y"}]}), vec!["c[x].v", "c[y]"]),
            (json!({"m": {"a.b/c": "1"}}), json!({"m": {}}), vec!["m.\"a.b/c\""]),
            (json!(1), json!(2), vec![""]),
            (json!({"a": 1}), json!({"a": 1}), vec![]),
        ];
        for (one, other, expected) in cases {
            assert_eq!(places(&one, &other, 9), expected, "{one} {other}");
        }
        assert_eq!(places(&json!({"a": 1, "b": 1, "c": 1}), &json!({}), 2), ["a", "b"]);
    }
}
