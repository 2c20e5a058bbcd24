//! The revisions of a component: each different pod template is a revision.

use super::{
    DECIDED, PlanBuilder, PlanError,
    component::{DeployedComponent, Mode},
};
use crate::{
    objects::ray,
    pod_scheduler::name_scheduler,
    workload::{TemplateChange, Workload},
    world::{
        OwnedObject,
        child::{Observed, REVISION_LABEL},
    },
};
use pointsman_sandbox::digest::{Digest, sorted};
use serde_json::Value;

/// The maximum number of revisions in a workload's history: as many as a Deployment retains ReplicaSets, and the current one.
const MAX_REVISIONS: usize = 11;

/// A revision of a component.
pub(super) struct Revision {
    /// Its number.
    pub(super) number: String,
    /// The hash of its templates.
    pub(super) hash: String,
    /// The history up to this revision, as stored on the workload; none if it is the only one.
    pub(super) history: Option<String>,
}

impl PlanBuilder<'_> {
    /// The revision of these templates. Templates that the component had before keep their revision, so that its pods don't restart.
    pub(super) fn revision(&self, component: &DeployedComponent, templates: &[Value]) -> Result<Revision, Box<PlanError>> {
        // For LeaderWorkerSet too, another group size is another revision. The order of keys doesn't matter.
        let sorted: Vec<Value> = templates.iter().map(sorted).collect();
        let hash = Digest::of_value(&(sorted, component.mode.size())).map(|digest| digest.short());
        let hash = hash.map_err(|error| {
            PlanError::new(DECIDED, "InvalidTemplate", format!("The pod template can't be serialized: {error}."), "RuntimeUnhealthy")
        })?;
        let mut known = History::default();
        for live in component.part.workloads(self.snapshot) {
            known.extend(&live.observed);
        }
        let number = self.running_number(component, templates, &hash).or_else(|| known.find(&hash)).unwrap_or_else(|| known.next());
        Ok(Revision { history: known.with(number, &hash), number: format!("{number:05}"), hash })
    }

    /// The number of the running revision, if it has this hash.
    fn running_number(&self, component: &DeployedComponent, templates: &[Value], hash: &str) -> Option<u64> {
        // The scheduler that the host sets in templates isn't part of a revision.
        let set = self.settings.pod_scheduler.as_deref();
        let numbers = component.part.workloads(self.snapshot).filter_map(|live| {
            let told = live.observed.revision.as_deref().and_then(parsed);
            let label = label(&live.observed)?;
            let is_same = if let Some((_, known)) = told.filter(|(number, _)| *number == label) {
                known == hash
            } else {
                // Removing or editing the annotation must not restart pods, so the templates themselves are compared.
                let mut schedulers = [None, live.observed.pod_scheduler.as_deref(), set].into_iter();
                schedulers.any(|scheduler| runs(live, templates, scheduler, (&format!("{label:05}"), component.mode)))
            };
            Some((label, is_same))
        });
        // If several workloads run, the newest one determines the number.
        numbers.max().filter(|(_, is_same)| *is_same).map(|(number, _)| number)
    }
}

/// A number and a hash.
fn parsed(revision: &str) -> Option<(u64, &str)> {
    let (number, hash) = revision.split_once('-')?;
    Some((number.parse().ok()?, hash))
}

/// The number of a workload's revision.
fn label(workload: &Observed) -> Option<u64> {
    let told = || workload.revision.as_deref().and_then(parsed).map(|(number, _)| number);
    workload.revision_label.as_ref().map_or_else(told, |label| label.parse().ok())
}

/// The revisions in the histories of a component's workloads, the latest last.
#[derive(Default)]
struct History<'s> {
    revisions: Vec<(u64, &'s str)>,
    /// The highest number.
    most: u64,
}

impl<'s> History<'s> {
    fn extend(&mut self, workload: &'s Observed) {
        let former = workload.revisions.as_deref().unwrap_or_default().split_whitespace();
        for (number, hash) in former.chain(workload.revision.as_deref()).filter_map(parsed) {
            self.most = self.most.max(number);
            self.revisions.retain(|(_, known)| *known != hash);
            self.revisions.push((number, hash));
        }
        self.most = self.most.max(label(workload).unwrap_or_default());
    }

    fn find(&self, hash: &str) -> Option<u64> {
        self.revisions.iter().find(|(_, known)| *known == hash).map(|(number, _)| *number)
    }

    fn next(&self) -> u64 {
        self.most.saturating_add(1)
    }

    /// The annotation's value once a revision is the latest.
    fn with(&self, number: u64, hash: &str) -> Option<String> {
        let former = self.revisions.iter().copied().filter(|(_, known)| *known != hash);
        let all: Vec<String> = former.chain([(number, hash)]).map(|(number, hash)| format!("{number:05}-{hash}")).collect();
        let kept = &all[all.len().saturating_sub(MAX_REVISIONS)..];
        (kept.len() > 1).then(|| kept.join(" "))
    }
}

/// Whether a workload has these templates, with this revision number, and with this scheduler in templates that name none.
fn runs(live: &OwnedObject, templates: &[Value], scheduler: Option<&str>, (revision, mode): (&str, Mode)) -> bool {
    let numbered = templates.iter().map(|template| {
        let mut numbered = template.clone();
        numbered["metadata"]["labels"][REVISION_LABEL] = revision.into();
        if let Some(scheduler) = scheduler {
            name_scheduler(&mut numbered, scheduler);
        }
        numbered
    });
    let numbered: Vec<Value> = numbered.collect();
    let resource = live.key.resource;
    if Workload::find(resource).is_some_and(|workload| workload.change == TemplateChange::NewObject) {
        return matches!(&numbered[..], [head, worker] if live.settled_at("/spec", &ray::spec(head, worker, mode.size() - 1)));
    }
    let places = Workload::find(resource).map_or(&[][..], |workload| workload.templates);
    places.len() == numbered.len() && places.iter().zip(&numbered).all(|(place, template)| live.settled_at(place.path, template))
}

#[cfg(test)]
mod tests {
    use super::*;
    fn workload(revision: &str, revisions: Option<&str>, label: &str) -> Observed {
        Observed {
            revision: Some(revision.to_owned()),
            revisions: revisions.map(Into::into),
            revision_label: Some(label.to_owned()),
            ..Observed::default()
        }
    }

    fn history(workloads: &[Observed]) -> History<'_> {
        let mut history = History::default();
        for live in workloads {
            history.extend(live);
        }
        history
    }

    #[test]
    fn what_ran_before_has_the_number_that_it_had() {
        let live = [workload("00003-c", Some("00001-a 00002-b 00003-c"), "00003")];
        let known = history(&live);
        assert_eq!(["a", "b", "c", "d"].map(|hash| known.find(hash)), [Some(1), Some(2), Some(3), None]);
        assert_eq!(known.next(), 4);
        assert_eq!(known.with(1, "a").as_deref(), Some("00002-b 00003-c 00001-a"));
        // After the rollback, the next revision is still the fourth.
        let back = [workload("00001-a", Some("00002-b 00003-c 00001-a"), "00001")];
        assert_eq!(history(&back).next(), 4);
    }

    #[test]
    fn a_workload_without_a_history_has_that_of_its_revision() {
        let live = [workload("00001-a", None, "00001")];
        assert_eq!(history(&live).with(2, "b").as_deref(), Some("00001-a 00002-b"));
        assert_eq!(history(&live).with(1, "a"), None);
        assert_eq!(history(&[]).next(), 1);
        assert_eq!(history(&[]).with(1, "a"), None);
    }

    #[test]
    fn the_oldest_are_forgotten_and_what_is_no_revision_is_left_out() {
        let many: Vec<String> = (1..=20).map(|number| format!("{number:05}-h{number}")).collect();
        let live = [workload("00020-h20", Some(&format!("x - {} 7", many.join(" "))), "00020")];
        let kept = history(&live).with(21, "new").unwrap();
        assert_eq!(kept.split(' ').count(), MAX_REVISIONS);
        assert!(kept.starts_with("00011-h11 ") && kept.ends_with("00021-new"), "{kept}");
    }

    #[test]
    fn the_label_counts_where_an_annotation_was_edited() {
        let live = [workload("nonsense", None, "00007")];
        assert_eq!((history(&live).next(), label(&live[0])), (8, Some(7)));
    }
}
