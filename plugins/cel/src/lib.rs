//! Pointsman's CEL evaluator for Kubernetes' dialect, as in ValidatingAdmissionPolicy. The crate `cel` parses and evaluates. This crate
//! adds what it lacks: Kubernetes' libraries, the errors of its type checker, sorted maps, and the analysis of the values that a rule
//! reads.
//!
//! It is an ordinary library. For wasm32, it is also a component (wit/evaluator.wit) without imports. The host limits its fuel, memory and
//! time.

#[cfg(target_arch = "wasm32")]
mod component;

mod compile;
mod error;
mod evaluate;
mod library;
mod types;
mod value;

pub use types::{ExpressionId, Named, Outcome, Path, Problem, Rule, Step, Validation, Verdict};

use cel::{Context, Env, ExecutionError};
use compile::Program;
use evaluate::Scope;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use value::Owned;
use value::special::Special;

/// Compiled rules, and the values of their roots.
pub struct Evaluator {
    scope: Arc<Scope>,
    rules: Vec<Arc<Program>>,
    roots: BTreeMap<String, Root>,
}

/// The value of a root.
#[derive(Debug)]
enum Root {
    /// Its JSON, which hasn't been parsed yet.
    Text(String),
    /// It has been parsed and is in the scope.
    Read,
    /// It can't be parsed.
    Wrong(String),
}

impl Evaluator {
    /// Compiles a rule and returns the values that it reads. Nothing is stored.
    pub fn inspect(&self, rule: &Rule) -> Result<Vec<Path>, Vec<Problem>> {
        compile::inspect(rule)
    }

    /// Compiles and stores a rule. Returns its number for `evaluate`: 0 for the first, and one more for each further rule.
    pub fn load(&mut self, rule: &Rule) -> Result<u32, Vec<Problem>> {
        let mut program = compile::compile(rule)?;
        let patterns = std::mem::take(&mut program.patterns);
        self.change(|scope| {
            for (name, pattern) in patterns {
                scope.add_variable_as_val(name, Box::new(Special(pattern)));
            }
        });
        let number = u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        self.rules.push(Arc::new(program));
        Ok(number)
    }

    /// Sets roots: names, with values as JSON text. Roots that aren't named stay unchanged. An empty text unsets a root, and reading it is
    /// then an error of the expression.
    pub fn bind(&mut self, roots: impl IntoIterator<Item = (String, String)>) {
        for (name, json) in roots {
            self.forget(&name);
            if json.is_empty() {
                self.roots.remove(&name);
            } else {
                self.roots.insert(name, Root::Text(json));
            }
        }
    }

    /// Evaluates a loaded rule with the current roots.
    pub fn evaluate(&mut self, rule: u32) -> Outcome {
        let Some(program) = self.ready(rule) else {
            let message = format!("there is no rule {rule}");
            return Outcome::Undecided(Problem { part: ExpressionId::Condition(0), line: 0, column: 0, message });
        };
        evaluate::evaluate(&self.scope, &program, &|error| self.explain(error))
    }

    /// Evaluates a lookup of a loaded rule with the current roots, and returns its value as JSON text.
    pub fn look_up(&mut self, rule: u32, lookup: u32) -> Result<String, Problem> {
        let problem = |message| Problem { part: ExpressionId::Lookup(lookup), line: 0, column: 0, message };
        let program = self.ready(rule);
        let at = usize::try_from(lookup).unwrap_or(usize::MAX);
        let tree = program.as_ref().and_then(|program| program.lookups.get(at));
        let tree = tree.ok_or_else(|| problem(format!("there is no lookup {lookup} of the rule {rule}")))?;
        match evaluate::value(tree, &self.scope) {
            Ok(value) => Ok(value::json::write(&*value)),
            Err(error) => Err(problem(self.explain(&error))),
        }
    }

    /// A loaded rule. All roots that it reads are in the scope.
    fn ready(&mut self, rule: u32) -> Option<Arc<Program>> {
        let program = usize::try_from(rule).ok().and_then(|rule| self.rules.get(rule)).map(Arc::clone)?;
        for root in &program.roots {
            self.read(root);
        }
        Some(program)
    }

    /// Evaluates one expression with the current roots, and returns its value as JSON text.
    pub fn calculate(&mut self, expression: &str) -> Result<String, Problem> {
        let roots: Vec<String> = self.roots.keys().cloned().collect();
        let compiled = compile::expression(&roots, expression)?;
        for root in &compiled.roots {
            self.read(root);
        }
        let mut scope = self.scope.new_inner_scope();
        for (name, pattern) in compiled.patterns {
            scope.add_variable_as_val(name, Box::new(Special(pattern)));
        }
        match evaluate::value(&compiled.tree, &scope) {
            Ok(value) => Ok(value::json::write(&*value)),
            Err(error) => Err(Problem { part: ExpressionId::Validation(0), line: 0, column: 0, message: self.explain(&error) }),
        }
    }

    /// The sentence for an error.
    fn explain(&self, error: &ExecutionError) -> String {
        if let ExecutionError::UndeclaredReference(name) = error
            && let Some(Root::Wrong(why)) = self.roots.get(name.as_str())
        {
            return error::bounded(why.clone());
        }
        error::sentence(error)
    }

    /// Parses a root into the scope, unless it is already there.
    fn read(&mut self, name: &str) {
        let Some(root) = self.roots.get_mut(name) else {
            return;
        };
        let Root::Text(json) = root else {
            return;
        };
        match value::json::read(json) {
            Ok(value) => {
                *root = Root::Read;
                self.set(name, value);
            }
            Err(error) => *root = Root::Wrong(format!("{name} is no JSON: {error}")),
        }
    }

    fn set(&mut self, name: &str, value: Owned) {
        self.change(|scope| scope.add_variable_as_val(name, value));
    }

    fn forget(&mut self, name: &str) {
        self.change(|scope| {
            if let Context::Root { variables, .. } = scope {
                variables.remove(name);
            }
        });
    }

    /// Changes the scope, or replaces it with a changed copy if something still refers to it. A value of an earlier object must never
    /// remain.
    fn change(&mut self, change: impl FnOnce(&mut Scope)) {
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            return change(scope);
        }
        let mut copy = Context::with_env(environment());
        if let Context::Root { variables, .. } = &*self.scope {
            for (name, value) in variables {
                copy.add_variable_as_val(name.as_str(), value.clone_as_boxed());
            }
        }
        change(&mut copy);
        self.scope = Arc::new(copy);
    }
}

impl Default for Evaluator {
    fn default() -> Self {
        Evaluator { scope: Arc::new(Context::with_env(environment())), rules: Vec::new(), roots: BTreeMap::new() }
    }
}

impl fmt::Debug for Evaluator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Evaluator").field("rules", &self.rules.len()).field("roots", &self.roots).finish_non_exhaustive()
    }
}

/// All functions. They are created with the first evaluator, and therefore never during an evaluation. A test checks that no two
/// declarations are equal.
fn environment() -> Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    Arc::clone(ENVIRONMENT.get_or_init(|| Arc::new(library::environment().unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> [(String, String); 1] {
        [("object".to_owned(), json.to_owned())]
    }

    #[test]
    fn a_scope_that_something_holds_is_left_behind() {
        let mut evaluator = Evaluator::default();
        evaluator.bind([("object".to_owned(), "1".to_owned()), ("params".to_owned(), "[7]".to_owned())]);
        assert_eq!(evaluator.calculate("object + params[0]").unwrap(), "8");
        let held = Arc::clone(&evaluator.scope);
        evaluator.bind(object("2"));
        assert_eq!(evaluator.calculate("object + params[0]").unwrap(), "9");
        let held_too = Arc::clone(&evaluator.scope);
        evaluator.bind(object(""));
        assert!(evaluator.calculate("object").is_err());
        evaluator.bind(object("3"));
        assert_eq!(evaluator.calculate("object + params[0]").unwrap(), "10");
        drop((held, held_too));
    }

    #[test]
    fn an_evaluation_leaves_nothing_behind() {
        let mut evaluator = Evaluator::default();
        evaluator.bind(object(r#"{"name":"chat","pattern":"^c"}"#));
        let literal = Validation { expression: "object.name.matches('^c')".to_owned(), message: None };
        let other = Validation { expression: "object.name.matches(object.pattern)".to_owned(), message: None };
        let rule = Rule { roots: vec!["object".to_owned()], validations: vec![literal, other], ..Rule::default() };
        let number = evaluator.load(&rule).unwrap();
        let names = |evaluator: &Evaluator| match &*evaluator.scope {
            Context::Root { variables, .. } => variables.keys().cloned().collect::<Vec<String>>(),
            Context::Child { .. } => Vec::new(),
        };
        assert_eq!(names(&evaluator), ["@pattern ^c"]);
        assert_eq!(evaluator.evaluate(number), Outcome::Judged(vec![Verdict::Holds, Verdict::Holds]));
        assert_eq!(evaluator.calculate("object.name.find('h.')").unwrap(), r#""ha""#);
        assert_eq!(names(&evaluator), ["@pattern ^c", "object"]);
        assert_eq!(Arc::strong_count(&evaluator.scope), 1);
    }
}
