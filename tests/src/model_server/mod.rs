//! A simulated model server: OpenAI's API and vLLM's metrics, with an engine that is as slow as a real one and needs no GPU.

mod answer;
mod http;
mod metrics;
mod prompt;
mod worker;

pub use pointsman_picker::simulation::{
    BYTES_PER_TOKEN, EngineCounts, EngineEvent, EngineRequest, EngineSettings, Micros, ModelEngine, Progress, TooLong,
};

use self::worker::Worker;
use ::http::HeaderMap;
use axum::body::Bytes;
use std::{
    collections::VecDeque,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};
use tokio::sync::oneshot;

/// The header with the name of the server.
pub const SERVED_BY: &str = "x-served-by";

/// The number of requests that are retained for tests.
const MAX_RETAINED: usize = 64;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name, which is part of each generated token.
    pub name: String,
    /// Its base model, followed by its adapters.
    pub models: Vec<String>,
    /// The number of tokens of a response, unless the request sets it.
    pub max_tokens: usize,
    /// Its engine.
    pub engine: EngineSettings,
}

impl Settings {
    /// A server with these models, of which the first is the base, and with latencies of milliseconds.
    pub fn new(name: &str, models: &[&str]) -> Self {
        let models = models.iter().map(|&model| model.to_owned()).collect();
        Self { name: name.to_owned(), models, max_tokens: 16, engine: EngineSettings::default() }
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub struct SeenRequest {
    /// Its path.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// The model in the body, if there is one.
    pub model: Option<String>,
}

/// The requests that a server has received, without those for its health and its metrics.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The number of requests.
    pub requests: u64,
    /// The last requests.
    pub last: VecDeque<SeenRequest>,
}

impl Seen {
    fn push(&mut self, request: SeenRequest) {
        self.requests += 1;
        self.last.push_back(request);
        if self.last.len() > MAX_RETAINED {
            self.last.pop_front();
        }
    }
}

/// The shared state of a server's parts.
#[derive(Debug)]
struct Site {
    settings: Settings,
    worker: Worker,
    seen: Mutex<Seen>,
}

impl Site {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running server on its own thread. When it is dropped, its port and its connections are closed.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    site: Arc<Site>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ModelServer {
    /// Starts it. Port 0 is any free port.
    pub fn start(address: SocketAddr, settings: Settings) -> Self {
        let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("listening on {address}: {error}"));
        listener.set_nonblocking(true).expect("a listener that doesn't block");
        let address = listener.local_addr().expect("it listens");
        let worker = Worker::new(settings.engine.clone());
        let site = Arc::new(Site { settings, worker, seen: Mutex::default() });
        let (stop, stopped) = oneshot::channel();
        let serves = Arc::clone(&site);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = http::serve(&serves, listener) => {}
                    () = serves.worker.run() => {}
                }
            });
        });
        Self { address, site, stop: Some(stop), thread: Some(thread) }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The received requests.
    pub fn seen(&self) -> Seen {
        self.site.seen().clone()
    }

    /// The number of received requests.
    pub fn requests_seen(&self) -> u64 {
        self.site.seen().requests
    }

    /// The counters of its engine.
    pub fn counts(&self) -> EngineCounts {
        self.site.worker.counts()
    }

    /// Waits until it is killed.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
