//! Finds the smallest set of models to put to sleep so that another one fits.

use super::amounts::Amounts;

/// The number of candidates per node for which all combinations are tried. If no such set suffices, candidates are taken one by one, lowest
/// score first.
const MAX_COMBINED: usize = 12;

/// The largest set for which all combinations are tried.
const MAX_SET: usize = 4;

/// A model that may be put to sleep, with its dependants.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// The models, by index: dependants first, the model itself last.
    pub(super) models: Vec<usize>,
    /// The amounts that it frees on the node.
    pub(super) frees: Amounts,
    /// Its score.
    pub(super) score: f64,
}

/// A set of models to put to sleep.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Victims {
    pub(super) models: Vec<usize>,
    pub(super) score: f64,
    /// The freed memory in excess of the need.
    pub(super) excess: i64,
    /// The freed amounts.
    pub(super) frees: Amounts,
}

impl Victims {
    /// Whether this set is better: it has fewer models, then a lower score, then less excess memory.
    pub(super) fn is_better(&self, other: &Self) -> bool {
        let order = self.models.len().cmp(&other.models.len());
        let order = order.then(self.score.total_cmp(&other.score)).then(self.excess.cmp(&other.excess));
        order.is_lt()
    }

    fn new(candidates: &[&Candidate], needs: Amounts, free: Amounts) -> Option<Self> {
        let mut models: Vec<usize> = Vec::new();
        let mut freed = free;
        let mut score = 0.0;
        for candidate in candidates {
            // Both candidates contain the same model.
            if candidate.models.iter().any(|model| models.contains(model)) {
                return None;
            }
            models.extend(&candidate.models);
            freed += candidate.frees;
            score += candidate.score;
        }
        needs.fit(freed).then_some(Self { models, score, excess: freed.memory - needs.memory, frees: freed - free })
    }
}

/// The best set of candidates on one node, if any set suffices.
pub(super) fn choose(needs: Amounts, free: Amounts, mut candidates: Vec<Candidate>) -> Option<Victims> {
    // Most nodes of a full pool have too few candidates for any combination.
    let all = candidates.iter().fold(free, |sum, candidate| sum + candidate.frees);
    if !needs.fit(all) {
        return None;
    }
    candidates.sort_by(|a, b| a.score.total_cmp(&b.score).then_with(|| a.models.cmp(&b.models)));
    let tried: Vec<&Candidate> = candidates.iter().take(MAX_COMBINED).collect();
    let mut best: Option<Victims> = None;
    for size in 1..=MAX_SET.min(tried.len()) {
        // Each candidate is at least one model, so larger sets can't be better.
        if best.as_ref().is_some_and(|best| best.models.len() < size) {
            break;
        }
        combinations(tried.len(), size, &mut |chosen| {
            let set: Vec<&Candidate> = chosen.iter().map(|&at| tried[at]).collect();
            if let Some(found) = Victims::new(&set, needs, free).filter(|found| best.as_ref().is_none_or(|best| found.is_better(best))) {
                best = Some(found);
            }
        });
    }
    best.or_else(|| one_by_one(needs, free, &candidates))
}

/// Takes candidates with the lowest scores until they suffice, then drops those that later ones made unnecessary.
fn one_by_one(needs: Amounts, free: Amounts, candidates: &[Candidate]) -> Option<Victims> {
    let mut taken: Vec<&Candidate> = Vec::new();
    for candidate in candidates {
        if candidate.models.iter().all(|model| taken.iter().all(|other| !other.models.contains(model))) {
            taken.push(candidate);
        }
        if Victims::new(&taken, needs, free).is_some() {
            break;
        }
    }
    let mut found = Victims::new(&taken, needs, free)?;
    // The highest scores first.
    for at in (0..taken.len()).rev() {
        let mut fewer = taken.clone();
        fewer.remove(at);
        if let Some(enough) = Victims::new(&fewer, needs, free) {
            (taken, found) = (fewer, enough);
        }
    }
    Some(found)
}

/// All combinations of a size, in order.
fn combinations(total: usize, size: usize, take: &mut impl FnMut(&[usize])) {
    let mut chosen: Vec<usize> = (0..size).collect();
    loop {
        take(&chosen);
        let Some(at) = (0..size).rev().find(|&at| chosen[at] < total - size + at) else { return };
        chosen[at] += 1;
        for next in at + 1..size {
            chosen[next] = chosen[next - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(model: usize, memory: i64, score: f64) -> Candidate {
        Candidate { models: vec![model], frees: Amounts { memory, pods: 1, ..Amounts::default() }, score }
    }

    fn chosen(needs: i64, free: i64, candidates: &[(i64, f64)]) -> Option<Vec<usize>> {
        let candidates = candidates.iter().enumerate().map(|(at, &(memory, score))| candidate(at, memory, score)).collect();
        let amounts = |memory: i64| Amounts { memory, ..Amounts::default() };
        choose(amounts(needs), amounts(free), candidates).map(|found| found.models)
    }

    #[test]
    fn one_large_model_goes_rather_than_two_small_ones_and_of_equals_the_one_worth_least() {
        assert_eq!(chosen(10, 0, &[(5, 0.1), (5, 0.1), (20, 0.4)]), Some(vec![2]));
        assert_eq!(chosen(10, 0, &[(10, 0.5), (10, 0.3), (10, 0.4)]), Some(vec![1]));
        assert_eq!(chosen(10, 4, &[(5, 0.1), (6, 0.3), (3, 0.0)]), Some(vec![1]));
        assert_eq!(chosen(10, 0, &[(20, 0.3), (10, 0.3)]), Some(vec![1]), "the one that leaves less over");
    }

    #[test]
    fn nobody_goes_if_all_together_are_not_enough() {
        assert_eq!(chosen(10, 0, &[(5, 0.1), (4, 0.1)]), None);
        assert_eq!(chosen(10, 0, &[]), None);
    }

    #[test]
    fn never_more_than_needed_go_however_many_there_are() {
        let many: Vec<(i64, f64)> = (0..40).map(|at| (1 + at % 3, f64::from(u8::try_from(at).unwrap()) / 40.0)).collect();
        let found = chosen(30, 0, &many).unwrap();
        let freed = |models: &[usize]| models.iter().map(|&at| many[at].0).sum::<i64>();
        assert!(freed(&found) >= 30);
        for without in &found {
            let rest: Vec<usize> = found.iter().copied().filter(|model| model != without).collect();
            assert!(freed(&rest) < 30, "{without} needn't go");
        }
    }
}
