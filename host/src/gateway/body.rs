//! The body of a request to a backend: first the bytes that were buffered to find its model, then the rest as it arrives, which is also
//! scanned.

use super::{error::GatewayError, limits::Limits, scan::Scan};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Sleep, sleep, timeout};

/// Smaller chunks of a body are joined while it is buffered.
const SMALL_CHUNK: usize = 4 << 10;

/// The size of joined chunks.
const JOINED_CHUNK: usize = 64 << 10;

/// The maximum number of bytes that are read of a body whose response is an error.
const DISCARDED_BYTES: usize = 16 << 20;

/// The maximum time for that.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of bytes that all requests have buffered.
#[derive(Clone, Debug, Default)]
pub struct Buffered(Arc<AtomicUsize>);

impl Buffered {
    /// The number in bytes.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a body has ended early.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(String);

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    /// The bytes that have arrived and aren't sent yet.
    prefix: VecDeque<Bytes>,
    /// Later bytes that arrived in small chunks, each of which would need more memory than it has bytes.
    tail: Vec<u8>,
    prefix_bytes: usize,
    rest: Option<Incoming>,
    scan: Option<Scan>,
    passed: Arc<AtomicU64>,
    limits: Arc<Limits>,
    buffered: Buffered,
    pause: Option<Pin<Box<Sleep>>>,
    failure: Arc<OnceLock<GatewayError>>,
    streams: Arc<AtomicBool>,
}

impl RequestBody {
    /// The body of a request. `passed` counts its bytes and is shared with the log record.
    pub fn new(incoming: Incoming, limits: Arc<Limits>, buffered: Buffered, passed: Arc<AtomicU64>) -> Self {
        let (prefix, tail, failure, streams) = (VecDeque::new(), Vec::new(), Arc::default(), Arc::default());
        Self { prefix, tail, prefix_bytes: 0, rest: Some(incoming), scan: None, passed, limits, buffered, pause: None, failure, streams }
    }

    /// The body's failure, once it has failed.
    pub fn failure(&self) -> Arc<OnceLock<GatewayError>> {
        Arc::clone(&self.failure)
    }

    /// Whether the part that has arrived requests a stream.
    pub fn streams(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.streams)
    }

    /// Reads the rest of a request whose response is an error, within limits: a connection that is closed earlier is reset, and the client
    /// may never read the response.
    pub async fn discard(&mut self) {
        let mut left = DISCARDED_BYTES;
        let discarding = async {
            while let Ok(Some(chunk)) = poll_fn(|context| self.poll_rest(context)).await {
                match left.checked_sub(chunk.len()) {
                    Some(rest) => left = rest,
                    None => return,
                }
            }
        };
        timeout(DISCARD_TIMEOUT, discarding).await.ok();
    }

    /// Reads until the model is known, and no further.
    pub async fn find_model(&mut self, content_type: Option<&str>) -> Result<String, GatewayError> {
        let mut scan = Scan::new(content_type).map_err(|malformed| GatewayError::malformed(&malformed))?;
        loop {
            let Some(chunk) = poll_fn(|context| self.poll_rest(context)).await.map_err(|_| self.error())? else {
                return scan.finish().map_err(|malformed| GatewayError::malformed(&malformed));
            };
            scan.read(&chunk).map_err(|malformed| GatewayError::malformed(&malformed))?;
            if !self.buffer(chunk) {
                let message = format!(
                    "No `model` is in the first {} bytes of the body, or the gateway buffers too much for now: put `model` before large fields.",
                    self.prefix_bytes
                );
                return Err(GatewayError::too_large(message));
            }
            if let Some(model) = scan.model() {
                let model = model.to_owned();
                self.streams.store(scan.streams(), Ordering::Relaxed);
                // A second `model` may still follow.
                self.scan = Some(scan);
                self.check_end().map_err(|_| self.error())?;
                return Ok(model);
            }
        }
    }

    /// Reads a little further while the request waits, to detect a client that disconnects. Returns false if there is nothing more to read,
    /// or no space in the buffer.
    pub async fn read_ahead(&mut self) -> Result<bool, GatewayError> {
        if self.prefix_bytes >= self.limits.buffered_bytes || self.buffered.bytes() >= self.limits.all_buffered_bytes {
            return Ok(false);
        }
        let Some(chunk) = poll_fn(|context| self.poll_rest(context)).await.map_err(|_| self.error())? else {
            return self.check_end().map(|()| false).map_err(|_| self.error());
        };
        self.scan(&chunk).and_then(|()| self.check_end()).map_err(|_| self.error())?;
        Ok(self.buffer(chunk))
    }

    fn error(&self) -> GatewayError {
        self.failure.get().cloned().unwrap_or_else(|| GatewayError::invalid("The body ends early."))
    }

    /// Buffers a chunk. Returns false if that exceeds the limits.
    fn buffer(&mut self, chunk: Bytes) -> bool {
        self.prefix_bytes += chunk.len();
        let all = self.buffered.0.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
        if chunk.len() < SMALL_CHUNK {
            self.tail.extend_from_slice(&chunk);
        }
        if chunk.len() >= SMALL_CHUNK || self.tail.len() >= JOINED_CHUNK {
            self.join_tail();
        }
        if chunk.len() >= SMALL_CHUNK {
            self.prefix.push_back(chunk);
        }
        self.prefix_bytes <= self.limits.buffered_bytes && all <= self.limits.all_buffered_bytes
    }

    fn join_tail(&mut self) {
        if !self.tail.is_empty() {
            self.prefix.push_back(std::mem::take(&mut self.tail).into());
        }
    }

    fn scan(&mut self, chunk: &[u8]) -> Result<(), BodyError> {
        let Some(scan) = self.scan.as_mut() else { return Ok(()) };
        let read = scan.read(chunk);
        self.streams.fetch_or(scan.streams(), Ordering::Relaxed);
        read.map_err(|malformed| self.fail(GatewayError::malformed(&malformed)))
    }

    /// Checks at the end that the body is complete. The last part isn't sent before.
    fn check_end(&mut self) -> Result<(), BodyError> {
        if !self.rest.as_ref().is_none_or(Body::is_end_stream) {
            return Ok(());
        }
        match self.scan.take().map(Scan::finish) {
            Some(Err(malformed)) => Err(self.fail(GatewayError::malformed(&malformed))),
            _ => Ok(()),
        }
    }

    fn fail(&mut self, error: GatewayError) -> BodyError {
        let message = error.message.clone();
        self.failure.set(error).ok();
        self.rest = None;
        BodyError(message)
    }

    /// The next chunk that arrives. Trailers of requests are dropped.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            let Some(rest) = self.rest.as_mut() else { return Poll::Ready(Ok(None)) };
            match Pin::new(rest).poll_frame(context) {
                Poll::Pending => {
                    let within = self.limits.body_timeout;
                    let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(within)));
                    ready!(pause.as_mut().poll(context));
                    return Poll::Ready(Err(self.fail(GatewayError::too_slow())));
                }
                Poll::Ready(None) => {
                    self.rest = None;
                    return Poll::Ready(Ok(None));
                }
                Poll::Ready(Some(Err(_))) => {
                    return Poll::Ready(Err(self.fail(GatewayError::invalid("The body isn't complete, or its chunks aren't valid."))));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.pause = None;
                    let Ok(chunk) = frame.into_data() else { continue };
                    let passed = self.passed.fetch_add(chunk.len() as u64, Ordering::Relaxed) + chunk.len() as u64;
                    if passed > self.limits.body_bytes {
                        let message = format!("The body has more than {} bytes.", self.limits.body_bytes);
                        return Poll::Ready(Err(self.fail(GatewayError::too_large(message))));
                    }
                    if !chunk.is_empty() {
                        return Poll::Ready(Ok(Some(chunk)));
                    }
                }
            }
        }
    }

    fn unbuffer(&mut self, bytes: usize) {
        self.prefix_bytes -= bytes;
        self.buffered.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = self.get_mut();
        if body.prefix.is_empty() {
            body.join_tail();
        }
        if let Some(chunk) = body.prefix.pop_front() {
            body.unbuffer(chunk.len());
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if body.failure.get().is_some() {
            return Poll::Ready(Some(Err(BodyError("the body has failed".to_owned()))));
        }
        let next = ready!(body.poll_rest(context)).and_then(|chunk| {
            body.scan(chunk.as_deref().unwrap_or_default())?;
            body.check_end()?;
            Ok(chunk)
        });
        Poll::Ready(next.transpose().map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.prefix_bytes == 0 && self.failure.get().is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let before = self.prefix_bytes as u64;
        match rest.exact() {
            Some(exact) => SizeHint::with_exact(before + exact),
            None => SizeHint::default(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.unbuffer(self.prefix_bytes);
    }
}
