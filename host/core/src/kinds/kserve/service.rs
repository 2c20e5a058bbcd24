//! A service with its effective spec, checked: its workloads and how it is reached.

use super::{
    COMBINED, PlanError,
    combine::{EffectiveSpec, PodTemplateField},
};
use crate::{
    kinds::questions::{PodRole, Questions},
    objects::strings,
    resource::{DEPLOYMENT, LEADER_WORKER_SET, Resource},
    settings::Settings,
};
use pointsman_crds::kserve::{
    router::SchedulerSpec,
    spec::{Criticality, ParallelismSpec, WorkloadSpec},
};
use pointsman_sandbox::{digest::Digested, point, words};
use std::{collections::BTreeMap, sync::Arc};

/// The maximum length of a service's name: with the suffix `-kserve-workload-svc`, a Service's name has at most 63 characters.
const LONGEST_NAME: usize = 43;

/// The maximum length if the service has groups of pods: with the suffix `-kserve-mn-prefill`, a StatefulSet's name has at most 52
/// characters.
const LONGEST_OF_GROUPS: usize = 34;

/// A workload of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkloadRole {
    /// The only workload, or the one that decodes.
    Main,
    Prefill,
}

impl WorkloadRole {
    pub(super) const ALL: [Self; 2] = [Self::Main, Self::Prefill];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Main => "main workload",
            Self::Prefill => "prefill workload",
        }
    }

    /// Its path in the spec.
    pub(super) const fn field(self) -> &'static str {
        match self {
            Self::Main => "spec",
            Self::Prefill => "spec.prefill",
        }
    }

    /// The stage of its pods, in the endpoint picker's terms.
    pub(super) const fn stage(self) -> &'static str {
        match self {
            Self::Main => "decode",
            Self::Prefill => "prefill",
        }
    }

    pub(super) const fn role(self) -> point::Role {
        match self {
            Self::Main => point::Role::Main,
            Self::Prefill => point::Role::Prefill,
        }
    }

    /// The objects that may run its pods, with upstream's names: a Deployment, or groups of pods.
    pub(super) fn workloads(self, service: &str) -> [(&'static Resource, String); 2] {
        let suffix = if self == Self::Main { "" } else { "-prefill" };
        [(&DEPLOYMENT, format!("{service}-kserve{suffix}")), (&LEADER_WORKER_SET, format!("{service}-kserve-mn{suffix}"))]
    }

    /// Upstream's component label for its pods with a role.
    pub(super) fn component(self, place: point::Role) -> String {
        let place = match place {
            point::Role::Leader => "-leader",
            point::Role::Worker => "-worker",
            _ => "",
        };
        let suffix = if self == Self::Main { "" } else { "-prefill" };
        format!("llminferenceservice-workload{place}{suffix}")
    }
}

/// A workload, resolved.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) part: WorkloadRole,
    pub(super) spec: WorkloadSpec,
    /// The number of pods per group, if it has groups.
    pub(super) group: Option<i64>,
    /// The object that runs its pods.
    pub(super) runs: (&'static Resource, String),
}

impl Workload {
    /// The roles of its pods, each with the field of its pod template.
    pub(super) fn places(&self) -> Vec<(PodRole, PodTemplateField)> {
        let (template, worker) = match self.part {
            WorkloadRole::Main => (PodTemplateField::Template, PodTemplateField::Worker),
            WorkloadRole::Prefill => (PodTemplateField::PrefillTemplate, PodTemplateField::PrefillWorker),
        };
        let role = self.part.role();
        if self.group.is_none() {
            return vec![(PodRole { role, group: None }, template)];
        }
        [(point::Role::Leader, template), (point::Role::Worker, worker)]
            .map(|(place, at)| (PodRole { role: place, group: Some(role) }, at))
            .to_vec()
    }
}

/// A service.
#[derive(Debug, Default)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) combined: EffectiveSpec,
    pub(super) workloads: Vec<Arc<Workload>>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// The subject for policies.
    pub(super) subject: Digested<point::Subject>,
    /// Notes on fields without an effect.
    pub(super) notes: Vec<String>,
}

impl Service {
    /// Reads the service, with everything that it builds on.
    pub(super) fn read(asking: &mut Questions<'_>, settings: &Settings) -> Result<Self, Box<PlanError>> {
        let snapshot = asking.snapshot;
        let content = snapshot.subject.content();
        let combined = EffectiveSpec::resolve(snapshot, settings, &content, &mut asking.reads)
            .map_err(|(reason, message)| PlanError::new(COMBINED, reason, message))?;
        let labels = strings(&content["metadata"]["labels"]);
        let annotations = strings(&content["metadata"]["annotations"]);
        let key = &snapshot.subject.key;
        let mut service = Self {
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            subject: asking.subject(&labels, &annotations),
            labels,
            annotations,
            workloads: Vec::new(),
            combined,
            notes: Vec::new(),
        };
        service.check()?;
        let spec = &service.combined.spec;
        let main = workload(WorkloadRole::Main, spec.workload.clone(), &service.name)?;
        let prefill = spec.prefill.clone().map(|prefill| workload(WorkloadRole::Prefill, prefill, &service.name)).transpose()?;
        service.workloads = [Some(main), prefill].into_iter().flatten().map(Arc::new).collect();
        Ok(service)
    }

    /// Checks whether the service can be served at all.
    fn check(&mut self) -> Result<(), Box<PlanError>> {
        let refused = |reason: &str, message: String| Err(PlanError::new(COMBINED, reason, message));
        let spec = &self.combined.spec;
        let grouped = spec.workload.worker.is_some() || spec.prefill.as_ref().is_some_and(|prefill| prefill.worker.is_some());
        let most = if grouped { LONGEST_OF_GROUPS } else { LONGEST_NAME };
        let name = &self.name;
        if name.len() > most || !words::service_name(name) {
            let message = format!(
                "The name {name} is not valid for its Services and pods: it must start with a lower-case letter, and consist of at most \
                 {most} lower-case letters, digits and -{}. Recreate the service under another name.",
                if grouped { ", because groups of pods are named after it" } else { "" }
            );
            return refused("InvalidName", message);
        }
        let model = spec.model.as_ref();
        if model.and_then(|model| model.uri.as_deref()).is_none_or(str::is_empty) {
            let message = "Neither the service nor a base configuration sets the model's location: set spec.model.uri.";
            return refused("NoModel", message.to_owned());
        }
        if spec.router.as_ref().is_some_and(|router| router.ingress.is_some()) {
            let message = "spec.router.ingress is not supported yet: use spec.router.route with a Gateway, or remove it.";
            return refused("NotSupported", message.to_owned());
        }
        let scheduler = spec.router.as_ref().and_then(|router| router.scheduler.as_ref());
        if spec.prefill.is_some() && scheduler.is_none() {
            let note = "The prefill workload gets no prompts: set spec.router.scheduler.";
            self.notes.push(note.to_owned());
        }
        if spec.prefill.is_some() && scheduler.is_some_and(|scheduler| scheduler.config.is_none()) {
            let note = "spec.router.scheduler.config is absent, and the preset's is for the preset's image: another image may not tell prefill \
                        from decode.";
            self.notes.push(note.to_owned());
        }
        let staged = |worker: bool, parallelism: Option<&ParallelismSpec>| worker && parallelism.is_some_and(|is| is.pipeline.is_some());
        let main = staged(spec.workload.worker.is_some(), spec.workload.parallelism.as_ref());
        let other = |prefill: &WorkloadSpec| staged(prefill.worker.is_some(), prefill.parallelism.as_ref());
        if spec.prefill.as_ref().is_some_and(|prefill| main || other(prefill)) {
            let note = "The presets for groups with parallelism.pipeline don't transfer the KV cache from prefill to decode: add \
                        --kv-transfer-config to their arguments.";
            self.notes.push(note.to_owned());
        }
        if let Some((_, true)) = self.combined.gateways_named_by() {
            let note = "spec.router.route.http.spec.parentRefs is ignored: spec.router.gateway.refs takes precedence.";
            self.notes.push(note.to_owned());
        }
        if scheduler.is_none() && self.criticality().is_some_and(|criticality| criticality != Criticality::Standard) {
            self.notes.push("spec.model.criticality has no effect: spec.router.scheduler is absent.".to_owned());
        }
        let remarks = self.combined.check_scheduler_config()?;
        self.notes.extend(remarks);
        let adapters = model.and_then(|model| model.lora.as_ref()).map(|lora| &*lora.adapters).unwrap_or_default();
        if adapters.iter().any(|adapter| adapter.other.contains_key("criticality")) {
            let note = "The criticality of an adapter has no effect: create an InferenceObjective, and name it in the adapter's requests.";
            self.notes.push(note.to_owned());
        }
        Ok(())
    }

    /// The criticality of its requests, if specified.
    pub(super) fn criticality(&self) -> Option<Criticality> {
        self.combined.spec.model.as_ref()?.criticality
    }

    /// Whether a scheduler picks the pod for each request.
    pub(super) fn scheduled(&self) -> bool {
        self.scheduler().is_some()
    }

    /// The spec of the scheduler, if there is one.
    pub(super) fn scheduler(&self) -> Option<&SchedulerSpec> {
        self.combined.spec.router.as_ref()?.scheduler.as_ref()
    }

    /// The number of scheduler replicas.
    pub(super) fn pickers(&self) -> i64 {
        self.scheduler().and_then(|scheduler| scheduler.replicas).map_or(1, i64::from)
    }

    pub(super) fn workload(&self, part: WorkloadRole) -> Option<&Workload> {
        self.workloads.iter().map(|workload| &**workload).find(|workload| workload.part == part)
    }
}

fn workload(part: WorkloadRole, spec: WorkloadSpec, service: &str) -> Result<Workload, Box<PlanError>> {
    let group = spec.worker.as_ref().map(|_| group(part, spec.parallelism.as_ref())).transpose()?;
    let [deployment, groups] = part.workloads(service);
    Ok(Workload { part, spec, group, runs: if group.is_some() { groups } else { deployment } })
}

/// The number of pods per group.
fn group(part: WorkloadRole, parallelism: Option<&ParallelismSpec>) -> Result<i64, Box<PlanError>> {
    let invalid = |message: String| PlanError::new(COMBINED, "InvalidValue", message);
    let field = part.field();
    let given = parallelism.map(|parallelism| (parallelism.pipeline, parallelism.data, parallelism.data_local));
    match given {
        Some((Some(pipeline), _, _)) => Ok(pipeline.into()),
        Some((None, Some(data), Some(local))) if local > 0 && data % local == 0 => Ok((data / local).into()),
        Some((None, Some(data), Some(local))) => {
            Err(invalid(format!("{field}.parallelism.data is {data} and dataLocal {local}: set data to a multiple of dataLocal.")))
        }
        _ => Err(invalid(format!(
            "{field}.worker requests groups of pods, but their size is not set: set {field}.parallelism.pipeline, or data and dataLocal."
        ))),
    }
}
