//! /healthz and /readyz.

use crate::world::apis::Apis;
use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::{net::TcpListener, sync::watch};

/// Answers until the process ends.
pub async fn serve(listener: TcpListener, apis: watch::Receiver<Apis>) -> std::io::Result<()> {
    let routes = Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(ready)).with_state(apis);
    axum::serve(listener, routes).await
}

/// Ready as soon as we know what the cluster serves, and while it serves what we can't do without.
async fn ready(State(apis): State<watch::Receiver<Apis>>) -> (StatusCode, String) {
    match apis.borrow().obstacle() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}
