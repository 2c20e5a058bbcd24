//! Identifies the items of lists, for display and for comparison.

use super::said::{LayerPart, LayerSource};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

/// The maximum number of items with the same key that are compared. Kubernetes accepts only one in most lists, and uses the last one of
/// variables.
const MAX_ITEMS_PER_KEY: usize = 16;

/// The displayed name of an item: a key and its value.
type Name<'v> = (&'static str, Cow<'v, str>);

/// The key of an item for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key<'v>(Option<&'v Value>, &'v str);

/// The key fields of the items in a pod's list, and the default of the second one. None if items are only equal as a whole: a combination
/// of two tolerations would be one that nobody requested.
fn keys(list: &str) -> Option<(&'static str, Option<(&'static str, &'static str)>)> {
    match list {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "resourceClaims"
        | "claims"
        | "schedulingGates" => Some(("name", None)),
        "ports" => Some(("containerPort", Some(("protocol", "TCP")))),
        "volumeMounts" => Some(("mountPath", None)),
        "volumeDevices" => Some(("devicePath", None)),
        "hostAliases" => Some(("ip", None)),
        "topologySpreadConstraints" => Some(("topologyKey", Some(("whenUnsatisfiable", "")))),
        _ => None,
    }
}

/// Whether the items of a list have keys.
pub(super) fn is_keyed(list: &str) -> bool {
    keys(list).is_some()
}

/// The key of an item in a list. All items without a key share one, so that none escapes the comparison by its position.
pub(super) fn key<'v>(list: &str, item: &'v Value) -> Key<'v> {
    let Some((first, second)) = keys(list) else { return Key(None, "") };
    let second = second.map_or("", |(field, otherwise)| item.get(field).and_then(Value::as_str).unwrap_or(otherwise));
    Key(item.get(first), second)
}

/// The items of layers and plugins in a list, by key.
pub(super) fn by_key<'a>(list: &str, said: &[LayerPart<'a>]) -> HashMap<Key<'a>, Vec<LayerPart<'a>>> {
    let mut items: HashMap<Key<'a>, Vec<LayerPart<'a>>> = HashMap::new();
    let mut crowded: HashSet<Key<'a>> = HashSet::new();
    // In reverse, because the last one takes precedence.
    for (source, value) in said {
        let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut taken: HashMap<Key<'a>, usize> = HashMap::new();
        for item in all.iter().rev() {
            let key = key(list, item);
            if all.len() <= MAX_ITEMS_PER_KEY {
                items.entry(key).or_default().push((*source, item));
                continue;
            }
            let count = taken.entry(key).or_default();
            *count += 1;
            if *count <= MAX_ITEMS_PER_KEY {
                items.entry(key).or_default().push((*source, item));
            } else if *source == LayerSource::Answer && crowded.insert(key) {
                items.entry(key).or_default().push((LayerSource::Any, item));
            }
        }
    }
    items
}

/// The items of layers and plugins in a list without keys, by value.
pub(super) fn by_value<'a>(said: &[LayerPart<'a>]) -> HashMap<&'a Value, Vec<LayerPart<'a>>> {
    let mut items: HashMap<&'a Value, Vec<LayerPart<'a>>> = HashMap::new();
    for (source, value) in said {
        for item in value.as_array().into_iter().flatten() {
            let equal = items.entry(item).or_default();
            if equal.last().is_none_or(|(last, _)| last != source) {
                equal.push((*source, item));
            }
        }
    }
    items
}

/// The displayed names of the items in a list: their keys, except for items whose key already occurred before.
pub(super) fn names<'v>(list: &str, items: &'v [Value]) -> Vec<Option<Name<'v>>> {
    let mut taken = HashSet::new();
    items.iter().map(|item| name(list, item).filter(|name| taken.insert(name.clone()))).collect()
}

fn name<'v>(list: &str, item: &'v Value) -> Option<Name<'v>> {
    let fields = item.as_object()?;
    let first = keys(list).map(|(first, _)| first).or((list == "tolerations").then_some("key"));
    [first, Some("name")].into_iter().flatten().find_map(|key| match fields.get(key)? {
        Value::String(text) => Some((key, Cow::Borrowed(text.as_str()))),
        Value::Number(number) => Some((key, Cow::Owned(number.to_string()))),
        _ => None,
    })
}
