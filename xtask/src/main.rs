//! What `cargo xtask ...` runs.

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

/// Pointsman's own commands. Each does its own set-up: on a fresh machine Rust, Go and kubectl are enough.
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
    /// Runs the scenario tests (tests/scenarios), which tell what services become.
    Scenarios(scenarios::Args),
    /// Measures what policies cost, beside plain functions, and holds it against the goals.
    Bench(bench::Args),
    /// Runs the embedded control plane alone, until Ctrl-C.
    Cluster(demo::ClusterArgs),
    /// Builds the container image of the host for linux/amd64 and linux/arm64, without a daemon.
    Image(image::Args),
    /// Writes the generated files: `crds/yaml` and the tables of docs/labels-and-annotations.md.
    Generate {
        /// Writes down the built-in policies of this version as released: the last step before a release.
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
