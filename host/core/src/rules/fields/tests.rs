use super::*;
use pointsman_sandbox::evaluator::ExpressionId;
use serde_json::json;

/// Built once, because that takes as long as all the rest.
static SHAPES: LazyLock<[KindFields; 3]> = LazyLock::new(|| {
    ["InferenceService", "LLMInferenceService", "ClusterServingRuntime"].map(|kind| {
        let served = KINDS.iter().find(|served| (served.resource)().kind == kind).unwrap();
        KindFields::from_crd(&(served.crd)()).unwrap()
    })
});

/// Parses steps in the form of messages, except that `~` replaces a dot within a key.
fn path(text: &str) -> Path {
    let text = text.replace('[', ".[");
    let mut parts = text.split('.');
    let root = parts.next().unwrap_or_default().to_owned();
    let step = |part: &str| match part {
        "[]" => Step::Element,
        "[key]" => Step::Key,
        name => Step::Field(name.replace('~', ".")),
    };
    Path { part: ExpressionId::Validation(0), line: 1, column: 1, root, steps: parts.map(step).collect() }
}

fn shape(schema: serde_json::Value) -> KindFields {
    KindFields {
        group: String::new(),
        name: "Thing".to_owned(),
        root: Node::from_schema(&serde_json::from_value(schema).unwrap()).resource(),
    }
}

fn message(text: &str, shapes: &[&KindFields]) -> String {
    unknown(&path(text), shapes).unwrap_or_default()
}

#[test]
fn what_the_schemas_have_is_fine() {
    let [ome, llm, runtime] = &*SHAPES;
    for text in [
        "object",
        "object.apiVersion",
        "object.metadata.name",
        "object.metadata.ownerReferences[].blockOwnerDeletion",
        "object.metadata.managedFields[].fieldsV1.anything",
        "object.metadata.labels[]",
        "object.metadata.labels[key]",
        "object.metadata.labels.team",
        "object.metadata.__namespace__",
        "object.spec.engine.minReplicas",
        "object.spec.engine.containers[].image",
        "object.spec.engine.containers[key]",
        "object.spec.engine.runner.resources.limits.cpu",
        "object.status.components.engine.traffic[].percent",
        "object.status.components[].url",
        "object.spec[].minReplicas",
    ] {
        assert_eq!(message(text, &[ome]), "", "{text}");
    }
    for text in
        ["object.spec.model.lora.adapters[].whatever.it.is", "object.spec.router.route.http.spec.rules[].name", "object.spec.replicas"]
    {
        assert_eq!(message(text, &[llm]), "", "{text}");
    }
    for text in ["object.spec.supportedModelFormats[].name", "object.spec.engineConfig.runner.env[].valueFrom.secretKeyRef.key"] {
        assert_eq!(message(text, &[runtime]), "", "{text}");
    }
}

#[test]
fn a_typo_is_told_with_the_nearest_name() {
    let [ome, llm, runtime] = &*SHAPES;
    let typos = [
        ("object.spec.engine.minReplica", ome, "an InferenceService has no such field; did you mean minReplicas?"),
        ("object.metadata.lables", ome, "an InferenceService has no such field; did you mean labels?"),
        ("oldObject.spec.replica", llm, "an LLMInferenceService has no such field; did you mean replicas?"),
        ("object.spec.containers[].imege", runtime, "a ClusterServingRuntime has no such field; did you mean image?"),
        ("object.metadata.ownerReferences[].names", runtime, "a ClusterServingRuntime has no such field; did you mean name?"),
    ];
    for (text, shape, expected) in typos {
        assert_eq!(message(text, &[shape]), format!("{text}: {expected}"));
    }
}

#[test]
fn only_the_way_to_the_first_unknown_field_is_told() {
    let [ome, ..] = &*SHAPES;
    assert_eq!(
        message("object.spec.engin.runner.image", &[ome]),
        "object.spec.engin: an InferenceService has no such field; did you mean engine?"
    );
}

#[test]
fn without_a_near_name_the_fields_are_listed() {
    let [ome, ..] = &*SHAPES;
    let listed = message("object.spec.somethingElse", &[ome]);
    assert!(listed.ends_with("; there are decoder, engine, kedaConfig, model, predictor, router, runtime"), "{listed}");
    let many = message("object.spec.engine.runner.somethingElse", &[ome]);
    let eight = "; there are args, command, env, envFrom, image, imagePullPolicy, lifecycle, livenessProbe and 17 more";
    assert!(many.ends_with(eight), "{many}");
    assert_eq!(
        message("params.metadata.somethingElse", &[fixed("params").unwrap()]),
        "params.metadata.somethingElse: a ConfigMap has no such field; there are name, namespace"
    );
    assert_eq!(
        message("object.spec.a", &[&shape(json!({"type": "object", "properties": {"spec": {"type": "object"}}}))]),
        "object.spec.a: a Thing has no such field"
    );
}

#[test]
fn a_field_that_one_of_the_kinds_has_is_fine_and_one_that_none_has_names_them_all() {
    let [ome, llm, runtime] = &*SHAPES;
    assert_eq!(message("object.spec.engine.minReplicas", &[llm, ome]), "");
    assert_eq!(message("object.spec.replicas", &[llm, ome]), "");
    assert_eq!(
        message("object.spec.engine.minReplica", &[llm, ome]),
        "object.spec.engine.minReplica: neither an InferenceService nor an LLMInferenceService has such a field; did you mean minReplicas?"
    );
    let all = message("object.spec.somethingElse", &[ome, llm, runtime]);
    assert!(all.contains(": neither a ClusterServingRuntime, an InferenceService nor an LLMInferenceService has such a field; "), "{all}");
    assert_eq!(message("object.spec.anything", &[]), "");
}

#[test]
fn what_has_nothing_inside_says_what_it_is() {
    let [ome, llm, _] = &*SHAPES;
    for (text, expected) in [
        ("object.spec.engine.minReplicas.value", "spec.engine.minReplicas is a number, which has no fields"),
        ("object.spec.engine.minReplicas[]", "spec.engine.minReplicas is a number, which has no elements"),
        ("object.metadata.name[key]", "metadata.name is a string, which has no keys"),
        ("object.spec.engine.hostIPC.on", "spec.engine.hostIPC is a boolean, which has no fields"),
        ("object.spec.engine.containers.name", "spec.engine.containers is a list, which has elements and no fields"),
        ("object.metadata.labels.a~b/c.d", "metadata.labels[\"a.b/c\"] is a string, which has no fields"),
        (
            "object.spec.engine.runner.resources.limits.cpu.value",
            "spec.engine.runner.resources.limits.cpu is a number or a string, which has no fields",
        ),
    ] {
        let told = message(text, &[ome]);
        assert!(told.ends_with(&format!(": in an InferenceService, {expected}")), "{told}");
    }
    assert_eq!(
        message("object.kind.name", &[llm, ome]),
        "object.kind.name: in an InferenceService or an LLMInferenceService, kind is a string, which has no fields"
    );
}

#[test]
fn an_embedded_object_has_metadata_and_what_is_kept_unseen_has_everything() {
    let embedded = shape(json!({"type": "object", "properties": {
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "map": {"type": "object", "additionalProperties": true},
        "closed": {"type": "object", "additionalProperties": false},
    }}));
    for text in ["object.template.metadata.labels.a", "object.template.kind", "object.free.a[].b", "object.map.a.b"] {
        assert_eq!(message(text, &[&embedded]), "", "{text}");
    }
    for text in ["object.template.metadata.label", "object.template.status", "object.closed.a"] {
        assert_ne!(message(text, &[&embedded]), "", "{text}");
    }
}

#[test]
fn names_may_be_escaped_or_not() {
    let odd = ["a-b", "c.d", "e/f", "in", "g__h", "__plain__"];
    let properties: serde_json::Map<_, _> = odd.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    let odd_shape = shape(json!({"type": "object", "properties": properties}));
    for name in odd.into_iter().chain(["a__dash__b", "c__dot__d", "e__slash__f", "__in__", "g__underscores__h"]) {
        let path = Path { steps: vec![Step::Field(name.to_owned())], ..path("object") };
        assert_eq!(unknown(&path, &[&odd_shape]), None, "{name}");
    }
    assert_eq!(message("object.__if__", &[&odd_shape]), "object.__if__: a Thing has no such field; did you mean in?");
}

#[test]
fn the_roots_of_a_fixed_form_are_known() {
    for text in [
        "namespaceObject.metadata.labels.team",
        "namespaceObject.metadata.name",
        "request.kind.group",
        "request.requestResource.resource",
        "request.userInfo.extra.scopes[]",
        "request.userInfo.groups[]",
        "request.options.dryRun[]",
        "params.data.limit",
        "params.metadata.name",
    ] {
        let path = path(text);
        assert_eq!(unknown(&path, &[fixed(&path.root).unwrap()]), None, "{text}");
    }
    for (text, expected) in [
        ("request.userinfo", "an AdmissionRequest has no such field; did you mean userInfo?"),
        ("params.date", "a ConfigMap has no such field; did you mean data?"),
        ("namespaceObject.metadata.label", "a Namespace has no such field; did you mean labels?"),
    ] {
        let path = path(text);
        assert_eq!(unknown(&path, &[fixed(&path.root).unwrap()]), Some(format!("{text}: {expected}")));
    }
    assert!(fixed("object").is_none());
}

#[test]
fn a_name_is_near_by_two_letters_or_a_third_of_its_own() {
    let known = BTreeSet::from(["aab", "abb", "topologySpreadConstraints"]);
    for (name, expected) in [
        ("ab", Some("aab")),
        ("abbb", Some("abb")),
        ("zzzz", None),
        ("topologySpreadRestraints", Some("topologySpreadConstraints")),
        ("topologySpread", None),
    ] {
        assert_eq!(nearest(name, &known), expected, "{name}");
    }
}

#[test]
fn endless_names_are_cut() {
    let [ome, ..] = &*SHAPES;
    let path = Path { steps: vec![Step::Field("a".repeat(16_000))], ..path("object") };
    let told = unknown(&path, &[ome]).unwrap();
    assert!(told.len() < 200 && told.contains("a\u{2026}: "), "{told}");
}
