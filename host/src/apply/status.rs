//! Writes the statuses of subjects.

use super::{
    Applier, ApplyError,
    error::{RequestError, api_error},
    url,
};
use crate::watch::seen::ObjectText;
use k8s_openapi::jiff::Timestamp;
use kube::{
    api::{Patch, PatchParams},
    core::Request,
};
use pointsman_core::{
    contest::Contest,
    status::{difference, without_times},
    world::{
        ObjectKey, Subject,
        child::{fingerprint, manager},
    },
};
use serde_json::{Value, json};

/// The outcome of reporting that a subject is contested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContestReport {
    /// The status already has the report.
    Before,
    /// The report was written now.
    Now,
    /// It was reported before, and another writer has removed it.
    TakenAway,
}

impl Applier {
    /// Writes the status of a subject. Returns false if nothing changes.
    pub async fn status(&self, subject: &Subject, before: &Value, status: &Value) -> Result<bool, ApplyError> {
        // If another contest starts, it must be reported again.
        self.remember(&subject.key, |memory| memory.contest = None);
        let (planned, live) = (fingerprint(&without_times(status)), fingerprint(before));
        if before == status || self.is_server_mutation(&subject.key, &subject.key, true, (planned, live)) {
            return Ok(false);
        }
        // Not server-side apply, which rejects a field that the CRD lacks, and OME's own CRDs lack some of ours. A merge patch drops such
        // fields. The uid prevents writing to another subject of the same name.
        let difference = difference(before, status);
        let mut metadata = json!({"uid": subject.uid});
        // The list of conditions is written as a whole: conditions that others have added meanwhile must not be lost.
        if difference.get("conditions").is_some() {
            metadata["resourceVersion"] = subject.version.to_string().into();
        }
        let made = match self.patch_status(subject, &json!({"metadata": metadata, "status": difference})).await {
            // It is gone, and the watch reports that.
            Err(RequestError::Api(answer)) if answer.code == 404 => return Ok(false),
            Err(RequestError::Api(answer)) if answer.code == 409 => return Err(ApplyError::Outdated),
            made => made.map_err(|error| api_error(&subject.key, &error))?,
        };
        let news = self.read(subject.key.resource, &made);
        let after = news.subject().map(Subject::status).unwrap_or_default();
        if after != *status {
            self.record_server_mutation(&subject.key, &subject.key, true, (planned, fingerprint(&after)));
        }
        // The subject is touched only if another writer has also changed it.
        let touches = !news.subject().is_some_and(|made| made.asks_the_same(subject));
        self.answered(news, if touches { None } else { Some(&subject.key) });
        Ok(true)
    }

    /// Reports in the status of a subject that another controller works on it, and nothing else: once, and never over a newer state.
    pub async fn contest(&self, subject: &Subject, contest: &Contest, now: Timestamp) -> Result<ContestReport, ApplyError> {
        let before = subject.status();
        let state = (subject.uid.clone(), contest.message().to_owned());
        if contest.is_reported_in(&before) {
            self.remember(&subject.key, |memory| memory.contest = Some(state));
            return Ok(ContestReport::Before);
        }
        if self.remembers(&subject.key, |memory| memory.contest.as_ref() == Some(&state)) {
            return Ok(ContestReport::TakenAway);
        }
        let after = contest.status_with_contest(&before, subject.generation, now);
        let metadata = json!({"uid": subject.uid, "resourceVersion": subject.version.to_string()});
        let patch = json!({"metadata": metadata, "status": difference(&before, &after)});
        let made = self.patch_status(subject, &patch).await.map_err(|error| api_error(&subject.key, &error))?;
        self.remember(&subject.key, |memory| memory.contest = Some(state));
        self.answered(self.read(subject.key.resource, &made), Some(&subject.key));
        Ok(ContestReport::Now)
    }

    async fn patch_status(&self, subject: &Subject, patch: &Value) -> Result<ObjectText, RequestError> {
        let ObjectKey { resource, name, .. } = &subject.key;
        let params = PatchParams { field_manager: Some(manager(resource.kind)), ..PatchParams::default() };
        let request = Request::new(url(&subject.key)).patch_subresource("status", name, &params, &Patch::Merge(patch));
        self.send("status", &subject.key, request.map_err(|error| RequestError::Passing(error.to_string()))?).await
    }
}
