//! Batches: candidates that may become active without an approval at the same time do so in one set. One after the other, each would
//! restart the comparisons of all others. Only on the leader.

use super::{
    Keeper,
    candidate::{Candidate, CandidateKind},
    pending::{ChangeKeys, PromotionDecision},
};
use std::time::Duration;
use tokio::time::Instant;

/// How long a candidate that may become active waits for the comparisons of others.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it waits for the comparison of its batch, which takes minutes on a large cluster.
const MAX_BATCH_COMPARISON: Duration = Duration::from_mins(5);

/// The state of a candidate with regard to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It may become active without an approval.
    Promotable,
    /// It is still being compared.
    Compared,
    /// It waits for an approval, or its objects are still changing.
    Apart,
}

impl Keeper {
    /// The changes that should become active together, unless they are known to exceed a limit together.
    pub(super) fn batch(&self) -> Option<ChangeKeys> {
        let standings: Vec<(&ChangeKeys, Standing)> = self.standings().collect();
        combined(&standings).filter(|keys| self.unbatchable.as_ref() != Some(keys))
    }

    fn standings(&self) -> impl Iterator<Item = (&ChangeKeys, Standing)> {
        let changes = self.candidates.iter().filter(|(_, candidate)| candidate.kind == CandidateKind::Change);
        changes.map(|(keys, candidate)| (keys, self.standing(keys, candidate)))
    }

    fn standing(&self, keys: &ChangeKeys, candidate: &Candidate) -> Standing {
        if candidate.is_only_tried() {
            Standing::Apart
        } else if candidate.comparison.is_some() {
            Standing::Compared
        } else if candidate.verdict == Some(PromotionDecision::Promote) && self.is_settled(keys) {
            Standing::Promotable
        } else {
            Standing::Apart
        }
    }

    /// Whether a candidate that may become active waits to do so with others.
    pub(super) fn waits_for_batch(&self, keys: &ChangeKeys, candidate: &Candidate) -> bool {
        let Some(until) = candidate.batches_until.filter(|_| candidate.kind == CandidateKind::Change) else { return false };
        let batch = self.compared_batches().find(|(all, _)| keys.is_subset(all)).map(|(_, batch)| batch.since);
        let is_open = || self.batch().is_some() || self.standings().any(|(_, standing)| standing == Standing::Compared);
        waits(Instant::now(), until, batch, is_open)
    }

    fn compared_batches(&self) -> impl Iterator<Item = (&ChangeKeys, &Candidate)> {
        self.candidates.iter().filter(|(_, candidate)| candidate.kind == CandidateKind::Batch && candidate.comparison.is_some())
    }

    /// Remembers a batch that exceeds a limit as a whole: its changes become active one after the other.
    pub(super) fn split_batch(&mut self) {
        let is_over = |candidate: &Candidate| {
            candidate.kind == CandidateKind::Batch && matches!(candidate.verdict, Some(PromotionDecision::Approval(_)))
        };
        let Some(keys) = self.candidates.iter().find(|(_, candidate)| is_over(candidate)).map(|(keys, _)| keys.clone()) else { return };
        self.abandon(&keys, "Its changes exceed a limit together: they become active one after the other.", None);
        self.unbatchable = Some(keys);
    }

    /// The times at which candidates no longer wait for others.
    pub(super) fn batches_until(&self) -> impl Iterator<Item = Instant> {
        let comparisons = self.compared_batches().map(|(_, batch)| batch.since + MAX_BATCH_COMPARISON);
        self.candidates.values().filter_map(|candidate| candidate.batches_until).chain(comparisons)
    }
}

/// The time at which a candidate whose comparison ends now no longer waits for others.
pub(super) fn patience() -> Instant {
    Instant::now() + PATIENCE
}

/// Whether a candidate waits whose patience ends at `until` and whose batch is being compared since `batch`. If the members became active during
/// that comparison, it would be wasted, and each member would have the others compared again.
fn waits(now: Instant, until: Instant, batch: Option<Instant>, is_open: impl FnOnce() -> bool) -> bool {
    batch.is_some_and(|since| since <= until && now < since + MAX_BATCH_COMPARISON) || now < until && is_open()
}

/// The changes of all that may become active, once none is being compared, if that are several.
fn combined(standings: &[(&ChangeKeys, Standing)]) -> Option<ChangeKeys> {
    let promotable: Vec<&ChangeKeys> =
        standings.iter().filter(|(_, standing)| *standing == Standing::Promotable).map(|(keys, _)| *keys).collect();
    let is_open = standings.iter().any(|(_, standing)| *standing == Standing::Compared);
    (promotable.len() > 1 && !is_open).then(|| promotable.into_iter().flatten().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::pending::ChangeKey;

    #[test]
    fn all_that_may_become_active_do_so_together_once_none_is_being_compared() {
        use Standing::{Apart, Compared, Promotable};
        let keys = |names: &[&str]| names.iter().map(|name| ChangeKey::Rule((*name).to_owned())).collect::<ChangeKeys>();
        let (a, b, group, waiting) = (keys(&["a"]), keys(&["b"]), keys(&["c", "d"]), keys(&["e"]));
        assert_eq!(
            combined(&[(&a, Promotable), (&b, Promotable), (&group, Promotable), (&waiting, Apart)]),
            Some(keys(&["a", "b", "c", "d"]))
        );
        assert_eq!(combined(&[(&a, Promotable), (&b, Promotable), (&group, Compared)]), None);
        assert_eq!(combined(&[(&a, Promotable), (&waiting, Apart)]), None, "one is a candidate already");
    }

    #[test]
    fn the_comparison_of_a_batch_is_awaited_if_it_began_in_time() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let until = at(10);
        assert!(waits(at(9), until, None, || true), "others are being compared");
        assert!(!waits(at(9), until, None, || false), "nothing is left to wait for");
        assert!(!waits(at(10), until, None, || true), "its patience is over");
        assert!(waits(at(200), until, Some(at(9)), || true), "its batch is still being compared");
        assert!(!waits(at(11), until, Some(at(11)), || true), "its batch began too late");
        assert!(!waits(at(310), until, Some(at(9)), || true), "the comparison of its batch takes too long");
    }
}
