//! The commands of `cargo xtask`.

mod bench;
mod beside;
mod build;
mod clients;
mod demo;
mod envoy;
mod examples;
mod features;
mod guard;
mod image;
mod layers;
mod packages;
mod scenarios;
mod test;
mod tools;

use clap::{Parser, Subcommand};
use std::{ffi::OsString, process::ExitCode};

/// Pointsman's own commands. Each prepares what it needs: a fresh machine needs only Rust, Go and kubectl.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs Pointsman on an embedded Kubernetes control plane, with a sample, until Ctrl-C.
    Demo(demo::Args),
    /// Runs the checks and tests that every change must pass.
    Test(test::Args),
    /// Runs the scenario tests (tests/scenarios): golden files of the plans for services.
    Scenarios(scenarios::Args),
    /// Runs the benches and compares the results with the goals.
    Bench(bench::Args),
    /// Runs only the embedded control plane, until Ctrl-C.
    Cluster(demo::ClusterArgs),
    /// Builds the container image of the host for linux/amd64 and linux/arm64, without a daemon.
    Image(image::Args),
    /// Writes the generated files: `crds/yaml`, `deploy/roles`, and the tables of labels, metrics, models and node placement in docs.
    Generate {
        /// Only records the built-in policies of this version as released: the last step before a release.
        #[arg(long)]
        release: bool,
    },
    /// Runs a command that ends when its parent does.
    #[command(name = guard::SUBCOMMAND, hide = true)]
    Guard {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Scenarios(args) => scenarios::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Cluster(args) => demo::run_cluster(&args),
        Command::Image(args) => image::run(&args),
        Command::Generate { release: true } => build::record_release(),
        Command::Generate { release: false } => build::generate(),
        Command::Guard { command } => return guard::keep(&command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
