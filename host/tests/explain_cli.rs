//! `pointsman explain` for a service with several possible runtimes and several plugins.

use crate::{
    policies::module,
    program::{ended, folder, pointsman, text},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The size of a terminal.
const LINES: usize = 24;
const WIDTH: usize = 100;

/// A service with its own argument; runtimes that are cheaper, more expensive or for another format; two policies, and a rule that warns.
const FILES: &str = r#"
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat}
spec:
  model: {name: llama}
  engine: {minReplicas: 2, runner: {name: ome-container, env: [{name: LOG, value: info}]}}
---
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: cheap, annotations: {cost.example.com/per-hour: "1"}}
spec:
  supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]
  engineConfig: {runner: {name: ome-container, image: "vllm:2", args: [--model, $(MODEL_PATH)]}}
---
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: dear, annotations: {cost.example.com/per-hour: "99"}}
spec:
  supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]
  engineConfig: {runner: {name: ome-container, image: "vllm:3"}}
---
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: onnx}
spec:
  supportedModelFormats: [{modelFormat: {name: onnx}, autoSelect: true}]
  engineConfig: {runner: {name: ome-container, image: "ort:1"}}
---
apiVersion: policy.pointsman.dev/v1alpha1
kind: PolicyPlugin
metadata: {name: cost}
spec: {order: 10, source: {file: {path: rust-cost.wasm}}, config: {maxPerHour: 50}}
---
apiVersion: policy.pointsman.dev/v1alpha1
kind: PolicyPlugin
metadata: {name: team-labels}
spec: {order: 20, source: {file: {path: rust-labels.wasm}}, config: {label: team}}
---
apiVersion: v1
kind: Namespace
metadata: {name: default, labels: {team: platform}}
---
apiVersion: policy.pointsman.dev/v1alpha1
kind: ValidationRule
metadata: {name: few-replicas}
spec:
  actions: [Warn]
  match: {kinds: [{group: ome.io, kind: InferenceService}]}
  validations: [{expression: "object.spec.engine.minReplicas < 2", message: "Two replicas take twice the GPUs: set spec.engine.minReplicas to 1."}]
"#;

fn files(name: &str) -> PathBuf {
    let folder = folder(name);
    fs::write(folder.join("chat.yaml"), FILES).unwrap();
    for example in ["rust-cost", "rust-labels"] {
        fs::write(folder.join(format!("{example}.wasm")), module(&format!("pointsman-example-{example}"))).unwrap();
    }
    folder
}

/// The output on a screen.
fn on_screen(folder: &Path) -> String {
    let mut command = pointsman(&["explain", "-f", "."]);
    let output = command.current_dir(folder).env("COLUMNS", WIDTH.to_string()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The output with these flags.
fn explained(folder: &Path, flags: &[&str]) -> String {
    ended(0, folder, &[&["explain", "-f", "."], flags].concat(), "").0
}

#[test]
fn a_typical_service_fits_a_screen_with_its_choice_its_plugins_and_what_is_wrong() {
    let folder = files("explain-cli/summary");
    let said = on_screen(&folder);
    println!("{said}");
    assert!(said.lines().count() <= LINES, "{} lines: {said}", said.lines().count());
    assert!(said.lines().all(|line| line.chars().count() <= WIDTH), "{said}");
    let line = |begins: &str| said.lines().find(|line| line.trim_start().starts_with(begins)).unwrap_or_else(|| panic!("{begins}: {said}"));
    assert!(line("ClusterServingRuntime cheap").contains("selected; runtime-selection 10 + cost "), "{said}");
    assert!(line("ClusterServingRuntime vllm").contains(" less; runtime-selection 10 + cost "), "{said}");
    assert!(line("ClusterServingRuntime dear").contains("excluded by cost, TooExpensive: "), "{said}");
    assert!(line("ClusterServingRuntime onnx").contains("excluded by runtime-selection, "), "{said}");
    assert!(line("runtime-selection ").contains("scores 3 runtimes; excludes 1 runtime"), "{said}");
    assert!(line("cost ").contains("excludes 1 runtime"), "{said}");
    assert!(line("pod-templating ").contains("of 1 pod template (") && line("pod-templating ").contains("runtime "), "{said}");
    assert!(line("team-labels ").contains("sets team of 1 object"), "{said}");
    assert!(line("metadata-propagation ").contains(" labels and annotations of "), "{said}");
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Valid True, Warned: few-replicas: Two replicas take twice the GPUs: set spec.engine.minReplicas to 1."),
        "{said}"
    );
    assert!(said.contains("EngineReady Unknown, Progressing: "), "{said}");
    assert!(said.trim_end().ends_with("--why FIELD who requested a field"), "{said}");
}

#[test]
fn sentences_are_cut_only_on_a_screen() {
    let folder = files("explain-cli/pipe");
    assert!(on_screen(&folder).contains('\u{2026}'));
    let said = explained(&folder, &[]);
    assert!(said.contains("TooExpensive: The runtime costs 99 an hour, and at most 50 is allowed.\n"), "{said}");
    assert!(said.contains("clusterbasemodel.llama=Ready, which has the model.\n") && !said.contains('\u{2026}'), "{said}");
}

#[test]
fn labels_are_explained_with_their_layer_and_plugin() {
    let said = explained(&files("explain-cli/labels"), &["--labels"]);
    assert!(said.contains("Deployment chat-engine, engine, pod-template\n"), "{said}");
    let team = said.lines().find(|line| line.contains(" team ")).unwrap();
    assert_eq!(team.split_whitespace().collect::<Vec<_>>(), ["label", "team", "platform", "namespace", "team-labels"]);
    assert!(!said.contains("/spec/containers"), "{said}");
}

#[test]
fn a_field_is_explained_with_who_requested_and_who_set_it() {
    let folder = files("explain-cli/why");
    for path in ["spec.containers[0].args", "spec.template.spec.containers[ome-container].args", "/spec/template/spec/containers/0/args"] {
        let said = explained(&folder, &["--why", path]);
        assert!(said.contains("Deployment chat-engine: spec.template.spec.containers[name=ome-container].args\n"), "{path}: {said}");
        let row = said.lines().find(|line| line.trim_start().starts_with("[0]")).unwrap();
        let cells: Vec<&str> = row.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["[0]", "--model", "runtime (ClusterServingRuntime cheap)", "pod-templating"], "{path}");
    }
    let said = explained(&folder, &["--why", "spec.containers[0].env[LOG].value"]);
    assert!(said.contains("info") && said.contains("user (InferenceService chat)"), "{said}");
    let said = explained(&folder, &["--why", "spec.template.metadata.labels[team]"]);
    assert!(said.contains("platform") && said.trim_end().ends_with("team-labels"), "{said}");
    let said = explained(&folder, &["--why", "spec.selector"]);
    assert!(said.contains("host") && said.trim_end().ends_with("the host"), "{said}");

    let printed: Value = serde_json::from_str(&explained(&folder, &["--why", "spec.containers[0].image", "-o", "json"])).unwrap();
    let field = &printed["fields"][0];
    assert_eq!(
        (&field["value"], &field["requestedBy"][0], &field["setBy"]),
        (&"vllm:2".into(), &"runtime".into(), &"pod-templating".into())
    );
    assert_eq!((&printed["subject"]["name"], &field["object"]["name"]), (&"chat".into(), &"chat-engine".into()));
}

#[test]
fn an_unknown_field_is_told_with_what_could_be_meant() {
    let folder = files("explain-cli/unknown");
    let refused = |path: &str| {
        let (printed, said) = ended(1, &folder, &["explain", "-f", ".", "--why", path], "");
        assert!(printed.is_empty(), "{printed}");
        said
    };
    let said = refused("spec.containers[0].arg");
    let place = "no planned object has the field spec.containers[0].arg: spec.template.spec.containers[name=ome-container] of the Deployment \
                 chat-engine has no arg; did you mean args?";
    assert!(said.contains(place), "{said}");
    let said = refused("spec.containers[main].args");
    assert!(said.contains("has no main; there is ome-container"), "{said}");
    let (_, said) = ended(64, &folder, &["explain", "-f", ".", "--why", "spec..x"], "");
    assert!(said.contains("is not a path to a field: write it as spec.containers[0].args"), "{said}");
}

#[test]
fn one_part_is_printed_at_a_time() {
    let folder = files("explain-cli/flags");
    ended(64, &folder, &["explain", "-f", ".", "--all", "--labels"], "");
    let (_, said) = ended(64, &folder, &["explain", "-f", ".", "--pod", "chat-engine-0"], "");
    assert!(said.contains("--pod is for subjects in a cluster"), "{said}");
    let (_, said) = ended(64, &folder, &["explain", "-f", ".", "--labels", "-o", "json"], "");
    assert!(said.contains("omit --labels"), "{said}");
    let (_, said) = ended(64, &folder, &["explain", "pod/chat", "--all"], "");
    assert!(said.contains("specify the pod's subject"), "{said}");
    let whole = explained(&folder, &["-o", "json"]);
    assert_eq!(explained(&folder, &["--all", "-o", "json"]), whole);
}
