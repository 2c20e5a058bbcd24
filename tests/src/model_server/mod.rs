//! A simulated model server: OpenAI's API and vLLM's metrics before an engine that takes the time of a real one, and no GPU.

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

/// The header with the name of the server that has answered.
pub const SERVED_BY: &str = "x-served-by";

/// How many requests are retained for tests.
const MAX_RETAINED: usize = 64;

/// What a server is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name, of which answers consist.
    pub name: String,
    /// Its base model, and its adapters after it.
    pub models: Vec<String>,
    /// How many tokens an answer has unless the request sets that.
    pub max_tokens: usize,
    /// Its engine.
    pub engine: EngineSettings,
}

impl Settings {
    /// A server with these models, the first of which is the base, that answers within milliseconds.
    pub fn new(name: &str, models: &[&str]) -> Self {
        let models = models.iter().map(|&model| model.to_owned()).collect();
        Self { name: name.to_owned(), models, max_tokens: 16, engine: EngineSettings::default() }
    }
}

/// A request as it arrived.
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

/// What has arrived at a server, without the requests of its health and its metrics.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How many requests.
    pub requests: u64,
    /// The last of them.
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

/// What the parts of a server share.
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

/// A running server, on a thread of its own. Once it is dropped, its port and its connections are closed.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    site: Arc<Site>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ModelServer {
    /// Starts one. Port 0 is any that is free.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has arrived.
    pub fn seen(&self) -> Seen {
        self.site.seen().clone()
    }

    /// How many requests have arrived.
    pub fn requests_seen(&self) -> u64 {
        self.site.seen().requests
    }

    /// What its engine counts.
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
