//! Services of a tenant who means harm, or whose templates went wrong: at some bound of what the API server takes, in several ways at once.

use super::{llm_service, merge, service};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, Value, json};

/// A service, and what it refers to of its tenant's own.
#[derive(Clone, Debug)]
pub struct HostileTenant {
    /// An InferenceService or an LLMInferenceService.
    pub service: Value,
    /// Models, runtimes and configurations beside it, in its namespace.
    pub context: Vec<Value>,
}

/// Texts that something on the way may take for more than a text.
const TEXTS: [&str; 16] = [
    "",
    " ",
    "\u{202e}drowssap",
    "a\u{301}\u{302}\u{303}",
    "\u{feff}\u{200b}",
    "🏳️‍🌈",
    "\u{fdfa}",
    "\r\n---\n",
    "\u{1b}[31m",
    "$(A)$(B)$$(C)",
    "{{ .ObjectMeta.Name }}{{",
    "%s%n",
    "../../etc/passwd",
    "'; --",
    "--",
    "null",
];

/// How many there are of something: up to far more than anybody needs.
fn many() -> BoxedStrategy<usize> {
    select(vec![2, 17, 64, 300, 1000, 4100, 8000]).boxed()
}

/// One of the ways in which a subject is extreme.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Arguments(usize, &'static str),
    LongArgument(usize),
    Variables(usize, bool),
    Volumes(usize),
    Sidecars(usize),
    InitContainers(usize),
    Tolerations(usize),
    Terms(usize),
    Ports(usize),
    Annotations(usize, usize),
    PodAnnotations(usize, &'static str),
    Labels(usize),
    Placeholders(usize, usize),
    Bases(usize, bool),
    LongBase(usize),
    Deep(usize),
    Numbers(i64),
    Quantities(&'static str),
    Adopted(usize, &'static str),
    LongName(usize),
    Adapters(usize),
    OwnRuntime(usize),
    OwnModel(&'static str),
    Routes(usize),
    Setting(&'static str, &'static str),
}

fn blow() -> BoxedStrategy<Blow> {
    let text = || select(TEXTS.to_vec());
    let number = select(vec![0, 1, 1_000, 1_000_000, i64::from(i32::MAX)]);
    let quantity = select(vec!["0", "1e18", "9223372036854775807Ki", "0.000000001", "1E", "-1"]);
    let name = select(vec!["x/proxy/path", "Deployment/chat", "..", "a"]);
    let path = select(vec!["/", "/etc", "/mnt/../..", "relative", "/mnt/models/🏴"]);
    let setting = select(vec![
        ("performance.ome.io/batch-size", "999999999999999999999999"),
        ("model.ome.io/max-tokens", "1e308"),
        ("storage.ome.io/size", "1E"),
        ("monitoring.ome.io/port", "70000"),
        ("ome.io/min-replicas", "2147483647"),
        ("ome.io/deploymentMode", "\u{202e}waR"),
        ("model.ome.io/storage-uri", "local:///etc"),
        ("security.ome.io/secret-ref", "x/../../y"),
    ]);
    prop_oneof![
        (many(), text()).prop_map(|(number, text)| Blow::Arguments(number, text)),
        select(vec![10_000, 200_000, 400_000]).prop_map(Blow::LongArgument),
        (many(), any::<bool>()).prop_map(|(number, circle)| Blow::Variables(number, circle)),
        many().prop_map(Blow::Volumes),
        (1..200_usize).prop_map(Blow::Sidecars),
        (1..200_usize).prop_map(Blow::InitContainers),
        many().prop_map(Blow::Tolerations),
        (1..2000_usize).prop_map(Blow::Terms),
        many().prop_map(Blow::Ports),
        (1..2000_usize, select(vec![10, 120])).prop_map(|(number, size)| Blow::Annotations(number, size)),
        (many(), text()).prop_map(|(number, text)| Blow::PodAnnotations(number, text)),
        (1..2000_usize).prop_map(Blow::Labels),
        (many(), select(vec![10, 200_000])).prop_map(|(number, size)| Blow::Placeholders(number, size)),
        (1..3000_usize, any::<bool>()).prop_map(|(number, same)| Blow::Bases(number, same)),
        select(vec![10_000, 400_000]).prop_map(Blow::LongBase),
        (1..60_usize).prop_map(Blow::Deep),
        number.prop_map(Blow::Numbers),
        quantity.prop_map(Blow::Quantities),
        (1..4000_usize, name).prop_map(|(number, name)| Blow::Adopted(number, name)),
        select(vec![1, 63, 64, 253]).prop_map(Blow::LongName),
        (1..2000_usize).prop_map(Blow::Adapters),
        (1..3000_usize).prop_map(Blow::OwnRuntime),
        path.prop_map(Blow::OwnModel),
        (1..16_usize).prop_map(Blow::Routes),
        setting.prop_map(|(key, value)| Blow::Setting(key, value)),
    ]
    .boxed()
}

/// A tenant of a namespace.
pub fn hostile_tenant(namespace: &'static str) -> BoxedStrategy<HostileTenant> {
    let any_service = prop_oneof![service(namespace), llm_service(namespace)];
    (any_service, vec(blow(), 1..4))
        .prop_map(move |(service, blows)| {
            let mut tenant = Tenant::new(service, namespace);
            for blow in blows {
                tenant.suffer(blow);
            }
            HostileTenant { service: tenant.service, context: tenant.context }
        })
        .boxed()
}

struct Tenant {
    service: Value,
    context: Vec<Value>,
    namespace: &'static str,
    llm: bool,
    /// Where its pods are, and the container that counts.
    pod: &'static str,
    container: &'static str,
}

impl Tenant {
    fn new(mut service: Value, namespace: &'static str) -> Self {
        let llm = service["kind"] == "LLMInferenceService";
        let (pod, container) =
            if llm { ("/spec/template", "/spec/template/containers/0") } else { ("/spec/engine", "/spec/engine/runner") };
        let spec = if llm {
            json!({"template": {"containers": [{"name": "main", "image": "registry.example.com/own:1"}]}})
        } else {
            json!({"engine": {"runner": {"name": "ome-container", "image": "registry.example.com/own:1"}}})
        };
        let predicts = service["spec"].get("predictor").is_some();
        if !predicts {
            merge(&mut service["spec"], spec);
        }
        let (pod, container) = if predicts { ("/spec/predictor", "/spec/predictor/containers/0") } else { (pod, container) };
        if predicts {
            service["spec"]["predictor"]["containers"] = json!([{"name": "ome-container", "image": "registry.example.com/own:1"}]);
        }
        Self { service, context: Vec::new(), namespace, llm, pod, container }
    }

    fn put(&mut self, place: &str, field: &str, value: Value) {
        if let Some(fields) = self.service.pointer_mut(place) {
            fields[field] = value;
        }
    }

    fn pod(&mut self, field: &str, value: Value) {
        self.put(self.pod, field, value);
    }

    fn container(&mut self, field: &str, value: Value) {
        self.put(self.container, field, value);
    }

    /// Containers of a pod beside its main one.
    fn beside(&mut self, list: &str, number: usize) {
        let beside = (0..number).map(|number| json!({"name": format!("beside-{number}"), "image": "registry.example.com/beside:1"}));
        let kept = self.service.pointer(self.pod).and_then(|pod| pod.get(list)?.as_array()).cloned().unwrap_or_default();
        self.pod(
            list,
            kept.into_iter().filter(|kept| !kept["name"].as_str().unwrap_or_default().starts_with("beside")).chain(beside).collect(),
        );
    }

    fn suffer(&mut self, blow: Blow) {
        let named: fn(usize, fn(usize) -> Value) -> Value = |number, value| (0..number).map(value).collect();
        match blow {
            Blow::Arguments(number, text) => {
                self.container("args", (0..number).map(|at| json!(format!("--flag-{}={text}", at / 2))).collect());
            }
            Blow::LongArgument(size) => self.container("args", json!(["--long", "x".repeat(size)])),
            Blow::Variables(number, circle) => {
                let value = |at: usize| if circle { format!("$(V{})$(V{})", (at + 1) % number, at) } else { at.to_string() };
                self.container("env", (0..number).map(|at| json!({"name": format!("V{at}"), "value": value(at)})).collect());
            }
            Blow::Volumes(number) => {
                self.pod("volumes", named(number, |at| json!({"name": format!("v{at}"), "emptyDir": {}})));
                self.container("volumeMounts", named(number, |at| json!({"name": format!("v{at}"), "mountPath": format!("/v/{at}")})));
            }
            Blow::Sidecars(number) => self.beside("containers", number),
            Blow::InitContainers(number) => self.beside("initContainers", number),
            Blow::Tolerations(number) => {
                self.pod("tolerations", named(number, |at| json!({"key": format!("k{at}"), "operator": "Exists"})));
            }
            Blow::Terms(number) => {
                let terms =
                    named(number, |at| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [at.to_string()]}]}));
                let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
                self.pod("affinity", json!({"nodeAffinity": required}));
            }
            Blow::Ports(number) => self.container("ports", named(number, |at| json!({"containerPort": at % 65_535 + 1}))),
            Blow::Numbers(number) => self.numbers(number),
            Blow::Quantities(quantity) => {
                self.container(
                    "resources",
                    json!({"limits": {"nvidia.com/gpu": quantity, "memory": quantity}, "requests": {"cpu": quantity}}),
                );
            }
            other => self.suffer_beside_pods(other, named),
        }
    }

    /// What isn't of its pods alone.
    fn suffer_beside_pods(&mut self, blow: Blow, named: fn(usize, fn(usize) -> Value) -> Value) {
        match blow {
            Blow::Annotations(number, size) => {
                let all = (0..number).map(|at| (format!("tenant.example.com/a{at}"), "é".repeat(size / 2).into()));
                merge(&mut self.service["metadata"]["annotations"], Value::Object(all.collect()));
            }
            Blow::PodAnnotations(number, text) => {
                let all: Map<String, Value> = (0..number).map(|at| (format!("tenant.example.com/p{at}"), text.into())).collect();
                let place = if self.llm { "/spec" } else { self.pod };
                self.put(place, "annotations", all.into());
            }
            Blow::Labels(number) => {
                let all = (0..number).map(|at| (format!("tenant.example.com/l{at}"), "v".repeat(63).into()));
                merge(&mut self.service["metadata"]["labels"], Value::Object(all.collect()));
            }
            Blow::Placeholders(number, size) => {
                merge(&mut self.service["metadata"]["annotations"], json!({"long": "x".repeat(size)}));
                let text = "{{ .ObjectMeta.Annotations.long }}".repeat(number);
                self.base("placeholders", &json!({"template": {"containers": [{"name": "main", "args": [text]}]}}));
            }
            Blow::Bases(number, same) => {
                let name = |at: usize| if same { "model".to_owned() } else { format!("base-{at}") };
                if self.llm {
                    self.put("/spec", "baseRefs", (0..number).map(|at| json!({"name": name(at)})).collect());
                }
                for at in 0..number.min(if same { 0 } else { 16 }) {
                    self.config(&name(at), &json!({"labels": {"team": at.to_string()}}));
                }
            }
            Blow::LongBase(size) => {
                let args = vec!["x".repeat(1000); size / 1000];
                self.base("long", &json!({"template": {"containers": [{"name": "main", "args": args}]}}));
            }
            Blow::Deep(depth) => {
                let deep = (0..depth).fold(json!({}), |inner, _| json!({"a": [inner]}));
                if self.llm {
                    self.put(
                        "/spec",
                        "router",
                        json!({"route": {}, "scheduler": {"config": {"inline": {"kind": "EndpointPickerConfig", "deep": deep}}}}),
                    );
                }
            }
            Blow::Adopted(number, name) => {
                let names = vec![name; number].join(",");
                merge(&mut self.service["metadata"]["annotations"], json!({"pointsman.dev/adopted-workloads": names}));
            }
            Blow::LongName(length) => self.service["metadata"]["name"] = "n".repeat(length).into(),
            Blow::Adapters(number) if self.llm => {
                let adapters = named(number, |at| json!({"name": format!("adapter-{at}"), "uri": "hf://example/adapter"}));
                merge(&mut self.service["spec"], json!({"model": {"lora": {"adapters": adapters}}}));
            }
            Blow::OwnRuntime(number) => self.own_runtime(number),
            Blow::OwnModel(path) => self.own_model(path),
            Blow::Routes(number) => {
                let rule = |at: usize| json!({"matches": [{"path": {"type": "Exact", "value": format!("/ads/{at}")}}]});
                if self.llm {
                    let route = json!({"hostnames": ["bank.example.com"], "rules": (0..number).map(rule).collect::<Value>()});
                    self.put(
                        "/spec",
                        "router",
                        json!({"gateway": {"refs": [{"name": "edge", "namespace": "gateways"}]}, "route": {"http": {"spec": route}}}),
                    );
                }
            }
            Blow::Setting(key, value) => {
                merge(&mut self.service["metadata"]["annotations"], Value::Object(Map::from_iter([(key.to_owned(), value.into())])));
            }
            _ => {}
        }
    }

    fn numbers(&mut self, number: i64) {
        if !self.llm {
            self.pod("minReplicas", number.into());
            self.pod("maxReplicas", number.into());
            if self.pod == "/spec/engine" {
                self.pod("worker", json!({"size": number}));
            }
            return;
        }
        let Some(spec) = self.service["spec"].as_object_mut() else { return };
        spec.remove("scaling");
        spec.insert("replicas".to_owned(), number.into());
        if spec.contains_key("worker") {
            spec.insert("parallelism".to_owned(), json!({"tensor": number.max(1), "data": number.max(1), "dataLocal": 1}));
        }
    }

    /// A configuration of its own, on which it builds.
    fn base(&mut self, name: &str, spec: &Value) {
        self.config(name, spec);
        if self.llm {
            self.put("/spec", "baseRefs", json!([{"name": name}]));
        }
    }

    fn config(&mut self, name: &str, spec: &Value) {
        self.add(json!({
            "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceServiceConfig",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
        }));
    }

    fn own_runtime(&mut self, number: usize) {
        let formats = (0..number).map(
            |at| json!({"modelFormat": {"name": "safetensors", "version": at.to_string()}, "autoSelect": true, "priority": at % 100 + 1}),
        );
        let args: Vec<String> = (0..number).map(|at| format!("--of-runtime-{at}=$(MODEL_PATH)")).collect();
        self.add(json!({
            "apiVersion": "ome.io/v1beta1", "kind": "ServingRuntime", "metadata": {"name": "hostile", "namespace": self.namespace},
            "spec": {
                "supportedModelFormats": formats.collect::<Value>(),
                "engineConfig": {"runner": {"name": "ome-container", "image": "registry.example.com/own:1", "args": args}},
            },
        }));
        if !self.llm && self.pod == "/spec/engine" {
            self.put("/spec", "runtime", json!({"name": "hostile", "kind": "ServingRuntime", "apiGroup": "ome.io"}));
        }
    }

    fn own_model(&mut self, path: &str) {
        self.add(json!({
            "apiVersion": "ome.io/v1beta1", "kind": "BaseModel", "metadata": {"name": "m".repeat(63), "namespace": self.namespace},
            "spec": {"modelFormat": {"name": "safetensors"}, "modelParameterSize": "9999999999999T", "storage": {"storageUri": "local:///etc", "path": path}},
            "status": {"state": "Ready"},
        }));
        if self.llm {
            merge(&mut self.service["spec"], json!({"model": {"uri": format!("local://{path}")}}));
        } else if self.pod == "/spec/engine" {
            self.put("/spec", "model", json!({"name": "m".repeat(63), "kind": "BaseModel", "apiGroup": "ome.io"}));
        }
    }

    /// The last of a name counts.
    fn add(&mut self, object: Value) {
        self.context.retain(|other| (&other["kind"], &other["metadata"]) != (&object["kind"], &object["metadata"]));
        self.context.push(object);
    }
}
