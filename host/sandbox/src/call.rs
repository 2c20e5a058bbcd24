//! One call of a plugin: its limits, its usage and its failures.

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
    /// Its severity.
    pub level: tracing::Level,
    /// Its text.
    pub message: String,
}

/// Why a plugin didn't answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// All slots were in use for too long. This isn't the plugin's fault.
    #[error("no plugin could be called: all slots were busy")]
    Busy,
    /// It used up its fuel.
    #[error("it used up its {0} units of fuel: it may loop, or its PolicyPlugin needs a higher limits.fuel")]
    Fuel(u64),
    /// It took too long.
    #[error("it took longer than its {} ms", .0.as_millis())]
    Deadline(Duration),
    /// It requested more memory than its limit.
    #[error("it exceeded its {} MiB of memory", .0 >> 20)]
    Memory(usize),
    /// It called the host too often.
    #[error("it called the host more than {0} times: it logs too much")]
    HostCalls(u32),
    /// It returned more than its limit.
    #[error("its answer is larger than its {} KiB, or not valid UTF-8", .0 >> 10)]
    Output(usize),
    /// It trapped.
    #[error("it trapped: {0}")]
    Trap(String),
    /// It exited.
    #[error("it exited with code {code}{}", last_words(.said))]
    Exited {
        /// The exit code.
        code: u32,
        /// The last line that it wrote to stderr.
        said: String,
    },
    /// It called a function that isn't available to policies.
    #[error("it called {0}: policies are pure")]
    Called(String),
    /// It can't be instantiated.
    #[error("it can't be instantiated: {0}")]
    Instantiate(String),
    /// It supports no version of the interfaces that the host may use.
    #[error("{0}")]
    Version(String),
    /// It rejects its configuration.
    #[error("it rejects its configuration: {0}")]
    Config(String),
    /// The question can't be written as JSON. This isn't the plugin's fault.
    #[error("the question can't be written as JSON: {0}")]
    Question(String),
    /// It returned a refusal: the question can't be answered. This isn't the plugin's fault.
    #[error("it returned an error: {0}")]
    Failed(String),
    /// It returned a fault: it is broken.
    #[error("it returned a fault of its own: {0}")]
    Faulted(String),
    /// Its answer is invalid.
    #[error("its answer is invalid: {0}")]
    Nonsense(String),
    /// Its answer is well-formed, but larger than its limit.
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
    /// The error as one CamelCase word, for conditions and events.
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

    /// Whether the same question would fail in the same way on any machine at any time. Failures that depend on time, on memory that others
    /// use or on free slots aren't cached.
    pub fn lasting(&self) -> bool {
        !matches!(self, Self::Busy | Self::Deadline(_) | Self::Memory(_) | Self::Instantiate(_))
    }
}

fn last_words(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("; on stderr: {words}") }
}

/// The host's state of a call.
pub(super) struct CallState {
    limits: Limits,
    memory: usize,
    table_elements: usize,
    /// Whether a memory request was refused. The trap that follows doesn't contain this.
    refused_memory: bool,
    host_calls: u32,
    log: Vec<LogLine>,
    /// The input of a command; `stdout` has its output.
    pub(super) stdin: Vec<u8>,
    /// The number of bytes of stdin that were read.
    pub(super) read: usize,
    pub(super) stdout: Vec<u8>,
    /// The unfinished lines: of a component's stdout, and of stderr.
    lines: [Vec<u8>; 2],
    /// The line of stderr that best explains the exit.
    last_words: String,
    /// The last log line that reports a panic.
    panic: String,
}

/// The start of a log line at level warn that explains the trap after it.
const PANIC: &str = "panicked";

impl CallState {
    /// Returns an error, not `false`: how a guest handles failed growth is unknown.
    fn granted(&self) -> wasmtime::Result<bool> {
        if self.refused_memory { Err(wasmtime::Error::msg("out of memory")) } else { Ok(true) }
    }

    /// Counts a host call. Every function that a plugin can call begins with this.
    pub(super) fn count_host_call(&mut self) -> wasmtime::Result<()> {
        self.host_calls += 1;
        if self.host_calls > self.limits.host_calls { Err(wasmtime::Error::msg("too many host calls")) } else { Ok(()) }
    }

    /// The maximum size of the plugin's output.
    pub(super) fn output(&self) -> usize {
        self.limits.output
    }

    /// Stores a line of the plugin's log. A panic is remembered even if the log is full.
    pub(super) fn log(&mut self, level: tracing::Level, message: String) {
        if level == tracing::Level::WARN && message.starts_with(PANIC) {
            self.panic.clone_from(&message);
            cut(&mut self.panic, self.limits.log_line);
        }
        self.keep_line(level, message);
    }

    /// Stores a line, unless the log is full.
    fn keep_line(&mut self, level: tracing::Level, mut message: String) {
        if self.log.len() >= self.limits.log_lines {
            return;
        }
        cut(&mut message, self.limits.log_line);
        self.log.push(LogLine { level, message });
    }

    /// Stores text whose lines may arrive in pieces: from stderr, or at level debug from stdout.
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

    /// Stores the text since the end of the last line.
    fn end_line(&mut self, level: tracing::Level) {
        let line = std::mem::take(&mut self.lines[usize::from(level != tracing::Level::DEBUG)]);
        let line = String::from_utf8_lossy(line.trim_ascii_end());
        if line.is_empty() {
            return;
        }
        // Go reports the reason first and the place later; Rust adds a note; stack traces are indented.
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

    /// The error for an exit.
    pub(super) fn exited(&mut self, code: u32) -> CallError {
        self.end_lines();
        CallError::Exited { code, said: printable_line(&self.last_words) }
    }
}

/// Adds growth to the total of all memories, or of all tables, if it is within the limit. Returns whether it is.
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

/// The cost of a call, and the plugin's log lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Fuel; none at hot points.
    pub fuel: Option<u64>,
    /// The plugin's memory at the end, which is also its maximum.
    pub memory: usize,
    /// The time since the first instruction of the instance.
    pub time: Duration,
    /// The log lines.
    pub log: Vec<LogLine>,
}

/// Where a plugin runs: the engine and the limits.
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

    /// The same for a call that first creates its instance, which can take longer than the question.
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

    /// Runs code in a store within the limits, and returns the result with its cost. The caller holds a slot: without one, the clock
    /// doesn't tick.
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
        // An error from a host function.
        if let Some(found) = error.downcast_ref::<CallError>() {
            return found.clone();
        }
        if error.is::<PoolConcurrencyLimitError>() {
            return CallError::Busy;
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => CallError::Fuel(self.limits.fuel),
            Some(Trap::Interrupt) => CallError::Deadline(self.limits.deadline),
            // The message of a panic is more useful than the trap after it.
            Some(_) if !state.panic.is_empty() => CallError::Trap(printable_line(&state.panic)),
            Some(trap) => CallError::Trap(printable_line(&format!("{trap}{}", last_words(&state.last_words)))),
            // Reading a result from the plugin's memory fails without a trap.
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
