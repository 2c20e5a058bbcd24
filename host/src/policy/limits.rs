//! What one call of a plugin may use. The only place where these numbers stand.

use std::time::Duration;

/// The largest binary that is looked at. A JavaScript component has 12 MiB, a Python one 18.
pub const LARGEST_BINARY: usize = 64 << 20;

/// How long one binary may take to compile. A Python component of 18 MiB takes 6 s on two cores.
pub const COMPILE_WITHIN: Duration = Duration::from_mins(1);

/// How much address space the compiler gets for one binary. That Python component takes 350 MiB.
pub const COMPILER_MEMORY: u64 = 4 << 30;

/// How many binaries are compiled at once.
pub const COMPILERS: usize = 2;

/// The longest JSON Schema and the longest configuration that are looked at. etcd takes no larger object.
pub const LARGEST_CONFIG: usize = 3 << 19;

/// How long checking a configuration may take. One of 100,000 properties takes 0.1 s.
pub const CHECK_WITHIN: Duration = Duration::from_secs(5);

/// How much address space that gets. Threads reserve a third of it and use next to nothing of that.
pub const CHECKER_MEMORY: u64 = 512 << 20;

/// Bytes of a component in one ConfigMap, which holds 1 MiB together with its keys.
pub const PART: usize = 900 << 10;

/// How many ConfigMaps one component may come in: as many as a PolicyPlugin can name.
pub const PARTS: usize = 65;

/// How long a call waits for a free slot before it fails.
pub const SLOT_WITHIN: Duration = Duration::from_secs(2);

/// How many calls run at once; more wait.
pub const SLOTS: u32 = 32;

/// How many core instances and memories one component may have. Python's have more than 20.
pub const CORE_INSTANCES: u32 = 48;

/// How often a plugin's deadline is looked at.
pub const TICK: Duration = Duration::from_millis(1);

/// How many calls a warm instance answers before a fresh one takes its place.
pub const WARM_CALLS: u32 = 1000;

/// The limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory, all memories together.
    pub memory: usize,
    /// Elements of tables, all tables together.
    pub table_elements: usize,
    /// Fuel: about one unit an instruction. Counted alike on every machine, so the same input has the same outcome everywhere.
    pub fuel: u64,
    /// Time. The backstop where there is fuel, and the only bound at hot points.
    pub deadline: Duration,
    /// Bytes that the plugin may hand to the host in one answer or one host call.
    pub output: usize,
    /// Calls of the host, which cost more time than fuel: without a bound of their own a loop of them would end by the
    /// deadline, sooner on one machine than on another.
    pub host_calls: u32,
    /// Log lines that are kept; further ones are dropped.
    pub log_lines: usize,
    /// Bytes of a log line that are kept.
    pub log_line: usize,
}

impl Limits {
    /// What a plugin gets unless its PolicyPlugin says otherwise.
    pub const DEFAULT: Self = Self {
        memory: 64 << 20,
        table_elements: 100_000,
        fuel: 500_000_000,
        deadline: Duration::from_millis(500),
        output: 4 << 20,
        host_calls: 10_000,
        log_lines: 64,
        log_line: 1 << 10,
    };

    /// What a PolicyPlugin can ask for at most.
    pub const MOST: Self = Self {
        memory: 512 << 20,
        table_elements: 1_000_000,
        fuel: 20_000_000_000,
        deadline: Duration::from_secs(10),
        output: 16 << 20,
        host_calls: 10_000,
        log_lines: 64,
        log_line: 1 << 10,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
