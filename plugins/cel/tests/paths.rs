#![allow(clippy::unwrap_used)]
//! The values that a rule reads.

use pointsman_cel::{Evaluator, Named, Rule, Step, Validation};

fn paths(variables: &[(&str, &str)], expression: &str) -> Vec<String> {
    let rule = Rule {
        roots: vec!["object".to_owned(), "params".to_owned()],
        variables: variables.iter().map(|(name, source)| Named { name: (*name).to_owned(), expression: (*source).to_owned() }).collect(),
        validations: vec![Validation { expression: expression.to_owned(), message: None }],
        ..Rule::default()
    };
    let written = |step: &Step| match step {
        Step::Field(name) => format!(".{name}"),
        Step::Element => "[]".to_owned(),
        Step::Key => "{}".to_owned(),
    };
    let mut paths: Vec<String> = Evaluator::default()
        .inspect(&rule)
        .unwrap()
        .iter()
        .map(|path| format!("{}{}", path.root, path.steps.iter().map(written).collect::<String>()))
        .collect();
    paths.sort();
    paths
}

#[test]
fn what_a_rule_reads_is_told() {
    let cases: &[(&str, &[&str])] = &[
        ("object.spec.engine.minReplicas > 0", &["object.spec.engine.minReplicas"]),
        ("object.a == params.b && object.a.c == 1", &["object.a.c", "params.b"]),
        ("object.spec.containers.all(c, c.image != '')", &["object.spec.containers[].image"]),
        (
            "object.spec.containers.all(c, c.env.exists(e, e.name == c.name))",
            &["object.spec.containers[].env[].name", "object.spec.containers[].name"],
        ),
        ("object.metadata.labels['a'] == 'b'", &["object.metadata.labels.a"]),
        ("object.metadata.labels[object.spec.x] == 'b'", &["object.metadata.labels[]", "object.spec.x"]),
        ("object.metadata.labels.all(k, k.startsWith('a'))", &["object.metadata.labels{}"]),
        ("object.metadata.labels.all(k, v, k != v)", &["object.metadata.labels[]", "object.metadata.labels{}"]),
        ("object.spec.containers[0].image == ''", &["object.spec.containers[].image"]),
        ("object.spec.containers.all(i, c, c.image != '' && i < 3)", &["object.spec.containers[].image"]),
        ("has(object.spec.x)", &["object.spec.x"]),
        ("object.?spec.?x.hasValue()", &["object.spec.x"]),
        ("object[?'spec'].x.hasValue()", &["object.spec.x"]),
        ("object.?spec.?list.orValue([]).all(e, e.x == 1)", &["object.spec.list[].x"]),
        ("object.?spec.optMap(s, s.x).orValue(1) == 1", &["object.spec.x"]),
        ("object.list.filter(e, e.a == 1).all(e, e.b == 2)", &["object.list[].a", "object.list[].b"]),
        ("object.list.map(e, e.inner).all(i, i.x == 1)", &["object.list[].inner.x"]),
        ("object.list.sortBy(e, e.a)[0].b == 1", &["object.list[].a", "object.list[].b"]),
        ("object.list.first().value().x == 1", &["object.list[].x"]),
        ("cel.bind(s, object.spec, s.x == 1 && s.y == 2)", &["object.spec.x", "object.spec.y"]),
        ("dyn(object.spec).x == 1", &["object.spec.x"]),
        ("size(object.spec.list) > 0", &["object.spec.list"]),
        ("object.a in object.b", &["object.a", "object.b"]),
        // A macro's variable hides the root.
        ("object.list.all(object, object.a == 1 && .object.b == 2)", &["object.list[].a", "object.list[].b"]),
        ("[{'a': 1}].all(object, .object.a == 1) && .object.b == 2", &["object.b"]),
        ("object.list.all(i, object, .object.a == 1)", &["object.list[].a"]),
    ];
    for (expression, expected) in cases {
        assert_eq!(paths(&[], expression), *expected, "{expression}");
    }
}

#[test]
fn nothing_is_guessed() {
    let cases: &[(&str, &[&str])] = &[
        // It can be either.
        ("(object.a == 1 ? object.b : object.c).d == 1", &["object.a", "object.b", "object.c"]),
        ("object.?a.orValue({'x': 1}).x == 1", &["object.a"]),
        ("object.?a.or(object.?b).value().x == 1", &["object.a", "object.b"]),
        // A map would give keys, and a list elements.
        ("object.things.all(t, t != '')", &["object.things"]),
        ("object.things.filter(t, t != '')[0] == 'a'", &["object.things"]),
        ("object.things.map(t, t) == []", &["object.things"]),
        // A value that is created here has no origin.
        ("{'a': object.b}.a.c == 1", &["object.b"]),
        ("[object.b][0].c == 1", &["object.b"]),
    ];
    for (expression, expected) in cases {
        assert_eq!(paths(&[], expression), *expected, "{expression}");
    }
}

#[test]
fn variables_are_followed() {
    let variables = [("engine", "object.spec.engine"), ("containers", "variables.engine.containers"), ("count", "size(object.spec.other)")];
    let read = paths(&variables, "variables.containers.all(c, c.image != '') && variables.engine.minReplicas < variables.count");
    assert_eq!(read, ["object.spec.engine.containers[].image", "object.spec.engine.minReplicas", "object.spec.other"]);
}

#[test]
fn variables_are_followed_in_whatever_form_they_are_read() {
    let variables = [("engine", "object.spec.engine"), ("containers", "variables['engine'].containers")];
    for expression in [
        "variables['containers'].all(c, c.image != '')",
        "variables.?containers.value().all(c, c.image != '')",
        "variables[?'containers'].orValue([]).all(c, c.image != '')",
        "variables.?engine.?containers.value().all(c, c.image != '')",
    ] {
        assert_eq!(paths(&variables, expression), ["object.spec.engine.containers[].image"], "{expression}");
    }
}

#[test]
fn a_path_says_where_it_is_read() {
    let rule = Rule {
        roots: vec!["object".to_owned()],
        validations: vec![Validation { expression: "true ||\n  object.spec.x == 1".to_owned(), message: None }],
        ..Rule::default()
    };
    let paths = Evaluator::default().inspect(&rule).unwrap();
    assert_eq!((paths[0].line, paths[0].column), (2, 14));
}
