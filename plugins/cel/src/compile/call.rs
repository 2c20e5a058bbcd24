//! Checks calls: of operators, of functions, and of macros that haven't been expanded.

use super::build;
use super::check::{Checked, Checker, ONE_BY_ONE, qualified, selected, with_hint};
use super::kind::{ExprType, resolve};
use super::operator;
use super::parse::dismantle;
use super::reach::Reach;
use crate::error::nearest;
use crate::library;
use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

impl Checker<'_> {
    /// Checks any call.
    pub(super) fn call(&mut self, id: u64, call: CallExpr) -> Checked {
        let CallExpr { func_name: name, target, args } = call;
        let Some(target) = target else {
            return match name.as_str() {
                operators::OPT_SELECT => self.optional_select(id, args),
                operators::INDEX | operators::OPT_INDEX => self.index(id, &name, args),
                _ if operator::is_operator(&name) => self.operator(id, &name, args),
                _ => self.function(id, &name, None, args),
            };
        };
        if let Some(qualifier) = qualified(&target)
            && !self.is_value(qualifier.split('.').next().unwrap_or_default())
        {
            let full = format!("{qualifier}.{name}");
            if full == "cel.bind" && args.len() == 3 {
                return self.bind(id, args);
            }
            if !library::overloads(&full, false).is_empty() {
                return self.function(id, &full, None, args);
            }
            let namespace = format!("{qualifier}.");
            if library::names(false).any(|known| known.starts_with(&namespace)) {
                let hint = nearest(&full, library::names(false));
                self.problem(id, with_hint(format!("undeclared reference to '{full}'"), hint));
                return Self::unknown(id);
            }
        }
        match (name.as_str(), args.len()) {
            ("all" | "exists" | "existsOne" | "exists_one", 3) => self.quantifier(id, &name, *target, args),
            ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => self.transform(id, &name, *target, args),
            ("optMap" | "optFlatMap", 2) => self.optional_map(id, name == "optMap", *target, args),
            ("sortBy", 2) => self.sort_by(id, *target, args),
            ("or" | "orValue", 1) => self.otherwise(id, &name, *target, args),
            _ => self.function(id, &name, Some(*target), args),
        }
    }

    fn optional_select(&mut self, id: u64, args: Vec<IdedExpr>) -> Checked {
        let Ok([operand, field]) = <[IdedExpr; 2]>::try_from(args) else {
            return Self::unknown(id);
        };
        if self.is_variables(&operand)
            && let Expr::Literal(LiteralValue::String(name)) = &field.expr
        {
            return self.optional_variable(id, name.inner());
        }
        let operand = self.check(operand);
        let content = match &operand.kind {
            ExprType::Optional(content) => selected(content),
            kind => selected(kind),
        };
        let Some(content) = content else {
            self.problem(id, format!("type '{}' does not support field selection", operand.kind));
            return Self::unknown(id);
        };
        let reach = match &field.expr {
            Expr::Literal(LiteralValue::String(name)) => operand.reach.field(name.inner()),
            _ => Reach::Unknown,
        };
        if reach == Reach::Unknown {
            self.read(&operand);
        }
        Checked::new(build::call(id, "@optional/2", vec![operand.expr, field]), ExprType::optional(content), reach)
    }

    fn index(&mut self, id: u64, name: &str, args: Vec<IdedExpr>) -> Checked {
        let Ok([operand, index]) = <[IdedExpr; 2]>::try_from(args) else {
            return Self::unknown(id);
        };
        if self.is_variables(&operand) {
            return self.indexed_variable(id, name, index);
        }
        let operand = self.check(operand);
        let index = self.used(index);
        let reach = match &index.expr.expr {
            Expr::Literal(LiteralValue::String(name)) => operand.reach.field(name.inner()),
            _ => operand.reach.element(),
        };
        if reach == Reach::Unknown {
            self.read(&operand);
        }
        let kinds = [operand.kind, index.kind];
        let kind = self.result(id, name, operator::result(name, &kinds), &kinds, false);
        let name = if name == operators::OPT_INDEX { "@optional/2" } else { name };
        Checked::new(build::call(id, name, vec![operand.expr, index.expr]), kind, reach)
    }

    /// A variable by an index, which must be a literal name.
    fn indexed_variable(&mut self, id: u64, operator: &str, index: IdedExpr) -> Checked {
        let Expr::Literal(LiteralValue::String(name)) = &index.expr else {
            self.problem(id, ONE_BY_ONE);
            dismantle(index);
            return Self::unknown(id);
        };
        if operator == operators::OPT_INDEX {
            return self.optional_variable(id, name.inner());
        }
        self.variable(id, name.inner()).unwrap_or_else(|| Self::unknown(id))
    }

    fn operator(&mut self, id: u64, name: &str, args: Vec<IdedExpr>) -> Checked {
        let checked: Vec<Checked> = args.into_iter().map(|arg| self.used(arg)).collect();
        let kinds: Vec<ExprType> = checked.iter().map(|arg| arg.kind.clone()).collect();
        let kind = self.result(id, name, operator::result(name, &kinds), &kinds, false);
        // The right operand may be a map, which `cel` would append to a list, although maps have no sum.
        let unsure = |kind: &ExprType, other: fn(&ExprType) -> bool| *kind == ExprType::Dyn || other(kind);
        let name = match kinds.as_slice() {
            [one, other]
                if name == operators::ADD
                    && unsure(one, |kind| matches!(kind, ExprType::List(_)))
                    && unsure(other, |kind| matches!(kind, ExprType::Map(..))) =>
            {
                "@add/2"
            }
            // Only in this case can a value of Kubernetes' types be compared with one of another type.
            [ExprType::Dyn, _] if name == operators::EQUALS && checked.first().is_some_and(|one| is_call(&one.expr, "dyn/1")) => "@same/2",
            _ => name,
        };
        Checked::new(build::call(id, name, checked.into_iter().map(|arg| arg.expr).collect()), kind, Reach::Unknown)
    }

    /// Checks the call of a global function or of a member.
    pub(super) fn function(&mut self, id: u64, name: &str, target: Option<IdedExpr>, args: Vec<IdedExpr>) -> Checked {
        let member = target.is_some();
        let functions = library::overloads(name, member);
        let first = target.map(|target| self.check(target));
        self.exempt += usize::from(member && name == "format");
        let rest: Vec<Checked> = args.into_iter().map(|arg| self.used(arg)).collect();
        self.exempt -= usize::from(member && name == "format");
        let (reach, follows) = first.as_ref().map_or((Reach::Unknown, false), |first| followed(name, first, &rest));
        if !follows {
            self.reads.extend(first.iter().filter_map(|first| first.reach.read().map(|way| (first.expr.id, way.clone()))));
        }
        let dynamic = !member && name == "dyn";
        let reach = if dynamic { rest.first().map(|arg| arg.reach.clone()).unwrap_or_default() } else { reach };
        let arguments: Vec<Checked> = first.into_iter().chain(rest).collect();
        let kinds: Vec<ExprType> = arguments.iter().map(|arg| arg.kind.clone()).collect();
        let known = !functions.is_empty() || !library::overloads(name, !member).is_empty();
        if !known {
            let hint = nearest(name, library::names(member).chain(["has", "all", "exists", "exists_one", "map", "filter"]));
            self.problem(id, with_hint(format!("undeclared reference to '{name}'"), hint));
            return Self::unknown(id);
        }
        let overloads = functions.iter().flat_map(|function| function.overloads);
        let kind = self.result(id, name, resolve(overloads, &kinds), &kinds, member);
        let kind = match (name, kinds.as_slice()) {
            ("sort", [list]) if member => list.clone(),
            ("type", [of]) if !member => ExprType::Type(of.clone().into()),
            _ => kind,
        };
        let values = arguments.get(1).map(|values| values.elements.clone()).unwrap_or_default();
        let key = library::key(name, member, arguments.len());
        let expr = build::call(id, &key, arguments.into_iter().map(|arg| arg.expr).collect());
        self.literals(id, name, &expr, &values);
        Checked::new(self.with_pattern(id, name, expr), kind, reach)
    }

    /// The type of the result. If there is none, reports that no overload accepts these types.
    fn result(&mut self, id: u64, name: &str, found: Option<ExprType>, kinds: &[ExprType], member: bool) -> ExprType {
        found.unwrap_or_else(|| {
            let list = |kinds: &[ExprType]| kinds.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ");
            let applied = match kinds.split_first() {
                Some((target, rest)) if member => format!("{target}.({})", list(rest)),
                _ => format!("({})", list(kinds)),
            };
            self.problem(id, format!("found no matching overload for '{name}' applied to '{applied}'"));
            ExprType::Dyn
        })
    }
}

/// The origin of a member function's result, and whether the result is a part of the value.
fn followed(name: &str, first: &Checked, rest: &[Checked]) -> (Reach, bool) {
    match (name, rest) {
        ("value", []) if matches!(first.kind, ExprType::Optional(_) | ExprType::Dyn) => (first.reach.clone(), true),
        ("sort" | "reverse" | "distinct", []) | ("slice", [_, _]) => (first.reach.clone(), false),
        ("first" | "last", []) => (first.reach.element(), first.reach.element() != Reach::Unknown),
        _ => (Reach::Unknown, false),
    }
}

fn is_call(tree: &IdedExpr, function: &str) -> bool {
    matches!(&tree.expr, Expr::Call(call) if call.func_name == function)
}
