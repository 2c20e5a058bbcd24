//! Follows the record of the active set, for a process that calls policies and writes nothing. It loads only the members of one policy
//! point: the other members and the rules are placeholders without code, so that the set has its recorded digest.

use super::{
    load_record::Loading,
    record::{self, ActiveRecord},
};
use crate::{
    load::Loader,
    problem::{is_forbidden, sentence},
    trust::Trust,
    watch::config_map::{State, states},
};
use futures::StreamExt;
use kube::{Api, Client};
use pointsman_core::{
    decide::{
        Listener, PluginHealthEvent, Policies,
        health::{HealthChange, QuarantineScope},
        member::Member,
        set::ActiveSet,
    },
    rules::{Rules, rule::Rule},
};
use pointsman_crds::policy::plugin::PolicyPoint;
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};

/// The delay before plugins that couldn't be loaded are retried.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Why members of other points, and rules, have no code here.
const UNASKED: &str = "this process doesn't ask it";

/// The source of a policy set.
pub struct RecordSource {
    /// The cluster.
    pub client: Client,
    /// The controller's namespace.
    pub namespace: String,
    /// The trusted signatures of plugins.
    pub trust: Trust,
    /// Loads plugins.
    pub loader: Arc<Loader>,
    /// The policy point at which they are called.
    pub point: PolicyPoint,
    /// The role that grants the right to read the record, which is the remedy if the right is missing.
    pub role: String,
}

impl fmt::Debug for RecordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSource").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// The policies that are followed.
#[derive(Debug)]
pub struct Followed {
    /// The active policies.
    pub policies: Arc<Policies>,
    /// The reason why the recorded policies aren't active, or none.
    pub obstacle: watch::Receiver<Option<String>>,
}

/// Starts with the built-in policies, which are active until there is a record. The future keeps the set equal to the record, and never
/// ends by itself.
pub fn follow(source: RecordSource, builtins: ActiveSet) -> (Followed, impl Future<Output = ()> + Send) {
    let (mut follower, followed) = Follower::new(source, builtins);
    let run = async move {
        let mut records = states(Api::namespaced(follower.source.client.clone(), &follower.source.namespace), record::NAME);
        loop {
            tokio::select! {
                state = records.next() => {
                    let Some(state) = state else { return };
                    follower.see(state).await;
                }
                () = sleep(RETRY_DELAY), if follower.is_incomplete => follower.load().await,
            }
        }
    };
    (followed, run)
}

struct Follower {
    source: RecordSource,
    loading: Loading,
    policies: Arc<Policies>,
    record: Option<ActiveRecord>,
    /// The digest of the active record. None until the first: the built-in policies are active.
    in_force: Option<String>,
    /// Whether a plugin of this point couldn't be loaded.
    is_incomplete: bool,
    /// The text that was logged last.
    complaint: String,
    ready: watch::Sender<Option<String>>,
}

impl Follower {
    fn new(source: RecordSource, builtins: ActiveSet) -> (Self, Followed) {
        let (ready, obstacle) = watch::channel(Some("the active policy set hasn't been read yet".to_owned()));
        let policies = Arc::new(Policies::new(builtins, Arc::new(HealthLog)));
        let RecordSource { client, namespace, trust, loader, .. } = &source;
        let loading = Loading::reading(client.clone(), namespace, Arc::clone(loader), policies.active(), trust.clone());
        let followed = Followed { policies: Arc::clone(&policies), obstacle };
        let follower =
            Self { source, loading, policies, record: None, in_force: None, is_incomplete: false, complaint: String::new(), ready };
        (follower, followed)
    }

    /// Handles the current state of the record.
    async fn see(&mut self, state: State) {
        let namespace = &self.source.namespace;
        let map = match state {
            Ok(map) => map,
            Err(error) if is_forbidden(&error) => {
                let why = format!("the record of the active policy set can't be read: {}", self.source.role);
                return self.complain(why);
            }
            Err(error) => return self.complain(format!("the record of the active policy set can't be read: {}", sentence(&error))),
        };
        let Some(map) = map else {
            if self.in_force.is_some() {
                let why = format!("the record {namespace}/{} is gone", record::NAME);
                return self.complain(why);
            }
            tracing::info!(namespace, name = record::NAME, "there is no record of a policy set: the built-in policies are active");
            self.ready.send_replace(None);
            return;
        };
        match ActiveRecord::from_config_map(&map) {
            Ok(record) => {
                self.record = Some(record);
                self.load().await;
            }
            Err(error) => {
                let remedy = "check that this process isn't older than the controller of that namespace";
                let why = format!("the record {namespace}/{}: {error}: {remedy}", record::NAME);
                self.complain(why);
            }
        }
    }

    /// Logs once why there is no new set. The previous set stays active; if there is none, this process isn't ready.
    fn complain(&mut self, why: String) {
        if self.complaint != why {
            tracing::warn!("{why}; the previous policy set stays active");
            self.complaint.clone_from(&why);
        }
        if self.in_force.is_none() && self.ready.borrow().is_some() {
            self.ready.send_replace(Some(why));
        }
    }

    /// Activates the recorded set, unless it is active.
    async fn load(&mut self) {
        let Some(record) = self.record.clone() else { return };
        let active = self.policies.active();
        let loading = self.loading.with_active(Arc::clone(&active));
        let (mut members, mut missing) = (Vec::new(), BTreeMap::new());
        for (name, recorded) in &record.plugins {
            if !recorded.active.points.contains(&self.source.point) {
                members.push(Arc::new(Member::unloadable(recorded.active.clone(), UNASKED.to_owned())));
                continue;
            }
            let (member, why) = loading.member_or_absent(recorded).await;
            missing.extend(why.map(|why| (name.clone(), why)));
            members.push(member);
        }
        let rules = record.rules.values().map(|recorded| Arc::new(Rule::absent(recorded.active.clone(), UNASKED.to_owned())));
        let set = ActiveSet::new(members).ruled(Rules::new(rules.collect(), None));
        self.is_incomplete = !missing.is_empty();
        if let Some((plugin, why)) = missing.first_key_value() {
            let complaint = format!("the plugin {plugin} of the policy set {} can't be loaded: {why}", record.digest);
            if self.in_force.as_ref().is_some_and(|in_force| *in_force != record.digest) {
                return self.complain(complaint);
            }
            if self.complaint != complaint {
                tracing::warn!("{complaint}; its failurePolicy applies");
                self.complaint = complaint;
            }
        } else {
            self.complaint.clear();
        }
        if self.in_force.as_ref() != Some(&record.digest) {
            let plugins = set.members().iter().filter(|member| member.bound.points.contains(&self.source.point));
            let plugins = plugins.map(|member| member.name()).collect::<Vec<_>>().join(", ");
            tracing::info!(set = record.digest, plugins, "the recorded policy set is active");
        }
        self.policies.activate(Arc::new(set));
        self.in_force = Some(record.digest);
        self.ready.send_replace(None);
    }
}

/// Logs the health of plugins, because this process writes no statuses.
#[derive(Debug)]
struct HealthLog;

impl Listener for HealthLog {
    fn heard(&self, news: PluginHealthEvent) {
        let PluginHealthEvent { plugin, turn, .. } = news;
        match turn {
            HealthChange::Failed(error) => tracing::warn!(plugin, %error, "a plugin's call failed"),
            HealthChange::Quarantined(scope, pause, error) => {
                tracing::warn!(plugin, scope = scope_name(&scope), seconds = pause.as_secs(), %error, "a plugin is quarantined");
            }
            HealthChange::Recovered(scope) => tracing::info!(plugin, scope = scope_name(&scope), "a plugin is no longer quarantined"),
        }
    }

    fn changed(&self) {}
}

fn scope_name(scope: &QuarantineScope) -> &str {
    scope.namespace().unwrap_or("all namespaces")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::record::{Origin, Recorded, RecordedRule};
    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use kube::{core::Status, runtime::watcher};
    use pointsman_crds::policy::set::{PolicySetPlugin, PolicySetRule};
    use pointsman_sandbox::{compile::Compilers, engine::Engines, point::describe::Description};
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A follower that reaches no cluster and never uses its compilers.
    fn follower(folder: &TempDir) -> (Follower, Followed) {
        let compilers = Compilers::new(PathBuf::from("/nonexistent"), folder.path()).unwrap();
        let source = RecordSource {
            client: Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap(),
            namespace: "ours".to_owned(),
            trust: Trust::default(),
            loader: Arc::new(Loader::new(Arc::new(Engines::with_slots(1).unwrap()), compilers)),
            point: PolicyPoint::SchedulingScoring,
            role: "apply the role".to_owned(),
        };
        Follower::new(source, ActiveSet::new(Vec::new()))
    }

    fn recorded(name: &str, point: PolicyPoint) -> Recorded {
        let active =
            PolicySetPlugin { name: name.to_owned(), digest: "none".to_owned(), points: vec![point], ..PolicySetPlugin::default() };
        Recorded {
            active,
            at: Time(Timestamp::from_second(1).unwrap()),
            signature: None,
            strategy: None,
            previous: None,
            origin: Origin::default(),
        }
    }

    fn record(digest: &str, plugins: Vec<Recorded>) -> ActiveRecord {
        ActiveRecord {
            digest: digest.to_owned(),
            plugins: plugins.into_iter().map(|recorded| (recorded.active.name.clone(), recorded)).collect(),
            ..ActiveRecord::default()
        }
    }

    fn map(record: &ActiveRecord) -> Arc<ConfigMap> {
        Arc::new(record.to_config_map("ours", None).unwrap())
    }

    #[tokio::test]
    async fn without_a_record_the_built_in_policies_decide_and_one_that_is_lost_changes_nothing() {
        let folder = TempDir::new().unwrap();
        let (mut follower, followed) = follower(&folder);
        assert!(followed.obstacle.borrow().is_some());
        follower.see(Ok(None)).await;
        assert_eq!(*followed.obstacle.borrow(), None);
        follower.see(Ok(Some(map(&record("one", vec![recorded("a", PolicyPoint::PodTemplating)]))))).await;
        let names = |followed: &Followed| followed.policies.active().members().iter().map(|m| m.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&followed), ["a"]);
        follower.see(Ok(None)).await;
        follower.see(Ok(Some(Arc::default()))).await;
        assert_eq!((names(&followed), followed.obstacle.borrow().clone()), (vec!["a".to_owned()], None));
    }

    #[tokio::test]
    async fn a_set_keeps_its_digest_though_only_one_point_is_loaded() {
        let folder = TempDir::new().unwrap();
        let (mut follower, followed) = follower(&folder);
        let rule = PolicySetRule { name: "r".to_owned(), ..PolicySetRule::default() };
        let mut record = record("one", vec![recorded("a", PolicyPoint::PodTemplating), recorded("b", PolicyPoint::RuntimeSelection)]);
        record.rules.insert("r".to_owned(), RecordedRule { active: rule.clone(), strategy: None, origin: Origin::default() });
        follower.see(Ok(Some(map(&record)))).await;
        let members =
            ["a", "b"].map(|name| Arc::new(Member::new(record.plugins[name].active.clone(), Description::default(), None, None).unwrap()));
        let whole = ActiveSet::new(members.to_vec()).ruled(Rules::new(vec![Arc::new(Rule::absent(rule, String::new()))], None));
        assert_eq!(followed.policies.active().digest(), whole.digest());
        assert!(!follower.is_incomplete, "nobody is asked here");
    }

    #[tokio::test]
    async fn while_a_plugin_cannot_be_loaded_the_set_before_decides_and_at_the_beginning_its_failure_policy() {
        let folder = TempDir::new().unwrap();
        let (mut follower, followed) = follower(&folder);
        follower.see(Ok(Some(map(&record("one", vec![recorded("a", PolicyPoint::SchedulingScoring)]))))).await;
        let active = followed.policies.active();
        assert!(follower.is_incomplete && active.member("a").unwrap().missing().is_some());
        assert_eq!(*followed.obstacle.borrow(), None);
        follower.see(Ok(Some(map(&record("two", vec![recorded("b", PolicyPoint::SchedulingScoring)]))))).await;
        assert_eq!((followed.policies.active().digest(), follower.is_incomplete), (active.digest(), true));
    }

    #[tokio::test]
    async fn a_missing_right_is_named_with_its_remedy_until_something_is_known() {
        let folder = TempDir::new().unwrap();
        let (mut follower, followed) = follower(&folder);
        let refused = || watcher::Error::InitialListFailed(kube::Error::Api(Box::new(Status::failure("no", "Forbidden").with_code(403))));
        follower.see(Err(refused())).await;
        assert!(followed.obstacle.borrow().as_ref().unwrap().ends_with("apply the role"));
        follower.see(Ok(None)).await;
        follower.see(Err(refused())).await;
        assert_eq!(*followed.obstacle.borrow(), None, "what decided before goes on to decide");
    }
}
