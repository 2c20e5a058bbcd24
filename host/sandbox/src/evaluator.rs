//! The CEL evaluator: our own component (`plugins/cel`), which is embedded in the host and runs like an untrusted plugin. Every CEL library
//! can be made to hang, or to abort its process, by one expression. Here, the result is only an error for that rule.
//!
//! An instance stores the programs that it has compiled, and evaluates them on many objects. It is dropped as soon as it traps or has grown
//! too large.

// wasmtime's derives generate unsafe implementations of its traits.
#![allow(unsafe_code, unused_qualifications, clippy::missing_fields_in_debug)]

use super::{
    call::{CallError, CallState, Sandbox},
    compile::{Code, Compilers},
    digest::Digest,
    engine::{Engines, Entered, Lane, Use},
    limits::{RULE, RULE_INSTANCES, RULE_PROGRAMS, RULE_RESIDENT},
};
use crate::{sync::locked, text::printable_line};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
};
use wasmtime::{
    Store,
    component::{Component, ComponentExportIndex, ComponentType, Instance, InstancePre, Lift, Linker, Lower},
};

/// The package of its interfaces. No plugin exports them.
const INTERFACE: &str = "pointsman:cel/evaluator@0.1.0";

/// An expression with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ComponentType, Lower)]
#[component(record)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// The expression.
    pub expression: String,
}

/// An expression that must be true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ComponentType, Lower)]
#[component(record)]
pub struct Validation {
    /// The expression.
    pub expression: String,
    /// The expression for the message if it is false.
    pub message: Option<String>,
}

/// The CEL expressions of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ComponentType, Lower)]
#[component(record)]
pub struct Source {
    /// The names that its expressions may use.
    pub roots: Vec<String>,
    /// The rule applies only if all of these are true.
    pub conditions: Vec<Named>,
    /// The queries for lookups, which are evaluated before the root `lookups` is set.
    pub lookups: Vec<Named>,
    /// Values that the other expressions share.
    pub variables: Vec<Named>,
    /// The validations.
    pub validations: Vec<Validation>,
}

/// A rule to evaluate. By the digest, it is found in an instance that has compiled it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    digest: Digest,
    source: Arc<Source>,
}

impl Program {
    /// A program for a rule.
    pub fn new(source: Source) -> Self {
        // Plain data can always be serialised.
        let digest = Digest::of_value(&source).unwrap_or(Digest([0; 32]));
        Self { digest, source: Arc::new(source) }
    }

    /// The digest of the rule.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The rule.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

/// An expression of a rule, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ComponentType, Lift)]
#[component(variant)]
pub enum ExpressionId {
    /// A condition.
    #[component(name = "condition")]
    Condition(u32),
    /// A lookup.
    #[component(name = "lookup")]
    Lookup(u32),
    /// A variable.
    #[component(name = "variable")]
    Variable(u32),
    /// A validation.
    #[component(name = "validation")]
    Validation(u32),
    /// The message of a validation.
    #[component(name = "message")]
    Message(u32),
}

/// An error in an expression, with its place: lines and columns start at 1, and 0 means unknown.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
pub struct Problem {
    /// The expression.
    pub part: ExpressionId,
    /// The line in the expression.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
    /// The error.
    pub message: String,
}

/// A step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(variant)]
pub enum Step {
    /// A field or key with a known name.
    #[component(name = "field")]
    Field(String),
    /// Any element of a list, or any value of a map.
    #[component(name = "element")]
    Element,
    /// Any key of a map.
    #[component(name = "key")]
    Key,
}

/// A value that an expression reads, by the path to it from a root.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
pub struct Path {
    /// The expression.
    pub part: ExpressionId,
    /// The line in the expression.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
    /// The root.
    pub root: String,
    /// The steps from the root.
    pub steps: Vec<Step>,
}

/// The result of a validation.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(variant)]
pub enum ValidationVerdict {
    /// It is true.
    #[component(name = "holds")]
    Holds,
    /// It is false. Contains the message, if the message's expression returned a text.
    #[component(name = "broken")]
    Broken(Option<String>),
    /// It can't be evaluated.
    #[component(name = "failed")]
    Failed(Problem),
}

/// The result of a rule.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(variant)]
pub enum Outcome {
    /// The rule doesn't apply, because the condition at this position is false.
    #[component(name = "unmatched")]
    Unmatched(u32),
    /// A condition can't be evaluated.
    #[component(name = "undecided")]
    Undecided(Problem),
    /// One verdict per validation.
    #[component(name = "judged")]
    Judged(Vec<ValidationVerdict>),
}

/// The evaluator. It is created once, for all rules.
pub struct Evaluator {
    sandbox: Sandbox,
    pre: InstancePre<CallState>,
    functions: EvaluatorExports,
    warm: Mutex<Vec<Warm>>,
}

impl fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evaluator").field("warm", &locked(&self.warm).len()).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct EvaluatorExports {
    inspect: ComponentExportIndex,
    load: ComponentExportIndex,
    bind: ComponentExportIndex,
    evaluate: ComponentExportIndex,
    look_up: ComponentExportIndex,
    calculate: ComponentExportIndex,
}

/// An instance and its state.
struct Warm {
    store: Store<CallState>,
    instance: Instance,
    programs: BTreeMap<Digest, u32>,
    bound: BTreeSet<String>,
    memory: usize,
    /// Whether it has evaluated any rule.
    seasoned: bool,
}

impl Drop for Evaluator {
    fn drop(&mut self) {
        let kept = locked(&self.warm).len();
        self.sandbox.engines.cooled(u32::try_from(kept).unwrap_or(u32::MAX));
    }
}

impl Evaluator {
    /// Compiles the evaluator, or loads it from the cache, and links it.
    pub fn new(engines: &Arc<Engines>, compilers: &Compilers) -> Result<Self, String> {
        let compiled = compilers.load(engines, Use::ControlPlane, crate::builtin::EVALUATOR).map_err(|error| error.to_string())?;
        let Code::Component(component) = &compiled.code else { return Err("it is no component".to_owned()) };
        let sandbox = Sandbox { engines: Arc::clone(engines), use_: Use::ControlPlane, limits: RULE };
        let mut linker = Linker::<CallState>::new(engines.for_use(Use::ControlPlane));
        // An interface that has only types remains as an import.
        linker.instance("pointsman:cel/types@0.1.0").map_err(|error| format!("{error:#}"))?;
        let pre = linker.instantiate_pre(component).map_err(|error| printable_line(&format!("{error:#}")))?;
        let functions = EvaluatorExports::find_exports(component).ok_or("it lacks a function")?;
        Ok(Self { sandbox, pre, functions, warm: Mutex::default() })
    }

    /// Returns the paths that a rule reads, or its errors. Uses a new instance and then drops it.
    pub fn inspect(&self, source: &Source) -> Result<Result<Vec<Path>, Vec<Problem>>, CallError> {
        let entered = self.sandbox.enter(Lane::Work)?;
        let mut store = self.sandbox.store();
        let (answer, _) = self.sandbox.run(&entered, &mut store, |store| {
            let instance = self.pre.instantiate(&mut *store)?;
            let inspect = instance.get_typed_func::<(&Source,), (Result<Vec<Path>, Vec<Problem>>,)>(&mut *store, self.functions.inspect)?;
            inspect.call(store, (source,)).map(|(answer,)| Ok(answer))
        })?;
        Ok(answer)
    }

    /// Starts queries about one object. Waits for a slot.
    pub fn ask(&self) -> Result<Asking<'_>, CallError> {
        self.ask_in(Lane::Work)
    }

    /// The same in a slot of another lane.
    pub fn ask_in(&self, lane: Lane) -> Result<Asking<'_>, CallError> {
        let entered = self.sandbox.enter(lane)?;
        let warm = locked(&self.warm).pop();
        self.sandbox.engines.cooled(u32::from(warm.is_some()));
        Ok(Asking { evaluator: self, entered, warm, roots: BTreeMap::new() })
    }

    /// Evaluates an expression and returns its value as JSON text.
    pub fn calculate(&self, expression: &str, roots: BTreeMap<String, Arc<str>>) -> Result<Result<String, Problem>, CallError> {
        let mut asking = self.ask()?;
        for (root, value) in roots {
            asking.bind(&root, value);
        }
        let index = self.functions.calculate;
        asking.with(|warm, store| {
            let calculate = warm.get_typed_func::<(&str,), (Result<String, Problem>,)>(&mut *store, index)?;
            calculate.call(store, (expression,)).map(|(answer,)| answer)
        })
    }
}

impl EvaluatorExports {
    fn find_exports(component: &Component) -> Option<Self> {
        let interface = component.get_export_index(None, INTERFACE)?;
        let find = |function: &str| component.get_export_index(Some(&interface), function);
        Some(Self {
            inspect: find("inspect")?,
            load: find("load")?,
            bind: find("bind")?,
            evaluate: find("evaluate")?,
            look_up: find("look-up")?,
            calculate: find("calculate")?,
        })
    }
}

/// Queries about one object.
pub struct Asking<'e> {
    evaluator: &'e Evaluator,
    entered: Entered<'e>,
    warm: Option<Warm>,
    roots: BTreeMap<String, Arc<str>>,
}

impl fmt::Debug for Asking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("roots", &self.roots.keys()).finish_non_exhaustive()
    }
}

impl Asking<'_> {
    /// Sets the value of a root, as JSON text.
    pub fn bind(&mut self, root: &str, value: Arc<str>) {
        if let Some(warm) = &mut self.warm {
            warm.bound.remove(root);
        }
        self.roots.insert(root.to_owned(), value);
    }

    /// Evaluates a rule.
    pub fn judge(&mut self, program: &Program) -> Result<Outcome, CallError> {
        let index = self.evaluator.functions.evaluate;
        self.twice(|asking| {
            let at = asking.load(program)?;
            asking.with(|instance, store| {
                let evaluate = instance.get_typed_func::<(u32,), (Outcome,)>(&mut *store, index)?;
                evaluate.call(store, (at,)).map(|(outcome,)| outcome)
            })
        })
    }

    /// Evaluates a lookup of a rule and returns its value as JSON text.
    pub fn look_up(&mut self, program: &Program, lookup: u32) -> Result<Result<String, Problem>, CallError> {
        let index = self.evaluator.functions.look_up;
        self.twice(|asking| {
            let at = asking.load(program)?;
            asking.with(|instance, store| {
                let look_up = instance.get_typed_func::<(u32, u32), (Result<String, Problem>,)>(&mut *store, index)?;
                look_up.call(store, (at, lookup)).map(|(value,)| value)
            })
        })
    }

    /// Retries with a new instance if one fails that has answered before: its earlier work must not affect the result.
    fn twice<Answer>(&mut self, mut ask: impl FnMut(&mut Self) -> Result<Answer, CallError>) -> Result<Answer, CallError> {
        let seasoned = self.warm.as_ref().is_some_and(|warm| warm.seasoned);
        let answer = match ask(self) {
            Err(error) if seasoned && error != CallError::Busy => {
                self.warm = None;
                ask(self)
            }
            answer => answer,
        }?;
        if let Some(warm) = &mut self.warm {
            warm.seasoned = true;
        }
        Ok(answer)
    }

    /// Returns the number that the instance has assigned to a rule, and compiles the rule if necessary.
    fn load(&mut self, program: &Program) -> Result<u32, CallError> {
        if let Some(number) = self.warm.as_ref().and_then(|warm| warm.programs.get(&program.digest)) {
            return Ok(*number);
        }
        if self.warm.as_ref().is_some_and(|warm| warm.programs.len() >= RULE_PROGRAMS) {
            self.warm = None;
        }
        let index = self.evaluator.functions.load;
        let loaded = self.with(|instance, store| {
            let load = instance.get_typed_func::<(&Source,), (Result<u32, Vec<Problem>>,)>(&mut *store, index)?;
            load.call(store, (program.source(),)).map(|(number,)| number)
        })?;
        let number = loaded.map_err(|problems| {
            let first = problems.first().map(|problem| problem.message.clone()).unwrap_or_default();
            CallError::Failed(printable_line(&first))
        })?;
        if let Some(warm) = &mut self.warm {
            warm.programs.insert(program.digest, number);
        }
        Ok(number)
    }

    /// Calls an instance in which the roots have their current values: the warm one, or a new one. An instance that fails is dropped.
    fn with<Answer>(
        &mut self,
        ask: impl FnOnce(&Instance, &mut Store<CallState>) -> wasmtime::Result<Answer>,
    ) -> Result<Answer, CallError> {
        let Self { evaluator, entered, warm, roots } = self;
        let mut at_hand = match warm.take() {
            Some(warm) => warm,
            None => evaluator.fresh(entered)?,
        };
        evaluator.send(entered, &mut at_hand, roots)?;
        let Warm { store, instance, .. } = &mut at_hand;
        let (answer, spent) = evaluator.sandbox.run(entered, store, |store| ask(instance, store).map(Ok))?;
        at_hand.memory = spent.memory;
        *warm = Some(at_hand);
        Ok(answer)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(warm) = self.warm.take() else { return };
        let mut kept = locked(&self.evaluator.warm);
        if warm.memory <= RULE_RESIDENT && kept.len() < RULE_INSTANCES && self.evaluator.sandbox.engines.warmed() {
            kept.push(warm);
        }
    }
}

impl Evaluator {
    fn fresh(&self, entered: &Entered<'_>) -> Result<Warm, CallError> {
        let mut store = self.sandbox.store();
        let (instance, spent) = self.sandbox.run(entered, &mut store, |store| self.pre.instantiate(store).map(Ok))?;
        Ok(Warm { store, instance, programs: BTreeMap::new(), bound: BTreeSet::new(), memory: spent.memory, seasoned: false })
    }

    /// Sends an instance the roots that are new or have changed, and unbinds those of earlier objects.
    fn send(&self, entered: &Entered<'_>, warm: &mut Warm, roots: &BTreeMap<String, Arc<str>>) -> Result<(), CallError> {
        let gone = warm.bound.iter().filter(|bound| !roots.contains_key(*bound)).map(|bound| (bound.as_str(), ""));
        let new = roots.iter().filter(|(root, _)| !warm.bound.contains(*root)).map(|(root, value)| (root.as_str(), &**value));
        let told: Vec<(&str, &str)> = gone.chain(new).collect();
        if told.is_empty() {
            return Ok(());
        }
        let (taken, _) = self.sandbox.run(entered, &mut warm.store, |store| {
            let bind = warm.instance.get_typed_func::<(&[(&str, &str)],), (Result<(), String>,)>(&mut *store, self.functions.bind)?;
            bind.call(store, (&told,)).map(|(taken,)| Ok(taken))
        })?;
        taken.map_err(|why| CallError::Question(crate::text::printable_line(&why)))?;
        warm.bound = roots.keys().cloned().collect();
        Ok(())
    }
}
