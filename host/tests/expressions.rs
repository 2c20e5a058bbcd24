//! Random expressions for the evaluator in its sandbox: each evaluation ends within its limits with a verdict, a message, or its own
//! failure, and leaves no state behind.

use crate::grammar::{Case, ExpressionSlot, Tape, grown, mixed, thrown};
use crate::policies::{compilers, engines};
use pointsman::load::Loader;
use pointsman_core::rules::{
    fields,
    rule::{Rule, bind},
};
use pointsman_crds::policy::rule::{self, ModelsLookup, RuleLookup, SubjectsLookup, ValidationRuleSpec};
use pointsman_sandbox::{
    call::CallError,
    evaluator::{Asking, Evaluator, Named, Outcome, Problem, Program, Source, Validation, ValidationVerdict},
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs, iter,
    path::Path,
    sync::{Arc, LazyLock},
    thread,
};

/// The maximum number of random numbers per case.
const LONGEST_TAPE: usize = 300;

/// The maximum length of the evaluator's messages in bytes. Longer ones are truncated.
const LONGEST_SENTENCE: usize = 512;

/// How often a known rule is evaluated if it times out: on a busy machine a thread may not run for that long.
const TRIES: usize = 5;

static EVALUATOR: LazyLock<Arc<Evaluator>> = LazyLock::new(|| Loader::new(Arc::clone(engines()), compilers()).evaluator().unwrap());

/// A rule that uses variables, patterns and messages, and the object for it.
static KNOWN: LazyLock<(Program, Arc<str>)> = LazyLock::new(|| {
    let name = Named { name: "name".to_owned(), expression: "object.metadata.name".to_owned() };
    let source = Source {
        roots: roots(),
        variables: vec![name],
        validations: vec![
            Validation { expression: "variables.name.matches('^c[a-z]+$') && object.spec.replicas in [1, 2]".to_owned(), message: None },
            Validation {
                expression: "object.spec.replicas > 2".to_owned(),
                message: Some("'only %d'.format([object.spec.replicas])".to_owned()),
            },
            Validation { expression: "object.spec.absent == 1".to_owned(), message: None },
        ],
        ..Source::default()
    };
    (Program::new(source), json!({"metadata": {"name": "chat"}, "spec": {"replicas": 2}}).to_string().into())
});

/// The variables of rules at admission, and `params`, which isn't set here.
fn roots() -> Vec<String> {
    ["object", "oldObject", "namespaceObject", "request", "params"].map(str::to_owned).to_vec()
}

fn source(case: &Case) -> Source {
    let expression = || case.expression.clone();
    let named = || vec![Named { name: "value".to_owned(), expression: expression() }];
    let validation = |expression: &str, message: Option<String>| vec![Validation { expression: expression.to_owned(), message }];
    let source = Source { roots: roots(), ..Source::default() };
    match case.place {
        ExpressionSlot::Validation => Source { validations: validation(&case.expression, None), ..source },
        ExpressionSlot::Condition => Source { conditions: named(), validations: validation("true", None), ..source },
        ExpressionSlot::Message => Source { validations: validation("false", Some(expression())), ..source },
        ExpressionSlot::Variable => {
            let message = "'it is %s'.format([dyn(variables.value)])".to_owned();
            Source { variables: named(), validations: validation("dyn(variables.value) == null", Some(message)), ..source }
        }
    }
}

/// Loads the expression as a rule, as the host does: names are resolved in schemas, and mistakes are reported.
fn load(case: &Case) {
    let validation = |expression: &str| rule::Validation { expression: expression.to_owned(), ..rule::Validation::default() };
    let lookup = |name: &str, models, subjects| RuleLookup { name: name.to_owned(), models, subjects, runtimes: None };
    let spec = ValidationRuleSpec {
        lookups: vec![
            lookup("named", Some(ModelsLookup { name: case.expression.clone() }), None),
            lookup("summed", None, Some(SubjectsLookup { sum: case.expression.clone(), ..SubjectsLookup::default() })),
        ],
        validations: vec![validation(&case.expression), validation("lookups.named.size() == lookups.summed")],
        ..ValidationRuleSpec::default()
    };
    if let Err(error) = Rule::load(bind("made-up", &spec, None), &EVALUATOR, fields::shapes()) {
        assert!(!error.to_string().is_empty());
    }
}

/// Runs all operations of the evaluator that the host uses.
fn examine(case: &Case) {
    note(case);
    load(case);
    let program = Program::new(source(case));
    let accepted = match EVALUATOR.inspect(program.source()) {
        Ok(Ok(_)) => true,
        Ok(Err(problems)) => {
            assert!(!problems.is_empty(), "it is refused without a word");
            problems.iter().for_each(is_told);
            false
        }
        Err(_) => false,
    };
    let object: Arc<str> = case.object.to_string().into();
    if accepted {
        let mut asking = EVALUATOR.ask().unwrap();
        let first = judged(&mut asking, &program, &object);
        // In the same instance, if it still exists.
        knows(&mut asking);
        let again = judged(&mut asking, &program, &object);
        knows(&mut asking);
        assert!(alike(&first, &again), "once it is {first:?}, and once {again:?}");
    }
    let roots = || BTreeMap::from([("object".to_owned(), Arc::clone(&object)), ("oldObject".to_owned(), "null".into())]);
    let calculated = || EVALUATOR.calculate(&case.expression, roots());
    let (first, again) = (calculated(), calculated());
    assert!(alike(&first, &again), "once it is {first:?}, and once {again:?}");
    match &first {
        Ok(Ok(value)) => assert!(serde_json::from_str::<Value>(value).is_ok(), "it is not JSON: {value}"),
        Ok(Err(problem)) => is_told(problem),
        Err(_) => {}
    }
    knows(&mut EVALUATOR.ask().unwrap());
}

/// Records the next case in a file, because nothing else would survive the end of the process.
fn note(case: &Case) {
    let test = thread::current().name().unwrap_or_default().replace(':', "-");
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.last")), format!("{case:?}")).unwrap();
}

fn judged(asking: &mut Asking<'_>, program: &Program, object: &Arc<str>) -> Result<Outcome, CallError> {
    asking.bind("object", Arc::clone(object));
    asking.bind("oldObject", "null".into());
    let outcome = asking.judge(program);
    match &outcome {
        Ok(Outcome::Judged(verdicts)) => {
            assert_eq!(verdicts.len(), program.source().validations.len());
            verdicts
                .iter()
                .filter_map(|verdict| if let ValidationVerdict::Failed(problem) = verdict { Some(problem) } else { None })
                .for_each(is_told);
        }
        Ok(Outcome::Undecided(problem)) => is_told(problem),
        Ok(Outcome::Unmatched(_)) => {}
        // The evaluator has accepted it before.
        Err(error) => assert!(!matches!(error, CallError::Failed(_) | CallError::Question(_)), "{error}"),
    }
    outcome
}

fn is_told(problem: &Problem) {
    assert!((1..=LONGEST_SENTENCE).contains(&problem.message.len()), "{problem:?}");
}

/// Asserts that the evaluator still works as if it had evaluated nothing else.
fn knows(asking: &mut Asking<'_>) {
    let (program, object) = &*KNOWN;
    asking.bind("object", Arc::clone(object));
    let late = |outcome: &Result<Outcome, CallError>| matches!(outcome, Err(CallError::Busy | CallError::Deadline(_)));
    let outcome = iter::repeat_with(|| asking.judge(program)).take(TRIES).find(|outcome| !late(outcome)).unwrap().unwrap();
    let Outcome::Judged(verdicts) = outcome else { panic!("{outcome:?}") };
    let [ValidationVerdict::Holds, ValidationVerdict::Broken(Some(said)), ValidationVerdict::Failed(problem)] = &verdicts[..] else {
        panic!("{verdicts:?}")
    };
    assert_eq!((said.as_str(), problem.message.as_str()), ("only 2", "no such key: absent"));
}

/// Whether both are the same, except for limits: a case near a limit may reach it only sometimes, because an instance that has evaluated
/// before has different memory than a fresh one, and a machine may be busy.
fn alike<T: PartialEq>(one: &Result<T, CallError>, other: &Result<T, CallError>) -> bool {
    let at_a_limit = |outcome: &Result<T, CallError>| {
        matches!(outcome, Err(CallError::Busy | CallError::Deadline(_) | CallError::Memory(_) | CallError::Fuel(_)))
    };
    at_a_limit(one) || at_a_limit(other) || one == other
}

/// Otherwise the other tests would prove nothing.
#[test]
fn most_of_what_is_made_up_by_the_grammar_is_evaluated() {
    let mut runner = TestRunner::deterministic();
    let strategy = drawn(grown);
    let (mut accepted, mut judged_well) = (0, 0);
    for _ in 0..200 {
        let case = strategy.new_tree(&mut runner).unwrap().current();
        let program = Program::new(source(&case));
        if EVALUATOR.inspect(program.source()).is_ok_and(|inspected| inspected.is_ok()) {
            accepted += 1;
            let object = case.object.to_string().into();
            judged_well += usize::from(judged(&mut EVALUATOR.ask().unwrap(), &program, &object).is_ok());
        }
    }
    assert!(accepted > 100, "{accepted} of 200 are accepted");
    assert!(judged_well * 10 > accepted * 8, "{judged_well} of {accepted} end within their limits, and without a fault");
}

fn drawn(draw: fn(&mut Tape<'_>) -> Case) -> impl Strategy<Value = Case> {
    prop::collection::vec(any::<u16>(), 1..LONGEST_TAPE).prop_map(move |tape| draw(&mut Tape::new(&tape)))
}

fn cases(few: u32, many: u32) -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { many } else { few })
}

proptest! {
    #![proptest_config(cases(1000, 50_000))]

    #[test]
    fn whatever_can_be_said_ends_as_an_answer(case in drawn(grown)) {
        examine(&case);
    }
}

proptest! {
    #![proptest_config(cases(600, 35_000))]

    #[test]
    fn known_expressions_cut_and_mixed_end_as_an_answer(case in drawn(mixed)) {
        examine(&case);
    }
}

proptest! {
    #![proptest_config(cases(400, 15_000))]

    #[test]
    fn what_is_no_expression_ends_as_a_sentence(case in drawn(thrown)) {
        examine(&case);
    }
}
