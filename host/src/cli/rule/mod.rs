//! `pointsman rule`, with one file per subcommand.

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
    /// Run rules on the objects of golden cases and compare the verdicts; exit with 1 if one differs
    Test(test::TestArgs),
}

pub(super) fn run(args: &RuleArgs) -> Result<ExitCode> {
    match &args.command {
        RuleCommand::Test(args) => test::run(args),
    }
}
