//! Writes the labels for `kubectl get --selector` on subjects.

use super::{Applier, ApplyError, RequestError, api_error};
use pointsman_core::world::{Subject, child::fingerprint, subject::LABELS_MANAGER};
use serde_json::json;
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The delay before labels that the API server has refused are written again.
const REFUSED_DELAY: Duration = Duration::from_mins(10);

impl Applier {
    /// Writes our labels on a subject, and removes our others. Refused labels aren't written again for a while: nothing of the subject's
    /// objects depends on them.
    pub async fn label(&self, subject: &Subject, labels: &BTreeMap<String, String>) -> Result<(), ApplyError> {
        let key = &subject.key;
        let planned = fingerprint(&json!(labels));
        let before = fingerprint(&json!(subject.own_labels));
        // The fingerprint changes with each period: a right may have been granted meanwhile.
        let period = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / REFUSED_DELAY.as_secs();
        let refused = fingerprint(&json!([labels, period]));
        if [planned, refused].iter().any(|planned| self.is_server_mutation(key, key, false, (*planned, before))) {
            return Ok(());
        }
        // With the uid, an apply creates nothing.
        let whole = json!({
            "apiVersion": key.resource.api_version(), "kind": key.resource.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": subject.uid, "labels": labels},
        });
        let made = match self.patch("label", key, LABELS_MANAGER, false, &whole).await {
            // It is gone, or somebody has set one of them meanwhile: the watch reports that.
            Err(RequestError::Api(answer)) if answer.code == 404 || answer.code == 409 => return Ok(()),
            Err(error) => match api_error(key, &error) {
                ApplyError::Refused { message, .. } => {
                    if self.record_server_mutation(key, key, false, (refused, before)) {
                        tracing::warn!(
                            subject = %key,
                            "can't write the labels by which the service is selected: {message} Allow the host to label it, or set \
                             --subject-labels=false"
                        );
                    }
                    return Ok(());
                }
                error => return Err(error),
            },
            Ok(made) => made,
        };
        let news = self.read(key.resource, &made);
        if let Some(after) = news.subject().filter(|after| after.own_labels != *labels) {
            self.record_server_mutation(key, key, false, (planned, fingerprint(&json!(after.own_labels))));
        }
        // Plans don't read these labels: the subject is touched only if another writer has also changed it.
        let is_no_news = news.subject().is_some_and(|made| made.asks_the_same(subject));
        self.answered(news, is_no_news.then_some(key));
        Ok(())
    }
}
