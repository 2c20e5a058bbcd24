//! Properties that hold for every question.

use pointsman_plugin::runtime_selection::{Candidate, Comparison, Model, Request, Supported, SupportedModel, Verdict, Versioned};
use pointsman_runtime_selection::{Config, judge, size, version};
use proptest::{collection::vec, option, prelude::*, sample::select};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(vec!["", "1", "v1", "1.2", "1.2.3", "1.2.3.dev0", "1.2.3-rc.1", "7B", "8B", "0.5T", "900M", "B"]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![9 => Just("a".to_owned()), 1 => text()]
}

fn versioned() -> impl Strategy<Value = Versioned> {
    (name(), option::of(text())).prop_map(|(name, version)| Versioned { name, version })
}

fn supported() -> impl Strategy<Value = Supported> {
    let comparison = select(vec![Comparison::Equal, Comparison::GreaterThan, Comparison::GreaterThanOrEqual]);
    let supported = |(name, version, comparison, weight)| Supported { name, version, comparison, weight };
    (name(), option::of(text()), comparison, option::of(any::<i64>())).prop_map(supported)
}

fn supported_model() -> impl Strategy<Value = SupportedModel> {
    let parts = (option::weighted(0.9, supported()), option::of(supported()), option::of(name()), option::weighted(0.1, name()));
    (parts, any::<Option<bool>>(), any::<Option<i32>>()).prop_map(
        |((format, framework, architecture, quantization), auto_select, priority)| SupportedModel {
            format,
            framework,
            architecture,
            quantization,
            auto_select,
            priority,
            ..SupportedModel::default()
        },
    )
}

fn candidate() -> impl Strategy<Value = Candidate> {
    let parts = (name(), prop::bool::weighted(0.1), vec(supported_model(), 0..4), option::of(text()), option::of(text()));
    parts.prop_map(|(name, disabled, models, smallest, largest)| Candidate {
        name,
        disabled,
        models,
        smallest,
        largest,
        ..Candidate::default()
    })
}

fn model() -> impl Strategy<Value = Model> {
    let parts = (
        option::weighted(0.9, versioned()),
        option::of(versioned()),
        option::of(name()),
        option::weighted(0.1, name()),
        option::of(text()),
    );
    parts.prop_map(|(format, framework, architecture, quantization, parameter_size)| Model {
        format,
        framework,
        architecture,
        quantization,
        parameter_size,
        ..Model::default()
    })
}

fn request() -> impl Strategy<Value = Request> {
    (model(), vec(candidate(), 0..6), any::<bool>()).prop_map(|(model, candidates, named)| Request {
        model,
        candidates,
        named,
        ..Request::default()
    })
}

fn verdicts(request: Request) -> Vec<Verdict> {
    judge(&Config::default(), request).unwrap_or_default()
}

proptest! {
    #[test]
    fn every_candidate_has_a_verdict_that_says_why(request in request()) {
        let count = request.candidates.len();
        let named = request.named;
        let verdicts = verdicts(request);
        prop_assert_eq!(verdicts.len(), count);
        for verdict in verdicts {
            match verdict {
                Verdict::Excluded(reason) => prop_assert!(!reason.code.is_empty() && reason.message.ends_with('.')),
                Verdict::Eligible(eligible) => {
                    prop_assert!(eligible.score.is_finite() && (named || eligible.score > 0.0));
                    prop_assert!(eligible.tie_break.len() == 1 && eligible.tie_break[0].is_finite() && eligible.tie_break[0] >= 0.0);
                    prop_assert!(!eligible.reasons.is_empty());
                }
                Verdict::Abstain => prop_assert!(false, "it has something to say of everything"),
            }
        }
    }

    #[test]
    fn the_order_of_candidates_says_nothing((request, order) in request().prop_flat_map(|request| {
        let order: Vec<usize> = (0..request.candidates.len()).collect();
        (Just(request), Just(order).prop_shuffle())
    })) {
        let mut shuffled = request.clone();
        shuffled.candidates = order.iter().map(|&index| request.candidates[index].clone()).collect();
        let verdicts_of_shuffled = verdicts(shuffled);
        let straight = verdicts(request);
        let expected: Vec<Verdict> = order.iter().map(|&index| straight[index].clone()).collect();
        prop_assert_eq!(verdicts_of_shuffled, expected);
    }

    #[test]
    fn no_text_is_too_odd(text in any::<String>(), other in any::<String>()) {
        let _ = size::parameters(&text);
        let _ = version::compatible(&text, Comparison::Equal, &other);
    }

    #[test]
    fn what_looks_like_a_version_is_read_or_refused(text in "v?[0-9.+v-]{0,12}(dev|rc)?[0-9.+-]{0,4}") {
        if version::Version::parse(&text).is_some() {
            prop_assert_eq!(version::compatible(&text, Comparison::Equal, &text), Ok(()));
        }
    }
}
