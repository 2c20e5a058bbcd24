//! Pods and containers that hold together, so that the API server takes what is made of them.

use super::object;
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

fn words() -> BoxedStrategy<Vec<String>> {
    let word = prop_oneof![
        3 => "--[a-z]{1,8}(=[a-z0-9]{0,5})?",
        2 => "[ -~]{0,12}",
        1 => Just("$(MODEL_PATH)".to_owned()),
        1 => Just("{{.Name}}-{{ .Labels.team }}".to_owned()),
        1 => Just("{{ range .x }}".to_owned()),
    ];
    vec(word, 0..4).boxed()
}

fn env() -> BoxedStrategy<Vec<Value>> {
    let one = ("[A-Z][A-Z0-9_]{0,6}", option::of("[ -~]{0,12}")).prop_map(|(name, value)| match value {
        Some(value) => json!({"name": name, "value": value}),
        None => json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
    });
    vec(one, 0..3).prop_map(|all| unique(all, "name")).boxed()
}

/// The first of each name.
fn unique(items: Vec<Value>, key: &str) -> Vec<Value> {
    let mut seen = BTreeMap::new();
    for item in items {
        seen.entry(item[key].to_string()).or_insert(item);
    }
    seen.into_values().collect()
}

/// A container but for its name and image.
pub(crate) fn container() -> BoxedStrategy<Value> {
    let limits = option::of(select(vec![
        json!({"nvidia.com/gpu": 1}),
        json!({"nvidia.com/gpu": "4", "memory": "0.5Gi"}),
        json!({"cpu": "1500m", "memory": 1_073_741_824}),
    ]));
    let port = (1..65_535_i64).prop_map(|port| json!({"containerPort": port}));
    let ports = vec(port, 0..3).prop_map(|all| unique(all, "containerPort"));
    let probe = option::weighted(0.2, Just(json!({"httpGet": {"path": "/health", "port": 8080}})));
    (option::weighted(0.2, words()), option::of(words()), env(), limits, ports, probe)
        .prop_map(|(command, args, env, limits, ports, probe)| {
            object(vec![
                ("command", command.filter(|command| !command.is_empty()).map(Value::from)),
                ("args", args.map(Value::from)),
                ("env", (!env.is_empty()).then(|| env.into())),
                ("resources", limits.map(|limits| json!({"limits": limits}))),
                ("ports", (!ports.is_empty()).then(|| ports.into())),
                ("readinessProbe", probe),
            ])
        })
        .boxed()
}

/// A runner: mostly without a name or an image, as users write it.
pub(crate) fn runner() -> BoxedStrategy<Value> {
    (container(), option::weighted(0.4, Just("ome-container")), option::weighted(0.4, Just("registry.example.com/own:1")))
        .prop_map(|(mut container, name, image)| {
            for (field, value) in [("name", name), ("image", image)] {
                if let Some(value) = value {
                    container[field] = value.into();
                }
            }
            container
        })
        .boxed()
}

/// Sidecars, each with a name and an image.
pub(crate) fn containers() -> BoxedStrategy<Vec<Value>> {
    let one = (select(vec!["log-shipper", "metrics", "ome-container"]), container()).prop_map(|(name, mut container)| {
        container["name"] = name.into();
        container["image"] = "registry.example.com/sidecar:2".into();
        container
    });
    vec(one, 0..2).prop_map(|all| unique(all, "name")).boxed()
}

/// The fields of a PodSpec.
pub(crate) fn pod() -> BoxedStrategy<Value> {
    let volume = select(vec![
        json!({"name": "shm", "emptyDir": {"medium": "Memory"}}),
        json!({"name": "model", "emptyDir": {}}),
        json!({"name": "settings", "configMap": {"name": "settings"}}),
    ]);
    let volumes = vec(volume, 0..3).prop_map(|all| unique(all, "name"));
    let toleration = Just(json!({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}));
    let selector = option::weighted(0.3, ("[a-z]{1,6}", "[a-z]{1,6}"));
    (containers(), volumes, vec(toleration, 0..2), selector, option::weighted(0.1, 0..600_i64))
        .prop_map(|(containers, volumes, tolerations, selector, grace)| {
            let selector = selector.map(|(key, value)| Value::Object(Map::from_iter([(key, value.into())])));
            object(vec![
                ("containers", (!containers.is_empty()).then(|| containers.into())),
                ("volumes", (!volumes.is_empty()).then(|| volumes.into())),
                ("tolerations", (!tolerations.is_empty()).then(|| tolerations.into())),
                ("nodeSelector", selector),
                ("terminationGracePeriodSeconds", grace.map(Value::from)),
            ])
        })
        .boxed()
}
