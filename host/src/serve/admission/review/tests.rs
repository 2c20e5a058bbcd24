#![allow(clippy::needless_pass_by_value, reason = "a test's values are made where they are passed")]

use super::*;
use pointsman_core::world::World;
use pointsman_crds::policy::rule::{RuleAction, RuleSelection};
use serde_json::json;

fn asked(operation: &str, kind: (&str, &str, &str), object: Value, old: Value) -> Value {
    let (group, version, kind) = kind;
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "one", "operation": operation, "kind": {"group": group, "version": version, "kind": kind},
            "name": "llama", "namespace": "chat", "userInfo": {"username": "ann"}, "dryRun": true, "object": object, "oldObject": old,
        },
    })
}

const SERVICE: (&str, &str, &str) = ("ome.io", "v1beta1", "InferenceService");

fn service(replicas: i64) -> Value {
    let engine = json!({"minReplicas": replicas});
    json!({
        "apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "llama", "namespace": "chat", "labels": {"tier": "gold"}}, "spec": {"engine": engine},
    })
}

fn read(review: &Value) -> Request {
    Request::read(review.to_string().as_bytes()).unwrap()
}

/// A rule that can't be compiled: it fails wherever it applies, and so shows where that is.
fn rules(selection: Option<Value>) -> Rules {
    let selection: Option<RuleSelection> = selection.map(|selection| serde_json::from_value(selection).unwrap());
    let spec = ValidationRuleSpec { selection, actions: vec![RuleAction::Deny], ..ValidationRuleSpec::default() };
    Rules::new(vec![Arc::new(Rule::absent(bind("sizes", &spec, None), "it is a test".to_owned()))], None)
}

fn answer(review: &Value, rules: &Rules) -> AdmissionVerdict {
    let labels = Labels::from([("team".to_owned(), "a".to_owned())]);
    validate(
        &read(review),
        &ReviewContext { rules, evaluator: None, namespace_labels: Arc::new(labels), surroundings: Surroundings::default(), memo: None },
    )
}

#[test]
fn a_rule_that_matches_is_asked_and_its_denial_is_told() {
    let denied = answer(&asked("CREATE", SERVICE, service(1), Value::Null), &rules(None));
    assert_eq!(denied.denial.unwrap().message, "sizes: it can't be evaluated: it is a test");
}

#[test]
fn a_selection_sees_the_object_s_and_the_namespace_s_labels_and_the_operation() {
    let created = asked("CREATE", SERVICE, service(1), Value::Null);
    let deleted = asked("DELETE", SERVICE, Value::Null, service(1));
    let cases = [
        (json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}), &created, false),
        (json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}), &created, true),
        (json!({"objectSelector": {"matchLabels": {"tier": "gold"}}}), &created, false),
        (json!({"kinds": [{"group": "ome.io", "kind": "BaseModel"}]}), &created, true),
        (json!({}), &deleted, true),
        (json!({"operations": ["DELETE"], "objectSelector": {"matchLabels": {"tier": "gold"}}}), &deleted, false),
    ];
    for (selection, review, allowed) in cases {
        assert_eq!(answer(review, &rules(Some(selection.clone()))).allowed(), allowed, "{selection}");
    }
}

#[test]
fn an_update_that_changes_nothing_that_rules_see_is_let_through() {
    let mut finalized = service(1);
    finalized["metadata"]["finalizers"] = json!(["example.com/keep"]);
    finalized["metadata"]["resourceVersion"] = json!("2");
    finalized["status"] = json!({"url": "http://llama"});
    assert!(answer(&asked("UPDATE", SERVICE, finalized, service(1)), &rules(None)).allowed());
    assert!(!answer(&asked("UPDATE", SERVICE, service(2), service(1)), &rules(None)).allowed());
}

#[test]
fn a_service_that_is_left_alone_and_what_is_being_deleted_are_let_through_both_doors() {
    let none = Claims::default();
    let claims = |claim: &str| Claims { kinds: vec![claim.parse().unwrap()], ..Claims::default() };
    let let_through = |review: &Value, claims: &Claims| read(review).is_let_through(claims);
    let created = asked("CREATE", SERVICE, service(1), Value::Null);
    assert!(!let_through(&created, &none));
    assert!(!let_through(&created, &claims("isvc:chat")));
    assert!(let_through(&created, &claims("isvc:other")));
    let mut alone = service(2);
    alone["metadata"]["annotations"] = json!({"pointsman.dev/control": "false"});
    assert!(let_through(&asked("CREATE", SERVICE, alone.clone(), Value::Null), &none));
    assert!(let_through(&asked("DELETE", SERVICE, Value::Null, alone.clone()), &none));
    // From now on, this controller serves it.
    assert!(!let_through(&asked("UPDATE", SERVICE, service(2), alone), &none));

    let mut going = service(1);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(let_through(&asked("UPDATE", SERVICE, service(2), going.clone()), &none));
    assert!(!let_through(&asked("UPDATE", SERVICE, going.clone(), service(1)), &none));
    assert!(!let_through(&asked("DELETE", SERVICE, Value::Null, going), &none));
}

#[test]
fn what_kubectl_notes_for_itself_is_no_change() {
    let mut applied = service(1);
    applied["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    assert!(answer(&asked("UPDATE", SERVICE, applied, service(1)), &rules(None)).allowed());
}

#[test]
fn what_is_below_an_object_other_kinds_and_connections_are_let_through() {
    let mut status = asked("UPDATE", SERVICE, service(2), service(1));
    status["request"]["subResource"] = json!("status");
    let pod = asked("CREATE", ("", "v1", "Pod"), service(1), Value::Null);
    let connect = asked("CONNECT", SERVICE, service(1), Value::Null);
    for review in [status, pod, connect] {
        assert!(answer(&review, &rules(None)).allowed(), "{review}");
    }
}

#[test]
fn what_says_what_must_hold_stays_changeable() {
    let set = asked("CREATE", ("policy.pointsman.dev", "v1alpha1", "PolicySet"), json!({"spec": {}}), Value::Null);
    assert!(answer(&set, &rules(None)).allowed());
    let spec = json!({"validations": [{"expression": "true"}]});
    let rule = ("policy.pointsman.dev", "v1alpha1", "ValidationRule");
    let made = answer(&asked("CREATE", rule, json!({"spec": spec}), Value::Null), &rules(None));
    // The test has no evaluator.
    assert!(made.allowed() && made.warnings.len() == 1, "{made:?}");
    let same = answer(&asked("UPDATE", rule, json!({"spec": spec}), json!({"spec": spec})), &rules(None));
    assert_eq!(same, AdmissionVerdict::default());
    assert!(!answer(&asked("CREATE", rule, json!({"spec": {"validations": 1}}), Value::Null), &rules(None)).allowed());
}

#[test]
fn rules_see_the_request_without_its_objects() {
    let request = read(&asked("UPDATE", SERVICE, service(2), service(1)));
    let names: Vec<&String> = request.rest.as_object().unwrap().keys().collect();
    assert!(["uid", "object", "oldObject"].iter().all(|hidden| names.iter().all(|name| name != hidden)), "{names:?}");
    assert_eq!(request.rest["userInfo"]["username"], "ann");
}

#[test]
fn an_object_s_own_name_counts_before_that_of_the_request() {
    let mut review = asked("CREATE", SERVICE, service(1), Value::Null);
    review["request"]["name"] = json!("");
    assert_eq!(read(&review).key.unwrap().name, "llama");
    let deleted = read(&asked("DELETE", SERVICE, Value::Null, service(1)));
    assert_eq!((deleted.operation(), deleted.namespace()), ("DELETE", Some("chat")));
}

#[test]
fn what_is_no_review_is_refused_in_words() {
    let cases = [
        (json!("x"), "isn't an AdmissionReview"),
        (json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}), "AdmissionReview of admission.k8s.io/v1beta1"),
        (json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), "no request"),
        (json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"operation": "CREATE"}}), "no request"),
    ];
    for (body, says) in cases {
        let said = Request::read(body.to_string().as_bytes()).unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn defaults_are_added_where_they_lack_and_nothing_else_is_touched() {
    let spec = json!({"validations": [{"expression": "true"}], "enabled": null, "unknown": {"a": 1}});
    let rule = ("policy.pointsman.dev", "v1alpha1", "ValidationRule");
    let filled = default(&read(&asked("CREATE", rule, json!({"metadata": {"name": "sizes"}, "spec": spec}), Value::Null)));
    let step = |path: &str| filled.patch.iter().find(|step| step["path"] == path).map(|step| step["value"].clone());
    assert_eq!(step("/spec/enabled"), Some(json!(true)));
    assert_eq!(step("/spec/stage"), Some(json!("Input")));
    assert!(filled.patch.iter().all(|step| step["op"] == "add"), "{:?}", filled.patch);
    assert_eq!(step("/spec/unknown"), None);
}

#[test]
fn an_object_that_has_all_defaults_and_one_that_is_not_changed_get_no_patch() {
    let rule = ("policy.pointsman.dev", "v1alpha1", "ValidationRule");
    let object = json!({"metadata": {"name": "sizes"}, "spec": {"validations": [{"expression": "true"}]}});
    assert_eq!(default(&read(&asked("UPDATE", rule, object.clone(), object.clone()))).patch, Vec::<Value>::new());
    assert_eq!(default(&read(&asked("DELETE", rule, Value::Null, object))).patch, Vec::<Value>::new());
}

#[test]
fn a_step_s_path_is_escaped_and_goes_into_lists() {
    let mut patch = Vec::new();
    added(&json!({"a/b": [{"x": 1}]}), &json!({"a/b": [{"x": 1, "y~": 2}]}), "/spec", &mut patch);
    assert_eq!(patch, [json!({"op": "add", "path": "/spec/a~1b/0/y~0", "value": 2})]);
}

#[test]
fn who_deletes_what_is_used_or_uses_what_is_deprecated_is_warned() {
    let mut world = World::default();
    let model = json!({
        "kind": "BaseModel", "metadata": {"name": "phi", "namespace": "chat"}, "spec": {"storage": {"storageUri": "hf://a/b"}},
        "status": {"lifecycle": "Deprecated"},
    });
    let mut service = service(1);
    service["spec"]["model"] = json!({"name": "phi", "kind": "BaseModel"});
    world.put(kinds::find("ome.io/v1beta1", "BaseModel").unwrap(), &model);
    world.put(kinds::find("ome.io/v1beta1", "InferenceService").unwrap(), &service);
    let warnings = |review: &Value| {
        let (request, no_rules) = (read(review), Rules::new(Vec::new(), None));
        let surroundings = request.key().map(|key| world.surroundings(key)).unwrap();
        let known = ReviewContext { rules: &no_rules, evaluator: None, namespace_labels: Arc::default(), surroundings, memo: None };
        let verdict = validate(&request, &known);
        assert!(verdict.allowed());
        verdict.warnings
    };
    let deleted = asked("DELETE", ("ome.io", "v1beta1", "BaseModel"), Value::Null, model.clone());
    let in_use = "the BaseModel phi is used by InferenceService chat/llama: existing pods stay, and changes wait until it exists again";
    assert_eq!(warnings(&deleted), [in_use]);
    let deprecated = "the BaseModel phi is deprecated: plan to serve another";
    assert_eq!(warnings(&asked("CREATE", SERVICE, service.clone(), Value::Null)), [deprecated]);
    // A label doesn't change the result.
    let mut labelled = service.clone();
    labelled["metadata"]["labels"]["tier"] = "silver".into();
    assert_eq!(warnings(&asked("UPDATE", SERVICE, labelled, service)), [""; 0]);
}
