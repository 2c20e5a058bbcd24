//! The engines that run plugins: made once, shared by all calls.

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

/// Which engine a call runs in: fuel and epochs are settings of compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// Bounded by fuel, so that the same question has the same outcome on every machine; a fresh instance a call.
    ControlPlane,
    /// Bounded by time alone, because counting fuel costs a fifth of the speed.
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

/// What a call is made for. Each has slots of its own, so that neither keeps the other waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lane {
    /// Plans, comparisons, and everything else that can wait.
    #[default]
    Work,
    /// A user's request, which can't.
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
    /// Before the pool, so that a full one means waiting and not failing.
    slots: Slots,
    admission: Slots,
    /// How many instances are kept warm without being asked. They hold places of the pool, but no slot.
    warm: AtomicU32,
}

impl Engines {
    /// Makes them. Where the address space is too short for a pool of instances, each is allocated by itself, which is
    /// slower and does the same.
    pub fn new() -> wasmtime::Result<Self> {
        Self::with_slots(SLOTS)
    }

    /// The same with another number of slots.
    pub fn with_slots(slots: u32) -> wasmtime::Result<Self> {
        Self::with_clock(slots, TICK)
    }

    /// The same, with deadlines that are looked at as often as this.
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

    /// Whether instances come out of a pool.
    pub fn pooled(&self) -> bool {
        self.pooled
    }

    /// How often deadlines are looked at.
    pub(super) fn tick(&self) -> Duration {
        self.tick
    }

    /// Whether one more instance may be kept warm; it counts until `cooled`.
    pub(super) fn warmed(&self) -> bool {
        let room = |warm: u32| (warm < WARM_INSTANCES).then_some(warm + 1);
        self.warm.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    /// So many instances are kept warm no longer.
    pub(super) fn cooled(&self, number: u32) {
        self.warm.fetch_sub(number, Ordering::Relaxed);
    }

    /// Waits for a slot and keeps the clock ticking while it is held. None if no slot gets free in time.
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

/// An engine that only compiles, for the other process that does so. What it makes runs in the engines above.
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
        // Two machines must not tell NaNs apart.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_backtrace_max_frames(None)
        .wasm_memory64(false)
        // A smaller reservation would force a bounds check on every access; the limiter bounds what is used.
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
            // What a call has written is written over for the next one. To give the pages back, and to fault them in again, takes
            // longer than a short call.
            .linear_memory_keep_resident(KEPT_RESIDENT)
            .table_keep_resident(KEPT_RESIDENT_OF_TABLES)
            .pagemap_scan(Enabled::Auto);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    config
}

/// A slot that is held; the ticker runs at least as long.
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

/// Moves the engines' epochs on, while there is a call whose deadline that could reach.
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
        // Only the first call has somebody to wake.
        if by > 0 && state.calls == by {
            self.changed.notify_one();
        }
    }

    fn end(&self) {
        locked(&self.state).ended = true;
        self.changed.notify_one();
    }
}
