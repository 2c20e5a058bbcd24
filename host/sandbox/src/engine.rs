//! The engines that run plugins. They are created once, and all calls share them.

use super::{
    limits::{
        ADMISSION_SLOT_WITHIN, ADMISSION_SLOTS, CORE_INSTANCES, KEPT_RESIDENT, KEPT_RESIDENT_OF_TABLES, LARGEST_BINARY, Limits,
        SLOT_WITHIN, SLOTS, TICK, WARM_INSTANCES,
    },
    slots::{Slot, Slots},
};
use crate::sync::locked;
use std::{
    str::FromStr,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

/// The engine that runs a call. Fuel and epochs are settings of compiled code, so each use needs its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// Limited by fuel, so that a question has the same outcome on every machine. Each call gets a new instance.
    ControlPlane,
    /// Limited only by time, because counting fuel costs a fifth of the speed.
    Hot,
}

impl Use {
    const ALL: [Self; 2] = [Self::ControlPlane, Self::Hot];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Hot => "hot",
        }
    }
}

impl FromStr for Use {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|use_| use_.name() == name);
        found.ok_or_else(|| format!("it is one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The purpose of a call. Each lane has its own slots, so that neither delays the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// Plans, comparisons, and all other work that can wait.
    #[default]
    Work,
    /// A user's request, which can't wait.
    Admission,
}

/// Both engines, their ticker, and the slots that calls run in.
#[derive(Debug)]
pub struct Engines {
    control_plane: Engine,
    hot: Engine,
    pooled: bool,
    tick: Duration,
    ticker: Arc<Ticker>,
    /// Acquired before an instance of the pool, so that a call waits instead of failing if the pool is full.
    slots: Slots,
    admission: Slots,
    /// The number of idle warm instances. Each takes an instance of the pool, but no slot.
    warm: AtomicU32,
}

impl Engines {
    /// Creates the engines. If the address space is too small for a pool of instances, each instance is allocated separately, which is
    /// slower but otherwise equivalent.
    pub fn new() -> wasmtime::Result<Self> {
        Self::with_slots(SLOTS)
    }

    /// The same with another number of slots.
    pub fn with_slots(slots: u32) -> wasmtime::Result<Self> {
        Self::with_clock(slots, TICK)
    }

    /// The same with another interval for the checks of deadlines.
    pub fn with_clock(slots: u32, tick: Duration) -> wasmtime::Result<Self> {
        let (pooled, (control_plane, hot)) = match both(Some(slots)) {
            Ok(engines) => (true, engines),
            Err(error) => {
                tracing::warn!(%error, "no address space for a pool of plugin instances; allocating each by itself");
                (false, both(None)?)
            }
        };
        let ticker = Arc::new(Ticker::default());
        ticker.start(vec![control_plane.clone(), hot.clone()], tick);
        Ok(Self {
            control_plane,
            hot,
            pooled,
            tick,
            ticker,
            slots: Slots::new(slots as usize),
            admission: Slots::new(ADMISSION_SLOTS as usize),
            warm: AtomicU32::new(0),
        })
    }

    /// The engine for a use.
    pub fn for_use(&self, use_: Use) -> &Engine {
        match use_ {
            Use::ControlPlane => &self.control_plane,
            Use::Hot => &self.hot,
        }
    }

    /// Whether instances are allocated from a pool.
    pub fn pooled(&self) -> bool {
        self.pooled
    }

    /// The interval at which deadlines are checked.
    pub(super) fn tick(&self) -> Duration {
        self.tick
    }

    /// Reserves one more warm instance, if there is room. Release it with `cooled`.
    pub(super) fn warmed(&self) -> bool {
        let room = |warm: u32| (warm < WARM_INSTANCES).then_some(warm + 1);
        self.warm.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    /// Releases this number of warm instances.
    pub(super) fn cooled(&self, number: u32) {
        self.warm.fetch_sub(number, Ordering::Relaxed);
    }

    /// Waits for a slot. The clock ticks while the slot is held. None if no slot becomes free in time.
    pub fn enter(&self, lane: Lane) -> Option<Entered<'_>> {
        let slot = match lane {
            Lane::Work => self.slots.take(Some(SLOT_WITHIN)),
            Lane::Admission => self.admission.take(Some(ADMISSION_SLOT_WITHIN)),
        }?;
        self.ticker.count(1);
        Some(Entered { ticker: &self.ticker, _slot: slot })
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        self.ticker.end();
    }
}

fn both(slots: Option<u32>) -> wasmtime::Result<(Engine, Engine)> {
    Ok((Engine::new(&config(Use::ControlPlane, slots))?, Engine::new(&config(Use::Hot, slots))?))
}

/// An engine that only compiles, for the separate process. The engines above run its output.
pub(super) fn compiler(use_: Use) -> wasmtime::Result<Engine> {
    Engine::new(&config(use_, None))
}

fn config(use_: Use, slots: Option<u32>) -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        // Policies are synchronous, and this is faster.
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(use_ == Use::ControlPlane)
        .cranelift_opt_level(OptLevel::Speed)
        // NaNs must be identical on all machines.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_backtrace_max_frames(None)
        .wasm_memory64(false)
        // A smaller reservation would require a bounds check on every access. The limiter limits the actual use.
        .memory_reservation(4 << 30);
    if let Some(slots) = slots {
        let slots = slots + ADMISSION_SLOTS + WARM_INSTANCES;
        let mut pool = PoolingAllocationConfig::default();
        pool.total_component_instances(slots)
            .total_core_instances(slots * CORE_INSTANCES)
            .total_memories(slots * 2)
            .total_tables(slots * CORE_INSTANCES)
            .max_core_instances_per_component(CORE_INSTANCES)
            .max_memories_per_component(2)
            .max_tables_per_component(CORE_INSTANCES)
            .max_component_instance_size(LARGEST_BINARY)
            .max_core_instance_size(1 << 20)
            .table_elements(Limits::MAX.table_elements)
            .max_memory_size(Limits::MAX.memory)
            // The memory that a call has used is cleared and reused. Returning the pages and faulting them in again takes longer than a
            // short call.
            .linear_memory_keep_resident(KEPT_RESIDENT)
            .table_keep_resident(KEPT_RESIDENT_OF_TABLES)
            .pagemap_scan(Enabled::Auto);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    config
}

/// A held slot. The ticker runs at least until it is dropped.
#[derive(Debug)]
pub struct Entered<'a> {
    ticker: &'a Ticker,
    _slot: Slot<'a>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.ticker.count(-1);
    }
}

/// Increments the engines' epochs while at least one call is running.
#[derive(Debug, Default)]
struct Ticker {
    state: Mutex<Ticking>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Ticking {
    calls: isize,
    ended: bool,
}

impl Ticker {
    fn start(self: &Arc<Self>, engines: Vec<Engine>, tick: Duration) {
        let ticker = Arc::clone(self);
        thread::spawn(move || {
            loop {
                let state = locked(&ticker.state);
                let idle = |state: &mut Ticking| state.calls == 0 && !state.ended;
                let state = ticker.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
                if state.ended {
                    return;
                }
                drop(state);
                thread::sleep(tick);
                for engine in &engines {
                    engine.increment_epoch();
                }
            }
        });
    }

    fn count(&self, by: isize) {
        let mut state = locked(&self.state);
        state.calls += by;
        // The ticker sleeps only while there are no calls.
        if by > 0 && state.calls == by {
            self.changed.notify_one();
        }
    }

    fn end(&self) {
        locked(&self.state).ended = true;
        self.changed.notify_one();
    }
}
