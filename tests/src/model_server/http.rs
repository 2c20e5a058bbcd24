//! The server's connections and routes.

use super::{
    SERVED_BY, SeenRequest, Site,
    answer::Answer,
    metrics,
    prompt::{Asked, Endpoint},
};
use axum::body::{Body, Bytes, to_bytes};
use futures::stream;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use std::{convert::Infallible, io, sync::Arc, time::Duration};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};

const JSON: &str = "application/json";

/// The maximum length of a body.
const MAX_BODY: usize = 64 << 20;

/// The pause after a failed accept.
const ACCEPT_DELAY: Duration = Duration::from_millis(50);

/// Serves connections. They end when this is dropped.
pub(super) async fn serve(site: &Arc<Site>, listener: std::net::TcpListener) {
    let listener = TcpListener::from_std(listener).expect("a listener of this runtime");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    sleep(ACCEPT_DELAY).await;
                    continue;
                };
                stream.set_nodelay(true).ok();
                let site = Arc::clone(site);
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let site = Arc::clone(&site);
                        async move { Ok::<_, Infallible>(answer(&site, request).await) }
                    });
                    // A client may disconnect at any time.
                    http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        }
    }
}

async fn answer(site: &Site, request: Request<Incoming>) -> Response<Body> {
    let route = (request.method().clone(), request.uri().path().to_owned());
    let mut response = match (&route.0, route.1.as_str()) {
        (&Method::GET, "/health") => Response::new(Body::empty()),
        (&Method::GET, "/metrics") => typed("text/plain; version=0.0.4; charset=utf-8", metrics::page(site).into()),
        (&Method::GET, "/v1/models") => {
            let (parts, _) = request.into_parts();
            site.seen().push(SeenRequest { path: route.1.clone(), headers: parts.headers, body: Bytes::new(), model: None });
            json_response(&models(site))
        }
        (&Method::POST, "/v1/chat/completions") => complete(site, request, Endpoint::Chat).await,
        (&Method::POST, "/v1/completions") => complete(site, request, Endpoint::Completions).await,
        (_, "/health" | "/metrics" | "/v1/models" | "/v1/chat/completions" | "/v1/completions") => {
            with_status(StatusCode::METHOD_NOT_ALLOWED, json_response(&json!({"detail": "Method Not Allowed"})))
        }
        _ => with_status(StatusCode::NOT_FOUND, json_response(&json!({"detail": "Not Found"}))),
    };
    let name = site.settings.name.parse().expect("a server's name is a header's value");
    response.headers_mut().insert(SERVED_BY, name);
    response
}

fn models(site: &Site) -> Value {
    let base = site.settings.models.first();
    let model = |(at, name): (usize, &String)| {
        let parent = base.filter(|_| at > 0);
        json!({"id": name, "object": "model", "owned_by": "vllm", "root": name, "parent": parent})
    };
    let data: Vec<Value> = site.settings.models.iter().enumerate().map(model).collect();
    json!({"object": "list", "data": data})
}

async fn complete(site: &Site, request: Request<Incoming>, endpoint: Endpoint) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(Body::new(body), MAX_BODY).await else {
        return bad_request("the body is too long, or breaks off");
    };
    let asked: Result<Asked, _> = serde_json::from_slice(&bytes);
    let model = asked.as_ref().ok().and_then(|asked| asked.model.clone());
    site.seen().push(SeenRequest { path: parts.uri.path().to_owned(), headers: parts.headers, body: bytes, model });
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => return bad_request(&error.to_string()),
    };
    let models = &site.settings.models;
    // Without a model, the request is for the base model.
    let number = asked.model.as_ref().map_or(Some(0), |asked| models.iter().position(|model| model == asked));
    let (Some(number), Some(prompt)) = (number, asked.prompt(endpoint)) else {
        return match &asked.model {
            Some(model) if number.is_none() => unknown_model(model),
            _ => bad_request("the request has no prompt"),
        };
    };
    let max_tokens = asked.max_tokens().unwrap_or(site.settings.max_tokens);
    let ticket = match site.worker.submit(number, prompt, max_tokens) {
        Ok(ticket) => ticket,
        Err(error) => return bad_request(&error.to_string()),
    };
    let model = models.get(number).map_or("", String::as_str);
    let answer = Answer::new(endpoint, ticket, &site.settings.name, model, &asked);
    if !asked.stream {
        return match answer.whole().await {
            Some(whole) => json_response(&whole),
            None => with_status(StatusCode::INTERNAL_SERVER_ERROR, json_response(&json!({}))),
        };
    }
    let parts = stream::unfold(answer, |mut answer| async move {
        let part = answer.part().await?;
        Some((Ok::<_, io::Error>(part), answer))
    });
    typed("text/event-stream; charset=utf-8", Body::from_stream(parts))
}

fn typed(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

fn json_response(value: &Value) -> Response<Body> {
    typed(JSON, value.to_string().into())
}

fn with_status(status: StatusCode, mut response: Response<Body>) -> Response<Body> {
    *response.status_mut() = status;
    response
}

fn error(status: StatusCode, kind: &str, message: &str, param: Option<&str>) -> Response<Body> {
    let error = json!({"message": message, "type": kind, "param": param, "code": status.as_u16()});
    with_status(status, json_response(&json!({"error": error})))
}

fn bad_request(message: &str) -> Response<Body> {
    error(StatusCode::BAD_REQUEST, "BadRequestError", message, None)
}

fn unknown_model(model: &str) -> Response<Body> {
    let message = format!("The model `{model}` does not exist.");
    error(StatusCode::NOT_FOUND, "NotFoundError", &message, Some("model"))
}
