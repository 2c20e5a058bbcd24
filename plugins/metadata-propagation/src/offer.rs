//! What is offered for each key, and which offer the target gets.

use crate::words::valid_label_value;
use pointsman_plugin::{
    Reason,
    metadata_propagation::{Answer, Dropped, Place, Placed, Sort},
    reason,
};
use std::{borrow::Cow, cmp::Reverse};

/// How strong an offer is, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// What the policy gives where nobody else does.
    Fallback,
    /// A layer that the rules don't know.
    Unknown,
    /// The namespace.
    Namespace,
    /// The runtime.
    Runtime,
    /// The subject.
    Subject,
    /// What the subject's spec gives for pods.
    Spec,
    /// The subject's component, prefill workload or scheduler.
    Component,
    /// What the host knows, and what the policy makes of it.
    Facts,
    /// The host's frame.
    Host,
}

/// A label or annotation that somebody gives.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its key.
    pub key: Cow<'static, str>,
    /// Its value, as it was written.
    pub value: String,
    /// The layer that it comes from.
    pub layer: Cow<'static, str>,
    /// How strong it is.
    pub strength: Strength,
    /// Why the target doesn't get it, even where nobody else gives it.
    pub barred: Option<Reason>,
}

impl Offer {
    /// What the host's frame has.
    pub fn of_frame(placed: Placed) -> Self {
        let Placed { key, value, layer } = placed;
        Self { key: key.into(), value, layer: layer.into(), strength: Strength::Host, barred: None }
    }

    /// What the policy itself gives.
    pub fn of_policy(key: &'static str, value: impl Into<String>, layer: &'static str) -> Self {
        Self { key: key.into(), value: value.into(), layer: layer.into(), strength: Strength::Facts, barred: None }
    }
}

/// All that is offered to one target.
#[derive(Clone, Debug)]
pub struct Offers {
    /// Its labels.
    pub labels: Vec<Offer>,
    /// Its annotations.
    pub annotations: Vec<Offer>,
}

impl Offers {
    /// The host's frame, and what every object gets unless somebody says otherwise.
    pub fn of_frame(labels: Vec<Placed>, annotations: Vec<Placed>, place: Place) -> Self {
        let offers = |placed: Vec<Placed>| placed.into_iter().map(Offer::of_frame).collect();
        let mut offers = Self { labels: offers(labels), annotations: offers(annotations) };
        if place == Place::Object {
            let fallback = Offer::of_policy("app.kubernetes.io/managed-by", "pointsman", "plugin");
            offers.labels.push(Offer { strength: Strength::Fallback, ..fallback });
        }
        offers
    }

    /// What the target gets of it.
    pub fn settle(self) -> Answer {
        let mut answer = Answer::default();
        settle(&mut answer, Sort::Label, self.labels);
        settle(&mut answer, Sort::Annotation, self.annotations);
        answer
    }
}

/// Gives each key to the strongest of its offers, in the order of the keys, and tells what happened to the others. Of equally strong
/// ones the last wins.
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

/// The offer as the target gets it. What the frame has is the host's own matter.
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
        // Where the host knows the value, that is why nobody else's is there, whatever else bars it.
        (winner, Some(barred)) if winner.is_none_or(|(strength, _)| strength != Strength::Facts) => barred,
        (Some((_, winner)), _) => reason("Overridden", format!("The stronger layer {} sets this key to another value.", winner.layer)),
        (None, _) => return,
    };
    let dropped = Dropped { sort, key: key.into_owned(), layer: layer.into_owned(), reason };
    if !answer.dropped[told_before..].contains(&dropped) {
        answer.dropped.push(dropped);
    }
}
