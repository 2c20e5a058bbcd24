#![allow(clippy::unwrap_used)]
//! The results of rules: conditions, variables, verdicts, messages and roots.

use pointsman_cel::{Evaluator, ExpressionId, Named, Outcome, Problem, Rule, Validation, Verdict};

fn named_expression(name: &str, expression: &str) -> Named {
    Named { name: name.to_owned(), expression: expression.to_owned() }
}

fn validation(expression: &str, message: Option<&str>) -> Validation {
    Validation { expression: expression.to_owned(), message: message.map(str::to_owned) }
}

fn rule(conditions: &[&str], variables: &[(&str, &str)], validations: &[(&str, Option<&str>)]) -> Rule {
    Rule {
        roots: vec!["object".to_owned(), "oldObject".to_owned()],
        lookups: Vec::new(),
        conditions: conditions.iter().map(|condition| named_expression("condition", condition)).collect(),
        variables: variables.iter().map(|(name, expression)| named_expression(name, expression)).collect(),
        validations: validations.iter().map(|(expression, message)| validation(expression, *message)).collect(),
    }
}

fn outcome(rule: &Rule, object: &str) -> Outcome {
    let mut evaluator = Evaluator::default();
    let number = evaluator.load(rule).unwrap();
    evaluator.bind([("object".to_owned(), object.to_owned())]);
    evaluator.evaluate(number)
}

fn failed(part: ExpressionId, message: &str) -> Problem {
    Problem { part, line: 0, column: 0, message: message.to_owned() }
}

#[test]
fn a_false_condition_wins_over_one_that_fails() {
    let rules = rule(&["object.nothing", "object.a == 2"], &[], &[("true", None)]);
    assert_eq!(outcome(&rules, r#"{"a":1}"#), Outcome::Unmatched(1));
    let undecided = Outcome::Undecided(failed(ExpressionId::Condition(0), "no such key: nothing"));
    assert_eq!(outcome(&rules, r#"{"a":2}"#), undecided);
    assert_eq!(outcome(&rules, r#"{"a":2,"nothing":true}"#), Outcome::Judged(vec![Verdict::Holds]));
}

#[test]
fn each_validation_has_its_verdict() {
    let rules = rule(&[], &[], &[("object.a == 1", None), ("object.a == 2", None), ("object.b == 2", None), ("object.a", None)]);
    let missing = failed(ExpressionId::Validation(2), "no such key: b");
    let no_bool = failed(ExpressionId::Validation(3), "the result isn't a bool");
    let expected = vec![Verdict::Holds, Verdict::Broken(None), Verdict::Failed(missing), Verdict::Failed(no_bool)];
    assert_eq!(outcome(&rules, r#"{"a":1}"#), Outcome::Judged(expected));
}

#[test]
fn only_a_message_that_kubernetes_would_use_is_one() {
    let long = format!("'{}'", "x".repeat(5121));
    for (message, expected) in [
        ("'it is ' + string(object.a)", Some("it is 1")),
        ("'  spaces '", Some("spaces")),
        ("'   '", None),
        ("'two\\nlines'", None),
        ("object.absent", None),
        ("object.a", None),
        (long.as_str(), None),
    ] {
        let broken = Outcome::Judged(vec![Verdict::Broken(expected.map(str::to_owned))]);
        assert_eq!(outcome(&rule(&[], &[], &[("false", Some(message))]), r#"{"a":1}"#), broken, "{message}");
    }
}

#[test]
fn a_variable_is_evaluated_where_it_is_read_and_nowhere_else() {
    let variables = [("broken", "object.nothing.at.all"), ("list", "object.list"), ("first", "variables.list[0]")];
    let rules = rule(
        &[],
        &variables,
        &[
            ("variables.first == 7", None),
            ("true || variables.broken", None),
            ("variables.broken == 1", None),
            ("has(variables.broken)", None),
        ],
    );
    let problem = failed(ExpressionId::Validation(2), "no such key: nothing");
    let expected = vec![Verdict::Holds, Verdict::Holds, Verdict::Failed(problem), Verdict::Holds];
    assert_eq!(outcome(&rules, r#"{"list":[7]}"#), Outcome::Judged(expected));
}

#[test]
fn a_variable_is_evaluated_once() {
    // Each reads the previous one three times. If it were evaluated each time, the last would take three million evaluations.
    let names: Vec<String> = (0..15).map(|at| format!("v{at}")).collect();
    let reads = |at: usize| format!("variables.v{at} && variables.v{at} && variables.v{at}");
    let sources: Vec<String> = (0..15).map(|at: usize| at.checked_sub(1).map_or_else(|| "object.a == 1".to_owned(), reads)).collect();
    let variables: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(sources.iter().map(String::as_str)).collect();
    let rules = rule(&[], &variables, &[("variables.v14", None)]);
    let judged = std::thread::Builder::new().stack_size(64 << 20).spawn(move || outcome(&rules, r#"{"a":1}"#)).unwrap().join().unwrap();
    assert_eq!(judged, Outcome::Judged(vec![Verdict::Holds]));
}

#[test]
fn roots_stay_until_they_are_set_anew() {
    let mut evaluator = Evaluator::default();
    let number = evaluator.load(&rule(&[], &[], &[("object.a == oldObject.a", None)])).unwrap();
    let verdict = |evaluator: &mut Evaluator| match evaluator.evaluate(number) {
        Outcome::Judged(mut verdicts) => verdicts.remove(0),
        other => Verdict::Broken(Some(format!("{other:?}"))),
    };
    assert_eq!(verdict(&mut evaluator), Verdict::Failed(failed(ExpressionId::Validation(0), "object isn't set")));
    evaluator.bind([("object".to_owned(), r#"{"a":1}"#.to_owned()), ("oldObject".to_owned(), r#"{"a":1}"#.to_owned())]);
    assert_eq!(verdict(&mut evaluator), Verdict::Holds);
    evaluator.bind([("object".to_owned(), r#"{"a":2}"#.to_owned())]);
    assert_eq!(verdict(&mut evaluator), Verdict::Broken(None));
    evaluator.bind([("oldObject".to_owned(), String::new())]);
    assert_eq!(verdict(&mut evaluator), Verdict::Failed(failed(ExpressionId::Validation(0), "oldObject isn't set")));
    evaluator.bind([("oldObject".to_owned(), "null".to_owned())]);
    assert!(matches!(verdict(&mut evaluator), Verdict::Failed(_)));
}

#[test]
fn no_rule_sees_a_former_object() {
    let variables: [(&str, &str); 7] = [
        ("value", "object.a"),
        ("another", "variables.value"),
        ("listed", "[variables.value, variables.another]"),
        ("mapped", "{'value': dyn(variables.listed), 'whole': object}"),
        ("optional", "variables.?mapped"),
        ("broken", "object.nothing"),
        ("of_broken", "[variables.broken]"),
    ];
    let expressions = [
        "variables.mapped.value[1] == object.b",
        "variables.optional.whole.a.value() == object.b",
        "variables['another'] == object.b && variables[?'another'] == optional.of(object.b)",
        "variables.of_broken == []",
    ];
    let validations = expressions.map(|expression| (expression, None));
    let mut evaluator = Evaluator::default();
    let many = evaluator.load(&rule(&[], &variables, &validations)).unwrap();
    let other = evaluator.load(&rule(&[], &[], &[("object.a == 1", None)])).unwrap();
    let failed = Verdict::Failed(failed(ExpressionId::Validation(3), "no such key: nothing"));
    for a in 1..4 {
        evaluator.bind([("object".to_owned(), format!(r#"{{"a":{a},"b":{a}}}"#))]);
        for _ in 0..2 {
            let expected = vec![Verdict::Holds, Verdict::Holds, Verdict::Holds, failed.clone()];
            assert_eq!(evaluator.evaluate(many), Outcome::Judged(expected), "{a}");
            let verdict = if a == 1 { Verdict::Holds } else { Verdict::Broken(None) };
            assert_eq!(evaluator.evaluate(other), Outcome::Judged(vec![verdict]), "{a}");
        }
    }
    evaluator.bind([("object".to_owned(), String::new())]);
    let Outcome::Judged(verdicts) = evaluator.evaluate(other) else { unreachable!("it has no conditions") };
    assert!(matches!(&verdicts[0], Verdict::Failed(problem) if problem.message == "object isn't set"), "{verdicts:?}");
}

#[test]
fn variables_are_read_one_by_one() {
    for expression in [
        "variables",
        "[variables]",
        ".variables",
        "{'a': variables}",
        "dyn(variables).x",
        "variables == variables",
        "'x' in variables",
        "size(variables) == 1",
        "variables.all(name, name == 'x')",
        "variables.map(name, name)",
        "[1].map(one, variables)",
        "cel.bind(all, variables, all.x)",
        "optional.of(variables)",
        "optional.none().orValue(variables)",
        "true ? variables : variables",
        "variables[object.name]",
        "variables['a' + 'b']",
        "variables[0]",
        "variables[?object.name]",
        "variables[variables]",
        "variables.size()",
    ] {
        for rules in [
            rule(&[], &[("x", "1"), ("y", expression)], &[]),
            rule(&[], &[("x", "1")], &[("true", Some(expression))]),
            rule(&[expression], &[("x", "1")], &[]),
        ] {
            let problems = Evaluator::default().load(&rules).unwrap_err();
            let told = problems.iter().find(|problem| problem.message == "variables are read one by one: write variables.NAME");
            assert!(told.is_some_and(|problem| problem.line == 1 && problem.column > 0), "{expression}: {problems:?}");
        }
    }
}

#[test]
fn a_variable_may_be_read_by_a_question_or_an_index() {
    let variables = [("x", "object.x"), ("map", "{'a': variables['x'], ?'b': variables.?x}"), ("broken", "object.nothing")];
    let holding = [
        "variables.?x == optional.of(7) && variables.?x.hasValue() && variables.?x.orValue(1) == 7",
        "variables[?'x'] == optional.of(7) && variables['x'] == 7 && .variables.x == 7",
        "variables.?map.?a.value() == 7 && variables[?'map'].b.value() == 7 && !variables.?map.?c.hasValue()",
        "[variables.?x, variables[?'map'].?c].unwrapOpt() == [7] && [?variables.?x] == [7]",
        "variables.?x.optMap(variables, variables + 1).value() == 8",
        "{'x': 8}.all(variables, variables == 'x') && cel.bind(variables, {'x': 8}, variables.x == 8 && .variables.x == 8)",
        "true || variables.?broken.hasValue()",
    ];
    let validations: Vec<(&str, Option<&str>)> = holding.iter().map(|expression| (*expression, None)).collect();
    assert_eq!(outcome(&rule(&[], &variables, &validations), r#"{"x":7}"#), Outcome::Judged(vec![Verdict::Holds; holding.len()]));
    let fails = rule(&[], &variables, &[("variables.?broken.hasValue()", None)]);
    let problem = failed(ExpressionId::Validation(0), "no such key: nothing");
    assert_eq!(outcome(&fails, r#"{"x":7}"#), Outcome::Judged(vec![Verdict::Failed(problem)]));
}

#[test]
fn a_variable_may_only_read_those_before_it() {
    for form in
        ["variables.NAME", "variables.?NAME", "variables['NAME']", "variables[?'NAME']", "has(variables.NAME)", ".variables['NAME']"]
    {
        for name in ["itself", "later", "absent"] {
            let expression = form.replace("NAME", name);
            let rules = rule(&[], &[("first", "1"), ("itself", &expression), ("later", "variables.itself")], &[("true", None)]);
            let problems = Evaluator::default().load(&rules).unwrap_err();
            assert_eq!(problems.len(), 1, "{expression}: {problems:?}");
            assert_eq!(problems[0].part, ExpressionId::Variable(1), "{expression}");
            assert_eq!(problems[0].message, format!("undefined field '{name}'"), "{expression}");
        }
    }
}

#[test]
fn what_is_no_json_is_told_by_who_reads_it() {
    let rules = rule(&[], &[], &[("object.a == 1", None), ("true", None)]);
    let Outcome::Judged(verdicts) = outcome(&rules, "{\"a\":") else { unreachable!("it has no conditions") };
    assert!(matches!(&verdicts[0], Verdict::Failed(problem) if problem.message.starts_with("object is no JSON: ")), "{verdicts:?}");
    assert_eq!(verdicts[1], Verdict::Holds);
}

#[test]
fn rules_are_numbered_and_an_unknown_number_is_undecided() {
    let mut evaluator = Evaluator::default();
    assert_eq!(evaluator.load(&rule(&[], &[], &[("true", None)])), Ok(0));
    assert!(evaluator.load(&rule(&[], &[], &[("nonsense", None)])).is_err());
    assert_eq!(evaluator.load(&rule(&[], &[], &[("false", None)])), Ok(1));
    assert_eq!(evaluator.evaluate(1), Outcome::Judged(vec![Verdict::Broken(None)]));
    assert_eq!(evaluator.evaluate(2), Outcome::Undecided(failed(ExpressionId::Condition(0), "there is no rule 2")));
}

#[test]
fn problems_say_what_is_wrong_and_where() {
    let cases: [(&str, u32, u32, &str); 17] = [
        ("obejct.a == 1", 1, 1, "undeclared reference to 'obejct', did you mean 'object'?"),
        ("true &&\n  ölObject.a == 1", 2, 3, "unexpected character"),
        ("'ö' == 'ö' &&\n  '' == subject.a", 2, 9, "undeclared reference to 'subject', did you mean 'object'?"),
        ("object.a.startWith('x')", 1, 19, "undeclared reference to 'startWith', did you mean 'startsWith'?"),
        ("nothing(1) == 1", 1, 1, "undeclared reference to 'nothing'"),
        ("'a'.contains('a', 'b')", 1, 13, "found no matching overload for 'contains' applied to 'string.(string, string)'"),
        ("contains('a')", 1, 1, "found no matching overload for 'contains' applied to '(string)'"),
        ("1 + 'a' == 2", 1, 3, "found no matching overload for '_+_' applied to '(int, string)'"),
        ("object.a == 1 ? 1 : 2", 1, 15, "must evaluate to bool"),
        ("variables.absnet", 1, 10, "undefined field 'absnet', did you mean 'absent'?"),
        ("authorizer.path('/').check('get').allowed()", 1, 1, "authorizer isn't offered: rules see objects, and not what somebody may do"),
        ("Object{}", 1, 1, "undeclared reference to 'Object': rules make no objects"),
        ("[1, 'a'].size() == 2", 1, 5, "expected type 'int' but found 'string'"),
        ("'a'.matches('(')", 1, 12, "invalid matches argument: error parsing regexp: "),
        ("duration('1 hour') == duration('1h')", 1, 1, "time: invalid duration \"1 hour\""),
        ("sets.contain([1], [1])", 1, 13, "undeclared reference to 'sets.contain', did you mean 'sets.contains'?"),
        ("  ", 1, 1, "the expression is empty"),
    ];
    for (expression, line, column, message) in cases {
        let problems = Evaluator::default().load(&rule(&[], &[("absent", "1")], &[("true", None), (expression, None)])).unwrap_err();
        let first = &problems[0];
        assert_eq!(first.part, ExpressionId::Validation(1), "{expression}");
        assert!(first.message.starts_with(message), "{expression}: {}", first.message);
        assert_eq!((first.line, first.column), (line, column), "{expression}: {}", first.message);
    }
}

#[test]
fn every_part_is_looked_at() {
    let rules = rule(&["a"], &[("x", "b"), ("x", "1"), ("1x", "1")], &[("c", Some("d")), ("true", Some("1"))]);
    let problems = Evaluator::default().load(&rules).unwrap_err();
    let parts: Vec<ExpressionId> = problems.iter().map(|problem| problem.part).collect();
    let expected = [
        ExpressionId::Variable(0),
        ExpressionId::Variable(1),
        ExpressionId::Variable(2),
        ExpressionId::Condition(0),
        ExpressionId::Validation(0),
        ExpressionId::Message(0),
        ExpressionId::Message(1),
    ];
    assert_eq!(parts, expected, "{problems:?}");
}
