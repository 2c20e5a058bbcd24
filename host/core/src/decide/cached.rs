//! Questions whose answers are cached, under a key that covers everything the answer depends on.

use super::{
    Decision, Pinned, Undecided,
    chain::{Answered, Fault},
    member::Member,
    set::applies_at,
};
use crate::{point::name, spans};
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{call::CallError, digest::Digest, limits::LARGEST_KEPT, point::Subject};
use serde::Serialize;
use std::sync::Arc;
use tracing::{Span, field::Empty};

/// A question whose answers are cached.
///
/// An answer depends only on the question and the chain: `answer` has no other inputs.
pub(super) trait CachedQuestion {
    /// The policy point of the question.
    const POINT: PolicyPoint;
    /// The chain's answer.
    type Answer: Serialize + Send + Sync + 'static;

    /// The subject of the question.
    fn subject(&self) -> &Subject;

    /// The time, which is part of the key only if a plugin wants it.
    fn now(&self) -> Option<u64>;

    /// The digest of the whole question, except for the time. Implementations destructure `Self` without `..` and deny unused variables, so
    /// that a new field that is missing from the digest doesn't compile. Large parts are shared by many questions and carry their own
    /// digest (`Digested`), so that a key costs about a microsecond.
    fn digest(&self) -> Digest;

    /// Calls the plugins of a chain in order.
    fn answer(&self, pinned: &Pinned<'_>, chain: &[Arc<Member>]) -> Result<Self::Answer, Fault>;

    /// The time that one plugin receives.
    fn now_for(&self, member: &Member) -> Option<u64> {
        self.now().filter(|_| member.description.wants_time)
    }
}

/// A cached decision. Its answer has its own cache entry, with this digest and size.
struct CachedDecision<Answer> {
    decided: Result<Arc<Decision<Answer>>, Undecided>,
    answer: Option<(Digest, usize)>,
}

/// The approximate size of a decision without its answer.
const BESIDE_THE_ANSWER: usize = 768;

/// The approximate ratio between an answer's size in memory and in JSON.
const IN_MEMORY: usize = 2;

impl Pinned<'_> {
    /// The cached decision, or a new one, which is cached unless something transient failed.
    pub(super) fn decide<Question: CachedQuestion>(&self, question: &Question) -> Result<Arc<Decision<Question::Answer>>, Undecided> {
        let (point, inputs) = (name(Question::POINT), question.digest());
        let span = tracing::debug_span!(
            target: spans::TARGET, "decide", otel.name = %format_args!("decide {point}"), point, inputs = inputs.short(), cached = Empty,
            outcome = Empty, otel.status_code = Empty, otel.status_description = Empty,
        );
        let decided = span.in_scope(|| self.find_or_ask(question, inputs, &span));
        match &decided {
            Ok(_) => span.record("outcome", "Decided"),
            Err(undecided) => {
                span.record("outcome", undecided.reason()).record("otel.status_code", "error");
                span.record("otel.status_description", tracing::field::display(undecided))
            }
        };
        decided
    }

    fn find_or_ask<Question: CachedQuestion>(
        &self,
        question: &Question,
        inputs: Digest,
        span: &Span,
    ) -> Result<Arc<Decision<Question::Answer>>, Undecided> {
        let (point, subject) = (Question::POINT, question.subject());
        // Whether the subject has objects only affects the choice of a fallback: if no plugin failed, it makes no difference.
        let of_all = self.key(question, &inputs);
        let of_standing = || Digest::of_all([&of_all, &marker(&[self.standing as u8])]);
        let find = |key: &Digest| self.policies.cache.get::<CachedDecision<Question::Answer>>(key);
        let cached = find(&of_all).or_else(|| find(&of_standing()));
        span.record("cached", cached.is_some());
        if let Some(cached) = cached {
            if let (Ok(decision), Some((answer, size))) = (&cached.decided, cached.answer) {
                // Marks the answer as used too.
                self.policies.cache.share(answer, Arc::clone(&decision.answer), size);
            }
            return cached.decided.clone();
        }
        let mut decided = self.ask_chain(point, subject, |chain| question.answer(self, chain)).map(|answered| {
            let Answered { answer, plugins, failed } = answered;
            Decision { answer: Arc::new(answer), inputs, plugins, failed }
        });
        let answer = decided.as_mut().ok().map(|decision| {
            let (answer, size) = weigh(point, &*decision.answer);
            if size <= LARGEST_KEPT {
                decision.answer = self.policies.cache.share(answer, Arc::clone(&decision.answer), size);
            }
            (answer, size)
        });
        let decided = decided.map(Arc::new);
        let failures = match &decided {
            Ok(decision) => decision.failed.iter().map(|failed| &failed.error).collect(),
            Err(Undecided::Failed { failed, .. }) => vec![&failed.error],
            Err(_) => Vec::new(),
        };
        if answer.is_none_or(|(_, size)| size <= LARGEST_KEPT) && failures.into_iter().all(CallError::lasting) {
            let by_all = decided.as_ref().is_ok_and(|decision| decision.failed.is_empty());
            let key = if by_all { of_all } else { of_standing() };
            self.policies.cache.keep(key, Arc::new(CachedDecision { decided: decided.clone(), answer }), BESIDE_THE_ANSWER);
        }
        decided
    }

    /// The digest of everything that the answer depends on if no plugin fails: the question and all plugins that may be called.
    fn key<Question: CachedQuestion>(&self, question: &Question, inputs: &Digest) -> Digest {
        let (point, subject) = (Question::POINT, question.subject());
        let mut parts = vec![*inputs, marker(&[point as u8])];
        let mut wants_time = false;
        for member in self.set.members().iter().filter(|member| applies_at(member, point, subject)) {
            parts.push(*member.identity());
            if self.is_quarantined(member, subject) {
                parts.push(marker(b"quarantined"));
            }
            match self.passed_over.get(member.name()) {
                Some(None) => parts.push(marker(b"passed over")),
                Some(Some(why)) => parts.push(Digest::hash(why.as_bytes())),
                None => {}
            }
            if let Some(previous) = &member.previous {
                parts.push(*previous.identity());
                wants_time |= previous.description.wants_time;
            }
            wants_time |= member.description.wants_time;
        }
        if let Some(default) = self.set.members().iter().find(|member| member.is_default(point)) {
            parts.push(*default.identity());
            if self.is_quarantined(default, subject) {
                parts.push(marker(b"default quarantined"));
            }
            wants_time |= default.description.wants_time;
        }
        if wants_time {
            parts.push(marker(&question.now().unwrap_or_default().to_le_bytes()));
        }
        Digest::of_all(&parts)
    }
}

/// The key of an answer in the cache, and its approximate size.
fn weigh(point: PolicyPoint, answer: &impl Serialize) -> (Digest, usize) {
    match serde_json::to_vec(answer) {
        Ok(json) => (Digest::of_all([&Digest::hash(&json), &marker(&[point as u8])]), json.len() * IN_MEMORY),
        Err(_) => (marker(&[]), usize::MAX),
    }
}

/// A short value in the form of a digest.
pub(super) fn marker(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    for (to, from) in digest.iter_mut().zip(bytes) {
        *to = *from;
    }
    Digest(digest)
}

#[cfg(test)]
mod tests;
