use super::*;
use serde_json::{Value, json};

const NAN: f64 = f64::NAN;

/// An endpoint of which only these features are known.
fn endpoint(known: &[(&str, f64)]) -> Vec<f64> {
    assert!(known.iter().all(|(name, _)| FEATURES.contains(name)), "{known:?}");
    let find = |name| known.iter().find(|(known, _)| *known == name).map_or(NAN, |(_, value)| *value);
    FEATURES.iter().map(|name| find(*name)).collect()
}

fn matrix(endpoints: &[Vec<f64>]) -> Matrix {
    Matrix::new(FEATURES.len(), endpoints.concat()).unwrap()
}

fn config(scorers: &Value) -> Result<EndpointPick, String> {
    serde_json::from_value(json!({ "scorers": scorers })).map_err(|error| error.to_string())
}

/// The scores of one scorer for endpoints of which one feature is known.
fn by(scorer: &Value, name: &str, values: &[f64]) -> Vec<f64> {
    let endpoints: Vec<_> = values.iter().map(|value| endpoint(&[(name, *value)])).collect();
    config(&json!([scorer])).unwrap().score(&matrix(&endpoints))
}

#[test]
fn shorter_queues_and_fewer_running_requests_score_higher_and_who_reports_none_scores_as_the_worst() {
    for (scorer, name) in [("queue-scorer", "queue-length"), ("running-requests-size-scorer", "running-requests")] {
        let scorer = json!({"type": scorer});
        assert_eq!(by(&scorer, name, &[1.0, 3.0, 9.0, NAN]), [1.0, 0.75, 0.0, 0.0]);
        assert_eq!(by(&scorer, name, &[3.0, 3.0, NAN]), [1.0, 1.0, 0.0]);
        assert_eq!(by(&scorer, name, &[NAN, NAN]), [0.0, 0.0]);
    }
    let load = json!({"type": "load-aware-scorer"});
    assert_eq!(by(&load, "queue-length", &[0.0, 64.0, 128.0, 999.0, NAN]), [0.5, 0.25, 0.0, 0.0, 0.0]);
    assert_eq!(by(&json!({"type": "load-aware-scorer", "threshold": 4}), "queue-length", &[1.0]), [0.375]);
}

#[test]
fn a_free_cache_scores_higher_and_one_that_is_not_reported_counts_as_full() {
    let scorer = json!({"type": "kv-cache-utilization-scorer"});
    assert_eq!(by(&scorer, "kv-cache-utilization", &[0.0, 0.25, 1.0, 1.5, NAN]), [1.0, 0.75, 0.0, 0.0, 0.0]);
}

#[test]
fn a_cached_prefix_scores_by_its_share_and_by_the_square_of_its_length() {
    assert_eq!(by(&json!({"type": "prefix-cache-scorer"}), "prefix-match", &[0.0, 0.5, 1.0, NAN]), [0.0, 0.5, 1.0, 0.0]);
    let endpoints = [(0.5, 5.0), (0.5, 50.0), (0.25, 900.0), (0.5, NAN)]
        .map(|(share, tokens)| endpoint(&[("prefix-match", share), ("cached-tokens", tokens)]));
    let scorer = json!([{"type": "prefix-cache-scorer", "matchLengthWeight": 0.5, "matchLengthScale": 100}]);
    let scores = config(&scorer).unwrap().score(&matrix(&endpoints));
    for (score, expected) in scores.iter().zip([0.25125, 0.375, 0.625, 0.25]) {
        assert!((score - expected).abs() < 1e-12, "{scores:?}");
    }
}

#[test]
fn an_endpoint_that_has_the_adapter_is_better_than_one_with_room_and_that_than_one_where_it_waits() {
    let scorer = config(&json!([{"type": "lora-affinity-scorer"}])).unwrap();
    let adapters = |loaded, slots, waiting| endpoint(&[("adapter-loaded", loaded), ("adapter-slots", slots), ("adapter-waiting", waiting)]);
    let all = [
        adapters(1.0, 0.0, 0.0),
        adapters(0.0, 1.0, 1.0),
        adapters(0.0, 0.0, 1.0),
        adapters(0.0, 0.0, 0.0),
        adapters(0.0, NAN, NAN),
        adapters(NAN, NAN, NAN),
    ];
    assert_eq!(scorer.score(&matrix(&all)), [1.0, 0.8, 0.6, 0.0, 0.0, 0.0]);
    let without_adapter = [adapters(NAN, 4.0, NAN), adapters(NAN, 0.0, NAN)];
    assert_eq!(scorer.score(&matrix(&without_adapter)), [0.5, 0.5]);
}

#[test]
fn fewer_tokens_in_flight_score_higher_and_those_that_the_request_adds_count_too() {
    let scorer = json!([{"type": "token-load-scorer", "threshold": 1000}]);
    let all = [(0.0, 0.0), (100.0, 10.0), (900.0, 200.0), (NAN, 250.0), (NAN, NAN)]
        .map(|(in_flight, uncached)| endpoint(&[("in-flight-tokens", in_flight), ("uncached-tokens", uncached)]));
    assert_eq!(config(&scorer).unwrap().score(&matrix(&all)), [1.0, 0.89, 0.0, 0.75, 1.0]);
    assert_eq!(by(&json!({"type": "token-load-scorer"}), "in-flight-tokens", &[1_048_576.0]), [0.75]);
}

#[test]
fn fewer_requests_in_flight_score_higher_and_up_to_a_threshold_an_endpoint_is_idle() {
    let active = json!({"type": "active-request-scorer"});
    assert_eq!(by(&active, "in-flight-requests", &[0.0, 2.0, 4.0, NAN]), [1.0, 0.5, 0.0, 1.0]);
    assert_eq!(by(&active, "in-flight-requests", &[0.0, NAN]), [1.0, 1.0]);
    let with_idle = json!({"type": "active-request-scorer", "idleThreshold": 2, "maxBusyScore": 0.5});
    assert_eq!(by(&with_idle, "in-flight-requests", &[0.0, 2.0, 3.0, 4.0]), [1.0, 1.0, 0.125, 0.0]);
}

#[test]
fn what_the_host_computes_is_the_score_and_a_neutral_one_if_it_is_not_known() {
    assert_eq!(by(&json!({"type": "session-affinity-scorer"}), "session", &[1.0, 0.0, NAN]), [1.0, 0.0, 0.0]);
    assert_eq!(by(&json!({"type": "no-hit-lru-scorer"}), "cold-request-turn", &[1.0, 0.25, 0.0]), [1.0, 0.25, 0.0]);
    assert_eq!(by(&json!({"type": "no-hit-lru-scorer"}), "cold-request-turn", &[NAN, NAN]), [0.5, 0.5]);
    assert_eq!(by(&json!({"type": "context-length-aware"}), "context-length-fit", &[0.9, 0.2, NAN]), [0.9, 0.2, 0.5]);
    let latency = json!({"type": "latency-scorer"});
    assert_eq!(by(&latency, "time-to-first-token-seconds", &[0.5, 1.5, 1.0, NAN]), [1.0, 0.0, 0.5, 0.5]);
}

#[test]
fn by_default_an_endpoint_scores_by_its_queue_its_cache_and_its_prefixes() {
    let known = |queue, used, share| endpoint(&[("queue-length", queue), ("kv-cache-utilization", used), ("prefix-match", share)]);
    let scores = EndpointPick::default().score(&matrix(&[known(0.0, 0.5, 0.0), known(4.0, 0.5, 1.0), known(4.0, 0.0, 0.0)]));
    assert_eq!(scores, [3.0 / 7.0, 4.0 / 7.0, 2.0 / 7.0]);
    let silent = EndpointPick::default().score(&matrix(&[known(NAN, NAN, NAN), known(9.0, 0.9, 0.0), known(0.0, 0.0, 0.0)]));
    assert!(silent[0] < silent[1] && silent[1] < silent[2], "{silent:?}");
}

#[test]
fn without_scorers_or_with_weights_of_0_all_endpoints_are_alike() {
    let both = matrix(&[endpoint(&[("queue-length", 1.0)]), endpoint(&[("queue-length", 9.0)])]);
    for scorers in [json!([]), json!([{"type": "queue-scorer", "weight": 0}])] {
        let config = config(&scorers).unwrap();
        assert_eq!(config.score(&both), [0.5, 0.5]);
        assert!(config.explain(&both, 0).is_empty());
    }
    assert!(EndpointPick::default().score(&matrix(&[])).is_empty());
}

#[test]
fn a_configuration_that_means_nothing_is_refused_with_its_reason() {
    let refused = |scorer: Value| config(&json!([scorer])).unwrap_err();
    let sentence = refused(json!({"type": "queue-scorer", "threshold": 5}));
    assert_eq!(sentence, "`threshold` is no parameter of `queue-scorer`: remove it");
    let sentence = refused(json!({"type": "prefix-cache-scorer", "maxBusyScore": 0.5}));
    assert_eq!(sentence, "`maxBusyScore` is no parameter of `prefix-cache-scorer`: remove it");
    assert!(refused(json!({"type": "queue"})).contains("unknown variant `queue`, expected one of `queue-scorer`"));
    assert!(refused(json!({"type": "queue-scorer", "wieght": 5})).contains("unknown field `wieght`, expected one of `type`, `weight`"));
    assert!(refused(json!({"weight": 5})).contains("missing field `type`"));
}

#[test]
fn the_schema_lists_each_type_by_its_name() {
    let schema = schemars::schema_for!(EndpointPick).to_value();
    let names = schema["$defs"]["ScorerType"]["enum"].as_array().unwrap();
    assert_eq!(names.len(), 12);
    for name in names {
        let scorers = config(&json!([{ "type": name }])).unwrap().scorers;
        assert_eq!((scorers[0].kind.name(), scorers[0].weight.to_bits()), (name.as_str().unwrap(), 1.0_f64.to_bits()));
    }
}

/// Pseudorandom numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn number(&mut self, limit: u32) -> f64 {
        f64::from(u32::try_from(self.below(u64::from(limit) + 1)).unwrap())
    }

    fn share(&mut self) -> f64 {
        self.number(1000) / 1000.0
    }

    /// A possible value of a feature.
    fn value(&mut self, name: &str) -> f64 {
        match name {
            "queue-length" | "running-requests" | "in-flight-requests" => self.number(200),
            "cached-tokens" | "uncached-tokens" | "in-flight-tokens" => self.number(9_000_000),
            "adapter-loaded" | "adapter-waiting" | "adapter-slots" | "session" => self.number(1),
            _ => self.share(),
        }
    }

    /// An invalid value of a feature.
    fn odd(&mut self) -> f64 {
        const ODD: [f64; 9] = [NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::MIN_POSITIVE, -0.0, -1.0, 1e300];
        ODD[usize::try_from(self.below(9)).unwrap()]
    }

    fn scorers(&mut self) -> Value {
        let each = [
            json!({"type": "queue-scorer"}),
            json!({"type": "running-requests-size-scorer"}),
            json!({"type": "kv-cache-utilization-scorer"}),
            json!({"type": "prefix-cache-scorer", "matchLengthWeight": self.share(), "matchLengthScale": self.number(9000) + 1.0}),
            json!({"type": "lora-affinity-scorer"}),
            json!({"type": "token-load-scorer", "threshold": self.number(9_000_000) + 1.0}),
            json!({"type": "active-request-scorer", "idleThreshold": self.number(100), "maxBusyScore": self.share()}),
            json!({"type": "load-aware-scorer", "threshold": self.number(200) + 1.0}),
            json!({"type": "session-affinity-scorer"}),
            json!({"type": "no-hit-lru-scorer"}),
            json!({"type": "context-length-aware"}),
            json!({"type": "latency-scorer"}),
        ];
        let mut some: Vec<Value> = each.into_iter().filter(|_| self.below(3) == 0).collect();
        for scorer in &mut some {
            scorer["weight"] = json!(self.number(50) / 10.0);
        }
        Value::Array(some)
    }
}

/// The score of upstream's scorer for an endpoint with known features, computed row by row.
fn upstream(scorer: &Value, rows: &[Vec<f64>], row: usize) -> f64 {
    let column = |name: &str| FEATURES.iter().position(|known| *known == name).unwrap();
    let value = |name: &str| rows[row][column(name)];
    let most = |name: &str| rows.iter().map(|row| row[column(name)]).fold(0.0, f64::max);
    let least = |name: &str| rows.iter().map(|row| row[column(name)]).fold(f64::MAX, f64::min);
    let low = |name: &str| {
        if most(name) > least(name) { (most(name) - value(name)) / (most(name) - least(name)) } else { 1.0 }
    };
    let number = |name: &str| scorer[name].as_f64().unwrap();
    match scorer["type"].as_str().unwrap() {
        "queue-scorer" => low("queue-length"),
        "running-requests-size-scorer" => low("running-requests"),
        "kv-cache-utilization-scorer" => 1.0 - value("kv-cache-utilization"),
        "prefix-cache-scorer" => {
            let length = (value("cached-tokens") / number("matchLengthScale")).min(1.0).powi(2);
            number("matchLengthWeight") * length + (1.0 - number("matchLengthWeight")) * value("prefix-match")
        }
        "lora-affinity-scorer" if value("adapter-loaded") > 0.0 => 1.0,
        "lora-affinity-scorer" if value("adapter-slots") > 0.0 => 0.8,
        "lora-affinity-scorer" => value("adapter-waiting") * 0.6,
        "token-load-scorer" => 1.0 - (value("in-flight-tokens") + value("uncached-tokens")).min(number("threshold")) / number("threshold"),
        "active-request-scorer" if value("in-flight-requests") <= number("idleThreshold") => 1.0,
        "active-request-scorer" => {
            let most = most("in-flight-requests");
            (most - value("in-flight-requests")) / most * number("maxBusyScore")
        }
        "load-aware-scorer" => 0.5 * (1.0 - value("queue-length").min(number("threshold")) / number("threshold")),
        "session-affinity-scorer" => value("session"),
        "no-hit-lru-scorer" => value("cold-request-turn"),
        "context-length-aware" => value("context-length-fit"),
        "latency-scorer" => low("time-to-first-token-seconds"),
        other => panic!("{other}"),
    }
}

#[test]
fn endpoints_have_the_order_of_upstreams_weighted_sum() {
    let mut dice = Dice(1);
    for case in 0..2_000 {
        let scorers = dice.scorers();
        let rows: Vec<Vec<f64>> = (0..=dice.below(8)).map(|_| FEATURES.iter().map(|name| dice.value(name)).collect()).collect();
        let scores = config(&scorers).unwrap().score(&matrix(&rows));
        let weighed =
            |row| scorers.as_array().unwrap().iter().map(|scorer| scorer["weight"].as_f64().unwrap() * upstream(scorer, &rows, row)).sum();
        let sums: Vec<f64> = (0..rows.len()).map(weighed).collect();
        for (one, other) in (0..rows.len()).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let apart = sums[one] - sums[other];
            if apart.abs() > 1e-9 {
                assert_eq!(scores[one] > scores[other], apart > 0.0, "case {case}: {scorers} {sums:?} {scores:?}");
            }
        }
    }
}

#[test]
fn no_input_makes_a_score_that_excludes_and_terms_add_up_to_the_score() {
    let mut dice = Dice(2);
    for case in 0..2_000 {
        let scorers = dice.scorers();
        let mut value = |name: &&str| if dice.below(2) == 0 { dice.odd() } else { dice.value(name) };
        let rows: Vec<Vec<f64>> = (0..5).map(|_| FEATURES.iter().map(&mut value).collect()).collect();
        let (config, matrix) = (config(&scorers).unwrap(), matrix(&rows));
        for (row, score) in config.score(&matrix).into_iter().enumerate() {
            assert!((0.0..=1.0).contains(&score), "case {case}: {score}, {scorers} {rows:?}");
            let terms = config.explain(&matrix, row);
            let sum: f64 = terms.iter().filter_map(|term| term.value).sum();
            assert!(terms.is_empty() || (sum - score).abs() < 1e-12, "case {case}: {score}, {terms:?}");
        }
    }
    // A host of another version may send rows of another length.
    for columns in 1..20 {
        let matrix = Matrix::new(columns, vec![1.0; columns * 3]).unwrap();
        assert!(EndpointPick::default().score(&matrix).iter().all(|score| (0.0..=1.0).contains(score)));
    }
}

#[test]
fn an_explanation_names_the_feature_that_led_to_each_part() {
    let known = |queue, used, share| endpoint(&[("queue-length", queue), ("kv-cache-utilization", used), ("prefix-match", share)]);
    let matrix = matrix(&[known(3.0, 0.4, 0.75), known(0.0, NAN, NAN), known(9.0, 0.0, 0.0), known(NAN, 0.0, 0.0)]);
    let messages = |row| EndpointPick::default().explain(&matrix, row).into_iter().map(|term| term.message).collect::<Vec<_>>();
    assert_eq!(
        messages(0),
        [
            "3 requests wait in its queue, and 0 to 9 in those of all candidates: 0.67 of 1, weight 2 of 7.",
            "40 % of its KV cache is in use: 0.60 of 1, weight 2 of 7.",
            "It has cached 75 % of the prompt: 0.75 of 1, weight 3 of 7.",
        ]
    );
    assert_eq!(messages(1)[1], "It hasn't reported its KV cache, which counts as full: 0.00 of 1, weight 2 of 7.");
    assert_eq!(messages(1)[2], "Its cached part of the prompt is unknown, which counts as nothing: 0.00 of 1, weight 3 of 7.");
    assert_eq!(messages(3)[0], "It hasn't reported its queue, which counts as the longest: 0.00 of 1, weight 2 of 7.");
    assert!(messages(4).is_empty());
}
