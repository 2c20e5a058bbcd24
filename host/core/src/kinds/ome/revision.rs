//! The revisions of a component: another template of its pods is another one.

use super::{
    DECIDED, PlanBuilder, PlanError,
    component::{DeployedComponent, Mode},
};
use crate::{
    objects::ray,
    pod_scheduler::name_scheduler,
    workload::{TemplateChange, Workload},
    world::{OwnedObject, child::REVISION_LABEL},
};
use pointsman_sandbox::digest::{Digest, sorted};
use serde_json::Value;

impl PlanBuilder<'_> {
    /// The revision that these templates are: its number, and their hash.
    pub(super) fn revision(&self, component: &DeployedComponent, templates: &[Value]) -> Result<(String, String), Box<PlanError>> {
        // A group of another size is another one for LeaderWorkerSet too. What says the same is the same, in whatever order its keys
        // were given.
        let sorted: Vec<Value> = templates.iter().map(sorted).collect();
        let hash = Digest::of_value(&(sorted, component.mode.size())).map(|digest| digest.short());
        let hash = hash.map_err(|error| {
            PlanError::new(DECIDED, "InvalidTemplate", format!("The pods' template has no JSON: {error}."), "RuntimeUnhealthy")
        })?;
        Ok((self.number(component, templates, &hash), hash))
    }

    /// The number of the revision with this hash: that of what runs, or the next.
    fn number(&self, component: &DeployedComponent, templates: &[Value], hash: &str) -> String {
        // The scheduler that the host names in templates is no part of a revision.
        let set = self.settings.pod_scheduler.as_deref();
        let numbers = component.part.workloads(self.snapshot).filter_map(|live| {
            let told = live.observed.revision.as_ref().and_then(|revision| revision.split_once('-'));
            let label = live.observed.revision_label.as_deref().or(told.map(|(number, _)| number))?;
            let number: u64 = label.parse().ok()?;
            let same = if let Some((_, known)) = told.filter(|(number, _)| *number == label) {
                known == hash
            } else {
                // Whoever has taken the annotation away or edited it must not restart pods by that: the templates themselves tell.
                let mut schedulers = [None, live.observed.pod_scheduler.as_deref(), set].into_iter();
                schedulers.any(|scheduler| runs(live, templates, scheduler, (label, component.mode)))
            };
            Some(if same { number } else { number + 1 })
        });
        format!("{:05}", numbers.max().unwrap_or(1))
    }
}

/// Whether a workload has these templates, under the number of a revision and with a scheduler in those that name none.
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
