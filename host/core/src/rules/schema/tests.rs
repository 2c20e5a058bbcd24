use super::*;
use pointsman_crds::KINDS;
use serde_json::json;

fn messages(object: &Value, schema: &Value) -> Vec<String> {
    let object = {
        let mut object = object.clone();
        object["metadata"] = json!({"name": "a"});
        object
    };
    validate(&object, schema).iter().map(Violation::to_string).collect()
}

/// The messages for one value, in the field `a`.
fn messages_for_field(value: &Value, schema: &Value) -> Vec<String> {
    messages(&json!({"a": value}), &json!({"properties": {"a": schema}}))
}

#[test]
fn a_value_that_does_not_fit_is_told_in_the_words_of_the_api_server() {
    let cases = [
        (json!("x"), json!({"type": "integer"}), "a: Invalid value: \"string\": a in body must be of type integer: \"string\""),
        (json!(1.5), json!({"type": "integer"}), "a: Invalid value: \"number\": a in body must be of type integer: \"number\""),
        (
            json!(true),
            json!({"x-kubernetes-int-or-string": true}),
            "a: Invalid value: \"boolean\": a in body must be of type integer,string: \"boolean\"",
        ),
        (json!([]), json!({"type": "object"}), "a: Invalid value: \"array\": a in body must be of type object: \"array\""),
        (
            json!(3_000_000_000_i64),
            json!({"type": "integer", "format": "int32"}),
            "a: Invalid value: \"\": Checked value must be of type integer with format int32 in a",
        ),
        (json!(-1), json!({"type": "integer", "minimum": 0.0}), "a: Invalid value: -1: a in body should be greater than or equal to 0"),
        (
            json!(0),
            json!({"type": "integer", "minimum": 0, "exclusiveMinimum": true}),
            "a: Invalid value: 0: a in body should be greater than 0",
        ),
        (json!(1.5), json!({"type": "number", "maximum": 1.25}), "a: Invalid value: 1.5: a in body should be less than or equal to 1.25"),
        (json!(7), json!({"type": "integer", "multipleOf": 2.0}), "a: Invalid value: 7: a in body should be a multiple of 2"),
        (json!("ä"), json!({"type": "string", "minLength": 2}), "a: Invalid value: \"ä\": a in body should be at least 2 chars long"),
        (json!("äbc"), json!({"type": "string", "maxLength": 2}), "a: Too long: may not be more than 2 bytes"),
        (json!("ab"), json!({"type": "string", "pattern": "^b"}), "a: Invalid value: \"ab\": a in body should match '^b'"),
        (
            json!("ab"),
            json!({"type": "string", "format": "date-time"}),
            "a: Invalid value: \"ab\": a in body must be of type date-time: \"ab\"",
        ),
        (json!("ab"), json!({"type": "string", "enum": ["x", "y"]}), "a: Unsupported value: \"ab\": supported values: \"x\", \"y\""),
        (json!([]), json!({"type": "array", "minItems": 1}), "a: Invalid value: 0: a in body should have at least 1 items"),
        (json!([1, 2]), json!({"type": "array", "maxItems": 1}), "a: Too many: 2: must have at most 1 item"),
        (json!({"b": 1}), json!({"type": "object", "maxProperties": 0}), "a: Too many: 1: must have at most 0 items"),
        (json!({}), json!({"type": "object", "required": ["b"]}), "a.b: Required value"),
        (json!({"b": null}), json!({"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}}), "a.b: Required value"),
        (
            json!({"b": {"c": 1}}),
            json!({"additionalProperties": {"additionalProperties": {"type": "string"}}}),
            "a.b.c: Invalid value: \"integer\": a.b.c in body must be of type string: \"integer\"",
        ),
        (
            json!([null]),
            json!({"items": {"type": "string"}}),
            "a[0]: Invalid value: \"null\": a[0] in body must be of type string: \"null\"",
        ),
        (json!(1), json!({"not": {"type": "integer"}}), "a: Invalid value: \"\": \"a\" must not validate the schema (not)"),
        (
            json!(1),
            json!({"oneOf": [{"minimum": 0}, {"maximum": 2}]}),
            "a: Invalid value: \"\": \"a\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ),
    ];
    for (value, schema, says) in cases {
        assert_eq!(messages_for_field(&value, &schema), [says], "{value} {schema}");
    }
    let any = json!({"anyOf": [{"required": ["b", "c"]}, {"required": ["d"]}]});
    assert_eq!(
        messages_for_field(&json!({}), &any),
        ["a.d: Required value", "a: Invalid value: \"\": \"a\" must validate at least one schema (anyOf)"]
    );
}

#[test]
fn a_value_that_fits_is_passed_over() {
    let cases = [
        (json!(1.0), json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 1, "enum": [1]})),
        (json!(1), json!({"type": "number"})),
        (json!("10%"), json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
        (json!({"a": {"b": [1, "x"]}}), json!({"x-kubernetes-preserve-unknown-fields": true})),
        (json!(null), json!({"type": "string"})),
        (json!(null), json!({"type": "string", "nullable": true})),
        (json!("xaby"), json!({"type": "string", "pattern": "ab", "maxLength": 4})),
        (json!("any"), json!({"type": "string", "format": "quantity"})),
    ];
    for (value, schema) in cases {
        assert_eq!(messages_for_field(&value, &schema), [] as [&str; 0], "{value} {schema}");
    }
}

#[test]
fn rules_wait_for_what_blocks_them() {
    let blocks = |value: Value, schema: Value| {
        let object = json!({"metadata": {"name": "a"}, "a": value});
        validate(&object, &json!({"properties": {"a": schema}})).iter().any(|violation| violation.blocks)
    };
    assert!(blocks(json!("x"), json!({"type": "integer"})));
    assert!(blocks(json!({}), json!({"required": ["b"]})));
    assert!(!blocks(json!(-1), json!({"minimum": 0})));
    assert!(!blocks(json!("a"), json!({"pattern": "b"})));
}

#[test]
fn metadata_is_as_the_api_server_wants_it() {
    let told = |metadata: Value| -> Vec<String> {
        validate(&json!({"metadata": metadata}), &json!({"type": "object"})).iter().map(Violation::to_string).collect()
    };
    assert_eq!(told(json!({"name": "a.b-c", "labels": {"a.b/c": "D_1"}, "annotations": {"X/y": "anything at all"}})), [] as [&str; 0]);
    assert_eq!(told(json!({"generateName": "a-"})), [] as [&str; 0]);
    assert_eq!(told(json!({})), ["metadata.name: Required value: name or generateName is required"]);
    let cases = [
        (json!({"name": "A"}), "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of"),
        (json!({"name": "a", "namespace": "b.c"}), "metadata.namespace: Invalid value: \"b.c\": must not contain dots"),
        (json!({"name": "a", "labels": {"a b": "c"}}), "metadata.labels: Invalid value: \"a b\": name part must consist of"),
        (json!({"name": "a", "labels": {"/b": "c"}}), "metadata.labels: Invalid value: \"/b\": prefix part must be non-empty"),
        (
            json!({"name": "a", "labels": {"a": "b c"}}),
            "metadata.labels: Invalid value: \"b c\": a valid label must be an empty string or consist of",
        ),
        (json!({"name": "a", "labels": {"a": 1}}), "metadata.labels: Invalid value: the value of a must be a string"),
        (
            json!({"name": "a", "annotations": {"a": "x".repeat(300_000)}}),
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        (json!({"name": "a", "labels": {"a": "x".repeat(64)}}), "must be no more than 63 bytes"),
    ];
    for (metadata, says) in cases {
        let told = told(metadata);
        assert!(told.len() == 1 && told.iter().all(|told| told.contains(says)), "{says}: {told:?}");
    }
    let labels = validate(&json!({"metadata": {"name": "a", "labels": {"a b": "c"}}}), &json!({}));
    assert_eq!(labels.first().unwrap().path.last(), Some(&Step::Key("a b".to_owned())));
}

#[test]
fn our_own_schemas_are_understood_whole() {
    fn patterns(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(fields) => {
                found.extend(fields.get("pattern").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|inner| patterns(inner, found));
            }
            Value::Array(items) => items.iter().for_each(|inner| patterns(inner, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for served in KINDS {
        patterns(&serde_json::to_value((served.crd)()).unwrap(), &mut found);
    }
    found.sort();
    found.dedup();
    assert!(found.len() > 10);
    for pattern in found {
        assert!(regex::Regex::new(&pattern).is_ok(), "{pattern}");
    }
}

#[test]
fn a_service_is_held_against_its_crd() {
    let served = KINDS.iter().find(|served| (served.resource)().kind == "InferenceService").unwrap();
    let schema =
        serde_json::to_value((served.crd)().spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap();
    let service =
        |spec: Value| json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "a"}, "spec": spec});
    let told = |spec: Value| -> Vec<String> { validate(&service(spec), &schema).iter().map(Violation::to_string).collect() };
    assert_eq!(told(json!({"model": {"name": "llama"}, "engine": {"minReplicas": 1}})), [] as [&str; 0]);
    assert_eq!(
        told(json!({"model": {}, "engine": {"minReplicas": "1"}})),
        [
            "spec.engine.minReplicas: Invalid value: \"string\": spec.engine.minReplicas in body must be of type integer: \"string\"",
            "spec.model.name: Required value",
        ]
        .iter()
        .rev()
        .copied()
        .collect::<Vec<_>>()
    );
}
