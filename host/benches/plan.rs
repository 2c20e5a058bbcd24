//! The cost of a plan in a cluster with 1,000 services of one kind and the objects that they refer to, on one thread. `cargo xtask bench`
//! runs this; docs/benchmarks.md explains the numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/policies/mod.rs"]
mod policies;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pointsman_core::{
    decide::{Policies, Standing, Unheard, member::Member, set::ActiveSet},
    kinds,
    plan::{Decided, Plan},
    planning,
    resource::{CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, INFERENCE_SERVICE, LLM_CONFIG, LLM_INFERENCE_SERVICE, NAMESPACE, Resource},
    settings::{HOST_NAMESPACE as FOR_ALL, Settings},
    subject_kind::ALL,
    world::{ObjectKey, Snapshot, World, child::SUBJECT_KIND},
};
use pointsman_crds::policy::{plugin::PolicyPoint, set::PolicySetPlugin};
use pointsman_sandbox::{engine::Use, plugin::Instances};
use policies::{linked, module};
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    hint::black_box,
    sync::Arc,
};

const SERVICES: usize = 1_000;
const RUNTIMES: usize = 200;
const MODELS: usize = 20;
const CONFIGS: usize = 20;

/// The time of all plans.
const NOW: u64 = 1_800_000_000;

/// A kind of service.
struct Kind {
    resource: &'static Resource,
    /// The objects that services refer to.
    inputs: fn(&mut World),
    /// The spec of a service.
    spec: fn(usize) -> Value,
}

static INFERENCE_SERVICES: Kind = Kind {
    resource: &INFERENCE_SERVICE,
    inputs: |world| {
        (0..MODELS).for_each(|number| world.put(&CLUSTER_BASE_MODEL, &model(number)));
        (0..RUNTIMES).for_each(|number| world.put(&CLUSTER_SERVING_RUNTIME, &runtime(number)));
    },
    spec: inference_service,
};

static LLM_INFERENCE_SERVICES: Kind = Kind {
    resource: &LLM_INFERENCE_SERVICE,
    inputs: |world| (0..CONFIGS).for_each(|number| world.put(&LLM_CONFIG, &config(number))),
    spec: llm_inference_service,
};

fn model(number: usize) -> Value {
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel",
        "metadata": {"name": format!("model-{number:02}"), "labels": {"family": "llama"}, "resourceVersion": "1"},
        "spec": {
            "vendor": "meta", "modelFormat": {"name": "safetensors"}, "modelFramework": {"name": "transformers", "version": "4.43.0"},
            "modelArchitecture": format!("Architecture{number:02}ForCausalLM"), "modelParameterSize": "8B",
            "modelCapabilities": ["TEXT_GENERATION"],
            "storage": {"storageUri": format!("hf://meta/model-{number:02}"), "path": format!("/raid/models/model-{number:02}")},
        },
        "status": {"state": "Ready", "nodesReady": ["h100-0", "h100-1"]},
    })
}

fn pod(image: &str) -> Value {
    json!({
        "runner": {
            "name": "ome-container", "image": image, "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            "args": ["--model", "$(MODEL_PATH)", "--port", "8080", "--served-model-name", "vllm-model", "--max-model-len", "32768",
                     "--gpu-memory-utilization", "0.95", "--enable-chunked-prefill"],
            "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "INFO"}, {"name": "HF_HUB_OFFLINE", "value": "1"},
                    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "ports": [{"containerPort": 8080, "name": "http1", "protocol": "TCP"}],
            "resources": {"requests": {"cpu": 10, "memory": "64Gi", "nvidia.com/gpu": 2}, "limits": {"cpu": 10, "memory": "64Gi", "nvidia.com/gpu": 2}},
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3},
            "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
        },
        "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    })
}

/// Each runtime supports two of the models.
fn runtime(number: usize) -> Value {
    let suits = |model: usize| {
        json!({
            "modelFormat": {"name": "safetensors", "weight": 2}, "modelFramework": {"name": "transformers", "version": "4.43.0"},
            "modelArchitecture": format!("Architecture{:02}ForCausalLM", model % MODELS), "autoSelect": true, "priority": number / MODELS,
        })
    };
    let image = format!("registry.example.com/vllm:0.9.{number}");
    let mut decoder = pod(&image);
    decoder["runner"]["args"].as_array_mut().unwrap().extend(["--role".into(), "decode".into()]);
    let mut engine = pod(&image);
    engine["labels"] = json!({"logging-forward": "enabled"});
    engine["annotations"] = json!({"prometheus.io/scrape": "true", "prometheus.io/port": "8080"});
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime",
        "metadata": {"name": format!("runtime-{number:03}"), "labels": {"app.kubernetes.io/name": "vllm"}, "resourceVersion": "1"},
        "spec": {
            "supportedModelFormats": [suits(number), suits(number + 7)], "protocolVersions": ["openAI"],
            "modelSizeRange": {"min": "1B", "max": "13B"}, "engineConfig": engine,
            "decoderConfig": if number % 10 == 3 { decoder } else { Value::Null },
        },
    })
}

/// Half of them specify only their model; the others have their own arguments, a router, a decoder, or several nodes.
fn inference_service(number: usize) -> Value {
    let mut spec = json!({"model": {"name": format!("model-{:02}", number % MODELS)}});
    match number % 10 {
        5 => {
            spec["engine"] = json!({"minReplicas": 2, "maxReplicas": 8, "runner": {
                "name": "ome-container", "args": ["--model", "$(MODEL_PATH)", "--max-model-len", "8192"],
                "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}],
            }});
        }
        6 => spec["engine"] = json!({"minReplicas": 1, "maxReplicas": 1, "nodeSelector": {"pool": "h100"}}),
        7 => spec["router"] = json!({"runner": {"name": "router", "image": "registry.example.com/router:1", "args": ["--port", "8000"]}}),
        8 => {
            spec["engine"] = json!({"minReplicas": 1});
            spec["decoder"] = pod("registry.example.com/vllm:0.9.1");
        }
        9 => {
            let runner = json!({"name": "ome-container", "image": "registry.example.com/vllm:0.9.1"});
            spec["engine"] = json!({"leader": pod("registry.example.com/vllm:0.9.1"), "worker": {"size": 1, "runner": runner}});
        }
        _ => {}
    }
    spec
}

/// The pod template of an LLMInferenceService, or of a base configuration.
fn llm_pod(image: &str, model: &str) -> Value {
    json!({
        "containers": [{
            "name": "main", "image": image,
            "args": ["--served-model-name", model, "--port", "8000", "--max-model-len", "32768", "--enable-chunked-prefill"],
            "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}, {"name": "HF_HUB_OFFLINE", "value": "1"}],
            "resources": {"requests": {"cpu": 10, "memory": "64Gi", "nvidia.com/gpu": 2}, "limits": {"cpu": 10, "memory": "64Gi", "nvidia.com/gpu": 2}},
        }],
        "nodeSelector": {"pool": "h100"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    })
}

/// If a service names two of them, one is about pods and the other isn't.
fn config(number: usize) -> Value {
    let spec = if number.is_multiple_of(2) {
        json!({"template": llm_pod(&format!("registry.example.com/vllm:0.9.{number}"), "{{ .Spec.Model.Name }}")})
    } else {
        json!({"replicas": 2, "router": {"scheduler": {}}, "labels": {"platform.example.com/tier": format!("tier-{number}")}})
    };
    json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceServiceConfig",
        "metadata": {"name": format!("config-{number:02}"), "namespace": FOR_ALL, "resourceVersion": "1"}, "spec": spec,
    })
}

/// Half of them specify only their model; the others have a scheduler, base configurations, a prefill workload, groups of pods, or their
/// own pod template.
fn llm_inference_service(number: usize) -> Value {
    let name = format!("model-{:02}", number % MODELS);
    let mut spec = json!({"model": {"uri": format!("hf://meta/{name}"), "name": name}});
    match number % 10 {
        5 => spec["router"] = json!({"scheduler": {}}),
        6 => {
            let first = number / 10 * 2;
            let named = [first, first + 1].map(|number| json!({"name": format!("config-{:02}", number % CONFIGS)}));
            spec["baseRefs"] = json!(named);
        }
        7 => {
            spec["prefill"] = json!({"replicas": 2, "labels": {"platform.example.com/role": "prefill"}});
            let config = json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": "EndpointPickerConfig", "plugins": [{"type": "queue-scorer"}]});
            spec["router"] = json!({"scheduler": {"config": {"inline": config}}});
        }
        8 => {
            spec["parallelism"] = json!({"tensor": 8, "pipeline": 2});
            spec["worker"] = json!({"containers": []});
        }
        9 => spec["template"] = llm_pod("registry.example.com/vllm:0.9.1", &name),
        _ => {}
    }
    spec
}

fn service(kind: &Kind, number: usize) -> Value {
    let ObjectKey { resource, namespace, name } = key(kind, number);
    json!({
        "apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("uid-{number}"), "resourceVersion": "1", "generation": 1,
            "labels": {"app.kubernetes.io/name": "chat", "team": namespace}, "annotations": {"example.com/owner": "search@example.com"},
        },
        "spec": (kind.spec)(number),
    })
}

fn key(kind: &Kind, number: usize) -> ObjectKey {
    ObjectKey { resource: kind.resource, namespace: format!("team-{}", number % 20), name: format!("service-{number:04}") }
}

fn world(kind: &Kind) -> World {
    let mut world = World::default();
    world.set_available(ALL.iter().copied().collect());
    for team in 0..20 {
        let name = format!("team-{team}");
        let labels = json!({"kubernetes.io/metadata.name": name, "cost-centre": "4711"});
        world.put(&NAMESPACE, &json!({"metadata": {"name": name, "labels": labels}}));
    }
    (kind.inputs)(&mut world);
    (0..SERVICES).for_each(|number| world.put(kind.resource, &service(kind, number)));
    world
}

/// The default policies, as the host binds them.
fn members() -> Vec<Arc<Member>> {
    let default = |name: &str, point| {
        let plugin = linked(&module(&format!("pointsman-{name}")), Use::ControlPlane, "{}", Instances::Fresh);
        let (description, _) = plugin.describe().unwrap();
        let bound = PolicySetPlugin { name: name.to_owned(), points: vec![point], ..PolicySetPlugin::default() };
        Arc::new(Member::new(bound, description, Some(plugin), None).unwrap())
    };
    vec![
        default("runtime-selection", PolicyPoint::RuntimeSelection),
        default("pod-templating", PolicyPoint::PodTemplating),
        default("metadata-propagation", PolicyPoint::MetadataPropagation),
    ]
}

/// Policies without cached decisions.
fn policies_of(members: &[Arc<Member>]) -> Policies {
    Policies::new(ActiveSet::new(members.to_vec()), Arc::new(Unheard))
}

fn planned(snapshot: &Snapshot, policies: &Policies, settings: &Settings) -> Plan {
    let plan = planning::plan(kinds::find(snapshot.subject.key.resource).unwrap(), snapshot.clone(), policies, settings);
    assert!(plan.objects.is_some(), "{}: {:?}", snapshot.subject.key, plan.status.conditions);
    plan
}

/// The same services with all their objects, as the API server stores them.
fn settle(world: &mut World, kind: &Kind, policies: &Policies, settings: &Settings) {
    for number in 0..SERVICES {
        let plan = planned(&world.snapshot(&key(kind, number), NOW).unwrap(), policies, settings);
        for object in plan.objects.into_iter().flatten() {
            let mut live = object.manifest();
            live["metadata"]["uid"] = format!("{}-{}", object.key.resource.kind, object.key.name).into();
            live["metadata"]["resourceVersion"] = "2".into();
            assert_eq!(live["metadata"]["labels"][SUBJECT_KIND], kind.resource.kind);
            world.put(object.key.resource, &live);
        }
    }
}

fn snapshots(world: &World, kind: &Kind) -> Vec<Snapshot> {
    (0..SERVICES).map(|number| world.snapshot(&key(kind, number), NOW).unwrap()).collect()
}

/// The questions of the plans to the policies: the inputs of each decision, with which it is made again.
fn ask<'a>(policies: &Policies, decided: impl Iterator<Item = &'a Decided>, standing: Standing) {
    let pinned = policies.pin(standing);
    for decided in decided {
        match decided {
            Decided::Selection(inputs, _) => drop(black_box(pinned.select(inputs).unwrap())),
            Decided::Template(_, inputs, _) => drop(black_box(pinned.template(inputs).unwrap())),
            Decided::Metadata(_, inputs, _) => drop(black_box(pinned.propagate(inputs).unwrap())),
        }
    }
}

/// A selection of a plan's questions.
type Question = fn(&Decided) -> bool;

/// The questions at each policy point, with their names in the output.
const QUESTIONS: [(&str, Question); 3] = [
    ("selections", |decided| matches!(decided, Decided::Selection(..))),
    ("templates", |decided| matches!(decided, Decided::Template(..))),
    ("label sets", |decided| matches!(decided, Decided::Metadata(..))),
];

fn plans(criterion: &mut Criterion, kind: &Kind) {
    let (members, settings, mut world) = (members(), Settings::default(), world(kind));
    let new = snapshots(&world, kind);
    let policies = policies_of(&members);
    let plans: Vec<Plan> = new.iter().map(|snapshot| planned(snapshot, &policies, &settings)).collect();
    let decisions = |of: Question| plans.iter().flat_map(|plan| &plan.decisions).filter(|decided| of(decided)).count();
    let objects: usize = plans.iter().flat_map(|plan| &plan.objects).map(Vec::len).sum();
    let asked = QUESTIONS.map(|(name, of)| format!("{} {name}", decisions(of))).join(", ");
    println!("{SERVICES} {}s: {objects} objects from {asked}", kind.resource.kind);
    let next = Cell::new(0);
    let place = || next.replace(next.get() + 1) % SERVICES;

    let mut group = criterion.benchmark_group(format!("a plan of an {}", kind.resource.kind));
    // Each service once, and then again with policies without cached decisions.
    let fresh = RefCell::new(policies_of(&members));
    let cold = || {
        let place = place();
        if place == 0 {
            fresh.replace(policies_of(&members));
        }
        place
    };
    group.bench_function("new", |bencher| {
        bencher.iter_batched(cold, |place| planned(&new[place], &fresh.borrow(), &settings), BatchSize::PerIteration);
    });
    let all: (&str, Question) = ("policies", |_| true);
    for (name, of) in [all].into_iter().chain(QUESTIONS).filter(|(_, of)| decisions(*of) > 0) {
        group.bench_function(format!("new, of which {name}"), |bencher| {
            let asked = |place: usize| ask(&fresh.borrow(), plans[place].decisions.iter().filter(|decided| of(decided)), Standing::New);
            bencher.iter_batched(cold, asked, BatchSize::PerIteration);
        });
    }
    settle(&mut world, kind, &policies, &settings);
    let settled = snapshots(&world, kind);
    assert!(settled.iter().all(|snapshot| !snapshot.children.is_empty()), "every service has its objects");
    for (name, number) in [("settled", SERVICES), ("settled, 100 in turn", 100)] {
        (0..number).for_each(|place| drop(planned(&settled[place], &policies, &settings)));
        let asked = || policies.active().members().iter().map(|member| member.health.counts().0).sum::<u64>();
        let before = asked();
        group.bench_function(name, |bencher| bencher.iter(|| planned(&settled[place() % number], &policies, &settings)));
        if asked() != before {
            println!("some decisions were made again: the cache is too small for {number} services");
        }
    }
    group.bench_function("a snapshot", |bencher| bencher.iter(|| world.snapshot(&key(kind, place()), NOW).unwrap()));
    group.finish();
}

fn inference_services(criterion: &mut Criterion) {
    plans(criterion, &INFERENCE_SERVICES);
}

fn llm_inference_services(criterion: &mut Criterion) {
    plans(criterion, &LLM_INFERENCE_SERVICES);
}

criterion_group!(benches, inference_services, llm_inference_services);
criterion_main!(benches);
