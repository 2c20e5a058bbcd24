//! What answers have taken, learned beside the requests: who sends one reads the newest estimate and waits for nobody.

use arc_swap::ArcSwap;
use pointsman_picker::latency::{LatencyEstimate, Sent};
use std::sync::Arc;
use tokio::sync::mpsc;

/// How many answers wait to be learned; further ones are left out.
const BACKLOG: usize = 1_024;

/// An answer's times, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// What was known when the request was sent.
    pub sent: Sent,
    /// Until the first token.
    pub first_token: Option<f64>,
    /// Each further one.
    pub further_token: Option<f64>,
}

/// The estimates of a pool.
#[derive(Debug)]
pub struct Latency {
    estimates: Arc<ArcSwap<Estimates>>,
    taken: mpsc::Sender<Taken>,
}

/// How long tokens take.
#[derive(Clone, Debug, Default)]
pub struct Estimates {
    /// The first.
    pub first_token: LatencyEstimate,
    /// Each further one.
    pub further_tokens: LatencyEstimate,
}

impl Latency {
    /// Nothing is known yet. The second part learns; it ends with the first.
    pub fn new() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (taken, mut answers) = mpsc::channel::<Taken>(BACKLOG);
        let estimates = Arc::<ArcSwap<Estimates>>::default();
        let published = Arc::clone(&estimates);
        let learn = async move {
            let mut estimates = Estimates::default();
            let mut some = Vec::new();
            while answers.recv_many(&mut some, BACKLOG).await > 0 {
                for Taken { sent, first_token, further_token } in some.drain(..) {
                    if let Some(seconds) = first_token {
                        estimates.first_token.learn(&sent, seconds);
                    }
                    if let Some(seconds) = further_token {
                        estimates.further_tokens.learn(&sent, seconds);
                    }
                }
                published.store(Arc::new(estimates.clone()));
            }
        };
        (Self { estimates, taken }, learn)
    }

    /// The newest estimates.
    pub fn estimates(&self) -> Arc<Estimates> {
        self.estimates.load_full()
    }

    /// Learns of an answer, now or soon.
    pub fn learn(&self, taken: Taken) {
        // A few that are left out don't change an estimate.
        self.taken.try_send(taken).ok();
    }
}
