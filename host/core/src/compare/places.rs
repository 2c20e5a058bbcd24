//! Where two values differ, as readable paths.

use serde_json::Value;
use std::collections::BTreeMap;

/// The first places where the values differ, such as `labels[0].value`, up to a maximum. An element of a list is identified by its name if
/// each element has a name of its own. A list of such elements that only one side has is listed element by element.
pub fn places(one: &Value, other: &Value, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    walk(one, other, String::new(), most, &mut found);
    found
}

fn walk(one: &Value, other: &Value, at: String, most: usize, found: &mut Vec<String>) {
    if found.len() >= most || one == other {
        return;
    }
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for name in one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))) {
                let step = quoted(name);
                let at = if at.is_empty() { step } else { format!("{at}.{step}") };
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => walk(one, other, at, most, found),
                    (Some(Value::Array(list)), None) if is_named(list) => walk_lists(list, &[], &at, most, found),
                    (None, Some(Value::Array(list))) if is_named(list) => walk_lists(&[], list, &at, most, found),
                    _ if found.len() < most => found.push(at),
                    _ => return,
                }
            }
        }
        (Value::Array(one), Value::Array(other)) => walk_lists(one, other, &at, most, found),
        _ => found.push(at),
    }
}

fn walk_lists(one: &[Value], other: &[Value], at: &str, most: usize, found: &mut Vec<String>) {
    let Some((former, latter)) = by_name(one).zip(by_name(other)) else {
        for (index, (one, other)) in one.iter().zip(other).enumerate() {
            walk(one, other, format!("{at}[{index}]"), most, found);
        }
        let left = most.saturating_sub(found.len());
        let surplus = one.len().min(other.len())..one.len().max(other.len());
        found.extend(surplus.take(left).map(|index| format!("{at}[{index}]")));
        return;
    };
    let known = found.len();
    let added = other.iter().filter_map(element_name).filter(|name| !former.contains_key(name));
    for name in one.iter().filter_map(element_name).chain(added) {
        match (former.get(name), latter.get(name)) {
            (Some(one), Some(other)) => walk(one, other, format!("{at}[{name}]"), most, found),
            _ if found.len() < most => found.push(format!("{at}[{name}]")),
            _ => return,
        }
    }
    // Only the order differs.
    if found.len() == known && known < most {
        found.push(at.to_owned());
    }
}

fn element_name(element: &Value) -> Option<&str> {
    element["name"].as_str()
}

/// The elements by name; none unless each has a name of its own.
fn by_name(list: &[Value]) -> Option<BTreeMap<&str, &Value>> {
    let named: BTreeMap<&str, &Value> = list.iter().filter_map(|element| Some((element_name(element)?, element))).collect();
    (named.len() == list.len()).then_some(named)
}

fn is_named(list: &[Value]) -> bool {
    !list.is_empty() && by_name(list).is_some()
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
            (json!([1]), json!([1, 2, 3]), vec!["[1]", "[2]"]),
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

    #[test]
    fn every_added_element_of_a_list_is_listed_wherever_it_is_inserted() {
        let env = |names: &[&str]| json!({"env": names.iter().map(|name| json!({"name": name, "value": "x"})).collect::<Vec<_>>()});
        let cases = [
            (env(&["OLD"]), env(&["OLD", "TEAM", "A B=C"]), vec!["env[TEAM]", "env[A B=C]"]),
            (env(&["OLD"]), env(&["TEAM", "A B=C", "OLD"]), vec!["env[TEAM]", "env[A B=C]"]),
            (json!({}), env(&["TEAM", "A B=C"]), vec!["env[TEAM]", "env[A B=C]"]),
            (env(&["TEAM", "OLD"]), env(&["NEW"]), vec!["env[TEAM]", "env[OLD]", "env[NEW]"]),
            (env(&["TEAM"]), json!({}), vec!["env[TEAM]"]),
            (env(&["a", "b"]), env(&["b", "a"]), vec!["env"]),
            (env(&["a", "a"]), env(&["a", "b"]), vec!["env[1].name"]),
            (json!({}), json!({"args": ["a", "b"]}), vec!["args"]),
        ];
        for (one, other, expected) in cases {
            assert_eq!(places(&one, &other, 9), expected, "{one} {other}");
        }
        assert_eq!(places(&json!({}), &env(&["a", "b", "c"]), 2), ["env[a]", "env[b]"]);
        assert_eq!(places(&json!([1]), &json!([1, 2, 3]), 1), ["[1]"]);
    }
}
