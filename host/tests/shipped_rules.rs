//! The shipped rules, with golden cases: the objects that each accepts, and those that it rejects.

use crate::program::{empty_folder, ended, pointsman, printed_json};
use kube::ResourceExt;
use pointsman_core::rules::shipped;
use pointsman_crds::policy::rule::ValidationRule;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// The length of a warning that kubectl always shows in full.
const LONGEST_WARNING: usize = 256;

/// The results of all cases, from `pointsman rule test`.
static CASES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut report = printed_json(0, pointsman(&["rule", "test", "-o", "json"]).args(files()));
    serde_json::from_value(report["cases"].take()).unwrap()
});

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("core/src/rules/shipped/cases");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_golden_case_passes() {
    let failed: Vec<String> = CASES
        .iter()
        .filter(|case| case["passed"] != true)
        .map(|case| format!("{} ({}): {}", case["name"], case["place"], case["problem"]))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_rule_that_the_host_brings_has_cases_that_pass_and_cases_that_do_not() {
    let expected = |rule: &str, verdict: &Value| CASES.iter().any(|case| case["rule"] == rule && case["expected"] == *verdict);
    for rule in shipped::all() {
        let name = rule.name_any();
        assert!(expected(&name, &json!("Pass")), "no case shows what {name} lets pass");
        for action in &rule.spec.actions {
            assert!(expected(&name, &json!(action)), "no case shows what {name} is there for");
        }
    }
}

#[test]
fn every_warning_of_a_practice_is_told_whole() {
    let warned = CASES.iter().filter(|case| case["expected"] == "Warn");
    let warnings: Vec<String> = warned
        .flat_map(|case| {
            let rule = case["rule"].as_str().unwrap();
            case["messages"].as_array().unwrap().iter().map(move |message| format!("{rule}: {}", message.as_str().unwrap()))
        })
        .collect();
    assert!(!warnings.is_empty());
    for warning in warnings {
        assert!(warning.chars().count() <= LONGEST_WARNING, "{warning}");
    }
}

/// A service whose pods use the node in every way, by settings of tenants or administrators.
const NODE: &str = r#"
apiVersion: ome.io/v1beta1
kind: MODEL
metadata: {name: llama, namespace: chat}
spec: {storage: {storageUri: "hf://a/b", path: /etc}, modelFormat: {name: safetensors}}
---
apiVersion: ome.io/v1beta1
kind: RUNTIME
metadata: {name: mine, namespace: chat}
spec:
  supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]
  engineConfig: {hostPID: true, serviceAccountName: admin, runner: {name: ome-container, image: "vllm:1", securityContext: {privileged: true}}}
---
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: s, namespace: chat}
spec: {model: {name: llama, kind: MODEL}, engine: {minReplicas: 1}}
"#;

/// The same for an LLMInferenceService.
const LLM_NODE: &str = r#"
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceServiceConfig
metadata: {name: base, namespace: NAMESPACE}
spec:
  template: {hostNetwork: true, containers: [{name: main, securityContext: {capabilities: {add: [SYS_ADMIN, CHOWN]}}}]}
---
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: s, namespace: chat}
spec: {model: {uri: "hf://a/b"}, baseRefs: [{name: base}]}
"#;

#[test]
fn hardened_pods_refuse_the_node_to_tenants_and_grant_it_to_administrators() {
    let folder = empty_folder("shipped-rules/hardened-pods");
    let rendered = |enabled: bool, code: i32, input: &str| {
        let mut rule = ValidationRule::clone(shipped::find("hardened-pods").unwrap());
        rule.spec.enabled = enabled;
        let input = format!("{input}---\n{}\n", serde_json::to_string(&rule).unwrap());
        let (printed, said) = ended(code, &folder, &["render", "-f", "-", "--config-namespace", "kserve"], &input);
        (printed.contains("kind: Deployment"), said)
    };
    let of = |model: &str, runtime: &str| NODE.replace("MODEL", model).replace("RUNTIME", runtime);
    let llm = |namespace: &str| LLM_NODE.replace("NAMESPACE", namespace);
    assert_eq!(rendered(false, 0, &of("BaseModel", "ServingRuntime")), (true, String::new()), "nobody has enabled it");
    assert_eq!(rendered(true, 0, &of("ClusterBaseModel", "ClusterServingRuntime")), (true, String::new()));
    assert_eq!(rendered(true, 0, &llm("kserve")), (true, String::new()));
    let refused = [
        (
            of("BaseModel", "ClusterServingRuntime"),
            "spec.template.spec.volumes[name=model].hostPath.path is requested by no administrator: remove it",
        ),
        (of("ClusterBaseModel", "ServingRuntime"), "(and 2 more) is requested by no administrator: remove it"),
        (llm("chat"), "spec.template.spec.containers[name=main].securityContext.capabilities.add[0] (and 1 more) is requested"),
        (
            of("BaseModel", "ClusterServingRuntime").replace(r#"storageUri: "hf://a/b", path: /etc"#, r#"storageUri: "local:///etc""#),
            "hostPath.path is requested by no administrator: remove it",
        ),
    ];
    for (input, expected) in refused {
        let (made, said) = rendered(true, 2, &input);
        assert!(!made && said.contains("hardened-pods: Deployment ") && said.contains(expected), "{said}");
    }
}

#[test]
fn a_practice_only_warns() {
    for rule in shipped::all().iter().filter(|rule| rule.name_any().starts_with("practice-")) {
        assert_eq!(json!(rule.spec.actions), json!(["Warn"]), "{}", rule.name_any());
        assert!(rule.spec.enabled, "{}", rule.name_any());
    }
}
