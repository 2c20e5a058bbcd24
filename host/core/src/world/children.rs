//! The objects that were created for subjects, by owner.

use super::{ObjectKey, OwnedObject, Owner, World};
use std::sync::Arc;

impl World {
    /// The owner of an object, if the object is known: a subject, or none if that is deleted.
    pub fn owner(&self, key: &ObjectKey) -> Option<Option<&ObjectKey>> {
        self.owners.get(key).map(|owner| self.uids.get(owner))
    }

    /// The state of an object that was created for a subject.
    pub fn child(&self, key: &ObjectKey) -> Option<Arc<OwnedObject>> {
        self.children.get(self.owners.get(key)?)?.get(key).cloned()
    }

    pub(super) fn put_child(&mut self, child: OwnedObject) {
        let key = child.key.clone();
        let known = self.child(&key);
        if !self.relisting && known.as_ref().is_some_and(|known| known.uid == child.uid && known.version > child.version) {
            return;
        }
        let news = known.as_ref().is_none_or(|known| known.differs(&child));
        let Some(owner) = child.owner.clone() else {
            // It no longer has an owner: its former subject creates it again, or reports why it can't.
            self.remove_child(&key);
            return;
        };
        let owner = (key.namespace.clone(), owner);
        if let Some(before) = self.owners.insert(key.clone(), owner.clone())
            && before != owner
        {
            self.touch_owner(&before);
            self.remove_from(&before, &key);
        }
        self.children.entry(owner.clone()).or_default().insert(key, Arc::new(child));
        if news {
            self.touch_owner(&owner);
        }
    }

    pub(super) fn remove_child(&mut self, key: &ObjectKey) {
        let Some(owner) = self.owners.remove(key) else { return };
        self.touch_owner(&owner);
        self.remove_from(&owner, key);
    }

    fn remove_from(&mut self, owner: &Owner, key: &ObjectKey) {
        if let Some(children) = self.children.get_mut(owner) {
            children.remove(key);
            if children.is_empty() {
                self.children.remove(owner);
            }
        }
    }

    pub(super) fn touch_owner(&mut self, owner: &Owner) {
        self.reported.extend(self.uids.get(owner).cloned());
    }
}
