//! Why a request's body is invalid.

use super::{MAX_DEPTH, form};
use thiserror::Error;

/// An invalid body. It is the client's mistake and gets a response with status 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{problem} (byte {at})")]
pub struct BodyError {
    /// The problem.
    pub problem: Problem,
    /// The position: the byte, counted from 0.
    pub at: usize,
}

/// A problem of a body, with its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// It doesn't begin with an object.
    #[error("the body must be a JSON object in UTF-8")]
    NotAnObject,
    /// It has an unexpected byte.
    #[error("the body isn't valid JSON")]
    Syntax,
    /// It ends inside the object.
    #[error("the body ends before its JSON object does")]
    Truncated,
    /// It lacks a field that the API requires.
    #[error("the body has no {0}")]
    Missing(&'static str),
    /// A field has a value of another type.
    #[error("`{0}` must be a string, and in a form plain text")]
    NotAString(&'static str),
    /// The model's name is empty.
    #[error("`model` is empty: set it to the name of a model")]
    Empty,
    /// A field's text is too long.
    #[error("`{0}` is longer than {1} bytes")]
    TooLong(&'static str, usize),
    /// The model occurs twice.
    #[error("the body has `model` twice: remove one of them")]
    Twice,
    /// Some servers would use the field as the model.
    #[error("the body has a field that differs from `model` by capitals alone: write it in lower case")]
    Capitals,
    /// It is nested too deeply.
    #[error("the body nests objects and arrays deeper than {MAX_DEPTH}")]
    TooDeep,
    /// It exceeds the limit of the reader: status 413 is more suitable.
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    /// It isn't a form, or its boundary is invalid.
    #[error("the Content-Type must be multipart/form-data with a boundary of at most {} characters", form::MAX_BOUNDARY)]
    Boundary,
    /// It isn't a valid form.
    #[error(
        "the form isn't valid: each part needs one Content-Disposition with a plain `name`, and nothing may stand outside of the parts"
    )]
    Form,
    /// It ends before its last boundary.
    #[error("the form ends before its last boundary")]
    FormTruncated,
    /// It has too many parts.
    #[error("the form has more than {} parts", form::MAX_PARTS)]
    TooManyParts,
    /// The headers of a part are too long.
    #[error("the headers of a part are longer than {} bytes", form::MAX_HEADERS)]
    HeadersTooLong,
    /// The name can't be the content of a form's part.
    #[error("the model's new name can't stand in a form")]
    Unwritable,
}

impl Problem {
    /// The problem at a position.
    pub(super) fn at(self, at: usize) -> BodyError {
        BodyError { problem: self, at }
    }
}
