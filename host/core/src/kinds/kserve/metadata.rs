//! Which labels each object is found by, and what the question to metadata-propagation is made from.

use super::{
    PlanBuilder,
    service::{Workload, WorkloadRole},
};
use crate::{
    kinds::questions::PodRole,
    objects::{Metadata, label_value},
    question::entries,
    subject_kind::{APP_COMPONENT, APP_NAME},
};
use pointsman_sandbox::{
    digest::Digested,
    point::{Entry, Role, propagation::Layer},
};
use std::collections::BTreeMap;

const PART_OF: &str = "app.kubernetes.io/part-of";

/// What upstream's endpoint pickers and pools know serving pods by.
const COMPONENT_LABEL: &str = "kserve.io/component";
const ROLE: &str = "llm-d.ai/role";

/// The component of the scheduler, and of what belongs to the whole service.
pub(super) const SCHEDULER: &str = "llminferenceservice-router-scheduler";
const ROUTER: &str = "llminferenceservice-router";

impl PlanBuilder<'_> {
    fn belongs(&self) -> BTreeMap<String, String> {
        let name = label_value(&self.service.name).into_owned();
        BTreeMap::from([(APP_NAME.to_owned(), name), (PART_OF.to_owned(), "llminferenceservice".to_owned())])
    }

    fn with_component(&self, component: &str) -> BTreeMap<String, String> {
        let mut labels = self.belongs();
        labels.insert(APP_COMPONENT.to_owned(), component.to_owned());
        labels
    }

    /// What the pods of a Deployment are selected by. It never changes: neither does anybody else have a say in it, nor is the role in it,
    /// which is another as soon as there is a prefill workload.
    pub(super) fn selector(&self, part: WorkloadRole) -> BTreeMap<String, String> {
        self.with_component(&part.component(part.role()))
    }

    pub(super) fn of_scheduler(&self) -> BTreeMap<String, String> {
        self.with_component(SCHEDULER)
    }

    pub(super) fn of_router(&self) -> BTreeMap<String, String> {
        self.with_component(ROUTER)
    }

    /// The labels of the object that makes a workload's pods.
    pub(super) fn workload_labels(&self, part: WorkloadRole) -> BTreeMap<String, String> {
        let mut labels = self.selector(part);
        labels.extend(self.serving(part));
        labels
    }

    /// The labels of the pods in a place. The followers of a group take no requests.
    pub(super) fn of_pods(&self, workload: &Workload, place: PodRole) -> BTreeMap<String, String> {
        let mut labels = self.with_component(&workload.part.component(place.role));
        if !place.follows() {
            labels.extend(self.serving(workload.part));
        }
        labels
    }

    /// What a workload is known by to endpoint pickers and pools.
    fn serving(&self, part: WorkloadRole) -> [(String, String); 2] {
        let role = match part {
            WorkloadRole::Prefill => "prefill",
            WorkloadRole::Main if self.service.workload(WorkloadRole::Prefill).is_some() => "decode",
            WorkloadRole::Main => "both",
        };
        [(COMPONENT_LABEL.to_owned(), "workload".to_owned()), (ROLE.to_owned(), role.to_owned())]
    }

    /// The labels of all pods that a scheduler picks from.
    pub(super) fn picked_from(&self) -> BTreeMap<String, String> {
        let mut labels = self.belongs();
        labels.insert(COMPONENT_LABEL.to_owned(), "workload".to_owned());
        labels
    }

    /// The labels of the pods that take requests without a scheduler: the main workload's, which decodes where there is another. Not by
    /// their role: that is another one as soon as there is a prefill workload, long before pods have it.
    pub(super) fn reached(&self) -> BTreeMap<String, String> {
        let grouped = self.service.workload(WorkloadRole::Main).is_some_and(|main| main.group.is_some());
        self.with_component(&WorkloadRole::Main.component(if grouped { Role::Leader } else { Role::Main }))
    }

    /// Everybody who may have a say, for every object: who has one where says the policy.
    pub(super) fn metadata_layers(&self) -> Digested<Vec<Layer>> {
        let layer = |name: &str, labels: Vec<Entry>, annotations: Vec<Entry>| Layer { name: name.to_owned(), labels, annotations };
        let spec = &self.service.combined.spec;
        let mut layers = vec![
            layer("namespace", entries(&self.asking.snapshot.namespace_labels), Vec::new()),
            layer("subject", entries(&self.service.labels), entries(&self.service.annotations)),
            layer("spec", entries(&spec.workload.labels), entries(&spec.workload.annotations)),
        ];
        if let Some(prefill) = &spec.prefill {
            layers.push(layer("prefill", entries(&prefill.labels), entries(&prefill.annotations)));
        }
        if let Some(scheduler) = self.service.scheduler() {
            layers.push(layer("scheduler", entries(&scheduler.labels), entries(&scheduler.annotations)));
        }
        Digested::new(layers).unwrap_or_default()
    }
}

/// Takes away from pods that take no requests what a pool selects by, whoever gave it to them.
pub(super) fn hide_from_pools(metadata: &mut Metadata) {
    for label in [COMPONENT_LABEL, ROLE] {
        metadata.labels.remove(label);
    }
}

/// What the scheduler's pods do.
pub(super) const PICKS: PodRole = PodRole { role: Role::Scheduler, group: None };
