//! A layer, seen from the target.

use crate::{
    config::{Config, any_matches},
    offer::{Offer, Offers, Strength},
    words::is_key,
};
use pointsman_plugin::{
    Entry, Reason, Role,
    metadata_propagation::{Layer, Sort, Target},
    reason,
};

/// A layer, seen from the target.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What is configured.
    pub config: &'a Config,
    /// What its labels and annotations are for.
    pub target: &'a Target,
    /// How strong it is there.
    pub strength: Strength,
    /// How labels of the namespace begin that are carried even if nobody configures it.
    pub of_namespace: &'static [&'static str],
}

impl Source<'_> {
    /// Offers what the layer has. `bar` says why the target doesn't get a key from it.
    pub fn offer(&self, layer: Layer, offers: &mut Offers, bar: impl Fn(Sort, &str) -> Option<Reason>) {
        let Layer { name, labels, annotations } = layer;
        for (sort, entries, offers) in [(Sort::Label, labels, &mut offers.labels), (Sort::Annotation, annotations, &mut offers.annotations)]
        {
            offers.reserve(entries.len());
            for Entry { key, value } in entries {
                // A namespace has labels for many purposes. Those that nobody asked for aren't worth telling.
                if self.strength == Strength::Namespace && !self.is_asked_for(sort, &key) {
                    continue;
                }
                let barred = bar(sort, &key);
                offers.push(Offer { key: key.into(), value, layer: name.clone().into(), strength: self.strength, barred });
            }
        }
    }

    /// Whether something that the namespace has is carried.
    fn is_asked_for(&self, sort: Sort, key: &str) -> bool {
        let by_default = sort == Sort::Label && self.of_namespace.iter().any(|beginning| key.starts_with(beginning));
        by_default || any_matches(&self.config.namespace_labels, key)
    }

    /// Why no kind's rules can carry it.
    pub fn unfit(&self, key: &str) -> Option<Reason> {
        if self.strength == Strength::Unknown {
            return Some(reason("UnknownLayer", "This policy has no rules for this layer."));
        }
        (!is_key(key)).then(|| reason("InvalidKey", "Kubernetes rejects this key."))
    }
}

/// Which part of the subject the target belongs to: a leader and a worker to what their group is.
pub fn part(target: &Target) -> Option<Role> {
    match target.role? {
        Role::Leader | Role::Worker => target.group_role,
        role => Some(role),
    }
}
