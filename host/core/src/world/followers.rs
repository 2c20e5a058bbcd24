//! Subscribers to changes in addition to the queue: each gets the changes since it last asked.

use super::ObjectKey;
use pointsman_sandbox::sync::locked;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, Weak},
};

/// The pending changes for a subscriber.
pub type Subscriber = Mutex<BTreeSet<ObjectKey>>;

/// All subscribers, until they are dropped.
#[derive(Debug, Default)]
pub(super) struct Followers(Vec<Weak<Subscriber>>);

impl Followers {
    /// Adds a subscriber with its first pending changes.
    pub(super) fn add(&mut self, first: BTreeSet<ObjectKey>) -> Arc<Subscriber> {
        let follower = Arc::new(Mutex::new(first));
        self.0.push(Arc::downgrade(&follower));
        follower
    }

    /// Adds changes for each subscriber.
    pub(super) fn note(&mut self, add: impl Fn(&mut BTreeSet<ObjectKey>)) {
        self.0.retain(|follower| follower.strong_count() > 0);
        for follower in self.0.iter().filter_map(Weak::upgrade) {
            add(&mut locked(&follower));
        }
    }
}
