//! Checks an expression as Kubernetes' checker does: names, arguments, and types as far as they are known. The result is evaluated. It is
//! equivalent, but has fewer constructs: names are resolved once here, not at every evaluation, and every call is a call by name.

use super::build;
use super::kind::ExprType;
use super::parse::{TOO_DEEP, dismantle};
use super::reach::{Reach, Way};
use crate::error::nearest;
use crate::library::regex::Pattern;
use crate::library::{TYPES, key};
use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue, SelectExpr, operators};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum depth of a tree. The evaluator's stack limits it.
const DEEPEST: usize = 128;

/// The additional depth of reading a variable.
const READING: usize = 3;

/// The name of the variables in rules.
const VARIABLES: &str = "variables";

/// The name of the variables at evaluation. A macro can't shadow it.
pub(crate) const STATE: &str = "@variables";

/// The error for variables that are used as one value.
pub(super) const ONE_BY_ONE: &str = "variables are read one by one: write variables.NAME";

/// A variable that an expression may use.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) kind: ExprType,
    pub(crate) reach: Reach,
    /// The roots that it needs.
    pub(crate) roots: BTreeSet<String>,
    /// The depth of its evaluation, including the variables that it reads.
    pub(crate) depth: usize,
}

/// A checked part of an expression.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) expr: IdedExpr,
    pub(crate) kind: ExprType,
    pub(crate) reach: Reach,
    /// For a list literal, the type of each element.
    pub(crate) elements: Vec<ExprType>,
}

/// A name that a macro has declared.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) name: String,
    /// The expression that replaces it, if it isn't a variable at evaluation.
    pub(crate) instead: Option<IdedExpr>,
    pub(crate) kind: ExprType,
    pub(crate) reach: Reach,
}

impl Checked {
    /// Not for list literals.
    pub(super) fn new(expr: IdedExpr, kind: ExprType, reach: Reach) -> Self {
        Checked { expr, kind, reach, elements: Vec::new() }
    }
}

/// The state and the findings of one expression.
#[derive(Debug)]
pub(crate) struct Checker<'a> {
    pub(super) source: &'a str,
    roots: &'a [String],
    variables: &'a [Variable],
    pub(super) locals: Vec<Local>,
    pub(super) problems: Vec<(u64, String)>,
    pub(super) reads: Vec<(u64, Way)>,
    /// The roots that it needs.
    pub(super) used: BTreeSet<String>,
    /// The compiled patterns, by their names at evaluation.
    pub(super) patterns: BTreeMap<String, Pattern>,
    pub(super) fresh: usize,
    /// The number of enclosing arguments whose lists may have mixed elements.
    pub(super) exempt: usize,
    depth: usize,
    /// The maximum depth so far.
    pub(super) deepest: usize,
}

impl<'a> Checker<'a> {
    /// A checker that knows these names.
    pub(crate) fn new(source: &'a str, roots: &'a [String], variables: &'a [Variable]) -> Self {
        Checker {
            source,
            roots,
            variables,
            locals: Vec::new(),
            problems: Vec::new(),
            reads: Vec::new(),
            used: BTreeSet::new(),
            patterns: BTreeMap::new(),
            fresh: 0,
            exempt: 0,
            depth: 0,
            deepest: 0,
        }
    }

    /// Checks a tree.
    pub(crate) fn check(&mut self, tree: IdedExpr) -> Checked {
        if !self.reaches(tree.id, 1) {
            let id = tree.id;
            dismantle(tree);
            return Checked::new(build::literal(id, LiteralValue::Null), ExprType::Dyn, Reach::Unknown);
        }
        self.depth += 1;
        let checked = self.node(tree);
        self.depth -= 1;
        checked
    }

    /// Whether this additional depth is allowed here.
    fn reaches(&mut self, id: u64, more: usize) -> bool {
        self.deepest = self.deepest.max(self.depth + more);
        if self.depth + more > DEEPEST && !self.problems.iter().any(|(_, message)| message == TOO_DEEP) {
            self.problem(id, TOO_DEEP);
        }
        self.depth + more <= DEEPEST
    }

    /// Checks a tree whose value is used but not followed further.
    pub(super) fn used(&mut self, tree: IdedExpr) -> Checked {
        let checked = self.check(tree);
        self.read(&checked);
        checked
    }

    /// Records that a value is read.
    pub(super) fn read(&mut self, checked: &Checked) {
        self.reads.extend(checked.reach.read().map(|way| (checked.expr.id, way.clone())));
    }

    pub(super) fn problem(&mut self, id: u64, message: impl Into<String>) {
        self.problems.push((id, crate::error::bounded(message.into())));
    }

    /// A placeholder for an invalid part. It matches every type, so the part causes no further errors.
    pub(super) fn unknown(id: u64) -> Checked {
        Checked::new(build::literal(id, LiteralValue::Null), ExprType::Dyn, Reach::Unknown)
    }

    fn node(&mut self, tree: IdedExpr) -> Checked {
        let id = tree.id;
        match tree.expr {
            Expr::Literal(value) => {
                let kind = kind_of(&value);
                Checked::new(build::literal(id, value), kind, Reach::Unknown)
            }
            Expr::Ident(name) => self.name(id, &name),
            Expr::Select(select) => self.select(id, select),
            Expr::Call(call) => self.call(id, call),
            Expr::List(list) => self.list(id, list),
            Expr::Map(map) => self.map(id, map.entries),
            Expr::Comprehension(comprehension) => self.comprehension(id, *comprehension),
            Expr::Struct(message) => {
                self.problem(id, format!("undeclared reference to '{}': rules make no objects", message.type_name));
                Self::unknown(id)
            }
            Expr::Unspecified => {
                self.problem(id, "the expression can't be read");
                Self::unknown(id)
            }
        }
    }

    fn name(&mut self, id: u64, written: &str) -> Checked {
        let name = undotted(written);
        if let Some(local) = self.local(name) {
            let (kind, reach) = (local.kind.clone(), local.reach.clone());
            let expr = local.instead.clone().unwrap_or_else(|| build::name(id, name));
            return Checked::new(IdedExpr { id, ..expr }, kind, reach);
        }
        if self.roots.iter().any(|root| root == name) {
            self.used.insert(name.to_owned());
            return Checked::new(build::name(id, name), ExprType::Dyn, Reach::At(Way::root(name)));
        }
        if name == VARIABLES {
            // A value that contains all variables could contain itself.
            self.problem(id, ONE_BY_ONE);
            return Self::unknown(id);
        }
        if let Some(kind) = named_type(name) {
            return Checked::new(build::name(id, name), kind, Reach::Unknown);
        }
        self.problem(id, self.undeclared(name));
        Self::unknown(id)
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    /// Whether a name refers to a value.
    pub(super) fn is_value(&self, name: &str) -> bool {
        self.local(name).is_some() || self.roots.iter().any(|root| root == name) || name == VARIABLES
    }

    fn undeclared(&self, name: &str) -> String {
        if name == "authorizer" {
            return "authorizer isn't offered: rules see objects, and not what somebody may do".to_owned();
        }
        if name == "Object" || name == "JSONPatch" {
            return format!("{name} isn't offered: rules change nothing");
        }
        let known = self.roots.iter().map(String::as_str).chain(self.locals.iter().map(|local| local.name.as_str()));
        let known = known.chain([VARIABLES]).filter(|known| !known.starts_with('@'));
        with_hint(format!("undeclared reference to '{name}'"), nearest(name, known))
    }

    fn select(&mut self, id: u64, select: SelectExpr) -> Checked {
        let SelectExpr { operand, field, test } = select;
        if !test && let Some((name, kind)) = self.type_name(&operand, &field) {
            return Checked::new(build::name(id, &name), kind, Reach::Unknown);
        }
        if self.is_variables(&operand) {
            return match self.variable(id, &field) {
                Some(_) if test => Checked::new(build::truth(id, true), ExprType::Bool, Reach::Unknown),
                Some(variable) => variable,
                None => Self::unknown(id),
            };
        }
        let operand = self.check(*operand);
        let found = match &operand.kind {
            ExprType::Optional(content) => selected(content).map(ExprType::optional),
            kind => selected(kind),
        };
        let Some(kind) = found else {
            self.problem(id, format!("type '{}' does not support field selection", operand.kind));
            return Self::unknown(id);
        };
        let reach = operand.reach.field(&field);
        if reach == Reach::Unknown {
            self.read(&operand);
        }
        if test {
            let expr = build::call(id, "@has/2", vec![operand.expr, build::text(id, field)]);
            self.reads.extend(reach.read().map(|way| (id, way.clone())));
            return Checked::new(expr, ExprType::Bool, Reach::Unknown);
        }
        Checked::new(build::call(id, operators::INDEX, vec![operand.expr, build::text(id, field)]), kind, reach)
    }

    /// Whether a tree refers to the variables as a whole, from which one can be selected.
    pub(super) fn is_variables(&self, tree: &IdedExpr) -> bool {
        matches!(&tree.expr, Expr::Ident(name) if undotted(name) == VARIABLES) && self.local(VARIABLES).is_none()
    }

    /// The variable with that name, if it is declared before this point.
    pub(super) fn variable(&mut self, id: u64, name: &str) -> Option<Checked> {
        let Some(variable) = self.variables.iter().find(|variable| variable.name == name) else {
            let hint = nearest(name, self.variables.iter().map(|variable| variable.name.as_str()));
            self.problem(id, with_hint(format!("undefined field '{name}'"), hint));
            return None;
        };
        self.used.extend(variable.roots.iter().cloned());
        self.reaches(id, variable.depth + READING);
        let expr = build::call(id, operators::INDEX, vec![build::name(id, STATE), build::text(id, name.to_owned())]);
        Some(Checked::new(expr, variable.kind.clone(), variable.reach.clone()))
    }

    /// The same as an optional value: the variable's existence is known at compilation.
    pub(super) fn optional_variable(&mut self, id: u64, name: &str) -> Checked {
        let Some(variable) = self.variable(id, name) else {
            return Self::unknown(id);
        };
        let expr = build::call(id, &key("optional.of", false, 1), vec![variable.expr]);
        Checked::new(expr, ExprType::optional(variable.kind), variable.reach)
    }

    /// The type that a selection names, such as `google.protobuf.Duration`.
    fn type_name(&self, operand: &IdedExpr, field: &str) -> Option<(String, ExprType)> {
        let qualifier = qualified(operand)?;
        let root = qualifier.split('.').next().unwrap_or_default();
        let name = format!("{qualifier}.{field}");
        if self.is_value(root) { None } else { named_type(&name).map(|kind| (name, kind)) }
    }

    fn list(&mut self, id: u64, list: ListExpr) -> Checked {
        let mut element: Option<ExprType> = None;
        let mut elements = Vec::with_capacity(list.elements.len());
        let mut kinds = Vec::with_capacity(list.elements.len());
        for (at, tree) in list.elements.into_iter().enumerate() {
            let checked = self.used(tree);
            let kind = self.content(&checked, list.optional_indices.contains(&at));
            kinds.push(kind.clone());
            element = Some(self.alike(checked.expr.id, element, kind));
            elements.push(checked.expr);
        }
        let expr = Expr::List(ListExpr { elements, optional_indices: list.optional_indices });
        let kind = ExprType::list(element.unwrap_or(ExprType::Free));
        Checked { elements: kinds, ..Checked::new(IdedExpr { id, expr }, kind, Reach::Unknown) }
    }

    fn map(&mut self, id: u64, entries: Vec<IdedEntryExpr>) -> Checked {
        let (mut key, mut value): (Option<ExprType>, Option<ExprType>) = (None, None);
        let mut parts = Vec::with_capacity(entries.len() * 3);
        for entry in entries {
            let EntryExpr::MapEntry(entry) = entry.expr else {
                continue;
            };
            let (own_key, own_value) = (self.used(entry.key), self.used(entry.value));
            let kind = self.content(&own_value, entry.optional);
            key = Some(self.alike(own_key.expr.id, key, own_key.kind));
            value = Some(self.alike(own_value.expr.id, value, kind));
            parts.extend([own_key.expr, own_value.expr, build::literal(id, LiteralValue::Boolean(entry.optional.into()))]);
        }
        let kind = ExprType::Map(key.unwrap_or(ExprType::Free).into(), value.unwrap_or(ExprType::Free).into());
        Checked::new(build::call(id, "@map/1", vec![build::list(id, parts)]), kind, Reach::Unknown)
    }

    /// The type of a literal's element, or of the content of an optional element.
    fn content(&mut self, element: &Checked, optional: bool) -> ExprType {
        match &element.kind {
            kind if !optional => kind.clone(),
            ExprType::Optional(content) => (**content).clone(),
            ExprType::Dyn | ExprType::Free => ExprType::Dyn,
            other => {
                self.problem(element.expr.id, format!("expected type 'optional_type({other})' but found '{other}'"));
                other.clone()
            }
        }
    }

    /// All elements of a literal have the same type, except for the arguments of a format.
    fn alike(&mut self, id: u64, known: Option<ExprType>, kind: ExprType) -> ExprType {
        match known {
            Some(known) if self.exempt > 0 || known.is_same(&kind) => known.or(&kind),
            Some(known) => {
                self.problem(id, format!("expected type '{known}' but found '{kind}'"));
                known
            }
            None => kind,
        }
    }
}

/// A name without its leading dot. The dot refers to the outermost container, of which rules have none, but it doesn't escape a macro.
fn undotted(name: &str) -> &str {
    name.strip_prefix('.').unwrap_or(name)
}

/// The result type of selecting a field; none if the type has no fields.
pub(super) fn selected(kind: &ExprType) -> Option<ExprType> {
    match kind {
        ExprType::Dyn | ExprType::Free => Some(ExprType::Dyn),
        ExprType::Map(_, value) => Some((**value).clone()),
        _ => None,
    }
}

/// The type with this name.
fn named_type(name: &str) -> Option<ExprType> {
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, declared)| ExprType::Type(ExprType::instantiate(declared, None).into()))
}

/// A qualified name as written: `a.b.c`.
pub(super) fn qualified(tree: &IdedExpr) -> Option<String> {
    match &tree.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => qualified(&select.operand).map(|operand| format!("{operand}.{}", select.field)),
        _ => None,
    }
}

pub(super) fn with_hint(message: String, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{message}, did you mean '{hint}'?"),
        None => message,
    }
}

fn kind_of(value: &LiteralValue) -> ExprType {
    match value {
        LiteralValue::Boolean(_) => ExprType::Bool,
        LiteralValue::Bytes(_) => ExprType::Bytes,
        LiteralValue::Double(_) => ExprType::Double,
        LiteralValue::Int(_) => ExprType::Int,
        LiteralValue::Null => ExprType::Null,
        LiteralValue::String(_) => ExprType::String,
        LiteralValue::UInt(_) => ExprType::Uint,
    }
}
