//! Work that runs in parallel with other work, such as Go's compiler with Rust's.

use anyhow::{Result, anyhow};
use std::thread::{self, JoinHandle};

/// Work on a thread of its own. It prints only whole lines, each with the name of its step.
///
/// Dropping this doesn't wait for the work: it ends with this program, and so do its commands.
pub(crate) struct Beside {
    what: &'static str,
    /// None once its result has been read.
    running: Option<JoinHandle<Result<()>>>,
}

impl Beside {
    pub(crate) fn start(what: &'static str, work: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        Self { what, running: Some(thread::spawn(work)) }
    }

    /// Returns the error if the work has already failed: no other step would help then.
    pub(crate) fn check(&mut self) -> Result<()> {
        if self.running.as_ref().is_some_and(JoinHandle::is_finished) { self.finish() } else { Ok(()) }
    }

    /// Waits for the work to end.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        running.join().map_err(|_| anyhow!("{} panicked", self.what))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_failure_is_told_once_at_the_next_look() {
        let mut failing = Beside::start("it", || Err(anyhow!("no compiler")));
        while failing.running.as_ref().is_some_and(|running| !running.is_finished()) {
            thread::yield_now();
        }
        assert_eq!(failing.check().unwrap_err().to_string(), "no compiler");
        assert!(failing.finish().is_ok());
    }

    #[test]
    fn a_look_does_not_wait_and_the_end_is_waited_for() {
        let (end, ending) = mpsc::channel();
        let mut long = Beside::start("it", move || Ok(ending.recv()?));
        assert!(long.check().is_ok());
        end.send(()).unwrap();
        assert!(long.finish().is_ok() && long.running.is_none());
    }
}
