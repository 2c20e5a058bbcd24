//! The lookups of a rule in addition to its object: models and runtimes by name, and sums over older subjects. The results depend only on
//! existing objects, and everything has a limit.

use super::{
    judge::{Evaluation, Failed},
    rule::{Flaw, Rule, expression_field},
};
use crate::{
    resource::{BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, Resource, SERVING_RUNTIME},
    rules::visible,
    selector,
    subject_kind::SubjectKind,
    world::{
        ObjectKey, Read, Subject, Surroundings,
        ome::{ModelView, RuntimeView},
        scoped::Scoped,
        subjects_by_age::Age,
    },
};
use pointsman_crds::policy::{
    rule::{LookupScope, RuleLookup, SubjectsLookup},
    selection::KindReference,
};
use pointsman_sandbox::{
    cache::Cache,
    digest::Digest,
    evaluator::{Outcome, Problem, ValidationVerdict},
    limits::{LARGEST_LOOKUP, MAX_RUNTIMES_FOUND, MAX_SUBJECTS_ADDED},
    point::{self, Entry},
};
use serde::Serialize;
use serde_json::{Map, Number, Value, json};
use std::{
    cell::RefCell,
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// The root with the results.
pub const LOOKUPS: &str = "lookups";

/// The expression of a lookup; none for all runtimes.
pub(super) fn expression(lookup: &RuleLookup) -> Option<&String> {
    let RuleLookup { models, runtimes, subjects, .. } = lookup;
    let name = models.as_ref().map(|models| &models.name).or_else(|| runtimes.as_ref()?.name.as_ref());
    name.or_else(|| subjects.as_ref().map(|subjects| &subjects.sum))
}

/// The kinds of subjects in a sum; empty means all.
pub(super) fn kinds<'r>(subjects: &'r SubjectsLookup, of_rule: &'r [KindReference]) -> &'r [KindReference] {
    if subjects.kinds.is_empty() { of_rule } else { &subjects.kinds }
}

/// The context of an object for lookups.
#[derive(Debug)]
pub struct LookupContext<'a> {
    surroundings: &'a Surroundings,
    /// The cache of earlier results.
    memo: Option<&'a Cache>,
    /// The digest of the object's data, if results about it are worth caching.
    object: Option<Digest>,
    /// The deadline for all of its sums.
    until: Instant,
    reads: RefCell<BTreeSet<Read>>,
}

impl<'a> LookupContext<'a> {
    /// A context whose sums may take this long in total.
    pub fn new(surroundings: &'a Surroundings, memo: Option<&'a Cache>, object: Option<Digest>, within: Duration) -> Self {
        // Can't overflow in practice.
        let now = Instant::now();
        Self { surroundings, memo, object, until: now.checked_add(within).unwrap_or(now), reads: RefCell::default() }
    }

    /// The objects that were looked up, whether they exist or not.
    pub fn reads(self) -> BTreeSet<Read> {
        self.reads.into_inner()
    }

    /// The cached result for the same object and these parts, or a new one.
    pub(super) fn kept<T: Kept>(&self, parts: &[Digest], find: impl FnOnce() -> Result<T, Failed>) -> Result<Arc<T>, Failed> {
        let Some(object) = self.object else { return find().map(Arc::new) };
        self.kept_of(&[parts, &[object]].concat(), find)
    }

    fn kept_of<T: Kept>(&self, parts: &[Digest], find: impl FnOnce() -> Result<T, Failed>) -> Result<Arc<T>, Failed> {
        let Some(memo) = self.memo else { return find().map(Arc::new) };
        let key = Digest::of_all(parts);
        if let Some(kept) = memo.get::<Result<Arc<T>, String>>(&key) {
            return (*kept).clone().map_err(Failed::for_good);
        }
        let found = find().map(Arc::new);
        let (worth, size) = match &found {
            Ok(found) => (Ok(Arc::clone(found)), found.size()),
            // A transient failure isn't cached.
            Err(failed) if failed.passing => return found,
            Err(failed) => (Err(failed.why.clone()), failed.why.len()),
        };
        memo.keep(key, Arc::new(worth), size);
        found
    }

    /// The results of a rule's lookups, as JSON text.
    pub(super) fn find(&self, rule: &Rule, about: &point::Subject, bench: &mut Evaluation<'_, '_>) -> Result<Arc<str>, Failed> {
        let mut found = Map::new();
        for lookup in rule.lookups() {
            let value = self.value(rule, lookup, about, bench).map_err(|failed| failed.of(lookup))?;
            found.insert(lookup.name.clone(), value);
        }
        let text = Value::Object(found).to_string();
        if text.len() > LARGEST_LOOKUP {
            return Err(Failed::for_good(format!("its lookups have {} KiB; the limit is {}", text.len() >> 10, LARGEST_LOOKUP >> 10)));
        }
        Ok(text.into())
    }

    fn value(
        &self,
        rule: &Rule,
        lookup: &RuleLookup,
        about: &point::Subject,
        bench: &mut Evaluation<'_, '_>,
    ) -> Result<Value, LookupFailure> {
        let RuleLookup { models, runtimes, subjects, .. } = lookup;
        if models.is_some() {
            let name = self.name(rule, lookup, bench)?;
            return Ok(self
                .find_by_name(&self.surroundings.models, [&CLUSTER_BASE_MODEL, &BASE_MODEL], about, &name)
                .map(of_model)
                .collect());
        }
        if let Some(subjects) = subjects {
            return self.sum(rule, lookup, subjects, about, bench);
        }
        if runtimes.as_ref().is_some_and(|runtimes| runtimes.name.is_some()) {
            let name = self.name(rule, lookup, bench)?;
            let named = self.find_by_name(&self.surroundings.runtimes.all, [&CLUSTER_SERVING_RUNTIME, &SERVING_RUNTIME], about, &name);
            return Ok(named
                .map(|runtime: &RuntimeView| with_maps(&runtime.candidate, &runtime.candidate.labels, &runtime.candidate.annotations))
                .collect());
        }
        self.reads.borrow_mut().extend([Read::Candidates(String::new()), Read::Candidates(about.namespace.clone())]);
        let candidates = self.surroundings.runtimes.candidates(&about.namespace);
        if candidates.len() > MAX_RUNTIMES_FOUND {
            let count = candidates.len();
            let why = format!("there are {count} runtimes; the limit is {MAX_RUNTIMES_FOUND}: look them up by name");
            return Err(LookupFailure::new("runtimes", why));
        }
        let others = candidates.iter().filter(|other| !is_itself(about, &other.kind, &other.namespace, &other.name));
        Ok(others.map(|other| with_maps(other, &other.labels, &other.annotations)).collect())
    }

    /// The name from a lookup's expression.
    fn name(&self, rule: &Rule, lookup: &RuleLookup, bench: &mut Evaluation<'_, '_>) -> Result<String, LookupFailure> {
        let at = rule.lookup_number(lookup);
        let value = self.kept(&[*rule.identity(), Digest::hash(format!("lookup {at}").as_bytes())], || {
            let asking = bench.bound(rule)?;
            asking.look_up(rule.program(), at).map_err(|error| Failed::from_call_error(&error))
        })?;
        let field = expression_field(lookup);
        let text = value.as_ref().as_ref().map_err(|problem| LookupFailure::of_problem(field, problem, problem.message.clone()))?;
        match serde_json::from_str(text) {
            Ok(Value::String(name)) => Ok(name),
            other => Err(LookupFailure::new(field, format!("the name is {}, but must be a string", sort(&other.unwrap_or_default())))),
        }
    }

    /// The objects with a name, cluster-scoped and in the object's namespace.
    fn find_by_name<'s, T>(
        &self,
        all: &'s Scoped<T>,
        resources: [&'static Resource; 2],
        about: &point::Subject,
        name: &str,
    ) -> impl Iterator<Item = &'s T> {
        let [cluster, namespaced] = resources.map(|resource| {
            let namespace = if resource.namespaced { about.namespace.clone() } else { String::new() };
            ObjectKey { resource, namespace, name: name.to_owned() }
        });
        let others = |key: &&ObjectKey| !is_itself(about, key.resource.kind, &key.namespace, &key.name);
        let found = |key: &ObjectKey| Some(key).filter(others).and_then(|key| all.get(&key.namespace, &key.name)).map(|found| &**found);
        let both = [found(&cluster), if about.namespace.is_empty() { None } else { found(&namespaced) }];
        // Missing objects are recorded too, because they may be created later.
        self.reads.borrow_mut().extend([Read::Object(cluster), Read::Object(namespaced)]);
        both.into_iter().flatten()
    }

    /// The sum over older subjects.
    fn sum(
        &self,
        rule: &Rule,
        lookup: &RuleLookup,
        subjects: &SubjectsLookup,
        about: &point::Subject,
        bench: &mut Evaluation<'_, '_>,
    ) -> Result<Value, LookupFailure> {
        let namespace = (subjects.within == LookupScope::Namespace).then_some(about.namespace.as_str());
        if namespace == Some("") {
            let why = "the object is in no namespace: set within to Cluster".to_owned();
            return Err(LookupFailure::new("subjects.within", why));
        }
        self.reads.borrow_mut().insert(Read::Older(namespace.unwrap_or_default().to_owned()));
        let of_rule = rule.objects().map_or(&[][..], |objects| &objects.kinds);
        let (kinds, at) = (kinds(subjects, of_rule), rule.lookup_number(lookup));
        // An error in a subject's own term is reported for that subject, not for newer ones.
        if selector::is_of(kinds, &about.group, &about.kind) {
            let own = self.kept(&[*rule.identity(), Digest::hash(format!("own term {at}").as_bytes())], || {
                let asking = bench.bound(rule)?;
                asking.look_up(rule.program(), at).map_err(|error| Failed::from_call_error(&error))
            })?;
            let (field, itself) = (expression_field(lookup), |why: &str| format!("what the object itself adds: {why}"));
            let text = own.as_ref().as_ref();
            let text = text.map_err(|problem| LookupFailure::of_problem(field, problem, itself(&problem.message)))?;
            addend(text).map_err(|why| LookupFailure::new(field, itself(&why)))?;
        }
        // An object that isn't a subject comes after all subjects.
        let age = SubjectKind::find_by_name(&about.group, &about.kind)
            .is_some()
            .then(|| Age::new(self.surroundings.created, &about.kind, &about.namespace, &about.name));
        let older = self.surroundings.crowd.before(age, namespace).map(|subject| &**subject);
        let older =
            older.filter(|subject| subject.counts() && selector::is_of(kinds, subject.key.resource.group, subject.key.resource.kind));
        // The world may still contain the previous object with this name.
        let older = older.filter(|Subject { key, .. }| !is_itself(about, key.resource.kind, &key.namespace, &key.name));
        let mut sum = Sum::Whole(0);
        for (number, subject) in older.enumerate() {
            if number >= MAX_SUBJECTS_ADDED {
                let why = format!("there are more than {MAX_SUBJECTS_ADDED} older subjects to sum, which is the maximum");
                return Err(LookupFailure::new("subjects", why));
            }
            // The terms so far are cached, so the next attempt continues from here.
            if Instant::now() > self.until {
                return Err(Failed { why: format!("summing timed out after {number} older subjects"), passing: true }.into());
            }
            if let Some(term) = self.term(rule, at, subject, bench)? {
                sum = sum.plus(&term);
            }
        }
        Ok(match sum {
            Sum::Whole(sum) => sum.into(),
            Sum::Broken(sum) => sum.into(),
        })
    }

    /// The term of one subject; none if it is invalid, which is reported for that subject itself.
    fn term(&self, rule: &Rule, at: u32, subject: &Subject, bench: &mut Evaluation<'_, '_>) -> Result<Option<Number>, Failed> {
        let place = Digest::hash(format!("term {at} {}", subject.key).as_bytes());
        let value = self.kept_of(&[*rule.identity(), place, *subject.digest()], || {
            let ObjectKey { resource, namespace, name } = &subject.key;
            let object = visible::object(&resource.api_version(), resource.kind, namespace, name, &subject.content());
            let asking = bench.bound_with(rule, "object", object.to_string().into())?;
            asking.look_up(rule.program(), at).map_err(|error| Failed::from_call_error(&error))
        });
        match value {
            Ok(value) => Ok(value.as_ref().as_ref().ok().and_then(|text| addend(text).ok())),
            Err(failed) if failed.passing => {
                Err(Failed { why: "an older subject could not be evaluated in time; it is tried again".to_owned(), ..failed })
            }
            Err(_) => Ok(None),
        }
    }
}

/// Why a lookup fails.
struct LookupFailure {
    /// The field of the lookup, with the line and column in it; empty for the whole lookup.
    field: &'static str,
    at: (u32, u32),
    failed: Failed,
}

impl From<Failed> for LookupFailure {
    fn from(failed: Failed) -> Self {
        Self { field: "", at: (0, 0), failed }
    }
}

impl LookupFailure {
    fn new(field: &'static str, why: String) -> Self {
        Self { field, ..Failed::for_good(why).into() }
    }

    fn of_problem(field: &'static str, problem: &Problem, why: String) -> Self {
        Self { at: (problem.line, problem.column), ..Self::new(field, why) }
    }

    /// The failure with the same place as in the message for a rule that doesn't compile.
    fn of(self, lookup: &RuleLookup) -> Failed {
        let Self { field, at, failed } = self;
        let dot = if field.is_empty() { "" } else { "." };
        let flaw = Flaw { field: format!("spec.lookups[{}]{dot}{field}", lookup.name), at, message: failed.why };
        Failed { why: flaw.to_string(), passing: failed.passing }
    }
}

/// The number that a subject adds, from JSON text. A negative one would offset the terms of others.
fn addend(text: &str) -> Result<Number, String> {
    match serde_json::from_str(text) {
        Ok(Value::Number(number)) if number.as_f64().is_some_and(|number| number >= 0.0) => Ok(number),
        Ok(Value::Number(number)) => Err(format!("it is {number}, but must not be negative")),
        other => Err(format!("it is {}, but must be a number", sort(&other.unwrap_or_default()))),
    }
}

/// A result that can be cached.
pub(super) trait Kept: Send + Sync + 'static {
    /// Its approximate size in bytes.
    fn size(&self) -> usize;
}

impl Kept for Outcome {
    fn size(&self) -> usize {
        match self {
            Self::Unmatched(_) => 32,
            Self::Undecided(problem) => 32 + problem.message.len(),
            Self::Judged(verdicts) => {
                let text = |verdict: &ValidationVerdict| match verdict {
                    ValidationVerdict::Holds | ValidationVerdict::Broken(None) => 0,
                    ValidationVerdict::Broken(Some(text)) | ValidationVerdict::Failed(Problem { message: text, .. }) => text.len(),
                };
                verdicts.iter().map(|verdict| 64 + text(verdict)).sum()
            }
        }
    }
}

/// The value of an expression, as JSON text.
impl Kept for Result<String, Problem> {
    fn size(&self) -> usize {
        64 + self.as_ref().unwrap_or_else(|problem| &problem.message).len()
    }
}

/// A sum: integers stay integers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sum {
    Whole(i64),
    Broken(f64),
}

impl Sum {
    /// Saturates at the maximum, which exceeds every limit.
    fn plus(self, term: &Number) -> Self {
        match (self, term.as_i64()) {
            (Self::Whole(sum), Some(term)) => Self::Whole(sum.saturating_add(term)),
            (sum, _) => {
                let before = match sum {
                    Self::Whole(sum) => Number::from(sum).as_f64().unwrap_or_default(),
                    Self::Broken(sum) => sum,
                };
                Self::Broken((before + term.as_f64().unwrap_or_default()).min(f64::MAX))
            }
        }
    }
}

fn is_itself(about: &point::Subject, kind: &str, namespace: &str, name: &str) -> bool {
    (kind, namespace, name) == (&*about.kind, &*about.namespace, &*about.name)
}

/// The type of a value. The value itself may be another tenant's, so it isn't reported.
fn sort(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

fn of_model(model: &ModelView) -> Value {
    let mut value = with_maps(&*model.model, &model.model.labels, &model.model.annotations);
    if let Some(state) = model.state {
        value["state"] = json!(state);
    }
    value
}

/// An object in the form for policies, except that labels and annotations are maps, as in the object itself.
fn with_maps(seen: &impl Serialize, labels: &[Entry], annotations: &[Entry]) -> Value {
    // Plain data can always be serialized.
    let mut value = serde_json::to_value(seen).unwrap_or_default();
    let map = |entries: &[Entry]| entries.iter().map(|entry| (entry.key.clone(), Value::from(entry.value.clone()))).collect();
    value["labels"] = Value::Object(map(labels));
    value["annotations"] = Value::Object(map(annotations));
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_stay_whole_and_nothing_overflows() {
        let number = |text: &str| serde_json::from_str::<Number>(text).unwrap();
        let sum = |terms: &[&str]| terms.iter().fold(Sum::Whole(0), |sum, term| sum.plus(&number(term)));
        assert_eq!(sum(&[]), Sum::Whole(0));
        assert_eq!(sum(&["2", "3"]), Sum::Whole(5));
        assert_eq!(sum(&["2", "0.5", "3"]), Sum::Broken(5.5));
        assert_eq!(sum(&["9223372036854775807", "1"]), Sum::Whole(i64::MAX));
        assert_eq!(sum(&["1e308", "1e308"]), Sum::Broken(f64::MAX));
    }

    #[test]
    fn only_a_number_that_is_not_negative_is_added() {
        assert_eq!(addend("0"), Ok(Number::from(0)));
        assert_eq!(addend("-8"), Err("it is -8, but must not be negative".to_owned()));
        assert_eq!(addend("\"8\""), Err("it is a text, but must be a number".to_owned()));
    }
}
