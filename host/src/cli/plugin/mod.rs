//! `pointsman plugin`, with one file per subcommand.

mod ask;
mod bench;
mod cases;
mod compare;
mod delete;
mod diff;
mod file;
mod inspect;
mod live;
mod new;
mod push;
mod rollback;
mod status;
mod test;

use anyhow::Result;
use clap::{Args, Subcommand};
use pointsman_core::point::{POINTS, name};
use pointsman_crds::policy::plugin::PolicyPoint;
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct PluginArgs {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// Inspect a plugin file; exit with 1 if it isn't one
    Inspect(inspect::InspectArgs),
    /// Run a plugin on golden cases and compare the results; exit with 1 if one differs
    Test(test::TestArgs),
    /// Measure how long a plugin takes for golden cases
    Bench(bench::BenchArgs),
    /// Create a project for a new plugin: policy, golden cases, PolicyPlugin, README
    New(new::NewArgs),
    /// Compare a plugin's changes with the active set: on a cluster's services, on services in files, or on recorded placements; exit with
    /// 2 if something changes
    Diff(Box<compare::DiffArgs>),
    /// Push a plugin into a cluster: its ConfigMaps, and the PolicyPlugin that binds them
    Push(Box<push::PushArgs>),
    /// Show plugin status
    Status(status::StatusArgs),
    /// Roll back a plugin to a retained revision, and pin it
    Rollback(rollback::RollbackArgs),
    /// Delete a plugin: the PolicyPlugin and its ConfigMaps
    Delete(delete::DeleteArgs),
}

pub(super) async fn run(args: PluginArgs) -> Result<ExitCode> {
    match args.command {
        PluginCommand::Inspect(args) => inspect::run(&args),
        PluginCommand::Test(args) => test::run(&args),
        PluginCommand::Bench(args) => bench::run(&args),
        PluginCommand::New(args) => new::run(&args),
        PluginCommand::Diff(args) => Box::pin(compare::run(*args)).await,
        PluginCommand::Push(args) => push::run(*args).await,
        PluginCommand::Status(args) => status::run(args).await,
        PluginCommand::Rollback(args) => rollback::run(args).await,
        PluginCommand::Delete(args) => delete::run(args).await,
    }
}

/// Parses the name of a policy point.
fn point(text: &str) -> Result<PolicyPoint, String> {
    let known = || POINTS.map(name).join(", ");
    POINTS.into_iter().find(|point| name(*point) == text).ok_or_else(|| format!("there is no policy point {text:?}; there are {}", known()))
}

/// A list as text for people.
fn none_or(items: &[impl AsRef<str>]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ") }
}
