//! The stored state of a gang.

use super::{
    Question,
    members::{Members, leads},
};
use crate::placement::{Pod, Resources};
use std::collections::{BTreeMap, BTreeSet};

/// How long a gang that restarts waits until the deletion of its placed members is observed, in seconds.
pub(super) const DELETION_DELAY: u64 = 10;

/// The stored state of a gang.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    /// Whether the scheduler has asked about a member, or would: nothing of other gangs is deleted.
    pub(super) is_asked: bool,
    /// The reservations, by member name. That of a deleted member stays for its successor.
    pub(super) holds: BTreeMap<String, Hold>,
    pub(super) until: u64,
    /// The version of the cluster in which the reservations were last found to fit.
    pub(super) fits_in: Option<u64>,
    pub(super) failed: Option<Failed>,
    /// The members' nodes that a trial found before its answer was due.
    pub(super) found: BTreeMap<String, String>,
    /// Reserved nodes that the scheduler didn't offer, by member: the time until which they aren't tried again.
    pub(super) refused: BTreeMap<String, BTreeMap<String, u64>>,
    /// The uids of members that have been part of the complete gang or of one with a Ready member: they are never deleted.
    whole: BTreeSet<String>,
    /// Those of them that don't wait for members that have ended. A leader may be Ready before the others exist.
    complete: BTreeSet<String>,
    /// Since when it has been partly placed, without ever having been complete.
    pub(super) half_since: Option<u64>,
    pub(super) dissolved_at: Option<u64>,
}

/// A reservation for a member.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) uid: String,
    pub(super) node: String,
    pub(super) requests: Resources,
}

/// A failed trial, which isn't repeated until something changes.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) version: u64,
    pub(super) released: u64,
    pub(super) sentence: String,
}

impl Watched {
    /// The reservation for a member.
    pub(super) fn hold(&self, pod: &Pod) -> Option<&Hold> {
        self.holds.get(&pod.name).filter(|hold| hold.uid == pod.uid)
    }

    /// Whether a member with a node was part of the complete gang or of one with a Ready member.
    fn was_whole(&self, members: &Members<'_>) -> bool {
        members.bound.iter().any(|pod| self.whole.contains(&pod.uid))
    }

    /// Limits the required size to the existing members, if the gang was complete: others have ended.
    pub(super) fn limit_size(&self, members: &mut Members<'_>) {
        if members.bound.iter().any(|pod| self.complete.contains(&pod.uid)) {
            members.size = members.size.min(members.number());
        }
    }

    /// Records the state of the gang.
    pub(super) fn observe(&mut self, members: &Members<'_>, now: u64) {
        let is_whole = members.missing() == 0;
        if is_whole || members.bound.iter().any(|pod| pod.is_ready) {
            note(&mut self.whole, members);
        }
        if is_whole || members.bound.iter().any(|pod| pod.is_ready && !leads(pod)) {
            note(&mut self.complete, members);
        }
        if self.whole.len() > members.bound.len() {
            self.whole.retain(|uid| members.contains(uid));
            self.complete.retain(|uid| members.contains(uid));
        }
        let is_half = members.are_half() && !self.was_whole(members);
        self.half_since = is_half.then(|| self.half_since.unwrap_or(now));
        if members.bound.is_empty() {
            self.dissolved_at = None;
        }
        self.refused.retain(|_, nodes| {
            nodes.retain(|_, until| now < *until);
            !nodes.is_empty()
        });
    }

    /// Why no node is searched for a member.
    pub(super) fn obstacle(&self, members: &Members<'_>, question: Question<'_>) -> Option<String> {
        let Question { pod, now, .. } = question;
        let is_new = |at: u64| now < at.saturating_add(DELETION_DELAY);
        if pod.is_leaving {
            Some(format!("{} is being deleted", pod.name))
        } else if self.half_since.is_some() && self.dissolved_at.is_some_and(is_new) {
            Some("its placed members are being deleted, so that it can restart".to_owned())
        } else if members.number() < members.size {
            Some(members.existence())
        } else {
            None
        }
    }

    /// The time at which its placed members must be deleted if nothing changes.
    pub(super) fn overdue_at(&self, timeout: u64) -> Option<u64> {
        self.half_since.filter(|_| self.is_asked).map(|since| since.saturating_add(timeout))
    }
}

/// Records the members that have nodes.
fn note(uids: &mut BTreeSet<String>, members: &Members<'_>) {
    for pod in &members.bound {
        if !uids.contains(&pod.uid) {
            uids.insert(pod.uid.clone());
        }
    }
}
