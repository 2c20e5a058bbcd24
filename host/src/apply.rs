//! Writes the plans to the cluster. This is the only writer. It uses server-side apply, with one field manager per kind, and only on the
//! leader.

mod dry_run;
mod error;
mod labels;
mod status;

pub use error::{ApplyError, INVALID};
pub use status::ContestReport;

use crate::{
    apply::error::{RequestError, api_error, create_error, name_taken, unknown_object_error},
    leader::fence::FenceError,
    problem::sentence,
    watch::{Shared, seen::ObjectText},
};
use kube::{
    Client,
    api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, PropagationPolicy},
    core::{Request, params::Preconditions},
};
use pointsman_core::{
    contest::Contest,
    plan::Object,
    resource::{HORIZONTAL_POD_AUTOSCALER, JOB, Resource, SCALED_OBJECT},
    spans,
    workload::Workload,
    world::{ObjectKey, ObjectUpdate, OwnedObject, Snapshot, Subject, child::manager, writers},
};
use pointsman_sandbox::sync::locked;
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tracing::{
    Instrument, Span,
    field::{Empty, display},
};

/// The maximum number of writes of the same plan over an object within [`OVERWRITE_WINDOW`]. More mean that another writer is at work.
const MAX_OVERWRITES: u32 = 10;
/// See [`MAX_OVERWRITES`].
const OVERWRITE_WINDOW: Duration = Duration::from_mins(1);

/// Whether an object is deleted before others are written. Autoscalers own replicas; deleting them first returns the replicas to us.
fn goes_first(resource: &Resource) -> bool {
    [&HORIZONTAL_POD_AUTOSCALER, &SCALED_OBJECT].contains(&resource)
}

/// Whether an object disappears with a workload: the workload's controller created it under the same name.
fn goes_with(there: &ObjectText, workload: &OwnedObject) -> bool {
    let ObjectKey { resource, name, .. } = &workload.key;
    Workload::find(resource).is_some_and(|workload| workload.occupies_other_names)
        && there.owner_group_and_name().is_some_and(|(group, owner)| group == resource.group && owner == *name)
}

/// An object, and whether the write is to its status.
type WriteTarget = (ObjectKey, bool);

/// The plan's fingerprint, the start of the window, and the number of writes in it.
type OverwriteCount = (u64, Instant, u32);

/// The writer.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    shared: Shared,
    /// The memory of each subject.
    memories: Arc<Mutex<HashMap<ObjectKey, SubjectMemory>>>,
}

/// The writer's memory of a subject and its objects.
#[derive(Default)]
struct SubjectMemory {
    /// Writes that the API server stored differently (a webhook may insist on a value, or a CRD may drop a field); repeating them would
    /// never end. The value has the fingerprints of the planned and of the stored object.
    insisted: HashMap<WriteTarget, (u64, u64)>,
    /// The number of writes of the same plan over each object.
    healed: HashMap<ObjectKey, OverwriteCount>,
    /// The last contest that was reported. It is reported only once: whoever removes the report also writes the status.
    contest: Option<(String, String)>,
    /// The adopted workloads that no longer exist.
    gone: HashSet<(String, ObjectKey)>,
}

/// The span of a request about an object. `operation` is a verb, or the part of the object that is written.
pub fn request_span(operation: &'static str, object: &ObjectKey) -> Span {
    tracing::debug_span!(
        target: spans::TARGET, "request", otel.name = %format_args!("{operation} {}", object.resource.kind), otel.kind = "client", operation,
        %object, otel.status_code = Empty, otel.status_description = Empty,
    )
}

impl fmt::Debug for Applier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applier").finish_non_exhaustive()
    }
}

impl Applier {
    /// Creates a writer that puts the results of its writes into the world. The client must be [`fenced`](crate::leader::fence::fenced).
    pub fn new(client: Client, shared: Shared) -> Self {
        Self { client, shared, memories: Arc::default() }
    }

    /// Makes the subject's objects match the plan, and deletes those that are no longer planned.
    pub async fn apply(&self, snapshot: &Snapshot, objects: &[Object], keeps: &BTreeSet<ObjectKey>) -> Result<(), ApplyError> {
        let planned: BTreeSet<&ObjectKey> = objects.iter().map(|object| &object.key).collect();
        // A copy of one of our objects has our labels and the service as its owner, but not our field manager.
        let leaves = |child: &&Arc<OwnedObject>| child.ours() && !planned.contains(&child.key) && !keeps.contains(&child.key);
        let leaving: Vec<&OwnedObject> = snapshot.children.iter().filter(leaves).map(|child| &**child).collect();
        let manager = manager(snapshot.subject.key.resource.kind);
        self.check_adopted_workloads(snapshot).await?;
        // Check all names first: if one of them belongs to somebody else, nothing is written and existing objects stay unchanged.
        let in_the_way = self.check_names(snapshot, objects, &leaving).await?;
        if let Some((object, workload)) = in_the_way.first() {
            for (_, workload) in in_the_way.iter().filter(|(_, workload)| !workload.deleting) {
                self.delete(workload).await?;
            }
            let why = format!("its name stays in use until the {} is deleted", workload.key);
            return Err(ApplyError::Passing(object.to_string(), why));
        }
        let (first, last): (Vec<_>, Vec<_>) =
            leaving.into_iter().filter(|child| !child.deleting).partition(|child| goes_first(child.key.resource));
        for child in first {
            self.delete(child).await?;
        }
        for object in objects {
            self.apply_object(snapshot, object, &manager).await?;
        }
        for child in last {
            self.delete(child).await?;
        }
        Ok(())
    }

    /// Creates the objects whose names are free. An existing object stays unchanged, regardless of its owner: the watch shows whose it is.
    pub async fn create(&self, objects: &[Object]) -> Result<(), ApplyError> {
        for object in objects {
            self.create_object(object).await?;
        }
        Ok(())
    }

    async fn create_object(&self, object: &Object) -> Result<(), ApplyError> {
        let key = &object.key;
        let body = serde_json::to_vec(&object.manifest()).map_err(|error| ApplyError::Passing(key.to_string(), error.to_string()))?;
        let request = Request::new(url(key)).create(&PostParams::default(), body);
        let request = request.map_err(|error| ApplyError::Passing(key.to_string(), error.to_string()))?;
        match self.send("create", key, request).await {
            Ok(made) => {
                tracing::info!(object = %key, "created");
                self.answered(self.read(key.resource, &made), None);
                Ok(())
            }
            Err(RequestError::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(api_error(key, &error)),
        }
    }

    /// Deletes an expired subject with all objects that were created for it.
    pub async fn delete_subject(&self, subject: &Subject) -> Result<(), ApplyError> {
        self.delete_by_uid(&subject.key, &subject.uid).await
    }

    async fn apply_object(&self, snapshot: &Snapshot, object: &Object, manager: &str) -> Result<(), ApplyError> {
        let key = &object.key;
        let live = snapshot.child(key.resource, &key.name);
        let Some(live) = live else {
            // Not forced: an object that appeared meanwhile belongs to somebody else.
            let made = self
                .patch("create", key, manager, false, &object.written())
                .await
                .map_err(|error| create_error(snapshot.subject.key.resource.noun(), key, &error))?;
            self.take(&snapshot.subject.key, &made, object, false);
            return Ok(());
        };
        if live.deleting {
            // The watch reports when it is gone; then it is created again.
            return Ok(());
        }
        if live.settled(&object.body, object.fingerprint)
            || self.is_server_mutation(&snapshot.subject.key, key, false, (object.fingerprint, live.fingerprint()))
        {
            return Ok(());
        }
        self.contested(&snapshot.subject.key, object).await?;
        if object.yields_replicas && live.observed.replicas_ours {
            // If the field were only left out, it would fall back to its default. So another field manager owns it until the autoscaler
            // takes it.
            let held = json!({
                "apiVersion": key.resource.api_version(), "kind": key.resource.kind,
                "metadata": {"name": key.name, "namespace": key.namespace, "uid": live.uid}, "spec": {"replicas": live.observed.replicas},
            });
            let owner = format!("{manager}.replicas");
            self.patch("update", key, &owner, true, &held).await.map_err(|error| api_error(key, &error))?;
        }
        // Forced, so only over the known object: with its uid, the API server rejects the write if another object has replaced it.
        let mut whole = object.written();
        whole["metadata"]["uid"] = live.uid.as_str().into();
        let made = self.patch("update", key, manager, true, &whole).await.map_err(|error| api_error(key, &error))?;
        self.take(&snapshot.subject.key, &made, object, true);
        Ok(())
    }

    /// Fails unless all adopted workloads are known: if one were missing, a second one would be planned next to it.
    async fn check_adopted_workloads(&self, snapshot: &Snapshot) -> Result<(), ApplyError> {
        let subject = &snapshot.subject;
        for (resource, name) in subject.workloads.iter().filter(|(resource, _)| snapshot.serves(resource)) {
            let key = ObjectKey { resource, namespace: subject.key.namespace.clone(), name: name.clone() };
            let gone = (subject.uid.clone(), key.clone());
            if snapshot.children.iter().any(|child| child.key == key) || self.remembers(&subject.key, |memory| memory.gone.contains(&gone))
            {
                continue;
            }
            match self.get_metadata(&key).await? {
                Some(there) if there.owner().as_deref() == Some(&subject.uid) => return Err(unknown_object_error(subject, &key, &there)),
                _ => drop(self.remember(&subject.key, |memory| memory.gone.insert(gone))),
            }
        }
        Ok(())
    }

    /// Fails if the name of a planned object belongs to somebody else. Returns the names that a workload to be deleted still occupies.
    async fn check_names<'o>(
        &self,
        snapshot: &Snapshot,
        objects: &'o [Object],
        leaving: &[&'o OwnedObject],
    ) -> Result<Vec<(&'o ObjectKey, &'o OwnedObject)>, ApplyError> {
        let mut taken = Vec::new();
        for Object { key, .. } in objects {
            if snapshot.child(key.resource, &key.name).is_some() {
                continue;
            }
            let there = self.get_metadata(key).await?;
            if let Some(workload) = there.as_ref().and_then(|there| leaving.iter().find(|workload| goes_with(there, workload))) {
                taken.push((key, *workload));
                continue;
            }
            self.check_not_ours(&snapshot.subject, key)?;
            if let Some(there) = there {
                check_unclaimed(&snapshot.subject, key, &there)?;
            }
        }
        Ok(taken)
    }

    /// Fails if one of our objects that belongs to another subject has the name.
    fn check_not_ours(&self, subject: &Subject, key: &ObjectKey) -> Result<(), ApplyError> {
        match self.shared.lock().owner(key) {
            None => Ok(()),
            Some(Some(owner)) if *owner == subject.key => {
                Err(ApplyError::Passing(key.to_string(), "it was created after the plan was made".to_owned()))
            }
            // The subject was deleted and created again, and its previous objects are still being deleted.
            Some(None) => Err(ApplyError::Passing(key.to_string(), "it still belongs to the previous owner of the name".to_owned())),
            Some(Some(other)) => Err(ApplyError::Refused {
                reason: "NameTaken",
                message: format!("The {key} belongs to the {other}: give one of the two another name."),
            }),
        }
    }

    /// An object's metadata from the API server, if the object exists.
    async fn get_metadata(&self, key: &ObjectKey) -> Result<Option<ObjectText>, ApplyError> {
        let request = Request::new(url(key)).get_metadata(&key.name, &GetParams::default());
        let request = request.map_err(|error| ApplyError::Passing(key.to_string(), error.to_string()))?;
        match self.send("read", key, request).await {
            Err(RequestError::Api(status)) if status.code == 404 => Ok(None),
            there => there.map(Some).map_err(|error| api_error(key, &error)),
        }
    }

    /// Fails if another writer changes the object back each time: overwriting it every time would restart pods without end.
    async fn contested(&self, subject: &ObjectKey, object: &Object) -> Result<(), ApplyError> {
        let key = &object.key;
        if self.count_overwrite(subject, object) {
            return Ok(());
        }
        let other = self.get_metadata(key).await?.and_then(|live| writers::last(&live.managed_fields()));
        Err(ApplyError::Contested(Contest::changed_back(&key.to_string(), MAX_OVERWRITES, other)))
    }

    /// Counts a write over an object. Returns false if there were too many.
    fn count_overwrite(&self, subject: &ObjectKey, object: &Object) -> bool {
        let now = Instant::now();
        let mut memories = locked(&self.memories);
        let entry = memories.entry(subject.clone()).or_default().healed.entry(object.key.clone()).or_insert((object.fingerprint, now, 0));
        if entry.0 != object.fingerprint || now.duration_since(entry.1) > OVERWRITE_WINDOW {
            *entry = (object.fingerprint, now, 0);
        }
        entry.2 += 1;
        entry.2 <= MAX_OVERWRITES
    }

    /// Whether an object was written as planned and the API server stored it as it is now.
    pub fn was_mutated_by_server(&self, subject: &ObjectKey, object: &Object, live: &OwnedObject) -> bool {
        self.is_server_mutation(subject, &object.key, false, (object.fingerprint, live.fingerprint()))
    }

    /// Puts the result of a write into the world, because the watch reports it only later.
    fn take(&self, subject: &ObjectKey, made: &ObjectText, object: &Object, existed: bool) {
        tracing::info!(object = %object.key, "{}", if existed { "updated" } else { "created" });
        let news = self.read(object.key.resource, made);
        if let Some(child) = news.child()
            && !child.settled(&object.body, object.fingerprint)
        {
            let differs = self.record_server_mutation(subject, &object.key, false, (object.fingerprint, child.fingerprint()));
            if differs {
                tracing::info!(object = %object.key, "the API server stores the object differently from what was written");
            }
        }
        // The subject learns nothing new from an object we have just created. An existing object may also contain other writers' changes.
        self.answered(news, if existed { None } else { Some(subject) });
    }

    fn read(&self, resource: &'static Resource, made: &ObjectText) -> ObjectUpdate {
        ObjectUpdate::read(resource, made.text(), |key| self.shared.lock().child(key))
    }

    /// Puts a response into the world. `silent` is a subject that needn't be requeued; all others that have read the object are touched.
    fn answered(&self, news: ObjectUpdate, silent: Option<&ObjectKey>) {
        self.shared.change(|world| {
            let before = world.take_touched();
            world.apply_response(news);
            let mut after = world.take_touched();
            if let Some(silent) = silent {
                after.now.remove(silent);
                after.soon.remove(silent);
            }
            world.touch(before);
            world.touch(after);
        });
    }

    async fn delete(&self, child: &OwnedObject) -> Result<(), ApplyError> {
        self.delete_by_uid(&child.key, &child.uid).await
    }

    async fn delete_by_uid(&self, key: &ObjectKey, uid: &str) -> Result<(), ApplyError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            // Wait for a Job's pods: those of the next run have the same names and may write to the same place.
            propagation_policy: Some(if *key.resource == JOB { PropagationPolicy::Foreground } else { PropagationPolicy::Background }),
            ..DeleteParams::default()
        };
        let request = Request::new(url(key)).delete(&key.name, &params);
        let request = request.map_err(|error| ApplyError::Passing(key.to_string(), error.to_string()))?;
        match self.send("delete", key, request).await {
            Ok(_) => {
                tracing::info!(object = %key, "deleted");
                Ok(())
            }
            Err(RequestError::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            Err(error) => Err(api_error(key, &error)),
        }
    }

    async fn patch(
        &self,
        operation: &'static str,
        key: &ObjectKey,
        manager: &str,
        force: bool,
        whole: &Value,
    ) -> Result<ObjectText, RequestError> {
        let params = PatchParams { force, field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let request = Request::new(url(key)).patch(&key.name, &params, &Patch::Apply(whole));
        self.send(operation, key, request.map_err(|error| RequestError::Passing(error.to_string()))?).await
    }

    /// Scales a subject's workload to zero and leaves its other fields unchanged.
    pub async fn scale_to_zero(&self, subject: &ObjectKey, workload: &OwnedObject) -> Result<(), ApplyError> {
        let key = &workload.key;
        let patch = json!({"metadata": {"resourceVersion": workload.version.to_string()}, "spec": {"replicas": 0}});
        let params = PatchParams { field_manager: Some(manager(subject.resource.kind)), ..PatchParams::default() };
        let request = Request::new(url(key)).patch(&key.name, &params, &Patch::Merge(patch));
        let request = request.map_err(|error| ApplyError::Passing(key.to_string(), error.to_string()))?;
        match self.send("patch", key, request).await {
            Ok(made) => {
                tracing::info!(object = %key, "scaled to zero");
                self.answered(self.read(key.resource, &made), None);
                Ok(())
            }
            Err(RequestError::Api(status)) if status.code == 404 => Ok(()),
            Err(RequestError::Api(status)) if status.code == 409 => Err(ApplyError::Outdated),
            Err(error) => Err(api_error(key, &error)),
        }
    }

    /// Sends a request about an object; writes go out only while this host is the leader.
    async fn send(&self, operation: &'static str, object: &ObjectKey, request: http::Request<Vec<u8>>) -> Result<ObjectText, RequestError> {
        let span = request_span(operation, object);
        let answer = self.client.request::<ObjectText>(request).instrument(span.clone()).await;
        // Not found is a valid response.
        let found = |error: &&kube::Error| !matches!(error, kube::Error::Api(status) if status.code == 404);
        if let Some(error) = answer.as_ref().err().filter(found) {
            span.record("otel.status_code", "error").record("otel.status_description", display(sentence(error)));
        }
        match answer {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(RequestError::Api(status)),
            Err(error) => Err(match FenceError::find(&error) {
                Some(FenceError::NotLeading) => RequestError::NotLeading,
                Some(late @ FenceError::TimedOut(_)) => RequestError::Passing(late.to_string()),
                None => RequestError::Passing(sentence(&error)),
            }),
        }
    }

    fn is_server_mutation(&self, subject: &ObjectKey, key: &ObjectKey, status: bool, fingerprints: (u64, u64)) -> bool {
        self.remembers(subject, |memory| memory.insisted.get(&(key.clone(), status)) == Some(&fingerprints))
    }

    /// Records a mutation by the API server. Returns whether it is new.
    fn record_server_mutation(&self, subject: &ObjectKey, key: &ObjectKey, status: bool, fingerprints: (u64, u64)) -> bool {
        self.remember(subject, |memory| memory.insisted.insert((key.clone(), status), fingerprints) != Some(fingerprints))
    }

    fn remember<T>(&self, subject: &ObjectKey, note: impl FnOnce(&mut SubjectMemory) -> T) -> T {
        note(locked(&self.memories).entry(subject.clone()).or_default())
    }

    fn remembers(&self, subject: &ObjectKey, asked: impl FnOnce(&SubjectMemory) -> bool) -> bool {
        locked(&self.memories).get(subject).is_some_and(asked)
    }

    /// Forgets a subject that is gone, and its objects.
    pub fn forget(&self, subject: &ObjectKey) {
        locked(&self.memories).remove(subject);
    }
}

/// Fails if an unknown object belongs to somebody else. A server-side apply doesn't detect this: without conflicting fields (a
/// ServiceAccount has none), ours would be merged into the object, and it would be deleted with the service.
fn check_unclaimed(subject: &Subject, key: &ObjectKey, there: &ObjectText) -> Result<(), ApplyError> {
    if there.deleting() {
        return Err(ApplyError::Passing(key.to_string(), "an object of this name is being deleted".to_owned()));
    }
    match there.owner() {
        // Another of our hosts has just created it.
        Some(owner) if owner == subject.uid && there.marks() == (true, false) && writers::ours(&there.managed_fields()) => Ok(()),
        Some(owner) if owner == subject.uid => Err(unknown_object_error(subject, key, there)),
        _ => Err(name_taken(subject.key.resource.noun(), key, "")),
    }
}

fn url(key: &ObjectKey) -> String {
    let ObjectKey { resource, namespace, .. } = key;
    let api = if resource.group.is_empty() { format!("/api/{}", resource.version) } else { format!("/apis/{}", resource.api_version()) };
    if resource.namespaced { format!("{api}/namespaces/{namespace}/{}", resource.plural) } else { format!("{api}/{}", resource.plural) }
}
