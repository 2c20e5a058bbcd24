//! The strategic merge of two parts of a pod's spec.

use crate::{
    node::{Form, Node},
    place::{Keyed, SpecPosition},
};

/// Puts the stronger over the weaker. Both have passed `Place::check`.
pub(crate) fn merge<'a>(weak: &mut Node<'a>, strong: Node<'a>, place: SpecPosition) {
    match (place, &mut weak.form, strong.form) {
        (SpecPosition::List(keyed), Form::List(old), Form::List(new)) => new.into_iter().for_each(|item| item_into(old, item, keyed)),
        (SpecPosition::Whole, _, form) => *weak = Node { by: strong.by, form },
        (_, Form::Object(old), Form::Object(new)) => {
            old.retain(|other, _| !new.keys().any(|given| place.excludes(given, other)));
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

fn item_into<'a>(old: &mut Vec<Node<'a>>, mut item: Node<'a>, keyed: &'static Keyed) {
    match old.iter_mut().find(|weaker| keyed.same(weaker, &item)) {
        Some(weaker) => {
            // The key stays that of the layer that named the item first.
            if let Some(fields) = item.fields_mut() {
                fields.retain(|name, _| !keyed.is_key(name));
            }
            merge(weaker, item, keyed.item);
        }
        None => old.push(laid(item, keyed.item)),
    }
}

/// What nothing weaker is under. It goes the same way, because its lists may name an item twice.
fn laid(node: Node<'_>, place: SpecPosition) -> Node<'_> {
    if matches!(place, SpecPosition::Any | SpecPosition::Whole | SpecPosition::Words | SpecPosition::Text | SpecPosition::Fields) {
        return node;
    }
    let mut under = node.emptied();
    merge(&mut under, node, place);
    under
}
