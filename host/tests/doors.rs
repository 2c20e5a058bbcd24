//! What rules say of an object, told by each door: the admission webhook, `pointsman check`, and the controller's plan.
#![allow(clippy::unwrap_used, clippy::panic)]

mod policies;

use clap::Parser;
use pointsman::{
    cli::offline::{Offline, OfflineArgs},
    plan::Plan,
    policy::load::Loader,
    rules::{Rules, plan::VALID, rule::bind},
    serve::admission::review::{Known, Request, validate},
    world::{Labels, Surroundings},
};
use pointsman_crds::policy::rule::ValidationRuleSpec;
use policies::{compilers, engines};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    offline: OfflineArgs,
}

/// What stands against an object, and what only speaks against it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    denied: Vec<String>,
    warned: Vec<String>,
}

/// An object, and what all doors should say of it.
struct Row {
    object: Value,
    wanted: Said,
}

/// The rules by name.
fn specs() -> BTreeMap<&'static str, Value> {
    let rule = |expression: &str, message: &str| json!({"validations": [{"expression": expression, "message": message}]});
    let mut warned = rule("object.metadata.name != 'warned'", "better not");
    warned["actions"] = json!(["Warn"]);
    let mut placed = rule("object.metadata.name != 'placed'", "not here");
    placed["match"] = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "chat"}}});
    BTreeMap::from([
        ("annotated", rule("!has(object.metadata.annotations)", "it has annotations")),
        ("labelled", rule("!has(object.metadata.labels)", "it has labels")),
        ("named", rule("object.metadata.name != 'broken'", "not this name")),
        ("placed", placed),
        ("somewhere", rule("namespaceObject != null", "it is in no namespace")),
        ("warned", warned),
    ])
}

fn rows() -> Vec<Row> {
    let row = |object: Value, denied: &[&str], warned: &[&str]| {
        let [denied, warned] = [denied, warned].map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
        Row { object, wanted: Said { denied, warned } }
    };
    let kinds = [
        ("ome.io/v1beta1", "InferenceService", json!({"model": {"name": "llama"}})),
        ("serving.kserve.io/v1alpha1", "LLMInferenceService", json!({"model": {"uri": "hf://example/llama"}})),
    ];
    let mut rows = Vec::new();
    for (api_version, kind, spec) in kinds {
        let service = |name: &str, more: Value| {
            let mut metadata = json!({"name": name, "namespace": "chat"});
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
        };
        let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
        let alone = json!({"pointsman.dev/control": "true"});
        rows.extend([
            row(service("good", json!({})), &[], &[]),
            row(service("broken", json!({})), &["named: not this name"], &[]),
            row(service("warned", json!({})), &[], &["warned: better not"]),
            row(service("applied", json!({"annotations": applied})), &[], &[]),
            row(service("empty", json!({"annotations": {}, "labels": {}})), &[], &[]),
            row(service("placed", json!({})), &["placed: not here"], &[]),
            row(
                service("marked", json!({"annotations": alone, "labels": {"tier": "gold"}})),
                &["annotated: it has annotations", "labelled: it has labels"],
                &[],
            ),
        ]);
    }
    let spec = json!({
        "modelFormat": {"name": "safetensors"}, "modelParameterSize": "8B", "storage": {"storageUri": "hf://a/b", "path": "/mnt/llama"},
    });
    let model = json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": "llama"}, "spec": spec});
    rows.push(row(model, &["somewhere: it is in no namespace"], &[]));
    rows
}

fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What the webhook answers when the object is made.
fn by_webhook(object: &Value, rules: &Rules) -> Said {
    let (group, version) = text(object, "/apiVersion").split_once('/').unwrap();
    let namespace = text(object, "/metadata/namespace");
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "one", "operation": "CREATE", "kind": {"group": group, "version": version, "kind": text(object, "/kind")},
            "name": text(object, "/metadata/name"), "namespace": namespace, "object": object,
        },
    });
    let labels = Labels::from([("kubernetes.io/metadata.name".to_owned(), namespace.to_owned())]);
    let namespace_labels = Arc::new(if namespace.is_empty() { Labels::new() } else { labels });
    let verdict = validate(
        &Request::read(review.to_string().as_bytes()).unwrap(),
        &Known { rules, evaluator: None, namespace_labels, surroundings: Surroundings::default(), memo: None },
    );
    let denied = verdict.denial.iter().flat_map(|denial| denial.message.split("; ")).map(str::to_owned).collect();
    Said { denied, warned: verdict.warnings }
}

/// What `pointsman check` tells of an object among others.
fn by_check(object: &Value, report: &Value) -> Said {
    let found = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["kind"] == object["kind"] && finding["name"] == object["metadata"]["name"]);
    let mut said = Said::default();
    for finding in found {
        let list = if finding["severity"] == "error" { &mut said.denied } else { &mut said.warned };
        list.push(text(finding, "/message").to_owned());
    }
    said
}

/// What the condition `Valid` of a plan tells.
fn by_plan(plan: &Plan) -> Said {
    let condition = plan.status.conditions.iter().find(|condition| condition.type_ == VALID).unwrap();
    let sentences = |text: &str| text.split_terminator('.').map(|sentence| sentence.trim().to_owned()).collect();
    match (condition.status, condition.message.split_once(": ")) {
        (Some(false), Some((_, broken))) => Said { denied: sentences(broken), warned: Vec::new() },
        (Some(true), _) if condition.reason == "Warned" => Said { denied: Vec::new(), warned: sentences(&condition.message) },
        _ => Said::default(),
    }
}

fn check(folder: &Path, files: &[PathBuf]) -> Value {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins-cache");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.args(["check", "-o", "json"]).current_dir(folder).env("POINTSMAN_CACHE", cache);
    let output = command.args(files.iter().flat_map(|file| ["-f".as_ref(), file.as_os_str()])).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_doors_agree() {
    let (rows, specs) = (rows(), specs());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doors");
    fs::create_dir_all(&folder).unwrap();
    let rule = |(name, spec): (&&str, &Value)| {
        let id = ("policy.pointsman.dev/v1alpha1", "ValidationRule");
        json!({"apiVersion": id.0, "kind": id.1, "metadata": {"name": name}, "spec": spec})
    };
    let documents = |objects: Vec<Value>| objects.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
    let files = [("objects.yaml", rows.iter().map(|row| row.object.clone()).collect()), ("rules.yaml", specs.iter().map(rule).collect())];
    let files = files.map(|(name, objects): (&str, Vec<Value>)| {
        let file = folder.join(name);
        fs::write(&file, documents(objects)).unwrap();
        file
    });

    let loader = Loader::new(Arc::clone(engines()), compilers());
    let rules = specs.iter().map(|(name, spec)| {
        let spec: ValidationRuleSpec = serde_json::from_value(spec.clone()).unwrap();
        Arc::new(loader.rule(bind(name, &spec, None)).unwrap())
    });
    let rules = Rules::new(rules.collect(), Some(loader.evaluator().unwrap()));
    let report = check(&folder, &files);
    let words = ["doors".as_ref()].into_iter().chain(files.iter().flat_map(|file| ["-f".as_ref(), file.as_os_str()]));
    let planned = Offline::read(&Args::try_parse_from(words).unwrap().offline, &loader).unwrap().plans();

    for Row { object, wanted } in &rows {
        let [kind, name] = ["/kind", "/metadata/name"].map(|pointer| text(object, pointer));
        assert_eq!(by_webhook(object, &rules), *wanted, "the webhook, of {kind} {name}");
        assert_eq!(by_check(object, &report), *wanted, "check, of {kind} {name}");
        let plan = planned.iter().find(|planned| planned.subject.key.resource.kind == kind && planned.subject.key.name == name);
        assert_eq!(plan.is_some(), kind.ends_with("InferenceService"), "{kind} {name}");
        assert!(
            plan.is_none_or(|planned| by_plan(&planned.plan) == *wanted),
            "the plan, of {kind} {name}: {:?}",
            plan.map(|planned| by_plan(&planned.plan))
        );
    }
}
