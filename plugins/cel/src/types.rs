//! What is asked of the evaluator and what it answers, as plain Rust: the image of wit/evaluator.wit.

/// An expression with a name: a variable, or a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// The expression.
    pub expression: String,
}

/// Something that must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// What must be true.
    pub expression: String,
    /// What gives the message when it is false.
    pub message: Option<String>,
}

/// A rule, as far as it is CEL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The names that its expressions may use, such as `object`. `variables` comes by itself.
    pub roots: Vec<String>,
    /// All must be true for the rule to apply.
    pub conditions: Vec<Named>,
    /// What says what the host is to find before it sets the root `lookups`. They know no variables, and not that root.
    pub lookups: Vec<Named>,
    /// Evaluated when they are first used. A variable may use those before it.
    pub variables: Vec<Named>,
    /// What must hold where the rule applies.
    pub validations: Vec<Validation>,
}

/// Which expression of a rule, by its position.
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

/// What is wrong with an expression, and where: lines and columns from 1, in characters; 0 where it isn't known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which expression.
    pub part: ExpressionId,
    /// Its line.
    pub line: u32,
    /// Its column.
    pub column: u32,
    /// A sentence.
    pub message: String,
}

/// A step from a value to one inside of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A field or key that is known.
    Field(String),
    /// Some element of a list, or some value of a map.
    Element,
    /// Some key of a map.
    Key,
}

/// A value that an expression reads, by the way that leads to it from a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Which expression reads it.
    pub part: ExpressionId,
    /// The line where.
    pub line: u32,
    /// The column where.
    pub column: u32,
    /// The root's name.
    pub root: String,
    /// The way from it.
    pub steps: Vec<Step>,
}

/// What became of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is true.
    Holds,
    /// It is false; with what its message's expression gave, if there is one and it gave a text.
    Broken(Option<String>),
    /// It can't be evaluated.
    Failed(Problem),
}

/// What became of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It doesn't apply, by the condition of that position.
    Unmatched(u32),
    /// Whether it applies can't be told.
    Undecided(Problem),
    /// A verdict a validation.
    Judged(Vec<Verdict>),
}
