//! The sources of measurements of pods' memory.

use super::{Measured, ModelPod, metrics_api, pod_metrics, prometheus};
use crate::outbound::OutboundError;
use http::Uri;
use kube::Client;
use std::{collections::BTreeSet, fmt};

/// The default query to Prometheus: the kubelets' reports, with the peaks between two measurements.
pub const DEFAULT_QUERY: &str = r#"max_over_time(container_memory_working_set_bytes{container="inference"}[2m])"#;

/// The default metric of a pod, which Prometheus' client libraries report for their process.
pub const DEFAULT_METRIC: &str = "process_resident_memory_bytes";

/// The source of measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// metrics.k8s.io, as metrics-server serves it.
    MetricsApi,
    /// A query.
    Prometheus {
        /// The server.
        url: Uri,
        /// The query. The samples of its result have the labels `namespace` and `pod`.
        query: String,
    },
    /// /metrics of each pod, on the port of its model.
    Pods {
        /// The metric, whose samples are added up.
        metric: String,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MetricsApi => f.write_str("metrics.k8s.io"),
            Self::Prometheus { url, .. } => write!(f, "Prometheus at {url}"),
            Self::Pods { metric } => write!(f, "{metric} of the pods"),
        }
    }
}

impl Source {
    /// Measures the memory of pods. Pods without data are left out. `namespaces` are those that the host serves; none means all.
    pub(super) async fn measure(
        &self,
        client: &Client,
        namespaces: &BTreeSet<String>,
        pods: &[ModelPod],
    ) -> Result<Measured, OutboundError> {
        match self {
            Self::MetricsApi => metrics_api::measure(client, namespaces).await,
            Self::Prometheus { url, query } => prometheus::measure(url, query).await,
            Self::Pods { metric } => pod_metrics::measure(pods, metric).await,
        }
    }
}
