//! Calls the scoring policy again: the built-in one with the recorded scorers, or the one of a file.

use super::RequestArgs;
use crate::{
    cli::cache::CacheArgs,
    endpoint_picker::{
        custom,
        decisions::record::{PolicyRecord, ProfileRecord, WeightedPolicy},
        policy::ScoringPolicy,
    },
    load::Loader,
};
use anyhow::{Context, Result, anyhow};
use pointsman_picker::pick::EndpointFeatures;
use pointsman_sandbox::{builtin, digest::Digest, engine::Engines, limits::Limits, point::scoring::Term};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The maximum number of concurrent calls.
const SLOTS: u32 = 4;

/// Replays the policies of a record. A policy is loaded at its first call.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    cache: &'a CacheArgs,
    /// The plugin of --policy.
    given: Option<(Vec<u8>, Value)>,
    loaded: BTreeMap<(String, String), Result<ScoringPolicy, String>>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(args: &'a RequestArgs) -> Result<Self> {
        let config = args.policy_config.as_deref();
        let given = args.policy.as_deref().map(|file| custom::read(file, config)).transpose().map_err(|error| anyhow!(error))?;
        Ok(Self { cache: &args.cache, given, loaded: BTreeMap::new() })
    }

    /// The parts of a row's score, by the policies that have scored it.
    pub(super) fn terms(&mut self, profile: &ProfileRecord, rows: &[EndpointFeatures], row: usize) -> Result<Vec<Term>, String> {
        let Some(policy) = &profile.policy else { return Err("no policy has scored".to_owned()) };
        if profile.together.is_empty() {
            return self.terms_of(policy, rows, row);
        }
        let total: f64 = profile.together.iter().map(|weighted| weighted.weight).sum();
        let total = if total > 0.0 { total } else { 1.0 };
        let mut all = Vec::new();
        for WeightedPolicy { weight, policy } in &profile.together {
            let terms = self.terms_of(policy, rows, row).map_err(|why| format!("{}: {why}", policy.name))?;
            let part = |term: Term| Term {
                code: format!("{} {}", policy.name, term.code),
                value: term.value.map(|value| value * weight / total),
                ..term
            };
            all.extend(terms.into_iter().map(part));
        }
        Ok(all)
    }

    fn terms_of(&mut self, policy: &PolicyRecord, rows: &[EndpointFeatures], row: usize) -> Result<Vec<Term>, String> {
        let key = (policy.digest.clone(), policy.config_digest.clone());
        let loaded = match self.loaded.remove(&key) {
            Some(loaded) => loaded,
            None => self.load(policy),
        };
        let loaded = self.loaded.entry(key).or_insert(loaded).as_ref().map_err(Clone::clone)?;
        let terms = loaded.explain(rows, row).map_err(|error| format!("the policy can't explain a score: {error}"))?;
        if terms.is_empty() { Err("the policy explains no scores".to_owned()) } else { Ok(terms) }
    }

    fn load(&self, policy: &PolicyRecord) -> Result<ScoringPolicy, String> {
        let PolicyRecord { name, digest, config, config_digest, .. } = policy;
        let is_it = |bytes: &[u8]| Digest::hash(bytes).to_string() == *digest;
        let given = self.given.as_ref();
        let builtin = builtin::find(name).map(|builtin| builtin.bytes).filter(|bytes| is_it(bytes));
        let bytes = given.map(|(bytes, _)| &**bytes).filter(|bytes| is_it(bytes)).or(builtin).ok_or_else(|| match given {
            Some((bytes, _)) => format!("--policy has the digest {}, and the policy that scored has {digest}", Digest::hash(bytes)),
            None if config.is_some() => {
                format!("another version's built-in policy scored: use that version, or set --policy to the plugin {digest}")
            }
            None => format!("a plugin scored: set --policy to the file with the digest {digest}"),
        })?;
        let config = config.clone().or_else(|| given.map(|(_, config)| config.clone())).unwrap_or_else(|| json!({}));
        if Digest::hash(config.to_string().as_bytes()).to_string() != *config_digest {
            return Err("the policy had another configuration: specify it with --policy-config".to_owned());
        }
        let loader = self.loader().map_err(|error| format!("{error:#}"))?;
        ScoringPolicy::load(&loader, name, bytes, &config).map_err(|error| format!("the policy can't be loaded: {error}"))
    }

    /// Only the draft of the next interfaces has numbers in terms; it doesn't change scores.
    fn loader(&self) -> Result<Loader> {
        let engines = Engines::with_slots(SLOTS).map_err(|error| anyhow!("{error:#}")).context("starting the engine of policies")?;
        let compilers = self.cache.compilers()?.with_drafts(true);
        Ok(Loader::new(Arc::new(engines), compilers).with_hot_deadline(Limits::MAX.deadline))
    }
}
