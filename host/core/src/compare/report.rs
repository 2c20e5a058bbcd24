//! The changes of a policy set, per subject: a summary for the set's status, and the complete report.

use super::{Effect, FieldSet, SubjectChange};
use crate::{decide::replay::Replayed, world::ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pointsman_crds::policy::set::{BlastRadius, ReplayedScores};
use serde::{Deserialize, Serialize};

/// The maximum number of subjects in a set's status.
const EXAMPLES: usize = 50;

/// The maximum length of each of these lines: the size of a status must be limited.
const MAX_EXAMPLE_LENGTH: usize = 300;

/// The changes of one policy set compared with another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The digest of the set.
    pub set: String,
    /// The digest of the set that it was compared with.
    pub against: String,
    /// The time of the comparison.
    pub at: Time,
    /// The number of subjects.
    pub subjects: usize,
    /// The subjects that change, the heaviest effects first.
    pub changed: Vec<Changed>,
    /// The number of changed subjects that are omitted, because there are too many to store.
    #[serde(default)]
    pub omitted: usize,
    /// The number of subjects per effect, including the omitted ones.
    #[serde(default)]
    pub counts: EffectCounts,
    /// The changed fields. None if there are too many to store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<FieldSet>,
    /// The results of recorded questions at hot points, if the sets differ in who answers them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
}

/// The number of subjects per effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectCounts {
    /// Subjects whose pods restart.
    pub restarts: usize,
    /// Subjects whose objects change in other ways.
    pub objects: usize,
    /// Subjects for which only metadata changes.
    pub metadata: usize,
    /// Subjects for which no plan can be built any more.
    pub failed: usize,
    /// Subjects for which another runtime would be chosen the next time, in addition to any other effect.
    #[serde(default)]
    pub choices: usize,
}

/// A subject that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The effect on it.
    pub effect: Effect,
    /// The first places that change.
    pub places: Vec<String>,
}

impl Changed {
    fn line(&self) -> String {
        let Self { kind, namespace, name, effect, places } = self;
        let first = places.first().map(|place| format!(" ({place})")).unwrap_or_default();
        let mut line = format!("{kind} {namespace}/{name}: {}{first}", effect.description());
        if line.len() > MAX_EXAMPLE_LENGTH {
            line.truncate(line.floor_char_boundary(MAX_EXAMPLE_LENGTH));
            line.push('\u{2026}');
        }
        line
    }
}

impl Report {
    /// Summarizes the results of all subjects.
    pub fn summarize(
        (set, against): (String, String),
        at: Time,
        subjects: usize,
        found: impl IntoIterator<Item = (ObjectKey, SubjectChange)>,
    ) -> Self {
        let found: Vec<(ObjectKey, SubjectChange)> = found.into_iter().filter(|(_, change)| change.effect != Effect::Nothing).collect();
        let fields = FieldSet::collect(found.iter().map(|(key, change)| (key, change.effect, &change.fields)));
        let choices = found.iter().filter(|(_, change)| change.chooses_otherwise).count();
        let mut changed: Vec<Changed> = found
            .into_iter()
            .map(|(key, SubjectChange { effect, places, .. })| Changed {
                kind: key.resource.kind.to_owned(),
                namespace: key.namespace,
                name: key.name,
                effect,
                places,
            })
            .collect();
        let place = |changed: &Changed| (changed.kind.clone(), changed.namespace.clone(), changed.name.clone());
        changed.sort_by(|one, other| other.effect.cmp(&one.effect).then_with(|| place(one).cmp(&place(other))));
        let count = |effect| changed.iter().filter(|changed| changed.effect == effect).count();
        let counts = EffectCounts {
            restarts: count(Effect::Restarts),
            objects: count(Effect::Objects),
            metadata: count(Effect::Metadata),
            failed: count(Effect::Failed),
            choices,
        };
        Self { set, against, at, subjects, changed, omitted: 0, counts, fields: Some(fields), replayed: None }
    }

    /// The summary for a PolicySet's status.
    pub fn radius(&self) -> BlastRadius {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        BlastRadius {
            subjects: number(self.subjects),
            evaluated: number(self.subjects),
            restarts: number(self.counts.restarts),
            objects: number(self.counts.objects),
            metadata: number(self.counts.metadata),
            failed: number(self.counts.failed),
            choices: number(self.counts.choices),
            scores: self.replayed.map(|Replayed { questions, best, scores, failed }| ReplayedScores {
                questions: number(questions),
                best: number(best),
                scores: number(scores),
                failed: number(failed),
            }),
            examples: self.changed.iter().take(EXAMPLES).map(Changed::line).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::INFERENCE_SERVICE;
    use k8s_openapi::jiff::Timestamp;

    #[test]
    fn each_subject_counts_once_and_the_heaviest_are_named_first() {
        let found =
            [("a", Effect::Metadata), ("b", Effect::Restarts), ("c", Effect::Nothing), ("d", Effect::Failed), ("e", Effect::Metadata)];
        let found = found.map(|(name, effect)| {
            let key = ObjectKey { resource: &INFERENCE_SERVICE, namespace: "n".to_owned(), name: name.to_owned() };
            (key, SubjectChange { effect, places: vec![format!("Deployment {name}: spec")], ..SubjectChange::default() })
        });
        let report = Report::summarize(("one".to_owned(), "two".to_owned()), Time(Timestamp::UNIX_EPOCH), 5, found);
        let radius = report.radius();
        assert_eq!((radius.subjects, radius.restarts, radius.objects, radius.metadata, radius.failed), (5, 1, 0, 2, 1));
        let named: Vec<&str> = radius.examples.iter().map(String::as_str).collect();
        assert_eq!(
            named,
            [
                "InferenceService n/b: pods restart (Deployment b: spec)",
                "InferenceService n/d: planning fails (Deployment d: spec)",
                "InferenceService n/a: metadata changes (Deployment a: spec)",
                "InferenceService n/e: metadata changes (Deployment e: spec)",
            ]
        );
    }
}
