//! The `pointsman` binary: parses the command line and calls one subcommand.

use clap::Parser;
use pointsman::cli::Cli;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match Cli::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", sentence(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes, without those that the error before has told already.
fn sentence(error: &anyhow::Error) -> String {
    let mut told: Vec<String> = Vec::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if told.last().is_none_or(|before| !before.contains(&cause)) {
            told.push(cause);
        }
    }
    told.join(": ")
}
