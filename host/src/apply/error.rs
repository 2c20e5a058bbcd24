//! Errors that prevent a plan from being applied, and their messages.

use crate::watch::seen::ObjectText;
use kube::core::Status;
use pointsman_core::{
    contest::Contest,
    world::{ObjectKey, Subject, writers},
};

/// The reason if the API server rejects an object as invalid.
pub const INVALID: &str = "Invalid";

/// Why a plan was not applied completely.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Another host is the leader now.
    #[error("this host is no longer the leader")]
    NotLeading,
    /// The subject has changed: a plan for its newest state follows.
    #[error("it has changed since the plan was made")]
    Outdated,
    /// A retry may succeed.
    #[error("{0}: {1}")]
    Passing(String, String),
    /// Another controller does the same work.
    #[error("{}", .0.message())]
    Contested(Contest),
    /// The API server rejects it.
    #[error("{message}")]
    Refused {
        /// A CamelCase word.
        reason: &'static str,
        /// The problem, its reason and the remedy.
        message: String,
    },
}

/// The failure of a request.
pub(super) enum RequestError {
    NotLeading,
    Api(Box<kube::core::Status>),
    Passing(String),
}

/// The error for an object of the subject that the plan hasn't seen: it is adopted, or another controller's.
pub(super) fn unknown_object_error(subject: &Subject, key: &ObjectKey, there: &ObjectText) -> ApplyError {
    let managed = there.managed_fields();
    let (labelled, _) = there.marks();
    if there.deleting() || labelled && writers::ours(&managed) {
        return ApplyError::Passing(key.to_string(), "the watch has not reported it yet".to_owned());
    }
    let maker = writers::maker(&managed, &subject.uid).filter(|maker| writers::foreign(&maker.manager));
    ApplyError::Contested(Contest::made(&key.to_string(), maker.or_else(|| writers::last(&managed))))
}

/// The error if another object has the name of a planned one. `noun` is the subject's.
pub(super) fn name_taken(noun: &str, key: &ObjectKey, said: &str) -> ApplyError {
    let message = format!("A {key} that doesn't belong to this {noun} exists already: delete it or give the {noun} another name.{said}");
    ApplyError::Refused { reason: "NameTaken", message }
}

/// The error for a response of the API server.
pub(super) fn api_error(key: &ObjectKey, error: &RequestError) -> ApplyError {
    let status = match error {
        RequestError::NotLeading => return ApplyError::NotLeading,
        RequestError::Passing(why) => return ApplyError::Passing(key.to_string(), why.clone()),
        RequestError::Api(status) => status,
    };
    let said = status.message.trim_end_matches('.');
    let (reason, message) = match status.code {
        409 | 429 | 503.. => return ApplyError::Passing(key.to_string(), said.to_owned()),
        // Usually a webhook that doesn't respond. It is also retried, but the status should report it.
        500..=502 => ("ApiServerError", format!("The {key} can't be written: {said}.")),
        403 => ("Forbidden", format!("The API server rejects the {key}: {said}.")),
        404 => ("NotFound", format!("The {key} can't be written: {said}.")),
        422 if said.contains("Only one reference can have Controller set to true") => {
            ("NameTaken", format!("The {key} belongs to something else: delete it or give its new owner another name."))
        }
        _ => (INVALID, format!("The API server rejects the {key} as invalid: {said}.")),
    };
    ApplyError::Refused { reason, message }
}

/// The error for an object that can't be created.
pub(super) fn create_error(noun: &str, key: &ObjectKey, error: &RequestError) -> ApplyError {
    match error {
        // Only this error means that another writer's fields conflict. Other conflicts are transient, and if the name is taken, the next
        // check finds by whom.
        RequestError::Api(status) if status.code == 409 && has_field_conflict(status) => {
            name_taken(noun, key, &format!(" The API server says: {}.", status.message.trim_end_matches('.')))
        }
        error => api_error(key, error),
    }
}

fn has_field_conflict(status: &Status) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == "FieldManagerConflict")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::resource::SERVICE;
    use serde_json::{Value, json};

    fn refused(code: u16, causes: &Value) -> ApplyError {
        let status = json!({"code": code, "message": "it is in the way.", "reason": "Conflict", "details": {"causes": causes}});
        let key = ObjectKey { resource: &SERVICE, namespace: "b".to_owned(), name: "a-engine".to_owned() };
        create_error("service", &key, &RequestError::Api(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn only_another_s_fields_are_a_name_that_is_taken() {
        let ApplyError::Refused { reason, message } = refused(409, &json!([{"reason": "FieldManagerConflict", "field": ".spec.ports"}]))
        else {
            panic!("it is refused");
        };
        assert_eq!(reason, "NameTaken");
        assert_eq!(
            message,
            "A Service b/a-engine that doesn't belong to this service exists already: delete it or give the service another name. \
             The API server says: it is in the way."
        );
        assert!(matches!(refused(409, &json!([])), ApplyError::Passing(object, _) if object == "Service b/a-engine"));
        assert!(matches!(refused(403, &json!([])), ApplyError::Refused { reason: "Forbidden", .. }));
    }
}
