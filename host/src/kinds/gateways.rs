//! What Gateways say of what hangs on them.

use crate::{plan::Condition, world::child};

/// What they say of a route or a pool, unless so many parents have taken it. `who` and `what` begin a sentence and go on with it.
pub(super) fn refusal(
    type_: &'static str,
    (who, what): (&str, &str),
    (conditions, generation): (&[child::Condition], Option<i64>),
    parents: usize,
) -> Option<Condition> {
    let current = |condition: &&child::Condition| condition.speaks_of(generation);
    if let Some(refused) = conditions.iter().filter(current).find(|condition| condition.status == "False") {
        let message = format!("{who} doesn't take {what} ({}): {}", refused.type_, refused.message);
        return Some(Condition::no(type_, refused.reason.clone(), message));
    }
    // Each parent has a word of its own.
    let taken = conditions.iter().filter(current).filter(|condition| condition.type_ == "Accepted" && condition.status == "True");
    (taken.count() < parents.max(1)).then(|| unsaid(type_, (who, what)))
}

/// That nothing is known of it.
pub(super) fn unsaid(type_: &'static str, (who, what): (&str, &str)) -> Condition {
    Condition::unknown(type_, "Progressing", format!("{who} hasn't said whether it takes {what}."))
}
