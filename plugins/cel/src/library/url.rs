//! URLs.

use super::args::{give, give_bool, give_special, give_text, special, text};
use super::{Function, P, global, member};
use crate::error::fail;
use crate::value::object::{Key, Object};
use crate::value::url::Url;
use crate::value::{list_of, text as text_value};

const U: P = P::Special("kubernetes.URL");

pub(crate) const FUNCTIONS: &[Function] = &[
    global("url", &[(&[P::String], U)], |args| {
        give_special(Url::parse(text(&args, 0)?).map_err(|why| fail(format!("URL parse error during conversion from string: {why}")))?)
    }),
    global("isURL", &[(&[P::String], P::Bool)], |args| give_bool(Url::is_valid(text(&args, 0)?).is_ok())),
    member("getScheme", &[(&[U], P::String)], |args| give_text(special::<Url>(&args, 0)?.scheme.as_str())),
    member("getHost", &[(&[U], P::String)], |args| give_text(special::<Url>(&args, 0)?.host.as_str())),
    member("getHostname", &[(&[U], P::String)], |args| give_text(special::<Url>(&args, 0)?.host_name())),
    member("getPort", &[(&[U], P::String)], |args| give_text(special::<Url>(&args, 0)?.port())),
    member("getEscapedPath", &[(&[U], P::String)], |args| give_text(special::<Url>(&args, 0)?.escaped_path())),
    member("getQuery", &[(&[U], P::Map(&P::String, &P::List(&P::String)))], |args| {
        let parameters = special::<Url>(&args, 0)?.query().into_iter();
        give(Object::new(parameters.map(|(key, values)| (Key::text(key), list_of(values.into_iter().map(text_value)))).collect()))
    }),
];
