//! The Jobs that inspect models on claims, and their pods: what the watches have seen of them, and what is written of them. Only the leader
//! watches them.

use super::is_outdated;
use crate::{
    permissions,
    problem::sentence,
    watch::{
        seen::ObjectText,
        store::{LIST_PAGE_SIZE, Name, Obstacle, Store, StoreKind, Unlisted, Watched},
    },
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
    runtime::watcher,
};
use pointsman_core::{
    model_nodes::{
        assignment::ModelObject,
        inspection::{ClaimPath, FACTS, INSPECTION, Inspection, InspectionJob, InspectionPod, Step, model_key, unwatched},
        summary::Summary,
    },
    resource::JOB,
    world::MissingRole,
};
use pointsman_download::StorageUri;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The field manager of these Jobs.
const MANAGER: &str = "pointsman/model-inspection";

/// The container of the host's pods that runs the host.
const CONTAINER: &str = "host";

/// What is watched, in each of the namespaces of a host that serves only some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Jobs(usize),
    Pods(usize),
}

impl StoreKind for Kind {
    fn display_name(self) -> &'static str {
        match self {
            Self::Jobs(_) => "jobs.batch",
            Self::Pods(_) => "pods",
        }
    }

    fn has_namespace(self) -> bool {
        true
    }
}

/// What the watches have seen: each with its model's key.
#[derive(Debug, Default)]
pub(super) struct Inspections {
    jobs: BTreeMap<(Kind, Name), (String, InspectionJob)>,
    pods: BTreeMap<(Kind, Name), (String, InspectionPod)>,
    changed: BTreeSet<String>,
    unlisted: Unlisted<Kind>,
}

impl Default for Kind {
    fn default() -> Self {
        Self::Jobs(0)
    }
}

/// What was read, with its model's key.
fn read<K, T>(text: &str, read: impl Fn(&K) -> Option<T>) -> Option<(String, T)>
where
    K: DeserializeOwned + ResourceExt,
{
    let object = serde_json::from_str::<K>(text).ok()?;
    Some((model_key(object.meta())?.to_owned(), read(&object)?))
}

/// Replaces what is known of one. Returns the keys of the models that this matters to.
fn replace<T: PartialEq>(known: &mut BTreeMap<(Kind, Name), (String, T)>, at: (Kind, Name), new: Option<(String, T)>) -> Vec<String> {
    if known.get(&at) == new.as_ref() {
        return Vec::new();
    }
    let key = new.as_ref().map(|(key, _)| key.clone());
    let before = match new {
        Some(new) => known.insert(at, new),
        None => known.remove(&at),
    };
    before.map(|(key, _)| key).into_iter().chain(key).collect()
}

impl Store for Inspections {
    type Kind = Kind;

    fn put(&mut self, kind: Kind, name: &Name, text: &str) {
        let at = (kind, name.clone());
        self.changed.extend(match kind {
            Kind::Jobs(_) => replace(&mut self.jobs, at, read(text, InspectionJob::from_job)),
            Kind::Pods(_) => replace(&mut self.pods, at, read(text, InspectionPod::from_pod)),
        });
    }

    fn remove(&mut self, kind: Kind, name: &Name) {
        let at = (kind, name.clone());
        self.changed.extend(match kind {
            Kind::Jobs(_) => replace(&mut self.jobs, at, None),
            Kind::Pods(_) => replace(&mut self.pods, at, None),
        });
    }

    fn names(&self, kind: Kind) -> Vec<Name> {
        let all = self.jobs.keys().chain(self.pods.keys());
        all.filter(|(known, _)| *known == kind).map(|(_, name)| name.clone()).collect()
    }

    fn unlisted(&mut self) -> &mut Unlisted<Kind> {
        &mut self.unlisted
    }
}

impl Inspections {
    /// The keys of the models about which something has changed since this was asked last.
    pub(super) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// Whether Jobs and pods have been listed, or can't be.
    pub(super) fn is_settled(&self) -> bool {
        self.unlisted.obstacle() != Some(Obstacle::Pending)
    }

    /// What the status of a model on a claim is to be, and what to do for it.
    pub(super) fn outcome(&self, model: &ModelObject, key: &str, image: Result<&str, &str>, refusal: Option<&str>) -> (Summary, Vec<Step>) {
        if let Some(Obstacle::Failed(why)) = self.unlisted.obstacle() {
            return (unwatched(&why), Vec::new());
        }
        let place = match StorageUri::parse(&model.storage.storage_uri) {
            Ok(StorageUri::Pvc { namespace, name, path }) => Ok(ClaimPath { namespace, claim: name, path }),
            Ok(_) => Err("it isn't at pvc://".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let pods = self.pods.values().filter(|(known, _)| known == key).map(|(_, pod)| pod).collect();
        Inspection { model, key, place, image, refusal, jobs: self.jobs(key).collect(), pods }.outcome()
    }

    /// The Jobs about a model.
    fn jobs<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a InspectionJob> {
        self.jobs.values().filter(move |(known, _)| known == key).map(|(_, job)| job)
    }

    /// What to do for a model that is on no claim any more.
    pub(super) fn leftovers(&self, model: &ModelObject, key: &str) -> Vec<Step> {
        self.jobs(key).filter(|job| job.is_left_by(model)).map(|job| Step::Delete(job.clone())).collect()
    }
}

/// Begins to watch, in all namespaces if none are given.
pub(super) fn start(client: &Client, namespaces: &BTreeSet<String>) -> Watched<Inspections> {
    let limits: Vec<Option<&str>> =
        if namespaces.is_empty() { vec![None] } else { namespaces.iter().map(|namespace| Some(&**namespace)).collect() };
    let kinds = (0..limits.len()).flat_map(|at| [Kind::Jobs(at), Kind::Pods(at)]);
    let mut watched = Watched::new(Inspections { unlisted: Unlisted::new(kinds), ..Inspections::default() });
    let config = || watcher::Config::default().page_size(LIST_PAGE_SIZE).labels(&format!("{INSPECTION}=true"));
    for (at, namespace) in limits.into_iter().enumerate() {
        let api = |resource: ApiResource| -> Api<ObjectText> {
            match namespace {
                None => Api::all_with(client.clone(), &resource),
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            }
        };
        let folder = if namespace.is_none() { "ome".to_owned() } else { format!("{}/ome", permissions::IN_NAMESPACE) };
        let role = MissingRole { folder, namespaces: namespace.map(str::to_owned).into_iter().collect() };
        watched.follow(Kind::Jobs(at), api(ApiResource::erase::<Job>(&())), config(), role.to_string());
        watched.follow(Kind::Pods(at), api(ApiResource::erase::<Pod>(&())), config(), role.to_string());
    }
    watched
}

/// Takes a step.
pub(super) async fn take(client: &Client, step: Step) -> kube::Result<()> {
    let jobs = |namespace: &str| -> Api<DynamicObject> { Api::namespaced_with(client.clone(), namespace, &JOB.api_resource()) };
    let merge = async |job: &InspectionJob, mut change: Value| {
        change["metadata"]["uid"] = json!(job.uid);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        jobs(&job.namespace).patch(&job.name, &params, &Patch::Merge(change)).await
    };
    let answer = match step {
        Step::Create(job) => {
            let namespace = job["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let job = serde_json::from_value(job).map_err(kube::Error::SerdeError)?;
            let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            return match jobs(&namespace).create(&params, &job).await {
                // The watch hasn't brought it yet.
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                answer => answer.map(drop),
            };
        }
        Step::Delete(job) => {
            let preconditions = Some(Preconditions { uid: Some(job.uid), resource_version: None });
            jobs(&job.namespace).delete(&job.name, &DeleteParams { preconditions, ..DeleteParams::background() }).await.map(drop)
        }
        Step::Record(job, facts) => merge(&job, json!({"metadata": {"annotations": {FACTS: &*facts}}})).await.map(drop),
        Step::Expire(job, seconds) => merge(&job, json!({"spec": {"ttlSecondsAfterFinished": seconds}})).await.map(drop),
    };
    // One that has changed or is gone is brought by the watch.
    answer.or_else(|error| if is_outdated(&error) { Ok(()) } else { Err(error) })
}

/// The image that this host runs in, by its own pod.
pub(super) async fn own_image(client: &Client, namespace: &str, pod: &str) -> Result<String, String> {
    let remedy = "set the host's flag --model-inspect-image";
    let pod = match Api::<Pod>::namespaced(client.clone(), namespace).get_opt(pod).await {
        Ok(Some(pod)) => pod,
        Ok(None) => return Err(format!("the host runs in no pod: {remedy}")),
        Err(error) => return Err(format!("the host can't read its pod {namespace}/{pod} ({}): {remedy}", sentence(&error))),
    };
    let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let own = containers.iter().find(|container| container.name == CONTAINER).or(containers.first());
    own.and_then(|container| container.image.clone()).ok_or_else(|| format!("the host's pod has no image: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        ("ml".to_owned(), name.to_owned())
    }

    #[test]
    fn only_what_matters_to_a_model_is_a_change() {
        let mut seen = Inspections::default();
        let mut put = |kind, object: Value| {
            seen.put(kind, &name("a"), &object.to_string());
            seen.take_changed().into_iter().collect::<Vec<_>>()
        };
        let owned = |kind: &str, key: &str, more: Value| {
            let mut object = json!({
                "metadata": {
                    "name": "a", "namespace": "ml", "uid": "1", "annotations": {"pointsman.dev/model": key},
                    "ownerReferences": [{"apiVersion": "x/v1", "kind": kind, "name": "m", "uid": "m", "controller": true}],
                },
            });
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            object
        };
        assert_eq!(put(Kind::Jobs(0), owned("BaseModel", "x", json!({}))), ["x"]);
        assert!(put(Kind::Jobs(0), owned("BaseModel", "x", json!({"status": {"active": 1}}))).is_empty());
        assert_eq!(put(Kind::Pods(0), owned("Job", "x", json!({}))), ["x"]);
        assert_eq!(put(Kind::Pods(0), owned("Job", "y", json!({}))), ["x", "y"]);
        assert!(put(Kind::Pods(1), owned("Deployment", "y", json!({}))).is_empty(), "it is no Job's");
        assert_eq!(seen.names(Kind::Pods(0)), [name("a")]);
        seen.remove(Kind::Pods(0), &name("a"));
        assert_eq!(seen.take_changed().into_iter().collect::<Vec<_>>(), ["y"]);
        assert_eq!(seen.jobs("x").count(), 1);
    }
}
