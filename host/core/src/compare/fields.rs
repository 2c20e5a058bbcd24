//! The fields that a policy set changes, per subject. They show whether two changes overlap, and whether a change does more than it did
//! when it was approved.

use super::effect::Effect;
use crate::world::ObjectKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A placeholder for the subject's name, so that the same field of many subjects is stored once.
const NAME: char = '*';

/// The changed fields of each subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldSet {
    /// Each distinct field: an object and a path in it.
    fields: Vec<String>,
    /// By kind, namespace and name: the effect on the subject, and the indices of its fields, in order.
    subjects: BTreeMap<String, (Effect, Vec<u32>)>,
}

/// A field that two policy sets change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The first affected subject, such as `InferenceService chat/llama`.
    pub subject: String,
    /// Its first field.
    pub field: String,
    /// The number of affected subjects.
    pub subjects: usize,
}

impl FieldSet {
    /// Collects the results of all subjects.
    pub fn collect<'a>(found: impl IntoIterator<Item = (&'a ObjectKey, Effect, &'a BTreeSet<String>)>) -> Self {
        let (mut set, mut numbers) = (Self::default(), BTreeMap::<String, u32>::new());
        for (key, effect, fields) in found {
            let numbered = fields.iter().map(|field| {
                let field = general(field, &key.name);
                *numbers.entry(field.clone()).or_insert_with(|| {
                    set.fields.push(field);
                    u32::try_from(set.fields.len() - 1).unwrap_or(u32::MAX)
                })
            });
            let mut numbered: Vec<u32> = numbered.collect();
            numbered.sort_unstable();
            let subject = format!("{} {}/{}", key.resource.kind, key.namespace, key.name);
            set.subjects.insert(subject, (effect, numbered));
        }
        set
    }

    /// The first field that both change, with the number of subjects.
    pub fn overlap(&self, other: &Self) -> Option<Overlap> {
        let theirs: BTreeMap<&str, u32> = (0..).zip(&other.fields).map(|(number, field)| (field.as_str(), number)).collect();
        let common: BTreeMap<u32, u32> =
            (0..).zip(&self.fields).filter_map(|(number, field)| Some((number, *theirs.get(field.as_str())?))).collect();
        let mut first = None;
        let mut subjects = 0;
        for (subject, (_, fields)) in &self.subjects {
            let Some((_, others)) = other.subjects.get(subject) else { continue };
            let met = fields.iter().find(|field| common.get(field).is_some_and(|field| others.binary_search(field).is_ok()));
            let Some(met) = met else { continue };
            subjects += 1;
            if first.is_none() {
                first = Some((subject.clone(), *met));
            }
        }
        let (subject, field) = first?;
        let name = subject.rsplit('/').next().unwrap_or_default();
        let field = self.fields.get(usize::try_from(field).ok()?)?.replacen(NAME, name, 1);
        Some(Overlap { subject, field, subjects })
    }

    /// Whether each change here is also in the other set, with at least the same effect there.
    pub fn is_within(&self, other: &Self) -> bool {
        let theirs: BTreeSet<&str> = other.fields.iter().map(String::as_str).collect();
        let theirs_of = |numbers: &[u32]| -> BTreeSet<&str> { numbers.iter().filter_map(|number| other.field(*number)).collect() };
        self.fields.iter().all(|field| theirs.contains(field.as_str()))
            && self.subjects.iter().all(|(subject, (effect, fields))| {
                other.subjects.get(subject).is_some_and(|(heaviest, others)| {
                    let others = theirs_of(others);
                    // An approval of restarts doesn't approve a failing plan.
                    let no_more = effect == heaviest || effect < heaviest && *effect != Effect::Failed;
                    no_more && fields.iter().filter_map(|number| self.field(*number)).all(|field| others.contains(field))
                })
            })
    }

    fn field(&self, number: u32) -> Option<&str> {
        self.fields.get(usize::try_from(number).ok()?).map(String::as_str)
    }
}

/// Replaces the subject's name in a field: objects are named after their subject.
fn general(field: &str, subject: &str) -> String {
    let (kind, rest) = field.split_once(' ').unwrap_or(("", field));
    rest.strip_prefix(subject).map_or_else(|| field.to_owned(), |rest| format!("{kind} {NAME}{rest}"))
}

/// The paths of all leaves that differ. A field that only one side has is expanded into its leaves, so that two changes that add different
/// labels to an object without labels don't overlap.
pub fn leaves(one: Option<&Value>, other: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    walk(one, other, String::new(), &mut found);
    found
}

fn walk(one: Option<&Value>, other: Option<&Value>, at: String, found: &mut Vec<String>) {
    if one == other {
        return;
    }
    let fields = |value: Option<&Value>| value.is_none_or(Value::is_object);
    let elements = |value: Option<&Value>| value.is_none_or(Value::is_array);
    if fields(one) && fields(other) {
        let both = [one, other].into_iter().flatten().filter_map(Value::as_object);
        let names: BTreeSet<String> = both.flat_map(|fields| fields.keys().cloned()).collect();
        if !names.is_empty() {
            for name in names {
                let step = super::places::quoted(&name);
                let at = if at.is_empty() { step } else { format!("{at}.{step}") };
                walk(one.and_then(|value| value.get(&name)), other.and_then(|value| value.get(&name)), at, found);
            }
            return;
        }
    } else if elements(one) && elements(other) {
        let (one, other) = (by_name(one), by_name(other));
        let steps: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        if !steps.is_empty() {
            for step in steps {
                walk(one.get(step).copied(), other.get(step).copied(), format!("{at}[{step}]"), found);
            }
            return;
        }
    }
    found.push(at);
}

/// The elements of a list by name, or by position if they have no names.
fn by_name(list: Option<&Value>) -> BTreeMap<String, &Value> {
    let all = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let named = |element: &Value| element["name"].as_str().map(str::to_owned);
    all.iter().enumerate().map(|(index, element)| (named(element).unwrap_or_else(|| index.to_string()), element)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::INFERENCE_SERVICE;
    use serde_json::json;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { resource: &INFERENCE_SERVICE, namespace: "n".to_owned(), name: name.to_owned() }
    }

    fn set(of: &[(&str, Effect, &[&str])]) -> FieldSet {
        let all: Vec<(ObjectKey, Effect, BTreeSet<String>)> = of
            .iter()
            .map(|(name, effect, fields)| (key(name), *effect, fields.iter().map(|field| (*field).to_owned()).collect()))
            .collect();
        FieldSet::collect(all.iter().map(|(key, effect, fields)| (key, *effect, fields)))
    }

    #[test]
    fn two_sets_meet_in_a_field_of_the_same_subject_alone() {
        let one = set(&[
            ("a", Effect::Restarts, &["Deployment a-engine: spec.x", "Service a: y"]),
            ("b", Effect::Restarts, &["Deployment b-engine: spec.x"]),
            ("c", Effect::Objects, &["Service c: y"]),
        ]);
        let other = set(&[
            ("b", Effect::Metadata, &["Deployment b-engine: spec.z", "Deployment b-engine: spec.x"]),
            ("c", Effect::Objects, &["Service c: z"]),
        ]);
        let met = Overlap { subject: "InferenceService n/b".to_owned(), field: "Deployment b-engine: spec.x".to_owned(), subjects: 1 };
        assert_eq!(one.overlap(&other), Some(met.clone()));
        assert_eq!(other.overlap(&one), Some(met));
        let apart = set(&[("a", Effect::Objects, &["Service a: z"]), ("d", Effect::Restarts, &["Deployment d-engine: spec.x"])]);
        assert_eq!((one.overlap(&apart), one.overlap(&FieldSet::default())), (None, None));
    }

    #[test]
    fn a_set_is_within_another_that_changes_as_much_or_more() {
        let approved =
            set(&[("a", Effect::Restarts, &["Deployment a: x", "Deployment a: y"]), ("b", Effect::Metadata, &["Deployment b: x"])]);
        assert!(approved.is_within(&approved));
        assert!(set(&[("a", Effect::Objects, &["Deployment a: y"])]).is_within(&approved));
        assert!(FieldSet::default().is_within(&approved));
        for more in [
            set(&[("b", Effect::Restarts, &["Deployment b: x"])]),
            set(&[("b", Effect::Metadata, &["Deployment b: y"])]),
            set(&[("c", Effect::Metadata, &["Deployment c: x"])]),
            set(&[("a", Effect::Failed, &[])]),
        ] {
            assert!(!more.is_within(&approved), "{more:?}");
        }
    }

    #[test]
    fn every_leaf_that_differs_is_a_field_also_below_what_only_one_has() {
        let cases = [
            (json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]}), vec!["a[1].b"]),
            (json!({}), json!({"labels": {"x": "1", "y": "2"}}), vec!["labels.x", "labels.y"]),
            (
                json!({"c": [{"name": "x", "v": 1}]}),
                json!({"c": [{"name": "y", "v": 1}, {"name": "x", "v": 2}]}),
                vec!["c[x].v", "c[y].name", "c[y].v"],
            ),
            (json!({"a": {}}), json!({}), vec!["a"]),
            (json!({"a": {"b": 1}}), json!({"a": 1}), vec!["a"]),
            (json!({"m": {"a.b/c": "1"}}), json!({"m": {}}), vec!["m.\"a.b/c\""]),
            (json!({"a": 1}), json!({"a": 1}), vec![]),
        ];
        for (one, other, expected) in cases {
            assert_eq!(leaves(Some(&one), Some(&other)), expected, "{one} {other}");
        }
        assert_eq!(leaves(None, Some(&json!({"a": 1, "b": [2]}))), ["a", "b[0]"]);
    }
}
