//! Candidates that may become active by themselves at the same time do so together, in one set: one after the other, each would have all the others
//! compared again. Only on the leader.

use super::{
    Keeper,
    candidate::{Candidate, CandidateKind},
    pending::{ChangeKeys, PromotionDecision},
};
use std::time::Duration;
use tokio::time::Instant;

/// For how long a candidate that may become active waits for the comparisons of others.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a candidate stands to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It may become active by itself.
    Promotable,
    /// It is still being compared.
    Compared,
    /// It waits for somebody, or for what its objects are to be.
    Apart,
}

impl Keeper {
    /// The changes that are to become active together, unless it is known that together they exceed a limit.
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

    /// Whether a candidate that may become active by itself waits for others, to do so with them.
    pub(super) fn waits_for_batch(&self, candidate: &Candidate) -> bool {
        if candidate.kind != CandidateKind::Change || candidate.batches_until.is_none_or(|until| until <= Instant::now()) {
            return false;
        }
        self.batch().is_some() || self.standings().any(|(_, standing)| standing == Standing::Compared)
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

    /// When a candidate no longer waits for others.
    pub(super) fn batches_until(&self) -> impl Iterator<Item = Instant> {
        self.candidates.values().filter_map(|candidate| candidate.batches_until)
    }
}

/// When a candidate that is compared now no longer waits for others.
pub(super) fn patience() -> Instant {
    Instant::now() + PATIENCE
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
}
