//! The `pointsman` binary: parses the command line and calls one subcommand.

use anyhow::{Context, Result};
use pointsman::cli::{self, Cli};
use pointsman_sandbox::isolate;
use std::process::ExitCode;
use tokio::runtime::Runtime;

/// See the workspace's Cargo.toml.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            cli::report(&error);
            cli::exit_code(&error)
        }
    }
}

fn run() -> Result<ExitCode> {
    isolate::install_hook(|| {});
    let runtime = Runtime::new().context("starting the threads that tasks run on")?;
    // The runtime is never dropped: a task in the middle of a long computation would find its timers gone, and panic. All writers have
    // ended by then.
    Box::leak(Box::new(runtime)).block_on(Cli::parse_process().run())
}
