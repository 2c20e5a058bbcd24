//! Builds nodes of a tree.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators};

/// The name of a macro's accumulator.
pub(super) const RESULT: &str = "@result";

pub(super) fn literal(id: u64, value: LiteralValue) -> IdedExpr {
    IdedExpr { id, expr: Expr::Literal(value) }
}

pub(super) fn truth(id: u64, value: bool) -> IdedExpr {
    literal(id, LiteralValue::Boolean(value.into()))
}

pub(super) fn text(id: u64, text: String) -> IdedExpr {
    literal(id, LiteralValue::String(text.into()))
}

pub(super) fn name(id: u64, name: &str) -> IdedExpr {
    IdedExpr { id, expr: Expr::Ident(name.to_owned()) }
}

pub(super) fn call(id: u64, function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) }
}

pub(super) fn list(id: u64, elements: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::List(ListExpr::new(elements)) }
}

/// Binds a name to a value in an expression: a loop over an empty list.
pub(super) fn bind(id: u64, variable: &str, value: IdedExpr, result: IdedExpr) -> IdedExpr {
    comprehension(
        id,
        ComprehensionExpr {
            iter_range: list(id, Vec::new()),
            iter_var: "@unused".to_owned(),
            iter_var2: None,
            accu_var: variable.to_owned(),
            accu_init: value,
            loop_cond: truth(id, false),
            loop_step: name(id, variable),
            result,
        },
    )
}

/// `exists` or `all`, in the expanded form that the evaluator recognises.
pub(super) fn quantifier(id: u64, range: IdedExpr, variable: &str, condition: IdedExpr, all: bool) -> IdedExpr {
    let result = name(id, RESULT);
    let undecided = if all { result.clone() } else { call(id, operators::LOGICAL_NOT, vec![result.clone()]) };
    comprehension(
        id,
        ComprehensionExpr {
            iter_range: range,
            iter_var: variable.to_owned(),
            iter_var2: None,
            accu_var: RESULT.to_owned(),
            accu_init: truth(id, all),
            loop_cond: call(id, operators::NOT_STRICTLY_FALSE, vec![undecided]),
            loop_step: call(id, if all { operators::LOGICAL_AND } else { operators::LOGICAL_OR }, vec![result.clone(), condition]),
            result,
        },
    )
}

/// Whether the condition is true for exactly one element.
pub(super) fn exactly_one(id: u64, range: IdedExpr, variable: &str, condition: IdedExpr) -> IdedExpr {
    let one = literal(id, LiteralValue::Int(1.into()));
    let counted = call(id, operators::ADD, vec![name(id, RESULT), one.clone()]);
    comprehension(
        id,
        ComprehensionExpr {
            iter_range: range,
            iter_var: variable.to_owned(),
            iter_var2: None,
            accu_var: RESULT.to_owned(),
            accu_init: literal(id, LiteralValue::Int(0.into())),
            loop_cond: truth(id, true),
            loop_step: call(id, operators::CONDITIONAL, vec![condition, counted, name(id, RESULT)]),
            result: call(id, operators::EQUALS, vec![name(id, RESULT), one]),
        },
    )
}

/// A list of the values that each iteration adds, for the iterations in which a condition is true.
pub(super) fn gathered(id: u64, range: IdedExpr, variable: &str, condition: Option<IdedExpr>, added: Vec<IdedExpr>) -> IdedExpr {
    let result = name(id, RESULT);
    let added = call(id, operators::ADD, vec![result.clone(), list(id, added)]);
    comprehension(
        id,
        ComprehensionExpr {
            iter_range: range,
            iter_var: variable.to_owned(),
            iter_var2: None,
            accu_var: RESULT.to_owned(),
            accu_init: list(id, Vec::new()),
            loop_cond: truth(id, true),
            loop_step: match condition {
                Some(condition) => call(id, operators::CONDITIONAL, vec![condition, added, result.clone()]),
                None => added,
            },
            result,
        },
    )
}

fn comprehension(id: u64, comprehension: ComprehensionExpr) -> IdedExpr {
    IdedExpr { id, expr: Expr::Comprehension(Box::new(comprehension)) }
}
