//! A controller's servers for the API server. Each is a task of its own, so that running requests complete while everything else has ended.

use crate::serve::{
    admission::{Admission, AdmissionServer, certificates::ServedApi},
    external_metrics::ExternalMetricsServer,
    health::Served,
};
use anyhow::{Context, Result};
use std::sync::Arc;
use tokio::task::JoinSet;

#[derive(Debug, Default)]
pub(super) struct Servers {
    /// Each task returns its name.
    tasks: JoinSet<Result<&'static str>>,
    served: Vec<Served>,
}

impl Servers {
    pub(super) fn start_webhook(&mut self, admission: Admission, server: AdmissionServer, stop: impl Future<Output = ()> + Send + 'static) {
        self.served.push(Served { api: ServedApi::Webhook, certificate: Arc::clone(&server.shown), front_proxy: None });
        self.tasks.spawn(async { Ok(admission.serve(server, stop).await.map(|()| "the admission webhook")?) });
    }

    pub(super) fn start_external_metrics(&mut self, server: ExternalMetricsServer, stop: impl Future<Output = ()> + Send + 'static) {
        self.served.push(server.served());
        self.tasks.spawn(async { Ok(server.serve(stop).await.map(|()| ServedApi::ExternalMetrics.called())?) });
    }

    /// The servers that the host's readiness depends on.
    pub(super) fn served(&self) -> Vec<Served> {
        self.served.clone()
    }

    /// Resolves when a server has ended, with its name; never if there is none.
    pub(super) async fn ended(&mut self) -> Result<&'static str> {
        match self.tasks.join_next().await {
            Some(ended) => ended.context("answering the API server")?,
            None => std::future::pending().await,
        }
    }

    /// Waits until all have ended.
    pub(super) async fn finish(mut self) -> Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("answering the API server")??;
        }
        Ok(())
    }
}
