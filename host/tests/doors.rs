//! The results of rules at each entry point: the admission webhook, `pointsman check`, and the controller's plan. The corpus of
//! `tests/fixtures/doors` specifies them, and the end-to-end tests compare it with a real API server.

use crate::{
    policies::{compilers, engines, module},
    program::{empty_folder, ended, pointsman, printed_json},
};
use clap::Parser;
use pointsman::{
    cli::offline::{Offline, OfflineArgs, Planned},
    load::Loader,
    serve::admission::review::{Request, ReviewContext, validate},
};
use pointsman_core::{
    claims::Claims,
    guards::VALID,
    plan::Plan,
    rules::{Rules, rule::bind},
    settings::HOST_NAMESPACE,
    world::{Labels, Surroundings},
};
use pointsman_crds::policy::rule::{RuleParams, ValidationRuleSpec};
use pointsman_samples::doors::{self, RULES, RULES_OF_ADMISSION, Row, Said, Word};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::Arc,
};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    offline: OfflineArgs,
}

/// Objects of the corpus, with the results of two entry points.
struct Folder {
    rows: Vec<Row>,
    report: Value,
    planned: Vec<Planned>,
}

impl Folder {
    fn read(name: &str, loader: &Loader) -> Self {
        let files = ["rules.yaml", "context.yaml", name].map(|file| doors::folder().join(file));
        let words = ["doors".as_ref()].into_iter().chain(files.iter().flat_map(|file| ["-f".as_ref(), file.as_os_str()]));
        let args = Args::try_parse_from(words).unwrap();
        let planned = Offline::read(&args.offline, loader).unwrap().plans();
        Self { rows: doors::rows(name), report: check(&files), planned }
    }

    fn planned(&self, row: &Row) -> Option<&Planned> {
        self.planned.iter().find(|planned| {
            let key = &planned.subject.key;
            (key.resource.kind, key.namespace.as_str(), key.name.as_str()) == (row.kind(), row.namespace(), row.name())
        })
    }

    /// An object as the API server would send it, with defaults and without unknown fields.
    fn kept(&self, row: &Row) -> Value {
        let mut kept = row.object.clone();
        if let Some(planned) = self.planned(row) {
            kept["spec"] = planned.subject.content()["spec"].clone();
        }
        kept
    }

    /// Asserts that the results of `check` and of the plan for a row are those in the corpus.
    fn agrees(&self, row: &Row) {
        assert_eq!(by_check(row, &self.report), row.by_check(), "check, of {}", row.called());
        let planned = self.planned(row);
        assert_eq!(planned.is_some(), row.is_service(), "{}", row.called());
        if let Some(planned) = planned {
            assert_eq!(by_plan(&planned.plan), Some(row.by_condition()), "the plan, of {}", row.called());
        }
    }

    /// The rules that `check` hasn't evaluated, with the reasons.
    fn not_evaluated(&self) -> BTreeSet<(String, String)> {
        let rules = self.report["notEvaluated"].as_array().unwrap().iter().filter_map(|passed| {
            let rule = text(passed, "/what").strip_prefix("the rule ").filter(|rule| rule.starts_with(RULES))?;
            Some((rule.to_owned(), text(passed, "/why").to_owned()))
        });
        rules.collect()
    }
}

fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The data of a rule's ConfigMap.
fn params(wanted: Option<&RuleParams>) -> Option<BTreeMap<String, String>> {
    let map = &wanted?.config_map;
    let place = (map.namespace.as_deref().unwrap_or(HOST_NAMESPACE), map.name.as_str());
    let is_it =
        |object: &&Value| object["kind"] == "ConfigMap" && (text(object, "/metadata/namespace"), text(object, "/metadata/name")) == place;
    doors::context().iter().find(is_it).map(|map| BTreeMap::deserialize(&map["data"]).unwrap())
}

/// The rules of the corpus, as members of a policy set.
fn rules(loader: &Loader) -> Rules {
    let rules = doors::rules().into_iter().map(|rule| {
        let spec = ValidationRuleSpec::deserialize(&rule["spec"]).unwrap();
        let bound = bind(text(&rule, "/metadata/name"), &spec, params(spec.params.as_ref()));
        Arc::new(loader.rule(bound).unwrap())
    });
    Rules::new(rules.collect(), Some(loader.evaluator().unwrap()))
}

fn labels(namespace: &str) -> Labels {
    let context = doors::context();
    let found = context.iter().find(|object| object["kind"] == "Namespace" && object["metadata"]["name"] == namespace);
    let written = found.map(|found| &found["metadata"]["labels"]).filter(|labels| labels.is_object());
    let mut labels = written.map(|labels| Labels::deserialize(labels).unwrap()).unwrap_or_default();
    labels.extend(found.map(|_| ("kubernetes.io/metadata.name".to_owned(), namespace.to_owned())));
    labels
}

/// The webhook's response for an object that is created or changed.
fn by_webhook(row: &Row, object: &Value, before: Option<&Value>, rules: &Rules) -> Said {
    let (group, version) = row.api_version().split_once('/').unwrap();
    let operation = if before.is_some() { "UPDATE" } else { "CREATE" };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "one", "operation": operation, "kind": {"group": group, "version": version, "kind": row.kind()},
            "name": row.name(), "namespace": row.namespace(), "object": object, "oldObject": before,
        },
    });
    let request = Request::read(review.to_string().as_bytes()).unwrap();
    if request.is_let_through(&Claims::default()) {
        return Said::default();
    }
    let known = ReviewContext {
        rules,
        evaluator: None,
        namespace_labels: Arc::new(labels(row.namespace())),
        surroundings: Surroundings::default(),
        memo: None,
    };
    let verdict = validate(&request, &known);
    let denial = verdict.denial.as_ref().map(|denial| denial.message.as_str());
    Said { noted: verdict.audit.into_values().collect(), ..Said::of_admission(denial, &verdict.warnings) }
}

/// The findings of `pointsman check` about an object.
fn by_check(row: &Row, report: &Value) -> Said {
    let mut said = Said::default();
    for finding in findings(row, report) {
        let list = match text(finding, "/severity") {
            "error" => &mut said.denied,
            _ if !doors::is_ours(text(finding, "/message")) => continue,
            "warning" => &mut said.warned,
            _ => &mut said.noted,
        };
        list.push(text(finding, "/message").to_owned());
    }
    said
}

fn findings<'r>(row: &Row, report: &'r Value) -> impl Iterator<Item = &'r Value> {
    let place = [row.kind(), row.namespace(), row.name()].map(str::to_owned);
    let about = move |finding: &&Value| ["/kind", "/namespace", "/name"].map(|pointer| text(finding, pointer).to_owned()) == place;
    report["findings"].as_array().unwrap().iter().filter(about)
}

/// The condition `Valid` of a plan. Subjects that aren't managed have none.
fn by_plan(plan: &Plan) -> Option<Said> {
    if plan.not_ours.is_some() {
        return Some(Said::default());
    }
    let condition = plan.status.conditions.iter().find(|condition| condition.type_ == VALID).unwrap();
    Said::of_condition(condition.status, &condition.reason, &condition.message)
}

fn check(files: &[PathBuf]) -> Value {
    printed_json(1, pointsman(&["check", "-o", "json"]).args(files.iter().flat_map(|file| ["-f".as_ref(), file.as_os_str()])))
}

#[test]
fn the_doors_agree() {
    let loader = Loader::new(Arc::clone(engines()), compilers());
    let rules = rules(&loader);
    let made = Folder::read("objects", &loader);
    for kind in ["InferenceService", "LLMInferenceService"] {
        let verdicts =
            |denied: bool| made.rows.iter().filter(|row| row.kind() == kind && row.by_check().denied.is_empty() != denied).count();
        assert!(verdicts(true) >= 15 && verdicts(false) >= 15, "{kind}: {} and {}", verdicts(true), verdicts(false));
    }
    for row in &made.rows {
        assert_eq!(by_webhook(row, &made.kept(row), None, &rules), row.at_admission(), "the webhook, of {}", row.called());
        made.agrees(row);
    }
    let of_admission = || {
        let names = rules.all().iter().map(|rule| rule.name()).filter(|name| name.starts_with(RULES_OF_ADMISSION));
        names.map(|name| (name.to_owned(), "it reads oldObject or request, which only admission has".to_owned()))
    };
    let ignored = made.rows.iter().flat_map(|row| row.said(&[Word::Ignored]));
    let ignored = ignored.map(|sentence| sentence.split_once(": ").map(|(rule, why)| (rule.to_owned(), why.to_owned())).unwrap());
    assert_eq!(made.not_evaluated(), ignored.chain(of_admission()).collect::<BTreeSet<_>>());

    let changed = Folder::read("updates", &loader);
    for row in &changed.rows {
        let before = made.rows.iter().find(|before| before.is_of(row)).unwrap_or_else(|| panic!("there is no {} to change", row.called()));
        let said = by_webhook(row, &changed.kept(row), Some(&made.kept(before)), &rules);
        assert_eq!(said, row.at_admission(), "the webhook, of a change of {}", row.called());
        changed.agrees(row);
    }
    assert_eq!(changed.not_evaluated(), of_admission().collect::<BTreeSet<_>>());
}

#[test]
fn what_the_schema_refuses_is_told_with_its_field_and_no_rule_is_asked_about_it() {
    let files = ["rules.yaml", "refused"].map(|file| doors::folder().join(file));
    let report = check(&files);
    for row in doors::rows("refused") {
        let errors = findings(&row, &report).filter(|finding| finding["severity"] == "error");
        let errors: BTreeSet<String> =
            errors.map(|finding| format!("{}: {}", text(finding, "/field"), text(finding, "/message"))).collect();
        let wanted: BTreeSet<String> = row.said(&[Word::Refused]).into_iter().collect();
        assert!(!wanted.is_empty(), "{} is refused for nothing", row.called());
        assert_eq!(errors, wanted, "{}", row.called());
    }
}

/// Specs of rules with one mistake each, and the place that each entry point names.
fn mistaken_rules() -> Vec<(Value, &'static str)> {
    let validations = json!([{"expression": "true"}]);
    let matching = json!({"kinds": [{"group": "ome.io", "kind": "InferenceService"}]});
    let with = |field: &str, value: Value| {
        let mut spec = json!({"match": matching, "validations": validations});
        spec[field] = value;
        spec
    };
    let named = |name: &str, expression: &str| json!([{"name": "fine", "expression": "true"}, {"name": name, "expression": expression}]);
    vec![
        (with("variables", named("gpus", "object.spec.engin == null")), "spec.variables[gpus].expression: column "),
        (with("matchConditions", named("team.known", "object.metadata.lables")), "spec.matchConditions[team.known].expression: column "),
        (with("validations", json!([{"expression": "true"}, {"expression": "true &&"}])), "spec.validations[1].expression: "),
        (with("validations", json!([{"expression": "true", "messageExpression": "1 +"}])), "spec.validations[0].messageExpression: "),
        (with("validations", json!([{"expression": "true &&\n nothing"}])), "spec.validations[0].expression: line 2, column "),
        (with("lookups", json!([{"name": "used", "models": {"name": "object.spec.modell"}}])), "spec.lookups[used].models.name: column "),
        (with("lookups", json!([{"name": "sum", "subjects": {"sum": "lookups.sum"}}])), "spec.lookups[sum].subjects.sum: column "),
        (
            with("match", json!({"kinds": [{"group": "apps", "kind": "Deployment"}]})),
            "spec.match.kinds: stage Input doesn't cover Deployment",
        ),
        (
            with("match", json!({"kinds": [{"group": "ome.io", "kind": "InferenceServce"}]})),
            "spec.match.kinds: unknown kind InferenceServce of the group \"ome.io\"; did you mean InferenceService?",
        ),
        (
            with("match", json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}})),
            "spec.match.objectSelector: In of the label a needs values",
        ),
    ]
}

/// The webhook's message about a new rule.
fn refusal_at_admission(rule: &Value, loader: &Loader) -> String {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "one", "operation": "CREATE", "kind": {"group": "policy.pointsman.dev", "version": "v1alpha1", "kind": "ValidationRule"},
            "name": rule["metadata"]["name"], "object": rule,
        },
    });
    let request = Request::read(review.to_string().as_bytes()).unwrap();
    let (rules, evaluator) = (Rules::default(), loader.evaluator().unwrap());
    let known = ReviewContext {
        rules: &rules,
        evaluator: Some(&*evaluator),
        namespace_labels: Arc::default(),
        surroundings: Surroundings::default(),
        memo: None,
    };
    validate(&request, &known).denial.unwrap().message
}

/// The findings of `check`, each after its field, and their lines.
fn found_by_check(report: &Value) -> (String, Vec<u64>) {
    let findings = || report["findings"].as_array().unwrap().iter();
    let sentences: Vec<String> = findings().map(|finding| format!("{}: {}", text(finding, "/field"), text(finding, "/message"))).collect();
    (sentences.join("; "), findings().map(|finding| finding["line"].as_u64().unwrap()).collect())
}

#[test]
fn a_mistake_in_a_rule_is_named_by_the_same_place_in_the_same_words_at_each_entry_point() {
    let loader = Loader::new(Arc::clone(engines()), compilers());
    let folder = empty_folder("doors/mistaken");
    for (spec, place) in mistaken_rules() {
        let rule = json!({"apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "ValidationRule", "metadata": {"name": "mistaken"}, "spec": spec});
        // The controller writes this to the condition Compiled.
        let status = loader.rule(bind("mistaken", &ValidationRuleSpec::deserialize(&spec).unwrap(), None)).unwrap_err().to_string();
        assert!(status.starts_with(place), "{place}: {status}");
        assert_eq!(refusal_at_admission(&rule, &loader), status, "the webhook, of {place}");

        fs::write(folder.join("rule.yaml"), serde_saphyr::to_string(&rule).unwrap()).unwrap();
        let report = printed_json(1, pointsman(&["check", "-o", "json", "-f", "rule.yaml"]).current_dir(&folder));
        let (said, lines) = found_by_check(&report);
        assert_eq!(said, status, "check, of {place}");
        assert!(lines.iter().all(|line| *line > 4), "{place} is in the spec: {lines:?}");
        fs::write(folder.join("cases.yaml"), "- {name: a, rule: mistaken, object: {}, expect: Pass}\n").unwrap();
        for words in
            [&["rule", "test", "-f", "rule.yaml", "cases.yaml"][..], &["render", "-f", "rule.yaml"], &["explain", "-f", "rule.yaml"]]
        {
            let (_, said) = ended(1, &folder, words, "");
            assert!(said.trim_end().ends_with(&format!("the ValidationRule mistaken can't be used: {status}")), "{words:?}: {said}");
        }
    }
}

#[test]
fn so_is_one_in_the_conditions_of_a_plugin() {
    let folder = empty_folder("doors/conditions");
    fs::write(folder.join("labels.wasm"), module("pointsman-example-rust-labels")).unwrap();
    let plugin = json!({
        "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicyPlugin", "metadata": {"name": "labels"},
        "spec": {
            "order": 10, "source": {"file": {"path": "labels.wasm"}},
            "matchConditions": [{"name": "fine", "expression": "true"}, {"name": "team", "expression": "object.metadata.lables == {}"}],
        },
    });
    fs::write(folder.join("plugin.yaml"), serde_saphyr::to_string(&plugin).unwrap()).unwrap();
    let report = printed_json(1, pointsman(&["check", "-o", "json", "-f", "plugin.yaml"]).current_dir(&folder));
    let (said, lines) = found_by_check(&report);
    assert!(
        said.starts_with("spec.matchConditions[team].expression: column ")
            && said.ends_with("there are name, namespace, labels, annotations"),
        "{said}"
    );
    assert!(lines[0] > 8, "{lines:?}");
    let (_, refused) = ended(1, &folder, &["render", "-f", "plugin.yaml"], "");
    assert!(refused.trim_end().ends_with(&format!("the PolicyPlugin labels can't be loaded: {said}")), "{refused}");
}
