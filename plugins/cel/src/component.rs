//! The component: implements wit/evaluator.wit with the library. An instance has one evaluator.
#![allow(
    unsafe_code,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "most is generated: it lifts and lowers values across the component's boundary, which takes raw pointers"
)]

use crate::Evaluator;
use exports::pointsman::cel::types as wire;
use std::cell::RefCell;

wit_bindgen::generate!({ path: "wit", world: "cel" });

thread_local! {
    static EVALUATOR: RefCell<Evaluator> = RefCell::new(Evaluator::default());
}

struct Component;

impl exports::pointsman::cel::evaluator::Guest for Component {
    fn inspect(rule: wire::Rule) -> Result<Vec<wire::Path>, Vec<wire::Problem>> {
        let inspected = EVALUATOR.with_borrow(|evaluator| evaluator.inspect(&ours(rule)));
        inspected.map(|paths| paths.into_iter().map(path).collect()).map_err(problems)
    }

    fn load(rule: wire::Rule) -> Result<u32, Vec<wire::Problem>> {
        EVALUATOR.with_borrow_mut(|evaluator| evaluator.load(&ours(rule))).map_err(problems)
    }

    fn bind(roots: Vec<(String, String)>) -> Result<(), String> {
        EVALUATOR.with_borrow_mut(|evaluator| evaluator.bind(roots));
        Ok(())
    }

    fn evaluate(rule: u32) -> wire::Outcome {
        match EVALUATOR.with_borrow_mut(|evaluator| evaluator.evaluate(rule)) {
            crate::Outcome::Unmatched(condition) => wire::Outcome::Unmatched(condition),
            crate::Outcome::Undecided(undecided) => wire::Outcome::Undecided(problem(undecided)),
            crate::Outcome::Judged(verdicts) => wire::Outcome::Judged(verdicts.into_iter().map(verdict).collect()),
        }
    }

    fn look_up(rule: u32, lookup: u32) -> Result<String, wire::Problem> {
        EVALUATOR.with_borrow_mut(|evaluator| evaluator.look_up(rule, lookup)).map_err(problem)
    }

    fn calculate(expression: String) -> Result<String, wire::Problem> {
        EVALUATOR.with_borrow_mut(|evaluator| evaluator.calculate(&expression)).map_err(problem)
    }
}

fn ours(rule: wire::Rule) -> crate::Rule {
    let named = |named: wire::Named| crate::Named { name: named.name, expression: named.expression };
    let validation = |validation: wire::Validation| crate::Validation { expression: validation.expression, message: validation.message };
    crate::Rule {
        roots: rule.roots,
        conditions: rule.conditions.into_iter().map(named).collect(),
        lookups: rule.lookups.into_iter().map(named).collect(),
        variables: rule.variables.into_iter().map(named).collect(),
        validations: rule.validations.into_iter().map(validation).collect(),
    }
}

fn part(part: crate::ExpressionId) -> wire::Part {
    match part {
        crate::ExpressionId::Condition(at) => wire::Part::Condition(at),
        crate::ExpressionId::Lookup(at) => wire::Part::Lookup(at),
        crate::ExpressionId::Variable(at) => wire::Part::Variable(at),
        crate::ExpressionId::Validation(at) => wire::Part::Validation(at),
        crate::ExpressionId::Message(at) => wire::Part::Message(at),
    }
}

fn problem(problem: crate::Problem) -> wire::Problem {
    wire::Problem { part: part(problem.part), line: problem.line, column: problem.column, message: problem.message }
}

fn problems(problems: Vec<crate::Problem>) -> Vec<wire::Problem> {
    problems.into_iter().map(problem).collect()
}

fn path(path: crate::Path) -> wire::Path {
    let step = |step| match step {
        crate::Step::Field(name) => wire::Step::Field(name),
        crate::Step::Element => wire::Step::Element,
        crate::Step::Key => wire::Step::Key,
    };
    wire::Path {
        part: part(path.part),
        line: path.line,
        column: path.column,
        root: path.root,
        steps: path.steps.into_iter().map(step).collect(),
    }
}

fn verdict(verdict: crate::Verdict) -> wire::Verdict {
    match verdict {
        crate::Verdict::Holds => wire::Verdict::Holds,
        crate::Verdict::Broken(message) => wire::Verdict::Broken(message),
        crate::Verdict::Failed(failed) => wire::Verdict::Failed(problem(failed)),
    }
}

export!(Component);
