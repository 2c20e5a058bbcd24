//! The provenance of the built-in policy's answers.

use super::*;
use pointsman_plugin::pod_templating::{Action as Done, Layer as Given, Request};

/// The suffixes of the fields that guardrails check for any value.
const GUARDED: [&str; 12] = [
    "ontainers[].securityContext.procMount",
    ".capabilities.add[]",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.fsGroup",
    "securityContext.supplementalGroups[]",
    ".ports[].hostPort",
    ".ports[].hostIP",
    "ontainers[].image",
    "volumes[].image.reference",
    ".command",
    ".serviceAccountName",
];

/// The fields that they check with everything below.
const GUARDED_WITHIN: [&str; 7] = [
    "volumes[].hostPath.",
    "volumes[].secret.",
    "volumes[].projected.",
    ".envFrom[].",
    ".valueFrom.secretKeyRef.",
    "imagePullSecrets[]",
    ".lifecycle.",
];

/// The fields that they check if they are true.
const GUARDED_IF_TRUE: [&str; 6] =
    ["privileged", "allowPrivilegeEscalation", "hostNetwork", "hostPID", "hostIPC", "automountServiceAccountToken"];

fn is_guarded(field: &Field) -> bool {
    let if_true = field.value == true && GUARDED_IF_TRUE.contains(&field.name.as_str());
    let ends = GUARDED.iter().any(|end| field.place.ends_with(end));
    if_true
        || ends
        || GUARDED_WITHIN.iter().any(|within| field.place.contains(within))
        || field.name == "runAsNonRoot" && field.value == false
}

impl Question {
    /// The built-in policy's answer, called as a plain function.
    pub(super) fn by_default(&self) -> Value {
        let request = Request {
            subject: as_sdk(json!(self.subject)),
            role: as_sdk(json!(self.role)),
            group_role: self.group.map(|group| as_sdk(json!(group))),
            layers: self.layers.iter().map(|(name, content)| Given { name: name.clone(), content: content.to_string() }).collect(),
            template: self.frame.to_string(),
            ..Request::default()
        };
        let config = as_sdk(self.configs[0].1.clone());
        let answer = pointsman_pod_templating::template(&config, request).unwrap();
        let mut template = self.frame.clone();
        for operation in answer.operations {
            let value = operation.value.map(|text| serde_json::from_str(&text).unwrap());
            let (way, last) = operation.path.rsplit_once('/').unwrap();
            let last = last.replace("~1", "/").replace("~0", "~");
            let place = template.pointer_mut(way).unwrap();
            match (place, operation.action, value) {
                (Value::Array(items), Done::Add, Some(value)) if last == "-" => items.push(value),
                (Value::Object(fields), Done::Add | Done::Replace, Some(value)) => drop(fields.insert(last, value)),
                (Value::Object(fields), Done::Remove, None) => drop(fields.shift_remove(&last)),
                (place, ..) => panic!("{} in {place}", operation.path),
            }
        }
        template["spec"].take()
    }

    /// The guarded fields that the built-in policy sets, with their provenance.
    fn guarded_by_default(&self) -> Vec<(String, Vec<String>)> {
        let asked = self.planned(&self.by_default());
        let short = |field: &str| field.trim_start_matches("spec.template.spec.").to_owned();
        asked.fields.into_iter().filter(is_guarded).map(|field| (short(&field.field), field.by)).collect()
    }
}

/// Converts one of our records to the SDK's: both have the same JSON.
fn as_sdk<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_built_in_policy_adds_nothing_guarded_that_nobody_has_asked_for() {
    let model = |more: Value| {
        let mut model = json!({"kind": "ClusterBaseModel", "namespace": "", "name": "llama", "storageUri": "hf://a/llama", "nodeLabel": "models.ome.io/x"});
        more.as_object().unwrap().iter().for_each(|(name, value)| model[name] = value.clone());
        ("model", model)
    };
    let main = json!({"pod": {"containers": [{
        "name": "main", "image": "vllm/vllm-openai:v1", "command": ["vllm", "serve"], "args": ["/mnt/models", "--name={{ .Name }}"],
        "securityContext": {"runAsUser": 2000, "capabilities": {"add": ["IPC_LOCK"]}},
    }]}});
    let engine = || {
        (
            "runtime",
            runner(
                &json!({"command": ["{{.Name}}", "$(MODEL_PATH)"], "args": ["--model", "$(MODEL_PATH)"], "resources": {"limits": {"nvidia.com/gpu": 8}}}),
            ),
        )
    };
    let sidecar = || {
        (
            "user",
            json!({"pod": {"containers": [{"name": "log", "image": "log:1", "command": ["log", "$(MODEL_PATH)"]}]}, "config": {"A": "b"}}),
        )
    };
    let settings =
        || ("settings", json!({"security.ome.io/secret-ref": "credentials", "security.ome.io/pod-security-policy": "restricted"}));
    let adapter = |uri: &str| ("adapter", json!({"name": "tuned", "storageUri": uri, "modelType": "lora"}));
    let kserve = |uri: &str| {
        let adapters = json!([{"name": "one", "uri": "hf://a/one"}, {"name": "two", "uri": "pvc://claim/two"}]);
        ("model", json!({"uri": uri, "name": "b", "initializer": true, "adapters": adapters}))
    };
    let mut router = Question { role: Role::Router, ..ome([("runtime", runner(&json!({})))]) };
    router.frame["spec"]["serviceAccountName"] = "chat-router".into();
    let scheduler =
        ("scheduler", json!({"pool": "p", "namespace": "prod", "replicas": 2, "config": null, "configMap": {"name": "c", "key": "k"}}));
    let mut picks = Question { role: Role::Scheduler, ..llm([("preset", main.clone()), scheduler]) };
    picks.frame["spec"]["serviceAccountName"] = "chat-epp-sa".into();
    let questions = [
        ome([engine(), sidecar(), model(json!({}))]),
        ome([engine(), sidecar(), model(json!({"path": "/data/llama"})), settings()]),
        ome([engine(), model(json!({"storageUri": "local:///data/llama", "download": true})), adapter("local:///data/tuned")]),
        ome([
            engine(),
            model(json!({"storageUri": "hf://a/b", "download": true})),
            adapter("hf://a/tuned"),
            ("storage", json!({"claim": "c", "readOnly": false})),
            settings(),
        ]),
        ome([engine(), model(json!({"storageUri": "pvc://claim/models"})), adapter("pvc://claim/tuned")]),
        ome([engine(), model(json!({})), ("group", json!({"nodes": 2, "ray": true}))]).of_group(Role::Leader, Role::Engine),
        ome([engine(), model(json!({})), ("group", json!({"nodes": 2, "ray": true}))]).of_group(Role::Worker, Role::Engine),
        router,
        llm([("preset", main.clone()), kserve("hf://a/b"), ("parallelism", json!({"tensor": 2}))]),
        llm([
            ("preset", main.clone()),
            ("base:b", json!({"pod": null})),
            kserve("oci://registry/image:1"),
            ("user", json!({"pod": {"initContainers": [{"name": "storage-initializer", "envFrom": [{"secretRef": {"name": "hf"}}]}]}})),
        ]),
        llm([
            ("preset", main.clone()),
            kserve("pvc://claim/b"),
            ("parallelism", json!({"data": 16, "dataLocal": 8})),
            ("group", json!({"nodes": 2})),
        ])
        .of_group(Role::Worker, Role::Main),
        picks,
    ];
    for (number, question) in questions.iter().enumerate() {
        let guarded = question.guarded_by_default();
        assert!(!guarded.is_empty(), "{number}");
        for (field, by) in guarded {
            assert!(!by.is_empty(), "nobody has asked for {field} in question {number}");
        }
    }
}
