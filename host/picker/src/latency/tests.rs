use super::*;
use proptest::{collection::vec, prelude::*};

/// Pseudorandom numbers between 0 and 1.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / f64::from(u32::MAX)
    }

    fn sent(&mut self) -> Sent {
        Sent {
            uncached_tokens: self.next() * 8_000.0,
            queue_length: (self.next() * 20.0).floor(),
            running_requests: (self.next() * 64.0).floor(),
            in_flight_tokens: self.next() * 50_000.0,
        }
    }
}

/// The response time of a server with this prefill speed, which increases with each queued request.
fn server(sent: &Sent, tokens_per_second: f64) -> f64 {
    0.05 + sent.uncached_tokens / tokens_per_second + sent.queue_length * 0.08 + sent.running_requests * 0.002
}

#[test]
fn a_server_s_times_are_learned_and_a_change_of_its_speed_too() {
    let (mut estimate, mut dice) = (LatencyEstimate::default(), Dice(7));
    for (tokens_per_second, answers) in [(10_000.0, 500), (4_000.0, 3_000)] {
        for _ in 0..answers {
            let sent = dice.sent();
            estimate.learn(&sent, server(&sent, tokens_per_second) * (0.95 + dice.next() / 10.0));
        }
        for _ in 0..100 {
            let sent = dice.sent();
            let (estimated, takes) = (estimate.seconds(&sent).unwrap(), server(&sent, tokens_per_second));
            assert!((estimated - takes).abs() < 0.1 * takes + 0.05, "{estimated} and not {takes}: {sent:?}");
        }
        let quality = estimate.quality().unwrap();
        assert!(quality.skill > 0.8 && quality.mean_error_seconds < 0.1, "{quality:?}");
    }
}

#[test]
fn before_enough_was_seen_nothing_is_estimated_and_noise_has_no_skill() {
    let (mut estimate, mut dice) = (LatencyEstimate::default(), Dice(11));
    for _ in 0..LEAST_SEEN {
        assert_eq!((estimate.seconds(&dice.sent()), estimate.quality()), (None, None));
        let sent = dice.sent();
        estimate.learn(&sent, 1.0);
    }
    assert!(estimate.seconds(&dice.sent()).is_some());
    for _ in 0..2_000 {
        let sent = dice.sent();
        estimate.learn(&sent, dice.next());
    }
    let quality = estimate.quality().unwrap();
    assert!(quality.skill.abs() < 0.15, "{quality:?}");
}

#[test]
fn inputs_that_never_vary_and_those_that_are_unknown_do_no_harm() {
    let mut estimate = LatencyEstimate::default();
    let same = Sent { queue_length: f64::NAN, uncached_tokens: 500.0, ..Sent::default() };
    for _ in 0..100_000 {
        estimate.learn(&same, 0.5);
        estimate.learn(&same, f64::NAN);
        estimate.learn(&same, -1.0);
    }
    let estimated = estimate.seconds(&same).unwrap();
    assert!((estimated - 0.5).abs() < 0.01, "{estimated}");
    let mut dice = Dice(3);
    for _ in 0..1_000 {
        let sent = dice.sent();
        estimate.learn(&sent, server(&sent, 10_000.0));
    }
    let sent = dice.sent();
    assert!((estimate.seconds(&sent).unwrap() - server(&sent, 10_000.0)).abs() < 0.2);
}

proptest! {
    #[test]
    fn estimates_are_times_whatever_was_seen(seen in vec((any::<[f64; 4]>(), any::<f64>()), 0..60), last: [f64; 4]) {
        let sent = |[uncached_tokens, queue_length, running_requests, in_flight_tokens]: [f64; 4]| {
            Sent { uncached_tokens, queue_length, running_requests, in_flight_tokens }
        };
        let mut estimate = LatencyEstimate::default();
        for (inputs, seconds) in seen {
            estimate.learn(&sent(inputs), seconds);
        }
        let sane = sent(last.map(|value| if value.is_finite() { value % 1e6 } else { 0.0 }));
        prop_assert!(estimate.seconds(&sane).is_none_or(|seconds| seconds >= 0.0));
    }
}
