//! The part of a live object that one manager owns, according to its managedFields, and its comparison with the plan.
//!
//! The part that we own is extracted when the object is observed, and stored as text. The other managers' parts aren't needed.

use crate::quantity;
use serde_json::{Map, Value};

/// Marks a value in the extracted part that is owned as a whole. The API server may have added defaults within it.
const WHOLE_VALUE_MARK: &str = "\u{0}whole";

/// The part of the object that the manager owns; null if there is none.
pub fn part(live: &Value, manager: &str) -> Value {
    let managed = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    let ours = managed.into_iter().flatten().filter(|entry| {
        entry["manager"] == manager && entry["operation"] == "Apply" && entry.get("subresource").is_none_or(|sub| sub == "")
    });
    ours.filter_map(|entry| entry.get("fieldsV1")).find_map(|fields| cut(live, fields)).unwrap_or_default()
}

/// Extracts the owned fields from a value.
fn cut(live: &Value, fields: &Value) -> Option<Value> {
    let fields = fields.as_object()?;
    let inner = |name: &&String| name.as_str() != ".";
    if !fields.keys().any(|name| inner(&name)) {
        return Some(match live {
            // An empty object or list counts as absent, because some kinds drop it.
            Value::Object(object) if !object.is_empty() => Value::Object(Map::from_iter([(WHOLE_VALUE_MARK.to_owned(), live.clone())])),
            Value::Array(list) if !list.is_empty() => Value::Object(Map::from_iter([(WHOLE_VALUE_MARK.to_owned(), live.clone())])),
            other => other.clone(),
        });
    }
    match live {
        Value::Object(object) => {
            let named = fields.iter().filter_map(|(name, fields)| Some((name.strip_prefix("f:")?, fields)));
            let part =
                named.map(|(name, fields)| (name.to_owned(), object.get(name).and_then(|live| cut(live, fields)).unwrap_or_default()));
            Some(Value::Object(part.collect()))
        }
        Value::Array(items) => {
            let ours = items.iter().enumerate().filter_map(|(at, item)| cut(item, item_fields(fields, at, item)?));
            Some(Value::Array(ours.collect()))
        }
        _ => None,
    }
}

/// The owned fields of one item of a list.
fn item_fields<'a>(fields: &'a Map<String, Value>, at: usize, item: &Value) -> Option<&'a Value> {
    let found = fields.iter().find(|(name, _)| {
        if let Some(keys) = name.strip_prefix("k:") {
            let Ok(Value::Object(keys)) = serde_json::from_str(keys) else { return false };
            keys.iter().all(|(key, value)| item.get(key).unwrap_or(&Value::Null) == value)
        } else if let Some(value) = name.strip_prefix("v:") {
            serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item)
        } else {
            name.strip_prefix("i:").is_some_and(|index| index.parse() == Ok(at))
        }
    });
    found.map(|(_, fields)| fields)
}

/// The part in the form of a plan: without the marks.
pub fn unmarked(part: Value) -> Value {
    match part {
        Value::Object(mut object) => match object.remove(WHOLE_VALUE_MARK) {
            Some(whole) => whole,
            None => Value::Object(object.into_iter().map(|(key, value)| (key, unmarked(value))).collect()),
        },
        Value::Array(items) => Value::Array(items.into_iter().map(unmarked).collect()),
        other => other,
    }
}

/// The live object after the owner of this part applies a plan: planned fields replace owned ones. A list becomes the planned one, even if
/// others have items in it.
pub fn applied(live: &Value, owned: &Value, planned: &Value) -> Value {
    let (Value::Object(live), Value::Object(planned)) = (live, planned) else { return planned.clone() };
    let none = Map::new();
    let owned = owned.as_object().unwrap_or(&none);
    if owned.contains_key(WHOLE_VALUE_MARK) {
        return Value::Object(planned.clone());
    }
    let mut all = live.clone();
    for (key, owned) in owned.iter().filter(|(key, _)| !planned.contains_key(*key)) {
        let Some(gone) = all.remove(key).filter(Value::is_object) else { continue };
        let left = applied(&gone, owned, &Value::Object(Map::new()));
        if !nothing(&left) {
            all.insert(key.clone(), left);
        }
    }
    for (key, planned) in planned {
        let value = applied(live.get(key).unwrap_or(&Value::Null), owned.get(key).unwrap_or(&Value::Null), planned);
        all.insert(key.clone(), value);
    }
    Value::Object(all)
}

/// The result of comparing the owned part with the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// It differs.
    Different,
    /// It is as planned, except for possible defaults within a value that is owned as a whole: for such a value, the API server doesn't
    /// report which part is from whom, so they may be leftovers.
    Defaulted,
    /// It is exactly as planned.
    Exact,
}

/// Compares the plan with the owned part.
pub fn compare(planned: &Value, owned: &Value) -> Match {
    if equal(planned, owned, Inner::Exact, false) {
        Match::Exact
    } else if equal(planned, owned, Inner::Defaulted, false) {
        Match::Defaulted
    } else {
        Match::Different
    }
}

/// The contents that are accepted within values that are owned as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inner {
    /// Only the planned fields.
    Exact,
    /// Also defaults.
    Defaulted,
    /// Also defaults; the comparison is within such a value.
    WithinDefaulted,
}

fn equal(planned: &Value, live: &Value, inner: Inner, quantities: bool) -> bool {
    match (planned, live) {
        (_, Value::Object(whole)) if whole.len() == 1 && whole.contains_key(WHOLE_VALUE_MARK) => {
            let inner = if inner == Inner::Exact { Inner::Exact } else { Inner::WithinDefaulted };
            equal(planned, &whole[WHOLE_VALUE_MARK], inner, quantities)
        }
        (Value::Object(planned), Value::Object(live)) => {
            let held =
                |key: &str| quantities || matches!(key, "limits" | "requests" | "overhead" | "sizeLimit" | "divisor" | "averageValue");
            let same = |key: &String, value: &Value| match live.get(key) {
                // An owned field without a value had a zero value that the API server omitted.
                Some(Value::Null) => nothing(value) || zero(value),
                Some(live) => equal(value, live, inner, held(key)),
                // An empty string may be the whole value of a label.
                None => (nothing(value) && !value.is_string()) || (inner == Inner::WithinDefaulted && (nothing(value) || zero(value))),
            };
            planned.iter().all(|(key, value)| same(key, value))
                && (inner == Inner::WithinDefaulted || live.keys().all(|key| planned.contains_key(key)))
        }
        (Value::Array(planned), Value::Array(live)) => {
            planned.len() == live.len() && planned.iter().zip(live).all(|(planned, live)| equal(planned, live, inner, quantities))
        }
        (planned, live) if planned == live || (nothing(planned) && nothing(live)) => true,
        // 1.0 equals 1, and for quantities 0.5Gi equals 512Mi.
        (Value::Number(planned), Value::Number(live)) => planned.as_f64() == live.as_f64(),
        (planned, live) => quantities && quantity::parse(planned).is_some_and(|planned| quantity::parse(live) == Some(planned)),
    }
}

/// The zero values that Kubernetes omits.
fn zero(value: &Value) -> bool {
    *value == Value::Bool(false) || value.as_f64() == Some(0.0)
}

/// The values that are equivalent to an absent field.
fn nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(object) => object.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_owned_goes_where_a_plan_that_is_applied_does_not_say_it() {
        let fields = json!({"f:spec": {
            "f:selector": {}, "f:ports": {"k:{\"port\":80}": {".": {}, "f:name": {}}},
            "f:strategy": {"f:type": {}, "f:rollingUpdate": {"f:maxSurge": {}}}, "f:old": {},
        }});
        let live = json!({
            "metadata": {"name": "a", "managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": fields}]},
            "spec": {
                "selector": {"app": "a"}, "ports": [{"port": 80, "name": "http"}], "theirs": 1, "old": {"x": 1},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            },
        });
        let planned =
            json!({"spec": {"selector": {"b": "c"}, "ports": [{"port": 8080, "name": "http"}], "strategy": {"type": "Recreate"}}});
        assert_eq!(
            applied(&live, &part(&live, "m"), &planned)["spec"],
            json!({"selector": {"b": "c"}, "ports": [{"port": 8080, "name": "http"}], "theirs": 1, "strategy": {"type": "Recreate"}})
        );
        let nobody_s = applied(&live, &Value::Null, &json!({"spec": {"selector": {"b": "c"}}}));
        assert_eq!(nobody_s["spec"]["selector"], json!({"app": "a", "b": "c"}));
    }

    fn live() -> Value {
        json!({
            "metadata": {
                "name": "a", "labels": {"x": "1", "theirs": "2"},
                "managedFields": [
                    {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:theirs": {}}}}},
                    {"manager": "us", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
                    {"manager": "us", "operation": "Apply", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:x": {}}},
                        "f:spec": {
                            "f:replicas": {}, "f:selector": {},
                            "f:containers": {"k:{\"name\":\"a\"}": {
                                ".": {}, "f:name": {}, "f:args": {}, "f:resources": {"f:limits": {"f:memory": {}}},
                                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                            }},
                        },
                    }},
                ],
            },
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"x": "1"}, "defaulted": true}, "progressDeadlineSeconds": 600,
                "containers": [
                    {"name": "theirs"},
                    {"name": "a", "args": ["--b"], "imagePullPolicy": "Always", "resources": {"limits": {"memory": "512Mi"}},
                     "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                ],
            },
        })
    }

    fn planned() -> Value {
        json!({
            "metadata": {"labels": {"x": "1"}},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"x": "1"}},
                "containers": [
                    {"name": "a", "args": ["--b"], "env": [], "resources": {"limits": {"memory": "0.5Gi"}}, "ports": [{"containerPort": 80}]},
                ],
            },
        })
    }

    fn settled(change: impl FnOnce(&mut Value)) -> bool {
        let mut planned = planned();
        change(&mut planned);
        compare(&planned, &part(&live(), "us")) != Match::Different
    }

    #[test]
    fn defaults_and_the_fields_of_others_are_no_difference() {
        assert!(settled(|_| {}));
    }

    #[test]
    fn a_changed_value_is_a_difference_wherever_it_is() {
        assert!(!settled(|planned| planned["spec"]["replicas"] = json!(4)));
        assert!(!settled(|planned| planned["spec"]["selector"]["matchLabels"]["x"] = json!("2")));
        assert!(!settled(|planned| planned["spec"]["containers"][0]["args"][0] = json!("--c")));
        assert!(!settled(|planned| planned["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("513Mi")));
        assert!(!settled(|planned| planned["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(81)));
    }

    #[test]
    fn a_key_that_came_or_left_is_a_difference() {
        assert!(!settled(|planned| planned["metadata"]["labels"]["y"] = json!("2")));
        assert!(!settled(|planned| planned["metadata"]["labels"] = json!({})));
        assert!(!settled(|planned| {
            planned["spec"].as_object_mut().unwrap().remove("replicas");
        }));
        assert!(!settled(|planned| planned["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "b"}))));
    }

    #[test]
    fn a_key_without_text_is_a_difference_too() {
        let fields = json!({"f:metadata": {"f:labels": {"f:gpu": {}}}, "f:spec": {"f:volumes": {"k:{\"name\":\"a\"}": {"f:name": {}, "f:emptyDir": {}}}}});
        let live = json!({
            "metadata": {"labels": {"gpu": ""}, "managedFields": [{"manager": "us", "operation": "Apply", "fieldsV1": fields}]},
            "spec": {"volumes": [{"name": "a", "emptyDir": {}}]},
        });
        let same = |labels: Value, volume: Value| {
            compare(&json!({"metadata": {"labels": labels}, "spec": {"volumes": [volume]}}), &part(&live, "us"))
        };
        assert_eq!(same(json!({"gpu": ""}), json!({"name": "a", "emptyDir": {}})), Match::Exact);
        assert_eq!(same(json!({}), json!({"name": "a", "emptyDir": {}})), Match::Different);
        assert_eq!(same(json!({"gpu": "", "x": ""}), json!({"name": "a", "emptyDir": {}})), Match::Different);
        assert_eq!(same(json!({"gpu": ""}), json!({"name": "a"})), Match::Different);
    }

    #[test]
    fn what_is_left_within_a_value_that_is_owned_as_a_whole_may_be_a_default_or_not() {
        let fields = json!({"f:spec": {"f:selector": {}, "f:tolerations": {}}});
        let live = json!({
            "metadata": {"managedFields": [{"manager": "us", "operation": "Apply", "fieldsV1": fields}]},
            "spec": {"selector": {"app": "a", "worker-index": "0"}, "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]},
        });
        let same = |selector: Value, toleration: Value| {
            compare(&json!({"spec": {"selector": selector, "tolerations": [toleration]}}), &part(&live, "us"))
        };
        let (selector, toleration) = (&live["spec"]["selector"], &live["spec"]["tolerations"][0]);
        assert_eq!(same(selector.clone(), toleration.clone()), Match::Exact);
        assert_eq!(same(json!({"app": "a"}), toleration.clone()), Match::Defaulted);
        assert_eq!(same(selector.clone(), json!({"key": "gpu", "operator": "Exists"})), Match::Defaulted);
        assert_eq!(same(json!({"app": "b"}), toleration.clone()), Match::Different);
        assert_eq!(same(json!({"app": "a", "worker-index": "0", "x": ""}), toleration.clone()), Match::Defaulted);
    }

    #[test]
    fn what_another_manager_has_taken_is_a_difference() {
        let mut live = live();
        live["metadata"]["managedFields"][2]["fieldsV1"]["f:spec"].as_object_mut().unwrap().remove("f:replicas");
        assert_eq!(compare(&planned(), &part(&live, "us")), Match::Different);
        assert_eq!(compare(&planned(), &part(&live, "nobody")), Match::Different);
    }

    #[test]
    fn a_zero_that_the_api_server_leaves_out_is_no_difference_and_one_that_somebody_took_is() {
        let live = json!({
            "metadata": {"managedFields": [{"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": {"f:hostNetwork": {}}}}]}, "spec": {},
        });
        let same = |spec: Value| compare(&json!({"spec": spec}), &part(&live, "us"));
        assert_eq!(same(json!({"hostNetwork": false})), Match::Exact);
        assert_eq!(same(json!({"hostNetwork": true})), Match::Different);
        assert_eq!(same(json!({"hostNetwork": false, "replicas": 0})), Match::Different);
    }

    #[test]
    fn only_quantities_are_compared_as_quantities() {
        assert_eq!(compare(&json!({"args": ["1000m"]}), &json!({"args": ["1"]})), Match::Different);
        assert_eq!(compare(&json!({"limits": {"gpu": 1}}), &json!({"limits": {"gpu": "1"}})), Match::Exact);
        assert_eq!(compare(&json!({"limits": {"cpu": "1000m"}}), &json!({"limits": {"cpu": "1"}})), Match::Exact);
    }
}
