//! The spans of one reconcile: one for the log, and the root of a trace.

use crate::apply::ApplyError;
use pointsman_core::{spans, world::ObjectKey};
use std::time::SystemTime;
use tracing::{
    Span,
    field::{Empty, display},
};

/// Two spans, because a trace has fields and a start time that the log doesn't have.
pub(super) struct ReconcileSpans {
    pub(super) log: Span,
    pub(super) trace: Span,
}

impl ReconcileSpans {
    /// Starts both spans. The trace includes the time in the queue.
    pub(super) fn begin(key: &ObjectKey, since: SystemTime) -> Self {
        let log = tracing::info_span!("reconcile", subject = %key, set = Empty, decisions = Empty);
        let trace = tracing::debug_span!(
            target: spans::TARGET, spans::RECONCILE, { spans::BEGIN } = nanoseconds(since), subject = %key, set = Empty, decisions = Empty,
            result = Empty, otel.status_code = Empty, otel.status_description = Empty,
        );
        let queued = || drop(tracing::debug_span!(target: spans::TARGET, "queue", { spans::BEGIN } = nanoseconds(since)));
        trace.in_scope(queued);
        Self { log, trace }
    }

    /// Records the result, as one word.
    pub(super) fn result(&self, result: &str) {
        self.trace.record("result", result);
    }

    /// Records the result of a plan, or that another controller contests the subject.
    pub(super) fn outcome(&self, contested: bool, outcome: &Result<(), ApplyError>) {
        self.result(match outcome {
            Ok(()) if contested => "Contested",
            Ok(()) => "Done",
            Err(ApplyError::Contested(_)) => "Contested",
            Err(ApplyError::NotLeading) => "NotLeading",
            Err(ApplyError::Outdated) => "Outdated",
            Err(ApplyError::Passing(..)) => "Retrying",
            Err(ApplyError::Refused { reason, .. }) => reason,
        });
        if let Err(error @ (ApplyError::Passing(..) | ApplyError::Refused { .. })) = outcome {
            self.trace.record("otel.status_code", "error").record("otel.status_description", display(error));
        }
    }
}

/// Nanoseconds since 1970, as a span has them.
fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or_default()
}
