//! The flags of a controller for the external metrics API.

use super::controller::webhook_host;
use crate::{
    leader::Leadership,
    serve::{
        admission::certificates::{Certificates, ServedApi},
        external_metrics::ExternalMetricsServer,
    },
};
use anyhow::{Context, Result};
use clap::Args;
use kube::Client;
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::net::TcpListener;

#[derive(Args, Debug)]
pub(super) struct ExternalMetricsArgs {
    /// Address and port of the API external.metrics.k8s.io, with TLS: the demand of InferencePools, for HorizontalPodAutoscalers; default:
    /// not served
    #[arg(id = "external_metrics", long = "external-metrics", value_name = "ADDRESS:PORT")]
    address: Option<SocketAddr>,
    /// Folder with the API's certificate: tls.crt, tls.key and, for the caBundle, ca.crt. Default: the host generates certificates, and
    /// stores them in the Secret pointsman-external-metrics
    #[arg(id = "external_metrics_certs", long = "external-metrics-certs", value_name = "FOLDER", requires = "external_metrics")]
    certs: Option<PathBuf>,
    /// Name by which the API server calls the API; may be repeated. Default: pointsman-external-metrics.NAMESPACE.svc
    #[arg(
        id = "external_metrics_host",
        long = "external-metrics-host",
        value_name = "NAME",
        value_parser = webhook_host,
        requires = "external_metrics",
        conflicts_with = "external_metrics_certs"
    )]
    hosts: Vec<String>,
}

impl ExternalMetricsArgs {
    /// The listener of the API, if it is served.
    pub(super) async fn listen(&self) -> Result<Option<TcpListener>> {
        let Some(address) = self.address else { return Ok(None) };
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address} for the external metrics API"))?;
        tracing::info!(external_metrics = %listener.local_addr()?, "answering the external metrics API");
        Ok(Some(listener))
    }

    /// The server for the listener.
    pub(super) fn server(&self, listener: TcpListener, namespace: &str, client: Client, leadership: Leadership) -> ExternalMetricsServer {
        let (folder, hosts) = (self.certs.clone(), self.hosts.clone());
        ExternalMetricsServer {
            listener,
            certificates: Certificates::new(ServedApi::ExternalMetrics, namespace, folder, hosts),
            shown: Arc::default(),
            front_proxy: Arc::default(),
            namespace: namespace.to_owned(),
            client,
            leadership,
        }
    }
}
