//! The questions to the evaluator and its answers as Rust types, equivalent to wit/evaluator.wit.

/// An expression with a name: a variable, or a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// The expression.
    pub expression: String,
}

/// An expression that must be true.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// The expression.
    pub expression: String,
    /// The expression for the message if it is false.
    pub message: Option<String>,
}

/// The CEL expressions of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The names that its expressions may use, such as `object`. `variables` is always available.
    pub roots: Vec<String>,
    /// The rule applies only if all of these are true.
    pub conditions: Vec<Named>,
    /// The queries that the host runs before it sets the root `lookups`. They can use neither variables nor that root.
    pub lookups: Vec<Named>,
    /// Each is evaluated when it is first used. A variable may use earlier ones.
    pub variables: Vec<Named>,
    /// The expressions that must be true if the rule applies.
    pub validations: Vec<Validation>,
}

/// An expression of a rule, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionId {
    /// A condition.
    Condition(u32),
    /// A lookup.
    Lookup(u32),
    /// A variable.
    Variable(u32),
    /// A validation.
    Validation(u32),
    /// The message of a validation.
    Message(u32),
}

/// An error in an expression, with its position: lines and columns start at 1, columns count characters, and 0 means unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The expression.
    pub part: ExpressionId,
    /// Its line.
    pub line: u32,
    /// Its column.
    pub column: u32,
    /// The error, in one sentence.
    pub message: String,
}

/// A step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A field or key with a known name.
    Field(String),
    /// Any element of a list, or any value of a map.
    Element,
    /// Any key of a map.
    Key,
}

/// A value that an expression reads, by the path to it from a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The expression that reads it.
    pub part: ExpressionId,
    /// The line in the expression.
    pub line: u32,
    /// The column in the expression.
    pub column: u32,
    /// The name of the root.
    pub root: String,
    /// The steps from the root.
    pub steps: Vec<Step>,
}

/// The result of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is true.
    Holds,
    /// It is false. Contains the message, if there is an expression for it and that returned a text.
    Broken(Option<String>),
    /// It can't be evaluated.
    Failed(Problem),
}

/// The result of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rule doesn't apply, because the condition at this position is false.
    Unmatched(u32),
    /// A condition can't be evaluated.
    Undecided(Problem),
    /// One verdict per validation.
    Judged(Vec<Verdict>),
}
