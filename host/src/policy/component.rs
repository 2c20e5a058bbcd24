//! One loaded plugin, and how it is asked.

use super::{
    engine::{Engines, Use},
    limits::Limits,
    told,
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use wasmtime::{
    ResourceLimiter, Store, Trap,
    component::{Component, HasSelf, Instance, InstancePre, Linker},
};

/// The bindings of `wit/`. Only this module and `point` know them.
#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::pedantic)]
pub mod wit {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "policy",
        imports: { default: trappable },
        additional_derives: [PartialEq],
    });
}

use wit::{
    exports::pointsman::policy::{plugin, runtime_selection, scheduling_scoring},
    pointsman::policy::{log, types::Failure},
};

/// What a plugin says of itself.
pub use plugin::Description;
/// What scores are asked for.
pub use wit::pointsman::policy::types::Question;
/// The records of runtime-selection.
pub mod selection {
    pub use super::wit::{
        exports::pointsman::policy::runtime_selection::{
            Candidate, Comparison, Eligible, Model, Request, Supported, SupportedModel, Verdict, Versioned,
        },
        pointsman::policy::types::{Reason, Subject},
    };
}

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
    #[error("no plugin could be asked: all slots were busy")]
    Busy,
    /// It used up its fuel.
    #[error("it used up its {0} units of fuel: it may loop, or its PolicyPlugin needs a higher limits.fuel")]
    Fuel(u64),
    /// It took too long.
    #[error("it took longer than its {} ms", .0.as_millis())]
    Deadline(Duration),
    /// It wanted more memory than it may have.
    #[error("it wanted more than its {} MiB of memory", .0 >> 20)]
    Memory(usize),
    /// It called the host too often.
    #[error("it called the host more than {0} times: it logs too much")]
    HostCalls(u32),
    /// It handed over more than it may.
    #[error("its answer is larger than its {} KiB, or no valid UTF-8", .0 >> 10)]
    Output(usize),
    /// It ended itself.
    #[error("it trapped: {0}")]
    Trap(String),
    /// It can't be brought to life.
    #[error("it can't be instantiated: {0}")]
    Instantiate(String),
    /// It doesn't take its configuration.
    #[error("it refuses its configuration: {0}")]
    Config(String),
    /// It answered that it can't answer.
    #[error("it answered that it can't: {0}")]
    Failed(String),
    /// Its answer makes no sense.
    #[error("its answer makes no sense: {0}")]
    Nonsense(String),
    /// It doesn't answer at this policy point.
    #[error("it doesn't export the interface {0}")]
    NotAnswered(&'static str),
}

/// The state that a call has beside the plugin's own.
struct State {
    limits: Limits,
    memory: usize,
    table_elements: usize,
    /// Whether the plugin was refused memory: the trap that follows doesn't say.
    refused_memory: bool,
    host_calls: u32,
    log: Vec<LogLine>,
}

impl State {
    /// An error and not `false`: what a guest does after a failed growth is anybody's guess.
    fn granted(&self) -> wasmtime::Result<bool> {
        if self.refused_memory { Err(wasmtime::Error::msg("out of memory")) } else { Ok(true) }
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

impl ResourceLimiter for State {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.refused_memory |= !grow(&mut self.memory, self.limits.memory, current, desired);
        self.granted()
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.refused_memory |= !grow(&mut self.table_elements, self.limits.table_elements, current, desired);
        self.granted()
    }

    fn instances(&self) -> usize {
        super::limits::CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        super::limits::CORE_INSTANCES as usize
    }
}

impl log::Host for State {
    fn write(&mut self, level: log::Level, mut message: String) -> wasmtime::Result<()> {
        self.host_calls += 1;
        if self.host_calls > self.limits.host_calls {
            return Err(wasmtime::Error::msg("too many host calls"));
        }
        if self.log.len() >= self.limits.log_lines {
            return Ok(());
        }
        let end = (0..=self.limits.log_line.min(message.len())).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        let level = match level {
            log::Level::Debug => tracing::Level::DEBUG,
            log::Level::Info => tracing::Level::INFO,
            log::Level::Warn => tracing::Level::WARN,
        };
        self.log.push(LogLine { level, message });
        Ok(())
    }
}

impl wit::pointsman::policy::types::Host for State {}

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

/// A plugin that can be asked. Cheap to clone: everything in it is shared.
#[derive(Clone)]
pub struct Plugin {
    engines: Arc<Engines>,
    use_: Use,
    pre: InstancePre<State>,
    config: Arc<String>,
    limits: Limits,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("use", &self.use_).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Plugin {
    /// Links a component that was compiled by the engine for `use_`.
    pub fn new(engines: &Arc<Engines>, use_: Use, component: &Component, config: &str, limits: Limits) -> Result<Self, CallError> {
        let mut linker = Linker::<State>::new(engines.of(use_));
        wit::Policy::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)
            .and_then(|()| linker.instantiate_pre(component))
            .map(|pre| Self { engines: Arc::clone(engines), use_, pre, config: Arc::new(config.to_owned()), limits })
            .map_err(|error| CallError::Instantiate(told(&format!("{error:#}"))))
    }

    /// Asks a fresh instance, so that nothing of one question is left for the next.
    fn ask<Answer>(
        &self,
        configured: bool,
        question: impl FnOnce(&mut Store<State>, &Instance) -> wasmtime::Result<Answer>,
    ) -> Result<(Answer, Spent), CallError> {
        let entered = self.engines.enter().ok_or(CallError::Busy)?;
        let state = State { limits: self.limits, memory: 0, table_elements: 0, refused_memory: false, host_calls: 0, log: Vec::new() };
        let mut store = Store::new(self.engines.of(self.use_), state);
        store.limiter(|state| state);
        store.set_hostcall_fuel(self.limits.output);
        let ticks = self.limits.deadline.as_nanos() / super::limits::TICK.as_nanos();
        store.set_epoch_deadline(u64::try_from(ticks).unwrap_or(u64::MAX).max(1));
        let fuelled = self.use_ == Use::ControlPlane;
        if fuelled {
            store.set_fuel(self.limits.fuel).map_err(|error| CallError::Instantiate(error.to_string()))?;
        }
        let started = Instant::now();
        let answer = self.pre.instantiate(&mut store).and_then(|instance| {
            if configured {
                let guest = plugin::GuestIndices::new(&self.pre)?.load(&mut store, &instance)?;
                if let Err(refusal) = guest.call_configure(&mut store, &self.config)? {
                    return Ok(Err(CallError::Config(told(&refusal))));
                }
            }
            question(&mut store, &instance).map(Ok)
        });
        let time = started.elapsed();
        let fuel = fuelled.then(|| self.limits.fuel - store.get_fuel().unwrap_or_default());
        drop(entered);
        let answer = answer.map_err(|error| self.why(&error, store.data()))??;
        let State { memory, log, .. } = store.into_data();
        Ok((answer, Spent { fuel, memory, time, log }))
    }

    fn why(&self, error: &wasmtime::Error, state: &State) -> CallError {
        if state.refused_memory {
            return CallError::Memory(self.limits.memory);
        }
        if state.host_calls > self.limits.host_calls {
            return CallError::HostCalls(self.limits.host_calls);
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => CallError::Fuel(self.limits.fuel),
            Some(Trap::Interrupt) => CallError::Deadline(self.limits.deadline),
            Some(trap) => CallError::Trap(trap.to_string()),
            // What the host lifts out of the plugin's memory fails without a trap.
            None => {
                let said = format!("{error:#}");
                if said.contains("fuel") || said.contains("utf-8") {
                    CallError::Output(self.limits.output)
                } else {
                    CallError::Trap(told(&said))
                }
            }
        }
    }

    /// What the plugin says of itself. It isn't configured for that.
    pub fn describe(&self) -> Result<(Description, Spent), CallError> {
        let indices = self.indices("plugin", plugin::GuestIndices::new)?;
        self.ask(false, |store, instance| indices.load(&mut *store, instance)?.call_describe(store))
    }

    /// A verdict for every candidate.
    pub fn judge(&self, request: &runtime_selection::Request) -> Result<(Vec<runtime_selection::Verdict>, Spent), CallError> {
        let indices = self.indices("runtime-selection", runtime_selection::GuestIndices::new)?;
        let (verdicts, spent) = self.ask(true, |store, instance| indices.load(&mut *store, instance)?.call_judge(store, request))?;
        let verdicts = answered(verdicts)?;
        if verdicts.len() != request.candidates.len() {
            return Err(CallError::Nonsense(format!("{} verdicts for {} candidates", verdicts.len(), request.candidates.len())));
        }
        Ok((verdicts, spent))
    }

    /// A score for every row.
    pub fn score(&self, question: Question, columns: u32, matrix: &[f64]) -> Result<(Vec<f64>, Spent), CallError> {
        let indices = self.indices("scheduling-scoring", scheduling_scoring::GuestIndices::new)?;
        let (scores, spent) =
            self.ask(true, |store, instance| indices.load(&mut *store, instance)?.call_score(store, question, columns, matrix))?;
        let scores = answered(scores)?;
        let rows = matrix.len() / (columns.max(1) as usize);
        if scores.len() != rows {
            return Err(CallError::Nonsense(format!("{} scores for {rows} candidates", scores.len())));
        }
        Ok((scores, spent))
    }

    fn indices<Indices>(
        &self,
        interface: &'static str,
        look_up: impl FnOnce(&InstancePre<State>) -> wasmtime::Result<Indices>,
    ) -> Result<Indices, CallError> {
        look_up(&self.pre).map_err(|_| CallError::NotAnswered(interface))
    }
}

fn answered<Answer>(answer: Result<Answer, Failure>) -> Result<Answer, CallError> {
    answer.map_err(|failure| CallError::Failed(told(&failure.message)))
}
