//! All limits of plugins, rules and their processes.

use std::time::Duration;

/// The maximum size of a plugin. A JavaScript component has 12 MiB, a Python one 18.
pub const LARGEST_BINARY: usize = 64 << 20;

/// The maximum time to compile one plugin. A Python component of 18 MiB takes 6 s on two cores.
pub const COMPILE_WITHIN: Duration = Duration::from_mins(1);

/// The maximum address space to compile one plugin. That Python component takes 350 MiB.
pub const COMPILER_MEMORY: u64 = 4 << 30;

/// The maximum number of compilers that run at once.
pub const COMPILERS: usize = 2;

/// The maximum size of a JSON Schema and of a configuration. etcd accepts no larger object.
pub const LARGEST_CONFIG: usize = 3 << 19;

/// The maximum time to check a configuration. One with 100,000 properties takes 0.1 s.
pub const CHECK_WITHIN: Duration = Duration::from_secs(5);

/// The maximum address space of that check. Threads reserve a third of it and use almost none.
pub const CHECKER_MEMORY: u64 = 512 << 20;

/// The part of a component in one ConfigMap, in bytes. A ConfigMap holds 1 MiB including its keys.
pub const PART: usize = 900 << 10;

/// The maximum number of ConfigMaps for one component: as many as a PolicyPlugin can name.
pub const MAX_CONFIG_MAP_PARTS: usize = 65;

/// The maximum time that a call waits for a free slot. Each slot becomes free at the latest when its call's deadline expires, so a timeout
/// happens only if this host has a problem.
pub const SLOT_WITHIN: Duration = Duration::from_mins(1);

/// The same at admission, where the API server waits for ten seconds in total.
pub const ADMISSION_SLOT_WITHIN: Duration = Duration::from_secs(2);

/// The maximum number of concurrent calls; others wait.
pub const SLOTS: u32 = 32;

/// The number of additional concurrent calls for admission, so that plans don't block users' writes, and writes don't block plans.
pub const ADMISSION_SLOTS: u32 = 8;

/// The maximum number of core instances, and of tables, of one component. Python components have more than 20.
pub const CORE_INSTANCES: u32 = 48;

/// The part of a memory that a slot keeps and clears between two calls, in bytes. A short call touches a few pages above a stack of 1 MiB.
pub const KEPT_RESIDENT: usize = 2 << 20;

/// The same for a table.
pub const KEPT_RESIDENT_OF_TABLES: usize = 64 << 10;

/// The interval at which deadlines are checked.
pub const TICK: Duration = Duration::from_millis(1);

/// The default deadline of a call at a hot point. It is the only limit there, and a request waits for the call.
pub const HOT_DEADLINE: Duration = Duration::from_millis(200);

/// The minimum deadline of a call that creates a warm instance.
pub const START_WITHIN: Duration = Duration::from_millis(50);

/// The number of calls after which a warm instance is replaced.
pub const WARM_CALLS: u32 = 1000;

/// The number of faults within `ERROR_WINDOW` after which a plugin is quarantined.
pub const ERROR_BUDGET: usize = 5;

/// The time after which a fault no longer counts.
pub const ERROR_WINDOW: Duration = Duration::from_mins(1);

/// The duration of the first quarantine. Each further one lasts twice as long.
pub const QUARANTINE: Duration = Duration::from_secs(2);

/// The maximum duration of a quarantine.
pub const QUARANTINE_MAX: Duration = Duration::from_mins(5);

/// The number of answers after a quarantine that clear a plugin's faults.
pub const RECOVERED_AFTER: u32 = 10;

/// The approximate size of the cache of answers, in bytes.
pub const DECISION_CACHE: usize = 24 << 20;

/// The maximum number of operations in one answer at pod-templating. The host applies them, outside the deadline.
pub const MAX_OPERATIONS: usize = 4096;

/// The maximum size of a cached answer.
pub const LARGEST_KEPT: usize = 1 << 20;

/// The maximum size of a PolicyPlugin's configuration, in bytes. One object contains those of all active plugins, and of the previous set.
pub const LARGEST_BOUND_CONFIG: usize = 64 << 10;

/// The maximum number of idle warm instances of all plugins.
pub const WARM_INSTANCES: u32 = 32;

/// The limits for one rule on one object. Each of fifty rules on an object of 10 KiB uses a thousandth of them.
pub const RULE: Limits = Limits {
    memory: 64 << 20,
    table_elements: 100_000,
    fuel: 50_000_000,
    // As for plugins, fuel is the effective limit.
    deadline: Duration::from_secs(1),
    output: 1 << 20,
    host_calls: 0,
    log_lines: 0,
    log_line: 0,
};

/// The maximum size of an expression in a rule, in bytes. The CRD's schema counts characters.
pub const LONGEST_EXPRESSION: usize = 16 << 10;

/// The maximum size of a rule's ConfigMap, in bytes. The policy set contains a copy of it, with those of all other rules.
pub const LARGEST_PARAMS: usize = 64 << 10;

/// The maximum number of warm instances of the evaluator. They are included in `WARM_INSTANCES`.
pub const RULE_INSTANCES: usize = 8;

/// The maximum number of compiled rules in one instance.
pub const RULE_PROGRAMS: usize = 1024;

/// The maximum memory of an instance that stays warm, in bytes.
pub const RULE_RESIDENT: usize = 24 << 20;

/// The maximum size of a pod's template, in bytes. An object in etcd has at most 1.5 MiB.
pub const LARGEST_TEMPLATE: usize = 1 << 20;

/// The maximum number of runtimes that a rule can look up without a name.
pub const MAX_RUNTIMES_FOUND: usize = 1000;

/// The maximum size of everything that a rule looks up for one object, as JSON, in bytes.
pub const LARGEST_LOOKUP: usize = 1 << 20;

/// The maximum number of subjects that a rule can sum.
pub const MAX_SUBJECTS_ADDED: usize = 10_000;

/// The maximum time that rules may compute new sums for one object. Finished sums are cached for the next attempt.
pub const SUMS_WITHIN: Duration = Duration::from_secs(10);

/// The same while a user waits for an object to be applied.
pub const SUMS_WITHIN_AT_ADMISSION: Duration = Duration::from_secs(1);

/// The limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory, in all memories together.
    pub memory: usize,
    /// Elements of tables, in all tables together.
    pub table_elements: usize,
    /// Fuel: about one unit per instruction. The count is the same on every machine, so the same input has the same outcome everywhere.
    pub fuel: u64,
    /// Time. A safety net if there is fuel, and the only limit at hot points.
    pub deadline: Duration,
    /// Bytes that the plugin may hand to the host in one answer or one host call.
    pub output: usize,
    /// Calls of the host, which cost more time than fuel. Without this limit, a loop of them would end at the deadline, which depends on
    /// the machine.
    pub host_calls: u32,
    /// The number of stored log lines. Further lines are dropped.
    pub log_lines: usize,
    /// The stored bytes of a log line.
    pub log_line: usize,
}

impl Limits {
    /// The defaults of a PolicyPlugin.
    pub const DEFAULT: Self = Self {
        memory: 64 << 20,
        table_elements: 100_000,
        fuel: 200_000_000,
        // Ten times the time that this much fuel takes on an idle machine: fuel is the effective limit.
        deadline: Duration::from_secs(2),
        output: 4 << 20,
        host_calls: 10_000,
        log_lines: 64,
        log_line: 1 << 10,
    };

    /// The maximum values in a PolicyPlugin.
    pub const MAX: Self = Self {
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

/// The limits in a PolicyPlugin, as written.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestedLimits<'a> {
    /// Bytes of memory.
    pub memory: Option<&'a str>,
    /// Bytes of an answer.
    pub output: Option<&'a str>,
    /// Units of work.
    pub fuel: Option<i64>,
    /// A duration.
    pub deadline: Option<&'a str>,
}

impl Limits {
    /// Parses the limits of a PolicyPlugin, or explains why they are rejected.
    pub fn from_requested(asked: RequestedLimits<'_>) -> Result<Self, String> {
        let mut limits = Self::DEFAULT;
        if let Some(text) = asked.memory {
            limits.memory = bytes("memory", text, Self::MAX.memory)?;
        }
        if let Some(text) = asked.output {
            limits.output = bytes("output", text, Self::MAX.output)?;
        }
        if let Some(fuel) = asked.fuel {
            let most = Self::MAX.fuel;
            limits.fuel = u64::try_from(fuel).ok().filter(|fuel| (1..=most).contains(fuel)).ok_or_else(|| beyond("fuel", &fuel, &most))?;
        }
        if let Some(text) = asked.deadline {
            let most = Self::MAX.deadline;
            let deadline = duration(text).ok_or_else(|| format!("limits.deadline: {text:?} is not a duration such as 50ms or 1.5s"))?;
            if deadline > most || deadline < TICK {
                return Err(format!("limits.deadline: {text} isn't between {TICK:?} and {most:?}, the limits of this host"));
            }
            limits.deadline = deadline;
        }
        Ok(limits)
    }
}

fn beyond(field: &str, asked: &dyn std::fmt::Display, most: &dyn std::fmt::Display) -> String {
    format!("limits.{field}: {asked} is 0, or more than {most}, the maximum of this host")
}

fn bytes(field: &str, text: &str, most: usize) -> Result<usize, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(format!("limits.{field}: {text:?} is not a number of bytes such as 64Mi")),
    };
    let asked = number.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    asked.filter(|asked| (1..=most).contains(asked)).ok_or_else(|| beyond(field, &text, &format!("{}Mi", most >> 20)))
}

/// A duration in Go's syntax: numbers with units, concatenated.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, after) = rest.split_at(number);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum += value.parse::<f64>().ok()? * unit;
        rest = after;
    }
    (!text.is_empty()).then_some(sum).and_then(|sum| Duration::try_from_secs_f64(sum).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory: &str, deadline: &str) -> Result<Limits, String> {
        Limits::from_requested(RequestedLimits { memory: Some(memory), deadline: Some(deadline), ..RequestedLimits::default() })
    }

    #[test]
    fn what_is_asked_for_is_given_up_to_the_host_s_maximum() {
        let given = limits("128Mi", "1.5s").unwrap();
        assert_eq!((given.memory, given.deadline, given.fuel), (128 << 20, Duration::from_millis(1500), Limits::DEFAULT.fuel));
        assert_eq!(limits("1k", "1m1s").unwrap_err(), "limits.deadline: 1m1s isn't between 1ms and 10s, the limits of this host");
        assert!(limits("513Mi", "1s").unwrap_err().contains("more than 512Mi"));
        assert!(limits("99999999999999G", "1s").unwrap_err().contains("more than 512Mi"));
        assert!(limits("64MB", "1s").unwrap_err().contains("not a number of bytes"));
        for wrong in ["", "1", "s", "1x", "1..5s", "-1s", "1e3s"] {
            assert!(limits("1Mi", wrong).unwrap_err().contains("not a duration"), "{wrong}");
        }
        let fuel = |fuel| Limits::from_requested(RequestedLimits { fuel: Some(fuel), ..RequestedLimits::default() });
        assert_eq!(fuel(7).unwrap().fuel, 7);
        assert!(fuel(0).is_err() && fuel(i64::MAX).is_err());
    }
}
