//! Recorded questions at hot points. Snapshots don't contain them, so a sample is stored and replayed on sets that are compared.

use super::{
    Policies, Standing,
    scoring::{Candidates, Scores},
};
use pointsman_sandbox::{
    point::{Question, Subject},
    sync::locked,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// The maximum number of stored questions.
const MAX_RECORDED_QUESTIONS: usize = 256;

/// After the first questions, only one in this many is stored, so that frequent calls cost nothing.
const EVERY: u64 = 64;

/// The largest stored matrix, in numbers.
const LARGEST: usize = 8192;

/// A recorded question.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    subject: Subject,
    question: Question,
    features: Vec<String>,
    values: Vec<f64>,
}

/// The sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    seen: AtomicU64,
    kept: Mutex<VecDeque<Arc<Recorded>>>,
}

impl Sample {
    /// Stores a question, if the sampling selects it.
    pub(super) fn note(&self, subject: &Subject, question: Question, candidates: Candidates<'_>) {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        let wanted = seen < MAX_RECORDED_QUESTIONS as u64 || seen.is_multiple_of(EVERY);
        if !wanted || candidates.values.len() > LARGEST {
            return;
        }
        let recorded = Recorded {
            subject: subject.clone(),
            question,
            features: candidates.features.iter().map(ToString::to_string).collect(),
            values: candidates.values.to_vec(),
        };
        let mut kept = locked(&self.kept);
        if kept.len() == MAX_RECORDED_QUESTIONS {
            kept.pop_front();
        }
        kept.push_back(Arc::new(recorded));
    }

    /// The stored questions, the oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Recorded>> {
        locked(&self.kept).iter().cloned().collect()
    }
}

/// The effect of another set on recorded questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// The number of replayed questions.
    pub questions: usize,
    /// The number of questions with another best candidate.
    pub best: usize,
    /// The number of questions with the same best candidate and other scores.
    pub scores: usize,
    /// The number of questions without an answer under the new set.
    pub failed: usize,
}

/// The first of the candidates with the best score, which is the one that callers pick.
fn best(scores: &Scores) -> Option<usize> {
    let scored = scores.0.iter().enumerate().filter_map(|(at, score)| Some((at, (*score)?)));
    scored
        .fold(None, |best: Option<(usize, f64)>, next| if best.is_none_or(|best| next.1 > best.1) { Some(next) } else { best })
        .map(|(at, _)| at)
}

impl Replayed {
    /// Replays a question on both sets, and counts the difference.
    pub fn put(&mut self, recorded: &Recorded, before: &Policies, after: &Policies) {
        let Recorded { subject, question, features, values } = recorded;
        let features: Vec<&str> = features.iter().map(String::as_str).collect();
        let candidates = Candidates { features: &features, values };
        let ask =
            |policies: &Policies| policies.pin(Standing::Running).score(subject, *question, candidates).map(|decision| decision.answer);
        self.questions += 1;
        match (ask(before), ask(after)) {
            (Ok(one), Ok(other)) if best(&one) != best(&other) => self.best += 1,
            (Ok(one), Ok(other)) => self.scores += usize::from(one != other),
            // If the previous set had no answer either, nothing is lost.
            (before, Err(_)) => self.failed += usize::from(before.is_ok()),
            (Err(_), Ok(_)) => self.best += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_questions_are_kept_and_then_one_in_so_many_and_never_more_than_there_is_room_for() {
        let sample = Sample::default();
        let put = |number: f64| {
            let candidates = Candidates { features: &["a"], values: &[number] };
            sample.note(&Subject::default(), Question::EndpointPick, candidates);
        };
        for _ in 0..MAX_RECORDED_QUESTIONS {
            put(1.0);
        }
        assert_eq!(sample.all().len(), MAX_RECORDED_QUESTIONS);
        for _ in 0..EVERY {
            put(-1.0);
        }
        let kept = sample.all();
        assert_eq!((kept.len(), kept.iter().filter(|recorded| recorded.values[0] < 0.0).count()), (MAX_RECORDED_QUESTIONS, 1));
        let large: Vec<f64> = std::iter::repeat_n(0.0, LARGEST + 1).collect();
        sample.note(&Subject::default(), Question::EndpointPick, Candidates { features: &["a"], values: &large });
        assert_eq!(sample.all(), kept);
    }

    #[test]
    fn of_those_that_score_alike_the_first_is_the_best_and_one_that_is_excluded_never_is() {
        assert_eq!(best(&Scores(vec![Some(0.5), None, Some(1.0), Some(1.0)])), Some(2));
        assert_eq!(best(&Scores(vec![None])), None);
    }
}
