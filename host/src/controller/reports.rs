//! Reports on a subject in addition to its status: events, and that another controller works on it.

use super::Controller;
use crate::{
    apply::{ApplyError, ContestReport, request_span},
    problem::sentence,
};
use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use kube::runtime::events::{Event, EventType};
use pointsman_core::{
    condition::CONTESTED,
    contest::Contest,
    status::TransitionEvent,
    world::{ObjectKey, Subject},
};
use tracing::Instrument;

/// The maximum length of an event's note.
const NOTE: usize = 1024;

impl Controller {
    /// Leaves a subject to another controller, and reports that.
    pub(super) async fn report_contest(&self, subject: &Subject, contest: Contest) -> Result<(), ApplyError> {
        match self.applier.contest(subject, &contest, Timestamp::now()).await? {
            ContestReport::Before => {}
            ContestReport::Now => {
                let told = contest.condition();
                self.emit_events(subject, vec![TransitionEvent { reason: CONTESTED.to_owned(), message: told.message, is_warning: true }])
                    .await;
            }
            ContestReport::TakenAway => {
                self.reconciles.taken_away(subject.key.resource.kind);
                tracing::warn!(subject = %subject.key, "another writer removed the condition {CONTESTED}; the subject stays contested. \
                                                        {}", contest.message());
            }
        }
        // A change of the subject ends the contest; or it is rechecked later, because the other controller's objects aren't watched.
        if contest.needs_adoption() || contest.recheck_after().is_some() { Ok(()) } else { Err(ApplyError::Contested(contest)) }
    }

    pub(super) async fn emit_events(&self, subject: &Subject, turned: Vec<TransitionEvent>) {
        let ObjectKey { resource, namespace, name } = &subject.key;
        let reference = ObjectReference {
            api_version: Some(resource.api_version()),
            kind: Some(resource.kind.to_owned()),
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: Some(subject.uid.clone()),
            ..ObjectReference::default()
        };
        for TransitionEvent { reason, message, is_warning } in turned {
            if !self.leadership.held() {
                return;
            }
            let mut note = message;
            note.truncate(note.floor_char_boundary(NOTE));
            let span = request_span("event", &subject.key);
            let type_ = if is_warning { EventType::Warning } else { EventType::Normal };
            let event = Event { type_, reason, note: Some(note), action: "Reconciling".to_owned(), secondary: None };
            if let Err(error) = self.recorder.publish(&event, &reference).instrument(span).await {
                tracing::warn!(subject = %subject.key, error = sentence(&error), "an event could not be written");
            }
        }
    }
}
