//! Tests of the features of a fleet's endpoints, and of filters.

use super::*;
use crate::{
    config::{Filter, PickerConfig, PrefixAffinity, Profile, Role},
    engine_metrics::{Adapters, EngineMetrics},
    fleet::{Endpoint, EndpointSpec, Fleet, Report},
    flow::saturation::Detector,
    latency::{LatencyEstimate, Sent},
    prefix::Matches,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const SECOND: u64 = 1_000_000;

/// Endpoints with these labels.
fn fleet(labels: &[&[(&str, &str)]]) -> Fleet {
    let fleet = Fleet::default();
    let spec = |(at, labels): (usize, &&[(&str, &str)])| EndpointSpec {
        uid: format!("uid-{at}").into(),
        pod: format!("pod-{at}").into(),
        address: ([10, 0, 0, u8::try_from(at).unwrap()], 8000).into(),
        labels: Arc::new(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()),
    };
    fleet.replace(labels.iter().enumerate().map(spec).collect());
    fleet
}

fn known(fleet: &Fleet, request: &RequestTraits<'_>, hashes: &[u64]) -> Vec<EndpointFeatures> {
    let (mut matches, mut known) = (Matches::default(), Vec::new());
    fleet.prefixes.matches(hashes, &mut matches);
    let estimate = LatencyEstimate::default();
    let knowledge = Knowledge {
        now: 10 * SECOND,
        matches: &matches,
        first_token: &estimate,
        further_tokens: &estimate,
        wants_cold_turn: true,
        context_length: Some("range"),
    };
    features(&fleet.endpoints(), request, &knowledge, &mut known);
    known
}

fn is(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value} and not {expected}");
}

#[test]
fn features_are_what_endpoints_report_and_what_this_picker_has_sent() {
    let fleet = fleet(&[&[("range", "0-99")], &[("range", "0-199")], &[]]);
    let [one, two, three] = &fleet.endpoints()[..] else { panic!() };
    let loras = Some(Adapters { running: vec!["poet".to_owned()], waiting: vec!["bard".to_owned()], max: 4 });
    let metrics = EngineMetrics { waiting: Some(3.0), running: Some(2.0), kv_usage: Some(0.5), loras, ..EngineMetrics::default() };
    one.state.set_report(Report { at: 9 * SECOND, metrics });
    fleet.prefixes.record(one.state.id(), &[1, 2]);
    fleet.prefixes.record(two.state.id(), &[1, 2, 3, 4]);
    let _in_flight = two.state.send(70, 10 * SECOND);
    let request = RequestTraits { model: "poet", tokens: 100, blocks: 4, session: Some("pod-1") };
    let known = known(&fleet, &request, &[1, 2, 3, 4]);
    is(known[0].queue_length, 3.0);
    is(known[0].running_requests, 2.0);
    is(known[0].kv_cache_utilization, 0.5);
    is(known[0].report_age_seconds, 1.0);
    assert_eq!((known[0].adapter_loaded, known[0].adapter_waiting, known[0].adapter_slots), (1.0, 0.0, 2.0));
    is(known[0].prefix_match, 0.5);
    is(known[0].cached_tokens, 50.0);
    is(known[1].uncached_tokens, 0.0);
    assert_eq!((known[0].session, known[1].session), (0.0, 1.0));
    assert_eq!((known[1].in_flight_requests, known[1].in_flight_tokens), (1.0, 70.0));
    assert!(known[1].requests_per_second > 0.0);
    assert!(known[1].queue_length.is_nan() && known[2].adapter_loaded.is_nan() && known[0].time_to_first_token_seconds.is_nan());
    is(known[2].prefix_match, 0.0);
    // Its prefix is known, so no endpoint has a turn.
    assert!(known[2].cold_request_turn.is_nan());
    assert!(known[0].context_length_fit.abs() < 1e-9 && (known[1].context_length_fit - 1.0).abs() < 1e-9, "100 tokens fit in the second");
    assert!(known[2].context_length_fit.is_nan());
    let learned = sent(&known[0]);
    assert_eq!((learned.queue_length, learned.uncached_tokens), (3.0, 50.0));
    assert_eq!(three.state.in_flight_requests(), 0);
}

#[test]
fn a_prompt_that_nobody_knows_has_its_turn_where_such_a_one_came_longest_ago() {
    let fleet = fleet(&[&[], &[], &[]]);
    let endpoints = fleet.endpoints();
    endpoints[0].state.note_cold_request(5);
    endpoints[1].state.note_cold_request(9);
    let known = known(&fleet, &RequestTraits { tokens: 10, blocks: 1, ..RequestTraits::default() }, &[7]);
    is(known[2].cold_request_turn, 1.0);
    is(known[0].cold_request_turn, 0.5);
    is(known[1].cold_request_turn, 0.0);
}

/// The positions that a profile with these filters keeps.
fn kept(endpoints: &[Endpoint], features: &[EndpointFeatures], filters: Vec<Filter>, seed: u64) -> Vec<usize> {
    let profile = Profile { filters, ..PickerConfig::default().profiles.primary().clone() };
    let mut kept = (0..endpoints.len()).collect();
    Filtering { endpoints, features, tokens: 50, now: 10 * SECOND, staleness: SECOND, seed }.keep(&profile, &mut kept, |_, _| {});
    kept
}

#[test]
fn who_only_prefills_is_no_ordinary_endpoint_and_filters_apply_one_after_the_other() {
    let fleet = fleet(&[
        &[],
        &[(ROLE, "prefill"), ("gpu", "a")],
        &[(ROLE, "decode"), ("gpu", "a")],
        &[(ROLE, "prefill-decode"), ("range", "60-99")],
    ]);
    let endpoints = fleet.endpoints();
    let features = vec![EndpointFeatures::default(); 4];
    assert_eq!(kept(&endpoints, &features, Vec::new(), 1), [0, 2, 3]);
    assert_eq!(kept(&endpoints, &features, vec![Filter::Role(Role::Prefill)], 1), [1, 3]);
    let range = Filter::ContextLength { label: "range".to_owned() };
    assert_eq!(kept(&endpoints, &features, vec![Filter::Role(Role::Prefill), range.clone()], 1), [1]);

    let profile = Profile { filters: vec![range], ..PickerConfig::default().profiles.primary().clone() };
    let (mut left, mut passed) = (vec![0, 1, 2, 3], Vec::new());
    let filtering = Filtering { endpoints: &endpoints, features: &features, tokens: 50, now: 10 * SECOND, staleness: SECOND, seed: 1 };
    filtering.keep(&profile, &mut left, |step, left| passed.push((step, left.to_vec())));
    assert_eq!(passed, [("decode-filter", vec![0, 2, 3]), ("context-length-aware", vec![0, 2])]);

    let report = |at: usize, waiting: f64| {
        let metrics = EngineMetrics { waiting: Some(waiting), kv_usage: Some(0.0), ..EngineMetrics::default() };
        endpoints[at].state.set_report(Report { at: 10 * SECOND, metrics });
    };
    let unsaturated = || vec![Filter::Unsaturated(Detector::default())];
    report(0, 9.0);
    assert_eq!(kept(&endpoints, &features, unsaturated(), 1), [0, 2, 3], "all are full or silent, so none is left out");
    report(2, 1.0);
    assert_eq!(kept(&endpoints, &features, unsaturated(), 1), [2]);
}

#[test]
fn a_request_stays_with_its_prefix_unless_that_takes_too_long_or_chance_has_it_explore() {
    let fleet = fleet(&[&[], &[], &[]]);
    let endpoints = fleet.endpoints();
    let with =
        |prefix_match, seconds| EndpointFeatures { prefix_match, time_to_first_token_seconds: seconds, ..EndpointFeatures::default() };
    let affinity = |exploration| {
        vec![Filter::PrefixAffinity(PrefixAffinity {
            exploration,
            max_penalty: Some(Duration::from_secs(18)),
            ..PrefixAffinity::default()
        })]
    };
    let features = [with(0.9, 1.0), with(0.2, 0.5), with(0.85, 2.0)];
    assert_eq!(kept(&endpoints, &features, affinity(0.0), 1), [0, 2]);
    assert_eq!(kept(&endpoints, &features, affinity(1.0), 1), [0, 1, 2]);
    let slow = [with(0.9, 20.0), with(0.2, 0.5), with(0.85, 30.0)];
    assert_eq!(kept(&endpoints, &slow, affinity(0.0), 1), [0, 1, 2]);
    let nobody = [with(0.7, 1.0), with(0.2, 0.5), with(0.0, 2.0)];
    assert_eq!(kept(&endpoints, &nobody, affinity(0.0), 1), [0, 1, 2]);
    // Without an estimate, the number of tokens to prefill is used.
    let tokens = |prefix_match, in_flight_tokens| EndpointFeatures {
        prefix_match,
        in_flight_tokens,
        uncached_tokens: 0.0,
        ..EndpointFeatures::default()
    };
    let busy = [tokens(0.9, 400_000.0), tokens(0.0, 0.0), tokens(0.0, 0.0)];
    assert_eq!(kept(&endpoints, &busy, affinity(0.0), 1), [0, 1, 2]);
    assert_eq!(Sent::default().in_flight_tokens.to_bits(), 0.0_f64.to_bits());
}
