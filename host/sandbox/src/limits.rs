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
pub const MAX_CONFIG_MAP_PARTS: usize = 65;

/// How long a call waits for a free slot before it fails. Every slot gets free when its call's deadline is over, so that only happens where
/// something is wrong with this host.
pub const SLOT_WITHIN: Duration = Duration::from_mins(1);

/// The same at admission, where the API server waits for ten seconds in all.
pub const ADMISSION_SLOT_WITHIN: Duration = Duration::from_secs(2);

/// How many calls run at once; more wait.
pub const SLOTS: u32 = 32;

/// How many more run at once at admission: whatever is being planned, users can write, and whatever they write, plans are made.
pub const ADMISSION_SLOTS: u32 = 8;

/// How many core instances and memories one component may have. Python's have more than 20.
pub const CORE_INSTANCES: u32 = 48;

/// Bytes of a memory that its slot keeps between two calls, and has cleared. A short call touches a few pages above a stack of 1 MiB.
pub const KEPT_RESIDENT: usize = 2 << 20;

/// The same of a table.
pub const KEPT_RESIDENT_OF_TABLES: usize = 64 << 10;

/// How often a plugin's deadline is looked at.
pub const TICK: Duration = Duration::from_millis(1);

/// The deadline of a call at a hot point, unless the PolicyPlugin says otherwise: nothing else bounds it, and a request waits.
pub const HOT_DEADLINE: Duration = Duration::from_millis(200);

/// The deadline of a call that makes an instance to be kept warm, if its own is shorter.
pub const START_WITHIN: Duration = Duration::from_millis(50);

/// How many calls a warm instance answers before a fresh one takes its place.
pub const WARM_CALLS: u32 = 1000;

/// How many faults within `ERROR_WINDOW` a plugin may have before it isn't asked for a while.
pub const ERROR_BUDGET: usize = 5;

/// How long a fault counts.
pub const ERROR_WINDOW: Duration = Duration::from_mins(1);

/// How long a plugin isn't asked the first time; twice as long each further time.
pub const QUARANTINE: Duration = Duration::from_secs(2);

/// How long a plugin isn't asked at most.
pub const QUARANTINE_MAX: Duration = Duration::from_mins(5);

/// How many answers after a quarantine make a plugin's faults forgotten.
pub const RECOVERED_AFTER: u32 = 10;

/// Bytes of answers that are kept, about.
pub const DECISION_CACHE: usize = 24 << 20;

/// How many operations one answer at pod-templating may have: they are carried out by the host, beyond the plugin's deadline.
pub const MAX_OPERATIONS: usize = 4096;

/// The largest answer that is kept.
pub const LARGEST_KEPT: usize = 1 << 20;

/// Bytes of a PolicyPlugin's configuration: all that decide are in one object, together with what decided before.
pub const LARGEST_BOUND_CONFIG: usize = 64 << 10;

/// How many instances may be kept warm without being asked, over all plugins.
pub const WARM_INSTANCES: u32 = 32;

/// What one rule may use on one object. Fifty rules on an object of 10 KiB use a thousandth of it each.
pub const RULE: Limits = Limits {
    memory: 64 << 20,
    table_elements: 100_000,
    fuel: 50_000_000,
    // As for plugins: what decides is the fuel.
    deadline: Duration::from_secs(1),
    output: 1 << 20,
    host_calls: 0,
    log_lines: 0,
    log_line: 0,
};

/// Bytes of one expression of a rule: the CRD's schema counts characters.
pub const LONGEST_EXPRESSION: usize = 16 << 10;

/// Bytes of a rule's ConfigMap: it is frozen in the policy set, together with those of all other rules.
pub const LARGEST_PARAMS: usize = 64 << 10;

/// How many instances of the evaluator are kept warm; they count among all that are.
pub const RULE_INSTANCES: usize = 8;

/// How many rules one of them keeps compiled.
pub const RULE_PROGRAMS: usize = 1024;

/// Bytes of memory with which one is kept.
pub const RULE_RESIDENT: usize = 24 << 20;

/// Bytes that a pod's template may have: an object in etcd has 1.5 MiB at most.
pub const LARGEST_TEMPLATE: usize = 1 << 20;

/// How many runtimes a rule can look up without a name.
pub const MAX_RUNTIMES_FOUND: usize = 1000;

/// Bytes of all that a rule looks up for one object, as JSON.
pub const LARGEST_LOOKUP: usize = 1 << 20;

/// How many subjects a rule can add up.
pub const MAX_SUBJECTS_ADDED: usize = 10_000;

/// How long the rules may add up what wasn't known before of one object. What they have come to is kept for the next time.
pub const SUMS_WITHIN: Duration = Duration::from_secs(10);

/// The same where somebody waits who applies an object.
pub const SUMS_WITHIN_AT_ADMISSION: Duration = Duration::from_secs(1);

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
        fuel: 200_000_000,
        // Ten times what that fuel takes on a quiet machine: what decides is the fuel.
        deadline: Duration::from_secs(2),
        output: 4 << 20,
        host_calls: 10_000,
        log_lines: 64,
        log_line: 1 << 10,
    };

    /// What a PolicyPlugin can ask for at most.
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

/// What a PolicyPlugin asks for, in its own words.
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
    /// What a PolicyPlugin asks for, or why it can't have it.
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

/// A duration as Go writes it: numbers with units, one after the other.
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
