//! Learns the latencies of responses in a task of its own: decisions read the newest estimate and wait for nothing.

use arc_swap::ArcSwap;
use pointsman_picker::latency::{LatencyEstimate, Sent};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The maximum number of responses that wait to be learned; further ones are left out.
const BACKLOG: usize = 1_024;

/// The latencies of a response, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The state when the request was sent.
    pub sent: Sent,
    /// The time to the first token.
    pub first_token: Option<f64>,
    /// The mean time per further token.
    pub further_token: Option<f64>,
}

/// The estimates of a pool.
#[derive(Debug)]
pub struct Latency {
    estimates: Arc<ArcSwap<Estimates>>,
    taken: mpsc::Sender<Taken>,
}

/// The estimated latencies of tokens.
#[derive(Clone, Debug, Default)]
pub struct Estimates {
    /// The first token.
    pub first_token: LatencyEstimate,
    /// Further tokens.
    pub further_tokens: LatencyEstimate,
}

impl Latency {
    /// Creates the estimates without data. The returned future learns; it ends with the estimates.
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

    /// Learns the latencies of a response, without waiting.
    pub fn learn(&self, taken: Taken) {
        // A few that are left out don't affect an estimate.
        self.taken.try_send(taken).ok();
    }
}
