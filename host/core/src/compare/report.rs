//! What a policy set changes, subject by subject: told in short in the set's status, and kept whole for those who want to know.

use super::{Effect, FieldSet, SubjectChange};
use crate::{decide::replay::Replayed, world::ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pointsman_crds::policy::set::{BlastRadius, ReplayedScores};
use serde::{Deserialize, Serialize};

/// How many subjects are named in a set's status.
const EXAMPLES: usize = 50;

/// The longest of these names with what changes: a status isn't to grow without bound.
const MAX_EXAMPLE_LENGTH: usize = 300;

/// What one policy set changes against another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The digest of the set.
    pub set: String,
    /// The digest of the one that it was compared with.
    pub against: String,
    /// When that was.
    pub at: Time,
    /// How many subjects there were.
    pub subjects: usize,
    /// Those that change, the heaviest changes first.
    pub changed: Vec<Changed>,
    /// How many of them are left out, because there are too many to keep.
    #[serde(default)]
    pub omitted: usize,
    /// How many there are of each effect, with those left out.
    #[serde(default)]
    pub counts: EffectCounts,
    /// The fields that change. None where there are too many to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<FieldSet>,
    /// What becomes of recorded questions at hot points, where the sets differ in who answers them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
}

/// How many subjects there are of each effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectCounts {
    /// Whose pods restart.
    pub restarts: usize,
    /// Whose objects change otherwise.
    pub objects: usize,
    /// Whose metadata alone changes.
    pub metadata: usize,
    /// For whom planning fails any more.
    pub failed: usize,
    /// For whom another runtime would be chosen when it is next asked for, whatever else changes.
    #[serde(default)]
    pub choices: usize,
}

/// One subject that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub effect: Effect,
    /// The first places where that is seen.
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
    /// Of what was found of each subject.
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

    /// In short, as a PolicySet's status has it.
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
