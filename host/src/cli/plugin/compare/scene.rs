//! Compares two policy sets on the same services, and formats the changes.

use crate::cli::{
    output::{Tone, counted},
    plugin::diff,
    progress,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use pointsman_core::{
    compare::{Changed, Effect, Report, SubjectChange, effect, report::EffectCounts},
    decide::{
        Policies,
        member::Member,
        set::{ActiveSet, concerns},
    },
    kinds,
    plan::{Object, Plan},
    planning, question,
    settings::Settings,
    world::{ObjectKey, OwnedObject, World},
};
use pointsman_sandbox::{cache::Cache, digest::sorted, limits::DECISION_CACHE};
use serde_json::json;
use std::{collections::BTreeMap, num::NonZero, panic::resume_unwind, sync::Arc, thread};

/// The services, and the two policy sets.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) subjects: Vec<ObjectKey>,
    pub(super) settings: Settings,
    pub(super) before: Arc<ActiveSet>,
    pub(super) after: ActiveSet,
    /// Whether it is from files, so that the running state isn't known.
    pub(super) files: bool,
}

/// The changed lines of a subject's objects, by its kind, namespace and name.
pub(super) type Details = BTreeMap<(String, String, String), Vec<String>>;

impl Scene {
    /// Compares the plans of the services under both sets.
    pub(super) fn compare(&self, detailed: bool) -> (Report, Details) {
        progress::set(format!("comparing {}", counted(self.subjects.len(), "subject")));
        // Decisions that the change doesn't affect are made once, for both sets.
        let cache = Arc::new(Cache::new(DECISION_CACHE));
        let (before, after) = (Policies::for_comparison(&self.before, Arc::clone(&cache)), Policies::for_comparison(&self.after, cache));
        let known = |set: &ActiveSet, member: &Member| set.members().iter().any(|other| other.identity() == member.identity());
        let gone = self.before.members().iter().filter(|member| !known(&self.after, member));
        let come = self.after.members().iter().filter(|member| !known(&self.before, member));
        let differ: Vec<&Arc<Member>> = gone.chain(come).collect();
        let now = Timestamp::now().as_second();
        let look = |key: &ObjectKey| {
            let mut snapshot = self.world.snapshot(key, now.unsigned_abs())?;
            let kind = kinds::find(key.resource)?;
            let ours = planning::theirs(&snapshot).is_none() && !snapshot.subject.deleting;
            if !ours || !snapshot.is_complete() {
                return None;
            }
            let subject = question::subject(&snapshot);
            if !differ.iter().any(|member| concerns(member, &subject)) {
                return Some((key.clone(), SubjectChange::default(), Vec::new()));
            }
            let plan = |policies: &Policies| planning::plan(kind, snapshot.clone(), policies, &self.settings);
            let (former, planned) = (plan(&before), plan(&after));
            if self.files {
                snapshot.children = as_if_made(&former);
            }
            let change = effect::change(&snapshot, &former, &planned);
            let lines = if detailed && change.effect != Effect::Nothing { objects(&former, &planned) } else { Vec::new() };
            Some((key.clone(), change, lines))
        };
        let look = &look;
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let looked = thread::scope(|scope| {
            let parts = self.subjects.chunks(self.subjects.len().div_ceil(threads).max(1));
            let parts: Vec<_> = parts.map(|part| scope.spawn(move || part.iter().filter_map(look).collect::<Vec<_>>())).collect();
            let mut looked = Vec::new();
            for part in parts {
                match part.join() {
                    Ok(part) => looked.extend(part),
                    Err(panic) => resume_unwind(panic),
                }
            }
            looked
        });
        let (mut found, mut details) = (Vec::new(), Details::new());
        for (key, change, lines) in looked {
            if !lines.is_empty() {
                details.insert((key.resource.kind.to_owned(), key.namespace.clone(), key.name.clone()), lines);
            }
            found.push((key, change));
        }
        let digests = (self.after.digest().to_string(), self.before.digest().to_string());
        let at = Timestamp::from_second(now).unwrap_or(Timestamp::UNIX_EPOCH);
        (Report::summarize(digests, Time(at), found.len(), found), details)
    }
}

/// The objects of a plan as if it had been applied: for services in files, users want to know what would restart.
fn as_if_made(plan: &Plan) -> Vec<Arc<OwnedObject>> {
    let mut world = World::default();
    let mut children = Vec::new();
    for object in plan.objects.iter().flatten() {
        let mut whole = object.manifest();
        whole["metadata"]["ownerReferences"] = json!([{"uid": "of the files", "controller": true}]);
        world.put(object.key.resource, &whole);
        children.extend(world.child(&object.key));
    }
    children
}

/// The objects that differ between two plans, with their changes. Without both plans there is nothing to compare.
fn objects(before: &Plan, after: &Plan) -> Vec<String> {
    let (Some(former), Some(planned)) = (&before.objects, &after.objects) else { return Vec::new() };
    let yaml = |object: &Object| {
        // Sorted, because another order of fields is no change.
        let whole = sorted(&object.manifest());
        serde_saphyr::to_string(&whole).unwrap_or_else(|_| format!("{whole:#}"))
    };
    let of = |objects: &[Object], key: &ObjectKey| objects.iter().position(|object| object.key == *key);
    let mut lines = Vec::new();
    let mut tell = |key: &ObjectKey, what: &str, one: &str, other: &str| {
        lines.push(format!("  {key}: {what}"));
        lines.extend(diff::lines(one, other).into_iter().map(|line| format!("    {line}")));
    };
    for object in planned {
        match of(former, &object.key).map(|at| &former[at]) {
            Some(former) if former.fingerprint == object.fingerprint => {}
            Some(former) => tell(&object.key, "changed", &yaml(former), &yaml(object)),
            None => tell(&object.key, "created", "", &yaml(object)),
        }
    }
    for gone in former.iter().filter(|object| of(planned, &object.key).is_none() && !after.retained.contains(&object.key)) {
        tell(&gone.key, "removed", &yaml(gone), "");
    }
    lines
}

/// A line in the color of an addition or a removal.
fn painted(line: &str) -> String {
    let text = line.trim_start();
    match () {
        () if text.starts_with("+ ") => Tone::Good.paint(line),
        () if text.starts_with("- ") => Tone::Bad.paint(line),
        () => line.to_owned(),
    }
}

/// The output for people, in which restarts are marked.
pub(super) fn text(report: &Report, details: &Details) -> String {
    let mut lines = Vec::new();
    for Changed { kind, namespace, name, effect, places } in &report.changed {
        let heading = format!("{kind} {namespace}/{name}: {}", effect.description());
        lines.push(if *effect == Effect::Restarts { Tone::Bad.paint(format!("! {heading}")) } else { heading });
        match details.get(&(kind.clone(), namespace.clone(), name.clone())) {
            Some(details) => lines.extend(details.iter().map(|line| painted(line))),
            None => lines.extend(places.iter().map(|place| format!("  {place}"))),
        }
        lines.push(String::new());
    }
    let EffectCounts { restarts, objects, metadata, failed, choices } = report.counts;
    let counts = [(Effect::Restarts, restarts), (Effect::Failed, failed), (Effect::Objects, objects), (Effect::Metadata, metadata)];
    let choices = if choices > 0 { format!("; {}: {choices}", Effect::Choice.description()) } else { String::new() };
    let nothing = (Effect::Nothing, report.subjects - report.changed.len());
    let counts = counts.into_iter().chain([nothing]).map(|(effect, count)| format!("{}: {count}", effect.description()));
    lines.push(format!("{}; {}{choices}", counted(report.subjects, "subject"), counts.collect::<Vec<_>>().join(", ")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;
    use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE, Resource};

    fn key(resource: &'static Resource, name: &str) -> ObjectKey {
        ObjectKey { resource, namespace: "n".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn only_objects_that_differ_are_told_with_their_lines() {
        let object = |name: &str, replicas: i64| Object::new(key(&DEPLOYMENT, name), json!({"spec": {"replicas": replicas}}));
        let plan = |objects: Vec<Object>| Plan { objects: Some(objects), ..Plan::default() };
        let before = plan(vec![object("same", 1), object("other", 1), object("gone", 1), object("kept", 1)]);
        let mut after = plan(vec![object("same", 1), object("other", 2), object("new", 1)]);
        after.retained.insert(key(&DEPLOYMENT, "kept"));
        let lines = objects(&before, &after);
        let headings: Vec<_> = lines.iter().filter(|line| line.starts_with("  Deployment")).map(|line| line.trim_start()).collect();
        assert_eq!(headings, ["Deployment n/other: changed", "Deployment n/new: created", "Deployment n/gone: removed"]);
        for (mark, replicas) in [("- ", "replicas: 1"), ("+ ", "replicas: 2")] {
            assert!(lines.iter().any(|line| line.trim_start().starts_with(mark) && line.ends_with(replicas)), "{lines:?}");
        }
        assert!(objects(&before, &Plan::default()).is_empty());
    }

    #[test]
    fn services_of_files_count_as_running() {
        let body = json!({"metadata": {"labels": {"pointsman.dev/subject-kind": "InferenceService"}}, "spec": {"template": {}}});
        let plan = Plan { objects: Some(vec![Object::new(key(&DEPLOYMENT, "a"), body)]), ..Plan::default() };
        let made = as_if_made(&plan);
        assert_eq!(made.iter().map(|child| child.key.clone()).collect::<Vec<_>>(), [key(&DEPLOYMENT, "a")]);
    }

    #[test]
    fn what_restarts_pods_is_marked_and_all_is_counted() {
        let change = |effect, place: &str| SubjectChange { effect, places: vec![place.to_owned()], ..SubjectChange::default() };
        let found = [
            (key(&INFERENCE_SERVICE, "a"), change(Effect::Metadata, "Deployment a: metadata.labels.x")),
            (key(&INFERENCE_SERVICE, "b"), change(Effect::Restarts, "Deployment b: spec")),
            (key(&INFERENCE_SERVICE, "c"), SubjectChange::default()),
        ];
        let report = Report::summarize(("one".to_owned(), "two".to_owned()), Time(Timestamp::UNIX_EPOCH), 3, found);
        let of = |name: &str| ("InferenceService".to_owned(), "n".to_owned(), name.to_owned());
        let details = Details::from([(of("b"), vec!["  Deployment n/b: changed".to_owned(), "    - x".to_owned()])]);
        assert_eq!(
            strip_str(&text(&report, &details)).to_string().lines().collect::<Vec<_>>(),
            [
                "! InferenceService n/b: pods restart",
                "  Deployment n/b: changed",
                "    - x",
                "",
                "InferenceService n/a: metadata changes",
                "  Deployment a: metadata.labels.x",
                "",
                "3 subjects; pods restart: 1, planning fails: 0, objects change: 0, metadata changes: 1, nothing changes: 1",
            ]
        );
        let found = [(key(&INFERENCE_SERVICE, "a"), SubjectChange::default())];
        let one = Report::summarize(("one".to_owned(), "two".to_owned()), Time(Timestamp::UNIX_EPOCH), 1, found);
        assert!(text(&one, &Details::new()).starts_with("1 subject; "));
    }
}
