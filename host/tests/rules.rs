//! Rules, evaluated as by the controller: by the evaluator in its sandbox.
#![allow(clippy::needless_pass_by_value)]

use crate::policies::{compilers, engines};
use pointsman::load::Loader;
use pointsman_core::rules::{
    Rules,
    judge::{Finding, Judgement, RuleInput},
    rule::{Rule, RuleError, bind},
    shipped,
};
use pointsman_crds::policy::rule::{Operation, RuleFailurePolicy, RuleStage, ValidationRule, ValidationRuleSpec};
use pointsman_sandbox::{
    engine::Lane,
    point::{Entry, Subject},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

static LOADER: LazyLock<Loader> = LazyLock::new(|| Loader::new(Arc::clone(engines()), compilers()));

fn spec(spec: Value) -> ValidationRuleSpec {
    serde_json::from_value(spec).unwrap()
}

fn load(name: &str, rule: Value, params: Option<&[(&str, &str)]>) -> Result<Rule, RuleError> {
    let params =
        params.map(|params| params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>());
    LOADER.rule(bind(name, &spec(rule), params))
}

fn rules(all: Vec<Rule>) -> Rules {
    Rules::new(all.into_iter().map(Arc::new).collect(), Some(LOADER.evaluator().unwrap()))
}

fn service(spec: Value) -> Value {
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "team", "labels": {"tier": "gold"}}, "spec": spec,
    })
}

/// The judgement of the rules about an object, with other roots.
fn judged(rules: &Rules, stage: RuleStage, operation: Option<Operation>, roots: &[(&str, Value)]) -> Judgement {
    let object = &roots.iter().find(|(root, _)| *root == "object").unwrap().1;
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let about = Subject {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: object["kind"].as_str().unwrap().to_owned(),
        namespace: text("namespace"),
        name: text("name"),
        labels: labels.map(|(key, value)| Entry { key: key.clone(), value: value.as_str().unwrap().to_owned() }).collect(),
        ..Subject::default()
    };
    let mut root = |name: &str| Some(roots.iter().find(|(root, _)| *root == name)?.1.to_string().into());
    rules.judge(RuleInput { stage, about: &about, operation, root: &mut root, around: None, lane: Lane::Work })
}

fn input(rules: &Rules, object: Value) -> Judgement {
    judged(rules, RuleStage::Input, None, &[("object", object)])
}

fn messages(judgement: &Judgement) -> Vec<&str> {
    judgement.findings.iter().map(|finding| finding.message.as_str()).collect()
}

#[test]
fn every_rule_that_the_host_brings_can_be_read_compiled_and_written_as_an_object() {
    assert!(shipped::all().len() >= 25);
    for rule in shipped::all() {
        let name = rule.metadata.name.clone().unwrap();
        LOADER.rule(bind(&name, &rule.spec, None)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let again: ValidationRule = serde_json::from_value(serde_json::to_value(&**rule).unwrap()).unwrap();
        assert!(!rule.differs(Some(&again)), "{name} isn't as it was brought, although nobody has changed it");
    }
}

#[test]
fn a_rule_that_somebody_has_changed_stays_and_one_of_another_host_does_not() {
    let brought = &shipped::all()[0];
    let mut changed = ValidationRule::clone(brought);
    changed.spec.failure_policy = RuleFailurePolicy::Ignore;
    assert!(!brought.differs(Some(&changed)));
    // With its own digest, as if another host had shipped it.
    let digest = pointsman_sandbox::digest::Digest::of_value(&changed.spec).unwrap().to_string();
    changed.metadata.annotations.as_mut().unwrap().insert("policy.pointsman.dev/brought".to_owned(), digest);
    assert!(brought.differs(Some(&changed)));
    // If a user has only enabled or disabled it, the newer rule replaces it and keeps that setting.
    changed.spec.enabled = !changed.spec.enabled;
    assert!(brought.differs(Some(&changed)));
    let newer = brought.instead_of(&changed);
    assert_eq!((newer.spec.enabled, &newer.spec.failure_policy), (changed.spec.enabled, &brought.spec.failure_policy));
    assert!(!brought.differs(Some(&newer)));
    assert!(brought.differs(None));
}

#[test]
fn every_validation_that_is_false_is_told_with_its_message() {
    let rule = load(
        "replicas",
        json!({
            "match": {"kinds": [{"group": "ome.io", "kind": "InferenceService"}]},
            "variables": [{"name": "most", "expression": "5"}],
            "validations": [
                {"expression": "object.spec.engine.minReplicas <= variables.most", "messageExpression": "'at most ' + string(variables.most)"},
                {"expression": "object.metadata.labels['tier'] == 'gold'", "message": "only gold is served"},
                {"expression": "has(object.spec.model)"},
            ],
        }),
        None,
    );
    let rules = rules(vec![rule.unwrap()]);
    let said = input(&rules, service(json!({"engine": {"minReplicas": 6}})));
    assert_eq!(messages(&said), ["at most 5", "failed expression: has(object.spec.model)"]);
    assert!(!said.admits());
    assert!(input(&rules, service(json!({"engine": {"minReplicas": 5}, "model": {"name": "m"}}))).admits());
}

#[test]
fn what_can_not_be_evaluated_counts_as_the_failure_policy_says() {
    let of = |policy: &str| {
        load(policy, json!({"failurePolicy": policy, "validations": [{"expression": "object.spec.engine.minReplicas > 0"}]}), None).unwrap()
    };
    let said = input(&rules(vec![of("Fail")]), service(json!({})));
    assert_eq!((said.admits(), said.findings[0].failed), (false, true));
    assert!(said.findings[0].message.contains("no such key: engine"), "{}", said.findings[0].message);
    let said = input(&rules(vec![of("Ignore")]), service(json!({})));
    assert!(said.admits() && said.findings.is_empty());
    assert_eq!(said.ignored.len(), 1);
}

#[test]
fn a_warning_denies_nothing_and_a_rule_that_is_off_or_about_others_says_nothing() {
    let never = json!([{"expression": "false", "message": "no"}]);
    let rule = |name: &str, more: Value| {
        let mut rule = json!({"validations": never});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        load(name, rule, None).unwrap()
    };
    let said = input(&rules(vec![rule("w", json!({"actions": ["Warn"]}))]), service(json!({})));
    assert!(said.admits());
    assert_eq!(said.sentences(Finding::warns), ["w: no"]);
    for more in [
        json!({"enabled": false}),
        json!({"match": {"kinds": [{"group": "serving.kserve.io", "kind": "*"}]}}),
        json!({"match": {"objectSelector": {"matchLabels": {"tier": "silver"}}}}),
        json!({"match": {"operations": ["DELETE"]}}),
        json!({"matchConditions": [{"name": "other", "expression": "object.metadata.name != 'chat'"}]}),
        json!({"stage": "Output"}),
    ] {
        let said = input(&rules(vec![rule("n", more.clone())]), service(json!({})));
        assert!(said.findings.is_empty(), "{more}");
    }
}

#[test]
fn a_typo_is_an_error_when_the_rule_is_applied_with_the_nearest_name() {
    let wrong = |expression: &str| {
        let rule = json!({
            "match": {"kinds": [{"group": "ome.io", "kind": "InferenceService"}]}, "validations": [{"expression": expression}],
        });
        load("r", rule, None).unwrap_err().to_string()
    };
    let said = wrong("object.spec.engine.minReplica > 0");
    assert!(said.starts_with("spec.validations[0].expression: column ") && said.contains("minReplicas"), "{said}");
    assert!(wrong("has(object.spec.engin)").contains("engine"));
    assert!(wrong("object.spec.engine.containers.all(c, c.imag != '')").contains("image"));
    assert!(wrong("objekt.spec == 1").contains("object"), "{}", wrong("objekt.spec == 1"));
    assert!(wrong("object.spec.").contains("column"));
    assert!(wrong("authorizer.group('').resource('pods').check('get').allowed()").contains("authorizer"));
    assert!(wrong("params.data.x == ''").contains("params"));
}

#[test]
fn parameters_come_from_the_config_map_and_where_there_is_none_the_rule_says_what_that_means() {
    let rule = |not_found: &str, params: Option<&[(&str, &str)]>| {
        let rule = json!({
            "params": {"configMap": {"name": "limits"}, "notFound": not_found},
            "validations": [{"expression": "object.spec.engine.minReplicas <= int(params.data.most)"}],
        });
        rules(vec![load("r", rule, params).unwrap()])
    };
    let object = || service(json!({"engine": {"minReplicas": 3}}));
    assert!(input(&rule("Deny", Some(&[("most", "3")])), object()).admits());
    assert!(!input(&rule("Deny", Some(&[("most", "2")])), object()).admits());
    assert!(input(&rule("Allow", None), object()).admits());
    let said = input(&rule("Deny", None), object());
    assert!(!said.admits() && said.findings[0].message.contains("limits"), "{said:?}");
}

#[test]
fn what_only_admission_knows_is_evaluated_there_alone() {
    let rule =
        json!({"match": {"operations": ["UPDATE"]}, "validations": [{"expression": "object.metadata.name == oldObject.metadata.name"}]});
    let rules = rules(vec![load("r", rule, None).unwrap()]);
    let said = input(&rules, service(json!({})));
    assert!(said.admits());
    assert_eq!(said.not_evaluated, ["r"]);
    let mut old = service(json!({}));
    old["metadata"]["name"] = "other".into();
    let roots = [("object", service(json!({}))), ("oldObject", old)];
    assert!(!judged(&rules, RuleStage::Input, Some(Operation::Update), &roots).admits());
}

/// Each expression would hang or terminate the host if the host itself evaluated it.
#[test]
fn a_hostile_expression_ends_within_its_limits_and_others_go_on() {
    let list = format!("[{}]", vec!["1"; 200].join(","));
    let cases = [
        (
            "a string that doubles",
            format!(
                "{}.size() > 0",
                "'aaaaaaaaaaaaaaaa'.replace('a', 'aaaaaaaaaaaaaaaa')".to_owned() + &".replace('a', 'aaaaaaaaaaaaaaaa')".repeat(7)
            ),
        ),
        (
            "a list that doubles",
            format!(
                "[{list}].map(x, x + x + x + x).map(x, x + x + x + x).map(x, x + x + x + x).map(x, x + x + x + x).map(x, x + x + x + x).size() > 99999"
            ),
        ),
        ("a cubic comprehension", format!("{list}.all(a, {list}.all(b, {list}.all(c, {list}.all(d, a + b + c + d > 0))))")),
        ("a chain of additions", format!("{} > 0", vec!["1"; 2500].join("+"))),
        ("deep nesting", format!("{}1{} > 0", "(".repeat(1000), ")".repeat(1000))),
        ("a long literal", format!("'{}'.size() > 0", "x".repeat(16_000))),
        ("a range without end", "lists.range(2000000000).size() > 0".to_owned()),
        ("a number with all its digits", "'%.2000000000f'.format([1.0]).size() > 0".to_owned()),
        ("a width", "'%2000000000d'.format([1]).size() > 0".to_owned()),
    ];
    let good = || load("good", json!({"validations": [{"expression": "object.metadata.name == 'chat'"}]}), None).unwrap();
    for (name, expression) in cases {
        // Most are rejected when they are loaded, the others fail when they are evaluated; either takes little time.
        let started = std::time::Instant::now();
        match load("bad", json!({"validations": [{"expression": expression}]}), None) {
            Err(RuleError::Expressions(_) | RuleError::Spec(_)) => println!("{name}: refused after {:?}", started.elapsed()),
            Err(error) => panic!("{name}: {error}"),
            Ok(bad) => {
                let said = input(&rules(vec![bad, good()]), service(json!({})));
                println!("{name}: {} after {:?}", messages(&said).first().unwrap_or(&"holds"), started.elapsed());
                // The failing rule doesn't affect the others.
                assert!(said.findings.iter().all(|finding| finding.rule == "bad"), "{name}: {said:?}");
            }
        }
        assert!(input(&rules(vec![good()]), service(json!({}))).admits());
    }
}

#[test]
fn two_objects_leave_nothing_for_each_other() {
    let rules = rules(vec![load("r", json!({"validations": [{"expression": "object.metadata.name == 'chat'"}]}), None).unwrap()]);
    for (name, admits) in [("chat", true), ("other", false), ("chat", true)] {
        let mut object = service(json!({}));
        object["metadata"]["name"] = name.into();
        assert_eq!(input(&rules, object).admits(), admits, "{name}");
    }
}
