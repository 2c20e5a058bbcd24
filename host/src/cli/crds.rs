//! `pointsman crds`.

use super::{ClusterArgs, exit::usage, output, progress};
use crate::crds::{InstallStep, Outcome, install};
use anyhow::{Context, Error, Result, bail};
use clap::{Args, Subcommand};
use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use pointsman_crds::{KINDS, file_name, yaml};
use pointsman_sandbox::sync::locked;
use std::{collections::BTreeMap, fs, io::Write, path::PathBuf, pin::pin, process::ExitCode, sync::Mutex};

/// The maximum number of CRDs that are installed at once: the API server takes a second or more to serve each.
const AT_ONCE: usize = 4;

#[derive(Args, Debug)]
pub(super) struct CrdsArgs {
    #[command(subcommand)]
    command: Option<CrdsCommand>,
}

#[derive(Debug, Subcommand)]
enum CrdsCommand {
    /// Print the CRDs as YAML; the default of `pointsman crds`
    Print(PrintArgs),
    /// Install the CRDs into a cluster; CRDs that others installed are compared and stay unchanged
    Install(InstallArgs),
    /// Compare the CRDs in a cluster with the host's, and change nothing; exit with 1 if one is missing or unusable
    Check(InstallArgs),
}

/// Kinds to select
#[derive(Args, Debug, Default)]
struct Selection {
    /// Include the optional kinds: TrainingJob, which no upstream defines
    #[arg(long)]
    all: bool,
    /// Only these kinds, by kind or plural name
    #[arg(value_name = "KIND")]
    only: Vec<String>,
}

#[derive(Args, Debug, Default)]
struct PrintArgs {
    #[command(flatten)]
    selection: Selection,
    /// Write one file per kind to this folder
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct InstallArgs {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: CrdsArgs) -> Result<ExitCode> {
    match args.command.unwrap_or(CrdsCommand::Print(PrintArgs::default())) {
        CrdsCommand::Print(args) => print(&args),
        CrdsCommand::Install(args) => report(&args, true).await,
        CrdsCommand::Check(args) => report(&args, false).await,
    }
}

impl Selection {
    fn crds(&self) -> Result<Vec<CustomResourceDefinition>> {
        let all: Vec<_> = KINDS.iter().map(|kind| (kind.optional, (kind.crd)())).collect();
        if self.only.is_empty() {
            return Ok(all.into_iter().filter(|(optional, _)| self.all || !optional).map(|(_, crd)| crd).collect());
        }
        let named = |crd: &CustomResourceDefinition, name: &String| {
            [&crd.spec.names.kind, &crd.spec.names.plural].iter().any(|known| known.eq_ignore_ascii_case(name))
        };
        if let Some(unknown) = self.only.iter().find(|name| !all.iter().any(|(_, crd)| named(crd, name))) {
            let known: Vec<_> = all.iter().map(|(_, crd)| crd.spec.names.kind.as_str()).collect();
            bail!(usage(format!("there is no kind {unknown}; the kinds are {}", known.join(", "))));
        }
        Ok(all.into_iter().map(|(_, crd)| crd).filter(|crd| self.only.iter().any(|name| named(crd, name))).collect())
    }
}

fn print(args: &PrintArgs) -> Result<ExitCode> {
    let crds = args.selection.crds()?;
    let Some(dir) = &args.dir else {
        let mut out = std::io::stdout().lock();
        for crd in &crds {
            // A closed pipe (`| head`) is not an error.
            if writeln!(out, "---\n{}", yaml(crd)?.trim_end()).is_err() {
                break;
            }
        }
        return Ok(ExitCode::SUCCESS);
    };
    let writing = || format!("writing into {}", dir.display());
    fs::create_dir_all(dir).with_context(writing)?;
    for crd in &crds {
        fs::write(dir.join(file_name(crd)), yaml(crd)?).with_context(writing)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn report(args: &InstallArgs, write: bool) -> Result<ExitCode> {
    let client = args.cluster.connect().await?;
    let crds = args.selection.crds()?;
    let steps = InstallProgress::new(crds.len());
    let (client, steps) = (&client, &steps);
    let installed = stream::iter(crds.iter().enumerate()).map(|(number, crd)| async move {
        let on_step = |step: InstallStep| steps.set(number, Some(step.describe(&crd.spec.names.kind)));
        let outcome = install(client, crd, write, &on_step).await;
        steps.set(number, None);
        let name = crd.name_any();
        let outcome = outcome.with_context(|| format!("CustomResourceDefinition {name}"))?;
        Ok::<_, Error>((name, outcome))
    });
    // In order: only the waits overlap.
    let mut installed = pin!(installed.buffered(AT_ONCE));
    let mut outcomes = BTreeMap::new();
    let mut good = true;
    while let Some(installed) = installed.next().await {
        let (name, outcome) = installed?;
        good &= match &outcome {
            Outcome::Missing => false,
            Outcome::Foreign(comparison) => comparison.unusable.is_none(),
            _ => true,
        };
        output::print(&format!("{name:<52} {outcome}"));
        *outcomes.entry(outcome.name()).or_insert(0_usize) += 1;
    }
    output::print(&summary(&outcomes));
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The current steps of the CRDs that are being installed, by their position.
#[derive(Debug)]
struct InstallProgress {
    total: usize,
    running: Mutex<BTreeMap<usize, String>>,
}

impl InstallProgress {
    fn new(total: usize) -> Self {
        Self { total, running: Mutex::default() }
    }

    /// Sets the step of a CRD; none if it is done.
    fn set(&self, number: usize, step: Option<String>) {
        let mut running = locked(&self.running);
        match step {
            Some(step) => _ = running.insert(number, step),
            None => _ = running.remove(&number),
        }
        if let Some(line) = self.line(&running) {
            progress::set(line);
        }
    }

    /// The progress: the step of the first CRD that isn't done, because its line is printed next.
    fn line(&self, running: &BTreeMap<usize, String>) -> Option<String> {
        running.first_key_value().map(|(number, step)| format!("{} of {}: {step}", number + 1, self.total))
    }
}

/// The number of CRDs with each outcome.
fn summary(outcomes: &BTreeMap<&str, usize>) -> String {
    outcomes.iter().map(|(outcome, count)| format!("{outcome}: {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_is_the_step_of_the_first_crd_that_is_not_done() {
        let steps = InstallProgress::new(3);
        let line = || steps.line(&locked(&steps.running));
        steps.set(1, Some("applying B".to_owned()));
        assert_eq!(line().as_deref(), Some("2 of 3: applying B"));
        steps.set(0, Some("applying A".to_owned()));
        assert_eq!(line().as_deref(), Some("1 of 3: applying A"));
        steps.set(0, None);
        assert_eq!(line().as_deref(), Some("2 of 3: applying B"));
        steps.set(1, None);
        assert_eq!(line(), None);
    }

    #[test]
    fn the_last_line_counts_what_became_of_the_crds() {
        let counts = BTreeMap::from([(Outcome::Unchanged.name(), 1), (Outcome::Installed.name(), 2)]);
        assert_eq!(summary(&counts), "installed: 2, unchanged: 1");
    }
}
