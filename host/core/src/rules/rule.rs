//! A rule: its spec and its compiled expressions.

use super::{
    fields::{self, KindFields},
    judge::unanswered,
    lookups::{self, LOOKUPS},
};
use crate::selector;
use pointsman_crds::policy::{
    rule::{RuleLookup, RuleSelection, RuleStage, SubjectsLookup, ValidationRuleSpec},
    selection::{KindReference, Selection},
    set::{PolicySetPlugin, PolicySetRule},
};
use pointsman_sandbox::{
    digest::Digest,
    evaluator::{Evaluator, ExpressionId, Named, Path, Problem, Program, Source, Step, Validation},
    limits::{LARGEST_PARAMS, LONGEST_EXPRESSION},
};
use std::{collections::BTreeSet, fmt};

/// The roots that only admission has: elsewhere, rules that read them aren't evaluated.
pub const OF_ADMISSION: [&str; 2] = ["oldObject", "request"];

/// A rule of a policy set.
#[derive(Debug)]
pub struct Rule {
    /// The rule as frozen in the set.
    pub bound: PolicySetRule,
    /// The compiled expressions.
    program: Program,
    /// Only its conditions, if lookups are made after they hold.
    gate: Option<Program>,
    /// The indices of the lookups that its expressions read.
    looked_up: Vec<usize>,
    identity: Digest,
    /// The roots that its expressions read.
    reads: BTreeSet<String>,
    /// Why it can't be evaluated at all, if so.
    missing: Option<String>,
}

/// Why a rule can't be part of a policy set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The spec is invalid.
    #[error("{0}")]
    Spec(Flaw),
    /// Its expressions are invalid.
    #[error("{}", sentences(.0))]
    Expressions(Vec<Flaw>),
    /// It couldn't be checked.
    #[error("it can't be compiled: {0}")]
    Evaluator(String),
}

impl RuleError {
    /// The reason in CamelCase.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Spec(_) => "InvalidSpec",
            Self::Expressions(_) => "InvalidExpression",
            Self::Evaluator(_) => "NotCompiled",
        }
    }

    /// Whether the failure is transient: the same rule may compile next time.
    pub fn passing(&self) -> bool {
        matches!(self, Self::Evaluator(_))
    }
}

/// A flaw in a spec, with the same text at every entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The field, from the object's root; items are identified by their names if they have one: `spec.variables[gpus].expression`.
    pub field: String,
    /// The line and the column in an expression; 0 if unknown.
    pub at: (u32, u32),
    /// The message.
    pub message: String,
}

impl Flaw {
    /// A flaw in a whole field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), at: (0, 0), message: message.into() }
    }

    /// The message, with the position in the field.
    pub fn inside(&self) -> String {
        let Self { at, message, .. } = self;
        match at {
            (0, _) => message.clone(),
            (1, column) => format!("column {column}: {message}"),
            (line, column) => format!("line {line}, column {column}: {message}"),
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.inside())
    }
}

fn sentences(flaws: &[Flaw]) -> String {
    flaws.iter().map(Flaw::to_string).collect::<Vec<_>>().join("; ")
}

impl Rule {
    /// Compiles a rule and checks all fields that its expressions read. Blocks for some milliseconds.
    pub fn load(bound: PolicySetRule, evaluator: &Evaluator, shapes: &[KindFields]) -> Result<Self, RuleError> {
        if let Some(flaw) = validation_error(&bound) {
            return Err(RuleError::Spec(flaw));
        }
        let program = Program::new(source(&bound.spec));
        let paths = compiled(&bound.spec, &program, evaluator, shapes)?;
        let looked_up = looked_up(&bound.spec, &paths);
        let reads = paths.into_iter().map(|path| path.root).collect();
        let gated = !looked_up.is_empty() && !bound.spec.match_conditions.is_empty();
        let gate = if gated { Some(gate(&bound.spec, evaluator)?) } else { None };
        Ok(Self { identity: identity(&bound), bound, program, gate, looked_up, reads, missing: None })
    }

    /// A rule that this host can't compile. It stays in the set and fails when it is evaluated: a set without it would silently permit what
    /// it must prevent.
    pub fn absent(bound: PolicySetRule, why: String) -> Self {
        let program = Program::new(source(&bound.spec));
        Self { identity: identity(&bound), bound, program, gate: None, looked_up: Vec::new(), reads: BTreeSet::new(), missing: Some(why) }
    }

    /// The compiled expressions.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Only its conditions, if lookups are made after they hold.
    pub(super) fn gate(&self) -> Option<&Program> {
        self.gate.as_ref()
    }

    /// Whether its verdicts depend on lookups.
    pub fn looks_up(&self) -> bool {
        !self.looked_up.is_empty()
    }

    /// The lookups that its expressions read.
    pub(super) fn lookups(&self) -> impl Iterator<Item = &RuleLookup> {
        self.looked_up.iter().filter_map(|at| self.bound.spec.lookups.get(*at))
    }

    /// The index of a lookup's expression in the program.
    pub(super) fn lookup_number(&self, lookup: &RuleLookup) -> u32 {
        let before = with_expression(&self.bound.spec).take_while(|other| other.name != lookup.name).count();
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    /// Why it can't be evaluated at all, if so.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// The name of its ValidationRule.
    pub fn name(&self) -> &str {
        &self.bound.name
    }

    /// The digest of everything that its verdicts depend on, except the object.
    pub fn identity(&self) -> &Digest {
        &self.identity
    }

    /// Its stage.
    pub fn stage(&self) -> RuleStage {
        self.bound.spec.stage
    }

    /// Whether its expressions read a root.
    pub fn reads(&self, root: &str) -> bool {
        self.reads.contains(root)
    }

    /// Whether it needs data that only admission has.
    pub fn is_of_admission(&self) -> bool {
        OF_ADMISSION.iter().any(|root| self.reads(root))
    }

    /// The objects that it applies to.
    pub fn objects(&self) -> Option<&Selection> {
        self.bound.spec.selection.as_ref().map(|selection| &selection.objects)
    }
}

/// Compiles a rule and checks that all fields exist that its expressions read; returns their paths.
fn compiled(spec: &ValidationRuleSpec, program: &Program, evaluator: &Evaluator, shapes: &[KindFields]) -> Result<Vec<Path>, RuleError> {
    let paths = match evaluator.inspect(program.source()) {
        Ok(Ok(paths)) => paths,
        Ok(Err(problems)) => {
            return Err(RuleError::Expressions(problems.into_iter().map(|problem| of_problem(spec, problem)).collect()));
        }
        // An expression that exceeds the fuel always will; a lack of time or memory may be transient.
        Err(error) if error.lasting() => {
            return Err(RuleError::Spec(Flaw::new("spec", format!("it can't be compiled: {}", unanswered(&error)))));
        }
        Err(error) => return Err(RuleError::Evaluator(unanswered(&error))),
    };
    if let Some(stranger) = unjudged_kind(spec, shapes) {
        return Err(RuleError::Spec(stranger));
    }
    if let Some(flaw) = empty_sum(spec, shapes) {
        return Err(RuleError::Spec(flaw));
    }
    let flaws = unknown(spec, &paths, shapes);
    if flaws.is_empty() { Ok(paths) } else { Err(RuleError::Expressions(flaws)) }
}

/// The indices of the lookups that are read: all of them if an expression iterates over them.
fn looked_up(spec: &ValidationRuleSpec, paths: &[Path]) -> Vec<usize> {
    let read = |name: &str| {
        paths.iter().filter(|path| path.root == LOOKUPS).any(|path| match path.steps.first() {
            Some(Step::Field(field)) => field == name,
            Some(Step::Element | Step::Key) | None => true,
        })
    };
    spec.lookups.iter().enumerate().filter(|(_, lookup)| read(&lookup.name)).map(|(at, _)| at).collect()
}

fn identity(bound: &PolicySetRule) -> Digest {
    // Plain data can always be serialized.
    Digest::of_value(bound).unwrap_or(Digest([0; 32]))
}

/// The frozen form of a rule: without the strategy for activating changes.
pub fn bind(name: &str, spec: &ValidationRuleSpec, params: Option<std::collections::BTreeMap<String, String>>) -> PolicySetRule {
    let spec = ValidationRuleSpec { strategy: None, ..spec.clone() };
    let digest = Digest::of_value(&(&spec, &params)).unwrap_or(Digest([0; 32])).to_string();
    PolicySetRule { name: name.to_owned(), digest, spec, params }
}

/// Checks the constraints that the CRD's schema can't express.
fn validation_error(bound: &PolicySetRule) -> Option<Flaw> {
    let spec = &bound.spec;
    if let Some((field, message)) = spec.selection.as_ref().and_then(|selection| selector::flaw(&selection.objects)) {
        return Some(Flaw::new(field, message));
    }
    let expressions = spec.match_conditions.iter().map(|condition| &condition.expression);
    let expressions = expressions.chain(spec.lookups.iter().filter_map(lookups::expression));
    let expressions = expressions.chain(spec.variables.iter().map(|variable| &variable.expression));
    let validations = spec.validations.iter().flat_map(|validation| [Some(&validation.expression), validation.message_expression.as_ref()]);
    if expressions.chain(validations.flatten()).any(|expression| expression.len() > LONGEST_EXPRESSION) {
        return Some(Flaw::new("spec", format!("an expression has more than {LONGEST_EXPRESSION} bytes")));
    }
    if spec.validations.is_empty() {
        return Some(Flaw::new("spec.validations", "it has no validations"));
    }
    if let Some(flaw) = flaw_of_lookups(spec) {
        return Some(flaw);
    }
    let size: usize = bound.params.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
    (size > LARGEST_PARAMS).then(|| Flaw::new("spec.params", format!("the ConfigMap has {size} bytes; the limit is {LARGEST_PARAMS}")))
}

fn flaw_of_lookups(spec: &ValidationRuleSpec) -> Option<Flaw> {
    if spec.stage == RuleStage::Output && !spec.lookups.is_empty() {
        return Some(Flaw::new("spec.lookups", "they are for rules of stage Input"));
    }
    let mut names = BTreeSet::new();
    spec.lookups.iter().find_map(|RuleLookup { name, models, runtimes, subjects }| {
        let given = usize::from(models.is_some()) + usize::from(runtimes.is_some()) + usize::from(subjects.is_some());
        if given != 1 {
            return Some(Flaw::new(format!("spec.lookups[{name}]"), "it needs exactly one of models, runtimes and subjects"));
        }
        (!names.insert(name)).then(|| Flaw::new(format!("spec.lookups[{name}]"), "another lookup has that name"))
    })
}

/// The roots that a rule of a stage may read, in addition to `params` and `lookups`.
fn roots(stage: RuleStage) -> &'static [&'static str] {
    match stage {
        RuleStage::Input => &["object", "oldObject", "namespaceObject", "request"],
        RuleStage::Output => &["object", "subject", "layers", "added", "namespaceObject"],
    }
}

/// The CEL parts of a rule.
fn source(spec: &ValidationRuleSpec) -> Source {
    let params = spec.params.as_ref().map(|_| "params");
    let looked_up = (!spec.lookups.is_empty()).then_some(LOOKUPS);
    let named = |name: &str, expression: &str| Named { name: name.to_owned(), expression: expression.to_owned() };
    let lookups = spec.lookups.iter().filter_map(|lookup| Some(named(&lookup.name, lookups::expression(lookup)?)));
    Source {
        roots: roots(spec.stage).iter().copied().chain(params).chain(looked_up).map(str::to_owned).collect(),
        lookups: lookups.collect(),
        conditions: spec.match_conditions.iter().map(|condition| named(&condition.name, &condition.expression)).collect(),
        variables: spec.variables.iter().map(|variable| named(&variable.name, &variable.expression)).collect(),
        validations: spec
            .validations
            .iter()
            .map(|validation| Validation { expression: validation.expression.clone(), message: validation.message_expression.clone() })
            .collect(),
    }
}

/// The conditions of a rule, with the variables that don't depend on lookups.
fn gate(spec: &ValidationRuleSpec, evaluator: &Evaluator) -> Result<Program, RuleError> {
    let mut gate = Source { lookups: Vec::new(), validations: Vec::new(), ..source(spec) };
    gate.roots.retain(|root| root != LOOKUPS);
    loop {
        let problems = match evaluator.inspect(&gate) {
            Ok(Ok(_)) => return Ok(Program::new(gate)),
            Ok(Err(problems)) => problems,
            Err(error) => return Err(RuleError::Evaluator(unanswered(&error))),
        };
        let at = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let wrong =
            |number: usize| problems.iter().any(|problem| matches!(problem.part, ExpressionId::Variable(wrong) if at(wrong) == number));
        let before = gate.variables.len();
        let mut number = 0..;
        gate.variables.retain(|_| number.next().is_some_and(|number| !wrong(number)));
        // A condition that can't be compiled without the omitted variables depends on lookups.
        if gate.variables.len() == before {
            let too_early = |problem: Problem| Flaw { message: TOO_EARLY.to_owned(), ..of_problem(spec, problem) };
            return Err(RuleError::Expressions(problems.into_iter().map(too_early).collect()));
        }
    }
}

/// The message for a condition that reads lookups.
const TOO_EARLY: &str = "matchConditions are evaluated before lookups, so they can't read them";

/// Compiles the match conditions of a plugin: they may read `object` and `namespaceObject`.
pub fn conditions(bound: &PolicySetPlugin, evaluator: &Evaluator, shapes: &[KindFields]) -> Result<Program, RuleError> {
    let objects = bound.selection.clone().unwrap_or_default();
    // Like those of a rule with only match conditions.
    let spec = ValidationRuleSpec {
        selection: Some(RuleSelection { objects, ..RuleSelection::default() }),
        match_conditions: bound.match_conditions.clone(),
        ..ValidationRuleSpec::default()
    };
    let source = Source { roots: ["object", "namespaceObject"].map(str::to_owned).to_vec(), ..source(&spec) };
    let program = Program::new(source);
    compiled(&spec, &program, evaluator, shapes).map(|_| program)
}

/// The field of the spec that contains an expression.
fn field(spec: &ValidationRuleSpec, part: ExpressionId) -> String {
    let named =
        |list: &str, name: Option<&String>| name.map_or_else(|| format!("spec.{list}"), |name| format!("spec.{list}[{name}].expression"));
    let at = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    match part {
        ExpressionId::Condition(number) => named("matchConditions", spec.match_conditions.get(at(number)).map(|condition| &condition.name)),
        ExpressionId::Lookup(number) => {
            let lookup = with_expression(spec).nth(at(number));
            lookup.map_or_else(|| "spec.lookups".to_owned(), |lookup| format!("spec.lookups[{}].{}", lookup.name, expression_field(lookup)))
        }
        ExpressionId::Variable(number) => named("variables", spec.variables.get(at(number)).map(|variable| &variable.name)),
        ExpressionId::Validation(number) => format!("spec.validations[{number}].expression"),
        ExpressionId::Message(number) => format!("spec.validations[{number}].messageExpression"),
    }
}

/// The field of a lookup that contains its expression.
pub(super) fn expression_field(lookup: &RuleLookup) -> &'static str {
    match lookup {
        RuleLookup { models: Some(_), .. } => "models.name",
        RuleLookup { subjects: Some(_), .. } => "subjects.sum",
        _ => "runtimes.name",
    }
}

/// Why the match conditions of a plugin can't be evaluated.
pub(crate) fn of_condition(bound: &PolicySetPlugin, problem: Problem) -> Flaw {
    of_problem(&ValidationRuleSpec { match_conditions: bound.match_conditions.clone(), ..ValidationRuleSpec::default() }, problem)
}

/// The flaw for a problem that the evaluator reports, with its field.
pub(super) fn of_problem(spec: &ValidationRuleSpec, problem: Problem) -> Flaw {
    Flaw { field: field(spec, problem.part), at: (problem.line, problem.column), message: problem.message }
}

/// The fields that are read but don't exist in any kind that the rule applies to.
fn unknown(spec: &ValidationRuleSpec, paths: &[Path], shapes: &[KindFields]) -> Vec<Flaw> {
    let kinds = spec.selection.as_ref().map_or(&[][..], |selection| &selection.objects.kinds);
    let of_input: Vec<&KindFields> = shapes.iter().filter(|shape| matches_shape(kinds, shape)).collect();
    let of_subjects: Vec<&KindFields> = shapes.iter().filter(|shape| shape.is_subject()).collect();
    let of_lookups = fields::of_lookups(&spec.lookups);
    let mut flaws: Vec<Flaw> = Vec::new();
    for path in paths {
        if let Some(message) = misplaced_root(spec, path) {
            flaws.push(Flaw { field: field(spec, path.part), at: (path.line, path.column), message });
            continue;
        }
        let of_object = ["object", "oldObject", "subject"].contains(&path.root.as_str());
        if of_object && let Some(message) = invisible_field(path, spec.stage) {
            flaws.push(Flaw { field: field(spec, path.part), at: (path.line, path.column), message });
            continue;
        }
        let message = match (path.root.as_str(), spec.stage) {
            ("object", RuleStage::Input) if let Some(subjects) = sum_of(spec, path.part) => {
                let kinds = lookups::kinds(subjects, kinds);
                let summed: Vec<&KindFields> = of_subjects.iter().copied().filter(|shape| matches_shape(kinds, shape)).collect();
                fields::unknown(path, &summed)
            }
            ("object" | "oldObject", RuleStage::Input) => fields::unknown(path, &of_input),
            (LOOKUPS, _) => fields::unknown(path, &[&of_lookups]),
            ("subject", _) => fields::unknown(path, &of_subjects),
            (root, _) => fields::fixed(root).and_then(|shape| fields::unknown(path, &[shape])),
        };
        let Some(message) = message else { continue };
        let flaw = Flaw { field: field(spec, path.part), at: (path.line, path.column), message };
        if !flaws.contains(&flaw) {
            flaws.push(flaw);
        }
    }
    flaws
}

/// The lookups that have an expression in the program, in this order.
fn with_expression(spec: &ValidationRuleSpec) -> impl Iterator<Item = &RuleLookup> {
    spec.lookups.iter().filter(|lookup| lookups::expression(lookup).is_some())
}

/// The sum to which an expression belongs, if any.
fn sum_of(spec: &ValidationRuleSpec, part: ExpressionId) -> Option<&SubjectsLookup> {
    let ExpressionId::Lookup(number) = part else { return None };
    with_expression(spec).nth(usize::try_from(number).ok()?)?.subjects.as_ref()
}

/// Why a root can't be read at this place.
fn misplaced_root(spec: &ValidationRuleSpec, path: &Path) -> Option<String> {
    let root = path.root.as_str();
    match path.part {
        ExpressionId::Condition(_) if root == LOOKUPS => Some(TOO_EARLY.to_owned()),
        ExpressionId::Lookup(_) if OF_ADMISSION.contains(&root) => {
            Some(format!("lookups must be the same at every entry point, but {root} is known to admission only"))
        }
        ExpressionId::Lookup(_) if sum_of(spec, path.part).is_some() && !["object", "params"].contains(&root) => {
            Some(format!("a sum sees each subject as `object`, and `params`; it can't read {root}"))
        }
        _ => None,
    }
}

/// Why rules can't read a field: they only evaluate what the user has written, so that the result is the same at each entry point.
fn invisible_field(path: &Path, stage: RuleStage) -> Option<String> {
    let Path { root, steps, .. } = path;
    if root == "object" && stage == RuleStage::Output {
        return None;
    }
    match steps.as_slice() {
        [Step::Field(status), ..] if status == "status" => {
            Some(format!("{root}.status isn't available to rules: they validate what a user writes"))
        }
        [Step::Field(metadata), Step::Field(name), ..] if metadata == "metadata" && !SEEN.contains(&name.as_str()) => {
            Some(format!("{root}.metadata.{name} isn't known to rules; there are {}", SEEN.join(", ")))
        }
        _ => None,
    }
}

/// The metadata fields that rules can read.
const SEEN: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// The flaw of a rule for stage Input that names a kind to which no such rule applies.
fn unjudged_kind(spec: &ValidationRuleSpec, shapes: &[KindFields]) -> Option<Flaw> {
    let kinds = spec.selection.as_ref().filter(|_| spec.stage == RuleStage::Input).map_or(&[][..], |selection| &selection.objects.kinds);
    let stranger = kinds.iter().find(|kind| !shapes.iter().any(|shape| matches_shape(std::slice::from_ref(kind), shape)))?;
    let KindReference { group, kind } = stranger;
    let known: BTreeSet<&str> = shapes.iter().filter(|shape| shape.group == *group).map(|shape| shape.name.as_str()).collect();
    let message = if known.is_empty() {
        format!("stage Input doesn't cover {kind} of the group {group:?}; planned objects, such as Deployments, belong to stage Output")
    } else {
        format!("unknown kind {kind} of the group {group:?}{}", fields::hint(kind, &known))
    };
    Some(Flaw::new("spec.match.kinds", message))
}

/// The flaw of a sum without any kinds of subjects: it would silently always be 0.
fn empty_sum(spec: &ValidationRuleSpec, shapes: &[KindFields]) -> Option<Flaw> {
    let of_rule = spec.selection.as_ref().map_or(&[][..], |selection| &selection.objects.kinds);
    let services = || shapes.iter().filter(|shape| shape.is_subject());
    let sums = spec.lookups.iter().filter_map(|lookup| Some((lookup, lookup.subjects.as_ref()?)));
    let is_empty = |kinds: &[KindReference]| !services().any(|shape| matches_shape(kinds, shape));
    let stranger = |subjects: &SubjectsLookup| subjects.kinds.iter().any(|kind| is_empty(std::slice::from_ref(kind)));
    let mut empty = sums.filter(|(_, subjects)| is_empty(lookups::kinds(subjects, of_rule)) || stranger(subjects));
    let (RuleLookup { name, .. }, _) = empty.next()?;
    let known = services().map(|shape| shape.name.as_str()).collect::<Vec<_>>().join(", ");
    Some(Flaw::new(format!("spec.lookups[{name}].subjects.kinds"), format!("sums cover subjects: {known}")))
}

fn matches_shape(kinds: &[KindReference], shape: &KindFields) -> bool {
    selector::is_of(kinds, &shape.group, &shape.name)
}
