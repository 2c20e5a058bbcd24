//! `pointsman render` and `pointsman explain`, run as users and pipelines run them.

use crate::{
    policies,
    program::{CHAT, ended, folder},
};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::{fs, io::Write, path::Path};

/// The one-sentence error of a refused command.
fn refused(folder: &Path, words: &[&str]) -> String {
    refused_with(1, folder, words)
}

/// The same, with another exit code.
fn refused_with(code: i32, folder: &Path, words: &[&str]) -> String {
    let (printed, said) = ended(code, folder, words, "");
    assert!(printed.is_empty() && said.starts_with("error: ") && said.trim_end().lines().count() == 1, "{printed}{said}");
    said
}

#[test]
fn a_folder_a_file_and_standard_input_say_the_same() {
    let folder = folder("render-cli/sources");
    fs::create_dir(folder.join("below")).unwrap();
    fs::write(folder.join("below/chat.yml"), CHAT).unwrap();
    fs::write(folder.join("notes.txt"), "not: [yaml").unwrap();
    fs::write(folder.join("values.yaml"), "replicas: 3\n").unwrap();
    let (of_folder, said) = ended(0, &folder, &["render", "-f", "."], "");
    assert!(said.contains("1 that are not Kubernetes objects"), "{said}");
    assert!(of_folder.contains("name: chat-engine") && of_folder.contains("namespace: default") && !of_folder.contains("ownerReferences"));
    let (of_files, said) = ended(0, &folder, &["render", "-f", "below/chat.yml", "-f", "context.yaml", "-f", "./context.yaml"], "");
    assert_eq!((of_files.as_str(), said.as_str()), (of_folder.as_str(), ""));
    let (of_stdin, _) = ended(0, &folder, &["render", "-f", "-", "-f", "context.yaml"], CHAT);
    assert_eq!(of_stdin, of_folder);
    let (elsewhere, _) = ended(0, &folder, &["render", "-f", ".", "--namespace", "chat"], "");
    assert!(elsewhere.contains("namespace: chat") && !elsewhere.contains("namespace: default"));
}

#[test]
fn json_is_one_list_and_takes_lists() {
    let folder = folder("render-cli/json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "chat"}, "spec": {"model": {"name": "llama"}}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
        {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}},
    ]});
    fs::write(folder.join("list.json"), list.to_string()).unwrap();
    let (printed, said) = ended(0, &folder, &["render", "-f", ".", "-o", "json"], "");
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((printed["kind"].as_str(), printed["items"][0]["kind"].as_str()), (Some("List"), Some("Service")));
    assert!(said.contains("1 Thing (example.com/v1)") && !said.contains("Node"), "{said}");
}

#[test]
fn one_that_gets_nothing_is_told_and_the_others_are_printed() {
    let folder = folder("render-cli/held");
    let lost = CHAT.replace("chat", "lost").replace("llama", "nowhere");
    fs::write(folder.join("chat.yaml"), format!("{CHAT}---\n{lost}")).unwrap();
    let (printed, said) = ended(2, &folder, &["render", "-f", "."], "");
    assert!(printed.contains("name: chat-engine") && !printed.contains("lost"), "{printed}");
    assert!(said.starts_with("default/lost: ModelReady ModelNotFound: There is neither ") && said.lines().count() == 1, "{said}");
    let (printed, said) = ended(0, &folder, &["render", "-f", ".", "--for", "default/chat"], "");
    assert!(printed.contains("name: chat-engine") && said.is_empty(), "{said}");
    let (printed, said) = ended(0, &folder, &["render", "-f", ".", "--for", "other/chat"], "");
    assert!(printed.is_empty() && said.contains("the files contain no subject other/chat (--for)"), "{said}");
}

#[test]
fn what_is_wrong_is_told_with_file_and_line() {
    let folder = folder("render-cli/wrong");
    let cases = [
        (3, "name: [", "a.yaml:1: "),
        (3, "# x\njust text\n", "a.yaml:2: this is not a Kubernetes object"),
        (1, "---\nkind: InferenceService\n", "a.yaml:2: this is not a Kubernetes object: apiVersion is missing: set it"),
        (1, "apiVersion: ome.io/v1beta1\nkind: InferenceService\nspec: {}\n", "a.yaml:1: the InferenceService has no metadata.name"),
        (
            1,
            &CHAT.replace("v1beta1", "v9"),
            "a.yaml:1: unknown version ome.io/v9 of InferenceService: pointsman 0.1.0 reads v1beta1; write the object in this version",
        ),
        (1, &format!("{CHAT}  engine:\n    minReplicas: [1]\n"), "a.yaml:7: spec.engine.minReplicas: invalid type: sequence"),
        (
            1,
            &format!("kind: List\napiVersion: v1\nitems:\n- {}", CHAT.replace('\n', "\n  ").replace("{name: llama}", "5")),
            "a.yaml:8: spec.model: invalid type: integer `5`",
        ),
    ];
    for (code, yaml, says) in cases {
        fs::write(folder.join("a.yaml"), yaml).unwrap();
        let said = refused_with(code, &folder, &["render", "-f", "a.yaml"]);
        assert!(said.contains(says), "{yaml}: {said}");
        assert_eq!(refused_with(code, &folder, &["explain", "-f", "a.yaml"]), said);
    }
    assert!(refused_with(3, &folder, &["render", "-f", "nowhere.yaml"]).contains("reading nowhere.yaml: No such file"));
    fs::create_dir(folder.join("empty")).unwrap();
    assert!(refused_with(3, &folder, &["render", "-f", "empty"]).contains("there is no file *.yaml, *.yml, *.json in empty"));
    assert!(refused_with(64, &folder, &["render"]).contains("specify files with -f"));
    assert!(refused_with(64, &folder, &["explain"]).contains("specify KIND/NAME of a subject in the cluster"));
    let (_, said) = ended(64, &folder, &["explain", "isvc/a", "-f", "a.yaml"], "");
    assert!(said.contains("cannot be used with"), "{said}");
    assert!(refused_with(64, &folder, &["explain", "replicaset/a"]).contains("is not a served kind"));
    assert!(refused_with(64, &folder, &["explain", "chat"]).contains("is not KIND/NAME"));
    let (_, said) = ended(64, &folder, &["render", "-f", "a.yaml", "--without", "things.example.com"], "");
    assert!(said.contains("things.example.com") && said.contains("scaledobjects.keda.sh"), "{said}");
}

#[test]
fn the_errors_of_all_files_are_reported_at_once() {
    let folder = folder("render-cli/several");
    fs::write(folder.join("a.yaml"), CHAT.replace("v1beta1", "v9")).unwrap();
    fs::write(folder.join("b.yaml"), format!("{CHAT}  engine:\n    minReplicas: [1]\n")).unwrap();
    let (_, said) = ended(1, &folder, &["render", "-f", "."], "");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("error: ./a.yaml:1: unknown version ome.io/v9"), "{said}");
    assert!(lines[1].starts_with("error: ./b.yaml:7: spec.engine.minReplicas: invalid type: sequence"), "{said}");
    fs::write(folder.join("c.yaml"), "name: [").unwrap();
    let (_, said) = ended(3, &folder, &["render", "-f", "."], "");
    assert!(said.lines().count() == 3 && said.starts_with("error: ./c.yaml:1: "), "{said}");
}

#[test]
fn the_last_of_equal_objects_is_planned_as_kubectl_applies_it() {
    let folder = folder("render-cli/equal");
    let last = format!("{CHAT}  engine:\n    minReplicas: 3\n    maxReplicas: 3\n");
    fs::write(folder.join("a.yaml"), format!("{CHAT}---\n{last}")).unwrap();
    let (printed, said) = ended(0, &folder, &["render", "-f", "."], "");
    assert!(said.contains("a.yaml:7: the InferenceService default/chat replaces the one at ./a.yaml:1"), "{said}");
    assert!(printed.contains("replicas: 3"), "{printed}");
    fs::write(folder.join("a.yaml"), &last).unwrap();
    assert_eq!(ended(0, &folder, &["render", "-f", "."], ""), (printed, String::new()));
}

#[test]
fn a_field_that_nobody_knows_is_told() {
    let folder = folder("render-cli/unknown");
    fs::write(folder.join("chat.yaml"), format!("{CHAT}  engine:\n    minReplica: 1\n")).unwrap();
    let (_, said) = ended(0, &folder, &["render", "-f", "."], "");
    assert!(said.contains("chat.yaml:7: spec.engine.minReplica: unknown field"), "{said}");
}

#[test]
fn plugins_come_from_files_and_from_config_maps() {
    let folder = folder("render-cli/plugins");
    let plugin = policies::module("pointsman-example-rust-cost");
    fs::create_dir(folder.join("policies")).unwrap();
    fs::write(folder.join("policies/cost.wasm"), &plugin).unwrap();
    fs::write(folder.join("chat.yaml"), CHAT).unwrap();
    let bound = |source: &str, config: &str| {
        let object = format!(
            "apiVersion: policy.pointsman.dev/v1alpha1\nkind: PolicyPlugin\nmetadata: {{name: cost}}\nspec: {{order: 9, source: {source}, config: {config}}}\n"
        );
        fs::write(folder.join("policies/cost.yaml"), object).unwrap();
    };
    let says = "RuntimeSelected NoSupportingRuntime: No runtime suits the model. ClusterServingRuntime vllm: The runtime costs 9 an hour";
    bound("{file: {path: cost.wasm}}", "{maxPerHour: 5}");
    assert!(ended(2, &folder, &["render", "-f", "."], "").1.contains(says));

    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&plugin).unwrap();
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cost", "namespace": "policies"},
        "binaryData": {"plugin.wasm": k8s_openapi::ByteString(packed.finish().unwrap())},
    });
    fs::write(folder.join("cost.json"), config_map.to_string()).unwrap();
    bound("{configMap: {name: cost, namespace: policies}}", "{maxPerHour: 5}");
    assert!(ended(2, &folder, &["render", "-f", "."], "").1.contains(says));
    bound("{configMap: {name: cost}}", "{maxPerHour: 10}");
    ended(0, &folder, &["render", "-f", ".", "--host-namespace", "policies"], "");
    let said = refused(&folder, &["render", "-f", "."]);
    assert!(
        said.contains("policies/cost.yaml:1: the PolicyPlugin cost can't be loaded: there is no ConfigMap pointsman-system/cost"),
        "{said}"
    );
    bound("{file: {path: other.wasm}}", "{}");
    assert!(refused(&folder, &["render", "-f", "."]).contains("other.wasm doesn't exist"));
    bound("{file: {path: cost.wasm}}", "{maxPerHour: free}");
    assert!(refused(&folder, &["render", "-f", "."]).contains("config.maxPerHour must be"));
}

#[test]
fn nodes_in_a_file_show_which_pods_get_them() {
    let folder = folder("render-cli/nodes");
    fs::write(folder.join("chat.yaml"), CHAT).unwrap();
    let node = |name: &str| {
        let labels = json!({"models.ome.io/clusterbasemodel.llama": "Ready"});
        let allocatable = json!({"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}})
    };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [node("a"), node("b")]});
    fs::write(folder.join("nodes"), list.to_string()).unwrap();
    let words = ["render", "-f", "chat.yaml", "-f", "context.yaml", "--nodes", "nodes", "--placement-config", "placement"];
    let render = |settings: &str| {
        fs::write(folder.join("placement"), settings).unwrap();
        ended(0, &folder, &words, "")
    };
    let (printed, said) = render("{}");
    assert_eq!(said, "pod default/chat-engine-0: on the node a\n");
    assert_eq!(printed, ended(0, &folder, &["render", "-f", "chat.yaml", "-f", "context.yaml"], "").0);
    assert_eq!(render("ties: Scheduler\n").1, "pod default/chat-engine-0: on one of the nodes a, b (the scheduler decides)\n");
    assert_eq!(render("features: [{name: node.heat, expression: '1.0'}]\n").1, said);
    let unusable = "features: [{name: node.heat, expression: '1 +'}]\n";
    for (settings, says) in [("racks: a\n", "--placement-config placement: "), (unusable, "features[node.heat].expression")] {
        fs::write(folder.join("placement"), settings).unwrap();
        assert!(refused(&folder, &words).contains(says), "{settings}");
    }
    let (_, said) = ended(64, &folder, &["render", "-f", "chat.yaml", "--placement-config", "placement"], "");
    assert!(said.contains("--nodes"), "{said}");
    fs::write(folder.join("nodes"), CHAT).unwrap();
    assert!(refused(&folder, &words).contains("--nodes takes Nodes, Pods, Namespaces and the ConfigMaps of model agents"));
}

#[test]
fn explain_is_for_people_and_for_programs() {
    let folder = folder("render-cli/explain");
    fs::write(folder.join("chat.yaml"), format!("{CHAT}---\n{}", CHAT.replace("chat", "other"))).unwrap();
    let (table, _) = ended(0, &folder, &["explain", "-f", ".", "--for", "default/chat", "--all"], "");
    for part in [
        "InferenceService default/chat\n",
        "runtime-selection (by runtime-selection sha256:",
        "ClusterServingRuntime vllm   score 10   selected",
        "pod-templating: Deployment chat-engine, engine (by",
        "/spec/containers/0/image = \"vllm:1\"",
        "metadata-propagation: Service chat, object (by",
        "RuntimeSelected   True",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let (lines, _) = ended(0, &folder, &["explain", "-f", ".", "-o", "json"], "");
    let told: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 2);
    assert_eq!(told[0]["subject"], json!({"kind": "InferenceService", "namespace": "default", "name": "chat"}));
    let selection = &told[0]["decisions"][0];
    assert_eq!(selection["point"], "runtime-selection");
    assert_eq!(selection["selected"], json!({"kind": "ClusterServingRuntime", "namespace": "", "name": "vllm"}));
    assert_eq!(selection["ranked"], json!([{"kind": "ClusterServingRuntime", "namespace": "", "name": "vllm", "score": 10}]));
    assert!(selection["plugins"][0]["digest"].as_str().unwrap().starts_with("sha256:"));
    let conditions = [0, 1].map(|place| &told[0]["conditions"][place]["type"]);
    assert_eq!(conditions, ["Valid", "Accepted"]);
}
