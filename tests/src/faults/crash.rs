//! A host that crashes right before one of its writes, or right after it and before the response: once in each way for each kind of write.

use super::{Call, Faults};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// The point in a write at which a host crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// The write isn't done.
    Before,
    /// The write is done, and the host gets no response.
    After,
}

/// The writes at which hosts crash.
#[derive(Debug)]
pub(super) struct Crashes {
    concerns: fn(&Call) -> bool,
    /// How often each kind of write occurred: the request, and its body without digits.
    met: BTreeMap<String, usize>,
    happened: watch::Sender<usize>,
}

impl Faults {
    /// From now on, stops at each of these writes and increments the counter, so that the test kills the host.
    pub fn crash_at(&self, concerns: fn(&Call) -> bool) -> watch::Receiver<usize> {
        let (happened, seen) = watch::channel(0);
        self.state().crashes = Some(Crashes { concerns, met: BTreeMap::new(), happened });
        seen
    }

    /// The writes at which hosts have crashed, with their counts.
    pub fn crashes(&self) -> BTreeMap<String, usize> {
        self.state().crashes.as_ref().map(|crashes| crashes.met.clone()).unwrap_or_default()
    }

    /// Whether, and where, the host crashes at this write.
    pub(super) fn crash_point(&self, call: &Call, body: &[u8]) -> Option<CrashPoint> {
        let mut state = self.state();
        let crashes = state.crashes.as_mut().filter(|crashes| call.is_leaders() && (crashes.concerns)(call))?;
        // Times and versions differ each time.
        let words: String = String::from_utf8_lossy(body).chars().filter(|c| !c.is_ascii_digit()).collect();
        let path = call.target.split('?').next().unwrap_or_default();
        let met = crashes.met.entry(format!("{} {path} {words}", call.method)).or_default();
        *met += 1;
        let point = match *met {
            1 => CrashPoint::Before,
            2 => CrashPoint::After,
            _ => return None,
        };
        crashes.happened.send_modify(|count| *count += 1);
        Some(point)
    }
}
