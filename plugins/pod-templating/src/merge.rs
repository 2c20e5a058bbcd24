//! The strategic merge of two parts of a pod's spec.

use crate::{
    node::{Form, Node},
    place::{Keyed, SpecPosition},
};
use std::collections::{BTreeMap, btree_map::Entry};

/// Merges the stronger part over the weaker. Both have passed `SpecPosition::check`.
pub(crate) fn merge<'a>(weak: &mut Node<'a>, strong: Node<'a>, place: SpecPosition) {
    match (place, &mut weak.form, strong.form) {
        (SpecPosition::List(keyed), Form::List(old), Form::List(new)) => list_into(old, new, keyed),
        (SpecPosition::Whole, _, form) => *weak = Node { by: strong.by, form },
        (_, Form::Object(old), Form::Object(new)) => {
            if place.has_exclusions() {
                old.retain(|other, _| !new.keys().any(|given| place.excludes(given, other)));
            }
            for (name, node) in new {
                let inner = place.field(&name);
                match old.get_mut(&name) {
                    Some(weaker) => merge(weaker, node, inner),
                    None => {
                        old.insert(name, laid(node, inner));
                    }
                }
            }
        }
        (_, _, form) => *weak = Node { by: strong.by, form },
    }
}

fn list_into<'a>(old: &mut Vec<Node<'a>>, new: Vec<Node<'a>>, keyed: &'static Keyed) {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (at, item) in old.iter().enumerate() {
        places.entry(keyed.identity(item)).or_insert(at);
    }
    for mut item in new {
        match places.entry(keyed.identity(&item)) {
            Entry::Occupied(at) => {
                // The key keeps the source that named the item first.
                if let Some(fields) = item.fields_mut() {
                    fields.retain(|name, _| !keyed.is_key(name));
                }
                merge(&mut old[*at.get()], item, keyed.item);
            }
            Entry::Vacant(place) => {
                place.insert(old.len());
                old.push(laid(item, keyed.item));
            }
        }
    }
}

/// A part without a weaker one. It is also normalised, because its lists may contain an item twice.
fn laid(node: Node<'_>, place: SpecPosition) -> Node<'_> {
    if matches!(place, SpecPosition::Any | SpecPosition::Whole | SpecPosition::Words | SpecPosition::Text | SpecPosition::Fields) {
        return node;
    }
    let mut under = node.emptied();
    merge(&mut under, node, place);
    under
}
