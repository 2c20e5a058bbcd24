#![allow(clippy::unwrap_used)]
//! Any input gives a value or an error.

use pointsman_cel::{Evaluator, Named, Outcome, Rule, Validation, Verdict};

/// Expressions that grow with a number.
const SHAPES: [fn(usize) -> String; 20] = [
    |n| format!("{}1{}", "(".repeat(n), ")".repeat(n)),
    |n| format!("{}{}", "[".repeat(n), "]".repeat(n)),
    |n| format!("1{}", "+1".repeat(n)),
    |n| format!("true{}", "&&true".repeat(n)),
    |n| format!("false{}", "||false".repeat(n)),
    |n| format!("{}true", "!".repeat(n)),
    |n| format!("{}1", "!-".repeat(n)),
    |n| format!("{}1", "true?1:".repeat(n)),
    |n| format!("{}1{}", "{1:".repeat(n), "}".repeat(n)),
    |n| format!("{}{}", "size([".repeat(n), "])".repeat(n)),
    |n| format!("'a'{}", ".trim()".repeat(n)),
    |n| format!("object{}", ".a".repeat(n)),
    |n| format!("object{}", "[0]".repeat(n)),
    |n| format!("{}true{}", "[1].all(x,".repeat(n), ")".repeat(n)),
    |n| format!("{}true{}", "[1].all(i,x,".repeat(n), ")".repeat(n)),
    |n| format!("[1]{}", ".map(x,x)".repeat(n)),
    |n| format!("{}1{}", "optional.of(1).optMap(x,".repeat(n), ")".repeat(n)),
    |n| format!("[1{}].all(x, true)", "+1".repeat(n)),
    |n| format!("optional.none(){}", ".or(optional.of(1 / 1))".repeat(n)),
    |n| format!("'{}'", "x".repeat(n)),
];

/// Runs with a stack that is large enough for frames of unoptimised code.
fn with_room(test: fn()) {
    std::thread::Builder::new().stack_size(256 << 20).spawn(test).unwrap().join().unwrap();
}

#[test]
fn depth_and_length_end_in_a_value_or_a_sentence() {
    with_room(all_shapes);
}

fn all_shapes() {
    for shape in SHAPES {
        for size in [1, 30, 60, 100, 300, 1000, 5000] {
            let expression = shape(size);
            let mut evaluator = Evaluator::default();
            evaluator.bind([("object".to_owned(), "{}".to_owned())]);
            if let Err(problem) = evaluator.calculate(&expression) {
                assert!(
                    !problem.message.is_empty() && problem.message.len() <= 512,
                    "{}: {}",
                    &expression[..expression.len().min(40)],
                    problem.message
                );
            }
        }
    }
}

#[test]
fn what_a_person_would_write_is_never_too_deep() {
    with_room(ordinary_shapes);
}

fn ordinary_shapes() {
    let mut evaluator = Evaluator::default();
    evaluator.bind([("object".to_owned(), r#"{"a":1}"#.to_owned())]);
    let conjunction = vec!["object.a == 1"; 300].join(" && ");
    assert_eq!(evaluator.calculate(&conjunction).unwrap(), "true");
    let text = vec!["'a'"; 60].join(" + ");
    assert_eq!(evaluator.calculate(&text).unwrap().len(), 62);
    let nested = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    assert!(evaluator.calculate(&nested).is_ok());
    let list = vec!["1"; 3000].join(",");
    assert_eq!(evaluator.calculate(&format!("size([{list}])")).unwrap(), "3000");
}

#[test]
fn no_message_has_a_value_in_it_or_is_long() {
    let mut evaluator = Evaluator::default();
    evaluator.bind([("object".to_owned(), format!(r#"{{"secret":"{}","list":[1]}}"#, "s".repeat(2000)))]);
    for expression in [
        "object.secret + 1",
        "object < 1",
        "object.list + object",
        "object.secret.nothing",
        "-object",
        "object()",
        "object.list[object]",
        "!object.secret",
    ] {
        let message = evaluator.calculate(expression).unwrap_err().message;
        assert!(message.len() <= 512 && !message.contains("sss") && !message.contains("CelString"), "{expression}: {message}");
    }
    let key = format!("object['{}']", "k".repeat(2000));
    assert!(evaluator.calculate(&key).unwrap_err().message.len() <= 512);
}

#[test]
fn variables_of_variables_are_too_deep_in_every_form() {
    for form in ["variables['vAT']", "variables.?vAT.value()", "variables[?'vAT'].value()"] {
        let named = |at: usize| Named { name: format!("v{at}"), expression: format!("{} + 1", form.replace("AT", &(at - 1).to_string())) };
        let first = Named { name: "v0".to_owned(), expression: "1".to_owned() };
        let variables: Vec<Named> = [first].into_iter().chain((1..200).map(named)).collect();
        let problems = Evaluator::default().load(&Rule { variables, ..Rule::default() }).unwrap_err();
        assert_eq!(problems[0].message, "the expression is nested too deeply", "{form}");
    }
}

#[test]
fn many_patterns_and_large_ones_are_not_kept_and_work() {
    let many: Vec<String> = (0..200).map(|at| format!("'x{at}'.matches('^x{at}$')")).collect();
    let large = (0..20).map(|at| format!(r"'{}'.matches('^(\\pL{{20}})+(x{at})?$')", "ab".repeat(90)));
    let expressions = [many.join(" && "), large.collect::<Vec<String>>().join(" && ")];
    let validations = expressions.iter().map(|expression| Validation { expression: expression.clone(), message: None }).collect();
    let mut evaluator = Evaluator::default();
    assert_eq!(evaluator.load(&Rule { validations, ..Rule::default() }), Ok(0));
    assert_eq!(evaluator.evaluate(0), Outcome::Judged(vec![Verdict::Holds, Verdict::Holds]));
    let beyond = evaluator.calculate(r"'a'.matches('((\\pL{100}){100}){100}')").unwrap_err().message;
    assert!(beyond.starts_with("invalid matches argument: error parsing regexp: "), "{beyond}");
}

#[test]
fn variables_of_variables_are_too_deep_in_the_end() {
    with_room(|| {
        let named = |at: usize| Named { name: format!("v{at}"), expression: format!("variables.v{} + 1", at - 1) };
        let first = Named { name: "v0".to_owned(), expression: "1".to_owned() };
        let variables: Vec<Named> = [first].into_iter().chain((1..200).map(named)).collect();
        let validations = |at: usize| vec![Validation { expression: format!("variables.v{at} == {}", at + 1), message: None }];
        let few = Rule { variables: variables.iter().take(16).cloned().collect(), validations: validations(15), ..Rule::default() };
        let mut evaluator = Evaluator::default();
        assert_eq!(evaluator.load(&few), Ok(0));
        assert_eq!(evaluator.evaluate(0), Outcome::Judged(vec![Verdict::Holds]));
        let problems = evaluator.load(&Rule { variables, validations: validations(199), ..Rule::default() }).unwrap_err();
        assert_eq!(problems[0].message, "the expression is nested too deeply");
    });
}

#[test]
fn strange_texts_are_refused() {
    for expression in [
        "",
        "\u{0}",
        "'",
        "\"\"\"",
        "1 +",
        "a b",
        "ä",
        "🦀 == 🦀",
        "'\\q'",
        "0x",
        "1e",
        "9223372036854775808",
        "18446744073709551616u",
        "b'\\u00e4'",
        "`a`",
        "if",
        "object.`a-b`",
        "//",
    ] {
        let problem = Evaluator::default().calculate(expression).unwrap_err();
        assert!(!problem.message.is_empty(), "{expression}");
    }
}

#[test]
fn deep_json_is_refused_where_it_is_read() {
    let mut evaluator = Evaluator::default();
    evaluator.bind([("object".to_owned(), format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)))]);
    let message = evaluator.calculate("object == []").unwrap_err().message;
    assert!(message.starts_with("object is no JSON: recursion limit exceeded"), "{message}");
}

#[test]
fn the_same_input_gives_the_same_value() {
    let expression = "{'b': 1, 'a': 2, 'd': 4, 'c': 3}.transformList(k, v, k)";
    let first = Evaluator::default().calculate(expression);
    for _ in 0..20 {
        assert_eq!(Evaluator::default().calculate(expression), first);
    }
}
