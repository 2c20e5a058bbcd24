//! Macros. `cel` has already expanded those with one variable. The others are expanded here, to the same constructs.

use super::build;
use super::check::{Checked, Checker, Local};
use super::kind::{ExprType, resolve};
use super::parse::Places;
use super::reach::Reach;
use crate::error::sentence;
use crate::library;
use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::{Context, Value};

/// The original macro with one variable.
enum Single {
    /// `all`, otherwise `exists`.
    Quantifier {
        all: bool,
        condition: IdedExpr,
    },
    ExactlyOne {
        condition: IdedExpr,
    },
    /// `map` and `filter`.
    Gathered {
        condition: Option<IdedExpr>,
        element: IdedExpr,
    },
}

/// The range of a macro, with its generated name.
struct Range {
    name: String,
    expr: IdedExpr,
    /// The generated name of the first variable, by which the second is looked up.
    key: String,
}

impl Checker<'_> {
    /// Checks a macro with one variable.
    pub(super) fn comprehension(&mut self, id: u64, expanded: ComprehensionExpr) -> Checked {
        let variable = expanded.iter_var.clone();
        let range = self.used(expanded.iter_range);
        let Some(single) = single(&expanded.accu_init, expanded.loop_step) else {
            self.problem(id, "the macro isn't known");
            return Self::unknown(id);
        };
        let kind = match self.members(&range) {
            (key, _) if matches!(range.kind, ExprType::Map(..)) => key,
            (_, element) => element,
        };
        let reach = range.reach.member();
        self.locals.push(Local { name: variable.clone(), instead: None, kind, reach });
        let checked = match single {
            Single::Quantifier { all, condition } => {
                let condition = self.condition(condition, if all { operators::LOGICAL_AND } else { operators::LOGICAL_OR });
                truth(build::quantifier(id, range.expr, &variable, condition, all))
            }
            Single::ExactlyOne { condition } => {
                if Places::locate(self.source).is_after(id, "existsOne") {
                    self.problem(id, "undeclared reference to 'existsOne', did you mean 'exists_one'?");
                }
                let condition = self.condition(condition, operators::CONDITIONAL);
                truth(build::exactly_one(id, range.expr, &variable, condition))
            }
            Single::Gathered { condition, element } => {
                let condition = condition.map(|condition| self.condition(condition, operators::CONDITIONAL));
                let element = self.check(element);
                let expr = build::gathered(id, range.expr, &variable, condition, vec![element.expr]);
                Checked::new(expr, ExprType::list(element.kind), element.reach.listed())
            }
        };
        self.locals.pop();
        checked
    }

    /// The types of a range's members.
    fn members(&mut self, range: &Checked) -> (ExprType, ExprType) {
        range.kind.members().unwrap_or_else(|| {
            let message = format!("expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)", range.kind);
            self.problem(range.expr.id, message);
            (ExprType::Dyn, ExprType::Dyn)
        })
    }

    fn condition(&mut self, condition: IdedExpr, operator: &str) -> IdedExpr {
        let checked = self.used(condition);
        if !checked.kind.fits(&ExprType::Bool) {
            self.problem(checked.expr.id, format!("found no matching overload for '{operator}' applied to '(bool, {})'", checked.kind));
        }
        checked.expr
    }

    fn simple_name(&mut self, tree: &IdedExpr) -> String {
        match &tree.expr {
            Expr::Ident(name) if !name.starts_with('.') => name.clone(),
            _ => {
                self.problem(tree.id, "argument must be a simple name");
                String::new()
            }
        }
    }

    fn fresh(&mut self, what: &str) -> String {
        self.fresh += 1;
        format!("@{what}{}", self.fresh)
    }

    /// Declares the two variables of a macro.
    fn two_variables(&mut self, id: u64, target: IdedExpr, first: &IdedExpr, second: &IdedExpr) -> Range {
        let (key, value) = (self.simple_name(first), self.simple_name(second));
        if key == value && !key.is_empty() {
            self.problem(second.id, format!("duplicate variable name: {value}"));
        }
        let range = self.used(target);
        let (key_kind, value_kind) = self.members(&range);
        let (range_name, key_name) = (self.fresh("range"), self.fresh("key"));
        let found = build::call(id, operators::INDEX, vec![build::name(id, &range_name), build::name(id, &key_name)]);
        let instead = Some(build::name(id, &key_name));
        self.locals.push(Local { name: key, instead, kind: key_kind, reach: range.reach.key() });
        self.locals.push(Local { name: value, instead: Some(found), kind: value_kind, reach: range.reach.element() });
        Range { name: range_name, expr: range.expr, key: key_name }
    }

    fn forget_two(&mut self) {
        self.locals.truncate(self.locals.len().saturating_sub(2));
    }

    /// `all`, `exists` and `existsOne` with two variables.
    pub(super) fn quantifier(&mut self, id: u64, name: &str, target: IdedExpr, args: Vec<IdedExpr>) -> Checked {
        let Ok([first, second, condition]) = <[IdedExpr; 3]>::try_from(args) else {
            return Self::unknown(id);
        };
        let range = self.two_variables(id, target, &first, &second);
        let condition = self.condition(condition, operators::CONDITIONAL);
        self.forget_two();
        let keys = keys(id, &range);
        let expr = match name {
            "all" => build::quantifier(id, keys, &range.key, condition, true),
            "exists" => build::quantifier(id, keys, &range.key, condition, false),
            _ => build::exactly_one(id, keys, &range.key, condition),
        };
        truth(build::bind(id, &range.name, range.expr, expr))
    }

    /// `transformList`, `transformMap` and `transformMapEntry`.
    pub(super) fn transform(&mut self, id: u64, name: &str, target: IdedExpr, args: Vec<IdedExpr>) -> Checked {
        let mut args = args.into_iter();
        let (Some(first), Some(second), Some(third)) = (args.next(), args.next(), args.next()) else {
            return Self::unknown(id);
        };
        let range = self.two_variables(id, target, &first, &second);
        let (condition, transformed) = match args.next() {
            Some(fourth) => (Some(self.condition(third, operators::CONDITIONAL)), fourth),
            None => (None, third),
        };
        let in_list = name == "transformList";
        let element = if in_list { self.check(transformed) } else { self.used(transformed) };
        let key_kind = self.locals.iter().rev().nth(1).map_or(ExprType::Dyn, |key| key.kind.clone());
        self.forget_two();
        let added = if name == "transformMap" {
            vec![build::name(id, &range.key), element.expr, build::truth(id, false)]
        } else {
            vec![element.expr]
        };
        let gathered = build::gathered(id, keys(id, &range), &range.key, condition, added);
        let (expr, kind) = match name {
            "transformList" => (gathered, ExprType::list(element.kind)),
            "transformMap" => (build::call(id, "@map/1", vec![gathered]), ExprType::Map(key_kind.into(), element.kind.into())),
            _ => {
                if !matches!(element.kind, ExprType::Dyn | ExprType::Free | ExprType::Map(..)) {
                    self.problem(id, format!("found no matching overload for '{name}' applied to '({})'", element.kind));
                }
                (build::call(id, "@merged/1", vec![gathered]), element.kind)
            }
        };
        let reach = if in_list { element.reach.listed() } else { Reach::Unknown };
        Checked::new(build::bind(id, &range.name, range.expr, expr), kind, reach)
    }

    /// `cel.bind`.
    pub(super) fn bind(&mut self, id: u64, args: Vec<IdedExpr>) -> Checked {
        let Ok([variable, value, result]) = <[IdedExpr; 3]>::try_from(args) else {
            return Self::unknown(id);
        };
        let name = self.simple_name(&variable);
        let value = self.used(value);
        self.locals.push(Local { name: name.clone(), instead: None, kind: value.kind, reach: value.reach });
        let result = self.check(result);
        self.locals.pop();
        Checked::new(build::bind(id, &name, value.expr, result.expr), result.kind, result.reach)
    }

    /// `optMap`, whose result becomes optional, and `optFlatMap`, whose result already is.
    pub(super) fn optional_map(&mut self, id: u64, wrap: bool, target: IdedExpr, args: Vec<IdedExpr>) -> Checked {
        let Ok([variable, mapped]) = <[IdedExpr; 2]>::try_from(args) else {
            return Self::unknown(id);
        };
        let name = self.simple_name(&variable);
        let target = self.used(target);
        let content = match &target.kind {
            ExprType::Optional(content) => (**content).clone(),
            ExprType::Dyn | ExprType::Free => ExprType::Dyn,
            other => {
                self.problem(id, format!("found no matching overload for 'hasValue' applied to '{other}.()'"));
                ExprType::Dyn
            }
        };
        let optional = self.fresh("optional");
        let value = build::call(id, &library::key("value", true, 1), vec![build::name(id, &optional)]);
        self.locals.push(Local { name, instead: Some(value), kind: content, reach: target.reach });
        let mapped = self.check(mapped);
        self.locals.pop();
        if !wrap && !matches!(mapped.kind, ExprType::Dyn | ExprType::Free | ExprType::Optional(_)) {
            self.problem(id, format!("found no matching overload for 'optFlatMap': '{}' isn't optional", mapped.kind));
        }
        let (some, kind) = if wrap {
            (build::call(id, &library::key("optional.of", false, 1), vec![mapped.expr]), ExprType::optional(mapped.kind))
        } else {
            (mapped.expr, mapped.kind)
        };
        let none = build::call(id, &library::key("optional.none", false, 0), Vec::new());
        Checked::new(build::bind(id, &optional, target.expr, if_has_value(id, &optional, some, none)), kind, mapped.reach)
    }

    /// `or` and `orValue`, whose argument is evaluated only if it is needed.
    pub(super) fn otherwise(&mut self, id: u64, name: &str, target: IdedExpr, args: Vec<IdedExpr>) -> Checked {
        let Some(other) = args.into_iter().next() else {
            return Self::unknown(id);
        };
        let first = self.check(target);
        let other = self.check(other);
        let kinds = [first.kind.clone(), other.kind.clone()];
        let overloads = library::overloads(name, true).iter().flat_map(|function| function.overloads);
        let kind = resolve(overloads, &kinds).unwrap_or_else(|| {
            let [first, other] = &kinds;
            self.problem(id, format!("found no matching overload for '{name}' applied to '{first}.({other})'"));
            ExprType::Dyn
        });
        let follows = name == "orValue" && is_bare(&other.expr);
        if !follows {
            self.read(&first);
        }
        self.read(&other);
        let reach = if follows { first.reach } else { Reach::Unknown };
        if is_simple(&other.expr) {
            return Checked::new(build::call(id, &library::key(name, true, 2), vec![first.expr, other.expr]), kind, reach);
        }
        let optional = self.fresh("optional");
        let some = match name {
            "or" => build::name(id, &optional),
            _ => build::call(id, &library::key("value", true, 1), vec![build::name(id, &optional)]),
        };
        Checked::new(build::bind(id, &optional, first.expr, if_has_value(id, &optional, some, other.expr)), kind, reach)
    }

    /// `sortBy`.
    pub(super) fn sort_by(&mut self, id: u64, target: IdedExpr, args: Vec<IdedExpr>) -> Checked {
        let Ok([variable, by]) = <[IdedExpr; 2]>::try_from(args) else {
            return Self::unknown(id);
        };
        let name = self.simple_name(&variable);
        let list = self.used(target);
        let element = match &list.kind {
            ExprType::List(element) => (**element).clone(),
            ExprType::Dyn | ExprType::Free => ExprType::Dyn,
            other => {
                self.problem(id, format!("found no matching overload for 'sortBy' applied to '{other}.()'"));
                ExprType::Dyn
            }
        };
        self.locals.push(Local { name: name.clone(), instead: None, kind: element, reach: list.reach.member() });
        let by = self.used(by);
        self.locals.pop();
        if !by.kind.is_ordered() {
            self.problem(by.expr.id, format!("found no matching overload for 'sortBy' applied to '{}.({})'", list.kind, by.kind));
        }
        let bound = self.fresh("list");
        let keys = build::gathered(id, build::name(id, &bound), &name, None, vec![by.expr]);
        let sorted = build::call(id, &library::key("@sortedBy", true, 2), vec![build::name(id, &bound), keys]);
        Checked::new(build::bind(id, &bound, list.expr, sorted), list.kind, list.reach)
    }

    /// Reports errors in calls with literals: like Kubernetes, evaluates conversions and parses formats at compilation.
    pub(super) fn literals(&mut self, id: u64, name: &str, tree: &IdedExpr, values: &[ExprType]) {
        let Expr::Call(call) = &tree.expr else {
            return;
        };
        match (name, call.args.as_slice()) {
            (_, [_]) if self.problems.is_empty() && is_constant(tree) => {
                let scope = Context::with_env(crate::environment());
                if let Err(error) = Value::resolve_val(tree, &scope) {
                    self.problem(id, sentence(&error));
                }
            }
            ("format", [format, list]) => {
                if let (Some(LiteralValue::String(format)), Expr::List(_)) = (literal(format), &list.expr)
                    && let Some(why) = misfit(format.inner(), values)
                {
                    self.problem(id, why);
                }
            }
            _ => {}
        }
    }
}

/// The mismatch between a format and the types of its values.
fn misfit(format: &str, values: &[ExprType]) -> Option<String> {
    let verbs = match library::interpolation::verbs(format) {
        Ok(verbs) => verbs,
        Err(why) => return Some(why),
    };
    if verbs.len() > values.len() {
        return Some(format!("index {} out of range", values.len()));
    }
    if verbs.len() < values.len() {
        return Some(format!("too many arguments supplied to string.format (expected {}, got {})", verbs.len(), values.len()));
    }
    let wrong = verbs.iter().zip(values).find(|(verb, kind)| !kind.can_be_formatted(**verb));
    wrong.map(|(verb, kind)| format!("error during formatting: %{verb} can't be used on {kind}"))
}

/// Whether the tree is a literal, or a conversion of one.
fn is_constant(tree: &IdedExpr) -> bool {
    const CONVERSIONS: [&str; 9] = ["bool/1", "bytes/1", "double/1", "duration/1", "dyn/1", "int/1", "string/1", "timestamp/1", "uint/1"];
    match &tree.expr {
        Expr::Literal(_) => true,
        Expr::Call(call) => CONVERSIONS.contains(&call.func_name.as_str()) && call.args.iter().all(is_constant),
        _ => false,
    }
}

fn single(init: &IdedExpr, step: IdedExpr) -> Option<Single> {
    let Expr::Call(step) = step.expr else {
        return None;
    };
    let name = step.func_name;
    let mut args = step.args.into_iter();
    let (first, second) = (args.next()?, args.next()?);
    match &init.expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Some(Single::Quantifier { all: name == operators::LOGICAL_AND, condition: second }),
        Expr::Literal(LiteralValue::Int(_)) => Some(Single::ExactlyOne { condition: first }),
        Expr::List(_) if name == operators::CONDITIONAL => Some(Single::Gathered { condition: Some(first), element: added(second)? }),
        Expr::List(_) => Some(Single::Gathered { condition: None, element: only(second)? }),
        _ => None,
    }
}

/// The addend of an accumulated sum.
fn added(sum: IdedExpr) -> Option<IdedExpr> {
    let Expr::Call(call) = sum.expr else {
        return None;
    };
    call.args.into_iter().nth(1).and_then(only)
}

fn only(list: IdedExpr) -> Option<IdedExpr> {
    let Expr::List(list) = list.expr else {
        return None;
    };
    list.elements.into_iter().next()
}

fn truth(expr: IdedExpr) -> Checked {
    Checked::new(expr, ExprType::Bool, Reach::Unknown)
}

fn keys(id: u64, range: &Range) -> IdedExpr {
    build::call(id, "@keys/1", vec![build::name(id, &range.name)])
}

fn if_has_value(id: u64, optional: &str, then: IdedExpr, otherwise: IdedExpr) -> IdedExpr {
    let has_value = build::call(id, &library::key("hasValue", true, 1), vec![build::name(id, optional)]);
    build::call(id, operators::CONDITIONAL, vec![has_value, then, otherwise])
}

fn literal(tree: &IdedExpr) -> Option<&LiteralValue> {
    match &tree.expr {
        Expr::Literal(value) => Some(value),
        _ => None,
    }
}

/// Whether a value contains nothing that a path could continue into.
fn is_bare(tree: &IdedExpr) -> bool {
    match &tree.expr {
        Expr::Literal(_) => true,
        Expr::List(list) => list.elements.is_empty(),
        Expr::Call(call) if call.func_name == "@map/1" => call.args.iter().all(is_bare),
        _ => false,
    }
}

/// Whether the evaluation is free and can't fail.
fn is_simple(tree: &IdedExpr) -> bool {
    match &tree.expr {
        Expr::Literal(_) | Expr::Ident(_) => true,
        Expr::List(list) => list.elements.iter().all(is_simple),
        Expr::Call(call) if call.func_name == "@map/1" || call.args.is_empty() => call.args.iter().all(is_bare),
        _ => false,
    }
}
