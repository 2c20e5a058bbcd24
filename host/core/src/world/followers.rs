//! Who wants to know what changes, beside the queue: each has what has changed since asking last.

use super::ObjectKey;
use pointsman_sandbox::sync::locked;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, Weak},
};

/// What has changed for one of them.
pub type Subscriber = Mutex<BTreeSet<ObjectKey>>;

/// All of them, each until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Followers(Vec<Weak<Subscriber>>);

impl Followers {
    /// Adds one, with what it is to look at first.
    pub(super) fn add(&mut self, first: BTreeSet<ObjectKey>) -> Arc<Subscriber> {
        let follower = Arc::new(Mutex::new(first));
        self.0.push(Arc::downgrade(&follower));
        follower
    }

    /// Has changes added for each.
    pub(super) fn note(&mut self, add: impl Fn(&mut BTreeSet<ObjectKey>)) {
        self.0.retain(|follower| follower.strong_count() > 0);
        for follower in self.0.iter().filter_map(Weak::upgrade) {
            add(&mut locked(&follower));
        }
    }
}
