//! A candidate's view of the lease. Pure: the times are arguments.

use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use std::time::Duration;
use tokio::time::Instant;

/// A candidate for the lease, and its last observation.
#[derive(Debug)]
pub(super) struct Candidate {
    identity: String,
    lease: Duration,
    /// The record that was seen last, and when it was first seen, by our own clock. The times in the record are from another host's clock:
    /// only their changes matter.
    seen: Option<(LeaseSpec, Instant)>,
}

/// The holder of a lease.
pub fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// The seconds since the holder renewed a lease. The holder's clock may differ.
pub fn seconds_since_renewal(spec: &LeaseSpec, now: Timestamp) -> i64 {
    spec.renew_time.as_ref().map_or(i64::MAX, |renewed| now.as_second().saturating_sub(renewed.0.as_second()))
}

impl Candidate {
    pub(super) fn new(identity: &str, lease: Duration) -> Self {
        Self { identity: identity.to_owned(), lease, seen: None }
    }

    /// The candidate's identity.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// The holder of the lease, as last seen.
    pub(super) fn holder(&self) -> Option<&str> {
        self.seen.as_ref().and_then(|(seen, _)| holder(seen))
    }

    /// Observes the record. Returns the holder if another host has become it.
    pub(super) fn observe(&mut self, found: Option<&LeaseSpec>, now: Instant) -> Option<&str> {
        let Some(found) = found else {
            self.seen = None;
            return None;
        };
        if self.seen.as_ref().is_some_and(|(seen, _)| seen == found) {
            return None;
        }
        let before = self.holder().map(str::to_owned);
        self.seen = Some((found.clone(), now));
        self.holder().filter(|now| *now != self.identity && before.as_deref() != Some(*now))
    }

    /// The record to write, if the lease is ours or free. Call `observe` first.
    pub(super) fn wanted(&self, found: Option<&LeaseSpec>, now: Instant, clock: Timestamp) -> Option<LeaseSpec> {
        let found = found.cloned().unwrap_or_default();
        let renewed = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(seconds(self.lease)),
            renew_time: Some(MicroTime(clock)),
            ..found.clone()
        };
        match holder(&found) {
            Some(holder) if holder == self.identity => Some(renewed),
            Some(_) if !self.expired(now) => None,
            _ => {
                let transitions = if self.seen.is_some() { found.lease_transitions.unwrap_or(0).saturating_add(1) } else { 0 };
                Some(LeaseSpec { acquire_time: Some(MicroTime(clock)), lease_transitions: Some(transitions), ..renewed })
            }
        }
    }

    /// The record of a released lease, if the lease is ours.
    pub(super) fn released(&self, found: Option<&LeaseSpec>, clock: Timestamp) -> Option<LeaseSpec> {
        let found = found.filter(|found| holder(found) == Some(&self.identity))?.clone();
        Some(LeaseSpec { holder_identity: None, lease_duration_seconds: Some(1), renew_time: Some(MicroTime(clock)), ..found })
    }

    fn expired(&self, now: Instant) -> bool {
        self.seen.as_ref().is_none_or(|(seen, since)| {
            let told = seen.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
            now.duration_since(*since) > told.unwrap_or(self.lease)
        })
    }
}

/// Rounded up: others may wait a little longer, but not shorter.
fn seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);
    const SECOND: Duration = Duration::from_secs(1);

    fn clock(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn held_by(holder: &str, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(clock(0))),
            renew_time: Some(MicroTime(clock(renewed))),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    fn step(candidate: &mut Candidate, found: &LeaseSpec, now: Instant) -> Option<LeaseSpec> {
        candidate.observe(Some(found), now);
        candidate.wanted(Some(found), now, clock(1000))
    }

    #[test]
    fn a_lease_that_is_not_there_is_made() {
        let mut us = Candidate::new("us", Duration::from_millis(14_500));
        let now = Instant::now();
        assert_eq!(us.observe(None, now), None);
        let made = us.wanted(None, now, clock(7)).unwrap();
        let expected = LeaseSpec {
            acquire_time: Some(MicroTime(clock(7))),
            lease_transitions: Some(0),
            lease_duration_seconds: Some(15),
            ..held_by("us", 7)
        };
        assert_eq!(made, expected);
    }

    #[test]
    fn a_lease_is_taken_over_once_nobody_has_renewed_it_for_as_long_as_it_says() {
        let mut us = Candidate::new("us", SECOND);
        let start = Instant::now();
        assert_eq!(step(&mut us, &held_by("other", 1), start), None);
        assert_eq!(step(&mut us, &held_by("other", 1), start + LEASE), None);
        let taken = step(&mut us, &held_by("other", 1), start + LEASE + SECOND).unwrap();
        assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("us"), Some(4)));
        assert_eq!(taken.acquire_time, Some(MicroTime(clock(1000))));
    }

    #[test]
    fn a_lease_that_is_renewed_is_left_alone() {
        let mut us = Candidate::new("us", LEASE);
        let start = Instant::now();
        for renewal in 0..10 {
            let now = start + LEASE * renewal;
            assert_eq!(step(&mut us, &held_by("other", renewal.into()), now), None, "{renewal}");
        }
    }

    #[test]
    fn the_clocks_of_others_do_not_matter() {
        // By a clock that isn't ours, it was renewed long ago or far in the future: when first seen, it is valid.
        for renewed in [0, 4_000_000_000] {
            let mut us = Candidate::new("us", LEASE);
            let start = Instant::now();
            assert_eq!(step(&mut us, &held_by("other", renewed), start), None);
            assert!(step(&mut us, &held_by("other", renewed), start + LEASE + SECOND).is_some());
        }
    }

    #[test]
    fn a_lease_of_our_own_is_renewed_and_stays_as_it_was() {
        let mut us = Candidate::new("us", LEASE);
        assert_eq!(step(&mut us, &held_by("us", 1), Instant::now()), Some(held_by("us", 1000)));
    }

    #[test]
    fn a_lease_that_was_given_back_is_taken_at_once() {
        let (mut us, now) = (Candidate::new("us", LEASE), Instant::now());
        let free = Candidate::new("other", LEASE).released(Some(&held_by("other", 1)), clock(2)).unwrap();
        assert_eq!((free.holder_identity.as_deref(), free.lease_transitions), (None, Some(3)));
        assert_eq!(step(&mut us, &free, now).unwrap().lease_transitions, Some(4));
        let empty = LeaseSpec { holder_identity: Some(String::new()), ..held_by("other", 1) };
        assert!(step(&mut us, &empty, now).is_some());
    }

    #[test]
    fn only_a_lease_of_our_own_is_given_back() {
        let us = Candidate::new("us", LEASE);
        assert_eq!(us.released(Some(&held_by("other", 1)), clock(2)), None);
        assert_eq!(us.released(None, clock(2)), None);
    }

    #[test]
    fn another_leader_is_told_once() {
        let (mut us, now) = (Candidate::new("us", LEASE), Instant::now());
        assert_eq!(us.observe(Some(&held_by("other", 1)), now), Some("other"));
        assert_eq!(us.observe(Some(&held_by("other", 2)), now), None);
        assert_eq!(us.observe(Some(&held_by("third", 3)), now), Some("third"));
        assert_eq!(us.observe(Some(&held_by("us", 4)), now), None);
        assert_eq!(us.holder(), Some("us"));
    }
}
