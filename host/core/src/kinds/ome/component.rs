//! The components of a service, from the runtime and the service together: which exist, and how each is deployed.

use super::{
    ACCEPTED, PlanBuilder, PlanError,
    keys::ComponentAnnotations,
    mode,
    scaling::{Scaling, least},
};
use crate::{
    resource::{DEPLOYMENT, KNATIVE_SERVICE, LEADER_WORKER_SET, RAY_CLUSTER, Resource},
    world::{
        OwnedObject, Snapshot,
        ome::{Component, RuntimeView},
    },
};
use pointsman_sandbox::point::Role;
use std::{collections::BTreeMap, sync::Arc};

/// The maximum length of a service's name with groups of pods: with the suffix `-decoder-mn`, a StatefulSet's name has at most 52
/// characters, because its pods have it in a label, with a hash.
const MAX_NAME_LENGTH_MULTI_NODE: usize = 41;

/// The maximum length of a service's name on Ray: with the suffix `-decoder-00001`, KubeRay accepts 53 characters.
const MAX_NAME_LENGTH_RAY: usize = 39;

/// A component of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ComponentKind {
    Engine,
    Decoder,
    Router,
}

impl ComponentKind {
    pub(super) const ALL: [Self; 3] = [Self::Engine, Self::Decoder, Self::Router];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Decoder => "decoder",
            Self::Router => "router",
        }
    }

    pub(super) const fn role(self) -> Role {
        match self {
            Self::Engine => Role::Engine,
            Self::Decoder => Role::Decoder,
            Self::Router => Role::Router,
        }
    }

    /// The object that runs its pods: a Deployment, groups of pods, a Knative Service, or a RayCluster, whose name ends with its revision.
    /// LeaderWorkerSet creates a headless Service with its own name, so its name must differ from our Service's.
    pub(super) fn workload(self, mode: Mode, service: &str) -> (&'static Resource, String) {
        let name = format!("{service}-{}", self.name());
        match mode {
            Mode::Raw => (&DEPLOYMENT, name),
            Mode::MultiNode(_) => (&LEADER_WORKER_SET, format!("{name}-mn")),
            Mode::Serverless => (&KNATIVE_SERVICE, name),
            Mode::Ray(_) => (&RAY_CLUSTER, name),
        }
    }

    /// The existing objects that may run its pods.
    pub(super) fn workloads(self, snapshot: &Snapshot) -> impl Iterator<Item = &Arc<OwnedObject>> {
        let service = &snapshot.subject.key.name;
        let fixed = [Mode::Raw, Mode::MultiNode(1), Mode::Serverless].map(|mode| self.workload(mode, service));
        let (ray, cluster) = self.workload(Mode::Ray(1), service);
        let revision = move |name: &str| {
            let number = name.strip_prefix(cluster.as_str()).and_then(|rest| rest.strip_prefix('-'));
            number.is_some_and(|number| number.parse::<u64>().is_ok())
        };
        let clusters = snapshot.children.iter().filter(move |child| child.key.resource == ray && revision(&child.key.name));
        fixed.into_iter().filter_map(|(resource, name)| snapshot.child(resource, &name)).chain(clusters)
    }

    pub(super) const fn condition(self) -> &'static str {
        match self {
            Self::Engine => "EngineReady",
            Self::Decoder => "DecoderReady",
            Self::Router => "RouterReady",
        }
    }
}

/// How a component is deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// As a Deployment.
    Raw,
    /// As groups with this many pods, including the leader.
    MultiNode(i64),
    /// As a Knative Service.
    Serverless,
    /// As a RayCluster with this many pods, including the head.
    Ray(i64),
}

impl Mode {
    /// The value of the annotation.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Raw => "RawDeployment",
            Self::MultiNode(_) => "MultiNode",
            Self::Serverless => "Serverless",
            Self::Ray(_) => "MultiNodeRayVLLM",
        }
    }

    /// The number of pods that run one copy of the model.
    pub(super) const fn size(self) -> i64 {
        match self {
            Self::MultiNode(size) | Self::Ray(size) => size,
            Self::Raw | Self::Serverless => 1,
        }
    }
}

/// A note for the user, with the reason that it gives the condition.
pub(super) type Note = (&'static str, String);

/// The reason of a note that an annotation is ignored.
pub(super) const OVERRIDDEN: &str = "AnnotationOverridden";

/// The reason of a note that a request needs a feature of Knative. It may be enabled, so this is no warning.
pub(super) const KNATIVE_FEATURES: &str = "KnativeFeatures";

/// The reason of a note that pods on other nodes can't mount the files.
const ONE_NODE: &str = "OneNode";

/// The reason of a note that a setting is ignored.
pub(super) const NOT_HONOURED: &str = "NotHonoured";

/// A component, resolved.
#[derive(Debug)]
pub(super) struct DeployedComponent {
    pub(super) part: ComponentKind,
    /// The name of the Deployment and its related objects.
    pub(super) name: String,
    pub(super) mode: Mode,
    /// The object that runs its pods.
    pub(super) workload: (&'static Resource, String),
    pub(super) scaling: Scaling,
    pub(super) extras: ComponentAnnotations,
    /// Whether the maximum number of replicas was derived, because nobody sets one.
    pub(super) derived: bool,
    /// Its specs in the runtime and in the service.
    pub(super) runtime: Component,
    pub(super) user: Component,
}

impl DeployedComponent {
    /// The name of the claim for its files.
    pub(super) fn claim(&self) -> String {
        self.name.clone()
    }

    /// A field from the service's spec, otherwise from the runtime's.
    pub(super) fn either<T>(&self, field: impl Fn(&Component) -> Option<T>) -> Option<T> {
        field(&self.user).or_else(|| field(&self.runtime))
    }
}

/// An annotation's value and its place, for messages.
#[derive(Clone, Debug)]
pub(super) struct Annotation {
    pub(super) value: String,
    pub(super) place: String,
}

/// The annotations for a component: its own take precedence over those of the service.
#[derive(Clone, Copy)]
pub(super) struct Annotations<'a> {
    part: ComponentKind,
    own: &'a BTreeMap<String, String>,
    service: &'a BTreeMap<String, String>,
}

impl Annotations<'_> {
    /// The annotation with this key.
    pub(super) fn get(&self, key: &str) -> Option<Annotation> {
        let told = |map: &BTreeMap<String, String>, place: String| map.get(key).map(|value| Annotation { value: value.clone(), place });
        told(self.own, format!("the annotation {key} of spec.{}", self.part.name()))
            .or_else(|| told(self.service, format!("the annotation {key}")))
    }

    /// The annotations with this prefix, by the rest of their keys.
    pub(super) fn beginning(&self, prefix: &str) -> BTreeMap<String, String> {
        let all = self.service.iter().chain(self.own);
        all.filter_map(|(key, value)| Some((key.strip_prefix(prefix)?.to_owned(), value.clone()))).collect()
    }

    /// The annotation with this key, parsed.
    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl Fn(&str) -> Option<T>,
        what: &str,
    ) -> Result<Option<(T, Annotation)>, Box<PlanError>> {
        let Some(annotation) = self.get(key) else { return Ok(None) };
        match read(&annotation.value) {
            Some(value) => Ok(Some((value, annotation))),
            None => Err(invalid(format!("{} has the value {:?}: it must be {what}.", capital(&annotation.place), annotation.value))),
        }
    }
}

/// The error for an invalid value.
pub(super) fn invalid(message: String) -> Box<PlanError> {
    PlanError::new(ACCEPTED, "InvalidValue", message, "InvalidPredictorSpec")
}

pub(super) fn refused(message: String) -> Box<PlanError> {
    PlanError::new(ACCEPTED, "NotSupported", message, "InvalidPredictorSpec")
}

pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

impl PlanBuilder<'_> {
    /// The components, and notes on ignored annotations.
    pub(super) fn components(&self, runtime: Option<&RuntimeView>) -> Result<(Vec<DeployedComponent>, Vec<Note>), Box<PlanError>> {
        let mut notes = Vec::new();
        let sides = ComponentKind::ALL.map(|part| match part {
            ComponentKind::Engine => (part, self.service.engine.as_ref(), runtime.and_then(|runtime| runtime.engine.as_ref())),
            ComponentKind::Decoder => (part, self.service.decoder.as_ref(), runtime.and_then(|runtime| runtime.decoder.as_ref())),
            ComponentKind::Router => (part, self.service.router.as_ref(), runtime.and_then(|runtime| runtime.router.as_ref())),
        });
        let there: Vec<_> = sides.into_iter().filter(|(_, user, runtime)| user.is_some() || runtime.is_some()).collect();
        let has = |part: ComponentKind| there.iter().any(|(there, ..)| *there == part);
        if !has(ComponentKind::Engine) {
            let runtime_says = match runtime {
                Some(runtime) => {
                    format!("the {} {} has neither an engineConfig nor containers", runtime.candidate.kind, runtime.candidate.name)
                }
                None => "there is no runtime".to_owned(),
            };
            return Err(refused(format!("The service has no engine: spec.engine is absent, and {runtime_says}.")));
        }
        let split = has(ComponentKind::Decoder);
        let components = there.into_iter().map(|(part, user, runtime)| self.component(part, (user, runtime), split, &mut notes));
        let components: Vec<DeployedComponent> = components.collect::<Result<_, _>>()?;
        mode::check_modes_together(&components, self.host().is_some(), &mut notes);
        Ok((components, notes))
    }

    fn component(
        &self,
        part: ComponentKind,
        (user, runtime): (Option<&Component>, Option<&Component>),
        split: bool,
        notes: &mut Vec<Note>,
    ) -> Result<DeployedComponent, Box<PlanError>> {
        let (user, mut runtime) = (user.cloned().unwrap_or_default(), runtime.cloned().unwrap_or_default());
        if let Some(version) = self.service.runtime_version.as_ref().filter(|_| part != ComponentKind::Router) {
            super::predictor::set_version(&mut runtime, version);
        }
        let none = BTreeMap::new();
        let pods = Annotations { part, own: &user.settings.annotations, service: &self.service.annotations };
        // The service's annotations for deployment and scaling apply to the components that serve the model; a router has its own.
        let annotations = Annotations { service: if part == ComponentKind::Router { &none } else { &self.service.annotations }, ..pods };
        let asked = (least(&user, &runtime, &annotations)?, self.wants_keda(part, (&user, &runtime), &annotations)?);
        let mode = mode::choose_mode(part, (&user, &runtime), &annotations, (split, asked), notes)?;
        let longest = match mode {
            Mode::MultiNode(_) => Some(MAX_NAME_LENGTH_MULTI_NODE),
            Mode::Ray(_) => Some(MAX_NAME_LENGTH_RAY),
            Mode::Raw | Mode::Serverless => None,
        };
        if let Some(longest) = longest.filter(|longest| self.service.name.len() > *longest) {
            let message = format!(
                "The name {} has more than {longest} characters, the maximum for a service of several nodes, whose groups are named after \
                 it. Recreate the service under another name.",
                self.service.name
            );
            return Err(PlanError::new(ACCEPTED, "InvalidName", message, "InvalidPredictorSpec"));
        }
        mode::suits(part, mode, (&user, &runtime), notes)?;
        let (scaling, derived) = self.scaling(part, (mode, asked), (&user, &runtime), &annotations, notes)?;
        let mut extras = ComponentAnnotations::read(part, &annotations, &pods)?;
        if part != ComponentKind::Router {
            extras.storage_uri = extras.storage_uri.or_else(|| self.service.storage_uri.clone());
        }
        let name = format!("{}-{}", self.service.name, part.name());
        if extras.on_one_node() {
            let several = if scaling.most() > 1 || mode.size() > 1 {
                "several pods may run, and those on other nodes stay pending"
            } else {
                "a pod ends before its replacement starts"
            };
            let text = format!(
                "The claim {name} of the {} can be mounted on one node at a time: {several}. To avoid this, set \
                 storage.ome.io/access-mode to ReadWriteMany.",
                part.name()
            );
            notes.push((ONE_NODE, text));
        }
        Ok(DeployedComponent {
            part,
            name,
            mode,
            workload: part.workload(mode, &self.service.name),
            scaling,
            extras,
            derived,
            runtime,
            user,
        })
    }
}
