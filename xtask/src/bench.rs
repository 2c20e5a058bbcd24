//! Runs the benches and compares their results with the goals, in one table.

use crate::{build, envoy, tools};
use anyhow::{Context, Result, bail};
use pointsman_harness::target_dir;
use std::{
    fs,
    path::{Path, PathBuf},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measures for a shorter time: enough to see whether a change has a large effect.
    #[arg(long)]
    quick: bool,
    /// Runs only this program (admission, allocation, download, endpoint_picker, gateway, model_status, picker, plan, policy, reload,
    /// rules, scheduler_extender, services, shadow), or only the benches whose names contain this.
    #[arg(value_name = "NAME")]
    only: Option<String>,
}

/// The goal of a bench.
enum Goal {
    /// At most this many microseconds.
    Micros(f64),
    /// At most this many times the plain function's time.
    Times(f64),
    /// At most this many times the group's `p50`.
    TimesMedian(f64),
}

/// The bench programs, each a cargo target.
const PROGRAMS: [&str; 14] = [
    "admission",
    "allocation",
    "download",
    "endpoint_picker",
    "gateway",
    "model_status",
    "picker",
    "plan",
    "policy",
    "reload",
    "rules",
    "scheduler_extender",
    "services",
    "shadow",
];

/// The goals, by a bench's group and its name within the group.
const GOALS: [(&str, &str, Goal); 30] = [
    ("an allocation of 5,000 models on 500 nodes", "a request", Goal::Micros(5000.0)),
    ("an allocation of 5,000 models on 500 nodes", "from scratch", Goal::Micros(200_000.0)),
    // At least four fifths of the bytes in the same time.
    ("downloading a model", "downloader", Goal::Times(1.25)),
    ("the status of 200 models on 500 nodes", "a node's report", Goal::Micros(5000.0)),
    ("a call that does nothing", "fresh", Goal::Micros(25.0)),
    ("selection of 100 runtimes", "fresh", Goal::Times(16.0)),
    ("scores of 100 endpoints by 8 features", "warm", Goal::Micros(20.0)),
    ("a decision among 100 runtimes", "cached", Goal::Micros(5.0)),
    ("a pick among 100 endpoints", "default policy", Goal::Micros(40.0)),
    ("a pick among 100 endpoints", "p99", Goal::TimesMedian(4.0)),
    ("a pick among 500 endpoints", "default policy", Goal::Micros(180.0)),
    ("a pick among 500 endpoints", "p99", Goal::TimesMedian(4.0)),
    ("loading a compiled plugin", "both", Goal::Micros(1000.0)),
    ("a reload under load", "p99", Goal::Micros(500_000.0)),
    ("p50 that a picker adds, 1 clients", "pointsman", Goal::Micros(500.0)),
    ("p50 that a proxy adds to a chat completion", "gateway", Goal::Times(1.2)),
    // At least nine tenths of the requests in the same time.
    ("a chat completion at saturation", "gateway", Goal::Times(1.11)),
    ("filter and prioritize of one pod, 1,000 nodes", "p50", Goal::Micros(2000.0)),
    ("filter and prioritize of one pod, 5,000 nodes", "p50", Goal::Micros(10_000.0)),
    // At least four fifths of the pods in the same time.
    ("scheduler throughput at 200 nodes", "extender", Goal::Times(1.25)),
    ("the objects of many InferenceServices", "host", Goal::Times(1.25)),
    ("an InferenceService among many", "CPU", Goal::Micros(3000.0)),
    ("an InferenceService among many", "CPU per object", Goal::Micros(600.0)),
    ("the objects of many LLMInferenceServices", "host", Goal::Times(1.25)),
    ("an LLMInferenceService among many", "CPU", Goal::Micros(4800.0)),
    ("an LLMInferenceService among many", "CPU per object", Goal::Micros(600.0)),
    ("50 rules on an object of 10 KiB", "in the sandbox", Goal::Times(1.0)),
    ("webhook at 200 requests per second", "p99", Goal::Micros(10_000.0)),
    ("the p99 of edits", "during a comparison", Goal::Times(2.0)),
    ("an Immediate change among many services", "slowest", Goal::Micros(500_000.0)),
];

/// The bench that the others of its group are compared with.
const NATIVE: &str = "native";

/// The bench that a high percentile of its group is compared with.
const MEDIAN: &str = "p50";

pub(crate) fn run(args: &Args) -> Result<()> {
    tools::rust()?;
    tools::go()?;
    build::plugins()?;
    // The benches of reloads, services, comparisons, the webhook and the endpoint picker run on it.
    build::control_plane()?;
    let (program, only) = match args.only.as_deref() {
        Some(name) if PROGRAMS.contains(&name) => (name, None),
        only => ("*", only),
    };
    if ["endpoint_picker", "gateway", "*"].contains(&program) {
        envoy::install()?;
    }
    let home = target_dir().join("criterion");
    // Otherwise the results of an earlier run would appear as this one's.
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("clearing {}", home.display()))?;
    }
    // Always select the whole workspace: another selection of packages would select other features, and rebuild everything.
    let benches = build::cargo(&["bench", "--profile", "dist", "--workspace", "--bench", program, "--"])?.env("CRITERION_HOME", &home);
    let short: &[&str] = if args.quick { &["--warm-up-time", "0.2", "--measurement-time", "0.8", "--sample-size", "20"] } else { &[] };
    // Benches without criterion accept no flags.
    let benches = if args.quick { benches.env("POINTSMAN_QUICK", "1") } else { benches };
    benches.args(short).args(only).succeed("a bench")?;

    let measured = measured(&home)?;
    if measured.is_empty() {
        bail!("no bench has {} in its name", args.only.as_deref().unwrap_or_default());
    }
    print!("\n{}", table(&measured));
    Ok(())
}

/// The median of one bench.
#[derive(Clone, Debug, PartialEq)]
struct Measured {
    group: String,
    name: String,
    nanos: f64,
}

/// Reads criterion's results: a folder per group, with a folder per bench.
fn measured(home: &Path) -> Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for group in folders(home)? {
        for bench in folders(&group)? {
            let Ok(estimates) = fs::read_to_string(bench.join("new/estimates.json")) else { continue };
            let nanos = median(&estimates).with_context(|| format!("no median in the estimates of {}", bench.display()))?;
            measured.push(Measured { group: name(&group), name: name(&bench), nanos });
        }
    }
    // Within a group, the bench that the others are compared with comes first.
    measured.sort_by(|a, b| {
        (&a.group, a.name != NATIVE, a.nanos).partial_cmp(&(&b.group, b.name != NATIVE, b.nanos)).unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok(measured)
}

fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Finds the median in criterion's estimates, without a JSON parser: this program must build within seconds.
fn median(estimates: &str) -> Option<f64> {
    let (_, median) = estimates.split_once("\"median\":")?;
    let (_, number) = median.split_once("\"point_estimate\":")?;
    number[..number.find([',', '}'])?].trim().parse().ok()
}

fn table(measured: &[Measured]) -> String {
    let mut rows = vec![["what", "how", "median", "x native", "goal", ""].map(str::to_owned)];
    for Measured { group, name, nanos } in measured {
        let times_of = |basis: &str| {
            let basis = measured.iter().find(|other| other.group == *group && other.name == basis && name != basis);
            basis.map(|basis| nanos / basis.nanos)
        };
        let times = times_of(NATIVE);
        let goal = GOALS.iter().find(|(of, how, _)| of == group && how == name).map(|(_, _, goal)| goal);
        let (wanted, met) = match goal {
            None => (String::new(), None),
            Some(Goal::Micros(most)) => (format!("<= {}", format_duration(most * 1e3)), Some(*nanos <= most * 1e3)),
            Some(Goal::Times(most)) => (format!("<= {most} x native"), times.map(|times| times <= *most)),
            Some(Goal::TimesMedian(most)) => (format!("<= {most} x {MEDIAN}"), times_of(MEDIAN).map(|times| times <= *most)),
        };
        let met = met.map_or("", |met| if met { "met" } else { "NOT MET" });
        let times = times.map_or_else(String::new, |times| format!("{times:.0$}", if times < 10.0 { 2 } else { 1 }));
        rows.push([group.clone(), name.clone(), format_duration(*nanos), times, wanted, met.to_owned()]);
    }
    let widths: Vec<usize> = (0..6).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()).collect();
    let line = |row: &[String; 6]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    lines.insert(1, format!("|{}|\n", rule.join("|")));
    lines.concat()
}

/// Formats a time with about three digits.
fn format_duration(nanos: f64) -> String {
    let (number, unit) = match nanos {
        ..1e3 => (nanos, "ns"),
        ..1e6 => (nanos / 1e3, "µs"),
        ..1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(group: &str, name: &str, nanos: f64) -> Measured {
        Measured { group: group.to_owned(), name: name.to_owned(), nanos }
    }

    #[test]
    fn a_goal_is_met_beside_the_plain_function_of_the_same_run() {
        let group = "selection of 100 runtimes";
        let row = |fresh: f64| {
            let table = table(&[measurement(group, NATIVE, 1000.0), measurement(group, "fresh", fresh)]);
            table.lines().last().unwrap().split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(row(15_900.0)[1..7], [group, "fresh", "15.9 µs", "15.9", "<= 16 x native", "met"]);
        assert_eq!(row(17_000.0)[6], "NOT MET");
    }

    #[test]
    fn a_goal_in_time_needs_nothing_to_compare_with() {
        let table = table(&[measurement("a decision among 100 runtimes", "cached", 5_100.0), measurement("something", "new", 2e9)]);
        assert!(table.contains("| 5.10 µs |          | <= 5.00 µs | NOT MET |"), "{table}");
        assert!(table.contains("| 2.00 s "), "{table}");
    }

    #[test]
    fn a_percentile_is_held_against_its_median() {
        let row = |p99: f64| {
            let group = "a pick among 100 endpoints";
            let table = table(&[measurement(group, "p50", 30_000.0), measurement(group, "p99", p99)]);
            table.lines().last().unwrap().split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(row(120_000.0)[4..7], ["", "<= 4 x p50", "met"]);
        assert_eq!(row(121_000.0)[6], "NOT MET");
    }

    #[test]
    fn the_median_is_found_in_what_criterion_writes() {
        let estimates = r#"{"mean":{"point_estimate":1.0},"median":{"confidence_interval":{"confidence_level":0.95},"point_estimate":1234.5,"standard_error":0.1},"slope":null}"#;
        assert_eq!(median(estimates), Some(1234.5));
        assert_eq!(median("{}"), None);
    }
}
