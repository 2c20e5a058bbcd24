//! Runs an engine in real time, and passes its events on to the requests.

use super::{EngineCounts, EngineEvent, EngineRequest, EngineSettings, Micros, ModelEngine, TooLong};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, mpsc},
    time::sleep_until,
};

/// An engine, and the requests that wait for its events.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    started: Instant,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    engine: ModelEngine,
    clients: HashMap<u64, mpsc::UnboundedSender<EngineEvent>>,
    requests: u64,
}

/// A request in the engine, which is cancelled when this is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) id: u64,
    worker: Worker,
    events: mpsc::UnboundedReceiver<EngineEvent>,
}

impl Worker {
    pub(super) fn new(settings: EngineSettings) -> Self {
        let state = State { engine: ModelEngine::new(settings), clients: HashMap::new(), requests: 0 };
        Self { started: Instant::now(), state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Micros {
        Micros::try_from(self.started.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }

    /// Submits a request to the engine.
    pub(super) fn submit(&self, model: usize, prompt: Vec<u8>, max_tokens: usize) -> Result<Ticket, TooLong> {
        let mut state = self.state();
        let id = state.requests;
        state.requests += 1;
        state.engine.arrive(self.now(), EngineRequest { id, model, prompt, max_tokens })?;
        let (sender, events) = mpsc::unbounded_channel();
        state.clients.insert(id, sender);
        self.changed.notify_one();
        Ok(Ticket { id, worker: self.clone(), events })
    }

    /// Runs the engine forever.
    pub(super) async fn run(&self) {
        loop {
            let next = {
                let mut state = self.state();
                for event in state.engine.advance(self.now()) {
                    if let Some(client) = state.clients.get(&event.id) {
                        client.send(event).ok();
                    }
                }
                state.engine.next_event()
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.sleep(next) => {}
            }
        }
    }

    async fn sleep(&self, until: Option<Micros>) {
        match until {
            Some(until) => sleep_until((self.started + Duration::from_micros(until)).into()).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn counts(&self) -> EngineCounts {
        self.state().engine.counts()
    }

    /// The numbers of running and of waiting requests per model.
    pub(super) fn models(&self) -> (BTreeMap<usize, usize>, BTreeMap<usize, usize>) {
        let state = self.state();
        (state.engine.running_models(), state.engine.waiting_models())
    }
}

impl Ticket {
    /// The next event; `None` after the last token, or if the server ends.
    pub(super) async fn next(&mut self) -> Option<EngineEvent> {
        self.events.recv().await
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.worker.state();
        state.clients.remove(&self.id);
        state.engine.cancel(self.worker.now(), self.id);
        self.worker.changed.notify_one();
    }
}
