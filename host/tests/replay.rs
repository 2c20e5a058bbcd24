//! Questions at hot points are recorded, and replayed to a set that is only tried.

use crate::policies::{compilers, engines, module};
use pointsman::{comparison::LiveComparison, load::Loader, watch::Shared};
use pointsman_core::{
    claims::Claims,
    decide::{Policies, Standing, Unheard, replay::Replayed, scoring::Candidates, set::ActiveSet},
    settings::Settings,
};
use pointsman_crds::policy::{plugin::PolicyPoint, set::PolicySetPlugin};
use pointsman_sandbox::point::{Question, Subject};
use std::sync::Arc;
use tokio::sync::watch;

/// A set in which the example policy balances endpoints, with this configuration.
fn balancing(loader: &Loader, config: &str) -> ActiveSet {
    let bytes = module("pointsman-example-rust-balance");
    let bound = PolicySetPlugin {
        name: "balance".to_owned(),
        digest: pointsman_sandbox::digest::Digest::hash(&bytes).to_string(),
        points: vec![PolicyPoint::SchedulingScoring],
        order: 100,
        weight: 1,
        config: Some(config.to_owned()),
        ..PolicySetPlugin::default()
    };
    ActiveSet::new(vec![Arc::new(loader.load(bound, &bytes).unwrap())])
}

/// Two endpoints: one has a longer queue, and the other one has cached less of the prompt.
const FEATURES: [&str; 2] = ["queue-length", "prefix-match"];

#[tokio::test(flavor = "multi_thread")]
async fn what_was_asked_is_put_to_a_candidate_and_it_is_told_where_another_endpoint_would_be_picked() {
    let loader = Loader::new(Arc::clone(engines()), compilers());
    let only = |feature: &str| {
        let weights = pointsman_example_rust_balance::FEATURES.iter().map(|other| {
            format!(
                "\"{other}\": {}",
                if *other != feature {
                    0
                } else if *other == "queue-length" {
                    -1
                } else {
                    1
                }
            )
        });
        format!("{{\"weights\": {{{}}}}}", weights.collect::<Vec<_>>().join(", "))
    };
    let active = balancing(&loader, &only("queue-length"));
    let policies = Policies::new(active.afresh(), Arc::new(Unheard));
    // For the first question the two disagree, for the second one they agree.
    for values in [[9.0, 0.9, 1.0, 0.1], [1.0, 0.9, 9.0, 0.1]] {
        let candidates = Candidates { features: &FEATURES, values: &values };
        policies.pin(Standing::Running).score(&Subject::default(), Question::EndpointPick, candidates).unwrap();
    }
    let recorded = policies.recorded();
    assert_eq!(recorded.len(), 2);

    let (_, listed) = watch::channel(None);
    let stage = LiveComparison::new(Shared::default(), Claims::default(), Settings::default(), listed);
    let other = balancing(&loader, &only("prefix-match"));
    let report = stage.compare(&active, &other, &recorded, |_| {}).await;
    let Replayed { questions, best, scores, failed } = report.replayed.unwrap();
    assert_eq!((questions, best, failed), (2, 1, 0));
    assert!(scores <= 1);
    assert_eq!(report.radius().scores.map(|scores| scores.best), Some(1));
    assert_eq!(stage.compare(&active, &active, &recorded, |_| {}).await.replayed, None, "nobody else answers");
    assert_eq!(policies.recorded().len(), 2, "what is only tried isn't recorded");
}
