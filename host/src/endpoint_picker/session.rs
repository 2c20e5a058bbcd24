//! Sessions: a header contains the endpoint that clients return to.

use super::cluster::PoolView;
use base64::{Engine, engine::general_purpose::STANDARD};
use pointsman_picker::{
    config::{PickerConfig, ScorerKind, SessionBinding},
    protocol::RequestHead,
};

/// The pod of the request's session, if it is in the pool's namespace.
pub(super) fn pod(head: &RequestHead, view: &PoolView) -> Option<String> {
    let decoded = STANDARD.decode(head.session.as_deref()?).ok()?;
    let (namespace, pod) = std::str::from_utf8(&decoded).ok()?.split_once('/')?;
    (namespace == view.namespace()).then(|| pod.to_owned())
}

/// The header that returns the client to the pod, unless the client already has it.
pub(super) fn header(head: &RequestHead, config: &PickerConfig, view: &PoolView, pod: &str) -> Option<(String, String)> {
    let header = config.profiles.primary().scorers.iter().find_map(|scorer| match &scorer.kind {
        ScorerKind::SessionAffinity(affinity) => match &affinity.binding {
            SessionBinding::Token { header } => Some(header),
            SessionBinding::Identifier { .. } => None,
        },
        _ => None,
    })?;
    let value = STANDARD.encode(format!("{}/{pod}", view.namespace()));
    (head.session.as_deref() != Some(&*value)).then(|| (header.clone(), value))
}
