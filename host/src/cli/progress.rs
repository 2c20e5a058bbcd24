//! A line on a terminal with a command's progress, once the command takes long.

use pointsman_sandbox::sync::locked;
use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{task::JoinHandle, time::sleep};

/// The delay before the line is shown.
const DELAY: Duration = Duration::from_secs(2);

/// Clears the line.
const CLEAR: &[u8] = b"\r\x1b[2K";

/// The maximum length of the text: lines longer than the terminal's can't be cleared.
const MAX_CHARS: usize = 79;

/// The progress of this process, while it runs a command.
static CURRENT: Mutex<Option<Progress>> = Mutex::new(None);

/// Starts to show progress on stderr, if that is a terminal.
pub(super) fn start() {
    let out = io::stderr();
    let is_terminal = out.is_terminal();
    *locked(&CURRENT) = Some(Progress::on(out, is_terminal));
}

/// Sets the current step.
pub(super) fn set(text: impl AsRef<str>) {
    if let Some(progress) = &*locked(&CURRENT) {
        progress.set(text.as_ref());
    }
}

/// Writes to the terminal, with the line cleared.
pub(super) fn interrupt<T>(write: impl FnOnce() -> T) -> T {
    match &*locked(&CURRENT) {
        Some(progress) => progress.interrupt(write),
        None => write(),
    }
}

/// Removes the line.
pub(super) fn end() {
    *locked(&CURRENT) = None;
}

/// The line. Dropping it removes it.
#[derive(Debug)]
struct Progress<W: Write = io::Stderr> {
    line: Arc<Mutex<Line<W>>>,
    /// Shows the line in time; none without a terminal.
    timer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Line<W> {
    out: W,
    text: String,
    is_shown: bool,
}

impl<W: Write> Line<W> {
    /// Ignores errors: the command continues without a terminal.
    fn write(&mut self, parts: &[&[u8]]) {
        parts.iter().try_for_each(|part| self.out.write_all(part)).and_then(|()| self.out.flush()).ok();
    }

    fn show(&mut self) {
        let text = self.text.clone();
        self.write(&[CLEAR, text.as_bytes()]);
    }
}

impl<W: Write + Send + 'static> Progress<W> {
    fn on(out: W, is_terminal: bool) -> Self {
        let line = Arc::new(Mutex::new(Line { out, text: String::new(), is_shown: false }));
        let timer = is_terminal.then(|| {
            let line = Arc::clone(&line);
            tokio::spawn(async move {
                sleep(DELAY).await;
                let mut line = locked(&line);
                line.is_shown = true;
                line.show();
            })
        });
        Self { line, timer }
    }

    fn set(&self, text: &str) {
        let mut line = locked(&self.line);
        line.text = text.chars().take(MAX_CHARS).collect();
        if line.is_shown {
            line.show();
        }
    }

    fn interrupt<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut line = locked(&self.line);
        if line.is_shown {
            line.write(&[CLEAR]);
        }
        let written = write();
        if line.is_shown {
            line.show();
        }
        written
    }
}

impl<W: Write> Drop for Progress<W> {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
        let mut line = locked(&self.line);
        if std::mem::take(&mut line.is_shown) {
            line.write(&[CLEAR]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal that records everything that is written to it.
    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8_lossy(&locked(&self.0)).replace("\r\x1b[2K", "|")
        }
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            locked(&self.0).write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_says_what_it_does_once_it_takes_longer_than_two_seconds() {
        let screen = Screen::default();
        let progress = Progress::on(screen.clone(), true);
        progress.set("1 of 3");
        sleep(Duration::from_millis(1_900)).await;
        progress.interrupt(|| _ = screen.clone().write(b"first\n"));
        assert_eq!(screen.text(), "first\n");
        progress.set("2 of 3");
        sleep(Duration::from_millis(200)).await;
        progress.interrupt(|| _ = screen.clone().write(b"second\n"));
        progress.set("3 of 3");
        drop(progress);
        assert_eq!(screen.text(), "first\n|2 of 3|second\n|2 of 3|3 of 3|");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_has_no_such_line() {
        let screen = Screen::default();
        let progress = Progress::on(screen.clone(), false);
        progress.set("1 of 3");
        sleep(DELAY * 2).await;
        progress.interrupt(|| ());
        drop(progress);
        assert_eq!(screen.text(), "");
    }
}
