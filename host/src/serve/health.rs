//! /healthz, /readyz and /metrics.

use super::admission::counts::AdmissionCounts;
use crate::{
    liveness::Liveness,
    metrics::{Format, HostState, Reconciles},
    watch::{self as watches, Shared, apis::Apis},
};
use axum::{
    Router,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::registry::Registry;
use std::{collections::BTreeSet, sync::Arc};
use tokio::{net::TcpListener, sync::watch};

/// What decides whether this host is ready.
#[derive(Clone, Debug)]
pub struct Readiness {
    /// What the cluster serves.
    pub apis: watch::Receiver<Apis>,
    /// What keeps the policies from being in force, or none.
    pub obstacle: watch::Receiver<Option<String>>,
    /// What hasn't been listed yet, or none.
    pub listed: watch::Receiver<Option<String>>,
    /// The world, which knows what the host may not list.
    pub shared: Shared,
    /// What is being done.
    pub liveness: Liveness,
}

/// The metrics of this host: with the webhook's if it is served.
pub fn registry(state: HostState, reconciles: &Reconciles, admission: Option<&AdmissionCounts>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(state));
    reconciles.register(&mut registry);
    if let Some(counts) = admission {
        counts.register(&mut registry);
    }
    registry
}

/// Answers until the process ends.
pub async fn serve(listener: TcpListener, readiness: Readiness, registry: Registry) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/healthz", get(alive).with_state(readiness.clone()))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(metrics).with_state(Arc::new(registry)));
    axum::serve(listener, routes).await
}

async fn metrics(State(registry): State<Arc<Registry>>, headers: HeaderMap) -> Response {
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok()).collect();
    let format = Format::for_accept(&accept.join(","));
    match format.page(&registry) {
        Ok(page) => ([(CONTENT_TYPE, format.content_type())], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("writing the metrics failed: {error}\n")).into_response(),
    }
}

/// Alive unless something hangs.
async fn alive(State(readiness): State<Readiness>) -> (StatusCode, String) {
    match readiness.liveness.stuck() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
    }
}

/// Ready as soon as we know what the cluster serves and the recorded policies are in force, and while it serves what we can't do without. A
/// right that only some services need is told, and takes nothing from others.
async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let Readiness { apis, obstacle, listed, shared, liveness: _ } = readiness;
    let obstacles = [apis.borrow().obstacle(), obstacle.borrow().clone(), listed.borrow().clone()];
    let (code, first) = if obstacles.iter().any(Option::is_some) {
        (StatusCode::SERVICE_UNAVAILABLE, None)
    } else {
        (StatusCode::OK, Some("ok".to_owned()))
    };
    let denied = watches::denied_messages(shared.lock().denied());
    let lines: BTreeSet<String> = obstacles.into_iter().flatten().chain(denied).collect();
    (code, first.into_iter().chain(lines).map(|line| line + "\n").collect())
}
