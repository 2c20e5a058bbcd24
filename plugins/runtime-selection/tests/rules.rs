//! The rules for matching runtimes, in their order, and the score.

use pointsman_plugin::runtime_selection::{Candidate, Comparison, Eligible, Model, Request, Supported, SupportedModel, Verdict};
use pointsman_runtime_selection::{Config, judge};

fn model() -> Model {
    Model {
        name: "llama".into(),
        format: Some(("safetensors", "1").into()),
        framework: Some(("transformers", "4.43.0").into()),
        architecture: Some("LlamaForCausalLM".into()),
        parameter_size: Some("8B".into()),
        ..Model::default()
    }
}

fn entry() -> SupportedModel {
    SupportedModel {
        format: Some(("safetensors", "1").into()),
        framework: Some(("transformers", "4.43.0").into()),
        architecture: Some("LlamaForCausalLM".into()),
        auto_select: Some(true),
        ..SupportedModel::default()
    }
}

fn runtime(models: Vec<SupportedModel>) -> Candidate {
    Candidate { name: "runtime".into(), models, ..Candidate::default() }
}

fn with(change: impl FnOnce(&mut SupportedModel)) -> Candidate {
    let mut entry = entry();
    change(&mut entry);
    runtime(vec![entry])
}

fn ask(config: &Config, model: Model, candidate: Candidate, named: bool) -> Verdict {
    let request = Request { model, candidates: vec![candidate], named, ..Request::default() };
    judge(config, request).map_or(Verdict::Abstain, |mut verdicts| verdicts.remove(0))
}

/// The code of the exclusion, or `Eligible`.
fn code(model: Model, candidate: Candidate) -> String {
    match ask(&Config::default(), model, candidate, false) {
        Verdict::Excluded(reason) => reason.code,
        verdict => verdict_line(&verdict),
    }
}

fn verdict_line(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Excluded(reason) => format!("{}: {}", reason.code, reason.message),
        Verdict::Eligible(Eligible { score, tie_break, .. }) => format!("Eligible {score} {tie_break:?}"),
        Verdict::Abstain => "Abstain".to_owned(),
    }
}

#[test]
fn what_matches_is_eligible() {
    let verdict = ask(&Config::default(), model(), runtime(vec![entry()]), false);
    assert_eq!(verdict_line(&verdict), "Eligible 15 [0.0]");
    let Verdict::Eligible(eligible) = verdict else { return };
    let reasons: Vec<_> = eligible.reasons.iter().map(|reason| (reason.code.as_str(), reason.message.as_str())).collect();
    assert_eq!(reasons, [("Score", "Score 15: (10 for the format safetensors + 5 for the framework transformers) x priority 1.")]);
}

#[test]
fn each_rule_has_its_code() {
    assert_eq!(code(Model { disabled: true, ..model() }, runtime(vec![entry()])), "ModelDisabled");
    assert_eq!(code(model(), Candidate { disabled: true, ..runtime(vec![entry()]) }), "Disabled");
    assert_eq!(code(model(), runtime(Vec::new())), "FormatMismatch");

    assert_eq!(code(model(), with(|entry| entry.architecture = Some("Other".into()))), "ArchitectureMismatch");
    assert_eq!(code(model(), with(|entry| entry.architecture = None)), "ArchitectureMismatch");
    assert_eq!(code(Model { architecture: None, ..model() }, with(|_| {})), "ArchitectureMismatch");
    assert_eq!(code(model(), with(|entry| entry.quantization = Some("fp8".into()))), "QuantizationMismatch");
    assert_eq!(code(Model { quantization: Some("fp8".into()), ..model() }, with(|_| {})), "QuantizationMismatch");

    assert_eq!(code(model(), with(|entry| entry.format = None)), "FormatMismatch");
    assert_eq!(code(Model { format: None, ..model() }, with(|_| {})), "FormatMismatch");
    assert_eq!(code(model(), with(|entry| entry.format = Some(("onnx", "1").into()))), "FormatMismatch");
    assert_eq!(code(model(), with(|entry| entry.format = Some("safetensors".into()))), "VersionMismatch");
    assert_eq!(code(Model { format: Some("safetensors".into()), ..model() }, with(|_| {})), "VersionMismatch");
    assert_eq!(code(model(), with(|entry| entry.format = Some(("safetensors", "2").into()))), "VersionMismatch");

    assert_eq!(code(model(), with(|entry| entry.framework = None)), "FrameworkMismatch");
    assert_eq!(code(Model { framework: None, ..model() }, with(|_| {})), "FrameworkMismatch");
    assert_eq!(code(model(), with(|entry| entry.framework = Some(("onnx", "4.43.0").into()))), "FrameworkMismatch");
    assert_eq!(code(model(), with(|entry| entry.framework = Some("transformers".into()))), "VersionMismatch");
    assert_eq!(code(model(), with(|entry| entry.framework = Some(("transformers", "4.44.0").into()))), "VersionMismatch");

    assert_eq!(code(model(), with(|entry| entry.auto_select = None)), "NotAutoSelected");
    assert_eq!(code(model(), with(|entry| entry.auto_select = Some(false))), "NotAutoSelected");
    assert_eq!(code(model(), with(|entry| entry.priority = Some(0))), "NoScore");
    assert_eq!(code(model(), with(|entry| entry.priority = Some(-1))), "NoScore");
}

#[test]
fn the_runtimes_operator_decides() {
    let greater = |version: &str| {
        with(|entry| {
            entry.framework = Some(Supported { comparison: Comparison::GreaterThan, ..("transformers", version).into() });
        })
    };
    assert_eq!(code(model(), greater("4.44.0")), "Eligible 15 [0.0]");
    let verdict = ask(&Config::default(), model(), greater("4.43.0"), false);
    let sentence = "The runtime's version 4.43.0 of the framework transformers must be greater than the model's 4.43.0.";
    assert_eq!(verdict_line(&verdict), format!("VersionMismatch: {sentence}"));
}

#[test]
fn the_first_rule_that_fails_is_told() {
    let everything_wrong = || {
        let mut runtime = with(|entry| {
            *entry = SupportedModel { architecture: Some("Other".into()), quantization: Some("fp8".into()), ..SupportedModel::default() };
        });
        runtime.smallest = Some("x".into());
        runtime
    };
    assert_eq!(code(model(), Candidate { disabled: true, ..everything_wrong() }), "Disabled");
    assert_eq!(code(model(), everything_wrong()), "ArchitectureMismatch");
    let mut only_size = with(|entry| entry.auto_select = None);
    only_size.smallest = Some("9B".into());
    assert_eq!(code(model(), only_size), "SizeOutOfRange");
}

#[test]
fn the_closest_kind_is_told() {
    let other = SupportedModel { architecture: Some("Other".into()), ..entry() };
    let closer = SupportedModel { framework: None, ..entry() };
    let also = SupportedModel { format: Some("onnx".into()), ..entry() };
    let verdict = ask(&Config::default(), model(), runtime(vec![other, closer, also]), false);
    let sentence = "None of the runtime's 3 supportedModelFormats matches. The closest: The model's framework is transformers, but the \
                    runtime specifies none.";
    assert_eq!(verdict_line(&verdict), format!("FrameworkMismatch: {sentence}"));
}

#[test]
fn sizes_lie_within_the_range() {
    let sized = |model_size: Option<&str>, smallest: Option<&str>, largest: Option<&str>| {
        let mut runtime = runtime(vec![entry()]);
        runtime.smallest = smallest.map(str::to_owned);
        runtime.largest = largest.map(str::to_owned);
        code(Model { parameter_size: model_size.map(str::to_owned), ..model() }, runtime)
    };
    assert_eq!(sized(Some("8B"), Some("7B"), Some("10B")), "Eligible 15 [3000000000.0]");
    assert_eq!(sized(Some("8B"), Some("8B"), Some("8B")), "Eligible 15 [0.0]");
    assert_eq!(sized(Some("8B"), Some("8000M"), None), "Eligible 15 [0.0]");
    assert_eq!(sized(Some("8B"), None, Some("0.01T")), "Eligible 15 [2000000000.0]");
    assert_eq!(sized(Some("6B"), Some("7B"), None), "SizeOutOfRange");
    assert_eq!(sized(Some("11B"), None, Some("10B")), "SizeOutOfRange");
    assert_eq!(sized(Some("8B"), None, None), "Eligible 15 [0.0]");
    assert_eq!(sized(None, Some("7B"), Some("10B")), "Eligible 15 [0.0]");
    assert_eq!(sized(Some("8B"), Some("0"), Some("10000000000")), "Eligible 15 [10000000000.0]");
    assert_eq!(sized(Some("8"), Some("7B"), Some("10B")), "SizeOutOfRange");
    assert_eq!(sized(Some("big"), None, None), "Eligible 15 [0.0]");
    for (size, smallest, largest) in [("big", "7B", "10B"), ("8B", "small", "10B"), ("8B", "7B", "large")] {
        assert_eq!(sized(Some(size), Some(smallest), Some(largest)), "SizeUnparsable");
    }
}

#[test]
fn only_what_matches_the_model_counts() {
    let other = SupportedModel { architecture: Some("Other".into()), priority: Some(100), ..entry() };
    let switched_off = SupportedModel { auto_select: Some(false), priority: Some(50), ..entry() };
    let plain = SupportedModel { auto_select: None, priority: Some(2), ..entry() };
    assert_eq!(code(model(), runtime(vec![other, switched_off, plain, entry()])), "Eligible 30 [0.0]");
}

#[test]
fn any_kind_may_open_the_runtime_for_choice() {
    let other = SupportedModel { architecture: Some("Other".into()), ..entry() };
    assert_eq!(code(model(), runtime(vec![other.clone(), SupportedModel { auto_select: None, ..entry() }])), "Eligible 15 [0.0]");
    assert_eq!(code(model(), runtime(vec![other, SupportedModel { auto_select: Some(false), ..entry() }])), "NoScore");
}

#[test]
fn weights_come_from_the_runtime_then_from_the_configuration() {
    let config = Config { format_weight: 3, framework_weight: 4 };
    let score = |candidate| verdict_line(&ask(&config, model(), candidate, false));
    assert_eq!(score(with(|_| {})), "Eligible 7 [0.0]");
    let weighed = |weight| with(|entry| entry.format = Some(Supported { weight: Some(weight), ..("safetensors", "1").into() }));
    assert_eq!(score(weighed(20)), "Eligible 24 [0.0]");
    assert_eq!(score(weighed(0)), "Eligible 7 [0.0]");
    let without = Model { framework: None, ..model() };
    assert_eq!(verdict_line(&ask(&config, without, with(|entry| entry.framework = None), false)), "Eligible 3 [0.0]");
}

#[test]
fn a_named_runtime_must_match_and_no_more() {
    let named = |candidate| verdict_line(&ask(&Config::default(), model(), candidate, true));
    assert_eq!(named(with(|entry| entry.auto_select = Some(false))), "Eligible 0 [0.0]");
    assert_eq!(named(with(|entry| entry.auto_select = None)), "Eligible 15 [0.0]");
    assert!(named(with(|entry| entry.architecture = None)).starts_with("ArchitectureMismatch"));
    assert!(named(Candidate { disabled: true, ..with(|_| {}) }).starts_with("Disabled"));
}
