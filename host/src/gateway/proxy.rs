//! Handles a request: identifies the caller, finds the model, waits until the request may proceed, and forwards it.

use super::{
    backend::{Answer, Backends},
    body::{Buffered, RequestBody},
    callers::{Authentication, Caller},
    catalog::{Entry, Models},
    counts::GatewayCounts,
    error::GatewayError,
    headers,
    limits::Limits,
    model::{Admission, InFlight},
    quota::Quotas,
    record::Record,
    response::{Begun, Flights, ResponseBody, event_error},
    usage::UsageScan,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, EXPECT},
    request::Parts,
    uri::PathAndQuery,
};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes, Incoming};
use serde_json::json;
use std::{
    fmt::Write,
    future::pending,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};
use tokio::time::{interval_at, sleep};

/// The priority of a request: a whole number; a larger one is more important.
pub const PRIORITY: HeaderName = HeaderName::from_static("x-pointsman-priority");

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The maximum length of a client's request ID.
const MAX_REQUEST_ID: usize = 128;

/// The maximum size of a response that is read if the client was promised a stream of events and the response isn't one.
const MAX_EVENT_ERROR: usize = 64 << 10;

/// The paths that are served by default.
pub const PATHS: [&str; 8] = ["/v1/", "/v2/", "/rerank", "/score", "/classify", "/pooling", "/tokenize", "/detokenize"];

/// Paths of vLLM that change the server for everybody, below a served one.
const NOT_SERVED: [&str; 2] = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"];

/// The proxy.
#[derive(Debug)]
pub struct Proxy {
    /// The available models.
    pub models: Arc<Models>,
    /// The connections to backends.
    pub backends: Arc<Backends>,
    /// The metrics.
    pub counts: Arc<GatewayCounts>,
    /// The bytes that all requests have buffered.
    pub buffered: Buffered,
    /// The limits.
    pub limits: Arc<Limits>,
    /// The responses that have begun.
    pub flights: Flights,
    rules: Rules,
    /// Distinguishes this process' request IDs from others'.
    seed: u64,
    next: AtomicU64,
}

/// The rules of access.
#[derive(Debug)]
pub struct Rules {
    /// Identifies callers.
    pub authentication: Authentication,
    /// The callers' quotas.
    pub quotas: Arc<Quotas>,
    /// The served paths: one that ends with a slash includes everything below it.
    pub paths: Vec<String>,
}

impl Proxy {
    /// Creates a proxy for these models.
    pub fn new(models: Arc<Models>, backends: Arc<Backends>, rules: Rules, limits: Arc<Limits>) -> Self {
        let (counts, buffered, flights) = (Arc::default(), Buffered::default(), Flights::default());
        Self { models, backends, counts, buffered, limits, flights, rules, seed: seed(), next: AtomicU64::new(0) }
    }

    /// Handles a request.
    pub async fn handle(self: Arc<Self>, request: Request<Incoming>, client: SocketAddr) -> Response<ResponseBody> {
        let (mut parts, incoming) = request.into_parts();
        let id = self.request_id(&parts.headers);
        if let Ok(value) = HeaderValue::from_str(&id) {
            parts.headers.insert(REQUEST_ID, value);
        }
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        let record = Record::new(Arc::clone(&self.counts), Arc::clone(&self.rules.quotas), client.ip().to_string(), method, path, id);
        let mut response = self.answer(parts, incoming, record).await;
        // HTTP/2 has no such header; hyper removes it there.
        if response.headers().get(REQUEST_ID).is_none()
            && let Some(id) = response.extensions_mut().remove::<RequestId>()
        {
            response.headers_mut().insert(REQUEST_ID, id.0);
        }
        response
    }

    fn request_id(&self, headers: &HeaderMap) -> String {
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        match given.filter(|id| !id.is_empty() && id.len() <= MAX_REQUEST_ID) {
            Some(id) => id.to_owned(),
            None => format!("{:016x}-{:x}", self.seed, self.next.fetch_add(1, Ordering::Relaxed)),
        }
    }

    async fn answer(self: Arc<Self>, parts: Parts, incoming: Incoming, mut record: Record) -> Response<ResponseBody> {
        let id = RequestId(parts.headers.get(REQUEST_ID).cloned().unwrap_or_else(|| HeaderValue::from_static("none")));
        let with_id = |mut response: Response<ResponseBody>| {
            response.extensions_mut().insert(id);
            response
        };
        let mut body = RequestBody::new(incoming, Arc::clone(&self.limits), self.buffered.clone(), Arc::clone(&record.received));
        let (entry, priority) = match self.decide(&parts, &mut body, &mut record).await {
            Ok(Decided::Routed(entry, priority)) => (entry, priority),
            Ok(Decided::Answered(json)) => {
                record.status = Some(200);
                let mut response = Response::new(ResponseBody::own(Bytes::from(json), Some(record)));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                return with_id(response);
            }
            Err(error) => {
                discard(&parts, &mut body).await;
                return with_id(own_error(&error, record));
            }
        };
        record.model = Some(entry.name.clone());
        let waits = Arc::new(AtomicBool::new(false));
        let (accepts_events, streams) = (headers::accepts_events(&parts.headers), body.streams());
        let serving = Arc::clone(&self).serve(parts, body, entry, priority, record, Arc::clone(&waits));
        let mut serving = Box::pin(serving);
        let comment = async {
            // Whether it waits is known once it was begun. Most requests don't, and need no timer.
            if waits.load(Ordering::Relaxed) { sleep(self.limits.comment_interval).await } else { pending().await }
        };
        tokio::select! {
            biased;
            response = &mut serving => return with_id(response),
            () = comment => {}
        }
        if !waits.load(Ordering::Relaxed) || !(accepts_events || streams.load(Ordering::Relaxed)) {
            return with_id(serving.await);
        }
        let answer = async move {
            let response = serving.await;
            let status = response.status();
            if status == StatusCode::OK && headers::is_events(response.headers()) {
                return Ok(response.into_body());
            }
            let collected = Limited::new(response.into_body(), MAX_EVENT_ERROR).collect().await;
            Err(event_error(status.as_u16(), &collected.map(http_body_util::Collected::to_bytes).unwrap_or_default()))
        };
        let comments = interval_at(tokio::time::Instant::now(), self.limits.comment_interval);
        let mut response = Response::new(ResponseBody::held(Box::pin(answer), comments));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        with_id(response)
    }

    /// Finds the model of a request, or responds to one that needs none.
    async fn decide(&self, parts: &Parts, body: &mut RequestBody, record: &mut Record) -> Result<Decided, GatewayError> {
        headers::check(&parts.method, &parts.uri, parts.version, &parts.headers)?;
        let caller = self.rules.authentication.caller(&parts.headers).await?;
        record.caller = Some(caller.clone());
        if let Some(own) = self.list(parts, &caller) {
            return own.map(Decided::Answered);
        }
        self.check_path(parts)?;
        self.rules.quotas.take(&caller)?;
        self.route(parts, body, &caller).await
    }

    /// The response to a request for models; none if it is another request.
    fn list(&self, parts: &Parts, caller: &Caller) -> Option<Result<String, GatewayError>> {
        let rest = parts.uri.path().strip_prefix("/v1/models")?;
        let name = match rest {
            "" | "/" => None,
            _ => Some(percent_decoded(rest.strip_prefix('/')?)),
        };
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Some(Err(GatewayError::method("Models are listed with GET.")));
        }
        let catalog = self.models.catalog();
        let shown = |entry: &Entry| json!({"id": entry.name, "object": "model", "created": entry.created, "owned_by": entry.namespace()});
        let allowed = |entry: &&Arc<Entry>| {
            caller.models.as_ref().is_none_or(|models| models.contains(&entry.name)) && catalog.allows(entry, caller.namespace.as_deref())
        };
        Some(match name {
            None => {
                let data: Vec<_> = catalog.entries().filter(allowed).map(|entry| shown(entry)).collect();
                Ok(json!({"object": "list", "data": data}).to_string())
            }
            Some(name) => match catalog.find(&name).filter(allowed) {
                Some(entry) => Ok(shown(entry).to_string()),
                None => Err(GatewayError::model_not_found(&name)),
            },
        })
    }

    fn check_path(&self, parts: &Parts) -> Result<(), GatewayError> {
        let path = parts.uri.path();
        headers::check_path(path)?;
        let is_served = |served: &String| if served.ends_with('/') { path.starts_with(served.as_str()) } else { path == served };
        let is_excepted = NOT_SERVED.contains(&path) && !self.rules.paths.iter().any(|served| served == path);
        if !self.rules.paths.iter().any(is_served) || is_excepted {
            return Err(GatewayError::unknown_path(path));
        }
        if matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return Err(GatewayError::method("A request is routed by the `model` in its body: send it with POST."));
        }
        Ok(())
    }

    /// The model and the priority of a request.
    async fn route(&self, parts: &Parts, body: &mut RequestBody, caller: &Caller) -> Result<Decided, GatewayError> {
        let priority = match parts.headers.get(PRIORITY) {
            None => caller.priority,
            Some(value) => {
                let number = value.to_str().ok().and_then(|value| value.trim().parse::<i32>().ok());
                let number = number.ok_or_else(|| GatewayError::invalid(format!("{PRIORITY} must be a whole number.")))?;
                number.min(caller.max_priority)
            }
        };
        if body.size_hint().lower() > self.limits.body_bytes {
            return Err(GatewayError::too_large(format!("The body has more than {} bytes.", self.limits.body_bytes)));
        }
        let content_type = match parts.headers.get(CONTENT_TYPE) {
            None => None,
            Some(value) => Some(value.to_str().map_err(|_| GatewayError::invalid("The Content-Type isn't valid."))?),
        };
        let name = body.find_model(content_type).await?;
        let catalog = self.models.catalog();
        let entry = catalog.find(&name).filter(|entry| {
            caller.models.as_ref().is_none_or(|models| models.contains(&name)) && catalog.allows(entry, caller.namespace.as_deref())
        });
        entry.map(|entry| Decided::Routed(Arc::clone(entry), priority)).ok_or_else(|| GatewayError::model_not_found(&name))
    }

    /// Holds a request until it may proceed, sends it, and forwards the response.
    async fn serve(
        self: Arc<Self>,
        parts: Parts,
        mut body: RequestBody,
        entry: Arc<Entry>,
        priority: i32,
        mut record: Record,
        waits: Arc<AtomicBool>,
    ) -> Response<ResponseBody> {
        let in_flight = match self.admit(&entry, priority, &mut body, &mut record, &waits).await {
            Ok(in_flight) => in_flight,
            Err(error) => {
                discard(&parts, &mut body).await;
                return own_error(&error, record);
            }
        };
        let request = match self.backend_request(parts, body, &in_flight) {
            Ok(request) => request,
            Err(error) => return own_error(&error, record),
        };
        match self.backends.send(in_flight.target(), request).await {
            Err(error) => own_error(&error, record),
            Ok(Answer { response, .. }) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                own_error(&GatewayError::backend_unavailable("The backend requests another protocol.", None), record)
            }
            Ok(Answer { response, connection }) => {
                let (mut parts, incoming) = response.into_parts();
                headers::for_client(&mut parts.headers);
                // A length in addition to chunks is meaningless, and a client could trust it.
                if incoming.size_hint().exact().is_none() {
                    parts.headers.remove(CONTENT_LENGTH);
                }
                record.status = Some(parts.status.as_u16());
                record.first_byte = Some(record.elapsed());
                let is_events = headers::is_events(&parts.headers);
                let media = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
                let is_counted = parts.status.is_success() && (is_events || media.contains("json"));
                let usage = is_counted.then(|| UsageScan::new(is_events));
                let begun = Begun { incoming, connection, in_flight, record, usage };
                let flight = self.flights.begin(begun, Arc::clone(&self.backends));
                parts.extensions = http::Extensions::default();
                parts.version = Version::HTTP_11;
                Response::from_parts(parts, ResponseBody::proxied(flight))
            }
        }
    }

    async fn admit(
        &self,
        entry: &Entry,
        priority: i32,
        body: &mut RequestBody,
        record: &mut Record,
        waits: &AtomicBool,
    ) -> Result<InFlight, GatewayError> {
        let mut waiting = match entry.model.admit(priority) {
            Admission::Granted(in_flight) => return Ok(in_flight),
            Admission::Refused(error) => return Err(error),
            Admission::Queued(waiting) => waiting,
        };
        waits.store(true, Ordering::Relaxed);
        let since = Instant::now();
        let mut deadline = std::pin::pin!(sleep(self.limits.hold_timeout));
        let mut reads = true;
        let granted = loop {
            tokio::select! {
                biased;
                granted = waiting.granted() => break granted,
                () = &mut deadline => break Err(waiting.late()),
                read = body.read_ahead(), if reads => match read {
                    Ok(more) => reads = more,
                    Err(error) => break Err(error),
                },
            }
        };
        record.held = Some(since.elapsed());
        // From now on, the response can have its own status.
        waits.store(false, Ordering::Relaxed);
        granted
    }

    fn backend_request(&self, parts: Parts, body: RequestBody, in_flight: &InFlight) -> Result<Request<RequestBody>, GatewayError> {
        let target = in_flight.target();
        let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = target.path(&path).map_err(|_| GatewayError::invalid("The path isn't valid."))?;
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = parts.headers;
        headers::for_backend(request.headers_mut(), &target.host, self.rules.authentication.is_open());
        Ok(request)
    }
}

/// The decision on a request.
enum Decided {
    /// The response, as JSON.
    Answered(String),
    /// The model, and the priority of the request.
    Routed(Arc<Entry>, i32),
}

/// The ID of a request, until it is in the response.
#[derive(Clone, Debug)]
struct RequestId(HeaderValue);

/// Reads the rest of an unused body, if its client sends it anyway.
async fn discard(parts: &Parts, body: &mut RequestBody) {
    if parts.version < Version::HTTP_2 && !parts.headers.contains_key(EXPECT) {
        body.discard().await;
    }
}

fn own_error(error: &GatewayError, mut record: Record) -> Response<ResponseBody> {
    record.status = Some(error.status.as_u16());
    record.error = Some(error.code);
    record.sent = error.json().len() as u64;
    error.response().map(|bytes| ResponseBody::own(bytes, Some(record)))
}

/// A name in a path. Invalid escapes stay as they are.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let value = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// A seed that differs between processes.
fn seed() -> u64 {
    use sha2::{Digest, Sha256};
    let mut text = String::new();
    write!(text, "{:?} {}", std::time::SystemTime::now(), std::process::id()).ok();
    let digest = Sha256::digest(text.as_bytes());
    u64::from_be_bytes(std::array::from_fn(|place| digest[place]))
}
