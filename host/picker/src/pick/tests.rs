use super::*;
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeSet;

fn scores(of: &[(f64, &[f64])]) -> Scores {
    let mut scores = Scores::default();
    scores.reset(of[0].1.len());
    for (weight, column) in of {
        assert!(scores.add(*weight, column));
    }
    scores
}

fn chosen(choice: Choice, scores: &Scores, number: usize, seed: u64) -> Vec<usize> {
    let mut chosen = Vec::new();
    choice.choose(scores, number, seed, &mut chosen);
    chosen
}

/// The share of seeds for which each endpoint is the first choice.
fn shares(choice: Choice, scores: &Scores) -> Vec<f64> {
    const SEEDS: u64 = 20_000;
    let mut counts = vec![0_u32; scores.sums().len()];
    for seed in 0..SEEDS {
        counts[chosen(choice, scores, 2, seed)[0]] += 1;
    }
    counts.into_iter().map(|count| f64::from(count) / 20_000.0).collect()
}

fn near(shares: &[f64], expected: &[f64]) {
    assert!(shares.iter().zip(expected).all(|(share, expected)| (share - expected).abs() < 0.02), "{shares:?} and not {expected:?}");
}

#[test]
fn scores_are_clamped_weighed_and_added_and_one_exclusion_excludes() {
    let nan = f64::NAN;
    let scores = scores(&[(2.0, &[0.5, 1.0, nan, -3.0]), (1.0, &[0.5, 7.0, 1.0, 0.25])]);
    assert_eq!((scores.sums()[0], scores.sums()[1], scores.sums()[3]), (1.5, 3.0, 0.25));
    assert!(scores.sums()[2].is_nan());
    let mut other = scores.clone();
    assert!(!other.add(1.0, &[1.0]), "a plugin that answers too little");
    assert!((other.sums()[0] - 1.5).abs() < f64::EPSILON);
    other.exclude(1);
    other.exclude(99);
    assert_eq!(chosen(Choice::MaxScore, &other, 9, 1), [0, 3]);
    assert!(chosen(Choice::MaxScore, &scores_of_none(), 1, 1).is_empty());
}

fn scores_of_none() -> Scores {
    scores(&[(1.0, &[f64::NAN, f64::NAN])])
}

#[test]
fn the_best_is_chosen_and_of_equal_ones_each_as_often() {
    let scores = scores(&[(1.0, &[0.2, 0.9, 0.9, 0.9])]);
    near(&shares(Choice::MaxScore, &scores), &[0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]);
    for seed in 0..100 {
        let one = chosen(Choice::MaxScore, &scores, 1, seed);
        assert_eq!(one, chosen(Choice::MaxScore, &scores, 4, seed)[..1], "the shorter way gives the same");
        assert_eq!(one, chosen(Choice::MaxScore, &scores, 1, seed));
        assert_eq!(chosen(Choice::MaxScore, &scores, 4, seed)[3], 0);
    }
}

#[test]
fn by_weight_each_is_chosen_as_often_as_its_score_is_high() {
    near(&shares(Choice::WeightedRandom, &scores(&[(1.0, &[0.1, 0.3, 0.6, 0.0])])), &[0.1, 0.3, 0.6, 0.0]);
    near(&shares(Choice::WeightedRandom, &scores(&[(1.0, &[0.0, 0.0])])), &[0.5, 0.5]);
    near(&shares(Choice::Random, &scores(&[(1.0, &[0.1, 0.9])])), &[0.5, 0.5]);
    near(&shares(Choice::TopK(2), &scores(&[(1.0, &[0.1, 0.9, 0.8, 0.2])])), &[0.0, 0.5, 0.5, 0.0]);
}

#[test]
fn where_no_policy_answers_the_least_loaded_is_chosen() {
    let endpoint = |in_flight_requests, queue_length| EndpointFeatures { queue_length, in_flight_requests, ..EndpointFeatures::default() };
    assert_eq!(least_loaded(&[endpoint(3.0, 0.0), endpoint(1.0, 2.0), endpoint(1.0, 1.0)], 7), Some(2));
    assert_eq!(least_loaded(&[endpoint(f64::NAN, f64::NAN), endpoint(1.0, 0.0)], 7), Some(0));
    assert_eq!(least_loaded(&[], 7), None);
    let both: BTreeSet<_> = (0..20).map(|seed| least_loaded(&[endpoint(1.0, 0.0), endpoint(1.0, 0.0)], seed).unwrap()).collect();
    assert_eq!(both.len(), 2);
}

#[test]
fn features_have_names_of_their_own_and_an_unknown_one_is_a_column_of_nan() {
    let names: BTreeSet<_> = Feature::ALL.iter().map(|feature| feature.name()).collect();
    assert_eq!(names.len(), Feature::ALL.len());
    assert!(Feature::ALL.iter().all(|feature| Feature::parse(feature.name()) == Some(*feature)));
    let endpoint = EndpointFeatures { queue_length: 4.0, prefix_match: 0.5, ..EndpointFeatures::default() };
    let mut matrix = vec![9.0; 3];
    let features = ["prefix-match", "of-tomorrow", "queue-length"].map(Feature::parse);
    fill(&features, [&endpoint, &endpoint], &mut matrix);
    assert_eq!(matrix.len(), 6);
    assert_eq!((matrix[0], matrix[2], matrix[3], matrix[5]), (0.5, 4.0, 0.5, 4.0));
    assert!(matrix[1].is_nan() && matrix[4].is_nan());
}

proptest! {
    #[test]
    fn no_choice_takes_an_excluded_one_or_one_twice(
        column in vec(prop_oneof![3 => -1.0..2.0, 1 => Just(f64::NAN), 1 => Just(0.5), 1 => Just(f64::INFINITY)], 0..20),
        number in 0..25_usize,
        seed: u64,
        most in 0..5_usize,
    ) {
        let mut scores = Scores::default();
        scores.reset(column.len());
        scores.add(1.5, &column);
        let allowed = column.iter().filter(|score| !score.is_nan()).count();
        for choice in [Choice::MaxScore, Choice::WeightedRandom, Choice::Random, Choice::TopK(most)] {
            let chosen = chosen(choice, &scores, number, seed);
            let most = if let Choice::TopK(most) = choice { most.max(1) } else { usize::MAX };
            prop_assert_eq!(chosen.len(), number.max(1).min(allowed).min(most));
            prop_assert!(chosen.iter().all(|at| !column[*at].is_nan()));
            prop_assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), chosen.len());
            if choice == Choice::MaxScore {
                let sums = scores.sums();
                prop_assert!(chosen.windows(2).all(|pair| sums[pair[0]] >= sums[pair[1]]));
            }
        }
    }
}

#[test]
fn features_have_json_by_their_names_and_null_is_unknown() {
    let known = EndpointFeatures { queue_length: 3.0, prefix_match: 0.1, ..EndpointFeatures::default() };
    let json = serde_json::to_value(known).unwrap();
    assert_eq!(json.as_object().unwrap().len(), Feature::ALL.len());
    assert_eq!((&json["queue-length"], &json["prefix-match"], json["session"].is_null()), (&3.0.into(), &0.1.into(), true));
    let read: EndpointFeatures = serde_json::from_str(r#"{"queue-length": 3, "of-a-newer-version": 1, "session": null}"#).unwrap();
    assert_eq!(read.queue_length.to_bits(), 3.0_f64.to_bits());
    assert!(read.session.is_nan() && read.prefix_match.is_nan());
}
