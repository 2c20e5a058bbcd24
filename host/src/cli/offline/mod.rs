//! Computes the controller's plans from files, without a cluster, with the same world and policies.

pub(super) mod fields;
pub(super) mod files;
pub(super) mod model_files;
pub(super) mod objects;
pub(super) mod policies;

use super::{
    HostNamespaceArgs,
    exit::InputErrors,
    memory::{Machines, simulate},
    progress,
    settings::SettingsArgs,
};
use crate::load::Loader;
use anyhow::Result;
use clap::Args;
use files::Document;
use k8s_openapi::jiff::Timestamp;
use model_files::{ModelFolder, fill_models_in};
use objects::{OfflineObjects, gather};
use pointsman_core::{
    decide::{Policies, Unheard},
    kinds,
    plan::{NotOurs, Plan},
    planning,
    resource::{LLM_D_INFERENCE_OBJECTIVE, Resource},
    settings::Settings,
    subject_kind::ALL,
    world::{ObjectKey, Subject, World},
};
use std::{collections::BTreeSet, num::NonZero, path::PathBuf, sync::Arc, thread};

/// Files to read, and the simulated cluster
#[derive(Args, Clone, Debug)]
pub struct OfflineArgs {
    /// File of Kubernetes objects in YAML or JSON, folder of such files (*.yaml, *.yml, *.json, including subfolders), or - for standard
    /// input; may be repeated. A model without a status counts as Ready
    #[arg(short, long = "file", value_name = "FILE|FOLDER|-")]
    pub(super) files: Vec<PathBuf>,
    /// Namespace of objects that specify none; default: `default`, without regard to the kubeconfig
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
    /// Kind that the cluster lacks, such as httproutes.gateway.networking.k8s.io; may be repeated. Default: only llm-d's
    /// inferenceobjectives.llm-d.ai
    #[arg(long, value_name = "PLURAL.GROUP", value_parser = neighbour)]
    pub(super) without: Vec<&'static Resource>,
    /// Only this service; may be repeated
    #[arg(long = "for", value_name = "NAMESPACE/NAME", value_parser = super::settings::place)]
    pub(super) only: Vec<(String, String)>,
    #[command(flatten)]
    pub(super) host: HostNamespaceArgs,
    /// File with the nodes of a cluster, and with pods that use their resources, as written by `kubectl get nodes,pods -A -o yaml`; may be
    /// repeated. The admission of InferenceModels is simulated, and their reservations of memory are printed; otherwise each is planned as
    /// if it had memory. `render` also prints the nodes of the pods
    #[arg(long = "nodes", value_name = "FILE|FOLDER")]
    pub(super) nodes: Vec<PathBuf>,
    /// Folder with the files of a BaseModel or ClusterBaseModel; may be repeated. Fields that its spec leaves unset are filled from the
    /// files, as in a cluster
    #[arg(long, value_name = "NAME=FOLDER")]
    pub(super) model_files: Vec<ModelFolder>,
    /// Folder of plugins for PolicyPlugins with source.file; default: the folder of the PolicyPlugin's file
    #[arg(long, value_name = "FOLDER")]
    pub(super) plugin_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
}

/// The namespace of objects that specify none, by default: the kubeconfig doesn't affect what files mean.
pub(super) const DEFAULT_NAMESPACE: &str = "default";

impl OfflineArgs {
    /// The namespace of objects in files that specify none.
    pub(super) fn files_namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }

    /// The kinds that the cluster serves. llm-d's own group of InferenceObjectives is excluded: it would duplicate them for clusters
    /// without it.
    pub(super) fn available(&self) -> BTreeSet<&'static Resource> {
        let is_usual = |resource: &&Resource| **resource != LLM_D_INFERENCE_OBJECTIVE && !self.without.contains(resource);
        ALL.iter().copied().filter(|resource| is_usual(resource)).collect()
    }
}

/// The note if --for selects nothing.
pub(super) fn no_subject(only: &[(String, String)]) -> String {
    format!("the files contain no subject {} (--for)", names(only))
}

/// The names of --for.
pub(super) fn names(only: &[(String, String)]) -> String {
    only.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect::<Vec<_>>().join(", ")
}

fn neighbour(name: &str) -> Result<&'static Resource, String> {
    let mut neighbours = ALL.iter().copied().filter(|resource| resource.neighbour.is_some());
    neighbours.find(|resource| resource.crd_name() == name).ok_or_else(|| {
        let neighbours = ALL.iter().filter(|resource| resource.neighbour.is_some());
        format!("expected one of {}", neighbours.map(|resource| resource.crd_name()).collect::<Vec<_>>().join(", "))
    })
}

/// The inputs of plans.
#[derive(Debug)]
pub struct Offline {
    pub(super) world: World,
    pub(super) subjects: Vec<ObjectKey>,
    pub(super) policies: Policies,
    /// The administrator's settings.
    pub settings: Settings,
    /// Notes on the files for users.
    pub notes: Vec<String>,
    /// The objects of --nodes.
    pub(super) nodes: Vec<Document>,
}

/// A subject with its plan.
#[derive(Debug)]
pub struct Planned {
    /// The subject.
    pub subject: Arc<Subject>,
    /// The plan.
    pub plan: Plan,
}

impl Offline {
    /// Reads the files, and loads the active policies. Blocks while plugins are compiled.
    pub fn read(args: &OfflineArgs, loader: &Loader) -> Result<Self> {
        let (mut documents, mut problems) = files::read_on(&args.files);
        let of_models = fill_models_in(&mut documents, &args.model_files)?;
        let (mut gathered, invalid) = gather(documents, args.files_namespace());
        problems.extend(invalid);
        InputErrors::check(problems)?;
        let set = policies::set(loader, &gathered, &args.host.host_namespace, args.plugin_dir.as_deref())?;
        gathered.world.set_available(args.available());
        let mut notes = [gathered.notes(), of_models].concat();
        let OfflineObjects { mut world, mut subjects, .. } = gathered;
        let policies = Policies::new(set, Arc::new(Unheard));
        let nodes = files::read(&args.nodes)?;
        let machines = (!args.nodes.is_empty()).then(|| Machines::from_documents(&nodes)).transpose()?;
        notes.extend(simulate(&mut world, &policies, machines.as_ref()));
        if subjects.is_empty() {
            notes.push("the files contain no subjects".to_owned());
        } else if !args.only.is_empty() {
            subjects.retain(|key| args.only.iter().any(|(namespace, name)| *namespace == key.namespace && *name == key.name));
            if subjects.is_empty() {
                notes.push(no_subject(&args.only));
            }
        }
        Ok(Self { world, subjects, policies, settings: args.settings.settings(), notes, nodes })
    }

    /// The plan of each subject, in order. A subject that is being deleted has none.
    pub fn plans(&self) -> Vec<Planned> {
        let now = Timestamp::now().as_second().unsigned_abs();
        progress::set(format!("planning {} services", self.subjects.len()));
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(self.subjects.len()).max(1);
        let one = |key: &ObjectKey| {
            let snapshot = self.world.snapshot(key, now).filter(|snapshot| !snapshot.subject.deleting)?;
            let subject = Arc::clone(&snapshot.subject);
            let mut plan = planning::plan(kinds::find(key.resource)?, snapshot, &self.policies, &self.settings);
            if plan.not_ours.is_some() {
                plan.objects = None;
            }
            Some(Planned { subject, plan })
        };
        let mut planned: Vec<(usize, Planned)> = thread::scope(|scope| {
            // Each thread takes every n-th: large and small services are usually mixed.
            let part = |thread: usize| {
                let keys = self.subjects.iter().enumerate().skip(thread).step_by(threads);
                move || keys.filter_map(|(number, key)| Some((number, one(key)?))).collect::<Vec<_>>()
            };
            let others: Vec<_> = (1..threads).map(|thread| scope.spawn(part(thread))).collect();
            let mut planned = part(0)();
            for other in others {
                match other.join() {
                    Ok(others) => planned.extend(others),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            planned
        });
        planned.sort_by_key(|(number, _)| *number);
        planned.into_iter().map(|(_, planned)| planned).collect()
    }
}

impl Planned {
    /// Why the subject gets no objects, in a line; none if it gets them.
    pub fn held(&self) -> Option<String> {
        if self.plan.objects.is_some() {
            return None;
        }
        let ObjectKey { namespace, name, .. } = &self.subject.key;
        match &self.plan.not_ours {
            Some(NotOurs::LeftAlone(why)) => return Some(format!("{namespace}/{name}: {why}")),
            Some(NotOurs::Contested(contest)) => return Some(format!("{namespace}/{name}: {}", contest.message())),
            None => {}
        }
        let needed = || self.plan.status.conditions.iter().filter(|condition| condition.required_for_ready);
        let why =
            needed().find(|condition| condition.status == Some(false)).or_else(|| needed().find(|condition| condition.status.is_none()));
        let why = why.map_or_else(String::new, |why| format!(": {} {}: {}", why.type_, why.reason, why.message));
        Some(format!("{namespace}/{name}{why}"))
    }
}
