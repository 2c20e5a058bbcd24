//! `pointsman rule`, a file a subcommand.

mod cases;
mod test;

use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct RuleArgs {
    #[command(subcommand)]
    command: RuleCommand,
}

#[derive(Debug, Subcommand)]
enum RuleCommand {
    /// Asks rules about the objects of golden cases and compares their verdicts. Exit code 1 if one differs.
    Test(test::TestArgs),
}

pub(super) fn run(args: &RuleArgs) -> Result<ExitCode> {
    match &args.command {
        RuleCommand::Test(args) => test::run(args),
    }
}
