//! Evaluates compiled rules.

use crate::compile::{Program, STATE};
use crate::error::no_overload;
use crate::types::{ExpressionId, Outcome, Problem, Verdict};
use crate::value::Owned;
use cel::common::ast::IdedExpr;
use cel::common::traits::Indexer;
use cel::common::types::{CelBool, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{Context, ExecutionError, Value};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The scope of an evaluation. Its roots are bound and borrow nothing.
pub(crate) type Scope = Context<'static, 'static>;

/// The maximum length of a message, in bytes. Kubernetes ignores longer ones.
const LONGEST_MESSAGE: usize = 5120;

/// A rule's variables. Each is evaluated when it is first read.
#[derive(Clone)]
struct Variables(Arc<State>);

struct State {
    scope: Arc<Scope>,
    program: Arc<Program>,
    values: Vec<OnceLock<Result<Owned, ExecutionError>>>,
}

/// Evaluates a rule. `explain` turns errors into sentences.
pub(crate) fn evaluate(scope: &Arc<Scope>, program: &Arc<Program>, explain: &dyn Fn(&ExecutionError) -> String) -> Outcome {
    let problem = |part, error: &ExecutionError| Problem { part, line: 0, column: 0, message: explain(error) };
    let values = program.variables.iter().map(|_| OnceLock::new()).collect();
    let variables = Variables(Arc::new(State { scope: Arc::clone(scope), program: Arc::clone(program), values }));
    let mut scope = scope.new_inner_scope();
    if !program.variables.is_empty() {
        scope.add_variable_as_val(STATE, Box::new(variables));
    }
    let mut undecided = None;
    for (at, condition) in program.conditions.iter().enumerate() {
        match truth(condition, &scope) {
            Ok(true) => {}
            Ok(false) => return Outcome::Unmatched(position(at)),
            Err(error) => {
                undecided.get_or_insert_with(|| problem(ExpressionId::Condition(position(at)), &error));
            }
        }
    }
    if let Some(problem) = undecided {
        return Outcome::Undecided(problem);
    }
    let verdict = |(at, (validation, message)): (usize, &(IdedExpr, Option<IdedExpr>))| match truth(validation, &scope) {
        Ok(true) => Verdict::Holds,
        Ok(false) => Verdict::Broken(message.as_ref().and_then(|message| text(message, &scope))),
        Err(error) => Verdict::Failed(problem(ExpressionId::Validation(position(at)), &error)),
    };
    Outcome::Judged(program.validations.iter().enumerate().map(verdict).collect())
}

/// Evaluates one expression.
pub(crate) fn value<'e>(tree: &'e IdedExpr, scope: &'e Context<'_, 'static>) -> Result<CowVal<'e, 'static>, ExecutionError> {
    Value::resolve_val(tree, scope)
}

fn truth(tree: &IdedExpr, scope: &Context<'_, 'static>) -> Result<bool, ExecutionError> {
    value(tree, scope)?.downcast_ref::<CelBool>().map(|truth| *truth.inner()).ok_or_else(|| crate::error::fail("the result isn't a bool"))
}

/// The message from an expression, if Kubernetes would use it.
fn text(tree: &IdedExpr, scope: &Context<'_, 'static>) -> Option<String> {
    let value = value(tree, scope).ok()?;
    let text = value.downcast_ref::<CelString<'_>>()?.inner().trim();
    (!text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains(['\n', '\r'])).then(|| text.to_owned())
}

fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl fmt::Debug for Variables {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.0.program.variables.iter().map(|(name, _)| name)).finish()
    }
}

impl Val for Variables {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Variables {}

impl Indexer for Variables {
    fn get<'b, 'v>(&'b self, name: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let name = name.downcast_ref::<CelString<'_>>().ok_or_else(no_overload)?.inner();
        let state = &*self.0;
        let found = state.program.variables.iter().zip(&state.values).find(|((known, _), _)| known == name);
        let ((_, tree), value_of) = found.ok_or_else(|| ExecutionError::no_such_key(name))?;
        let result = value_of.get_or_init(|| {
            let mut scope = state.scope.new_inner_scope();
            scope.add_variable_as_val(STATE, Box::new(self.clone()));
            value(tree, &scope).map(CowVal::into_owned)
        });
        match result {
            Ok(value) => Ok(CowVal::Borrowed(value.as_ref())),
            Err(error) => Err(error.clone()),
        }
    }

    fn steal<'v>(self: Box<Self>, name: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(name).map(CowVal::into_owned)
    }
}
