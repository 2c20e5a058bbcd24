//! One call of a plugin: what it may use, what it has used, and how it can fail.

use super::{
    engine::{Engines, Entered, Lane, Use},
    limits::{CORE_INSTANCES, Limits, START_WITHIN},
    point::{Failure, FailureKind},
};
use crate::text::{cut, printable_line};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use wasmtime::{PoolConcurrencyLimitError, ResourceLimiter, Store, Trap};

/// A line that a plugin has logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: tracing::Level,
    /// What it says.
    pub message: String,
}

/// Why a plugin gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Every slot was taken for too long. No fault of the plugin's.
    #[error("no plugin could be called: all slots were busy")]
    Busy,
    /// It used up its fuel.
    #[error("it used up its {0} units of fuel: it may loop, or its PolicyPlugin needs a higher limits.fuel")]
    Fuel(u64),
    /// It took too long.
    #[error("it took longer than its {} ms", .0.as_millis())]
    Deadline(Duration),
    /// It wanted more memory than it may have.
    #[error("it exceeded its {} MiB of memory", .0 >> 20)]
    Memory(usize),
    /// It called the host too often.
    #[error("it called the host more than {0} times: it logs too much")]
    HostCalls(u32),
    /// It handed over more than it may.
    #[error("its answer is larger than its {} KiB, or not valid UTF-8", .0 >> 10)]
    Output(usize),
    /// It ended itself by a fault.
    #[error("it trapped: {0}")]
    Trap(String),
    /// It ended itself in order.
    #[error("it exited with code {code}{}", last_words(.said))]
    Exited {
        /// The code.
        code: u32,
        /// What it last wrote to stderr.
        said: String,
    },
    /// It called a function that has no answer for a policy.
    #[error("it called {0}: policies are pure")]
    Called(String),
    /// It can't be brought to life.
    #[error("it can't be instantiated: {0}")]
    Instantiate(String),
    /// It speaks no version of the interfaces that it may be asked by.
    #[error("{0}")]
    Version(String),
    /// It doesn't take its configuration.
    #[error("it rejects its configuration: {0}")]
    Config(String),
    /// The question has no form that it could read. No fault of the plugin's.
    #[error("the question can't be written as JSON: {0}")]
    Question(String),
    /// It returned a refusal: the question can't be answered, which is no fault of its own.
    #[error("it returned an error: {0}")]
    Failed(String),
    /// It returned a fault: it is broken.
    #[error("it returned a fault of its own: {0}")]
    Faulted(String),
    /// Its answer makes no sense.
    #[error("its answer is invalid: {0}")]
    Nonsense(String),
    /// Its answer has a form, and is larger than it may be.
    #[error("its answer is too large: {0}")]
    TooLarge(String),
    /// It failed too often.
    #[error("it is quarantined, because it failed too often")]
    Quarantined,
    /// It doesn't answer at this policy point.
    #[error("it doesn't export the interface {0}")]
    NotAnswered(&'static str),
}

impl From<Failure> for CallError {
    fn from(Failure { kind, message, field }: Failure) -> Self {
        let sentence = printable_line(&field.map_or_else(|| message.clone(), |field| format!("{field}: {message}")));
        match kind {
            FailureKind::Refusal => Self::Failed(sentence),
            FailureKind::Fault => Self::Faulted(sentence),
        }
    }
}

impl CallError {
    /// One CamelCase word for it, for conditions and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Busy => "Busy",
            Self::Fuel(_) => "OutOfFuel",
            Self::Deadline(_) => "DeadlineExceeded",
            Self::Memory(_) => "OutOfMemory",
            Self::HostCalls(_) => "TooManyHostCalls",
            Self::Output(_) => "InvalidOutput",
            Self::Trap(_) => "Trapped",
            Self::Exited { .. } => "Exited",
            Self::Called(_) => "ForbiddenCall",
            Self::Instantiate(_) => "NotInstantiated",
            Self::Version(_) => "NoPlugin",
            Self::Config(_) => "ConfigRefused",
            Self::Question(_) => "NotAsked",
            Self::Failed(_) => "Failed",
            Self::Faulted(_) => "Faulted",
            Self::Nonsense(_) | Self::TooLarge(_) => "InvalidAnswer",
            Self::Quarantined => "Quarantined",
            Self::NotAnswered(_) => "PointNotAnswered",
        }
    }

    /// Whether the same question would fail the same way on any machine at any time. What depends on time, on memory that
    /// others use or on free slots isn't kept.
    pub fn lasting(&self) -> bool {
        !matches!(self, Self::Busy | Self::Deadline(_) | Self::Memory(_) | Self::Instantiate(_))
    }
}

fn last_words(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("; on stderr: {words}") }
}

/// The state that a call has beside the plugin's own.
pub(super) struct CallState {
    limits: Limits,
    memory: usize,
    table_elements: usize,
    /// Whether the plugin was refused memory: the trap that follows doesn't say.
    refused_memory: bool,
    host_calls: u32,
    log: Vec<LogLine>,
    /// What a command reads and writes.
    pub(super) stdin: Vec<u8>,
    /// How much of it was read.
    pub(super) read: usize,
    pub(super) stdout: Vec<u8>,
    /// What was written to stdout, by a component, and to stderr since the last line's end.
    lines: [Vec<u8>; 2],
    /// The line of stderr that best says why it ended.
    last_words: String,
    /// The last line of the log that reports a panic.
    panic: String,
}

/// How a line of the log at warn begins that says why the trap after it happens.
const PANIC: &str = "panicked";

impl CallState {
    /// An error and not `false`: what a guest does after a failed growth is anybody's guess.
    fn granted(&self) -> wasmtime::Result<bool> {
        if self.refused_memory { Err(wasmtime::Error::msg("out of memory")) } else { Ok(true) }
    }

    /// Counts a call of the host; every function that a plugin can call begins with this.
    pub(super) fn count_host_call(&mut self) -> wasmtime::Result<()> {
        self.host_calls += 1;
        if self.host_calls > self.limits.host_calls { Err(wasmtime::Error::msg("too many host calls")) } else { Ok(()) }
    }

    /// What the plugin may hand over.
    pub(super) fn output(&self) -> usize {
        self.limits.output
    }

    /// Keeps a line that it logs, and remembers a panic, whatever else there was to keep.
    pub(super) fn log(&mut self, level: tracing::Level, message: String) {
        if level == tracing::Level::WARN && message.starts_with(PANIC) {
            self.panic.clone_from(&message);
            cut(&mut self.panic, self.limits.log_line);
        }
        self.keep_line(level, message);
    }

    /// Keeps a line, if there is room for it.
    fn keep_line(&mut self, level: tracing::Level, mut message: String) {
        if self.log.len() >= self.limits.log_lines {
            return;
        }
        cut(&mut message, self.limits.log_line);
        self.log.push(LogLine { level, message });
    }

    /// Keeps text whose lines may come in pieces: of stderr, or at level debug of stdout.
    pub(super) fn keep_text(&mut self, level: tracing::Level, text: &[u8]) {
        let mut pieces = text.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let line = &mut self.lines[usize::from(level != tracing::Level::DEBUG)];
            let room = self.limits.log_line.saturating_sub(line.len());
            line.extend(&piece[..piece.len().min(room)]);
            if pieces.peek().is_some() {
                self.end_line(level);
            }
        }
    }

    /// Keeps what has been written since the last line's end.
    fn end_line(&mut self, level: tracing::Level) {
        let line = std::mem::take(&mut self.lines[usize::from(level != tracing::Level::DEBUG)]);
        let line = String::from_utf8_lossy(line.trim_ascii_end());
        if line.is_empty() {
            return;
        }
        // Go says why first, and where afterwards; Rust adds a note; traces are indented.
        let settled = self.last_words.starts_with("panic: ") || self.last_words.starts_with("fatal error: ");
        if level == tracing::Level::WARN && !settled && !line.starts_with(char::is_whitespace) && !line.starts_with("note: ") {
            self.last_words = line.clone().into_owned();
        }
        self.keep_line(level, line.into_owned());
    }

    fn end_lines(&mut self) {
        self.end_line(tracing::Level::DEBUG);
        self.end_line(tracing::Level::WARN);
    }

    /// That it ended itself.
    pub(super) fn exited(&mut self, code: u32) -> CallError {
        self.end_lines();
        CallError::Exited { code, said: printable_line(&self.last_words) }
    }
}

/// Counts what all memories, or all tables, have together; whether there is room for one to grow so.
fn grow(total: &mut usize, most: usize, current: usize, desired: usize) -> bool {
    let grown = *total - current.min(*total) + desired;
    let fits = grown <= most;
    if fits {
        *total = grown;
    }
    fits
}

impl ResourceLimiter for CallState {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.refused_memory |= !grow(&mut self.memory, self.limits.memory, current, desired);
        self.granted()
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.refused_memory |= !grow(&mut self.table_elements, self.limits.table_elements, current, desired);
        self.granted()
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        CORE_INSTANCES as usize
    }
}

/// What a call has cost, and what the plugin has logged meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Fuel; none at hot points.
    pub fuel: Option<u64>,
    /// The memory that the plugin had at the end, which is the most that it had.
    pub memory: usize,
    /// From the first instruction of the instance on.
    pub time: Duration,
    /// What it has logged.
    pub log: Vec<LogLine>,
}

/// Where a plugin runs: which engine, and within which limits.
#[derive(Clone, Debug)]
pub(super) struct Sandbox {
    pub(super) engines: Arc<Engines>,
    pub(super) use_: Use,
    pub(super) limits: Limits,
}

impl Sandbox {
    /// Waits for a slot.
    pub(super) fn enter(&self, lane: Lane) -> Result<Entered<'_>, CallError> {
        self.engines.enter(lane).ok_or(CallError::Busy)
    }

    /// The same for a call that has to make its instance first, which takes longer than many a question.
    pub(super) fn starting(&self) -> Self {
        let deadline = self.limits.deadline.max(START_WITHIN);
        Self { limits: Limits { deadline, ..self.limits }, ..self.clone() }
    }

    /// A store for one instance, without fuel or deadline.
    pub(super) fn store(&self) -> Store<CallState> {
        let state = CallState {
            limits: self.limits,
            memory: 0,
            table_elements: 0,
            refused_memory: false,
            host_calls: 0,
            log: Vec::new(),
            stdin: Vec::new(),
            read: 0,
            stdout: Vec::new(),
            lines: Default::default(),
            last_words: String::new(),
            panic: String::new(),
        };
        let mut store = Store::new(self.engines.for_use(self.use_), state);
        store.limiter(|state| state);
        store.set_hostcall_fuel(self.limits.output);
        store
    }

    /// Runs something in a store within the limits, and tells what it has cost. The caller holds a slot: without one there is
    /// no clock.
    pub(super) fn run<Answer>(
        &self,
        _: &Entered<'_>,
        store: &mut Store<CallState>,
        run: impl FnOnce(&mut Store<CallState>) -> wasmtime::Result<Result<Answer, CallError>>,
    ) -> Result<(Answer, Spent), CallError> {
        let ticks = self.limits.deadline.as_nanos() / self.engines.tick().as_nanos().max(1);
        store.set_epoch_deadline(u64::try_from(ticks).unwrap_or(u64::MAX).max(1));
        let fuelled = self.use_ == Use::ControlPlane;
        if fuelled {
            store.set_fuel(self.limits.fuel).map_err(|error| CallError::Instantiate(error.to_string()))?;
        }
        store.data_mut().host_calls = 0;
        store.data_mut().last_words.clear();
        store.data_mut().panic.clear();
        let started = Instant::now();
        let answer = run(store);
        let time = started.elapsed();
        let fuel = fuelled.then(|| self.limits.fuel - store.get_fuel().unwrap_or_default());
        store.data_mut().end_lines();
        let answer = answer.map_err(|error| self.why(&error, store.data()))??;
        let state = store.data_mut();
        Ok((answer, Spent { fuel, memory: state.memory, time, log: std::mem::take(&mut state.log) }))
    }

    fn why(&self, error: &wasmtime::Error, state: &CallState) -> CallError {
        if state.refused_memory {
            return CallError::Memory(self.limits.memory);
        }
        if state.host_calls > self.limits.host_calls {
            return CallError::HostCalls(self.limits.host_calls);
        }
        // What a function of the host's has found.
        if let Some(found) = error.downcast_ref::<CallError>() {
            return found.clone();
        }
        if error.is::<PoolConcurrencyLimitError>() {
            return CallError::Busy;
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => CallError::Fuel(self.limits.fuel),
            Some(Trap::Interrupt) => CallError::Deadline(self.limits.deadline),
            // How a panic ends says less than its message.
            Some(_) if !state.panic.is_empty() => CallError::Trap(printable_line(&state.panic)),
            Some(trap) => CallError::Trap(printable_line(&format!("{trap}{}", last_words(&state.last_words)))),
            // What the host lifts out of the plugin's memory fails without a trap.
            None => {
                let said = format!("{error:#}");
                if said.contains("fuel") || said.contains("utf-8") {
                    CallError::Output(self.limits.output)
                } else {
                    CallError::Trap(printable_line(&said))
                }
            }
        }
    }
}
