//! The history of each model, in annotations of its Deployment, which a restarted host reads.

use super::{places::MANAGER, requests::annotate};
use crate::watch::each_namespace;
use k8s_openapi::{api::apps::v1::Deployment, jiff::Timestamp};
use kube::{Client, ResourceExt, api::ListParams};
use pointsman_core::{
    allocation::{cluster::History, inputs::seconds},
    resource::INFERENCE_MODEL,
    subject_kind::SUBJECT_KIND,
    world::ObjectKey,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// The annotation with the time of the last request, from eh-ops.
const LAST_REQUEST: &str = "inference.eh-ops.io/last-request-time";

/// The time that the last start took, in seconds.
const START_SECONDS: &str = "pointsman.dev/start-seconds";

/// The times of the last hour at which the model was admitted, separated by commas.
const WAKES: &str = "pointsman.dev/wakes";

/// The minimum interval between two writes of a model's history, in seconds.
pub(super) const WRITE_INTERVAL: u64 = 60;

fn time_text(seconds: u64) -> Option<String> {
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok().map(|time| time.to_string())
}

/// Parses the annotations.
fn read(annotations: &BTreeMap<String, String>) -> History {
    History {
        last_request: annotations.get(LAST_REQUEST).and_then(|text| seconds(text)),
        start_seconds: annotations.get(START_SECONDS).and_then(|text| text.parse().ok()).filter(|number: &f64| number.is_finite()),
        wakes: annotations.get(WAKES).into_iter().flat_map(|text| text.split(',')).filter_map(seconds).collect(),
    }
}

/// The history as annotations.
fn write(history: &History) -> BTreeMap<&'static str, String> {
    let wakes: Vec<String> = history.wakes.iter().filter_map(|wake| time_text(*wake)).collect();
    let mut annotations = BTreeMap::new();
    annotations.extend(history.last_request.and_then(time_text).map(|text| (LAST_REQUEST, text)));
    annotations.extend(history.start_seconds.map(|seconds| (START_SECONDS, seconds.to_string())));
    annotations.extend((!wakes.is_empty()).then(|| (WAKES, wakes.join(","))));
    annotations
}

/// Reads the histories of all models. `namespaces` are those that the host serves; none means all.
pub(super) async fn load(client: &Client, namespaces: &BTreeSet<String>) -> kube::Result<BTreeMap<ObjectKey, History>> {
    let ours = ListParams::default().labels(&format!("{SUBJECT_KIND}={}", INFERENCE_MODEL.kind));
    let mut histories = BTreeMap::new();
    for api in each_namespace::<Deployment>(client, namespaces) {
        for deployment in api.list_metadata(&ours).await? {
            let (namespace, name) = (deployment.namespace().unwrap_or_default(), deployment.name_any());
            histories.insert(ObjectKey { resource: &INFERENCE_MODEL, namespace, name }, read(deployment.annotations()));
        }
    }
    Ok(histories)
}

/// Writes a history to a model's Deployment. Without a Deployment the model has never run, so nothing is lost.
pub(super) async fn save(client: &Client, model: &ObjectKey, history: &History) -> kube::Result<()> {
    annotate(client.clone(), model, MANAGER, json!(write(history))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_read_as_it_was_written() {
        let history = History { last_request: Some(1_764_000_000), start_seconds: Some(12.5), wakes: vec![1_764_000_000, 1_764_000_060] };
        let written = write(&history);
        assert_eq!(written[LAST_REQUEST], "2025-11-24T16:00:00Z");
        assert_eq!(written[WAKES], "2025-11-24T16:00:00Z,2025-11-24T16:01:00Z");
        let annotations: BTreeMap<String, String> = written.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
        assert_eq!(read(&annotations), history);
        assert_eq!(read(&BTreeMap::from([(LAST_REQUEST.to_owned(), "soon".to_owned())])), History::default());
    }
}
