//! The gateway in front of models: a reverse proxy that routes by the model in a request's body, and holds requests while a model wakes.
//!
//! `server` accepts connections and `proxy` handles requests: `callers` and `quota` determine who may send requests, `scan` finds the
//! model, `catalog` and `model` determine when the request may proceed, and `backend` sends it.

pub mod address;
pub mod backend;
pub mod body;
pub mod callers;
pub mod catalog;
pub mod cluster;
pub mod counts;
pub mod error;
pub mod form_model;
pub mod headers;
pub mod json_model;
pub mod key_folder;
pub mod limits;
pub mod model;
pub mod proxy;
pub mod quota;
pub mod record;
pub mod resolve;
pub mod response;
pub mod scan;
pub mod server;
pub mod target;
pub mod usage;

use thiserror::Error;

/// The maximum length of a model's name, in bytes.
pub const MAX_MODEL: usize = 256;

/// The maximum depth of nested objects and arrays.
const MAX_DEPTH: u32 = 128;

/// Why a body can't be routed. Each message has the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It isn't a JSON object.
    #[error("the body must be a JSON object in UTF-8")]
    NotAnObject,
    /// A syntax error at this byte, counted from 0.
    #[error("the body isn't valid JSON: byte {0} isn't expected there")]
    Syntax(u64),
    /// It has ended within the object.
    #[error("the body ends before its JSON object does")]
    Truncated,
    /// It has no model.
    #[error("the body has no model: set `model` to the name of one")]
    NoModel,
    /// The model isn't a name.
    #[error("`model` must be a string, and in a form plain text")]
    NotAString,
    /// The name is empty.
    #[error("`model` is empty: set it to the name of a model")]
    Empty,
    /// The name is too long.
    #[error("`model` is longer than {MAX_MODEL} bytes")]
    TooLong,
    /// There are two.
    #[error("the body has `model` twice: remove one of them")]
    Twice,
    /// Some servers would treat the field as the model.
    #[error("the body has a field that differs from `model` by capitals alone: write it in lower case")]
    Capitals,
    /// It isn't a form, or its boundary isn't one.
    #[error("the Content-Type must be multipart/form-data with a boundary of at most 70 characters")]
    Boundary,
    /// Its syntax isn't that of a form.
    #[error(
        "the form isn't valid: each part needs one Content-Disposition with a plain `name`, and nothing may stand outside of the parts"
    )]
    Form,
    /// It has ended before its last boundary.
    #[error("the form ends before its last boundary")]
    FormTruncated,
    /// It has too many parts.
    #[error("the form has more than 256 parts")]
    TooManyParts,
    /// The headers of a part are too long.
    #[error("the headers of a part are longer than 8 KiB")]
    HeadersTooLong,
    /// It is nested too deep.
    #[error("the body nests objects and arrays deeper than {MAX_DEPTH}")]
    TooDeep,
}
