//! Asks the API server whether it would accept an object, without writing it.

use super::{
    Applier, ApplyError,
    error::{RequestError, api_error},
    url,
};
use kube::{
    api::{Patch, PatchParams},
    core::Request,
};
use pointsman_core::{
    plan::Object,
    world::{ObjectKey, child::manager},
};

impl Applier {
    /// Why the API server would reject the update of an existing object as invalid; none if it would accept it. None as well if the
    /// response says nothing about the object: the API server may be busy, or a webhook may not support dry runs.
    pub async fn dry_run(&self, subject: &ObjectKey, object: &Object) -> Option<String> {
        let key = &object.key;
        let params =
            PatchParams { dry_run: true, force: true, field_manager: Some(manager(subject.resource.kind)), ..PatchParams::default() };
        let request = Request::new(url(key)).patch(&key.name, &params, &Patch::Apply(&object.written())).ok()?;
        let RequestError::Api(status) = self.send("dry-run", key, request).await.err()? else { return None };
        let is_about_object = matches!(status.code, 400 | 422) && !status.message.contains("dry run");
        match api_error(key, &RequestError::Api(status)) {
            ApplyError::Refused { message, .. } if is_about_object => Some(message),
            _ => None,
        }
    }
}
