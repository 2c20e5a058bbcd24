//! The operand and result types of operators.

use super::kind::{ExprType, resolve};
use crate::library::P;
use cel::common::ast::operators;

type Overloads = &'static [(&'static [P], P)];

const A: P = P::A;
const LIST: P = P::List(&A);

const ADD: Overloads = &[
    (&[P::Int, P::Int], P::Int),
    (&[P::Uint, P::Uint], P::Uint),
    (&[P::Double, P::Double], P::Double),
    (&[P::String, P::String], P::String),
    (&[P::Bytes, P::Bytes], P::Bytes),
    (&[LIST, LIST], LIST),
    (&[P::Duration, P::Duration], P::Duration),
    (&[P::Duration, P::Timestamp], P::Timestamp),
    (&[P::Timestamp, P::Duration], P::Timestamp),
];
const SUBTRACT: Overloads = &[
    (&[P::Int, P::Int], P::Int),
    (&[P::Uint, P::Uint], P::Uint),
    (&[P::Double, P::Double], P::Double),
    (&[P::Duration, P::Duration], P::Duration),
    (&[P::Timestamp, P::Duration], P::Timestamp),
    (&[P::Timestamp, P::Timestamp], P::Duration),
];
const SCALE: Overloads = &[(&[P::Int, P::Int], P::Int), (&[P::Uint, P::Uint], P::Uint), (&[P::Double, P::Double], P::Double)];
const MODULO: Overloads = &[(&[P::Int, P::Int], P::Int), (&[P::Uint, P::Uint], P::Uint)];
const NEGATE: Overloads = &[(&[P::Int], P::Int), (&[P::Double], P::Double)];
const SAME: Overloads = &[(&[A, A], P::Bool)];
const IN: Overloads = &[(&[A, LIST], P::Bool), (&[A, P::Map(&A, &P::Dyn)], P::Bool)];
const BOTH: Overloads = &[(&[P::Bool, P::Bool], P::Bool)];
const NOT: Overloads = &[(&[P::Bool], P::Bool)];
const ORDER: Overloads = &[
    (&[P::Bool, P::Bool], P::Bool),
    (&[P::Int, P::Int], P::Bool),
    (&[P::Int, P::Uint], P::Bool),
    (&[P::Int, P::Double], P::Bool),
    (&[P::Uint, P::Uint], P::Bool),
    (&[P::Uint, P::Int], P::Bool),
    (&[P::Uint, P::Double], P::Bool),
    (&[P::Double, P::Double], P::Bool),
    (&[P::Double, P::Int], P::Bool),
    (&[P::Double, P::Uint], P::Bool),
    (&[P::String, P::String], P::Bool),
    (&[P::Bytes, P::Bytes], P::Bool),
    (&[P::Timestamp, P::Timestamp], P::Bool),
    (&[P::Duration, P::Duration], P::Bool),
];

/// Whether a function's name is an operator.
pub(crate) fn is_operator(name: &str) -> bool {
    overloads(name).is_some() || name == operators::CONDITIONAL
}

/// The result type of an operator; none if it doesn't accept these operands.
pub(crate) fn result(name: &str, operands: &[ExprType]) -> Option<ExprType> {
    match name {
        operators::CONDITIONAL => conditional(operands),
        operators::INDEX => indexed(operands, false),
        operators::OPT_INDEX => indexed(operands, true),
        _ => resolve(overloads(name)?, operands),
    }
}

fn overloads(name: &str) -> Option<Overloads> {
    Some(match name {
        operators::ADD => ADD,
        operators::SUBSTRACT => SUBTRACT,
        operators::MULTIPLY | operators::DIVIDE => SCALE,
        operators::MODULO => MODULO,
        operators::NEGATE => NEGATE,
        operators::EQUALS | operators::NOT_EQUALS => SAME,
        operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS => ORDER,
        operators::IN => IN,
        operators::LOGICAL_AND | operators::LOGICAL_OR => BOTH,
        operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE => NOT,
        _ => return None,
    })
}

fn conditional(operands: &[ExprType]) -> Option<ExprType> {
    match operands {
        [condition, one, other] if condition.fits(&ExprType::Bool) && one.fits(other) => Some(one.or(other)),
        _ => None,
    }
}

/// The type of an indexed element. For an optional value, it is optional, as with a question mark.
fn indexed(operands: &[ExprType], optionally: bool) -> Option<ExprType> {
    let [of, index] = operands else {
        return None;
    };
    let (of, optionally) = match of {
        ExprType::Optional(content) => (&**content, true),
        of => (of, optionally),
    };
    let found = match of {
        ExprType::Dyn | ExprType::Free => ExprType::Dyn,
        ExprType::List(element) if index.fits(&ExprType::Int) => (**element).clone(),
        ExprType::Map(key, value) if index.fits(key) => (**value).clone(),
        _ => return None,
    };
    Some(if optionally { ExprType::optional(found) } else { found })
}
