//! The components of a service, as the runtime and the service together describe them: which there are, and how each is deployed.

use super::{ACCEPTED, Making, Stop, scaling::Scaling};
use crate::{
    policy::point::Role,
    world::{
        ome::{Component, RuntimeView},
        resource::{DEPLOYMENT, LEADER_WORKER_SET, Resource},
    },
};
use std::collections::BTreeMap;

/// The annotation that says how a component is deployed.
const MODE: &str = "ome.io/deploymentMode";

/// The longest name of a service with groups of pods: `-decoder-mn` comes behind it, and a StatefulSet's name has 52 characters at most,
/// because its pods carry it, with a hash, in a label.
const LONGEST_OF_GROUPS: usize = 41;

/// A part of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Engine,
    Decoder,
    Router,
}

impl Part {
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

    /// What may run its pods: a Deployment, or groups of pods. LeaderWorkerSet makes a headless Service of its own name, so that can't be
    /// the name of ours.
    pub(super) fn workloads(self, service: &str) -> [(&'static Resource, String); 2] {
        let name = format!("{service}-{}", self.name());
        [(&DEPLOYMENT, name.clone()), (&LEADER_WORKER_SET, format!("{name}-mn"))]
    }

    /// What runs its pods.
    pub(super) fn workload(self, mode: Mode, service: &str) -> (&'static Resource, String) {
        let [deployment, groups] = self.workloads(service);
        if mode == Mode::Raw { deployment } else { groups }
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
    /// As groups of so many pods, leader included.
    MultiNode(i64),
}

/// A component, with everything settled.
#[derive(Debug)]
pub(super) struct Deployed {
    pub(super) part: Part,
    /// Of the Deployment and what goes with it.
    pub(super) name: String,
    pub(super) mode: Mode,
    /// What runs its pods.
    pub(super) workload: (&'static Resource, String),
    pub(super) scaling: Scaling,
    /// Whether nobody says how many replicas there may be at the most.
    pub(super) derived: bool,
    /// What the runtime and the service say of it.
    pub(super) runtime: Component,
    pub(super) user: Component,
}

impl Deployed {
    /// Of the two who have a say, the service first.
    pub(super) fn either<T>(&self, field: impl Fn(&Component) -> Option<T>) -> Option<T> {
        field(&self.user).or_else(|| field(&self.runtime))
    }
}

/// A value with where it stands, for messages.
#[derive(Clone, Debug)]
pub(super) struct Annotation {
    pub(super) value: String,
    pub(super) place: String,
}

/// The annotations that count for a component: its own, then those of the service.
pub(super) struct Annotations<'a> {
    part: Part,
    own: &'a BTreeMap<String, String>,
    service: &'a BTreeMap<String, String>,
}

impl Annotations<'_> {
    /// The one that counts.
    pub(super) fn get(&self, key: &str) -> Option<Annotation> {
        let told = |map: &BTreeMap<String, String>, place: String| map.get(key).map(|value| Annotation { value: value.clone(), place });
        told(self.own, format!("the annotation {key} of spec.{}", self.part.name()))
            .or_else(|| told(self.service, format!("the annotation {key}")))
    }

    /// The same, read.
    pub(super) fn read<T>(&self, key: &str, read: impl Fn(&str) -> Option<T>, what: &str) -> Result<Option<(T, Annotation)>, Box<Stop>> {
        let Some(annotation) = self.get(key) else { return Ok(None) };
        match read(&annotation.value) {
            Some(value) => Ok(Some((value, annotation))),
            None => Err(invalid(format!("{} has the value {:?}: it must be {what}.", capital(&annotation.place), annotation.value))),
        }
    }
}

/// That something has a value which it can't have.
pub(super) fn invalid(message: String) -> Box<Stop> {
    Stop::new(ACCEPTED, "InvalidValue", message, "InvalidPredictorSpec")
}

pub(super) fn refused(message: String) -> Box<Stop> {
    Stop::new(ACCEPTED, "NotSupported", message, "InvalidPredictorSpec")
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

impl Making<'_> {
    /// The components, and what annotations say in vain.
    pub(super) fn components(&self, runtime: Option<&RuntimeView>) -> Result<(Vec<Deployed>, Vec<String>), Box<Stop>> {
        let mut components = Vec::new();
        let mut notes = Vec::new();
        for part in Part::ALL {
            let (user, of_runtime) = match part {
                Part::Engine => (&self.service.engine, runtime.and_then(|runtime| runtime.engine.as_ref())),
                Part::Decoder => (&self.service.decoder, runtime.and_then(|runtime| runtime.decoder.as_ref())),
                Part::Router => (&self.service.router, runtime.and_then(|runtime| runtime.router.as_ref())),
            };
            if user.is_none() && of_runtime.is_none() {
                continue;
            }
            components.push(self.component(part, user.as_ref(), of_runtime, &mut notes)?);
        }
        if !components.iter().any(|component| component.part == Part::Engine) {
            let runtime_says = match runtime {
                Some(runtime) if runtime.top_level => {
                    format!(
                        "the {} {} has its containers at the top level, which is not supported yet: move them into its engineConfig",
                        runtime.candidate.kind, runtime.candidate.name
                    )
                }
                Some(runtime) => format!("the {} {} has no engineConfig", runtime.candidate.kind, runtime.candidate.name),
                None => "there is no runtime".to_owned(),
            };
            return Err(refused(format!("The service has no engine: spec.engine is absent, and {runtime_says}.")));
        }
        Ok((components, notes))
    }

    fn component(
        &self,
        part: Part,
        user: Option<&Component>,
        runtime: Option<&Component>,
        notes: &mut Vec<String>,
    ) -> Result<Deployed, Box<Stop>> {
        let (user, runtime) = (user.cloned().unwrap_or_default(), runtime.cloned().unwrap_or_default());
        let none = BTreeMap::new();
        let own = &user.settings.annotations;
        // How a service is deployed and scaled is said of what serves the model; a router says it for itself.
        let annotations = Annotations { part, own, service: if part == Part::Router { &none } else { &self.service.annotations } };
        let mode = mode(part, &user, &runtime, &annotations, notes)?;
        if matches!(mode, Mode::MultiNode(_)) && self.service.name.len() > LONGEST_OF_GROUPS {
            let message = format!(
                "The name {} has more than {LONGEST_OF_GROUPS} characters, the most for a service of several nodes: its groups are named after it. Make the service anew under another name.",
                self.service.name
            );
            return Err(Stop::new(ACCEPTED, "InvalidName", message, "InvalidPredictorSpec"));
        }
        for component in [&user, &runtime] {
            let settings = &component.settings;
            let unbuilt = [
                ("containerConcurrency", settings.container_concurrency.is_some_and(|most| most > 0)),
                ("canaryTrafficPercent", settings.canary_traffic_percent.is_some_and(|percent| percent < 100)),
            ];
            if let Some((field, _)) = unbuilt.iter().find(|(_, set)| *set) {
                let message =
                    format!("{field} of the {} works in the mode Serverless only, which is not supported yet: leave it out.", part.name());
                return Err(refused(message));
            }
        }
        let (scaling, derived) = self.scaling(part, mode, (&user, &runtime), &annotations, notes)?;
        Ok(Deployed {
            part,
            name: format!("{}-{}", self.service.name, part.name()),
            mode,
            workload: part.workload(mode, &self.service.name),
            scaling,
            derived,
            runtime,
            user,
        })
    }
}

fn mode(
    part: Part,
    user: &Component,
    runtime: &Component,
    annotations: &Annotations<'_>,
    notes: &mut Vec<String>,
) -> Result<Mode, Box<Stop>> {
    let grouped = part != Part::Router && [user, runtime].iter().any(|component| component.leader.is_some() || component.worker.is_some());
    let workers = user.workers.or(runtime.workers);
    let has_workers = user.worker.is_some() || runtime.worker.is_some();
    // A worker that doesn't say how many is one.
    let nodes = 1 + workers.unwrap_or(i64::from(has_workers));
    let least = user.settings.min_replicas.or(runtime.settings.min_replicas);
    let later = |mode: &str, because: &str| {
        refused(format!(
            "The {} would be deployed as {mode} because of {because}, which is not supported yet: RawDeployment and MultiNode are.",
            part.name()
        ))
    };
    match annotations.get(MODE) {
        None if grouped => Ok(Mode::MultiNode(nodes)),
        None if least == Some(0) => Err(later("Serverless", "minReplicas 0")),
        None => Ok(Mode::Raw),
        Some(annotation) => match annotation.value.as_str() {
            "RawDeployment" => {
                if grouped {
                    notes.push(format!(
                        "{} says RawDeployment, so the leader and the workers of the {} are left out.",
                        capital(&annotation.place),
                        part.name()
                    ));
                }
                Ok(Mode::Raw)
            }
            "MultiNode" if !grouped => Err(invalid(format!(
                "{} says MultiNode, and neither the service nor the runtime says how many workers: set spec.{}.worker.size.",
                capital(&annotation.place),
                part.name()
            ))),
            "MultiNode" => Ok(Mode::MultiNode(nodes)),
            mode @ ("Serverless" | "MultiNodeRayVLLM") => Err(later(mode, &annotation.place)),
            other => Err(invalid(format!(
                "{} has the value {other:?}: it must be RawDeployment, MultiNode, Serverless or MultiNodeRayVLLM.",
                capital(&annotation.place)
            ))),
        },
    }
}
