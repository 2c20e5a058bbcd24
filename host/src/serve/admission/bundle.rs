//! Writes the caBundle of the webhook configurations and of the APIService, so that the API server trusts this host. The leader writes it
//! if it differs, and nothing else of these objects, which manifests create.

use crate::{leader::Leadership, permissions::EXTERNAL_METRICS_SECRET, problem::sentence};
use futures::StreamExt;
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig},
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{fmt::Debug, pin::pin, time::Duration};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};

/// The interval of checks for a due write, and of retries.
const LOOK: Duration = Duration::from_secs(5);

/// The timeout of a write.
const WRITE_WITHIN: Duration = Duration::from_secs(4);

/// The prefix of the annotations with which cert-manager writes the caBundle.
const INJECT_ANNOTATION_PREFIX: &str = "cert-manager.io/inject-";

/// A kind of object with the CAs that the API server trusts for a server.
pub trait Configuration: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static {
    /// The part of a patch that sets these CAs; none if they are set.
    fn trust(&self, bundle: &ByteString) -> Option<Value>;
}

impl Configuration for ValidatingWebhookConfiguration {
    fn trust(&self, bundle: &ByteString) -> Option<Value> {
        trust_webhooks(self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)), bundle)
    }
}

impl Configuration for MutatingWebhookConfiguration {
    fn trust(&self, bundle: &ByteString) -> Option<Value> {
        trust_webhooks(self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)), bundle)
    }
}

fn trust_webhooks<'w>(webhooks: impl Iterator<Item = (&'w str, &'w WebhookClientConfig)>, bundle: &ByteString) -> Option<Value> {
    let differs = webhooks.filter(|(_, client)| client.ca_bundle.as_ref() != Some(bundle));
    let differs: Vec<Value> = differs.map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": bundle}})).collect();
    (!differs.is_empty()).then(|| json!({"webhooks": differs}))
}

impl Configuration for APIService {
    /// Only for an APIService that leads to hosts: another adapter's may have the same name.
    fn trust(&self, bundle: &ByteString) -> Option<Value> {
        let spec = self.spec.as_ref()?;
        let is_ours = spec.service.as_ref().is_some_and(|service| service.name.as_deref() == Some(EXTERNAL_METRICS_SECRET));
        let differs = is_ours && spec.ca_bundle.as_ref() != Some(bundle);
        differs.then(|| json!({"spec": {"caBundle": bundle}}))
    }
}

/// Keeps the caBundle of both configurations of a name up to date. Never ends by itself.
pub async fn keep(client: Client, name: &str, leadership: Leadership, bundle: watch::Receiver<Option<String>>) {
    let validating = keep_one::<ValidatingWebhookConfiguration>(client.clone(), name, leadership.clone(), bundle.clone());
    let defaulting = keep_one::<MutatingWebhookConfiguration>(client, name, leadership, bundle);
    tokio::join!(validating, defaulting);
}

/// Keeps the caBundle of one object up to date. Never ends by itself.
pub async fn keep_one<K: Configuration>(client: Client, name: &str, leadership: Leadership, mut bundle: watch::Receiver<Option<String>>) {
    let api = Api::<K>::all(client);
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher::watcher(api.clone(), only).default_backoff());
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut found, mut complaint) = (None, String::new());
    let kind = K::kind(&());
    loop {
        let mut trouble = None;
        tokio::select! {
            Some(event) = events.next() => match event {
                Ok(watcher::Event::Init | watcher::Event::Delete(_)) => found = None,
                Ok(watcher::Event::InitApply(configuration) | watcher::Event::Apply(configuration)) => found = Some(configuration),
                Ok(watcher::Event::InitDone) => {}
                Err(error) => trouble = Some(format!("it can't be read: {}", sentence(&error))),
            },
            // If the sender is gone, the last value stays.
            Ok(()) = bundle.changed() => {}
            _ = looks.tick() => {}
        }
        let wanted = bundle.borrow().clone();
        let patch = found.as_ref().zip(wanted).and_then(|(found, wanted)| patch(found, &wanted));
        if let Some(patch) = patch.filter(|_| leadership.held()) {
            match timeout(WRITE_WITHIN, api.patch(name, &PatchParams::default(), &Patch::Strategic(patch))).await {
                Ok(Ok(written)) => {
                    tracing::info!(configuration = name, kind = &*kind, "wrote the CA bundle that the API server trusts");
                    found = Some(written);
                    complaint.clear();
                }
                Ok(Err(error)) => trouble = Some(format!("its caBundle can't be written: {}", sentence(&error))),
                Err(_) => trouble = Some("its caBundle can't be written: the API server doesn't answer".to_owned()),
            }
        }
        if let Some(trouble) = trouble.filter(|trouble| *trouble != complaint) {
            tracing::warn!(configuration = name, kind = &*kind, error = trouble, "the configuration can't be stored; trying again");
            complaint = trouble;
        }
    }
}

/// The patch for an object; none if it is up to date, or if cert-manager writes it.
fn patch<K: Configuration>(configuration: &K, bundle: &str) -> Option<Value> {
    if configuration.annotations().keys().any(|key| key.starts_with(INJECT_ANNOTATION_PREFIX)) {
        return None;
    }
    let mut patch = configuration.trust(&ByteString(bundle.as_bytes().to_vec()))?;
    // With the version that was read: otherwise a deleted configuration would be created again, with only its name.
    patch["metadata"] = json!({"resourceVersion": configuration.resource_version()});
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(bundles: [Option<&str>; 2]) -> ValidatingWebhookConfiguration {
        let webhook = |(name, bundle): (&str, Option<&str>)| {
            let bundle = bundle.map(|bundle| ByteString(bundle.as_bytes().to_vec()));
            json!({
                "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"caBundle": bundle, "url": "https://127.0.0.1:1/validate"},
            })
        };
        let webhooks: Vec<Value> = ["a.example.com", "b.example.com"].into_iter().zip(bundles).map(webhook).collect();
        serde_json::from_value(json!({"metadata": {"name": "pointsman", "resourceVersion": "7"}, "webhooks": webhooks})).unwrap()
    }

    #[test]
    fn only_webhooks_whose_bundle_differs_are_written_and_only_that_of_them() {
        let patch = patch(&configuration([Some("new"), Some("old")]), "new").unwrap();
        let bundle = ByteString(b"new".to_vec());
        let webhooks = json!([{"name": "b.example.com", "clientConfig": {"caBundle": bundle}}]);
        assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "webhooks": webhooks}));
    }

    #[test]
    fn of_an_api_service_only_one_that_leads_to_hosts_is_written() {
        let service = |name: &str, bundle: Value| -> APIService {
            let service = json!({"name": name, "namespace": "pointsman-system"});
            let spec = json!({"groupPriorityMinimum": 100, "versionPriority": 100, "service": service, "caBundle": bundle});
            let metadata = json!({"name": "v1beta1.external.metrics.k8s.io", "resourceVersion": "7"});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let bundle = ByteString(b"new".to_vec());
        let expected = json!({"metadata": {"resourceVersion": "7"}, "spec": {"caBundle": bundle}});
        assert_eq!(patch(&service("pointsman-external-metrics", Value::Null), "new"), Some(expected));
        assert_eq!(patch(&service("pointsman-external-metrics", json!(bundle)), "new"), None);
        assert_eq!(patch(&service("keda-operator-metrics-apiserver", Value::Null), "new"), None);
    }

    #[test]
    fn where_all_is_well_and_where_cert_manager_writes_nothing_is_written() {
        assert_eq!(patch(&configuration([Some("new"), Some("new")]), "new"), None);
        let mut theirs = configuration([None, None]);
        let annotation = ("cert-manager.io/inject-ca-from".to_owned(), "pointsman-system/pointsman-webhook".to_owned());
        theirs.metadata.annotations = Some([annotation].into());
        assert_eq!(patch(&theirs, "new"), None);
    }
}
