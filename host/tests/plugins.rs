//! The host's built-in policies, built as they are shipped, in their sandbox.

use crate::policies::{linked, load, module};
use pointsman_harness::plugins::plugin_for;
use pointsman_sandbox::{
    call::{CallError, Spent},
    engine::Use,
    plugin::{Instances, Plugin},
    point::{
        Entry, Role, Subject, propagation,
        selection::{Candidate, Model, RequestRef, Supported, SupportedModel, Verdict, Versioned},
        templating,
    },
};
use std::fs;

fn candidate(name: &str, architecture: &str, priority: i32) -> Candidate {
    let model = SupportedModel {
        format: Some(Supported { name: "safetensors".to_owned(), ..Supported::default() }),
        architecture: Some(architecture.to_owned()),
        auto_select: Some(true),
        priority: Some(priority),
        ..SupportedModel::default()
    };
    Candidate {
        kind: "ClusterServingRuntime".to_owned(),
        name: name.to_owned(),
        models: vec![model],
        smallest: Some("1B".to_owned()),
        largest: Some("13B".to_owned()),
        ..Candidate::default()
    }
}

/// A question with only a model and runtimes.
fn selecting<'a>(subject: &'a Subject, model: &'a Model, candidates: &'a [Candidate]) -> RequestRef<'a> {
    let (accelerators, demands, facts) = (&[], &[], &[]);
    RequestRef { subject, model, candidates, named: false, accelerators, demands, current: None, now: None, facts }
}

/// Asks which candidates can serve a model of 8B.
fn judged(plugin: &Plugin, candidates: &[Candidate]) -> Result<(Vec<Verdict>, Spent), CallError> {
    let subject = Subject {
        group: "ome.io".to_owned(),
        version: "v1beta1".to_owned(),
        kind: "InferenceService".to_owned(),
        namespace: "default".to_owned(),
        name: "llama-chat".to_owned(),
        ..Subject::default()
    };
    let model = Model {
        kind: "ClusterBaseModel".to_owned(),
        name: "llama".to_owned(),
        format: Some(Versioned { name: "safetensors".to_owned(), version: None }),
        architecture: Some("LlamaForCausalLM".to_owned()),
        parameter_size: Some("8B".to_owned()),
        ..Model::default()
    };
    plugin.judge(selecting(&subject, &model, candidates))
}

#[test]
fn runtime_selection_judges_every_candidate_in_the_sandbox() {
    let plugin = load("pointsman-runtime-selection", "{}");
    let (description, _) = plugin.describe().unwrap();
    assert_eq!(description.name, "pointsman-runtime-selection");
    assert!(description.config_schema.contains("formatWeight"), "{}", description.config_schema);

    let candidates = [candidate("good", "LlamaForCausalLM", 2), candidate("other", "MistralForCausalLM", 9)];
    let (verdicts, spent) = judged(&plugin, &candidates).unwrap();
    let [Verdict::Eligible(good), Verdict::Excluded(other)] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!((good.score.to_bits(), other.code.as_str()), (20_f64.to_bits(), "ArchitectureMismatch"));
    assert!(other.message.contains("MistralForCausalLM"), "{}", other.message);

    // On a fresh instance each time, the same question has the same answer and cost.
    let again = judged(&plugin, &candidates).unwrap();
    assert_eq!((again.0, again.1.fuel), (verdicts, spent.fuel));
}

#[test]
fn a_configuration_changes_what_counts_and_a_wrong_one_is_refused_with_a_sentence() {
    let heavier = load("pointsman-runtime-selection", r#"{"formatWeight": 30}"#);
    let (verdicts, _) = judged(&heavier, &[candidate("good", "LlamaForCausalLM", 1)]).unwrap();
    assert!(matches!(&verdicts[..], [Verdict::Eligible(good)] if good.score.to_bits() == 30_f64.to_bits()), "{verdicts:?}");

    let wrong = load("pointsman-runtime-selection", r#"{"formatWieght": 30}"#);
    let refused = judged(&wrong, &[]).unwrap_err();
    assert!(matches!(&refused, CallError::Config(sentence) if sentence.contains("unknown field `formatWieght`")), "{refused}");
}

#[test]
fn a_plugin_is_not_asked_at_a_point_that_it_does_not_answer() {
    let labels = load("pointsman-example-rust-labels", "{}");
    assert_eq!(judged(&labels, &[]).unwrap_err(), CallError::NotAnswered("runtime-selection"));
}

#[test]
fn a_plugin_that_was_built_for_wasi_answers_the_same() {
    let package = "pointsman-example-rust-labels";
    let wasi = linked(&fs::read(plugin_for(package, "wasm32-wasip2")).unwrap(), Use::ControlPlane, "{}", Instances::Fresh);
    let bare = load(package, "{}");
    assert_eq!(wasi.describe().unwrap().0, bare.describe().unwrap().0);

    let key = |key: &str| Entry { key: key.to_owned(), value: "42".to_owned() };
    let subject = Subject { namespace_labels: vec![key("cost-centre")], ..Subject::default() };
    let target = propagation::Target { place: propagation::Place::PodTemplate, ..propagation::Target::default() };
    let request =
        propagation::RequestRef { subject: &subject, target: &target, layers: &[], labels: &[], annotations: &[], now: None, facts: &[] };
    let (answer, _) = wasi.propagate(request).unwrap();
    assert_eq!(answer.labels.len(), 1);
    assert_eq!(answer, bare.propagate(request).unwrap().0);
}

/// The error of a question that makes the hostile policy panic.
fn panicked(plugin: &Plugin, message: &str) -> CallError {
    let panic = Entry { key: "hostile.example.com/panic".to_owned(), value: message.to_owned() };
    let subject = Subject { annotations: vec![panic], ..Subject::default() };
    let (role, template) = (Role::Engine, r#"{"metadata": {}, "spec": {}}"#);
    let request = templating::RequestRef { subject: &subject, role, group_role: None, layers: &[], template, facts: &[], now: None };
    plugin.template(request).unwrap_err()
}

#[test]
fn the_message_of_a_panic_is_the_error_in_one_line_of_bounded_length() {
    let module = module("pointsman-hostile");
    for (use_, instances) in [(Use::ControlPlane, Instances::Fresh), (Use::Hot, Instances::Warm)] {
        let plugin = linked(&module, use_, "{}", instances);
        for _ in 0..2 {
            let said = panicked(&plugin, "no container\n  is called main").to_string();
            assert!(said.starts_with("it trapped: panicked at tests/hostile/src/lib.rs:"), "{said}");
            assert!(said.ends_with(": no container   is called main"), "{said}");
        }
        let long = panicked(&plugin, &"é".repeat(100_000)).to_string();
        assert!(long.chars().count() < 350 && long.ends_with("éé\u{2026}"), "{long}");
        assert_eq!(panicked(&plugin, "").reason(), "Trapped");
    }
}
