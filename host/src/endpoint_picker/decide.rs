//! Chooses the endpoint of a request with filters, policies and a picker, and the endpoint that prefills its prompt.

use super::{
    counts::PickerCounts,
    decisions::{
        Considered, MAX_ROWS, Steps,
        record::{AVOIDED, PolicyRecord, ProfileRecord, SUBSET, Shared, Unanswered, WeightedPolicy},
    },
    latency::Estimates,
    policy::ScoringPolicy,
    policy_set::SetScorers,
    read::Incoming,
    refusal::Dropped,
};
use pointsman_picker::{
    config::{Decider, PickerConfig, PickerKind, Profile, Profiles, ScorerKind},
    fleet::Endpoint,
    pick::{self, Choice, EndpointFeatures, Filtering, Knowledge, RequestTraits, Scores, least_loaded},
    prefix::{Matches, PrefixIndex},
};
use pointsman_sandbox::call::CallError;
use std::{
    cell::RefCell,
    sync::Arc,
    time::{Duration, Instant},
};

/// The policies that score endpoints.
#[derive(Clone, Debug)]
pub struct Policies {
    /// A policy that takes precedence over all others.
    pub custom: Option<Arc<ScoringPolicy>>,
    /// The plugins of the active policy set for the pool, which take precedence over the profile's scorers alone.
    pub set: Option<Arc<SetScorers>>,
    /// The scorers of the profile that picks the endpoint of a request.
    pub primary: Arc<ScoringPolicy>,
    /// The scorers of the profile that picks the endpoint for prefilling.
    pub prefill: Option<Arc<ScoringPolicy>>,
}

/// The inputs of a decision.
pub(super) struct Inputs<'i> {
    pub(super) endpoints: &'i [Endpoint],
    pub(super) namespace: &'i str,
    pub(super) subset: Option<&'i [String]>,
    pub(super) request: &'i Incoming,
    pub(super) session: Option<&'i str>,
    pub(super) estimates: &'i Estimates,
    pub(super) config: &'i PickerConfig,
    pub(super) prefixes: &'i PrefixIndex,
    pub(super) now: u64,
    pub(super) seed: u64,
    pub(super) if_available: bool,
    pub(super) is_traced: bool,
}

/// The endpoints of a request.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    /// The endpoints to send the request to, first choice first. There is at least one.
    pub(super) endpoints: Vec<Endpoint>,
    /// The endpoint that prefills, if it is another one.
    pub(super) prefill: Option<Endpoint>,
    /// The features of the first choice.
    pub(super) features: EndpointFeatures,
    /// Whether no endpoint had its prompt cached.
    pub(super) is_cold: bool,
    /// The duration of the decision.
    pub(super) took: Duration,
    /// The policies that scored the endpoints, if the request is traced.
    pub(super) scored_by: Option<ScoredBy>,
}

/// The policies that scored endpoints.
#[derive(Clone, Debug)]
pub(super) struct ScoredBy {
    /// The policies with scores; without any, the endpoint with the least load was chosen.
    pub(super) policies: Vec<Arc<PolicyRecord>>,
    /// The digest of the policy set with their plugins.
    pub(super) policy_set: Option<Arc<str>>,
}

/// Buffers that a thread reuses for each decision.
#[derive(Default)]
struct Scratch {
    matches: Matches,
    features: Vec<EndpointFeatures>,
    allowed: Vec<usize>,
    kept: Vec<usize>,
    matrix: Vec<f64>,
    scores: Scores,
    chosen: Vec<usize>,
    steps: Steps,
    answers: Vec<Answer>,
    /// The digest of the policy set whose plugins have scored.
    policy_set: Option<Arc<str>>,
    unanswered: Vec<Unanswered>,
}

/// A policy's scores and their weight.
struct Answer {
    weight: f64,
    policy: Arc<PolicyRecord>,
    scores: Vec<f64>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The recorded choices of profiles, if enabled.
pub(super) type Recorded<'r> = Option<&'r mut Vec<ProfileRecord>>;

/// Chooses the endpoints of a request.
pub(super) fn decide(
    inputs: &Inputs<'_>,
    policies: &Policies,
    counts: &PickerCounts,
    mut recorded: Recorded<'_>,
) -> Result<Decision, Dropped> {
    SCRATCH.with_borrow_mut(|scratch| decide_with(inputs, policies, counts, scratch, &mut recorded))
}

fn decide_with(
    inputs: &Inputs<'_>,
    policies: &Policies,
    counts: &PickerCounts,
    scratch: &mut Scratch,
    recorded: &mut Recorded<'_>,
) -> Result<Decision, Dropped> {
    let started = Instant::now();
    let Inputs { endpoints, request, config, .. } = inputs;
    allow(inputs, &mut scratch.allowed);
    if scratch.allowed.is_empty() {
        return Err(Dropped::NoEndpoints);
    }
    inputs.prefixes.matches(&request.hashes, &mut scratch.matches);
    know(inputs, scratch);
    let primary = config.profiles.primary();
    let turn = Turn { inputs, policies, own: &policies.primary, profile: primary, counts };
    turn.choose(primary.picker.max_endpoints, scratch, recorded)?;
    let first = scratch.chosen[0];
    let features = scratch.features[first];
    if inputs.if_available && scratch.matches.blocks(endpoints[first].state.id()) == 0 {
        return Err(Dropped::NoPrefix);
    }
    // Before an endpoint for prefilling is chosen.
    let scored_by = inputs.is_traced.then(|| ScoredBy {
        policies: scratch.answers.iter().map(|answer| Arc::clone(&answer.policy)).collect(),
        policy_set: scratch.policy_set.clone(),
    });
    let chosen: Vec<Endpoint> = scratch.chosen.iter().map(|at| endpoints[*at].clone()).collect();
    let prefill = match (&config.profiles, &policies.prefill) {
        (Profiles::Disaggregated { prefill: profile, decider, .. }, Some(own)) if prefills(*decider, request, &features) => {
            let turn = Turn { inputs, policies, own, profile, counts };
            // The chosen endpoint can also prefill, so it's no reason to refuse a request if no other one can.
            turn.choose(1, scratch, recorded).ok().map(|()| scratch.chosen[0]).filter(|at| *at != first).map(|at| endpoints[at].clone())
        }
        _ => None,
    };
    let is_cold = !request.hashes.is_empty() && scratch.matches.is_empty();
    Ok(Decision { endpoints: chosen, prefill, features, is_cold, took: started.elapsed(), scored_by })
}

/// The endpoints that the proxy allows.
fn allow(inputs: &Inputs<'_>, allowed: &mut Vec<usize>) {
    allowed.clear();
    let is_allowed = |endpoint: &Endpoint| {
        inputs.subset.is_none_or(|subset| {
            let address = endpoint.spec.address.ip();
            subset.iter().any(|one| **one == *endpoint.text || one.parse() == Ok(address))
        })
    };
    allowed.extend(inputs.endpoints.iter().enumerate().filter(|(_, endpoint)| is_allowed(endpoint)).map(|(at, _)| at));
}

fn know(inputs: &Inputs<'_>, scratch: &mut Scratch) {
    let profiles = || [Some(inputs.config.profiles.primary()), inputs.config.profiles.prefill()].into_iter().flatten();
    let mut scorers = profiles().flat_map(|profile| &profile.scorers);
    let context_length = scorers.clone().find_map(|scorer| match &scorer.kind {
        ScorerKind::ContextLength { label } => Some(label.as_str()),
        _ => None,
    });
    let Inputs { request, estimates, .. } = inputs;
    let traits = RequestTraits { model: request.target(), tokens: request.tokens, blocks: request.hashes.len(), session: inputs.session };
    let knowledge = Knowledge {
        now: inputs.now,
        matches: &scratch.matches,
        first_token: &estimates.first_token,
        further_tokens: &estimates.further_tokens,
        wants_cold_turn: scorers.any(|scorer| matches!(scorer.kind, ScorerKind::NoHitLru { .. })),
        context_length,
    };
    pick::features(inputs.endpoints, &traits, &knowledge, &mut scratch.features);
}

/// Whether another endpoint prefills.
fn prefills(decider: Decider, request: &Incoming, features: &EndpointFeatures) -> bool {
    match decider {
        Decider::Always => true,
        Decider::PrefixBased { prompt_tokens, uncached_tokens } => {
            #[allow(clippy::cast_precision_loss)] // Far below 2^52.
            let least = uncached_tokens as f64;
            uncached_tokens > 0 && request.tokens >= prompt_tokens && features.uncached_tokens >= least
        }
    }
}

/// The choice of one profile.
struct Turn<'t> {
    inputs: &'t Inputs<'t>,
    policies: &'t Policies,
    own: &'t ScoringPolicy,
    profile: &'t Profile,
    counts: &'t PickerCounts,
}

impl Turn<'_> {
    /// Chooses this number of the endpoints that the proxy allows, and records it.
    fn choose(&self, number: usize, scratch: &mut Scratch, recorded: &mut Recorded<'_>) -> Result<(), Dropped> {
        let outcome = self.choose_kept(number, scratch);
        if let Some(recorded) = recorded {
            recorded.push(self.record(scratch));
        }
        outcome
    }

    fn choose_kept(&self, number: usize, scratch: &mut Scratch) -> Result<(), Dropped> {
        let Inputs { endpoints, config, now, seed, request, .. } = *self.inputs;
        let Scratch { features, allowed, kept, matrix, scores, chosen, steps, answers, policy_set, unanswered, .. } = scratch;
        answers.clear();
        *policy_set = None;
        unanswered.clear();
        chosen.clear();
        steps.reset(endpoints.len());
        kept.clone_from(allowed);
        steps.add(SUBSET, kept);
        let staleness = super::micros(config.scrape.staleness);
        let filtering = Filtering { endpoints, features, tokens: request.tokens, now, staleness, seed };
        filtering.keep(self.profile, kept, |step, left| steps.add(step, left));
        // Unreachable endpoints are used only if there are no others.
        if kept.iter().any(|at| !endpoints[*at].state.is_avoided(now)) {
            kept.retain(|at| !endpoints[*at].state.is_avoided(now));
            steps.add(AVOIDED, kept);
        }
        if kept.is_empty() {
            return Err(Dropped::Filtered);
        }
        let known = || kept.iter().map(|at| &features[*at]);
        *policy_set = self.ask(known, matrix, answers, unanswered);
        if answers.is_empty() {
            let known: Vec<EndpointFeatures> = known().copied().collect();
            chosen.extend(least_loaded(&known, seed));
        } else {
            scores.reset(kept.len());
            // The mean, which is from 0 to 1 like each score.
            let total: f64 = answers.iter().map(|answer| answer.weight).sum();
            let total = if total > 0.0 { total } else { 1.0 };
            for answer in answers.iter() {
                scores.add(answer.weight / total, &answer.scores);
            }
            choice(self.profile).choose(scores, number, seed, chosen);
        }
        // Converts positions among the scored endpoints to positions in the pool.
        for at in chosen.iter_mut() {
            *at = kept[*at];
        }
        if chosen.is_empty() { Err(Dropped::Filtered) } else { Ok(()) }
    }

    /// The scores of the first that succeed: the custom policy, the plugins of the policy set, the profile's scorers. Returns the digest of
    /// the policy set if its plugins have scored.
    fn ask<'f, I: Iterator<Item = &'f EndpointFeatures>>(
        &self,
        known: impl Fn() -> I,
        matrix: &mut Vec<f64>,
        answers: &mut Vec<Answer>,
        unanswered: &mut Vec<Unanswered>,
    ) -> Option<Arc<str>> {
        let mut score = |policy: &ScoringPolicy, weight: f64| {
            let started = Instant::now();
            let answer = policy.score(known(), matrix, self.inputs.namespace);
            self.counts.asked(policy, started.elapsed(), answer.as_ref().err().map(CallError::reason));
            match answer {
                Ok(scores) => Some(Answer { weight, policy: Arc::clone(policy.record()), scores }),
                Err(error) => {
                    let PolicyRecord { name, digest, .. } = &**policy.record();
                    unanswered.push(Unanswered {
                        policy: name.clone(),
                        digest: digest.clone(),
                        reason: error.reason().into(),
                        message: error.to_string(),
                    });
                    None
                }
            }
        };
        let Policies { custom, set, .. } = self.policies;
        answers.extend(custom.as_deref().and_then(|policy| score(policy, 1.0)));
        if !answers.is_empty() {
            return None;
        }
        if let Some(set) = set {
            if set.ask(self.own, &mut score, answers) {
                return Some(Arc::clone(set.digest()));
            }
            answers.clear();
        }
        answers.extend(score(self.own, 1.0));
        None
    }

    /// The record of the choice that was just made.
    fn record(&self, scratch: &Scratch) -> ProfileRecord {
        let Scratch { features, kept, scores, chosen, steps, answers, policy_set, unanswered, .. } = scratch;
        let Inputs { endpoints, config, seed, .. } = *self.inputs;
        let scores = (!answers.is_empty()).then(|| scores.sums());
        let weighted = |answer: &Answer| WeightedPolicy { weight: answer.weight, policy: Shared(Arc::clone(&answer.policy)) };
        let considered = Considered { endpoints, features, steps, kept, scores, chosen };
        // With two profiles, each has a half, which limits the size of a record.
        let most = if config.profiles.prefill().is_some() { MAX_ROWS / 2 } else { MAX_ROWS };
        let rows = considered.rows(most);
        ProfileRecord {
            name: self.profile.name.clone(),
            picker: self.profile.picker.kind.plugin_type().into(),
            seed,
            policy: answers.first().map(|answer| Shared(Arc::clone(&answer.policy))),
            together: if answers.len() > 1 { answers.iter().map(weighted).collect() } else { Vec::new() },
            policy_set: policy_set.clone().map(Shared),
            unanswered: unanswered.clone(),
            left_out: endpoints.len() - rows.len(),
            endpoints: rows,
            extremes: scores.and_then(|_| considered.extremes(most)),
        }
    }
}

fn choice(profile: &Profile) -> Choice {
    match profile.picker.kind {
        PickerKind::MaxScore => Choice::MaxScore,
        PickerKind::Random => Choice::Random,
        PickerKind::WeightedRandom => Choice::WeightedRandom,
    }
}
