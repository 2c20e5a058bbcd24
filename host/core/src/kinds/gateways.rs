//! The conditions that Gateways report for routes and pools.

use crate::{
    condition::Condition,
    world::referenced::{Parent, ReferencedObject},
};

/// The condition for a route or a pool that one of its parents hasn't accepted. `what` names it in the message.
pub(super) fn refusal(type_: &'static str, what: &str, known: &ReferencedObject, parents: &[Parent]) -> Option<Condition> {
    let refused = parents.iter().find_map(|parent| {
        // Other controllers may add further conditions.
        let refused = |type_: &str| ["Accepted", "ResolvedRefs"].contains(&type_);
        let told = known.conditions_from(parent).find(|told| told.status == "False" && refused(&told.type_))?;
        let message = format!("{} rejects {what} ({}): {}", who(parent), told.type_, told.message);
        Some(Condition::no(type_, told.reason.clone(), message))
    });
    let taken = |parent: &&Parent| known.conditions_from(parent).any(|told| told.type_ == "Accepted" && told.status == "True");
    refused.or_else(|| parents.iter().find(|parent| !taken(parent)).map(|parent| not_reported(type_, what, parent)))
}

/// The condition for a parent that has reported nothing.
pub(super) fn not_reported(type_: &'static str, what: &str, by: &Parent) -> Condition {
    Condition::unknown(type_, "Progressing", format!("{} has not reported whether it accepts {what}.", who(by)))
}

fn who(parent: &Parent) -> String {
    format!("The {} {}/{}", parent.kind(), parent.namespace, parent.name)
}
