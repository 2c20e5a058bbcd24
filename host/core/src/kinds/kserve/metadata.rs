//! The selector labels of each object, and the inputs of metadata-propagation.

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

/// The labels by which upstream's endpoint pickers and pools select serving pods.
const COMPONENT_LABEL: &str = "kserve.io/component";
const ROLE: &str = "llm-d.ai/role";

/// The component of the scheduler, and of objects for the whole service.
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

    /// The pod selector of a Deployment. It never changes: policies can't change it, and it doesn't contain the role, which changes when a
    /// prefill workload is added.
    pub(super) fn selector(&self, part: WorkloadRole) -> BTreeMap<String, String> {
        self.with_component(&part.component(part.role()))
    }

    pub(super) fn of_scheduler(&self) -> BTreeMap<String, String> {
        self.with_component(SCHEDULER)
    }

    pub(super) fn of_router(&self) -> BTreeMap<String, String> {
        self.with_component(ROUTER)
    }

    /// The labels of the workload object.
    pub(super) fn workload_labels(&self, part: WorkloadRole) -> BTreeMap<String, String> {
        let mut labels = self.selector(part);
        labels.extend(self.serving(part));
        labels
    }

    /// The labels of the pods with a role. The workers of a group serve no requests.
    pub(super) fn of_pods(&self, workload: &Workload, place: PodRole) -> BTreeMap<String, String> {
        let mut labels = self.with_component(&workload.part.component(place.role));
        if !place.follows() {
            labels.extend(self.serving(workload.part));
        }
        labels
    }

    /// The labels that identify a workload for endpoint pickers and pools.
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

    /// The labels of the pods that serve requests without a scheduler: those of the main workload, which decodes if there is a prefill
    /// workload. The role isn't among them: it changes as soon as there is a prefill workload, long before the pods have it.
    pub(super) fn reached(&self) -> BTreeMap<String, String> {
        let grouped = self.service.workload(WorkloadRole::Main).is_some_and(|main| main.group.is_some());
        self.with_component(&WorkloadRole::Main.component(if grouped { Role::Leader } else { Role::Main }))
    }

    /// All sources of labels and annotations, for every object: the policy decides which ones it uses.
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

/// Removes the labels that pools select by from pods that serve no requests, regardless of their source.
pub(super) fn hide_from_pools(metadata: &mut Metadata) {
    for label in [COMPONENT_LABEL, ROLE] {
        metadata.labels.remove(label);
    }
}

/// The role of the scheduler's pods.
pub(super) const PICKS: PodRole = PodRole { role: Role::Scheduler, group: None };
