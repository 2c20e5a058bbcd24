//! Carries plans out: the only writer. Everything goes by server-side apply under one field manager a kind, on the leader alone.

use crate::{
    leader::Leadership,
    locked,
    plan::Object,
    sentence,
    status::difference,
    world::{
        Child, News, ObjectKey, Snapshot, Subject,
        child::{fingerprint, manager},
        resource::{HORIZONTAL_POD_AUTOSCALER, Resource, SCALED_OBJECT},
        seen::Seen,
        watch::Shared,
    },
};
use kube::{
    Client,
    api::{DeleteParams, GetParams, Patch, PatchParams, PropagationPolicy},
    core::{Request, params::Preconditions},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// How long a write may take. The lease may be another's by then.
const WRITE_WITHIN: Duration = Duration::from_secs(4);

/// How often the same plan is written over an object within so long, before somebody else must be at work.
const HEALS: u32 = 10;
/// See [`HEALS`].
const CONTEST: Duration = Duration::from_mins(1);

/// The objects that own the replicas of others. They go before the replicas are taken back, and come after they were handed over.
static AUTOSCALERS: [&Resource; 2] = [&HORIZONTAL_POD_AUTOSCALER, &SCALED_OBJECT];

/// Why a plan was not carried out to its end.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Another host writes now.
    #[error("this host leads no more")]
    NotLeading,
    /// Another try may well do.
    #[error("{0}: {1}")]
    Passing(String, String),
    /// The API server refuses it.
    #[error("{message}")]
    Refused {
        /// One CamelCase word.
        reason: &'static str,
        /// What, why, and what to do.
        message: String,
    },
}

/// An object, and whether its status is meant.
type Written = (ObjectKey, bool);

/// The plan's fingerprint, since when, how often.
type Healed = (u64, Instant, u32);

/// The writer.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    leadership: Leadership,
    shared: Shared,
    /// What was written and yet came out otherwise (a webhook may insist on it, or a CRD drop a field): writing it once more
    /// would only do so for ever. The fingerprints of what was planned and of what came of it.
    insisted: Arc<Mutex<HashMap<Written, (u64, u64)>>>,
    /// How often the same plan was written over an object.
    healed: Arc<Mutex<HashMap<ObjectKey, Healed>>>,
}

impl Applier {
    /// A writer that puts what comes of its writes into the world.
    pub fn new(client: Client, leadership: Leadership, shared: Shared) -> Self {
        Self { client, leadership, shared, insisted: Arc::default(), healed: Arc::default() }
    }

    /// Makes the subject's objects what is planned, and removes what isn't planned any more.
    pub async fn apply(&self, snapshot: &Snapshot, objects: &[Object]) -> Result<(), ApplyError> {
        let planned: BTreeSet<&ObjectKey> = objects.iter().map(|object| &object.key).collect();
        let (first, last): (Vec<_>, Vec<_>) = snapshot
            .children
            .iter()
            // What somebody has copied from ours carries our labels and the service as its owner, but not our hand.
            .filter(|child| child.ours() && !child.deleting && !planned.contains(&child.key))
            .partition(|child| AUTOSCALERS.contains(&child.key.resource));
        let manager = manager(snapshot.subject.key.resource.kind);
        for child in first {
            self.delete(child).await?;
        }
        for object in objects {
            self.bring_about(snapshot, object, &manager).await?;
        }
        for child in last {
            self.delete(child).await?;
        }
        Ok(())
    }

    async fn bring_about(&self, snapshot: &Snapshot, object: &Object, manager: &str) -> Result<(), ApplyError> {
        let key = &object.key;
        let live = snapshot.child(key.resource, &key.name);
        let Some(live) = live else {
            self.free(key)?;
            self.unclaimed(&snapshot.subject, key).await?;
            // Not forced: what has come there meanwhile is somebody else's.
            let made = self.patch(key, manager, false, &object.whole()).await.map_err(|error| refused(key, &error, true))?;
            self.take(&made, object, false);
            return Ok(());
        };
        if live.deleting {
            // When it is gone we are told, and make it anew.
            return Ok(());
        }
        if live.settled(&object.body, object.fingerprint) || self.insists(key, false, object.fingerprint, live.fingerprint()) {
            return Ok(());
        }
        self.contested(object)?;
        if object.yields_replicas && live.observed.replicas_ours {
            // Were it only left out, it would fall back to its default. So another owner holds it until the autoscaler takes it.
            let held = json!({
                "apiVersion": key.resource.api_version(), "kind": key.resource.kind,
                "metadata": {"name": key.name, "namespace": key.namespace}, "spec": {"replicas": live.observed.replicas},
            });
            self.patch(key, &format!("{manager}.replicas"), true, &held).await.map_err(|error| refused(key, &error, false))?;
        }
        let made = self.patch(key, manager, true, &object.whole()).await.map_err(|error| refused(key, &error, false))?;
        self.take(&made, object, true);
        Ok(())
    }

    /// Whether the name isn't taken by an object of ours that belongs to something else.
    fn free(&self, key: &ObjectKey) -> Result<(), ApplyError> {
        match self.shared.lock().owner(key) {
            None => Ok(()),
            // The subject was deleted and made anew, and its former objects are on their way out.
            Some(None) => Err(ApplyError::Passing(key.to_string(), "it still belongs to what had the name before".to_owned())),
            Some(Some(other)) => Err(ApplyError::Refused {
                reason: "NameTaken",
                message: format!("The {key} belongs to the {other}: give one of the two another name."),
            }),
        }
    }

    /// Whether nobody else has the name, of whom we know nothing. Applying alone doesn't tell: where no field of theirs says otherwise (a
    /// ServiceAccount has none), ours would be merged into it, and it would go with the service.
    async fn unclaimed(&self, subject: &Subject, key: &ObjectKey) -> Result<(), ApplyError> {
        let request = Request::new(url(key)).get_metadata(&key.name, &GetParams::default());
        let there = match self.send(request.map_err(|error| ApplyError::Passing(key.to_string(), error.to_string()))?).await {
            Err(Sent::Api(status)) if status.code == 404 => return Ok(()),
            there => there.map_err(|error| refused(key, &error, false))?,
        };
        match there.owner() {
            // Another host has just made it, and the watch is yet to tell.
            Some(owner) if owner == subject.uid => Ok(()),
            _ => Err(ApplyError::Refused { reason: "NameTaken", message: taken(key) }),
        }
    }

    /// Whether something else changes the object back each time: to answer every time would be a war, fought with pods.
    fn contested(&self, object: &Object) -> Result<(), ApplyError> {
        let mut healed = locked(&self.healed);
        let now = Instant::now();
        let entry = healed.entry(object.key.clone()).or_insert((object.fingerprint, now, 0));
        if entry.0 != object.fingerprint || now.duration_since(entry.1) > CONTEST {
            *entry = (object.fingerprint, now, 0);
        }
        entry.2 += 1;
        if entry.2 <= HEALS {
            return Ok(());
        }
        let key = &object.key;
        let message = format!(
            "The {key} was written as planned {HEALS} times within a minute, and something else changes it back: `kubectl get {} {} -n {} -o yaml \
             --show-managed-fields` tells who.",
            key.resource.plural, key.name, key.namespace
        );
        Err(ApplyError::Refused { reason: "Contested", message })
    }

    /// Puts what came of a write into the world: the watch tells of it only later.
    fn take(&self, made: &Seen, object: &Object, existed: bool) {
        let news = self.read(object.key.resource, made);
        if let Some(child) = news.child()
            && !child.settled(&object.body, object.fingerprint)
        {
            let differs = self.insist(&object.key, false, object.fingerprint, child.fingerprint());
            if differs {
                tracing::info!(object = %object.key, "the API server keeps the object otherwise than it was written");
            }
        }
        // Of what we have just made there is nothing to learn. An object that existed may have changed by others too.
        self.answered(news, existed);
    }

    fn read(&self, resource: &'static Resource, made: &Seen) -> News {
        News::read(resource, made.text(), |key| self.shared.lock().child(key))
    }

    /// Puts an answer into the world. Whether it touches anybody is for the writer to say.
    fn answered(&self, news: News, touches: bool) {
        self.shared.change(|world| {
            let before = world.take_touched();
            world.answer(news);
            if !touches {
                world.take_touched();
            }
            world.touch(before);
        });
    }

    async fn delete(&self, child: &Child) -> Result<(), ApplyError> {
        let preconditions = Preconditions { uid: Some(child.uid.clone()), resource_version: None };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let request = Request::new(url(&child.key)).delete(&child.key.name, &params);
        let request = request.map_err(|error| ApplyError::Passing(child.key.to_string(), error.to_string()))?;
        match self.send(request).await {
            Ok(_) => Ok(()),
            Err(Sent::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            Err(error) => Err(refused(&child.key, &error, false)),
        }
    }

    async fn patch(&self, key: &ObjectKey, manager: &str, force: bool, whole: &Value) -> Result<Seen, Sent> {
        let params = PatchParams { force, field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let request = Request::new(url(key)).patch(&key.name, &params, &Patch::Apply(whole));
        self.send(request.map_err(|error| Sent::Passing(error.to_string()))?).await
    }

    /// Writes the status of a subject. False if that would change nothing.
    pub async fn status(&self, subject: &Subject, before: &Value, status: &Value) -> Result<bool, ApplyError> {
        let (planned, live) = (fingerprint(&status.to_string()), fingerprint(&before.to_string()));
        if before == status || self.insists(&subject.key, true, planned, live) {
            return Ok(false);
        }
        let ObjectKey { resource, name, .. } = &subject.key;
        // Not by server-side apply: that refuses a field that the CRD doesn't have, and OME's own has no place for some of ours. Those are
        // dropped from a merge patch. The uid keeps us from telling of one what is true of another.
        let patch = json!({"metadata": {"uid": subject.uid}, "status": difference(before, status)});
        let params = PatchParams { field_manager: Some(manager(resource.kind)), ..PatchParams::default() };
        let request = Request::new(url(&subject.key)).patch_subresource("status", name, &params, &Patch::Merge(&patch));
        let request = request.map_err(|error| ApplyError::Passing(subject.key.to_string(), error.to_string()))?;
        let made = match self.send(request).await {
            // It is gone, or another one has its name: whoever watches it is told.
            Err(Sent::Api(answer)) if answer.code == 404 || answer.code == 409 => return Ok(false),
            made => made.map_err(|error| refused(&subject.key, &error, false))?,
        };
        let news = self.read(resource, &made);
        let after = news.subject().map(Subject::status).unwrap_or_default();
        if after != *status {
            self.insist(&subject.key, true, planned, fingerprint(&after.to_string()));
        }
        // That is news only if somebody else has changed it too.
        let touches = !news.subject().is_some_and(|made| made.asks_the_same(subject));
        self.answered(news, touches);
        Ok(true)
    }

    /// Sends a request, if we lead.
    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<Seen, Sent> {
        if !self.leadership.held() {
            return Err(Sent::NotLeading);
        }
        match timeout(WRITE_WITHIN, self.client.request::<Seen>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(Sent::Api(status)),
            Ok(Err(error)) => Err(Sent::Passing(sentence(&error))),
            Err(_) => Err(Sent::Passing(format!("the API server took longer than {} s", WRITE_WITHIN.as_secs()))),
        }
    }

    fn insists(&self, key: &ObjectKey, status: bool, planned: u64, live: u64) -> bool {
        let insisted = locked(&self.insisted);
        insisted.get(&(key.clone(), status)) == Some(&(planned, live))
    }

    /// Notes it, and says whether that is new.
    fn insist(&self, key: &ObjectKey, status: bool, planned: u64, live: u64) -> bool {
        let mut insisted = locked(&self.insisted);
        insisted.insert((key.clone(), status), (planned, live)) != Some((planned, live))
    }

    /// Forgets a subject that is gone, and its objects.
    pub fn forget(&self, subject: &ObjectKey) {
        let gone = |key: &ObjectKey| key.namespace == subject.namespace && key.name.starts_with(&subject.name);
        locked(&self.insisted).retain(|(key, _), _| !gone(key));
        locked(&self.healed).retain(|key, _| !gone(key));
    }
}

/// What came of a request that did not succeed.
enum Sent {
    NotLeading,
    Api(Box<kube::core::Status>),
    Passing(String),
}

fn url(key: &ObjectKey) -> String {
    let ObjectKey { resource, namespace, .. } = key;
    let api = if resource.group.is_empty() { format!("/api/{}", resource.version) } else { format!("/apis/{}", resource.api_version()) };
    if resource.namespaced { format!("{api}/namespaces/{namespace}/{}", resource.plural) } else { format!("{api}/{}", resource.plural) }
}

fn taken(key: &ObjectKey) -> String {
    format!("There is a {key} already that isn't this service's: delete it or give the service another name.")
}

/// What an answer of the API server means for a user.
fn refused(key: &ObjectKey, error: &Sent, creating: bool) -> ApplyError {
    let status = match error {
        Sent::NotLeading => return ApplyError::NotLeading,
        Sent::Passing(why) => return ApplyError::Passing(key.to_string(), why.clone()),
        Sent::Api(status) => status,
    };
    let said = status.message.trim_end_matches('.');
    let (reason, message) = match status.code {
        409 if creating => ("NameTaken", format!("{} The API server says: {said}.", taken(key))),
        409 | 429 | 503.. => return ApplyError::Passing(key.to_string(), said.to_owned()),
        // Mostly a webhook that doesn't answer. It is tried again as well, but whoever looks should know.
        500..=502 => ("ApiServerError", format!("The {key} can't be written: {said}.")),
        403 => ("Forbidden", format!("The API server refuses the {key}: {said}.")),
        404 => ("NotFound", format!("The {key} can't be written: {said}.")),
        422 if said.contains("Only one reference can have Controller set to true") => {
            ("NameTaken", format!("The {key} belongs to something else: delete it or give the service another name."))
        }
        _ => ("Invalid", format!("The API server takes the {key} for invalid: {said}.")),
    };
    ApplyError::Refused { reason, message }
}
