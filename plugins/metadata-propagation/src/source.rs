//! A layer in relation to the target.

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

/// A layer in relation to the target.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The object that gets the labels and annotations.
    pub target: &'a Target,
    /// The layer's precedence for it.
    pub strength: Strength,
    /// Prefixes of the namespace's labels that are propagated even without configuration.
    pub of_namespace: &'static [&'static str],
}

impl Source<'_> {
    /// Offers the layer's entries. `bar` returns the reason why the target doesn't get a key from it.
    pub fn offer(&self, layer: Layer, offers: &mut Offers, bar: impl Fn(Sort, &str) -> Option<Reason>) {
        let Layer { name, labels, annotations } = layer;
        for (sort, entries, offers) in [(Sort::Label, labels, &mut offers.labels), (Sort::Annotation, annotations, &mut offers.annotations)]
        {
            offers.reserve(entries.len());
            for Entry { key, value } in entries {
                // A namespace has labels for many purposes. Those that aren't requested needn't be reported.
                if self.strength == Strength::Namespace && !self.is_asked_for(sort, &key) {
                    continue;
                }
                let barred = bar(sort, &key);
                offers.push(Offer { key: key.into(), value, layer: name.clone().into(), strength: self.strength, barred });
            }
        }
    }

    /// Whether an entry of the namespace is propagated.
    fn is_asked_for(&self, sort: Sort, key: &str) -> bool {
        let by_default = sort == Sort::Label && self.of_namespace.iter().any(|beginning| key.starts_with(beginning));
        by_default || any_matches(&self.config.namespace_labels, key)
    }

    /// Why an entry can't be propagated for any kind.
    pub fn unfit(&self, key: &str) -> Option<Reason> {
        if self.strength == Strength::Unknown {
            return Some(reason("UnknownLayer", "This policy has no rules for this layer."));
        }
        (!is_key(key)).then(|| reason("InvalidKey", "Kubernetes rejects this key."))
    }
}

/// The part of the subject to which the target belongs. For a leader or a worker, it is the role of its group.
pub fn part(target: &Target) -> Option<Role> {
    match target.role? {
        Role::Leader | Role::Worker => target.group_role,
        role => Some(role),
    }
}
