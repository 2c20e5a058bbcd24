//! The cost of a policy: in the sandbox compared with the same policy as a plain function, of a cached decision, and of loading. `cargo
//! xtask bench` runs this and compares it with the goals; docs/benchmarks.md explains the numbers.
//!
//! A group is one question, and its functions are the ways to ask it: the others are compared with `native`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/policies/mod.rs"]
mod policies;
#[path = "../tests/text/mod.rs"]
mod text;

use criterion::{BatchSize, Criterion, SamplingMode, criterion_group, criterion_main};
use pointsman_core::decide::{Policies, Standing, Unheard, member::Member, selection::Inputs, set::ActiveSet};
use pointsman_crds::policy::{plugin::PolicyPoint, set::PolicySetPlugin};
use pointsman_plugin as sdk;
use pointsman_sandbox::{
    compile::{Compiled, Compilers},
    digest::Digested,
    engine::Use,
    limits::Limits,
    plugin::{Instances, Plugin},
    point::{
        Entry, Question, Subject, propagation, scoring,
        selection::{Candidate, Model, RequestRef, Supported, SupportedModel, Versioned},
    },
};
use policies::{compilers, engines, linked, module};
use serde::{Serialize, de::DeserializeOwned};
use std::{fs, hint::black_box, path::Path, sync::Arc};

const SELECTION: &str = "pointsman-runtime-selection";

/// Converts a question from the host's type to the SDK's.
fn native<Sdk: DeserializeOwned>(question: &impl Serialize) -> Sdk {
    serde_json::from_str(&serde_json::to_string(question).unwrap()).unwrap()
}

fn entry(key: &str, value: &str) -> Entry {
    Entry { key: key.to_owned(), value: value.to_owned() }
}

fn subject() -> Subject {
    Subject {
        group: "ome.io".to_owned(),
        version: "v1beta1".to_owned(),
        kind: "InferenceService".to_owned(),
        namespace: "prod".to_owned(),
        name: "llama-chat".to_owned(),
        labels: vec![entry("app.kubernetes.io/name", "llama-chat"), entry("team", "search")],
        annotations: vec![entry("example.com/owner", "search@example.com")],
        namespace_labels: vec![entry("cost-centre", "4711"), entry("kubernetes.io/metadata.name", "prod")],
    }
}

fn model() -> Model {
    Model {
        kind: "ClusterBaseModel".to_owned(),
        name: "llama-3-1-8b-instruct".to_owned(),
        format: Some(Versioned { name: "safetensors".to_owned(), version: None }),
        framework: Some(Versioned { name: "transformers".to_owned(), version: Some("4.43.0".to_owned()) }),
        architecture: Some("LlamaForCausalLM".to_owned()),
        parameter_size: Some("8B".to_owned()),
        capabilities: vec!["TEXT_GENERATION".to_owned()],
        ..Model::default()
    }
}

/// One in three supports this model, and the others another one, as in a cluster with several models.
fn candidate(number: usize) -> Candidate {
    let kind = |architecture: &str| SupportedModel {
        format: Some(Supported { name: "safetensors".to_owned(), weight: Some(2), ..Supported::default() }),
        framework: Some(Supported { name: "transformers".to_owned(), version: Some("4.43.0".to_owned()), ..Supported::default() }),
        architecture: Some(architecture.to_owned()),
        auto_select: Some(true),
        priority: Some(1),
        ..SupportedModel::default()
    };
    let other = ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"][number % 3];
    Candidate {
        kind: "ClusterServingRuntime".to_owned(),
        name: format!("runtime-{number:03}"),
        labels: vec![entry("app.kubernetes.io/name", "vllm")],
        models: vec![kind("Phi3ForCausalLM"), kind(other)],
        smallest: Some("1B".to_owned()),
        largest: Some("13B".to_owned()),
        protocols: vec!["openAI".to_owned()],
        ..Candidate::default()
    }
}

fn empty_calls(criterion: &mut Criterion) {
    let nothing = text::plugin(&text::Module::default());
    let (fresh, warm) = (linked(&nothing, Use::ControlPlane, "{}", Instances::Fresh), linked(&nothing, Use::Hot, "{}", Instances::Warm));
    let mut group = criterion.benchmark_group("a call that does nothing");
    group.bench_function("fresh", |bencher| bencher.iter(|| fresh.score(text::endpoints(&[])).unwrap()));
    group.bench_function("warm", |bencher| bencher.iter(|| warm.score(text::endpoints(&[])).unwrap()));
    group.finish();
}

fn selection(criterion: &mut Criterion) {
    let module = module(SELECTION);
    let fresh = linked(&module, Use::ControlPlane, "{}", Instances::Fresh);
    let warm = linked(&module, Use::ControlPlane, "{}", Instances::Warm);
    let config = pointsman_runtime_selection::Config::default();
    for count in [1, 100] {
        let (subject, model, candidates) = (subject(), model(), (0..count).map(candidate).collect::<Vec<_>>());
        let request = RequestRef {
            subject: &subject,
            model: &model,
            candidates: &candidates,
            named: false,
            accelerators: &[],
            demands: &[],
            current: None,
            now: None,
            facts: &[],
        };
        let plain: sdk::runtime_selection::Request = native(&request);
        let name = if count == 1 { "selection of 1 runtime".to_owned() } else { format!("selection of {count} runtimes") };
        let mut group = criterion.benchmark_group(name);
        // The function's copy of the question is made beforehand: the cost of passing a question is part of the sandbox's cost.
        group.bench_function("native", |bencher| {
            let judge = |request| drop(black_box(pointsman_runtime_selection::judge(&config, request).unwrap()));
            bencher.iter_batched(|| plain.clone(), judge, BatchSize::SmallInput);
        });
        group.bench_function("fresh", |bencher| bencher.iter(|| fresh.judge(request).unwrap()));
        group.bench_function("warm", |bencher| bencher.iter(|| warm.judge(request).unwrap()));
        group.finish();
    }
}

fn scores(criterion: &mut Criterion) {
    let module = module("pointsman-example-rust-balance");
    let (fresh, warm) = (linked(&module, Use::Hot, "{}", Instances::Fresh), linked(&module, Use::Hot, "{}", Instances::Warm));
    let config = serde_json::from_str(r"{}").unwrap();
    let matrix: Vec<f64> = (0..800_u32).map(|place| f64::from(place * 7919 % 1000) / 10.0).collect();
    let request = scoring::RequestRef { question: Question::EndpointPick, columns: 8, matrix: &matrix, facts: &[] };
    let plain = sdk::scheduling_scoring::Matrix::new(8, matrix.clone()).unwrap();
    let mut group = criterion.benchmark_group("scores of 100 endpoints by 8 features");
    group.bench_function("native", |bencher| {
        bencher.iter(|| pointsman_example_rust_balance::score(&config, sdk::Question::EndpointPick, black_box(&plain)).unwrap());
    });
    group.bench_function("warm", |bencher| bencher.iter(|| warm.score(request).unwrap()));
    group.bench_function("fresh", |bencher| bencher.iter(|| fresh.score(request).unwrap()));
    group.finish();
}

fn labels(criterion: &mut Criterion) {
    let fresh = linked(&module("pointsman-example-rust-labels"), Use::ControlPlane, "{}", Instances::Fresh);
    let config = pointsman_example_rust_labels::Config::default();
    let subject = subject();
    let target = propagation::Target { kind: "Deployment".to_owned(), place: propagation::Place::PodTemplate, ..Default::default() };
    let layer =
        |name: &str| propagation::Layer { name: name.to_owned(), labels: subject.labels.clone(), annotations: subject.annotations.clone() };
    let layers = ["namespace", "subject", "runtime"].map(layer);
    let placed = |Entry { key, value }: &Entry| propagation::Placed { key: key.clone(), value: value.clone(), layer: "subject".to_owned() };
    let labels: Vec<_> = subject.labels.iter().map(placed).collect();
    let request = propagation::RequestRef {
        subject: &subject,
        target: &target,
        layers: &layers,
        labels: &labels,
        annotations: &[],
        now: None,
        facts: &[],
    };
    let plain: sdk::metadata_propagation::Request = native(&request);
    let mut group = criterion.benchmark_group("labels of a pod");
    group.bench_function("native", |bencher| {
        let propagate = |request| drop(black_box(pointsman_example_rust_labels::propagate(&config, request).unwrap()));
        bencher.iter_batched(|| plain.clone(), propagate, BatchSize::SmallInput);
    });
    group.bench_function("fresh", |bencher| bencher.iter(|| fresh.propagate(request).unwrap()));
    group.finish();
}

fn kept_answers(criterion: &mut Criterion) {
    let plugin = linked(&module(SELECTION), Use::ControlPlane, "{}", Instances::Fresh);
    let (description, _) = plugin.describe().unwrap();
    let points = vec![PolicyPoint::RuntimeSelection];
    let bound = PolicySetPlugin { name: "runtime-selection".to_owned(), points, ..PolicySetPlugin::default() };
    let member = Member::new(bound, description, Some(plugin), None).unwrap();
    let policies = Policies::new(ActiveSet::new(vec![Arc::new(member)]), Arc::new(Unheard));
    let inputs = Inputs {
        subject: Digested::new(subject()).unwrap(),
        model: Digested::new(model()).unwrap(),
        candidates: Digested::new((0..100).map(candidate).collect()).unwrap(),
        ..Inputs::default()
    };
    policies.pin(Standing::New).select(&inputs).unwrap();
    let asked = policies.active().members()[0].health.counts();
    criterion.benchmark_group("a decision among 100 runtimes").bench_function("cached", |bencher| {
        bencher.iter(|| policies.pin(Standing::New).select(&inputs).unwrap());
    });
    assert_eq!(policies.active().members()[0].health.counts(), asked, "only the first was a new decision");
}

fn loading(criterion: &mut Criterion) {
    let (module, compilers) = (module(SELECTION), compilers());
    let link = |compiled: &Compiled| {
        let code = (&compiled.code, compiled.version);
        Plugin::new(engines(), Use::ControlPlane, code, "{}", Limits::DEFAULT, Instances::Fresh).unwrap()
    };
    let compiled = compilers.load(engines(), Use::ControlPlane, &module).unwrap();
    let mut group = criterion.benchmark_group("loading a compiled plugin");
    group.bench_function("reading the cache", |bencher| bencher.iter(|| compilers.load(engines(), Use::ControlPlane, &module).unwrap()));
    group.bench_function("linking", |bencher| bencher.iter(|| link(&compiled)));
    group.bench_function("both", |bencher| {
        bencher.iter(|| link(&compilers.load(engines(), Use::ControlPlane, &module).unwrap()));
    });
    group.finish();

    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-cache");
    let mut group = criterion.benchmark_group("compiling a plugin");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.bench_function(format!("of {} KiB", module.len() >> 10), |bencher| {
        let forget = || {
            fs::remove_dir_all(&empty).ok();
            Compilers::new(env!("CARGO_BIN_EXE_pointsman").into(), &empty).unwrap()
        };
        let compile = |compilers: Compilers| compilers.load(engines(), Use::ControlPlane, &module).unwrap();
        bencher.iter_batched(forget, compile, BatchSize::PerIteration);
    });
    group.finish();
    fs::remove_dir_all(&empty).ok();
}

criterion_group!(benches, empty_calls, selection, scores, labels, kept_answers, loading);
criterion_main!(benches);
