//! /healthz, /readyz and /metrics.

use super::admission::counts::Counts;
use crate::{
    leader::Leadership,
    metrics::{self, Reconciles},
    pace::Pacer,
    watch::apis::Apis,
};
use axum::{Router, extract::State, http::StatusCode, routing::get};
use pointsman_core::decide::Policies;
use std::sync::Arc;
use tokio::{net::TcpListener, sync::watch};

/// What the pages tell of.
#[derive(Clone, Debug)]
pub struct Told {
    /// What the cluster serves.
    pub apis: watch::Receiver<Apis>,
    /// What keeps the policies from being in force, or none.
    pub obstacle: watch::Receiver<Option<String>>,
    /// What hasn't been listed yet, or none.
    pub listed: watch::Receiver<Option<String>>,
    /// What decides.
    pub policies: Arc<Policies>,
    /// Who gives turns to restart pods.
    pub pacer: Arc<Pacer>,
    /// Whether this host leads.
    pub leadership: Leadership,
    /// What the controller has counted.
    pub reconciles: Arc<Reconciles>,
    /// What the admission webhook has answered, where it is served.
    pub admission: Option<Arc<Counts>>,
}

/// Answers until the process ends.
pub async fn serve(listener: TcpListener, told: Told) -> std::io::Result<()> {
    let metrics = |State(told): State<Told>| async move {
        let mut text = metrics::text(&told.policies, &told.pacer, &told.leadership, &told.reconciles);
        told.admission.iter().for_each(|counts| counts.text(&mut text));
        text
    };
    let routes = Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(ready)).route("/metrics", get(metrics));
    axum::serve(listener, routes.with_state(told)).await
}

/// Ready as soon as we know what the cluster serves and the recorded policies are in force, and while it serves what we can't do without.
async fn ready(State(told): State<Told>) -> (StatusCode, String) {
    let obstacle = told.apis.borrow().obstacle().or_else(|| told.obstacle.borrow().clone()).or_else(|| told.listed.borrow().clone());
    match obstacle {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}
