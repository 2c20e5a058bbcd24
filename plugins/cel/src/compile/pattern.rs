//! Literal regular expressions: compiled once with the rule, not at each evaluation.

use super::build;
use super::check::Checker;
use crate::library::regex::{self, Pattern};
use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};

/// The maximum number of stored patterns per rule. Further ones are compiled at each use, like patterns that an expression computes.
const KEPT: usize = 64;

impl Checker<'_> {
    /// The call with the compiled pattern in place of a literal one. An invalid pattern is reported in any case.
    pub(super) fn with_pattern(&mut self, id: u64, function: &str, tree: IdedExpr) -> IdedExpr {
        let IdedExpr { id: node, expr } = tree;
        match expr {
            Expr::Call(call) if matches!(function, "matches" | "find" | "findAll") => {
                match pattern(&call).map(|pattern| self.kept(pattern)) {
                    Some(Ok(Some(name))) => compiled(node, function, call, &name),
                    Some(Err(why)) => {
                        self.problem(id, format!("invalid matches argument: error parsing regexp: {why}"));
                        IdedExpr { id: node, expr: Expr::Call(call) }
                    }
                    _ => IdedExpr { id: node, expr: Expr::Call(call) },
                }
            }
            expr => IdedExpr { id: node, expr },
        }
    }

    /// The name of a pattern at evaluation, if it is small enough to be stored.
    fn kept(&mut self, pattern: &str) -> Result<Option<String>, String> {
        let name = regex::name(pattern);
        if self.patterns.contains_key(&name) {
            return Ok(Some(name));
        }
        if self.patterns.len() < KEPT
            && let Some(small) = Pattern::small(pattern)
        {
            self.patterns.insert(name.clone(), small);
            return Ok(Some(name));
        }
        regex::compile(pattern).map(|_| None)
    }
}

/// The pattern of a call, if it is a literal.
fn pattern(call: &CallExpr) -> Option<&str> {
    match call.args.get(1).map(|pattern| &pattern.expr) {
        Some(Expr::Literal(LiteralValue::String(pattern))) => Some(pattern.inner()),
        _ => None,
    }
}

fn compiled(id: u64, function: &str, call: CallExpr, name: &str) -> IdedExpr {
    let mut args = call.args;
    if let Some(pattern) = args.get_mut(1) {
        *pattern = build::name(pattern.id, name);
    }
    let function = format!("@{function}/{}", args.len());
    build::call(id, &function, args)
}
