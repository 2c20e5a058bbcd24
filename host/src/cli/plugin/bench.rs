//! `pointsman plugin bench`.

use super::{
    ask::Answered,
    cases::{Expected, PluginCase},
    file::{FileArgs, PluginUnderTest},
    test::Members,
};
use crate::cli::{
    golden,
    output::{OutputArgs, columns},
    progress,
};
use anyhow::{Result, anyhow, bail};
use clap::Args;
use pointsman_crds::policy::plugin::{PluginInstances, PolicyPoint};
use serde::Serialize;
use std::{path::PathBuf, process::ExitCode};

#[derive(Args, Debug)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Files of golden cases; those that expect an error aren't measured
    #[arg(required = true)]
    cases: Vec<PathBuf>,
    /// Only the case of this name
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Number of calls per case
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    calls: u32,
    #[command(flatten)]
    output: OutputArgs,
}

/// The measurements of one case. Times are in microseconds, per call.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    case: String,
    point: &'static str,
    instances: PluginInstances,
    calls: usize,
    min: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
    /// The maximum of all calls; none at hot points.
    fuel: Option<u64>,
    /// The maximum of all calls, in bytes.
    memory: usize,
}

pub(super) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let mut cases: Vec<PluginCase> = golden::read(&args.cases)?;
    if let Some(name) = &args.case {
        cases.retain(|case| case.name == *name);
        if cases.is_empty() {
            bail!("there is no case {name:?}");
        }
    }
    cases.retain(|case| !matches!(case.expected, Some(Expected::Error(_))));
    if cases.is_empty() {
        bail!("there is nothing to measure: every case expects an error");
    }
    let mut members = Members::new(PluginUnderTest::new(&args.file)?, PluginInstances::Fresh);
    let mut measured = Vec::new();
    for case in &cases {
        progress::set(format!("measuring {}", case.name));
        measured.push(measure(&mut members, case, args.calls)?);
    }
    let hot = |case: &&PluginCase| case.question.point() == PolicyPoint::SchedulingScoring;
    if cases.iter().any(|case| hot(&case)) {
        let mut warm = Members::new(members.bench, PluginInstances::Warm);
        for case in cases.iter().filter(hot) {
            progress::set(format!("measuring {} in a warm instance", case.name));
            measured.push(measure(&mut warm, case, args.calls)?);
        }
    }
    args.output.print(&measured, || table(&measured))?;
    Ok(ExitCode::SUCCESS)
}

fn measure(members: &mut Members, case: &PluginCase, calls: u32) -> Result<Measured> {
    let gives_none = |error: String| anyhow!("{}: the case {:?} can't be measured: {error}", case.place, case.name);
    let member = members.for_config(&case.config).map_err(gives_none)?;
    let ask = || case.question.ask(&member).map_err(|error| gives_none(error.to_string()));
    // The first call has cold caches, unlike all later ones.
    ask()?;
    let mut times = Vec::with_capacity(calls as usize);
    let (mut fuel, mut memory) = (None, 0);
    for _ in 0..calls {
        let Answered { spent, took, .. } = ask()?;
        times.push(took.as_secs_f64() * 1e6);
        fuel = fuel.max(spent.fuel);
        memory = memory.max(spent.memory);
    }
    times.sort_by(f64::total_cmp);
    let [min, p50, p90, p99, max] = [0, 50, 90, 99, 100].map(|percent| percentile(&times, percent));
    let instances = member.bound.instances;
    Ok(Measured { case: case.name.clone(), point: case.point(), instances, calls: times.len(), min, p50, p90, p99, max, fuel, memory })
}

/// The smallest time that this percentage of the calls didn't exceed; `sorted` isn't empty.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    let time = sorted.get(rank - 1).copied().unwrap_or_default();
    (time * 10.0).round() / 10.0
}

fn table(measured: &[Measured]) -> String {
    let rows: Vec<_> = measured
        .iter()
        .map(|case| {
            let time = |time: f64| format!("{time:.1}");
            let Measured { min, p50, p90, p99, max, .. } = *case;
            [
                case.case.clone(),
                format!("{:?}", case.instances).to_lowercase(),
                case.calls.to_string(),
                time(min),
                time(p50),
                time(p90),
                time(p99),
                time(max),
                case.fuel.map_or_else(|| "-".to_owned(), |fuel| fuel.to_string()),
                format!("{} KiB", case.memory.div_ceil(1024)),
            ]
        })
        .collect();
    let times = "Times are in µs, from the question to the answer, including the creation of a fresh instance.";
    columns(["CASE", "INSTANCES", "CALLS", "MIN", "P50", "P90", "P99", "MAX", "FUEL", "MEMORY"], &rows) + times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let times: Vec<f64> = (1..=200).map(f64::from).collect();
        let seen = [0, 50, 90, 99, 100].map(|percent| percentile(&times, percent));
        assert_eq!(seen.map(f64::to_bits), [1.0, 100.0, 180.0, 198.0, 200.0].map(f64::to_bits));
        assert_eq!([0, 50, 99].map(|percent| percentile(&[7.04], percent).to_bits()), [7.0_f64.to_bits(); 3]);
    }

    #[test]
    fn a_row_a_case_is_printed() {
        let case = Measured {
            case: "a".into(),
            point: "scheduling-scoring",
            instances: PluginInstances::Warm,
            calls: 10,
            min: 1.0,
            p50: 2.0,
            p90: 3.0,
            p99: 4.0,
            max: 5.25,
            fuel: None,
            memory: 1025,
        };
        let table = table(&[case]);
        assert!(table.contains("a      warm        10      1.0   2.0   3.0   4.0   5.2   -      2 KiB"), "{table}");
    }
}
