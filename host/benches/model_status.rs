//! The cost of summarising the agents' reports on 200 models on 500 nodes. `cargo xtask bench` runs this; docs/benchmarks.md explains the
//! numbers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use pointsman_core::model_nodes::{
    assignment::ModelObject,
    reports::Reports,
    summary::{ModelNode, summarize},
};
use serde_json::json;
use std::{collections::BTreeMap, hint::black_box};

const MODELS: usize = 200;
const NODES: usize = 500;

struct Cluster {
    models: Vec<(String, ModelObject)>,
    nodes: BTreeMap<String, ModelNode>,
    reports: Reports,
}

fn key(at: usize) -> String {
    format!("clusterbasemodel.model-{at}")
}

/// A node's ConfigMap. The first model's download has this progress.
fn reported(percent: usize) -> BTreeMap<String, String> {
    let config = json!({
        "modelType": "llama", "modelArchitecture": "LlamaForCausalLM", "modelParameterSize": "70.55B", "maxTokens": 131_072,
        "modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelFramework": {"name": "transformers", "version": "4.43.0"},
        "modelCapabilities": ["TEXT_TO_TEXT"],
    });
    let report = |at: usize| match at {
        0 => {
            json!({"name": "model-0", "status": "Updating", "progress": {"totalBytes": 100, "completedBytes": percent, "speedBytesPerSec": 1.0}})
        }
        at => json!({"name": format!("model-{at}"), "status": "Ready", "config": config}),
    };
    (0..MODELS).map(|at| (key(at), report(at).to_string())).collect()
}

impl Cluster {
    fn full() -> Self {
        let model = |at: usize| {
            let object = json!({
                "metadata": {"name": format!("model-{at}")},
                "spec": {"storage": {"storageUri": "hf://a/b", "nodeSelector": {"pool": "models"}}},
            });
            (key(at), ModelObject::from_object(&object).unwrap())
        };
        let labels = BTreeMap::from([("pool".to_owned(), "models".to_owned())]);
        let node = |at: usize| (format!("node-{at}"), ModelNode { labels: labels.clone(), is_ready: true });
        let mut cluster =
            Self { models: (0..MODELS).map(model).collect(), nodes: (0..NODES).map(node).collect(), reports: Reports::default() };
        let data = reported(0);
        for node in cluster.nodes.keys() {
            cluster.reports.set(node, &data);
        }
        cluster
    }

    fn sum_up(&self, changed: impl Fn(&str) -> bool) -> usize {
        let models = self.models.iter().filter(|(key, _)| changed(key));
        models
            .map(|(key, model)| {
                let reports = self.reports.for_model(key);
                let summary = summarize(model, &self.nodes, reports, |node| self.reports.has_agent(node));
                black_box(summary).nodes_ready.len()
            })
            .sum()
    }
}

fn summaries(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("the status of 200 models on 500 nodes");
    group.sample_size(20);
    let mut cluster = Cluster::full();
    let (one, other) = (reported(40), reported(60));
    let mut at = 0;
    group.bench_function("a node's report", |bencher| {
        bencher.iter(|| {
            at += 1;
            let changed = cluster.reports.set("node-7", if at % 2 == 0 { &one } else { &other });
            assert_eq!(changed.len(), 1);
            cluster.sum_up(|key| changed.contains(key))
        });
    });
    group.bench_function("a node's labels", |bencher| bencher.iter(|| cluster.sum_up(|_| true)));
    group.finish();
}

criterion_group!(benches, summaries);
criterion_main!(benches);
