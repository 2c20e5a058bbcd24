//! How the items of a list are told apart, for people and for comparing them.

use super::said::{LayerPart, LayerSource};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

/// How many items of one key are looked at. Kubernetes takes but one in most lists, and of variables the last counts.
const MAX_ITEMS_PER_KEY: usize = 16;

/// What an item goes by, for people: a key and its value.
type Name<'v> = (&'static str, Cow<'v, str>);

/// What an item is found by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key<'v>(Option<&'v Value>, &'v str);

/// The fields that are the key of the items in a list of a pod, and what stands for the second if it is missing. None where an item is
/// only the same as one that is equal: half of one toleration and half of another would be one that nobody has asked for.
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

/// What an item of a list is found by. Those without a key are one, so that none slips through by its place.
pub(super) fn key<'v>(list: &str, item: &'v Value) -> Key<'v> {
    let Some((first, second)) = keys(list) else { return Key(None, "") };
    let second = second.map_or("", |(field, otherwise)| item.get(field).and_then(Value::as_str).unwrap_or(otherwise));
    Key(item.get(first), second)
}

/// The items that layers and plugins have in a list, by their keys.
pub(super) fn by_key<'a>(list: &str, said: &[LayerPart<'a>]) -> HashMap<Key<'a>, Vec<LayerPart<'a>>> {
    let mut items: HashMap<Key<'a>, Vec<LayerPart<'a>>> = HashMap::new();
    let mut crowded: HashSet<Key<'a>> = HashSet::new();
    // From the end: the last counts.
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

/// The items that layers and plugins have in a list without keys, each once for all that have an equal one.
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

/// What the items of a list go by, for people: a key, unless another item before has the same.
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
