//! The `pointsman` binary: parses the command line and calls one subcommand.

use clap::Parser;
use pointsman::cli::Cli;
use pointsman_sandbox::text::sentence;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match Cli::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", sentence(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
