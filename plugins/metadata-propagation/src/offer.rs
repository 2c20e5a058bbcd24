//! The offers for each key, and the choice among them.

use crate::words::valid_label_value;
use pointsman_plugin::{
    Reason,
    metadata_propagation::{Answer, Dropped, Place, Placed, Sort},
    reason,
};
use std::{borrow::Cow, cmp::Reverse};

/// The precedence of an offer, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// The policy's value if there is no other.
    Fallback,
    /// A layer that the rules don't know.
    Unknown,
    /// The namespace.
    Namespace,
    /// The runtime.
    Runtime,
    /// The subject.
    Subject,
    /// The metadata for pods in the subject's spec.
    Spec,
    /// The subject's component, prefill workload or scheduler.
    Component,
    /// The host's facts, and the values that the policy derives from them.
    Facts,
    /// The host's frame.
    Host,
}

/// A label or annotation from one source.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its key.
    pub key: Cow<'static, str>,
    /// Its value as written.
    pub value: String,
    /// The layer that it comes from.
    pub layer: Cow<'static, str>,
    /// Its precedence.
    pub strength: Strength,
    /// Why the target doesn't get it, even if there is no other offer for the key.
    pub barred: Option<Reason>,
}

impl Offer {
    /// An entry of the host's frame.
    pub fn of_frame(placed: Placed) -> Self {
        let Placed { key, value, layer } = placed;
        Self { key: key.into(), value, layer: layer.into(), strength: Strength::Host, barred: None }
    }

    /// A value from the policy itself.
    pub fn of_policy(key: &'static str, value: impl Into<String>, layer: &'static str) -> Self {
        Self { key: key.into(), value: value.into(), layer: layer.into(), strength: Strength::Facts, barred: None }
    }
}

/// All offers to one target.
#[derive(Clone, Debug)]
pub struct Offers {
    /// Its labels.
    pub labels: Vec<Offer>,
    /// Its annotations.
    pub annotations: Vec<Offer>,
}

impl Offers {
    /// The host's frame, and the values that every object gets by default.
    pub fn of_frame(labels: Vec<Placed>, annotations: Vec<Placed>, place: Place) -> Self {
        let offers = |placed: Vec<Placed>| placed.into_iter().map(Offer::of_frame).collect();
        let mut offers = Self { labels: offers(labels), annotations: offers(annotations) };
        if place == Place::Object {
            let fallback = Offer::of_policy("app.kubernetes.io/managed-by", "pointsman", "plugin");
            offers.labels.push(Offer { strength: Strength::Fallback, ..fallback });
        }
        offers
    }

    /// The labels and annotations that the target gets.
    pub fn settle(self) -> Answer {
        let mut answer = Answer::default();
        settle(&mut answer, Sort::Label, self.labels);
        settle(&mut answer, Sort::Annotation, self.annotations);
        answer
    }
}

/// Selects for each key the offer with the highest precedence, in the order of the keys, and records the reasons for the others. Among
/// equal offers, the last is selected.
fn settle(answer: &mut Answer, sort: Sort, mut offers: Vec<Offer>) {
    offers.reverse();
    offers.sort_by(|one, other| order(one).cmp(&order(other)));
    let mut offers = offers.into_iter().peekable();
    while let Some(first) = offers.next() {
        let key = first.key.clone();
        let others = std::iter::from_fn(|| offers.next_if(|offer| offer.key == key));
        let told_before = answer.dropped.len();
        if first.barred.is_some() {
            for loser in std::iter::once(first).chain(others) {
                tell(answer, told_before, sort, loser, None);
            }
            continue;
        }
        let strength = first.strength;
        let winner = place(answer, sort, first);
        for loser in others {
            tell(answer, told_before, sort, loser, Some((strength, &winner)));
        }
        match sort {
            Sort::Label => answer.labels.push(winner),
            Sort::Annotation => answer.annotations.push(winner),
        }
    }
}

fn order(offer: &Offer) -> (&str, bool, Reverse<Strength>) {
    (&offer.key, offer.barred.is_some(), Reverse(offer.strength))
}

/// The offer in its valid form. An entry of the frame stays unchanged: the host is responsible for it.
fn place(answer: &mut Answer, sort: Sort, offer: Offer) -> Placed {
    let Offer { key, mut value, layer, strength, .. } = offer;
    if sort == Sort::Label
        && strength != Strength::Host
        && let Cow::Owned(valid) = valid_label_value(&value)
    {
        answer.reasons.push(shortened(&key, &value, &valid));
        value = valid;
    }
    Placed { key: key.into_owned(), value, layer: layer.into_owned() }
}

fn shortened(key: &str, raw: &str, valid: &str) -> Reason {
    let start: String = raw.chars().take(80).collect();
    let dots = if start.len() < raw.len() { "..." } else { "" };
    reason("ValueShortened", format!("The label {key} has the value {valid}, because Kubernetes rejects `{start}{dots}`."))
}

fn tell(answer: &mut Answer, told_before: usize, sort: Sort, loser: Offer, winner: Option<(Strength, &Placed)>) {
    let Offer { key, value, layer, strength, barred } = loser;
    if let Some((_, winner)) = winner {
        let comes_to_the_same = winner.value == value || (sort == Sort::Label && winner.value == valid_label_value(&value));
        if comes_to_the_same || strength == Strength::Fallback {
            return;
        }
    }
    let reason = match (winner, barred) {
        (Some((Strength::Host, _)), _) => reason("HostsOwn", "The host sets this key itself, with another value."),
        // If the host's facts have the value, that is the reason why no other is used, even if the offer is also barred.
        (winner, Some(barred)) if winner.is_none_or(|(strength, _)| strength != Strength::Facts) => barred,
        (Some((_, winner)), _) => reason("Overridden", format!("The stronger layer {} sets this key to another value.", winner.layer)),
        (None, _) => return,
    };
    let dropped = Dropped { sort, key: key.into_owned(), layer: layer.into_owned(), reason };
    if !answer.dropped[told_before..].contains(&dropped) {
        answer.dropped.push(dropped);
    }
}
