//! LLMInferenceServices that nobody would write, and the base configurations that they name.

use super::{
    merge, object,
    pods::{container, pod},
};
use proptest::{collection::btree_map, option, prelude::*, sample::select};
use serde_json::{Value, json};

/// What the services build on: whole ones, halves, and some that can't be used.
pub(crate) fn configs(namespace: &str) -> Vec<Value> {
    let config = |name: &str, namespace: &str, spec: Value| {
        json!({
            "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceServiceConfig",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        })
    };
    let main = |more: Value| {
        let mut container = json!({"name": "main"});
        merge(&mut container, more);
        json!({"containers": [container]})
    };
    let named = main(json!({"args": ["--name={{ .Spec.Model.Name }}", "{{ ChildName .ObjectMeta.Name `-x` }}"]}));
    vec![
        config("model", namespace, json!({"model": {"uri": "hf://example/base"}, "replicas": 2, "labels": {"team": "base"}})),
        config("model", "pointsman-system", json!({"model": {"uri": "nowhere"}})),
        config("image", "pointsman-system", json!({"template": main(json!({"image": "registry.example.com/base:1"}))})),
        config("groups", namespace, json!({"parallelism": {"data": 4, "dataLocal": 2}, "worker": named, "template": named})),
        config("scaled", namespace, json!({"scaling": {"maxReplicas": 4, "wva": {"hpa": {}}}, "router": {"scheduler": {}}})),
        config("broken", namespace, json!({"template": main(json!({"args": ["{{ range .Spec }}"]}))})),
    ]
}

/// Labels or annotations for pods: the schema takes any text, so that these are keys and values of all sorts.
fn odd() -> BoxedStrategy<Value> {
    let key = prop_oneof![
        4 => "[a-z]{1,8}(/[A-Za-z0-9]{1,8})?",
        2 => select(vec![
            "kueue.x-k8s.io/queue-name", "prometheus.io/port", "llm-d.ai/role", "app.kubernetes.io/name", "app.kubernetes.io/component",
            "kserve.io/component", "pod-template-hash", "leaderworkerset.sigs.k8s.io/worker-index", "pointsman.dev/subject-kind",
            "kubectl.kubernetes.io/restartedAt",
        ]).prop_map(str::to_owned),
        1 => "[ -~]{0,10}",
    ];
    let value = prop_oneof![4 => "[A-Za-z0-9]{0,10}", 1 => "[ -~]{0,12}", 1 => Just("x".repeat(64))];
    btree_map(key, value, 0..3).prop_map(|map| json!(map)).boxed()
}

/// A pod in which the container that counts is there more often than not, mostly without an image.
fn template() -> BoxedStrategy<Value> {
    let main = (container(), option::weighted(0.3, Just("registry.example.com/own:1")));
    (pod(), option::weighted(0.6, main), option::weighted(0.1, container()))
        .prop_map(|(mut pod, main, first)| {
            let mut containers = pod["containers"].as_array().cloned().unwrap_or_default();
            containers.extend(main.map(|(mut main, image)| {
                main["name"] = "main".into();
                if let Some(image) = image {
                    main["image"] = image.into();
                }
                main
            }));
            pod["containers"] = containers.into();
            if let Some(mut first) = first {
                (first["name"], first["image"]) = ("warm-up".into(), "registry.example.com/warm-up:1".into());
                // What runs before the others is asked nothing.
                first.as_object_mut().map(|first| first.remove("readinessProbe"));
                pod["initContainers"] = json!([first]);
            }
            pod
        })
        .boxed()
}

fn scaling() -> BoxedStrategy<Value> {
    let behavior =
        json!({"scaleDown": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}]}});
    let keda = json!({
        "pollingInterval": 15, "cooldownPeriod": 0, "initialCooldownPeriod": 30,
        "fallback": {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"},
        "advanced": {
            "restoreToOriginalReplicaCount": true, "scalingModifiers": {}, "horizontalPodAutoscalerConfig": {"behavior": behavior},
        },
    });
    let actuator = prop_oneof![
        4 => Just(json!({"hpa": {}})),
        2 => Just(json!({"hpa": {"behavior": behavior}, "variantCost": "2.5"})),
        1 => Just(json!({"keda": {}, "variantCost": "10"})),
        1 => Just(json!({"keda": keda})),
    ];
    (option::of(1..4_i64), 0..4_i64, actuator)
        .prop_map(|(least, more, actuator)| {
            let most = least.unwrap_or(1) + more;
            object(vec![("minReplicas", least.map(Value::from)), ("maxReplicas", Some(most.into())), ("wva", Some(actuator))])
        })
        .boxed()
}

/// A workload: pods, or groups of them.
fn workload() -> BoxedStrategy<Value> {
    let number = prop_oneof![
        2 => Just(json!({})),
        2 => (0..4_i64).prop_map(|replicas| json!({"replicas": replicas})),
        1 => scaling().prop_map(|scaling| json!({"scaling": scaling})),
    ];
    let size = prop_oneof![
        3 => (1..4_i64).prop_map(|stages| json!({"pipeline": stages})),
        // Some aren't spread evenly.
        2 => (1..9_i64, 1..4_i64).prop_map(|(data, local)| json!({"data": data, "dataLocal": local, "dataRPCPort": 5555})),
    ];
    let split = (option::of(1..9_i64), option::of(any::<bool>()))
        .prop_map(|(tensor, expert)| object(vec![("tensor", tensor.map(Value::from)), ("expert", expert.map(Value::from))]));
    let group = option::weighted(0.35, (size, prop_oneof![Just(json!({"containers": []})), template()]));
    (number, option::of(split), group, option::weighted(0.5, template()), (odd(), odd()))
        .prop_map(|(number, split, group, template, (labels, annotations))| {
            let mut parallelism = split;
            let mut worker = None;
            if let Some((size, pods)) = group {
                merge(parallelism.get_or_insert_with(|| json!({})), size);
                worker = Some(pods);
            }
            let mut workload = object(vec![
                ("parallelism", parallelism),
                ("worker", worker),
                ("template", template),
                ("labels", Some(labels)),
                ("annotations", Some(annotations)),
            ]);
            merge(&mut workload, number);
            workload
        })
        .boxed()
}

/// A pod with a second container, which declares a port or a name that the first one has as well: Kubernetes takes such pods.
fn crowded() -> BoxedStrategy<Value> {
    let port = select(vec![
        json!({"containerPort": 9002}),
        json!({"containerPort": 9090, "protocol": "UDP"}),
        json!({"containerPort": 8125, "name": "metrics"}),
    ]);
    (template(), port)
        .prop_map(|(mut pod, port)| {
            let beside = json!({"name": "beside", "image": "registry.example.com/sidecar:2", "ports": [port]});
            pod["containers"].as_array_mut().into_iter().for_each(|containers| containers.push(beside.clone()));
            pod
        })
        .boxed()
}

fn scheduler() -> BoxedStrategy<Value> {
    let pool = select(vec![
        json!({"ref": {"name": "own-pool"}}),
        json!({"spec": {"targetPorts": [{"number": 9000}]}}),
        json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}}),
        json!({}),
    ]);
    let config = select(vec![
        json!({"inline": {"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": "EndpointPickerConfig", "plugins": []}}),
        json!({"ref": {"name": "picker", "key": "config.yaml"}}),
    ]);
    let replicas = option::weighted(0.1, 1..3_i64);
    let template = prop_oneof![3 => template(), 1 => crowded()];
    (option::weighted(0.4, pool), option::weighted(0.4, config), option::weighted(0.4, template), replicas, (odd(), odd()))
        .prop_map(|(pool, config, template, replicas, (labels, annotations))| {
            object(vec![
                ("pool", pool),
                ("config", config),
                ("template", template),
                ("replicas", replicas.map(Value::from)),
                ("labels", Some(labels)),
                ("annotations", Some(annotations)),
            ])
        })
        .boxed()
}

fn router() -> BoxedStrategy<Value> {
    let gateway = json!({"refs": [{"name": "edge"}, {"name": "front", "namespace": "gateways"}]});
    let ways = select(vec![
        json!({}),
        json!({"route": {}}),
        json!({"route": {}, "gateway": gateway}),
        json!({"route": {"http": {}}, "gateway": {}}),
        json!({"route": {"http": {"refs": [{"name": "own-route"}]}}}),
        json!({"route": {"http": {"refs": [{"name": "own-route"}]}}, "gateway": gateway}),
        json!({"route": {"http": {"spec": {"hostnames": ["llm.example.com"]}}}, "gateway": gateway}),
        json!({"route": {"http": {"spec": {"parentRefs": [{"name": "edge"}], "rules": []}}}}),
        json!({"gateway": gateway}),
    ]);
    (ways, option::weighted(0.6, scheduler()), option::weighted(0.03, Just(json!({}))))
        .prop_map(|(mut router, scheduler, ingress)| {
            merge(&mut router, object(vec![("scheduler", scheduler), ("ingress", ingress)]));
            router
        })
        .boxed()
}

fn model() -> BoxedStrategy<Value> {
    let uri = select(vec![
        "hf://meta-llama/Llama-3.1-8B-Instruct",
        "hf://a",
        "s3://bucket/path/to",
        "pvc://claim/models/llama",
        "pvc://claim",
        "oci://registry.example.com/models/llama:1",
        "gs://bucket/llama",
        "https://example.com/llama.tar.gz",
    ]);
    let adapter = json!({"uri": "s3://bucket/adapter", "name": "adapter"});
    let adapters =
        select(vec![json!({"adapters": [adapter]}), json!({"adapters": [adapter, {"uri": "hf://a/b", "name": "b"}]}), json!({})]);
    (uri, option::of("[ -~]{0,12}"), option::weighted(0.2, select(vec!["Critical", "Standard"])), option::weighted(0.2, adapters))
        .prop_map(|(uri, name, criticality, lora)| {
            object(vec![
                ("uri", Some(uri.into())),
                ("name", name.map(Value::from)),
                ("criticality", criticality.map(Value::from)),
                ("lora", lora),
            ])
        })
        .boxed()
}

/// A service of the namespace that the API server takes, however little sense it makes.
pub fn llm_service(namespace: &'static str) -> BoxedStrategy<Value> {
    let name = prop_oneof![9 => "[a-z]([a-z0-9-]{0,41}[a-z0-9])?", 1 => "[a-z0-9][a-z0-9.]{0,60}[a-z0-9]"];
    // Two dots in a row are no name for anybody.
    let name = name.prop_map(|name| name.replace("..", "--").replace(".-", "-").replace("-.", "-"));
    let labels =
        btree_map(select(vec!["kueue.x-k8s.io/queue-name", "team", "app.kubernetes.io/name", "pointsman.dev/x"]), "[a-z]{0,6}", 0..3);
    let annotations = btree_map(
        select(vec!["prometheus.io/scrape", "kubectl.kubernetes.io/x", "internal.serving.kserve.io/x", "k8s.v1.cni.cncf.io/networks"]),
        "[ -~]{0,12}",
        0..3,
    );
    let bases = prop_oneof![
        8 => Just(Vec::new()),
        4 => proptest::sample::subsequence(vec!["model", "image", "groups", "scaled"], 1..4).prop_shuffle(),
        1 => select(vec![vec!["broken"], vec!["model", "nowhere"]]),
    ];
    let storage = option::weighted(0.2, any::<bool>());
    (name, (labels, annotations), model(), (bases, storage), (workload(), option::weighted(0.3, workload()), option::of(router())))
        .prop_map(move |(name, (labels, annotations), model, (bases, storage), (main, prefill, router))| {
            let bases: Vec<Value> = bases.into_iter().map(|base| json!({"name": base})).collect();
            let mut spec = main;
            merge(
                &mut spec,
                object(vec![
                    ("model", Some(model)),
                    ("baseRefs", (!bases.is_empty()).then(|| bases.into())),
                    ("storageInitializer", storage.map(|enabled| json!({ "enabled": enabled }))),
                    ("prefill", prefill),
                    ("router", router),
                ]),
            );
            json!({
                "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService",
                "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}, "spec": spec,
            })
        })
        .boxed()
}
