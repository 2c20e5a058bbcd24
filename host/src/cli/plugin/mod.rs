//! `pointsman plugin`, a file a subcommand.

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
    /// Tells what a plugin is. Exit code 1 if it is none.
    Inspect(inspect::InspectArgs),
    /// Asks a plugin the questions of golden cases and compares its answers. Exit code 1 if one differs.
    Test(test::TestArgs),
    /// Measures how long a plugin takes to answer the questions of golden cases.
    Bench(bench::BenchArgs),
    /// Write a new plugin's project: policy, golden cases, PolicyPlugin, README
    New(new::NewArgs),
    /// Tells what a plugin would change: on a cluster's services, on those in files, or on recorded placements. Exit code 2 if something changes.
    Diff(Box<compare::DiffArgs>),
    /// Brings a plugin into a cluster: ConfigMaps, and the PolicyPlugin that binds them.
    Push(Box<push::PushArgs>),
    /// Tells how the plugins in a cluster are.
    Status(status::StatusArgs),
    /// Goes back to a revision of a plugin that is kept, and stays there.
    Rollback(rollback::RollbackArgs),
    /// Delete a plugin: the PolicyPlugin, and the ConfigMaps that hold its bytes
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

/// Reads the name of a policy point.
fn point(text: &str) -> Result<PolicyPoint, String> {
    let known = || POINTS.map(name).join(", ");
    POINTS.into_iter().find(|point| name(*point) == text).ok_or_else(|| format!("there is no policy point {text:?}; there are {}", known()))
}

/// A list for people.
fn none_or(items: &[impl AsRef<str>]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ") }
}
