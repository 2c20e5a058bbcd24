//! Loads the active set from the record: on every host, and on the leader at startup.

use super::{
    Keeper, Options, TaskResult, objects,
    record::{self, ActiveRecord, Recorded},
};
use crate::{
    load::Loader,
    problem::sentence,
    revision::Revisions,
    source::{SOURCES, config_map::Namespaces},
    trust::Trust,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt};
use pointsman_core::{
    decide::{member::Member, set::ActiveSet},
    rules::{
        Rules,
        rule::{Rule, bind},
        shipped,
    },
};
use pointsman_crds::policy::{
    plugin::{PluginFailurePolicy, PluginSignature},
    set::{PolicySet, PolicySetPlugin, PolicySetRule},
};
use pointsman_sandbox::{builtin::BUILTINS, digest::Digest};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::time::Instant;

/// A record whose plugins and rules are loaded.
#[derive(Debug)]
pub(super) struct Adopted {
    digest: String,
    members: Vec<Arc<Member>>,
    rules: Rules,
    /// The plugins that couldn't be loaded, with the reasons.
    missing: BTreeMap<String, String>,
}

impl Keeper {
    /// Handles the current record of the cluster.
    pub(super) fn see_record(&mut self, config_map: Option<&ConfigMap>, listed: Option<Instant>) {
        self.known.record = true;
        let version = config_map.and_then(ResourceExt::resource_version);
        let number = |version: &Option<String>| objects::number(version.as_ref());
        if objects::is_outdated(number(&version), number(&self.record_version), listed, self.record_answered.as_ref()) {
            return;
        }
        self.record_version = version;
        let read = config_map.map_or_else(|| Err("it doesn't exist".to_owned()), ActiveRecord::from_config_map);
        match read {
            Ok(record) => self.record = record,
            // The active set stays active, and the leader writes the record again.
            Err(error) => {
                if self.in_force.is_some() || config_map.is_some() {
                    let name = record::NAME;
                    tracing::error!(namespace = self.options.namespace, name, "the record of the active policy set is lost: {error}");
                }
                let lost = std::mem::take(&mut self.record);
                if !lost.plugins.is_empty() {
                    self.lost = Some(lost);
                }
                self.requeue_all();
            }
        }
    }

    /// Starts to load the recorded set, unless it is active. Returns whether the caller must wait for it.
    pub(super) fn start_adoption(&mut self) -> bool {
        let active = self.policies.active();
        let in_force = self.in_force.as_ref() == Some(&self.record.digest);
        let complete = active.members().iter().all(|member| member.missing().is_none())
            && active.rules().all().iter().all(|rule| rule.missing().is_none());
        if self.record.plugins.is_empty() || (in_force && complete) {
            return false;
        }
        let due = self.again.is_none();
        if due && self.adopting.as_ref() != Some(&self.record.digest) {
            self.adopting = Some(self.record.digest.clone());
            let (record, loading, done) = (self.record.clone(), self.loading(), self.done.clone());
            tokio::spawn(async move {
                let adopted = adopt(&record, &loading).await;
                done.send(TaskResult::Adopted(Box::new(adopted))).ok();
            });
        }
        // If the set is only incomplete, its source may also complete it.
        !in_force
    }

    /// The inputs for loading plugins.
    pub(super) fn loading(&self) -> Loading {
        Loading {
            active: self.policies.active(),
            loader: Arc::clone(&self.loader),
            revisions: Arc::clone(&self.revisions),
            options: Arc::clone(&self.options),
        }
    }

    /// Activates a loaded record, if it is still the current one.
    pub(super) fn adopted(&mut self, adopted: Adopted) {
        let Adopted { digest, members, rules, missing } = adopted;
        self.adopting.take_if(|adopting| *adopting == digest);
        if digest != self.record.digest {
            return;
        }
        // On the leader, the sources may supply a missing plugin; every other host waits for that.
        let last_good = self.in_force.as_ref().is_some_and(|in_force| *in_force != digest) && !self.leadership.held();
        for (plugin, why) in &missing {
            let what = if last_good { "the previous set stays active" } else { "its failurePolicy applies" };
            tracing::error!(plugin, set = digest, "the plugin's active revision can't be loaded; {what}: {why}");
        }
        let unruled = rules.all().iter().any(|rule| rule.missing().is_some());
        for (rule, why) in rules.all().iter().filter_map(|rule| Some((rule.name(), rule.missing()?))) {
            tracing::error!(rule, set = digest, "this host can't evaluate the rule, and its failurePolicy applies: {why}");
        }
        if unruled {
            self.try_again();
        }
        if !missing.is_empty() {
            self.try_again();
            if last_good {
                return;
            }
        }
        let active = self.policies.active();
        // A missing plugin may have been supplied meanwhile.
        let members: Vec<_> = members
            .into_iter()
            .map(|member| match active.member(member.name()) {
                Some(mended) if member.missing().is_some() && mended.missing().is_none() && mended.bound == member.bound => {
                    Arc::clone(mended)
                }
                _ => member,
            })
            .collect();
        let set = ActiveSet::new(members).ruled(rules);
        if self.in_force.as_ref() == Some(&digest) && missing_in(&set) == missing_in(&active) {
            return;
        }
        tracing::info!(set = digest, plugins = set.members().len(), "the recorded policy set is active");
        // The loaded previous sets that subjects may still be on.
        let place = |set: &ActiveSet| self.record.formers.iter().position(|digest| *digest == set.digest().to_string());
        let loaded = self.policies.previous_sets();
        let known = [Arc::clone(&active)].into_iter().chain(loaded.iter().cloned());
        let mut formers: Vec<Arc<ActiveSet>> = known.filter(|set| place(set).is_some()).collect();
        formers.sort_by_key(|set| place(set));
        formers.dedup_by_key(|set| *set.digest());
        self.policies.set_formers(formers);
        if active.digest() != set.digest() {
            self.pacer.expect_new_set();
        }
        self.policies.activate(Arc::new(set));
        self.in_force = Some(digest);
        if self.leading {
            // Another host has written the record: the PolicyPlugins may differ from it.
            self.requeue_all();
        }
    }
}

/// The plugins and rules of a set that can't be loaded, with the reasons.
fn missing_in(set: &ActiveSet) -> Vec<(&str, &str)> {
    let members = set.members().iter().filter_map(|member| Some((member.name(), member.missing()?)));
    members.chain(set.rules().all().iter().filter_map(|rule| Some((rule.name(), rule.missing()?)))).collect()
}

/// The inputs for loading plugins and rules.
pub(super) struct Loading {
    active: Arc<ActiveSet>,
    loader: Arc<Loader>,
    revisions: Arc<Revisions>,
    options: Arc<Options>,
}

async fn adopt(record: &ActiveRecord, loading: &Loading) -> Adopted {
    let mut members = Vec::new();
    let mut missing = BTreeMap::new();
    for (name, recorded) in &record.plugins {
        let (member, why) = loading.member_or_absent(recorded).await;
        missing.extend(why.map(|why| (name.clone(), why)));
        members.push(member);
    }
    let recorded: Vec<PolicySetRule> = record.rules.values().map(|recorded| recorded.active.clone()).collect();
    let rules = loading.rules(&recorded).await;
    Adopted { digest: record.digest.clone(), members, rules, missing }
}

impl Loading {
    /// The inputs for a command that only reads a set.
    pub(super) fn reading(client: Client, namespace: &str, loader: Arc<Loader>, active: Arc<ActiveSet>, trust: Trust) -> Self {
        let options = Options {
            namespace: namespace.to_owned(),
            identity: String::new(),
            directory: None,
            namespaces: Namespaces::default(),
            sources: SOURCES,
            trust,
            enabled_rules: BTreeSet::new(),
            strategy: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Self { active, loader, revisions: Arc::new(Revisions::new(client, namespace)), options: Arc::new(options) }
    }

    /// The same inputs for another active set.
    pub(super) fn with_active(&self, active: Arc<ActiveSet>) -> Self {
        let Self { loader, revisions, options, .. } = self;
        Self { active, loader: Arc::clone(loader), revisions: Arc::clone(revisions), options: Arc::clone(options) }
    }

    /// A recorded plugin with its fallback. If it can't be loaded, it becomes a placeholder, returned with the reason.
    pub(super) async fn member_or_absent(&self, recorded: &Recorded) -> (Arc<Member>, Option<String>) {
        match self.member(&recorded.active, recorded.signature.as_ref()).await {
            Ok(member) => (self.with_previous(member, recorded).await, None),
            Err(why) => {
                let (loader, bound) = (Arc::clone(&self.loader), recorded.active.clone());
                let absent = tokio::task::spawn_blocking({
                    let why = why.clone();
                    move || loader.absent(bound, why)
                });
                let absent = absent.await.unwrap_or_else(|_| Member::unloadable(recorded.active.clone(), why.clone()));
                (self.with_previous(Arc::new(absent), recorded).await, Some(why))
            }
        }
    }

    /// Adds a member's fallback, if its failure policy requires one.
    async fn with_previous(&self, member: Arc<Member>, recorded: &Recorded) -> Arc<Member> {
        let former = recorded.previous.as_ref().filter(|_| recorded.active.failure_policy == PluginFailurePolicy::Previous);
        let Some(former) = former.filter(|_| member.previous.is_none()) else { return member };
        match self.member(&former.plugin, former.signature.as_ref()).await {
            // The fallback itself has no fallback.
            Ok(previous) => Arc::new(member.after(Some(Arc::new(previous.after(None))))),
            Err(why) => {
                tracing::warn!(plugin = member.name(), "the plugin's previous revision can't be loaded: {why}");
                member
            }
        }
    }

    /// Frozen rules: already active ones, or compiled. One that can't be compiled becomes a placeholder.
    pub(super) async fn rules(&self, frozen: &[PolicySetRule]) -> Rules {
        let mut rules = Vec::new();
        for bound in frozen {
            let known = self.active.rules().find(&bound.name).filter(|rule| rule.bound == *bound && rule.missing().is_none());
            if let Some(known) = known {
                rules.push(Arc::clone(known));
                continue;
            }
            let (loader, wanted) = (Arc::clone(&self.loader), bound.clone());
            let compiled = tokio::task::spawn_blocking(move || loader.rule(wanted)).await;
            let compiled = compiled.map_err(|error| error.to_string()).and_then(|outcome| outcome.map_err(|error| error.to_string()));
            rules.push(Arc::new(compiled.unwrap_or_else(|why| Rule::absent(bound.clone(), why))));
        }
        let loader = Arc::clone(&self.loader);
        let evaluator =
            if rules.is_empty() { None } else { tokio::task::spawn_blocking(move || loader.evaluator().ok()).await.ok().flatten() };
        Rules::new(rules, evaluator)
    }

    /// A recorded plugin: already active, from this host's built-in bytes, or from the revision.
    async fn member(&self, bound: &PolicySetPlugin, signature: Option<&PluginSignature>) -> Result<Arc<Member>, String> {
        let same = |member: &&Arc<Member>| member.bound == *bound && member.missing().is_none();
        if let Some(member) = self.active.members().iter().find(same) {
            return Ok(Arc::clone(member));
        }
        let digest: Digest = bound.digest.parse().map_err(|error| format!("{error}"))?;
        let brought = BUILTINS.iter().find(|builtin| Digest::hash(builtin.bytes) == digest);
        let bytes = if let Some(builtin) = brought {
            builtin.bytes.to_vec()
        } else {
            let bytes = self.revisions.load(&digest).await.map_err(|error| sentence(&error))?;
            // Anyone who can write into the host's namespace can write records and revisions, but can't sign them.
            self.options.trust.check_kept(&bytes, &digest, signature).map_err(|error| error.to_string())?;
            bytes
        };
        let (loader, wanted) = (Arc::clone(&self.loader), bound.clone());
        let outcome = tokio::task::spawn_blocking(move || loader.load(wanted, &bytes)).await.map_err(|error| error.to_string())?;
        outcome.map(Arc::new).map_err(|error| error.to_string())
    }
}

/// The recorded set, for a command that only reads it. Without a record, the built-in policies are active.
pub async fn recorded(client: Client, namespace: &str, loader: Arc<Loader>) -> Result<ActiveSet, String> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let reading = |why: String| format!("reading the ConfigMap {namespace}/{}: {why}", record::NAME);
    let found = api.get_opt(record::NAME).await.map_err(|error| reading(sentence(&error)))?;
    let active = builtins(&loader)?;
    let Some(found) = found else { return Ok(active) };
    let record = ActiveRecord::from_config_map(&found).map_err(reading)?;
    let loading = Loading::reading(client, namespace, loader, Arc::new(active), Trust::default());
    let adopted = adopt(&record, &loading).await;
    Ok(ActiveSet::new(adopted.members).ruled(adopted.rules))
}

/// The loaded set of a PolicySet, from stored revisions, for a command that only reads it. Members of the active set are already loaded. If
/// a plugin is missing, the set's decisions would differ, so the result is an error.
pub async fn of_set(
    client: Client,
    namespace: &str,
    loader: Arc<Loader>,
    active: Arc<ActiveSet>,
    set: &PolicySet,
) -> Result<ActiveSet, String> {
    let loading = Loading::reading(client, namespace, loader, active, Trust::default());
    let members = members_of(set, &ActiveRecord::default(), &loading).await?;
    Ok(ActiveSet::new(members).ruled(loading.rules(&set.spec.rules).await))
}

/// The members of a PolicySet, from stored revisions. The record has their signatures.
pub(super) async fn members_of(set: &PolicySet, record: &ActiveRecord, loading: &Loading) -> Result<Vec<Arc<Member>>, String> {
    let mut members = Vec::new();
    for bound in &set.spec.plugins {
        let signature = record.plugins.get(&bound.name).and_then(|recorded| recorded.signature_of(&bound.digest));
        let member = loading.member(bound, signature.as_ref()).await;
        members.push(member.map_err(|why| format!("its plugin {} can't be loaded: {why}", bound.name))?);
    }
    Ok(members)
}

/// The set of a host without a record: only the built-in policies.
pub fn builtins(loader: &Loader) -> Result<ActiveSet, String> {
    let mut members = Vec::new();
    for builtin in &BUILTINS {
        let plugin = super::binding::of_builtin(builtin);
        let mut bound = super::binding::binding(builtin.name, &plugin.spec);
        bound.digest = Digest::hash(builtin.bytes).to_string();
        let member = loader.load(bound, builtin.bytes).map_err(|error| format!("the built-in plugin {}: {error}", builtin.name))?;
        members.push(Arc::new(member));
    }
    let rules = shipped::all().iter().map(|rule| bind(&rule.name_any(), &rule.spec, None)).collect::<Vec<_>>();
    let evaluator = loader.evaluator()?;
    let loaded = rules.into_iter().map(|bound| {
        let name = bound.name.clone();
        loader.rule(bound).map(Arc::new).map_err(|error| format!("the shipped rule {name}: {error}"))
    });
    Ok(ActiveSet::new(members).ruled(Rules::new(loaded.collect::<Result<_, _>>()?, Some(evaluator))))
}
