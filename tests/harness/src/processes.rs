//! Finding the processes of a run, to show that none is left behind.

use std::fs;

/// What the `go` command calls a process that it leaves behind itself, about once a day and for a moment: it is Go's and not ours,
/// whatever it inherits, and only Go's user may turn it off.
const GO_S_OWN: &str = "** telemetry **";

/// Every process of a run inherits this environment variable; its value names the run.
pub const RUN_MARK: &str = "POINTSMAN_RUN";

/// The processes, by id and command line, whose environment carries the mark of `run`. Linux only (it reads /proc).
pub fn processes_of_run(run: &str) -> Vec<(u32, String)> {
    let mark = format!("{RUN_MARK}={run}");
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()).then_some(())?;
            // A zombie is gone but for its parent's asking.
            let state = fs::read_to_string(entry.path().join("stat")).ok()?;
            (!state.contains(") Z ")).then_some(())?;
            let command = String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).ok()?).replace('\0', " ");
            (!command.contains(GO_S_OWN)).then_some((pid, command))
        })
        .collect()
}
