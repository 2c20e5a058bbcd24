//! Scores candidates. Called often: nothing is cached, and only numbers are copied.

use super::{
    Decision, Pinned, Undecided,
    chain::{Answered, Fault},
};
use crate::decide::member::Member;
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{
    call::CallError,
    digest::Digest,
    point::{
        Question, Subject,
        scoring::{RequestRef, Term},
    },
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, sync::Arc};

/// The names of the features that the host knows, for each question.
pub const fn features(question: Question) -> &'static [&'static str] {
    match question {
        // `placement::features` describes them.
        Question::NodePlacement => &[
            "allocatable-cpu",
            "free-cpu",
            "allocatable-memory-bytes",
            "free-memory-bytes",
            "allocatable-accelerators",
            "free-accelerators",
            "requested-accelerators",
            "accelerator-memory-bytes",
            "adjacent-accelerators",
            "node-is-free",
            "model-present",
            "model-download-share",
            "model-seconds-left",
            "pods",
            "subject-pods",
            "zone-spread",
            "peer-distance",
            "gang-size",
            "gang-placed",
            "gang-here",
            "gang-distance",
            "domain-free-nodes",
            "domain-accelerators-taken-share",
            "gang-domain-free-accelerators",
            "pool-pressure",
            "image-share",
            "spot",
            "price",
        ],
        Question::MemoryAdmission => &[
            "priority",
            "memory-bytes",
            "requests-per-second",
            "idle-seconds",
            "load-seconds",
            "resident",
            "waiting-requests",
            "wakes-per-hour",
            "dependants",
            "pool-pressure",
            "age-seconds",
        ],
        // The names that the picker uses (`host/picker/src/pick/features.rs`).
        Question::EndpointPick => &[
            "queue-length",
            "running-requests",
            "kv-cache-utilization",
            "prefix-match",
            "cached-tokens",
            "uncached-tokens",
            "adapter-loaded",
            "adapter-waiting",
            "adapter-slots",
            "in-flight-requests",
            "in-flight-tokens",
            "requests-per-second",
            "time-to-first-token-seconds",
            "time-per-output-token-seconds",
            "session",
            "cold-request-turn",
            "context-length-fit",
            "report-age-seconds",
        ],
    }
}

/// The candidates: one row each, with one column per known feature.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Candidates<'a> {
    /// The names of the columns.
    pub features: &'a [&'a str],
    /// The rows, one after the other.
    pub values: &'a [f64],
}

impl<'a> Candidates<'a> {
    fn rows(&self) -> usize {
        self.values.len().checked_div(self.features.len()).unwrap_or_default()
    }

    /// The columns that a plugin wants, in its order; unknown features are NaN.
    fn columns(&self, wanted: &[String]) -> Cow<'a, [f64]> {
        if wanted.iter().map(String::as_str).eq(self.features.iter().copied()) {
            return Cow::Borrowed(self.values);
        }
        let places: Vec<Option<usize>> = wanted.iter().map(|name| self.features.iter().position(|known| known == name)).collect();
        let mut values = Vec::with_capacity(self.rows() * wanted.len());
        for row in self.values.chunks_exact(self.features.len().max(1)) {
            values.extend(places.iter().map(|place| place.map_or(f64::NAN, |place| row[place])));
        }
        Cow::Owned(values)
    }
}

/// One score per candidate: the weighted sum over the plugins, or none if one excludes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores(pub Vec<Option<f64>>);

/// One plugin's explanation of one candidate's score.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The name of its PolicyPlugin.
    pub plugin: String,
    /// The terms of the candidate's score, or why the plugin gives none.
    pub terms: Result<Vec<Term>, CallError>,
}

impl Pinned<'_> {
    /// Scores the candidates.
    pub fn score(&self, subject: &Subject, question: Question, candidates: Candidates<'_>) -> Result<Decision<Scores>, Undecided> {
        let point = PolicyPoint::SchedulingScoring;
        let rows = candidates.rows();
        if rows * candidates.features.len() != candidates.values.len() {
            return Err(Undecided::Question("the values don't make whole rows".to_owned()));
        }
        if !self.policies.tried {
            self.policies.sample.note(subject, question, candidates);
        }
        let Answered { answer, plugins, failed } = self.ask_chain(point, subject, |chain| {
            let mut sums = vec![Some(0.0); rows];
            for (at, member) in chain.iter().enumerate() {
                let scores = self.scores(member, subject, question, candidates).map_err(|error| Fault { at, error })?;
                add(&mut sums, &scores, member.weight());
            }
            Ok(Scores(sums))
        })?;
        // A digest of the numbers would take longer than scoring them.
        Ok(Decision { answer: Arc::new(answer), inputs: Digest([0; 32]), plugins, failed })
    }

    fn scores(&self, member: &Member, subject: &Subject, question: Question, candidates: Candidates<'_>) -> Result<Vec<f64>, CallError> {
        let wanted = member.features(question);
        let matrix = candidates.columns(wanted);
        let columns = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        // A plugin that wants no feature of this question can't distinguish candidates: all are equal.
        if columns == 0 {
            return Ok(vec![0.5; candidates.rows()]);
        }
        let request = RequestRef { question, columns, matrix: &matrix, facts: &[] };
        self.call(PolicyPoint::SchedulingScoring, member, subject, |plugin| plugin.score(request))
    }

    /// Explains the scores of one candidate: one entry per plugin, in order.
    pub fn explain(&self, subject: &Subject, question: Question, candidates: Candidates<'_>, row: usize) -> Vec<Explained> {
        let line = self.set.line(PolicyPoint::SchedulingScoring, subject, &std::collections::BTreeMap::new());
        let explained = line.into_iter().map(|member| {
            let wanted = member.features(question);
            let matrix = candidates.columns(wanted);
            let columns = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
            let request = RequestRef { question, columns, matrix: &matrix, facts: &[] };
            let row = u32::try_from(row).unwrap_or(u32::MAX);
            let terms = self.call(PolicyPoint::SchedulingScoring, &member, subject, |plugin| plugin.explain(request, row));
            Explained { plugin: member.name().to_owned(), terms }
        });
        explained.collect()
    }
}

/// Clamps the score, then weighs it; NaN from any plugin excludes the candidate.
fn add(sums: &mut [Option<f64>], scores: &[f64], weight: f64) {
    for (sum, score) in sums.iter_mut().zip(scores) {
        *sum = sum.filter(|_| !score.is_nan()).map(|sum| sum + weight * score.clamp(0.0, 1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_clamped_before_they_are_weighed_and_nan_excludes() {
        let mut sums = vec![Some(0.0); 3];
        add(&mut sums, &[7.0, -1.0, f64::NAN], 2.0);
        add(&mut sums, &[0.5, f64::INFINITY, 1.0], 3.0);
        assert_eq!(sums, [Some(3.5), Some(3.0), None]);
    }

    #[test]
    fn a_plugin_gets_the_columns_that_it_wants_in_its_order() {
        let candidates = Candidates { features: &["a", "b"], values: &[1.0, 2.0, 3.0, 4.0] };
        let columns = |wanted: &[&str]| candidates.columns(&wanted.iter().map(ToString::to_string).collect::<Vec<_>>()).into_owned();
        assert_eq!(columns(&["a", "b"]), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(columns(&["b"]), [2.0, 4.0]);
        let unknown = columns(&["b", "c"]);
        assert_eq!((unknown[0].to_bits(), unknown[2].to_bits()), (2.0_f64.to_bits(), 4.0_f64.to_bits()));
        assert!(unknown[1].is_nan() && unknown[3].is_nan());
    }
}
