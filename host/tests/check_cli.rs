//! `pointsman check` and `pointsman rule test`, run as users and pipelines run them.

use crate::program::{CHAT, ended, folder};
use serde_json::{Value, json};
use std::fs;

/// A rule with one validation.
fn rule(name: &str, more: &str, expression: &str) -> String {
    let head = format!("apiVersion: policy.pointsman.dev/v1alpha1\nkind: ValidationRule\nmetadata: {{name: {name}}}\nspec:\n");
    format!("{head}{more}  validations:\n  - expression: {expression:?}\n    message: not like this\n")
}

#[test]
fn objects_with_which_nothing_is_wrong_pass() {
    let folder = folder("check-cli/good");
    fs::write(folder.join("chat.yaml"), CHAT).unwrap();
    let (printed, said) = ended(0, &folder, &["check", "-f", "."], "");
    assert_eq!((printed.as_str(), said.as_str()), ("3 objects: 0 errors, 0 warnings, 0 audit findings\n", ""));
    let (of_stdin, _) = ended(0, &folder, &["check", "-f", "-", "-f", "context.yaml"], CHAT);
    assert_eq!(of_stdin, printed);
    let (empty, _) = ended(0, &folder, &["check", "-f", "-"], "");
    assert_eq!(empty, "0 objects: 0 errors, 0 warnings, 0 audit findings\n");
    let (_, said) = ended(0, &folder, &["check", "-f", ".", "--for", "default/other"], "");
    assert_eq!(said, "note: the files contain no subject default/other (--for)\n");
    let (_, said) = ended(0, &folder, &["check", "-f", ".", "--for", "default/chat"], "");
    assert_eq!(said, "");
    let (alone, _) = ended(0, &folder, &["check", "-f", "chat.yaml"], "");
    assert!(
        alone.starts_with("no plan: InferenceService default/chat: ModelReady ModelNotFound: ") && alone.ends_with("0 audit findings\n"),
        "{alone}"
    );
}

#[test]
fn what_keeps_a_planned_service_from_being_ready_is_told_and_with_complete_files_a_warning() {
    let folder = folder("check-cli/not-ready");
    let service = "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nmetadata: {name: llama, namespace: chat}\nspec:\n  \
                   model: {uri: \"hf://example/llama\"}\n  router: {scheduler: {pool: {ref: {name: shared}}}}\n";
    fs::write(folder.join("llama.yaml"), service).unwrap();
    let (printed, _) = ended(0, &folder, &["check", "-f", "."], "");
    let lines: Vec<&str> = printed.lines().collect();
    assert!(
        lines[0]
            .starts_with("not ready: LLMInferenceService chat/llama: InferencePoolReady PoolNotFound: There is no InferencePool shared"),
        "{printed}"
    );
    assert_eq!(lines.len(), 2, "the conditions that follow from it say the same: {printed}");
    let (printed, _) = ended(1, &folder, &["check", "-f", "llama.yaml", "--complete", "--strict"], "");
    assert!(printed.starts_with("llama.yaml:1: warning: LLMInferenceService llama: InferencePoolReady PoolNotFound: "), "{printed}");
}

#[test]
fn an_unknown_version_is_an_error_a_kind_without_use_is_named_and_the_last_of_equal_objects_counts() {
    let folder = folder("check-cli/versions");
    let newer = "apiVersion: serving.kserve.io/v9\nkind: LLMInferenceService\nmetadata: {name: llama}\nspec: {}\n";
    let others = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n---\n\
                  apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: HTTPRoute\nmetadata: {name: r}\n---\n\
                  apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n";
    fs::write(folder.join("a.yaml"), format!("{newer}---\n{others}---\n{CHAT}---\n{CHAT}")).unwrap();
    let (printed, _) = ended(1, &folder, &["check", "-f", "."], "");
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("./a.yaml:1: unknown version serving.kserve.io/v9 of LLMInferenceService: pointsman"), "{printed}");
    assert!(lines[1].starts_with("./a.yaml:24: warning: InferenceService chat: the InferenceService default/chat replaces"), "{printed}");
    let skipped = "skipped, because the controller does nothing with them: 1 HTTPRoute (gateway.networking.k8s.io/v1alpha2: only v1 is read), \
                   1 Thing (example.com/v1)";
    assert_eq!(lines[2..], [skipped, "4 objects (3 of other kinds skipped): 1 error, 1 warning, 0 audit findings"]);
}

#[test]
fn all_that_is_wrong_is_told_at_once_by_file_and_line() {
    let folder = folder("check-cli/bad");
    let bad = "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: Bad}\nspec:\n  model: {}\n  engine:\n    minReplicas: many\n    maxReplica: 1\n";
    let swapped = format!("{CHAT}  engine:\n    minReplicas: 3\n    maxReplicas: 2\n");
    let job = "apiVersion: ome.io/v1beta1\nkind: BenchmarkJob\nmetadata: {name: job}\nspec: {}\n";
    fs::write(folder.join("a.yaml"), format!("{bad}---\n{swapped}")).unwrap();
    fs::write(folder.join("b.yaml"), format!("kind: InferenceService\n---\n{job}")).unwrap();
    let (printed, said) = ended(1, &folder, &["check", "-f", "a.yaml", "-f", "b.yaml", "-f", "context.yaml"], "");
    assert_eq!(said, "");
    for says in [
        "a.yaml:3: InferenceService Bad: metadata.name: Invalid value: \"Bad\": a lowercase RFC 1123 subdomain must consist of",
        "a.yaml:5: InferenceService Bad: spec.model.name: Required value\n",
        "a.yaml:7: InferenceService Bad: spec.engine.minReplicas: Invalid value: \"string\": spec.engine.minReplicas in body must be of type integer: \"string\"\n",
        "a.yaml:8: InferenceService Bad: spec.engine.maxReplica: an InferenceService has no such field; did you mean maxReplicas?\n",
        "InferenceService chat: spec.engine: Invalid value: minReplicas must not be greater than maxReplicas",
        "b.yaml:1: this is not a Kubernetes object: apiVersion is missing: set it, or remove the document\n",
        "BenchmarkJob job: spec.endpoint: Required value\n",
    ] {
        assert!(printed.contains(says), "{says}: {printed}");
    }
    let places: Vec<(&str, u64)> = printed
        .lines()
        .filter_map(|line| line.split_once(".yaml:"))
        .map(|(file, rest)| (file, rest.split_once(':').unwrap().0.parse().unwrap()))
        .collect();
    assert!(places.is_sorted() && places.len() > 6, "{printed}");
    assert!(
        printed.contains("\nnot evaluated: the rules on 3 objects with errors: fix the errors and run the command again\n5 objects"),
        "{printed}"
    );
    // The type reports nothing that the schema has already reported.
    assert_eq!(printed.matches("minReplicas in body").count(), 1, "{printed}");
    assert!(!printed.contains("invalid type"), "{printed}");
}

#[test]
fn exit_codes_tell_what_kind_of_trouble_it_is() {
    let folder = folder("check-cli/codes");
    fs::write(folder.join("chat.yaml"), format!("{CHAT}  unknown: 1\n")).unwrap();
    let files = ["check", "-f", "chat.yaml", "-f", "context.yaml"];
    let (printed, _) = ended(1, &folder, &files, "");
    assert!(
        printed.contains("chat.yaml:6: InferenceService chat: spec.unknown: an InferenceService has no such field; there are "),
        "{printed}"
    );
    assert!(printed.ends_with("1 error, 0 warnings, 0 audit findings\n"), "{printed}");
    fs::write(folder.join("warned.yaml"), CHAT).unwrap();
    fs::write(folder.join("rules.yaml"), rule("warned", "  actions: [Warn]\n", "object.metadata.name != 'chat'")).unwrap();
    let warned = ["check", "-f", "warned.yaml", "-f", "context.yaml", "-f", "rules.yaml"];
    let (printed, _) = ended(0, &folder, &warned, "");
    assert!(printed.contains("1 warning,"), "{printed}");
    ended(1, &folder, &[&warned[..], &["--strict"]].concat(), "");
    let (_, said) = ended(64, &folder, &["check"], "");
    assert!(said.starts_with("error: ") && said.contains("specify files with -f"), "{said}");
    fs::write(folder.join("broken.yaml"), "name: [").unwrap();
    let (printed, said) = ended(3, &folder, &[&files[..], &["-f", "nowhere.yaml", "-f", "broken.yaml"]].concat(), "");
    assert!(printed.contains("spec.unknown"), "{printed}");
    assert!(
        said.contains("error: reading nowhere.yaml: ") && said.contains("error: broken.yaml:1: ") && said.lines().count() == 2,
        "{said}"
    );
}

#[test]
fn a_rule_that_cannot_be_used_is_told_where_its_expression_stands() {
    let folder = folder("check-cli/rules");
    let two = rule("typo", "", "object.metdata.name == ''");
    fs::write(folder.join("rule.yaml"), format!("{two}---\n{}", rule("half", "", "object."))).unwrap();
    let (printed, _) = ended(1, &folder, &["check", "-f", "rule.yaml"], "");
    assert!(printed.contains("rule.yaml:6: ValidationRule typo: spec.validations[0].expression: column "), "{printed}");
    assert!(
        printed.contains("did you mean metadata?") && printed.contains("ValidationRule half: spec.validations[0].expression: "),
        "{printed}"
    );
    assert!(!printed.contains("rule.yaml:1:"), "{printed}");
}

#[test]
fn an_image_that_no_kubelet_can_read_is_an_error_with_its_remedy() {
    let folder = folder("check-cli/images");
    let engine = "  engine:\n    runner: {name: ome-container, image: \"repo/Name:tag\"}\n    initContainers:\n    - {name: a, image: \"a:1\"}\n    - name: b\n      image: a b\n";
    fs::write(folder.join("chat.yaml"), format!("{CHAT}{engine}")).unwrap();
    let (printed, _) = ended(1, &folder, &["check", "-f", "."], "");
    let wrong = [
        "chat.yaml:7: InferenceService chat: spec.engine.runner.image: the image \"repo/Name:tag\" is not a reference: its repository must be lower \
         case: write repo/name\n",
        "chat.yaml:11: InferenceService chat: spec.engine.initContainers[1].image: the image \"a b\" contains spaces: remove them\n",
    ];
    for says in wrong {
        assert!(printed.contains(says), "{says}: {printed}");
    }
    assert!(printed.ends_with("3 objects: 2 errors, 0 warnings, 0 audit findings\n"), "what else is checked is fine: {printed}");
}

#[test]
fn rules_are_asked_as_at_the_other_doors() {
    let folder = folder("check-cli/input");
    fs::write(folder.join("chat.yaml"), CHAT).unwrap();
    let rules = [
        rule("named", "", "object.metadata.name != 'chat'"),
        rule("warned", "  actions: [Warn]\n", "object.metadata.name != 'chat'"),
        rule("audited", "  actions: [Audit]\n", "object.metadata.name != 'chat'"),
        rule("changed", "", "object.spec == oldObject.spec"),
    ];
    fs::write(folder.join("rules.yaml"), rules.join("---\n")).unwrap();
    let (printed, _) = ended(1, &folder, &["check", "-f", "."], "");
    for says in [
        "chat.yaml:1: InferenceService chat: named: not like this\n",
        "chat.yaml:1: warning: InferenceService chat: warned: not like this\n",
        "chat.yaml:1: audit: InferenceService chat: audited: not like this\n",
        "not evaluated: the rule changed: it reads oldObject or request, which only admission has\n",
    ] {
        assert!(printed.contains(says), "{says}: {printed}");
    }
    assert_eq!(printed.matches("the rule changed").count(), 1, "{printed}");

    fs::write(folder.join("rules.yaml"), rule("images", "  stage: Output\n", "object.kind != 'Deployment'")).unwrap();
    let (printed, _) = ended(1, &folder, &["check", "-f", "."], "");
    assert!(
        printed.contains("chat.yaml:1: InferenceService chat: ") && printed.contains("images: Deployment chat-engine: not like this"),
        "{printed}"
    );
}

#[test]
fn what_rules_look_up_is_in_the_files_only_where_that_is_said() {
    let folder = folder("check-cli/lookups");
    let service = |name: &str, more: &str| {
        format!(
            "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nmetadata: {{name: {name}{more}}}\nspec:\n  model: {{uri: hf://a/b}}\n  replicas: 6\n"
        )
    };
    let created = |name: &str, second: u32| service(name, &format!(", creationTimestamp: '2026-01-01T00:00:0{second}Z'"));
    let quota = "  match: {kinds: [{group: serving.kserve.io, kind: LLMInferenceService}]}\n  lookups: [{name: used, subjects: {sum: object.spec.replicas}}]\n";
    fs::write(folder.join("rule.yaml"), rule("quota", quota, "lookups.used + object.spec.replicas <= 10")).unwrap();
    fs::write(folder.join("services.yaml"), [service("a", ""), created("c", 2), created("d", 1)].join("---\n")).unwrap();
    let files = ["check", "-f", "services.yaml", "-f", "rule.yaml"];
    let (printed, _) = ended(0, &folder, &files, "");
    assert_eq!(printed.matches("not evaluated: ").count(), 1, "{printed}");
    assert!(printed.contains("not evaluated: the rule quota: it looks up objects that may be in the cluster"), "{printed}");
    // Only the oldest service fits into the quota.
    let (printed, _) = ended(1, &folder, &[&files[..], &["--complete"]].concat(), "");
    let broken: Vec<&str> = printed.lines().filter(|line| line.contains("quota: not like this")).collect();
    let wanted =
        ["services.yaml:1: LLMInferenceService a: quota: not like this", "services.yaml:8: LLMInferenceService c: quota: not like this"];
    assert_eq!(broken, wanted, "{printed}");
    assert!(!printed.contains("not evaluated"), "{printed}");
}

#[test]
fn json_is_for_programs() {
    let folder = folder("check-cli/json");
    fs::write(folder.join("chat.yaml"), format!("{CHAT}  engine: {{minReplicas: x}}\n")).unwrap();
    let (printed, _) = ended(1, &folder, &["check", "-f", "chat.yaml", "-n", "team", "-o", "json"], "");
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&report["objects"], &report["errors"], &report["warnings"]), (&json!(1), &json!(1), &json!(0)));
    assert_eq!(report["unevaluatedObjects"], 1, "{report:#}");
    let finding = &report["findings"][0];
    assert_eq!(finding["message"], "Invalid value: \"string\": spec.engine.minReplicas in body must be of type integer: \"string\"");
    let place = ["severity", "file", "line", "kind", "namespace", "name", "field"].map(|field| finding[field].clone());
    let wanted = [
        json!("error"),
        json!("chat.yaml"),
        json!(6),
        json!("InferenceService"),
        json!("team"),
        json!("chat"),
        json!("spec.engine.minReplicas"),
    ];
    assert_eq!(place, wanted);
}

#[test]
fn golden_cases_of_rules_pass_or_tell_what_came() {
    let folder = folder("check-cli/cases");
    fs::write(folder.join("rules.yaml"), rule("named", "", "object.metadata.name != 'chat'")).unwrap();
    let case = |name: &str, of: &str, expect: &str| {
        format!(
            "- name: {name}\n  rule: named\n  object: {{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: {of}}}}}\n  expect: {expect}\n"
        )
    };
    fs::write(folder.join("cases.yaml"), [case("chat is refused", "chat", "Deny"), case("others are not", "a", "Pass")].concat()).unwrap();
    let words = ["rule", "test", "-f", "rules.yaml", "cases.yaml"];
    let (printed, _) = ended(0, &folder, &words, "");
    assert_eq!(printed, "ok      chat is refused\nok      others are not\n2 passed, 0 failed\n");
    fs::write(folder.join("cases.yaml"), case("chat is refused", "chat", "Pass")).unwrap();
    let (printed, _) = ended(1, &folder, &words, "");
    assert!(printed.contains("FAILED  chat is refused (cases.yaml:1)\n        expected Pass, got Deny: not like this\n"), "{printed}");

    let brought = "name: a\nrule: guard-privileged\nobject: {kind: Deployment, apiVersion: apps/v1, metadata: {name: a}}\nexpect: Pass\n";
    fs::write(folder.join("cases.yaml"), brought).unwrap();
    ended(0, &folder, &["rule", "test", "cases.yaml"], "");
    fs::write(folder.join("cases.yaml"), brought.replace("guard-privileged", "nobody")).unwrap();
    let (_, said) = ended(1, &folder, &["rule", "test", "cases.yaml"], "");
    assert!(said.starts_with("error: cases.yaml:1: ") && said.contains("there is no rule nobody"), "{said}");
}

#[test]
fn rules_are_asked_about_neither_rules_nor_services_that_are_left_alone() {
    let folder = folder("check-cli/alone");
    let alone = CHAT.replace("{name: chat}", "{name: chat, annotations: {pointsman.dev/control: \"false\"}}");
    fs::write(folder.join("chat.yaml"), alone).unwrap();
    let never = rule("never", "", "object.metadata.name == 'llama' || object.metadata.name == 'vllm'");
    fs::write(folder.join("rules.yaml"), [never, rule("images", "  stage: Output\n", "false")].join("---\n")).unwrap();
    let (printed, _) = ended(0, &folder, &["check", "-f", "."], "");
    assert!(printed.starts_with("no plan: InferenceService default/chat: The service is not managed"), "{printed}");
}

#[test]
fn an_object_may_have_the_beginning_of_a_name_and_a_typo_in_its_metadata_is_told() {
    let folder = folder("check-cli/generated");
    let generated = CHAT.replace("{name: chat}", "{generateName: chat-, lables: {a: b}}");
    fs::write(folder.join("chat.yaml"), format!("{generated}---\n{generated}")).unwrap();
    fs::write(folder.join("rules.yaml"), rule("named", "", "!object.metadata.name.startsWith('chat-')")).unwrap();
    let (printed, _) = ended(1, &folder, &["check", "-f", "."], "");
    for says in [
        "chat.yaml:3: InferenceService chat-*: metadata.lables: an InferenceService has no such field; did you mean labels?\n",
        // `check` reports the object's other errors too.
        "chat.yaml:1: InferenceService chat-*: named: not like this\n",
    ] {
        assert!(printed.contains(says), "{says}: {printed}");
    }
    assert_eq!(printed.matches("named: not like this").count(), 2, "{printed}");
    fs::remove_file(folder.join("rules.yaml")).unwrap();
    let (printed, _) = ended(1, &folder, &["check", "-f", "."], "");
    assert!(printed.ends_with("4 objects: 2 errors, 0 warnings, 0 audit findings\n"), "{printed}");
}

#[test]
fn a_namespace_is_selected_by_its_name_and_an_object_of_the_cluster_has_none() {
    let folder = folder("check-cli/namespaces");
    fs::write(folder.join("chat.yaml"), CHAT).unwrap();
    let selection = "  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}\n";
    let rules = [rule("placed", selection, "false"), rule("somewhere", "", "namespaceObject != null")];
    fs::write(folder.join("rules.yaml"), rules.join("---\n")).unwrap();
    let (printed, _) = ended(1, &folder, &["check", "-f", "."], "");
    for says in [
        "InferenceService chat: placed: not like this\n",
        "ClusterBaseModel llama: somewhere: not like this\n",
        "ClusterServingRuntime vllm: somewhere: not like this\n",
    ] {
        assert!(printed.contains(says), "{says}: {printed}");
    }
    assert!(printed.ends_with("3 errors, 0 warnings, 0 audit findings\n"), "{printed}");
}

#[test]
fn a_null_counts_for_nothing() {
    let folder = folder("check-cli/nulls");
    fs::write(folder.join("chat.yaml"), format!("{CHAT}  engine:\n    minReplicas: null\n")).unwrap();
    fs::write(folder.join("rules.yaml"), rule("unset", "", "!has(object.spec.engine) || !has(object.spec.engine.minReplicas)")).unwrap();
    let (printed, _) = ended(0, &folder, &["check", "-f", "."], "");
    assert!(printed.ends_with("4 objects: 0 errors, 0 warnings, 0 audit findings\n"), "{printed}");
}
