//! Compiles the expressions of a rule to a form that can be evaluated.

mod build;
mod call;
mod check;
mod kind;
mod macros;
mod operator;
mod parse;
mod pattern;
mod reach;

use crate::library::regex::Pattern;
use crate::types::{ExpressionId, Path, Problem, Rule};
use cel::common::ast::IdedExpr;
use check::{Checker, Variable};
use kind::ExprType;
use parse::{Places, Position};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use check::STATE;

/// The root with the results of lookups.
const LOOKUPS: &str = "lookups";

/// A compiled rule.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) conditions: Vec<IdedExpr>,
    pub(crate) lookups: Vec<IdedExpr>,
    pub(crate) variables: Vec<(String, IdedExpr)>,
    /// Each with the expression for its message.
    pub(crate) validations: Vec<(IdedExpr, Option<IdedExpr>)>,
    /// The roots that any of its expressions reads.
    pub(crate) roots: BTreeSet<String>,
    /// The patterns that it needs, by name.
    pub(crate) patterns: BTreeMap<String, Pattern>,
}

/// A single compiled expression.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) tree: IdedExpr,
    /// The roots that it reads.
    pub(crate) roots: BTreeSet<String>,
    /// The patterns that it needs, by name.
    pub(crate) patterns: BTreeMap<String, Pattern>,
}

/// The required type of an expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Anything,
    Truth,
    Text,
}

/// The state of a rule's compilation.
struct Compiler<'a> {
    roots: &'a [String],
    variables: Vec<Variable>,
    problems: Vec<Problem>,
    /// The values that are read, if requested.
    paths: Option<Vec<Path>>,
    program: Program,
}

/// Compiles a rule.
pub(crate) fn compile(rule: &Rule) -> Result<Program, Vec<Problem>> {
    let compiler = run(rule, false);
    if compiler.problems.is_empty() { Ok(compiler.program) } else { Err(compiler.problems) }
}

/// Compiles a rule and returns the values that it reads.
pub(crate) fn inspect(rule: &Rule) -> Result<Vec<Path>, Vec<Problem>> {
    let compiler = run(rule, true);
    if compiler.problems.is_empty() { Ok(compiler.paths.unwrap_or_default()) } else { Err(compiler.problems) }
}

/// Compiles a single expression that may use these roots.
pub(crate) fn expression(roots: &[String], source: &str) -> Result<Expression, Problem> {
    let mut compiler = Compiler::new(roots, false);
    let tree = compiler.part(ExpressionId::Validation(0), source, Wanted::Anything);
    match (tree, compiler.problems.into_iter().next()) {
        (Some((tree, _)), None) => Ok(Expression { tree, roots: compiler.program.roots, patterns: compiler.program.patterns }),
        (_, Some(problem)) => Err(problem),
        (None, None) => {
            Err(Problem { part: ExpressionId::Validation(0), line: 0, column: 0, message: "the expression can't be read".to_owned() })
        }
    }
}

fn run(rule: &Rule, with_paths: bool) -> Compiler<'_> {
    let mut compiler = Compiler::new(&rule.roots, with_paths);
    // The results of lookups aren't available to the lookups themselves.
    let before: Vec<String> = rule.roots.iter().filter(|root| *root != LOOKUPS).cloned().collect();
    for (at, lookup) in rule.lookups.iter().enumerate() {
        let tree = compiler.part_with(&before, ExpressionId::Lookup(position(at)), &lookup.expression, Wanted::Anything);
        compiler.program.lookups.extend(tree.map(|(tree, _)| tree));
    }
    for (at, variable) in rule.variables.iter().enumerate() {
        compiler.variable(ExpressionId::Variable(position(at)), &variable.name, &variable.expression);
    }
    for (at, condition) in rule.conditions.iter().enumerate() {
        // In Kubernetes, conditions can't use variables. Otherwise they are the same.
        let tree = compiler.part(ExpressionId::Condition(position(at)), &condition.expression, Wanted::Truth);
        compiler.program.conditions.extend(tree.map(|(tree, _)| tree));
    }
    for (at, validation) in rule.validations.iter().enumerate() {
        let tree = compiler.part(ExpressionId::Validation(position(at)), &validation.expression, Wanted::Truth);
        let message = validation.message.as_ref();
        let message = message.and_then(|message| compiler.part(ExpressionId::Message(position(at)), message, Wanted::Text));
        compiler.program.validations.extend(tree.map(|(tree, _)| (tree, message.map(|(message, _)| message))));
    }
    compiler
}

fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl<'a> Compiler<'a> {
    fn new(roots: &'a [String], with_paths: bool) -> Self {
        Compiler { roots, variables: Vec::new(), problems: Vec::new(), paths: with_paths.then(Vec::new), program: Program::default() }
    }

    fn variable(&mut self, part: ExpressionId, name: &str, source: &str) {
        if !is_name(name) {
            self.problem(part, Position::default(), format!("'{name}' is no name for a variable"));
        } else if self.variables.iter().any(|variable| variable.name == name) {
            self.problem(part, Position::default(), format!("there is another variable '{name}'"));
        }
        if let Some((tree, variable)) = self.part(part, source, Wanted::Anything) {
            self.variables.push(Variable { name: name.to_owned(), ..variable });
            self.program.variables.push((name.to_owned(), tree));
        } else {
            // Expressions that use the variable aren't reported in addition.
            self.variables.push(Variable {
                name: name.to_owned(),
                kind: ExprType::Dyn,
                reach: reach::Reach::Unknown,
                roots: BTreeSet::new(),
                depth: 0,
            });
        }
    }

    fn problem(&mut self, part: ExpressionId, place: Position, message: String) {
        self.problems.push(Problem { part, line: place.line, column: place.column, message });
    }

    /// Compiles an expression of the rule. The data about its value is returned as a variable without a name.
    fn part(&mut self, part: ExpressionId, source: &str, wanted: Wanted) -> Option<(IdedExpr, Variable)> {
        self.part_with(self.roots, part, source, wanted)
    }

    fn part_with(&mut self, roots: &[String], part: ExpressionId, source: &str, wanted: Wanted) -> Option<(IdedExpr, Variable)> {
        let tree = match parse::parse(source) {
            Ok(tree) => tree,
            Err(problems) => {
                for (place, message) in problems {
                    self.problem(part, place, message);
                }
                return None;
            }
        };
        let mut checker = Checker::new(source, roots, &self.variables);
        checker.patterns = std::mem::take(&mut self.program.patterns);
        let checked = checker.check(tree);
        // A variable that is a path is followed at its uses.
        if !matches!(part, ExpressionId::Variable(_)) {
            checker.read(&checked);
        }
        let (mut problems, reads, used, depth) = (checker.problems, checker.reads, checker.used, checker.deepest);
        self.program.patterns = checker.patterns;
        match wanted {
            Wanted::Truth if !checked.kind.fits(&ExprType::Bool) => problems.push((checked.expr.id, "must evaluate to bool".to_owned())),
            Wanted::Text if !checked.kind.fits(&ExprType::String) => problems.push((checked.expr.id, "must evaluate to string".to_owned())),
            _ => {}
        }
        if !problems.is_empty() {
            let places = Places::locate(source);
            let mut placed: Vec<(Position, String)> = problems.into_iter().map(|(id, message)| (places.place(id), message)).collect();
            placed.sort();
            placed.dedup();
            for (place, message) in placed {
                self.problem(part, place, message);
            }
            return None;
        }
        if let Some(paths) = &mut self.paths {
            let places = Places::locate(source);
            for (id, way) in reach::longest(reads) {
                let place = places.place(id);
                paths.push(Path { part, line: place.line, column: place.column, root: way.root.to_string(), steps: way.steps });
            }
        }
        self.program.roots.extend(used.iter().cloned());
        Some((checked.expr, Variable { name: String::new(), kind: checked.kind, reach: checked.reach, roots: used, depth }))
    }
}

/// Whether a name is valid for a variable.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
