//! The policies that score endpoints: plugins at scheduling-scoring, called while a request waits.

use super::decisions::record::PolicyRecord;
use crate::load::{LoadError, Loader};
use pointsman_core::decide::{health::HealthChange, member::Member};
use pointsman_crds::policy::{
    plugin::{PluginInstances, PolicyPoint},
    set::PolicySetPlugin,
};
use pointsman_picker::{
    config::{Profile, Scorer, ScorerKind},
    pick::{EndpointFeatures, Feature, fill},
};
use pointsman_sandbox::{
    builtin,
    call::CallError,
    digest::Digest,
    engine::Use,
    point::{
        Question,
        scoring::{RequestRef, Term},
    },
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The name of the built-in policy for a profile's scorers.
const DEFAULT: &str = "scheduling-scoring";

/// A plugin that scores endpoints.
#[derive(Debug)]
pub struct ScoringPolicy {
    member: Member,
    features: Vec<Option<Feature>>,
    columns: u32,
    record: Arc<PolicyRecord>,
    deadline: Duration,
}

impl ScoringPolicy {
    /// The default policy with the scorers of a profile. Blocks while it is compiled.
    pub fn of_profile(loader: &Loader, profile: &Profile) -> Result<Self, LoadError> {
        let bytes = builtin::find(DEFAULT).map_or(&[][..], |builtin| builtin.bytes);
        let config = config(&profile.scorers);
        let mut policy = Self::load(loader, DEFAULT, bytes, &config)?;
        policy.record = Arc::new(PolicyRecord { config: Some(config), ..(*policy.record).clone() });
        Ok(policy)
    }

    /// A plugin with its configuration. Blocks while it is compiled.
    pub fn load(loader: &Loader, name: &str, bytes: &[u8], config: &Value) -> Result<Self, LoadError> {
        let bound = PolicySetPlugin {
            name: name.to_owned(),
            digest: Digest::hash(bytes).to_string(),
            config: Some(config.to_string()),
            instances: PluginInstances::Warm,
            ..PolicySetPlugin::default()
        };
        Self::bind(loader, bound, bytes)?.ok_or_else(|| {
            let known: Vec<&str> = Feature::ALL.iter().map(|feature| feature.name()).collect();
            LoadError::Description(format!(
                "it declares no features of endpoint-pick, so it can't distinguish endpoints: declare some of them ({})",
                known.join(", ")
            ))
        })
    }

    /// A bound plugin, with the loader's deadline, because a request waits. None if it requests no features of endpoints. Blocks while it
    /// is compiled.
    pub fn bind(loader: &Loader, mut bound: PolicySetPlugin, bytes: &[u8]) -> Result<Option<Self>, LoadError> {
        bound.points = vec![PolicyPoint::SchedulingScoring];
        if let Some(limits) = &mut bound.limits {
            limits.deadline = None;
        }
        let mut record = PolicyRecord {
            name: bound.name.clone(),
            digest: bound.digest.clone(),
            config_digest: Digest::hash(bound.config.as_deref().unwrap_or("{}").as_bytes()).to_string(),
            ..PolicyRecord::default()
        };
        let member = loader.load(bound, bytes)?;
        let names = member.features(Question::EndpointPick);
        if names.is_empty() {
            return Ok(None);
        }
        let features: Vec<Option<Feature>> = names.iter().map(|name| Feature::parse(name)).collect();
        let columns = u32::try_from(features.len()).unwrap_or(u32::MAX);
        record.features = names.to_vec();
        Ok(Some(Self { features, columns, member, record: Arc::new(record), deadline: loader.hot_deadline() }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.member.name()
    }

    /// The digest of everything that affects its scores.
    pub fn identity(&self) -> &Digest {
        self.member.identity()
    }

    /// The digest of its bytes.
    pub fn digest(&self) -> &str {
        &self.member.bound.digest
    }

    /// Its record for decisions.
    pub fn record(&self) -> &Arc<PolicyRecord> {
        &self.record
    }

    /// Explains the score of one of these endpoints. A failure doesn't count against the policy.
    pub fn explain<'e>(&self, endpoints: impl IntoIterator<Item = &'e EndpointFeatures>, row: usize) -> Result<Vec<Term>, CallError> {
        let mut matrix = Vec::new();
        fill(&self.features, endpoints, &mut matrix);
        let request = RequestRef { question: Question::EndpointPick, columns: self.columns, matrix: &matrix, facts: &[] };
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        self.member.plugin(Use::Hot).and_then(|plugin| plugin.explain(request, row)).map(|(terms, _)| terms)
    }

    /// A score for each of these endpoints of a pool in the namespace, or why there is none. `matrix` is a reusable buffer.
    pub fn score<'e>(
        &self,
        endpoints: impl IntoIterator<Item = &'e EndpointFeatures>,
        matrix: &mut Vec<f64>,
        namespace: &str,
    ) -> Result<Vec<f64>, CallError> {
        if self.member.health.is_quarantined(namespace, Instant::now()) {
            return Err(CallError::Quarantined);
        }
        fill(&self.features, endpoints, matrix);
        let request = RequestRef { question: Question::EndpointPick, columns: self.columns, matrix, facts: &[] };
        let worked_before = worked();
        match self.member.plugin(Use::Hot).and_then(|plugin| plugin.score(request)) {
            Ok((scores, _)) => {
                self.log(self.member.health.answered(namespace, Instant::now()));
                Ok(scores)
            }
            Err(error) => {
                // If the system has delayed the thread, the plugin isn't at fault for being late.
                let is_innocent = matches!(error, CallError::Deadline(_)) && worked().saturating_sub(worked_before) < self.deadline;
                let health = &self.member.health;
                let change = if is_innocent { health.failed_innocently(&error) } else { health.failed(namespace, &error, Instant::now()) };
                self.log(change);
                Err(error)
            }
        }
    }

    fn log(&self, change: Option<HealthChange>) {
        let (policy, digest) = (self.name(), self.digest());
        match change {
            None => {}
            Some(HealthChange::Failed(error)) => {
                tracing::warn!(policy, digest, %error, reason = error.reason(), "a policy has given no scores; the next one in line answers");
            }
            Some(HealthChange::Quarantined(_, pause, error)) => {
                let seconds = pause.as_secs();
                tracing::warn!(policy, digest, %error, seconds, "a policy failed too often and is quarantined");
            }
            Some(HealthChange::Recovered(_)) => tracing::info!(policy, digest, "a policy is no longer quarantined"),
        }
    }
}

/// The processor time of this thread.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The configuration of the default policy for these scorers.
fn config(scorers: &[Scorer]) -> Value {
    let scorers: Vec<Value> = scorers.iter().map(scorer).collect();
    json!({"endpointPick": {"scorers": scorers}})
}

fn scorer(scorer: &Scorer) -> Value {
    let (kind, parameters) = match &scorer.kind {
        ScorerKind::Queue => ("queue-scorer", json!({})),
        ScorerKind::RunningRequests => ("running-requests-size-scorer", json!({})),
        ScorerKind::KvCacheUtilization => ("kv-cache-utilization-scorer", json!({})),
        ScorerKind::PrefixCache { match_length_weight, match_length_scale } => {
            ("prefix-cache-scorer", json!({"matchLengthWeight": match_length_weight, "matchLengthScale": match_length_scale}))
        }
        ScorerKind::LoraAffinity => ("lora-affinity-scorer", json!({})),
        ScorerKind::TokenLoad { threshold } => ("token-load-scorer", json!({"threshold": threshold})),
        ScorerKind::ActiveRequest { idle_threshold, max_busy_score } => {
            ("active-request-scorer", json!({"idleThreshold": idle_threshold, "maxBusyScore": max_busy_score}))
        }
        ScorerKind::LoadAware { threshold } => ("load-aware-scorer", json!({"threshold": threshold})),
        ScorerKind::SessionAffinity(_) => ("session-affinity-scorer", json!({})),
        ScorerKind::NoHitLru { .. } => ("no-hit-lru-scorer", json!({})),
        ScorerKind::ContextLength { .. } => ("context-length-aware", json!({})),
    };
    let mut entry = parameters;
    entry["type"] = kind.into();
    entry["weight"] = scorer.weight.into();
    entry
}
