//! What Gateways say of what hangs on them.

use crate::{
    condition::Condition,
    world::referenced::{Parent, ReferencedObject},
};

/// What they say of a route or a pool, unless each of the parents has taken it. What it is goes on with a sentence.
pub(super) fn refusal(type_: &'static str, what: &str, known: &ReferencedObject, parents: &[Parent]) -> Option<Condition> {
    let refused = parents.iter().find_map(|parent| {
        // Others may have conditions of their own.
        let refused = |type_: &str| ["Accepted", "ResolvedRefs"].contains(&type_);
        let told = known.conditions_from(parent).find(|told| told.status == "False" && refused(&told.type_))?;
        let message = format!("{} rejects {what} ({}): {}", who(parent), told.type_, told.message);
        Some(Condition::no(type_, told.reason.clone(), message))
    });
    let taken = |parent: &&Parent| known.conditions_from(parent).any(|told| told.type_ == "Accepted" && told.status == "True");
    refused.or_else(|| parents.iter().find(|parent| !taken(parent)).map(|parent| not_reported(type_, what, parent)))
}

/// That nothing is known of it.
pub(super) fn not_reported(type_: &'static str, what: &str, by: &Parent) -> Condition {
    Condition::unknown(type_, "Progressing", format!("{} has not reported whether it accepts {what}.", who(by)))
}

fn who(parent: &Parent) -> String {
    format!("The {} {}/{}", parent.kind(), parent.namespace, parent.name)
}
