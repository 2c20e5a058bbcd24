//! The Jobs that inspect models on PersistentVolumeClaims, and their pods: their state from the watches, and their creation and deletion.
//! Only the leader watches them.

use super::send::is_outdated;
use crate::{
    permissions,
    watch::{
        seen::ObjectText,
        store::{LIST_PAGE_SIZE, Name, Obstacle, Store, StoreKind, Unlisted, Watched},
    },
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, PartialObjectMeta, PostParams, Preconditions},
    runtime::watcher,
};
use pointsman_core::{
    model_nodes::{
        assignment::ModelObject,
        inspection::{ClaimPath, INSPECTION, Inspection, InspectionJob, InspectionPod, MODEL, Outcome, Step, deletions, model_key},
        live::LiveModel,
    },
    resource::JOB,
    world::MissingRole,
};
use pointsman_download::StorageUri;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The field manager of these Jobs.
const MANAGER: &str = "pointsman/model-inspection";

/// The watched kinds, in each of the namespaces of a host that serves only some.
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

/// The objects from the watches, by the models' keys.
#[derive(Debug, Default)]
pub(super) struct Inspections {
    keys: BTreeMap<(Kind, Name), String>,
    jobs: BTreeMap<String, BTreeMap<Name, InspectionJob>>,
    pods: BTreeMap<String, BTreeMap<Name, InspectionPod>>,
    changed: BTreeSet<String>,
    unlisted: Unlisted<Kind>,
}

/// Parses an object, with its model's key.
fn read<K, T>(text: &str, read: impl Fn(&K) -> Option<T>) -> Option<(String, T)>
where
    K: DeserializeOwned + ResourceExt,
{
    let object = serde_json::from_str::<K>(text).ok()?;
    Some((model_key(object.meta())?.to_owned(), read(&object)?))
}

/// Stores an object. Returns whether it has changed.
fn put<T: PartialEq>(known: &mut BTreeMap<String, BTreeMap<Name, T>>, key: &str, name: &Name, new: T) -> bool {
    let known = known.entry(key.to_owned()).or_default();
    let is_other = known.get(name) != Some(&new);
    known.insert(name.clone(), new);
    is_other
}

fn take_away<T>(known: &mut BTreeMap<String, BTreeMap<Name, T>>, key: &str, name: &Name) {
    if let Some(of_model) = known.get_mut(key) {
        of_model.remove(name);
        if of_model.is_empty() {
            known.remove(key);
        }
    }
}

impl Store for Inspections {
    type Kind = Kind;

    fn put(&mut self, kind: Kind, name: &Name, text: &str) {
        let (key, is_other) = match kind {
            Kind::Jobs(_) => match read(text, InspectionJob::from_job) {
                None => return self.remove(kind, name),
                Some((key, job)) => (key.clone(), put(&mut self.jobs, &key, name, job)),
            },
            Kind::Pods(_) => match read(text, InspectionPod::from_pod) {
                None => return self.remove(kind, name),
                Some((key, pod)) => (key.clone(), put(&mut self.pods, &key, name, pod)),
            },
        };
        if self.keys.get(&(kind, name.clone())).is_some_and(|before| *before != key) {
            self.remove(kind, name);
        }
        self.keys.insert((kind, name.clone()), key.clone());
        if is_other {
            self.changed.insert(key);
        }
    }

    fn remove(&mut self, kind: Kind, name: &Name) {
        let Some(key) = self.keys.remove(&(kind, name.clone())) else { return };
        match kind {
            Kind::Jobs(_) => take_away(&mut self.jobs, &key, name),
            Kind::Pods(_) => take_away(&mut self.pods, &key, name),
        }
        self.changed.insert(key);
    }

    fn names(&self, kind: Kind) -> Vec<Name> {
        self.keys.keys().filter(|(known, _)| *known == kind).map(|(_, name)| name.clone()).collect()
    }

    fn unlisted(&mut self) -> &mut Unlisted<Kind> {
        &mut self.unlisted
    }
}

impl Inspections {
    /// Takes the keys of the models whose objects have changed.
    pub(super) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// The reason why Jobs and pods aren't known, if any.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        self.unlisted.obstacle()
    }

    /// The outcome of the inspection of a model on a claim.
    pub(super) fn outcome(&self, live: &LiveModel, key: &str, image: Result<&str, &str>, refusal: Option<&str>) -> Outcome {
        let place = match StorageUri::parse(&live.object.storage.storage_uri) {
            Ok(StorageUri::Pvc { namespace, name, path }) => Ok(ClaimPath { namespace, claim: name, path }),
            Ok(_) => Err("it isn't at pvc://".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let pods = self.pods.get(key).into_iter().flat_map(BTreeMap::values).collect();
        Inspection { live, key, place, image, refusal, jobs: self.jobs(key).collect(), pods }.outcome()
    }

    /// The Jobs of a model.
    fn jobs(&self, key: &str) -> impl Iterator<Item = &InspectionJob> {
        self.jobs.get(key).into_iter().flat_map(BTreeMap::values)
    }

    /// The steps for a model that is no longer inspected.
    pub(super) fn leftovers(&self, model: &ModelObject, key: &str) -> Vec<Step> {
        deletions(model, self.jobs(key))
    }
}

/// Starts the watches, in all namespaces if none are given.
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

/// Executes a step. If it creates a Job, returns the result: why the Job can't be created, if so.
pub(super) async fn take(client: &Client, step: Step) -> kube::Result<Option<Result<(), String>>> {
    let jobs = |namespace: &str| -> Api<DynamicObject> { Api::namespaced_with(client.clone(), namespace, &JOB.api_resource()) };
    match step {
        Step::Create(job) => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let [namespace, name] = ["namespace", "name"].map(|field| text(&job["metadata"][field]));
            let (key, owner) = (text(&job["metadata"]["annotations"][MODEL]), text(&job["metadata"]["ownerReferences"][0]["uid"]));
            let job = serde_json::from_value(job).map_err(kube::Error::SerdeError)?;
            let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            match jobs(&namespace).create(&params, &job).await {
                Ok(_) => Ok(Some(Ok(()))),
                // The watch hasn't brought it yet, or never will.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    let known = jobs(&namespace).get_metadata_opt(&name).await?;
                    let is_ours = |known: &PartialObjectMeta<DynamicObject>| {
                        known.labels().contains_key(INSPECTION)
                            && model_key(&known.metadata) == Some(&key)
                            && known.owner_references().iter().any(|known| known.uid == owner)
                    };
                    let why = || "a Job of this name exists that doesn't belong to the model: delete it".to_owned();
                    Ok(Some(if known.as_ref().is_none_or(is_ours) { Ok(()) } else { Err(why()) }))
                }
                Err(kube::Error::Api(status)) => Ok(Some(Err(status.message))),
                Err(error) => Err(error),
            }
        }
        Step::Delete(job) => {
            let preconditions = Some(Preconditions { uid: Some(job.uid), resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::background() };
            match jobs(&job.namespace).delete(&job.name, &params).await {
                // It is gone, or another object has its name: the watch reports that.
                Err(error) if is_outdated(&error) => Ok(None),
                answer => answer.map(|_| None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
