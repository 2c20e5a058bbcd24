//! Same input, same bytes: a policy gives the same answers as a plain function, in a fresh instance and in a warm one, with and without
//! fuel.

use crate::policies::{linked, module};
use crate::questions::{Carrying, Dice, Scoring, Selecting, Templating};
use pointsman_plugin as sdk;
use pointsman_sandbox::{
    call::{CallError, Spent},
    engine::Use,
    plugin::{Instances, Plugin},
};
use serde::{Serialize, de::DeserializeOwned};
use std::cell::Cell;

/// The number of questions per policy, over all its configurations.
const CASES: u64 = 1000;

/// An answer in JSON, or the plugin's own error message.
type Answer = Result<String, String>;

/// Sends one question to a sandbox.
type Put<'a, Question> = &'a dyn Fn(&Plugin, &Question) -> Result<(String, Spent), CallError>;

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

/// Converts the host's question to the SDK's via JSON: `image.rs` tests that both have the same JSON.
fn read<Sdk: DeserializeOwned>(question: &impl Serialize) -> Sdk {
    serde_json::from_str(&json(question)).unwrap()
}

/// The arguments of a policy's function from a question at scheduling-scoring.
fn asked(question: &Scoring) -> (sdk::Question, sdk::scheduling_scoring::Matrix) {
    let sdk::scheduling_scoring::Request { question, columns, matrix, .. } = read(&question.request());
    (question, sdk::scheduling_scoring::Matrix::new(columns as usize, matrix).unwrap())
}

fn answer(outcome: Result<(String, Spent), CallError>) -> (Answer, Option<u64>) {
    match outcome {
        Ok((answer, spent)) => (Ok(answer), spent.fuel),
        Err(CallError::Failed(sentence)) => (Err(sentence), None),
        Err(error) => panic!("{error}"),
    }
}

/// Sends the same questions to all forms of a policy. The two fresh ones must also use the same amount of fuel.
fn agree<Question>(
    package: &str,
    configs: &[&str],
    question: impl Fn(&mut Dice) -> Question,
    native: impl Fn(&str, &Question) -> Answer,
    put: Put<'_, Question>,
) {
    let module = module(package);
    let mut failed = 0;
    for (number, config) in (0_u64..).zip(configs) {
        let plugin = |use_, instances| linked(&module, use_, config, instances);
        let fresh = plugin(Use::ControlPlane, Instances::Fresh);
        let others = [
            ("warm", plugin(Use::ControlPlane, Instances::Warm)),
            ("warm, without fuel", plugin(Use::Hot, Instances::Warm)),
            ("fresh, without fuel", plugin(Use::Hot, Instances::Fresh)),
        ];
        for seed in (number..CASES).step_by(configs.len()) {
            let question = question(&mut Dice::new(seed));
            let plain = native(config, &question);
            let (first, fuel) = answer(put(&fresh, &question));
            assert_eq!(first, plain, "{package}, case {seed}: fresh and native");
            assert_eq!(answer(put(&fresh, &question)), (first, fuel), "{package}, case {seed}: fresh and again fresh");
            assert_eq!(fuel.is_some(), plain.is_ok());
            for (form, plugin) in &others {
                assert_eq!(answer(put(plugin, &question)).0, plain, "{package}, case {seed}: {form} and native");
            }
            failed += u64::from(plain.is_err());
        }
    }
    assert!(failed < CASES / 10, "most questions are to be answered, and {failed} weren't");
}

fn config<Config: DeserializeOwned>(text: &str) -> Config {
    serde_json::from_str(text).unwrap()
}

fn to_json<Answer: Serialize>(answer: Result<Answer, sdk::Failure>) -> self::Answer {
    answer.map(|answer| json(&answer)).map_err(|failure| failure.message)
}

fn judge(plugin: &Plugin, question: &Selecting) -> Result<(String, Spent), CallError> {
    plugin.judge(question.request()).map(|(verdicts, spent)| (json(&verdicts), spent))
}

#[test]
fn runtime_selection_answers_alike_natively_fresh_and_warm() {
    use pointsman_runtime_selection as policy;
    let native = |text: &str, question: &Selecting| to_json(policy::judge(&config(text), read(&question.request())));
    agree("pointsman-runtime-selection", &["{}", r#"{"formatWeight":3,"frameworkWeight":0}"#], Selecting::new, native, &judge);
}

#[test]
fn the_cost_policy_answers_alike_natively_fresh_and_warm() {
    use pointsman_example_rust_cost as policy;
    let native = |text: &str, question: &Selecting| to_json(policy::judge(&config(text), read(&question.request())));
    agree("pointsman-example-rust-cost", &["{}", r#"{"weight":0.1,"maxPerHour":10}"#], Selecting::new, native, &judge);
}

#[test]
fn the_label_policy_answers_alike_natively_fresh_and_warm() {
    use pointsman_example_rust_labels as policy;
    let native = |text: &str, question: &Carrying| to_json(policy::propagate(&config(text), read(&question.request())));
    agree("pointsman-example-rust-labels", &["{}", r#"{"label":"team"}"#], Carrying::new, native, &|plugin, question| {
        plugin.propagate(question.request()).map(|(answer, spent)| (json(&answer), spent))
    });
}

#[test]
fn metadata_propagation_answers_alike_natively_fresh_and_warm() {
    use pointsman_metadata_propagation as policy;
    let (carried, refused) = (Cell::new(0_u64), Cell::new(0_u64));
    let native = |text: &str, question: &Carrying| {
        let answer = policy::propagate(&config(text), read(&question.request()))?;
        if question.subject.kind == "LLMInferenceService" {
            // The target doesn't have any of these yet.
            let approvable = ["kueue.x-k8s.io/queue-name", "prometheus.io/port"];
            let mut placed = answer.labels.iter().chain(&answer.annotations);
            let of_subject = placed.any(|placed| placed.layer == "subject" && approvable.contains(&&*placed.key));
            let not_approved = answer.dropped.iter().any(|dropped| dropped.reason.code == "NotApproved");
            carried.set(carried.get() + u64::from(of_subject));
            refused.set(refused.get() + u64::from(not_approved));
        }
        Ok(answer)
    };
    let configs = [
        "{}",
        r#"{"upstreamKeys":false,"namespaceLabels":["*"],"internalKeys":["example.com/"]}"#,
        r#"{"llmInferenceService":{"approvedLabels":["team","prometheus.io/"],"approvedAnnotations":["example.com/*"]}}"#,
    ];
    agree(
        "pointsman-metadata-propagation",
        &configs,
        Carrying::new,
        |text, question| to_json(native(text, question)),
        &|plugin, question| plugin.propagate(question.request()).map(|(answer, spent)| (json(&answer), spent)),
    );
    assert!(carried.get() > CASES / 50 && refused.get() > CASES / 50, "{carried:?} and {refused:?}: what is approved matters too rarely");
}

#[test]
fn the_balancing_policy_answers_alike_natively_fresh_and_warm() {
    use pointsman_example_rust_balance as policy;
    use pointsman_sandbox::point::scoring::Scores;
    let native = |text: &str, question: &Scoring| {
        let (question, matrix) = asked(question);
        let scores = policy::score(&config(text), question, &matrix).map_err(|failure| failure.message)?;
        let reasons = policy::explain(&config(text), question, &matrix, 0);
        Ok(json(&(sdk::scheduling_scoring::Scores(scores), reasons)))
    };
    let configs = ["{}", r#"{"weights":{"prefix-match":-0.3,"queue-length":0}}"#];
    agree("pointsman-example-rust-balance", &configs, |dice| Scoring::new(dice, 8), native, &|plugin, question| {
        let (scores, spent) = plugin.score(question.request())?;
        let (reasons, _) = plugin.explain(question.request(), 0)?;
        Ok((json(&(Scores(scores), reasons)), spent))
    });
}

#[test]
fn pod_templating_answers_alike_natively_fresh_and_warm() {
    use pointsman_pod_templating as policy;
    let native = |text: &str, question: &Templating| to_json(policy::template(&config(text), read(&question.request())));
    let configs = ["{}", r#"{"arguments":"MergeByFlag","modelRoot":"/raid","placement":false,"parallelism":false,"gpuResources":[]}"#];
    agree("pointsman-pod-templating", &configs, Templating::new, native, &|plugin, question| {
        plugin.template(question.request()).map(|(answer, spent)| (json(&answer), spent))
    });
}

#[test]
fn scheduling_scoring_answers_alike_natively_fresh_and_warm() {
    use pointsman_sandbox::point::{Question, scoring::Scores};
    use pointsman_scheduling_scoring as policy;
    let native = |text: &str, question: &Scoring| {
        let (question, matrix) = asked(question);
        let scores = policy::score(&config(text), question, &matrix).map_err(|failure| failure.message)?;
        Ok(json(&(sdk::scheduling_scoring::Scores(scores), policy::explain(&config(text), question, &matrix, 0))))
    };
    let put = |plugin: &Plugin, question: &Scoring| {
        let (scores, spent) = plugin.score(question.request())?;
        let (reasons, _) = plugin.explain(question.request(), 0)?;
        Ok((json(&(Scores(scores), reasons)), spent))
    };
    let memory = ["{}", r#"{"memoryAdmission":{"priority":-2.5,"demand":0}}"#];
    let nodes = ["{}", r#"{"nodePlacement":{"spread":-2,"image":0,"spot":1.5,"price":3,"requireModel":true,"maxPrice":12}}"#];
    let endpoints = [
        "{}",
        r#"{"endpointPick":{"scorers":[{"type":"lora-affinity-scorer"},{"type":"active-request-scorer","maxBusyScore":0.5},{"type":"latency-scorer","weight":0.5}]}}"#,
    ];
    let questions = [
        (memory, Some(Question::MemoryAdmission), policy::FEATURES.len()),
        (nodes, Some(Question::NodePlacement), policy::NODE_FEATURES.len()),
        // Mostly endpoint-pick, and sometimes another question with these columns.
        (endpoints, None, policy::ENDPOINT_FEATURES.len()),
    ];
    for (configs, always, columns) in questions {
        let columns = u32::try_from(columns).unwrap();
        let question = |dice: &mut Dice| {
            let scoring = Scoring::new(dice, columns);
            Scoring { question: always.unwrap_or(scoring.question), ..scoring }
        };
        agree("pointsman-scheduling-scoring", &configs, question, native, &put);
    }
}
