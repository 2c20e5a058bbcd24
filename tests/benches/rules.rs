//! 50 rules on an object of 10 KiB, beside Kubernetes' own validator of ValidatingAdmissionPolicies, in Go: the same expressions on the same
//! object, each a rule and a policy of its own, in turns in one run.
#![allow(clippy::unwrap_used)]

use pointsman::{
    policy::{compile::Compilers, engine::Engines, load::Loader, point::Subject},
    rules::{Rules, judge::Case, rule::bind},
};
use pointsman_crds::policy::rule::{RuleStage, ValidationRuleSpec};
use pointsman_harness::{cluster_dir, target_dir};
use pointsman_tests::{
    measure::{goal, keep, quantile},
    pointsman,
};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

const RULES: usize = 50;

/// How many turns each takes, and how often it evaluates everything in one.
const TURNS: usize = 20;
const TIMES: u32 = 100;

fn main() {
    let object = object();
    let expressions: Vec<String> = (0..RULES).map(expression).collect();
    let text = object.to_string();
    assert!((10 << 10..11 << 10).contains(&text.len()), "the object has {} bytes", text.len());

    let rules = rules(&expressions);
    let about =
        Subject { group: "ome.io".to_owned(), version: "v1beta1".to_owned(), kind: "InferenceService".to_owned(), ..Subject::default() };
    let ours = || {
        // As from a watch: each time the object is another one.
        let text: Arc<str> = text.as_str().into();
        let mut root = |name: &str| (name == "object").then(|| Arc::clone(&text));
        let judgement = rules.judge(Case { stage: RuleStage::Input, about: &about, operation: None, root: &mut root, around: None });
        assert_eq!((judgement.matched.len(), judgement.findings.len()), (RULES, 0), "{:?}", judgement.findings);
    };
    ours();
    let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
    for _ in 0..if std::env::var_os("POINTSMAN_QUICK").is_some() { 3 } else { TURNS } {
        let begun = Instant::now();
        for _ in 0..TIMES {
            ours();
        }
        of_ours.push(begun.elapsed() / TIMES);
        of_theirs.push(theirs(&object, &expressions));
    }
    let (ours, theirs) = (quantile(&of_ours, 0.5), quantile(&of_theirs, 0.5));
    println!("\n{RULES} rules on an object of {} bytes: {ours:.0?}; Kubernetes' own validator takes {theirs:.0?}", text.len());
    let times = ours.as_secs_f64() / theirs.as_secs_f64();
    goal("ours beside Kubernetes'", &format!("{times:.2}"), "<= 1", times <= 1.0);
    keep("50 rules on an object of 10 KiB", &[("native", theirs), ("in the sandbox", ours)]);
}

/// The median of one turn of Kubernetes' validator.
fn theirs(object: &Value, expressions: &[String]) -> Duration {
    let mut validator = Command::new(cluster_dir().join("bin/pointsman-cluster"))
        .arg("validate")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = json!({"object": object, "expressions": expressions, "batches": 5, "times": TIMES / 5});
    validator.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let said = validator.wait_with_output().unwrap();
    assert!(said.status.success());
    Duration::from_nanos(String::from_utf8(said.stdout).unwrap().trim().parse().unwrap())
}

fn rules(expressions: &[String]) -> Rules {
    let engines = Arc::new(Engines::with_slots(8).unwrap());
    let loader = Loader::new(engines, Compilers::new(pointsman(), &target_dir().join("tmp/rules-cache")).unwrap());
    let rule = |(number, expression): (usize, &String)| {
        let spec = json!({"validations": [{"expression": expression}]});
        let spec: ValidationRuleSpec = serde_json::from_value(spec).unwrap();
        Arc::new(loader.rule(bind(&format!("rule-{number:02}"), &spec, None)).unwrap())
    };
    Rules::new(expressions.iter().enumerate().map(rule).collect(), Some(loader.evaluator().unwrap()))
}

/// A service as somebody writes it who leaves nothing to its runtime.
fn object() -> Value {
    let map = |what: &str, number: usize| -> Value {
        (0..number).map(|at| (format!("{what}.example.com/key-{at}"), Value::String(format!("value-{at}")))).collect()
    };
    let env = |number: usize| -> Value {
        (0..number).map(|at| json!({"name": format!("SETTING_{at}"), "value": format!("value of {at}")})).collect()
    };
    let container = |name: &str, number: usize| {
        json!({
            "name": name, "image": format!("registry.example.com/serving/{name}:v1.{number}"), "env": env(number),
            "args": ["--model", "$(MODEL_PATH)", "--port", "8080", "--max-model-len", "32768"],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": 4, "memory": "96Gi"}},
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 10, "failureThreshold": 60},
            "volumeMounts": [{"name": "cache", "mountPath": "/cache"}, {"name": "shm", "mountPath": "/dev/shm"}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        })
    };
    let component = |name: &str, number: usize| {
        json!({
            "minReplicas": 1, "maxReplicas": 4, "runner": container(name, number), "containers": [container("sidecar", number / 2)],
            "volumes": [{"name": "cache", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}],
            "nodeSelector": {"example.com/pool": "gpu"}, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        })
    };
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "team", "labels": map("label", 12), "annotations": map("annotation", 16)},
        "spec": {"model": {"name": "llama", "kind": "ClusterBaseModel"}, "engine": component("engine", 34), "decoder": component("decoder", 34)},
    })
}

/// Rules as people write them: ten sorts, each with other numbers.
fn expression(number: usize) -> String {
    let at = number / 10;
    match number % 10 {
        0 => format!("object.spec.engine.minReplicas <= {}", at + 5),
        1 => format!("!has(object.spec.decoder) || object.spec.decoder.maxReplicas < {}", at + 10),
        2 => format!("object.spec.engine.containers.all(c, c.image.startsWith('registry.example.com/') && c.image.size() > {at})"),
        3 => format!("object.metadata.labels['label.example.com/key-{at}'] == 'value-{at}'"),
        4 => format!("object.spec.engine.runner.env.exists(e, e.name == 'SETTING_{at}')"),
        5 => format!("object.spec.engine.runner.resources.limits['nvidia.com/gpu'] <= {}", at + 8),
        6 => format!("quantity(object.spec.decoder.runner.resources.requests.memory).isGreaterThan(quantity('{at}Gi'))"),
        7 => format!("object.metadata.name.matches('^[a-z]([-a-z0-9]{{0,{}}})$')", at + 50),
        8 => format!("object.spec.?engine.?runner.?securityContext.?privileged.orValue(false) == false && {at} < 9"),
        _ => format!("object.spec.engine.volumes.map(v, v.name).size() < {} && !('evil-{at}' in object.metadata.annotations)", at + 10),
    }
}
