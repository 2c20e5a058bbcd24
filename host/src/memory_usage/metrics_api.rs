//! The reports of metrics.k8s.io: the latest sample of each pod.

use super::{Measured, of_models};
use crate::outbound::OutboundError;
use http::Request;
use kube::{Client, api::ListParams, core::Request as ListRequest};
use pointsman_core::{quantity, subject_kind::INFERENCE_CONTAINER};
use serde::Deserialize;
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct PodMetricsList {
    items: Vec<PodMetrics>,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: Metadata,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    usage: Usage,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    memory: String,
}

pub(super) async fn measure(client: &Client, namespaces: &BTreeSet<String>) -> Result<Measured, OutboundError> {
    let urls = if namespaces.is_empty() {
        vec!["/apis/metrics.k8s.io/v1beta1/pods".to_owned()]
    } else {
        namespaces.iter().map(|namespace| format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods")).collect()
    };
    let mut measured = Measured::new();
    for url in urls {
        let request: Request<Vec<u8>> = ListRequest::new(url).list(&ListParams::default().labels(&of_models()))?;
        let list = client.request::<PodMetricsList>(request).await.map_err(explain)?;
        for PodMetrics { metadata, containers } in list.items {
            let server = containers.iter().find(|container| container.name == INFERENCE_CONTAINER);
            if let Some(bytes) = server.and_then(|server| quantity::rounded_up(&server.usage.memory, quantity::WHOLE)) {
                measured.insert((metadata.namespace, metadata.name), bytes);
            }
        }
    }
    Ok(measured)
}

/// Adds the remedy if no server provides the API.
fn explain(error: kube::Error) -> OutboundError {
    match &error {
        kube::Error::Api(status) if matches!(status.code, 404 | 503) => {
            "the cluster doesn't serve metrics.k8s.io: install metrics-server, or choose another source with --memory-usage".into()
        }
        _ => error.into(),
    }
}
