//! Follows a controller's record of the active policy set.

use super::{LoadedPlugin, LoadedSet, is_builtin, needs_namespace};
use crate::{
    endpoint_picker::{cluster::status_code, policy::ScoringPolicy, pool::Pool},
    keeper::record::{self, ActiveRecord, Recorded},
    load::Loader,
    problem::sentence,
    revision::{RevisionError, Revisions},
    trust::Trust,
    watch::config_map::{State, states},
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use pointsman_crds::policy::{
    plugin::{PluginFailurePolicy, PluginSignature, PolicyPoint},
    set::PolicySetPlugin,
};
use pointsman_sandbox::{builtin::BUILTINS, digest::Digest, point::Subject};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{sync::watch, task::spawn_blocking, time::sleep};

/// The delay before plugins that couldn't be loaded are retried.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The maximum number of plugins at scheduling-scoring in a set.
const MAX_PLUGINS: usize = 256;

/// The log text if a set can't be followed.
const FORMER: &str = "the active policy set can't be used; the previous policy set stays active";

/// The source of a policy set.
pub struct SetSource {
    /// The cluster.
    pub client: Client,
    /// The controller's namespace.
    pub namespace: String,
    /// The trusted signatures of plugins.
    pub trust: Trust,
    /// Loads plugins.
    pub loader: Arc<Loader>,
}

impl fmt::Debug for SetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetSource").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// The newest loaded set.
pub type Newest = Option<Arc<LoadedSet>>;

impl SetSource {
    /// Loads the recorded set whenever it changes, and retries failed plugins after a while. It never ends by itself.
    pub async fn follow(self, newest: watch::Sender<Newest>) {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let revisions = Revisions::new(self.client.clone(), &self.namespace);
        let mut records = states(api, record::NAME);
        let mut complaint = String::new();
        let mut record: Option<ActiveRecord> = None;
        let mut known: Newest = None;
        loop {
            let is_incomplete = known.as_ref().is_some_and(|set| set.is_incomplete());
            tokio::select! {
                state = records.next() => {
                    let Some(state) = state else { return };
                    match self.record(state) {
                        Ok(read) => {
                            complaint.clear();
                            record = Some(read);
                        }
                        Err(error) => {
                            if complaint != error {
                                tracing::warn!(namespace = self.namespace, name = record::NAME, error, "{FORMER}");
                                complaint = error;
                            }
                            continue;
                        }
                    }
                }
                () = sleep(RETRY_DELAY), if is_incomplete => {}
            }
            let Some(record) = &record else { continue };
            let set = Arc::new(self.load(record, known.as_deref(), &revisions).await);
            known = Some(Arc::clone(&set));
            newest.send_replace(Some(set));
        }
    }

    /// The record in a ConfigMap, or its problem and the remedy.
    fn record(&self, state: State) -> Result<ActiveRecord, String> {
        let Self { namespace, .. } = self;
        let map = state.map_err(|error| match status_code(&error) {
            Some(403) => {
                let rule =
                    format!("{{apiGroups: [\"\"], resources: [configmaps], resourceNames: [{}], verbs: [get, list, watch]}}", record::NAME);
                format!(
                    "the endpoint picker has no right to watch the record: add the rule {rule} to its Role in the namespace {namespace}"
                )
            }
            _ => sentence(&error),
        })?;
        let map = map.ok_or("the record doesn't exist: check --policy-set, and that a Pointsman controller runs in that namespace")?;
        let record = ActiveRecord::from_config_map(&map)
            .map_err(|error| format!("{error}: check that the picker isn't older than the controller of that namespace"))?;
        let number = recorded(&record).count();
        if number > MAX_PLUGINS {
            return Err(format!("it has {number} plugins at scheduling-scoring; the limit of a picker is {MAX_PLUGINS}: remove some"));
        }
        Ok(record)
    }

    /// Loads a set; loaded plugins are reused.
    async fn load(&self, record: &ActiveRecord, known: Option<&LoadedSet>, revisions: &Revisions) -> LoadedSet {
        let mut plugins = Vec::new();
        for recorded in recorded(record) {
            let same = known.and_then(|known| known.find(recorded));
            plugins.push(if let Some(LoadedPlugin { policy, previous, .. }) = same {
                LoadedPlugin { recorded: recorded.clone(), policy: policy.clone(), previous: previous.clone() }
            } else {
                let plugin = self.plugin(recorded, revisions).await;
                plugin.complain(known);
                plugin
            });
        }
        LoadedSet::new(&record.digest, plugins)
    }

    async fn plugin(&self, recorded: &Recorded, revisions: &Revisions) -> LoadedPlugin {
        let bound = &recorded.active;
        let policy = if is_builtin(bound) || bound.selection.as_ref().is_some_and(needs_namespace) {
            Ok(None)
        } else {
            self.policy(bound, recorded.signature.as_ref(), revisions).await
        };
        let former = recorded.previous.as_ref().filter(|_| bound.failure_policy == PluginFailurePolicy::Previous);
        let previous = match former.filter(|_| matches!(policy, Ok(Some(_)))) {
            None => None,
            Some(former) => self.policy(&former.plugin, former.signature.as_ref(), revisions).await.unwrap_or_else(|error| {
                tracing::warn!(plugin = bound.name, error, "the plugin's previous revision can't be loaded");
                None
            }),
        };
        LoadedPlugin { recorded: recorded.clone(), policy, previous }
    }

    /// A plugin from this picker's built-in bytes, or from the revision.
    async fn policy(
        &self,
        bound: &PolicySetPlugin,
        signature: Option<&PluginSignature>,
        revisions: &Revisions,
    ) -> Result<Option<Arc<ScoringPolicy>>, String> {
        let digest: Digest = bound.digest.parse().map_err(|error| format!("{error}"))?;
        let brought = BUILTINS.iter().find(|builtin| Digest::hash(builtin.bytes) == digest);
        let bytes = if let Some(builtin) = brought {
            builtin.bytes.to_vec()
        } else {
            let bytes = revisions.load_for(&bound.name, &digest).await.map_err(|error| self.with_remedy(&error))?;
            // Anyone who can write into the controller's namespace can write records and revisions, but can't sign them.
            self.trust.check_kept(&bytes, &digest, signature).map_err(|error| error.to_string())?;
            bytes
        };
        let (loader, bound) = (Arc::clone(&self.loader), bound.clone());
        let loading = spawn_blocking(move || ScoringPolicy::bind(&loader, bound, &bytes)).await.map_err(|error| error.to_string())?;
        loading.map(|policy| policy.map(Arc::new)).map_err(|error| error.to_string())
    }

    fn with_remedy(&self, error: &RevisionError) -> String {
        match error {
            RevisionError::Cluster { error: api, .. } if matches!(&**api, kube::Error::Api(status) if status.code == 403) => {
                let rule = "{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}";
                format!("{error}; add the rule {rule} to the picker's Role in the namespace {}", self.namespace)
            }
            _ => error.to_string(),
        }
    }
}

/// The recorded plugins at scheduling-scoring.
fn recorded(record: &ActiveRecord) -> impl Iterator<Item = &Recorded> {
    record.plugins.values().filter(|recorded| recorded.active.points.contains(&PolicyPoint::SchedulingScoring))
}

impl LoadedPlugin {
    /// Logs why it doesn't score, unless that was logged.
    fn complain(&self, known: Option<&LoadedSet>) {
        let bound = &self.recorded.active;
        let (plugin, digest) = (&bound.name, &bound.digest);
        if bound.selection.as_ref().is_some_and(needs_namespace) {
            let what = "a plugin of the policy set scores no endpoints: its match.namespaceSelector has labels that an endpoint picker \
                can't read; select namespaces by the label kubernetes.io/metadata.name";
            tracing::warn!(plugin, digest, "{what}");
        }
        let Err(error) = &self.policy else { return };
        let before = known.and_then(|known| known.plugins.iter().find(|known| known.recorded.active == *bound));
        if before.is_none_or(|before| before.policy.as_ref().err() != Some(error)) {
            tracing::warn!(plugin, digest, error, "a plugin of the policy set can't be loaded; trying again");
        }
    }
}

/// Sets the plugins of the newest set that select the pool as the scorers of its endpoints. If one of these can't be loaded, the previous
/// scorers stay. It never ends by itself.
pub async fn apply(mut newest: watch::Receiver<Newest>, pool: Arc<Pool>) {
    let mut subject: Option<Arc<Subject>> = None;
    let mut complaint = String::new();
    loop {
        let set = newest.borrow_and_update().clone();
        if let (Some(set), Some(subject)) = (&set, &subject) {
            match set.for_pool(subject) {
                Ok(scorers) => {
                    complaint.clear();
                    if pool.policies().set.as_ref().is_none_or(|before| !before.is_same(&scorers)) {
                        let plugins = scorers.plugins().collect::<Vec<_>>().join(", ");
                        tracing::info!(pool = pool.name(), set = &**scorers.digest(), plugins, "another policy set is active");
                        let scorers = Arc::new(scorers);
                        pool.update_policies(|policies| policies.set = Some(Arc::clone(&scorers)));
                    }
                }
                Err(error) => {
                    if complaint != error {
                        tracing::warn!(pool = pool.name(), error, "{FORMER}");
                        complaint = error;
                    }
                }
            }
        }
        tokio::select! {
            changed = newest.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            other = pool.view().subject_other_than(subject.as_ref()) => subject = other,
        }
    }
}
